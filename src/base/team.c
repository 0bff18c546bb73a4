#define _GNU_SOURCE
#include "base/team.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/cpus.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How long a wait spins before it sleeps. A sleeper comes back some 50 us after it is called, so one should
 * outlast the longest of usual waits: a step that the others do alone, the host's work between two tokens.
 * Where waits end in sleep all the same, those that are waited for have no processor: each such wait halves
 * what the next one spins. And nobody spins where another member of the team was seen last, which may be
 * waiting for this very processor. */
#define SPIN_MOST  200e-6
#define SPIN_LEAST 10e-6
#define PAUSES     64 /* between two looks at the clock; 10 to 40 ns each */

typedef struct {
    _Alignas(64) double spin; /* seconds that it spins */
    atomic_int cpu;           /* where it was when it last came to wait */
} waiter;

struct team {
    atomic_uint holders;
    atomic_uint n; /* set when all have been started */
    pthread_t id[TEAM_MAX];
    waiter waiter[TEAM_MAX];
    unsigned cpu[TEAM_MAX]; /* that it is pinned to */
    bool pinned;
    pthread_t caller; /* the last one that was pinned */
    bool called;
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

static bool changed(atomic_uint *word, unsigned old) {
    for (int i = 0; i < PAUSES; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) return true;
        relax();
    }
    return false;
}

/* Another member may want this processor. */
static bool crowded(team *t, unsigned worker, int cpu) {
    for (unsigned i = 0; i < t->n; i++)
        if (i != worker && atomic_load_explicit(&t->waiter[i].cpu, memory_order_relaxed) == cpu) return true;
    return false;
}

/* Spins for a while; true once *word is no longer old. */
static bool spin(double *most, atomic_uint *word, unsigned old) {
    for (double begin = clock_seconds(); clock_seconds() - begin < *most;) {
        if (!changed(word, old)) continue;
        *most = *most * 1.25 < SPIN_MOST ? *most * 1.25 : SPIN_MOST;
        return true;
    }
    *most = *most * 0.5 > SPIN_LEAST ? *most * 0.5 : SPIN_LEAST;
    return false;
}

/* Until *word is no longer old. */
static void wait_change(team *t, unsigned worker, atomic_uint *word, unsigned old) {
    waiter *w = &t->waiter[worker];
    int cpu = sched_getcpu();
    atomic_store_explicit(&w->cpu, cpu, memory_order_relaxed);
    if (changed(word, old) || (!crowded(t, worker, cpu) && spin(&w->spin, word, old))) return;
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(word) == old) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&t->sleepers, 1);
}

static void change(team *t, atomic_uint *word) {
    atomic_fetch_add(word, 1);
    if (atomic_load(&t->sleepers)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, TEAM_MAX, NULL, NULL, 0);
}

void team_barrier(team *t, unsigned worker) {
    if (t->n == 1) return;
    unsigned turn = atomic_load_explicit(&t->passed, memory_order_relaxed);
    if (atomic_fetch_add(&t->arrived, 1) + 1 == t->n) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        change(t, &t->passed);
    } else {
        wait_change(t, worker, &t->passed, turn);
    }
}

static void *serve(void *arg) {
    member m = *(member *)arg;
    mem_free(arg);
    team *t = m.t;
    if (t->pinned) cpus_pin(t->cpu[m.worker]);
    for (unsigned seen = 0;; seen++) {
        wait_change(t, m.worker, &t->start, seen);
        if (t->stop) return NULL;
        t->fn(t->ctx, m.worker);
        team_barrier(t, m.worker);
    }
}

unsigned team_cores(void) {
    cpus c;
    cpus_here(&c);
    unsigned n = c.paid < c.cores ? c.paid : c.cores;
    return n > TEAM_MAX ? TEAM_MAX : n;
}

static void choose_cpus(team *t) {
    cpus c;
    cpus_here(&c);
    for (unsigned i = 0; i < TEAM_MAX; i++) t->cpu[i] = c.id[i % c.n];
}

/* Worker 0 is whoever calls. */
static void pin_caller(team *t) {
    pthread_t self = pthread_self();
    if (t->called && pthread_equal(t->caller, self)) return;
    cpus_pin(t->cpu[0]);
    t->caller = self;
    t->called = true;
}

team *team_new(unsigned threads, bool pinned) {
    team *t = mem_try_aligned(sizeof *t, 64);
    if (!t) mem_die(sizeof *t);
    *t = (team){.holders = 1, .n = 1, .pinned = pinned};
    if (pinned) choose_cpus(t);
    for (unsigned i = 0; i < TEAM_MAX; i++) {
        t->waiter[i].spin = SPIN_MOST;
        atomic_init(&t->waiter[i].cpu, -1);
    }
    if (!threads) threads = team_cores();
    if (threads > TEAM_MAX) threads = TEAM_MAX;
    unsigned started = 1;
    for (; started < threads; started++) {
        member *m = mem_try(1, sizeof *m);
        if (!m) break;
        *m = (member){t, started};
        if (!pthread_create(&t->id[started], NULL, serve, m)) continue;
        mem_free(m);
        break;
    }
    t->n = started; /* nobody reads it before the first run */
    return t;
}

team *team_keep(team *t) {
    atomic_fetch_add(&t->holders, 1);
    return t;
}

void team_free(team *t) {
    if (!t || atomic_fetch_sub(&t->holders, 1) != 1) return;
    t->stop = true;
    if (t->n > 1) change(t, &t->start);
    for (unsigned i = 1; i < t->n; i++) pthread_join(t->id[i], NULL);
    mem_free(t);
}

unsigned team_size(const team *t) {
    return t->n;
}

void team_run(team *t, void (*fn)(void *ctx, unsigned worker), void *ctx) {
    if (t->pinned) pin_caller(t);
    t->fn = fn;
    t->ctx = ctx;
    if (t->n > 1) change(t, &t->start);
    fn(ctx, 0);
    team_barrier(t, 0);
}
