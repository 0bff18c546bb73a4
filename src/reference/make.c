#include "reference/ops.h"
#include "reference/walk.h"
#include <string.h>

/* The scalar operand as a cell; `fallback` when absent. */
static bool scalar_cell(ref_eval *v, ir_operand name, float fallback, ref_cell *out) {
    const ref_tensor *t = ev_in(v, name);
    if (!t) {
        int32_t whole = (int32_t)fallback;
        if (dtype_is_float(v->out[0].type.dtype))
            memcpy(out, &fallback, 4);
        else
            memcpy(out, &whole, 4);
        return true;
    }
    const ref_cell *c = ev_cells(v, t);
    if (!c) return false;
    if (ref_count(t) != 1 || dtype_is_float(t->type.dtype) != dtype_is_float(v->out[0].type.dtype))
        return ev_fail(v, "%s must be a scalar of the result's type", ir_operand_name(name));
    *out = *c;
    return true;
}

static bool fill(ref_eval *v) {
    ref_cell c = 0;
    if (!scalar_cell(v, A_value, 0, &c) || !ev_new(v, 0)) return false;
    ref_cell *o = v->out[0].cell;
    for (int64_t i = 0, n = ref_count(&v->out[0]); i < n; i++) o[i] = c;
    return true;
}

bool ev_fill(ref_eval *v) {
    return fill(v);
}

bool ev_fill_like(ref_eval *v) {
    return fill(v);
}

bool ev_shape(ref_eval *v) {
    const ir_type *t = &ev_in(v, A_x)->type;
    if (!ev_new(v, 0)) return false;
    for (int d = 0; d < t->rank; d++) ref_ints(&v->out[0])[d] = (int32_t)t->dim[d];
    return true;
}

bool ev_range_1d(ref_eval *v) {
    if (!ev_new(v, 0)) return false;
    int64_t n = ref_count(&v->out[0]);
    if (!dtype_is_float(v->out[0].type.dtype)) {
        int64_t start = ev_int(v, A_start, 0), step = ev_int(v, A_step, 1);
        for (int64_t i = 0; i < n; i++) ref_ints(&v->out[0])[i] = (int32_t)(start + i * step);
        return true;
    }
    float start = ev_float(v, A_start, 0), step = ev_float(v, A_step, 1);
    for (int64_t i = 0; i < n; i++) ref_floats(&v->out[0])[i] = start + (float)i * step;
    return true;
}

bool ev_one_hot(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_indices);
    const int32_t *idx = ev_ints(v, t);
    ref_cell on = 0, off = 0;
    if (!idx || !scalar_cell(v, A_on_value, 1, &on) || !scalar_cell(v, A_off_value, 0, &off)) return false;
    int axis = ev_axis(v, A_axis, -1, v->out[0].type.rank);
    if (axis < 0 || !ev_new(v, 0)) return false;
    ref_cell *o = v->out[0].cell;
    int64_t n = v->out[0].type.dim[axis], inner = ref_inner(&v->out[0].type, axis),
            outer = ref_outer(&v->out[0].type, axis);
    for (int64_t i = 0; i < outer; i++)
        for (int64_t k = 0; k < n; k++)
            for (int64_t j = 0; j < inner; j++)
                *o++ = idx[i * inner + j] == k ? on : off; /* others: a row of off */
    return true;
}

/* Keeps i - j <= lower and j - i <= upper of every matrix; a negative bound keeps all. */
bool ev_band_part(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    if (t->type.rank < 2) return ev_fail(v, "x must have rank 2 or more");
    if (!x || !ev_new(v, 0)) return false;
    int64_t lower = ev_int(v, A_lower, -1), upper = ev_int(v, A_upper, -1);
    int64_t rows = t->type.dim[t->type.rank - 2], cols = t->type.dim[t->type.rank - 1];
    for (int64_t i = 0, n = ref_count(t); i < n; i++) {
        int64_t r = i / cols % rows, c = i % cols;
        bool keep = (lower < 0 || r - c <= lower) && (upper < 0 || c - r <= upper);
        v->out[0].cell[i] = keep ? x[i] : 0;
    }
    return true;
}
