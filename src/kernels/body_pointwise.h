/* Element by element, in the words of a lanes_*.h. */
#ifndef KERNELS_BODY_POINTWISE_H
#define KERNELS_BODY_POINTWISE_H
#include "base/num.h"
#include "kernels/body_exp.h"
#include "kernels/ops.h"
#include <math.h>
#include <string.h>

INLINE vec pointwise_one(kern_pointwise_op op, vec x, vec y) {
    switch (op) {
    case KERN_ADD: return x + y;
    case KERN_SUB: return x - y;
    case KERN_MUL: return x * y;
    case KERN_SILU: return v_silu(x);
    case KERN_SIGMOID: return v_sigmoid(x);
    case KERN_EXP: return v_exp(x);
    case KERN_SILU_MUL: return v_silu(x) * y;
    case KERN_SIGMOID_MUL: return v_sigmoid(x) * y;
    default: return x;
    }
}

INLINE bool pointwise_binary(kern_pointwise_op op) {
    return op <= KERN_MUL || op >= KERN_SILU_MUL;
}

INLINE void pointwise(const kern_pointwise *job, int64_t lo, int64_t hi, kern_pointwise_op op) {
    while (lo < hi) {
        int64_t row = lo / job->n, c = lo % job->n, n = job->n - c < hi - lo ? job->n - c : hi - lo, i = 0;
        const float *x = job->x + row * job->ldx + c;
        const float *y = pointwise_binary(op) ? job->y + row * job->ldy + c : x;
        float *o = job->o + row * job->ldo + c;
        for (; i + LANES <= n; i += LANES) {
            vec v = pointwise_one(op, v_load(x + i), v_load(y + i));
            v_store(o + i, job->half ? v_round_half(v) : v);
        }
        if (i < n) {
            vec v = pointwise_one(op, v_load_n(x + i, n - i), v_load_n(y + i, n - i));
            v_store_n(o + i, job->half ? v_round_half(v) : v, n - i);
        }
        lo += n;
    }
}

#define POINTWISE(name, op)                                                                                  \
    static void name(const kern_pointwise *job, int64_t lo, int64_t hi) {                                    \
        pointwise(job, lo, hi, op);                                                                          \
    }
POINTWISE(pointwise_add, KERN_ADD)
POINTWISE(pointwise_sub, KERN_SUB)
POINTWISE(pointwise_mul, KERN_MUL)
POINTWISE(pointwise_silu, KERN_SILU)
POINTWISE(pointwise_sigmoid, KERN_SIGMOID)
POINTWISE(pointwise_exp, KERN_EXP)
POINTWISE(pointwise_silu_mul, KERN_SILU_MUL)
POINTWISE(pointwise_sigmoid_mul, KERN_SIGMOID_MUL)

/* ---- memories ---- */

/* How a memory keeps its numbers: a constant where loops are compiled for each. */
typedef enum { KEPT_F32, KEPT_F16, KEPT_PAIR } kept;

static inline kept kept_as(const kern_memory *m) {
    return m->type == KERN_F32 ? KEPT_F32 : m->rest ? KEPT_PAIR : KEPT_F16;
}

INLINE vec kept_load(const kern_memory *m, kept as, int64_t at) {
    const uint16_t *h = m->value;
    if (as == KEPT_F32) return v_load((const float *)m->value + at);
    vec v = v_half(h + at);
    if (as == KEPT_PAIR) v += v_half(m->rest + at);
    return v;
}

INLINE vec kept_load_n(const kern_memory *m, kept as, int64_t at, int64_t n) {
    const uint16_t *h = m->value;
    if (as == KEPT_F32) return v_load_n((const float *)m->value + at, n);
    vec v = v_half_n(h + at, n);
    if (as == KEPT_PAIR) v += v_half_n(m->rest + at, n);
    return v;
}

INLINE void kept_store(const kern_memory *m, kept as, int64_t at, vec v) {
    uint16_t *h = m->value;
    if (as == KEPT_F32)
        v_store((float *)m->value + at, v);
    else
        v_put_half(h + at, v);
    if (as == KEPT_PAIR) v_put_half(m->rest + at, v - v_round_half(v));
}

INLINE void kept_store_n(const kern_memory *m, kept as, int64_t at, vec v, int64_t n) {
    uint16_t *h = m->value;
    if (as == KEPT_F32)
        v_store_n((float *)m->value + at, v, n);
    else
        v_put_half_n(h + at, v, n);
    if (as == KEPT_PAIR) v_put_half_n(m->rest + at, v - v_round_half(v), n);
}

static void narrow(const kern_memory *to, const float *x, int64_t lo, int64_t hi) {
    kept as = kept_as(to);
    for (; lo + LANES <= hi; lo += LANES) kept_store(to, as, lo, v_load(x + lo));
    if (lo < hi) kept_store_n(to, as, lo, v_load_n(x + lo, hi - lo), hi - lo);
}

static void widen(float *to, const kern_memory *x, int64_t lo, int64_t hi) {
    kept as = kept_as(x);
    for (; lo + LANES <= hi; lo += LANES) v_store(to + lo, kept_load(x, as, lo));
    if (lo < hi) v_store_n(to + lo, kept_load_n(x, as, lo, hi - lo), hi - lo);
}
#endif
