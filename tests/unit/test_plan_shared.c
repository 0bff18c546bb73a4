/* What follows from positions is made once in a plan: against the reference evaluator, as in test_plan.c. */
#include "plan_graph.h"

static ir_value *angle(graph *g, ir_opcode code, ir_value *at, float base) {
    ir_builder *b = &g->b;
    float f[8];
    for (int i = 0; i < 8; i++) f[i] = base / (float)(i + 1);
    return one(g, code, two(g, OP_mul, cast(g, at, "fp32"), b_floats(b, DT_FP32, f, IR_TYPE(DT_FP32, 8))));
}

/* Two layers with tables of their own, the third with other numbers. */
static void tables_of_layers(void **state) {
    (void)state;
    graph *g = begin(1);
    ir_builder *b = &g->b;
    ir_value *x = b_input(b, "x", IR_TYPE(DT_FP32, 1, 8)), *at = b_input(b, "at", IR_TYPE(DT_INT32, 1));
    for (int layer = 0; layer < 3; layer++) {
        float base = layer < 2 ? 1 : 3;
        x = two(g, OP_add, two(g, OP_mul, x, angle(g, OP_cos, at, base)), angle(g, OP_sin, at, base));
        x = one(g, OP_tanh, x);
    }
    b_output(b, x);
    finish(g);
    plan *p = plan_of(g, false);
    const ir_function *f = plan_function(p);
    assert_int_equal(count(f, OP_cast), 1);
    assert_int_equal(count(f, OP_cos), 2);
    assert_int_equal(count(f, OP_sin), 2);
    assert_int_equal(count(f, OP_tanh), 3);
    for (size_t i = 0; i < 7; i++) assert_int_not_equal(f->body.op[i]->code, OP_tanh); /* tables first */
    plan_free(p);
    check_made(g, OP_NONE, true, "tables of layers");
}

/* Results of the function have places of their own; what depends on other inputs is left alone. */
static void results_stay(void **state) {
    (void)state;
    graph *g = begin(2);
    ir_builder *b = &g->b;
    ir_value *x = b_input(b, "x", IR_TYPE(DT_FP32, 1, 8)), *at = b_input(b, "at", IR_TYPE(DT_INT32, 1));
    b_output(b, angle(g, OP_cos, at, 1));
    b_output(b, angle(g, OP_cos, at, 1));
    b_output(b, two(g, OP_add, one(g, OP_tanh, x), one(g, OP_tanh, x)));
    b_output(b, two(g, OP_add, at, b_i32(b, 2)));
    finish(g);
    plan *p = plan_of(g, false);
    const ir_function *f = plan_function(p);
    assert_int_equal(count(f, OP_cos), 2);
    assert_int_equal(count(f, OP_mul), 1);
    assert_int_equal(count(f, OP_tanh), 2);
    plan_free(p);
    check_made(g, OP_NONE, true, "results");
}

/* The linear rounds what nobody sees but its cast: bits of fp16, in one step. */
static void linear_rounds(void **state) {
    (void)state;
    for (int seen = 0; seen < 2; seen++)
        for (int rows = 1; rows <= 3; rows += 2) {
            graph *g = begin(3);
            ir_builder *b = &g->b;
            ir_value *x = b_input(b, "x", IR_TYPE(DT_FP32, rows, 32));
            ir_value *y = b_op(b, OP_linear, NULL, A_x, x, A_weight,
                               constant(g, DT_FP32, IR_TYPE(DT_FP32, 40, 32)), A_NONE);
            b_output(b, cast(g, y, "fp16"));
            if (seen) b_output(b, two(g, OP_mul, y, b_f32(b, 3)));
            finish(g);
            plan *p = plan_of(g, false);
            str text = {0};
            plan_print(&text, p);
            assert_int_equal(strstr(text.s, "  cast ") != NULL, seen);
            str_free(&text);
            plan_free(p);
            check_made(g, OP_NONE, true, "a linear that rounds");
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_of_layers),
        cmocka_unit_test(results_stay),
        cmocka_unit_test(linear_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
