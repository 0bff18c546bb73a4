#include "base/parallel.h"
#include "base/cpus.h"
#include "base/heap.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct {
    size_t n;
    atomic_size_t next;
    void (*fn)(void *ctx, size_t i, unsigned thread);
    void *ctx;
    heap *h;
    atomic_size_t wanted; /* bytes that a worker could not have; 0: none */
} loop;

typedef struct {
    loop *l;
    unsigned thread;
} worker;

unsigned parallel_cpus(void) {
    unsigned n = cpus_usable();
    return n > PARALLEL_MAX ? PARALLEL_MAX : n;
}

static void pieces(void *arg) {
    worker *w = arg;
    loop *l = w->l; // cppcheck-suppress uninitvar ; there is always a first worker
    for (size_t i; (i = atomic_fetch_add(&l->next, 1)) < l->n;) l->fn(l->ctx, i, w->thread);
}

static void *work(void *arg) {
    loop *l = ((worker *)arg)->l;
    size_t wanted;
    if (!mem_guard(l->h, pieces, arg, &wanted)) atomic_store(&l->wanted, wanted ? wanted : 1);
    return NULL;
}

void parallel_for(size_t n, unsigned threads, void (*fn)(void *ctx, size_t i, unsigned thread), void *ctx) {
    loop l = {.n = n, .fn = fn, .ctx = ctx, .h = heap_current()};
    worker w[PARALLEL_MAX];
    pthread_t id[PARALLEL_MAX];
    if (!threads) threads = parallel_cpus();
    if (threads > PARALLEL_MAX) threads = PARALLEL_MAX;
    if (threads > n) threads = n ? (unsigned)n : 1;
    unsigned started = 0;
    for (unsigned t = 0; t < threads; t++) w[t] = (worker){&l, t};
    for (unsigned t = 1; t < threads; t++) /* fewer threads than asked for still do all the work */
        if (!pthread_create(&id[started], NULL, work, &w[t])) started++;
    work(&w[0]);
    for (unsigned t = 0; t < started; t++) pthread_join(id[t], NULL);
    if (l.wanted) mem_die(l.wanted);
}
