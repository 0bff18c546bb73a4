/* Element-wise ops, casts and choices. */
#include "ir/infer_rules.h"
#include <string.h>

bool rule_same(infer *in) {
    in->out[0] = inf_type(in, A_x);
    return true;
}

bool rule_binary(infer *in) {
    return inf_broadcast(in, A_x, A_y, in->out);
}

bool rule_compare(infer *in) {
    if (!inf_broadcast(in, A_x, A_y, in->out)) return false;
    in->out[0].dtype = DT_BOOL;
    return true;
}

/* Three-way broadcast; the verifier asks that a and b alone already give the result's shape. */
bool rule_select(infer *in) {
    ir_type branches, cond = inf_type(in, A_cond);
    if (!inf_broadcast(in, A_a, A_b, &branches)) return false;
    if (!ir_broadcast(&branches, &cond, in->out))
        return inf_bad(in, A_cond, "does not broadcast with the branches, %s",
                       ir_type_text(in->a, &branches));
    return true;
}

bool rule_cast(infer *in) {
    const char *name = ir_env_text(in->op, A_dtype, "");
    ir_dtype d = dtype_by_name(name);
    uint32_t mask = 1u << DT_FP16 | 1u << DT_FP32 | 1u << DT_INT32 | 1u << DT_BOOL;
    if (in->spec >= 8) mask |= 1u << DT_INT8 | 1u << DT_UINT8 | 1u << DT_INT16 | 1u << DT_UINT16;
    if (!(mask >> d & 1)) return inf_fail(in, "operand dtype is \"%.40s\", to which nothing is cast", name);
    in->out[0] = inf_type(in, A_x);
    in->out[0].dtype = (uint8_t)d;
    return true;
}

bool rule_gelu(infer *in) {
    static const char *const modes[] = {"EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION", NULL};
    return inf_text_among(in, A_mode, ir_env_text(in->op, A_mode, "EXACT"), modes) && rule_same(in);
}

bool rule_softplus_parametric(infer *in) {
    ir_type x = inf_type(in, A_x);
    if (x.rank < 3) return inf_bad(in, A_x, "expected rank 3 or more");
    static const ir_operand names[] = {A_alpha, A_beta};
    for (int i = 0; i < 2; i++) {
        ir_type t = inf_type(in, names[i]);
        int64_t unused;
        if (t.rank != 1 || !inf_unify(t.dim[0], x.dim[1], &unused))
            return inf_bad(in, names[i], "expected one entry a channel of x, %s", ir_type_text(in->a, &x));
    }
    return rule_same(in);
}
