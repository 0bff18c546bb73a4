/* Token ids against the tokenizers library (fixtures in the shared cases; see their NOTICE.md). */
#define _GNU_SOURCE
#include "jsonl.h"
#include "test.h"
#include "text/detokenize.h"
#include "text/unicode.h"
#include <time.h>

static tokenizer *load(const char *dir) {
    err e = {0};
    tokenizer *t = tokenizer_load(dir, &e);
    if (!t) fail_msg("%s", e.msg);
    return t;
}

/* Path of a folder of the shared cases that holds a tokenizer.json. */
static const char *folder(const char *below) {
    char file[256];
    snprintf(file, sizeof file, "%s/tokenizer.json", below);
    char *path = (char *)test_case_path(file);
    path[strlen(path) - strlen("/tokenizer.json")] = 0;
    return path;
}

static void check_ids(const tokenizer *t, const char *what, const json *text, const json *ids) {
    token_list out = {0};
    err e = {0};
    if (!tokenizer_encode(t, text->s, text->len, 0, &out, &e)) fail_msg("%s: %s", what, e.msg);
    size_t i = 0;
    JSON_EACH(id, ids) {
        if (i >= out.n || out.ids[i] != id->i)
            fail_msg("%s: id %zu of %zu is %d, expected %d", what, i, out.n, i < out.n ? (int)out.ids[i] : -1,
                     (int)id->i);
        i++;
    }
    assert_int_equal(out.n, i);
    /* pieces + flush = the whole decode; for NFC text it is the text */
    str whole = {0}, pieces = {0};
    tokenizer_decode(t, out.ids, out.n, false, &whole);
    detokenizer d;
    detokenizer_begin(&d, t, false);
    for (i = 0; i < out.n; i++) {
        detokenizer_push(&d, out.ids[i], &pieces);
        assert_int_equal(utf8_valid(str_get(&pieces), pieces.len), pieces.len);
    }
    detokenizer_flush(&d, &pieces);
    assert_int_equal(pieces.len, whole.len);
    assert_memory_equal(str_get(&pieces), str_get(&whole), whole.len);
    if (unicode_is_nfc((const uint8_t *)text->s, text->len)) {
        assert_int_equal(whole.len, text->len);
        assert_memory_equal(str_get(&whole), text->s, text->len);
    }
    str_free(&whole);
    str_free(&pieces);
    token_list_free(&out);
}

typedef struct {
    const tokenizer *t;
    const char *field;
} encode_case;

static void encode_row(const json *o, void *ctx) {
    const encode_case *c = ctx;
    check_ids(c->t, json_str(o, "id", "?"), json_get(o, "text"), json_get(o, c->field));
}

static void encode_file(const char *name) {
    char dir[64];
    snprintf(dir, sizeof dir, "tokenizer/%s", name);
    tokenizer *t = load(folder(dir));
    encode_case c = {t, name};
    assert_true(jsonl_each(test_case_path("tokenizer/dev/encode.jsonl"), encode_row, &c) > 300);
    tokenizer_free(t);
}

static void test_encode_qwen3(void **state) {
    (void)state;
    encode_file("qwen3");
}

static void test_encode_qwen3_5(void **state) {
    (void)state;
    encode_file("qwen3_5");
}

static void check_decoded(const tokenizer *t, const json *ids, const json *text, bool skip_special) {
    if (!text) return;
    str out = {0};
    detokenizer d;
    detokenizer_begin(&d, t, skip_special);
    JSON_EACH(id, ids) detokenizer_push(&d, (int32_t)id->i, &out);
    detokenizer_flush(&d, &out);
    assert_int_equal(out.len, text->len);
    assert_memory_equal(str_get(&out), text->s, text->len);
    str_free(&out);
}

static void oracle(const char *file, const char *dir) {
    err e = {0};
    arena *a = arena_new();
    tokenizer *t = load(folder(dir));
    const json *o = json_parse_file(a, test_case_path(file), &e);
    if (!o) fail_msg("%s", e.msg);
    size_t rows = 0;
    JSON_EACH(c, json_get(o, "cases")) {
        const json *text = json_get_kind(c, "text", JSON_STRING), *ids = json_get(c, "ids");
        if (text) check_ids(t, file, text, ids);
        check_decoded(t, ids, json_get(c, "decoded"), false);
        check_decoded(t, ids, json_get(c, "decoded_skip_special"), true);
        rows++;
    }
    assert_true(rows > 60);
    tokenizer_free(t);
    arena_free(a);
}

static void test_oracles(void **state) {
    (void)state;
    oracle("oracles/tokenizer/oracle.json", "models/tiny-qwen3.5");
    oracle("oracles/tokenizer/oracle.json", "models/tiny-qwen3");
    oracle("oracles/tok-qwen3-multi/oracle.json", "models/tok-qwen3-multi");
    oracle("oracles/tok-qwen3.5-multi/oracle.json", "models/tok-qwen3.5-multi");
}

/* facts: ids of the real vocabulary, flags, and tokens that only exist as decodable rows. */
static void test_vocabulary(void **state) {
    (void)state;
    tokenizer *t = load(folder("tokenizer/qwen3_5"));
    assert_int_equal(tokenizer_limit(t), 248077);
    assert_int_equal(tokenizer_find(t, "<|im_end|>", 10), 248046);
    assert_int_equal(tokenizer_find(t, "<think>", 7), 248068);
    assert_true(tokenizer_is_special(t, 248046));
    assert_false(tokenizer_is_special(t, 248068));
    assert_true(tokenizer_is_added(t, 248068));
    assert_false(tokenizer_is_added(t, 108918));
    size_t n;
    const uint8_t *s = tokenizer_bytes(t, 108918, &n);
    assert_int_equal(n, 9);
    assert_memory_equal(s, "加拿大", 9);
    assert_null(tokenizer_bytes(t, 248077, &n));
    assert_null(tokenizer_bytes(t, -1, &n));
    tokenizer_free(t);
}

/* Runs without the shared cases: the shipped model's tokenizer; ids by the tokenizers library 0.23.3. */
static void test_shipped(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        int32_t ids[40];
    } cases[] = {
        {"Once upon a time, there was a little girl.",
         42,
         {493, 535, 258, 449, 11, 448, 317, 258, 748, 818, 13, -1}},
        {"don't I'LL we'\xC5\xBF 12345",
         22,
         {67, 267, 1403, 323, 6, 43, 43, 797, 6, 129, 123, 220, 16, 17, 18, 19, 20, -1}},
        {"<|im_start|>user\nHi<|im_end|>\n", 30, {4064, 1996, 198, 39, 72, 4065, 198, -1}},
        {"<|im_end|", 9, {27, 91, 514, 62, 393, 91, -1}},
        {"  \n\n\t x\0y \r\n", 12, {263, 775, 197, 1294, 188, 88, 220, 201, 198, -1}},
        {"e\xCC\x81 हिन्दी 你好", 29, {1207, 220, 156, 97,  117, 156, 97,  123, 156, 97,  101, 156, 98,  235,
                                      156,  97,  99,  156, 98,  222, 220, 160, 121, 254, 161, 98,  121, -1}},
        {"", 0, {-1}},
    };
    const char *root = getenv("MILLET_SOURCE");
    char dir[1024];
    snprintf(dir, sizeof dir, "%s/models/tiny-qwen3.5", root ? root : ".");
    tokenizer *t = load(dir);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        token_list out = {0};
        err e = {0};
        assert_true(tokenizer_encode(t, cases[c].text, cases[c].n, 0, &out, &e));
        for (size_t i = 0; i < out.n; i++) assert_int_equal(out.ids[i], cases[c].ids[i]);
        assert_int_equal(cases[c].ids[out.n], -1);
        token_list_free(&out);
    }
    size_t n;
    const int32_t *eos = tokenizer_eos(t, &n);
    assert_int_equal(n, 1);
    assert_int_equal(eos[0], 4065);
    assert_int_equal(tokenizer_bos(t), -1);
    assert_int_equal(tokenizer_limit(t), 4096);
    token_list out = {0};
    err e = {0};
    assert_true(tokenizer_encode(t, "<|im_end|>", 10, TOKENIZER_PLAIN, &out, &e));
    for (size_t i = 0; i < out.n; i++) assert_true(out.ids[i] < 4063);
    token_list_free(&out);
    assert_false(tokenizer_encode(t, "ab\xC0\xAF", 4, 0, &out, &e));
    assert_non_null(strstr(e.msg, "not UTF-8 at byte 2 of 4"));
    token_list_free(&out);
    tokenizer_free(t);
}

static double seconds(const tokenizer *t, const char *text, size_t n) {
    struct timespec a, b;
    token_list out = {0};
    err e = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    assert_true(tokenizer_encode(t, text, n, 0, &out, &e));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    token_list_free(&out);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

/* Text of one kind, ten times as long, may take 10 times as long and the logarithm; quadratic work would take
 * 100. */
static void test_linear(void **state) {
    (void)state;
    tokenizer *t = load(folder("tokenizer/qwen3_5"));
    static const char *const units[] = {"a",   " ",  "\n",   "7", "<", "'", "e\xCC\x81", "\xCC\x81\xCC\xA3",
                                        " \n", "你", "<|im_"};
    enum { SHORT = 100000 };
    char *text = mem_alloc(SHORT * 10 + 16);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t n = 0, len = strlen(units[u]);
        for (; n + len <= SHORT * 10; n += len) memcpy(text + n, units[u], len);
        double small = seconds(t, text, SHORT / len * len), large = seconds(t, text, n);
        if (large > 40 * small + 0.2)
            fail_msg("unit %zu: %.3f s for 0.1 MB, %.3f s for 1 MB", u, small, large);
    }
    mem_free(text);
    tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode_qwen3), cmocka_unit_test(test_encode_qwen3_5),
        cmocka_unit_test(test_oracles),      cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_linear),       cmocka_unit_test(test_shipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
