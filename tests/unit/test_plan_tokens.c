/* Recurrences over many tokens, fused and planned, against the reference evaluator: see test_plan.c. The
 * graphs are the chunked form of the gated delta rule, written op by op from its definition. */
#include "plan_graph.h"

typedef struct {
    int64_t H, R, dk, dv, tokens, chunk;
    bool split, unit, gated, mixed_up; /* mixed_up: an inner value is also a result, so nothing fuses */
    int spelled; /* 1: as assets have it: products without flags, sums by a triangle of ones; 2: by another
                    one */
} rule_case;

typedef struct {
    const rule_case *c;
    ir_value *below, *lower, *eye, *merge[8];
} masks;

static ir_value *product(graph *g, ir_value *x, ir_value *y, bool tx, bool ty) {
    ir_builder *b = &g->b;
    return b_op(b, OP_matmul, NULL, A_x, x, A_y, y, A_transpose_x, b_bool(b, tx), A_transpose_y,
                b_bool(b, ty), A_NONE);
}

/* kind 0: row == column, 1: >, 2: >=; else -size: pairs of an odd block of this size and the one before. */
static ir_value *mask(graph *g, int64_t n, int kind) {
    float *v = ARENA_ARRAY(g->a, float, (size_t)(n * n));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            bool odd = kind < 0 && i / -kind % 2 == 1 && j / -kind == i / -kind - 1;
            v[i * n + j] = odd || (kind == 0 && i == j) || (kind == 1 && i > j) || (kind == 2 && i >= j);
        }
    return b_floats(&g->b, DT_FP32, v, IR_TYPE(DT_FP32, n, n));
}

static ir_value *capped(graph *g, ir_value *x) {
    return one(g, OP_exp, two(g, OP_minimum, x, b_f32(&g->b, 0)));
}

static ir_value *turned_of(graph *g, ir_value *x) {
    return b_op(&g->b, OP_transpose, NULL, A_x, x, A_perm, B_INTS(&g->b, 0, 1, 3, 2), A_NONE);
}

static ir_value *chunk(graph *g, const masks *m, ir_value *q, ir_value *k, ir_value *v, ir_value *beta,
                       ir_value *log, ir_value **S) {
    ir_builder *b = &g->b;
    int32_t n = (int32_t)m->c->chunk, levels = 0;
    bool flags = !m->c->spelled;
    ir_value *kt = flags ? k : turned_of(g, k);
    ir_value *G = flags ? b_op(b, OP_cumsum, NULL, A_x, log, A_axis, b_i32(b, 2), A_NONE)
                        : product(g, m->c->spelled == 1 ? m->lower : m->below, log, false, false);
    ir_value *D = capped(g, two(g, OP_sub, G, turned_of(g, G))), *since = one(g, OP_exp, G);
    ir_value *A =
        two(g, OP_mul, two(g, OP_mul, two(g, OP_mul, product(g, k, kt, false, flags), beta), D), m->below);
    ir_value *T = two(g, OP_sub, m->eye, two(g, OP_mul, A, m->merge[levels++]));
    for (int32_t size = 2; size < n; size *= 2) {
        ir_value *left = product(g, T, two(g, OP_mul, A, m->merge[levels++]), false, false);
        T = two(g, OP_sub, T, product(g, left, T, false, false));
    }
    ir_value *known = two(g, OP_mul, product(g, k, *S, false, false), since);
    ir_value *W = product(g, T, two(g, OP_mul, two(g, OP_sub, v, known), beta), false, false);
    if (m->c->mixed_up) b_output(b, W);
    ir_value *seen = two(g, OP_mul, two(g, OP_mul, product(g, q, kt, false, flags), D), m->lower);
    ir_value *o = two(g, OP_add, two(g, OP_mul, product(g, q, *S, false, false), since),
                      product(g, seen, W, false, false));
    int32_t H = (int32_t)b_type(b, G).dim[0], R = (int32_t)b_type(b, G).dim[1];
    ir_value *last = flags ? b_op(b, OP_slice_by_size, NULL, A_x, G, A_begin, B_INTS(b, 0, 0, n - 1, 0),
                                  A_size, B_INTS(b, -1, -1, 1, 1), A_NONE)
                           : b_op(b, OP_slice_by_index, NULL, A_x, G, A_begin, B_INTS(b, 0, 0, n - 1, 0),
                                  A_end, B_INTS(b, H, R, n, 1), A_NONE);
    ir_value *left = two(g, OP_mul, W, capped(g, two(g, OP_sub, last, G)));
    *S = two(g, OP_add, two(g, OP_mul, *S, one(g, OP_exp, last)), product(g, kt, left, flags, false));
    return o;
}

static ir_value *normed(graph *g, ir_value *x, ir_opcode reduce) {
    ir_builder *b = &g->b;
    ir_value *sum = b_op(b, reduce, NULL, A_x, one(g, OP_square, x), A_axes, B_INTS(b, -1), A_keep_dims,
                         b_bool(b, true), A_NONE);
    return two(g, OP_mul, x,
               b_op(b, OP_rsqrt, NULL, A_x, two(g, OP_add, sum, b_f32(b, 1e-6f)), A_epsilon, b_f32(b, 1e-12f),
                    A_NONE));
}

static void pieces(graph *g, ir_value *x, const rule_case *c, ir_value **out) {
    uint32_t n = (uint32_t)(c->tokens / c->chunk);
    int32_t size[8];
    for (uint32_t i = 0; i < n; i++) size[i] = (int32_t)c->chunk;
    out[0] = x;
    if (n > 1)
        b_op_multi(&g->b, OP_split, NULL, out, n, A_x, x, A_split_sizes, b_ints(&g->b, size, n), A_axis,
                   b_i32(&g->b, 2), A_NONE);
}

/* Everything behind the projections, up to the one behind. */
static void delta_case(const rule_case *c, uint64_t seed) {
    graph *g = begin(seed);
    ir_builder *b = &g->b;
    int64_t H = c->H, R = c->R, T = c->tokens;
    masks m = {c, mask(g, c->chunk, 1), mask(g, c->chunk, 2), mask(g, c->chunk, 0), {0}};
    for (int32_t size = 1, i = 0; size < c->chunk; size *= 2) m.merge[i++] = mask(g, c->chunk, -size);
    ir_value *q = b_input(b, "q", IR_TYPE(DT_FP32, H, 1, T, c->dk)),
             *k = b_input(b, "k", IR_TYPE(DT_FP32, H, 1, T, c->dk)),
             *v = b_input(b, "v", IR_TYPE(DT_FP32, H, R, T, c->dv)),
             *log = b_input(b, "d", IR_TYPE(DT_FP32, 1, T, H * R)),
             *beta = b_input(b, "b", IR_TYPE(DT_FP32, H, R, T, 1)),
             *z = c->gated ? b_input(b, "z", IR_TYPE(DT_FP16, 1, T, H * R * c->dv)) : NULL;
    ir_value *hi = b_state(b, "s", IR_TYPE(DT_FP16, 1, H * R, c->dk, c->dv)),
             *lo = c->split ? b_state(b, "l", IR_TYPE(DT_FP16, 1, H * R, c->dk, c->dv)) : NULL;
    g->pair = c->split;
    if (c->unit) {
        q = two(g, OP_mul, normed(g, q, OP_reduce_sum), b_f32(b, 0.25f));
        k = normed(g, k, OP_reduce_sum);
    } else {
        k = two(g, OP_mul, k, b_f32(b, 0.2f)); /* so that the memory does not grow */
    }
    log = two(g, OP_mul, one(g, OP_relu, log), b_f32(b, -0.5f));
    log = b_op(b, OP_transpose, NULL, A_x, log, A_perm, B_INTS(b, 0, 2, 1), A_NONE);
    log = shaped(g, log, B_INTS(b, (int32_t)H, (int32_t)R, (int32_t)T, 1));
    beta = one(g, OP_sigmoid, beta);
    ir_value *S = shaped(g, joined(g, hi, lo, "fp32"),
                         B_INTS(b, (int32_t)H, (int32_t)R, (int32_t)c->dk, (int32_t)c->dv));
    ir_value *Q[8], *K[8], *V[8], *B[8], *L[8], *o[8];
    pieces(g, q, c, Q), pieces(g, k, c, K), pieces(g, v, c, V), pieces(g, beta, c, B), pieces(g, log, c, L);
    uint32_t n = (uint32_t)(T / c->chunk);
    for (uint32_t i = 0; i < n; i++) o[i] = chunk(g, &m, Q[i], K[i], V[i], B[i], L[i], &S);
    ir_value *all = n == 1 ? o[0]
                           : b_opv(b, OP_concat, NULL, A_values, o, n, A_axis, b_i32(b, 2), A_interleave,
                                   b_bool(b, false), A_NONE);
    S = shaped(g, S, B_INTS(b, 1, (int32_t)(H * R), (int32_t)c->dk, (int32_t)c->dv));
    ir_value *half = cast(g, S, "fp16");
    if (lo) write_state(g, lo, cast(g, two(g, OP_sub, S, cast(g, half, "fp32")), "fp16"));
    write_state(g, hi, half);
    if (c->gated) {
        all = b_op(b, OP_transpose, NULL, A_x, all, A_perm, B_INTS(b, 2, 0, 1, 3), A_NONE);
        all = two(g, OP_mul, normed(g, all, OP_reduce_mean), constant(g, DT_FP32, IR_TYPE(DT_FP32, c->dv)));
        z = shaped(g, cast(g, z, "fp32"), B_INTS(b, (int32_t)T, (int32_t)H, (int32_t)R, (int32_t)c->dv));
        all = two(g, OP_mul, all, one(g, OP_silu, z));
    }
    b_output(b, all);
    check(g, c->mixed_up || c->spelled == 2 ? OP_NONE : OP_fused_delta_rule, false, "delta rule over tokens");
}

static void delta_rules(void **state) {
    static const rule_case cases[] = {
        {2, 2, 16, 24, 5, 5, true, false, false, false, 0},
        {2, 1, 16, 16, 12, 4, false, true, false, false, 0},
        {2, 2, 16, 32, 12, 4, true, true, true, false, 0},
        {1, 3, 32, 64, 128, 64, true, true, true, false, 0},
        {2, 1, 128, 128, 64, 64, true, true, true, false, 0},
        {2, 2, 64, 128, 48, 16, false, true, true, false, 0},
        {2, 2, 16, 16, 6, 6, false, false, true, false, 0},
        {2, 2, 16, 24, 8, 4, true, true, false, true, 0},
        {2, 1, 16, 16, 12, 4, false, true, true, false, 1},
        {1, 2, 32, 64, 128, 64, false, true, true, false, 1},
        {2, 2, 16, 24, 5, 5, true, false, false, false, 1},
        {2, 1, 16, 16, 6, 6, false, true, false, false, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) delta_case(&cases[i], 40 + i);
}

/* A log decay that may be above 0 is none: the chunked form caps what the recurrence does not. */
static void growing(void **state) {
    (void)state;
    for (int falls = 0; falls < 2; falls++) {
        graph *g = begin(60);
        ir_builder *b = &g->b;
        const rule_case c = {.H = 1, .R = 1, .dk = 16, .dv = 16, .tokens = 4, .chunk = 4};
        masks m = {&c, mask(g, 4, 1), mask(g, 4, 2), mask(g, 4, 0), {mask(g, 4, -1), mask(g, 4, -2)}};
        ir_value *k = two(g, OP_mul, b_input(b, "k", IR_TYPE(DT_FP32, 1, 1, 4, 16)), b_f32(b, 0.2f)),
                 *v = b_input(b, "v", IR_TYPE(DT_FP32, 1, 1, 4, 16)),
                 *log = b_input(b, "d", IR_TYPE(DT_FP32, 1, 1, 4, 1)),
                 *beta = b_input(b, "b", IR_TYPE(DT_FP32, 1, 1, 4, 1)),
                 *hi = b_state(b, "s", IR_TYPE(DT_FP16, 1, 1, 16, 16));
        if (falls) log = two(g, OP_mul, one(g, OP_exp, log), b_f32(b, -0.5f));
        ir_value *S = shaped(g, joined(g, hi, NULL, "fp32"), B_INTS(b, 1, 1, 16, 16));
        b_output(b, chunk(g, &m, v, k, v, beta, log, &S));
        write_state(g, hi, cast(g, shaped(g, S, B_INTS(b, 1, 1, 16, 16)), "fp16"));
        finish(g);
        ir_type types[MOST];
        for (size_t i = 0; i < g->p->func[0]->n_in; i++) types[i] = g->in[i].type;
        ir_function *f = opt_specialize(ir_program_new(g->a), g->p->func[0], types, false, &g->e);
        assert_non_null(f);
        opt_fuse(&(ir_program){.a = g->a}, f, false);
        assert_int_equal(count(f, OP_fused_delta_rule), falls);
        end(g);
    }
}

typedef struct {
    int64_t channels, kept, tokens;
    int form; /* 0: fp32 weights; 1: fp16, cast behind; 2: no silu */
    int32_t valid;
} conv_case;

static void convolution(const conv_case *c, uint64_t seed) {
    graph *g = begin(seed);
    ir_builder *b = &g->b;
    int32_t C = (int32_t)c->channels, n = (int32_t)c->kept, T = (int32_t)c->tokens;
    ir_value *u = b_input(b, "u", IR_TYPE(DT_FP16, 1, T, C)), *s = b_state(b, "s", IR_TYPE(DT_FP16, 1, C, n)),
             *valid = c->valid < 0 ? NULL : b_input(b, "n", IR_TYPE(DT_INT32, 1));
    u = b_op(b, OP_transpose, NULL, A_x, u, A_perm, B_INTS(b, 0, 2, 1), A_NONE);
    ir_value *both[2] = {b_op(b, OP_read_state, NULL, A_input, s, A_NONE), u};
    ir_value *history = b_opv(b, OP_concat, NULL, A_values, both, 2, A_axis, b_i32(b, 2), A_interleave,
                              b_bool(b, false), A_NONE);
    ir_value *newest, *zero = B_INTS(b, 0), *at[3] = {zero, zero, valid};
    if (valid) {
        ir_value *begin_at = b_opv(b, OP_concat, NULL, A_values, at, 3, A_axis, b_i32(b, 0), A_interleave,
                                   b_bool(b, false), A_NONE);
        newest = b_op(b, OP_slice_by_size, NULL, A_x, history, A_begin, begin_at, A_size, B_INTS(b, 1, C, n),
                      A_NONE);
    } else {
        newest = b_op(b, OP_slice_by_index, NULL, A_x, history, A_begin, B_INTS(b, 0, 0, T), A_end,
                      B_INTS(b, 1, C, T + n), A_NONE);
    }
    write_state(g, s, newest);
    ir_dtype d = c->form == 1 ? DT_FP16 : DT_FP32;
    ir_value *y = b_op(b, OP_conv, NULL, A_x, d == DT_FP32 ? cast(g, history, "fp32") : history, A_weight,
                       constant(g, d, IR_TYPE(d, C, 1, n + 1)), A_groups, b_i32(b, C), A_NONE);
    if (d == DT_FP16) y = cast(g, y, "fp32");
    b_output(b, c->form == 2 ? y : one(g, OP_silu, y));
    finish(g);
    if (valid) ref_ints(&g->in[2])[0] = c->valid;
    check_made(g, OP_fused_conv, false, "convolution of tokens");
}

static void convolutions(void **state) {
    static const conv_case cases[] = {{20, 3, 7, 0, -1},   {20, 3, 7, 0, 7}, {33, 3, 5, 1, 2},
                                      {512, 3, 64, 0, 40}, {48, 2, 3, 2, 0}, {300, 3, 16, 1, 1},
                                      {64, 3, 2, 0, 2},    {17, 1, 9, 2, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) convolution(&cases[i], 80 + i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delta_rules),
        cmocka_unit_test(growing),
        cmocka_unit_test(convolutions),
    };
    cmocka_set_test_filter(getenv("MILLET_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
