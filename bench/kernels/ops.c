/* Speed of the kernels that are no linear layers, beside the limits of the machine measured in the same run.
 *
 *     ops_bench [-t THREADS] [-s SECONDS] [-i ISA] [-k small|decode|delta|prefill] [-a]
 *
 * Memory-bound ones (attention of few queries at depth, the delta rule's step): GB/s of keys, values and
 * states, each call on the data of another layer, and the share of a plain read of as much memory.
 * Compute-bound ones: GFLOP/s and the share of fused multiply-adds in registers. Small ones: microseconds a
 * call. Shapes are those of models; -a: the rows of the kernel tests instead. See timing.h for how figures
 * are taken; threads work on layers of their own.
 */
#define _GNU_SOURCE
#include "kernels/ops.h"
#include "cases.h"
#include "timing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY ((int64_t)768 << 20)
#define FLOATS ((int64_t)64 << 20)
#define PART   (FLOATS / MOST_THREADS)
#define LAYERS 28 /* of attention, at most */

static char *memory;  /* read and written: fp16 and fp32 numbers of sane size */
static float *floats; /* inputs, outputs and scratch: a part for each thread */
static timing run = {.threads = 1, .seconds = 0.3};

typedef struct {
    const char *isa;
    const char *name; /* NULL: not measured yet */
    double best;      /* multiplications and additions a second */
} roof;

/* Fused multiply-adds of an instruction set. */
static double fp32_roof(const char *isa) {
    static roof known;
    if (!known.name || strcmp(known.isa, isa) != 0) {
        known.isa = isa;
        known.best = timing_roof(&run, isa, "fp32", &known.name).best;
    }
    return known.best;
}

/* Bytes of an element, and of a pair's both parts. */
static int64_t width_of(char kept) {
    return kept == 'h' ? 2 : 4;
}

static kern_memory memory_of(char kept, char *at, int64_t elements) {
    kern_memory m = {.value = at, .type = kept == 'f' ? KERN_F32 : KERN_F16};
    if (kept == 'p') m.rest = (uint16_t *)(void *)(at + 2 * elements);
    return m;
}

/* ---- attention ---- */

typedef struct {
    const kern_ops *k;
    kern_attention job;
    char kept;
    int64_t keys, values; /* elements of a layer */
} attention;

static int64_t layer_of(const attention *a) {
    return (a->keys + a->values) * width_of(a->kept);
}

/* On the keys and values of layer i. */
static void attention_place(attention *a, int64_t i) {
    char *at = memory + i * layer_of(a);
    a->job.k = memory_of(a->kept, at, a->keys);
    a->job.v = memory_of(a->kept, at + a->keys * width_of(a->kept), a->values);
}

static void attention_piece(void *ctx, int64_t i) {
    attention *a = ctx;
    attention_place(a, i);
    a->k->attend(&a->job, 0, a->job.units);
    if (a->job.tokens < KERN_MANY) a->k->attend_join(&a->job, 0, a->job.tokens * a->job.heads);
}

static void attention_make(attention *a, const kern_ops *k, const attention_case *c, float *part) {
    int64_t rows = c->heads * c->tokens;
    float *y = part + rows * c->d;
    *a = (attention){k,
                     {.heads = c->heads,
                      .groups = c->groups,
                      .tokens = c->tokens,
                      .d = c->d,
                      .d_v = c->d_v,
                      .keys = c->keys,
                      .first = c->first,
                      .units = 64,
                      .scale = 0.1f,
                      .q = part,
                      .y = y,
                      .ldm = c->keys,
                      .k_step = {c->keys * c->d, c->d},
                      .v_step = {c->keys * c->d_v, c->d_v}},
                     c->kept,
                     c->groups * c->keys * c->d,
                     c->groups * c->keys * c->d_v};
    a->job.q_step = c->by_token ? (kern_step){c->d, c->heads * c->d} : (kern_step){c->tokens * c->d, c->d};
    a->job.y_step =
        c->by_token ? (kern_step){c->d_v, c->heads * c->d_v} : (kern_step){c->tokens * c->d_v, c->d_v};
    a->job.gate_step = a->job.y_step;
    if (c->gate) a->job.gate = part;
    if (c->mask) a->job.mask = part;
    a->job.partial = y + rows * c->d_v;
    attention_place(a, 0); /* scratch depends on the kind of memory */
    a->job.scratch = aligned_alloc(64, kern_attention_scratch(&a->job) / 64 * 64 + 64);
}

/* What all queries of a call see: positions. */
static double seen_by(const attention_case *c) {
    double sum = 0;
    for (int64_t t = 0; t < c->tokens; t++) {
        int64_t n = c->mask ? c->keys : c->first + t + 1;
        sum += (double)(n < c->keys ? n : c->keys);
    }
    return sum;
}

static void bench_attention(const kern_ops *k, const attention_case *c) {
    attention a[MOST_THREADS];
    void *ctx[MOST_THREADS];
    for (int t = 0; t < run.threads; t++) attention_make(&a[t], k, c, floats + t * PART), ctx[t] = &a[t];
    int64_t layers = MEMORY / layer_of(&a[0]), last = c->mask ? c->keys : c->first + c->tokens;
    layers = last <= 256 ? 1 : layers < LAYERS ? layers : LAYERS; /* one: stays in the second cache */
    bool many = c->tokens >= KERN_MANY;
    double share = (double)(last < c->keys ? last : c->keys) / (double)c->keys;
    double bytes = share * (double)layer_of(&a[0]);
    double flops = 2.0 * seen_by(c) * (double)(c->heads * (c->d + c->d_v));
    speed s = timing_run(&run, attention_piece, ctx, layers, many ? flops : bytes);
    printf("| attention %lld/%lld x %lld, %lld of %lld, '%c'%s%s | %s | %.1f (%.1f) %s |",
           (long long)c->heads, (long long)c->groups, (long long)c->d, (long long)c->tokens, (long long)last,
           c->kept, c->mask ? ", mask" : "", c->gate ? ", gate" : "", k->isa, s.best * 1e-9, s.median * 1e-9,
           many ? "GFLOP/s" : "GB/s");
    double limit = many ? fp32_roof(k->isa) : timing_read(&run, memory, (int64_t)bytes, layers).best;
    printf(" %.0f %% |\n", 100 * s.best / limit);
    for (int t = 0; t < run.threads; t++) free(a[t].job.scratch);
}

/* ---- delta rule ---- */

typedef struct {
    const kern_ops *k;
    kern_delta job;
    char kept;
    int64_t heads, elements; /* elements of a layer's state */
} delta;

static void delta_place(delta *d, int64_t i) {
    d->job.state = memory_of(d->kept, memory + i * d->elements * width_of(d->kept), d->elements);
}

static void delta_piece(void *ctx, int64_t i) {
    delta *d = ctx;
    delta_place(d, i);
    d->k->delta(&d->job, 0, d->heads);
}

/* Queries, keys and values of a token lie side by side, as a convolution leaves them. */
static void delta_make(delta *d, const kern_ops *k, const delta_case *c, float *part) {
    int64_t keys = c->heads / c->repeat * c->dk, values = c->heads * c->dv, row = 2 * keys + values;
    float *gate = part + (row + 2 * values) * c->tokens;
    for (int64_t i = 0; i < c->heads * c->tokens; i++) gate[i] = c->decayed ? 0.99f : -0.01f;
    *d = (delta){k,
                 {.repeat = c->repeat,
                  .dk = c->dk,
                  .dv = c->dv,
                  .tokens = c->tokens,
                  .q = part,
                  .k = part + keys,
                  .v = part + 2 * keys,
                  .q_step = {c->dk, row},
                  .k_step = {c->dk, row},
                  .v_step = {c->dv, row},
                  .z_step = {c->dv, values},
                  .y_step = {c->dv, values},
                  .log_decay = gate,
                  .beta = gate,
                  .gate_step = {1, c->heads},
                  .decayed = c->decayed,
                  .unit = c->unit,
                  .unit_eps = 1e-6f,
                  .q_scale = 0.09f,
                  .eps = 1e-6f,
                  .transposed = c->transposed,
                  .y = part + row * c->tokens},
                 c->kept,
                 c->heads,
                 c->heads * c->dk * c->dv};
    if (c->gate) d->job.z = part + (row + values) * c->tokens;
    if (c->weight) d->job.weight = part;
    delta_place(d, 0);
    d->job.scratch = aligned_alloc(64, kern_delta_scratch(&d->job) / 64 * 64 + 64);
}

static void bench_delta(const kern_ops *k, const delta_case *c) {
    enum { DELTA_LAYERS = 18 };
    delta d[MOST_THREADS];
    void *ctx[MOST_THREADS];
    for (int t = 0; t < run.threads; t++) delta_make(&d[t], k, c, floats + t * PART), ctx[t] = &d[t];
    int64_t bytes = d[0].elements * width_of(c->kept);
    speed s = timing_run(&run, delta_piece, ctx, DELTA_LAYERS, 1);
    double us = 1e6 * run.threads / (double)c->tokens;
    printf("| delta rule %lld x %lld x %lld, '%c', %lld tokens | %s | %.2f (%.2f) us a token, ",
           (long long)c->heads, (long long)c->dk, (long long)c->dv, c->kept, (long long)c->tokens, k->isa,
           us / s.best, us / s.median);
    if (c->tokens == 1) {
        double moved = 2.0 * (double)bytes * s.best;
        printf("%.1f GB/s read and written | %.0f %% |\n", moved * 1e-9,
               100 * moved / timing_read(&run, memory, bytes, DELTA_LAYERS).best);
    } else {
        double flops = 8.0 * (double)(c->tokens * d[0].elements) * s.best;
        printf("%.1f GFLOP/s | %.0f %% |\n", flops * 1e-9, 100 * flops / fp32_roof(k->isa));
    }
    for (int t = 0; t < run.threads; t++) free(d[t].job.scratch);
}

/* ---- small ones ---- */

enum { SMALL_CALLS = 32 }; /* in a bin */

typedef struct {
    void (*call)(const void *job, const kern_ops *k);
    const void *job;
    const kern_ops *k;
} small;

static void small_piece(void *ctx, int64_t i) {
    const small *s = ctx;
    (void)i;
    for (int j = 0; j < SMALL_CALLS; j++) s->call(s->job, s->k);
}

static void run_norm(const void *job, const kern_ops *k) {
    k->norm(job, 0, 1);
}
static void run_heads(const void *job, const kern_ops *k) {
    k->norm(job, 0, 16);
}
static void run_swiglu(const void *job, const kern_ops *k) {
    k->pointwise[KERN_SILU_MUL](job, 0, 3072);
}
static void run_softmax(const void *job, const kern_ops *k) {
    k->softmax(job, 0, 1);
}
static void run_conv(const void *job, const kern_ops *k) {
    k->conv(job, 0, 6144);
}
static void run_top(const void *job, const kern_ops *k) {
    k->top(job, 0, 1);
}
static void run_argmax(const void *job, const kern_ops *k) {
    const kern_top *t = job;
    *t->ids = (int32_t)k->argmax(t->x, t->n);
}

static void bench_small(const kern_ops *k, const char *name, void (*call)(const void *, const kern_ops *),
                        const void *job) {
    small one = {call, job, k};
    void *ctx = &one;
    speed s = timing_run(&(timing){1, run.seconds}, small_piece, &ctx, 1, SMALL_CALLS);
    printf("| %s | %s | %.3f (%.3f) us | |\n", name, k->isa, 1e6 / s.best, 1e6 / s.median);
}

static void bench_smalls(const kern_ops *k) {
    float *x = floats, *y = floats + (1 << 20);
    kern_norm norm = {
        .n = 1024, .inner = 1, .kind = KERN_NORM_MEAN, .eps = 1e-6f, .scale = 1, .x = x, .weight = x, .y = y};
    kern_norm heads = {.n = 128,
                       .inner = 16,
                       .kind = KERN_NORM_MEAN,
                       .eps = 1e-6f,
                       .scale = 1,
                       .x = x,
                       .weight = x,
                       .x_step = {0, 128},
                       .y_step = {0, 128},
                       .cos = x,
                       .sin = x + 128,
                       .dims = 128,
                       .y = y};
    kern_pointwise swiglu = {.n = 3072, .x = x, .y = x, .o = y};
    kern_softmax softmax = {.n = 2048, .x = x, .y = y, .scale = 1};
    kern_conv conv = {.channels = 6144,
                      .taps = 4,
                      .tokens = 1,
                      .valid = 1,
                      .u = x,
                      .w = x,
                      .ld_state = 3,
                      .w_tap = 1,
                      .w_channel = 4,
                      .silu = true,
                      .state = {memory, NULL, KERN_F16},
                      .y = y};
    int32_t ids[64];
    kern_top top = {.n = 248320, .k = 64, .x = x, .ids = ids, .scratch = y};
    bench_small(k, "RMS norm 1024", run_norm, &norm);
    bench_small(k, "RMS norm + rotation 16 x 128", run_heads, &heads);
    bench_small(k, "SwiGLU 3072", run_swiglu, &swiglu);
    bench_small(k, "softmax 2048", run_softmax, &softmax);
    bench_small(k, "convolution step 6144", run_conv, &conv);
    conv.tokens = conv.valid = 64, conv.ldu = conv.ldy = 6144;
    bench_small(k, "convolution of 64 tokens, 6144", run_conv, &conv);
    bench_small(k, "top 64 of 248320", run_top, &top);
    bench_small(k, "argmax of 248320", run_argmax, &top);
}

/* Shapes of models: depth behind one query, prompts, states. */
static const attention_case decode[] = {
    {16, 8, 1, 128, 128, 256, 255, 'h', false, false, true},
    {8, 2, 1, 256, 256, 256, 255, 'h', false, false, true},
    {16, 8, 1, 128, 128, 2048, 2047, 'h', false, false, true},
    {16, 8, 1, 128, 128, 8192, 8191, 'h', false, false, true},
    {8, 2, 1, 256, 256, 2048, 2047, 'h', false, false, true},
    {8, 2, 1, 256, 256, 8192, 8191, 'h', false, false, true},
};
static const attention_case prefill[] = {
    {16, 8, 128, 128, 128, 128, 0, 'h', false, false, true},
    {16, 8, 512, 128, 128, 512, 0, 'h', false, false, true},
    {8, 2, 512, 256, 256, 512, 0, 'h', false, false, true},    {8, 2, 512, 256, 256, 2560, 2048, 'h', false, false, true},
};
static const delta_case states[] = {
    {16, 1, 128, 128, 1, 'p', false, true, true, true, false},
    {16, 1, 128, 128, 1, 'f', false, true, true, true, false},
    {16, 1, 128, 128, 1, 'h', false, true, true, true, false},
    {16, 1, 128, 128, 128, 'p', false, true, true, true, false},
};
#define COUNT(rows) (int)(sizeof(rows) / sizeof *(rows))

static void all_attention(const kern_ops *k, const attention_case *c, int n) {
    for (int i = 0; i < n; i++) bench_attention(k, &c[i]);
}

static void all_delta(const kern_ops *k, const delta_case *c, int n) {
    for (int i = 0; i < n; i++) bench_delta(k, &c[i]);
}

static void all(const kern_ops *k, const char *only, bool tests) {
    for (int64_t i = 0; i < FLOATS; i++)
        floats[i] = (float)((uint64_t)i * 2654435761u % 1000003) * 1e-6f - 0.5f;
    if (!only || !strcmp(only, "small")) bench_smalls(k);
    if (!only || !strcmp(only, "decode"))
        all_attention(k, tests ? attention_cases : decode, tests ? n_attention_cases : COUNT(decode));
    if (!only || !strcmp(only, "delta"))
        all_delta(k, tests ? delta_cases : states, tests ? n_delta_cases : COUNT(states));
    if (!tests && (!only || !strcmp(only, "prefill"))) all_attention(k, prefill, COUNT(prefill));
}

int main(int argc, char **argv) {
    const char *isa = NULL, *only = NULL;
    bool tests = false;
    for (int c; (c = getopt(argc, argv, "t:s:i:k:a")) != -1;) {
        if (c == 't') run.threads = atoi(optarg);
        if (c == 's') run.seconds = atof(optarg);
        if (c == 'i') isa = optarg;
        if (c == 'k') only = optarg;
        if (c == 'a') tests = true;
        if (c == '?') return 2;
    }
    if (run.threads < 1 || run.threads > MOST_THREADS) return fputs("1 to 16 threads\n", stderr), 2;
    memory = timing_memory(MEMORY), floats = timing_memory(FLOATS * 4);
    for (int64_t i = 0; i < MEMORY / 2;
         i++) { /* halves of 0.06 to 0.25, both signs; as fp32 about as large */
        uint16_t h = (uint16_t)(0x2C00 + i * 40503 % 0x0800 + (i / 3 & 1) * 0x8000);
        memcpy(memory + 2 * i, &h, 2);
    }
    puts("| kernel | isa | best (median) | share of plain read, of fp32 products |\n|---|---|---|---|");
    for (const char *const *name = kern_isas(); *name; name++) {
        kern_ops k;
        err e = {0};
        if (!kern_ops_open(&k, *name, &e)) return fprintf(stderr, "%s\n", e.msg), 1;
        if (!strcmp(k.isa, *name) && (!isa || !strcmp(isa, *name))) all(&k, only, tests);
    }
    return 0;
}
