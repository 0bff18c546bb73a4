#define _GNU_SOURCE
/* The forms by name, type and shape, and what is said when none fits. */
#include "base/file.h"
#include "generate/artifact.h"
#include "generate/contract.h"
#include "work_dir.h"
#include <sys/stat.h>
#include <unistd.h>

#define FEATURE(n, ...)                                                                                      \
    { .name = n, .type = IR_TYPE(__VA_ARGS__) }

static arena *all; /* what contracts point into */

static bool find(contract *c, const coreml_model *m, err *e) {
    const contract_package p = {"x.mlpackage", m};
    return contract_find(c, all, &p, 1, e);
}

static coreml_model model_of(coreml_function *f) {
    return (coreml_model){.spec = 9, .default_function = "main", .func = f, .n_func = 1};
}

static void chunks(void **state) {
    (void)state;
    coreml_feature in[] = {FEATURE("hidden", DT_FP16, 1, 1, 64), FEATURE("current_pos", DT_INT32, 1)};
    coreml_feature out[] = {FEATURE("logits", DT_FP32, 1, 300)};
    coreml_feature st[] = {FEATURE("conv_0", DT_FP16, 1, 128, 3), FEATURE("k_1", DT_FP16, 1, 2, 77, 16),
                           FEATURE("v_1", DT_FP16, 1, 2, 77, 16)};
    coreml_function f = {
        .name = "main", .in = in, .out = out, .state = st, .n_in = 2, .n_out = 1, .n_state = 3};
    coreml_model m = model_of(&f);
    contract c;
    err e = {0};
    assert_true(find(&c, &m, &e));
    assert_int_equal(c.form, CONTRACT_CHUNKS);
    assert_int_equal(c.hidden, 64);
    assert_int_equal(c.input_type, DT_FP16);
    assert_int_equal(c.vocab, 300);
    assert_int_equal(c.context, 77);
    assert_int_equal(c.func->tokens, 1);
    assert_int_equal(c.top_k, 0);
    f.n_state = 1; /* nothing bounds the positions */
    assert_true(find(&c, &m, &e));
    assert_int_equal(c.context, INT32_MAX);
}

/* Functions for several tokens are found beside the one for one token, ascending; what differs in anything is
 * none. */
static void prefill(void **state) {
    (void)state;
    enum { GOOD = 2, ALL = 8 };
    static const int64_t tokens[ALL] = {1, 64, 4, 4, 4, 4, 4, 100};
    coreml_feature in[ALL][3], out[ALL][1], st[ALL][1];
    coreml_function f[ALL];
    char name[ALL][16];
    for (int i = 0; i < ALL; i++) {
        in[i][0] = (coreml_feature)FEATURE("hidden", DT_FP16, 1, tokens[i], 64);
        in[i][1] = (coreml_feature)FEATURE("current_pos", DT_INT32, 1);
        in[i][2] = (coreml_feature)FEATURE("valid_length", DT_INT32, 1);
        out[i][0] = (coreml_feature)FEATURE("logits", DT_FP32, 1, 300);
        st[i][0] = (coreml_feature)FEATURE("k_1", DT_FP16, 1, 2, 77, 16);
        snprintf(name[i], sizeof name[i], "f%d", i);
        f[i] = (coreml_function){.name = name[i],
                                 .in = in[i],
                                 .out = out[i],
                                 .state = st[i],
                                 .n_in = i ? 3 : 2,
                                 .n_out = 1,
                                 .n_state = 1};
    }
    f[3].n_in = 2;                                                    /* no valid_length */
    in[4][0].type.dtype = DT_FP32;                                    /* another type of hidden */
    out[5][0] = (coreml_feature)FEATURE("logits", DT_FP32, 1, 301);   /* another vocabulary */
    st[6][0] = (coreml_feature)FEATURE("k_1", DT_FP16, 1, 2, 78, 16); /* another state */
    coreml_model m = model_of(f);                                     /* f7: longer than the context */
    m.n_func = ALL;
    m.default_function = "f0";
    contract c;
    err e = {0};
    assert_true(find(&c, &m, &e));
    assert_string_equal(c.function, "f0");
    assert_int_equal(c.n_func, 1 + GOOD);
    assert_string_equal(c.func[1].name, "f2");
    assert_int_equal(c.func[1].tokens, 4);
    assert_string_equal(c.func[2].name, "f1");
    assert_int_equal(c.func[2].tokens, 64);
}

static const coreml_range ids_range[] = {{1, 1}, {1, 500}};
static const coreml_range mask_range[] = {{1, 1}, {1, 1}, {1, 500}, {1, 500}};

static void single(void **state) {
    (void)state;
    coreml_feature in[] = {FEATURE("causal_mask", DT_FP16, 1, 1, 1, 1), FEATURE("input_ids", DT_INT32, 1, 1)};
    in[0].range = mask_range;
    in[1].range = ids_range;
    coreml_feature out[] = {FEATURE("topk_ids", DT_INT32, 1, 1, 8), FEATURE("topk_values", DT_FP32, 1, 1, 8)};
    coreml_feature st[] = {FEATURE("key_cache", DT_FP16, 2, 1, 2, 400, 16),
                           FEATURE("value_cache", DT_FP16, 2, 1, 2, 400, 16)};
    coreml_function f = {
        .name = "main", .in = in, .out = out, .state = st, .n_in = 2, .n_out = 2, .n_state = 2};
    coreml_model m = model_of(&f);
    contract c;
    err e = {0};
    assert_true(find(&c, &m, &e));
    assert_int_equal(c.form, CONTRACT_SINGLE);
    assert_int_equal(c.top_k, 8);
    assert_int_equal(c.ids, 0);
    assert_int_equal(c.func->stage->at, 1);
    assert_int_equal(c.context, 400);
    assert_int_equal(c.func->tokens, 400);
    coreml_feature logits[] = {FEATURE("logits", DT_FP32, 1, 1, 300)};
    f.out = logits;
    f.n_out = 1;
    assert_true(find(&c, &m, &e));
    assert_int_equal(c.top_k, 0);
    assert_int_equal(c.vocab, 300);
}

static void nothing_fits(void **state) {
    (void)state;
    coreml_feature in[] = {FEATURE("x", DT_FP16, 1, 64), FEATURE("current_pos", DT_INT32, 1)};
    coreml_feature out[] = {FEATURE("y", DT_FP16, 1, 64)};
    coreml_function f = {
        .name = "main", .in = in, .out = out, .state = NULL, .n_in = 2, .n_out = 1, .n_state = 0};
    coreml_model m = model_of(&f);
    contract c;
    err e = {0};
    assert_false(find(&c, &m, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "chunks lacks input hidden, a meaning for input x, output logits."));
    assert_non_null(strstr(e.msg, "single lacks input input_ids, input causal_mask"));
    assert_non_null(
        strstr(e.msg, "inputs x fp16[1,64], current_pos int32[1]; outputs y fp16[1,64]; states none"));
}

static void wrong_shapes(void **state) {
    (void)state;
    coreml_feature in[] = {FEATURE("hidden", DT_FP16, 1, 8, 64), FEATURE("current_pos", DT_FP32, 1)};
    coreml_feature out[] = {FEATURE("logits", DT_FP32, 1, 300)};
    coreml_function f = {
        .name = "main", .in = in, .out = out, .state = NULL, .n_in = 2, .n_out = 1, .n_state = 0};
    coreml_model m = model_of(&f);
    contract c;
    err e = {0};
    assert_false(find(&c, &m, &e));
    assert_non_null(
        strstr(e.msg, "chunks lacks input current_pos as int32 of rank 1, input hidden as [1,1,h]."));
}

/* ---- sets ---- */

enum { PACKAGES = 4, FUNCTIONS = 3 };

/* chunk 0 and 1, then two heads; functions for 1, 4 and 16 tokens. */
typedef struct {
    coreml_feature in[PACKAGES][FUNCTIONS][3], out[PACKAGES][FUNCTIONS], st[PACKAGES][FUNCTIONS][2];
    coreml_function f[PACKAGES][FUNCTIONS];
    coreml_model m[PACKAGES];
    contract_package p[PACKAGES];
} example;

static void make_set(example *x) {
    static const char *const package[] = {"chunk_1", "chunk_2", "head_1", "head_2"};
    static const char *const function[] = {"decode", "prefill_4", "prefill_16"};
    static const char *const cache[] = {"k_0", "k_1"}, *const rest[] = {"conv_0_lo", "conv_1_lo"};
    static const int64_t tokens[] = {1, 4, 16};
    memset(x, 0, sizeof *x);
    for (int i = 0; i < PACKAGES; i++) {
        for (int k = 0; k < FUNCTIONS; k++) {
            bool head = i >= 2;
            x->in[i][k][0] =
                (coreml_feature)FEATURE("hidden", i ? DT_FP32 : DT_FP16, 1, head ? 1 : tokens[k], 64);
            x->in[i][k][1] = (coreml_feature)FEATURE("current_pos", DT_INT32, 1);
            x->in[i][k][2] = (coreml_feature)FEATURE("valid_length", DT_INT32, 1);
            x->out[i][k] = head ? (coreml_feature)FEATURE("logits", DT_FP32, 1, 100 + i)
                                : (coreml_feature)FEATURE("hidden_out", DT_FP32, 1, i ? 1 : tokens[k], 64);
            if (!head) {
                x->st[i][k][0] = (coreml_feature)FEATURE(cache[i], DT_FP16, 1, 2, 77, 16);
                x->st[i][k][1] = (coreml_feature)FEATURE(rest[i], DT_FP16, 1, 8, 3);
            }
            x->f[i][k] = (coreml_function){.name = function[k],
                                           .in = x->in[i][k],
                                           .out = &x->out[i][k],
                                           .state = x->st[i][k],
                                           .n_in = head ? 1
                                                   : k  ? 3
                                                        : 2,
                                           .n_out = 1,
                                           .n_state = head ? 0 : 2};
        }
        x->m[i] =
            (coreml_model){.spec = 9, .default_function = "decode", .func = x->f[i], .n_func = FUNCTIONS};
        x->p[i] = (contract_package){package[i], &x->m[i]};
    }
}

static void a_set(void **state) {
    (void)state;
    example x;
    contract c;
    err e = {0};
    make_set(&x);
    x.m[3].n_func = 1; /* a head may have one function for all */
    if (!contract_find(&c, all, x.p, PACKAGES, &e)) fail_msg("%s", e.msg);
    assert_int_equal(c.n_package, 4);
    assert_int_equal(c.n_layers, 2);
    assert_int_equal(c.vocab, 102 + 103);
    assert_int_equal(c.hidden, 64);
    assert_int_equal(c.input_type, DT_FP16);
    assert_int_equal(c.context, 77);
    assert_int_equal(c.n_func, 3);
    assert_int_equal(c.func[2].tokens, 16);
    assert_string_equal(c.func[2].stage[3].function, "decode");
    assert_true(c.func[1].stage[0].position && c.func[1].stage[0].valid && !c.func[1].stage[2].position);
    /* a size that one package takes otherwise is none */
    x.in[1][1][0].type.dim[1] = 5;
    assert_true(contract_find(&c, all, x.p, PACKAGES, &e));
    assert_int_equal(c.n_func, 2);
    assert_int_equal(c.func[1].tokens, 16);
    x.m[1].n_func = 1;
    assert_true(contract_find(&c, all, x.p, PACKAGES, &e));
    assert_int_equal(c.n_func, 1);
}

static void set_refused(example *x, size_t n, const char *expected) {
    contract c;
    err e = {0};
    assert_false(contract_find(&c, all, x->p, n, &e));
    if (strcmp(e.msg, expected)) fail_msg("%s", e.msg);
    make_set(x);
}

static void sets_that_do_not_fit(void **state) {
    (void)state;
    example x;
    make_set(&x);
    x.in[1][0][0].type.dim[2] = 32;
    set_refused(
        &x, 4,
        "chunk_2: function decode takes hidden fp32[1,1,32], but chunk_1 returns hidden_out fp32[1,1,64]");
    x.in[3][0][0].type.dim[2] = 128;
    set_refused(
        &x, 4,
        "head_2: function decode takes hidden fp32[1,1,128], but chunk_2 returns hidden_out fp32[1,1,64]");
    x.in[1][0][0].type.dtype = DT_INT32;
    set_refused(&x, 4, "chunk_2: function decode lacks input hidden as fp16 of rank 3");
    x.out[0][0].type.dtype = DT_INT32;
    set_refused(&x, 4,
                "chunk_1: function decode lacks output hidden_out as fp32 of rank 3 with a fixed last size");
    x.out[2][0].name = "scores";
    set_refused(&x, 4, "head_1: function decode lacks output logits");
    x.in[1][0][2].name = "causal_mask";
    x.f[1][0].n_in = 3;
    set_refused(&x, 4, "chunk_2: function decode lacks a meaning for input causal_mask");
    x.f[1][0].n_in = 3;
    set_refused(&x, 4, "function decode takes one token and a valid_length");
    x.st[1][0][0].type.dim[2] = 99;
    set_refused(&x, 4, "chunk_2 has caches of 99 positions, chunk_1 of 77");
    x.st[1][0][1].name = "conv_0_lo";
    set_refused(&x, 4, "chunk_1 and chunk_2 both have the state conv_0_lo");
    x.st[1][0][1].name = "conv_0";
    set_refused(
        &x, 4,
        "chunk_2 has states of layer 0, but stands behind chunk_1, which has those of layer 0: the packages "
        "are in the wrong order");
    x.m[1].default_function = x.f[1][0].name = "other";
    set_refused(&x, 4, "chunk_2: there is no function decode, which chunk_1 has");
    set_refused(&x, 2, "chunk_2, the last of 2 packages, returns hidden_out, not logits");
    x.p[1] = x.p[2];
    x.p[2] = (contract_package){"chunk_2", &x.m[1]};
    set_refused(
        &x, 4,
        "chunk_2 passes hidden_out on, but stands behind head_1, which returns logits: the packages are in "
        "the wrong order");
    x.m[1].n_part = 2;
    set_refused(&x, 4, "chunk_2: a pipeline is not a form that can generate (chunks, single)");
    x.f[0][0].n_state = x.f[1][0].n_state = 0;
    x.m[1].default_function = "none";
    set_refused(&x, 4, "chunk_2: the package has no default function");
}

/* ---- a description of one's own ---- */

/* A head that returns the best of each slice, with ids that count from its beginning; two lengths bound the
 * context. */
static void best_of_slices(void **state) {
    (void)state;
    static const char text[] = "{\"format\": \"millet contract\", \"version\": 1, \"name\": \"x\", "
                               "\"vocab\": VOCAB, \"packages\": [{\"role\": "
                               "\"m\", \"files\": [\"m\"], \"inputs\": {\"ids\": {\"is\": \"tokens\", "
                               "\"shape\": [1, \"T\"]}, \"mask\": {\"is\": "
                               "\"causal_mask\", \"shape\": [1, \"T\", \"K\"]}}, \"outputs\": {\"at\": "
                               "{\"is\": \"best_id\", \"shape\": [\"V\"], "
                               "\"local\": true}, \"top\": {\"is\": \"best_value\", \"shape\": [\"V\"]}}}], "
                               "\"states\": {\"caches\": {\"kv_{i}\": "
                               "-2}}}";
    coreml_feature in[] = {FEATURE("ids", DT_INT32, 1, 1), FEATURE("mask", DT_FP16, 1, 1, 50)};
    coreml_feature out[] = {FEATURE("top", DT_FP16, 3), FEATURE("at", DT_INT32, 3)};
    coreml_feature st[] = {FEATURE("kv_0", DT_FP16, 1, 2, 80, 16)};
    coreml_function f = {
        .name = "main", .in = in, .out = out, .state = st, .n_in = 2, .n_out = 2, .n_state = 1};
    coreml_model m = model_of(&f);
    const contract_package p = {"m.mlpackage", &m};
    contract c;
    for (int known = 0; known < 2; known++) {
        char whole[1000];
        const char *at = strstr(text, "VOCAB");
        snprintf(whole, sizeof whole, "%.*s%s%s", (int)(at - text), text, known ? "11" : "[\"none.json:x\"]",
                 at + 5);
        err e = {0};
        const description *d = describe_parse(all, "x.json", whole, strlen(whole), &e);
        if (!d) fail_msg("%s", e.msg);
        assert_int_equal(contract_match(&c, all, d, NULL, &p, NULL, 1, NULL, &e), known);
        if (!known) {
            assert_string_equal(e.msg,
                                "m.mlpackage: ids of 3 slices of the vocabulary, and nothing tells how large "
                                "these are");
            continue;
        }
        assert_int_equal(c.context, 50);
        assert_true(c.best);
        assert_int_equal(c.top_k, 1);
        assert_int_equal(c.in_vocab, 11);
        assert_int_equal(c.n_slice, 3); /* uneven: the first ones are one longer */
        assert_int_equal(c.slice[0], 4);
        assert_int_equal(c.slice[1], 4);
        assert_int_equal(c.slice[2], 3);
        assert_string_equal(c.func->stage->output[0].name, "top");
        assert_string_equal(c.func->stage->output[1].name, "at");
    }
    in[0].name = "tokens";
    err e = {0};
    str lacks = {0};
    assert_false(contract_match(&c, all, c.d, NULL, &p, NULL, 1, &lacks, &e));
    assert_string_equal(str_get(&lacks), "input ids, a meaning for input tokens");
    str_free(&lacks);
}

static void places(void **state) {
    (void)state;
    char path[300], expect[300];
    err e = {0};
    arena *a = arena_new();
    artifact_paths p;
    assert_false(artifact_locate(&p, a, work_dir, NULL, &e));
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, "Manifest.json"));
    snprintf(path, sizeof path, "%s/model.mlpackage", work_dir);
    snprintf(expect, sizeof expect, "%s/embed_tokens.bin", work_dir);
    assert_int_equal(mkdir(path, 0755), 0);
    char file[400];
    snprintf(file, sizeof file, "%s/Manifest.json", path);
    e = (err){0};
    assert_true(file_write(file, "{}", 2, &e) && file_write(expect, "x", 1, &e));
    assert_true(artifact_locate(&p, a, work_dir, NULL, &e));
    assert_string_equal(p.package[0], path);
    const char *table;
    assert_true(artifact_table(&p, a, &table, &e));
    assert_string_equal(table, expect);
    assert_null(p.tokenizer);
    strcat(path, "//");
    assert_true(artifact_locate(&p, a, path, NULL, &e)); /* the package itself: the same things beside it */
    assert_true(artifact_table(&p, a, &table, &e));
    assert_string_equal(table, expect);
    assert_false(artifact_locate(&p, a, work_dir, "/nowhere", &e));
    assert_non_null(strstr(e.msg, "/nowhere: no tokenizer.json"));
    arena_free(a);
}

static int make_arena(void **state) {
    (void)state;
    all = arena_new();
    return 0;
}

static int drop_arena(void **state) {
    (void)state;
    arena_free(all);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks),
        cmocka_unit_test(prefill),
        cmocka_unit_test(single),
        cmocka_unit_test(nothing_fits),
        cmocka_unit_test(wrong_shapes),
        cmocka_unit_test_setup_teardown(places, make_work_dir, remove_work_dir),
        cmocka_unit_test(a_set),
        cmocka_unit_test(best_of_slices),
        cmocka_unit_test(sets_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
