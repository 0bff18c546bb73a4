/* Every checkpoint of the shared cases through the program: converted, scored and continued, against what
 * transformers computed in fp32 from the same weights (oracles/README.md). Two floats of one computation in
 * another order differ: logits of size 10 to 40 by some 1e-5; the bound is 2e-4. Greedy continuations are
 * compared up to the first step that is a tie within such an error (margin below 1e-3).
 *
 * The real model, SmolLM2-135M-Instruct, is tested when MILLET_SMOLLM2 names its checkpoint
 * (cases/smollm2/README.md says how to make it); a tie is a margin below 1e-2 there. */
#define _GNU_SOURCE
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "run_cli.h"
#include "work_dir.h"
#include <math.h>

#ifdef MILLET_HOSTILE /* the sanitizers take ten times as long: shorter prompts and continuations */
enum { LONGEST = 17, STEPS = 16 };
#else
enum { LONGEST = 300, STEPS = 64 };
#endif

typedef struct {
    const char *model, *preset, *precision, *top_k;
    int64_t longest; /* prompts beyond it are left out: a row of the large vocabulary is 600 KB */
} setup;

typedef struct {
    arena *a;
    const json *oracle;
    st_file *tensors;
    const char *artifact;
} opened;

static int64_t longest(const setup *s) {
    return s->longest < LONGEST ? s->longest : LONGEST;
}

static void must(bool ok, const err *e) {
    if (!ok) fail_msg("%s", e->msg);
}

static bool is_real(const setup *s) {
    return !strcmp(s->model, "smollm2");
}

static double tie(const setup *s) {
    return is_real(s) ? 1e-2 : 1e-3;
}

static const char *checkpoint_path(const setup *s) {
    const char *real = getenv("MILLET_SMOLLM2");
    if (!is_real(s)) {
        char path[300];
        snprintf(path, sizeof path, "models/%s", s->model);
        return test_case_path(path);
    }
    if (real) return real;
    printf("skipped: MILLET_SMOLLM2 does not name the checkpoint of the real model\n");
    skip();
    return NULL;
}

static opened open_case(const setup *s) {
    char path[300];
    err e = {0};
    const char *checkpoint_dir = checkpoint_path(s);
    opened o = {.a = arena_new()};
    snprintf(path, sizeof path, "%s%s/oracle.json", is_real(s) ? "" : "oracles/", s->model);
    o.oracle = json_parse_file(o.a, test_case_path(path), &e);
    must(o.oracle, &e);
    snprintf(path, sizeof path, "%s%s/oracle.safetensors", is_real(s) ? "" : "oracles/", s->model);
    o.tensors = st_open(test_case_path(path), &e);
    must(o.tensors, &e);
    o.artifact = arena_printf(o.a, "%s/artifact", work_dir);
    cli_result r =
        RUN_CLI(work_dir, "convert", checkpoint_dir, "-o", o.artifact, "--overwrite", "--quiet", "--preset",
                s->preset, "--precision", s->precision, "--top-k", s->top_k, "--context", "512");
    if (r.code) fail_msg("convert: %s", str_get(&r.error));
    cli_result_free(&r);
    return o;
}

static void close_case(opened *o) {
    st_close(o->tensors);
    arena_free(o->a);
}

static void write_ids(const json *ids, const char *path) {
    str b = {0};
    err e = {0};
    JSON_EACH(c, ids) str_printf(&b, "%c%lld", c == ids->child ? '[' : ',', (long long)c->i);
    str_adds(&b, "]");
    must(file_write(path, b.s, b.len, &e), &e);
    str_free(&b);
}

static const json *run_json(arena *a, const cli_result *r) {
    err e = {0};
    if (r->code) fail_msg("exit code %d: %s", r->code, str_get(&r->error));
    const json *j = json_parse(a, "stdout", str_get(&r->out), r->out.len, &e);
    must(j, &e);
    return j;
}

/* The largest difference between the last rows of the file and all rows of the oracle's tensor. */
static double worst_logit(const char *file, const st_tensor *want) {
    err e = {0};
    st_file *f = st_open(file, &e);
    must(f, &e);
    const st_tensor *got = st_find(f, "logits");
    assert_non_null(got);
    assert_int_equal(got->type.dtype, DT_FP32);
    int last = want->type.rank - 1;
    int64_t width = want->type.dim[last], rows = last ? want->type.dim[0] : 1;
    assert_int_equal(got->type.dim[1], width);
    assert_true(got->type.dim[0] >= rows);
    const char *g = (const char *)got->data + (size_t)((got->type.dim[0] - rows) * width) * 4;
    double worst = 0;
    for (int64_t i = 0; i < rows * width; i++) {
        float x, y;
        memcpy(&x, g + i * 4, 4);
        memcpy(&y, (const char *)want->data + i * 4, 4);
        double d = fabs((double)x - y);
        if (!(d <= worst)) worst = d;
    }
    st_close(f);
    return worst;
}

static void check_logits(const opened *o, const setup *s, double bound) {
    double worst = 0;
    JSON_EACH(p, json_get(o->oracle, "prompts")) {
        const json *ids = json_get(p, "ids");
        const char *key = json_str(p, "logits_key", NULL);
        if (!key || ids->len > longest(s)) continue;
        write_ids(ids, in_work("ids.json"));
        cli_result r = RUN_CLI(work_dir, "score", o->artifact, "--ids-file", in_work("ids.json"), "--logits",
                               in_work("logits.safetensors"));
        if (r.code) fail_msg("score: %s", str_get(&r.error));
        cli_result_free(&r);
        double d = worst_logit(in_work("logits.safetensors"), st_find(o->tensors, key));
        if (!(d <= worst)) worst = d;
    }
    print_message("%s %s %s: logits within %.3g\n", s->model, s->preset, s->precision, worst);
    assert_true(worst <= bound);
}

/* Ids up to the first tie. */
static void check_greedy(const opened *o, const setup *s) {
    size_t compared = 0, all = 0;
    char count[24];
    JSON_EACH(p, json_get(o->oracle, "prompts")) {
        const json *ids = json_get(p, "ids");
        if (ids->len > longest(s)) continue;
        size_t steps = json_get(p, "greedy")->len < STEPS ? json_get(p, "greedy")->len : STEPS;
        snprintf(count, sizeof count, "%zu", steps);
        write_ids(ids, in_work("ids.json"));
        cli_result r = RUN_CLI(work_dir, "run", o->artifact, "--raw-ids", in_work("ids.json"), "--json",
                               "--ignore-eos", "--repetition-penalty", "1", "--max-new-tokens", count);
        const json *j = run_json(o->a, &r), *got = json_get(j, "ids");
        assert_int_equal(json_int(j, "prompt_tokens", -1), ids->len);
        assert_string_equal(json_str(j, "finish_reason", ""), "length");
        assert_int_equal(got->len, steps);
        const json *m = json_get(p, "greedy_margin")->child, *g = got->child;
        for (const json *w = json_get(p, "greedy")->child; w && g && m->d >= tie(s);
             w = w->next, m = m->next, g = g->next) {
            assert_int_equal(g->i, w->i);
            compared++;
        }
        all += steps;
        cli_result_free(&r);
    }
    print_message("%s %s %s: %zu of %zu greedy ids compared, equal\n", s->model, s->preset, s->precision,
                  compared, all);
    assert_true(compared > all / 2);
}

static void check_nll(const opened *o, const setup *s) {
    const json *t = json_get(o->oracle, "teacher_forced");
    write_ids(json_get(t, "ids"), in_work("ids.json"));
    cli_result r = RUN_CLI(work_dir, "score", o->artifact, "--ids-file", in_work("ids.json"), "--json");
    const json *j = run_json(o->a, &r);
    double mean = json_double(j, "mean_nll", NAN), agree = 0, n = 0;
    print_message("%s %s %s: mean NLL %.6f, oracle %.6f\n", s->model, s->preset, s->precision, mean,
                  json_double(t, "mean_nll", 0));
    assert_true(fabs(mean - json_double(t, "mean_nll", 0)) < 2e-4); /* follows from the bound on logits */
    assert_true(fabs(json_double(j, "perplexity", NAN) / exp(mean) - 1) < 1e-12);
    const json *top = json_get(t, "top1")->child;
    for (const json *id = json_get(t, "ids")->child->next; id; id = id->next, top = top->next, n++)
        agree += id->i == top->i;
    assert_true(fabs(json_double(j, "top1_agreement", NAN) - agree / n) <
                1.01 / n); /* one tie may fall otherwise */
    cli_result_free(&r);
}

/* float32: the parity reference. */
static void exact(void **state) {
    const setup *s = *state;
    opened o = open_case(s);
    check_logits(&o, s, 2e-4);
    check_greedy(&o, s);
    if (longest(s) >= 138 && !is_real(s)) check_nll(&o, s);
    close_case(&o);
}

/* One row of a logits file made from 64 candidates against all logits of the oracle: the values are right,
 * and nothing outside is larger than the smallest of them. */
static void check_candidates(const char *got, const char *want, size_t width) {
    float g, w, low = INFINITY, high = -INFINITY;
    size_t n = 0;
    for (size_t i = 0; i < width; i++) {
        memcpy(&g, got + i * 4, 4);
        memcpy(&w, want + i * 4, 4);
        if (g == -1e4f) {
            if (w > high) high = w;
            continue;
        }
        n++;
        if (g < low) low = g;
        assert_true(fabsf(g - w) <= 2e-4f);
    }
    assert_int_equal(n, 64);
    assert_true(low >= high - 4e-4f);
}

static void check_candidate_rows(const opened *o, const setup *s) {
    JSON_EACH(p, json_get(o->oracle, "prompts")) {
        const char *key = json_str(p, "logits_key", NULL);
        if (!key || json_get(p, "ids")->len > longest(s)) continue;
        write_ids(json_get(p, "ids"), in_work("ids.json"));
        cli_result r = RUN_CLI(work_dir, "score", o->artifact, "--ids-file", in_work("ids.json"), "--logits",
                               in_work("logits.safetensors"));
        if (r.code) fail_msg("score: %s", str_get(&r.error));
        cli_result_free(&r);
        err e = {0};
        st_file *f = st_open(in_work("logits.safetensors"), &e);
        must(f, &e);
        const st_tensor *got = st_find(f, "logits"), *want = st_find(o->tensors, key);
        size_t width = (size_t)want->type.dim[1], rows = (size_t)want->type.dim[0];
        assert_int_equal(got->type.dim[1], width);
        const char *first = (const char *)got->data + ((size_t)got->type.dim[0] - rows) * width * 4;
        for (size_t t = 0; t < rows; t++)
            check_candidates(first + t * width * 4, (const char *)want->data + t * width * 4, width);
        st_close(f);
    }
}

/* A package that returns candidates: the best 64 with their values, and the same continuation. */
static void candidates(void **state) {
    const setup *s = *state;
    opened o = open_case(s);
    check_candidate_rows(&o, s);
    check_greedy(&o, s);
    close_case(&o);
}

/* mixed: the same first choice wherever the oracle's lead is at least 0.1, in 99 of 100 positions. */
typedef struct {
    size_t agree, n;
} agreement;

/* The rows of the last logits file from `row` on against the oracle's first choices, one a row. */
static agreement compare_choices(size_t row, const json *want, const json *margin) {
    err e = {0};
    agreement a = {0};
    st_file *f = st_open(in_work("logits.safetensors"), &e);
    must(f, &e);
    const st_tensor *l = st_find(f, "logits");
    size_t width = (size_t)l->type.dim[1];
    const char *at = (const char *)l->data + row * width * 4;
    for (; want; want = want->next, margin = margin->next, at += width * 4) {
        if (margin->d < 0.1) continue;
        int64_t best = 0;
        float high = -INFINITY, x;
        for (size_t i = 0; i < width; i++)
            if (memcpy(&x, at + i * 4, 4), x > high) high = x, best = (int64_t)i;
        a.agree += best == want->i;
        a.n++;
    }
    st_close(f);
    return a;
}

static void score_all(const opened *o) {
    cli_result r = RUN_CLI(work_dir, "score", o->artifact, "--ids-file", in_work("ids.json"), "--logits",
                           in_work("logits.safetensors"));
    if (r.code) fail_msg("score: %s", str_get(&r.error));
    cli_result_free(&r);
}

static void mixed(void **state) {
    const setup *s = *state;
    opened o = open_case(s);
    const json *t = json_get(o.oracle, "teacher_forced");
    write_ids(json_get(t, "ids"), in_work("ids.json"));
    score_all(&o);
    agreement a = compare_choices(0, json_get(t, "top1")->child, json_get(t, "margin")->child);
    print_message("%s %s mixed: top-1 agreement %zu of %zu\n", s->model, s->preset, a.agree, a.n);
    assert_true(a.n > 50 && (double)a.agree >= 0.99 * (double)a.n);
    close_case(&o);
}

/* The real model along the oracle's own continuations: the same first choice wherever its lead is at least
 * 0.1. */
static void mixed_real(void **state) {
    const setup *s = *state;
    opened o = open_case(s);
    agreement all = {0};
    JSON_EACH(p, json_get(o.oracle, "prompts")) {
        const json *ids = json_get(p, "ids"), *greedy = json_get(p, "greedy");
        str b = {0};
        err e = {0};
        JSON_EACH(c, ids) str_printf(&b, "%lld ", (long long)c->i);
        JSON_EACH(c, greedy) str_printf(&b, "%lld ", (long long)c->i);
        must(file_write(in_work("ids.json"), b.s, b.len, &e), &e);
        str_free(&b);
        score_all(&o);
        agreement a = compare_choices(ids->len - 1, greedy->child, json_get(p, "greedy_margin")->child);
        all.agree += a.agree;
        all.n += a.n;
    }
    print_message("%s %s mixed: top-1 agreement %zu of %zu\n", s->model, s->preset, all.agree, all.n);
    assert_true(all.n > 200 && all.agree == all.n);
    close_case(&o);
}

#define EXACT(model, preset, longest)                                                                        \
    {                                                                                                        \
        model " " preset, exact, NULL, NULL, &(setup) {                                                      \
            model, preset, "float32", "0", longest                                                           \
        }                                                                                                    \
    }
#define TOP_K(model, longest)                                                                                \
    {                                                                                                        \
        model " top-k", candidates, NULL, NULL, &(setup) {                                                   \
            model, "single", "float32", "64", longest                                                        \
        }                                                                                                    \
    }
#define MIXED(model, preset)                                                                                 \
    {                                                                                                        \
        model " " preset " mixed", mixed, NULL, NULL, &(setup) {                                             \
            model, preset, "mixed", "0", 300                                                                 \
        }                                                                                                    \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        EXACT("tiny-qwen3.5", "chunks", 300),
        EXACT("rand-qwen3.5-untied", "chunks", 300),
        EXACT("rand-qwen3.5-textonly", "chunks", 300),
        EXACT("tiny-qwen3", "chunks", 64),
        EXACT("tiny-qwen3", "single", 300),
        EXACT("rand-qwen2", "chunks", 64),
        EXACT("rand-qwen2", "single", 300),
        EXACT("rand-llama", "chunks", 64),
        EXACT("rand-llama", "single", 300),
        EXACT("rand-qwen3-bigvocab", "chunks", 17),
        EXACT("rand-qwen3-bigvocab", "single", 17),
        TOP_K("tiny-qwen3", 300),
        TOP_K("rand-qwen2", 300),
        TOP_K("rand-llama", 300),
        TOP_K("rand-qwen3-bigvocab", 17),
        MIXED("tiny-qwen3.5", "chunks"),
        MIXED("tiny-qwen3", "chunks"),
        MIXED("tiny-qwen3", "single"),
        MIXED("rand-qwen2", "single"),
        MIXED("rand-llama", "single"),
        MIXED("rand-qwen3.5-untied", "chunks"),
        MIXED("rand-qwen3.5-textonly", "chunks"),
        EXACT("smollm2", "single", 300),
        {"smollm2 mixed", mixed_real, NULL, NULL, &(setup){"smollm2", "single", "mixed", "0", 300}},
    };
    cmocka_set_test_filter(getenv("MILLET_TEST"));
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
