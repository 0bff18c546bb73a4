/* Norms, rotations and softmax of rows. */
#ifndef KERNELS_BODY_ROWS_H
#define KERNELS_BODY_ROWS_H
#include "kernels/body_pointwise.h"

INLINE int64_t row_at(kern_step s, int64_t inner, int64_t i) {
    return i / inner * s.outer + i % inner * s.inner;
}

/* s + v or s + v^2 */
INLINE vec row_add(vec s, vec v, bool square) {
    if (square) return v_fma(v, v, s);
    return s + v;
}

/* The sum of x - mean (square: squared); lane l of 4 * LANES adds elements l, l + 4 * LANES, ... in order. */
INLINE float row_sum(const float *x, int64_t n, float mean, bool square) {
    vec s[4] = {v_all(0), v_all(0), v_all(0), v_all(0)};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int u = 0; u < 4; u++) s[u] = row_add(s[u], v_load(x + i + u * LANES) - mean, square);
    for (; i + LANES <= n; i += LANES) s[0] = row_add(s[0], v_load(x + i) - mean, square);
    float rest = 0; /* what is left of a vector */
    for (; i < n; i++) rest += square ? (x[i] - mean) * (x[i] - mean) : x[i] - mean;
    return v_sum((s[0] + s[1]) + (s[2] + s[3])) + rest;
}

/* One row of a norm, while it is computed. */
typedef struct {
    const kern_norm *job;
    const float *x, *z;
    int64_t y;
    float mean, factor;
} norm_row;

INLINE norm_row norm_start(const kern_norm *job, int64_t r) {
    const float *x = job->x + row_at(job->x_step, job->inner, r);
    norm_row row = {job,
                    x,
                    job->z ? job->z + row_at(job->z_step, job->inner, r) : NULL,
                    row_at(job->y_step, job->inner, r),
                    0,
                    job->scale};
    float n = (float)job->n;
    if (job->kind == KERN_NORM_LAYER) row.mean = row_sum(x, job->n, 0, false) / n;
    if (job->kind == KERN_NORM_NONE) return row;
    float sum = row_sum(x, job->n, row.mean, true);
    float unit = 1 / sqrtf((job->kind == KERN_NORM_SUM ? sum : sum / n) + job->eps);
    row.factor = job->half ? unit : row.factor * unit;
    return row;
}

INLINE int64_t at_least(int64_t x, int64_t least) {
    return x > least ? x : least;
}

INLINE vec load_up_to(const float *p, int64_t n) {
    return n >= LANES ? v_load(p) : v_load_n(p, n);
}

INLINE void store_up_to(float *p, vec v, int64_t n) {
    if (n >= LANES)
        v_store(p, v);
    else
        v_store_n(p, v, n);
}

/* Up to LANES elements from i on, before rotation. */
INLINE vec norm_value(const norm_row *r, int64_t i, int64_t n) {
    vec v = (load_up_to(r->x + i, n) - r->mean) * r->factor;
    if (r->job->half) v = v_round_half(v) * r->job->scale;
    if (r->job->weight) v *= load_up_to(r->job->weight + i, n);
    if (r->job->bias) v += load_up_to(r->job->bias + i, n);
    return v;
}

INLINE void norm_put(const norm_row *r, int64_t i, int64_t n, vec v) {
    const kern_norm *job = r->job;
    if (r->z) v *= v_silu(load_up_to(r->z + i, n));
    if (job->to) {
        kept as = kept_as(job->to);
        if (n >= LANES)
            kept_store(job->to, as, r->y + i, v);
        else
            kept_store_n(job->to, as, r->y + i, v, n);
    } else
        store_up_to(job->y + r->y + i, v, n);
}

static void norm(const kern_norm *job, int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; r++) {
        norm_row row = norm_start(job, r);
        int64_t dims = job->cos ? job->dims : 0, h = dims / 2, table = r / job->inner * job->ld_table;
        int64_t second = job->half_table ? 0 : h;
        for (int64_t i = 0; i < h; i += LANES) {
            int64_t n = h - i;
            const float *c = job->cos + table + i, *s = job->sin + table + i;
            vec a = norm_value(&row, i, n), b = norm_value(&row, h + i, n);
            vec ca = load_up_to(c, n), sa = load_up_to(s, n);
            vec cb = load_up_to(c + second, n), sb = load_up_to(s + second, n);
            norm_put(&row, i, n, a * ca - b * sa);
            norm_put(&row, h + i, n, b * cb + a * sb);
        }
        for (int64_t i = dims; i < job->n; i += LANES)
            norm_put(&row, i, job->n - i, norm_value(&row, i, job->n - i));
    }
}

/* ---- softmax ---- */

INLINE vec softmax_score(const kern_softmax *job, const float *x, const float *m, int64_t i, int64_t n) {
    vec v = load_up_to(x + i, n) * job->scale;
    if (m) v += load_up_to(m + i, n);
    return v;
}

static void softmax(const kern_softmax *job, int64_t lo, int64_t hi) {
    int64_t n = job->n, whole = n / LANES * LANES;
    for (int64_t r = lo; r < hi; r++) {
        const float *x = job->x + r * job->ldx, *m = job->mask ? job->mask + r * job->ldm : NULL;
        float *y = job->y + r * job->ldy, last[LANES];
        vec top = v_all(-INFINITY), sum = v_all(0);
        for (int64_t i = 0; i < whole; i += LANES) {
            vec v = softmax_score(job, x, m, i, LANES);
            v_store(y + i, v);
            top = v_max(v, top);
        }
        for (int i = 0; i < LANES; i++) last[i] = -INFINITY; /* lanes behind the row's end */
        if (whole < n) {
            v_store_n(last, softmax_score(job, x, m, whole, n - whole), n - whole);
            top = v_max(v_load(last), top);
        }
        float highest = v_top(top);
        for (int64_t i = 0; i < whole; i += LANES) {
            vec v = v_exp(v_load(y + i) - highest);
            v_store(y + i, v);
            sum += v;
        }
        vec v = v_exp(v_load(last) - highest);
        if (whole < n) v_store_n(y + whole, v, n - whole), sum += v;
        float factor = 1 / v_sum(sum);
        for (int64_t i = 0; i < whole; i += LANES) v_store(y + i, v_load(y + i) * factor);
        if (whole < n) v_store_n(y + whole, v_load_n(y + whole, n - whole) * factor, n - whole);
    }
}
#endif
