/* What goes from a request being served to its client: bytes through a bounded buffer, between the thread
 * that makes them and the thread that sends them. Two hold it, who makes and who sends; it goes with the last
 * of them. */
#ifndef SERVER_STREAM_H
#define SERVER_STREAM_H
#include "base/str.h"
#include <pthread.h>
#include <stdatomic.h>

/* Bytes that may wait for a slow reader before the generation waits too, and below which it goes on. */
#define STREAM_HIGH ((size_t)256 << 10)
#define STREAM_LOW  ((size_t)64 << 10)

/* What is counted of a request, for the log. */
typedef struct {
    size_t prompt_tokens, cached_tokens, new_tokens;
    double first_seconds; /* from its arrival to its first token; 0: there was none */
} stream_counts;

typedef struct stream stream;

/* wake(ctx): called, with the stream locked, when the sender waits and has something to do again. */
stream *stream_new(void (*wake)(void *ctx), void *ctx);
void stream_release(stream *s); /* one holder less */

/* ---- who makes ---- */

/* Makes the head known: status and whether the body comes in pieces (server-sent events). Once. */
void stream_head(stream *s, int status, bool events);
void stream_write(stream *s, const void *data, size_t n);
void stream_end(stream *s, const stream_counts *c);
/* Nobody reads any more. Asks the connection's socket too, so that it is so as soon as the system knows,
 * whatever other threads get to do. A client that closes its side of the connection has left: whether it
 * would still read can't be known before it has been sent something. */
bool stream_gone(stream *s);
const atomic_bool *stream_left(const stream *s); /* set once it is known; it lives as long as s */
size_t stream_waiting(stream *s);                /* bytes that were not taken yet */
/* In place of stream_end(), where the client has left, or is made to: what comes is dropped, the sender
 * closes. */
void stream_abandon(stream *s, const stream_counts *c);
/* What the head is to say of the request: the job's id, and the sampling that applies. Before stream_head().
 */
void stream_label(stream *s, const char *id, const str *settings);

/* ---- who sends ---- */

typedef enum { STREAM_WAIT, STREAM_WHOLE, STREAM_EVENTS, STREAM_CLOSED } stream_state;

void stream_attach(stream *s, int socket); /* the connection's, until stream_detach() */
void stream_labels(stream *s, const char **id, const char **settings); /* "" where there are none; s's */
/* STREAM_WAIT: no head yet, or a whole body that isn't complete; pause(ctx) was called, with the stream
 * locked: wake() will come. */
stream_state stream_ready(stream *s, int *status, void (*pause)(void *ctx), void *ctx);
/* Takes up to n bytes. 0: none now, pause() was called; -1: that was all; -2: abandoned. drained: there is
 * room again where there was none. */
ptrdiff_t stream_read(stream *s, void *to, size_t n, void (*pause)(void *ctx), void *ctx, bool *drained);
/* The client has left. Only tells who makes, who ends it. */
void stream_leave(stream *s);
/* The whole body; it is the caller's then. */
str stream_take(stream *s);
void stream_detach(stream *s); /* the connection is no more */
/* One holder less, as stream_release(). closed() is called once there is none, at once or by who makes: the
 * counts are the last ones then. */
void stream_close(stream *s, void (*closed)(void *ctx, const stream_counts *c), void *ctx);
#endif
