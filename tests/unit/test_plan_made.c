/* Rows that are made and prepared for linear layers in one step: the same bits as from plans that make them
 * first and multiply them then. Norms that rotate what they made, by tables of each token. */
#include "plan_graph.h"

#define ROWS 40
#define COLS 64

static bool has_step(const graph *g, const char *name) {
    plan *p = plan_of(g, false);
    str text = {0};
    plan_print(&text, p);
    bool found = strstr(text.s, name) != NULL;
    str_free(&text);
    plan_free(p);
    return found;
}

static ir_value *norm(graph *g, ir_value *x) {
    ir_builder *b = &g->b;
    ir_value *mean = b_op(b, OP_reduce_mean, NULL, A_x, one(g, OP_square, x), A_axes, B_INTS(b, -1),
                          A_keep_dims, b_bool(b, true), A_NONE);
    ir_value *scale = b_op(b, OP_rsqrt, NULL, A_x, mean, A_epsilon, b_f32(b, 1e-6f), A_NONE);
    return two(g, OP_mul, x, scale);
}

/* [ROWS][COLS] from x, or from x and y: a norm with weights, or silu(x) y. */
static ir_value *made(graph *g, bool swiglu, ir_value *x, ir_value *y) {
    if (swiglu) return two(g, OP_mul, one(g, OP_silu, x), y);
    return two(g, OP_mul, norm(g, x), constant(g, DT_FP32, IR_TYPE(DT_FP32, COLS)));
}

static ir_value *product(graph *g, ir_value *x, int64_t rows) {
    ir_builder *b = &g->b;
    g->seed = 77;
    uint8_t *codes = ARENA_ARRAY(g->a, uint8_t, (size_t)(rows * COLS));
    for (int64_t i = 0; i < rows * COLS; i++) codes[i] = (uint8_t)random_of(g, 255);
    ir_value *data = b_const(b, NULL, ir_const_new(g->a, IR_TYPE(DT_INT8, rows, COLS), codes));
    float *scale = ARENA_ARRAY(g->a, float, (size_t)rows);
    for (int64_t i = 0; i < rows; i++) scale[i] = num_round_f16(0.01f);
    ir_value *w = b_op(b, OP_constexpr_blockwise_shift_scale, NULL, A_data, data, A_scale,
                       b_floats(b, DT_FP16, scale, IR_TYPE(DT_FP16, rows, 1)), A_NONE);
    return b_op(b, OP_linear, NULL, A_x, x, A_weight, w, A_NONE);
}

typedef enum { MAKE = 1, MULTIPLY = 2 } parts;

/* What a plan of these parts gives from x and y: two products or, of MAKE alone or if `kept`, the rows, last.
 */
static void results(parts which, bool swiglu, bool kept, kern_path path, const ref_tensor *x,
                    ref_tensor *out) {
    graph *g = begin(11);
    ir_value *a = b_input(&g->b, "x", IR_TYPE(DT_FP32, ROWS, COLS)),
             *b = swiglu && which & MAKE ? b_input(&g->b, "y", IR_TYPE(DT_FP32, ROWS, COLS)) : NULL;
    ir_value *rows = which & MAKE ? made(g, swiglu, a, b) : a;
    if (which & MULTIPLY) {
        b_output(&g->b, product(g, rows, 32));
        b_output(&g->b, product(g, rows, 48));
    }
    if (kept || which == MAKE) b_output(&g->b, rows);
    g->seed = 5;
    g->linear = (plan_linear){path, path};
    finish(g);
    for (int i = 0; i < 1 + (b != NULL) && x; i++)
        memcpy(g->in[i].cell, x[i].cell, (size_t)(ROWS * COLS) * sizeof(float));
    ref_tensor state[MOST] = {0};
    if (which == (MAKE | MULTIPLY) && path != KERN_EXACT)
        assert_true(has_step(g, swiglu ? "swiglu, prepare" : "rms norm, prepare"));
    walk(g, false, 1, 3, state, out);
    end(g);
}

static void same(const ref_tensor *x, const ref_tensor *y) {
    assert_memory_equal(x->cell, y->cell, (size_t)ref_count(x) * 4);
}

static void rows_for_linears(void **state) {
    (void)state;
    for (int form = 0; form < 2 * KERN_PATHS; form++) {
        bool swiglu = form % 2;
        kern_path path = (kern_path)(form / 2);
        ref_tensor alone[MOST] = {0}, rows[MOST] = {0}, want[MOST] = {0}, got[MOST] = {0};
        results(MAKE, swiglu, false, path, NULL, rows);
        results(MULTIPLY, swiglu, false, path, rows, want);
        results(MAKE | MULTIPLY, swiglu, false, path, NULL, alone);
        results(MAKE | MULTIPLY, swiglu, true, path, NULL, got);
        for (int i = 0; i < 2; i++) same(&alone[i], &want[i]), same(&got[i], &want[i]);
        same(&got[2], &rows[0]);
        drop(alone), drop(rows), drop(want), drop(got);
    }
}

/* [1,heads,tokens,d] normed, then turned by each token's row of the tables. */
static void norms_that_turn(void **state) {
    (void)state;
    graph *g = begin(5);
    ir_builder *b = &g->b;
    ir_value *x = b_input(b, "x", IR_TYPE(DT_FP32, 1, 9, 3, 24)), *part[2];
    ir_value *cos = b_input(b, "cos", IR_TYPE(DT_FP32, 9, 24)),
             *sin = b_input(b, "sin", IR_TYPE(DT_FP32, 9, 24));
    ir_value *y = norm(g, b_op(b, OP_transpose, NULL, A_x, x, A_perm, B_INTS(b, 0, 2, 1, 3), A_NONE));
    b_op_multi(b, OP_split, NULL, part, 2, A_x, y, A_split_sizes, B_INTS(b, 12, 12), A_axis, b_i32(b, -1),
               A_NONE);
    ir_value *turned[2] = {two(g, OP_mul, part[1], b_f32(b, -1)), part[0]};
    ir_value *other = b_opv(b, OP_concat, NULL, A_values, turned, 2, A_axis, b_i32(b, -1), A_interleave,
                            b_bool(b, false), A_NONE);
    b_output(b, two(g, OP_add, two(g, OP_mul, y, cos), two(g, OP_mul, other, sin)));
    finish(g);
    assert_true(has_step(g, "norm, rope"));
    check_made(g, OP_fused_rope, true, "norm, rope");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_for_linears),
        cmocka_unit_test(norms_that_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
