/* Spellings of other converters against the reference evaluator: every pattern before and after, and its
 * plan, in both number modes (as in test_plan.c, whose tolerances hold). */
#include "plan_graph.h"

static ir_value *negated(graph *g, ir_value *x) {
    return two(g, OP_mul, x, b_type(&g->b, x).dtype == DT_FP16 ? b_f16(&g->b, -1) : b_f32(&g->b, -1));
}

static ir_value *behind(graph *g, ir_value *x, ir_value *y, int axis) {
    return b_opv(&g->b, OP_concat, NULL, A_values, (ir_value *[]){x, y}, 2, A_axis, b_i32(&g->b, axis),
                 A_interleave, b_bool(&g->b, false), A_NONE);
}

static ir_value *slice(graph *g, ir_value *x, int axis, int from, int to) {
    ir_type t = b_type(&g->b, x);
    int32_t begin[5] = {0}, end[5];
    if (axis < 0) axis += t.rank;
    for (int d = 0; d < t.rank; d++) end[d] = (int32_t)t.dim[d];
    begin[axis] = from, end[axis] = to;
    return b_op(&g->b, OP_slice_by_index, NULL, A_x, x, A_begin, b_ints(&g->b, begin, (size_t)t.rank), A_end,
                b_ints(&g->b, end, (size_t)t.rank), A_NONE);
}

static void split(graph *g, ir_value *x, int axis, int first, int second, ir_value **part) {
    b_op_multi(&g->b, OP_split, NULL, part, 2, A_x, x, A_split_sizes, B_INTS(&g->b, first, second), A_axis,
               b_i32(&g->b, axis), A_NONE);
}

static ir_value *product(graph *g, ir_value *x, bool tx, ir_value *y, bool ty) {
    return b_op(&g->b, OP_matmul, NULL, A_x, x, A_y, y, A_transpose_x, b_bool(&g->b, tx), A_transpose_y,
                b_bool(&g->b, ty), A_NONE);
}

static ir_value *swap(graph *g, ir_value *x, ir_value *perm) {
    return b_op(&g->b, OP_transpose, NULL, A_x, x, A_perm, perm, A_NONE);
}

/* ---- norms ---- */

/* A layer norm of x and -x behind each other along any axis; the weight in it (for both), behind it, or none;
 * the half cut off by split or by slice_by_index. */
static void doubled_norms(void **state) {
    (void)state;
    static const int axes[] = {1, 2, -1};
    for (int form = 0; form < 18; form++) {
        int axis = axes[form % 3], weight = form / 3 % 3, by_split = form / 9, at = axis < 0 ? 3 : axis;
        graph *g = begin((uint64_t)form);
        ir_type t = IR_TYPE(DT_FP16, 1, 20, 6, 10), ones = IR_TYPE(DT_FP16, 1, 1, 1, 1);
        ir_value *x = b_input(&g->b, "x", t), *half[2], *own = NULL;
        int n = (int)t.dim[at];
        ones.dim[at] = n;
        if (weight == 1) {
            float w[40];
            for (int i = 0; i < 2 * n; i++) w[i] = i < n ? number(g) : -w[i - n];
            own = b_floats(&g->b, DT_FP16, w, IR_TYPE(DT_FP16, 2 * n));
        }
        ir_value *y = b_op(&g->b, OP_layer_norm, NULL, A_x, behind(g, x, negated(g, x), axis), A_axes,
                           B_INTS(&g->b, axis), A_gamma, own, A_epsilon, b_f16(&g->b, 1e-3f), A_NONE);
        if (by_split)
            split(g, y, axis, n, n, half);
        else
            half[0] = slice(g, y, axis, 0, n);
        b_output(&g->b, weight == 2 ? two(g, OP_mul, half[0], constant(g, DT_FP16, ones)) : half[0]);
        check(g, OP_fused_norm, true, "doubled norm");
    }
}

/* With both halves in use it stays what it is. */
static void halves_in_use(void **state) {
    (void)state;
    graph *g = begin(2);
    ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP16, 1, 3, 40)), *half[2];
    ir_value *y = b_op(&g->b, OP_layer_norm, NULL, A_x, behind(g, x, negated(g, x), -1), A_axes,
                       B_INTS(&g->b, -1), A_epsilon, b_f16(&g->b, 1e-3f), A_NONE);
    split(g, y, -1, 40, 40, half);
    b_output(&g->b, half[0]);
    b_output(&g->b, half[1]);
    check(g, OP_layer_norm, true, "both halves");
}

/* L2 norms along an axis that is not the last, squares by mul or by pow, with a factor or without. */
static void l2_norms(void **state) {
    (void)state;
    for (int form = 0; form < 8; form++) {
        graph *g = begin((uint64_t)form);
        int axis = form & 1 ? 2 : -1;
        ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP16, 1, 4, 16, form & 1 ? 1 : 12));
        ir_value *square = form & 2 ? two(g, OP_pow, x, b_f16(&g->b, 2)) : two(g, OP_mul, x, x);
        ir_value *sum = b_op(&g->b, OP_reduce_sum, NULL, A_x, square, A_axes, B_INTS(&g->b, axis),
                             A_keep_dims, b_bool(&g->b, true), A_NONE);
        sum = two(g, OP_add, sum, b_f16(&g->b, 1e-3f));
        ir_value *y =
            two(g, OP_mul, x, b_op(&g->b, OP_rsqrt, NULL, A_x, sum, A_epsilon, b_f32(&g->b, 1e-12f), A_NONE));
        b_output(&g->b, form & 4 ? two(g, OP_mul, y, b_f16(&g->b, 0.25f)) : y);
        check(g, OP_fused_norm, false, "l2 norm");
    }
}

/* ---- rotations ---- */

/* (-x2, x1), the parts cut by split or by slice_by_index. */
static ir_value *crossed(graph *g, ir_value *x, int axis, bool by_split) {
    ir_type t = b_type(&g->b, x);
    int n = (int)t.dim[axis < 0 ? axis + t.rank : axis];
    ir_value *part[2] = {NULL};
    if (by_split)
        split(g, x, axis, n / 2, n / 2, part);
    else
        part[0] = slice(g, x, axis, 0, n / 2), part[1] = slice(g, x, axis, n / 2, n);
    return behind(g, negated(g, part[1]), part[0], axis);
}

static void rotations(void **state) {
    (void)state;
    for (int form = 0; form < 16; form++) {
        graph *g = begin((uint64_t)form);
        bool inner_split = form & 1, outer_split = form & 2, partial = form & 4, columns = form & 8;
        int axis = columns ? -2 : -1, whole = 24, n = partial ? 16 : 24;
        ir_value *x =
            b_input(&g->b, "x", columns ? IR_TYPE(DT_FP16, 1, 2, 24, 5) : IR_TYPE(DT_FP16, 1, 2, 5, 24));
        ir_type table = columns ? IR_TYPE(DT_FP16, 1, n, 5) : IR_TYPE(DT_FP16, 1, 1, 5, n);
        ir_value *cos = b_input(&g->b, "cos", table), *sin = b_input(&g->b, "sin", table), *part[2] = {x};
        if (partial && outer_split)
            split(g, x, axis, n, whole - n, part);
        else if (partial)
            part[0] = slice(g, x, axis, 0, n), part[1] = slice(g, x, axis, n, whole);
        ir_value *y = two(g, OP_add, two(g, OP_mul, part[0], cos),
                          two(g, OP_mul, crossed(g, part[0], axis, inner_split), sin));
        b_output(&g->b, partial ? behind(g, y, part[1], axis) : y);
        check(g, OP_fused_rope, true, "rope");
    }
}

/* (x1 cos - x2 sin, x2 cos + x1 sin) with tables of half a row. */
static void rotations_of_halves(void **state) {
    (void)state;
    graph *g = begin(4);
    ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP16, 1, 2, 3, 24)), *x1 = slice(g, x, -1, 0, 12),
             *x2 = slice(g, x, -1, 12, 24);
    ir_value *cos = b_input(&g->b, "cos", IR_TYPE(DT_FP16, 1, 1, 3, 12)),
             *sin = b_input(&g->b, "sin", IR_TYPE(DT_FP16, 1, 1, 3, 12));
    ir_value *low = two(g, OP_sub, two(g, OP_mul, x1, cos), two(g, OP_mul, x2, sin)),
             *high = two(g, OP_add, two(g, OP_mul, x2, cos), two(g, OP_mul, x1, sin));
    b_output(&g->b, behind(g, low, high, -1));
    check(g, OP_fused_rope, true, "rope of halves");
}

/* The first 16 elements turn, by tables of 8; the others pass. */
static void rotations_of_halves_in_part(void **state) {
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++) {
        graph *g = begin(4);
        ir_dtype d = dtype ? DT_FP16 : DT_FP32;
        ir_value *whole = b_input(&g->b, "x", IR_TYPE(d, 1, 2, 3, 40)), *part[2], *half[2];
        ir_value *cos = b_input(&g->b, "cos", IR_TYPE(d, 1, 1, 3, 8)),
                 *sin = b_input(&g->b, "sin", IR_TYPE(d, 1, 1, 3, 8));
        split(g, whole, -1, 16, 24, part);
        split(g, part[0], -1, 8, 8, half);
        ir_value *low = two(g, OP_sub, two(g, OP_mul, half[0], cos), two(g, OP_mul, half[1], sin)),
                 *high = two(g, OP_add, two(g, OP_mul, half[1], cos), two(g, OP_mul, half[0], sin));
        b_output(&g->b, behind(g, behind(g, low, high, -1), part[1], -1));
        finish(g);
        ir_type types[MOST];
        for (size_t i = 0; i < 3; i++) types[i] = g->in[i].type;
        ir_function *f = opt_specialize(ir_program_new(g->a), g->p->func[0], types, false, &g->e);
        opt_fuse(&(ir_program){.a = g->a}, f, false);
        assert_int_equal(count(f, OP_concat), 2); /* the tables, twice */
        check_made(g, OP_fused_rope, true, "rope of halves of a part");
    }
}

/* max(y, 0) + log1p(exp(-|y|)), with relu or with maximum; another floor than 0 is none. */
static void softpluses(void **state) {
    (void)state;
    for (int form = 0; form < 3; form++) {
        graph *g = begin((uint64_t)form);
        ir_value *y = b_input(&g->b, "y", IR_TYPE(DT_FP32, 1, 40)), *one_ = b_f32(&g->b, 1);
        ir_value *e = one(g, OP_exp, two(g, OP_mul, one(g, OP_abs, y), b_f32(&g->b, -1)));
        ir_value *u = two(g, OP_add, e, one_);
        ir_value *rest = two(g, OP_real_div, two(g, OP_sub, e, two(g, OP_sub, u, one_)), u);
        ir_value *log = two(g, OP_add, one(g, OP_log, u), rest);
        ir_value *top = form ? two(g, OP_maximum, y, b_f32(&g->b, form == 1 ? 0 : 0.5f)) : one(g, OP_relu, y);
        b_output(&g->b, two(g, OP_add, top, log));
        check(g, form < 2 ? OP_softplus : OP_maximum, true, "softplus");
    }
}

/* Parts that are not halves of the same row in this order don't rotate. */
static void no_rotation(void **state) {
    (void)state;
    graph *g = begin(4);
    ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP16, 1, 2, 3, 24));
    ir_value *cos = b_input(&g->b, "cos", IR_TYPE(DT_FP16, 1, 1, 3, 24)),
             *sin = b_input(&g->b, "sin", IR_TYPE(DT_FP16, 1, 1, 3, 24));
    ir_value *other = behind(g, negated(g, slice(g, x, -1, 0, 12)), slice(g, x, -1, 12, 24), -1);
    b_output(&g->b, two(g, OP_add, two(g, OP_mul, x, cos), two(g, OP_mul, other, sin)));
    check(g, OP_concat, true, "parts in order");
}

/* ---- activations ---- */

static void gates_in_other_shapes(void **state) {
    (void)state;
    graph *g = begin(5);
    ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP16, 1, 1, 60)),
             *y = b_input(&g->b, "y", IR_TYPE(DT_FP16, 1, 60, 1));
    b_output(&g->b, two(g, OP_mul, shaped(g, one(g, OP_silu, x), B_INTS(&g->b, 1, 60, 1)), y));
    check(g, OP_fused_swiglu, true, "swiglu");
}

static ir_value *spelled_softmax(graph *g, ir_value *x, int axis) {
    ir_value *yes = b_bool(&g->b, true), *a = B_INTS(&g->b, axis);
    ir_value *top = b_op(&g->b, OP_reduce_max, NULL, A_x, x, A_axes, a, A_keep_dims, yes, A_NONE);
    ir_value *e = one(g, OP_exp, two(g, OP_sub, x, top));
    return two(g, OP_real_div, e,
               b_op(&g->b, OP_reduce_sum, NULL, A_x, e, A_axes, a, A_keep_dims, yes, A_NONE));
}

static void softmaxes(void **state) {
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        graph *g = begin(6);
        ir_value *x = b_input(&g->b, "x", IR_TYPE(wide ? DT_FP32 : DT_FP16, 2, 3, 40));
        b_output(&g->b, spelled_softmax(g, x, -1));
        check(g, OP_softmax, wide, "softmax");
    }
}

/* ---- attention ---- */

static ir_value *hiding_mask(graph *g, int tokens, int keys, bool columns) {
    float *m = ARENA_ARRAY(g->a, float, (size_t)(tokens * keys));
    for (int i = 0; i < tokens * keys; i++) {
        int token = columns ? i % tokens : i / keys, key = columns ? i / tokens : i % keys;
        m[i] = key > keys - 20 + token ? -INFINITY : 0;
    }
    return b_floats(&g->b, DT_FP16, m,
                    columns ? IR_TYPE(DT_FP16, 1, 1, keys, tokens) : IR_TYPE(DT_FP16, 1, 1, tokens, keys));
}

/* Keys times queries: everything but the values is transposed, softmax runs down the columns. */
static void attention_by_columns(void **state) {
    (void)state;
    for (int tokens = 1; tokens <= 9; tokens += 4) {
        graph *g = begin(7);
        ir_value *q = b_input(&g->b, "q", IR_TYPE(DT_FP16, 1, 3, 16, tokens)),
                 *k = b_input(&g->b, "k", IR_TYPE(DT_FP16, 1, 1, 60, 16)),
                 *v = b_input(&g->b, "v", IR_TYPE(DT_FP16, 1, 1, 60, 12));
        ir_value *s = two(g, OP_mul, product(g, k, false, q, false), b_f16(&g->b, 0.25f));
        s = two(g, OP_add, s, hiding_mask(g, tokens, 60, true));
        s = b_op(&g->b, OP_softmax, NULL, A_x, s, A_axis, b_i32(&g->b, 2), A_NONE);
        b_output(&g->b, product(g, s, true, v, false));
        check(g, OP_fused_attention, true, "attention by columns");
    }
}

/* Heads repeated by tile and exchanged axes, keys transposed in the same breath, softmax spelled out. */
static void attention_of_tiles(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        graph *g = begin(8);
        ir_builder *b = &g->b;
        int tokens = form & 1 ? 9 : 1;
        bool spelled = form & 2;
        ir_value *q = b_input(b, "q", IR_TYPE(DT_FP16, 1, 4, tokens, 16)), *kv[2];
        for (int i = 0; i < 2; i++) {
            ir_value *x = b_input(b, i ? "v" : "k", IR_TYPE(DT_FP16, 1, 2, 60, 16));
            x = swap(g, x, B_INTS(b, 1, 0, 2, 3));
            x = b_op(b, OP_tile, NULL, A_x, x, A_reps, B_INTS(b, 2, 1, 1, 1), A_NONE);
            x = swap(g, shaped(g, x, B_INTS(b, 2, 2, 1, 60, 16)), B_INTS(b, 1, 0, 2, 3, 4));
            x = shaped(g, x, B_INTS(b, 4, 1, 60, 16));
            kv[i] = swap(g, x, i ? B_INTS(b, 1, 0, 2, 3) : B_INTS(b, 1, 0, 3, 2));
        }
        ir_value *s = two(g, OP_mul, product(g, q, false, kv[0], false), b_f16(b, 0.25f));
        s = two(g, OP_add, s, hiding_mask(g, tokens, 60, false));
        s = spelled ? spelled_softmax(g, s, -1)
                    : b_op(b, OP_softmax, NULL, A_x, s, A_axis, b_i32(b, -1), A_NONE);
        b_output(b, product(g, s, false, kv[1], false));
        check(g, OP_fused_attention, !spelled, "attention of tiles");
    }
}

/* ---- ops that have steps of their own ---- */

static void picks(void **state) {
    (void)state;
    graph *g = begin(9);
    ir_builder *b = &g->b;
    ir_value *x = b_input(b, "x", IR_TYPE(DT_FP16, 2, 30, 3)), *at = b_input(b, "at", IR_TYPE(DT_INT32, 5));
    for (int axis = 0; axis < 3; axis++) {
        ir_value *best = b_op(b, OP_reduce_argmax, NULL, A_x, x, A_axis, b_i32(b, axis), A_keep_dims,
                              b_bool(b, true), A_output_dtype, b_text(b, "int32"), A_NONE);
        b_output(b, best);
        b_output(b, b_op(b, OP_gather_along_axis, NULL, A_x, x, A_indices, best, A_axis, b_i32(b, axis),
                         A_validate_indices, b_bool(b, false), A_NONE));
    }
    b_output(b, b_op(b, OP_gather, NULL, A_x, constant(g, DT_FP16, IR_TYPE(DT_FP16, 1, 6, 8)), A_indices, at,
                     A_axis, b_i32(b, 1), A_batch_dims, b_i32(b, 0), A_validate_indices, b_bool(b, false),
                     A_NONE));
    check(g, OP_NONE, true, "picks");
}

static void reductions(void **state) {
    (void)state;
    static const ir_opcode codes[] = {OP_reduce_sum, OP_reduce_max, OP_reduce_log_sum_exp, OP_reduce_mean};
    for (int axis = -3; axis < 3; axis++) {
        graph *g = begin(10);
        ir_value *x = b_input(&g->b, "x", IR_TYPE(DT_FP16, 4, 5, 6));
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
            b_output(&g->b, b_op(&g->b, codes[i], NULL, A_x, x, A_axes, B_INTS(&g->b, axis), A_keep_dims,
                                 b_bool(&g->b, i & 1), A_NONE));
        check(g, OP_NONE, true, "reductions");
    }
}

/* ---- caches ---- */

static ir_value *read(graph *g, ir_value *state) {
    return b_op(&g->b, OP_read_state, NULL, A_input, state, A_NONE);
}

/* s (1 - m) + row m; half of the mask is 0. */
static ir_value *blended(graph *g, ir_value *s, ir_value *row, ir_value *m) {
    ir_value *rest = two(g, OP_sub, b_f16(&g->b, 1), m);
    return two(g, OP_add, two(g, OP_mul, s, rest), two(g, OP_mul, row, m));
}

static ir_value *mask_input(graph *g, int64_t rows) {
    return one(g, OP_relu, b_input(&g->b, "m", IR_TYPE(DT_FP16, 1, 1, rows, 1)));
}

/* A whole state; an input that comes back as an output; the row as it is or tiled. */
static void blends(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        graph *g = begin(31 + (uint64_t)form);
        ir_builder *b = &g->b;
        bool is_state = form & 1, tiled = form & 2;
        ir_type t = IR_TYPE(DT_FP16, 1, 2, 30, 8);
        ir_value *s = is_state ? b_state(b, "s", t) : b_input(b, "s", t),
                 *row = b_input(b, "row", IR_TYPE(DT_FP16, 1, 2, 1, 8)), *m = mask_input(g, 30);
        if (tiled) row = b_op(b, OP_tile, NULL, A_x, row, A_reps, B_INTS(b, 1, 1, 30, 1), A_NONE);
        ir_value *y = blended(g, is_state ? read(g, s) : s, row, m);
        if (is_state) {
            y = b_op(b, OP_slice_update, NULL, A_x, read(g, s), A_update, y, A_begin, B_INTS(b, 0, 0, 0, 0),
                     A_end, B_INTS(b, 1, 2, 30, 8), A_NONE);
            write_state(g, s, y);
            y = read(g, s);
        }
        b_output(b, one(g, OP_exp, y));
        check(g, OP_fused_blend, true, "blend");
    }
}

/* Keys and values of two layers in one state: slices of it are blended, put back one after the other, and
 * used when all are there. late: the old keys are used again, so nothing may have happened to them. */
static void blends_in_parts(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        graph *g = begin(41);
        ir_builder *b = &g->b;
        ir_value *s = b_state(b, "s", IR_TYPE(DT_FP16, 4, 2, 30, 8)), *old[2], *now[2];
        ir_value *m = cast(g, two(g, OP_greater, mask_input(g, 30), b_f16(b, 0.5f)), "fp16");
        ir_value *row = b_input(b, "row", IR_TYPE(DT_FP16, 1, 2, 1, 8)), *x = read(g, s);
        for (int layer = 0; layer < 2; layer++) {
            for (int i = 0; i < 2; i++) {
                old[i] = b_op(b, OP_slice_by_index, NULL, A_x, x, A_begin, B_INTS(b, 2 * i + layer, 0, 0, 0),
                              A_end, B_INTS(b, 2 * i + layer + 1, 2, 30, 8), A_NONE);
                old[i] = shaped(g, shaped(g, old[i], B_INTS(b, 2, 30, 8)), B_INTS(b, 1, 2, 30, 8));
                now[i] = blended(g, old[i], row, m);
            }
            for (int i = 0; i < 2; i++) {
                ir_value *part = shaped(g, shaped(g, now[i], B_INTS(b, 2, 30, 8)), B_INTS(b, 1, 2, 30, 8));
                write_state(g, s,
                            b_op(b, OP_slice_update, NULL, A_x, x, A_update, part, A_begin,
                                 B_INTS(b, 2 * i + layer, 0, 0, 0), A_end,
                                 B_INTS(b, 2 * i + layer + 1, 2, 30, 8), A_NONE));
                x = read(g, s);
            }
            ir_value *y = product(g, now[0], false, now[1], true);
            b_output(b, late ? two(g, OP_add, y, product(g, old[0], false, old[1], true)) : y);
        }
        check(g, OP_NONE, true, "blends in parts");
    }
}

/* ---- recurrences ---- */

/* The delta rule with a turned memory in a state, products by matmul; with a memory that comes in and goes
 * out, products by sums. */
static void delta_rules(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        graph *g = begin(51 + (uint64_t)form);
        ir_builder *b = &g->b;
        bool turned = form & 1, is_state = form & 2;
        int dk = 16, dv = 24;
        ir_type t = turned ? IR_TYPE(DT_FP16, 1, 3, dv, dk) : IR_TYPE(DT_FP16, 1, 3, dk, dv);
        ir_value *s = is_state ? b_state(b, "s", t) : b_input(b, "s", t),
                 *k = b_input(b, "k", IR_TYPE(DT_FP16, 1, 3, dk, 1)),
                 *q = b_input(b, "q", IR_TYPE(DT_FP16, 1, 3, dk, 1)),
                 *v = b_input(b, "v", turned ? IR_TYPE(DT_FP16, 1, 3, dv, 1) : IR_TYPE(DT_FP16, 1, 3, dv)),
                 *beta = b_input(b, "b", turned ? IR_TYPE(DT_FP16, 1, 3, 1, 1) : IR_TYPE(DT_FP16, 1, 3, 1)),
                 *decay = b_input(b, "d", IR_TYPE(DT_FP16, 1, 3, 1, 1)), *S, *y;
        ir_value *memory = is_state ? read(g, s) : s;
        if (turned) {
            S = two(g, OP_mul, decay, memory);
            ir_value *d = two(g, OP_mul, beta, two(g, OP_sub, v, product(g, S, false, k, false)));
            S = two(g, OP_add, S, product(g, d, false, k, true));
            y = product(g, S, false, q, false);
        } else {
            ir_value *axes = B_INTS(b, -2), *no = b_bool(b, false);
            S = two(g, OP_mul, memory, decay);
            ir_value *recall = b_op(b, OP_reduce_sum, NULL, A_x, two(g, OP_mul, S, k), A_axes, axes,
                                    A_keep_dims, no, A_NONE);
            ir_value *d = two(g, OP_mul, two(g, OP_sub, v, recall), beta);
            d = b_op(b, OP_expand_dims, NULL, A_x, d, A_axes, axes, A_NONE);
            S = two(g, OP_add, S, two(g, OP_mul, k, d));
            y = b_op(b, OP_reduce_sum, NULL, A_x, two(g, OP_mul, S, q), A_axes, axes, A_keep_dims, no,
                     A_NONE);
        }
        if (is_state)
            write_state(g, s, S);
        else
            b_output(b, S);
        b_output(b, y);
        check(g, OP_fused_delta, false, "delta rule");
    }
}

/* A convolution whose memory is as wide as it is, and comes and goes as a tensor. */
static void conv_sums(void **state) {
    (void)state;
    for (int is_state = 0; is_state < 2; is_state++) {
        graph *g = begin(61);
        ir_builder *b = &g->b;
        ir_type t = IR_TYPE(DT_FP16, 1, 20, 4);
        ir_value *s = is_state ? b_state(b, "s", t) : b_input(b, "s", t),
                 *u = b_input(b, "u", IR_TYPE(DT_FP16, 1, 20, 1));
        ir_value *now = slice(g, behind(g, is_state ? read(g, s) : s, u, -1), 2, 1, 5);
        ir_value *y = b_op(b, OP_reduce_sum, NULL, A_x, two(g, OP_mul, now, constant(g, DT_FP16, t)), A_axes,
                           B_INTS(b, -1), A_keep_dims, b_bool(b, true), A_NONE);
        if (is_state)
            write_state(g, s, now);
        else
            b_output(b, now);
        b_output(b, one(g, OP_silu, y));
        check(g, OP_fused_conv_step, false, "convolution by a sum");
    }
}

/* Taps written out over three columns of a memory of more. */
static void conv_columns(void **state) {
    (void)state;
    graph *g = begin(62);
    ir_builder *b = &g->b;
    ir_value *s = b_state(b, "s", IR_TYPE(DT_FP16, 1, 20, 1, 8)),
             *u = b_input(b, "u", IR_TYPE(DT_FP16, 1, 20, 1, 1));
    ir_value *x = read(g, s), *y = NULL;
    for (int i = 0; i < 4; i++) {
        ir_value *w = constant(g, DT_FP16, IR_TYPE(DT_FP16, 1, 20, 1, 1)),
                 *part = two(g, OP_mul, w, i < 3 ? slice(g, x, -1, i, i + 1) : u);
        y = y ? two(g, OP_add, y, part) : part;
    }
    ir_value *now = b_op(b, OP_slice_update, NULL, A_x, x, A_update, slice(g, x, -1, 1, 3), A_begin,
                         B_INTS(b, 0, 0, 0, 0), A_end, B_INTS(b, 1, 20, 1, 2), A_NONE);
    now = b_op(b, OP_slice_update, NULL, A_x, now, A_update, u, A_begin, B_INTS(b, 0, 0, 0, 2), A_end,
               B_INTS(b, 1, 20, 1, 3), A_NONE);
    write_state(g, s,
                b_op(b, OP_slice_update, NULL, A_x, x, A_update, now, A_begin, B_INTS(b, 0, 0, 0, 0), A_end,
                     B_INTS(b, 1, 20, 1, 8), A_NONE));
    b_output(b, one(g, OP_silu, y));
    check(g, OP_fused_conv_step, false, "convolution by columns");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubled_norms),
        cmocka_unit_test(halves_in_use),
        cmocka_unit_test(l2_norms),
        cmocka_unit_test(rotations),
        cmocka_unit_test(rotations_of_halves),
        cmocka_unit_test(rotations_of_halves_in_part),
        cmocka_unit_test(softpluses),
        cmocka_unit_test(no_rotation),
        cmocka_unit_test(gates_in_other_shapes),
        cmocka_unit_test(softmaxes),
        cmocka_unit_test(attention_by_columns),
        cmocka_unit_test(attention_of_tiles),
        cmocka_unit_test(picks),
        cmocka_unit_test(reductions),
        cmocka_unit_test(blends),
        cmocka_unit_test(blends_in_parts),
        cmocka_unit_test(delta_rules),
        cmocka_unit_test(conv_sums),
        cmocka_unit_test(conv_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
