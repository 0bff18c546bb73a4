/* Trees written as bytecode. Every case of another writer, read, written and read again, says the same; what
 * we wrote is the same bytes when it is written again. Whether others read them is asked by
 * tests/coreai/gate.py. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/num.h"
#include "convert/convert.h"
#include "coreai/asset.h"
#include "coreai/print.h"
#include "coreai/write.h"
#include "runtime/session.h"
#include "work_dir.h"
#include <stdlib.h>
#include <unistd.h>

static const char *const cases[] = {
    "matmul_add.aimodel",
    "tiny_none/tiny_none.aimodel",
    "tiny_none_b2/tiny_b2.aimodel",
    "tiny_4bit/tiny_4bit.aimodel",
    "tiny_qwen35_decode_s1_fp16/tiny_qwen35_decode_s1_fp16.aimodel",
    "tiny_qwen35_decode_s1_fp32/tiny_qwen35_decode_s1_fp32.aimodel",
    "tiny_qwen35_decode_s1_fp16_dynkv/tiny_qwen35_decode_s1_fp16_dynkv.aimodel",
    "tiny_ios_b2/tiny_ios.aimodel",
    "ops/c_emitted.aimodel",
    "ops/f_bss_si4.aimodel",
    "ops/f_bss_si8.aimodel",
    "ops/f_dyn.aimodel",
    "ops/f_fp16.aimodel",
    "ops/f_lut1.aimodel",
    "ops/f_lut2.aimodel",
    "ops/f_lut3.aimodel",
    "ops/f_lut4.aimodel",
    "ops/f_lut6.aimodel",
    "ops/f_lut8.aimodel",
    "ops/f_state.aimodel",
    "ops/f_tbf16.aimodel",
    "ops/f_tf8E4M3FN.aimodel",
    "ops/f_while.aimodel",
    "ops/gdn_11.aimodel",
};

/* Writes t and reads it back; the file stays mapped. */
static const ai_tree *rewrite(arena *a, const ai_tree *t, const char *name, file_map *m) {
    err e = {0};
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX], same[SHA256_HEX];
    if (!ai_tree_write(t, in_work(name), NULL, NULL, digest, &e)) fail_msg("%s", e.msg);
    assert_true(file_open_map(m, in_work(name), &e));
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_true(sha256_file(in_work(name), same, NULL, &e));
    assert_string_equal(hex, same);
    const ai_tree *again = ai_tree_read(a, m->data, m->size, &e);
    if (!again) fail_msg("%s", e.msg);
    return again;
}

/* ---- the same meaning: text, and what text shortens: whole constants ---- */

static void same_attr(const ai_attr *a, const ai_attr *b, int depth) {
    if (depth > AI_MAX_DEPTH || (!a && !b)) return;
    assert_true(a && b);
    assert_int_equal(a->code, b->code);
    assert_int_equal(a->bytes, b->bytes);
    if (a->bytes) assert_memory_equal(a->data, b->data, a->bytes);
    assert_int_equal(a->n, b->n);
    for (uint32_t i = 0; a->item && i < a->n; i++) same_attr(a->item[i], b->item[i], depth + 1);
}

static void same_region(const ai_region *a, const ai_region *b) {
    assert_int_equal(a->n_op, b->n_op);
    for (uint32_t i = 0; i < a->n_op; i++) {
        const ai_op *x = a->op[i], *y = b->op[i];
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->n_prop, y->n_prop);
        assert_int_equal(x->n_region, y->n_region);
        for (uint32_t k = 0; k < x->n_prop; k++) same_attr(x->prop[k], y->prop[k], 0);
        for (uint32_t k = 0; k < x->n_region; k++) same_region(&x->region[k], &y->region[k]);
    }
}

static void same_tree(const char *name, const ai_tree *a, const ai_tree *b) {
    str was = {0}, is = {0};
    ai_print(&was, a, 8);
    ai_print(&is, b, 8);
    if (strcmp(was.s, is.s)) fail_msg("%s: says something else when it was written again", name);
    str_free(&was);
    str_free(&is);
    assert_int_equal(a->n_graph, b->n_graph);
    for (uint32_t i = 0; i < a->n_graph; i++) same_region(a->graph[i].body, b->graph[i].body);
}

/* Reads, writes, reads and writes again. ours: the first writing gives the bytes that were there. */
static void round_trip(const char *path, bool ours) {
    err e = {0};
    file_map once, twice;
    ai_asset *x = ai_asset_open(path, &e);
    if (!x) fail_msg("%s", e.msg);
    const ai_tree *t = rewrite(x->a, x->tree, "once", &once);
    same_tree(path, x->tree, t);
    rewrite(x->a, t, "twice", &twice);
    assert_int_equal(once.size, twice.size);
    assert_memory_equal(once.data, twice.data, once.size);
    file_unmap(&twice);
    if (ours) {
        char file[400];
        snprintf(file, sizeof file, "%s/main.mlirb", path);
        assert_true(file_open_map(&twice, file, &e));
        assert_int_equal(once.size, twice.size);
        assert_memory_equal(once.data, twice.data, once.size);
        file_unmap(&twice);
    }
    file_unmap(&once);
    ai_asset_close(x);
}

static void test_cases(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[200];
        snprintf(path, sizeof path, "coreai/%s", cases[i]);
        round_trip(test_case_path(path), false);
    }
}

/* Of tests/oracle/make_coreai_ops.py, written by Apple's library. */
static void test_made(void **state) {
    (void)state;
    static const char *const made[] = {"weight_e4m3",      "weight_e5m2",       "weight_si8_zero",
                                       "weight_ui4_zero",  "weight_si8_bias",   "weight_ui4_both",
                                       "palette1",         "palette2",          "palette3",
                                       "palette4",         "palette6",          "palette8",
                                       "branch",           "gather_mm",         "dequantized",
                                       "composite_norms",  "composite_ropes",   "composite_attentions",
                                       "composite_deltas", "composite_gathers", "composite_untrue"};
    const char *root = getenv("MILLET_SOURCE");
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/tests/data/coreai/%s.aimodel", root ? root : ".", made[i]);
        round_trip(path, false);
    }
}

static bool no(void *ctx, uint64_t bytes) {
    (void)ctx, (void)bytes;
    return false;
}

static void test_refusals(void **state) {
    (void)state;
    err e = {0};
    uint8_t digest[SHA256_BYTES];
    ai_asset *x = ai_asset_open(test_case_path("coreai/matmul_add.aimodel"), &e);
    assert_non_null(x);
    assert_false(ai_tree_write(x->tree, in_work("none/there"), NULL, NULL, digest, &e));
    assert_int_equal(e.code, ERR_IO);
    e = (err){0};
    assert_false(ai_tree_write(x->tree, in_work("cut"), no, NULL, digest, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    ai_attr odd = {.code = 33};
    const ai_attr *prop[1] = {&odd};
    ai_op op = {.name = "primitive.constant_v1", .prop = prop, .n_prop = 1};
    const ai_op *list[1] = {&op};
    ai_region body = {.isolated = true, .op = list, .n_op = 1};
    ai_op graph = {.name = "dataflow.graph_v1", .region = &body, .n_region = 1};
    ai_graph g = {.name = "main", .op = &graph, .body = &body};
    e = (err){0};
    assert_false(ai_tree_write(&(ai_tree){.producer = "x", .graph = &g, .n_graph = 1}, in_work("odd"), NULL,
                               NULL, digest, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    ai_asset_close(x);
}

static void convert(const char *out, const char *scheme, const char *precision, const char *prefill) {
    char dir[300];
    err e = {0};
    convert_options o = {.format = "coreai",
                         .quantize = scheme,
                         .precision = precision,
                         .prefill = prefill,
                         .context = 128,
                         .top_k = -1,
                         .overwrite = true};
    snprintf(dir, sizeof dir, "%s/models/tiny-qwen3.5",
             getenv("MILLET_SOURCE") ? getenv("MILLET_SOURCE") : ".");
    if (!convert_checkpoint(dir, out, &o, NULL, &e)) fail_msg("%s", e.msg);
}

static uint32_t composites(const ai_tree *t, const char *name) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_graph; i++) {
        const ai_attr *c = t->graph[i].op->prop[AI_GRAPH_COMPOSITE];
        n += c && !strcmp(c->text, name);
    }
    return n;
}

/* docs/coreai.md, "Contract": features in order, states, one write a state, composites, versions; the same
 * bytes at each conversion, and when they are read and written again. */
static void test_bundles(void **state) {
    (void)state;
    static const char *const schemes[][2] = {{"none", "mixed"}, {"none", "float32"}, {"int8lin", NULL},
                                             {"int8hu", NULL},  {"int4lin", NULL},   {"lut4", NULL},
                                             {"lut6", NULL},    {"lut8", NULL},      {"int8hu", "float32"}};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        err e = {0};
        bool absent = true;
        file_map once, twice;
        char first[100], second[100];
        snprintf(first, sizeof first, "%s/first", work_dir);
        snprintf(second, sizeof second, "%s/second", work_dir);
        convert(first, schemes[i][0], schemes[i][1], NULL);
        convert(second, schemes[i][0], schemes[i][1], NULL);
        strcat(first, "/tiny-qwen3.5.aimodel"), strcat(second, "/tiny-qwen3.5.aimodel/main.mlirb");
        ai_asset *x = ai_asset_open(first, &e);
        if (!x) fail_msg("%s", e.msg);
        assert_true(ai_asset_check_hash(x, &absent, &e));
        assert_false(absent);
        assert_int_equal(x->tree->version, 20260317);
        assert_int_equal(x->context, 128);
        strcat(first, "/main.mlirb");
        assert_true(file_open_map(&once, first, &e) && file_open_map(&twice, second, &e));
        assert_int_equal(once.size, twice.size);
        assert_memory_equal(once.data, twice.data, once.size);
        *strrchr(first, '/') = 0;
        round_trip(first, true);
        const ai_graph *g = ai_graph_find(x->tree, "main");
        static const char *const in[] = {"input_ids",  "position_ids", "keyCache",
                                         "valueCache", "convState",    "recState"};
        static const char *const out[] = {"keyCache", "valueCache", "convState", "recState", "logits"};
        for (uint32_t k = 0; k < 6; k++) assert_string_equal(ai_graph_feature(g, AI_GRAPH_ARGS, k), in[k]);
        for (uint32_t k = 0; k < 5; k++)
            assert_string_equal(ai_graph_feature(g, AI_GRAPH_RESULTS, k), out[k]);
        bool wide = schemes[i][1] && !strcmp(schemes[i][1], "float32");
        assert_string_equal(ai_type_text(x->a, g->body->arg[2]->type),
                            wide ? "handle<fp32[2,1,2,?,64]>" : "handle<fp16[2,1,2,?,64]>");
        uint32_t writes = 0, loops = 0, compressed = 0;
        for (uint32_t k = 0; k < g->body->n_op; k++) {
            writes += !strcmp(g->body->op[k]->name, "dataflow.write_handle_v1");
            loops += !strncmp(g->body->op[k]->name, "controlflow.", 12);
            compressed += strstr(g->body->op[k]->name, "blockwise_shift_scale") ||
                          strstr(g->body->op[k]->name, "lut_to_dense");
        }
        assert_int_equal(writes, 4);
        assert_int_equal(loops, 0);
        /* 62 linear layers, and the head where it is */
        assert_int_equal(compressed,
                         !strcmp(schemes[i][0], "none") ? 0 : 62 + !strcmp(schemes[i][0], "int8hu"));
        assert_int_equal(composites(x->tree, "rms_norm"), 3); /* of the stream, of queries, of keys */
        assert_int_equal(composites(x->tree, "rope"), 2);
        assert_int_equal(composites(x->tree, "scaled_dot_product_attention"), 1);
        file_unmap(&once), file_unmap(&twice);
        ai_asset_close(x);
    }
}

/* Prefill functions beside the one for a token, with weights of each kind. */
static void test_prefill(void **state) {
    (void)state;
    static const char *const schemes[] = {"none", "int8hu", "int4lin", "lut6"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        err e = {0};
        char path[100];
        convert(in_work("blocks"), schemes[i], NULL, "4,16");
        snprintf(path, sizeof path, "%s/blocks/tiny-qwen3.5.aimodel", work_dir);
        round_trip(path, true);
        ai_asset *x = ai_asset_open(path, &e);
        assert_non_null(x);
        assert_true(ai_graph_find(x->tree, "prefill_4") && ai_graph_find(x->tree, "prefill_16"));
        ai_asset_close(x);
    }
}

/* Three steps of a package's only function, on made-up hidden states: its last output, n numbers. */
static void three_steps(const char *path, float *to, size_t n) {
    err e = {0};
    rt_model *m = rt_model_open(path, &e);
    if (!m) fail_msg("%s", e.msg);
    rt_session *s = rt_session_new(m, RT_FAST, &e);
    assert_non_null(s);
    static float hidden[256];
    for (int32_t at = 0; at < 3; at++) {
        for (int i = 0; i < 256; i++) hidden[i] = (float)((i * 37 + at * 11) % 41 - 20) / 32;
        uint16_t half[256];
        for (int i = 0; i < 256; i++) half[i] = num_f32_f16(hidden[i]);
        rt_tensor in[2] = {{"hidden", IR_TYPE(DT_FP16, 1, 1, 256), half},
                           {"current_pos", IR_TYPE(DT_INT32, 1), &at}},
                  out[1];
        rt_call call = {.in = in, .n_in = 2, .out = out};
        if (!rt_run(s, &call, &e)) fail_msg("%s", e.msg);
        assert_int_equal(ir_type_count(&out[0].type), n);
        memcpy(to, out[0].data, n * sizeof *to);
    }
    rt_session_free(s);
    rt_model_close(m);
}

/* A package as an asset and as a package again: op by op the same, so the same numbers but for the order of
 * sums. */
static void test_import(void **state) {
    (void)state;
    char dir[300], package[100], asset[100], again[100];
    static float was[4096], is[4096], back[4096];
    err e = {0};
    convert_options o = {.preset = "chunks", .context = 64, .top_k = -1},
                    to = {.format = "coreai", .top_k = -1}, from = {.top_k = -1};
    snprintf(dir, sizeof dir, "%s/models/tiny-qwen3.5",
             getenv("MILLET_SOURCE") ? getenv("MILLET_SOURCE") : ".");
    snprintf(package, sizeof package, "%s/chunks/model.mlpackage", work_dir);
    snprintf(asset, sizeof asset, "%s/x.aimodel", work_dir);
    snprintf(again, sizeof again, "%s/again.mlpackage", work_dir);
    if (!convert_checkpoint(dir, in_work("chunks"), &o, NULL, &e) ||
        !convert_checkpoint(package, asset, &to, NULL, &e) ||
        !convert_checkpoint(asset, again, &from, NULL, &e))
        fail_msg("%s", e.msg);
    round_trip(asset, true);
    three_steps(package, was, 4096);
    three_steps(asset, is, 4096);
    three_steps(again, back, 4096);
    for (int i = 0; i < 4096; i++) {
        assert_float_equal(is[i], was[i], 2e-3); /* fp16 states, logits near 16 */
        assert_float_equal(back[i], was[i], 2e-3);
    }
    assert_false(convert_checkpoint(package, asset, &to, NULL, &e)); /* exists */
    e = (err){0};
    assert_false(convert_checkpoint(package, in_work("x"), &from, NULL, &e));
    assert_non_null(strstr(e.msg, "is a Core ML package already"));
    e = (err){0};
    to.quantize = "lut6";
    assert_false(convert_checkpoint(package, in_work("x"), &to, NULL, &e));
    assert_non_null(strstr(e.msg, "quantize is for checkpoints"));
    e = (err){0};
    to.quantize = NULL, to.precision = "float32";
    assert_false(convert_checkpoint(package, in_work("x"), &to, NULL, &e));
    assert_non_null(strstr(e.msg, "precision is for checkpoints"));
    e = (err){0};
    to.precision = NULL;
    assert_false(
        convert_checkpoint(test_case_path("coreml/op_control_flow.mlpackage"), in_work("x"), &to, NULL, &e));
    assert_non_null(strstr(e.msg, "op while_loop y: it has no counterpart in Core AI"));
    assert_false(file_exists(in_work("x")));
}

/* Packages with compressed weights, and with several functions. */
static void test_imports(void **state) {
    (void)state;
    static const char *const schemes[] = {"lut4", "lut6", "lut8", "w8", "w8b32", "w4"};
    char dir[300], package[100], asset[100];
    snprintf(dir, sizeof dir, "%s/models/tiny-qwen3.5",
             getenv("MILLET_SOURCE") ? getenv("MILLET_SOURCE") : ".");
    snprintf(package, sizeof package, "%s/packed/model.mlpackage", work_dir);
    snprintf(asset, sizeof asset, "%s/packed.aimodel", work_dir);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        err e = {0};
        const convert_options o = {.preset = "chunks",
                                   .quantize = schemes[i],
                                   .prefill = i % 2 ? "4" : NULL,
                                   .context = 64,
                                   .top_k = -1,
                                   .overwrite = true},
                              to = {.format = "coreai", .top_k = -1, .overwrite = true};
        if (!convert_checkpoint(dir, in_work("packed"), &o, NULL, &e) ||
            !convert_checkpoint(package, asset, &to, NULL, &e))
            fail_msg("%s: %s", schemes[i], e.msg);
        round_trip(asset, true);
    }
}

static void test_refused_options(void **state) {
    (void)state;
    static const struct {
        convert_options o;
        const char *says;
    } rows[] = {
        {{.format = "coreai", .quantize = "w8", .top_k = -1}, "int8 per channel gives garbage"},
        {{.format = "coreai", .quantize = "keep", .top_k = -1}, "int8hu"},
        {{.format = "coreai", .precision = "float16", .top_k = -1}, "precision float16 is not offered"},
        {{.format = "coreai", .preset = "single", .top_k = -1}, "--preset is for --format coreml"},
        {{.format = "coreai", .chunks = "2", .top_k = -1}, "--chunks is for --format coreml"},
        {{.quantize = "int8lin", .top_k = -1}, "is for --format coreai"},
        {{.format = "coreai", .context = 2048, .top_k = -1}, "--steer-around none"},
        {{.steer_around = "none", .top_k = -1}, "--steer-around is for --format coreai"},
        {{.format = "onnx", .top_k = -1}, "expected coreml or coreai"},
    };
    char dir[300];
    snprintf(dir, sizeof dir, "%s/models/tiny-qwen3.5",
             getenv("MILLET_SOURCE") ? getenv("MILLET_SOURCE") : ".");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err e = {0};
        assert_false(convert_checkpoint(dir, in_work("refused"), &rows[i].o, NULL, &e));
        assert_int_equal(e.code, ERR_USAGE);
        if (!strstr(e.msg, rows[i].says)) fail_msg("%s", e.msg);
        assert_false(file_exists(in_work("refused")));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),    cmocka_unit_test(test_made),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_bundles),
        cmocka_unit_test(test_prefill),  cmocka_unit_test(test_import),
        cmocka_unit_test(test_imports),  cmocka_unit_test(test_refused_options)};
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
