#include "base/num.h"
#include "reference/ops.h"
#include "reference/walk.h"
#include <string.h>

/* The cells that slices choose from t: sizes (without squeezed dimensions), strides and where they begin. */
typedef struct {
    int rank;
    int64_t dim[IR_MAX_RANK], stride[IR_MAX_RANK], first;
} region;

static bool resolve(ref_eval *v, const ref_tensor *t, region *r) {
    ir_slice s[IR_MAX_RANK];
    int64_t st[IR_MAX_RANK];
    ir_env env = ev_env(v);
    if (!ir_resolve_slices(v->op, &env, &t->type, s, v->scratch, v->e)) return false;
    ref_strides(&t->type, st);
    *r = (region){0};
    for (int d = 0; d < t->type.rank; d++) {
        r->first += s[d].count ? s[d].begin * st[d] : 0;
        if (s[d].squeeze) continue;
        r->dim[r->rank] = s[d].count;
        r->stride[r->rank++] = s[d].step * st[d];
    }
    return true;
}

static bool take(ref_eval *v, const ref_tensor *t, const region *r) {
    if (v->out[0].type.rank != r->rank ||
        memcmp(v->out[0].type.dim, r->dim, (size_t)r->rank * sizeof r->dim[0]))
        return ev_fail(v, "the slice doesn't have the declared shape");
    if (!ref_count(&v->out[0])) return ev_new(v, 0);
    if (ref_is_dense(r->rank, r->dim, r->stride)) return ev_view(v, 0, t, r->first);
    const ref_cell *x = ev_cells(v, t);
    if (!x || !ev_new(v, 0)) return false;
    ref_copy_strided(v->out[0].cell, x + r->first, r->rank, r->dim, r->stride);
    return true;
}

bool ev_slice_by_index(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    region r;
    return resolve(v, t, &r) && take(v, t, &r);
}

bool ev_slice_by_size(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    size_t n;
    const int64_t *begin = ev_list(v, A_begin, &n);
    region r = {.rank = t->type.rank};
    if (!begin || n != (size_t)r.rank || v->out[0].type.rank != r.rank)
        return ev_fail(v, "begin doesn't fit x");
    ref_strides(&t->type, r.stride);
    for (int d = 0; d < r.rank; d++) {
        int64_t size = t->type.dim[d], at = begin[d] < 0 ? begin[d] + size : begin[d];
        r.dim[d] = v->out[0].type.dim[d];
        if (at < 0 || at > size || r.dim[d] > size - at)
            return ev_fail(v, "%lld elements from %lld pass the %lld of dimension %d", (long long)r.dim[d],
                           (long long)begin[d], (long long)size, d);
        r.first += at * r.stride[d];
    }
    return take(v, t, &r);
}

bool ev_check_update(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    size_t n, m, q;
    const int64_t *end = ev_list(v, A_end, &n), *mask = ev_list(v, A_end_mask, &m),
                  *squeeze = ev_list(v, A_squeeze_mask, &q);
    for (size_t d = 0; t && d < n && d < (size_t)t->type.rank; d++)
        if (end[d] > t->type.dim[d] && !(d < m && mask[d]) && !(d < q && squeeze[d]))
            return ev_fail(v, "end %lld passes the %lld elements of dimension %zu", (long long)end[d],
                           (long long)t->type.dim[d], d);
    return true;
}

/* In place when x ends here and nobody else holds its cells; else in a copy. */
static bool start_update(ref_eval *v, const ref_tensor *t, const ref_tensor *u) {
    if (ev_may_reuse(v, A_x) && u->buf != t->buf) return ev_view(v, 0, t, 0);
    if (!ev_new(v, 0)) return false;
    ref_read(t, 0, ref_count(t), v->out[0].cell);
    ref_buf_set_half(v->out[0].buf, t->buf && ref_buf_half(t->buf));
    return true;
}

bool ev_slice_update(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x), *u = ev_in(v, A_update);
    const ref_cell *x = ev_cells(v, t), *from = ev_cells(v, u);
    region r;
    if (!x || !from || !resolve(v, t, &r)) return false;
    int64_t n = 1, s[IR_MAX_RANK];
    for (int d = r.rank - 1; d >= 0; d--) {
        s[d] = n;
        n *= r.dim[d];
    }
    if (n != ref_count(u))
        return ev_fail(v, "update has %lld elements, the slice %lld", (long long)ref_count(u), (long long)n);
    if (!start_update(v, t, u)) return false;
    ref_cell *o = v->out[0].cell + r.first;
    bool round = v->mode == REF_FAST && v->to_state && u->type.dtype == DT_FP16;
    for (ref_walk w = ref_walk_start(r.rank, r.dim, 2, (const int64_t *const[]){r.stride, s}); !w.done;
         ref_walk_next(&w)) {
        ref_cell *to = o + w.pos[0];
        const ref_cell *in = from + w.pos[1];
        if (!round && w.step[0] == 1 && w.step[1] == 1)
            memcpy(to, in, (size_t)w.run * 4);
        else
            for (int64_t i = 0; i < w.run; i++) to[i * w.step[0]] = in[i * w.step[1]];
        if (round)
            for (int64_t i = 0; i < w.run; i++) {
                float *f = (float *)(void *)&to[i * w.step[0]];
                *f = num_round_f16(*f);
            }
    }
    if (v->mode == REF_FAST && !round) ref_buf_set_half(v->out[0].buf, false);
    return true;
}
