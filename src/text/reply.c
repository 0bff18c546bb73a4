#include "text/reply.h"
#include "text/reply_call.h"
#include <string.h>

static const char THINK[] = "<think>", END_THINK[] = "</think>", CALL[] = "<tool_call>",
                  END_CALL[] = "</tool_call>";

typedef enum {
    AT_START,     /* <think> may come */
    IN_REASONING, /* up to </think> */
    IN_CONTENT,   /* <tool_call> may come */
    IN_CALL,
    BEHIND_CALL /* its closing tag may come */
} state;

struct reply {
    reply_options o;
    reply_fn *fn;
    void *ctx;
    state state;
    str run; /* text of the event that is being made */
    reply_kind run_kind;
    str held;        /* the beginning of a marker, perhaps */
    size_t newlines; /* held back: not text if a marker comes next */
    bool skip;       /* newlines that come now are no text */
    bool after_call; /* nothing but newlines since a call */
    /* the call that is read */
    str raw; /* as it was written */
    call_found found;
    call_json json;
    call_xml xml;
    bool announced;
    size_t index, calls;
};

reply *reply_new(const reply_options *o, reply_fn *fn, void *ctx) {
    reply *r = mem_alloc(sizeof *r);
    *r = (reply){.o = *o, .fn = fn, .ctx = ctx};
    r->state = o->thinking || o->may_think ? AT_START : IN_CONTENT;
    return r;
}

static void end_call(reply *r) {
    str_clear(&r->raw);
    str_free(&r->found.name);
    str_free(&r->found.arguments);
    call_json_free(&r->json);
    call_xml_free(&r->xml);
    r->found = (call_found){0};
    r->json = (call_json){0};
    r->xml = (call_xml){0};
    r->announced = false;
}

void reply_free(reply *r) {
    if (!r) return;
    end_call(r);
    str_free(&r->run);
    str_free(&r->held);
    str_free(&r->raw);
    mem_free(r);
}

size_t reply_calls(const reply *r) {
    return r->calls;
}

bool reply_in_reasoning(const reply *r) {
    return r->state == IN_REASONING || (r->state == AT_START && r->o.thinking);
}

/* ---- Events ---- */

static void flush(reply *r) {
    if (r->run.len) r->fn(r->ctx, &(reply_event){r->run_kind, r->run.s, r->run.len, r->index});
    str_clear(&r->run);
}

static void emit(reply *r, reply_kind kind, const char *s, size_t n) {
    if (r->run_kind != kind) flush(r);
    r->run_kind = kind;
    str_add(&r->run, s, n);
}

static void event(reply *r, reply_kind kind, const char *s, size_t n) {
    flush(r);
    r->fn(r->ctx, &(reply_event){kind, s, n, r->index});
}

static reply_kind text_kind(const reply *r) {
    return r->state == IN_REASONING ? REPLY_REASONING : REPLY_CONTENT;
}

static void emit_newlines(reply *r) {
    for (; r->newlines; r->newlines--) emit(r, text_kind(r), "\n", 1);
}

static void emit_text(reply *r, char c) {
    if (c == '\n' && r->skip) return;
    r->skip = false;
    if (c == '\n') {
        r->newlines++;
        return;
    }
    emit_newlines(r);
    r->after_call = false;
    emit(r, text_kind(r), &c, 1);
}

/* ---- Markers ---- */

/* Adds c to the held bytes. 1: these are the marker now (and are let go), 0: its beginning, -1: neither. */
static int marker_byte(reply *r, char c, const char *marker) {
    str_addc(&r->held, c);
    size_t n = strlen(marker);
    if (r->held.len > n || memcmp(r->held.s, marker, r->held.len)) return -1;
    if (r->held.len < n) return 0;
    str_clear(&r->held);
    return 1;
}

/* Text up to a marker; true when that is complete. */
static bool text_byte(reply *r, char c, const char *marker) {
    int what = marker_byte(r, c, marker);
    while (what < 0) {
        emit_text(r, r->held.s[0]);
        memmove(r->held.s, r->held.s + 1, --r->held.len);
        what = r->held.len && memcmp(r->held.s, marker, r->held.len) ? -1 : 0;
    }
    return what > 0;
}

static void byte(reply *r, char c);

/* The held bytes are text after all, to be read in the state that is set now. */
static void replay(reply *r) {
    char held[32];
    size_t n = r->held.len;
    memcpy(held, str_get(&r->held), n);
    str_clear(&r->held);
    for (size_t i = 0; i < n; i++) byte(r, held[i]);
}

static void begin_reasoning(reply *r) {
    r->state = IN_REASONING;
    r->newlines = 0;
    r->skip = true;
}

/* Newlines, <think>; else it is reasoning or content already. */
static void start_byte(reply *r, char c) {
    if (c == '\n' && !r->held.len) {
        r->newlines++;
        return;
    }
    int what = marker_byte(r, c, THINK);
    if (what > 0 || (what < 0 && r->o.thinking))
        begin_reasoning(r);
    else if (what < 0)
        r->state = IN_CONTENT;
    if (what < 0) replay(r);
}

static void end_reasoning(reply *r) {
    r->state = IN_CONTENT;
    r->newlines = 0;
    r->skip = true;
}

/* ---- Calls ---- */

static void begin_call(reply *r) {
    r->state = IN_CALL;
    str_adds(&r->raw, CALL);
    r->json.scan.state = SCAN_VALUE;
}

/* Tells what is known of the call. */
static void publish(reply *r) {
    call_found *f = &r->found;
    if (!f->named) return;
    if (!r->announced) event(r, REPLY_CALL, str_get(&f->name), f->name.len);
    r->announced = true;
    emit(r, REPLY_ARGUMENTS, str_get(&f->arguments), f->arguments.len);
    str_clear(&f->arguments);
}

/* It is no call: what was written is content, but for the last unread bytes, which are looked at anew. */
static void give_back(reply *r, size_t unread) {
    if (r->announced) {
        event(r, REPLY_CALL_BROKEN, "", 0);
        r->index++;
    }
    r->state = IN_CONTENT;
    emit_newlines(r);
    emit(r, REPLY_CONTENT, r->raw.s, r->raw.len - unread);
    r->skip = r->after_call = false;
    str_clear(&r->held);
    str_add(&r->held, r->raw.s + r->raw.len - unread, unread);
    end_call(r);
    replay(r);
}

static void call_byte(reply *r, char c) {
    str_addc(&r->raw, c);
    call_state s = r->o.calls == CHAT_CALLS_XML
                       ? call_xml_byte(&r->xml, (unsigned char)c, r->o.tools, &r->found)
                       : call_json_byte(&r->json, (unsigned char)c, &r->found);
    if (s == CALL_BAD) {
        give_back(r, r->found.unread);
        return;
    }
    if (s == CALL_DONE || !r->o.whole_calls) publish(r);
    if (s == CALL_MORE) return;
    event(r, REPLY_CALL_END, "", 0);
    r->index++;
    r->calls++;
    r->newlines = 0;
    end_call(r);
    r->state = BEHIND_CALL;
}

static void behind_byte(reply *r, char c) {
    if (!r->held.len && is_json_space((unsigned char)c)) {
        r->newlines += c == '\n';
        return;
    }
    int what = marker_byte(r, c, END_CALL);
    if (!what) return;
    r->state = IN_CONTENT;
    r->after_call = true;
    if (what > 0)
        r->newlines = 0;
    else
        replay(r);
}

/* ---- The text ---- */

static void byte(reply *r, char c) {
    switch (r->state) {
    case AT_START: start_byte(r, c); break;
    case IN_REASONING:
        if (text_byte(r, c, END_THINK)) end_reasoning(r);
        break;
    case IN_CONTENT:
        if (r->o.calls == CHAT_CALLS_NONE)
            emit_text(r, c);
        else if (text_byte(r, c, CALL))
            begin_call(r);
        break;
    case IN_CALL: call_byte(r, c); break;
    case BEHIND_CALL: behind_byte(r, c); break;
    }
}

void reply_push(reply *r, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) byte(r, s[i]);
    if (r->o.calls == CHAT_CALLS_NONE && r->state == IN_CONTENT) emit_newlines(r);
    flush(r);
}

void reply_end(reply *r) {
    if (r->state == AT_START) r->state = r->o.thinking ? IN_REASONING : IN_CONTENT;
    if (r->state == IN_CALL) give_back(r, 0);
    if (r->state == IN_CONTENT && !r->after_call) emit_newlines(r);
    if (r->state != BEHIND_CALL)
        for (size_t i = 0; i < r->held.len; i++) emit_text(r, r->held.s[i]);
    str_clear(&r->held);
    flush(r);
}
