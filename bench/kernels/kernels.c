/* Speed of the linear kernels beside the limits of the machine, measured in the same minute.
 *
 *     kernels_bench [-t THREADS] [-n ROWS_OF_X] [-c COLS] [-s SECONDS] [-i ISA] [-k KIND] [-p PATH]
 *
 * n = 1: GB/s of weight bytes (codes and scales), streamed from 512 MiB in huge pages ("memory") and from a
 * weight that stays in the second-level cache ("cache"), and the share of the best plain read of the same
 * memory. n > 1: GFLOP/s (2 * n * rows * cols) on the cached weight and on one of 16 MiB. Every figure is the
 * best (of a twentieth of the bins) and the median of many short bins, in processor time; threads run
 * together.
 */
#define _GNU_SOURCE
#include "kernels/kernels.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MEMORY ((int64_t)512 << 20)
#define SCALES ((int64_t)64 << 20)
#define BINS   4096

typedef struct {
    const char *name;
    kern_kind kind;
    unsigned bits; /* of a weight, without scales */
} kind_row;

static const kind_row kinds[] = {
    {"palette4", KERN_W_PALETTE4, 4}, {"palette6", KERN_W_PALETTE, 6}, {"palette8", KERN_W_PALETTE, 8},
    {"int4b32", KERN_W_BLOCK4, 4},    {"int8b32", KERN_W_BLOCK8, 8},   {"int8", KERN_W_CHANNEL8, 8},
    {"fp16", KERN_W_F16, 16},         {"palette3", KERN_W_PALETTE, 3},
};

typedef struct {
    int threads, n;
    int64_t cols;
    double seconds;
    const char *isa, *kind, *path;
} options;

static uint8_t *data, *scales, *tables;

static void *huge(int64_t bytes) {
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) perror("mmap"), exit(1);
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    return p;
}

/* Bytes that are sane as fp16, too. */
static void fill(uint8_t *p, int64_t bytes) {
    uint64_t s = 1;
    for (int64_t i = 0; i < bytes; i += 8) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        uint64_t v = (s ^ s >> 29) & 0xBFFFBFFFBFFFBFFFu;
        memcpy(p + i, &v, 8);
    }
}

static kern_weight weight_of(const kind_row *k, int64_t rows, int64_t cols) {
    kern_weight w = {.rows = rows, .cols = cols, .block_rows = 1, .block_cols = cols, .data = data};
    if (k->kind == KERN_W_PALETTE || k->kind == KERN_W_PALETTE4)
        w.bits = k->bits, w.table = tables, w.table_type = KERN_F16, w.block_rows = 32;
    else if (k->kind == KERN_W_F16)
        w.type = KERN_F16, w.block_rows = rows;
    else
        w.type = k->bits == 8 ? KERN_I8 : KERN_I4, w.scale = scales, w.scale_type = KERN_F16;
    if (k->kind == KERN_W_BLOCK4 || k->kind == KERN_W_BLOCK8) w.block_cols = 32;
    return w;
}

static double row_bytes(const kind_row *k, int64_t cols) {
    double b = (double)cols * k->bits / 8;
    return k->kind == KERN_W_BLOCK4 || k->kind == KERN_W_BLOCK8 ? b + (double)cols / 16 : b;
}

/* ---- timing ---- */

typedef struct {
    void (*piece)(void *ctx, int64_t i); /* one bin's work */
    void *ctx;
    int64_t pieces; /* of this thread, walked in a circle from `first` on */
    int64_t first;
    double seconds, best, median; /* seconds of a bin */
    pthread_barrier_t *start;
} worker;

/* This thread's processor time: on a shared machine, waiting for the processor is no property of a kernel. */
static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static void *work(void *arg) {
    worker *w = arg;
    static _Thread_local double bin[BINS];
    int n = 0;
    pthread_barrier_wait(w->start);
    double begin = seconds(), last = begin;
    for (int64_t i = 0; n < BINS && (last - begin < w->seconds || n < 3); i = (i + 1) % w->pieces) {
        w->piece(w->ctx, w->first + i);
        double now = seconds();
        bin[n++] = now - last;
        last = now;
    }
    qsort(bin, (size_t)n, sizeof *bin, by_value);
    w->best = bin[n / 20], w->median = bin[n / 2]; /* the best of a twentieth: one lucky tick is no figure */
    return NULL;
}

typedef struct {
    double best, median; /* units per second, all threads together */
} rate;

static rate measure(const options *o, void (*piece)(void *, int64_t), void **ctx, int64_t pieces,
                    double units) {
    worker w[16];
    pthread_t id[16] = {0};
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)o->threads);
    for (int t = 0; t < o->threads; t++) {
        w[t] =
            (worker){piece, ctx[t], pieces / o->threads, t * (pieces / o->threads), o->seconds, 0, 0, &start};
        if (t) pthread_create(&id[t], NULL, work, &w[t]);
    }
    work(&w[0]);
    rate r = {0, 0};
    for (int t = 0; t < o->threads; t++) {
        if (t) pthread_join(id[t], NULL);
        r.best += units / w[t].best, r.median += units / w[t].median;
    }
    pthread_barrier_destroy(&start);
    return r;
}

#define READ ((int64_t)2 << 20)
static void read_piece(void *ctx, int64_t i) {
    typedef uint64_t wide __attribute__((vector_size(64)));
    const char *p = (const char *)data + i * READ;
    wide s[4] = {{0}};
    for (int64_t j = 0; j < READ; j += 256)
        for (int k = 0; k < 4; k++) {
            wide v;
            __builtin_prefetch(p + j + 64 * k + 4096);
            memcpy(&v, p + j + 64 * k, 64);
            s[k] += v;
        }
    s[0] += s[1] + s[2] + s[3];
    *(uint64_t *)ctx += s[0][0];
}

typedef struct {
    kern_linear job;
    kern_choice choice;
    int64_t rows; /* a bin */
} bench;

static void linear_piece(void *ctx, int64_t i) {
    bench *b = ctx;
    b->choice.run(&b->job, i * b->rows, (i + 1) * b->rows);
}

/* One kernel on a weight of `bytes` bytes in bins of about `bin` bytes. */
static rate run(const options *o, const kern_table *k, const kind_row *kind, kern_path path, double bytes,
                double bin, kern_choice *c) {
    double row = row_bytes(kind, o->cols);
    int64_t rows = (int64_t)(bin / row) / 32 * 32;
    rows = rows < 32 ? 32 : rows;
    int64_t pieces = (int64_t)(bytes / ((double)rows * row));
    if (pieces < o->threads) pieces = o->threads;
    kern_weight w = weight_of(kind, rows * pieces, o->cols);
    *c = kern_choose(k, &w, path, o->n);
    size_t xs = (size_t)(o->cols * o->n), px = kern_x_bytes(c->form, o->cols, o->n);
    float *x = malloc(xs * 4), *y = aligned_alloc(64, (size_t)(w.rows * o->n) * 4 + 64);
    void *prepared = aligned_alloc(64, px + 64);
    for (size_t i = 0; i < xs; i++) x[i] = (float)(i * 2654435761u % 1000) * 1e-3f - 0.5f;
    if (c->prepare) c->prepare(prepared, x, o->cols, o->cols, 0, o->n);
    bench b[16];
    void *ctx[16];
    for (int t = 0; t < o->threads; t++) {
        b[t] = (bench){{.w = &w,
                        .x = c->prepare ? prepared : x,
                        .n = o->n,
                        .ldx = o->cols,
                        .y = y,
                        .ldy = w.rows,
                        .scratch = aligned_alloc(64, c->scratch + 64)},
                       *c,
                       rows};
        ctx[t] = &b[t];
    }
    double units = o->n > 1 ? 2.0 * (double)(rows * o->cols * o->n) : (double)rows * row;
    rate r = {0, 0};
    if (c->path == path) r = measure(o, linear_piece, ctx, pieces, units * 1e-9);
    for (int t = 0; t < o->threads; t++) free(b[t].job.scratch);
    free(x), free(y), free(prepared);
    return r;
}

static rate roof(const options *o) {
    uint64_t sink[16] = {0};
    void *ctx[16];
    for (int t = 0; t < o->threads; t++) ctx[t] = &sink[t];
    rate r = measure(o, read_piece, ctx, MEMORY / READ, (double)READ * 1e-9);
    if (sink[0] == 42) puts("");
    return r;
}

static void all_kinds(const options *o, const kern_table *k) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int path = 0; path < KERN_PATHS; path++) {
            kern_choice c;
            if ((o->kind && strcmp(o->kind, kinds[i].name)) ||
                (o->path && strcmp(o->path, kern_path_name[path])))
                continue;
            rate cache = run(o, k, &kinds[i], (kern_path)path, 384 << 10, 192 << 10, &c);
            if (c.path != (kern_path)path) continue;
            rate memory = run(o, k, &kinds[i], (kern_path)path,
                              o->n > 1 ? 16 << 20 : (double)MEMORY - (1 << 20), 1 << 20, &c);
            printf("| %s | %s | %s | %.1f | %.1f (%.1f) |", kinds[i].name, kern_path_name[path], k->isa,
                   cache.best, memory.best, memory.median);
            if (o->n == 1) printf(" %.0f %% |", 100 * memory.best / roof(o).best);
            puts("");
            fflush(stdout);
        }
}

int main(int argc, char **argv) {
    options o = {.threads = 1, .n = 1, .cols = 1024, .seconds = 0.3};
    for (int c; (c = getopt(argc, argv, "t:n:c:s:i:k:p:")) != -1;) {
        if (c == 't') o.threads = atoi(optarg);
        if (c == 'n') o.n = atoi(optarg);
        if (c == 'c') o.cols = atoll(optarg);
        if (c == 's') o.seconds = atof(optarg);
        if (c == 'i') o.isa = optarg;
        if (c == 'k') o.kind = optarg;
        if (c == 'p') o.path = optarg;
        if (c == '?') return 1;
    }
    if (o.threads < 1 || o.threads > 16 || o.n < 1 || o.cols < 64) return fputs("bad option\n", stderr), 1;
    fill(data = huge(MEMORY), MEMORY);
    fill(scales = huge(SCALES), SCALES);
    tables = huge(SCALES);
    for (int64_t i = 0; i < SCALES / 2; i++) { /* fp16 of 0.06 to 0.25, both signs: like a palette */
        uint16_t h = (uint16_t)(0x2C00 + i * 40503 % 0x0800 + (i & 1) * 0x8000);
        memcpy(tables + 2 * i, &h, 2);
    }
    if (o.n == 1)
        printf("plain read: %.1f (median %.1f) GB/s, %d threads\n", roof(&o).best, roof(&o).median,
               o.threads);
    printf("| weight | path | isa | cache | memory best (median) |%s\n|---|---|---|---|---|%s\n",
           o.n == 1 ? " share of read |" : "", o.n == 1 ? "---|" : "");
    for (const char *const *name = kern_isas(); *name; name++) {
        kern_table k;
        err e = {0};
        if (!kern_open(&k, *name, &e)) return fprintf(stderr, "%s\n", e.msg), 1;
        if (!strcmp(k.isa, *name) && (!o.isa || !strcmp(o.isa, *name))) all_kinds(&o, &k);
    }
    return 0;
}
