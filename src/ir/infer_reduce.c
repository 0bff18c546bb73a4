/* Reductions, orderings and normalisations. */
#include "ir/infer_rules.h"
#include <string.h>

static void drop_axes(ir_type *t, const bool *chosen, bool keep) {
    int n = 0;
    for (int i = 0; i < t->rank; i++) {
        if (!chosen[i])
            t->dim[n++] = t->dim[i];
        else if (keep)
            t->dim[n++] = 1;
    }
    t->rank = (int8_t)n;
}

bool rule_reduce(infer *in) {
    ir_type t = inf_type(in, A_x);
    bool chosen[IR_MAX_RANK], keep;
    if (!inf_axes(in, A_axes, t.rank, chosen) || !inf_bool(in, A_keep_dims, false, &keep)) return false;
    drop_axes(&t, chosen, keep);
    in->out[0] = t;
    return true;
}

/* "int32" or "uint16", as an index dtype. */
static bool index_dtype(infer *in, ir_operand name, uint8_t *dtype) {
    const char *s = ir_env_text(in->op, name, "int32");
    *dtype = (uint8_t)(!strcmp(s, "uint16") ? DT_UINT16 : DT_INT32);
    return *dtype == DT_UINT16 || !strcmp(s, "int32") ||
           inf_fail(in, "operand %s is \"%.40s\", expected int32 or uint16", ir_operand_name(name), s);
}

bool rule_reduce_arg(infer *in) {
    ir_type t = inf_type(in, A_x);
    int64_t axis;
    bool chosen[IR_MAX_RANK] = {false}, keep;
    if (!inf_axis(in, A_axis, -1, t.rank, &axis) || !inf_bool(in, A_keep_dims, false, &keep)) return false;
    if (!index_dtype(in, A_output_dtype, &t.dtype)) return false;
    chosen[axis] = true;
    drop_axes(&t, chosen, keep);
    in->out[0] = t;
    return true;
}

/* softmax, cumsum: an axis, and the shape of x. */
bool rule_one_axis(infer *in) {
    ir_type t = inf_type(in, A_x);
    int64_t axis, fallback = in->op->code == OP_cumsum ? 0 : -1;
    in->out[0] = t;
    return inf_axis(in, A_axis, fallback, t.rank, &axis);
}

bool rule_topk(infer *in) {
    ir_type t = inf_type(in, A_x);
    int64_t k, axis;
    bool indices;
    if (!inf_int(in, A_k, 1, &k) || !inf_axis(in, A_axis, -1, t.rank, &axis) ||
        !inf_bool(in, A_return_indices, true, &indices))
        return false;
    if (in->op->n_out != (indices ? 2u : 1u))
        return inf_fail(in, "op has %u outputs, expected %d", in->op->n_out, indices ? 2 : 1);
    if (k < -1) return inf_fail(in, "operand k is %lld", (long long)k);
    if (k == -1) k = t.dim[axis];
    if (t.dim[axis] != IR_DIM_UNKNOWN && k > t.dim[axis])
        return inf_bad(in, A_x, "k is %lld, more than the axis holds", (long long)k);
    t.dim[axis] = k;
    in->out[0] = t;
    if (indices) {
        in->out[1] = t;
        if (!index_dtype(in, A_output_indices_dtype, &in->out[1].dtype)) return false;
    }
    return true;
}

bool rule_argsort(infer *in) {
    ir_type t = inf_type(in, A_x);
    int64_t axis;
    in->out[0] = t;
    in->out[0].dtype = DT_INT32;
    return inf_axis(in, A_axis, -1, t.rank, &axis);
}

bool rule_layer_norm(infer *in) {
    ir_type x = inf_type(in, A_x), normal = {.kind = IR_TENSOR};
    bool chosen[IR_MAX_RANK];
    if (!inf_axes(in, A_axes, x.rank, chosen)) return false;
    for (int i = 0; i < x.rank; i++)
        if (chosen[i] && !inf_push(in, &normal, x.dim[i])) return false;
    static const ir_operand names[] = {A_gamma, A_beta};
    for (int i = 0; i < 2; i++) {
        ir_type t = inf_type(in, names[i]);
        normal.dtype = t.dtype;
        if (inf_has(in, names[i]) && !ir_type_compatible(&t, &normal))
            return inf_bad(in, names[i], "expected the sizes of the normalised axes, %s",
                           ir_type_text(in->a, &normal));
    }
    in->out[0] = x;
    return true;
}

bool rule_l2_norm(infer *in) {
    in->out[0] = inf_type(in, A_x);
    return in->out[0].rank >= 3 || inf_bad(in, A_x, "expected rank 3 or more");
}

/* batch_norm, instance_norm: x [N,C,*D], vectors [C]. */
bool rule_channel_norm(infer *in) {
    ir_type x = inf_type(in, A_x);
    if (x.rank < 3) return inf_bad(in, A_x, "expected rank 3 or more");
    static const ir_operand names[] = {A_mean, A_variance, A_gamma, A_beta};
    for (int i = 0; i < 4; i++) {
        ir_type t = inf_type(in, names[i]);
        int64_t unused;
        if (inf_has(in, names[i]) && (t.rank != 1 || !inf_unify(t.dim[0], x.dim[1], &unused)))
            return inf_bad(in, names[i], "expected one entry a channel of x, %s", ir_type_text(in->a, &x));
    }
    in->out[0] = x;
    return true;
}
