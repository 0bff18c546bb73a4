/* What a main.mlirb may hold by its format and by the list of codes that is known of it: each code of types
 * and attributes, ops that only Apple's processors run, newer versions; depth, cycles and sizes beyond all
 * reason. The files are made here. */
#define _GNU_SOURCE
#include "base/file.h"
#include "coreai/make.h"
#include "coreai/package.h"
#include "coreai/write.h"
#include "work_dir.h"
#include <unistd.h>

typedef struct {
    arena *a;
    ai_make *m;
    ai_scope *s;
    uint8_t *data; /* the file, once it is written */
    size_t n;
} maker;

static maker begin(void) {
    arena *a = arena_new();
    ai_make *m = ai_make_new(a);
    return (maker){a, m, ai_scope_new(m), NULL, 0};
}

static void end(maker *k) {
    free(k->data);
    arena_free(k->a);
}

static const ai_type *tensor_of(const maker *k, uint32_t element, int rank, const int64_t *dim) {
    ai_type *t = ARENA_NEW(k->a, ai_type);
    *t = (ai_type){.code = AI_TENSOR,
                   .rank = (uint8_t)rank,
                   .dim = arena_copy(k->a, dim, (size_t)rank * sizeof *dim),
                   .inner = ai_make_plain(k->m, element)};
    return t;
}

static const ai_type *floats(const maker *k) {
    const int64_t two = 2;
    return ai_make_tensor(k->m, DT_FP32, 1, &two);
}

/* Ends graph main, which returns v as y, and writes the file. */
static void write_file(maker *k, const ai_value *v, const char *const *in, int64_t version) {
    static const char *const out = "y";
    err e = {0};
    uint8_t digest[SHA256_BYTES];
    char path[100];
    file_map file;
    ai_make_graph(k->m, k->s, "main", &v, 1, in, &out, NULL);
    snprintf(path, sizeof path, "%s/main.mlirb", work_dir);
    if (!ai_tree_write(ai_make_tree(k->m, "test", version), path, NULL, NULL, digest, &e))
        fail_msg("%s", e.msg);
    assert_true(file_open_map(&file, path, &e));
    k->data = malloc(file.size);
    k->n = file.size;
    memcpy(k->data, file.data, file.size);
    file_unmap(&file);
}

/* says NULL: it is read and verified; else it is refused in these words, in one line, with a place. */
static void opens(const maker *k, const char *says, const char *what) {
    err e = {0};
    coreml_package *p = coreai_open_memory(k->data, k->n, NULL, &e);
    if (p && !says && !coreml_verify(p->model, NULL, NULL, &e)) fail_msg("%s: %s", what, e.msg);
    if (!p != (says != NULL)) fail_msg("%s: %s", what, p ? "it was read" : e.msg);
    if (says && (!strstr(e.msg, says) || strchr(e.msg, '\n')))
        fail_msg("%s: \"%s\", expected \"%s\"", what, e.msg, says);
    if (says && !strstr(e.msg, "byte ") && !strstr(e.msg, "argument ") && !strstr(e.msg, "graph "))
        fail_msg("%s: \"%s\" names no place", what, e.msg);
    coreml_close(p);
}

/* ---- types ---- */

#define NESTED "nests what can't be nested"

/* All codes that are known of the format. cast: what comes of a tensor of such elements inside a graph;
 * constant: of a constant of eight that is used as numbers. NULL: it is read. bits: of an element that lies
 * inline; 0: it is no number. (Tensors, functions and handles as elements: test_cyclic_types; tensors of code
 * 3: test_layouts.) */
static const struct {
    uint32_t code, bits;
    const char *cast, *constant;
} types[] = {
    {2, 0, NULL, NULL},
    {3, 0, NULL, NULL},
    {4, 8, NULL, NULL},
    {5, 64, "fp64", "fp64"},
    {6, 32, NULL, NULL},
    {7, 16, NULL, NULL},
    {8, 16, NULL, NULL},
    {9, 8, NULL, NULL},
    {10, 8, NULL, NULL},
    {12, 64, "elements of type 12, complex fp32", "elements of type 12, complex fp32"},
    {13, 32, "elements of type 13, complex fp16", "elements of type 13, complex fp16"},
    {14, 32, "elements of type 14, complex bf16", "elements of type 14, complex bf16"},
    {17, 64, NULL, NULL},
    {18, 32, NULL, NULL},
    {19, 16, NULL, NULL},
    {20, 8, NULL, NULL},
    {21, 8, NULL, NULL},
    {22, 8, "elements of type 22, si2", "elements of type 22, si2"},
    {23, 64, NULL, NULL},
    {24, 32, NULL, NULL},
    {25, 16, NULL, NULL},
    {26, 8, NULL, NULL},
    {27, 8, NULL, NULL},
    {28, 8, NULL, NULL},
    {29, 8, NULL, "uint1 codes as numbers"},
    {30, 0, NULL, NULL},
    {31, 0, NULL, NULL},
    {32, 0, "elements of type 32, token", NULL},
    {33, 0, "elements of type 33, symbol", NULL},
    {36, 8, NULL, NULL},
    {37, 8, NULL, NULL},
    {46, 8, "elements of type 46, fp4 E2M1FN", "elements of type 46, fp4 E2M1FN"},
    {47, 8, "elements of type 47, fp8 E8M0FNU", "elements of type 47, fp8 E8M0FNU"},
};

static const char *code_text(const char *what, uint32_t code) {
    static char text[60];
    snprintf(text, sizeof text, "%s %u", what, code);
    return text;
}

static void cast_through(uint32_t code, const char *says) {
    static const char *const in[] = {"x"};
    const int64_t two = 2;
    maker k = begin();
    const ai_value *x = ai_scope_argument(k.s, floats(&k));
    const ai_value *z = ai_scope_value(k.s, "primitive.cast_v1", tensor_of(&k, code, 1, &two), x, NULL);
    write_file(&k, ai_scope_value(k.s, "primitive.cast_v1", floats(&k), z, NULL), in, 20260317);
    opens(&k, says, code_text("type", code));
    end(&k);
}

static void test_types(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].bits || types[i].cast) cast_through(types[i].code, types[i].cast);
    for (uint32_t code = 0, known = 0; code < 80; code++) {
        bool listed = known < sizeof types / sizeof *types && types[known].code == code;
        known += listed;
        assert_int_equal(ai_type_name(code) != NULL, listed);
        if (!listed) cast_through(code, "which is unknown here");
    }
}

static void test_constants(void **state) {
    (void)state;
    static const uint8_t zeros[64];
    const int64_t eight = 8;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!types[i].bits) continue;
        for (int splat = 0; splat < 2; splat++) {
            maker k = begin();
            const ai_type *t = tensor_of(&k, types[i].code, 1, &eight);
            size_t bytes = types[i].bits / 8;
            ai_attr value = {
                .code = AI_DENSE, .splat = splat, .data = zeros, .bytes = bytes * (splat ? 1 : 8)};
            const ai_attr *list[] = {&value};
            ai_op *c = ai_scope_op(k.s, "primitive.constant_v1", &t, 1, NULL, 0);
            c->prop = list, c->n_prop = 1;
            const ai_type *y = ai_make_tensor(k.m, DT_FP32, 1, &eight);
            write_file(&k, ai_scope_value(k.s, "primitive.cast_v1", y, c->out[0], NULL), NULL, 20260317);
            opens(&k, types[i].constant, code_text("constant of type", types[i].code));
            end(&k);
        }
    }
}

/* ---- attributes ---- */

static const uint32_t attributes[] = {1, 2, 3, 4, 5, 6, 7, 9, 12, 14, 16, 20, 30, 31, 33, 35, 40, 45, 46};

static bool listed_attribute(uint32_t code) {
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i] == code) return true;
    return false;
}

/* As the value of a constant: behind the code there are zeros, which all of them can be made of. */
static void test_attributes(void **state) {
    (void)state;
    static const uint8_t raw[] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (uint32_t code = 0; code < 64; code++) {
        assert_int_equal(ai_attr_name(code) != NULL, listed_attribute(code));
        if (code == AI_DENSE || code == AI_RESOURCE)
            continue; /* test_constants; every case that has weights */
        maker k = begin();
        ai_attr value = {.code = AI_SCATTER_MODE, .raw = raw, .n_raw = sizeof raw};
        const ai_attr *list[] = {&value};
        const ai_type *t = floats(&k);
        ai_op *c = ai_scope_op(k.s, "primitive.constant_v1", &t, 1, NULL, 0);
        c->prop = list, c->n_prop = 1;
        write_file(&k, c->out[0], NULL, 20260317);
        uint8_t entry[1 + sizeof raw] = {AI_SCATTER_MODE << 1 | 1};
        memcpy(entry + 1, raw, sizeof raw);
        uint8_t *at = memmem(k.data, k.n, entry, sizeof entry);
        assert_non_null(at);
        *at = (uint8_t)(code << 1 | 1);
        char says[80];
        const char *name = ai_attr_name(code);
        snprintf(says, sizeof says, "a constant of attribute %u, %s", code,
                 name ? name : "which is unknown here");
        opens(&k, says, code_text("attribute", code));
        end(&k);
    }
}

/* A layout is kept, and no reason not to run: what it says is for other memories. One that says something
 * else than layouts do is kept too, but not written. */
static void test_layouts(void **state) {
    (void)state;
    static const uint8_t raw[] = {0x05, 0x81, 0x05, 0x03, 0x21, 0x03}; /* 2: 32, 1; 1: 8; 1 */
    static const char *const in[] = {"x"};
    for (uint32_t n = sizeof raw - 1; n <= sizeof raw; n++) {
        maker k = begin();
        ai_attr layout = {.code = AI_LAYOUT, .raw = raw, .n_raw = sizeof raw};
        ai_type laid_out = *floats(&k);
        laid_out.layout = &layout;
        const ai_value *x = ai_scope_argument(k.s, &laid_out);
        x = ai_scope_value(k.s, "ax.copy_discarding_constraints_v1", floats(&k), x, NULL);
        x = ai_scope_value(k.s, "ax.copy_with_constraints_v1", &laid_out, x, NULL);
        assert_string_equal(ai_type_text(k.a, x->type), "fp32[2]{align 32,1; interleave 8; memory 1}");
        write_file(&k, x, in, 20260317);
        opens(&k, NULL, "layout");
        err e = {0};
        uint8_t digest[SHA256_BYTES];
        const ai_tree *t = ai_tree_read(k.a, k.data, k.n, &e);
        assert_non_null(t);
        const ai_type *again = t->graph[0].body->arg[0]->type;
        assert_int_equal(again->code, AI_TENSOR);
        assert_string_equal(ai_type_text(k.a, again), ai_type_text(k.a, &laid_out));
        ((ai_attr *)(uintptr_t)again->layout)->n_raw = n;
        assert_int_equal(ai_tree_write(t, in_work("again"), NULL, NULL, digest, &e), n == sizeof raw);
        if (n < sizeof raw) assert_string_equal(e.msg, "a layout of attribute 12 can't be written");
        end(&k);
    }
}

/* ---- ops and versions ---- */

static void test_foreign_ops(void **state) {
    (void)state;
    static const struct {
        const char *op, *says;
    } rows[] = {
        {"metal.metal4_kernel_v1", "op metal.metal4_kernel_v1 (byte "},
        {"metal.metal4_kernel_v1", "a Metal kernel runs on a GPU of Apple only"},
        {"execution.delegate_v1", "op execution.delegate_v1 (byte "},
        {"execution.delegate_v1", "work for a delegate, which only Apple's runtime has"},
        {"execution.target_spec_v1", "work for a delegate"},
        {"ax.thing_v1", "a layout for one processor"},
        {"udml.thing_v1", "op udml.thing_v1 (byte "},
        {"primitive.add_v9", "an unknown op"},
    };
    static const char *const in[] = {"x"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        maker k = begin();
        const ai_value *x = ai_scope_argument(k.s, floats(&k));
        write_file(&k, ai_scope_value(k.s, rows[i].op, floats(&k), x, NULL), in, 20260317);
        opens(&k, rows[i].says, rows[i].op);
        end(&k);
    }
}

static void test_asset_version(void **state) {
    (void)state;
    static const char *const in[] = {"x"};
    for (int newer = 0; newer < 2; newer++) {
        maker k = begin();
        const ai_value *x = ai_scope_argument(k.s, floats(&k));
        write_file(&k, ai_scope_value(k.s, "silu_v1", floats(&k), x, NULL), in, AI_ASSET_VERSION + newer);
        char path[100];
        snprintf(path, sizeof path, "%s/metadata.json", work_dir);
        FILE *f = fopen(path, "w");
        fputs("{\"assetVersion\":\"2.0\"}", f);
        fclose(f);
        err e = {0};
        coreml_package *p = coreai_open(work_dir, NULL, &e);
        assert_int_equal(p != NULL, !newer);
        if (newer && (!strstr(e.msg, "20260410") || !strstr(e.msg, "newer") || !strstr(e.msg, work_dir)))
            fail_msg("%s", e.msg);
        coreml_close(p);
        end(&k);
    }
}

/* ---- depth ---- */

/* A branch in a branch in a branch. */
static void nest(const maker *k, ai_scope *s, const ai_value *c, int levels, bool isolated) {
    ai_op *op = ai_scope_op(s, isolated ? "custom_v1" : "controlflow.if_v1", NULL, 0, &c, isolated ? 0 : 1);
    ai_region *r = ARENA_ARRAY(k->a, ai_region, 2);
    op->region = r, op->n_region = isolated ? 1 : 2;
    for (uint32_t i = 0; i < op->n_region; i++) {
        ai_scope *inner = ai_scope_new(k->m);
        inner->outer = isolated ? NULL : s;
        if (levels && !i) nest(k, inner, c, levels - 1, isolated);
        ai_scope_op(inner, "dataflow.yield_v1", NULL, 0, NULL, 0);
        ai_scope_region(inner, isolated, &r[i]);
    }
}

static void test_nested_regions(void **state) {
    (void)state;
    static const char *const in[] = {"c"};
    for (int isolated = 0; isolated < 2; isolated++)
        for (int levels = 20; levels <= 1000; levels += 980) {
            maker k = begin();
            const ai_value *c = ai_scope_argument(k.s, ai_make_tensor(k.m, DT_BOOL, 0, NULL));
            nest(&k, k.s, c, levels, isolated);
            write_file(&k, c, in, 20260317);
            opens(&k, levels < 64 ? NULL : "regions nested deeper than 64 levels",
                  isolated ? "isolated regions" : "regions");
            end(&k);
        }
}

/* Graphs that call each other, `calls` times each. The last one calls nothing, or the first one. */
static void chain(int n, int calls, const char *says) {
    static const char *const in[] = {"x"}, *const out[] = {"y"};
    maker k = begin();
    const ai_attr *no = ai_make_integer(k.m, 1, false, 0);
    const ai_graph *g = NULL;
    char name[20];
    for (int i = 0; i < n; i++) {
        ai_scope *s = ai_scope_new(k.m);
        const ai_value *v = ai_scope_argument(s, floats(&k));
        v = ai_scope_value(s, "silu_v1", floats(&k), v, NULL);
        for (int c = 0; g && c < calls; c++) v = ai_scope_invoke(s, g, &v, 1)->out[0];
        snprintf(name, sizeof name, "g%d", i);
        g = ai_make_graph(k.m, s, name, &v, 1, in, out, ai_make_named(k.m, name, no));
    }
    const ai_value *x = ai_scope_argument(k.s, floats(&k));
    write_file(&k, ai_scope_invoke(k.s, g, &x, 1)->out[0], in, 20260317);
    opens(&k, says, "calls");
    end(&k);
}

static void test_nested_calls(void **state) {
    (void)state;
    chain(40, 1, NULL);
    chain(1000, 1, "nested deeper than 64 levels");
#ifndef MILLET_HOSTILE /* a block of memory for each thing that is read of each of them: a minute */
    chain(40, 2, "more than 1048576 ops");
#endif
}

/* ---- indices ---- */

/* Every index of every type of the file as every other: some make cycles. */
static void test_cyclic_types(void **state) {
    (void)state;
    static const char *const in[] = {"s", "x"};
    maker k = begin();
    ai_scope_argument(k.s, ai_make_handle(k.m, floats(&k)));
    const ai_value *x = ai_scope_argument(k.s, floats(&k));
    write_file(&k, ai_scope_value(k.s, "silu_v1", floats(&k), x, NULL), in, 20260317);
    const uint8_t handle[] = {AI_HANDLE << 1 | 1}, tensor[] = {AI_TENSOR << 1 | 1, 1 << 1 | 1, 4 << 1 | 1};
    uint8_t *at[2] = {memmem(k.data, k.n, tensor, sizeof tensor), NULL};
    assert_non_null(at[0]);
    at[0] += sizeof tensor; /* the index of its elements' type */
    size_t nested = 0;
    for (uint8_t *p = k.data; p + 1 < k.data + k.n; p++) {
        if (*p != handle[0] && p + 1 != at[0]) continue;
        uint8_t was = p[1];
        for (int i = 0; i < 12; i++) {
            arena *a = arena_new();
            err e = {0};
            p[1] = (uint8_t)(i << 1 | 1);
            const ai_tree *t = ai_tree_read(a, k.data, k.n, &e);
            if (!t != (e.code != ERR_NONE)) fail_msg("%s", e.msg);
            nested += strstr(e.msg, NESTED) != NULL;
            arena_free(a);
        }
        p[1] = was;
    }
    assert_true(nested >= 2); /* the handle of itself, the tensor of itself */
    end(&k);
}

/* Constants of several types that are one resource: each takes the bytes that it needs, or is refused. */
static void test_aliases(void **state) {
    (void)state;
    static const uint8_t bytes[16] = {1, 2, 3};
    static const struct {
        uint32_t code;
        int64_t n;
        const char *says;
    } rows[] = {
        {6, 4, NULL},
        {20, 16, NULL},
        {7, 8, NULL},
        {6, 5, "a constant of 16 bytes, 5 elements take 20"},
        {17, 3, "a constant of 16 bytes, 3 elements take 24"},
        {20, INT64_MAX, "a constant without a definite size"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        maker k = begin();
        ai_attr value = {.code = AI_RESOURCE, .resource = "r", .data = bytes, .bytes = sizeof bytes},
                same = value;
        const ai_attr *list[2][1] = {{&value}, {&same}};
        const int64_t four = 4;
        const ai_type *t[2] = {ai_make_tensor(k.m, DT_FP32, 1, &four),
                               tensor_of(&k, rows[i].code, 1, &rows[i].n)};
        const ai_value *x[2];
        for (int c = 0; c < 2; c++) {
            ai_op *op = ai_scope_op(k.s, "primitive.constant_v1", &t[c], 1, NULL, 0);
            op->prop = list[c], op->n_prop = 1;
            const ai_type *y = tensor_of(&k, 6, 1, t[c]->dim);
            x[c] = ai_scope_value(k.s, "primitive.cast_v1", y, op->out[0], NULL);
        }
        write_file(&k, x[1], NULL, 20260317);
        opens(&k, rows[i].says, code_text("resource as type", rows[i].code));
        end(&k);
    }
}

static void sized(const int64_t *dim, int rank, bool constant, const char *says) {
    static const char *const in[] = {"x"};
    static const uint8_t zeros[4];
    maker k = begin();
    const ai_type *t = tensor_of(&k, 6, rank, dim);
    const ai_value *x;
    if (constant) {
        ai_attr value = {.code = AI_DENSE, .splat = true, .data = zeros, .bytes = 4};
        const ai_attr *list[] = {&value};
        ai_op *c = ai_scope_op(k.s, "primitive.constant_v1", &t, 1, NULL, 0);
        c->prop = list, c->n_prop = 1;
        x = c->out[0];
        write_file(&k, ai_scope_value(k.s, "primitive.abs_v1", t, x, NULL), in, 20260317);
    } else {
        x = ai_scope_argument(k.s, t);
        write_file(&k, ai_scope_value(k.s, "primitive.abs_v1", t, x, NULL), in, 20260317);
    }
    opens(&k, says, says ? says : "sizes");
    end(&k);
}

static void test_sizes(void **state) {
    (void)state;
    const int64_t most[] = {INT64_MAX}, below[] = {INT64_MIN + 1}, minus[] = {-1}, any[] = {AI_DYNAMIC},
                  wide[] = {INT64_C(1) << 31}, square[] = {INT64_C(1) << 40, INT64_C(1) << 40},
                  large[] = {INT64_C(1) << 30, 4},
                  ones[17] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    sized(any, 1, false, NULL);
    sized(most, 1, false, "a size of 9223372036854775807");
    sized(wide, 1, false, "a size of 2147483648");
    sized(below, 1, false, "malformed type");
    sized(minus, 1, false, "malformed type");
    sized(ones, 17, false, "a tensor of 17 dimensions");
    sized(ones, 16, false, "a tensor of rank 16");
    sized(most, 1, true, "a constant without a definite size");
    sized(square, 2, true, "a constant without a definite size");
    sized(any, 1, true, "a constant without a definite size");
    sized(large, 2, true, "constants that spread to more than 2147483648 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),          cmocka_unit_test(test_constants),
        cmocka_unit_test(test_layouts),        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_foreign_ops),    cmocka_unit_test(test_asset_version),
        cmocka_unit_test(test_nested_regions), cmocka_unit_test(test_nested_calls),
        cmocka_unit_test(test_cyclic_types),   cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
