#include "base/num.h"
#include "plan/steps.h"
#include "reference/rows.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float *row_at(const step_rows *r, const float *x, int64_t i) {
    for (int d = r->rank - 1; d >= 0; d--) {
        x += i % r->dim[d] * r->stride[d];
        i /= r->dim[d];
    }
    return x;
}

/* log(sum(exp(x - max))) + max, inf where that is infinite; -inf for a row of nothing but -inf */
static float log_sum_exp(const float *x, int64_t step, int64_t n) {
    float top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) top = x[i * step] > top ? x[i * step] : top;
    if (isinf(top)) top = top > 0 ? INFINITY : 0;
    for (int64_t i = 0; i < n; i++) sum += isinf(top) ? 1 : expf(x[i * step] - top);
    return logf(sum) + top;
}

static float reduce_row(ir_opcode code, const float *x, int64_t step, int64_t n) {
    if (code == OP_reduce_log_sum_exp) return log_sum_exp(x, step, n);
    float s = code == OP_reduce_max ? -INFINITY : code == OP_reduce_min ? INFINITY : 0;
    for (int64_t i = 0; i < n; i++) {
        float a = x[i * step];
        switch (code) {
        case OP_reduce_max: s = a > s || a != a ? a : s; break;
        case OP_reduce_min: s = a < s || a != a ? a : s; break;
        case OP_reduce_sum_square: s += a * a; break;
        default: s += a; break;
        }
    }
    return code == OP_reduce_mean ? s / (float)n : s;
}

void run_reduce(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_rows *r = param;
    float *y = p[0];
    (void)w;
    for (int64_t i = lo; i < hi; i++) {
        y[i] = reduce_row(r->code, row_at(r, p[1], i), r->step, r->n);
        if (r->round) y[i] = num_round_f16(y[i]);
    }
}

void run_argmax(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_rows *r = param;
    float sign = r->code == OP_reduce_argmax ? 1 : -1;
    (void)w;
    for (int64_t i = lo; i < hi; i++) {
        const float *x = row_at(r, p[1], i);
        int64_t best = 0;
        float top = sign * x[0];
        for (int64_t j = 1; j < r->n; j++)
            if (sign * x[j * r->step] > top) top = sign * x[j * r->step], best = j;
        ((int32_t *)p[0])[i] = (int32_t)best;
    }
}

void run_softmax(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_rows *r = param;
    (void)w;
    for (int64_t i = lo; i < hi; i++) {
        const float *x = row_at(r, p[1], i);
        float *y = (float *)p[0] + i * r->n, top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < r->n; j++) top = x[j * r->step] > top ? x[j * r->step] : top;
        for (int64_t j = 0; j < r->n; j++) sum += y[j] = expf(x[j * r->step] - top);
        for (int64_t j = 0; j < r->n; j++) y[j] /= sum;
        if (r->round) num_round_f16_all(y, (size_t)r->n);
    }
}

/* ---- products ---- */

void run_prepare(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_prepare *s = param;
    (void)w;
    s->fn(p[0], p[1], s->k, s->k, lo, hi);
}

void run_linear(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_linear *s = param;
    int64_t n = s->w.rows;
    kern_linear job = {.w = &s->w,
                       .x = p[1],
                       .n = s->m,
                       .ldx = s->w.cols,
                       .bias = s->bias,
                       .y = p[0],
                       .ldy = n,
                       .scratch = s->c.scratch ? w->scratch : NULL};
    if (s->add) job.add = p[s->add], job.ldadd = n;
    s->c.run(&job, lo, hi);
    for (int64_t i = 0; i < s->m && s->round; i++) w->ops->round(job.y + i * n + lo, hi - lo);
}

static float element(const step_matmul *s, const void *b, int64_t at) {
    return s->store_b == DT_FP16 ? num_f16_f32(((const uint16_t *)b)[at]) : ((const float *)b)[at];
}

static void add_product(const step_matmul *s, float *c, float x, const void *b, int64_t at) {
    if (s->store_b == DT_FP16) {
        const uint16_t *h = (const uint16_t *)b + at;
        for (int64_t j = 0; j < s->n; j++) c[j] += x * num_f16_f32(h[j * s->bn]);
    } else if (s->bn == 1) {
        const float *f = (const float *)b + at;
        for (int64_t j = 0; j < s->n; j++) c[j] += x * f[j];
    } else {
        const float *f = (const float *)b + at;
        for (int64_t j = 0; j < s->n; j++) c[j] += x * f[j * s->bn];
    }
}

/* Units are rows of the result. Sums in index order, in fp32. */
void run_matmul(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_matmul *s = param;
    (void)w;
    for (int64_t u = lo; u < hi; u++) {
        int64_t batch = u / s->m, a = u % s->m * s->am, b = 0;
        for (int d = s->rank - 1; d >= 0; d--) {
            a += batch % s->dim[d] * s->sa[d];
            b += batch % s->dim[d] * s->sb[d];
            batch /= s->dim[d];
        }
        const float *x = (const float *)p[1] + a;
        float *c = (float *)p[0] + u * s->n;
        if (s->bk == 1 && s->bn != 1) { /* columns lie in one piece: dot products */
            for (int64_t j = 0; j < s->n; j++) {
                float sum = 0;
                for (int64_t k = 0; k < s->k; k++) sum += x[k * s->ak] * element(s, p[2], b + j * s->bn + k);
                c[j] = sum;
            }
        } else {
            memset(c, 0, (size_t)s->n * 4);
            for (int64_t k = 0; k < s->k; k++) add_product(s, c, x[k * s->ak], p[2], b + k * s->bk);
        }
        if (s->round) num_round_f16_all(c, (size_t)s->n);
    }
}

void run_conv(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_conv *s = param;
    (void)w;
    for (int64_t u = lo; u < hi; u++) {
        int64_t c = u % s->channels;
        const float *x = (const float *)p[1] + u / s->channels * s->xn + c * s->xc,
                    *tap = (const float *)p[2] + c * s->taps;
        float *y = (float *)p[0] + u * s->out;
        for (int64_t t = 0; t < s->out; t++) {
            float sum = 0;
            for (int64_t i = 0; i < s->taps; i++) sum += x[(t + i) * s->xt] * tap[i];
            y[t] = s->round ? num_round_f16(sum) : sum;
        }
    }
}

/* ---- top-k ---- */

typedef struct {
    float key;
    int32_t index;
} item;

/* a comes before b; equal ones keep their order, NaN is larger than everything. */
static bool before(item a, item b, bool ascending) {
    bool na = a.key != a.key, nb = b.key != b.key;
    if (na != nb) return ascending ? nb : na;
    if (!na && a.key != b.key) return ascending ? a.key < b.key : a.key > b.key;
    return a.index < b.index;
}

/* best[] is a heap whose top comes last. */
static void sift_down(item *best, int64_t n, int64_t i, bool ascending) {
    for (;;) {
        int64_t top = i, left = 2 * i + 1, right = left + 1;
        if (left < n && before(best[top], best[left], ascending)) top = left;
        if (right < n && before(best[top], best[right], ascending)) top = right;
        if (top == i) return;
        item swap = best[i];
        best[i] = best[top];
        best[top] = swap;
        i = top;
    }
}

void run_topk(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_topk *s = param;
    item *best = w->scratch;
    const float *x = (const float *)p[s->with_indices ? 2 : 1];
    for (int64_t r = lo; r < hi; r++) {
        const float *row = x + r * s->n;
        float *value = (float *)p[0] + r * s->k;
        int32_t *index = s->with_indices ? (int32_t *)p[1] + r * s->k : NULL;
        for (int64_t i = 0; i < s->k; i++) best[i] = (item){row[i], (int32_t)i};
        for (int64_t i = s->k / 2 - 1; i >= 0; i--) sift_down(best, s->k, i, s->ascending);
        for (int64_t i = s->k; i < s->n; i++) {
            item it = {row[i], (int32_t)i};
            if (!before(it, best[0], s->ascending)) continue;
            best[0] = it;
            sift_down(best, s->k, 0, s->ascending);
        }
        for (int64_t n = s->k; n > 0; n--) { /* the last one goes to the end */
            value[n - 1] = best[0].key;
            if (index) index[n - 1] = best[0].index;
            best[0] = best[n - 1];
            sift_down(best, n - 1, 0, s->ascending);
        }
    }
}
