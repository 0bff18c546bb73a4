/* The sampler's steps against transformers' logits processors (shared cases: ops/logits_processors). */
#include "checkpoint/safetensors.h"
#include "generate/sampler.h"
#include "test.h"
#include <math.h>

enum { N = 40 };

static void read_row(const st_file *f, const char *name, float *out) {
    const st_tensor *t = st_find(f, name);
    assert_non_null(t);
    assert_true(st_floats(t, 0, N, out));
}

/* fp32 arithmetic in another order: 1 unit in the last place of numbers up to 10. What is dropped must agree
 * exactly. */
static void check_row(const char *what, const float *got, const float *want) {
    for (int i = 0; i < N; i++) {
        bool same = isinf(want[i]) ? got[i] == want[i] : fabsf(got[i] - want[i]) <= 2e-6f;
        if (!same) fail_msg("%s: id %d is %g, expected %g", what, i, (double)got[i], (double)want[i]);
    }
}

static sampler *make(const sampler_options *o, int32_t limit) {
    err e = {0};
    sampler *s = sampler_new(o, limit, &e);
    if (!s) fail_msg("%s", e.msg);
    return s;
}

static void test_processors(void **state) {
    (void)state;
    err e = {0};
    st_file *f = st_open(test_case_path("ops/logits_processors.safetensors"), &e);
    if (!f) fail_msg("%s", e.msg);
    static const struct {
        const char *name;
        sampler_options o;
    } cases[] = {
        /* temperature 1 divides by 1: it only lets the steps behind it run */
        {"out.rep1.3", {.top_p = 1, .repetition_penalty = 1.3f}},
        {"out.temp0.6", {.temperature = 0.6f, .top_p = 1, .repetition_penalty = 1}},
        {"out.topk5", {.temperature = 1, .top_k = 5, .top_p = 1, .repetition_penalty = 1}},
        {"out.topp0.8", {.temperature = 1, .top_p = 0.8f, .repetition_penalty = 1}},
        {"out.topp0.001", {.temperature = 1, .top_p = 0.001f, .repetition_penalty = 1}},
        {"out.minp0.1", {.temperature = 1, .top_p = 1, .min_p = 0.1f, .repetition_penalty = 1}},
        {"out.all",
         {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f, .min_p = 0.02f, .repetition_penalty = 1.1f}},
    };
    float logits[N], want[N], got[N];
    int32_t prompt[6];
    read_row(f, "in.logits", logits);
    memcpy(prompt, st_find(f, "in.prev_ids")->data, sizeof prompt);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        sampler *s = make(&cases[c].o, N);
        sampler_prompt(s, prompt, 6);
        if (!sampler_process(s, (sampler_row){logits, NULL, N, 0}, got, N, &e)) fail_msg("%s", e.msg);
        read_row(f, cases[c].name, want);
        check_row(cases[c].name, got, want);
        sampler_free(s);
    }
    st_close(f);
}

/* 20,000 draws against the probabilities of the oracle. The bound is 5 standard deviations of a binomial
 * count. */
static void test_frequencies(void **state) {
    (void)state;
    err e = {0};
    st_file *f = st_open(test_case_path("ops/logits_processors.safetensors"), &e);
    if (!f) fail_msg("%s", e.msg);
    float logits[N], p[N];
    int32_t prompt[6], ids[N];
    read_row(f, "in.logits", logits);
    read_row(f, "out.all_probs", p);
    memcpy(prompt, st_find(f, "in.prev_ids")->data, sizeof prompt);
    const sampler_options o = {.temperature = 0.7f,
                               .top_k = 20,
                               .top_p = 0.8f,
                               .min_p = 0.02f,
                               .repetition_penalty = 1.1f,
                               .seed = 7};
    sampler *dense = make(&o, N), *sparse = make(&o, N);
    sampler_prompt(dense, prompt, 6);
    sampler_prompt(sparse, prompt, 6);
    float reversed[N];
    for (int i = 0; i < N; i++) ids[i] = N - 1 - i, reversed[i] = logits[N - 1 - i];
    int count[N] = {0};
    const int draws = 20000;
    for (int i = 0; i < draws; i++) {
        int32_t id = sampler_pick(dense, (sampler_row){logits, NULL, N, 0}, &e);
        /* the same candidates in another order, with the same seed: the same id */
        assert_int_equal(sampler_pick(sparse, (sampler_row){reversed, ids, N, 0}, &e), id);
        count[id]++;
    }
    for (int i = 0; i < N; i++) {
        double expected = draws * (double)p[i], bound = 5 * sqrt(expected * (1 - (double)p[i])) + 1e-9;
        if (fabs(count[i] - expected) > bound)
            fail_msg("id %d: %d draws, expected %.0f +- %.0f", i, count[i], expected, bound);
    }
    sampler_free(dense);
    sampler_free(sparse);
    st_close(f);
}

/* logit - presence - frequency * count over generated tokens only (OpenAI's definition), behind the
 * repetition penalty. */
static void test_openai_penalties(void **state) {
    (void)state;
    err e = {0};
    const float logits[] = {2, 2, 2, -1, 4};
    float got[5];
    sampler_options o = {
        .top_p = 1, .repetition_penalty = 2, .presence_penalty = 0.5f, .frequency_penalty = 0.25f};
    sampler *s = make(&o, 5);
    int32_t prompt[] = {0, 3, 99, -4};
    sampler_prompt(s, prompt, 4);
    sampler_accept(s, 1);
    sampler_accept(s, 1);
    sampler_accept(s, 3);
    assert_true(sampler_process(s, (sampler_row){logits, NULL, 5, 0}, got, 5, &e));
    assert_float_equal(got[0], 1, 0);                  /* prompt: 2 / 2 */
    assert_float_equal(got[1], 1 - 2 * 0.25 - 0.5, 0); /* twice in the output */
    assert_float_equal(got[2], 2, 0);                  /* new */
    assert_float_equal(got[3], -2 - 0.25 - 0.5, 0);    /* -1 * 2, once in the output */
    assert_int_equal(sampler_pick(s, (sampler_row){logits, NULL, 5, 0}, &e), 4);
    sampler_reset(s);
    assert_true(sampler_process(s, (sampler_row){logits, NULL, 5, 0}, got, 5, &e));
    for (int i = 0; i < 5; i++) assert_float_equal(got[i], logits[i], 0);
    sampler_free(s);
}

static void test_edges(void **state) {
    (void)state;
    err e = {0};
    const float logits[] = {1, 3, 3, 2, 9, INFINITY, NAN};
    float got[7];
    sampler_options o = SAMPLER_GREEDY;
    sampler *s = make(&o, 4); /* ids 4.. are padding rows: neither sampled nor looked at */
    assert_int_equal(sampler_pick(s, (sampler_row){logits, NULL, 7, 0}, &e), 1); /* the lowest of equals */
    const int32_t ids[] = {6, 2, 1};                                             /* the logits 1, 3, 3 */
    assert_int_equal(sampler_pick(s, (sampler_row){logits, ids, 3, 0}, &e), 1);
    sampler_free(s);
    o.temperature = 1;
    o.top_k = 1000000; /* more than there are */
    s = make(&o, 5);
    for (int i = 0; i < 50; i++)
        assert_in_range(sampler_pick(s, (sampler_row){logits, NULL, 7, 0}, &e), 0, 4);
    sampler_free(s);
    o.top_k = 1; /* equals of the k-th largest stay, as in transformers */
    s = make(&o, 4);
    assert_true(sampler_process(s, (sampler_row){logits, NULL, 4, 0}, got, 4, &e));
    assert_true(isinf(got[0]) && got[1] == 3 && got[2] == 3 && isinf(got[3]));
    sampler_free(s);
    s = make(&o, 7);
    assert_int_equal(sampler_pick(s, (sampler_row){logits, NULL, 7, 0}, &e), -1);
    assert_int_equal(e.code, ERR_NUMERIC);
    const float none[] = {-INFINITY, -INFINITY};
    e = (err){0};
    assert_int_equal(sampler_pick(s, (sampler_row){none, NULL, 2, 0}, &e), -1);
    assert_int_equal(sampler_pick(s, (sampler_row){none, NULL, 0, 0}, &e), -1);
    sampler_free(s);
    o.top_p = 1.5f;
    e = (err){0};
    assert_null(sampler_new(&o, 5, &e));
    assert_non_null(strstr(e.msg, "top_p"));
}

/* The first numbers that the authors' xoshiro256** gives from the state 1, 2, 3, 4 (the test vector of
 * rand_xoshiro), and splitmix64 from 0 (published with Java's SplittableRandom). */
static void test_generator(void **state) {
    (void)state;
    static const uint64_t expected[] = {11520,
                                        0,
                                        1509978240,
                                        1215971899390074240u,
                                        1216172134540287360u,
                                        607988272756665600u,
                                        16172922978634559625u,
                                        8476171486693032832u};
    sampler_random r = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_true(sampler_next(&r) == expected[i]);
    sampler_seed(&r, 0);
    assert_true(r.s[0] == 0xE220A8397B1DCDAFu && r.s[1] == 0x6E789E6AA1B965F4u);
    /* those are splitmix64's first numbers from 0 */
    assert_true(sampler_seed_of(0, 1) == 0xE220A8397B1DCDAFu && sampler_seed_of(0, 2) == 0x6E789E6AA1B965F4u);
    assert_true(sampler_seed_of(7, 0) == 7 && sampler_seed_of(0, 0) == 0);
}

/* Against the C library, whose error is below 1 unit in the last place. */
static void test_exp(void **state) {
    (void)state;
    assert_true(sampler_exp(0) == 1);
    assert_true(sampler_exp(-1000) == 0 && sampler_exp(-(double)INFINITY) == 0);
    for (double x = 0; x > -700; x -= 0.37) assert_true(fabs(sampler_exp(x) / exp(x) - 1) < 1e-15);
}

static void test_config(void **state) {
    (void)state;
    err e = {0};
    arena *a = arena_new();
    const char *text =
        "{\"do_sample\":true,\"temperature\":0.6,\"top_p\":0.95,\"eos_token_id\":[4065,4063,4065]}";
    const json *c = json_parse(a, "test", text, strlen(text), &e);
    sampler_options o;
    assert_true(sampler_from_config(&o, c, &e));
    assert_float_equal(o.temperature, 0.6, 1e-7);
    assert_int_equal(o.top_k, 50); /* transformers' fall-back */
    assert_float_equal(o.top_p, 0.95, 1e-7);
    assert_true(sampler_from_config(&o, NULL, &e) && o.temperature == 0 && o.top_k == 0);
    stop_set stop = {0};
    const int32_t eos[] = {4065, 7, -1};
    assert_true(stop_set_add_json(&stop, json_get(c, "eos_token_id"), &e));
    stop_set_add(&stop, eos, 3);
    assert_int_equal(stop.n, 3);
    assert_true(stop_set_has(&stop, 7) && stop_set_has(&stop, 4063) && !stop_set_has(&stop, -1));
    stop_set_free(&stop);
    arena_free(a);
}

/* What makes no sense is refused by name, whether it is used or not. */
static void test_config_nonsense(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{\"do_sample\":true,\"temperature\":\"warm\"}", "temperature holds string, expected a number"},
        {"{\"top_k\":1.5}", "top_k is 1.5, expected a whole number from 0"},
        {"{\"top_k\":-1}", "top_k is -1, expected a whole number from 0"},
        {"{\"top_p\":1.01}", "top_p must be in [0, 1]"},
        {"{\"do_sample\":true,\"min_p\":-0.1}", "min_p must be in [0, 1]"},
        {"{\"repetition_penalty\":0}", "repetition_penalty must be in"},
        {"{\"do_sample\":1}", "do_sample holds integer, expected true or false"},
    };
    arena *a = arena_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err e = {0};
        sampler_options o;
        const json *c = json_parse(a, "test", cases[i][0], strlen(cases[i][0]), &e);
        assert_non_null(c);
        assert_false(sampler_from_config(&o, c, &e));
        if (!strstr(e.msg, cases[i][1])) fail_msg("%s", e.msg);
    }
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processors),       cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_openai_penalties), cmocka_unit_test(test_edges),
        cmocka_unit_test(test_generator),        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_config),           cmocka_unit_test(test_config_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
