/* Random ops that compute: element by element, along axes, products. */
#include "ir/infer.h"
#include "make.h"
#include <math.h>
#include <string.h>

/* ---- element by element ---- */

static void unary(maker *m) {
    static const ir_opcode smooth[] = {OP_silu,   OP_sigmoid,   OP_tanh,
                                       OP_relu,   OP_softplus,  OP_exp,
                                       OP_exp2,   OP_erf,       OP_abs,
                                       OP_square, OP_floor,     OP_ceil,
                                       OP_round,  OP_sign,      OP_sin,
                                       OP_cos,    OP_sqrt,      OP_log,
                                       OP_rsqrt,  OP_inverse,   OP_identity,
                                       OP_clip,   OP_threshold, OP_leaky_relu,
                                       OP_elu,    OP_gelu,      OP_softplus_parametric};
    static const ir_opcode plain[] = {OP_relu,  OP_abs,  OP_square,   OP_floor, OP_ceil,
                                      OP_round, OP_sign, OP_identity, OP_clip,  OP_threshold};
    bool exact = m->style == STYLE_EXACT;
    ir_value *x = pick_float(m, 0, 5);
    ir_opcode code = exact ? plain[roll(&m->d, sizeof plain / sizeof *plain)]
                           : smooth[roll(&m->d, sizeof smooth / sizeof *smooth)];
    ir_dtype d = dtype_of(x);
    ir_value *a = NULL, *b = NULL, *eps = NULL, *mode = NULL;
    if (code == OP_softplus_parametric && x->type.rank < 3) code = OP_softplus;
    if ((code == OP_sqrt || code == OP_log || code == OP_rsqrt) && chance(&m->d, 85))
        x = op2(m, OP_add, op1(m, OP_abs, x), make_scalar(m, d, 0.25f));
    if (code == OP_inverse && chance(&m->d, 85))
        x = op2(m, OP_add, op1(m, OP_square, x), make_scalar(m, d, 0.5f));
    if ((code == OP_exp || code == OP_exp2) && chance(&m->d, 85))
        x = op2(m, OP_minimum, x, make_scalar(m, d, 3));
    if ((code == OP_log || code == OP_rsqrt || code == OP_inverse) && chance(&m->d, 50))
        eps = make_scalar(m, d, 1e-3f);
    if (code == OP_clip) a = make_scalar(m, d, -2), b = make_scalar(m, d, 3);
    if (code == OP_threshold || code == OP_leaky_relu || code == OP_elu)
        a = make_scalar(m, d, exact ? 1 : 0.3f);
    if (code == OP_softplus_parametric) {
        a = make_const(m, d, IR_TYPE(d, x->type.dim[1]));
        b = make_const(m, d, IR_TYPE(d, x->type.dim[1]));
    }
    if (code == OP_gelu)
        mode = b_text(
            &m->b, (const char *[]){"EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"}[roll(&m->d, 3)]);
    if (mode)
        keep(m, b_op(&m->b, code, NULL, A_x, x, A_mode, mode, A_NONE));
    else if (a)
        keep(m, b_op(&m->b, code, NULL, A_x, x, A_alpha, a, A_beta, b, A_NONE));
    else
        keep(m, b_op(&m->b, code, NULL, A_x, x, A_epsilon, eps, A_NONE));
}

/* A shape that broadcasts with x. */
static ir_type narrower(maker *m, const ir_type *x) {
    ir_type t = *x;
    int cut = x->rank ? (int)roll(&m->d, (uint32_t)x->rank + 1) : 0;
    if (chance(&m->d, 60)) cut = 0;
    for (int d = cut; d < x->rank; d++) t.dim[d - cut] = chance(&m->d, 30) ? 1 : x->dim[d];
    t.rank = (int8_t)(x->rank - cut);
    return t;
}

/* A second operand for x: of the pool, if one broadcasts. */
static ir_value *other(maker *m, const ir_value *x) {
    ir_type t;
    for (int i = 0; i < 6; i++) {
        ir_value *y = pick(m, is_float(x) ? FLOAT : x->type.dtype == DT_BOOL ? BOOL : INT, 0, 5);
        if (y && y->type.dtype == x->type.dtype && ir_broadcast(&x->type, &y->type, &t) &&
            ir_type_count(&t) < 4000)
            return y;
    }
    t = narrower(m, &x->type);
    return chance(&m->d, 65) ? make_const(m, dtype_of(x), t) : make_input(m, dtype_of(x), t);
}

static void binary(maker *m) {
    static const ir_opcode all[] = {OP_add,     OP_sub,     OP_mul,      OP_add,       OP_sub, OP_mul,
                                    OP_maximum, OP_minimum, OP_real_div, OP_floor_div, OP_mod, OP_pow};
    ir_value *x = chance(&m->d, 85) ? pick_float(m, 0, 5) : pick(m, INT, 0, 5);
    if (!x) return;
    ir_value *y = chance(&m->d, 2) && is_float(x) && m->style == STYLE_WILD
                      ? make_scalar(m, dtype_of(x), INFINITY)
                      : other(m, x);
    ir_opcode code = all[roll(&m->d, m->style == STYLE_EXACT ? 8 : 12)];
    if (is_float(x) && code >= OP_real_div && code <= OP_pow && m->style == STYLE_TAME) {
        y = op2(m, OP_add, op1(m, OP_abs, y), make_scalar(m, dtype_of(x), 0.5f));
        if (code == OP_pow) x = op1(m, OP_abs, x);
    }
    if (!is_float(x) && code == OP_pow) code = OP_add;
    keep(m, op2(m, code, x, y));
}

static void comparison(maker *m) {
    static const ir_opcode all[] = {OP_less,          OP_less_equal, OP_greater,
                                    OP_greater_equal, OP_equal,      OP_not_equal};
    static const ir_opcode logic[] = {OP_logical_and, OP_logical_or, OP_logical_xor};
    ir_value *x = chance(&m->d, 50) ? pick(m, BOOL, 0, 5) : pick(m, FLOAT | INT, 0, 5);
    if (!x) return;
    if (x->type.dtype == DT_BOOL && chance(&m->d, 30)) {
        keep(m, op1(m, OP_logical_not, x));
        return;
    }
    ir_value *y = other(m, x);
    keep(m, op2(m, x->type.dtype == DT_BOOL ? logic[roll(&m->d, 3)] : all[roll(&m->d, 6)], x, y));
}

/* x as numbers of another type can be. */
static void rounding(maker *m) {
    static const char *const types[] = {"bf16", "fp8e4m3fn", "fp8e5m2"};
    ir_value *x = pick_float(m, 0, 5);
    if (m->style == STYLE_WILD || m->spec < IR_SPEC_COREAI) return;
    keep(m, b_op(&m->b, OP_round_as, NULL, A_x, x, A_dtype, b_text(&m->b, types[roll(&m->d, 3)]), A_NONE));
}

static void choice(maker *m) {
    ir_value *a = pick(m, ANY, 0, 5);
    if (!a) return;
    ir_value *b = other(m, a), *cond = NULL;
    ir_type t, all;
    if (!ir_broadcast(&a->type, &b->type, &t)) return;
    for (int i = 0; i < 4 && !cond; i++) {
        cond = pick(m, BOOL, 0, 5);
        if (cond && (!ir_broadcast(&t, &cond->type, &all) || ir_type_count(&all) != ir_type_count(&t) ||
                     all.rank != t.rank))
            cond = NULL;
    }
    if (!cond) cond = make_const(m, DT_BOOL, narrower(m, &t));
    keep(m, b_op(&m->b, OP_select, NULL, A_cond, cond, A_a, a, A_b, b, A_NONE));
}

static void conversion(maker *m) {
    static const ir_dtype to[] = {DT_FP16, DT_FP16, DT_FP32,  DT_FP32,  DT_INT32,
                                  DT_BOOL, DT_INT8, DT_UINT8, DT_INT16, DT_UINT16};
    ir_value *x = pick(m, 15, 0, 5);
    if (!x) return;
    ir_dtype d = to[roll(&m->d, chance(&m->d, 90) ? 6 : 10)];
    if (dtype_bits(d) <= 16 && !dtype_is_float(d) && d != DT_BOOL && m->style != STYLE_WILD && is_float(x))
        x = op2(m, OP_minimum, op1(m, OP_abs, x), make_scalar(m, dtype_of(x), 100));
    if (d == DT_BOOL && is_float(x) && m->style != STYLE_EXACT) return; /* 0 or nearly 0? */
    ir_value *y = op_cast(m, x, d);
    keep(m, y);
    if (dtype_bits(d) <= 16 && !dtype_is_float(d) && d != DT_BOOL)
        keep(m, op_cast(m, y, chance(&m->d, 50) ? DT_INT32 : DT_FP32));
}

static void quantized(maker *m) {
    ir_value *x = pick_float(m, 1, 4), *zero = NULL, *at = NULL;
    ir_dtype d = dtype_of(x), code = chance(&m->d, 50) ? DT_INT8 : DT_UINT8;
    int axis = (int)roll(&m->d, (uint32_t)x->type.rank);
    bool along = chance(&m->d, 50);
    int64_t n = along ? x->type.dim[axis] : 1;
    ir_type t = along ? IR_TYPE(d, n) : ir_scalar(d), codes = t;
    float *s = ARENA_ARRAY(m->a, float, (size_t)n + 1);
    uint8_t *z = ARENA_ARRAY(m->a, uint8_t, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++)
        s[i] = m->style == STYLE_EXACT ? 1 : 0.25f, z[i] = (uint8_t)roll(&m->d, 20);
    codes.dtype = (uint8_t)code;
    if (along) at = b_i32(&m->b, axis);
    if (chance(&m->d, 50)) zero = b_const(&m->b, NULL, ir_const_new(m->a, codes, z));
    ir_value *scale = b_floats(&m->b, d, s, t), *name = b_text(&m->b, dtype_name(code));
    ir_value *q = b_op(&m->b, OP_quantize, NULL, A_input, x, A_zero_point, zero, A_scale, scale, A_axis, at,
                       A_output_dtype, name, A_NONE);
    keep(m, b_op(&m->b, OP_dequantize, NULL, A_input, q, A_zero_point, zero, A_scale, scale, A_axis, at,
                 A_NONE));
}

void make_elementwise(maker *m) {
    static make_fn *const kinds[] = {unary,  unary,      unary,      binary,     binary,
                                     binary, binary,     comparison, comparison, choice,
                                     choice, conversion, conversion, quantized,  rounding};
    kinds[roll(&m->d, sizeof kinds / sizeof *kinds)](m);
}

/* ---- along axes ---- */

static int any_axis(maker *m, const ir_value *x) {
    int rank = x->type.rank, axis = chance(&m->d, 50) ? rank - 1 : (int)roll(&m->d, (uint32_t)rank);
    return chance(&m->d, 40) ? axis - rank : axis;
}

static void reduction(maker *m) {
    static const ir_opcode all[] = {
        OP_reduce_sum,  OP_reduce_max,     OP_reduce_min,     OP_reduce_sum_square,  OP_reduce_mean,
        OP_reduce_prod, OP_reduce_l2_norm, OP_reduce_l1_norm, OP_reduce_log_sum_exp, OP_reduce_log_sum};
    ir_value *x = chance(&m->d, 85) ? pick_float(m, 1, 5) : pick(m, INT, 1, 5);
    if (!x || !count_of(x)) return;
    ir_opcode code = all[roll(&m->d, m->style == STYLE_EXACT || !is_float(x) ? 4 : 10)];
    if (code == OP_reduce_log_sum && m->style == STYLE_TAME)
        x = op2(m, OP_add, op1(m, OP_abs, x), make_scalar(m, dtype_of(x), 0.5f));
    if (chance(&m->d, 65)) {
        keep(m, op_reduce(m, code, x, any_axis(m, x), chance(&m->d, 60)));
        return;
    }
    int64_t axes[IR_MAX_RANK];
    int n = 0;
    for (int d = 0; d < x->type.rank; d++)
        if (chance(&m->d, 50)) axes[n++] = chance(&m->d, 30) ? d - x->type.rank : d;
    ir_value *list = n ? make_list(m, axes, n) : NULL, *kept = b_bool(&m->b, chance(&m->d, 50));
    keep(m, b_op(&m->b, code, NULL, A_x, x, A_axes, list, A_keep_dims, kept, A_NONE));
}

static void order(maker *m) {
    ir_value *x = chance(&m->d, 80) ? pick_float(m, 1, 5) : pick(m, INT, 1, 5), *out[2];
    if (!x || !count_of(x)) return;
    int axis = any_axis(m, x);
    int64_t n = x->type.dim[axis < 0 ? axis + x->type.rank : axis];
    ir_value *at = b_i32(&m->b, axis), *up = b_bool(&m->b, chance(&m->d, 40));
    switch (roll(&m->d, 4)) {
    case 0: {
        ir_value *kept = b_bool(&m->b, chance(&m->d, 50)),
                 *type = chance(&m->d, 20) ? b_text(&m->b, "uint16") : NULL;
        keep(m, b_op(&m->b, chance(&m->d, 50) ? OP_reduce_argmax : OP_reduce_argmin, NULL, A_x, x, A_axis, at,
                     A_keep_dims, kept, A_output_dtype, type, A_NONE));
        break;
    }
    case 1: {
        ir_value *k = b_i32(&m->b, 1 + (int32_t)roll(&m->d, n < 12 ? (uint32_t)n : 12)), *sorted = NULL,
                 *type = chance(&m->d, 20) ? b_text(&m->b, "uint16") : NULL;
        if (chance(&m->d, 50)) sorted = b_bool(&m->b, chance(&m->d, 70));
        b_op_multi(&m->b, OP_topk, NULL, out, 2, A_x, x, A_k, k, A_axis, at, A_ascending, up, A_sort, sorted,
                   A_output_indices_dtype, type, A_NONE);
        keep(m, out[0]), keep(m, out[1]);
        break;
    }
    case 2: keep(m, b_op(&m->b, OP_argsort, NULL, A_x, x, A_axis, at, A_ascending, up, A_NONE)); break;
    default: {
        ir_value *without = b_bool(&m->b, chance(&m->d, 40)), *back = b_bool(&m->b, chance(&m->d, 40));
        keep(m,
             b_op(&m->b, OP_cumsum, NULL, A_x, x, A_axis, at, A_exclusive, without, A_reverse, back, A_NONE));
    }
    }
}

static void norm(maker *m) {
    ir_value *x = pick_float(m, 1, 5);
    ir_dtype d = dtype_of(x);
    int rank = x->type.rank, kind = (int)roll(&m->d, 5);
    if (m->style == STYLE_EXACT || !count_of(x)) return;
    if (rank < 3 && kind > 1) kind = (int)roll(&m->d, 2);
    int64_t c = rank > 1 ? x->type.dim[1] : 0;
    ir_value *eps = make_scalar(m, d, 1e-3f), *gamma = NULL, *beta = NULL;
    if (kind == 0) {
        ir_value *axis = b_i32(&m->b, any_axis(m, x));
        keep(m, b_op(&m->b, OP_softmax, NULL, A_x, x, A_axis, axis, A_NONE));
    } else if (kind == 1) {
        int from = (int)roll(&m->d, (uint32_t)rank);
        int64_t axes[IR_MAX_RANK];
        ir_type t = ir_scalar(d);
        for (int i = from; i < rank; i++) axes[i - from] = i, t.dim[t.rank++] = x->type.dim[i];
        if (chance(&m->d, 50)) gamma = make_const(m, d, t);
        if (chance(&m->d, 40)) beta = make_const(m, d, t);
        ir_value *list = make_list(m, axes, rank - from);
        keep(m, b_op(&m->b, OP_layer_norm, NULL, A_x, x, A_axes, list, A_gamma, gamma, A_beta, beta,
                     A_epsilon, eps, A_NONE));
    } else if (kind == 2) {
        keep(m, b_op(&m->b, OP_l2_norm, NULL, A_x, x, A_epsilon, eps, A_NONE));
    } else {
        if (chance(&m->d, 60))
            gamma = make_const(m, d, IR_TYPE(d, c)), beta = make_const(m, d, IR_TYPE(d, c));
        ir_value *mean = NULL, *var = NULL;
        if (kind == 4) {
            float *v = ARENA_ARRAY(m->a, float, (size_t)c + 1);
            for (int64_t i = 0; i < c; i++) v[i] = 1.5f + roll_float(&m->d);
            mean = make_const(m, d, IR_TYPE(d, c)), var = b_floats(&m->b, d, v, IR_TYPE(d, c));
        }
        keep(m, b_op(&m->b, kind == 3 ? OP_instance_norm : OP_batch_norm, NULL, A_x, x, A_gamma, gamma,
                     A_beta, beta, A_epsilon, eps, kind == 4 ? A_mean : A_gamma, kind == 4 ? mean : NULL,
                     kind == 4 ? A_variance : A_gamma, var, A_NONE));
    }
}

void make_reduced(maker *m) {
    static make_fn *const kinds[] = {reduction, reduction, order, norm, norm};
    kinds[roll(&m->d, sizeof kinds / sizeof *kinds)](m);
}

/* ---- products ---- */

static void linear(maker *m) {
    ir_value *x = pick_float(m, 1, 3);
    if (!count_of(x) || x->type.dim[x->type.rank - 1] > 300) return;
    keep(m, op_linear(m, x, make_size(m), chance(&m->d, 40)));
}

/* As wide as the kernels of packed weights and their many rows at a time want it. */
static void wide_linear(maker *m) {
    static const int64_t rows[] = {1, 1, 2, 3, 5, 8, 9, 16, 17, 33},
                         cols[] = {32, 64, 96, 128, 192, 256, 320}, outs[] = {16, 24, 32, 48, 64, 96, 130};
    ir_dtype d = chance(&m->d, m->half) ? DT_FP16 : DT_FP32;
    int64_t k = cols[roll(&m->d, 7)], n = outs[roll(&m->d, 7)], t = rows[roll(&m->d, 10)];
    if (chance(&m->d, 30)) { /* channels first, perhaps in groups */
        int64_t g = chance(&m->d, 40) ? 2 : 1;
        ir_value *x = make_input(m, d, IR_TYPE(d, 1, k, 1, t)),
                 *w = make_weight(m, d, IR_TYPE(d, n, k / g, 1, 1));
        ir_value *groups = b_i32(&m->b, (int32_t)g);
        keep(m, b_op(&m->b, OP_conv, NULL, A_x, x, A_weight, w, A_groups, groups, A_NONE));
        return;
    }
    ir_value *x = make_input(m, d, IR_TYPE(d, t, k));
    if (m->style != STYLE_EXACT && chance(&m->d, 50)) x = plant_norm(m, x);
    keep(m, x->type.rank == 2 ? op_linear(m, x, n, chance(&m->d, 30)) : x);
}

static void whole_numbers(maker *m) {
    ir_value *x = pick(m, INT, 2, 4);
    if (!x || !count_of(x)) return;
    int64_t k = x->type.dim[x->type.rank - 1];
    keep(m, op_matmul(m, x, make_const(m, DT_INT32, IR_TYPE(DT_INT32, k, make_size(m))), false, false));
}

static void matmul(maker *m) {
    ir_value *x = pick_float(m, 1, 5), *y = NULL;
    int rank = x->type.rank;
    if (!count_of(x)) return;
    if (rank == 1) {
        y = make_const(m, dtype_of(x), IR_TYPE(DT_FP16, x->type.dim[0], make_size(m)));
        keep(m, op_matmul(m, x, y, false, false));
        return;
    }
    bool tx = chance(&m->d, 30), ty = chance(&m->d, 40);
    int64_t k = x->type.dim[tx ? rank - 2 : rank - 1], n = make_size(m);
    ir_type t = x->type;
    t.dim[rank - 2] = ty ? n : k, t.dim[rank - 1] = ty ? k : n;
    for (int d = 0; d < rank - 2; d++)
        if (chance(&m->d, 30)) t.dim[d] = 1;
    if (chance(&m->d, 25)) {
        int64_t dim[2] = {t.dim[rank - 2], t.dim[rank - 1]};
        t = ir_tensor(dtype_of(x), 2, dim);
    }
    if (ir_type_count(&t) > 8000 || count_of(x) / k * n > 8000) return;
    if (rank > 1 && chance(&m->d, 30)) { /* with itself */
        ty = !tx, y = x;
    } else {
        y = chance(&m->d, 40) ? make_weight(m, dtype_of(x), t) : make_input(m, dtype_of(x), t);
    }
    keep(m, op_matmul(m, x, y, tx, ty));
}

static void einsum(maker *m) {
    static const char *const forms[] = {"bnts,bnsd->bntd", "abcd,adce->abce", "vnm,mno->vno"};
    ir_value *x = pick_float(m, 3, 4), *v[2] = {x};
    const int64_t *dim = x->type.dim;
    int form = x->type.rank == 3 ? 2 : (int)roll(&m->d, 2);
    int64_t n = make_size(m);
    ir_type t = form == 0   ? IR_TYPE(DT_FP16, dim[0], dim[1], dim[3], n)
                : form == 1 ? IR_TYPE(DT_FP16, dim[0], dim[3], dim[2], n)
                            : IR_TYPE(DT_FP16, dim[2], dim[1], n);
    if (!count_of(x) || ir_type_count(&t) > 6000) return;
    v[1] = make_input(m, dtype_of(x), t);
    keep(m, b_opv(&m->b, OP_einsum, NULL, A_values, v, 2, A_equation, b_text(&m->b, forms[form]), A_NONE));
}

static void convolution(maker *m) {
    ir_value *x = pick_float(m, 3, 5), *bias = NULL, *pad = NULL, *groups, *stride = NULL, *dilation = NULL;
    int rank = x->type.rank;
    int64_t c = x->type.dim[1], out = make_size(m), g = 1, list[6], steps[3];
    if (!count_of(x) || c > 70 || out > 70) return;
    bool point = chance(&m->d, 50), turned = chance(&m->d, 12);
    if (chance(&m->d, 30)) g = c, out = c * (chance(&m->d, 70) ? 1 : 2);
    if (g == 1 && c % 4 == 0 && chance(&m->d, 40))
        g = chance(&m->d, 50) ? 2 : 4, out = g * (1 + roll(&m->d, 16));
    ir_type w = ir_scalar(dtype_of(x));
    w.dim[w.rank++] = turned ? c : out, w.dim[w.rank++] = turned ? out / g : c / g;
    for (int d = 2; d < rank; d++) {
        int64_t most = x->type.dim[d] < 4 ? x->type.dim[d] : 4;
        w.dim[w.rank++] = point ? 1 : 1 + (int64_t)roll(&m->d, (uint32_t)most);
        list[2 * (d - 2)] = roll(&m->d, 2), list[2 * (d - 2) + 1] = roll(&m->d, 2);
        steps[d - 2] = 1 + roll(&m->d, 2);
    }
    if (ir_type_count(&w) > 9000) return;
    const char *kind = chance(&m->d, 60) ? "valid" : turned || chance(&m->d, 50) ? "custom" : "same";
    if (!strcmp(kind, "custom")) pad = make_list(m, list, 2 * (rank - 2));
    if (chance(&m->d, 25)) stride = make_list(m, steps, rank - 2);
    if (chance(&m->d, 10) && point) dilation = make_list(m, steps, rank - 2);
    ir_value *weight = chance(&m->d, 85) ? make_weight(m, dtype_of(x), w) : make_input(m, dtype_of(x), w);
    if (chance(&m->d, 40)) bias = make_const(m, dtype_of(x), IR_TYPE(DT_FP16, out));
    ir_value *type = !strcmp(kind, "valid") && chance(&m->d, 50) ? NULL : b_text(&m->b, kind);
    groups = g == 1 && chance(&m->d, 50) ? NULL : b_i32(&m->b, (int32_t)g);
    if (turned && !strcmp(kind, "custom")) type = NULL, pad = NULL;
    keep(m, b_op(&m->b, turned ? OP_conv_transpose : OP_conv, NULL, A_x, x, A_weight, weight, A_bias, bias,
                 A_strides, stride, A_pad_type, type, A_pad, pad, A_dilations, dilation, A_groups, groups,
                 A_NONE));
}

static void attention(maker *m) {
    ir_value *q = pick_float(m, 3, 5), *mask = NULL;
    int rank = q->type.rank;
    if (m->style != STYLE_TAME || !count_of(q)) return;
    ir_type k = q->type, v = q->type, s = q->type;
    int64_t keys = make_size(m);
    k.dim[rank - 2] = v.dim[rank - 2] = s.dim[rank - 1] = keys;
    v.dim[rank - 1] = make_size(m);
    if (ir_type_count(&k) > 6000 || ir_type_count(&v) > 6000 || ir_type_count(&s) > 6000) return;
    for (int d = 0; d + 2 < rank; d++)
        if (chance(&m->d, 70)) s.dim[d] = 1;
    ir_value *key = make_input(m, dtype_of(q), k), *value = make_input(m, dtype_of(q), v);
    if (m->spec >= IR_SPEC_COREAI && rank == 4 && keys >= q->type.dim[2] && chance(&m->d, 25)) {
        ir_value *scale = b_f32(&m->b, 0.3f);
        keep(m, b_op(&m->b, OP_causal_attention, NULL, A_query, q, A_key, key, A_value, value, A_scale, scale,
                     A_NONE));
        return;
    }
    if (chance(&m->d, 60)) mask = make_input(m, chance(&m->d, 70) ? dtype_of(q) : DT_BOOL, s);
    keep(m, b_op(&m->b, OP_scaled_dot_product_attention, NULL, A_query, q, A_key, key, A_value, value,
                 A_attn_mask, mask, A_NONE));
}

void make_product(maker *m) {
    static make_fn *const kinds[] = {linear,      linear,    wide_linear, wide_linear,  matmul,
                                     matmul,      matmul,    einsum,      convolution,  convolution,
                                     convolution, attention, attention,   whole_numbers};
    kinds[roll(&m->d, sizeof kinds / sizeof *kinds)](m);
}
