#define _GNU_SOURCE
#include "base/team.h"
#include "base/arena.h"
#include "base/parallel.h"
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Less than a hundred microseconds (a pause takes 40 to 140 cycles): longer than most waits between steps,
 * shorter than a time slice. */
#define SPINS 1500

struct team {
    unsigned n;
    pthread_t id[TEAM_MAX];
    void (*fn)(void *ctx, unsigned worker);
    void *ctx;
    bool stop;
    _Alignas(64) atomic_uint start;    /* counts runs */
    _Alignas(64) atomic_uint arrived;  /* workers at the barrier */
    _Alignas(64) atomic_uint passed;   /* counts barriers */
    _Alignas(64) atomic_uint sleepers; /* threads inside a futex wait */
};

typedef struct {
    team *t;
    unsigned worker;
} member;

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Until *word is no longer old. */
static void wait_change(team *t, atomic_uint *word, unsigned old) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) return;
        relax();
    }
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(word) == old) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&t->sleepers, 1);
}

static void change(team *t, atomic_uint *word) {
    atomic_fetch_add(word, 1);
    if (atomic_load(&t->sleepers)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, TEAM_MAX, NULL, NULL, 0);
}

void team_barrier(team *t) {
    if (t->n == 1) return;
    unsigned turn = atomic_load_explicit(&t->passed, memory_order_relaxed);
    if (atomic_fetch_add(&t->arrived, 1) + 1 == t->n) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        change(t, &t->passed);
    } else {
        wait_change(t, &t->passed, turn);
    }
}

static void *serve(void *arg) {
    member m = *(member *)arg;
    free(arg);
    team *t = m.t;
    for (unsigned seen = 0;; seen++) {
        wait_change(t, &t->start, seen);
        if (t->stop) return NULL;
        t->fn(t->ctx, m.worker);
        team_barrier(t);
    }
}

team *team_new(unsigned threads) {
    team *t = aligned_alloc(64, sizeof *t);
    if (!t) mem_die(sizeof *t);
    *t = (team){.n = 1};
    if (!threads) threads = parallel_cores();
    if (threads > TEAM_MAX) threads = TEAM_MAX;
    unsigned started = 1;
    for (; started < threads; started++) {
        member *m = mem_alloc(sizeof *m);
        *m = (member){t, started};
        if (!pthread_create(&t->id[started], NULL, serve, m)) continue;
        free(m);
        break;
    }
    t->n = started; /* nobody reads it before the first run */
    return t;
}

void team_free(team *t) {
    if (!t) return;
    t->stop = true;
    if (t->n > 1) change(t, &t->start);
    for (unsigned i = 1; i < t->n; i++) pthread_join(t->id[i], NULL);
    free(t);
}

unsigned team_size(const team *t) {
    return t->n;
}

void team_run(team *t, void (*fn)(void *ctx, unsigned worker), void *ctx) {
    t->fn = fn;
    t->ctx = ctx;
    if (t->n > 1) change(t, &t->start);
    fn(ctx, 0);
    team_barrier(t);
}
