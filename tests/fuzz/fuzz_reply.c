/* What a model might write, out of the fuzzer's bytes: the first chooses options, the second where the text
 * is cut. However it is cut, the events are the same; a complete call's arguments are a JSON object; text
 * without calls and thinking comes back as it is. */
#include "text/reply.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char TOOLS[] =
    "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": \"string\"}, \"i\": {\"type\": "
    "\"integer\"}, "
    "\"b\": {\"type\": [\"boolean\", \"null\"]}, \"o\": {\"type\": \"object\"}, \"a\": {\"items\": {}}, "
    "\"r\": {\"$ref\": "
    "\"#/properties/i\"}, \"any\": {\"anyOf\": [{\"type\": \"number\"}, {\"type\": \"string\"}]}}}}]";

/* Events as one text; neighbours of a kind are joined. */
typedef struct {
    str out, content, arguments;
    int last;
    size_t call;
    bool whole, in_call;
} record;

static void check_arguments(const str *text) {
    arena *a = arena_new();
    err e = {0};
    const json *v = json_parse(a, "", str_get(text), text->len, &e);
    /* The scanner of calls minds neither of these. */
    bool excused = strstr(e.msg, "duplicate key") || strstr(e.msg, "surrogate") || strstr(e.msg, "UTF") ||
                   strstr(e.msg, "bad number");
    if (v ? v->kind != JSON_OBJECT : !excused) abort();
    arena_free(a);
}

static void on_event(void *ctx, const reply_event *e) {
    record *r = ctx;
    bool text = e->kind == REPLY_REASONING || e->kind == REPLY_CONTENT || e->kind == REPLY_ARGUMENTS;
    if (text && !e->n) abort();
    if (e->kind >= REPLY_CALL && e->call != r->call) abort();
    if (r->last != (int)e->kind || !text) str_printf(&r->out, "\n%d:", (int)e->kind);
    str_add(&r->out, e->s, e->n);
    r->last = (int)e->kind;
    if (e->kind == REPLY_CONTENT) str_add(&r->content, e->s, e->n);
    if (e->kind == REPLY_ARGUMENTS) str_add(&r->arguments, e->s, e->n);
    if (e->kind == REPLY_CALL && (r->in_call || !e->n)) abort();
    if (e->kind > REPLY_CALL && !r->in_call) abort();
    if (e->kind == REPLY_CALL_BROKEN && r->whole) abort();
    if (e->kind == REPLY_CALL_END) check_arguments(&r->arguments);
    if (e->kind == REPLY_CALL_END || e->kind == REPLY_CALL_BROKEN) str_clear(&r->arguments);
    if (e->kind >= REPLY_CALL_END) r->call++;
    if (e->kind >= REPLY_CALL) r->in_call = e->kind == REPLY_CALL || e->kind == REPLY_ARGUMENTS;
}

static void record_free(record *r) {
    str_free(&r->out);
    str_free(&r->content);
    str_free(&r->arguments);
}

/* piece: bytes at a time; 0: sizes from a generator. */
static record read_all(const reply_options *o, const char *s, size_t n, size_t piece, unsigned seed) {
    record r = {.last = -1, .whole = o->whole_calls};
    reply *p = reply_new(o, on_event, &r);
    for (size_t i = 0, k; i < n; i += k) {
        seed = seed * 1664525u + 1013904223u;
        k = piece ? piece : (seed >> 16) % 23 + 1;
        if (k > n - i) k = n - i;
        reply_push(p, s + i, k);
    }
    reply_end(p);
    if (r.in_call) abort();
    reply_free(p);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 2) return 0;
    unsigned bits = data[0];
    const char *text = (const char *)data + 2;
    n -= 2;
    arena *a = arena_new();
    err e = {0};
    reply_options o = {.thinking = bits & 1,
                       .may_think = bits & 2,
                       .calls = (chat_calls)(bits >> 2 & 3) % 3,
                       .whole_calls = bits & 16,
                       .tools = bits & 32 ? json_parse(a, "tools", TOOLS, sizeof TOOLS - 1, &e) : NULL};
    record whole = read_all(&o, text, n, n ? n : 1, 0);
    for (size_t piece = 0; piece < 3; piece++) {
        record cut = read_all(&o, text, n, piece, data[1]);
        if (cut.out.len != whole.out.len || memcmp(str_get(&cut.out), str_get(&whole.out), cut.out.len))
            abort();
        record_free(&cut);
    }
    bool plain = !o.thinking && !o.may_think && o.calls == CHAT_CALLS_NONE;
    if (plain && (whole.content.len != n || memcmp(str_get(&whole.content), text, n))) abort();
    record_free(&whole);
    arena_free(a);
    return 0;
}
