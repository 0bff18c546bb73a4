/* Ops that only Core AI assets have, and what their graphs are full of: definitions by formulas, plans
 * against the evaluator. */
#include "plan_graph.h"

static graph *begin_coreai(uint64_t seed) {
    graph *g = begin(seed);
    g->b.f->spec = IR_SPEC_COREAI;
    return g;
}

/* Elements of a list of integers, each a vector of one. */
static ir_value *list(graph *g, ir_value *const *v, uint32_t n) {
    return b_opv(&g->b, OP_concat, NULL, A_values, v, n, A_axis, b_i32(&g->b, 0), A_NONE);
}

/* Positions of all tokens so far come in; the last ones are read, and their number says where a cache ends.
 */
static void seen_positions(void **state) {
    (void)state;
    for (int tokens = 1; tokens <= 3; tokens += 2)
        for (int64_t length = tokens; length <= 24; length += 7) {
            graph *g = begin_coreai((uint64_t)length);
            ir_builder *b = &g->b;
            g->length = length;
            ir_value *q = b_input(b, "q", IR_TYPE(DT_FP16, 1, 4, tokens, 16)),
                     *p = b_input(b, "p", IR_TYPE(DT_INT32, 1, IR_DIM_UNKNOWN)), *side[2];
            ir_value *total = b_op(b, OP_slice_by_index, NULL, A_x, one(g, OP_shape, p), A_begin,
                                   B_INTS(b, 1), A_end, B_INTS(b, 2), A_NONE);
            ir_value *first = two(g, OP_sub, total, B_INTS(b, tokens));
            ir_value *tail = b_op(b, OP_slice_by_index, NULL, A_x, p, A_begin,
                                  list(g, (ir_value *[]){B_INTS(b, 0), first}, 2), A_end,
                                  list(g, (ir_value *[]){B_INTS(b, 1), total}, 2), A_NONE);
            ir_value *end = list(g, (ir_value *[]){B_INTS(b, 1), B_INTS(b, 2), total, B_INTS(b, 16)}, 4);
            for (int i = 0; i < 2; i++) {
                ir_value *all = b_op(b, OP_read_state, NULL, A_input,
                                     b_state(b, i ? "v" : "k", IR_TYPE(DT_FP16, 1, 2, 24, 16)), A_NONE);
                ir_value *seen = b_op(b, OP_slice_by_index, NULL, A_x, all, A_begin, B_INTS(b, 0, 0, 0, 0),
                                      A_end, end, A_NONE);
                ir_value *wide = b_op(b, OP_expand_dims, NULL, A_x, seen, A_axes, B_INTS(b, 2), A_NONE);
                wide = b_op(b, OP_tile, NULL, A_x, wide, A_reps, B_INTS(b, 1, 1, 2, 1, 1), A_NONE);
                side[i] = b_op(b, OP_reshape, NULL, A_x, wide, A_shape, B_INTS(b, 1, 4, -1, 16), A_NONE);
            }
            b_output(b, cast(g, tail, "fp32"));
            b_output(b, b_op(b, OP_causal_attention, NULL, A_query, q, A_key, side[0], A_value, side[1],
                             A_scale, b_f32(b, 0.25f), A_NONE));
            check(g, OP_fused_attention, true, "seen positions");
        }
}

/* Query i of T sees keys 0 .. S - T + i: by the formula, in double. */
static void causal_formula(void **state) {
    (void)state;
    enum { T = 3, S = 7, D = 8, H = 2 };
    graph *g = begin_coreai(3);
    ir_builder *b = &g->b;
    ir_value *q = b_input(b, "q", IR_TYPE(DT_FP32, 1, H, T, D)),
             *k = b_input(b, "k", IR_TYPE(DT_FP32, 1, H, S, D)),
             *v = b_input(b, "v", IR_TYPE(DT_FP32, 1, H, S, D));
    b_output(b, b_op(b, OP_causal_attention, NULL, A_query, q, A_key, k, A_value, v, A_scale, b_f32(b, 0.5f),
                     A_NONE));
    finish(g);
    ref_tensor unused[MOST] = {0};
    evaluate(g, g->p->func[0], false, 1, unused, g->out);
    const float *x[3] = {ref_floats(&g->in[0]), ref_floats(&g->in[1]), ref_floats(&g->in[2])};
    for (int h = 0; h < H; h++)
        for (int i = 0; i < T; i++) {
            double w[S], sum = 0;
            int n = S - T + i + 1;
            for (int j = 0; j < n; j++) {
                w[j] = 0;
                for (int d = 0; d < D; d++)
                    w[j] += (double)x[0][(h * T + i) * D + d] * (double)x[1][(h * S + j) * D + d];
                sum += w[j] = exp(w[j] * 0.5);
            }
            for (int d = 0; d < D; d++) {
                double y = 0;
                for (int j = 0; j < n; j++) y += w[j] / sum * (double)x[2][(h * S + j) * D + d];
                assert_true(fabs(y - (double)ref_floats(&g->out[0])[(h * T + i) * D + d]) < 1e-6);
            }
        }
    drop(g->out);
    end(g);
}

static void repeats(void **state) {
    (void)state;
    graph *g = begin_coreai(4);
    ir_builder *b = &g->b;
    ir_value *x = b_input(b, "x", IR_TYPE(DT_FP16, 3, 1, 5)),
             *y = b_op(b, OP_broadcast_to, NULL, A_x, x, A_shape, B_INTS(b, 2, -1, 4, 5), A_NONE);
    b_output(b, one(g, OP_exp, y));
    finish(g);
    ref_tensor unused[MOST] = {0};
    evaluate(g, g->p->func[0], true, 1, unused, g->out);
    for (int64_t i = 0; i < 2 * 3 * 4 * 5; i++) {
        float want = num_round_f16(expf(ref_floats(&g->in[0])[i / 20 % 3 * 5 + i % 5]));
        assert_true(fabsf(ref_floats(&g->out[0])[i] - want) <= 0x1p-10f * want);
    }
    drop(g->out);
    check_made(g, OP_NONE, false, "repeats");
}

/* Numbers that bf16 and the two forms of fp8 have, from their definitions: the nearest one, ties to even. */
static void roundings(void **state) {
    (void)state;
    static const struct {
        const char *as;
        float x[6], y[6];
    } want[] = {
        {"bf16",
         {1.00390625f, 1.01171875f, 1.005f, -3e38f, 1e-40f, 0},
         {1, 1.015625f, 1.0078125f, -226 * 0x1p120f, 0x1p-133f, 0}},
        {"fp8e4m3fn",
         {1.0625f, 1.1875f, 448, 463, 0.001f, -7.5f * 0x1p-9f},
         {1, 1.25f, 448, 448, 0x1p-9f, -8 * 0x1p-9f}},
        {"fp8e5m2", {1.125f, 1.375f, 57344, -1.3f, 1e-6f, 0.3f}, {1, 1.5f, 57344, -1.25f, 0, 0.3125f}},
    };
    for (size_t k = 0; k < 3; k++) {
        graph *g = begin_coreai(5);
        ir_builder *b = &g->b;
        ir_value *x = b_input(b, "x", IR_TYPE(DT_FP32, 6));
        b_output(b, b_op(b, OP_round_as, NULL, A_x, x, A_dtype, b_text(b, want[k].as), A_NONE));
        finish(g);
        memcpy(ref_floats(&g->in[0]), want[k].x, sizeof want[k].x);
        ref_tensor unused[MOST] = {0};
        evaluate(g, g->p->func[0], false, 1, unused, g->out);
        for (int i = 0; i < 6; i++) {
            float y = ref_floats(&g->out[0])[i];
            if (!(fabsf(y - want[k].y[i]) <= 1e-5f * fabsf(want[k].y[i])))
                fail_msg("%s of %g is %g, expected %g", want[k].as, (double)want[k].x[i], (double)y,
                         (double)want[k].y[i]);
        }
        drop(g->out);
        end(g);
    }
}

/* A state that is read once, updated part by part and written once; each part is looked at in between. late:
 * an old one behind the next update, which must not have changed it. */
static void updates_in_a_row(void **state) {
    (void)state;
    for (int late = 0; late < 3; late++) {
        graph *g = begin_coreai(20);
        ir_builder *b = &g->b;
        ir_value *s = b_state(b, "s", IR_TYPE(DT_FP16, 3, 4, 8)),
                 *x = b_input(b, "x", IR_TYPE(DT_FP16, 1, 2, 8)),
                 *at = b_input(b, "at", IR_TYPE(DT_INT32, 1));
        ir_value *v = b_op(b, OP_read_state, NULL, A_input, s, A_NONE), *old = v;
        at = b_op(b, OP_minimum, NULL, A_x, at, A_y, B_INTS(b, 2), A_NONE);
        for (int layer = 0; layer < 3; layer++) {
            ir_value *begin_at = list(g, (ir_value *[]){B_INTS(b, layer), at, B_INTS(b, 0)}, 3),
                     *end_at = list(
                         g,
                         (ir_value *[]){B_INTS(b, layer + 1), two(g, OP_add, at, B_INTS(b, 2)), B_INTS(b, 8)},
                         3);
            ir_value *next =
                b_op(b, OP_slice_update, NULL, A_x, v, A_update, x, A_begin, begin_at, A_end, end_at, A_NONE);
            if (layer == late) old = v;
            v = next;
            ir_value *seen = b_op(b, OP_slice_by_index, NULL, A_x, v, A_begin, B_INTS(b, layer, 0, 0), A_end,
                                  B_INTS(b, layer + 1, 2, 8), A_NONE);
            x = two(g, OP_add, one(g, OP_tanh, seen), x);
        }
        b_output(b, x);
        if (late) b_output(b, one(g, OP_exp, old));
        write_state(g, s, v);
        check(g, OP_NONE, false, "updates in a row");
    }
}

/* ---- recurrences as exporters write them ---- */

static ir_value *sum_rows(graph *g, ir_value *x) {
    return b_op(&g->b, OP_reduce_sum, NULL, A_x, x, A_axes, B_INTS(&g->b, x->type.rank - 2), A_keep_dims,
                b_bool(&g->b, true), A_NONE);
}

static ir_value *read_of(graph *g, ir_value *s) {
    return b_op(&g->b, OP_read_state, NULL, A_input, s, A_NONE);
}

/* One token in fp32, products as sums of rows. */
enum {
    HALF_STATE,   /* the memory is an fp16 state that is widened, and rounded again */
    WIDE_STATE,   /* it is one in fp32 */
    FRONT_STATE,  /* the same with a one in front, which sums and keys lack */
    WIDE_INPUT,   /* it comes in and goes out */
    SEEN_TWICE,   /* of an fp16 state the unrounded memory is used, too: it stays as it is */
    ACROSS_HEADS, /* beta is one of columns, of which there are as many as heads: it stays as it is */
    DELTA_FORMS
};

static void delta_form(int form) {
    graph *g = begin_coreai((uint64_t)form + 70);
    ir_builder *b = &g->b;
    bool front = form == FRONT_STATE, half = form == HALF_STATE || form == SEEN_TWICE;
    int H = 3, dk = 16, dv = form == ACROSS_HEADS ? 3 : 24;
    ir_type t = front ? IR_TYPE(DT_FP32, 1, 1, H, dk, dv) : IR_TYPE(DT_FP32, 1, H, dk, dv);
    if (half) t.dtype = DT_FP16;
    bool is_state = form != WIDE_INPUT;
    ir_value *s = is_state ? b_state(b, "s", t) : b_input(b, "s", t),
             *q = b_input(b, "q", IR_TYPE(DT_FP32, 1, H, dk, 1)),
             *k = b_input(b, "k", IR_TYPE(DT_FP32, 1, H, dk, 1)),
             *v = b_input(b, "v", IR_TYPE(DT_FP32, 1, H, dv)),
             *beta = b_input(b, "b",
                             form == ACROSS_HEADS ? IR_TYPE(DT_FP32, 1, 1, dv) : IR_TYPE(DT_FP32, 1, H, 1)),
             *decay = b_input(b, "d", front ? IR_TYPE(DT_FP32, 1, 1, H, 1, 1) : IR_TYPE(DT_FP32, 1, H, 1, 1));
    ir_value *flat = B_INTS(b, 1, H, dk, dv), *line = B_INTS(b, 1, H, dv), *row = B_INTS(b, 1, H, 1, dv);
    ir_value *deep = B_INTS(b, 1, 1, H, dk, dv), *column = B_INTS(b, 1, 1, H, dk, 1);
    ir_value *memory = is_state ? read_of(g, s) : s;
    if (half) memory = cast(g, memory, "fp32");
    ir_value *S = two(g, OP_mul, memory, decay),
             *recall = two(g, OP_mul, S, front ? shaped(g, k, column) : k);
    recall = sum_rows(g, front ? shaped(g, recall, flat) : recall);
    ir_value *d = two(g, OP_mul, two(g, OP_sub, v, shaped(g, recall, line)), beta);
    ir_value *more = two(g, OP_mul, k, shaped(g, d, row));
    S = two(g, OP_add, S, front ? shaped(g, more, deep) : more);
    ir_value *y = two(g, OP_mul, S, front ? shaped(g, q, column) : q);
    y = sum_rows(g, front ? shaped(g, y, flat) : y);
    if (form == SEEN_TWICE) b_output(b, one(g, OP_tanh, S));
    ir_value *kept = half ? cast(g, S, "fp16") : S;
    if (is_state)
        write_state(g, s, kept);
    else
        b_output(b, kept);
    b_output(b, shaped(g, y, B_INTS(b, 1, 1, H, dv)));
    if (form < SEEN_TWICE) g->moved = (uint64_t)(2 * H * dk * dv * (half ? 2 : 4)) * is_state; /* in place */
    check(g, form < SEEN_TWICE ? OP_fused_delta : OP_add, true, "delta rule in fp32");
}

static void delta_forms(void **state) {
    (void)state;
    for (int form = 0; form < DELTA_FORMS; form++) delta_form(form);
}

/* Rows of unit length for each of G heads, repeated for R heads of the memory each: columns [1,GR,n,1] in
 * fp32. */
static ir_value *shared_columns(graph *g, ir_value *x, int G, int R, int n) {
    ir_builder *b = &g->b;
    x = b_op(b, OP_broadcast_to, NULL, A_x, shaped(g, x, B_INTS(b, 1, 1, G, 1, n)), A_shape,
             B_INTS(b, -1, -1, -1, R, -1), A_NONE);
    x = shaped(g, x, B_INTS(b, 1, G * R, 1, n));
    ir_value *sum = b_op(b, OP_reduce_sum, NULL, A_x, two(g, OP_mul, x, x), A_axes, B_INTS(b, 3), A_keep_dims,
                         b_bool(b, true), A_NONE);
    bool half = x->type.dtype == DT_FP16;
    ir_value *eps = half ? b_f16(b, 1e-3f) : b_f32(b, 1e-6f);
    ir_value *root = b_op(b, OP_rsqrt, NULL, A_x, two(g, OP_add, sum, eps), A_epsilon,
                          half ? b_f16(b, 0) : b_f32(b, 0), A_NONE);
    x = two(g, OP_mul, x, root);
    return shaped(g, half ? cast(g, x, "fp32") : x, B_INTS(b, 1, G * R, n, 1));
}

/* Queries and keys for fewer heads than the memory has: the rule takes them as they are. With keys for all of
 * them it takes what is repeated. */
static void shared_heads(void **state) {
    (void)state;
    enum { G = 2, R = 3, H = G * R, DK = 16, DV = 24 };
    for (int form = 0; form < 3; form++) {
        graph *g = begin_coreai(90);
        ir_builder *b = &g->b;
        bool half = form == 1, other = form == 2;
        ir_dtype d = half ? DT_FP16 : DT_FP32;
        ir_value *s = b_state(b, "s", IR_TYPE(DT_FP32, 1, H, DK, DV)),
                 *q = b_input(b, "q", IR_TYPE(d, 1, 1, G * DK)),
                 *k = b_input(b, "k", other ? IR_TYPE(DT_FP32, 1, H, DK, 1) : IR_TYPE(d, 1, 1, G * DK)),
                 *v = b_input(b, "v", IR_TYPE(DT_FP32, 1, H, DV)),
                 *beta = b_input(b, "b", IR_TYPE(DT_FP32, 1, H, 1)),
                 *decay = b_input(b, "d", IR_TYPE(DT_FP32, 1, H, 1, 1));
        q = shared_columns(g, q, G, R, DK);
        if (!other) k = shared_columns(g, k, G, R, DK);
        ir_value *S = two(g, OP_mul, read_of(g, s), decay);
        ir_value *recall = shaped(g, sum_rows(g, two(g, OP_mul, S, k)), B_INTS(b, 1, H, DV));
        ir_value *change = two(g, OP_mul, two(g, OP_sub, v, recall), beta);
        S = two(g, OP_add, S, two(g, OP_mul, k, shaped(g, change, B_INTS(b, 1, H, 1, DV))));
        b_output(b, sum_rows(g, two(g, OP_mul, S, q)));
        write_state(g, s, S);
        finish(g);
        ir_type types[MOST];
        for (size_t i = 0; i < 6; i++) types[i] = g->in[i].type;
        ir_function *f = opt_specialize(ir_program_new(g->a), g->p->func[0], types, false, &g->e);
        opt_fuse(&(ir_program){.a = g->a}, f, false);
        assert_int_equal(count(f, OP_broadcast_to), other);
        check_made(g, OP_fused_delta, true, "heads that share queries and keys");
    }
}

/* What is kept of the history is taken behind the convolution; in fp16 and in fp32. */
static void late_conv_steps(void **state) {
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        graph *g = begin_coreai(80);
        ir_builder *b = &g->b;
        ir_dtype d = wide ? DT_FP32 : DT_FP16;
        ir_value *u = b_input(b, "u", IR_TYPE(d, 1, 20, 1)), *s = b_state(b, "s", IR_TYPE(d, 1, 20, 3));
        ir_value *both[2] = {read_of(g, s), u};
        ir_value *history = b_opv(b, OP_concat, NULL, A_values, both, 2, A_axis, b_i32(b, 2), A_interleave,
                                  b_bool(b, false), A_NONE);
        ir_value *y = b_op(b, OP_conv, NULL, A_x, history, A_weight, constant(g, d, IR_TYPE(d, 20, 1, 4)),
                           A_groups, b_i32(b, 20), A_NONE);
        write_state(g, s,
                    b_op(b, OP_slice_by_index, NULL, A_x, history, A_begin, B_INTS(b, 0, 0, 1), A_end,
                         B_INTS(b, 1, 20, 4), A_NONE));
        b_output(b, one(g, OP_silu, y));
        check(g, OP_fused_conv_step, true, "convolution");
    }
}

/* log(1 + exp(y)) where y is at most so much, else y. Where that is little it is no softplus. */
static void softplus_by_select(void **state) {
    (void)state;
    for (int form = 0; form < 2; form++) {
        graph *g = begin_coreai(81);
        ir_builder *b = &g->b;
        ir_value *x = b_input(b, "x", IR_TYPE(DT_FP32, 1, 40)), *y = two(g, OP_mul, x, b_f32(b, 30));
        ir_value *log = b_op(b, OP_log, NULL, A_x, two(g, OP_add, one(g, OP_exp, y), b_f32(b, 1)), A_epsilon,
                             b_f32(b, 0), A_NONE);
        b_output(b, b_op(b, OP_select, NULL, A_cond, two(g, OP_greater, y, b_f32(b, form ? 2 : 20)), A_a, y,
                         A_b, log, A_NONE));
        check(g, form ? OP_select : OP_softplus, true, "softplus by select");
    }
}

/* Rows of unit length in fp16, widened and scaled. In strict mode squares round. */
static void unit_rows_scaled(void **state) {
    (void)state;
    graph *g = begin_coreai(82);
    ir_builder *b = &g->b;
    ir_value *x = b_input(b, "x", IR_TYPE(DT_FP16, 1, 4, 1, 16));
    ir_value *sum = b_op(b, OP_reduce_sum, NULL, A_x, two(g, OP_mul, x, x), A_axes, B_INTS(b, 3), A_keep_dims,
                         b_bool(b, true), A_NONE);
    ir_value *unit = two(
        g, OP_mul, x,
        b_op(b, OP_rsqrt, NULL, A_x, two(g, OP_add, sum, b_f16(b, 1e-6f)), A_epsilon, b_f16(b, 0), A_NONE));
    b_output(b, two(g, OP_mul, cast(g, unit, "fp32"), b_f32(b, 0.25f)));
    check(g, OP_fused_norm, false, "unit rows, scaled");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seen_positions),
        cmocka_unit_test(causal_formula),
        cmocka_unit_test(repeats),
        cmocka_unit_test(roundings),
        cmocka_unit_test(updates_in_a_row),
        cmocka_unit_test(delta_forms),
        cmocka_unit_test(late_conv_steps),
        cmocka_unit_test(shared_heads),
        cmocka_unit_test(softplus_by_select),
        cmocka_unit_test(unit_rows_scaled),
    };
    cmocka_set_test_filter(getenv("MILLET_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
