#include "reference/ops.h"
#include "reference/walk.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements of one row in the order asked for; equal ones keep their order. NaN counts as larger than
 * everything. */
typedef struct {
    double key;
    int64_t index;
} item;

static int rank_key(double a, double b) {
    bool na = isnan(a), nb = isnan(b);
    if (na || nb) return (int)na - (int)nb;
    return (a > b) - (a < b);
}

static int ascending(const void *p, const void *q) {
    const item *a = p, *b = q;
    int c = rank_key(a->key, b->key);
    return c ? c : (a->index > b->index) - (a->index < b->index);
}

static int descending(const void *p, const void *q) {
    const item *a = p, *b = q;
    int c = rank_key(b->key, a->key);
    return c ? c : (a->index > b->index) - (a->index < b->index);
}

typedef int order_fn(const void *, const void *);

static void sift_down(item *queue, int64_t n, int64_t i, order_fn *order) {
    for (;;) {
        int64_t top = i, l = 2 * i + 1, r = l + 1;
        if (l < n && order(&queue[l], &queue[top]) > 0) top = l;
        if (r < n && order(&queue[r], &queue[top]) > 0) top = r;
        if (top == i) return;
        item swap = queue[i];
        queue[i] = queue[top];
        queue[top] = swap;
        i = top;
    }
}

/* The first k of n items in order. A heap whose top is the last of those kept: a long row is passed once. */
static void first_k(item *best, int64_t k, const item *all, int64_t n, order_fn *order) {
    if (k <= 0) return;
    memcpy(best, all, (size_t)k * sizeof *best);
    if (k < n) {
        for (int64_t i = k / 2 - 1; i >= 0; i--) sift_down(best, k, i, order);
        for (int64_t i = k; i < n; i++)
            if (order(&all[i], &best[0]) < 0) {
                best[0] = all[i];
                sift_down(best, k, 0, order);
            }
    }
    qsort(best, (size_t)k, sizeof *best, order);
}

static void load_row(item *row, const ref_tensor *t, const ref_cell *x, int64_t base, int64_t n,
                     int64_t inner) {
    bool is_float = dtype_is_float(t->type.dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = base + i * inner;
        row[i].key = is_float ? (double)((const float *)(const void *)x)[at]
                              : (double)((const int32_t *)(const void *)x)[at];
        row[i].index = i;
    }
}

/* Indices stay whole even where the declared uint16 can't hold them: converters write such packages for large
 * vocabularies and cast to int32 next.
 * Orders along one axis: values (may be NULL) and indices (may be NULL) of the first k. */
static bool order_axis(ref_eval *v, int64_t k, int axis, order_fn *order, ref_tensor *values,
                       ref_tensor *indices) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    int64_t n = t->type.dim[axis], inner = ref_inner(&t->type, axis), outer = ref_outer(&t->type, axis);
    item *row = ev_temp(v, n * 4), *best = ev_temp(v, n * 4); /* an item is 4 cells */
    if (!x || !row || !best) return false;
    for (int64_t r = 0; r < outer * inner; r++) {
        int64_t base = r / inner * n * inner + r % inner, out = r / inner * k * inner + r % inner;
        load_row(row, t, x, base, n, inner);
        first_k(best, k, row, n, order);
        for (int64_t i = 0; i < k; i++) {
            if (values) values->cell[out + i * inner] = x[base + best[i].index * inner];
            if (indices) ref_ints(indices)[out + i * inner] = (int32_t)best[i].index;
        }
    }
    return true;
}
_Static_assert(sizeof(item) == 16, "work memory is counted in cells");

bool ev_topk(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    int axis = ev_axis(v, A_axis, -1, t->type.rank);
    if (axis < 0) return false;
    int64_t k = v->out[0].type.dim[axis];
    if (k > t->type.dim[axis])
        return ev_fail(v, "k is %lld but the axis has %lld elements", (long long)k,
                       (long long)t->type.dim[axis]);
    if (!ev_new(v, 0) || (v->op->n_out > 1 && !ev_new(v, 1))) return false;
    return order_axis(v, k, axis, ev_bool(v, A_ascending, false) ? ascending : descending, &v->out[0],
                      v->op->n_out > 1 ? &v->out[1] : NULL);
}

bool ev_argsort(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    int axis = ev_axis(v, A_axis, -1, t->type.rank);
    if (axis < 0 || !ev_new(v, 0)) return false;
    return order_axis(v, t->type.dim[axis], axis, ev_bool(v, A_ascending, false) ? ascending : descending,
                      NULL, &v->out[0]);
}

/* Indices of the non-zero elements, [n, rank]; how many there are is known only now. */
bool ev_non_zero(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    if (!x) return false;
    int64_t n = ref_count(t), found = 0, at = 0;
    bool is_float = dtype_is_float(t->type.dtype);
    int rank = t->type.rank;
    /* -0 is zero too */
    for (int64_t i = 0; i < n; i++) found += (is_float ? x[i] << 1 : x[i]) != 0;
    v->out[0].type = IR_TYPE(v->out[0].type.dtype, found, rank);
    if (!ev_new(v, 0)) return false;
    int32_t *o = ref_ints(&v->out[0]);
    for (int64_t i = 0; i < n; i++) {
        if (!(is_float ? x[i] << 1 : x[i])) continue;
        int64_t rest = i;
        for (int d = rank - 1; d >= 0; d--) {
            o[at * rank + d] = (int32_t)(rest % t->type.dim[d]);
            rest /= t->type.dim[d];
        }
        at++;
    }
    return true;
}
