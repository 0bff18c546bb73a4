#include "server/watch.h"
#include "base/clock.h"
#include "base/heap.h"
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>

struct watched {
    int socket;
    double since; /* a request has been expected; 0: it is being served */
    watched *prev, *next;
};

struct watch {
    pthread_mutex_t lock;
    watched *first;
    size_t count;
};

watch *watch_new(void) {
    watch *w = mem_alloc(sizeof *w);
    *w = (watch){0};
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

void watch_free(watch *w) {
    if (!w) return;
    while (w->first) watch_remove(w, w->first);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

watched *watch_add(watch *w, int socket) {
    watched *c = mem_alloc(sizeof *c);
    pthread_mutex_lock(&w->lock);
    *c = (watched){.socket = socket, .since = clock_seconds(), .next = w->first};
    if (w->first) w->first->prev = c;
    w->first = c;
    w->count++;
    pthread_mutex_unlock(&w->lock);
    return c;
}

void watch_remove(watch *w, watched *c) {
    pthread_mutex_lock(&w->lock);
    if (c->next) c->next->prev = c->prev;
    if (c->prev)
        c->prev->next = c->next;
    else
        w->first = c->next;
    w->count--;
    pthread_mutex_unlock(&w->lock);
    mem_free(c);
}

static void set(watch *w, watched *c, double since) {
    pthread_mutex_lock(&w->lock);
    c->since = since;
    pthread_mutex_unlock(&w->lock);
}

void watch_serving(watch *w, watched *c) {
    set(w, c, 0);
}

void watch_expecting(watch *w, watched *c) {
    set(w, c, clock_seconds());
}

size_t watch_count(watch *w) {
    pthread_mutex_lock(&w->lock);
    size_t n = w->count;
    pthread_mutex_unlock(&w->lock);
    return n;
}

void watch_sweep(watch *w, double seconds) {
    double now = clock_seconds();
    pthread_mutex_lock(&w->lock);
    for (watched *c = w->first; c; c = c->next)
        if (c->since > 0 && now - c->since > seconds) shutdown(c->socket, SHUT_RDWR);
    pthread_mutex_unlock(&w->lock);
}
