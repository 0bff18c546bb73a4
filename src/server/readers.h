/* Threads that read requests: JSON, templates, token ids, and the grammars of schemas, which may take a
 * while. The thread of the connections never does. */
#ifndef SERVER_READERS_H
#define SERVER_READERS_H
#include "server/queue.h"

typedef struct readers readers;
typedef bool read_request(request *r, arena *a, const served_model *m, const void *body, size_t n,
                          api_error *e);

readers *readers_new(const served_model *m, queue *q, err *e);
/* Reads a body, which is taken over, and submits the job that it makes; refuses it at `out` otherwise, which
 * is held by two: whoever makes the answer, and the caller. False: no more are taken; both are the caller's.
 */
bool readers_take(readers *r, read_request *read, str *body, stream *out, double arrived);
void readers_stop(readers *r); /* takes no more; returns once all are read */
void readers_free(readers *r); /* after readers_stop(). NULL is allowed */
#endif
