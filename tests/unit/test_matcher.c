/* Matchers: what a grammar accepts, masks against trying every token, histories, copies. */
#include "base/arena.h"
#include "generate/sampler.h"
#include "structured/matcher.h"
#include "test.h"
#include <math.h>
#include <pthread.h>

static grammar *object(void) {
    err e = {0};
    grammar *g = grammar_json_object(NULL, &e);
    if (!g) fail_msg("%s", e.msg);
    return g;
}

/* All bytes, and a few longer tokens that cut JSON in odd places; the last one ends a text. */
static vocabulary *bytes_and(const char *const *more, size_t n) {
    static uint8_t byte[256];
    const uint8_t *s[512];
    size_t len[512];
    for (size_t i = 0; i < 256; i++) byte[i] = (uint8_t)i, s[i] = &byte[i], len[i] = 1;
    for (size_t i = 0; i < n; i++) s[256 + i] = (const uint8_t *)more[i], len[256 + i] = strlen(more[i]);
    s[256 + n] = byte, len[256 + n] = 0;
    int32_t stop = (int32_t)(256 + n);
    err e = {0};
    vocabulary *v = vocabulary_from_bytes(s, len, 257 + n, &stop, 1, &e);
    assert_non_null(v);
    return v;
}

static const char *const odd[] = {"{\"",  "\":",   "\": ",  "\",",  "\", \"",  "}}",    "}, \"",
                                  "]}",   "true",  "null,", "\xC3", "\xA9\"",  "\\u00", "\\\"",
                                  "1.5e", "12",    "0",     "[[",   "[]",      "{}",    " ",
                                  ", ",   "abc\"", "<a>",   "\n",   "\xF0\x9F"};
enum { N_ODD = sizeof odd / sizeof *odd };

static bool accepts(grammar *g, const vocabulary *v, const char *text) {
    err e = {0};
    matcher *m = matcher_new(g, v, &e);
    bool ok = matcher_accept_bytes(m, text, strlen(text)) && matcher_may_end(m);
    matcher_free(m);
    return ok;
}

static void objects(void **state) {
    (void)state;
    static const char *const good[] = {
        "{}",
        "{\"a\":1}",
        "{\"a\": 1, \"b\": [true, null, \"x\\n\\u00e9\\ud83d\\ude00\", -0.5e+3]}",
        "{\"\":{\"\":{}}}",
        "{\"a\":[[],[[]],{}]}",
        "{\"\xC3\xA9\":\"\xF0\x9F\x98\x80\"}"};
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "1",
                                      "{}}",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1,}",
                                      "{\"a\":01}",
                                      "{\"a\":1.}",
                                      "{\"a\":.5}",
                                      "{\"a\":+1}",
                                      "{\"a\":tru}",
                                      "{\"a\":\"\\x\"}",
                                      "{\"a\":\"\n\"}",
                                      "{a:1}",
                                      "{\"a\":\"\xFF\"}",
                                      "{\"a\":\"\xC0\xAF\"}",
                                      "{\"a\":\"\\ud800\"}",
                                      "{\"a\":\"\\ude00\"}",
                                      "{  \"a\":1}",
                                      "{\"a\":  1}",
                                      "{\"a\":[1,]}",
                                      "{\"a\":1 }",
                                      " {}",
                                      "{} "};
    grammar *g = object();
    vocabulary *v = bytes_and(odd, N_ODD);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!accepts(g, v, good[i])) fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (accepts(g, v, bad[i])) fail_msg("accepted: %s", bad[i]);
    grammar_free(g);
    vocabulary_free(v);
}

/* At every position of a text the mask has just the tokens that are accepted one by one. */
static void masks(void **state) {
    (void)state;
    static const char text[] = "{\"a\": [1.5, \"x\\u00e9\xC3\xA9\", {\"b\": {}}], \"c\": \"\", \"d\": true}";
    grammar *g = object();
    vocabulary *v = bytes_and(odd, N_ODD);
    err e = {0};
    uint32_t *bits = calloc(vocabulary_words(v), sizeof *bits);
    for (int pass = 0; pass < 2; pass++) { /* the second one finds its masks made */
        matcher *m = matcher_new(g, v, &e);
        for (size_t i = 0; i < sizeof text; i++) {
            assert_true(matcher_mask(m, bits, &e));
            for (int32_t id = 0; id < vocabulary_limit(v); id++) {
                bool allowed = bits[id / 32] >> (id % 32) & 1;
                if (allowed != matcher_allows(m, id)) fail_msg("token %d before byte %zu", id, i);
                if (!allowed) continue;
                assert_true(matcher_accept(m, id));
                assert_true(matcher_rollback(m, 1));
            }
            if (i + 1 < sizeof text) assert_true(matcher_accept_bytes(m, text + i, 1));
        }
        assert_true(matcher_may_end(m) && matcher_must_end(m) && !matcher_ended(m));
        assert_true(matcher_accept(m, vocabulary_limit(v) - 1));
        assert_true(matcher_ended(m) && !matcher_may_end(m));
        assert_false(matcher_mask(m, bits, &e));
        matcher_free(m);
    }
    free(bits);
    grammar_free(g);
    vocabulary_free(v);
}

static void history(void **state) {
    (void)state;
    grammar *g = object();
    vocabulary *v = bytes_and(odd, N_ODD);
    err e = {0};
    matcher *m = matcher_new(g, v, &e);
    grammar_free(g); /* the matcher keeps it */
    assert_true(matcher_accept_bytes(m, "{\"a\":[", 6));
    for (int i = 0; i < 200; i++) assert_true(matcher_accept_bytes(m, "[", 1));
    matcher *copy = matcher_clone(m, &e);
    assert_true(matcher_rollback(m, MATCHER_HISTORY));
    assert_false(matcher_rollback(m, 1));
    for (int i = 0; i < 200 - MATCHER_HISTORY + 1; i++) assert_true(matcher_accept_bytes(m, "]", 1));
    assert_false(matcher_accept_bytes(m, "]", 1));
    assert_true(matcher_accept_bytes(m, "}", 1) && matcher_must_end(m));
    for (int i = 0; i < 201; i++) assert_true(matcher_accept_bytes(copy, "]", 1));
    assert_true(matcher_accept_bytes(copy, "}", 1) && matcher_must_end(copy));
    matcher_reset(copy);
    assert_true(matcher_accept_bytes(copy, "{}", 2) && matcher_must_end(copy));
    matcher_free(copy);
    matcher_free(m);
    vocabulary_free(v);
}

/* What comes first runs to its mark, and two line breaks at most follow. */
static void behind(void **state) {
    (void)state;
    err e = {0};
    grammar *g = grammar_json_object(&(grammar_options){.behind = "</think>"}, &e);
    vocabulary *v = bytes_and(odd, N_ODD);
    assert_true(accepts(g, v, "a{<</<</think>{}"));
    assert_true(accepts(g, v, "</think>\n\n{\"a\":1}"));
    assert_false(accepts(g, v, "</think>\n\n\n{}"));
    assert_false(accepts(g, v, "{}"));
    assert_false(accepts(g, v, "</think>{}{}"));
    grammar_free(g);
    vocabulary_free(v);
}

/* ---- threads ---- */

typedef struct {
    grammar *g;
    const vocabulary *v;
    uint32_t sum; /* of all masks along the text */
} reading;

static void *read_text(void *ctx) {
    static const char text[] = "{\"a\": [1.5, \"x y\", {\"b\": {}}], \"c\": \"\", \"d\": true}";
    reading *r = ctx;
    err e = {0};
    uint32_t *bits = calloc(vocabulary_words(r->v), sizeof *bits);
    for (int pass = 0; pass < 20; pass++) {
        matcher *m = matcher_new(r->g, r->v, &e);
        for (size_t i = 0; i + 1 < sizeof text; i++) {
            if (!matcher_mask(m, bits, &e)) break;
            for (size_t k = 0; k < vocabulary_words(r->v); k++) r->sum = r->sum * 31 + bits[k];
            matcher_accept_bytes(m, text + i, 1);
        }
        matcher_free(m);
    }
    free(bits);
    return NULL;
}

/* One grammar, several threads: each sees the masks of one alone. */
static void threads(void **state) {
    (void)state;
    vocabulary *v = bytes_and(odd, N_ODD);
    reading alone = {.g = object(), .v = v}, r[4];
    read_text(&alone);
    grammar_free(alone.g);
    grammar *g = object();
    pthread_t t[4];
    for (int i = 0; i < 4; i++) {
        r[i] = (reading){.g = g, .v = v};
        assert_int_equal(pthread_create(&t[i], NULL, read_text, &r[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(r[i].sum, alone.sum);
    }
    grammar_free(g);
    vocabulary_free(v);
}

/* ---- the sampler under a mask ---- */

static void allowed_only(void **state) {
    (void)state;
    const float score[6] = {5, 9, 1, 7, -INFINITY, 8};
    const int32_t ids[3] = {1, 5, 0};
    const float of_ids[3] = {9, 8, 5};
    uint32_t mask = 1u << 0 | 1u << 3 | 1u << 4, few = 1u << 2;
    err e = {0};
    sampler_options o = SAMPLER_GREEDY;
    sampler *s = sampler_new(&o, 6, &e);
    sampler_row dense = {.values = score, .n = 6, .known = 2},
                candidates = {.values = of_ids, .ids = ids, .n = 3, .known = 1};
    assert_int_equal(sampler_pick(s, dense, &e), 1);
    sampler_allow(s, &mask, 6);
    assert_int_equal(sampler_pick(s, dense, &e), 3);
    assert_int_equal(sampler_pick(s, candidates, &e), 0);
    sampler_allow(s, &mask, 3); /* ids from 3 on have no bit */
    assert_int_equal(sampler_pick(s, dense, &e), 0);
    sampler_allow(s, &few, 6);
    assert_int_equal(sampler_pick(s, candidates, &e), -1);
    assert_non_null(strstr(e.msg, "none of the 3 candidates"));
    sampler_allow(s, NULL, 0);
    e = (err){0};
    assert_int_equal(sampler_pick(s, candidates, &e), 1);
    sampler_free(s);
    o.temperature = 2, o.seed = 3;
    s = sampler_new(&o, 6, &e);
    sampler_allow(s, &mask, 6);
    for (int i = 0; i < 100; i++) {
        int32_t id = sampler_pick(s, dense, &e);
        assert_true(id == 0 || id == 3); /* 4 can't be sampled */
    }
    sampler_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(objects), cmocka_unit_test(masks),
                                       cmocka_unit_test(history), cmocka_unit_test(behind),
                                       cmocka_unit_test(threads), cmocka_unit_test(allowed_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
