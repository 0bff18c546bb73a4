/* Random ops that move elements: shapes, slices, gathers; and those that make tensors. */
#include "make.h"
#include <string.h>

/* ---- shapes ---- */

/* As many elements in another shape. */
static int split_up(maker *m, int64_t count, int64_t *dim) {
    int rank = 1 + (int)roll(&m->d, 5), n = 0;
    for (; n + 1 < rank; n++) {
        static const int64_t factors[] = {1, 2, 3, 4, 5, 7, 8, 16, 17};
        int64_t f = factors[roll(&m->d, 9)];
        dim[n] = f && count % f == 0 ? f : 1;
        count /= dim[n];
    }
    dim[n++] = count;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)roll(&m->d, (uint32_t)i + 1);
        int64_t t = dim[i];
        dim[i] = dim[j], dim[j] = t;
    }
    return n;
}

static void reshape(maker *m) {
    ir_value *x = pick(m, 15, 0, 5);
    int64_t dim[8];
    if (!x || !count_of(x)) return;
    int rank = split_up(m, count_of(x), dim);
    if (chance(&m->d, 30)) dim[roll(&m->d, (uint32_t)rank)] = -1;
    keep(m, op_reshape(m, x, rank, dim));
}

static void transpose(maker *m) {
    ir_value *x = pick(m, 15, 2, 5);
    int64_t perm[IR_MAX_RANK];
    if (!x) return;
    int rank = x->type.rank;
    for (int i = 0; i < rank; i++) perm[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        int j = (int)roll(&m->d, (uint32_t)i + 1);
        int64_t t = perm[i];
        perm[i] = perm[j], perm[j] = t;
    }
    for (int i = 0; i < rank; i++)
        if (chance(&m->d, 15)) perm[i] -= rank;
    keep(m, op_transpose(m, x, perm));
}

static void dims(maker *m) {
    ir_value *x = pick(m, 15, 0, 4);
    if (!x) return;
    int64_t axes[2] = {(int64_t)roll(&m->d, (uint32_t)x->type.rank + 1), -1};
    int rank = x->type.rank, n = rank < 4 && axes[0] <= rank && chance(&m->d, 30) ? 2 : 1;
    switch (roll(&m->d, 4)) {
    case 0:
        if (axes[0] == rank + n - 1 && n == 2) n = 1;
        keep(m, b_op(&m->b, OP_expand_dims, NULL, A_x, x, A_axes, make_list(m, axes, n), A_NONE));
        break;
    case 1: keep(m, b_op(&m->b, OP_squeeze, NULL, A_x, x, A_NONE)); break;
    case 2:
        if (rank > 0 && dtype_bits(dtype_of(x)) == 32)
            keep(m, b_op(&m->b, OP_flatten2d, NULL, A_x, x, A_axis, b_i32(&m->b, (int32_t)axes[0]), A_NONE));
        break;
    default: {
        if (!count_of(x)) return;
        int64_t dim[8];
        int to = split_up(m, count_of(x), dim);
        ir_value *ref = make_const(m, DT_FP32, ir_tensor(DT_FP32, to, dim)), *one[1] = {ref},
                 *zero[1] = {b_i32(&m->b, 0)}, *end[1] = {b_i32(&m->b, to)}, *no[1] = {b_bool(&m->b, false)};
        ir_value *y;
        if (m->style == STYLE_WILD) return;
        /* four variadic operands: put in by hand */
        ir_op *op = ir_add_op(m->b.p, &m->b.f->body, OP_reshape_like, 1);
        ir_set_args(m->b.p, op, A_x, &x, 1), ir_set_args(m->b.p, op, A_ref_tensors, one, 1);
        ir_set_args(m->b.p, op, A_begins, zero, 1), ir_set_args(m->b.p, op, A_ends, end, 1);
        ir_set_args(m->b.p, op, A_end_masks, no, 1);
        ir_type t = ir_tensor(dtype_of(x), to, dim);
        y = op->out[0] = ir_value_new(m->b.p, m->b.f, arena_printf(m->a, "like_%u", m->b.f->n_values), t);
        y->def = op, op->name = y->name;
        keep(m, y);
    }
    }
}

static void concat(maker *m) {
    ir_value *x = pick(m, 15, 0, 5), *v[4] = {x};
    uint32_t n = 1 + roll(&m->d, 4);
    if (!x) return;
    int rank = x->type.rank, axis = rank ? (int)roll(&m->d, (uint32_t)rank) : 0;
    bool stack = rank < 5 && chance(&m->d, 30);
    for (uint32_t i = 1; i < n; i++) {
        v[i] = pick_like(m, x);
        if (!stack && rank && x->type.dim[axis] > 1 && chance(&m->d, 30))
            v[i] = op_slice(m, v[i], axis, 0, 1 + roll(&m->d, (uint32_t)x->type.dim[axis]));
    }
    if (stack) {
        ir_value *at = b_i32(&m->b, (int32_t)roll(&m->d, (uint32_t)rank + 1));
        keep(m, b_opv(&m->b, OP_stack, NULL, A_values, v, n, A_axis, at, A_NONE));
        return;
    }
    bool same = true;
    for (uint32_t i = 1; i < n; i++) same &= ir_type_equal(&v[i]->type, &x->type);
    if (chance(&m->d, 15) && rank) axis -= rank;
    ir_value *at = b_i32(&m->b, axis), *mixed = b_bool(&m->b, same && chance(&m->d, 15));
    keep(m, b_opv(&m->b, OP_concat, NULL, A_values, v, n, A_axis, at, A_interleave, mixed, A_NONE));
}

static void split(maker *m) {
    ir_value *x = pick(m, ANY, 1, 5), *out[4];
    if (!x) return;
    int axis = (int)roll(&m->d, (uint32_t)x->type.rank);
    int64_t whole = x->type.dim[axis], size[4];
    uint32_t n = 2 + roll(&m->d, 3);
    if (whole < n) return;
    ir_value *at = b_i32(&m->b, chance(&m->d, 20) ? axis - x->type.rank : axis), *count = NULL, *sizes = NULL;
    if (whole % n == 0 && chance(&m->d, 60)) {
        count = b_i32(&m->b, (int32_t)n);
    } else {
        int64_t left = whole;
        for (uint32_t i = 0; i + 1 < n; i++)
            left -= size[i] = 1 + roll(&m->d, (uint32_t)(left - (n - 1 - i)));
        size[n - 1] = left;
        sizes = make_list(m, size, (int)n);
    }
    b_op_multi(&m->b, OP_split, NULL, out, n, A_x, x, A_num_splits, count, A_split_sizes, sizes, A_axis, at,
               A_NONE);
    for (uint32_t i = 0; i < n; i++)
        if (chance(&m->d, 70)) keep(m, out[i]);
}

static void repeated(maker *m) {
    ir_value *x = pick(m, 15, 1, 5);
    int64_t v[IR_MAX_RANK], n = 0;
    if (!x || count_of(x) > 1500) return;
    bool reverses = chance(&m->d, 35) || dtype_bits(dtype_of(x)) == 8;
    for (int d = 0; d < x->type.rank; d++) {
        if (reverses && chance(&m->d, 50)) v[n++] = chance(&m->d, 30) ? d - x->type.rank : d;
        if (!reverses) v[d] = chance(&m->d, 50) ? 1 : 1 + roll(&m->d, 3);
    }
    if (reverses)
        keep(m, b_op(&m->b, OP_reverse, NULL, A_x, x, A_axes, n ? make_list(m, v, (int)n) : NULL, A_NONE));
    else if (dtype_bits(dtype_of(x)) == 32 || is_float(x))
        keep(m, b_op(&m->b, OP_tile, NULL, A_x, x, A_reps, make_list(m, v, x->type.rank), A_NONE));
}

static void broadcast(maker *m) {
    ir_value *x = pick(m, ANY, 0, 4);
    int64_t to[IR_MAX_RANK];
    int n = 0;
    if (!x || count_of(x) > 1000 || m->spec < IR_SPEC_COREAI) return;
    if (chance(&m->d, 50)) to[n++] = 1 + roll(&m->d, 4);
    for (int d = 0; d < x->type.rank; d++) {
        int64_t have = x->type.dim[d];
        to[n++] = have == 1 && chance(&m->d, 60) ? 1 + roll(&m->d, 4) : chance(&m->d, 20) ? -1 : have;
    }
    if (n) keep(m, b_op(&m->b, OP_broadcast_to, NULL, A_x, x, A_shape, make_list(m, to, n), A_NONE));
}

/* Sizes taken from a shape at run time: [d0, -1], and back. */
static void reshaped_by_shape(maker *m) {
    ir_value *x = pick(m, FLOAT | INT, 2, 5);
    if (!x || !count_of(x)) return;
    ir_value *sizes = op1(m, OP_shape, x), *part[2] = {NULL, b_ints(&m->b, (int32_t[]){-1}, 1)};
    int at = (int)roll(&m->d, (uint32_t)x->type.rank);
    part[0] = op_slice(m, sizes, 0, at, at + 1);
    if (chance(&m->d, 40)) {
        ir_value *v = b_op(&m->b, OP_gather, NULL, A_x, sizes, A_indices, b_i32(&m->b, at), A_axis,
                           b_i32(&m->b, 0), A_NONE);
        part[0] =
            b_op(&m->b, OP_expand_dims, NULL, A_x, v, A_axes, make_list(m, (const int64_t[]){0}, 1), A_NONE);
    }
    ir_value *y = b_op(&m->b, OP_reshape, NULL, A_x, x, A_shape, op_concat(m, part, 2, 0), A_NONE);
    keep(m, op_reshape(m, y, x->type.rank, x->type.dim));
}

static void padded(maker *m) {
    static const char *const modes[] = {"constant", "reflect", "replicate"};
    ir_value *x = pick_float(m, 1, 5), *value = NULL;
    int n = 1 + (int)roll(&m->d, x->type.rank < 2 ? (uint32_t)x->type.rank : 2);
    int64_t v[4];
    int mode = (int)roll(&m->d, 3);
    for (int i = 0; i < 2 * n; i++) {
        v[i] = roll(&m->d, 3);
        if (mode && v[i] >= x->type.dim[x->type.rank - n + i / 2]) mode = 0;
    }
    if (!mode && chance(&m->d, 50)) value = make_scalar(m, dtype_of(x), 2);
    ir_value *list = make_list(m, v, 2 * n), *name = b_text(&m->b, modes[mode]);
    keep(m, b_op(&m->b, OP_pad, NULL, A_x, x, A_pad, list, A_mode, name, A_constant_val, value, A_NONE));
}

static void windows(maker *m) {
    ir_value *x = pick(m, FLOAT | INT, 1, 4);
    if (!x) return;
    int axis = (int)roll(&m->d, (uint32_t)x->type.rank);
    int64_t whole = x->type.dim[axis];
    if (!whole) return;
    ir_value *at = b_i32(&m->b, axis),
             *size = b_i32(&m->b, 1 + (int32_t)roll(&m->d, whole < 4 ? (uint32_t)whole : 4)),
             *stride = b_i32(&m->b, 1 + (int32_t)roll(&m->d, 3));
    keep(m,
         b_op(&m->b, OP_sliding_windows, NULL, A_x, x, A_axis, at, A_size, size, A_stride, stride, A_NONE));
}

static void band(maker *m) {
    ir_value *x = pick(m, ANY, 2, 5);
    if (!x) return;
    ir_value *low = b_i32(&m->b, (int32_t)roll(&m->d, 4) - 1),
             *up = b_i32(&m->b, (int32_t)roll(&m->d, 4) - 1);
    keep(m, b_op(&m->b, OP_band_part, NULL, A_x, x, A_lower, low, A_upper, up, A_NONE));
}

void make_rearranged(maker *m) {
    static make_fn *const kinds[] = {reshape, reshape,   reshape,          transpose, transpose, transpose,
                                     dims,    dims,      concat,           concat,    concat,    split,
                                     split,   split,     repeated,         repeated,  padded,    windows,
                                     band,    broadcast, reshaped_by_shape};
    kinds[roll(&m->d, sizeof kinds / sizeof *kinds)](m);
}

/* ---- slices ---- */

typedef struct {
    int64_t begin[IR_MAX_RANK], end[IR_MAX_RANK], stride[IR_MAX_RANK], count[IR_MAX_RANK];
    uint8_t begin_mask[IR_MAX_RANK], end_mask[IR_MAX_RANK], squeeze[IR_MAX_RANK];
} bounds;

static void slice_of(maker *m, int64_t n, int d, bounds *b, bool plain) {
    b->begin_mask[d] = b->end_mask[d] = b->squeeze[d] = 0;
    b->begin[d] = 0, b->end[d] = b->count[d] = n, b->stride[d] = 1;
    if (n < 1 || chance(&m->d, 45)) return;
    int64_t from = roll(&m->d, (uint32_t)n), count = 1 + roll(&m->d, (uint32_t)(n - from));
    b->begin[d] = from, b->end[d] = from + count, b->count[d] = count;
    if (plain) return;
    if (chance(&m->d, 15)) {
        b->stride[d] = 2, b->count[d] = (count + 1) / 2;
    } else if (chance(&m->d, 12) && from > 0) { /* backwards */
        b->begin[d] = from + count - 1, b->end[d] = from - 1, b->stride[d] = -1;
    } else if (chance(&m->d, 12)) {
        b->squeeze[d] = 1, b->count[d] = 1;
    } else if (chance(&m->d, 15) && from + count < n) {
        b->begin[d] -= n, b->end[d] -= n;
    }
    if (from == 0 && chance(&m->d, 30)) b->begin_mask[d] = b->stride[d] > 0;
    if (from + count == n && chance(&m->d, 30)) b->end_mask[d] = b->stride[d] > 0;
}

static ir_value *flags(maker *m, const uint8_t *v, int n) {
    bool any = false;
    for (int i = 0; i < n; i++) any |= v[i];
    if (!any) return NULL;
    return b_const(&m->b, NULL, ir_const_new(m->a, IR_TYPE(DT_BOOL, n), arena_copy(m->a, v, (size_t)n)));
}

static ir_value *strides(maker *m, const bounds *b, int n) {
    bool any = chance(&m->d, 15);
    for (int i = 0; i < n; i++) any |= b->stride[i] != 1;
    return any ? make_list(m, b->stride, n) : NULL;
}

static void slice(maker *m) {
    ir_value *x = pick(m, 15, 1, 5);
    bounds b;
    if (!x) return;
    int rank = x->type.rank;
    for (int d = 0; d < rank; d++) slice_of(m, x->type.dim[d], d, &b, false);
    ir_value *begin = make_list(m, b.begin, rank), *end = make_list(m, b.end, rank),
             *stride = strides(m, &b, rank), *bm = flags(m, b.begin_mask, rank),
             *em = flags(m, b.end_mask, rank), *sq = flags(m, b.squeeze, rank);
    keep(m, b_op(&m->b, OP_slice_by_index, NULL, A_x, x, A_begin, begin, A_end, end, A_stride, stride,
                 A_begin_mask, bm, A_end_mask, em, A_squeeze_mask, sq, A_NONE));
}

/* The begin is known at run time only. */
static void slice_by_size(maker *m) {
    ir_value *x = pick(m, 15, 1, 5), *at;
    bounds b;
    if (!x) return;
    int rank = x->type.rank;
    for (int d = 0; d < rank; d++) {
        slice_of(m, x->type.dim[d], d, &b, true);
        if (chance(&m->d, 10) && b.begin[d] + b.count[d] == x->type.dim[d]) b.count[d] = -1;
    }
    ir_value *begin = make_list(m, b.begin, rank), *size = make_list(m, b.count, rank);
    int d = (int)roll(&m->d, (uint32_t)rank);
    if (chance(&m->d, 40) && b.count[d] > 0) { /* one of them comes as an input */
        ir_value *v[IR_MAX_RANK];
        for (int i = 0; i < rank; i++) v[i] = b_ints(&m->b, (int32_t[]){(int32_t)b.begin[i]}, 1);
        at = make_ints(m, IR_TYPE(DT_INT32, 1), 0, (int32_t)(x->type.dim[d] - b.count[d]));
        v[d] = at;
        for (int i = 0; i < rank; i++)
            if (b.count[i] < 0) return;
        begin = op_concat(m, v, (uint32_t)rank, 0);
    }
    keep(m, b_op(&m->b, OP_slice_by_size, NULL, A_x, x, A_begin, begin, A_size, size, A_NONE));
}

static void update(maker *m) {
    ir_value *x = pick(m, FLOAT | INT, 1, 5);
    bounds b;
    if (!x || !count_of(x)) return;
    int rank = x->type.rank;
    ir_type t = ir_scalar(dtype_of(x));
    bool plain = chance(&m->d, 50);
    for (int d = 0; d < rank; d++) {
        slice_of(m, x->type.dim[d], d, &b, plain);
        if (d == 0) b.squeeze[d] = 0;
        if (!b.squeeze[d]) t.dim[t.rank++] = b.count[d];
    }
    ir_value *u = pick(m, FLOAT | INT, 0, 5);
    if (!u || !ir_type_equal(&u->type, &t))
        u = chance(&m->d, 50) ? make_input(m, dtype_of(x), t) : make_const(m, dtype_of(x), t);
    ir_value *begin = make_list(m, b.begin, rank), *end = make_list(m, b.end, rank),
             *stride = strides(m, &b, rank), *bm = flags(m, b.begin_mask, rank),
             *em = flags(m, b.end_mask, rank), *sq = flags(m, b.squeeze, rank);
    keep(m, b_op(&m->b, OP_slice_update, NULL, A_x, x, A_update, u, A_begin, begin, A_end, end, A_stride,
                 stride, A_begin_mask, bm, A_end_mask, em, A_squeeze_mask, sq, A_NONE));
}

/* x[.., at, ..] with an index that is known at run time only. */
static void row_at(maker *m) {
    ir_value *x = pick(m, FLOAT | INT, 1, 5), *b[IR_MAX_RANK], *e[IR_MAX_RANK];
    if (!x || !count_of(x)) return;
    int rank = x->type.rank, axis = (int)roll(&m->d, (uint32_t)rank);
    uint8_t squeeze[IR_MAX_RANK] = {0}, open[IR_MAX_RANK] = {0};
    ir_value *at = make_ints(m, IR_TYPE(DT_INT32, 1), 0, (int32_t)x->type.dim[axis] - 1),
             *one = b_ints(&m->b, (int32_t[]){1}, 1), *zero = b_ints(&m->b, (int32_t[]){0}, 1);
    for (int d = 0; d < rank; d++) b[d] = e[d] = zero, open[d] = d != axis;
    b[axis] = at, e[axis] = op2(m, OP_add, at, one), squeeze[axis] = 1;
    ir_value *begin = op_concat(m, b, (uint32_t)rank, 0), *end = op_concat(m, e, (uint32_t)rank, 0),
             *bm = flags(m, open, rank), *em = flags(m, open, rank), *sq = flags(m, squeeze, rank);
    keep(m, b_op(&m->b, OP_slice_by_index, NULL, A_x, x, A_begin, begin, A_end, end, A_begin_mask, bm,
                 A_end_mask, em, A_squeeze_mask, sq, A_NONE));
}

void make_sliced(maker *m) {
    static make_fn *const kinds[] = {slice, slice, slice, slice_by_size, update, row_at};
    kinds[roll(&m->d, sizeof kinds / sizeof *kinds)](m);
}

/* ---- gather and scatter ---- */

/* Indices into n elements; sometimes beyond, where that is clamped. */
static ir_value *indices(maker *m, ir_type shape, int64_t n) {
    bool beyond = chance(&m->d, 15), narrow = chance(&m->d, 15);
    if (narrow && chance(&m->d, 50)) {
        ir_value *v = make_ints(m, shape, 0, (int32_t)n - 1);
        return op_cast(m, v, n > 256 || chance(&m->d, 50) ? DT_UINT16 : DT_UINT8);
    }
    ir_value *v = make_ints(m, shape, (int32_t)-n - beyond * 3, (int32_t)n - 1 + beyond * 3);
    return narrow ? op_cast(m, v, DT_INT16) : v;
}

static ir_value *wide(maker *m, ir_value *v) {
    return v->type.dtype == DT_INT32 ? v : op_cast(m, v, DT_INT32);
}

static void gather(maker *m) {
    ir_value *x = pick(m, FLOAT | INT, 1, 4);
    if (chance(&m->d, 30)) {
        ir_type t = IR_TYPE(chance(&m->d, m->half) ? DT_FP16 : DT_FP32, 1 + make_size(m), make_size(m));
        x = count_of(x ? x : make_scalar(m, DT_FP16, 0)) >= 0 ? make_weight(m, (ir_dtype)t.dtype, t) : NULL;
    }
    if (!x || !count_of(x)) return;
    int rank = x->type.rank, axis = chance(&m->d, 60) ? 0 : (int)roll(&m->d, (uint32_t)rank), batch = 0;
    ir_type t = make_shape(m, 0, 2);
    if (axis > 0 && chance(&m->d, 30)) {
        batch = 1, t.rank = 2, t.dim[0] = x->type.dim[0], t.dim[1] = 1 + roll(&m->d, 4);
    }
    if (ir_type_count(&t) > 40) t.rank = 0, batch = 0;
    ir_value *index = indices(m, t, x->type.dim[axis]),
             *at = b_i32(&m->b, chance(&m->d, 30) ? axis - rank : axis);
    keep(m, b_op(&m->b, OP_gather, NULL, A_x, x, A_indices, index, A_axis, at, A_batch_dims,
                 batch ? b_i32(&m->b, batch) : NULL, A_NONE));
}

static void along_axis(maker *m) {
    ir_value *x = pick(m, FLOAT | INT, 1, 4);
    if (!x || !count_of(x)) return;
    int axis = (int)roll(&m->d, (uint32_t)x->type.rank);
    ir_type t = x->type;
    t.dim[axis] = 1 + roll(&m->d, 4);
    ir_value *index = indices(m, t, x->type.dim[axis]), *at = b_i32(&m->b, axis);
    keep(m, b_op(&m->b, OP_gather_along_axis, NULL, A_x, x, A_indices, index, A_axis, at, A_NONE));
}

static void gather_nd(maker *m) {
    ir_value *x = pick(m, FLOAT | INT, 1, 4);
    if (!x || !count_of(x)) return;
    bool batch = x->type.rank > 1 && chance(&m->d, 30);
    int64_t depth = 1 + roll(&m->d, (uint32_t)x->type.rank - batch), least = x->type.dim[batch];
    for (int i = 1; i < depth; i++) least = x->type.dim[i + batch] < least ? x->type.dim[i + batch] : least;
    ir_type t = IR_TYPE(DT_INT32, 1 + roll(&m->d, 4), depth);
    if (batch) t.dim[0] = x->type.dim[0];
    ir_value *index = indices(m, t, least), *dims = batch ? b_i32(&m->b, 1) : NULL;
    keep(m, b_op(&m->b, OP_gather_nd, NULL, A_x, x, A_indices, index, A_batch_dims, dims, A_NONE));
}

static void scatter(maker *m) {
    static const char *const modes[] = {"add", "max", "min", "sub", "update"};
    ir_value *x = pick(m, FLOAT | INT, 1, 4);
    if (!x || !count_of(x)) return;
    int axis = (int)roll(&m->d, (uint32_t)x->type.rank), kind = (int)roll(&m->d, 3);
    ir_type t = IR_TYPE(DT_INT32, 1 + roll(&m->d, 4)), u = x->type;
    int64_t n = x->type.dim[axis];
    if (kind == 0) {
        u.dim[axis] = t.dim[0];
    } else if (kind == 1) {
        u.dim[axis] = 1 + roll(&m->d, 4);
        t = u;
    } else {
        axis = 0, n = x->type.dim[0];
        u.dim[0] = t.dim[0];
        t.dim[t.rank++] = 1;
    }
    ir_value *index = wide(m, indices(m, t, n)), *updates = make_input(m, dtype_of(x), u),
             *at = b_i32(&m->b, axis), *mode = b_text(&m->b, modes[roll(&m->d, 5)]);
    if (kind == 2)
        keep(m, b_op(&m->b, OP_scatter_nd, NULL, A_data, x, A_indices, index, A_updates, updates, A_mode,
                     mode, A_NONE));
    else
        keep(m, b_op(&m->b, kind ? OP_scatter_along_axis : OP_scatter, NULL, A_data, x, A_indices, index,
                     A_updates, updates, A_axis, at, A_mode, mode, A_NONE));
}

void make_indexed(maker *m) {
    static make_fn *const kinds[] = {gather, gather, gather, along_axis, gather_nd, scatter, scatter};
    kinds[roll(&m->d, sizeof kinds / sizeof *kinds)](m);
}

/* ---- from sizes ---- */

static void one_hot(maker *m) {
    ir_value *index = make_ints(m, make_shape(m, 0, 2), -2, 8), *on = NULL, *off = NULL;
    if (count_of(index) > 200) return;
    ir_dtype d = chance(&m->d, 50) ? DT_FP16 : DT_FP32;
    if (chance(&m->d, 70)) on = make_scalar(m, d, 2), off = make_scalar(m, d, -1);
    ir_value *at = b_i32(&m->b, (int32_t)roll(&m->d, (uint32_t)index->type.rank + 1)),
             *n = b_i32(&m->b, 1 + (int32_t)roll(&m->d, 8));
    keep(m, b_op(&m->b, OP_one_hot, NULL, A_indices, index, A_one_hot_vector_size, n, A_axis, at, A_on_value,
                 on, A_off_value, off, A_NONE));
}

/* Where x is not 0: how many rows there are is known at run time only. */
static void found(maker *m) {
    ir_value *x = pick(m, ANY, 1, 4);
    if (!x || !count_of(x) || chance(&m->d, 60)) return; /* no plan has it */
    ir_value *at = op1(m, OP_non_zero, x);
    keep(m, op_reduce(m, chance(&m->d, 50) ? OP_reduce_sum : OP_reduce_max, at, 0, false));
}

void make_filled(maker *m) {
    static const ir_dtype kinds[] = {DT_FP16, DT_FP16, DT_FP32, DT_FP32, DT_INT32};
    ir_value *x;
    ir_dtype d = kinds[roll(&m->d, 5)];
    switch (roll(&m->d, 6)) {
    case 0: {
        ir_value *a = make_scalar(m, d, 1), *b = make_scalar(m, d, 9),
                 *c = make_scalar(m, d, m->style == STYLE_EXACT || d == DT_INT32 ? 2 : 0.5f);
        keep(m, b_op(&m->b, OP_range_1d, NULL, A_start, a, A_end, b, A_step, c, A_NONE));
        break;
    }
    case 1: {
        ir_type t = make_shape(m, 1, 4);
        ir_value *list = make_list(m, t.dim, t.rank), *value = make_scalar(m, d, 3);
        keep(m, b_op(&m->b, OP_fill, NULL, A_shape, list, A_value, value, A_NONE));
        break;
    }
    case 2:
        x = pick(m, ANY, 0, 5);
        if (x)
            keep(m, b_op(&m->b, OP_fill_like, NULL, A_ref_tensor, x, A_value, make_scalar(m, d, -2), A_NONE));
        break;
    case 3:
        x = pick(m, ANY, 1, 5);
        if (x) keep(m, op1(m, OP_shape, x));
        break;
    case 4: found(m); break;
    default: one_hot(m);
    }
}
