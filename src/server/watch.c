#define _GNU_SOURCE
#include "server/watch.h"
#include "base/clock.h"
#include "base/heap.h"
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct watched {
    int socket;
    stream *s;    /* NULL: no answer is being made */
    bool left;    /* its client sends no more, or is to go */
    double since; /* a request has been expected; 0: it is being served */
    watched *prev, *next;
};

struct watch {
    pthread_mutex_t lock;
    watched *first;
    size_t count, most;
    int leaving; /* epoll: clients that send no more */
};

watch *watch_new(size_t most) {
    int leaving = epoll_create1(EPOLL_CLOEXEC);
    if (leaving < 0) return NULL;
    watch *w = mem_alloc(sizeof *w);
    *w = (watch){.most = most, .leaving = leaving};
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

void watch_free(watch *w) {
    if (!w) return;
    while (w->first) watch_remove(w, w->first);
    close(w->leaving);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

/* Locked. Half-open connections must not keep others out: where there are too many, beside those that go
 * anyway, the one that has been expected for longest makes room; not the one that has just come. */
static void make_room(watch *w, const watched *newest) {
    watched *oldest = NULL;
    size_t stay = 0;
    if (w->count <= w->most) return;
    for (watched *c = w->first; c; c = c->next) {
        bool waits = c->since > 0;
        stay += !waits || !c->left;
        if (waits && !c->left && c != newest && (!oldest || c->since < oldest->since)) oldest = c;
    }
    if (stay <= w->most || !oldest) return;
    oldest->left = true;
    shutdown(oldest->socket, SHUT_RDWR);
}

watched *watch_add(watch *w, int socket) {
    watched *c = mem_alloc(sizeof *c);
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = c};
    pthread_mutex_lock(&w->lock);
    *c = (watched){.socket = socket, .since = clock_seconds(), .next = w->first};
    if (w->first) w->first->prev = c;
    w->first = c;
    w->count++;
    epoll_ctl(w->leaving, EPOLL_CTL_ADD, socket, &e);
    make_room(w, c);
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
    epoll_ctl(w->leaving, EPOLL_CTL_DEL, c->socket, NULL);
    pthread_mutex_unlock(&w->lock);
    mem_free(c);
}

void watch_serving(watch *w, watched *c) {
    pthread_mutex_lock(&w->lock);
    c->since = 0;
    pthread_mutex_unlock(&w->lock);
}

void watch_answering(watch *w, watched *c, stream *s) {
    pthread_mutex_lock(&w->lock);
    c->s = s;
    if (c->left) stream_leave(s);
    pthread_mutex_unlock(&w->lock);
}

void watch_expecting(watch *w, watched *c) {
    pthread_mutex_lock(&w->lock);
    c->s = NULL;
    c->since = clock_seconds();
    make_room(w, NULL);
    pthread_mutex_unlock(&w->lock);
}

size_t watch_count(watch *w) {
    pthread_mutex_lock(&w->lock);
    size_t n = w->count;
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* Who has sent the last byte: what is made for them needn't be. */
static void find_leaving(watch *w) {
    struct epoll_event e[64];
    int n = epoll_wait(w->leaving, e, 64, 0);
    for (int i = 0; i < n; i++) {
        watched *c = e[i].data.ptr;
        c->left = true;
        if (c->s) stream_leave(c->s);
    }
}

/* libmicrohttpd takes a read that doesn't fill its buffer for the end of what there is, also where the end of
 * the connection came right behind it: then it never looks again. Shutting the side down that is shut down
 * already wakes it up, and disturbs no answer. */
void watch_sweep(watch *w, int wait, double seconds) {
    struct pollfd any = {w->leaving, POLLIN, 0};
    poll(&any, 1, wait);
    double now = clock_seconds();
    pthread_mutex_lock(&w->lock);
    if (any.revents) find_leaving(w);
    for (watched *c = w->first; c; c = c->next) {
        if (!c->since) continue;
        if (now - c->since > seconds)
            shutdown(c->socket, SHUT_RDWR);
        else if (c->left)
            shutdown(c->socket, SHUT_RD);
    }
    pthread_mutex_unlock(&w->lock);
}
