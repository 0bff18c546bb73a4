#include "reference/walk.h"
#include <string.h>

static bool adjoin(const ref_walk *w, int outer, int64_t dim, const int64_t *const *stride, int d) {
    for (int k = 0; k < w->n; k++)
        if (w->stride[k][outer] != stride[k][d] * dim) return false;
    return true;
}

ref_walk ref_walk_start(int rank, const int64_t *dim, int n, const int64_t *const *stride) {
    ref_walk w = {.n = n};
    for (int d = 0; d < rank; d++) {
        if (dim[d] == 0) w.done = true;
        if (dim[d] == 1) continue;
        bool merge = w.rank > 0 && adjoin(&w, w.rank - 1, dim[d], stride, d);
        int at = merge ? w.rank - 1 : w.rank++;
        w.dim[at] = merge ? w.dim[at] * dim[d] : dim[d];
        for (int k = 0; k < n; k++) w.stride[k][at] = stride[k][d];
    }
    w.run = 1;
    if (w.rank) { /* the innermost dimension is the caller's loop */
        w.rank--;
        w.run = w.dim[w.rank];
        for (int k = 0; k < n; k++) w.step[k] = w.stride[k][w.rank];
    }
    return w;
}

void ref_walk_next(ref_walk *w) {
    for (int d = w->rank - 1; d >= 0; d--) {
        for (int k = 0; k < w->n; k++) w->pos[k] += w->stride[k][d];
        if (++w->at[d] < w->dim[d]) return;
        for (int k = 0; k < w->n; k++) w->pos[k] -= w->stride[k][d] * w->dim[d];
        w->at[d] = 0;
    }
    w->done = true;
}

void ref_strides(const ir_type *t, int64_t *s) {
    int64_t step = 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        s[d] = step;
        step *= t->dim[d];
    }
}

void ref_broadcast_strides(const ir_type *t, const ir_type *out, int64_t *s) {
    int64_t own[IR_MAX_RANK] = {0};
    ref_strides(t, own);
    int shift = out->rank - t->rank;
    for (int d = 0; d < out->rank; d++)
        s[d] = d < shift || (t->dim[d - shift] == 1 && out->dim[d] != 1) ? 0 : own[d - shift];
}

int64_t ref_inner(const ir_type *t, int axis) {
    int64_t n = 1;
    for (int d = axis + 1; d < t->rank; d++) n *= t->dim[d];
    return n;
}

int64_t ref_outer(const ir_type *t, int axis) {
    int64_t n = 1;
    for (int d = 0; d < axis; d++) n *= t->dim[d];
    return n;
}

void ref_copy_strided(void *o, const void *x, int rank, const int64_t *dim, const int64_t *stride) {
    char *out = o;
    const char *in = x;
    for (ref_walk w = ref_walk_start(rank, dim, 1, &stride); !w.done; ref_walk_next(&w)) {
        const char *from = in + w.pos[0] * 4;
        if (w.step[0] == 1)
            memcpy(out, from, (size_t)w.run * 4);
        else
            for (int64_t i = 0; i < w.run; i++) memcpy(out + 4 * i, from + 4 * i * w.step[0], 4);
        out += w.run * 4;
    }
}

bool ref_is_dense(int rank, const int64_t *dim, const int64_t *stride) {
    ref_walk w = ref_walk_start(rank, dim, 1, &stride);
    return w.done || (w.rank == 0 && (w.run == 1 || w.step[0] == 1));
}
