/* Speed of the kernels that are no linear layers, beside the limits of the machine measured in the same run.
 *
 *     ops_bench [-t THREADS] [-s SECONDS] [-i ISA] [-k NAME]
 *
 * Memory-bound ones (attention of one query at depth, the delta rule's step): GB/s of keys, values and
 * states, each call on the data of another layer, and the share of a plain read of as much memory.
 * Compute-bound ones: GFLOP/s beside fused multiply-adds in registers. Small ones: microseconds a call.
 * Figures are the best (of a twentieth) and the median call in processor time, so that other work on the
 * machine disturbs them less; threads work on layers of their own.
 */
#define _GNU_SOURCE
#include "kernels/ops.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MEMORY ((int64_t)768 << 20)
#define FLOATS ((int64_t)16 << 20)
#define BINS   65536

static char *memory;  /* read and written: fp16 and fp32 numbers of sane size */
static float *floats; /* inputs, outputs and scratch: a part for each thread */
static int threads = 1;
static double seconds = 0.3;

static void *huge(int64_t bytes) {
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) perror("mmap"), exit(1);
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    return p;
}

/* ---- timing ---- */

typedef void piece_fn(void *ctx, int64_t i); /* call number i, on layer i */

typedef struct {
    piece_fn *piece;
    void *ctx;
    int64_t first, pieces;
    double best, median; /* seconds a call */
    pthread_barrier_t *start;
} worker;

static int by_value(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static double busy_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *work(void *arg) {
    worker *w = arg;
    double *bin = malloc(BINS * sizeof *bin);
    int n = 0;
    pthread_barrier_wait(w->start);
    double begin = busy_seconds(), last = begin;
    for (int64_t i = 0; n < BINS && (last - begin < seconds || n < 5); i = (i + 1) % w->pieces) {
        w->piece(w->ctx, w->first + i);
        double now = busy_seconds();
        bin[n++] = now - last;
        last = now;
    }
    qsort(bin, (size_t)n, sizeof *bin, by_value);
    w->best = bin[n / 20], w->median = bin[n / 2];
    free(bin);
    return NULL;
}

/* Units per second of all threads; ctx[t] for thread t; layers are shared out. */
static void measure(piece_fn *piece, void *ctx, size_t size, int64_t layers, double units, double *best,
                    double *median) {
    worker w[16];
    pthread_t id[16] = {0};
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    int64_t each = layers / threads > 0 ? layers / threads : 1;
    for (int t = 0; t < threads; t++) {
        w[t] = (worker){piece, (char *)ctx + (size_t)t * size, t * each % layers, each, 0, 0, &start};
        if (t) pthread_create(&id[t], NULL, work, &w[t]);
    }
    work(&w[0]);
    *best = *median = 0;
    for (int t = 0; t < threads; t++) {
        if (t) pthread_join(id[t], NULL);
        *best += units / w[t].best, *median += units / w[t].median;
    }
    pthread_barrier_destroy(&start);
}

typedef uint64_t wide __attribute__((vector_size(64)));

typedef struct {
    int64_t bytes; /* a call */
    wide sum;
} reader;

static void read_piece(void *ctx, int64_t i) {
    reader *r = ctx;
    const char *p = memory + i * r->bytes;
    for (int64_t j = 0; j + 256 <= r->bytes; j += 256)
        for (int k = 0; k < 4; k++) {
            wide v;
            __builtin_prefetch(p + j + 64 * k + 4096);
            memcpy(&v, p + j + 64 * k, 64);
            r->sum += v;
        }
}

static double read_limit(int64_t bytes, int64_t layers) {
    reader r[16] = {{0}};
    for (int t = 0; t < threads; t++) r[t].bytes = bytes;
    double best, median;
    measure(read_piece, r, sizeof *r, layers, (double)bytes * 1e-9, &best, &median);
    return best;
}

/* ---- attention ---- */

typedef struct {
    const kern_ops *k;
    kern_attention job;
    int64_t layer_bytes; /* of keys; values as much, behind them */
} attention;

static void attention_piece(void *ctx, int64_t i) {
    attention *a = ctx;
    a->job.k.value = memory + 2 * i * a->layer_bytes;
    a->job.v.value = memory + (2 * i + 1) * a->layer_bytes;
    a->k->attend(&a->job, 0, a->job.units);
    if (a->job.tokens < KERN_MANY) a->k->attend_join(&a->job, 0, a->job.tokens * a->job.heads);
}

static void bench_attention(const kern_ops *k, const char *name, int64_t heads, int64_t groups, int64_t d,
                            int64_t tokens, int64_t depth) {
    attention a[16] = {{.k = k}};
    for (int t = 0; t < threads; t++) {
        float *part = floats + t * (FLOATS / 16), *q = part, *y = q + heads * d * tokens;
        a[t] = (attention){.k = k, .layer_bytes = groups * depth * d * 2};
        a[t].job = (kern_attention){.heads = heads,
                                    .groups = groups,
                                    .tokens = tokens,
                                    .d = d,
                                    .d_v = d,
                                    .keys = depth,
                                    .first = depth - tokens,
                                    .units = 64,
                                    .scale = 0.1f,
                                    .q = q,
                                    .q_step = {d, heads * d},
                                    .y_step = {d, heads * d},
                                    .k = {.type = KERN_F16},
                                    .v = {.type = KERN_F16},
                                    .k_step = {depth * d, d},
                                    .v_step = {depth * d, d},
                                    .y = y};
        a[t].job.partial = y + heads * d * tokens;
        a[t].job.scratch = aligned_alloc(64, kern_attention_scratch(&a[t].job) / 64 * 64 + 64);
    }
    int64_t layers = MEMORY / (2 * a[0].layer_bytes);
    layers = depth <= 256 ? 1 : layers < 28 ? layers : 28; /* one: stays in the second cache */
    double best, median, flops = 0;
    for (int64_t t = 0; t < tokens; t++) flops += 4.0 * (double)(d * heads * (depth - tokens + t + 1));
    bool many = tokens >= KERN_MANY;
    double units = many ? flops : (double)(2 * a[0].layer_bytes);
    measure(attention_piece, a, sizeof *a, layers, units * 1e-9, &best, &median);
    printf("| %s %lld/%lld x %lld, %lld of %lld | %s | %.1f (%.1f) %s |", name, (long long)heads,
           (long long)groups, (long long)d, (long long)tokens, (long long)depth, k->isa, best, median,
           many ? "GFLOP/s" : "GB/s");
    if (!many) printf(" %.0f %% |", 100 * best / read_limit(2 * a[0].layer_bytes, layers));
    puts("");
    for (int t = 0; t < threads; t++) free(a[t].job.scratch);
}

/* ---- delta rule ---- */

typedef struct {
    const kern_ops *k;
    kern_delta job;
    int64_t heads, layer_bytes;
} delta;

static void delta_piece(void *ctx, int64_t i) {
    delta *d = ctx;
    d->job.state.value = memory + 2 * i * d->layer_bytes;
    if (d->job.state.rest) d->job.state.rest = (uint16_t *)(void *)(memory + (2 * i + 1) * d->layer_bytes);
    d->k->delta(&d->job, 0, d->heads);
}

static void bench_delta(const kern_ops *k, int64_t heads, int64_t tokens, char kind) {
    const int64_t dim = 128;
    delta a[16] = {{.k = k}};
    for (int t = 0; t < threads; t++) {
        float *x = floats + t * (FLOATS / 16), *gate = x + 4 * heads * dim;
        for (int64_t i = 0; i < heads; i++) gate[i] = -0.01f;
        a[t] = (delta){.k = k, .heads = heads, .layer_bytes = heads * dim * dim * (kind == 'f' ? 4 : 2)};
        a[t].job = (kern_delta){.repeat = 1,
                                .dk = dim,
                                .dv = dim,
                                .tokens = tokens,
                                .q = x,
                                .k = x + heads * dim,
                                .v = x + 2 * heads * dim,
                                .z = x,
                                .q_step = {dim, 0},
                                .k_step = {dim, 0},
                                .v_step = {dim, 0},
                                .z_step = {dim, 0},
                                .y_step = {dim, 0},
                                .log_decay = gate,
                                .beta = x,
                                .gate_step = {1, 0},
                                .unit = true,
                                .unit_eps = 1e-6f,
                                .q_scale = 0.09f,
                                .eps = 1e-6f,
                                .weight = x,
                                .state = {.type = kind == 'f' ? KERN_F32 : KERN_F16},
                                .y = x + 3 * heads * dim};
        if (kind == 'p') a[t].job.state.rest = (uint16_t *)(void *)memory;
        a[t].job.scratch = aligned_alloc(64, kern_delta_scratch(&a[t].job) / 64 * 64 + 64);
    }
    double best, median, bytes = (double)(2 * a[0].layer_bytes * (kind == 'p' ? 2 : 1));
    measure(delta_piece, a, sizeof *a, 18, 1e-9, &best, &median);
    best *= 1e9, median *= 1e9; /* calls a second */
    printf("| delta rule %lld heads, '%c', %lld tokens | %s | %.2f (%.2f) us a token, ", (long long)heads,
           kind, (long long)tokens, k->isa, 1e6 * threads / best / (double)tokens,
           1e6 * threads / median / (double)tokens);
    if (tokens == 1)
        printf("%.1f GB/s read and written | %.0f %% |\n", best * bytes * 1e-9,
               100 * best * bytes * 1e-9 / read_limit(2 * a[0].layer_bytes, 18));
    else
        printf("%.1f GFLOP/s |\n", best * (double)(tokens * heads * dim * dim * 8) * 1e-9);
    for (int t = 0; t < threads; t++) free(a[t].job.scratch);
}

/* ---- small ones ---- */

typedef struct {
    void (*run)(const void *job, const kern_ops *k);
    const void *job;
    const kern_ops *k;
} small;

static void small_piece(void *ctx, int64_t i) {
    const small *s = ctx;
    (void)i;
    for (int j = 0; j < 32; j++) s->run(s->job, s->k);
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

static void bench_small(const kern_ops *k, const char *name, void (*run)(const void *, const kern_ops *),
                        const void *job) {
    small s[16];
    for (int t = 0; t < 16; t++) s[t] = (small){run, job, k};
    int all = threads;
    threads = 1;
    double best, median;
    measure(small_piece, s, sizeof *s, 1, 32, &best, &median);
    threads = all;
    printf("| %s | %s | %.3f (%.3f) us |\n", name, k->isa, 1e6 / best, 1e6 / median);
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
    bench_small(k, "top 64 of 248320", run_top, &top);
    bench_small(k, "argmax of 248320", run_argmax, &top);
}

static void all(const kern_ops *k, const char *only) {
    for (int64_t i = 0; i < FLOATS; i++)
        floats[i] = (float)((uint64_t)i * 2654435761u % 1000003) * 1e-6f - 0.5f;
    if (!only || !strcmp(only, "small")) bench_smalls(k);
    if (!only || !strcmp(only, "decode")) {
        bench_attention(k, "attention", 16, 8, 128, 1, 256);
        bench_attention(k, "attention", 8, 2, 256, 1, 256);
        bench_attention(k, "attention", 16, 8, 128, 1, 2048);
        bench_attention(k, "attention", 16, 8, 128, 1, 8192);
        bench_attention(k, "attention", 8, 2, 256, 1, 2048);
        bench_attention(k, "attention", 8, 2, 256, 1, 8192);
    }
    if (!only || !strcmp(only, "delta")) {
        bench_delta(k, 16, 1, 'p');
        bench_delta(k, 16, 1, 'f');
        bench_delta(k, 16, 1, 'h');
        bench_delta(k, 16, 128, 'p');
    }
    if (!only || !strcmp(only, "prefill")) {
        bench_attention(k, "attention", 16, 8, 128, 128, 128);
        bench_attention(k, "attention", 16, 8, 128, 512, 512);
        bench_attention(k, "attention", 8, 2, 256, 512, 512);
    }
}

int main(int argc, char **argv) {
    const char *isa = NULL, *only = NULL;
    for (int c; (c = getopt(argc, argv, "t:s:i:k:")) != -1;) {
        if (c == 't') threads = atoi(optarg);
        if (c == 's') seconds = atof(optarg);
        if (c == 'i') isa = optarg;
        if (c == 'k') only = optarg;
        if (c == '?') return 1;
    }
    if (threads < 1 || threads > 16) return fputs("1 to 16 threads\n", stderr), 1;
    memory = huge(MEMORY), floats = huge(FLOATS * 4);
    for (int64_t i = 0; i < MEMORY / 2;
         i++) { /* halves of 0.06 to 0.25, both signs; as fp32 about as large */
        uint16_t h = (uint16_t)(0x2C00 + i * 40503 % 0x0800 + (i / 3 & 1) * 0x8000);
        memcpy(memory + 2 * i, &h, 2);
    }
    puts("| kernel | isa | best (median) | share of plain read |\n|---|---|---|---|");
    for (const char *const *name = kern_isas(); *name; name++) {
        kern_ops k;
        err e = {0};
        if (!kern_ops_open(&k, *name, &e)) return fprintf(stderr, "%s\n", e.msg), 1;
        if (!strcmp(k.isa, *name) && (!isa || !strcmp(isa, *name))) all(&k, only);
    }
    return 0;
}
