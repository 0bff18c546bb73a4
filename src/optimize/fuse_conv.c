/* The convolution of a gated delta rule over many tokens, with its state. */
#include "optimize/fuse.h"

/* newest: the columns of the history from `valid` on, as many as the state keeps; NULL: from T on. */
static bool find_kept(const fuser *f, const ir_value *history, int64_t channels, int64_t kept, int64_t tokens,
                      ir_op **op, ir_value **valid) {
    const int64_t from[] = {0, 0, tokens}, size[] = {1, channels, kept}, all[] = {1, channels, tokens + kept};
    *valid = NULL;
    if ((*op = fuse_user(f, history, OP_slice_by_index)))
        return fuse_list_is(ir_in(*op, A_begin), from, 3) && fuse_list_is(ir_in(*op, A_end), all, 3) &&
               !ir_in(*op, A_stride) && !ir_in(*op, A_begin_mask) && !ir_in(*op, A_end_mask) &&
               !ir_in(*op, A_squeeze_mask);
    if (!(*op = fuse_user(f, history, OP_slice_by_size)) || !fuse_list_is(ir_in(*op, A_size), size, 3))
        return false;
    if (fuse_list_is(ir_in(*op, A_begin), from, 3)) return true;
    const ir_op *begin = ir_in(*op, A_begin)->def;
    const int64_t zero = 0;
    if (!begin || begin->code != OP_concat || begin->arg[0].n != 3 ||
        !fuse_list_is(begin->arg[0].v[0], &zero, 1) || !fuse_list_is(begin->arg[0].v[1], &zero, 1))
        return false;
    *valid = begin->arg[0].v[2];
    return ir_type_count(&(*valid)->type) == 1 && (*valid)->type.dtype == DT_INT32;
}

/* Casts that change no number. */
static bool widens(const match *m) {
    for (int i = 0; i < m->n_op; i++)
        if (m->op[i]->code == OP_cast &&
            (ir_in(m->op[i], A_x)->type.dtype != DT_FP16 || m->op[i]->out[0]->type.dtype != DT_FP32))
            return false;
    return true;
}

static bool plain_conv(const ir_op *conv, int64_t channels, int64_t taps) {
    const ir_type *w = &ir_in(conv, A_weight)->type;
    double groups = 0;
    return ir_in(conv, A_weight)->konst && w->rank == 3 && w->dim[0] == channels && w->dim[1] == 1 &&
           w->dim[2] == taps && fuse_number(ir_in(conv, A_groups), &groups) && (int64_t)groups == channels &&
           !ir_in(conv, A_bias) && !ir_in(conv, A_strides) && !ir_in(conv, A_dilations) &&
           !ir_in(conv, A_pad_type);
}

bool fuse_conv(fuser *f, const match *m) {
    ir_value *s = match_get(m, "s"), *u = match_get(m, "u"), *valid, *root = m->op[0]->out[0];
    ir_op *concat = fuse_find(m, OP_concat), *conv = fuse_find(m, OP_conv), *kept;
    ir_value *history = concat->out[0];
    double axis = 0, interleave = 0;
    if (f->strict || !widens(m) || !fuse_is_read(s) || s->type.rank != 3 || s->type.dim[0] != 1 ||
        u->type.rank != 3 || u->type.dim[0] != 1 || u->type.dim[1] != s->type.dim[1] || u->type.dim[2] < 2 ||
        s->type.dim[2] < 1 || !fuse_number(ir_in(concat, A_axis), &axis) || (axis != 2 && axis != -1) ||
        (ir_in(concat, A_interleave) &&
         (!fuse_number(ir_in(concat, A_interleave), &interleave) || interleave != 0)))
        return false;
    int64_t channels = s->type.dim[1], n = s->type.dim[2];
    const ir_op *open[] = {concat};
    if (!plain_conv(conv, channels, n + 1) || f->uses[history->id] != 2 ||
        !find_kept(f, history, channels, n, u->type.dim[2], &kept, &valid) ||
        kept->out[0]->type.dtype != DT_FP16 || !fuse_closed(f, m, open, 1))
        return false;
    f->place = fuse_index(f, kept);
    if (f->place > f->at) return false;
    ir_op *op = f->fused = fuse_op(f, OP_fused_conv, 2);
    fuse_operand(f, op, A_memory, s);
    fuse_operand(f, op, A_x, u);
    fuse_operand(f, op, A_weight, match_get(m, "w"));
    fuse_operand(f, op, A_valid, valid);
    fuse_operand(f, op, A_activate, fuse_bool(f, m->op[0]->code == OP_silu));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_result(op, 0, root);
    fuse_result(op, 1, kept->out[0]);
    return true;
}
