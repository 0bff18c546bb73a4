/* Structures that the optimizer looks for, with what may be around and inside of them. */
#include "make.h"
#include <math.h>
#include <string.h>

static ir_value *number(maker *m, const ir_value *like, float v) {
    return make_scalar(m, dtype_of(like), v);
}

static ir_value *squared(maker *m, ir_value *x) {
    switch (roll(&m->d, 3)) {
    case 0: return op1(m, OP_square, x);
    case 1: return op2(m, OP_pow, x, number(m, x, 2));
    default: return op2(m, OP_mul, x, x);
    }
}

ir_value *plant_norm(maker *m, ir_value *x) {
    int rank = x->type.rank, axis = chance(&m->d, 90) ? -1 : (int)roll(&m->d, (uint32_t)rank);
    bool sum = chance(&m->d, 25);
    ir_value *s = inner(m, squared(m, x)), *y;
    s = inner(m, op_reduce(m, sum ? OP_reduce_sum : OP_reduce_mean, s, axis, !chance(&m->d, 3)));
    if (s->type.rank != rank) return x;
    if (chance(&m->d, 70))
        s = inner(m, op2(m, OP_add, s, number(m, s, dtype_of(s) == DT_FP16 ? 1e-3f : 1e-5f)));
    ir_value *eps = chance(&m->d, 50) ? number(m, s, dtype_of(s) == DT_FP16 ? 1e-4f : 1e-6f) : NULL;
    s = inner(m, b_op(&m->b, OP_rsqrt, NULL, A_x, s, A_epsilon, eps, A_NONE));
    y = op2(m, OP_mul, x, s);
    if (chance(&m->d, 60)) y = inner(m, y);
    if (chance(&m->d, 25)) y = op_cast(m, y, dtype_of(y) == DT_FP16 ? DT_FP32 : DT_FP16);
    int64_t n = x->type.dim[rank - 1];
    if (chance(&m->d, 60)) {
        int64_t dim[5] = {1, 1, 1, 1, n};
        int wr = 1 + (int)roll(&m->d, (uint32_t)rank);
        y = op2(m, OP_mul, y, make_const(m, dtype_of(y), ir_tensor(DT_FP16, wr, dim + 5 - wr)));
    } else if (chance(&m->d, 40)) {
        y = op2(m, OP_mul, y, number(m, y, 0.25f));
    }
    return y;
}

static ir_value *doubled_norm(maker *m, ir_value *x) {
    int rank = x->type.rank, last = rank - 1;
    int64_t n = x->type.dim[last];
    ir_value *both[2] = {x, inner(m, op2(m, OP_mul, x, number(m, x, -1)))};
    ir_value *y = inner(m, op_concat(m, both, 2, chance(&m->d, 50) ? -1 : last));
    ir_value *axes = b_ints(&m->b, (int32_t[]){-1}, 1);
    y = inner(m,
              b_op(&m->b, OP_layer_norm, NULL, A_x, y, A_axes, axes, A_epsilon, number(m, x, 1e-3f), A_NONE));
    if (y->type.rank != rank || y->type.dim[last] != 2 * n) return y;
    if (chance(&m->d, 50)) {
        y = op_slice(m, y, last, 0, n);
    } else {
        ir_value *part[2], *count = b_i32(&m->b, 2), *at = b_i32(&m->b, last);
        b_op_multi(&m->b, OP_split, NULL, part, 2, A_x, y, A_num_splits, count, A_axis, at, A_NONE);
        y = part[0];
    }
    return chance(&m->d, 60) ? op2(m, OP_mul, y, make_const(m, dtype_of(y), IR_TYPE(DT_FP16, n))) : y;
}

ir_value *plant_rope(maker *m, ir_value *x) {
    int rank = x->type.rank, last = rank - 1;
    int64_t n = x->type.dim[last], turned = n;
    ir_value *part[2] = {x}, *half[2], *y;
    if (n < 2 || n % 2 || rank < 2) return x;
    if (n % 4 == 0 && chance(&m->d, 40)) {
        turned = n / 2;
        ir_value *sizes = b_ints(&m->b, (int32_t[]){(int32_t)turned, (int32_t)(n - turned)}, 2),
                 *at = b_i32(&m->b, -1);
        b_op_multi(&m->b, OP_split, NULL, part, 2, A_x, x, A_split_sizes, sizes, A_axis, at, A_NONE);
    }
    ir_type t = IR_TYPE(DT_FP16, x->type.dim[last - 1], turned);
    if (chance(&m->d, 30)) t = IR_TYPE(DT_FP16, turned);
    if (chance(&m->d, 15)) t = IR_TYPE(DT_FP16, 1, 1, x->type.dim[last - 1], turned);
    if (t.rank > rank) return x;
    ir_value *cos = chance(&m->d, 70) ? make_input(m, dtype_of(x), t) : make_const(m, dtype_of(x), t);
    ir_value *sin = make_input(m, dtype_of(x), t);
    if (chance(&m->d, 60)) {
        ir_value *sizes = b_ints(&m->b, (int32_t[]){(int32_t)(turned / 2), (int32_t)(turned / 2)}, 2),
                 *at = b_i32(&m->b, -1);
        b_op_multi(&m->b, OP_split, NULL, half, 2, A_x, part[0], A_split_sizes, sizes, A_axis, at, A_NONE);
    } else {
        half[0] = op_slice(m, part[0], last, 0, turned / 2),
        half[1] = op_slice(m, part[0], last, turned / 2, turned);
    }
    if (turned == n && chance(&m->d, 25)) { /* both halves of the result by themselves, with half a table */
        ir_value *c = op_slice(m, cos, cos->type.rank - 1, 0, n / 2),
                 *s = op_slice(m, sin, sin->type.rank - 1, 0, n / 2);
        ir_value *mul[4] = {inner(m, op2(m, OP_mul, half[0], c)), op2(m, OP_mul, half[1], s)};
        mul[2] = op2(m, OP_mul, half[1], c), mul[3] = inner(m, op2(m, OP_mul, half[0], s));
        ir_value *low = op2(m, OP_sub, mul[0], mul[1]), *high = op2(m, OP_add, mul[2], mul[3]);
        return op_concat(m, (ir_value *[]){low, inner(m, high)}, 2, -1);
    }
    ir_value *other[2] = {inner(m, op2(m, OP_mul, half[1], number(m, x, -1))), half[0]};
    y = inner(m, op_concat(m, other, 2, -1));
    ir_value *a = inner(m, op2(m, OP_mul, part[0], cos)), *b = inner(m, op2(m, OP_mul, y, sin));
    y = op2(m, OP_add, a, b);
    if (turned == n) return y;
    return op_concat(m, (ir_value *[]){inner(m, y), part[1]}, 2, -1);
}

static ir_value *swiglu(maker *m, ir_value *x) {
    int64_t n = make_size(m), k = x->type.dim[x->type.rank - 1];
    if (x->type.rank > 3 || k > 300) return op2(m, OP_mul, op1(m, OP_silu, x), pick_like(m, x));
    ir_value *gate = inner(m, op_linear(m, x, n, chance(&m->d, 20)));
    if (chance(&m->d, 50)) gate = inner(m, op1(m, OP_silu, gate));
    ir_value *up = inner(m, op_linear(m, x, n, chance(&m->d, 20)));
    if (gate->def && gate->def->code != OP_silu) gate = inner(m, op1(m, OP_silu, gate));
    if (chance(&m->d, 20)) {
        int64_t dim[5] = {1};
        for (int d = 0; d < gate->type.rank; d++) dim[d + 1] = gate->type.dim[d];
        gate = op_reshape(m, gate, gate->type.rank + 1, dim), up = op_reshape(m, up, up->type.rank + 1, dim);
    }
    ir_value *y = inner(m, op2(m, OP_mul, gate, up));
    if (y->type.rank > 3) return y;
    y = inner(m, op_linear(m, y, k, false));
    return dtype_of(y) == dtype_of(x) && chance(&m->d, 70) ? op2(m, OP_add, x, y) : y;
}

/* A 1x1 convolution in a channel-first layout, with what converters put around it. */
static ir_value *pointwise(maker *m, ir_value *x) {
    int64_t c = x->type.dim[x->type.rank - 1], t = count_of(x) / c, n = make_size(m);
    if (c > 300 || n > 300) return x;
    ir_value *y = op_reshape(m, x, 3, (const int64_t[]){1, t, c});
    y = op_transpose(m, y, (const int64_t[]){0, 2, 1});
    y = inner(m, b_op(&m->b, OP_expand_dims, NULL, A_x, y, A_axes, b_ints(&m->b, (int32_t[]){2}, 1), A_NONE));
    ir_value *w = make_weight(m, dtype_of(x), IR_TYPE(DT_FP16, n, c, 1, 1)), *bias = NULL;
    if (chance(&m->d, 30)) bias = make_const(m, dtype_of(x), IR_TYPE(DT_FP16, n));
    y = inner(m, b_op(&m->b, OP_conv, NULL, A_x, y, A_weight, w, A_bias, bias, A_NONE));
    if (y->type.rank != 4 || y->type.dim[1] != n) return y;
    if (chance(&m->d, 50)) y = op2(m, OP_add, y, make_input(m, dtype_of(y), y->type));
    if (chance(&m->d, 30)) return y;
    y = inner(m, b_op(&m->b, OP_squeeze, NULL, A_x, y, A_axes, b_ints(&m->b, (int32_t[]){2}, 1), A_NONE));
    return y->type.rank == 3 ? op_transpose(m, y, (const int64_t[]){0, 2, 1}) : y;
}

static ir_value *softplus(maker *m, ir_value *x) {
    ir_value *e = inner(m, op1(m, OP_exp, inner(m, op2(m, OP_mul, op1(m, OP_abs, x), number(m, x, -1)))));
    ir_value *u = inner(m, op2(m, OP_add, e, number(m, x, 1)));
    ir_value *tiny = chance(&m->d, 50) ? b_f32(&m->b, 1e-30f) : NULL;
    ir_value *log = inner(m, b_op(&m->b, OP_log, NULL, A_x, u, A_epsilon, tiny, A_NONE));
    ir_value *rest = op2(m, OP_real_div, op2(m, OP_sub, e, op2(m, OP_sub, u, number(m, x, 1))), u);
    return op2(m, OP_add, op1(m, OP_relu, x), inner(m, op2(m, OP_add, log, rest)));
}

/* ---- attention ---- */

/* Keys or values for every query head, in one of the spellings of repeating. [1,G,S,D] -> [1,G*R,S,D] */
static ir_value *repeated(maker *m, ir_value *x, int64_t r) {
    int64_t g = x->type.dim[1], s = x->type.dim[2], d = x->type.dim[3];
    if (r == 1) return x;
    if (chance(&m->d, 50)) {
        ir_value *y = inner(
            m, b_op(&m->b, OP_expand_dims, NULL, A_x, x, A_axes, b_ints(&m->b, (int32_t[]){2}, 1), A_NONE));
        if (y->type.rank != 5) return x;
        int64_t reps[5] = {1, 1, r, 1, 1};
        y = inner(m, b_op(&m->b, OP_tile, NULL, A_x, y, A_reps, make_list(m, reps, 5), A_NONE));
        return op_reshape(m, y, 4, (const int64_t[]){1, g * r, s, d});
    }
    if (chance(&m->d, 50)) {
        int64_t reps[4] = {1, chance(&m->d, 80) ? 1 : r, r, 1};
        if (reps[1] == r) reps[2] = 1; /* heads in another order: repeats as a whole */
        ir_value *y = inner(m, b_op(&m->b, OP_tile, NULL, A_x, x, A_reps, make_list(m, reps, 4), A_NONE));
        return op_reshape(m, y, 4, (const int64_t[]){1, g * r, s, d});
    }
    ir_value *v[4];
    for (int i = 0; i < r; i++) v[i] = x;
    ir_value *at = b_i32(&m->b, 2),
             *y = inner(m, b_opv(&m->b, OP_stack, NULL, A_values, v, (uint32_t)r, A_axis, at, A_NONE));
    return op_reshape(m, y, 4, (const int64_t[]){1, g * r, s, d});
}

static ir_value *causal(maker *m, ir_dtype d, int64_t tokens, int64_t keys) {
    int form = (int)roll(&m->d, 4);
    if (form == 0) return make_input(m, d, IR_TYPE(DT_FP16, 1, 1, tokens, keys));
    if (form == 1) return make_input(m, d, IR_TYPE(DT_FP16, tokens, keys));
    float *x = ARENA_ARRAY(m->a, float, (size_t)(tokens * keys) + 1), hidden = chance(&m->d, 30) ? -INFINITY
                                                                               : form == 2       ? -30000
                                                                                                 : -1e4f;
    int64_t past = keys > tokens ? (int64_t)roll(&m->d, (uint32_t)(keys - tokens + 1)) : 0;
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t j = 0; j < keys; j++) x[i * keys + j] = j > past + i ? hidden : 0;
    if (m->style == STYLE_WILD || chance(&m->d, 30))
        for (int64_t i = 0; i < tokens * keys; i++) x[i] = x[i] < 0 && isfinite(x[i]) ? -65504.0f : x[i];
    return b_floats(&m->b, d, x, IR_TYPE(DT_FP16, 1, 1, tokens, keys));
}

static ir_value *softmax(maker *m, ir_value *s, int axis) {
    if (chance(&m->d, 75)) return b_op(&m->b, OP_softmax, NULL, A_x, s, A_axis, b_i32(&m->b, axis), A_NONE);
    ir_value *top = inner(m, op_reduce(m, OP_reduce_max, s, axis, true));
    ir_value *e = inner(m, op1(m, OP_exp, inner(m, op2(m, OP_sub, s, top))));
    ir_value *sum = inner(m, op_reduce(m, OP_reduce_sum, e, axis, true));
    return op2(m, OP_real_div, e, sum);
}

/* query [1,H,T,D], key [1,H,S,D], value [1,H,S,E] */
static ir_value *attend(maker *m, ir_value *q, ir_value *k, ir_value *v) {
    int64_t tokens = q->type.dim[2], keys = k->type.dim[2];
    ir_value *mask = causal(m, dtype_of(q), tokens, keys);
    if (chance(&m->d, 25)) {
        return b_op(&m->b, OP_scaled_dot_product_attention, NULL, A_query, q, A_key, k, A_value, v,
                    A_attn_mask, chance(&m->d, 80) ? mask : NULL, A_NONE);
    }
    bool turned = chance(&m->d, 40);
    ir_value *s = inner(m, turned ? op_matmul(m, q, op_swap(m, k, 2, 3), false, false)
                                  : op_matmul(m, q, k, false, true));
    if (chance(&m->d, 50)) s = inner(m, op2(m, OP_mul, s, number(m, s, 0.25f)));
    if (dtype_of(s) == DT_FP16 && chance(&m->d, 20))
        s = op_cast(m, s, DT_FP32), mask = op_cast(m, mask, DT_FP32);
    if (dtype_of(mask) != dtype_of(s)) mask = op_cast(m, mask, dtype_of(s));
    s = inner(m, op2(m, OP_add, s, mask));
    if (dtype_of(s) == DT_FP16 && chance(&m->d, 20)) s = op_cast(m, s, DT_FP32);
    s = inner(m, softmax(m, s, chance(&m->d, 50) ? -1 : 3));
    if (dtype_of(s) != dtype_of(v)) s = op_cast(m, s, dtype_of(v));
    return op_matmul(m, s, v, false, false);
}

/* Keys times queries, [1,H,S,T], with the weights turned in the second product; query [1,H,D,T]. */
static ir_value *attend_turned(maker *m, ir_value *q, ir_value *k, ir_value *v) {
    int64_t tokens = q->type.dim[2], keys = k->type.dim[2];
    ir_value *mask = causal(m, dtype_of(q), tokens, keys);
    mask = op_swap(m, mask, mask->type.rank - 2, mask->type.rank - 1);
    q = op_swap(m, q, 2, 3);
    ir_value *s = inner(m, op_matmul(m, k, q, false, false));
    if (chance(&m->d, 50)) s = inner(m, op2(m, OP_mul, s, number(m, s, 0.25f)));
    s = inner(m, op2(m, OP_add, s, op_as(m, mask, dtype_of(s))));
    s = inner(m, softmax(m, s, chance(&m->d, 50) ? -2 : 2));
    return op_matmul(m, op_as(m, s, dtype_of(v)), v, true, false);
}

/* The weights change their shape before the second product. */
static ir_value *attend_flat(maker *m, ir_value *q, ir_value *k, ir_value *v) {
    int64_t h = q->type.dim[1], tokens = q->type.dim[2], keys = k->type.dim[2], e = v->type.dim[3];
    ir_value *mask = causal(m, dtype_of(q), tokens, keys), *s = inner(m, op_matmul(m, q, k, false, true));
    if (chance(&m->d, 50)) s = inner(m, op2(m, OP_mul, s, number(m, s, 0.25f)));
    s = inner(m, op2(m, OP_add, s, op_as(m, mask, dtype_of(s))));
    s = inner(m, softmax(m, s, -1));
    s = inner(m, op_reshape(m, s, 3, (const int64_t[]){h, tokens, keys}));
    v = op_reshape(m, v, 3, (const int64_t[]){h, keys, e});
    return op_reshape(m, op_matmul(m, op_as(m, s, dtype_of(v)), v, false, false), 4,
                      (const int64_t[]){1, h, tokens, e});
}

ir_value *plant_attention(maker *m, ir_value *key, ir_value *value, int64_t tokens) {
    int64_t g = key->type.dim[1], d = key->type.dim[3], r = 1 + roll(&m->d, 3);
    ir_value *q = make_input(m, dtype_of(key), IR_TYPE(DT_FP16, 1, g * r, tokens, d));
    if (chance(&m->d, 40)) q = plant_rope(m, q);
    if (chance(&m->d, 30)) q = plant_norm(m, q);
    if (q->type.rank != 4 || dtype_of(q) != dtype_of(key)) return key;
    ir_value *y;
    if (chance(&m->d, 30) && r > 1) { /* groups broadcast: [G,R,T,D] with [G,1,S,D] */
        int64_t s = key->type.dim[2], e = value->type.dim[3];
        q = op_reshape(m, q, 4, (const int64_t[]){g, r, tokens, d});
        key = op_reshape(m, key, 4, (const int64_t[]){g, 1, s, d}),
        value = op_reshape(m, value, 4, (const int64_t[]){g, 1, s, e});
        ir_value *s0 = inner(m, op_matmul(m, q, key, false, true)),
                 *mask = make_input(m, dtype_of(s0), IR_TYPE(DT_FP16, 1, 1, tokens, s));
        s0 = inner(m, op2(m, OP_add, s0, mask));
        s0 = inner(m, b_op(&m->b, OP_softmax, NULL, A_x, s0, A_axis, b_i32(&m->b, -1), A_NONE));
        y = op_matmul(m, s0, value, false, false);
        y = op_reshape(m, y, 4, (const int64_t[]){1, g * r, tokens, e});
    } else {
        ir_value *k = inner(m, repeated(m, key, r)), *v = inner(m, repeated(m, value, r));
        uint32_t form = roll(&m->d, 6);
        y = form == 0 ? attend_turned(m, q, k, v) : form == 1 ? attend_flat(m, q, k, v) : attend(m, q, k, v);
    }
    if (!ok(m) || y->type.rank != 4 || chance(&m->d, 30)) return y;
    y = op_transpose(m, y, (const int64_t[]){0, 2, 1, 3});
    return op_reshape(m, y, 3, (const int64_t[]){1, tokens, count_of(y) / tokens});
}

static void attention(maker *m) {
    static const int64_t depths[] = {8, 16, 32, 64, 3, 7, 24};
    int64_t g = 1 + roll(&m->d, 3), keys = make_size(m), d = depths[roll(&m->d, 7)],
            tokens = chance(&m->d, 50) ? 1 : 1 + roll(&m->d, 20);
    if (keys > 140) keys = 140;
    ir_dtype t = chance(&m->d, m->half) ? DT_FP16 : DT_FP32;
    ir_value *k = make_input(m, t, IR_TYPE(DT_FP16, 1, g, keys, d)),
             *v = make_input(m, t,
                             IR_TYPE(DT_FP16, 1, g, keys, chance(&m->d, 80) ? d : depths[roll(&m->d, 7)]));
    keep(m, plant_attention(m, k, v, tokens));
}

void make_planted(maker *m) {
    if (m->style == STYLE_EXACT) {
        ir_value *x = pick_float(m, 1, 4);
        if (count_of(x)) keep(m, chance(&m->d, 50) ? pointwise(m, x) : plant_rope(m, x));
        return;
    }
    if (chance(&m->d, 25)) {
        if (m->style == STYLE_WILD) return; /* scores beyond what a mask adds: the mask no longer hides */
        attention(m);
        return;
    }
    ir_value *x = pick_float(m, 1, 4);
    if (!count_of(x)) return;
    switch (roll(&m->d, 7)) {
    case 0:
    case 1: keep(m, plant_norm(m, x)); break;
    case 2: /* huge numbers hide small ones in the mean, but not in a norm without one */
        keep(m, m->style == STYLE_WILD ? plant_norm(m, x) : doubled_norm(m, x));
        break;
    case 3: keep(m, plant_rope(m, x)); break;
    case 4: keep(m, swiglu(m, x)); break;
    case 5: keep(m, pointwise(m, x)); break;
    default: keep(m, softplus(m, x));
    }
}
