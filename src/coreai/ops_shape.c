/* Ops that rearrange, take parts, and put them. */
#include "coreai/read.h"
#include <string.h>

/* What a chain of reshapes starts from. */
static ir_value *start(ir_value *v) {
    while (v->def && (v->def->code == OP_reshape || v->def->code == OP_expand_dims)) {
        ir_value *x = ir_args(v->def, A_x)->v[0];
        if (!x) break;
        v = x;
    }
    return v;
}

static bool equal(const ir_type *x, const ir_type *y) {
    bool same = x->rank == y->rank;
    for (int d = 0; d < x->rank && same; d++) same = x->dim[d] == y->dim[d];
    return same;
}

static int unknown_sizes(const ir_type *t) {
    int n = 0;
    for (int d = 0; d < t->rank; d++) n += t->dim[d] == IR_DIM_UNKNOWN;
    return n;
}

ir_value *ai_reshaped_by(ai_read *r, ir_value *v, ir_value *shape) {
    return b_op(&r->b, OP_reshape, NULL, A_x, v, A_shape, shape, A_NONE);
}

/* Of which one size at most is unknown. */
ir_value *ai_reshaped(ai_read *r, ir_value *v, const ir_type *to) {
    ir_value *x = start(v);
    if (equal(&x->type, to) && unknown_sizes(to) <= 1) return x;
    int64_t dim[IR_MAX_RANK];
    for (int d = 0; d < to->rank; d++) dim[d] = to->dim[d] == IR_DIM_UNKNOWN ? -1 : to->dim[d];
    return ai_reshaped_by(r, x, ai_list_of(r, dim, (uint32_t)to->rank));
}

bool ai_op_get_shape(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 1, 1)) return false;
    uint32_t n;
    if (ai_known(r, r->op->out[0], &n)) return true;
    return ai_result(r, b_op(&r->b, code, NULL, A_x, ai_in(r, 0), A_NONE));
}

/* A copy of `known` with the one unknown entry as -1; NULL when there are more. */
static const int64_t *with_hole(ai_read *r, const int64_t *known, uint32_t n) {
    int64_t *v = ARENA_ARRAY(r->a, int64_t, n);
    int holes = 0;
    for (uint32_t i = 0; i < n; i++) {
        v[i] = known[i] == AI_UNKNOWN ? -1 : known[i];
        holes += v[i] == -1;
    }
    return holes <= 1 ? v : NULL;
}

bool ai_op_reshape(ai_read *r, ir_opcode code) {
    (void)code;
    if (!ai_expect(r, 2, 1)) return false;
    ir_value *x = ai_in(r, 0);
    uint32_t n;
    const int64_t *known = ai_known_any(r, r->op->in[1], &n), *shape = known ? with_hole(r, known, n) : NULL;
    if (!shape) return ai_result(r, ai_reshaped_by(r, start(x), ai_in(r, 1)));
    if (n > IR_MAX_RANK) return ai_fail(r, ERR_UNSUPPORTED, "a shape of %u dimensions", n);
    ir_type to = ir_scalar((ir_dtype)x->type.dtype);
    for (uint32_t i = 0; i < n; i++) to.dim[to.rank++] = shape[i] == -1 ? IR_DIM_UNKNOWN : shape[i];
    return ai_result(r, ai_reshaped(r, x, &to));
}

/* Axes as flags over rank dimensions. */
static bool axis_flags(ai_read *r, uint32_t i, int rank, bool *flag) {
    uint32_t n;
    const int64_t *axis = ai_ints(r, i, &n);
    memset(flag, 0, IR_MAX_RANK * sizeof *flag);
    for (uint32_t k = 0; axis && k < n; k++) {
        int64_t a = axis[k] < 0 ? axis[k] + rank : axis[k];
        if (a < 0 || a >= rank || flag[a]) return ai_fail(r, ERR_FORMAT, "axis %lld", (long long)axis[k]);
        flag[a] = true;
    }
    return axis != NULL;
}

bool ai_op_expand_dims(ai_read *r, ir_opcode code) {
    uint32_t n;
    bool added[IR_MAX_RANK];
    if (!ai_expect(r, 2, 1) || !ai_ints(r, 1, &n)) return false;
    ir_value *x = ai_in(r, 0);
    if (n + (uint32_t)x->type.rank > IR_MAX_RANK)
        return ai_fail(r, ERR_UNSUPPORTED, "more than %d dimensions", IR_MAX_RANK);
    if (!axis_flags(r, 1, x->type.rank + (int)n, added)) return false;
    if (unknown_sizes(&x->type) > 1)
        return ai_result(r, b_op(&r->b, code, NULL, A_x, x, A_axes, ai_list(r, 1), A_NONE));
    ir_type to = ir_scalar((ir_dtype)x->type.dtype);
    for (int d = 0, from = 0; d < x->type.rank + (int)n; d++)
        to.dim[to.rank++] = added[d] ? 1 : x->type.dim[from++];
    return ai_result(r, ai_reshaped(r, x, &to));
}

bool ai_op_shrink_dims(ai_read *r, ir_opcode code) {
    bool gone[IR_MAX_RANK];
    if (!ai_expect(r, 2, 1)) return false;
    ir_value *x = ai_in(r, 0);
    if (!axis_flags(r, 1, x->type.rank, gone)) return false;
    ir_type to = ir_scalar((ir_dtype)x->type.dtype);
    for (int d = 0; d < x->type.rank; d++) {
        if (gone[d] && x->type.dim[d] != 1) return ai_fail(r, ERR_FORMAT, "dimension %d is not of size 1", d);
        if (!gone[d]) to.dim[to.rank++] = x->type.dim[d];
    }
    if (unknown_sizes(&to) <= 1) return ai_result(r, ai_reshaped(r, x, &to));
    return ai_result(r, b_op(&r->b, code, NULL, A_x, x, A_axes, ai_list(r, 1), A_NONE));
}

bool ai_op_transpose(ai_read *r, ir_opcode code) {
    uint32_t n;
    const int64_t *perm;
    if (!ai_expect(r, 2, 1) || !(perm = ai_ints(r, 1, &n))) return false;
    ir_value *x = ai_in(r, 0);
    if (n == 2 && perm[0] == 1 && perm[1] == 0 && x->type.rank == 2 && ai_is_weight(x))
        r->at[r->op->out[0]->id].turned = r->op->in[0]; /* made where it isn't a product that wants it */
    if (r->at[r->op->out[0]->id].turned) return true;
    return ai_result(r, b_op(&r->b, code, NULL, A_x, x, A_perm, ai_list(r, 1), A_NONE));
}

/* ---- repeats ---- */

/* n sizes as an operand: known ones, -1 for x's own, and element at[i] of `sizes` where neither. */
static ir_value *assemble(ai_read *r, const int64_t *size, const int *at, uint32_t n, uint32_t sizes) {
    ir_builder *b = &r->b;
    bool known = true;
    ir_value *part[IR_MAX_RANK];
    for (uint32_t i = 0; i < n; i++) known &= size[i] != AI_UNKNOWN;
    if (known) return ai_list_of(r, size, n);
    for (uint32_t i = 0; i < n; i++) {
        part[i] = B_INTS(b, (int32_t)size[i]);
        if (size[i] == AI_UNKNOWN)
            part[i] = b_op(b, OP_slice_by_index, NULL, A_x, ai_in(r, sizes), A_begin, B_INTS(b, at[i]), A_end,
                           B_INTS(b, at[i] + 1), A_NONE);
    }
    return b_opv(b, OP_concat, NULL, A_values, part, n, A_axis, b_i32(b, 0), A_NONE);
}

static bool broadcast(ai_read *r, int64_t *size, const int *at, uint32_t n, uint32_t sizes) {
    ir_value *x = ai_in(r, 0);
    bool ranked = n == (uint32_t)x->type.rank, same = ranked;
    for (uint32_t i = 0; ranked && i < n; i++) {
        if (x->type.dim[i] > 1 || size[i] == x->type.dim[i]) size[i] = -1; /* sizes above 1 never repeat */
        same &= size[i] == -1;
    }
    if (same) return ai_result(r, x);
    return ai_result(
        r, b_op(&r->b, OP_broadcast_to, NULL, A_x, x, A_shape, assemble(r, size, at, n, sizes), A_NONE));
}

bool ai_op_broadcast_to(ai_read *r, ir_opcode code) {
    (void)code;
    if (!ai_expect(r, 2, 1)) return false;
    int64_t size[IR_MAX_RANK];
    int at[IR_MAX_RANK];
    uint32_t n = 0;
    const ai_type *t = r->op->in[1]->type;
    const int64_t *known = ai_known_any(r, r->op->in[1], &n);
    if (!known)
        n = t->code == AI_TENSOR && t->rank == 1 && t->dim[0] >= 0 ? (uint32_t)t->dim[0] : IR_MAX_RANK + 1;
    if (n > IR_MAX_RANK)
        return ai_fail(r, ERR_UNSUPPORTED, "a shape of more than %d dimensions", IR_MAX_RANK);
    for (uint32_t i = 0; i < n; i++) {
        size[i] = known ? known[i] : AI_UNKNOWN;
        at[i] = (int)i;
    }
    return broadcast(r, size, at, n, 1);
}

bool ai_op_broadcast_in_dims(ai_read *r, ir_opcode code) {
    (void)code;
    if (!ai_expect(r, 3, 1)) return false;
    ir_value *x = ai_in(r, 0);
    int64_t size[IR_MAX_RANK];
    int at[IR_MAX_RANK] = {0};
    uint32_t n, m;
    const int64_t *axis = ai_ints(r, 2, &n), *known = ai_known_any(r, r->op->in[1], &m);
    if (!axis) return false;
    if (known && m != n) return ai_fail(r, ERR_FORMAT, "%u sizes for %u axes", m, n);
    for (int d = 0; d < x->type.rank; d++) size[d] = -1;
    for (uint32_t i = 0; i < n; i++) {
        int64_t a = axis[i] < 0 ? axis[i] + x->type.rank : axis[i];
        if (a < 0 || a >= x->type.rank) return ai_fail(r, ERR_FORMAT, "axis %lld", (long long)axis[i]);
        size[a] = known ? known[i] : AI_UNKNOWN;
        at[a] = (int)i;
    }
    if (!broadcast(r, size, at, (uint32_t)x->type.rank, 1)) return false;
    r->at[r->op->out[0]->id].spread = r->op->in[0];
    return true;
}

/* Sizes of which one is 1 or both are the same: the larger one. */
bool ai_op_broadcast_shapes(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 2, 1)) return false;
    uint32_t n;
    if (ai_known(r, r->op->out[0], &n)) return true;
    ir_value *part[2] = {ai_in(r, 0), ai_in(r, 1)};
    for (int i = 0; i < 2; i++) { /* ones in front of the shorter one */
        int64_t missing = part[!i]->type.dim[0] - part[i]->type.dim[0];
        if (part[i]->type.rank != 1 || part[!i]->type.rank != 1)
            return ai_fail(r, ERR_FORMAT, "expected two shapes");
        if (missing <= 0 || missing > IR_MAX_RANK) continue;
        static const int64_t ones[IR_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
        ir_value *both[2] = {ai_list_of(r, ones, (uint32_t)missing), part[i]};
        part[i] = b_opv(&r->b, OP_concat, NULL, A_values, both, 2, A_axis, b_i32(&r->b, 0), A_NONE);
    }
    return ai_result(r, b_op(&r->b, code, NULL, A_x, part[0], A_y, part[1], A_NONE));
}

bool ai_op_tile(ai_read *r, ir_opcode code) {
    uint32_t n;
    const int64_t *reps;
    if (!ai_expect(r, 2, 1) || !(reps = ai_ints(r, 1, &n))) return false;
    ir_value *x = ai_in(r, 0);
    int64_t all[IR_MAX_RANK];
    if (n > (uint32_t)x->type.rank) return ai_fail(r, ERR_FORMAT, "%u repeats for rank %d", n, x->type.rank);
    for (int d = 0; d < x->type.rank; d++) {
        int k = d - x->type.rank + (int)n;
        all[d] = k < 0 ? 1 : reps[k];
    }
    return ai_result(
        r, b_op(&r->b, code, NULL, A_x, x, A_reps, ai_list_of(r, all, (uint32_t)x->type.rank), A_NONE));
}

/* ---- joining and splitting ---- */

bool ai_op_concat(ai_read *r, ir_opcode code) {
    int64_t axis;
    uint32_t n;
    if (r->op->n_in < 2 || r->op->n_out != 1)
        return ai_fail(r, ERR_FORMAT, "it has %u operands", r->op->n_in);
    if (ai_known(r, r->op->out[0], &n)) return true;
    if (!ai_int(r, 0, &axis)) return false;
    ir_value **v = ARENA_ARRAY(r->a, ir_value *, r->op->n_in);
    for (uint32_t i = 1; i < r->op->n_in; i++) v[i - 1] = ai_in(r, i);
    if (r->op->n_in == 2) return ai_result(r, v[0]);
    return ai_result(r, b_opv(&r->b, code, NULL, A_values, v, r->op->n_in - 1, A_axis,
                              b_i32(&r->b, (int32_t)axis), A_NONE));
}

bool ai_op_split(ai_read *r, ir_opcode code) {
    int64_t axis;
    uint32_t n, n_out = r->op->n_out;
    const int64_t *size;
    if (!ai_expect(r, 3, n_out) || !ai_int(r, 2, &axis) || !(size = ai_ints(r, 1, &n))) return false;
    ir_value *x = ai_in(r, 0), **out = ARENA_ARRAY(r->a, ir_value *, n_out + 1);
    if (r->op->in[1]->type->rank == 0) { /* the size of all pieces but the last */
        int64_t a = axis < 0 ? axis + x->type.rank : axis, *all = ARENA_ARRAY(r->a, int64_t, n_out);
        if (a < 0 || a >= x->type.rank || x->type.dim[a] < 1 || size[0] < 1)
            return ai_fail(r, ERR_UNSUPPORTED, "pieces of an unknown size");
        for (uint32_t i = 0; i < n_out; i++) {
            int64_t left = x->type.dim[a] - (int64_t)i * size[0];
            all[i] = left < size[0] ? left : size[0];
        }
        size = all, n = n_out;
    }
    if (n != n_out) return ai_fail(r, ERR_FORMAT, "%u sizes for %u pieces", n, n_out);
    b_op_multi(&r->b, code, NULL, out, n_out, A_x, x, A_split_sizes, ai_list_of(r, size, n), A_axis,
               b_i32(&r->b, (int32_t)axis), A_NONE);
    for (uint32_t i = 0; i < n_out; i++) ai_set(r, r->op->out[i], out[i]);
    return ai_ok(r);
}

bool ai_op_range(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 3, 1)) return false;
    return ai_result(
        r, b_op(&r->b, code, NULL, A_start, ai_in(r, 0), A_end, ai_in(r, 1), A_step, ai_in(r, 2), A_NONE));
}

/* ---- parts ---- */

/* Which bounds mean the very end; strides, NULL when all are 1. */
typedef struct {
    ir_value *begin, *end, *stride, *mask;
} bounds;

static bool read_bounds(ai_read *r, const ir_type *x, bounds *o, bool may_clamp) {
    uint32_t n = 0, nb = 0, ns;
    const int64_t *end = ai_known_any(r, r->op->in[2], &n), *begin = ai_known_any(r, r->op->in[1], &nb),
                  *stride = ai_ints(r, 3, &ns);
    if (!stride) return false;
    if (ns != (uint32_t)x->rank || (end && n != ns) || (begin && nb != ns))
        return ai_fail(r, ERR_FORMAT, "bounds of %u dimensions for a tensor of rank %d", ns, x->rank);
    bool ones = true, any = false, all = end != NULL;
    int64_t from[IR_MAX_RANK], to[IR_MAX_RANK];
    uint8_t flag[IR_MAX_RANK] = {0};
    for (int d = 0; d < x->rank; d++) {
        int64_t size = x->dim[d];
        ones &= stride[d] == 1;
        to[d] = end ? end[d] : AI_UNKNOWN;
        from[d] = begin ? begin[d] : AI_UNKNOWN;
        if (to[d] == AI_UNKNOWN) all = false;
        if (to[d] != AI_UNKNOWN && (size == IR_DIM_UNKNOWN ? to[d] >= INT32_MAX : to[d] >= size)) {
            flag[d] = any = true;
            if (size != IR_DIM_UNKNOWN) to[d] = size;
        }
        if (size != IR_DIM_UNKNOWN && from[d] != AI_UNKNOWN && may_clamp) {
            if (from[d] < 0) from[d] += size;
            from[d] = from[d] < 0 ? 0 : from[d] > size ? size : from[d];
            if (to[d] != AI_UNKNOWN && to[d] < 0) to[d] += size;
            if (to[d] != AI_UNKNOWN) to[d] = to[d] < 0 ? 0 : to[d];
        }
    }
    bool from_known = begin != NULL;
    for (int d = 0; d < x->rank; d++) from_known &= from[d] != AI_UNKNOWN;
    o->begin = from_known ? ai_list_of(r, from, ns) : ai_in(r, 1);
    o->end = all ? ai_list_of(r, to, ns) : ai_in(r, 2);
    o->stride = ones ? NULL : ai_list(r, 3);
    if (any && !(all && unknown_sizes(x) == 0)) { /* else the ends say it */
        uint8_t *bits = arena_copy(r->a, flag, sizeof flag);
        o->mask = b_const(&r->b, NULL, ir_const_new(r->a, IR_TYPE(DT_BOOL, ns), bits));
    }
    return ai_ok(r);
}

bool ai_op_slice(ai_read *r, ir_opcode code) {
    uint32_t n;
    if (!ai_expect(r, 4, 1)) return false;
    if (ai_known(r, r->op->out[0], &n)) return true;
    ir_value *x = ai_in(r, 0);
    bounds o = {0};
    if (!read_bounds(r, &x->type, &o, true)) return false;
    return ai_result(r, b_op(&r->b, code, NULL, A_x, x, A_begin, o.begin, A_end, o.end, A_stride, o.stride,
                             A_end_mask, o.mask, A_NONE));
}

bool ai_op_slice_update(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 5, 1)) return false;
    ir_value *x = ai_in(r, 0);
    bounds o = {0};
    if (!read_bounds(r, &x->type, &o, true)) return false;
    return ai_result(r, b_op(&r->b, code, NULL, A_x, x, A_update, ai_in(r, 4), A_begin, o.begin, A_end, o.end,
                             A_stride, o.stride, A_end_mask, o.mask, A_NONE));
}

/* Without the last dimension, which is 1. */
static ir_value *without_last(ai_read *r, ir_value *v) {
    ir_type to = v->type;
    to.rank--;
    if (unknown_sizes(&to) <= 1) return ai_reshaped(r, v, &to);
    return b_op(&r->b, OP_squeeze, NULL, A_x, v, A_axes, B_INTS(&r->b, -1), A_NONE);
}

bool ai_op_gather_nd(ai_read *r, ir_opcode code) {
    uint32_t n;
    if (!ai_expect(r, 2, 1)) return false;
    if (ai_known(r, r->op->out[0], &n)) return true;
    ir_value *x = ai_in(r, 0), *at = ai_in(r, 1);
    if (!at->type.rank) return ai_fail(r, ERR_FORMAT, "indices without a dimension");
    if (at->type.dim[at->type.rank - 1] != 1)
        return ai_result(r, b_op(&r->b, code, NULL, A_x, x, A_indices, at, A_NONE));
    return ai_result(r, b_op(&r->b, OP_gather, NULL, A_x, x, A_indices, without_last(r, at), A_axis,
                             b_i32(&r->b, 0), A_NONE));
}

/* Indices 0 0 .. 1 1 ..: each element along the axis `times` in a row; 0 when they are others. */
static int64_t repeats(const int64_t *at, uint32_t n, int64_t size) {
    int64_t times = size > 0 && n % (uint64_t)size == 0 ? n / size : 0;
    for (uint32_t i = 0; i < n && times; i++)
        if (at[i] != i / times) times = 0;
    return times;
}

ir_value *ai_repeated(ai_read *r, ir_value *x, int axis, int64_t times) {
    ir_builder *b = &r->b;
    int64_t reps[IR_MAX_RANK], dim[IR_MAX_RANK];
    int rank = x->type.rank;
    for (int d = 0; d <= rank; d++) reps[d] = d == axis + 1 ? times : 1;
    for (int d = 0; d < rank; d++) dim[d] = x->type.dim[d] == IR_DIM_UNKNOWN ? -1 : x->type.dim[d];
    dim[axis] *= times;
    ir_value *wide = b_op(b, OP_expand_dims, NULL, A_x, x, A_axes, B_INTS(b, axis + 1), A_NONE);
    ir_value *all =
        b_op(b, OP_tile, NULL, A_x, wide, A_reps, ai_list_of(r, reps, (uint32_t)rank + 1), A_NONE);
    return ai_reshaped_by(r, all, ai_list_of(r, dim, (uint32_t)rank));
}

bool ai_op_gather_along_axis(ai_read *r, ir_opcode code) {
    int64_t axis;
    if (!ai_expect(r, 3, 1) || !ai_int(r, 2, &axis)) return false;
    ir_value *x = ai_in(r, 0);
    int64_t a = axis < 0 ? axis + x->type.rank : axis;
    const ai_value *source = r->at[r->op->in[1]->id].spread;
    ir_value *s = source && a >= 0 && a < x->type.rank ? ai_value_of(r, source) : NULL;
    for (int d = 0; s && d < s->type.rank; d++)
        if (s->type.rank != x->type.rank || (d != a && s->type.dim[d] != 1)) s = NULL;
    if (!s)
        return ai_result(r, b_op(&r->b, code, NULL, A_x, x, A_indices, ai_in(r, 1), A_axis,
                                 b_i32(&r->b, (int32_t)axis), A_NONE));
    uint32_t n = 0;
    const int64_t *at = ai_known(r, source, &n);
    int64_t times = at && x->type.dim[a] > 0 && x->type.rank < IR_MAX_RANK && unknown_sizes(&x->type) <= 1
                        ? repeats(at, n, x->type.dim[a])
                        : 0;
    if (times) return ai_result(r, times == 1 ? x : ai_repeated(r, x, (int)a, times));
    ir_type flat = ir_tensor(DT_INT32, 1, &s->type.dim[a]);
    return ai_result(r, b_op(&r->b, OP_gather, NULL, A_x, x, A_indices, ai_reshaped(r, s, &flat), A_axis,
                             b_i32(&r->b, (int32_t)a), A_NONE));
}

bool ai_op_scatter_along_axis(ai_read *r, ir_opcode code) {
    int64_t axis;
    if (!ai_expect(r, 4, 1) || !ai_int(r, 3, &axis)) return false;
    const ai_attr *mode = r->op->prop ? r->op->prop[0] : NULL;
    if (!mode || mode->n_raw != 1 || mode->raw[0] >> 1) /* the first of the modes: update */
        return ai_fail(r, ERR_UNSUPPORTED, "another mode than update");
    return ai_result(r, b_op(&r->b, code, NULL, A_data, ai_in(r, 0), A_indices, ai_in(r, 1), A_updates,
                             ai_in(r, 2), A_axis, b_i32(&r->b, (int32_t)axis), A_mode,
                             b_text(&r->b, "update"), A_NONE));
}
