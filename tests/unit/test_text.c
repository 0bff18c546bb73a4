/* Tokenizers of many kinds against the tokenizers library (tests/oracle/make_tokenizer_cases.py), broken
 * files, NFC. */
#include "jsonl.h"
#include "text/detokenize.h"
#include "text/pattern.h"
#include "text/unicode.h"

static const char *data_path(const char *below) {
    static char path[1024];
    const char *root = getenv("MILLET_SOURCE");
    snprintf(path, sizeof path, "%s/%s", root ? root : ".", below);
    return path;
}

static tokenizer *from_text(const char *text, const char *config, err *e) {
    return tokenizer_load_memory(text, strlen(text), config, config ? strlen(config) : 0, e);
}

static void check_text(const char *name, const json *want, const tokenizer *t, const token_list *ids,
                       bool skip_special) {
    str out = {0};
    tokenizer_decode(t, ids->ids, ids->n, skip_special, &out);
    if (out.len != want->len || memcmp(str_get(&out), want->s, out.len) != 0)
        fail_msg("%s: decodes to \"%s\", expected \"%s\"", name, str_get(&out), want->s);
    str_free(&out);
}

static void check_variant(const json *v, const json *models) {
    const char *name = json_str(v, "name", "?");
    str spec = {0};
    str_printf(&spec, "{%s,\"model\":%s}", json_str(v, "head", ""),
               json_str(models, json_str(v, "model", ""), ""));
    err e = {0};
    tokenizer *t = tokenizer_load_memory(spec.s, spec.len, NULL, 0, &e);
    if (!t) fail_msg("%s: %s", name, e.msg);
    JSON_EACH(c, json_get(v, "cases")) {
        const json *text = json_get(c, "text"), *ids = json_get(c, "ids");
        token_list out = {0};
        if (!tokenizer_encode(t, text->s, text->len, 0, &out, &e)) fail_msg("%s: %s", name, e.msg);
        size_t i = 0;
        JSON_EACH(id, ids) {
            if (i >= out.n || out.ids[i] != id->i) fail_msg("%s: id %zu of \"%s\" differs", name, i, text->s);
            i++;
        }
        assert_int_equal(out.n, i);
        const json *decoded = json_get(c, "decoded"), *skipped = json_get(c, "skipped");
        if (!decoded) decoded = text;
        check_text(name, decoded, t, &out, false);
        check_text(name, skipped ? skipped : decoded, t, &out, true);
        token_list_free(&out);
    }
    tokenizer_free(t);
    str_free(&spec);
}

static void test_variants(void **state) {
    (void)state;
    arena *a = arena_new();
    err e = {0};
    const json *o = json_parse_file(a, data_path("tests/data/tokenizer_cases.json"), &e);
    if (!o) fail_msg("%s", e.msg);
    size_t count = 0;
    JSON_EACH(v, json_get(o, "variants")) {
        check_variant(v, json_get(o, "models"));
        count++;
    }
    assert_true(count > 60);
    arena_free(a);
}

/* The hand-written matchers and PCRE2 cut alike. */
static void test_two_matchers(void **state) {
    (void)state;
    static const char *const regexes[] = {
        PATTERN_GPT2,
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
        "\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
        "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    };
    static const uint32_t common[] = {' ', ' ', '\n', '\r', '\t', 'a',   's',   'L', 'e',
                                      'v', 'r', '\'', '7',  '.',  0x17F, 0x301, 0xA0};
    uint64_t x = 88172645463325252u; /* xorshift64 */
    for (size_t k = 0; k < sizeof regexes / sizeof *regexes; k++) {
        err e = {0};
        size_t n = strlen(regexes[k]);
        pattern *p[2] = {pattern_regex(regexes[k], n, true, &e), pattern_regex(regexes[k], n, false, &e)};
        if (!p[0] || !p[1]) fail_msg("%s", e.msg);
        for (int round = 0; round < 3000; round++) {
            uint8_t text[160];
            size_t len = 0;
            for (int i = 0; i < round % 40; i++) {
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                uint32_t cp =
                    x >> 60 ? common[x % (sizeof common / sizeof *common)] : (uint32_t)(x >> 8) % 0x110000;
                if (cp < 0xD800 || cp >= 0xE000) len += utf8_encode(text + len, cp);
            }
            matcher m[2];
            for (int i = 0; i < 2; i++) matcher_begin(&m[i], p[i], text, len);
            int r;
            do {
                size_t start[2], end[2];
                r = matcher_next(&m[0], &start[0], &end[0], &e);
                assert_int_equal(matcher_next(&m[1], &start[1], &end[1], &e), r);
                if (r > 0) assert_true(start[0] == start[1] && end[0] == end[1]);
            } while (r > 0);
            for (int i = 0; i < 2; i++) matcher_end(&m[i]);
        }
        pattern_free(p[0]);
        pattern_free(p[1]);
    }
}

#define MODEL(more)                                                                                          \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]" more "}"

static void test_bad_files(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "model"},
        {"[1]", "model"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram"},
        {"{\"model\":{\"vocab\":{\"a\":0}}}", "merges"},
        {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "no id"},
        {"{\"model\":{\"vocab\":{\"a\":4194304},\"merges\":[]}}", "no id"},
        {"{\"model\":{\"vocab\":{\"a\":0.5},\"merges\":[]}}", "no id"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "two entries"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "entry 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "result of entry 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "neither"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "neither"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[3]}}", "neither"},
        {"{" MODEL(",\"dropout\":0.1") "}", "dropout"},
        {"{" MODEL(",\"byte_fallback\":true") "}", "byte_fallback"},
        {"{" MODEL(",\"unk_token\":\"zz\"") "}", "unk_token"},
        {"{" MODEL(",\"end_of_word_suffix\":\"</w>\"") "}", "end_of_word_suffix"},
        {"{\"normalizer\":{\"type\":\"Lowercase\"}," MODEL("") "}", "Lowercase"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\"}," MODEL("") "}", "Metaspace"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"
         "," MODEL("") "}",
         "parenthes"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&[b]]\"},\"behavior\":"
         "\"Isolated\"}," MODEL("") "}",
         "intersection"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{Nope}\"},\"behavior\":"
         "\"Isolated\"}," MODEL("") "}",
         "unknown property"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\"}"
         "," MODEL("") "}",
         "pattern"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Odd\"}," MODEL(
             "") "}",
         "behavior"},
        {"{\"decoder\":{\"type\":\"WordPiece\"}," MODEL("") "}", "WordPiece"},
        {"{\"post_processor\":{\"type\":\"BertProcessing\"}," MODEL("") "}", "BertProcessing"},
        {"{\"added_tokens\":[{\"id\":5}]," MODEL("") "}", "no content"},
        {"{\"added_tokens\":[{\"content\":\"x\"}]," MODEL("") "}", "no id"},
        {"{\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]," MODEL("") "}", "another token"},
        {"{\"added_tokens\":[{\"id\":5,\"content\":\"x\"},{\"id\":5,\"content\":\"y\"}]," MODEL("") "}",
         "another token"},
        {"{" MODEL("") "", "JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err e = {0};
        tokenizer *t = from_text(cases[i][0], NULL, &e);
        if (t) fail_msg("accepted: %s", cases[i][0]);
        if (!strstr(e.msg, cases[i][1]) || strchr(e.msg, '\n'))
            fail_msg("%s: message \"%s\"", cases[i][0], e.msg);
    }
    err e = {0};
    assert_null(tokenizer_load("no/such/folder", &e));
    assert_int_equal(e.code, ERR_IO);
}

static void check_ids(const tokenizer *t, const char *text, unsigned flags, const int32_t *ids, size_t n) {
    token_list out = {0};
    err e = {0};
    assert_true(tokenizer_encode(t, text, strlen(text), flags, &out, &e));
    assert_int_equal(out.n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(out.ids[i], ids[i]);
    token_list_free(&out);
}

/* tokenizer_config.json adds tokens and flags, names eos and bos; the template adds ids only when asked. */
static void test_union(void **state) {
    (void)state;
    const char *file =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<x>\",\"special\":false,\"normalized\":false}],"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\","
        "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"<x>\"}}],"
        "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[9],\"tokens\":[\"<s>\"]},"
        "\"<x>\":{\"id\":\"<x>\",\"ids\":[3],\"tokens\":[\"<x>\"]}}}," MODEL("") "}";
    const char *config =
        "{\"eos_token\":{\"content\":\"<x>\"},\"bos_token\":\"<s>\",\"added_tokens_decoder\":{"
        "\"3\":{\"content\":\"<x>\",\"special\":true,\"normalized\":false},"
        "\"9\":{\"content\":\"<s>\",\"special\":true,\"normalized\":false}}}";
    err e = {0};
    tokenizer *t = from_text(file, config, &e);
    if (!t) fail_msg("%s", e.msg);
    check_ids(t, "ab<x>b<s>", 0, (int32_t[]){2, 3, 1, 9}, 4);
    check_ids(t, "ab<x>b<s>", TOKENIZER_PLAIN, (int32_t[]){2, 1}, 2); /* '<' has no token here */
    check_ids(t, "ab", TOKENIZER_TEMPLATE, (int32_t[]){9, 2, 3}, 3);
    size_t n;
    assert_int_equal(tokenizer_eos(t, &n)[0], 3);
    assert_int_equal(n, 1);
    assert_int_equal(tokenizer_bos(t), 9);
    assert_int_equal(tokenizer_limit(t), 10);
    assert_true(tokenizer_is_special(t, 3));
    assert_int_equal(tokenizer_find(t, "ab", 2), 2);
    assert_int_equal(tokenizer_find(t, "<y>", 3), -1);
    tokenizer_free(t);
}

/* Unicode's examples of UAX 15 (figures 3 to 5), Hangul, order of marks, and a long run of marks. */
static void test_nfc(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"\u212B", "\u00C5"},
        {"\u2126", "\u03A9"},
        {"A\u030A", "\u00C5"},
        {"o\u0302", "\u00F4"},
        {"s\u0323\u0307", "\u1E69"},
        {"\u1E0B\u0323", "\u1E0D\u0307"},
        {"q\u0307\u0323", "q\u0323\u0307"},
        {"\uFB01", "\uFB01"},
        {"\u1E9B\u0323", "\u1E9B\u0323"},
        {"\u1112\u1161\u11AB\u1100\u1173\u11AF", "\uD55C\uAE00"},
        {"\uD558\u11AB", "\uD55C"},
        {"\u0958", "\u0915\u093C"},
        {"x", "x"},
        {"\u0301", "\u0301"},
    };
    err e = {0};
    str out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        str_clear(&out);
        assert_true(unicode_nfc(&out, (const uint8_t *)cases[i][0], strlen(cases[i][0]), &e));
        assert_string_equal(str_get(&out), cases[i][1]);
    }
    str_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants),  cmocka_unit_test(test_two_matchers),
        cmocka_unit_test(test_bad_files), cmocka_unit_test(test_union),
        cmocka_unit_test(test_nfc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
