#define _GNU_SOURCE
#include "base/bandwidth.h"
#include "base/clock.h"
#include "base/team.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE = 64, STREAMS = 4, STRIDE = LINE * STREAMS, AHEAD = 4096, MOST_PASSES = 512 };

typedef uint64_t wide __attribute__((vector_size(LINE)));

typedef struct {
    char *data;
    team *team;
    uint64_t sum[TEAM_MAX]; /* so that the reads count */
} reader;

/* This worker's share of the memory. */
static char *share(const reader *r, unsigned worker, size_t *n) {
    *n = BANDWIDTH_BYTES / team_size(r->team) / STRIDE * STRIDE;
    return r->data + worker * *n;
}

static void touch(void *ctx, unsigned worker) {
    size_t n;
    char *p = share(ctx, worker, &n);
    memset(p, 1, n);
}

static void read_share(void *ctx, unsigned worker) {
    reader *r = ctx;
    size_t n;
    const char *p = share(r, worker, &n);
    wide s[STREAMS] = {{0}};
    for (size_t i = 0; i < n; i += STRIDE)
        for (size_t k = 0; k < STREAMS; k++) {
            wide v;
            __builtin_prefetch(p + i + LINE * k + AHEAD);
            memcpy(&v, p + i + LINE * k, LINE);
            s[k] += v;
        }
    s[0] += s[1] + s[2] + s[3];
    r->sum[worker] += s[0][0];
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(reader *r, double seconds, bandwidth *b) {
    double rate[MOST_PASSES];
    size_t n = 0, each;
    share(r, 0, &each);
    b->threads = team_size(r->team);
    double bytes = (double)each * b->threads, begin = clock_seconds(), last = begin;
    while (n < MOST_PASSES && (n < 3 || last - begin < seconds)) {
        team_run(r->team, read_share, r);
        double now = clock_seconds();
        rate[n++] = bytes / (now - last);
        last = now;
    }
    qsort(rate, n, sizeof *rate, by_value);
    b->best = rate[n - 1];
    b->median = rate[n / 2];
}

bool bandwidth_read(unsigned threads, double seconds, bandwidth *b, err *e) {
    reader r = {.data =
                    mmap(NULL, BANDWIDTH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
    if (r.data == MAP_FAILED)
        return err_set(e, ERR_MEMORY, "no %zu MiB of memory to measure the read bandwidth with",
                       BANDWIDTH_BYTES >> 20);
    madvise(r.data, BANDWIDTH_BYTES, MADV_HUGEPAGE);
    r.team = team_new(threads, false);
    team_run(r.team, touch, &r);
    measure(&r, seconds, b);
    team_free(r.team);
    munmap(r.data, BANDWIDTH_BYTES);
    return true;
}
