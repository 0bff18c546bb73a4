/* A model in several packages computes what it computes in one: logits against those of the one package and
 * against transformers' float32 results, for every way of cutting it. Each package is driven by hand. */
#define _GNU_SOURCE
#include "base/file.h"
#include "convert/convert.h"
#include "coreml/embedding.h"
#include "golden/oracle.h"
#include "runtime/session.h"
#include "work_dir.h"
#include <unistd.h>

enum { CONTEXT = 160, MOST = 16 };

/* --- an artifact, opened as its metadata.json says --- */

typedef struct {
    arena *a;
    const json *metadata;
    embedding *table;
    rt_model *model[MOST];
    rt_session *session[MOST];
    bool head[MOST]; /* a package with rows of the head alone */
    size_t n;
    int64_t vocab, width, position;
    float *logits;
} set;

static set open_set(const char *name, const convert_options *options, rt_mode mode) {
    err e = {0};
    char dir[100], out[100];
    snprintf(dir, sizeof dir, "models/%s", name);
    snprintf(out, sizeof out, "%s/out", work_dir);
    convert_options o = *options;
    o.preset = "chunks";
    o.context = o.context ? o.context : CONTEXT;
    o.overwrite = true;
    if (!convert_checkpoint(test_case_path(dir), out, &o, NULL, &e)) fail_msg("%s", e.msg);
    set s = {.a = arena_new()};
    s.metadata = json_object_file(s.a, arena_printf(s.a, "%s/metadata.json", out), &e);
    const char *table = json_str(json_get(s.metadata, "table"), "path", "?");
    s.table = embedding_open(arena_printf(s.a, "%s/%s", out, table), &e);
    if (!s.table) fail_msg("%s", e.msg);
    JSON_EACH(p, json_get(s.metadata, "packages")) {
        assert_true(s.n < MOST);
        s.model[s.n] = rt_model_open(arena_printf(s.a, "%s/%s", out, json_str(p, "path", "?")), &e);
        s.session[s.n] = s.model[s.n] ? rt_session_new(s.model[s.n], mode, &e) : NULL;
        if (!s.session[s.n]) fail_msg("%s", e.msg);
        s.head[s.n++] = !strncmp(json_str(p, "path", "?"), "head_", 5);
    }
    s.vocab = embedding_rows(s.table);
    s.width = embedding_width(s.table);
    s.logits = ARENA_ARRAY(s.a, float, (size_t)s.vocab);
    return s;
}

static void close_set(set *s) {
    for (size_t i = 0; i < s->n; i++) {
        rt_session_free(s->session[i]);
        rt_model_close(s->model[i]);
    }
    embedding_close(s->table);
    arena_free(s->a);
}

static const coreml_feature *input(const coreml_function *f, const char *name) {
    for (size_t i = 0; i < f->n_in; i++)
        if (!strcmp(f->in[i].name, name)) return &f->in[i];
    return NULL;
}

/* Runs a function of package i; hidden [tokens][width] becomes what it hands over. Returns its output. */
static rt_tensor run_package(set *s, size_t i, const char *function, float *hidden, int64_t tokens,
                             int64_t valid) {
    err e = {0};
    const coreml_function *f = coreml_function_find(rt_model_coreml(s->model[i]), function);
    assert_non_null(f);
    assert_int_equal(f->n_out, 1);
    const coreml_feature *in = input(f, "hidden");
    assert_non_null(in);
    assert_true(!i || in->type.dtype == DT_FP32); /* packages hand over fp32 */
    int64_t rows = in->type.dim[1];
    assert_int_equal(rows, s->head[i] ? 1 : tokens);
    size_t count = (size_t)(rows * s->width);
    uint16_t *half = mem_alloc(count * sizeof *half);
    num_f32_to_f16(half, hidden, count);
    int32_t position = (int32_t)s->position, real = (int32_t)valid;
    rt_tensor all[] = {{"hidden", in->type, in->type.dtype == DT_FP32 ? (const void *)hidden : half},
                       {"current_pos", IR_TYPE(DT_INT32, 1), &position},
                       {"valid_length", IR_TYPE(DT_INT32, 1), &real}},
              given[3], out[1];
    size_t n = 0;
    for (int k = 0; k < 3; k++)
        if (input(f, all[k].name)) given[n++] = all[k];
    assert_int_equal(n, f->n_in);
    rt_call c = {.function = function, .in = given, .n_in = n, .out = out};
    if (!rt_run(s->session[i], &c, &e)) fail_msg("%s", e.msg);
    mem_free(half);
    assert_int_equal(out[0].type.dtype, DT_FP32);
    if (!strcmp(f->out[0].name, "hidden_out"))
        memcpy(hidden, out[0].data, (size_t)ir_type_bytes(&out[0].type));
    return out[0];
}

/* One call of all packages for n tokens, padded to `tokens` with rows of 7. */
static void call(set *s, const int64_t *ids, int64_t n, int64_t tokens, bool multifunction) {
    float *hidden = mem_alloc((size_t)(tokens * s->width) * sizeof *hidden);
    char function[32] = "main";
    if (multifunction) strcpy(function, "decode");
    if (tokens > 1) snprintf(function, sizeof function, "prefill_%d", (int)tokens);
    for (int64_t i = 0; i < tokens * s->width; i++) hidden[i] = 7;
    for (int64_t t = 0; t < n; t++) assert_true(embedding_row(s->table, ids[t], hidden + t * s->width));
    int64_t scores = 0;
    for (size_t i = 0; i < s->n; i++) {
        rt_tensor out = run_package(s, i, function, hidden, tokens, n);
        bool last = i + 1 == s->n || s->head[i];
        assert_string_equal(out.name, last ? "logits" : "hidden_out");
        if (!last) continue;
        int64_t rows = out.type.dim[1];
        assert_true(out.type.rank == 2 && scores + rows <= s->vocab);
        memcpy(s->logits + scores, out.data, (size_t)rows * sizeof(float));
        scores += rows;
    }
    assert_int_equal(scores, s->vocab);
    s->position += n;
    mem_free(hidden);
}

/* Logits behind the last of n tokens, from fresh states; block: tokens a call. */
static const float *feed(set *s, const int64_t *ids, int64_t n, int64_t block) {
    for (size_t i = 0; i < s->n; i++) rt_state_reset(s->session[i]);
    bool multifunction = json_get(json_get(s->metadata, "graph"), "functions")->len > 1;
    for (s->position = 0; s->position < n;) {
        int64_t left = n - s->position;
        call(s, ids + s->position, left < block ? left : block, block, multifunction);
    }
    return s->logits;
}

/* --- the tests --- */

typedef struct {
    const char *name, *precision, *prefill, *chunks, *kv;
    uint64_t max_file_size;
    int64_t block;          /* tokens a call */
    size_t packages, heads; /* expected; packages 0: not said */
} cut;

static const float *logits_of(const cut *c, const char *chunks, const char *kv, uint64_t size,
                              const int64_t *ids, int64_t n, int64_t block, set *s) {
    const convert_options o = {
        .precision = c->precision, .prefill = c->prefill, .chunks = chunks, .kv = kv, .max_file_size = size};
    *s = open_set(c->name, &o, strcmp(c->precision, "float16") ? RT_FAST : RT_STRICT);
    return feed(s, ids, n, block);
}

/* The same ops on the same numbers in the same order: equal bits in float32, whatever package they are in. In
 * mixed precision the fp32 stream crosses unrounded too; a float16 stream is widened and rounded back, which
 * strict mode sees. */
static void computes_the_same(void **state) {
    const cut *c = *state;
    oracle o = open_oracle(c->name);
    const json *p17 = oracle_prompt(&o, "p17");
    int64_t n;
    const int64_t *ids = oracle_numbers(&o, p17, "ids", &n);
    set one, many;
    const float *want = logits_of(c, NULL, NULL, 0, ids, n, c->block, &one);
    const float *got = logits_of(c, c->chunks, c->kv, c->max_file_size, ids, n, c->block, &many);
    if (c->packages) assert_int_equal(many.n, c->packages);
    assert_true(many.n > 1 || c->kv);
    size_t heads = 0;
    for (size_t i = 0; i < many.n; i++) heads += many.head[i];
    assert_int_equal(heads, c->heads);
    double worst = largest_difference(got, want, one.vocab), of_oracle = 0;
    const float *theirs = oracle_last_logits(&o, p17, one.vocab);
    if (theirs && !strcmp(c->precision, "float32")) of_oracle = largest_difference(got, theirs, one.vocab);
    print_message("%s %s: %zu packages, %.2g from the one package, %.2g from transformers\n", c->name,
                  c->precision, many.n, worst, of_oracle);
    close_set(&one);
    close_set(&many);
    close_oracle(&o);
    assert_true(worst == 0 && of_oracle <= LOGIT_TOLERANCE);
}

/* metadata.json: every layer's states are in the package that has the layer, once; chunks cover the layers.
 */
static void states_are_where_metadata_says(void **state) {
    (void)state;
    static const char *const kinds[] = {"split", "stacked"};
    for (int i = 0; i < 2; i++) {
        convert_options o = {.precision = "float32", .chunks = "3", .kv = kinds[i], .prefill = "4"};
        set s = open_set("tiny-qwen3.5", &o, RT_FAST);
        int64_t layer = 0;
        JSON_EACH(p, json_get(s.metadata, "packages")) {
            const json *range = json_get(p, "layers");
            assert_int_equal(range->child->i, layer);
            layer = range->child->next->i;
        }
        assert_int_equal(layer, 8);
        JSON_EACH(x, json_get(s.metadata, "states")) {
            err e = {0};
            rt_tensor t;
            int64_t package = json_int(x, "package", -1), first = json_get(x, "slices")->child->i;
            assert_true(package >= 0 && package < 3);
            JSON_EACH(name, json_get(x, "names")) {
                if (!rt_state_get(s.session[package], name->s, &t, &e)) fail_msg("%s", e.msg);
                assert_true(first >= 0 && first < t.type.dim[0]);
                for (int64_t k = 0; k < 3; k++)
                    assert_int_equal(rt_state_get(s.session[k], name->s, &t, &(err){0}), k == package);
            }
            layer--;
        }
        assert_int_equal(layer, 0);
        close_set(&s);
    }
}

static void what_does_not_fit_is_named(void **state) {
    (void)state;
    static const struct {
        const char *chunks;
        uint64_t size;
        const char *message;
    } bad[] = {
        {"0", 0, "--chunks 0: expected auto, or 1 to 4096"},
        {"two", 0, "--chunks two: expected auto"},
        {"10", 0, "--chunks 10: at most 9 for this model: its layers and its head"},
        {NULL, 1000000, "layer 0 takes "},
        {NULL, 1800000, "the head's rows from 0 on take 2098"},
        {"2", 4 << 20, "--chunks 2: the largest file would have "},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err e = {0};
        char out[100];
        snprintf(out, sizeof out, "%s/bad", work_dir);
        const convert_options o = {.preset = "chunks", .chunks = bad[i].chunks, .max_file_size = bad[i].size};
        assert_false(convert_checkpoint(test_case_path("models/tiny-qwen3.5"), out, &o, NULL, &e));
        if (strncmp(e.msg, bad[i].message, strlen(bad[i].message))) fail_msg("%s: %s", bad[i].message, e.msg);
        assert_false(file_exists(out));
    }
}

#define CASE(title, ...)                                                                                     \
    {                                                                                                        \
        title, computes_the_same, NULL, NULL, &(cut) {                                                       \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE("one layer each", "tiny-qwen3.5", "float32", NULL, "9", NULL, 0, 1, 9, 0),
        CASE("three", "tiny-qwen3.5", "mixed", NULL, "3", NULL, 0, 1, 3, 0),
        CASE("two of a float16 stream", "tiny-qwen3", "float16", NULL, "2", NULL, 0, 1, 2, 0),
        CASE("prefill in four", "tiny-qwen3.5", "float32", "4,16", "4", NULL, 0, 16, 4, 0),
        CASE("stacked", "tiny-qwen3", "float32", "4", NULL, "stacked", 0, 4, 1, 0),
        CASE("stacked in three", "tiny-qwen3.5", "mixed", NULL, "3", "stacked", 0, 1, 3, 0),
        CASE("as few as fit", "rand-qwen3.5-untied", "float32", NULL, NULL, NULL, 3 << 20, 1, 0, 0),
        CASE("a head apart", "rand-qwen3-bigvocab", "mixed", "4", NULL, NULL, 5 << 20, 4, 4, 3),
        CASE("a head apart by steps", "rand-qwen3-bigvocab", "float32", NULL, "1", NULL, 5 << 20, 1, 6, 5),
        cmocka_unit_test(states_are_where_metadata_says),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests_name("packages", tests, make_work_dir, remove_work_dir);
}
