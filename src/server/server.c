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
    while (h->o->keep_going(h->o->ctx)) watch_sweep(h->watch, 100, h->o->receive_limit);
}

/* What runs may finish within the grace. */
static void end(http *h) {
    const server_options *o = h->o;
    unsigned long long active, waiting;
    bool hurried = false;
    METRICS_DO(h->metrics, active = h->metrics->active; waiting = h->metrics->waiting);
    if (active + waiting)
        fprintf(stderr,
                "millet: ending: replies in the making: %llu (%g s to finish); waiting, refused now: %llu; "
                "interrupt again to end at once\n",
                active, o->grace, waiting);
    else
        fputs("millet: ending\n", stderr);
    http_refuse(h);
    queue_close(h->q, o->grace);
    while (!queue_ended(h->q)) {
        watch_sweep(h->watch, 20, o->receive_limit);
        if (hurried || !o->hurry || !o->hurry(o->ctx)) continue;
        hurried = true;
        fprintf(stderr, "millet: interrupted again: what isn't finished is cut\n");
        queue_close(h->q, 0);
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
    h->readers = h->q ? readers_new(h->m, h->q, e) : NULL;
    bool ok = h->readers && http_start(h, l->fd, e);
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
    h.watch = watch_new(o->connections);
    bool ok = h.watch ? start(&h, &l, e) : err_errno(e, "a descriptor to watch connections with");
    if (ok) {
        if (o->listening) o->listening(o->ctx, l.address, l.port);
        look_after(&h);
        end(&h);
    } else if (h.q) {
        queue_close(h.q, 0);
    }
    if (h.q) queue_stop(h.q);
    if (h.readers) readers_stop(h.readers);
    if (ok) http_stop(&h);
    readers_free(h.readers);
    queue_free(h.q);
    watch_free(h.watch);
    return ok;
}
