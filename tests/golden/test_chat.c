/* Chat templates: text and ids against transformers (fixtures in the shared cases; see their NOTICE.md). */
#include "jsonl.h"
#include "test.h"
#include "text/chat.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
