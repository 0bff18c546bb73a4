/* What random programs (tests/fuzz/graphs) found: the graphs that differed between plan and evaluator, by
 * what was wrong. */
#include "plan_graph.h"

/* Elements [from, to) of the last axis. */
static ir_value *columns_from(graph *g, ir_value *x, int from, int to) {
    ir_type t = b_type(&g->b, x);
    int32_t begin[IR_MAX_RANK] = {0}, end[IR_MAX_RANK];
    for (int d = 0; d < t.rank; d++) end[d] = (int32_t)t.dim[d];
    begin[t.rank - 1] = from, end[t.rank - 1] = to;
    ir_value *first = b_ints(&g->b, begin, (size_t)t.rank), *last = b_ints(&g->b, end, (size_t)t.rank);
    return b_op(&g->b, OP_slice_by_index, NULL, A_x, x, A_begin, first, A_end, last, A_NONE);
}

static ir_value *normalised(graph *g, ir_value *x) {
    ir_value *mean = b_op(&g->b, OP_reduce_mean, NULL, A_x, one(g, OP_square, x), A_axes, B_INTS(&g->b, -1),
                          A_keep_dims, b_bool(&g->b, true), A_NONE);
    return two(g, OP_mul, x, b_op(&g->b, OP_rsqrt, NULL, A_x, mean, A_epsilon, b_f32(&g->b, 1e-6f), A_NONE));
}

/* A program's own cast to fp16 rounds, between a norm and its weight, too. The weight is large, so that what
 * is rounded are subnormal numbers. */
static void cast_in_a_norm(void **state) {
    (void)state;
    for (int form = 0; form < 2; form++) {
        graph *g = begin(5 + (uint64_t)form);
        ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP32, 3, 40));
        float *v = ARENA_ARRAY(g->a, float, 40);
        for (int i = 0; i < 40; i++) v[i] = i == 0 ? 1 : 3e-6f; /* the first element decides about the norm */
        ir_value *y = normalised(g, two(g, OP_mul, x, b_floats(&g->b, DT_FP32, v, IR_TYPE(DT_FP32, 40))));
        y = cast(g, y, "fp16");
        for (int i = 0; i < 40; i++) v[i] = i == 0 ? 1e-2f : 6e4f;
        y = two(g, OP_mul, y,
                form == 1 ? b_f16(&g->b, 6e4f) : b_floats(&g->b, DT_FP16, v, IR_TYPE(DT_FP16, 40)));
        b_output(&g->b, columns_from(g, y, 1, 40));
        check(g, OP_NONE, false, "cast in a norm");
    }
}

/* A step of a convolution takes silu over once, and not where somebody wants what comes before it, seen
 * through a cast. */
static void silu_of(bool twice) {
    graph *g = begin(2);
    ir_builder *b = &g->b;
    ir_value *u = b_input(b, "u", IR_TYPE(DT_FP16, 1, 20, 1)),
             *s = b_state(b, "s", IR_TYPE(DT_FP16, 1, 20, 3));
    ir_value *both[2] = {b_op(b, OP_read_state, NULL, A_input, s, A_NONE), u};
    ir_value *history = b_opv(b, OP_concat, NULL, A_values, both, 2, A_axis, b_i32(b, 2), A_interleave,
                              b_bool(b, false), A_NONE);
    write_state(g, s, columns_from(g, history, 1, 4));
    ir_value *y = b_op(b, OP_conv, NULL, A_x, history, A_weight,
                       constant(g, DT_FP16, IR_TYPE(DT_FP16, 20, 1, 4)), A_groups, b_i32(b, 20), A_NONE);
    b_output(b, one(g, OP_silu, twice ? one(g, OP_silu, y) : cast(g, y, "fp32")));
    if (!twice) b_output(b, y);
    check(g, OP_fused_conv_step, true, "silu");
}

static void silu_twice(void **state) {
    (void)state;
    silu_of(true);
    silu_of(false);
}

static ir_value *turned(graph *g, ir_value *x, ir_value *cos, ir_value *sin, int half) {
    ir_value *part[2];
    b_op_multi(&g->b, OP_split, NULL, part, 2, A_x, x, A_split_sizes, B_INTS(&g->b, half, half), A_axis,
               b_i32(&g->b, -1), A_NONE);
    ir_value *other[2] = {two(g, OP_mul, part[1], b_f32(&g->b, -1)), part[0]};
    ir_value *joined = b_opv(&g->b, OP_concat, NULL, A_values, other, 2, A_axis, b_i32(&g->b, -1),
                             A_interleave, b_bool(&g->b, false), A_NONE);
    ir_value *straight = two(g, OP_mul, x, cos);
    return two(g, OP_add, straight, two(g, OP_mul, joined, sin));
}

/* A norm's step takes one gate over, and no rotation behind it. */
static void behind_a_gate(void **state) {
    (void)state;
    for (int form = 0; form < 3; form++) {
        graph *g = begin(11);
        ir_builder *b = &g->b;
        ir_value *x = b_input(b, "x", IR_TYPE(DT_FP32, 3, 32)), *z = b_input(b, "z", IR_TYPE(DT_FP32, 3, 32)),
                 *w = b_input(b, "w", IR_TYPE(DT_FP32, 3, 32)),
                 *cos = b_input(b, "cos", IR_TYPE(DT_FP32, 32)),
                 *sin = b_input(b, "sin", IR_TYPE(DT_FP32, 32));
        ir_value *y = two(g, OP_mul, one(g, OP_silu, z), normalised(g, x));
        if (form == 0) y = two(g, OP_mul, one(g, OP_silu, w), y);
        if (form == 1) y = turned(g, y, cos, sin, 16);
        if (form == 2) y = two(g, OP_mul, one(g, OP_silu, w), turned(g, normalised(g, x), cos, sin, 16));
        b_output(b, two(g, OP_mul, y, b_f32(b, 0.5f)));
        check(g, OP_NONE, false, "behind a gate");
    }
}

/* Numbers that a cast rounds stay rounded where the update is no state's. */
static void update_of_a_cast(void **state) {
    (void)state;
    graph *g = begin(3);
    ir_builder *b = &g->b;
    ir_value *x = b_input(b, "x", IR_TYPE(DT_FP16, 6, 4)), *u = b_input(b, "u", IR_TYPE(DT_FP32, 2, 4));
    ir_value *half = shaped(g, cast(g, two(g, OP_mul, u, b_f32(b, 0.123f)), "fp16"), B_INTS(b, 2, 4));
    ir_value *y = b_op(b, OP_slice_update, NULL, A_x, x, A_update, half, A_begin, B_INTS(b, 1, 0), A_end,
                       B_INTS(b, 3, 4), A_NONE);
    y = cast(g, y, "fp32");
    b_output(b, two(g, OP_mul, two(g, OP_sub, y, cast(g, cast(g, y, "fp16"), "fp32")), b_f32(b, 1000)));
    b_output(b, y);
    check(g, OP_NONE, false, "update of a cast");
}

/* Two attentions with a mask of several rows, and with its first row for all tokens. */
static void rows_of_a_mask(void **state) {
    (void)state;
    graph *g = begin(9);
    ir_builder *b = &g->b;
    float hidden[3 * 8];
    for (int i = 0; i < 24; i++) hidden[i] = i % 8 > 2 * (i / 8) + 1 ? -30000 : 0;
    ir_value *q = b_input(b, "q", IR_TYPE(DT_FP32, 1, 2, 3, 16)),
             *k = b_input(b, "k", IR_TYPE(DT_FP32, 1, 2, 8, 16)),
             *v = b_input(b, "v", IR_TYPE(DT_FP32, 1, 2, 8, 16));
    ir_value *mask = two(g, OP_add, b_floats(b, DT_FP32, hidden, IR_TYPE(DT_FP32, 1, 1, 3, 8)),
                         two(g, OP_mul, b_input(b, "m", IR_TYPE(DT_FP32, 1, 1, 3, 8)), b_f32(b, 0.1f)));
    ir_value *first = b_op(b, OP_slice_by_index, NULL, A_x, mask, A_begin, B_INTS(b, 0, 0, 0, 0), A_end,
                           B_INTS(b, 1, 1, 1, 8), A_NONE);
    for (int i = 0; i < 2; i++)
        b_output(b, b_op(b, OP_scaled_dot_product_attention, NULL, A_query, q, A_key, k, A_value, v,
                         A_attn_mask, i ? mask : first, A_NONE));
    check(g, OP_NONE, false, "rows of a mask");
}

/* A mask of more rows, or more batches, than there are queries makes as many results. */
static void mask_of_more(void **state) {
    (void)state;
    for (int form = 0; form < 2; form++) {
        graph *g = begin(15);
        ir_builder *b = &g->b;
        ir_value *no = b_bool(b, false), *yes = b_bool(b, true);
        ir_value *q = b_input(b, "q", IR_TYPE(DT_FP32, 1, 2, 1, 16)),
                 *k = b_input(b, "k", IR_TYPE(DT_FP32, 1, 2, 5, 16)),
                 *v = b_input(b, "v", IR_TYPE(DT_FP32, 1, 2, 5, 16));
        ir_value *m = b_input(b, "m", form ? IR_TYPE(DT_FP32, 3, 1, 1, 5) : IR_TYPE(DT_FP32, 4, 5));
        ir_value *s = b_op(b, OP_matmul, NULL, A_x, q, A_y, k, A_transpose_x, no, A_transpose_y, yes, A_NONE);
        s = b_op(b, OP_softmax, NULL, A_x, two(g, OP_add, s, m), A_axis, b_i32(b, -1), A_NONE);
        b_output(b, b_op(b, OP_matmul, NULL, A_x, s, A_y, v, A_transpose_x, no, A_transpose_y, no, A_NONE));
        check(g, OP_NONE, false, "mask of more");
    }
}

/* The logarithm of a sum with infinite terms. */
static void infinite_terms(void **state) {
    (void)state;
    for (int form = 0; form < 2; form++) {
        graph *g = begin(4);
        ir_builder *b = &g->b;
        ir_value *x = b_input(b, "x", IR_TYPE(DT_FP32, 4, 9));
        x = two(g, OP_mul, one(g, OP_exp, x), b_f32(b, form ? -INFINITY : INFINITY));
        b_output(b, b_op(b, OP_reduce_log_sum_exp, NULL, A_x, x, A_axes, B_INTS(b, -1), A_keep_dims,
                         b_bool(b, false), A_NONE));
        check(g, OP_NONE, false, "infinite terms");
    }
}

/* An input of flexible length that nothing reads may have any, in a plan for all lengths. */
static void unread_length(void **state) {
    (void)state;
    for (int seen = 0; seen < 2; seen++) {
        graph *g = begin(8);
        ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP32, 3, 4)),
                 *m = b_input(&g->b, "m", IR_TYPE(DT_FP32, 1, 5));
        b_output(&g->b, one(g, OP_exp, x));
        if (seen) b_output(&g->b, one(g, OP_identity, m));
        finish(g);
        ir_type types[MOST] = {g->in[0].type, IR_TYPE(DT_FP32, 1, IR_DIM_UNKNOWN)};
        g->p->func[0]->in[1]->type = types[1];
        for (size_t i = 0; i < g->p->func[0]->body.n_out && seen; i++)
            if (i == 1) ((ir_value *)(uintptr_t)g->p->func[0]->body.out[i])->type = types[1];
        kern_table kernels;
        kern_rounded ops;
        kern_ops fast;
        err e = {0};
        assert_true(kern_open(&kernels, NULL, &e) && kern_ops_open(&fast, NULL, &e));
        kern_rounded_open(&ops, NULL);
        plan *p = plan_new(g->p->func[0], types,
                           &(plan_options){.kernels = &kernels, .ops = &ops, .fast = &fast}, &e);
        if (seen) { /* a result of unknown size is left to a plan for this size */
            assert_null(p);
            assert_int_equal(e.code, ERR_UNSUPPORTED);
        } else {
            if (!p) fail_msg("%s", e.msg);
            plan_exec *exec = plan_exec_new(p, &e);
            plan_block *block = plan_block_new();
            team *t = team_new(1, false);
            ref_tensor out[MOST] = {0};
            void *none[MOST] = {0};
            plan_call call = {.in = g->in, .out = out, .state = none, .team = t, .block = block};
            if (!plan_run(exec, &call, &e)) fail_msg("%s", e.msg);
            assert_float_equal(ref_floats(&out[0])[2], expf(ref_floats(&g->in[0])[2]), 1e-5);
            drop(out);
            team_free(t);
            plan_block_free(block);
            plan_exec_free(exec);
        }
        plan_free(p);
        end(g);
    }
}

/* A cache up to `end`, repeated for two heads: how often is computed from shapes. */
static ir_value *repeated(graph *g, ir_value *cache, ir_value *end) {
    ir_builder *b = &g->b;
    ir_value *seen =
        b_op(b, OP_slice_by_index, NULL, A_x, cache, A_begin, B_INTS(b, 0, 0, 0, 0), A_end, end, A_NONE);
    ir_value *wide = b_op(b, OP_expand_dims, NULL, A_x, seen, A_axes, B_INTS(b, 2), A_NONE);
    ir_value *shape = one(g, OP_shape, wide);
    ir_value *length = b_op(b, OP_gather, NULL, A_x, one(g, OP_shape, seen), A_indices, b_i32(b, 2), A_axis,
                            b_i32(b, 0), A_NONE);
    ir_value *want = b_opv(b, OP_concat, NULL, A_values,
                           (ir_value *[]){b_i32(b, 1), b_i32(b, 2), b_i32(b, 2), length, b_i32(b, 16)}, 5,
                           A_axis, b_i32(b, 0), A_interleave, b_bool(b, false), A_NONE);
    want =
        b_op(b, OP_select, NULL, A_cond, two(g, OP_equal, want, b_i32(b, -1)), A_a, shape, A_b, want, A_NONE);
    ir_value *all = b_op(b, OP_tile, NULL, A_x, wide, A_reps, two(g, OP_real_div, want, shape), A_NONE);
    return shaped(g, all, B_INTS(b, 1, 4, -1, 16));
}

/* Repeats of keys whose number a mask's length tells: one plan for all lengths. */
static void repeats_by_shape(void **state) {
    (void)state;
    for (int64_t length = 1; length <= 24; length += 23) {
        graph *g = begin(11);
        ir_builder *b = &g->b;
        g->length = length;
        ir_value *q = b_input(b, "q", IR_TYPE(DT_FP16, 1, 4, 1, 16)),
                 *m = b_input(b, "m", IR_TYPE(DT_FP16, 1, 1, 1, IR_DIM_UNKNOWN)), *side[2];
        ir_value *total = b_op(b, OP_gather, NULL, A_x, one(g, OP_shape, m), A_indices, b_i32(b, 3), A_axis,
                               b_i32(b, 0), A_NONE);
        ir_value *end =
            b_opv(b, OP_concat, NULL, A_values, (ir_value *[]){b_i32(b, 1), b_i32(b, 2), total, b_i32(b, 16)},
                  4, A_axis, b_i32(b, 0), A_interleave, b_bool(b, false), A_NONE);
        for (int i = 0; i < 2; i++)
            side[i] = repeated(g,
                               b_op(b, OP_read_state, NULL, A_input,
                                    b_state(b, i ? "v" : "k", IR_TYPE(DT_FP16, 1, 2, 24, 16)), A_NONE),
                               end);
        b_output(b, b_op(b, OP_scaled_dot_product_attention, NULL, A_query, q, A_key, side[0], A_value,
                         side[1], A_attn_mask, m, A_NONE));
        check(g, OP_fused_attention, false, "repeats by shape");
    }
}

/* Rows of a product that are added to a tensor of more dimensions, and normalised as such. */
static void residual_of_rows(void **state) {
    (void)state;
    graph *g = begin(11);
    ir_builder *b = &g->b;
    ir_value *x = b_input(b, "x", IR_TYPE(DT_FP32, 3, 16)),
             *old = one(g, OP_exp, b_input(b, "old", IR_TYPE(DT_FP32, 1, 3, 24)));
    ir_value *y =
        b_op(b, OP_linear, NULL, A_x, x, A_weight, constant(g, DT_FP32, IR_TYPE(DT_FP32, 24, 16)), A_NONE);
    b_output(b, normalised(g, two(g, OP_add, old, y)));
    check(g, OP_NONE, false, "residual of rows");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cast_in_a_norm),   cmocka_unit_test(silu_twice),
        cmocka_unit_test(behind_a_gate),    cmocka_unit_test(update_of_a_cast),
        cmocka_unit_test(rows_of_a_mask),   cmocka_unit_test(infinite_terms),
        cmocka_unit_test(mask_of_more),     cmocka_unit_test(unread_length),
        cmocka_unit_test(repeats_by_shape), cmocka_unit_test(residual_of_rows),
    };
    cmocka_set_test_filter(getenv("MILLET_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
