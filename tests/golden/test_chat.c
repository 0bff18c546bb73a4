/* Chat templates: text and ids against transformers (fixtures in the shared cases; see their NOTICE.md). */
#include "jsonl.h"
#include "test.h"
#include "text/chat.h"
#include "text/reply.h"

static tokenizer *load(const char *name) {
    char below[64];
    err e = {0};
    snprintf(below, sizeof below, "tokenizer/%s/tokenizer.json", name);
    char *path = (char *)test_case_path(below);
    path[strlen(path) - strlen("/tokenizer.json")] = 0;
    tokenizer *t = tokenizer_load(path, &e);
    if (!t) fail_msg("%s", e.msg);
    return t;
}

static bool same_ids(const token_list *got, const json *want) {
    size_t i = 0;
    JSON_EACH(id, want) {
        if (i >= got->n || got->ids[i] != id->i) return false;
        i++;
    }
    return i == got->n;
}

typedef struct {
    const tokenizer *qwen3, *qwen3_5;
    chat_prompt prompt; /* used again and again */
    size_t rendered, refused, with_tokens;
} sums;

/* Whether somebody's text holds what the tokenizer would take for a control token. */
static bool holds_tokens(const tokenizer *t, const json *v) {
    if (v->kind == JSON_STRING) {
        token_list marked = {0}, plain = {0};
        err e = {0};
        assert_true(tokenizer_encode(t, v->s, v->len, 0, &marked, &e));
        assert_true(tokenizer_encode(t, v->s, v->len, TOKENIZER_PLAIN, &plain, &e));
        bool differ = marked.n != plain.n;
        token_list_free(&marked);
        token_list_free(&plain);
        return differ;
    }
    JSON_EACH(c, v) {
        if (holds_tokens(t, c)) return true;
    }
    return false;
}

/* With allow_special the ids are transformers'; without it too, unless a message has control tokens in it:
 * then each of these becomes several ids. */
static void check_ids(sums *s, const tokenizer *t, const json *row, const char *id) {
    token_list ids = {0};
    err e = {0};
    const json *want = json_get(row, "ids");
    if (!chat_encode(&s->prompt, t, true, &ids, &e)) fail_msg("%s: %s", id, e.msg);
    if (!same_ids(&ids, want)) fail_msg("%s: other ids", id);
    ids.n = 0;
    if (!chat_encode(&s->prompt, t, false, &ids, &e)) fail_msg("%s: %s", id, e.msg);
    if (!same_ids(&ids, want)) {
        if (!holds_tokens(t, json_get(row, "messages"))) fail_msg("%s: other ids without allow_special", id);
        assert_true(ids.n > want->len);
        str back = {0};
        tokenizer_decode(t, ids.ids, ids.n, false, &back);
        assert_string_equal(str_get(&back), str_get(&s->prompt.text));
        str_free(&back);
        s->with_tokens++;
    }
    token_list_free(&ids);
}

static void check_row(const json *row, void *ctx) {
    sums *s = ctx;
    const char *id = json_str(row, "id", "?"), *family = json_str(row, "family", "?");
    const tokenizer *t = strncmp(family, "qwen3_5", 7) ? s->qwen3 : s->qwen3_5;
    err e = {0};
    chat_options o;
    chat_template *c = chat_open(NULL, family, &e);
    if (!c || !chat_options_read(&o, json_get(row, "options"), &e)) fail_msg("%s: %s", id, e.msg);
    bool ok = chat_render(c, json_get(row, "messages"), &o, &s->prompt, &e);
    const json *text = json_get(row, "text");
    if (text && !ok) fail_msg("%s: %s", id, e.msg);
    if (!text && ok) fail_msg("%s: no error, but %s", id, json_str(row, "error", "?"));
    if (text) {
        assert_string_equal(str_get(&s->prompt.text), text->s);
        check_ids(s, t, row, id);
        static const char open[] = "<|im_start|>assistant\n<think>\n";
        size_t n = sizeof open - 1;
        assert_int_equal(s->prompt.thinking, text->len >= n && !strcmp(text->s + text->len - n, open));
        s->rendered++;
    } else {
        /* What a template raises is said in its words. */
        const char *error = json_str(row, "error", ""), *raised = "TemplateError: ";
        if (!strncmp(error, raised, strlen(raised)) && !strstr(e.msg, error + strlen(raised)))
            fail_msg("%s: '%s' is not in '%s'", id, error, e.msg);
        assert_int_equal(e.code, ERR_USAGE);
        s->refused++;
    }
    chat_close(c);
}

static void test_shared_cases(void **state) {
    (void)state;
    const char *path = test_case_path("tokenizer/dev/chat.jsonl");
    tokenizer *qwen3 = load("qwen3"), *qwen3_5 = load("qwen3_5");
    sums s = {.qwen3 = qwen3, .qwen3_5 = qwen3_5};
    size_t rows = jsonl_each(path, check_row, &s);
    printf("%zu conversations: %zu rendered (%zu with control tokens in messages), %zu refused\n", rows,
           s.rendered, s.with_tokens, s.refused);
    assert_true(s.rendered > 300 && s.refused > 20 && s.with_tokens < 40);
    chat_prompt_free(&s.prompt);
    tokenizer_free(qwen3);
    tokenizer_free(qwen3_5);
}

/* ---- What the templates' Jinja text itself gives (tests/oracle/make_chat_cases.py) ---- */

static void check_jinja_row(const json *row, void *ctx) {
    size_t *refused = ctx;
    const char *family = json_str(row, "family", "?"), *text = json_str(row, "text", NULL);
    err e = {0};
    chat_options o;
    chat_prompt p = {0};
    chat_template *c = chat_open(NULL, family, &e);
    if (!c || !chat_options_read(&o, json_get(row, "options"), &e)) fail_msg("%s: %s", family, e.msg);
    bool ok = chat_render(c, json_get(row, "messages"), &o, &p, &e);
    str what = {0};
    json_canonical(&what, row);
    if (text && !ok) fail_msg("%s: %s", e.msg, str_get(&what));
    if (!text && ok) fail_msg("no error, but %s", str_get(&what));
    const json *wanted = json_get(row, "text");
    if (text && (p.text.len != wanted->len || memcmp(p.text.s, text, wanted->len)))
        fail_msg("%s\ngives %s", str_get(&what), str_get(&p.text));
    *refused += !ok;
    str_free(&what);
    chat_prompt_free(&p);
    chat_close(c);
}

static void test_jinja_cases(void **state) {
    (void)state;
    const char *source = getenv("MILLET_SOURCE");
    char path[1024];
    size_t refused = 0;
    snprintf(path, sizeof path, "%s/tests/data/chat_cases.jsonl", source ? source : ".");
    assert_true(jsonl_each(path, check_jinja_row, &refused) > 300);
    assert_true(refused > 30);
}

/* ---- Replies: what a template writes for an answer, the reader of replies takes apart again ---- */

typedef struct {
    str reasoning, content, calls; /* calls: name, arguments, name ... */
    bool broken;
} parts;

static void on_event(void *ctx, const reply_event *e) {
    parts *p = ctx;
    if (e->kind == REPLY_REASONING) str_add(&p->reasoning, e->s, e->n);
    if (e->kind == REPLY_CONTENT) str_add(&p->content, e->s, e->n);
    if (e->kind == REPLY_CALL) str_printf(&p->calls, "%.*s", (int)e->n, e->s);
    if (e->kind == REPLY_ARGUMENTS) str_add(&p->calls, e->s, e->n);
    if (e->kind == REPLY_CALL_END) str_addc(&p->calls, '\n');
    if (e->kind == REPLY_CALL_BROKEN) p->broken = true;
}

/* The schema of each argument, as its value shows it. */
static void add_tool(str *tools, const json *call) {
    const json *f = json_get(call, "function");
    if (!f) f = call;
    str_printf(tools, "%s{\"name\": \"%s\", \"parameters\": {\"properties\": {", tools->len ? ", " : "[",
               json_str(f, "name", ""));
    JSON_EACH(v, json_get_kind(f, "arguments", JSON_OBJECT)) {
        static const char *const types[] = {"null",   "boolean", "integer", "number",
                                            "string", "array",   "object"};
        str_printf(tools, "%s\"%s\": {\"type\": \"%s\"}", v == json_get(f, "arguments")->child ? "" : ", ",
                   v->key, types[v->kind]);
    }
    str_adds(tools, "}}}");
}

static void add_call(str *calls, const json *call, arena *a) {
    const json *f = json_get(call, "function");
    if (!f) f = call;
    const json *arguments = json_get(f, "arguments");
    err e = {0};
    if (arguments->kind == JSON_STRING)
        arguments = json_parse(a, "arguments", arguments->s, arguments->len, &e);
    str_adds(calls, json_str(f, "name", ""));
    json_canonical(calls, arguments);
    str_addc(calls, '\n');
}

/* The text of calls with canonical arguments: each line is a name and an object. */
static void canonical_calls(str *out, const str *calls, arena *a) {
    for (const char *p = str_get(calls); *p;) {
        const char *end = strchr(p, '\n'), *object = memchr(p, '{', (size_t)(end - p));
        err e = {0};
        const json *v = json_parse(a, "arguments", object, (size_t)(end - object), &e);
        if (!v) fail_msg("%s: %s", e.msg, p);
        str_add(out, p, (size_t)(object - p));
        json_canonical(out, v);
        str_addc(out, '\n');
        p = end + 1;
    }
}

typedef struct {
    arena *a;
    size_t checked, calls;
} replies;

/* The turn of message m: answer is what stands between <|im_start|>assistant and <|im_end|>. */
static void check_reply(replies *r, const chat_template *c, const json *m, const char *answer, size_t n,
                        const char *id) {
    parts got = {0};
    str tools = {0}, wanted = {0}, calls = {0};
    err e = {0};
    JSON_EACH(call, json_get(m, "tool_calls")) {
        add_tool(&tools, call);
        add_call(&wanted, call, r->a);
        r->calls++;
    }
    if (tools.len) str_addc(&tools, ']');
    reply_options o = {.may_think = chat_can_think(c), .calls = chat_calls_of(c)};
    if (tools.len) o.tools = json_parse(r->a, "tools", tools.s, tools.len, &e);
    reply *read = reply_new(&o, on_event, &got);
    for (size_t i = 0; i < n; i++) reply_push(read, answer + i, 1);
    reply_end(read);
    canonical_calls(&calls, &got.calls, r->a);
    assert_false(got.broken);
    if (strcmp(str_get(&calls), str_get(&wanted)))
        fail_msg("%s: %s, not %s", id, str_get(&calls), str_get(&wanted));
    bool shown = n > strlen("<think>") && !memcmp(answer, "<think>", strlen("<think>"));
    if (strcmp(str_get(&got.reasoning), shown ? json_str(m, "reasoning_content", "") : ""))
        fail_msg("%s: reasoning '%s'", id, str_get(&got.reasoning));
    assert_string_equal(str_get(&got.content), json_str(m, "content", ""));
    r->checked++;
    reply_free(read);
    str *all[] = {&got.reasoning, &got.content, &got.calls, &tools, &wanted, &calls};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) str_free(all[i]);
}

static void check_answers(const json *row, void *ctx) {
    replies *r = ctx;
    const char *tag = "<|im_start|>assistant", *at = json_str(row, "text", NULL);
    err e = {0};
    chat_template *c = chat_open(NULL, json_str(row, "family", ""), &e);
    assert_non_null(c);
    JSON_EACH(m, json_get(row, "messages")) {
        if (!at || strcmp(json_str(m, "role", ""), "assistant")) continue;
        at = strstr(at, tag) + strlen(tag);
        const char *answer = at + (*at == '\n'), *end = strstr(answer, "<|im_end|>");
        at = end;
        /* Reasoning inside of the content, and newlines around it, don't come back as they were. */
        const char *content = json_str(m, "content", "");
        if (!strstr(content, "</think>") && !strchr(content, '\n'))
            check_reply(r, c, m, answer, (size_t)(end - answer), json_str(row, "id", "?"));
    }
    chat_close(c);
}

static void test_replies(void **state) {
    (void)state;
    replies r = {.a = arena_new()};
    jsonl_each(test_case_path("tokenizer/dev/chat.jsonl"), check_answers, &r);
    printf("%zu answers with %zu calls read back\n", r.checked, r.calls);
    assert_true(r.checked > 40 && r.calls > 30);
    arena_free(r.a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_jinja_cases),
                                       cmocka_unit_test(test_shared_cases), cmocka_unit_test(test_replies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
