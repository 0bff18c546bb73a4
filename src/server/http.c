#define _GNU_SOURCE
#include "server/http.h"
#include "base/clock.h"
#include "server/exchange.h"
#include "server/fatal.h"
#include "server/malformed.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Kernel memory for what a client hasn't read: what waits beyond is in the stream, which is bounded. */
#define SEND_BUFFER (64 << 10)
/* Memory of a connection for its request's head and the answer's, so that heads up to some times the limit
 * are refused where their size can be told. */
#define HEAD_MEMORY(limit) (4 * (limit) + (16 << 10))
/* What names of headers are made of. */
#define TOKEN "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
/* Connections beyond the limit, for which the watch makes room. */
#define SPARE 1

/* ---- answers ---- */

const char *exchange_header(const exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->c, MHD_HEADER_KIND, name);
}

connection *connection_of(struct MHD_Connection *c) {
    return MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

int socket_of(struct MHD_Connection *c) {
    return MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

enum MHD_Result exchange_queue(exchange *x, int status, struct MHD_Response *r) {
    const char *origin = exchange_header(x, "Origin");
    if (access_shares(&x->h->o->access, origin)) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
        MHD_add_response_header(r, "Vary", "Origin");
    }
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    const char *id = "", *settings = "";
    if (x->s) stream_labels(x->s, &id, &settings);
    if (*id) MHD_add_response_header(r, "X-Request-Id", id);
    if (*settings) MHD_add_response_header(r, "X-Sampling", settings);
    if (status == 429) {
        char text[16];
        snprintf(text, sizeof text, "%d", queue_retry_after(x->h->q));
        MHD_add_response_header(r, "Retry-After", text);
    }
    x->status = status;
    enum MHD_Result ok = queue_response(x->c, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

static struct MHD_Response *response(const char *type, const str *body) {
    struct MHD_Response *r =
        MHD_create_response_from_buffer(body->len, (void *)(uintptr_t)str_get(body), MHD_RESPMEM_MUST_COPY);
    if (r) MHD_add_response_header(r, "Content-Type", type);
    return r;
}

enum MHD_Result exchange_send(exchange *x, int status, const char *type, const str *body) {
    struct MHD_Response *r = response(type, body);
    str gone = *body;
    str_free(&gone);
    return r ? exchange_queue(x, status, r) : MHD_NO;
}

enum MHD_Result exchange_json(exchange *x, int status, const str *body) {
    return exchange_send(x, status, "application/json", body);
}

enum MHD_Result exchange_error(exchange *x, const api_error *e) {
    str b = {0};
    api_error_json(&b, e);
    str_addc(&b, '\n');
    struct MHD_Response *r = response("application/json", &b);
    str_free(&b);
    if (!r) return MHD_NO;
    if (e->status == 401) MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    const char *rest, *allow = NULL;
    api_error unused = {0};
    if (e->status == 405) route_find(x->method, x->path, &rest, &allow, &unused);
    if (allow) MHD_add_response_header(r, "Allow", allow);
    return exchange_queue(x, e->status, r);
}

/* ---- answers that the model makes ---- */

static void pause_connection(void *ctx) {
    MHD_suspend_connection(ctx);
}

static ssize_t send_events(void *ctx, uint64_t at, char *to, size_t n) {
    exchange *x = ctx;
    (void)at;
    bool drained;
    ptrdiff_t taken = stream_read(x->s, to, n, pause_connection, x->c, &drained);
    if (drained) queue_poke(x->h->q);
    return taken >= 0    ? (ssize_t)taken
           : taken == -1 ? MHD_CONTENT_READER_END_OF_STREAM
                         : MHD_CONTENT_READER_END_WITH_ERROR;
}

static enum MHD_Result begin_events(exchange *x, int status) {
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, send_events, x, NULL);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "text/event-stream; charset=utf-8");
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    return exchange_queue(x, status, r);
}

enum MHD_Result exchange_job(exchange *x) {
    int status;
    switch (stream_ready(x->s, &status, pause_connection, x->c)) {
    case STREAM_WAIT: return MHD_YES;
    case STREAM_EVENTS: return begin_events(x, status);
    case STREAM_WHOLE: {
        str body = stream_take(x->s);
        return exchange_json(x, status, &body);
    }
    default: return MHD_NO;
    }
}

/* ---- a request comes ---- */

/* What a client sent as a word of the log: nothing that a terminal would obey, or that looks like another
 * word. */
static void keep_word(char *to, size_t size, const char *word) {
    size_t n = 0;
    for (; word[n] && n + 1 < size; n++) to[n] = word[n] > 0x20 && word[n] < 0x7F ? word[n] : '?';
    to[n] = 0;
}

static bool admit(exchange *x, const char *path) {
    const access_rules *rules = &x->h->o->access;
    const char *host = exchange_header(x, "Host"), *origin = exchange_header(x, "Origin"), *allow;
    api_error *e = &x->refused;
    if (x->h->loopback && !access_host(rules, host))
        return api_fail(e, 403, "host_not_allowed", NULL,
                        "Host '%.100s' is not a name of this server; --allow-host makes it one.", host);
    if (!access_origin(rules, origin, host))
        return api_fail(e, 403, "origin_not_allowed", NULL,
                        "Pages of '%.100s' may not call this server; --cors-origin lets them.", origin);
    if (!strcmp(x->method, "OPTIONS")) return true;
    if (!(x->route = route_find(x->method, path, &x->rest, &allow, e))) return false;
    if (!x->route->open && !access_key(rules, exchange_header(x, "Authorization")))
        return api_fail(e, 401, "invalid_api_key", NULL,
                        exchange_header(x, "Authorization")
                            ? "Incorrect API key provided."
                            : "You didn't provide an API key: send it as 'Authorization: "
                              "Bearer KEY'.");
    return true;
}

typedef struct {
    size_t lengths, codings, hosts;
    bool malformed;
} census;

/* A name is a token (RFC 9110, 5.6.2), a value has no control characters. libmicrohttpd 0.9.75 takes a folded
 * line, which RFC 9112 has abolished, for more of the name, which is moved for it: then the value doesn't
 * follow. */
static enum MHD_Result count_header(void *ctx, enum MHD_ValueKind kind, const char *name, size_t n_name,
                                    const char *value, size_t n_value) {
    census *n = ctx;
    (void)kind;
    n->malformed |= !n_name || strspn(name, TOKEN) != n_name;
    n->malformed |= value && (uintptr_t)value <= (uintptr_t)name + n_name;
    for (size_t i = 0; i < n_value; i++)
        n->malformed |= ((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7F;
    n->lengths += !strcasecmp(name, "Content-Length");
    n->codings += !strcasecmp(name, "Transfer-Encoding");
    n->hosts += !strcasecmp(name, "Host");
    return MHD_YES;
}

/* What leaves no doubt where the request ends, and whom it is for. (A Content-Length that is no number is
 * refused earlier: explain().) */
static bool framed(exchange *x) {
    census n = {0};
    api_error *e = &x->refused;
    const char *coding = exchange_header(x, "Transfer-Encoding");
    MHD_get_connection_values_n(x->c, MHD_HEADER_KIND, count_header, &n);
    if (n.malformed)
        return api_fail(
            e, 400, "invalid_header", NULL,
            "A header is malformed: its name is no token, its value has control characters, or it is "
            "folded.");
    if (n.hosts > 1 || (x->modern && !n.hosts))
        return api_fail(e, 400, "invalid_header", NULL,
                        "A request of HTTP/1.1 has one Host header; this has %zu.", n.hosts);
    if (n.lengths > 1 || (n.lengths && n.codings))
        return api_fail(e, 400, "invalid_header", NULL,
                        "The length of the body is told more than once (Content-Length, Transfer-Encoding).");
    if (n.codings > 1 || (coding && strcasecmp(coding, "chunked")))
        return api_fail(e, 501, "unsupported_encoding", NULL,
                        "Transfer-Encoding '%.40s' is not supported: send the body as it is, or chunked.",
                        coding);
    return true;
}

static bool small_head(exchange *x) {
    size_t n = MHD_get_connection_info(x->c, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size,
           most = x->h->o->header;
    return n <= most ||
           api_fail(&x->refused, 431, "request_header_too_large", NULL,
                    "The head of a request may have at most %zu bytes; this one has %zu.", most, n);
}

/* The head is there. What is refused is so once the body is read, where that is not too large. */
static enum MHD_Result begin(exchange *x, const char *path) {
    const char *length = exchange_header(x, "Content-Length"), *expect = exchange_header(x, "Expect");
    int64_t n = 0;
    if (length && !str_to_int64(length, &n)) n = INT64_MAX;
    if (!small_head(x) || !framed(x)) return exchange_error(x, &x->refused); /* closes: the body isn't read */
    admit(x, path);
    x->rest = NULL; /* of a string that goes */
    if (n > (int64_t)x->h->o->body) body_too_large(&x->refused, x->h);
    if (x->refused.status && expect && n) return exchange_error(x, &x->refused);
    if (n > (int64_t)x->h->o->body) send_refusal(x);
    return MHD_YES;
}

/* Nothing is kept of a body that is too large, but it is read, for as long as a request may take to arrive: a
 * sender who isn't read wouldn't see why. */
static enum MHD_Result take_body(exchange *x, const char *data, size_t n) {
    x->received += n;
    if (x->received > x->h->o->body) {
        body_too_large(&x->refused, x->h);
        send_refusal(x);
    }
    if (!x->refused.status)
        str_add(&x->body, data, n);
    else
        str_free(&x->body);
    return MHD_YES;
}

/* What pages of other origins ask first. */
static enum MHD_Result preflight(exchange *x) {
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Allow", "GET, HEAD, POST, OPTIONS");
    if (access_shares(&x->h->o->access, exchange_header(x, "Origin"))) {
        MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST");
        MHD_add_response_header(r, "Access-Control-Allow-Headers", "*, Authorization");
        MHD_add_response_header(r, "Access-Control-Max-Age", "600");
    }
    return exchange_queue(x, 204, r);
}

static enum MHD_Result answer(exchange *x, const char *path) {
    const char *allow;
    if (x->s) return exchange_job(x);
    if (x->status) return MHD_NO; /* refused and told so: closes */
    watch_serving(x->h->watch, connection_of(x->c)->w);
    if (x->refused.status) return exchange_error(x, &x->refused);
    if (!x->route) return preflight(x);
    api_error unused = {0};
    route_find(x->method, path, &x->rest, &allow, &unused);
    return x->route->answer(x);
}

/* ---- libmicrohttpd ---- */

typedef struct {
    http *h;
    struct MHD_Connection *c;
    const char *path, *method, *version, *data;
    size_t *n;
    void **own;
    enum MHD_Result result;
} call;

exchange *exchange_new(http *h, struct MHD_Connection *c, const char *method, const char *path) {
    exchange *x = mem_alloc(sizeof *x);
    *x = (exchange){.h = h, .c = c, .start = clock_seconds()};
    keep_word(x->method, sizeof x->method, method);
    keep_word(x->path, sizeof x->path, path);
    atomic_fetch_add(&h->busy, 1);
    return x;
}

static void handle(void *ctx) {
    call *k = ctx;
    exchange *x = *k->own;
    if (!x) {
        x = *k->own = connection_of(k->c)->x = exchange_new(k->h, k->c, k->method, k->path);
        x->modern = !strcmp(k->version, "HTTP/1.1");
        k->result = begin(x, k->path);
    } else if (*k->n) {
        k->result = take_body(x, k->data, *k->n);
        *k->n = 0;
    } else {
        k->result = answer(x, k->path);
    }
}

static enum MHD_Result on_request(void *h, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *data, size_t *n, void **own) {
    call k = {h, c, path, method, version, data, n, own, MHD_NO};
    server_guarded(handle, &k);
    return k.result;
}

/* A line: when, what, status, tokens, times. Nothing that a client sent but method and path. */
static void log_line(const exchange *x, const stream_counts *c) {
    char when[32];
    time_t now = time(NULL);
    struct tm t;
    str b = {0};
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &t));
    str_printf(&b, "%s %s %s ", when, x->method, x->path);
    if (x->status)
        str_printf(&b, "%d", x->status);
    else
        str_adds(&b, "-");
    if (c->prompt_tokens)
        str_printf(&b, " prompt=%zu cached=%zu new=%zu first=%.3fs", c->prompt_tokens, c->cached_tokens,
                   c->new_tokens, c->first_seconds);
    str_printf(&b, " total=%.3fs\n", clock_seconds() - x->start);
    fwrite(b.s, 1, b.len, stderr);
    str_free(&b);
}

/* Nothing more is made for it, either. */
void exchange_end(void *ctx, const stream_counts *c) {
    exchange *x = ctx;
    if (!x->h->o->quiet) log_line(x, c);
    METRICS_DO(x->h->metrics, x->h->metrics->responses[x->status / 100]++);
    str_free(&x->body);
    atomic_fetch_sub(&x->h->busy, 1);
    mem_free(x);
}

static void complete(void *ctx) {
    exchange *x = ctx;
    const stream_counts none = {0};
    connection *n = connection_of(x->c);
    watch_expecting(x->h->watch, n->w);
    n->x = NULL;
    if (x->s) {
        queue *q = x->h->q;
        stream_detach(x->s);
        stream_close(x->s, exchange_end, x);
        queue_poke(q);
    } else {
        exchange_end(x, &none);
    }
}

static void on_completed(void *h, struct MHD_Connection *c, void **own,
                         enum MHD_RequestTerminationCode code) {
    (void)h, (void)c, (void)code;
    if (*own) server_guarded(complete, *own);
    *own = NULL;
}

typedef struct {
    http *h;
    struct MHD_Connection *c;
    void **own;
} arrival;

static void arrive(void *ctx) {
    arrival *k = ctx;
    int fd = socket_of(k->c), size = SEND_BUFFER;
    connection *n = *k->own = mem_alloc(sizeof *n);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    *n = (connection){.h = k->h, .w = watch_add(k->h->watch, fd)};
}

static void on_connection(void *h, struct MHD_Connection *c, void **own,
                          enum MHD_ConnectionNotificationCode code) {
    http *server = h;
    arrival k = {server, c, own};
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        server_guarded(arrive, &k);
    } else {
        connection *n = *own;
        watch_remove(server->watch, n->w);
        mem_free(n);
        *own = NULL;
    }
}

/* A path with a NUL in it is left as it is, and so is none that there is. */
static size_t unescape(void *ctx, struct MHD_Connection *c, char *s) {
    (void)ctx, (void)c;
    return strstr(s, "%00") ? strlen(s) : MHD_http_unescape(s);
}

static void be_silent(void *ctx, const char *fmt, va_list args) {
    (void)ctx, (void)fmt, (void)args;
}

bool http_start(http *h, int socket, err *e) {
    const server_options *o = h->o;
    h->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0,
        NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, be_silent, NULL, MHD_OPTION_LISTEN_SOCKET,
        socket, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->connections + SPARE, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)o->idle_limit, MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEAD_MEMORY(o->header),
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_END);
    return h->daemon || err_set(e, ERR_IO, "libmicrohttpd doesn't start");
}

void http_refuse(http *h) {
    atomic_store(&h->stopping, true);
    int fd = MHD_quiesce_daemon(h->daemon);
    if (fd >= 0) close(fd);
}

void http_stop(http *h) {
    struct timespec nap = {0, 10000000};
    for (int i = 0; i < 200 && atomic_load(&h->busy); i++)
        nanosleep(&nap, NULL); /* what is ready is still sent */
    MHD_stop_daemon(h->daemon);
}
