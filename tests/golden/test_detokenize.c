/* Streaming decode against the tokenizers library's full decode, piece by piece (shared cases). */
#include "jsonl.h"
#include "test.h"
#include "text/detokenize.h"

typedef struct {
    tokenizer *qwen3, *qwen3_5;
} tokenizers;

static tokenizer *load(const char *below) {
    err e = {0};
    char *path = (char *)test_case_path(below);
    path[strlen(path) - strlen("/tokenizer.json")] = 0;
    tokenizer *t = tokenizer_load(path, &e);
    if (!t) fail_msg("%s", e.msg);
    return t;
}

static void check(const char *id, const char *what, const str *got, const json *want) {
    if (got->len != want->len || memcmp(str_get(got), want->s, got->len) != 0)
        fail_msg("%s: %s is \"%s\", expected \"%s\"", id, what, str_get(got), want->s);
}

static void row(const json *o, void *ctx) {
    const tokenizers *t = ctx;
    const char *id = json_str(o, "id", "?");
    bool skip_special = json_bool(o, "skip_special_tokens", false);
    const tokenizer *one = strcmp(json_str(o, "tokenizer", ""), "qwen3") == 0 ? t->qwen3 : t->qwen3_5;
    detokenizer d;
    detokenizer_begin(&d, one, skip_special);
    str piece = {0}, whole = {0}, full = {0};
    const json *expected = json_get(o, "pieces")->child;
    token_list ids = {0};
    err e = {0};
    JSON_EACH(x, json_get(o, "ids")) {
        str_clear(&piece);
        detokenizer_push(&d, (int32_t)x->i, &piece);
        check(id, "a piece", &piece, expected);
        expected = expected->next;
        str_add(&whole, str_get(&piece), piece.len);
        assert_true(token_list_add(&ids, (int32_t)x->i, &e));
    }
    str_clear(&piece);
    detokenizer_flush(&d, &piece);
    check(id, "flush", &piece, json_get(o, "flush"));
    str_add(&whole, str_get(&piece), piece.len);
    check(id, "the whole text", &whole, json_get(o, "hf_full_decode"));
    tokenizer_decode(one, ids.ids, ids.n, skip_special, &full);
    check(id, "decode", &full, json_get(o, "hf_full_decode"));
    str_free(&piece);
    str_free(&whole);
    str_free(&full);
    token_list_free(&ids);
}

static void test_stream(void **state) {
    (void)state;
    const char *cases = test_case_path("tokenizer/dev/stream_decode.jsonl");
    tokenizers t = {load("tokenizer/qwen3/tokenizer.json"), load("tokenizer/qwen3_5/tokenizer.json")};
    assert_true(jsonl_each(cases, row, &t) > 50);
    tokenizer_free(t.qwen3);
    tokenizer_free(t.qwen3_5);
}

/* The examples of Unicode's "U+FFFD Substitution of Maximal Subparts" (core specification, tables 3-8 to
 * 3-11), by a tokenizer whose 256 tokens are the bytes. */
static void test_maximal_subparts(void **state) {
    (void)state;
#define R "\xEF\xBF\xBD"
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", R R R R R R R R "A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", R R R R R R R R "A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", R R R R R "A" R R "B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", R R R R "A"},
        {"\xF0\x9F\x98", R},
    };
    str spec = {0};
    str_adds(&spec, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{"
                    "\"merges\":[],\"vocab\":{");
    for (unsigned b = 0, other = 0; b < 256; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        str_printf(&spec, "%s\"\\u%04x\":%u", b ? "," : "", printable ? b : 256 + other, b);
        if (!printable) other++;
    }
    str_adds(&spec, "}}}");
    err e = {0};
    tokenizer *t = tokenizer_load_memory(spec.s, spec.len, NULL, 0, &e);
    if (!t) fail_msg("%s", e.msg);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        str out = {0};
        detokenizer d;
        detokenizer_begin(&d, t, false);
        for (const char *p = cases[c].bytes; *p; p++) detokenizer_push(&d, (uint8_t)*p, &out);
        detokenizer_flush(&d, &out);
        assert_string_equal(str_get(&out), cases[c].text);
        str_free(&out);
    }
    tokenizer_free(t);
    str_free(&spec);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stream),
                                       cmocka_unit_test(test_maximal_subparts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
