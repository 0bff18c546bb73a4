#include "reference/gemm.h"
#include "reference/ops.h"
#include "reference/walk.h"
#include <string.h>

/* y = x W^T + b */
static bool linear_ints(ref_eval *v, const ref_tensor *tx, const ref_tensor *tw, int64_t m, int64_t n,
                        int64_t k) {
    const int32_t *x = ev_ints(v, tx), *w = ev_ints(v, tw);
    if (!x || !w) return false;
    int32_t *y = ref_ints(&v->out[0]);
    for (int64_t i = 0; i < m * n; i++) {
        uint32_t s = 0;
        for (int64_t j = 0; j < k; j++) s += (uint32_t)x[i / n * k + j] * (uint32_t)w[i % n * k + j];
        y[i] = (int32_t)s;
    }
    return true;
}

static bool add_bias(ref_eval *v, int64_t m, int64_t n) {
    const ref_tensor *tb = ev_in(v, A_bias);
    if (!tb) return true;
    const ref_cell *b = ev_cells(v, tb);
    if (!b) return false;
    bool is_float = dtype_is_float(v->out[0].type.dtype);
    if (dtype_is_float(tb->type.dtype) != is_float || ref_count(tb) != n)
        return ev_fail(v, "bias must hold %lld values of x's kind", (long long)n);
    const float *bf = (const float *)(const void *)b;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            if (is_float)
                ref_floats(&v->out[0])[i * n + j] += bf[j];
            else
                v->out[0].cell[i * n + j] += b[j];
        }
    return true;
}

bool ev_linear(ref_eval *v) {
    const ref_tensor *tx = ev_in(v, A_x), *tw = ev_in(v, A_weight);
    int64_t n = tw->type.dim[0], k = tw->type.dim[1];
    if (tx->type.rank < 1 || tw->type.rank != 2 || tx->type.dim[tx->type.rank - 1] != k ||
        dtype_is_float(tx->type.dtype) != dtype_is_float(tw->type.dtype))
        return ev_fail(v, "x %s and weight %s don't fit", ir_type_text(v->scratch, &tx->type),
                       ir_type_text(v->scratch, &tw->type));
    const ref_cell *x = ev_cells(v, tx);
    if (!x || !ev_new(v, 0)) return false;
    int64_t m = n ? ref_count(&v->out[0]) / n : 0;
    if (dtype_is_float(tx->type.dtype)) {
        ref_matrix w;
        if (!ref_weight(&w, tw, k, n) && !(w.data = ev_cells(v, tw))) return false;
        w.blocks = v->mode == REF_FAST;
        ref_gemm(ref_floats(&v->out[0]), (const float *)(const void *)x, m, &w);
    } else if (!linear_ints(v, tx, tw, m, n, k)) {
        return false;
    }
    return add_bias(v, m, n);
}

/* ---- matmul ---- */

typedef struct {
    int64_t m, n, k;
    bool tx, ty;
} product;

static void matmul_ints(int32_t *c, const int32_t *a, const int32_t *b, const product *p) {
    for (int64_t i = 0; i < p->m * p->n; i++) {
        int64_t r = i / p->n, q = i % p->n;
        uint32_t s = 0;
        for (int64_t j = 0; j < p->k; j++)
            s += (uint32_t)a[p->tx ? j * p->m + r : r * p->k + j] *
                 (uint32_t)b[p->ty ? q * p->k + j : j * p->n + q];
        c[i] = (int32_t)s;
    }
}

static void matmul_floats(float *c, const float *a, const float *b, const product *p, float *turned) {
    if (p->tx) {
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->k; j++) turned[i * p->k + j] = a[j * p->m + i];
        a = turned;
    }
    ref_gemm(c, a, p->m, &(ref_matrix){.data = b, .k = p->k, .n = p->n, .by_output = p->ty});
}

/* The last two dimensions as rows and columns; a vector is one row (x) or one column (y). */
static void matrix_of(const ir_type *t, bool is_x, bool swap, int64_t *rows, int64_t *cols) {
    int r = t->rank;
    if (r == 1) {
        *rows = is_x ? 1 : t->dim[0];
        *cols = is_x ? t->dim[0] : 1;
        return;
    }
    *rows = t->dim[swap ? r - 1 : r - 2];
    *cols = t->dim[swap ? r - 2 : r - 1];
}

static ir_type batch_of(const ir_type *t) {
    return ir_tensor(t->dtype, t->rank > 2 ? t->rank - 2 : 0, t->dim);
}

bool ev_matmul(ref_eval *v) {
    const ref_tensor *tx = ev_in(v, A_x), *ty = ev_in(v, A_y);
    bool is_float = dtype_is_float(tx->type.dtype);
    product p = {.tx = ev_bool(v, A_transpose_x, false) && tx->type.rank > 1,
                 .ty = ev_bool(v, A_transpose_y, false) && ty->type.rank > 1};
    int64_t ky;
    ir_type bx = batch_of(&tx->type), by = batch_of(&ty->type), batch;
    if (!tx->type.rank || !ty->type.rank || is_float != dtype_is_float(ty->type.dtype) ||
        !ir_broadcast(&bx, &by, &batch))
        return ev_fail(v, "x and y don't fit");
    matrix_of(&tx->type, true, p.tx, &p.m, &p.k);
    matrix_of(&ty->type, false, p.ty, &ky, &p.n);
    if (p.k != ky) return ev_fail(v, "x has %lld columns and y has %lld rows", (long long)p.k, (long long)ky);
    const ref_cell *x = ev_cells(v, tx), *y = ev_cells(v, ty);
    if (!x || !y || !ev_new(v, 0)) return false;
    float *turned = p.tx ? ev_temp(v, p.m * p.k) : NULL;
    if (p.tx && !turned) return false;
    ref_cell *c = v->out[0].cell;
    int64_t sx[IR_MAX_RANK], sy[IR_MAX_RANK];
    ref_broadcast_strides(&bx, &batch, sx);
    ref_broadcast_strides(&by, &batch, sy);
    for (ref_walk w = ref_walk_start(batch.rank, batch.dim, 2, (const int64_t *const[]){sx, sy}); !w.done;
         ref_walk_next(&w))
        for (int64_t i = 0; i < w.run; i++, c += p.m * p.n) {
            const ref_cell *a = x + (w.pos[0] + i * w.step[0]) * p.m * p.k;
            const ref_cell *b = y + (w.pos[1] + i * w.step[1]) * p.k * p.n;
            if (is_float)
                matmul_floats((float *)(void *)c, (const float *)(const void *)a,
                              (const float *)(const void *)b, &p, turned);
            else
                matmul_ints((int32_t *)(void *)c, (const int32_t *)(const void *)a,
                            (const int32_t *)(const void *)b, &p);
        }
    return true;
}
