#define _GNU_SOURCE
#include "server/server.h"
#include "base/clock.h"
#include "server/fatal.h"
#include "server/http.h"
#include "server/listen.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

void server_fatal(size_t wanted) {
    fprintf(stderr, "millet: out of memory (%zu bytes asked for)\n", wanted);
    _exit(1);
}

/* Until it is told to end: nothing but time limits. */
static void look_after(http *h) {
    struct timespec nap = {0, 100000000};
    while (h->o->keep_going(h->o->ctx)) {
        nanosleep(&nap, NULL); /* signals end it */
        watch_sweep(h->watch, h->o->receive_limit);
    }
}

/* Threads that are made between these leave signals to the caller's. */
static void block_signals(sigset_t *before) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static bool start(http *h, const listener *l, err *e) {
    queue_options q = h->o->queue;
    sigset_t before;
    q.metrics = h->metrics;
    block_signals(&before);
    h->q = queue_new(h->m, &q, e);
    bool ok = h->q && http_start(h, l->fd, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!ok) close(l->fd);
    return ok;
}

bool server_run(const served_model *m, const server_options *o, err *e) {
    listener l;
    metrics counts;
    http h = {.o = o, .m = m, .metrics = &counts, .started = (long long)time(NULL)};
    if (!listener_open(&l, o->host, o->port, o->access.n_key > 0, e)) return false;
    h.loopback = l.loopback;
    metrics_begin(&counts, o->queue.sessions);
    h.watch = watch_new();
    bool ok = start(&h, &l, e);
    if (ok) {
        if (o->listening) o->listening(o->ctx, l.address, l.port);
        look_after(&h);
        http_refuse(&h);
    }
    if (h.q) queue_stop(h.q, ok ? o->grace : 0);
    if (ok) http_stop(&h);
    queue_free(h.q);
    watch_free(h.watch);
    return ok;
}
