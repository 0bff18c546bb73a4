/* Single ops, and how the middle of a pattern is changed. */
#include "make.h"
#include <string.h>

ir_value *op1(maker *m, ir_opcode code, ir_value *x) {
    return b_op(&m->b, code, NULL, A_x, x, A_NONE);
}

ir_value *op2(maker *m, ir_opcode code, ir_value *x, ir_value *y) {
    bool free = code == OP_add || code == OP_mul || code == OP_minimum || code == OP_maximum;
    if (free && chance(&m->d, 40)) return b_op(&m->b, code, NULL, A_x, y, A_y, x, A_NONE);
    return b_op(&m->b, code, NULL, A_x, x, A_y, y, A_NONE);
}

ir_value *op_cast(maker *m, ir_value *x, ir_dtype d) {
    return b_op(&m->b, OP_cast, NULL, A_x, x, A_dtype, b_text(&m->b, dtype_name(d)), A_NONE);
}

ir_value *op_as(maker *m, ir_value *x, ir_dtype d) {
    return dtype_of(x) == d ? x : op_cast(m, x, d);
}

ir_value *op_reshape(maker *m, ir_value *x, int rank, const int64_t *dim) {
    return b_op(&m->b, OP_reshape, NULL, A_x, x, A_shape, make_list(m, dim, rank), A_NONE);
}

ir_value *op_transpose(maker *m, ir_value *x, const int64_t *perm) {
    return b_op(&m->b, OP_transpose, NULL, A_x, x, A_perm, make_list(m, perm, x->type.rank), A_NONE);
}

ir_value *op_swap(maker *m, ir_value *x, int a, int b) {
    int64_t perm[IR_MAX_RANK];
    for (int d = 0; d < x->type.rank; d++) perm[d] = d == a ? b : d == b ? a : d;
    return op_transpose(m, x, perm);
}

ir_value *op_concat(maker *m, ir_value *const *v, uint32_t n, int axis) {
    ir_value *at = b_i32(&m->b, axis), *no = b_bool(&m->b, false);
    return b_opv(&m->b, OP_concat, NULL, A_values, v, n, A_axis, at, A_interleave, no, A_NONE);
}

ir_value *op_slice(maker *m, ir_value *x, int axis, int64_t from, int64_t to) {
    int64_t begin[IR_MAX_RANK] = {0}, end[IR_MAX_RANK];
    for (int d = 0; d < x->type.rank; d++) end[d] = x->type.dim[d];
    begin[axis] = from, end[axis] = to;
    ir_value *b = make_list(m, begin, x->type.rank), *e = make_list(m, end, x->type.rank);
    return b_op(&m->b, OP_slice_by_index, NULL, A_x, x, A_begin, b, A_end, e, A_NONE);
}

ir_value *op_matmul(maker *m, ir_value *x, ir_value *y, bool tx, bool ty) {
    ir_value *a = b_bool(&m->b, tx), *b = b_bool(&m->b, ty);
    return b_op(&m->b, OP_matmul, NULL, A_x, x, A_y, y, A_transpose_x, a, A_transpose_y, b, A_NONE);
}

ir_value *op_reduce(maker *m, ir_opcode code, ir_value *x, int axis, bool keep_dims) {
    ir_value *axes = b_ints(&m->b, (int32_t[]){axis}, 1), *kept = b_bool(&m->b, keep_dims);
    return b_op(&m->b, code, NULL, A_x, x, A_axes, axes, A_keep_dims, kept, A_NONE);
}

ir_value *op_linear(maker *m, ir_value *x, int64_t n, bool bias) {
    int64_t k = x->type.dim[x->type.rank - 1];
    ir_dtype d = chance(&m->d, 80) ? dtype_of(x) : chance(&m->d, 50) ? DT_FP16 : DT_FP32;
    ir_value *w = make_weight(m, d, IR_TYPE(DT_FP16, n, k));
    ir_value *c = bias ? make_const(m, dtype_of(w), IR_TYPE(DT_FP16, n)) : NULL;
    return b_op(&m->b, OP_linear, NULL, A_x, x, A_weight, w, A_bias, c, A_NONE);
}

/* The same numbers, spelled in a way that patterns don't expect. */
static ir_value *disguised(maker *m, ir_value *v) {
    int rank = v->type.rank;
    int64_t flat = count_of(v);
    switch (roll(&m->d, 6)) {
    case 0: return op1(m, OP_identity, v);
    case 1:
        return dtype_of(v) == DT_FP16 ? op_cast(m, op_cast(m, v, DT_FP32), DT_FP16) : op_cast(m, v, DT_FP32);
    case 2: return op_reshape(m, op_reshape(m, v, 1, &flat), rank, v->type.dim);
    case 3: return rank < 2 ? v : op_swap(m, op_swap(m, v, rank - 1, rank - 2), rank - 1, rank - 2);
    case 4: return op2(m, OP_add, v, make_scalar(m, dtype_of(v), 0));
    default: return op2(m, OP_mul, v, make_scalar(m, dtype_of(v), m->style == STYLE_EXACT ? 2 : 1.5f));
    }
}

ir_value *inner(maker *m, ir_value *v) {
    if (!ok(m)) return v;
    if (chance(&m->d, m->mutate) && is_float(v) && count_of(v) > 0) v = disguised(m, v);
    if (chance(&m->d, m->expose)) {
        keep(m, v);
        if (chance(&m->d, 20) && m->n_out + 8 < MOST_POOL) {
            bool there = false;
            for (size_t i = 0; i < m->n_out; i++) there |= m->out[i] == v;
            if (!there && v->def && !v->konst) m->out[m->n_out++] = v;
        }
    }
    return v;
}
