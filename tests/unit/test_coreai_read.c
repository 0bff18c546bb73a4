/* Bytecode of Core AI assets as a tree. What is expected was counted by the cases' own independent reader
 * (poc/mlirb.py). */
#define _GNU_SOURCE
#include "base/file.h"
#include "coreai/asset.h"
#include "coreai/package.h"
#include "coreai/print.h"
#include "test.h"
#include <unistd.h>

static uint64_t count(const ai_region *r, const char *name) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->n_op; i++) {
        n += !strcmp(r->op[i]->name, name);
        for (uint32_t k = 0; k < r->op[i]->n_region; k++) n += count(&r->op[i]->region[k], name);
    }
    return n;
}

static uint64_t count_all(const ai_tree *t, const char *name) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < t->n_graph; i++) n += count(t->graph[i].body, name);
    return n;
}

static ai_asset *open_case(const char *below) {
    char path[200];
    err e = {0};
    snprintf(path, sizeof path, "coreai/%s", below);
    ai_asset *x = ai_asset_open(test_case_path(path), &e);
    if (!x) fail_msg("%s", e.msg);
    return x;
}

static void test_small(void **state) {
    (void)state;
    ai_asset *x = open_case("matmul_add.aimodel");
    assert_int_equal(x->tree->version, 20260204);
    assert_int_equal(x->tree->n_graph, 1);
    const ai_graph *g = ai_graph_find(x->tree, "main");
    assert_non_null(g);
    assert_false(g->is_private);
    assert_string_equal(ai_graph_feature(g, AI_GRAPH_ARGS, 0), "x");
    assert_string_equal(ai_graph_feature(g, AI_GRAPH_RESULTS, 0), "y");
    assert_string_equal(ai_type_text(x->a, g->body->arg[0]->type), "fp32[2,4]");
    assert_int_equal(count_all(x->tree, "primitive.constant_v1"), 5);
    assert_int_equal(count_all(x->tree, "dataflow.yield_v1"), 2);
    bool absent;
    err e = {0};
    assert_true(ai_asset_check_hash(x, &absent, &e));
    assert_false(absent);
    ai_asset_close(x);
}

/* The body of a loop isn't isolated: its values are numbered behind the whole table around it. */
static void test_loop(void **state) {
    (void)state;
    ai_asset *x = open_case("ops/f_while.aimodel");
    const ai_region *body = x->tree->graph[0].body;
    const ai_op *loop = NULL;
    for (uint32_t i = 0; i < body->n_op; i++)
        if (!strcmp(body->op[i]->name, "controlflow.while_v1")) loop = body->op[i];
    assert_non_null(loop);
    assert_int_equal(loop->n_region, 2);
    assert_false(loop->region[0].isolated);
    const ai_op *step = loop->region[1].op[0]; /* i + 1, with the 1 of the graph around it */
    assert_string_equal(step->name, "primitive.add_v1");
    assert_ptr_equal(step->in[0], loop->region[1].arg[0]);
    assert_ptr_equal(step->in[1]->def, body->op[1]);
    ai_asset_close(x);
}

static void test_models(void **state) {
    (void)state;
    static const struct {
        const char *path;
        uint32_t graphs;
        unsigned constants, casts, invokes, slices;
    } want[] = {
        {"tiny_4bit/tiny_4bit.aimodel", 5, 178, 19, 11, 48},
        {"tiny_none_b2/tiny_b2.aimodel", 5, 161, 17, 11, 47},
        {"tiny_qwen35_decode_s1_fp16/tiny_qwen35_decode_s1_fp16.aimodel", 2, 787, 103, 1, 67},
        {"tiny_qwen35_decode_s1_fp32/tiny_qwen35_decode_s1_fp32.aimodel", 2, 800, 33, 1, 67},
        {"tiny_ios_b2/tiny_ios.aimodel", 12, 446, 69, 5, 0},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ai_asset *x = open_case(want[i].path);
        assert_int_equal(x->tree->n_graph, want[i].graphs);
        assert_int_equal(count_all(x->tree, "primitive.constant_v1"), want[i].constants);
        assert_int_equal(count_all(x->tree, "primitive.cast_v1"), want[i].casts);
        assert_int_equal(count_all(x->tree, "dataflow.invoke_v1"), want[i].invokes);
        if (want[i].slices) assert_int_equal(count_all(x->tree, "primitive.slice_v1"), want[i].slices);
        assert_int_equal(x->context, 128);
        ai_asset_close(x);
    }
}

static void test_composite(void **state) {
    (void)state;
    ai_asset *x = open_case("tiny_none/tiny_none.aimodel");
    const ai_graph *g = &x->tree->graph[0];
    assert_true(g->is_private);
    const ai_attr *c = g->op->prop[AI_GRAPH_COMPOSITE];
    assert_non_null(c);
    assert_string_equal(c->text, "rms_norm");
    const ai_attr *attrs = ai_attr_named(c, "op_attrs");
    assert_non_null(attrs);
    const ai_attr *eps = ai_attr_named(attrs->item[0], "eps"), *axes = ai_attr_named(attrs->item[0], "axes");
    assert_int_equal(eps->item[0]->code, AI_FLOAT);
    assert_int_equal(eps->item[0]->number, 0x358637BD); /* 1e-6f */
    assert_int_equal(axes->item[0]->number, -1);
    ai_asset_close(x);
}

/* ---- damage ---- */

/* Every refusal says where: a byte of the file, or what of a graph, by name. The container's own parts have
 * names of their own. */
static void has_place(const err *e, size_t at) {
    static const char *const places[] = {"byte ", "graph ", "argument ", "graphs is public",
                                         "a section of resources"};
    bool found = !e->code;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) found |= strstr(e->msg, places[i]) != NULL;
    if (!found) fail_msg("byte %zu: \"%s\" names no place", at, e->msg);
}

static void try(const uint8_t *data, size_t n, size_t at) {
    arena *a = arena_new();
    err e = {0};
    const ai_tree *t = ai_tree_read(a, data, n, &e);
    str out = {0};
    if (t) ai_print(&out, t, 2);
    if (!t != (e.code != ERR_NONE) || strchr(e.msg, '\n')) fail_msg("byte %zu: %s", at, e.msg);
    has_place(&e, at);
    str_free(&out);
    arena_free(a);
}

/* The same as a program. */
static void try_program(const uint8_t *data, size_t n, size_t at) {
    err e = {0};
    coreml_package *p = coreai_open_memory(data, n, &(coreai_options){.capacity = 16}, &e);
    if (!p != (e.code != ERR_NONE) || strchr(e.msg, '\n')) fail_msg("byte %zu: %s", at, e.msg);
    has_place(&e, at);
    if (p) coreml_verify(p->model, NULL, NULL, &e);
    coreml_close(p);
}

/* Every byte as several others, and every length: an error, or another tree and program. */
static void test_damage(void **state) {
    (void)state;
    static const char *const files[] = {"matmul_add.aimodel", "ops/f_state.aimodel", "ops/f_while.aimodel",
                                        "ops/f_lut4.aimodel"};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        ai_asset *x = open_case(files[k]);
        size_t n = x->code.size;
        uint8_t *copy = malloc(n);
        memcpy(copy, x->code.data, n);
        for (size_t i = 0; i < n; i++) {
            static const uint8_t flips[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF};
            for (size_t f = 0; f < sizeof flips; f++) {
                copy[i] = x->code.data[i] ^ flips[f];
                try(copy, n, i);
                if (f % 4 == i % 4) try_program(copy, n, i);
            }
            copy[i] = x->code.data[i];
        }
        for (size_t i = 0; i < n; i++) {
            uint8_t *exact = malloc(i + 1); /* what lies behind it is not ours */
            memcpy(exact, x->code.data, i);
            try(exact, i, i);
            free(exact);
        }
        free(copy);
        ai_asset_close(x);
    }
}

#ifdef MILLET_HOSTILE
#define STEP 5 /* each read takes long there */
#else
#define STEP 1
#endif

/* The same of composites: declarations that are half right, in graphs that carry everything. */
static void test_damaged_composites(void **state) {
    (void)state;
    static const char *const files[] = {"norms", "ropes", "attentions", "gathers"};
    const char *root = getenv("MILLET_SOURCE");
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        char path[300];
        err e = {0};
        snprintf(path, sizeof path, "%s/tests/data/coreai/composite_%s.aimodel", root ? root : ".", files[k]);
        ai_asset *x = ai_asset_open(path, &e);
        if (!x) fail_msg("%s", e.msg);
        uint8_t *copy = malloc(x->code.size);
        memcpy(copy, x->code.data, x->code.size);
        for (size_t i = 0; i < x->code.size; i += STEP) {
            copy[i] ^= (uint8_t)(1 << i % 8);
            try_program(copy, x->code.size, i);
            copy[i] = x->code.data[i];
        }
        free(copy);
        ai_asset_close(x);
    }
}

static void refused(const uint8_t *data, size_t n, err_code code, const char *text) {
    arena *a = arena_new();
    err e = {0};
    assert_null(ai_tree_read(a, data, n, &e));
    assert_int_equal(e.code, code);
    if (!strstr(e.msg, text)) fail_msg("\"%s\" does not hold \"%s\"", e.msg, text);
    arena_free(a);
}

static void test_versions(void **state) {
    (void)state;
    ai_asset *x = open_case("ops/f_state.aimodel");
    size_t n = x->code.size;
    uint8_t *copy = malloc(n);
    memcpy(copy, x->code.data, n);
    copy[4] = 7 << 1 | 1;
    refused(copy, n, ERR_UNSUPPORTED, "bytecode version 7, newer than the known 6");
    copy[4] = 5 << 1 | 1;
    refused(copy, n, ERR_UNSUPPORTED, "bytecode version 5, older than the known 6");
    copy[0] = 'm';
    refused(copy, n, ERR_FORMAT, "no MLIR bytecode");
    memcpy(copy, x->code.data, 5);
    /* the dialect's section: one dialect, its name, then section 7 with the version of its encoding */
    const uint8_t version[] = {7, 3, 5};
    uint8_t *at = memmem(copy, n, version, sizeof version);
    assert_non_null(at);
    at[2] = 3 << 1 | 1;
    refused(copy, n, ERR_UNSUPPORTED, "encoding version 3 of dialect aicode, newer than the known 2");
    free(copy);
    ai_asset_close(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),    cmocka_unit_test(test_loop),
        cmocka_unit_test(test_models),   cmocka_unit_test(test_composite),
        cmocka_unit_test(test_damage),   cmocka_unit_test(test_damaged_composites),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
