#include "ir/build.h"
#include "ir/infer.h"
#include "ir/print.h"
#include "test.h"

static ir_builder start(ir_program **p, err *e) {
    *e = (err){0};
    *p = ir_program_new(arena_new());
    return ir_build(*p, "main", 9, e);
}

static void finish(ir_builder *b) {
    ir_program *p = b->p;
    ir_build_end(b);
    arena_free(p->a);
}

static void assert_type(ir_value *v, const char *want) {
    arena *a = arena_new();
    assert_string_equal(ir_type_text(a, &v->type), want);
    arena_free(a);
}

static void builder_infers_and_names(void **s) {
    (void)s;
    err e;
    ir_program *p;
    ir_builder b = start(&p, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, 64));
    ir_value *k = b_state(&b, "k", IR_TYPE(DT_FP16, 1, 64));
    ir_value *y = b_op(&b, OP_add, "y", A_x, x, A_y, b_f16(&b, 1.5f), A_NONE);
    ir_value *z = b_op(&b, OP_add, "y", A_x, y, A_y, b_f16(&b, 1.5f), A_NONE); /* the name is taken */
    ir_value *r = b_op(&b, OP_read_state, NULL, A_input, k, A_NONE);
    ir_value *c = b_opv(&b, OP_concat, NULL, A_values, (ir_value *[]){z, r}, 2, A_axis, b_i32(&b, 0), A_NONE);
    b_op_multi(&b, OP_write_state, "keep", NULL, 0, A_input, k, A_data, z, A_NONE);
    ir_value *top[2];
    b_op_multi(&b, OP_topk, "top", top, 2, A_x, c, A_k, b_i32(&b, 3), A_NONE);
    b_output(&b, top[0]);
    assert_string_equal(e.msg, "");
    assert_string_equal(y->name, "y");
    assert_string_not_equal(z->name, "y");
    assert_type(c, "fp16[2,64]");
    assert_type(top[1], "int32[2,3]");
    assert_string_equal(top[1]->name, "top_1");
    assert_ptr_equal(b_f16(&b, 1.5f), ir_in(y->def, A_y)); /* equal constants are one op */
    assert_ptr_not_equal(b_f32(&b, 1.5f), ir_in(y->def, A_y));
    assert_ptr_equal(B_INTS(&b, 1, 2), B_INTS(&b, 1, 2));
    assert_ptr_equal(b_text(&b, "fp16"), b_text(&b, "fp16"));
    ir_type *types = mem_try(b.f->n_values, sizeof *types);
    assert_true(ir_infer_function(b.f, NULL, types, &e));
    assert_int_equal(types[top[1]->id].dtype, DT_INT32);
    mem_free(types);
    finish(&b);
}

static void builder_keeps_the_first_error(void **s) {
    (void)s;
    err e;
    ir_program *p;
    ir_builder b = start(&p, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, 64));
    ir_value *bad = b_op(&b, OP_add, "sum", A_x, x, A_y, b_f32(&b, 1), A_NONE);
    ir_value *next = b_op(&b, OP_relu, "r", A_x, bad, A_NONE);
    b_output(&b, next);
    assert_int_equal(e.code, ERR_INVALID);
    assert_string_equal(e.msg,
                        "function main, op add sum: operands x (fp16) and y (fp32) must have the same dtype");
    finish(&b);
}

static void builder_refuses(void **s) {
    (void)s;
    for (int i = 0; i < 5; i++) {
        err e;
        ir_program *p;
        ir_builder b = start(&p, &e);
        ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, 64));
        if (i == 0) b_input(&b, "x", ir_scalar(DT_FP16));
        if (i == 1) b_output(&b, x);
        if (i == 2) b_op(&b, OP_relu, "r", A_y, x, A_NONE);
        if (i == 3) b_op(&b, OP_relu, "r", A_NONE);
        if (i == 4) {
            ir_value *r = b_op(&b, OP_relu, "r", A_x, x, A_NONE);
            b_output(&b, r);
            b_output(&b, r);
        }
        static const char *const want[] = {
            "function main: the name x is in use already",
            "function main: x is an input, which needs an identity to be an output",
            "function main, op relu r: it has no operand y",
            "function main, op relu r: operand x is missing",
            "function main: r is an output already",
        };
        assert_string_equal(e.msg, want[i]);
        finish(&b);
    }
}

/* Unknown sizes of a function become known where its inputs are. */
static void shapes_follow_the_inputs(void **s) {
    (void)s;
    err e;
    ir_program *p;
    ir_builder b = start(&p, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, IR_DIM_UNKNOWN, 6));
    ir_value *heads = b_op(&b, OP_reshape, NULL, A_x, x, A_shape, B_INTS(&b, 1, -1, 2, 3), A_NONE);
    ir_value *y = b_op(&b, OP_transpose, "y", A_x, heads, A_perm, B_INTS(&b, 0, 2, 1, 3), A_NONE);
    b_output(&b, y);
    assert_string_equal(e.msg, "");
    assert_type(y, "fp16[1,2,?,3]");
    ir_type *types = mem_try(b.f->n_values, sizeof *types), in = IR_TYPE(DT_FP16, 1, 5, 6);
    assert_true(ir_infer_function(b.f, &in, types, &e));
    ir_type want = IR_TYPE(DT_FP16, 1, 2, 5, 3);
    assert_true(ir_type_equal(&types[y->id], &want));
    in.dim[2] = 7; /* against the declaration */
    assert_false(ir_infer_function(b.f, &in, types, &e));
    assert_string_equal(e.msg, "function main, input x: x is declared as fp16[1,?,6] but is fp16[1,5,7]");
    mem_free(types);
    finish(&b);
}

static void error_names_function_op_and_value(void **s) {
    (void)s;
    err e;
    ir_program *p;
    ir_builder b = start(&p, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 2, 3));
    ir_value *y = b_op(&b, OP_relu, "y", A_x, x, A_NONE);
    y->type.dim[1] = 4;
    ir_type *types = mem_try(b.f->n_values, sizeof *types);
    assert_false(ir_infer_function(b.f, NULL, types, &e));
    assert_string_equal(e.msg, "function main, op relu y: y is declared as fp16[2,4] but is fp16[2,3]");
    mem_free(types);
    finish(&b);
}

static void listing_is_readable(void **s) {
    (void)s;
    err e;
    ir_program *p;
    ir_builder b = start(&p, &e);
    float w[12] = {0};
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, 4));
    ir_value *k = b_state(&b, "k", IR_TYPE(DT_FP16, 1, 3));
    ir_const *c = ir_const_new(p->a, IR_TYPE(DT_FP16, 5, 4), arena_alloc(p->a, 40));
    c->blob_file = "weights/weight.bin";
    c->blob_offset = 64;
    ir_value *y =
        b_op(&b, OP_linear, "y", A_x, x, A_weight, b_floats(&b, DT_FP16, w, IR_TYPE(DT_FP16, 3, 4)), A_NONE);
    ir_value *z = b_op(&b, OP_linear, "z", A_x, x, A_weight, b_const(&b, "wide", c), A_NONE);
    ir_value *s1 = b_op(&b, OP_softmax, "p\x1b[2J", A_x, z, A_axis, b_i32(&b, -1), A_NONE);
    b_op_multi(&b, OP_write_state, "keep", NULL, 0, A_input, k, A_data, y, A_NONE);
    b_output(&b, s1);
    assert_string_equal(e.msg, "");
    str text = {0};
    ir_print_program(&text, p);
    assert_string_equal(
        str_get(&text),
        "function main  // CoreML8\n"
        "  in %x: fp16[1,4]\n"
        "  in %k: state<fp16[1,3]>\n"
        "  () {\n"
        "    %y: fp16[1,3] = linear(x=%x, weight=fp16[3,4](0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))\n"
        "    %z: fp16[1,5] = linear(x=%x, weight=%wide: fp16[5,4]@weights/weight.bin:64)\n"
        "    %\"p\\u001b[2J\": fp16[1,5] = softmax(x=%z, axis=int32(-1))\n"
        "    write_state(input=%k, data=%y)  // keep\n"
        "    return %\"p\\u001b[2J\"\n"
        "  }\n");
    str_free(&text);
    finish(&b);
}

static void constants_are_listed_by_value(void **s) {
    (void)s;
    arena *a = arena_new();
    static const float odd[] = {0.5f, -1.0f / 0.0f, 0.0f / 0.0f};
    static const uint8_t flags[] = {1, 0}, nibbles[] = {0x8F, 0x07};
    const ir_const *c[] = {
        ir_const_new(a, IR_TYPE(DT_FP32, 3), odd),     ir_const_new(a, IR_TYPE(DT_BOOL, 2), flags),
        ir_const_new(a, IR_TYPE(DT_INT4, 3), nibbles), ir_const_string(a, "a\"b"),
        ir_const_new(a, IR_TYPE(DT_FP16, 2, 0), NULL), ir_const_fill(a, IR_TYPE(DT_FP16, 64, 64), NULL, NULL),
    };
    static const char *const want[] = {
        "fp32[3](0.5, -inf, nan)",
        "bool[2](true, false)",
        "int4[3](-1, -8, 7)",
        "\"a\\\"b\"",
        "fp16[2,0]",
        "fp16[64,64]",
    };
    for (int i = 0; i < 6; i++) {
        str text = {0};
        ir_print_const(&text, c[i]);
        assert_string_equal(str_get(&text), want[i]);
        str_free(&text);
    }
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builder_infers_and_names),
        cmocka_unit_test(builder_keeps_the_first_error),
        cmocka_unit_test(builder_refuses),
        cmocka_unit_test(shapes_follow_the_inputs),
        cmocka_unit_test(error_names_function_op_and_value),
        cmocka_unit_test(listing_is_readable),
        cmocka_unit_test(constants_are_listed_by_value),
    };
    return cmocka_run_group_tests_name("ir", tests, NULL, NULL);
}
