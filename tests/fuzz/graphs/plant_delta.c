/* Recurrent layers in all their spellings: the gated delta rule of one token and of chunks of tokens, and its
 * convolution. */
#include "make.h"
#include <string.h>

static ir_value *times(maker *m, ir_value *x, float v) {
    return op2(m, OP_mul, x, make_scalar(m, dtype_of(x), v));
}

/* The new memory, in the shape of its states: rounded, and with low what that took away. */
static void store(maker *m, ir_value *hi, ir_value *lo, ir_value *S) {
    ir_value *half = op_as(m, S, DT_FP16);
    write_state(m, hi, half);
    if (lo) write_state(m, lo, op_as(m, op2(m, OP_sub, S, op_as(m, half, DT_FP32)), DT_FP16));
}

/* Two states of this type, lo only if wanted; false: there are none left. */
static bool memories(maker *m, ir_type t, bool low, ir_value **hi, ir_value **lo) {
    *hi = state_like(m, t);
    *lo = low ? state_like(m, t) : NULL;
    return *hi && ok(m) && (!low || (*lo && *lo != *hi));
}

static ir_value *remembered(maker *m, ir_value *hi, ir_value *lo, ir_dtype d) {
    ir_value *S = op_as(m, read_state(m, hi), d);
    return lo ? op2(m, OP_add, S, op_as(m, read_state(m, lo), d)) : S;
}

/* ---- one token ---- */

ir_value *plant_delta_step(maker *m, ir_value *memory) {
    ir_dtype d = dtype_of(memory);
    int64_t H = memory->type.dim[0], R = memory->type.dim[1], dk = memory->type.dim[2],
            dv = memory->type.dim[3];
    ir_value *q = make_input(m, d, IR_TYPE(d, H, 1, 1, dk)), *k = make_input(m, d, IR_TYPE(d, H, 1, 1, dk)),
             *v = make_input(m, d, IR_TYPE(d, H, R, 1, dv)),
             *decay = make_input(m, d, IR_TYPE(d, H, R, 1, 1)),
             *beta = make_input(m, d, IR_TYPE(d, H, R, 1, 1));
    k = times(m, k, 0.25f);
    ir_value *faded = inner(m, op2(m, OP_mul, memory, op1(m, OP_sigmoid, decay)));
    ir_value *recall = inner(m, op_matmul(m, op_as(m, k, dtype_of(faded)), faded, false, false));
    ir_value *column =
        op2(m, OP_mul, op_reshape(m, k, 4, (const int64_t[]){H, 1, dk, 1}), op1(m, OP_sigmoid, beta));
    ir_value *error = inner(m, op2(m, OP_sub, op_as(m, v, dtype_of(recall)), recall));
    ir_value *S = op2(m, OP_add, faded, op2(m, OP_mul, op_as(m, column, dtype_of(error)), error));
    keep(m, op_matmul(m, op_as(m, q, dtype_of(S)), S, false, false));
    return S;
}

static void step(maker *m) {
    int64_t H = 1 + roll(&m->d, 3), R = 1 + roll(&m->d, 2), dk = 8 * (1 + roll(&m->d, 3)),
            dv = 8 * (1 + roll(&m->d, 3));
    const int64_t whole[4] = {1, H * R, dk, dv};
    bool low = chance(&m->d, 40);
    ir_value *hi, *lo;
    if (!memories(m, ir_tensor(DT_FP16, 4, whole), low, &hi, &lo)) return;
    ir_value *memory = remembered(m, hi, lo, low || chance(&m->d, 50) ? DT_FP32 : DT_FP16);
    ir_value *S = plant_delta_step(m, op_reshape(m, memory, 4, (const int64_t[]){H, R, dk, dv}));
    store(m, hi, lo, op_as(m, op_reshape(m, S, 4, whole), low ? DT_FP32 : dtype_of(S)));
}

/* Others' memories: turned, [1,H,dv,dk], with columns for k and q; or sums instead of products. */
static void other_step(maker *m) {
    int64_t H = 1 + roll(&m->d, 4), dk = 8 * (1 + roll(&m->d, 3)), dv = 8 * (1 + roll(&m->d, 3));
    bool turned = chance(&m->d, 50), is_state = chance(&m->d, 70);
    const ir_dtype d = DT_FP16;
    ir_type t = turned ? IR_TYPE(d, 1, H, dv, dk) : IR_TYPE(d, 1, H, dk, dv);
    ir_value *state = is_state ? state_like(m, t) : NULL, *column, *S, *y, *sum;
    if ((is_state && !state) || !ok(m)) return;
    ir_value *memory = state ? read_state(m, state) : make_input(m, d, t);
    ir_value *q = make_input(m, d, IR_TYPE(d, 1, H, dk, 1)),
             *k = times(m, make_input(m, d, IR_TYPE(d, 1, H, dk, 1)), 0.25f),
             *decay = op1(m, OP_sigmoid, make_input(m, d, IR_TYPE(d, 1, H, 1, 1)));
    ir_value *faded = inner(m, op2(m, OP_mul, memory, decay));
    if (dtype_of(faded) != d) return;
    if (turned) {
        ir_value *v = make_input(m, d, IR_TYPE(d, 1, H, dv, 1)),
                 *beta = op1(m, OP_sigmoid, make_input(m, d, IR_TYPE(d, 1, H, 1, 1)));
        ir_value *error = inner(m, op2(m, OP_sub, v, op_matmul(m, faded, k, false, false)));
        column = op2(m, OP_mul, error, make_scalar(m, dtype_of(error), 1));
        column = op2(m, OP_mul, chance(&m->d, 50) ? error : column, op_as(m, beta, dtype_of(error)));
        S = op2(m, OP_add, faded, op_matmul(m, op_as(m, column, d), k, false, true));
        y = op_matmul(m, S, q, false, false);
    } else {
        ir_value *v = make_input(m, d, IR_TYPE(d, 1, H, dv)),
                 *beta = op1(m, OP_sigmoid, make_input(m, d, IR_TYPE(d, 1, H, 1)));
        sum = op_reduce(m, OP_reduce_sum, inner(m, op2(m, OP_mul, faded, k)), -2, false);
        ir_value *error =
            op2(m, OP_mul, op2(m, OP_sub, op_as(m, v, dtype_of(sum)), sum), op_as(m, beta, dtype_of(sum)));
        error = b_op(&m->b, OP_expand_dims, NULL, A_x, op_as(m, error, d), A_axes,
                     b_ints(&m->b, (int32_t[]){2}, 1), A_NONE);
        S = op2(m, OP_add, faded, op2(m, OP_mul, k, error));
        y = op_reduce(m, OP_reduce_sum, op2(m, OP_mul, S, q), -2, false);
    }
    if (state) write_state(m, state, S);
    if (!state || chance(&m->d, 20)) keep(m, S);
    keep(m, y);
}

/* ---- many tokens: chunks of C (Yang et al. 2024, in the form of models/delta_chunk.c) ---- */

typedef struct {
    int64_t H, R, dk, dv, size;
    uint32_t n; /* chunks */
    ir_dtype d;
    ir_value *below, *lower, *eye, *merge[8];
} rule;

/* kind 0: row == column, 1: >, 2: >=; else -size: rows of odd blocks of this size, columns of the one before
 */
static ir_value *pairs(maker *m, const rule *r, int kind) {
    int64_t n = r->size;
    float *v = ARENA_ARRAY(m->a, float, (size_t)(n * n));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            bool odd = kind < 0 && i / -kind % 2 == 1 && j / -kind == i / -kind - 1;
            v[i * n + j] = odd || (kind == 0 && i == j) || (kind == 1 && i > j) || (kind == 2 && i >= j);
        }
    return b_floats(&m->b, r->d, v, IR_TYPE(r->d, n, n));
}

static ir_value *capped(maker *m, ir_value *x) {
    return op1(m, OP_exp, inner(m, op2(m, OP_minimum, x, make_scalar(m, dtype_of(x), 0))));
}

static ir_value *inverse(maker *m, const rule *r, ir_value *A) {
    ir_value *T = op2(m, OP_sub, r->eye, op2(m, OP_mul, A, r->merge[0]));
    for (int i = 1; r->merge[i]; i++) {
        ir_value *left = op_matmul(m, T, op2(m, OP_mul, A, r->merge[i]), false, false);
        T = op2(m, OP_sub, T, op_matmul(m, left, T, false, false));
    }
    return T;
}

static ir_value *rule_chunk(maker *m, const rule *r, ir_value *q, ir_value *k, ir_value *v, ir_value *beta,
                            ir_value *log, ir_value **S) {
    ir_value *axis = b_i32(&m->b, 2), *G = b_op(&m->b, OP_cumsum, NULL, A_x, log, A_axis, axis, A_NONE);
    ir_value *D = capped(m, op2(m, OP_sub, G, op_transpose(m, G, (const int64_t[]){0, 1, 3, 2}))),
             *since = op1(m, OP_exp, G);
    ir_value *A = op2(m, OP_mul, op_matmul(m, k, k, false, true), beta);
    A = op2(m, OP_mul, op2(m, OP_mul, A, D), r->below);
    ir_value *known = op2(m, OP_mul, op_matmul(m, k, *S, false, false), since);
    ir_value *error = op2(m, OP_mul, op2(m, OP_sub, v, known), beta);
    ir_value *W = op_matmul(m, inverse(m, r, A), error, false, false);
    if (m->expose && chance(&m->d, 20)) keep(m, W);
    ir_value *seen = op2(m, OP_mul, op2(m, OP_mul, op_matmul(m, q, k, false, true), D), r->lower);
    ir_value *old = op2(m, OP_mul, op_matmul(m, q, *S, false, false), since);
    ir_value *o = op2(m, OP_add, old, op_matmul(m, seen, W, false, false));
    ir_value *begin = make_list(m, (const int64_t[]){0, 0, r->size - 1, 0}, 4),
             *size = make_list(m, (const int64_t[]){-1, -1, 1, 1}, 4);
    ir_value *last = b_op(&m->b, OP_slice_by_size, NULL, A_x, G, A_begin, begin, A_size, size, A_NONE);
    ir_value *left = op2(m, OP_mul, W, capped(m, op2(m, OP_sub, last, G)));
    *S = op2(m, OP_add, op2(m, OP_mul, *S, op1(m, OP_exp, last)), op_matmul(m, k, left, true, false));
    return o;
}

static void in_pieces(maker *m, ir_value *x, const rule *r, ir_value **out) {
    int64_t size[4] = {r->size, r->size, r->size, r->size};
    out[0] = x;
    if (r->n < 2) return;
    ir_value *sizes = make_list(m, size, (int)r->n), *axis = b_i32(&m->b, 2);
    b_op_multi(&m->b, OP_split, NULL, out, r->n, A_x, x, A_split_sizes, sizes, A_axis, axis, A_NONE);
}

/* x / sqrt(sum or mean of its squares over the last axis) */
static ir_value *unit(maker *m, ir_value *x, ir_opcode code) {
    ir_value *s = op_reduce(m, code, op1(m, OP_square, x), -1, true);
    ir_value *tiny = make_scalar(m, dtype_of(x), 1e-3f), *least = make_scalar(m, dtype_of(x), 1e-6f);
    s = op2(m, OP_add, s, tiny);
    return op2(m, OP_mul, x,
               b_op(&m->b, OP_rsqrt, NULL, A_x, s, A_epsilon, chance(&m->d, 50) ? least : NULL, A_NONE));
}

static ir_value *gated(maker *m, const rule *r, ir_value *y) {
    int64_t T = r->size * r->n;
    y = op_transpose(m, y, (const int64_t[]){2, 0, 1, 3});
    y = op2(m, OP_mul, unit(m, y, OP_reduce_mean), make_const(m, r->d, IR_TYPE(r->d, r->dv)));
    ir_value *z = make_input(m, DT_FP16, IR_TYPE(DT_FP16, 1, T, r->H * r->R * r->dv));
    z = op_reshape(m, op_as(m, z, r->d), 4, (const int64_t[]){T, r->H, r->R, r->dv});
    return op2(m, OP_mul, y, op1(m, OP_silu, inner(m, z)));
}

static void draw_rule(maker *m, rule *r) {
    static const int64_t sizes[] = {2, 3, 4, 5, 8, 16, 17, 64}, depths[] = {8, 16, 24, 32, 64};
    *r = (rule){.H = 1 + roll(&m->d, 3),
                .R = 1 + roll(&m->d, 2),
                .dk = depths[roll(&m->d, 5)],
                .dv = depths[roll(&m->d, 5)],
                .size = sizes[roll(&m->d, 8)],
                .n = 1 + roll(&m->d, 3),
                .d = chance(&m->d, 85) ? DT_FP32 : DT_FP16};
    if (r->size == 64) r->n = 1;
    r->below = pairs(m, r, 1), r->lower = pairs(m, r, 2), r->eye = pairs(m, r, 0);
    int levels = 0;
    for (int size = 1; size < r->size; size *= 2) r->merge[levels++] = pairs(m, r, -size);
}

static void chunks(maker *m) {
    rule r;
    draw_rule(m, &r);
    int64_t heads = r.H * r.R, T = r.size * r.n;
    const int64_t whole[4] = {1, heads, r.dk, r.dv};
    ir_value *hi, *lo, *Q[4], *K[4], *V[4], *B[4], *L[4], *o[4], *y;
    if (!memories(m, ir_tensor(DT_FP16, 4, whole), r.d == DT_FP32 && chance(&m->d, 50), &hi, &lo)) return;
    ir_value *q = make_input(m, r.d, IR_TYPE(r.d, r.H, 1, T, r.dk)),
             *k = make_input(m, r.d, IR_TYPE(r.d, r.H, 1, T, r.dk)),
             *v = make_input(m, r.d, IR_TYPE(r.d, r.H, r.R, T, r.dv)),
             *log = make_input(m, r.d, IR_TYPE(r.d, 1, T, heads)),
             *beta = op1(m, OP_sigmoid, make_input(m, r.d, IR_TYPE(r.d, r.H, r.R, T, 1)));
    if (chance(&m->d, 50)) {
        q = times(m, unit(m, q, OP_reduce_sum), 0.25f);
        k = unit(m, k, OP_reduce_sum);
    } else {
        k = times(m, k, 0.2f); /* so that the memory does not grow */
    }
    log = times(m, op1(m, OP_relu, log), -0.5f);
    log =
        op_reshape(m, op_transpose(m, log, (const int64_t[]){0, 2, 1}), 4, (const int64_t[]){r.H, r.R, T, 1});
    ir_value *S = op_reshape(m, remembered(m, hi, lo, r.d), 4, (const int64_t[]){r.H, r.R, r.dk, r.dv});
    in_pieces(m, q, &r, Q), in_pieces(m, k, &r, K), in_pieces(m, v, &r, V);
    in_pieces(m, beta, &r, B), in_pieces(m, log, &r, L);
    for (uint32_t i = 0; i < r.n; i++) o[i] = rule_chunk(m, &r, Q[i], K[i], V[i], B[i], L[i], &S);
    if (!ok(m)) return;
    y = r.n == 1 ? o[0] : op_concat(m, o, r.n, 2);
    store(m, hi, lo, op_reshape(m, S, 4, whole));
    keep(m, chance(&m->d, 50) ? gated(m, &r, y) : y);
}

/* ---- convolutions ---- */

/* What a history keeps: its newest n columns, or those in front of the first that is no token. */
static ir_value *newest(maker *m, ir_value *h, int64_t c, int64_t n, int64_t tokens) {
    if (chance(&m->d, 60)) {
        int64_t from = chance(&m->d, 90) ? tokens : 0;
        return op_slice(m, h, 2, from, from + n);
    }
    ir_value *zero = b_ints(&m->b, (int32_t[]){0}, 1),
             *valid = make_ints(m, IR_TYPE(DT_INT32, 1), 0, (int32_t)tokens);
    ir_value *begin = op_concat(m, (ir_value *[]){zero, zero, valid}, 3, 0),
             *size = make_list(m, (const int64_t[]){1, c, n}, 3);
    return b_op(&m->b, OP_slice_by_size, NULL, A_x, h, A_begin, begin, A_size, size, A_NONE);
}

ir_value *plant_convolved(maker *m, ir_value *old, int64_t tokens, ir_value **history) {
    int64_t c = old->type.dim[1], n = old->type.dim[2];
    ir_value *u = chance(&m->d, 50)
                      ? make_input(m, DT_FP16, IR_TYPE(DT_FP16, 1, c, tokens))
                      : op_swap(m, make_input(m, DT_FP16, IR_TYPE(DT_FP16, 1, tokens, c)), 1, 2);
    ir_value *h = *history = op_concat(m, (ir_value *[]){old, u}, 2, 2), *kept = newest(m, h, c, n, tokens);
    ir_dtype d = chance(&m->d, 50) ? DT_FP32 : DT_FP16;
    ir_value *x = inner(m, h), *w = make_const(m, d, IR_TYPE(DT_FP16, c, 1, n + 1)),
             *groups = b_i32(&m->b, (int32_t)c);
    ir_value *y =
        inner(m, b_op(&m->b, OP_conv, NULL, A_x, op_as(m, x, d), A_weight, w, A_groups, groups, A_NONE));
    if (chance(&m->d, 40)) y = op_as(m, y, DT_FP32);
    if (chance(&m->d, 70) && m->style != STYLE_EXACT) y = op1(m, OP_silu, y);
    keep(m, y);
    return kept;
}

static void history(maker *m) {
    int64_t c = make_size(m), n = 1 + roll(&m->d, 3), tokens = chance(&m->d, 50) ? 1 : 1 + roll(&m->d, 20);
    ir_value *s = state_like(m, IR_TYPE(DT_FP16, 1, c, n)), *h;
    if (!s || !ok(m) || c > 300) return;
    ir_value *kept = plant_convolved(m, read_state(m, s), tokens, &h);
    if (chance(&m->d, 70)) write_state(m, s, kept);
    if (chance(&m->d, 30)) write_state(m, s, op_slice(m, h, 2, tokens, tokens + n));
}

/* A step as the sum over a history whose oldest column drops out. */
static void summed_step(maker *m) {
    int64_t c = make_size(m), n = 2 + roll(&m->d, 4);
    ir_value *s = state_like(m, IR_TYPE(DT_FP16, 1, c, n));
    if (!s || !ok(m) || c > 300) return;
    ir_value *u = make_input(m, DT_FP16, IR_TYPE(DT_FP16, 1, c, 1));
    ir_value *h = op_concat(m, (ir_value *[]){read_state(m, s), u}, 2, 2);
    ir_value *kept = inner(m, op_slice(m, h, 2, 1, n + 1));
    ir_value *product = op2(m, OP_mul, kept, make_const(m, dtype_of(kept), IR_TYPE(DT_FP16, 1, c, n)));
    ir_value *y = op_reduce(m, OP_reduce_sum, inner(m, product), -1, true);
    if (chance(&m->d, 90)) write_state(m, s, op_as(m, kept, DT_FP16));
    keep(m, chance(&m->d, 60) && m->style != STYLE_EXACT ? op1(m, OP_silu, y) : y);
}

static ir_value *put_columns(maker *m, ir_value *x, ir_value *update, int64_t from, int64_t n) {
    int64_t begin[4] = {0}, end[4];
    memcpy(end, x->type.dim, sizeof end);
    begin[3] = from, end[3] = from + n;
    ir_value *b = make_list(m, begin, 4), *e = make_list(m, end, 4);
    return b_op(&m->b, OP_slice_update, NULL, A_x, x, A_update, update, A_begin, b, A_end, e, A_NONE);
}

/* Four taps written out over three columns of a memory that may be wider. */
static void spelled_step(maker *m) {
    int64_t c = make_size(m), width = 3 + roll(&m->d, 3);
    const ir_dtype d = DT_FP16;
    ir_value *s = state_like(m, IR_TYPE(d, 1, c, 1, width)), *part[4], *y = NULL;
    if (!s || !ok(m) || c > 300) return;
    ir_value *old = read_state(m, s);
    for (int i = 0; i < 3; i++) part[i] = op_slice(m, old, 3, i, i + 1);
    part[3] = make_input(m, d, IR_TYPE(d, 1, c, 1, 1));
    for (int i = 0; i < 4; i++) {
        ir_value *product = op2(m, OP_mul, make_const(m, d, IR_TYPE(d, 1, c, 1, 1)), part[i]);
        y = y ? op2(m, OP_add, op_as(m, y, d), product) : inner(m, product);
    }
    ir_value *moved = put_columns(m, old, op_slice(m, old, 3, 1, 3), 0, 2);
    moved = put_columns(m, moved, part[3], 2, 1);
    write_state(m, s, moved);
    keep(m, y);
    if (chance(&m->d, 20)) keep(m, read_state(m, s));
}

void plant_recurrent(maker *m) {
    static make_fn *const steps[] = {history, history, history, summed_step, spelled_step}, *const rules[] = {
                                                                                                step, step,
                                                                                                other_step,
                                                                                                chunks,
                                                                                                chunks};
    bool any = m->style != STYLE_TAME || chance(&m->d, 50);
    if (any)
        steps[roll(&m->d, 5)](m);
    else
        rules[roll(&m->d, 5)](m);
}
