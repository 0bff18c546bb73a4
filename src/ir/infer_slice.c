/* slice_by_index, slice_by_size, slice_update. */
#include "ir/infer_rules.h"

/* The operands of a slice. Bounds that a mask covers are never read: writers leave junk there. */
typedef struct {
    const int64_t *begin, *end; /* NULL: not known now */
    int64_t stride[IR_MAX_RANK];
    bool begin_mask[IR_MAX_RANK], end_mask[IR_MAX_RANK], squeeze[IR_MAX_RANK];
} slice_form;

static bool entries(const ir_env *env, const ir_op *op, ir_operand name, int rank, const int64_t **v,
                    arena *a, err *e) {
    size_t n;
    *v = ir_env_ints(env, op, name, &n, a);
    if (!*v || n == (size_t)rank) return true;
    return err_set(e, ERR_INVALID, "operand %s has %zu entries, x has rank %d", ir_operand_name(name), n,
                   rank);
}

static bool mask(const ir_env *env, const ir_op *op, ir_operand name, int rank, bool *m, arena *a, err *e) {
    const int64_t *v;
    if (!entries(env, op, name, rank, &v, a, e)) return false;
    if (!v && ir_in(op, name))
        return err_set(e, ERR_INVALID, "operand %s must be a known constant", ir_operand_name(name));
    for (int i = 0; i < rank; i++) m[i] = v && v[i];
    return true;
}

static bool read_slices(const ir_op *op, const ir_env *env, int rank, slice_form *s, arena *a, err *e) {
    const int64_t *stride;
    for (int i = 0; i < IR_MAX_RANK; i++) s->stride[i] = 1;
    if (!entries(env, op, A_begin, rank, &s->begin, a, e) || !entries(env, op, A_end, rank, &s->end, a, e) ||
        !entries(env, op, A_stride, rank, &stride, a, e) ||
        !mask(env, op, A_begin_mask, rank, s->begin_mask, a, e) ||
        !mask(env, op, A_end_mask, rank, s->end_mask, a, e) ||
        !mask(env, op, A_squeeze_mask, rank, s->squeeze, a, e))
        return false;
    if (!stride && ir_in(op, A_stride))
        return err_set(e, ERR_INVALID, "operand stride must be a known constant");
    for (int i = 0; i < rank; i++) {
        if (stride && !stride[i]) return err_set(e, ERR_INVALID, "operand stride is 0 in dimension %d", i);
        if (stride) s->stride[i] = stride[i];
    }
    return true;
}

static int64_t clamp(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}

/* Python's slice(begin, end, stride) over a dimension of known size. */
static ir_slice python_slice(const slice_form *s, int i, int64_t size) {
    int64_t step = s->stride[i], low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    int64_t begin = step > 0 ? low : high, end = step > 0 ? high : low;
    if (!s->begin_mask[i]) begin = clamp(s->begin[i] < 0 ? s->begin[i] + size : s->begin[i], low, high);
    if (!s->end_mask[i]) end = clamp(s->end[i] < 0 ? s->end[i] + size : s->end[i], low, high);
    int64_t span = step > 0 ? end - begin : begin - end, pace = step > 0 ? step : -step;
    return (ir_slice){begin, step, span > 0 ? (span - 1) / pace + 1 : 0, false};
}

/* Squeezing takes index begin: end, end_mask and stride do not matter. */
static bool squeezed(const slice_form *s, int i, int64_t size, ir_slice *out, err *e) {
    int64_t index = s->begin_mask[i] || !s->begin ? 0 : s->begin[i], at = index < 0 ? index + size : index;
    *out = (ir_slice){at, 1, 1, true};
    return (at >= 0 && at < size) ||
           err_set(e, ERR_INVALID, "index %lld is outside dimension %d of size %lld", (long long)index, i,
                   (long long)size);
}

bool ir_resolve_slices(const ir_op *op, const ir_env *env, const ir_type *x, ir_slice *slices, arena *a,
                       err *e) {
    slice_form s = {0};
    if (!read_slices(op, env, x->rank, &s, a, e)) return false;
    if (!s.begin || !s.end || !ir_type_known(x))
        return err_set(e, ERR_INVALID, "bounds or sizes are not known");
    for (int i = 0; i < x->rank; i++) {
        if (!s.squeeze[i])
            slices[i] = python_slice(&s, i, x->dim[i]);
        else if (!squeezed(&s, i, x->dim[i], &slices[i], e))
            return false;
    }
    return true;
}

/* Number of elements of a slice, as far as it is known. A dimension of unknown size decides nothing but
 * bounds of one sign that leave 0 or 1 elements, and the forms [-1:] and [0::-1], which take one. */
static int64_t slice_count(const slice_form *s, int i, int64_t size) {
    bool open_begin = s->begin_mask[i], open_end = s->end_mask[i];
    if ((!open_begin && !s->begin) || (!open_end && !s->end)) return IR_DIM_UNKNOWN;
    if (size != IR_DIM_UNKNOWN) return python_slice(s, i, size).count;
    int64_t step = s->stride[i];
    if (open_begin && open_end) return step == 1 || step == -1 ? size : IR_DIM_UNKNOWN;
    if (open_begin) return IR_DIM_UNKNOWN;
    int64_t begin = s->begin[i];
    if (open_end) return (begin == 0 && step < 0) || (begin == -1 && step > 0) ? 1 : IR_DIM_UNKNOWN;
    int64_t end = s->end[i], count = IR_DIM_UNKNOWN;
    if (begin >= 0 && end >= 0 && step > 0) count = end > begin ? (end - begin - 1) / step + 1 : 0;
    if (begin < 0 && end < 0 && step < 0) count = begin > end ? (begin - end - 1) / -step + 1 : 0;
    return count == 0 || count == 1 ? count : IR_DIM_UNKNOWN;
}

static bool check_bound_lists(infer *in, const ir_type *x) {
    static const ir_operand lists[] = {A_begin, A_end, A_stride, A_begin_mask, A_end_mask, A_squeeze_mask};
    for (int i = 0; i < 6; i++) {
        inf_list l = inf_ints(in, lists[i]);
        if (l.present && (inf_type(in, lists[i]).rank != 1 || (l.len != IR_DIM_UNKNOWN && l.len != x->rank)))
            return inf_bad(in, lists[i], "expected one entry a dimension of x, %s", ir_type_text(in->a, x));
    }
    return true;
}

/* The type of x[slice]. */
static bool sliced(infer *in, const ir_type *x, ir_type *r) {
    slice_form s = {0};
    if (!check_bound_lists(in, x) || !read_slices(in->op, in->env, x->rank, &s, in->a, in->e)) return false;
    *r = ir_scalar((ir_dtype)x->dtype);
    for (int i = 0; i < x->rank; i++) {
        ir_slice one;
        if (!s.squeeze[i])
            r->dim[r->rank++] = slice_count(&s, i, x->dim[i]);
        else if ((s.begin || s.begin_mask[i]) && x->dim[i] != IR_DIM_UNKNOWN &&
                 !squeezed(&s, i, x->dim[i], &one, in->e))
            return false;
    }
    return true;
}

bool rule_slice_by_index(infer *in) {
    ir_type x = inf_type(in, A_x);
    return sliced(in, &x, in->out);
}

bool rule_slice_update(infer *in) {
    ir_type x = inf_type(in, A_x), u = inf_type(in, A_update), slice;
    if (!sliced(in, &x, &slice)) return false;
    if (!u.rank) return inf_bad(in, A_update, "expected rank 1 or more");
    if (!ir_type_compatible(&slice, &u))
        return inf_bad(in, A_update, "expected the type of the slice, %s", ir_type_text(in->a, &slice));
    in->out[0] = x;
    return true;
}

bool rule_slice_by_size(infer *in) {
    ir_type x = inf_type(in, A_x);
    inf_list begin = inf_ints(in, A_begin), size = inf_ints(in, A_size);
    if (inf_type(in, A_begin).rank != 1 || (begin.len != IR_DIM_UNKNOWN && begin.len != x.rank))
        return inf_bad(in, A_begin, "expected one entry a dimension of x, %s", ir_type_text(in->a, &x));
    if (inf_type(in, A_size).rank != 1 || (size.len != IR_DIM_UNKNOWN && size.len != x.rank))
        return inf_bad(in, A_size, "expected one entry a dimension of x, %s", ir_type_text(in->a, &x));
    in->out[0] = x;
    for (int i = 0; i < x.rank; i++) {
        int64_t whole = x.dim[i], n = size.v ? size.v[i] : IR_DIM_UNKNOWN, at = begin.v ? begin.v[i] : 0;
        if (n < -1) return inf_fail(in, "operand size holds %lld", (long long)n);
        if (begin.v && whole != IR_DIM_UNKNOWN) {
            if (at < 0) at += whole;
            if (at < 0 || at > whole || n > whole - at)
                return inf_bad(in, A_x, "%lld elements from %lld leave dimension %d", (long long)n,
                               (long long)at, i);
            if (n == -1 && size.v) n = whole - at;
        }
        if (n > 0 && whole != IR_DIM_UNKNOWN && n > whole)
            return inf_bad(in, A_x, "it has no %lld elements in dimension %d", (long long)n, i);
        in->out[0].dim[i] = n; /* -1: the size is unknown */
    }
    return true;
}
