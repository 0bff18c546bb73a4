/* Messages as clients of an API send them, brought in the form that templates take. */
#include "text/chat.h"
#include <string.h>

typedef struct {
    arena *a;
    size_t index; /* of the message */
    err *e;
} wire;

static bool fail(const wire *w, const char *what) {
    return err_set(w->e, ERR_USAGE, "messages[%zu]%s", w->index, what);
}

/* A copy of one node; the children stay those of v. */
static json *copy(const wire *w, const json *v) {
    return arena_copy(w->a, v, sizeof *v);
}

static json *text_node(const wire *w, const char *s, size_t n) {
    json *t = ARENA_NEW(w->a, json);
    *t = (json){.kind = JSON_STRING, .s = s, .len = (uint32_t)n};
    return t;
}

/* An object made member by member. */
typedef struct {
    json *object;
    const json **end;
} members;

static members members_begin(const wire *w) {
    members m = {.object = ARENA_NEW(w->a, json)};
    m.object->kind = JSON_OBJECT;
    m.end = &m.object->child;
    return m;
}

/* v is a node of its own. */
static void members_add(members *m, const char *key, json *v) {
    v->key = key;
    v->key_len = (uint32_t)strlen(key);
    v->next = NULL;
    *m->end = v;
    m->end = &v->next;
    m->object->len++;
}

static json *join_parts(const wire *w, const json *parts) {
    str all = {0};
    bool ok = true;
    JSON_EACH(p, parts) {
        const json *type = json_get(p, "type");
        bool is_text = !type || type->kind == JSON_NULL || json_is(type, "text") ||
                       json_is(type, "input_text") || json_is(type, "output_text");
        const json *text = json_get_kind(p, "text", JSON_STRING);
        if (p->kind == JSON_STRING) text = p;
        if (!is_text && ok)
            ok = err_set(w->e, ERR_UNSUPPORTED,
                         "messages[%zu].content: parts of type \"%.40s\" are not supported, only text",
                         w->index, type->kind == JSON_STRING ? type->s : json_kind_name(type->kind));
        if (!text && ok) ok = fail(w, ".content: a part lacks its text");
        if (!ok) break;
        str_add(&all, text->s, text->len);
    }
    json *t = ok ? text_node(w, arena_strn(w->a, str_get(&all), all.len), all.len) : NULL;
    str_free(&all);
    return t;
}

static json *content(const wire *w, const json *v) {
    if (!v || v->kind == JSON_NULL) return text_node(w, "", 0);
    if (v->kind == JSON_STRING) return copy(w, v);
    if (v->kind == JSON_ARRAY) return join_parts(w, v);
    fail(w, ".content: expected text or an array of parts");
    return NULL;
}

/* Arguments of a call: an object, or one written in a string (empty: no arguments). */
static json *arguments(const wire *w, const json *v) {
    json *none = ARENA_NEW(w->a, json);
    none->kind = JSON_OBJECT;
    if (!v || v->kind == JSON_NULL) return none;
    if (v->kind == JSON_OBJECT) return copy(w, v);
    if (v->kind == JSON_STRING && !v->len) return none;
    err unused = {0};
    const json *parsed = v->kind == JSON_STRING ? json_parse(w->a, "arguments", v->s, v->len, &unused) : NULL;
    if (parsed && parsed->kind == JSON_OBJECT) return copy(w, parsed);
    fail(w, ".tool_calls: arguments of a call must be a JSON object");
    return NULL;
}

static json *call(const wire *w, const json *v) {
    const json *f = json_get_kind(v, "function", JSON_OBJECT);
    const json *name = json_get_kind(f ? f : v, "name", JSON_STRING);
    if (!name || memchr(name->s, 0, name->len))
        return fail(w, ".tool_calls: expected functions with a name"), NULL;
    json *args = arguments(w, json_get(f ? f : v, "arguments"));
    if (!args) return NULL;
    members function = members_begin(w), m = members_begin(w);
    members_add(&function, "name", copy(w, name));
    members_add(&function, "arguments", args);
    members_add(&m, "type", text_node(w, "function", 8));
    members_add(&m, "function", function.object);
    return m.object;
}

static json *calls(const wire *w, const json *v) {
    if (v->kind != JSON_ARRAY) return fail(w, ".tool_calls: expected an array"), NULL;
    json *all = ARENA_NEW(w->a, json);
    const json **end = &all->child;
    all->kind = JSON_ARRAY;
    JSON_EACH(c, v) {
        json *one = call(w, c);
        if (!one) return NULL;
        *end = one;
        end = &one->next;
        all->len++;
    }
    return all;
}

static bool is_set(const json *v) {
    return v && v->kind != JSON_NULL;
}

static json *message(const wire *w, const json *m) {
    const json *role = json_get_kind(m, "role", JSON_STRING), *thinking = json_get(m, "reasoning_content"),
               *tool_calls = json_get(m, "tool_calls");
    if (!role) return fail(w, ": expected an object with a \"role\""), NULL;
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    bool developer = json_is(role, "developer"), known = developer;
    for (size_t i = 0; i < 4; i++) known |= json_is(role, roles[i]);
    if (!known) {
        err_set(w->e, ERR_USAGE,
                "messages[%zu].role: \"%.40s\" is not system, developer, user, assistant or tool", w->index,
                role->s);
        return NULL;
    }
    members out = members_begin(w);
    members_add(&out, "role", developer ? text_node(w, "system", 6) : copy(w, role));
    json *text = content(w, json_get(m, "content"));
    if (!text) return NULL;
    members_add(&out, "content", text);
    if (!is_set(thinking)) thinking = json_get(m, "reasoning");
    if (is_set(thinking)) {
        if (thinking->kind != JSON_STRING) return fail(w, ".reasoning_content: expected text"), NULL;
        members_add(&out, "reasoning_content", copy(w, thinking));
    }
    if (is_set(tool_calls)) {
        json *all = calls(w, tool_calls);
        if (!all) return NULL;
        members_add(&out, "tool_calls", all);
    }
    return out.object;
}

const json *chat_messages(arena *a, const json *messages, err *e) {
    if (!messages || messages->kind != JSON_ARRAY)
        return err_set(e, ERR_USAGE, "messages: expected an array"), NULL;
    wire w = {.a = a, .e = e};
    json *all = ARENA_NEW(a, json);
    const json **end = &all->child;
    all->kind = JSON_ARRAY;
    JSON_EACH(m, messages) {
        json *one = message(&w, m);
        if (!one) return NULL;
        *end = one;
        end = &one->next;
        all->len++;
        w.index++;
    }
    return all;
}
