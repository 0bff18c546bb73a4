/* What goes from a request being served to its client: bytes through a bounded buffer, between the thread
 * that makes them and the thread that sends them. Two hold it, who makes and who sends; it goes with the last
 * of them. */
#ifndef SERVER_STREAM_H
#define SERVER_STREAM_H
#include "base/str.h"
#include <pthread.h>

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
bool stream_gone(stream *s);      /* nobody reads any more */
size_t stream_waiting(stream *s); /* bytes that were not taken yet */
/* The connection's socket, to look whether the client is still there; -1 when it is known not to be. */
int stream_socket(stream *s);
/* The client went away, or is made to: what comes is dropped, and the sender closes. */
void stream_abandon(stream *s);
/* The client sends no more. Whether it still reads shows when something is sent to it: once, an interim
 * answer
 * ("100 Continue", which says nothing) before the head, a comment among events. Who has gone resets the
 * connection then. One that knows no interim answers (HTTP/1.0) is taken to have gone. True: it is under way.
 */
bool stream_probe(stream *s);
/* What the head is to say of the request: the job's id, and the sampling that applies. Before stream_head().
 */
void stream_label(stream *s, const char *id, const str *settings);

/* ---- who sends ---- */

typedef enum { STREAM_WAIT, STREAM_WHOLE, STREAM_EVENTS, STREAM_CLOSED } stream_state;

void stream_attach(stream *s, int socket, bool interim);               /* interim answers may be sent */
void stream_labels(stream *s, const char **id, const char **settings); /* "" where there are none; s's */
/* STREAM_WAIT: no head yet, or a whole body that isn't complete; pause(ctx) was called, with the stream
 * locked: wake() will come. */
stream_state stream_ready(stream *s, int *status, void (*pause)(void *ctx), void *ctx);
/* Takes up to n bytes. 0: none now, pause() was called; -1: that was all; -2: abandoned. drained: there is
 * room again where there was none. */
ptrdiff_t stream_read(stream *s, void *to, size_t n, void (*pause)(void *ctx), void *ctx, bool *drained);
/* The whole body; it is the caller's then. */
str stream_take(stream *s);
void stream_counted(stream *s, stream_counts *c);
void stream_detach(stream *s); /* the connection is no more */
#endif
