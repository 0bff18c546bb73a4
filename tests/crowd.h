/* Threads of a test, which begin together. */
#ifndef TESTS_CROWD_H
#define TESTS_CROWD_H
#include "test.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#define CROWD_MOST 8

typedef struct worker worker;
struct worker {
    void (*fn)(worker *w);
    void *ctx; /* of all of a crowd */
    unsigned index;
    pthread_barrier_t *start;
    char fault[1100]; /* the first thing that was wrong */
};

/* cmocka's asserts belong to the main thread. */
static bool check(worker *w, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool check(worker *w, bool ok, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (!ok && !w->fault[0]) vsnprintf(w->fault, sizeof w->fault, fmt, ap);
    va_end(ap);
    return ok;
}

static void *begin(void *arg) {
    worker *w = arg;
    pthread_barrier_wait(w->start);
    w->fn(w);
    return NULL;
}

/* Calls fn on n threads that begin together. */
static void crowd(unsigned n, void (*fn)(worker *w), void *ctx) {
    static worker w[CROWD_MOST];
    pthread_t id[CROWD_MOST];
    pthread_barrier_t start;
    assert_true(n <= CROWD_MOST);
    pthread_barrier_init(&start, NULL, n);
    for (unsigned i = 0; i < n; i++) {
        w[i] = (worker){.fn = fn, .ctx = ctx, .index = i, .start = &start};
        assert_int_equal(pthread_create(&id[i], NULL, begin, &w[i]), 0);
    }
    for (unsigned i = 0; i < n; i++) pthread_join(id[i], NULL);
    pthread_barrier_destroy(&start);
    for (unsigned i = 0; i < n; i++)
        if (w[i].fault[0]) fail_msg("thread %u: %s", i, w[i].fault);
}
#endif
