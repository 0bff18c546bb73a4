/* One request and its answer on a connection. */
#ifndef SERVER_EXCHANGE_H
#define SERVER_EXCHANGE_H
#include "server/readers.h"
#include "server/server.h"
#include "server/watch.h"
#include <microhttpd.h>
#include <stdatomic.h>

struct exchange;
typedef struct {
    const char *method, *path; /* "/v1/models/" ends in a slash: what follows is the rest */
    bool open;                 /* needs no key */
    enum MHD_Result (*answer)(struct exchange *x);
} route;

typedef struct http http;

typedef struct exchange {
    http *h;
    struct MHD_Connection *c;
    const route *route;
    const char *rest; /* of the path, behind the route's; while it is answered */
    char method[12], path[200];
    str body;
    size_t received;
    api_error refused; /* before it was read */
    stream *s;         /* a job's answer; NULL: none under way */
    int status;        /* answered; 0: not yet */
    double start;
    bool modern; /* HTTP/1.1 */
} exchange;

/* Where exchanges follow each other. */
typedef struct {
    http *h;
    watched *w;
    exchange *x; /* NULL: none is under way */
} connection;

/* What they all share. */
struct http {
    const server_options *o;
    const served_model *m;
    queue *q;
    readers *readers;
    metrics *metrics;
    struct MHD_Daemon *daemon;
    watch *watch;
    long long started; /* seconds since 1970 */
    bool loopback;
    atomic_bool stopping;
    atomic_size_t busy; /* exchanges under way */
};

/* The route of a method and path; NULL with a 404 or 405 in e. *allow: what a 405 allows. */
const route *route_find(const char *method, const char *path, const char **rest, const char **allow,
                        api_error *e);

/* Answers with a body that is copied. */
enum MHD_Result exchange_send(exchange *x, int status, const char *type, const str *body);
enum MHD_Result exchange_json(exchange *x, int status, const str *body);
enum MHD_Result exchange_error(exchange *x, const api_error *e);
/* Hands a response over with the headers that all have; drops it. */
enum MHD_Result exchange_queue(exchange *x, int status, struct MHD_Response *r);
connection *connection_of(struct MHD_Connection *c);
int socket_of(struct MHD_Connection *c);
/* method, path: as they came; only printable ASCII of them is kept. */
exchange *exchange_new(http *h, struct MHD_Connection *c, const char *method, const char *path);
/* Logs and counts the exchange ctx, and drops it. */
void exchange_end(void *ctx, const stream_counts *c);
const char *exchange_header(const exchange *x, const char *name); /* NULL: absent */
/* Waits for the job's answer, and sends it. */
enum MHD_Result exchange_job(exchange *x);
#endif
