#include "reference/ops.h"
#include "reference/walk.h"
#include <string.h>

/* Ops that only give the same elements another shape. */
bool ev_same_cells(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    if (ref_count(t) != ir_type_count(&v->out[0].type))
        return ev_fail(v, "%s doesn't hold the elements of %s", ir_type_text(v->scratch, &v->out[0].type),
                       ir_type_text(v->scratch, &t->type));
    return ev_view(v, 0, t, 0);
}

bool ev_transpose(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    size_t n;
    const int64_t *perm = ev_list(v, A_perm, &n);
    int64_t st[IR_MAX_RANK], s[IR_MAX_RANK];
    ref_strides(&t->type, st);
    for (size_t d = 0; d < n; d++) {
        int64_t axis = perm[d];
        if (!ir_axis(&axis, t->type.rank)) return ev_fail(v, "perm holds %lld", (long long)axis);
        s[d] = st[axis];
    }
    const ir_type *type = &v->out[0].type;
    if (ref_is_dense(type->rank, type->dim, s)) return ev_view(v, 0, t, 0);
    const ref_cell *x = ev_cells(v, t);
    if (!x || !ev_new(v, 0)) return false;
    ref_copy_strided(v->out[0].cell, x, type->rank, type->dim, s);
    return true;
}

/* Elements of value i along the axis; a scalar counts as a vector of one. */
static int64_t extent(const ref_tensor *t, int axis) {
    return t->type.rank ? t->type.dim[axis] : 1;
}

bool ev_concat(ref_eval *v) {
    const ir_arg *arg = ir_args(v->op, A_values);
    int axis = ev_axis(v, A_axis, 0, v->out[0].type.rank);
    if (axis < 0 || !ev_new(v, 0)) return false;
    bool interleave = ev_bool(v, A_interleave, false);
    int64_t inner = ref_inner(&v->out[0].type, axis), outer = ref_outer(&v->out[0].type, axis);
    int64_t total = v->out[0].type.dim[axis], at = 0;
    for (uint32_t i = 0; i < arg->n; i++) {
        const ref_tensor *t = ev_value(v, arg->v[i]);
        int64_t n = extent(t, axis);
        for (int64_t o = 0; o < outer; o++) {
            ref_cell *to = v->out[0].cell + o * total * inner;
            if (!interleave)
                ref_read(t, o * n * inner, n * inner, to + at * inner);
            else
                for (int64_t k = 0; k < n; k++)
                    ref_read(t, (o * n + k) * inner, inner, to + (k * arg->n + i) * inner);
        }
        at += n;
    }
    return true;
}

bool ev_stack(ref_eval *v) {
    const ir_arg *arg = ir_args(v->op, A_values);
    int axis = ev_axis(v, A_axis, 0, v->out[0].type.rank);
    if (axis < 0 || !ev_new(v, 0)) return false;
    int64_t inner = ref_inner(&v->out[0].type, axis), outer = ref_outer(&v->out[0].type, axis);
    for (uint32_t i = 0; i < arg->n; i++) {
        const ref_tensor *t = ev_value(v, arg->v[i]);
        for (int64_t o = 0; o < outer; o++)
            ref_read(t, o * inner, inner, v->out[0].cell + (o * arg->n + i) * inner);
    }
    return true;
}

bool ev_split(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    int axis = ev_axis(v, A_axis, 0, t->type.rank);
    if (!x || axis < 0) return false;
    int64_t inner = ref_inner(&t->type, axis), outer = ref_outer(&t->type, axis), total = t->type.dim[axis],
            at = 0;
    for (uint32_t i = 0; i < v->op->n_out; i++) {
        int64_t n = v->out[i].type.dim[axis];
        if (n > total - at) return ev_fail(v, "the pieces are longer than x");
        if (outer == 1) {
            if (!ev_view(v, i, t, at * inner)) return false;
        } else {
            if (!ev_new(v, i)) return false;
            for (int64_t o = 0; o < outer; o++)
                memcpy(v->out[i].cell + o * n * inner, x + (o * total + at) * inner, (size_t)(n * inner) * 4);
        }
        at += n;
    }
    return true;
}

/* Seen as [rep, dim] pairs, where rep has stride 0. */
bool ev_tile(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    int64_t st[IR_MAX_RANK], dim[WALK_RANK], s[WALK_RANK];
    if (!x || !ev_new(v, 0)) return false;
    ref_strides(&t->type, st);
    for (int d = 0; d < t->type.rank; d++) {
        dim[2 * d] = t->type.dim[d] ? v->out[0].type.dim[d] / t->type.dim[d] : 0;
        dim[2 * d + 1] = t->type.dim[d];
        s[2 * d] = 0;
        s[2 * d + 1] = st[d];
    }
    ref_copy_strided(v->out[0].cell, x, 2 * t->type.rank, dim, s);
    return true;
}

bool ev_broadcast_to(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    const ir_type *to = &v->out[0].type;
    int64_t st[IR_MAX_RANK], s[IR_MAX_RANK] = {0};
    int added = to->rank - t->type.rank;
    if (!x || !ev_new(v, 0)) return false;
    ref_strides(&t->type, st);
    for (int d = added; d < to->rank; d++) s[d] = t->type.dim[d - added] == 1 ? 0 : st[d - added];
    ref_copy_strided(v->out[0].cell, x, to->rank, to->dim, s);
    return true;
}

bool ev_reverse(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    uint32_t axes;
    int64_t s[IR_MAX_RANK];
    if (!x || !ev_axes(v, A_axes, t->type.rank, &axes) || !ev_new(v, 0)) return false;
    if (!ref_count(t)) return true;
    ref_strides(&t->type, s);
    for (int d = 0; d < t->type.rank; d++) {
        if (!(axes >> d & 1)) continue;
        x += (t->type.dim[d] - 1) * s[d];
        s[d] = -s[d];
    }
    ref_copy_strided(v->out[0].cell, x, t->type.rank, t->type.dim, s);
    return true;
}

/* [.., n, ..] -> [.., windows, size, ..]: overlapping windows are overlapping strides. */
bool ev_sliding_windows(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    int axis = ev_axis(v, A_axis, 0, t->type.rank);
    int64_t st[IR_MAX_RANK], s[IR_MAX_RANK], stride = ev_int(v, A_stride, 1);
    if (!x || axis < 0 || !ev_new(v, 0)) return false;
    ref_strides(&t->type, st);
    for (int d = 0, k = 0; d < t->type.rank; d++) {
        if (d == axis) s[k++] = st[d] * stride;
        s[k++] = st[d];
    }
    ref_copy_strided(v->out[0].cell, x, v->out[0].type.rank, v->out[0].type.dim, s);
    return true;
}

/* ---- pad ---- */

typedef struct {
    const ir_type *x, *o;
    const int64_t *map[IR_MAX_RANK]; /* source index by result index; -1: the constant */
    int64_t sx[IR_MAX_RANK], so[IR_MAX_RANK];
    ref_cell fill;
} padding;

static void pad_dim(const padding *p, int d, ref_cell *o, const ref_cell *x) {
    for (int64_t i = 0; i < p->o->dim[d]; i++) {
        int64_t from = x ? p->map[d][i] : -1;
        const ref_cell *in = from >= 0 ? x + from * p->sx[d] : NULL;
        ref_cell *out = o + i * p->so[d];
        if (d + 1 < p->o->rank)
            pad_dim(p, d + 1, out, in);
        else
            *out = in ? *in : p->fill;
    }
}

static int64_t pad_source(const char *mode, int64_t i, int64_t n) {
    if (i >= 0 && i < n) return i;
    if (!strcmp(mode, "replicate")) return i < 0 ? 0 : n - 1;
    if (strcmp(mode, "reflect")) return -1;
    int64_t at = i < 0 ? -i : 2 * (n - 1) - i;
    return at < 0 ? 0 : at >= n ? n - 1 : at;
}

bool ev_pad(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    size_t n;
    const int64_t *pad = ev_list(v, A_pad, &n);
    const char *mode = ev_text(v, A_mode, "constant");
    int rank = t->type.rank;
    if (!x || !ev_new(v, 0)) return false;
    if (!rank || n % 2 || n / 2 > (size_t)rank) return ev_fail(v, "pad must hold two values a dimension");
    padding p = {.x = &t->type, .o = &v->out[0].type};
    float value = ev_float(v, A_constant_val, 0);
    memcpy(&p.fill, &value, 4);
    ref_strides(p.x, p.sx);
    ref_strides(p.o, p.so);
    for (int d = 0; d < rank; d++) {
        size_t k = (size_t)(d - rank) + n / 2; /* which pair, if any */
        int64_t before = k < n / 2 ? pad[2 * k] : 0, size = p.o->dim[d];
        int64_t *map = ev_temp(v, size * 2);
        if (!map) return false;
        for (int64_t i = 0; i < size; i++)
            map[i] = t->type.dim[d] ? pad_source(mode, i - before, t->type.dim[d]) : -1;
        p.map[d] = map;
    }
    if (ref_count(&v->out[0])) pad_dim(&p, 0, v->out[0].cell, x);
    return true;
}
