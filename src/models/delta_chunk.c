#include "models/blocks.h"

/* The gated delta rule over a chunk of C tokens at once. With G the sum of the log decays up to a token and
 * S the memory in front of the chunk:
 *
 *   D[i,j] = exp(G_i - G_j), j <= i             what is left at token i of what token j wrote
 *   A[i,j] = beta_i (k_i . k_j) D[i,j], j < i
 *   W = (I + A)^-1 beta (V - exp(G) K S)        what each token really writes
 *   O = exp(G) Q S + ((Q K^T) * D) W
 *   S <- exp(G_last) S + (exp(G_last - G) K)^T W
 *
 * (I + A)^-1 by merging blocks: T <- T - T (A * M) T, where M selects the pairs between the two halves of a
 * block of twice the size. Every intermediate is the inverse of a part of I + A and stays below 1; the series
 * (I - A)(I + A^2)(I + A^4)... is as short, but grows like binomials when keys repeat, and cancels. */

static ir_value *flags(graph *g, ir_opcode code, const char *name, ir_value *x, ir_value *y) {
    return cast_named(g, name, binary(g, code, arena_printf(g->a, "%s_bool", name), x, y), g->type.core);
}

/* M: rows of odd and columns of even blocks of n tokens, the column's block right before the row's. */
static ir_value *merge_mask(graph *g, ir_value *row, ir_value *column, int32_t n) {
    ir_builder *b = &g->b;
    ir_value *of_row = binary(g, OP_floor_div, "merge_row", row, b_i32(b, n));
    ir_value *of_column = binary(g, OP_floor_div, "merge_column", column, b_i32(b, n));
    ir_value *odd =
        flags(g, OP_equal, "merge_odd", binary(g, OP_mod, "merge_parity", of_row, b_i32(b, 2)), b_i32(b, 1));
    ir_value *before = binary(g, OP_sub, "merge_before", of_row, b_i32(b, 1));
    return binary(g, OP_mul, "merge", odd, flags(g, OP_equal, "merge_next", before, of_column));
}

typedef bool mask_fn(int64_t row, int64_t column, int64_t size);

static bool is_lower(int64_t row, int64_t column, int64_t size) {
    (void)size;
    return row >= column;
}
static bool is_below(int64_t row, int64_t column, int64_t size) {
    (void)size;
    return row > column;
}
static bool is_diagonal(int64_t row, int64_t column, int64_t size) {
    (void)size;
    return row == column;
}
static bool is_merged(int64_t row, int64_t column, int64_t size) {
    return row / size % 2 == 1 && column / size == row / size - 1;
}

static ir_value *constant_mask(graph *g, int64_t n, mask_fn *fn, int64_t size) {
    float *v = ARENA_ARRAY(g->a, float, (size_t)(n * n));
    for (int64_t i = 0; i < n * n; i++) v[i] = fn(i / n, i % n, size);
    return b_floats(&g->b, g->type.core, v, IR_TYPE(g->type.core, n, n));
}

/* The same as constants: integers are divided wrong on some of Apple's processors. Of a block all tokens are
 * real. */
static void prepare_constants(graph *g, int64_t n) {
    g->tri = (delta_triangle){.lower = constant_mask(g, n, is_lower, 0),
                              .below = constant_mask(g, n, is_below, 0),
                              .eye = constant_mask(g, n, is_diagonal, 0)};
    for (int64_t size = 1; size < n; size *= 2)
        g->tri.merge[g->tri.levels++] = constant_mask(g, n, is_merged, size);
    g->live = NULL;
    g->kept_begin = B_INTS(&g->b, 0, 0, g->tokens);
}

void delta_prepare(graph *g) {
    ir_builder *b = &g->b;
    int32_t n = g->tokens < DELTA_CHUNK ? g->tokens : DELTA_CHUNK;
    if (pipelined(g)) {
        prepare_constants(g, n);
        return;
    }
    ir_value *at = iota(g, "chunk_index", n);
    ir_value *row = b_op(b, OP_expand_dims, "chunk_row", A_x, at, A_axes, B_INTS(b, 1), A_NONE);
    ir_value *column = b_op(b, OP_expand_dims, "chunk_column", A_x, at, A_axes, B_INTS(b, 0), A_NONE);
    g->tri = (delta_triangle){.lower = flags(g, OP_greater_equal, "chunk_lower", row, column),
                              .below = flags(g, OP_greater, "chunk_below", row, column),
                              .eye = flags(g, OP_equal, "chunk_diagonal", row, column)};
    for (int32_t size = 1; size < n; size *= 2)
        g->tri.merge[g->tri.levels++] = merge_mask(g, row, column, size);

    ir_value *zero = B_INTS(b, 0);
    g->kept_begin = bounds(g, "conv_begin", (ir_value *[]){zero, zero, g->valid}, 3);
    ir_value *live = flags(g, OP_less, "live_row", iota(g, "token_index", g->tokens), g->valid);
    g->live = b_op(b, OP_expand_dims, "live", A_x, live, A_axes, B_INTS(b, 1), A_NONE);
}

static ir_value *multiply(graph *g, const char *name, ir_value *x, ir_value *y) {
    return binary(g, OP_mul, name, x, y);
}

/* (I + A)^-1; A [H,R,C,C], 0 on and above the diagonal. */
static ir_value *inverse(graph *g, ir_value *A) {
    const delta_triangle *t = &g->tri;
    ir_value *T = binary(g, OP_sub, "inverse", t->eye, multiply(g, "merge_pairs", A, t->merge[0]));
    for (int i = 1; i < t->levels; i++) {
        ir_value *half = matmul(g, "merge_left", T, multiply(g, "merge_pairs", A, t->merge[i]), false, false);
        T = binary(g, OP_sub, "inverse", T, matmul(g, "merge_both", half, T, false, false));
    }
    return T;
}

/* exp(x), x at most 0 but for rounding. */
static ir_value *decayed(graph *g, const char *name, ir_value *x) {
    return unary(g, OP_exp, name, binary(g, OP_minimum, "log_decay_capped", x, number(g, g->type.core, 0)));
}

static ir_value *chunk(graph *g, ir_value *q, ir_value *k, ir_value *v, ir_value *beta, ir_value *log,
                       ir_value **memory) {
    ir_builder *b = &g->b;
    ir_value *S = *memory;
    ir_value *G = b_op(b, OP_cumsum, graph_name(g, "log_decay_sum"), A_x, log, A_axis, b_i32(b, 2), A_NONE);
    ir_value *columns = transpose(g, "log_decay_columns", G, B_INTS(b, 0, 1, 3, 2));
    ir_value *D = decayed(g, "decay_between", binary(g, OP_sub, "log_decay_between", G, columns));
    ir_value *written = multiply(g, "key_overlap", matmul(g, "key_products", k, k, false, true), beta);
    ir_value *A = multiply(g, "corrections", multiply(g, "key_decayed", written, D), g->tri.below);
    ir_value *since = unary(g, OP_exp, "decay_since", G);

    ir_value *known = multiply(g, "memory_recall", matmul(g, "memory_keys", k, S, false, false), since);
    ir_value *error = multiply(g, "memory_write", binary(g, OP_sub, "memory_error", v, known), beta);
    ir_value *W = matmul(g, "memory_change", inverse(g, A), error, false, false);

    ir_value *old = multiply(g, "memory_old", matmul(g, "memory_query", q, S, false, false), since);
    ir_value *seen = multiply(g, "query_decayed", matmul(g, "query_products", q, k, false, true), D);
    seen = multiply(g, "query_causal", seen, g->tri.lower);
    ir_value *o = binary(g, OP_add, "memory_read", old, matmul(g, "memory_fresh", seen, W, false, false));

    int32_t n = (int32_t)b_type(b, G).dim[2];
    ir_value *last = b_op(b, OP_slice_by_size, graph_name(g, "log_decay_total"), A_x, G, A_begin,
                          B_INTS(b, 0, 0, n - 1, 0), A_size, B_INTS(b, -1, -1, 1, 1), A_NONE);
    ir_value *left = decayed(g, "decay_to_end", binary(g, OP_sub, "log_decay_to_end", last, G));
    ir_value *kept = multiply(g, "memory_kept", S, unary(g, OP_exp, "decay_total", last));
    ir_value *added = matmul(g, "memory_added", k, multiply(g, "memory_change_left", W, left), true, false);
    *memory = binary(g, OP_add, "memory_new", kept, added);
    return o;
}

/* x along the tokens in pieces of DELTA_CHUNK. */
static ir_value **pieces(graph *g, const char *name, ir_value *x, uint32_t n) {
    ir_value **out = ARENA_ARRAY(g->a, ir_value *, n);
    int32_t *size = ARENA_ARRAY(g->a, int32_t, n);
    for (uint32_t i = 0; i < n; i++) size[i] = DELTA_CHUNK;
    if (n > 1)
        split_axis(g, name, x, 2, size, n, out);
    else
        out[0] = x;
    return out;
}

ir_value *delta_chunks(graph *g, ir_value *q, ir_value *k, ir_value *v, ir_value *beta, ir_value *log_decay,
                       ir_value **memory) {
    uint32_t n = (uint32_t)(g->tokens + DELTA_CHUNK - 1) / DELTA_CHUNK;
    ir_value **Q = pieces(g, "query_chunk", q, n), **K = pieces(g, "key_chunk", k, n),
             **V = pieces(g, "value_chunk", v, n), **B = pieces(g, "beta_chunk", beta, n),
             **L = pieces(g, "log_decay_chunk", log_decay, n), **o = ARENA_ARRAY(g->a, ir_value *, n);
    for (uint32_t i = 0; i < n; i++) o[i] = chunk(g, Q[i], K[i], V[i], B[i], L[i], memory);
    if (n == 1) return o[0];
    return b_opv(&g->b, OP_concat, graph_name(g, "memory_chunks"), A_values, o, n, A_axis, b_i32(&g->b, 2),
                 A_interleave, b_bool(&g->b, false), A_NONE);
}
