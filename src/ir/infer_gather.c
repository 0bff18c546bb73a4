/* Gather and scatter. */
#include "ir/infer_rules.h"

/* t gets dimensions [from, to) of x. */
static bool push_dims(infer *in, ir_type *t, const ir_type *x, int from, int to) {
    for (int i = from; i < to; i++)
        if (!inf_push(in, t, x->dim[i])) return false;
    return true;
}

static bool read_batch_dims(infer *in, const ir_type *x, const ir_type *indices, int limit, int *n) {
    int64_t v, unused;
    if (!inf_int(in, A_batch_dims, 0, &v)) return false;
    if (v < 0 || v > limit || v > indices->rank)
        return inf_fail(in, "operand batch_dims is %lld with x %s and indices %s", (long long)v,
                        ir_type_text(in->a, x), ir_type_text(in->a, indices));
    for (int i = 0; i < v; i++)
        if (!inf_unify(x->dim[i], indices->dim[i], &unused))
            return inf_bad(in, A_indices, "batch dimension %d differs from that of x, %s", i,
                           ir_type_text(in->a, x));
    *n = (int)v;
    return true;
}

bool rule_gather(infer *in) {
    ir_type x = inf_type(in, A_x), indices = inf_type(in, A_indices), r = ir_scalar((ir_dtype)x.dtype);
    int64_t axis;
    int batch;
    if (!inf_axis(in, A_axis, 0, x.rank, &axis) || !read_batch_dims(in, &x, &indices, x.rank - 1, &batch))
        return false;
    if (batch > axis) return inf_fail(in, "operand batch_dims is %d, past axis %lld", batch, (long long)axis);
    in->out[0] = r;
    return push_dims(in, in->out, &x, 0, (int)axis) &&
           push_dims(in, in->out, &indices, batch, indices.rank) &&
           push_dims(in, in->out, &x, (int)axis + 1, x.rank);
}

/* Same rank, same sizes but along the axis. */
static bool along_axis(infer *in, ir_operand whole, const ir_type *x, const ir_type *indices, int64_t *axis) {
    if (indices->rank != x->rank)
        return inf_bad(in, A_indices, "expected the rank of %s, %d", ir_operand_name(whole), x->rank);
    if (!inf_axis(in, A_axis, 0, x->rank, axis)) return false;
    int64_t unused;
    for (int i = 0; i < x->rank; i++)
        if (i != *axis && !inf_unify(x->dim[i], indices->dim[i], &unused))
            return inf_bad(in, A_indices, "dimension %d differs from that of %s, %s", i,
                           ir_operand_name(whole), ir_type_text(in->a, x));
    return true;
}

bool rule_gather_along_axis(infer *in) {
    ir_type x = inf_type(in, A_x), indices = inf_type(in, A_indices);
    int64_t axis;
    if (!along_axis(in, A_x, &x, &indices, &axis)) return false;
    in->out[0] = indices;
    in->out[0].dtype = x.dtype;
    return true;
}

/* Last size of indices: how many leading dimensions (after the batch ones) an index addresses. */
static bool index_depth(infer *in, const ir_type *x, const ir_type *indices, int batch, int *depth) {
    if (indices->rank < 1 || indices->rank <= batch)
        return inf_bad(in, A_indices, "expected rank %d or more", batch + 1);
    int64_t d = indices->dim[indices->rank - 1];
    if (d == IR_DIM_UNKNOWN) return inf_bad(in, A_indices, "its last size must be known");
    if (d > x->rank - batch)
        return inf_bad(in, A_indices, "its last size passes the rank of %s", ir_type_text(in->a, x));
    *depth = (int)d;
    return true;
}

bool rule_gather_nd(infer *in) {
    ir_type x = inf_type(in, A_x), indices = inf_type(in, A_indices);
    int batch = 0, depth = 0;
    if (!read_batch_dims(in, &x, &indices, x.rank, &batch) || !index_depth(in, &x, &indices, batch, &depth))
        return false;
    in->out[0] = ir_scalar((ir_dtype)x.dtype);
    return push_dims(in, in->out, &indices, 0, indices.rank - 1) &&
           push_dims(in, in->out, &x, batch + depth, x.rank);
}

static bool check_scatter(infer *in, const ir_type *expected) {
    static const char *const modes[] = {"add", "div", "max", "min", "mul", "sub", "update", NULL};
    if (!inf_text_among(in, A_mode, ir_env_text(in->op, A_mode, "add"), modes)) return false;
    ir_type u = inf_type(in, A_updates);
    if (!ir_type_compatible(&u, expected))
        return inf_bad(in, A_updates, "expected %s", ir_type_text(in->a, expected));
    in->out[0] = inf_type(in, A_data);
    return true;
}

bool rule_scatter(infer *in) {
    ir_type x = inf_type(in, A_data), indices = inf_type(in, A_indices), want = ir_scalar((ir_dtype)x.dtype);
    int64_t axis = 0;
    return inf_axis(in, A_axis, 0, x.rank, &axis) && push_dims(in, &want, &x, 0, (int)axis) &&
           push_dims(in, &want, &indices, 0, indices.rank) &&
           push_dims(in, &want, &x, (int)axis + 1, x.rank) && check_scatter(in, &want);
}

bool rule_scatter_along_axis(infer *in) {
    ir_type x = inf_type(in, A_data), indices = inf_type(in, A_indices);
    int64_t axis;
    if (!along_axis(in, A_data, &x, &indices, &axis)) return false;
    indices.dtype = x.dtype;
    return check_scatter(in, &indices);
}

bool rule_scatter_nd(infer *in) {
    ir_type x = inf_type(in, A_data), indices = inf_type(in, A_indices), want = ir_scalar((ir_dtype)x.dtype);
    int depth = 0;
    return index_depth(in, &x, &indices, 0, &depth) && push_dims(in, &want, &indices, 0, indices.rank - 1) &&
           push_dims(in, &want, &x, depth, x.rank) && check_scatter(in, &want);
}
