/* Every spelling that protobuf allows is read; what is malformed or not understood gives one clear line. */
#define _GNU_SOURCE
#include "base/file.h"
#include "coreml/model.h"
#include "proto.h"
#include "work_dir.h"
#include <time.h>
#include <unistd.h>

static int setup(void **state) {
    (void)state;
    proto_arena = arena_new();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    arena_free(proto_arena);
    return 0;
}

#define F32   11
#define I32   23
#define BOOL  1
#define IN_X  NAMED(1, "x", TENSOR(F32, 1, dim(2)))
#define RELU  M(3, S(1, "relu"), BOUND("x", "x"), NAMED(3, "y", TENSOR(F32, 1, dim(2))), OPNAME("op_y"))
#define DESC  NIL
#define OUT_Y S(2, "y")

static coreml_package *open_ok(bytes b) {
    err e = {0};
    coreml_package *p = coreml_open_memory(b.p, b.n, &e);
    if (!p) fail_msg("%s", e.msg);
    return p;
}

/* Refused with this code; the one line holds the given text. */
static void refused(bytes b, err_code code, const char *text) {
    err e = {0};
    coreml_package *p = coreml_open_memory(b.p, b.n, &e);
    assert_null(p);
    if (!strstr(e.msg, text) || e.code != code) fail_msg("error %d: %s\nexpected: %s", e.code, e.msg, text);
    assert_null(strchr(e.msg, '\n'));
    assert_non_null(strstr(e.msg, "byte "));
}

static const ir_block *body(const coreml_package *p) {
    return &p->model->program->func[0]->body;
}

static void fields_in_any_order(void **state) {
    (void)state;
    bytes relu = M(3, OPNAME("op_y"), NAMED(3, "y", TENSOR(F32, 1, dim(2))),
                   M(2, M(2, M(1, S(1, "x"))), S(1, "x")), S(1, "relu"));
    bytes block = M(3, M(2, OUT_Y, relu), S(1, "CoreML8"));
    bytes function = M(2, M(2, block, S(2, "CoreML8"), IN_X), S(1, "main"));
    coreml_package *p = open_ok(P(M(502, function, I(1, 1)), M(2, DESC), I(1, 9)));
    assert_int_equal(body(p)->n_op, 1);
    assert_int_equal(body(p)->op[0]->code, OP_relu);
    assert_string_equal(body(p)->op[0]->name, "op_y");
    assert_ptr_equal(ir_in(body(p)->op[0], A_x), p->model->program->func[0]->in[0]);
    assert_ptr_equal(body(p)->out[0], body(p)->op[0]->out[0]);
    coreml_close(p);
}

static void numbers_packed_or_not(void **state) {
    (void)state;
    bytes packed = P(proto_varint(7), proto_varint((uint64_t)-3), proto_varint(300));
    bytes consts[] = {
        CONST("c", TENSOR(I32, 1, dim(3)), M(2, B(1, packed))),
        CONST("c", TENSOR(I32, 1, dim(3)), M(2, I(1, 7), I(1, -3), I(1, 300))),
        CONST("c", TENSOR(I32, 1, dim(3)), M(2, I(1, 7), B(1, P(proto_varint((uint64_t)-3))), I(1, 300))),
    };
    for (int i = 0; i < 3; i++) {
        coreml_package *p = open_ok(MODEL(IN_X, DESC, consts[i], S(2, "c")));
        const int32_t *v = body(p)->op[0]->out[0]->konst->data;
        assert_int_equal(v[0], 7);
        assert_int_equal(v[1], -3);
        assert_int_equal(v[2], 300);
        coreml_close(p);
    }
    bytes feature = M(1, S(1, "x"), M(3, M(5, I(1, 4), I(1, 5), I(2, 65568))));
    coreml_package *p = open_ok(MODEL(IN_X, feature, RELU, OUT_Y));
    assert_int_equal(p->model->func[0].in[0].type.rank, 2);
    assert_int_equal(p->model->func[0].in[0].type.dim[1], 5);
    coreml_close(p);
}

static void booleans_and_short_integers(void **state) {
    (void)state;
    bytes flags = P(proto_varint(1), proto_varint(0), proto_varint(1));
    bytes words = P(proto_varint((uint64_t)-2), proto_varint(32767));
    coreml_package *p = open_ok(MODEL(IN_X, DESC, CONST("b", TENSOR(BOOL, 1, dim(3)), M(3, B(1, flags))),
                                      CONST("w", TENSOR(22, 1, dim(2)), M(2, B(1, words))), S(2, "b")));
    const ir_const *b = body(p)->op[0]->out[0]->konst, *w = body(p)->op[1]->out[0]->konst;
    assert_int_equal(b->bytes, 3);
    assert_memory_equal(b->data, "\1\0\1", 3);
    assert_int_equal(w->bytes, 4);
    assert_memory_equal(w->data, "\376\377\377\177", 4);
    coreml_close(p);
}

static void missing_names_and_empty_tensors(void **state) {
    (void)state;
    bytes unnamed = M(3, S(1, "relu"), BOUND("x", "x"), NAMED(3, "y", TENSOR(F32, 1, dim(2))));
    bytes none = CONST("n", TENSOR(F32, 1, dim(0)), M(1, NIL)),
          none2 = CONST("m", TENSOR(F32, 2, dim(0), dim(-1)), M(1, NIL));
    coreml_package *p = open_ok(MODEL(IN_X, DESC, unnamed, none, OUT_Y));
    assert_null(body(p)->op[0]->name);
    assert_int_equal(body(p)->op[1]->out[0]->konst->bytes, 0);
    coreml_close(p);
    refused(MODEL(IN_X, DESC, none2, OUT_Y), ERR_FORMAT,
            "function main, op const m: constant of fp32[0,?]: expected known sizes");
}

static void lists_are_carried_along(void **state) {
    (void)state;
    bytes item = M(1, TENSOR(2, 0, NIL), M(3, M(1, M(4, S(1, "cat")))));
    bytes type = M(2, M(2, M(1, M(1, I(1, 2))), M(2, M(1, I(1, 1)))));
    bytes value = P(type, M(3, M(3, item)));
    bytes classify = M(3, S(1, "classify"), BOUND("probabilities", "x"),
                       ENTRY(2, "classes", M(1, B(2, value))), NAMED(3, "label", TENSOR(2, 0, NIL)),
                       NAMED(3, "table", M(2, M(4, M(1, M(1, I(1, 2))), M(2, M(1, I(1, 12)))))));
    coreml_package *p = open_ok(MODEL(IN_X, DESC, classify, S(2, "label"), S(2, "table")));
    const ir_op *op = body(p)->op[0];
    const ir_value *classes = ir_in(op, A_classes);
    assert_int_equal(classes->type.kind, IR_OPAQUE);
    assert_int_equal(classes->konst->bytes, value.n);
    assert_memory_equal(classes->konst->data, value.p, value.n);
    assert_int_equal(op->out[1]->type.kind, IR_OPAQUE);
    assert_int_not_equal(op->out[1]->opaque.len, 0);
    coreml_close(p);
}

static void operands_among_attributes_or_literals(void **state) {
    (void)state;
    bytes indices = M(3, M(1, M(7, S(1, "\x1b")))),
          lut = M(3, M(1, M(7, B(1, (bytes){(const uint8_t *)"\0\1\2\3", 4}))));
    bytes old = M(3, S(1, "constexpr_lut_to_dense"), ENTRY(5, "indices", TENSOR(31, 1, dim(1)), indices),
                  ENTRY(5, "lut", TENSOR(31, 1, dim(4)), lut),
                  ENTRY(5, "unheard_of", TENSOR(31, 1, dim(4)), lut), NAMED(3, "y", TENSOR(31, 1, dim(4))));
    bytes new =
        M(3, S(1, "constexpr_lut_to_dense"), ENTRY(2, "indices", M(1, M(2, TENSOR(36, 1, dim(4)), indices))),
          ENTRY(2, "lut", M(1, M(2, TENSOR(31, 1, dim(4)), lut))), NAMED(3, "y", TENSOR(31, 1, dim(4))));
    for (int i = 0; i < 2; i++) {
        coreml_package *p = open_ok(MODEL(IN_X, DESC, i ? new : old, OUT_Y));
        const ir_value *v = ir_in(body(p)->op[0], A_indices);
        assert_int_equal(v->binding, i ? IR_BY_LITERAL : IR_BY_ATTRIBUTE);
        double code;
        for (uint64_t k = 0; i && k < 4; k++) { /* 0x1b: 3 2 1 0, least significant bits first */
            assert_true(ir_const_number(v->konst, k, &code));
            assert_true(code == 3.0 - (double)k);
        }
        coreml_close(p);
    }
}

static void what_is_not_understood_is_named(void **state) {
    (void)state;
    bytes y = NAMED(3, "y", TENSOR(F32, 1, dim(2)));
    refused(MODEL(IN_X, DESC, M(3, S(1, "frobnicate"), y, OPNAME("f1")), OUT_Y), ERR_UNSUPPORTED,
            "function main, op frobnicate f1: op type frobnicate is not known");
    const bytes layer = M(3, S(1, "custom_layer"), y, OPNAME("c1"),
                          ENTRY(5, "class_name", TENSOR(2, 0, NIL), M(3, M(1, M(4, S(1, "AppFlash"))))));
    refused(MODEL(IN_X, DESC, layer, OUT_Y), ERR_UNSUPPORTED,
            "function main, op custom_layer c1: a custom layer of class AppFlash: its code is in an app and "
            "not in the package; convert the model with ordinary ops");
    refused(P(I(1, 4), M(2, DESC), M(500, I(1, 1))), ERR_UNSUPPORTED,
            "a neural network (field 500), expected an ML Program: convert its source with convert_to=");
    refused(MODEL(IN_X, DESC, M(3, S(1, "relu"), BOUND("q", "x"), y), OUT_Y), ERR_UNSUPPORTED,
            "no operand is called q");
    refused(MODEL(IN_X, DESC, M(3, S(1, "relu"), BOUND("x", "z"), y), OUT_Y), ERR_INVALID,
            "value z is not defined before its use");
    refused(MODEL(IN_X, DESC, M(3, S(1, "relu"), BOUND("x", "y"), y), OUT_Y), ERR_INVALID,
            "value y is not defined");
    refused(MODEL(IN_X, DESC, RELU, RELU, OUT_Y), ERR_INVALID, "value y is defined twice");
    refused(MODEL(P(IN_X, IN_X), DESC, RELU, OUT_Y), ERR_INVALID, "value x is defined twice");
    refused(MODEL(IN_X, DESC, RELU, S(2, "z")), ERR_INVALID, "block output z is not defined");
    refused(MODEL(IN_X, DESC, M(3, S(1, "relu"), BOUND("x", "x"), BOUND("x", "x"), y), OUT_Y), ERR_FORMAT,
            "operand x is given twice");
    refused(MODEL(IN_X, DESC, M(3, S(1, "cond"), BOUND("pred", "x"), y), OUT_Y), ERR_FORMAT,
            "0 blocks, expected 2");
    refused(P(I(1, 11), M(2, DESC), M(502, I(1, 1))), ERR_UNSUPPORTED, "specification version 11");
    refused(P(I(1, 9), M(2, DESC), M(500, I(1, 1))), ERR_UNSUPPORTED, "a neural network");
    refused(P(I(1, 9), M(2, DESC), M(502, I(1, 2))), ERR_UNSUPPORTED, "ML Program version 2");
    refused(P(I(1, 9), M(502, I(1, 1))), ERR_FORMAT, "no description");
    refused(P(I(1, 9), M(2, DESC), M(502, I(1, 1), ENTRY(2, "main", S(2, "CoreML99")))), ERR_UNSUPPORTED,
            "opset CoreML99");
    refused(
        P(I(1, 9), M(2, DESC), M(502, I(1, 1), ENTRY(2, "main", S(2, "CoreML8"), ENTRY(3, "CoreML7", NIL)))),
        ERR_FORMAT, "no block for its opset CoreML8");
}

static void sizes_that_lie(void **state) {
    (void)state;
    bytes huge = P(dim((int64_t)1 << 60)), large = P(dim((int64_t)1 << 50)), four = M(1, S(1, "\0\0\0\0"));
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(F32, 1, large), M(1, NIL)), OUT_Y), ERR_FORMAT,
            "the message ends before its values");
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(F32, 2, huge, huge), M(1, NIL)), OUT_Y), ERR_FORMAT,
            "expected known sizes that memory can hold");
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(10, 1, large), M(7, S(1, "ab"))), OUT_Y), ERR_FORMAT,
            "has 2 bytes");
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(2, 1, large), M(4, S(1, "ab"))), OUT_Y), ERR_FORMAT,
            "the message ends before");
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(F32, 1, dim(2)), four), OUT_Y), ERR_FORMAT,
            "constant of fp32[2]");
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(F32, 1, dim(2)), M(2, I(1, 1))), OUT_Y), ERR_FORMAT,
            "holds ints, expected floats");
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(22, 1, dim(1)), M(2, I(1, 40000))), OUT_Y), ERR_FORMAT,
            "40000 does not fit int16");
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(F32, 1, dim(1), dim(1)), M(1, NIL)), OUT_Y), ERR_FORMAT,
            "rank 1 with 2 dimensions");
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(F32, -1, NIL), M(1, NIL)), OUT_Y), ERR_UNSUPPORTED,
            "any rank");
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(99, 0, NIL), M(1, NIL)), OUT_Y), ERR_UNSUPPORTED,
            "element type 99");
    bytes nine = P(dim(1), dim(1), dim(1), dim(1), dim(1), dim(1), dim(1), dim(1), dim(1));
    refused(MODEL(IN_X, DESC, CONST("c", TENSOR(F32, 9, nine), M(1, NIL)), OUT_Y), ERR_UNSUPPORTED,
            "more than 8 dimensions");
    bytes feature = M(1, S(1, "x"), M(3, M(5, I(1, -4), I(2, 65568))));
    refused(MODEL(IN_X, feature, RELU, OUT_Y), ERR_FORMAT, "size -4 in a shape");
    /* A value of 2^60 elements that nothing holds is well-formed. */
    coreml_close(open_ok(MODEL(NAMED(1, "x", TENSOR(F32, 1, huge)), DESC, S(2, "x"))));
    bytes other = M(3, S(1, "const"), NAMED(3, "c", TENSOR(F32, 1, dim(9))),
                    ENTRY(5, "val", TENSOR(F32, 1, dim(1)),
                          M(3, M(1, M(1, B(1, (bytes){(const uint8_t *)"\0\0\0\0", 4}))))));
    refused(MODEL(IN_X, DESC, other, OUT_Y), ERR_INVALID,
            "the value is fp32[1], the output is declared fp32[9]");
}

static void weight_files_stay_in_the_package(void **state) {
    (void)state;
    static const char *const bad[] = {"@model_path/../w.bin", "/etc/passwd", "@model_path/a/../../w",
                                      "@model_path/",         "w.bin",       "@model_path//w",
                                      "@model_path/./w"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bytes blob = M(3, S(1, "const"), NAMED(3, "y", TENSOR(F32, 1, dim(2))),
                       ENTRY(5, "val", TENSOR(F32, 1, dim(2)), M(5, S(1, bad[i]), I(2, 64))));
        refused(MODEL(IN_X, DESC, blob, OUT_Y), ERR_FORMAT, "a path inside the package");
    }
    bytes text = M(3, S(1, "const"), NAMED(3, "y", TENSOR(2, 0, NIL)),
                   ENTRY(5, "val", TENSOR(2, 0, NIL), M(5, S(1, "@model_path/w"), I(2, 64))));
    refused(MODEL(IN_X, DESC, text, OUT_Y), ERR_FORMAT, "can't be a constant there");
}

/* Of this process: other work on the machine doesn't count. */
static double seconds(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

static void deep_nesting(void **state) {
    (void)state;
    double start = seconds();
    /* A type that wraps a type that ...; then blocks in ops in blocks. */
    bytes type = NIL;
    while (type.n < 34000) type = M(2, M(1, type));
    refused(MODEL(M(1, S(1, "x"), B(2, type)), DESC, S(2, "x")), ERR_FORMAT, "nested deeper than 100 levels");
    bytes block = NIL;
    while (block.n < 34000) block = M(4, M(3, S(1, "cond"), M(4, NIL), block));
    refused(MODEL(IN_X, DESC, M(3, S(1, "cond"), M(4, NIL), block), S(2, "x")), ERR_FORMAT,
            "nested deeper than 100 levels");
    bytes value = NIL;
    while (value.n < 34000) value = M(2, M(2, NIL), M(3, M(3, B(1, value))));
    refused(P(I(1, 9), M(2, DESC), M(502, I(1, 1), M(4, S(1, "a"), value))), ERR_FORMAT, "byte");
    bytes part = NIL;
    while (part.n < 34000) part = P(I(1, 9), M(202, B(1, part)));
    refused(part, ERR_FORMAT, "nested deeper than 100 levels");
    assert_true(seconds() - start < 5);
}

/* Many small things must take time in proportion, not its square. */
static void long_lists(void **state) {
    (void)state;
    double start = seconds();
    size_t n = 60000;
    bytes *part = arena_array(proto_arena, n + 1, sizeof *part);
    part[n] = (bytes)PROTO_END;
    char name[32];
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "f%zu", i);
        part[i] = ENTRY(2, name, S(2, "CoreML8"), ENTRY(3, "CoreML8", NIL));
    }
    coreml_close(open_ok(P(I(1, 9), M(2, DESC), M(502, I(1, 1), proto_join(part)))));
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "x%zu", i);
        part[i] = NAMED(1, arena_str(proto_arena, name), TENSOR(F32, 0, NIL));
    }
    coreml_close(open_ok(MODEL(proto_join(part), DESC, S(2, "x7"))));
    assert_true(seconds() - start < 10);
}

static void cut_short(void **state) {
    (void)state;
    err e = {0};
    file_map m;
    assert_true(file_open_map(
        &m, test_case_path("coreml/op_state.mlpackage/Data/com.apple.CoreML/model.mlmodel"), &e));
    for (size_t n = 0; n < m.size; n += n < 400 ? 1 : 13) {
        uint8_t *copy = mem_alloc(n ? n : 1); /* so that a sanitizer sees the end */
        memcpy(copy, m.data, n);
        e = (err){0};
        coreml_package *p = coreml_open_memory(copy, n, &e);
        if (n < m.size) assert_null(p);
        assert_non_null(strstr(e.msg, "byte "));
        mem_free(copy);
    }
    file_unmap(&m);
}

/* Writes Manifest.json (and a model file) and tries to open the package. */
static void manifest(const char *text, const char *complaint) {
    err e = {0};
    char path[128];
    assert_int_equal(make_work_dir(NULL), 0);
    snprintf(path, sizeof path, "%s/Data/com.apple.CoreML", work_dir);
    assert_true(file_make_dirs(path, &e));
    bytes model = MODEL(IN_X, DESC, RELU, OUT_Y);
    snprintf(path, sizeof path, "%s/Data/com.apple.CoreML/model.mlmodel", work_dir);
    assert_true(file_write(path, model.p, model.n, &e));
    snprintf(path, sizeof path, "%s/Manifest.json", work_dir);
    if (text) assert_true(file_write(path, text, strlen(text), &e));
    coreml_package *p = coreml_open(work_dir, &e);
    if (complaint ? p || !strstr(e.msg, complaint) : !p)
        fail_msg("%s, expected: %s", e.msg, complaint ? complaint : "success");
    coreml_close(p);
    assert_int_equal(remove_work_dir(NULL), 0);
}

#define ITEM(path) "\"A\":{\"author\":\"m\",\"description\":\"d\",\"name\":\"n\",\"path\":\"" path "\"}"
#define MANIFEST(version, root, items)                                                                       \
    "{\"fileFormatVersion\":\"" version "\",\"rootModelIdentifier\":\"" root                                 \
    "\",\"itemInfoEntries\":{" items "}}"

static void manifests(void **state) {
    (void)state;
    manifest(MANIFEST("1.0.0", "A", ITEM("com.apple.CoreML/model.mlmodel")), NULL);
    manifest(MANIFEST("0.9.13", "A", ITEM("com.apple.CoreML/model.mlmodel")), NULL);
    manifest(NULL, "no Manifest.json");
    manifest("", "Manifest.json");
    manifest("[]", "fileFormatVersion is missing");
    manifest(MANIFEST("1.0.1", "A", ITEM("com.apple.CoreML/model.mlmodel")), "fileFormatVersion 1.0.1");
    manifest(MANIFEST("2.0.0", "A", ITEM("com.apple.CoreML/model.mlmodel")), "fileFormatVersion 2.0.0");
    manifest(MANIFEST("1.0", "A", ITEM("com.apple.CoreML/model.mlmodel")), "fileFormatVersion 1.0");
    manifest(MANIFEST("1.0.-1", "A", ITEM("com.apple.CoreML/model.mlmodel")), "fileFormatVersion");
    manifest(MANIFEST("1.0.0", "B", ITEM("com.apple.CoreML/model.mlmodel")), "no item for the root model B");
    manifest(MANIFEST("1.0.0", "A", "\"A\":{\"path\":\"com.apple.CoreML/model.mlmodel\"}"), "has no author");
    manifest(MANIFEST("1.0.0", "A", ITEM("../secret")), "leaves the package");
    manifest(MANIFEST("1.0.0", "A", ITEM("/etc/passwd")), "leaves the package");
    manifest(MANIFEST("1.0.0", "A", ITEM("com.apple.CoreML/other")), "No such file");
    manifest(MANIFEST("1.0.0", "A", ITEM("com.apple.CoreML")), "not a regular file");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(fields_in_any_order),
        CASE(numbers_packed_or_not),
        CASE(booleans_and_short_integers),
        CASE(missing_names_and_empty_tensors),
        CASE(lists_are_carried_along),
        CASE(operands_among_attributes_or_literals),
        CASE(what_is_not_understood_is_named),
        CASE(sizes_that_lie),
        CASE(weight_files_stay_in_the_package),
        CASE(deep_nesting),
        CASE(long_lists),
        CASE(cut_short),
        CASE(manifests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
