#define _GNU_SOURCE
#include "timing.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BINS = 65536, LEAST_BINS = 3 };

void *timing_memory(int64_t bytes) {
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) perror("mmap"), exit(1);
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    return p;
}

/* ---- bins ---- */

typedef struct {
    piece_fn *piece;
    void *ctx;
    int64_t first, pieces;        /* of this thread */
    double seconds, best, median; /* best, median: seconds of a bin */
    pthread_barrier_t *start;
} worker;

static double busy_seconds(void) {
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
    double *bin = malloc(BINS * sizeof *bin);
    if (!bin) perror("malloc"), exit(1);
    int n = 0;
    pthread_barrier_wait(w->start);
    double begin = busy_seconds(), last = begin;
    for (int64_t i = 0; n < BINS && (last - begin < w->seconds || n < LEAST_BINS); i = (i + 1) % w->pieces) {
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

speed timing_run(const timing *t, piece_fn *piece, void *const *ctx, int64_t pieces, double units) {
    worker w[MOST_THREADS];
    pthread_t id[MOST_THREADS] = {0};
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)t->threads);
    int64_t each = pieces / t->threads > 0 ? pieces / t->threads : 1;
    for (int i = 0; i < t->threads; i++) {
        w[i] = (worker){piece, ctx[i], i * each % pieces, each, t->seconds, 0, 0, &start};
        if (i && pthread_create(&id[i], NULL, work, &w[i])) perror("pthread_create"), exit(1);
    }
    work(&w[0]);
    speed s = {0, 0};
    for (int i = 0; i < t->threads; i++) {
        if (i) pthread_join(id[i], NULL);
        s.best += units / w[i].best, s.median += units / w[i].median;
    }
    pthread_barrier_destroy(&start);
    return s;
}

/* ---- limits ---- */

typedef uint64_t wide __attribute__((vector_size(64)));

typedef struct {
    const char *data;
    int64_t bytes; /* a piece */
    uint64_t sum;  /* so that the reads count */
} reader;

static void read_piece(void *ctx, int64_t i) {
    reader *r = ctx;
    const char *p = r->data + i * r->bytes;
    wide s[4] = {{0}};
    for (int64_t j = 0; j + 256 <= r->bytes; j += 256)
        for (int k = 0; k < 4; k++) {
            wide v;
            __builtin_prefetch(p + j + 64 * k + 4096);
            memcpy(&v, p + j + 64 * k, 64);
            s[k] += v;
        }
    s[0] += s[1] + s[2] + s[3];
    r->sum += s[0][0];
}

speed timing_read(const timing *t, const void *data, int64_t bytes, int64_t pieces) {
    reader r[MOST_THREADS];
    void *ctx[MOST_THREADS];
    for (int i = 0; i < t->threads; i++) r[i] = (reader){data, bytes, 0}, ctx[i] = &r[i];
    speed s = timing_run(t, read_piece, ctx, pieces, (double)bytes);
    volatile uint64_t keep = r[0].sum;
    (void)keep;
    return s;
}

enum { ROUNDS = 2000 };

static void multiply(void *ctx, int64_t i) {
    (void)i;
    ((const kern_rate *)ctx)->run(ROUNDS);
}

speed timing_arithmetic(const timing *t, const kern_rate *r) {
    void *ctx[MOST_THREADS];
    for (int i = 0; i < t->threads; i++) ctx[i] = (void *)(uintptr_t)r;
    return timing_run(t, multiply, ctx, t->threads, r->ops * ROUNDS);
}

static bool wanted(const char *name, const char *names) {
    size_t n = strcspn(name, " ");
    for (const char *at = names; *at; at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");
        if (len == n && !memcmp(at, name, n)) return true;
        at += len;
    }
    return false;
}

speed timing_roof(const timing *t, const char *isa, const char *names, const char **name) {
    kern_rate list[KERN_RATES_MOST];
    size_t n = kern_rates(isa, list);
    speed best = {0, 0};
    for (int fallback = 0; fallback < 2 && !best.best; fallback++)
        for (size_t i = 0; i < n; i++) {
            if (!wanted(list[i].name, fallback ? "fp32" : names)) continue;
            speed s = timing_arithmetic(t, &list[i]);
            if (s.best > best.best) best = s, *name = list[i].name;
        }
    return best;
}
