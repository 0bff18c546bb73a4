#include "reference/ops.h"
#include "reference/walk.h"

int64_t ev_index(ref_eval *v, int64_t index, int64_t n, bool validate) {
    int64_t at = index < 0 ? index + n : index;
    if (at >= 0 && at < n) return at;
    if (validate) {
        ev_error(v, "index %lld is out of range for %lld elements", (long long)index, (long long)n);
        return -1;
    }
    return at < 0 ? 0 : n - 1;
}

bool ev_gather(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x), *ti = ev_in(v, A_indices);
    const int32_t *index = ev_ints(v, ti);
    int axis = ev_axis(v, A_axis, 0, t->type.rank);
    int64_t batch_dims = ev_int(v, A_batch_dims, 0);
    if (!index || axis < 0 || !ev_new(v, 0)) return false;
    if (batch_dims < 0 || batch_dims > axis || batch_dims > ti->type.rank)
        return ev_fail(v, "batch_dims is out of range");
    bool validate = ev_bool(v, A_validate_indices, false);
    int64_t n = t->type.dim[axis], inner = ref_inner(&t->type, axis), outer = ref_outer(&t->type, axis);
    int64_t batches = ref_outer(&ti->type, (int)batch_dims), per = ref_inner(&ti->type, (int)batch_dims - 1);
    if (!ref_count(&v->out[0])) return true;
    if (!n || outer % batches) return ev_fail(v, "axis %d has no elements", axis);
    ref_cell *o = v->out[0].cell;
    for (int64_t r = 0; r < outer;
         r++) { /* outer runs over the batches and what lies between them and the axis */
        const int32_t *list = index + r / (outer / batches) * per;
        for (int64_t j = 0; j < per; j++, o += inner) {
            int64_t at = ev_index(v, list[j], n, validate);
            if (at < 0) return false;
            ref_read(t, (r * n + at) * inner, inner, o);
        }
    }
    return true;
}

bool ev_gather_along_axis(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x), *ti = ev_in(v, A_indices);
    const ref_cell *x = ev_cells(v, t);
    const int32_t *index = ev_ints(v, ti);
    int axis = ev_axis(v, A_axis, 0, t->type.rank);
    if (!x || !index || axis < 0 || !ev_new(v, 0)) return false;
    bool validate = ev_bool(v, A_validate_indices, false);
    int64_t n = t->type.dim[axis], m = ti->type.dim[axis], inner = ref_inner(&t->type, axis),
            count = ref_count(ti);
    if (count && !n) return ev_fail(v, "axis %d has no elements", axis);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = ev_index(v, index[i], n, validate);
        if (at < 0) return false;
        v->out[0].cell[i] = x[(i / (m * inner) * n + at) * inner + i % inner];
    }
    return true;
}

bool ev_gather_nd(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x), *ti = ev_in(v, A_indices);
    const int32_t *index = ev_ints(v, ti);
    int batch_dims = (int)ev_int(v, A_batch_dims, 0), last = ti->type.rank - 1;
    if (!index || !ev_new(v, 0)) return false;
    if (last < 0 || batch_dims < 0 || batch_dims > last || batch_dims + ti->type.dim[last] > t->type.rank)
        return ev_fail(v, "indices don't fit x");
    int depth = (int)ti->type.dim[last];
    bool validate = ev_bool(v, A_validate_indices, false);
    int64_t inner = ref_inner(&t->type, batch_dims + depth - 1), batches = ref_outer(&ti->type, batch_dims);
    int64_t whole = ref_inner(&t->type, batch_dims - 1),
            tuples = batches ? ref_outer(&ti->type, last) / batches : 0;
    ref_cell *o = v->out[0].cell;
    if (!ref_count(&v->out[0])) return true;
    for (int64_t r = 0; r < batches * tuples; r++, o += inner) {
        int64_t at = 0;
        for (int d = 0; d < depth; d++) {
            int64_t n = t->type.dim[batch_dims + d];
            if (!n) return ev_fail(v, "dimension %d of x has no elements", batch_dims + d);
            int64_t k = ev_index(v, index[r * depth + d], n, validate);
            if (k < 0) return false;
            at = at * n + k;
        }
        ref_read(t, r / tuples * whole + at * inner, inner, o);
    }
    return true;
}
