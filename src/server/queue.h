/* The queue of requests, and the one thread that owns the model: N sessions, each with a decoder. It works in
 * rounds:
 *
 *   clients that left free their sessions; waiting choices get free ones, request by request in turn
 *   every session that generates advances by one token, all of them together (server/advance.h)
 *   prompts get as long as that took, and at least one call of a function, each in turn
 *
 * A prompt is cut into calls by itself alone, and a session's numbers don't depend on others: what a request
 * gets is what it would get alone. */
#ifndef SERVER_QUEUE_H
#define SERVER_QUEUE_H
#include "generate/prefix.h"
#include "server/job.h"
#include "server/metrics.h"

typedef struct {
    rt_mode mode;
    size_t sessions, waiting; /* at most */
    size_t kept;              /* bytes of prefixes that are kept; 0: none are */
    double time_limit;        /* of a request, seconds from its arrival; 0: none */
    double stall_limit;       /* for a client that doesn't read */
    metrics *metrics;
} queue_options;

typedef struct queue queue;

/* Makes the first decoder, so that a model that can't run is known now; the others as they are needed. */
queue *queue_new(const served_model *m, const queue_options *o, err *e);
/* Requests are refused from here on (503) and waiting ones too; what runs has `grace` seconds from now to
 * end, and is cut then. May be called again, with less. */
void queue_close(queue *q, double grace);
bool queue_ended(queue *q); /* nothing is left to do */
void queue_stop(queue *q);  /* after queue_close(): waits for that */
void queue_free(queue *q);  /* after queue_stop() */
/* Takes the job. False: full (429), or stopping (503); the job is the caller's still. */
bool queue_submit(queue *q, job *j, api_error *e);
/* A client reads again, or has left. */
void queue_poke(queue *q);
/* Seconds until there may be room; for Retry-After. */
int queue_retry_after(queue *q);
#endif
