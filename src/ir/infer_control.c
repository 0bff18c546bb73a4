/* Constants, blocks, states. */
#include "ir/infer_rules.h"

bool rule_const(infer *in) {
    const ir_const *c = in->op->out[0] ? in->op->out[0]->konst : NULL;
    if (!c) return inf_fail(in, "const has no value");
    in->out[0] = c->type;
    return true;
}

static ir_type block_output(const infer *in, int block, uint32_t i) {
    return in->env->type(in->env->ctx, in->op->block[block]->out[i]);
}

static bool check_blocks(infer *in, size_t first_outputs, size_t second_outputs, size_t inputs) {
    if (in->op->n_block != 2) return inf_fail(in, "op has %u blocks, expected 2", in->op->n_block);
    const size_t outputs[2] = {first_outputs, second_outputs};
    for (int i = 0; i < 2; i++) {
        const ir_block *b = in->op->block[i];
        if (!b || b->n_in != inputs || b->n_out != outputs[i])
            return inf_fail(in, "block %d has %zu inputs and %zu outputs, expected %zu and %zu", i,
                            b ? b->n_in : 0, b ? b->n_out : 0, inputs, outputs[i]);
    }
    return true;
}

/* Sizes in which the branches differ are unknown. */
bool rule_cond(infer *in) {
    uint32_t n = in->op->n_out;
    if (!check_blocks(in, n, n, 0)) return false;
    if (inf_type(in, A_pred).rank) return inf_bad(in, A_pred, "expected a scalar");
    for (uint32_t i = 0; i < n; i++) {
        ir_type yes = block_output(in, 0, i), no = block_output(in, 1, i);
        if (yes.kind != no.kind || yes.dtype != no.dtype || yes.rank != no.rank)
            return inf_fail(in, "the branches give output %u as %s and %s", i, ir_type_text(in->a, &yes),
                            ir_type_text(in->a, &no));
        for (int k = 0; k < yes.rank; k++)
            if (yes.dim[k] != no.dim[k]) yes.dim[k] = IR_DIM_UNKNOWN;
        in->out[i] = yes;
    }
    return true;
}

/* Loop variables keep dtype and rank through the loop. */
bool rule_while_loop(infer *in) {
    const ir_arg *vars = ir_args(in->op, A_loop_vars);
    uint32_t n = in->op->n_out;
    if (vars->n != n) return inf_fail(in, "op has %u outputs for %u loop variables", n, vars->n);
    if (!check_blocks(in, 1, n, n)) return false;
    ir_type go = block_output(in, 0, 0);
    if (go.kind != IR_TENSOR || go.dtype != DT_BOOL || go.rank)
        return inf_fail(in, "the condition block gives %s, expected a bool scalar", ir_type_text(in->a, &go));
    for (uint32_t i = 0; i < n; i++) {
        ir_type last = block_output(in, 1, i), first = in->env->type(in->env->ctx, vars->v[i]);
        for (int b = 0; b < 2; b++) {
            ir_type inner = in->env->type(in->env->ctx, in->op->block[b]->in[i]);
            if (!ir_type_compatible(&inner, &first) || !ir_type_compatible(&inner, &last))
                return inf_fail(in, "loop variable %u is %s outside, %s in block %d and %s after the body", i,
                                ir_type_text(in->a, &first), ir_type_text(in->a, &inner), b,
                                ir_type_text(in->a, &last));
        }
        in->out[i] = last;
    }
    return true;
}

bool rule_read_state(infer *in) {
    in->out[0] = inf_type(in, A_input);
    in->out[0].kind = IR_TENSOR;
    return true;
}

bool rule_state_part(infer *in) {
    inf_list shape;
    ir_type t = inf_type(in, A_input);
    if (!inf_known_ints(in, A_shape, &shape)) return false;
    if (shape.n > IR_MAX_RANK) return inf_bad(in, A_shape, "the rank is out of range");
    t.rank = (uint8_t)shape.n;
    for (size_t i = 0; i < shape.n; i++) t.dim[i] = shape.v[i];
    in->out[0] = t;
    return true;
}

bool rule_write_state(infer *in) {
    ir_type state = inf_type(in, A_input), data = inf_type(in, A_data);
    if (in->op->n_out) return inf_fail(in, "op has %u outputs, expected none", in->op->n_out);
    state.kind = IR_TENSOR;
    return ir_type_compatible(&state, &data) ||
           inf_bad(in, A_data, "expected the state's, %s", ir_type_text(in->a, &state));
}

/* The label as declared (string or int64) and a dictionary. */
bool rule_classify(infer *in) {
    ir_type label = in->op->out[0]->type;
    if (label.kind != IR_TENSOR || label.rank || (label.dtype != DT_STRING && label.dtype != DT_INT64))
        return inf_fail(in, "output 0 must be a string or int64 scalar");
    in->out[0] = label;
    in->out[1] = (ir_type){.kind = IR_OPAQUE};
    return true;
}
