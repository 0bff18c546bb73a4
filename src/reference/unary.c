#include "base/num.h"
#include "reference/ops.h"
#include "reference/rows.h"
#include "reference/walk.h"
#include <math.h>
#include <string.h>

/* y[i] = expression of a = x[i] */
#define EACH(expr)                                                                                           \
    do {                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                    \
            float a = x[i];                                                                                  \
            y[i] = (expr);                                                                                   \
        }                                                                                                    \
        return true;                                                                                         \
    } while (0)

static float softplus(float a) {
    return fmaxf(a, 0) + log1pf(expf(-fabsf(a))); /* never overflows */
}

static bool gelu(const float *x, float *y, int64_t n, const char *mode) {
    if (!strcmp(mode, "TANH_APPROXIMATION"))
        EACH(0.5f * a * (1 + tanhf(0.7978845608f * (a + 0.044715f * a * a * a))));
    if (!strcmp(mode, "SIGMOID_APPROXIMATION")) EACH(a / (1 + expf(-1.702f * a)));
    EACH(0.5f * a * (1 + erff(a * 0.70710678118f)));
}

static bool shifted(ir_opcode code, const float *x, float *y, int64_t n, float eps) {
    switch (code) {
    case OP_log: EACH(logf(a + eps));
    case OP_rsqrt: EACH(1 / sqrtf(a + eps));
    case OP_inverse: EACH(1 / (a + eps));
    default: return false;
    }
}

/* Functions with parameters. */
static bool parametric(ref_eval *v, const float *x, float *y, int64_t n) {
    switch (v->op->code) {
    case OP_log: return shifted(OP_log, x, y, n, ev_float(v, A_epsilon, 1e-45f));
    case OP_rsqrt: return shifted(OP_rsqrt, x, y, n, ev_float(v, A_epsilon, 1e-12f));
    case OP_inverse: return shifted(OP_inverse, x, y, n, ev_float(v, A_epsilon, 1e-4f));
    case OP_clip: {
        float lo = ev_float(v, A_alpha, 0), hi = ev_float(v, A_beta, 0);
        EACH(a < lo ? lo : a > hi ? hi : a);
    }
    case OP_threshold: {
        float lo = ev_float(v, A_alpha, 0);
        EACH(a < lo ? lo : a);
    }
    case OP_leaky_relu: {
        float slope = ev_float(v, A_alpha, 0);
        EACH(a < 0 ? slope * a : a);
    }
    case OP_elu: {
        float scale = ev_float(v, A_alpha, 0);
        EACH(a < 0 ? scale * expm1f(a) : a);
    }
    case OP_gelu: return gelu(x, y, n, ev_text(v, A_mode, "EXACT"));
    default: return false;
    }
}

static bool plain(ir_opcode code, const float *x, float *y, int64_t n) {
    switch (code) {
    case OP_silu: EACH(a / (1 + expf(-a)));
    case OP_sigmoid: EACH(1 / (1 + expf(-a)));
    case OP_tanh: EACH(tanhf(a));
    case OP_relu: EACH(a < 0 ? 0 : a);
    case OP_softplus: EACH(softplus(a));
    case OP_exp: EACH(expf(a));
    case OP_exp2: EACH(exp2f(a));
    case OP_erf: EACH(erff(a));
    case OP_sqrt: EACH(sqrtf(a));
    case OP_square: EACH(a * a);
    case OP_abs: EACH(fabsf(a));
    case OP_floor: EACH(floorf(a));
    case OP_ceil: EACH(ceilf(a));
    case OP_round: EACH(rintf(a)); /* half to even */
    case OP_sign: EACH(a > 0 ? 1 : a < 0 ? -1 : a);
    case OP_sin: EACH(sinf(a));
    case OP_cos: EACH(cosf(a));
    default: return false;
    }
}

bool ref_unary_row(ir_opcode code, const float *x, float *y, int64_t n, float epsilon) {
    return plain(code, x, y, n) || shifted(code, x, y, n, epsilon);
}

static bool integers(ref_eval *v, const int32_t *x, int32_t *y, int64_t n) {
    int32_t lo = v->op->code == OP_threshold ? (int32_t)ev_int(v, A_alpha, 0) : 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t a = x[i];
        switch (v->op->code) {
        case OP_abs: y[i] = a < 0 ? (int32_t)(0u - (uint32_t)a) : a; break;
        case OP_square: y[i] = (int32_t)((uint32_t)a * (uint32_t)a); break;
        case OP_sign: y[i] = (a > 0) - (a < 0); break;
        case OP_exp2: y[i] = a < 0 || a > 31 ? 0 : (int32_t)(1u << a); break;
        case OP_threshold: y[i] = a < lo ? lo : a; break;
        default: return ev_fail(v, "integers are not possible here");
        }
    }
    return true;
}

bool ev_unary(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    if (!x || !ev_new(v, 0)) return false;
    int64_t n = ref_count(t);
    if (!dtype_is_float(t->type.dtype)) return integers(v, ev_ints(v, t), ref_ints(&v->out[0]), n);
    const float *f = ev_floats(v, t);
    float *y = ref_floats(&v->out[0]);
    return plain(v->op->code, f, y, n) || parametric(v, f, y, n);
}

bool ev_logical_not(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const int32_t *x = ev_ints(v, t);
    if (!x || !ev_new(v, 0)) return false;
    int32_t *y = ref_ints(&v->out[0]);
    for (int64_t i = 0, n = ref_count(t); i < n; i++) y[i] = !x[i];
    return true;
}

/* alpha * log(1 + exp(beta * x)), alpha and beta per channel (axis 1) */
bool ev_softplus_parametric(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x), *ta = ev_in(v, A_alpha), *tb = ev_in(v, A_beta);
    const float *x = ev_floats(v, t), *alpha = ev_floats(v, ta), *beta = ev_floats(v, tb);
    if (!x || !alpha || !beta || !ev_new(v, 0)) return false;
    if (t->type.rank < 2 || ref_count(ta) != t->type.dim[1] || ref_count(tb) != t->type.dim[1])
        return ev_fail(v, "alpha and beta must have one value a channel");
    float *y = ref_floats(&v->out[0]);
    int64_t channels = t->type.dim[1], inner = ref_inner(&t->type, 1);
    for (int64_t r = 0; r < t->type.dim[0] * channels; r++)
        for (int64_t i = r * inner; i < (r + 1) * inner; i++)
            y[i] = alpha[r % channels] * softplus(beta[r % channels] * x[i]);
    return true;
}

/* ---- cast ---- */

/* A cast to fp16 rounds in both modes: programs split numbers into a half and the remainder with it. */

/* Truncates toward zero; what doesn't fit becomes the nearest bound, NaN becomes 0. */
static int32_t to_int(float a, ir_dtype d) {
    int64_t lo = INT32_MIN, hi = INT32_MAX;
    unsigned bits = dtype_bits(d);
    if (d == DT_BOOL) return a != 0;
    if (dtype_class(d) == DTC_UINT)
        lo = 0, hi = bits < 32 ? (INT64_C(1) << bits) - 1 : INT32_MAX;
    else if (bits < 32)
        lo = -(INT64_C(1) << (bits - 1)), hi = -lo - 1;
    if (isnan(a)) return 0;
    double w = (double)a;
    return (int32_t)(w <= (double)lo ? lo : w >= (double)hi ? hi : (int64_t)w);
}

void ref_cast_row(const void *x, ir_dtype from, void *y, ir_dtype to, int64_t n) {
    bool ff = dtype_is_float(from), tf = dtype_is_float(to);
    const float *f = x;
    const int32_t *k = x;
    float *yf = y;
    int32_t *yk = y;
    if (ff && tf)
        for (int64_t i = 0; i < n; i++) yf[i] = num_round_f16(f[i]);
    else if (ff)
        for (int64_t i = 0; i < n; i++) yk[i] = to_int(f[i], to);
    else if (tf)
        for (int64_t i = 0; i < n; i++) yf[i] = to == DT_FP16 ? num_round_f16((float)k[i]) : (float)k[i];
    else
        for (int64_t i = 0; i < n; i++) yk[i] = ref_wrap_int(to, k[i]);
}

bool ev_cast(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    ir_dtype from = t->type.dtype, to = v->out[0].type.dtype;
    bool ff = dtype_is_float(from), tf = dtype_is_float(to);
    if (from == to || (ff && tf && !(from == DT_FP32 && to == DT_FP16))) return ev_view(v, 0, t, 0);
    const ref_cell *cell = ev_cells(v, t);
    if (!cell || !ev_new(v, 0)) return false;
    ref_cast_row(cell, from, v->out[0].cell, to, ref_count(t));
    return true;
}
