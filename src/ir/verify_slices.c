/* Bounds of slices, as far as they can be decided before the program runs. coremltools checks neither
 * run-time bounds of slice_update nor ends past the tensor. */
#include "ir/verify_rules.h"

#define MAX_TRACE 1000 /* steps back from one operand: sums of sums could go on for long */

/* One element of an index vector: offset, or offset + element index of base. */
typedef struct {
    const ir_value *base;
    int64_t index, offset;
} element;

static int64_t count_of(verifier *v, const ir_value *x) {
    ir_type t = ver_type(v, x);
    return ir_type_count(&t);
}

static element trace(verifier *v, const ir_value *x, int64_t i);

/* Element i of x when x is broadcast: a scalar or vector of one gives its only one. */
static element trace_wide(verifier *v, const ir_value *x, int64_t i) {
    return trace(v, x, count_of(v, x) == 1 ? 0 : i);
}

static bool trace_sum(verifier *v, const ir_op *op, int64_t i, element *r) {
    if (!ir_in(op, A_x) || !ir_in(op, A_y)) return false;
    element x = trace_wide(v, ir_in(op, A_x), i), y = trace_wide(v, ir_in(op, A_y), i);
    if (op->code == OP_sub) {
        if (y.base) return false;
        *r = x;
        r->offset -= y.offset;
        return true;
    }
    if (x.base && y.base) return false;
    *r = x.base ? x : y;
    r->offset = x.offset + y.offset;
    return true;
}

static bool trace_concat(verifier *v, const ir_op *op, int64_t i, element *r) {
    const ir_arg *values = ir_args(op, A_values);
    for (uint32_t k = 0; k < values->n; k++) {
        int64_t n = values->v[k] ? count_of(v, values->v[k]) : -1;
        if (n < 0 || ver_type(v, values->v[k]).rank > (op->code == OP_concat)) return false;
        if (i < n) {
            *r = trace(v, values->v[k], i);
            return true;
        }
        i -= n;
    }
    return false;
}

/* One step back. The op may be broken: that was reported when it was checked itself. */
static bool trace_op(verifier *v, const ir_op *op, int64_t i, element *r) {
    const ir_value *x = ir_in(op, A_x);
    switch (op->code) {
    case OP_add:
    case OP_sub: return trace_sum(v, op, i, r);
    case OP_concat:
    case OP_stack: return trace_concat(v, op, i, r);
    case OP_cast:
    case OP_identity:
    case OP_reshape:
    case OP_squeeze:
    case OP_expand_dims:
        if (!x || x->type.kind != IR_TENSOR || dtype_is_float((ir_dtype)x->type.dtype)) return false;
        *r = trace(v, x, i);
        return true;
    default: return false;
    }
}

static element trace(verifier *v, const ir_value *x, int64_t i) {
    element r = {x, i, 0};
    double number;
    if (x->konst) {
        if (i < count_of(v, x) && ir_const_number(x->konst, (uint64_t)i, &number))
            return (element){NULL, 0, (int64_t)number};
    } else if (x->def && x->def->n_out == 1 && v->trace_left-- > 0) {
        trace_op(v, x->def, i, &r);
    }
    return r;
}

static bool flag(verifier *v, const ir_op *op, ir_operand name, int i) {
    const ir_value *m = ir_in(op, name);
    return m && trace(v, m, i).offset;
}

/* Both bounds are constants of one sign: the begin must come first (coremltools refuses it otherwise). */
static void check_order(verifier *v, int i, int64_t begin, int64_t end, int64_t step) {
    bool crossed = (begin >= 0 && end >= 0 && step > 0 && end < begin) ||
                   (begin < 0 && end < 0 && step < 0 && begin < end);
    if (crossed)
        ver_bad(v, "slice-bounds", "dimension %d goes from %lld to %lld by %lld", i, (long long)begin,
                (long long)end, (long long)step);
}

static void check_update(verifier *v, int i, const element *begin, const element *end, int64_t step,
                         int64_t size, int64_t update) {
    if (!end->base && size != IR_DIM_UNKNOWN && end->offset > size)
        ver_bad(v, "slice-end", "dimension %d ends at %lld, x has %lld", i, (long long)end->offset,
                (long long)size);
    bool fixed = begin->base && begin->base == end->base && begin->index == end->index && step > 0;
    if (!fixed || update == IR_DIM_UNKNOWN) return;
    int64_t span = end->offset - begin->offset, count = span > 0 ? (span - 1) / step + 1 : 0;
    if (count != update)
        ver_bad(v, "slice-update-length", "dimension %d takes %lld elements, the update has %lld", i,
                (long long)count, (long long)update);
}

void ver_slices(verifier *v, const ir_op *op) {
    ir_type x = ver_type(v, ir_in(op, A_x)), u = {0};
    bool update = op->code == OP_slice_update;
    if (update) u = ver_type(v, ir_in(op, A_update));
    const ir_value *stride = ir_in(op, A_stride);
    for (int i = 0, at = 0; i < x.rank; i++) {
        if (flag(v, op, A_squeeze_mask, i)) continue;
        int64_t size = x.dim[i], length = update && at < u.rank ? u.dim[at] : IR_DIM_UNKNOWN;
        at++;
        if (length != IR_DIM_UNKNOWN && size != IR_DIM_UNKNOWN && length > size)
            ver_bad(v, "slice-update-length", "dimension %d of x has %lld elements, the update %lld", i,
                    (long long)size, (long long)length);
        if (flag(v, op, A_begin_mask, i) || flag(v, op, A_end_mask, i)) continue;
        v->trace_left = MAX_TRACE;
        element begin = trace(v, ir_in(op, A_begin), i), end = trace(v, ir_in(op, A_end), i);
        int64_t step = stride ? trace(v, stride, i).offset : 1;
        if (!begin.base && !end.base) check_order(v, i, begin.offset, end.offset, step);
        if (update) check_update(v, i, &begin, &end, step, size, length);
    }
}
