#include "server/exchange.h"
#include "server/page.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- what is there ---- */

static enum MHD_Result health(exchange *x) {
    str b = {0};
    bool ok = !atomic_load(&x->h->stopping);
    str_printf(&b, "{\"status\":\"%s\"}\n", ok ? "ok" : "shutting down");
    return exchange_json(x, ok ? 200 : 503, &b);
}

static enum MHD_Result metrics_page(exchange *x) {
    str b = {0};
    size_t open = watch_count(x->h->watch);
    METRICS_DO(x->h->metrics, x->h->metrics->connections = open);
    metrics_text(x->h->metrics, &b);
    return exchange_send(x, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

static void add_model(str *b, const served_model *m, const char *name, long long started) {
    str_adds(b, "{\"id\":");
    str_json_string(b, name, strlen(name));
    str_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"millet\",\"max_model_len\":%lld}",
               started, (long long)m->m->form.context);
}

static enum MHD_Result models(exchange *x) {
    const served_model *m = x->h->m;
    str b = {0};
    bool first = true;
    str_adds(&b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < m->n_name; i++) {
        if (!strcmp(m->name[i], "*")) continue;
        if (!first) str_addc(&b, ',');
        first = false;
        add_model(&b, m, m->name[i], x->h->started);
    }
    str_adds(&b, "]}\n");
    return exchange_json(x, 200, &b);
}

static enum MHD_Result one_model(exchange *x) {
    api_error e = {0};
    if (!request_model(x->h->m, x->rest, strlen(x->rest), &e)) return exchange_error(x, &e);
    str b = {0};
    add_model(&b, x->h->m, x->rest, x->h->started);
    str_addc(&b, '\n');
    return exchange_json(x, 200, &b);
}

static enum MHD_Result page(exchange *x) {
    const char *seen = exchange_header(x, "If-None-Match");
    bool same = seen && strstr(seen, page_etag);
    struct MHD_Response *r = MHD_create_response_from_buffer(
        same ? 0 : page_html_size, (void *)(uintptr_t)page_html, MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "text/html; charset=utf-8");
    MHD_add_response_header(r, "Content-Security-Policy", page_policy);
    MHD_add_response_header(r, "ETag", page_etag);
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    return exchange_queue(x, same ? 304 : 200, r);
}

static enum MHD_Result embeddings(exchange *x) {
    api_error e = {0};
    api_fail(&e, 400, "unsupported_model", "model",
             "The model '%s' generates text; it has no embeddings to give.", x->h->m->name[0]);
    return exchange_error(x, &e);
}

/* ---- generation ---- */

static void resume(void *ctx) {
    MHD_resume_connection(ctx);
}

static enum MHD_Result generate(exchange *x, read_request *read) {
    api_error e = {0};
    x->s = stream_new(resume, x->c);
    stream_attach(x->s, socket_of(x->c));
    if (readers_take(x->h->readers, read, &x->body, x->s, x->start)) {
        watch_answering(x->h->watch, connection_of(x->c)->w, x->s);
        return exchange_job(x);
    }
    stream_release(x->s); /* for both who hold it */
    stream_release(x->s);
    x->s = NULL;
    api_fail(&e, 503, "shutting_down", NULL, "The server is shutting down.");
    return exchange_error(x, &e);
}

static enum MHD_Result completions(exchange *x) {
    return generate(x, request_completion);
}

static enum MHD_Result chat(exchange *x) {
    return generate(x, request_chat);
}

/* ---- the table ---- */

static const route routes[] = {
    {"GET", "/", true, page},
    {"GET", "/health", true, health},
    {"GET", "/metrics", false, metrics_page},
    {"GET", "/v1/models", false, models},
    {"GET", "/v1/models/", false, one_model},
    {"POST", "/v1/chat/completions", false, chat},
    {"POST", "/v1/completions", false, completions},
    {"POST", "/v1/embeddings", false, embeddings},
};

static bool fits(const route *r, const char *path, const char **rest) {
    size_t n = strlen(r->path);
    bool prefix = n > 1 && r->path[n - 1] == '/';
    if (prefix ? strncmp(path, r->path, n) || !path[n] : strcmp(path, r->path)) return false;
    *rest = path + n;
    return true;
}

/* The path of a target in absolute form (RFC 9112, 3.2.2), "http://host/path". */
static const char *without_authority(const char *target) {
    if (strncasecmp(target, "http://", 7) != 0) return target;
    return target + 7 + strcspn(target + 7, "/");
}

const route *route_find(const char *method, const char *path, const char **rest, const char **allow,
                        api_error *e) {
    *allow = NULL;
    path = without_authority(path);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const route *r = &routes[i];
        if (!fits(r, path, rest)) continue;
        if (!strcmp(method, r->method) || (!strcmp(method, "HEAD") && !strcmp(r->method, "GET"))) return r;
        *allow = strcmp(r->method, "GET") ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
    }
    if (*allow)
        api_fail(e, 405, "method_not_allowed", NULL, "Not allowed to %.20s on %.200s; allowed: %s.", method,
                 path, *allow);
    else
        api_fail(e, 404, "unknown_url", NULL, "Unknown request URL: %.20s %.200s.", method, path);
    return NULL;
}
