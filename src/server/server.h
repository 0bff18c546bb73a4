/* millet serve: the OpenAI API over HTTP for one model. Three threads: HTTP (libmicrohttpd's), the model's
 * (server/queue.h), and the caller's, which looks after time limits and waits for the end. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H
#include "server/access.h"
#include "server/queue.h"

typedef struct {
    const char *host; /* address or name to listen at */
    int port;         /* 0: any free one */
    access_rules access;
    queue_options queue;  /* metrics is the server's */
    size_t connections;   /* open at most */
    size_t body, header;  /* bytes at most */
    double receive_limit; /* seconds that a request may take to arrive */
    double idle_limit;    /* seconds without a byte on a connection that isn't waiting for the model */
    double grace;         /* seconds for what runs, at the end */
    bool quiet;           /* no line for each request */
    void (*listening)(void *ctx, const char *address, int port); /* called once, when it is */
    bool (*keep_going)(void *ctx);                               /* polled; false ends it */
    bool (*hurry)(void *ctx); /* polled at the end; true: what runs is cut at once */
    void *ctx;
} server_options;

/* Serves until keep_going() says no. ERR_USAGE: the address is not this machine's alone, and there is no key.
 */
bool server_run(const served_model *m, const server_options *o, err *e);
#endif
