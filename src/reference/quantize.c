#include "base/num.h"
#include "reference/ops.h"
#include "reference/walk.h"
#include <math.h>

/* Scale and zero point of activations: scalars, or one value an index of the axis. */
typedef struct {
    const float *scale;
    const int32_t *zero; /* NULL: 0 */
    int64_t n, inner;    /* values; elements per index of the axis */
} quantizer;

static bool open_quantizer(ref_eval *v, const ref_tensor *t, quantizer *q) {
    const ref_tensor *ts = ev_in(v, A_scale), *tz = ev_in(v, A_zero_point);
    int axis = ts->type.rank ? ev_axis(v, A_axis, 0, t->type.rank) : 0;
    *q = (quantizer){
        .scale = ev_floats(v, ts), .zero = tz ? ev_ints(v, tz) : NULL, .n = ref_count(ts), .inner = 1};
    if (axis < 0 || !q->scale || (tz && !q->zero)) return false;
    if (ts->type.rank) q->inner = ref_inner(&t->type, axis);
    if ((ts->type.rank && q->n != t->type.dim[axis]) || (tz && ref_count(tz) != q->n))
        return ev_fail(v, "scale and zero_point must have one value, or one along the axis");
    return true;
}

bool ev_quantize(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_input);
    const float *x = ev_floats(v, t);
    quantizer q;
    if (!x || !open_quantizer(v, t, &q) || !ev_new(v, 0)) return false;
    bool is_signed = v->out[0].type.dtype == DT_INT8;
    float lo = is_signed ? -128 : 0, hi = is_signed ? 127 : 255;
    for (int64_t i = 0, n = ref_count(t); i < n; i++) {
        int64_t k = i / q.inner % q.n;
        float r = rintf(x[i] / q.scale[k]) + (q.zero ? (float)q.zero[k] : 0);
        ref_ints(&v->out[0])[i] = r >= hi ? (int32_t)hi : r > lo ? (int32_t)r : (int32_t)lo; /* NaN: lo */
    }
    return true;
}

bool ev_dequantize(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_input);
    const int32_t *x = ev_ints(v, t);
    quantizer q;
    if (!x || !open_quantizer(v, t, &q) || !ev_new(v, 0)) return false;
    for (int64_t i = 0, n = ref_count(t); i < n; i++) {
        int64_t k = i / q.inner % q.n;
        ref_floats(&v->out[0])[i] = q.scale[k] * ((float)x[i] - (q.zero ? (float)q.zero[k] : 0));
    }
    return true;
}

/* The nearest number of 1 + bits binary digits, ties to even, whose unit is not below the smallest; what is
 * beyond the largest becomes `over`. */
static float nearest(float x, int bits, int least, float largest, float over) {
    int e;
    if (!isfinite(x)) return isinf(x) ? copysignf(over, x) : x;
    frexpf(x, &e);
    int unit = e - 1 - bits;
    float y = ldexpf(rintf(ldexpf(x, -(unit < least ? least : unit))), unit < least ? least : unit);
    return fabsf(y) > largest ? copysignf(over, x) : y;
}

bool ev_round_as(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const float *x = ev_floats(v, t);
    ir_dtype d = dtype_by_name(ev_text(v, A_dtype, ""));
    if (d != DT_BF16 && d != DT_E4M3 && d != DT_E5M2)
        return ev_fail(v, "dtype is none that numbers are rounded to");
    if (!x || !ev_new(v, 0)) return false;
    float *y = ref_floats(&v->out[0]);
    for (int64_t i = 0, n = ref_count(t); i < n; i++)
        y[i] = d == DT_BF16   ? num_bf16_f32(num_f32_bf16(x[i]))
               : d == DT_E4M3 ? nearest(x[i], 3, -9, 448, NAN)
                              : nearest(x[i], 2, -16, 57344, INFINITY);
    return true;
}
