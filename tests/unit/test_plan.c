/* Plans and fusing against the reference evaluator: every pattern before and after, random graphs, in both
 * number modes, with one thread and with several. What the evaluator computes is tested on its own (test_ops,
 * test_cases). Tolerances: fast 1e-4 relative (sums in another order); strict 2 ulp of fp16 and 1e-5. */
#include "plan_graph.h"

static void norms(void **state) {
    (void)state;
    for (int form = 0; form < 12; form++) {
        graph *g = begin((uint64_t)form);
        bool wide = form % 2, weight = form / 2 % 2;
        ir_dtype d = wide ? DT_FP32 : DT_FP16;
        ir_value *x = b_input(&g->b, "x", IR_TYPE(d, 2, 3, 40)),
                 *eps = wide ? b_f32(&g->b, 1e-6f) : b_f16(&g->b, 1e-3f);
        int spelling = form / 4;
        ir_value *square = spelling == 0   ? one(g, OP_square, x)
                           : spelling == 1 ? two(g, OP_pow, x, wide ? b_f32(&g->b, 2) : b_f16(&g->b, 2))
                                           : two(g, OP_mul, x, x);
        ir_value *mean = b_op(&g->b, OP_reduce_mean, NULL, A_x, square, A_axes, B_INTS(&g->b, -1),
                              A_keep_dims, b_bool(&g->b, true), A_NONE);
        if (spelling) mean = two(g, OP_add, mean, eps);
        ir_value *scale = b_op(&g->b, OP_rsqrt, NULL, A_x, mean, A_epsilon,
                               b_f32(&g->b, spelling ? 1e-12f : 1e-6f), A_NONE);
        ir_value *y = two(g, OP_mul, x, scale);
        if (weight && wide) y = cast(g, y, "fp16");
        if (weight) y = two(g, OP_mul, constant(g, DT_FP16, IR_TYPE(DT_FP16, 40)), y);
        b_output(&g->b, one(g, OP_identity, y));
        check(g, OP_fused_norm, wide, "norm");
    }
}

static ir_value *negated(graph *g, ir_value *x) {
    return two(g, OP_mul, x, b_type(&g->b, x).dtype == DT_FP16 ? b_f16(&g->b, -1) : b_f32(&g->b, -1));
}

static ir_value *side_by_side(graph *g, ir_value *x, ir_value *y) {
    return b_opv(&g->b, OP_concat, NULL, A_values, (ir_value *[]){x, y}, 2, A_axis, b_i32(&g->b, -1),
                 A_interleave, b_bool(&g->b, false), A_NONE);
}

static ir_value *columns(graph *g, ir_value *x, int from, int to) {
    ir_type t = b_type(&g->b, x);
    int32_t begin[4] = {0}, end[4];
    for (int d = 0; d < t.rank; d++) end[d] = (int32_t)t.dim[d];
    begin[t.rank - 1] = from, end[t.rank - 1] = to;
    return b_op(&g->b, OP_slice_by_index, NULL, A_x, x, A_begin, b_ints(&g->b, begin, (size_t)t.rank), A_end,
                b_ints(&g->b, end, (size_t)t.rank), A_NONE);
}

/* A layer norm of x and -x side by side. */
static void doubled_norms(void **state) {
    (void)state;
    graph *g = begin(3);
    ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP16, 1, 3, 40));
    ir_value *y = b_op(&g->b, OP_layer_norm, NULL, A_x, side_by_side(g, x, negated(g, x)), A_axes,
                       B_INTS(&g->b, -1), A_epsilon, b_f16(&g->b, 1e-3f), A_NONE);
    b_output(&g->b, two(g, OP_mul, columns(g, y, 0, 40), constant(g, DT_FP16, IR_TYPE(DT_FP16, 40))));
    check(g, OP_fused_norm, true, "doubled norm");
}

static void activations(void **state) {
    (void)state;
    graph *g = begin(5);
    ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP16, 1, 3, 300)),
             *y = b_input(&g->b, "y", IR_TYPE(DT_FP16, 1, 3, 300));
    b_output(&g->b, two(g, OP_mul, one(g, OP_silu, x), y));
    check(g, OP_fused_swiglu, true, "swiglu");
}

static ir_value *turn(graph *g, ir_value *x, ir_value *cos, ir_value *sin, int half) {
    ir_value *part[2];
    b_op_multi(&g->b, OP_split, NULL, part, 2, A_x, x, A_split_sizes, B_INTS(&g->b, half, half), A_axis,
               b_i32(&g->b, -1), A_NONE);
    ir_value *turned[2] = {two(g, OP_mul, part[1], b_f32(&g->b, -1)), part[0]};
    ir_value *other = b_opv(&g->b, OP_concat, NULL, A_values, turned, 2, A_axis, b_i32(&g->b, -1),
                            A_interleave, b_bool(&g->b, false), A_NONE);
    return two(g, OP_add, two(g, OP_mul, x, cos), two(g, OP_mul, other, sin));
}

static void rotations(void **state) {
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        graph *g = begin(7);
        ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP32, 1, 2, 3, 24)), *part[2] = {x};
        ir_value *cos = b_input(&g->b, "cos", IR_TYPE(DT_FP32, 3, pass ? 16 : 24)),
                 *sin = b_input(&g->b, "sin", IR_TYPE(DT_FP32, 3, pass ? 16 : 24));
        if (pass)
            b_op_multi(&g->b, OP_split, NULL, part, 2, A_x, x, A_split_sizes, B_INTS(&g->b, 16, 8), A_axis,
                       b_i32(&g->b, -1), A_NONE);
        ir_value *y = turn(g, part[0], cos, sin, pass ? 8 : 12);
        if (pass)
            y = b_opv(&g->b, OP_concat, NULL, A_values, (ir_value *[]){y, part[1]}, 2, A_axis,
                      b_i32(&g->b, -1), A_interleave, b_bool(&g->b, false), A_NONE);
        b_output(&g->b, y);
        check(g, OP_fused_rope, true, "rope");
    }
}

static void rotations_by_slices(void **state) {
    (void)state;
    graph *g = begin(8);
    ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP16, 1, 2, 3, 24));
    ir_value *cos = b_input(&g->b, "cos", IR_TYPE(DT_FP16, 1, 1, 3, 24)),
             *sin = b_input(&g->b, "sin", IR_TYPE(DT_FP16, 1, 1, 3, 24));
    ir_value *other = side_by_side(g, negated(g, columns(g, x, 12, 24)), columns(g, x, 0, 12));
    b_output(&g->b, two(g, OP_add, two(g, OP_mul, x, cos), two(g, OP_mul, other, sin)));
    check(g, OP_fused_rope, true, "rope");
}

/* Keys and values repeated for every query head, in two spellings. */
static ir_value *repeated(graph *g, ir_value *k, int spelling, int32_t depth) {
    ir_builder *b = &g->b;
    if (spelling) {
        k = b_op(b, OP_expand_dims, NULL, A_x, k, A_axes, B_INTS(b, 2), A_NONE);
        k = b_op(b, OP_tile, NULL, A_x, k, A_reps, B_INTS(b, 1, 1, 3, 1, 1), A_NONE);
        return shaped(g, k, B_INTS(b, 1, 6, 70, depth));
    }
    k = b_op(b, OP_transpose, NULL, A_x, k, A_perm, B_INTS(b, 1, 0, 2, 3), A_NONE);
    k = shaped(g, b_op(b, OP_tile, NULL, A_x, k, A_reps, B_INTS(b, 3, 1, 1, 1), A_NONE),
               B_INTS(b, 3, 2, 1, 70, depth));
    k = b_op(b, OP_transpose, NULL, A_x, k, A_perm, B_INTS(b, 1, 0, 2, 3, 4), A_NONE);
    return b_op(b, OP_transpose, NULL, A_x, shaped(g, k, B_INTS(b, 6, 1, 70, depth)), A_perm,
                B_INTS(b, 1, 0, 2, 3), A_NONE);
}

static void repeated_heads(void **state) {
    (void)state;
    for (int spelling = 0; spelling < 2; spelling++) {
        graph *g = begin(21);
        ir_builder *b = &g->b;
        ir_value *q = b_input(b, "q", IR_TYPE(DT_FP16, 1, 6, 2, 40)),
                 *k = b_input(b, "k", IR_TYPE(DT_FP16, 1, 2, 70, 40)),
                 *v = b_input(b, "v", IR_TYPE(DT_FP16, 1, 2, 70, 36));
        float m[140];
        for (int i = 0; i < 140; i++) m[i] = i % 70 > 50 + i / 70 ? -INFINITY : 0;
        b_output(b, b_op(b, OP_scaled_dot_product_attention, NULL, A_query, q, A_key,
                         repeated(g, k, spelling, 40), A_value, repeated(g, v, spelling, 36), A_attn_mask,
                         b_floats(b, DT_FP16, m, IR_TYPE(DT_FP16, 1, 1, 2, 70)), A_NONE));
        check(g, OP_fused_attention, true, "repeated heads");
    }
}

/* Grouped heads over a cache, with a mask whose tail hides keys; with and without casts around. */
static void attentions(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        graph *g = begin(11 + (uint64_t)form);
        bool casts = form & 1;
        int64_t tokens = form & 2 ? 3 : 1;
        ir_builder *b = &g->b;
        ir_value *q = b_input(b, "q", IR_TYPE(DT_FP16, 1, 2, 3, tokens, 40));
        ir_value *cache = b_state(b, "k", IR_TYPE(DT_FP16, 1, 2, 70, 40)),
                 *v = b_input(b, "v", IR_TYPE(DT_FP16, 1, 2, 1, 70, 36));
        ir_value *k =
            shaped(g, b_op(b, OP_read_state, NULL, A_input, cache, A_NONE), B_INTS(b, 1, 2, 1, 70, 40));
        float *m = ARENA_ARRAY(g->a, float, (size_t)tokens * 70);
        for (int64_t i = 0; i < tokens * 70; i++) m[i] = i % 70 > 50 + i / 70 ? -30000 : 0;
        ir_value *mask =
            b_floats(b, casts ? DT_FP32 : DT_FP16, m, IR_TYPE(casts ? DT_FP32 : DT_FP16, tokens, 70));
        ir_value *s = b_op(b, OP_matmul, NULL, A_x, q, A_y, k, A_transpose_x, b_bool(b, false), A_transpose_y,
                           b_bool(b, true), A_NONE);
        if (casts)
            s = cast(g, s, "fp32");
        else
            s = two(g, OP_mul, s, b_f16(b, 0.15f));
        s = b_op(b, OP_softmax, NULL, A_x, two(g, OP_add, s, mask), A_axis, b_i32(b, -1), A_NONE);
        if (casts) s = cast(g, s, "fp16");
        b_output(b, b_op(b, OP_matmul, NULL, A_x, s, A_y, v, A_transpose_x, b_bool(b, false), A_transpose_y,
                         b_bool(b, false), A_NONE));
        check(g, OP_fused_attention, true, "attention");
    }
}

/* One token of the delta rule, its state in fp16 or as value and remainder. */
static void delta_rule(void **state) {
    (void)state;
    for (int split = 0; split < 2; split++) {
        graph *g = begin(13);
        ir_builder *b = &g->b;
        ir_dtype d = split ? DT_FP32 : DT_FP16;
        ir_value *q = b_input(b, "q", IR_TYPE(d, 2, 1, 1, 16)), *k = b_input(b, "k", IR_TYPE(d, 2, 1, 1, 16)),
                 *v = b_input(b, "v", IR_TYPE(d, 2, 2, 1, 24)),
                 *decay = b_input(b, "d", IR_TYPE(d, 2, 2, 1, 1)),
                 *beta = b_input(b, "b", IR_TYPE(d, 2, 2, 1, 1));
        ir_value *hi = b_state(b, "s", IR_TYPE(DT_FP16, 1, 4, 16, 24)),
                 *lo = split ? b_state(b, "l", IR_TYPE(DT_FP16, 1, 4, 16, 24)) : NULL;
        ir_value *read =
            split ? joined(g, hi, lo, "fp32") : b_op(b, OP_read_state, NULL, A_input, hi, A_NONE);
        ir_value *S = two(g, OP_mul, shaped(g, read, B_INTS(b, 2, 2, 16, 24)), decay);
        ir_value *no = b_bool(b, false);
        ir_value *recall =
            b_op(b, OP_matmul, NULL, A_x, k, A_y, S, A_transpose_x, no, A_transpose_y, no, A_NONE);
        ir_value *column = two(g, OP_mul, shaped(g, k, B_INTS(b, 2, 1, 16, 1)), beta);
        S = two(g, OP_add, S, two(g, OP_mul, column, two(g, OP_sub, v, recall)));
        ir_value *stored = shaped(g, S, B_INTS(b, 1, 4, 16, 24));
        if (split) {
            ir_value *half = cast(g, stored, "fp16");
            write_state(g, hi, half);
            write_state(g, lo, cast(g, two(g, OP_sub, stored, cast(g, half, "fp32")), "fp16"));
        } else {
            write_state(g, hi, stored);
        }
        b_output(b, b_op(b, OP_matmul, NULL, A_x, q, A_y, S, A_transpose_x, no, A_transpose_y, no, A_NONE));
        g->moved = (split ? 2 : 1) * 4 * 16 * 24 * 2 * 2; /* read and written */
        check(g, OP_fused_delta, true, "delta rule");
    }
}

static void conv_step(void **state) {
    (void)state;
    graph *g = begin(17);
    ir_builder *b = &g->b;
    ir_value *u = b_input(b, "u", IR_TYPE(DT_FP16, 1, 20, 1)),
             *s = b_state(b, "s", IR_TYPE(DT_FP16, 1, 20, 3));
    ir_value *both[2] = {b_op(b, OP_read_state, NULL, A_input, s, A_NONE), u};
    ir_value *history = b_opv(b, OP_concat, NULL, A_values, both, 2, A_axis, b_i32(b, 2), A_interleave,
                              b_bool(b, false), A_NONE);
    write_state(g, s,
                b_op(b, OP_slice_by_index, NULL, A_x, history, A_begin, B_INTS(b, 0, 0, 1), A_end,
                     B_INTS(b, 1, 20, 4), A_NONE));
    b_output(b, b_op(b, OP_conv, NULL, A_x, history, A_weight,
                     constant(g, DT_FP16, IR_TYPE(DT_FP16, 20, 1, 4)), A_groups, b_i32(b, 20), A_NONE));
    check(g, OP_fused_conv_step, true, "convolution");
}

/* ---- states ---- */

/* What was read before an update keeps its value, wherever it is used. */
static void reads_before_updates(void **state) {
    (void)state;
    for (int late = 0; late < 3; late++) {
        graph *g = begin(19);
        ir_builder *b = &g->b;
        ir_value *x = b_input(b, "x", IR_TYPE(DT_FP16, 1, 4)), *at = b_input(b, "at", IR_TYPE(DT_INT32, 1)),
                 *s = b_state(b, "s", IR_TYPE(DT_FP16, 6, 4));
        ir_value *old = b_op(b, OP_read_state, NULL, A_input, s, A_NONE), *zero = B_INTS(b, 0),
                 *four = B_INTS(b, 4);
        ir_value *next = two(g, OP_add, at, B_INTS(b, 1)), *no = b_bool(b, false);
        ir_value *begin_at = b_opv(b, OP_concat, NULL, A_values, (ir_value *[]){at, zero}, 2, A_axis,
                                   b_i32(b, 0), A_interleave, no, A_NONE);
        ir_value *end_at = b_opv(b, OP_concat, NULL, A_values, (ir_value *[]){next, four}, 2, A_axis,
                                 b_i32(b, 0), A_interleave, no, A_NONE);
        ir_value *seen =
            late == 2 ? b_op(b, OP_transpose, NULL, A_x, old, A_perm, B_INTS(b, 1, 0), A_NONE) : old;
        ir_value *new_s =
            b_op(b, OP_slice_update, NULL, A_x, old, A_update, x, A_begin, begin_at, A_end, end_at, A_NONE);
        write_state(g, s, new_s);
        ir_value *now = b_op(b, OP_read_state, NULL, A_input, s, A_NONE);
        if (late == 2) now = b_op(b, OP_transpose, NULL, A_x, now, A_perm, B_INTS(b, 1, 0), A_NONE);
        b_output(b, late ? two(g, OP_sub, now, seen) : one(g, OP_exp, now));
        check(g, OP_NONE, false, "update");
    }
}

/* ---- random graphs ---- */

static ir_value *weight(graph *g, int64_t n, int64_t k) {
    ir_builder *b = &g->b;
    int kind = (int)random_of(g, 3);
    if (kind == 0) return constant(g, DT_FP16, IR_TYPE(DT_FP16, n, k));
    uint8_t *codes = ARENA_ARRAY(g->a, uint8_t, (size_t)(n * k));
    for (int64_t i = 0; i < n * k; i++) codes[i] = (uint8_t)random_of(g, kind == 1 ? 16 : 255);
    if (kind == 1) { /* a palette of 16 for each half of the rows */
        uint8_t *packed = ARENA_ARRAY(g->a, uint8_t, (size_t)(n * k / 2 + 1));
        num_pack(packed, codes, (size_t)(n * k), 4);
        ir_value *index = b_const(b, NULL, ir_const_new(g->a, IR_TYPE(DT_UINT4, n, k), packed));
        return b_op(b, OP_constexpr_lut_to_dense, NULL, A_indices, index, A_lut,
                    constant(g, DT_FP16, IR_TYPE(DT_FP16, 2, 1, 16, 1)), A_NONE);
    }
    ir_value *data = b_const(b, NULL, ir_const_new(g->a, IR_TYPE(DT_INT8, n, k), codes));
    float *scale = ARENA_ARRAY(g->a, float, (size_t)n);
    for (int64_t i = 0; i < n; i++) scale[i] = num_round_f16(0.01f);
    return b_op(b, OP_constexpr_blockwise_shift_scale, NULL, A_data, data, A_scale,
                b_floats(b, DT_FP16, scale, IR_TYPE(DT_FP16, n, 1)), A_NONE);
}

static void residuals(void **state) {
    (void)state;
    for (int form = 0; form < 6; form++) {
        graph *g = begin((uint64_t)form + 30);
        ir_dtype d = form % 2 ? DT_FP32 : DT_FP16;
        ir_value *x = b_input(&g->b, "x", IR_TYPE(d, 2, 3, 64)),
                 *r = b_input(&g->b, "r", IR_TYPE(d, 2, 3, 32));
        ir_value *bias = form > 2 ? constant(g, DT_FP16, IR_TYPE(DT_FP16, 32)) : NULL;
        ir_value *y = b_op(&g->b, OP_linear, NULL, A_x, x, A_weight, weight(g, 32, 64), A_bias, bias, A_NONE);
        b_output(&g->b, two(g, OP_add, r, y));
        check(g, OP_fused_linear, d == DT_FP32, "residual");
    }
}

/* down(silu(gate(x)) * up(x)) of m rows, 64 -> n -> 32. seen: the product is a result, too. */
static graph *gated_graph(int64_t m, int64_t n, bool seen) {
    graph *g = begin(41);
    ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP32, 1, m, 64)), *part[2], *w[3];
    for (int i = 0; i < 3; i++) w[i] = weight(g, i < 2 ? n : 32, i < 2 ? 64 : n);
    for (int i = 0; i < 2; i++) part[i] = b_op(&g->b, OP_linear, NULL, A_x, x, A_weight, w[i], A_NONE);
    ir_value *y = two(g, OP_mul, one(g, OP_silu, part[0]), part[1]);
    b_output(&g->b, b_op(&g->b, OP_linear, NULL, A_x, y, A_weight, w[2], A_NONE));
    if (seen) b_output(&g->b, y);
    return g;
}

/* Gate, up, their product and its preparation are one step, which gives the bytes of the steps it replaces.
 */
static void gated_rows(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 2, PLAN_PREFILL, 40};
    for (size_t i = 0; i < 8; i++) {
        int64_t m = rows[i / 2], n = i % 2 ? 100 : 192;
        check(gated_graph(m, n, false), OP_fused_swiglu, true, "gated rows");
        check(gated_graph(m, n, true), OP_fused_swiglu, true, "gated rows that are seen");
        for (int path = KERN_EXACT; path <= KERN_INT8; path++) {
            ref_tensor out[2][MOST] = {0}, after[MOST] = {0};
            for (int seen = 0; seen < 2; seen++) {
                graph *g = gated_graph(m, n, seen);
                g->linear = (plan_linear){(kern_path)path, (kern_path)path};
                finish(g);
                walk(g, false, 1, 2, after, out[seen]);
                end(g);
            }
            assert_memory_equal(ref_floats(&out[0][0]), ref_floats(&out[1][0]), (size_t)m * 32 * 4);
            drop(out[0]), drop(out[1]);
        }
    }
}

/* What a path may lose, as a share of the sum of |x w| (kernels.h): rounding of x, of x and w, of sums. */
static const double path_loss[KERN_PATHS] = {[KERN_EXACT] = 64 * 0x1p-24,
                                             [KERN_INT16] = 0x1p-14,
                                             [KERN_BF16] = 0x1p-8 + 0x1p-18,
                                             [KERN_INT8] = 0x1p-6};

/* A linear of m rows, 64 -> 32, of int8 with scales; the same weights and rows for every m. */
static void linear_rows(int64_t m, kern_path path, plan_linear linear, float *y) {
    graph *g = begin(7);
    ir_value *w = weight(g, 32, 64), *x = b_input(&g->b, "x", IR_TYPE(DT_FP32, m, 64));
    b_output(&g->b, b_op(&g->b, OP_linear, NULL, A_x, x, A_weight, w, A_NONE));
    g->linear = linear;
    finish(g);
    ref_tensor want[MOST] = {0}, got[MOST] = {0}, state[MOST] = {0};
    evaluate(g, g->p->func[0], false, 1, state, want);
    walk(g, false, 1, 2, state, got);
    for (int64_t i = 0; i < m; i++) {
        double size = 0; /* of sum |x w|; no weight is above 1.28 */
        for (int64_t c = 0; c < 64; c++) size += 1.28 * fabs((double)ref_floats(&g->in[0])[64 * i + c]);
        for (int64_t r = 32 * i; r < 32 * i + 32; r++) {
            double error = fabs((double)ref_floats(&got[0])[r] - (double)ref_floats(&want[0])[r]);
            if (!(error <= size * path_loss[path]))
                fail_msg("%lld rows, %s: an error of %g", (long long)m, kern_path_name[path], error);
        }
    }
    memcpy(y, ref_floats(&got[0]), (size_t)m * 32 * 4);
    drop(want), drop(got);
    end(g);
}

/* Calls of few rows take one path, those of many the other; rows of the accurate paths don't know how many
 * there are. */
static void number_paths(void **state) {
    (void)state;
    float few[7 * 32], many[40 * 32];
    for (int path = KERN_EXACT; path < KERN_PATHS; path++) {
        linear_rows(PLAN_PREFILL - 1, KERN_EXACT, (plan_linear){KERN_EXACT, (kern_path)path}, few);
        linear_rows(PLAN_PREFILL - 1, (kern_path)path, (plan_linear){(kern_path)path, KERN_EXACT}, few);
        linear_rows(PLAN_PREFILL, (kern_path)path, (plan_linear){KERN_EXACT, (kern_path)path}, many);
        linear_rows(40, (kern_path)path, (plan_linear){KERN_EXACT, (kern_path)path}, many);
        if (path <= KERN_INT16) assert_memory_equal(few, many, sizeof few);
    }
}

/* Another [2,4,8] from one or two of them. */
static ir_value *random_op(graph *g, ir_value *x, ir_value *y) {
    ir_builder *b = &g->b;
    ir_value *part[2], *t;
    static const ir_opcode unary[] = {OP_silu, OP_sigmoid, OP_tanh,   OP_relu,
                                      OP_exp,  OP_abs,     OP_square, OP_sin};
    static const ir_opcode binary[] = {OP_add, OP_sub, OP_mul, OP_maximum, OP_minimum};
    ir_dtype d = (ir_dtype)b_type(b, x).dtype;
    switch (random_of(g, 13)) {
    case 0:
        return one(g, unary[random_of(g, 8)],
                   two(g, OP_minimum, x, d == DT_FP16 ? b_f16(b, 2) : b_f32(b, 2)));
    case 1: return two(g, binary[random_of(g, 5)], x, y);
    case 2: return two(g, binary[random_of(g, 3)], x, constant(g, d, IR_TYPE(d, random_of(g, 2) ? 1 : 4, 8)));
    case 3:
        t = b_op(b, OP_transpose, NULL, A_x, x, A_perm, B_INTS(b, 0, 2, 1), A_NONE);
        return shaped(g, t, B_INTS(b, 2, 4, 8));
    case 4:
        b_op_multi(b, OP_split, NULL, part, 2, A_x, x, A_split_sizes, B_INTS(b, 3, 5), A_axis, b_i32(b, 2),
                   A_NONE);
        return b_opv(b, OP_concat, NULL, A_values, (ir_value *[]){part[1], part[0]}, 2, A_axis, b_i32(b, 2),
                     A_interleave, b_bool(b, false), A_NONE);
    case 5: return b_op(b, OP_softmax, NULL, A_x, x, A_axis, b_i32(b, (int)random_of(g, 3)), A_NONE);
    case 6:
        t = b_op(b, random_of(g, 2) ? OP_reduce_mean : OP_reduce_max, NULL, A_x, x, A_axes,
                 B_INTS(b, (int)random_of(g, 3)), A_keep_dims, b_bool(b, true), A_NONE);
        return two(g, OP_sub, x, t);
    case 7: return b_op(b, OP_linear, NULL, A_x, x, A_weight, weight(g, 8, 8), A_NONE);
    case 8:
        t = b_op(b, OP_matmul, NULL, A_x, x, A_y, y, A_transpose_x, b_bool(b, false), A_transpose_y,
                 b_bool(b, true), A_NONE);
        return b_op(b, OP_matmul, NULL, A_x, t, A_y, y, A_transpose_x, b_bool(b, random_of(g, 2)),
                    A_transpose_y, b_bool(b, false), A_NONE);
    case 9: return d == DT_FP16 ? cast(g, cast(g, x, "fp32"), "fp16") : one(g, OP_identity, x);
    case 10:
        t = b_op(b, OP_slice_by_index, NULL, A_x, x, A_begin, B_INTS(b, 1, 0, 0), A_end, B_INTS(b, 2, 4, 8),
                 A_NONE);
        return two(g, OP_add, t, y);
    case 11:
        t = b_op(b, OP_slice_by_index, NULL, A_x, x, A_begin, B_INTS(b, 0, 3, 0), A_end, B_INTS(b, 2, 4, 8),
                 A_NONE);
        return b_op(b, OP_tile, NULL, A_x, t, A_reps, B_INTS(b, 1, 4, 1), A_NONE);
    default: return b_op(b, OP_select, NULL, A_cond, two(g, OP_greater, x, y), A_a, x, A_b, y, A_NONE);
    }
}

static void random_graphs(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        graph *g = begin(seed * 77 + 1);
        ir_dtype d = seed % 2 ? DT_FP16 : DT_FP32;
        ir_value *v[24];
        uint32_t n = 2;
        v[0] = b_input(&g->b, "x", IR_TYPE(d, 2, 4, 8));
        v[1] = b_input(&g->b, "y", IR_TYPE(d, 2, 4, 8));
        while (n < 10) {
            v[n] = random_op(g, v[random_of(g, n)], v[random_of(g, n)]);
            /* squashed, so that the graph stays near 1 and rounding is not blown up */
            v[n] = two(g, OP_mul, one(g, OP_tanh, v[n]), d == DT_FP16 ? b_f16(&g->b, 1) : b_f32(&g->b, 1));
            n++;
        }
        b_output(&g->b, v[n - 1]);
        b_output(&g->b, v[n - 2]);
        check(g, OP_NONE, false, "random graph");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(doubled_norms),
        cmocka_unit_test(rotations_by_slices),
        cmocka_unit_test(repeated_heads),
        cmocka_unit_test(activations),
        cmocka_unit_test(rotations),
        cmocka_unit_test(attentions),
        cmocka_unit_test(delta_rule),
        cmocka_unit_test(conv_step),
        cmocka_unit_test(reads_before_updates),
        cmocka_unit_test(residuals),
        cmocka_unit_test(gated_rows),
        cmocka_unit_test(number_paths),
        cmocka_unit_test(random_graphs),
    };
    cmocka_set_test_filter(getenv("MILLET_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
