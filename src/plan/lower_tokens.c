/* Fused recurrences over many tokens to the kernels of kernels/ops.h. Activations lie by token, whatever
 * order the program gives them: [1,C,T] is a view of [T,C], [H,R,T,d] one of [T,H,R,d]. */
#include "plan/lower.h"
#include "plan/steps.h"
#include <string.h>

/* p with its dimensions in another order. */
static place turned(const place *p, const int *order) {
    place q = *p;
    for (int d = 0; d < p->type.rank; d++) {
        q.type.dim[d] = p->type.dim[order[d]];
        q.stride[d] = p->stride[order[d]];
    }
    q.konst = NULL;
    return q;
}

/* The number of real tokens, checked once a call. */
static place valid_tokens(lower *l, place valid, int64_t tokens) {
    for (size_t i = 0; i < l->n_prepared; i++) {
        const lower_prepared *q = &l->prepared[i];
        if (q->form == -2 && q->m == tokens && q->x.space == valid.space && q->x.buffer == valid.buffer &&
            q->x.first == valid.first && q->x.data == valid.data)
            return q->y;
    }
    ir_type type = IR_TYPE(DT_INT32, 1);
    place y = lower_fresh(l, &type);
    step_valid *s = ARENA_NEW(l->a, step_valid);
    s->tokens = tokens;
    lower_emit(l, run_valid, s, "real tokens", 1, 1, &y, 1, &valid, 1);
    l->prepared = arena_grow(l->a, l->prepared, l->n_prepared, &l->cap_prepared, l->n_prepared + 1,
                             sizeof *l->prepared);
    l->prepared[l->n_prepared++] = (lower_prepared){valid, y, tokens, 0, -2};
    return y;
}

bool lower_fused_conv(lower *l, const ir_op *op) {
    static const int by_token[] = {0, 2, 1};
    const ir_type *m = &ir_in(op, A_memory)->type, *type = &op->out[0]->type;
    int64_t channels = m->dim[1], kept = m->dim[2], tokens = type->dim[2];
    place out[2], in[3];
    if (l->strict || kept >= 8 || !lower_takes_over(l, op, A_memory, op->out[1], &out[1]))
        return lower_reference(l, op);
    place x = lower_cells(l, lower_in(l, op, A_x));
    in[0] = turned(&x, by_token);
    if (in[0].stride[2] != 1) in[0] = lower_dense(l, in[0]);
    in[1] = lower_dense(l, lower_in(l, op, A_weight));
    ir_type rows = IR_TYPE(type->dtype, 1, tokens, channels);
    place y = lower_fresh(l, &rows);
    out[0] = turned(&y, by_token);
    step_tokens_conv *s = ARENA_NEW(l->a, step_tokens_conv);
    s->job = (kern_conv){.channels = channels,
                         .taps = kept + 1,
                         .tokens = tokens,
                         .valid = tokens,
                         .ldu = in[0].stride[1],
                         .ldy = channels,
                         .ld_state = kept,
                         .w_tap = 1,
                         .w_channel = kept + 1,
                         .silu = lower_int(l, op, A_activate, 0),
                         .state = {.type = out[1].store ? KERN_F16 : KERN_F32}};
    s->with_valid = ir_in(op, A_valid) != NULL;
    if (s->with_valid) in[2] = valid_tokens(l, lower_dense(l, lower_in(l, op, A_valid)), tokens);
    lower_updates(
        lower_emit(l, run_tokens_conv, s, "conv tokens", channels, 256, out, 2, in, s->with_valid ? 3 : 2));
    for (uint32_t i = 0; i < 2; i++) lower_set(l, op->out[i], out[i]);
    return true;
}

/* ---- the gated delta rule ---- */

/* p [H,R,T,d] as one stride between all heads, one between tokens, and rows in one piece; else its copy. */
static place by_head(lower *l, place p, kern_step *step) {
    p = lower_cells(l, p);
    bool heads = p.type.dim[1] == 1 || p.type.dim[0] == 1 || p.stride[0] == p.type.dim[1] * p.stride[1];
    if (!heads || (p.type.dim[3] != 1 && p.stride[3] != 1)) p = lower_dense(l, p);
    *step = (kern_step){p.type.dim[1] == 1 ? p.stride[0] : p.stride[1], p.stride[2]};
    return p;
}

/* Log decays and betas have the same steps. */
static void gates(lower *l, const ir_op *op, place *in, kern_step *step) {
    kern_step other;
    in[0] = by_head(l, lower_in(l, op, A_log_decay), step);
    in[1] = by_head(l, lower_in(l, op, A_beta), &other);
    if (step->outer == other.outer && step->inner == other.inner) return;
    for (int i = 0; i < 2; i++) in[i] = lower_dense(l, in[i]);
    by_head(l, in[0], step);
}

/* Memory of the result by token, and the result as a view of it. */
static place result(lower *l, const ir_op *op, bool gated, place *y) {
    static const int by_head[] = {1, 2, 0, 3};
    const ir_type *type = &op->out[0]->type;
    ir_type rows = *type;
    const int64_t dim[] = {type->dim[2], type->dim[0], type->dim[1]};
    if (!gated) memcpy(rows.dim, dim, sizeof dim);
    *y = lower_fresh(l, &rows);
    return gated ? *y : turned(y, by_head);
}

bool lower_fused_delta_rule(lower *l, const ir_op *op) {
    const ir_type *m = &ir_in(op, A_memory)->type, *v = &ir_in(op, A_value)->type;
    place out[3], in[6], y;
    uint32_t n_out = op->n_out, n_in = 5;
    int64_t heads = v->dim[0] * v->dim[1], dv = m->dim[3];
    bool gated = ir_in(op, A_gamma) != NULL;
    if (l->strict || heads * v->dim[2] * dv == 0) return lower_reference(l, op);
    if (n_out == 3 ? !lower_takes_over(l, op, A_memory, op->out[1], &out[1]) ||
                         !lower_takes_over(l, op, A_low, op->out[2], &out[2])
                   : !lower_memory(l, op, op->out[1], &out[1]))
        return l->e->code ? false : lower_reference(l, op);
    step_tokens_delta *s = ARENA_NEW(l->a, step_tokens_delta);
    kern_delta *j = &s->job;
    *j = (kern_delta){.repeat = v->dim[1] / ir_in(op, A_query)->type.dim[1],
                      .dk = m->dim[2],
                      .dv = dv,
                      .tokens = v->dim[2],
                      .y_step = {dv, heads * dv},
                      .unit = ir_in(op, A_unit) != NULL,
                      .unit_eps = (float)lower_number(l, op, A_unit, 0),
                      .q_scale = (float)lower_number(l, op, A_scale, 1),
                      .eps = (float)lower_number(l, op, A_epsilon, 0),
                      .weight = gated ? lower_vector(l, op, A_gamma) : NULL,
                      .z_step = {dv, heads * dv},
                      .state = {.type = out[1].store ? KERN_F16 : KERN_F32}};
    in[0] = by_head(l, lower_in(l, op, A_query), &j->q_step);
    in[1] = by_head(l, lower_in(l, op, A_key), &j->k_step);
    in[2] = by_head(l, lower_in(l, op, A_value), &j->v_step);
    gates(l, op, in + 3, &j->gate_step);
    if (ir_in(op, A_gate)) in[n_in++] = lower_dense(l, lower_in(l, op, A_gate));
    s->low = n_out == 3, s->gate = n_in == 6;
    /* a program that has its gates in fp16 has its activations so: they lost more than chunks lose */
    j->exact = !s->gate || ir_in(op, A_gate)->type.dtype != DT_FP16;
    out[0] = result(l, op, gated, &y);
    uint16_t rest; /* its size doesn't matter: there is one */
    kern_delta sized = *j;
    sized.state.rest = s->low ? &rest : NULL;
    size_t scratch = kern_delta_scratch(&sized);
    if (scratch > l->p->scratch) l->p->scratch = scratch;
    lower_updates(lower_emit(l, run_tokens_delta, s, "delta rule tokens", heads, 1, out, n_out, in, n_in));
    for (uint32_t i = 0; i < n_out; i++) lower_set(l, op->out[i], out[i]);
    return true;
}
