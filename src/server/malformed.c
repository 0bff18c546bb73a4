#define _GNU_SOURCE
#include "server/malformed.h"
#include "server/fatal.h"
#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Bytes that are read behind what is no request, and dropped. */
#define MOST_DRAINED (1 << 20)

typedef struct {
    struct MHD_Connection *c;
    unsigned status;
} malformed;

bool body_too_large(api_error *e, const http *h) {
    return api_fail(e, 413, "request_too_large", NULL, "The body of a request may have at most %zu bytes.",
                    h->o->body);
}

/* x NULL: there is no request yet. libmicrohttpd's 500 is for the size of a chunk that is longer than a
 * connection's memory. */
static void explain(api_error *e, const http *h, const malformed *k, const exchange *x) {
    const char *length = MHD_lookup_connection_value(k->c, MHD_HEADER_KIND, "Content-Length");
    size_t digits = length ? strspn(length, "0123456789") : 0;
    if (x && (k->status == 400 || k->status == 500))
        api_fail(e, 400, "invalid_chunk", NULL,
                 "A chunk of the body is malformed: its size is no hexadecimal number, or no line ends "
                 "behind it.");
    else if (k->status == 413)
        body_too_large(e, h);
    else if (k->status == 414 || k->status == 431)
        api_fail(e, (int)k->status, "request_header_too_large", NULL,
                 "The head of a request may have at most %zu bytes; this one has many more.", h->o->header);
    else if (k->status == 505)
        api_fail(e, 505, "unsupported_version", NULL, "HTTP/1.1 and HTTP/1.0 are served here.");
    else if (length && (!digits || length[digits]))
        api_fail(e, 400, "invalid_header", NULL, "Content-Length '%.40s' is no number.", length);
    else
        api_fail(e, 400, "invalid_request", NULL,
                 "The request is not HTTP: its first line or a header is malformed.");
}

/* Reads what has come: to close a socket with something unread would take the answer back. */
static void drain(int fd) {
    char rest[16384];
    size_t read = 0;
    for (ssize_t n; read < MOST_DRAINED && (n = recv(fd, rest, sizeof rest, MSG_DONTWAIT)) > 0;)
        read += (size_t)n;
}

/* Sends at once what can be sent, and the end behind it. */
static void send_error(int fd, const api_error *e) {
    char when[40];
    struct tm t;
    time_t now = time(NULL);
    str body = {0}, all = {0};
    api_error_json(&body, e);
    strftime(when, sizeof when, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &t));
    str_printf(&all,
               "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
               "X-Content-Type-Options: nosniff\r\nContent-Length: %zu\r\n\r\n%s\n",
               e->status, MHD_get_reason_phrase_for((unsigned)e->status), when, body.len + 1, body.s);
    send(fd, all.s, all.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    str_free(&all);
    str_free(&body);
}

void send_refusal(exchange *x) {
    if (x->status) return;
    x->status = x->refused.status;
    send_error(socket_of(x->c), &x->refused);
}

static void refuse(void *ctx) {
    malformed *k = ctx;
    connection *n = connection_of(k->c);
    exchange *x = n->x ? n->x : exchange_new(n->h, k->c, "-", "-");
    const stream_counts none = {0};
    api_error e = {0};
    explain(&e, n->h, k, n->x);
    if (!x->status) {
        send_error(socket_of(k->c), &e);
        x->status = e.status;
    }
    drain(socket_of(k->c));
    if (x != n->x) exchange_end(x, &none);
}

enum MHD_Result queue_response(struct MHD_Connection *c, unsigned status, struct MHD_Response *r) {
    enum MHD_Result (*fn)(struct MHD_Connection *, unsigned, struct MHD_Response *);
    void *next = dlsym(RTLD_NEXT, "MHD_queue_response");
    memcpy(&fn, &next, sizeof fn);
    return fn(c, status, r);
}

/* Only libmicrohttpd comes here. Its own answer is queued as it would be, for nobody: 0.9.75 would go on with
 * a connection that it has closed. Nor could ours be queued: there may be no memory left for it, and some of
 * these answers get two heads. */
__attribute__((visibility("default"))) enum MHD_Result
MHD_queue_response(struct MHD_Connection *c, unsigned status, struct MHD_Response *r) {
    malformed k = {c, status};
    server_guarded(refuse, &k);
    return queue_response(c, status, r);
}
