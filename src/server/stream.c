#define _GNU_SOURCE
#include "server/stream.h"
#include "base/heap.h"
#include <poll.h>
#include <stdio.h>
#include <string.h>

struct stream {
    pthread_mutex_t lock;
    int holders;
    void (*wake)(void *ctx);
    void *ctx;
    bool sleeping; /* the sender waits for wake() */
    bool ended, events, full;
    atomic_bool gone;
    int status, socket;
    char id[48];
    str settings, out;
    size_t sent; /* of out */
    stream_counts counts;
    void (*closed)(void *ctx, const stream_counts *c); /* NULL */
    void *closed_ctx;
};

stream *stream_new(void (*wake)(void *ctx), void *ctx) {
    stream *s = mem_alloc(sizeof *s);
    *s = (stream){.holders = 2, .wake = wake, .ctx = ctx, .socket = -1};
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void stream_release(stream *s) {
    pthread_mutex_lock(&s->lock);
    bool last = !--s->holders;
    pthread_mutex_unlock(&s->lock);
    if (!last) return;
    if (s->closed) s->closed(s->closed_ctx, &s->counts);
    pthread_mutex_destroy(&s->lock);
    str_free(&s->out);
    str_free(&s->settings);
    mem_free(s);
}

/* Locked. */
static void wake(stream *s) {
    if (!s->sleeping) return;
    s->sleeping = false;
    s->wake(s->ctx);
}

void stream_head(stream *s, int status, bool events) {
    pthread_mutex_lock(&s->lock);
    s->status = status;
    s->events = events;
    pthread_mutex_unlock(&s->lock);
}

void stream_write(stream *s, const void *data, size_t n) {
    pthread_mutex_lock(&s->lock);
    if (!s->gone) {
        str_add(&s->out, data, n);
        s->full |= s->events && s->out.len - s->sent > STREAM_HIGH;
        if (s->events) wake(s);
    }
    pthread_mutex_unlock(&s->lock);
}

bool stream_gone(stream *s) {
    pthread_mutex_lock(&s->lock); /* so that the socket stays this connection's */
    struct pollfd fd = {s->socket, POLLRDHUP, 0};
    if (!s->gone && poll(&fd, 1, 0) > 0) s->gone = true;
    bool gone = s->gone;
    pthread_mutex_unlock(&s->lock);
    return gone;
}

const atomic_bool *stream_left(const stream *s) {
    return &s->gone;
}

size_t stream_waiting(stream *s) {
    pthread_mutex_lock(&s->lock);
    size_t n = s->out.len - s->sent;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void end(stream *s, const stream_counts *c, bool gone) {
    pthread_mutex_lock(&s->lock);
    s->gone |= gone;
    s->ended = true;
    s->counts = *c;
    wake(s);
    pthread_mutex_unlock(&s->lock);
}

void stream_end(stream *s, const stream_counts *c) {
    end(s, c, false);
}

void stream_abandon(stream *s, const stream_counts *c) {
    end(s, c, true);
}

void stream_leave(stream *s) {
    atomic_store(&s->gone, true);
}

void stream_label(stream *s, const char *id, const str *settings) {
    pthread_mutex_lock(&s->lock);
    snprintf(s->id, sizeof s->id, "%s", id);
    str_clear(&s->settings);
    str_add(&s->settings, settings->s, settings->len);
    pthread_mutex_unlock(&s->lock);
}

void stream_labels(stream *s, const char **id, const char **settings) {
    pthread_mutex_lock(&s->lock);
    *id = s->id;
    *settings = str_get(&s->settings);
    pthread_mutex_unlock(&s->lock);
}

void stream_attach(stream *s, int socket) {
    pthread_mutex_lock(&s->lock);
    s->socket = socket;
    pthread_mutex_unlock(&s->lock);
}

stream_state stream_ready(stream *s, int *status, void (*pause)(void *ctx), void *ctx) {
    pthread_mutex_lock(&s->lock);
    stream_state state = s->gone                  ? s->ended ? STREAM_CLOSED : STREAM_WAIT
                         : s->status && s->events ? STREAM_EVENTS
                         : s->status && s->ended  ? STREAM_WHOLE
                                                  : STREAM_WAIT;
    *status = s->status;
    if (state == STREAM_WAIT) {
        s->sleeping = true;
        pause(ctx);
    }
    pthread_mutex_unlock(&s->lock);
    return state;
}

ptrdiff_t stream_read(stream *s, void *to, size_t n, void (*pause)(void *ctx), void *ctx, bool *drained) {
    pthread_mutex_lock(&s->lock);
    size_t left = s->out.len - s->sent;
    ptrdiff_t taken = s->gone    ? s->ended ? -2 : 0
                      : left     ? (ptrdiff_t)(left < n ? left : n)
                      : s->ended ? -1
                                 : 0;
    if (taken > 0) {
        memcpy(to, s->out.s + s->sent, (size_t)taken);
        s->sent += (size_t)taken;
        if (s->sent == s->out.len) {
            str_clear(&s->out);
            s->sent = 0;
        }
    } else if (!taken) {
        s->sleeping = true;
        pause(ctx);
    }
    *drained = s->full && s->out.len - s->sent < STREAM_LOW;
    if (*drained) s->full = false;
    pthread_mutex_unlock(&s->lock);
    return taken;
}

str stream_take(stream *s) {
    pthread_mutex_lock(&s->lock);
    str body = s->out;
    s->out = (str){0};
    s->sent = 0;
    pthread_mutex_unlock(&s->lock);
    return body;
}

void stream_detach(stream *s) {
    pthread_mutex_lock(&s->lock);
    s->gone = true;
    s->sleeping = false;
    s->socket = -1;
    pthread_mutex_unlock(&s->lock);
}

void stream_close(stream *s, void (*closed)(void *ctx, const stream_counts *c), void *ctx) {
    pthread_mutex_lock(&s->lock);
    s->closed = closed;
    s->closed_ctx = ctx;
    pthread_mutex_unlock(&s->lock);
    stream_release(s);
}
