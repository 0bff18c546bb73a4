#include "plan/lower.h"
#include "plan/steps.h"
#include "reference/walk.h"
#include <string.h>

/* How each op becomes steps; all others call the reference body. */
static lower_fn *const rows[OP_COUNT] = {
    [OP_identity] = lower_identity,
    [OP_reshape] = lower_reshape,
    [OP_expand_dims] = lower_reshape,
    [OP_squeeze] = lower_reshape,
    [OP_flatten2d] = lower_reshape,
    [OP_reshape_like] = lower_reshape,
    [OP_transpose] = lower_transpose,
    [OP_slice_by_index] = lower_slice_by_index,
    [OP_slice_by_size] = lower_slice_by_size,
    [OP_split] = lower_split,
    [OP_concat] = lower_concat,
    [OP_stack] = lower_stack,
    [OP_tile] = lower_tile,
    [OP_broadcast_to] = lower_broadcast_to,
    [OP_cast] = lower_cast,
    [OP_state_part] = lower_state_part,
    [OP_read_state] = lower_read_state,
    [OP_write_state] = lower_write_state,
    [OP_slice_update] = lower_slice_update,
    [OP_fused_blend] = lower_fused_blend,
    [OP_fused_norm] = lower_fused_norm,
    [OP_fused_swiglu] = lower_fused_swiglu,
    [OP_fused_rope] = lower_fused_rope,
    [OP_fused_attention] = lower_fused_attention,
    [OP_fused_delta] = lower_fused_delta,
    [OP_fused_conv_step] = lower_fused_conv_step,
    [OP_fused_conv] = lower_fused_conv,
    [OP_fused_delta_rule] = lower_fused_delta_rule,
    [OP_linear] = lower_linear,
    [OP_fused_linear] = lower_linear,
    [OP_matmul] = lower_matmul,
    [OP_gather] = lower_gather,
    [OP_gather_along_axis] = lower_gather_along_axis,
    [OP_conv] = lower_conv,
    [OP_softmax] = lower_softmax,
    [OP_reduce_sum] = lower_reduce,
    [OP_reduce_mean] = lower_reduce,
    [OP_reduce_max] = lower_reduce,
    [OP_reduce_min] = lower_reduce,
    [OP_reduce_sum_square] = lower_reduce,
    [OP_reduce_log_sum_exp] = lower_reduce,
    [OP_reduce_argmax] = lower_argmax,
    [OP_reduce_argmin] = lower_argmax,
    [OP_topk] = lower_topk,
    [OP_select] = lower_select,
    [OP_add] = lower_binary,
    [OP_sub] = lower_binary,
    [OP_mul] = lower_binary,
    [OP_real_div] = lower_binary,
    [OP_floor_div] = lower_binary,
    [OP_mod] = lower_binary,
    [OP_pow] = lower_binary,
    [OP_maximum] = lower_binary,
    [OP_minimum] = lower_binary,
    [OP_less] = lower_binary,
    [OP_less_equal] = lower_binary,
    [OP_greater] = lower_binary,
    [OP_greater_equal] = lower_binary,
    [OP_equal] = lower_binary,
    [OP_not_equal] = lower_binary,
    [OP_logical_and] = lower_binary,
    [OP_logical_or] = lower_binary,
    [OP_logical_xor] = lower_binary,
    [OP_silu] = lower_unary,
    [OP_sigmoid] = lower_unary,
    [OP_tanh] = lower_unary,
    [OP_relu] = lower_unary,
    [OP_softplus] = lower_unary,
    [OP_exp] = lower_unary,
    [OP_exp2] = lower_unary,
    [OP_log] = lower_unary,
    [OP_sqrt] = lower_unary,
    [OP_rsqrt] = lower_unary,
    [OP_inverse] = lower_unary,
    [OP_erf] = lower_unary,
    [OP_abs] = lower_unary,
    [OP_square] = lower_unary,
    [OP_sin] = lower_unary,
    [OP_cos] = lower_unary,
};

/* ---- small operands ---- */

const int64_t *lower_ints(lower *l, const ir_op *op, ir_operand name, size_t *n) {
    const ir_value *v = ir_in(op, name);
    *n = 0;
    return v && v->konst ? ir_const_ints(l->a, v->konst, n) : NULL;
}

double lower_number(lower *l, const ir_op *op, ir_operand name, double fallback) {
    const ir_value *v = ir_in(op, name);
    double d = fallback;
    (void)l;
    return v && v->konst && ir_const_number(v->konst, 0, &d) ? d : fallback;
}

int64_t lower_int(lower *l, const ir_op *op, ir_operand name, int64_t fallback) {
    return (int64_t)lower_number(l, op, name, (double)fallback);
}

bool lower_is_const(const ir_op *op, ir_operand name) {
    const ir_value *v = ir_in(op, name);
    return !v || v->konst;
}

int lower_axis(lower *l, const ir_op *op, ir_operand name, int64_t fallback, int rank) {
    int64_t axis = lower_int(l, op, name, fallback);
    return (int)(axis < 0 ? axis + rank : axis);
}

/* ---- the reference body as a step ---- */

bool lower_reference(lower *l, const ir_op *op) {
    const ir_op_info *info = ir_info(op->code);
    uint32_t most = 0;
    for (int i = 0; i < info->n_slot; i++) most += op->arg[i].n;
    step_reference *r = ARENA_NEW(l->a, step_reference);
    *r = (step_reference){op, ARENA_ARRAY(l->a, const ir_value *, most), ARENA_ARRAY(l->a, ir_type, most), 0};
    place *in = ARENA_ARRAY(l->scratch, place, most), *out = ARENA_ARRAY(l->scratch, place, op->n_out);
    for (int i = 0; i < info->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) {
            const ir_value *v = op->arg[i].v[k];
            place p = *lower_at(l, v);
            if (p.konst && !p.weight) continue; /* the evaluator reads constants itself */
            if (p.weight && !lower_expand(l, lower_at(l, v))) return false;
            in[r->n_operand] = lower_dense(l, *lower_at(l, v));
            r->type[r->n_operand] = v->type;
            r->operand[r->n_operand++] = v;
        }
    for (uint32_t i = 0; i < op->n_out; i++) {
        if (!ref_dtype_ok((ir_dtype)op->out[i]->type.dtype))
            return err_set(l->e, ERR_UNSUPPORTED, "%s tensors are not supported at run time",
                           dtype_name((ir_dtype)op->out[i]->type.dtype));
        out[i] = lower_fresh(l, &op->out[i]->type);
        lower_set(l, op->out[i], out[i]);
    }
    plan_step *s = lower_emit(l, run_reference, r, "reference", 1, 1, out, op->n_out, in, r->n_operand);
    s->fallback = s->once = true;
    return true;
}

/* ---- constants ---- */

static void place_constant(lower *l, const ir_value *v) {
    const ir_const *c = v->konst;
    place p = {.space = SPACE_CONST, .data = c->data, .type = v->type, .konst = c};
    if (v->type.kind == IR_TENSOR && ref_dtype_ok((ir_dtype)c->type.dtype)) {
        bool words = dtype_bits((ir_dtype)c->type.dtype) == 32 && (uintptr_t)c->data % 4 == 0;
        p.store = words ? DT_NONE : c->type.dtype;
        if (v->type.rank <= IR_MAX_RANK) ref_strides(&v->type, p.stride);
    }
    l->at[v->id] = p;
}

static void place_constants(lower *l) {
    const ir_block *b = &l->f->body;
    for (size_t i = 0; i < b->n_op; i++)
        for (int s = 0; s < ir_info(b->op[i]->code)->n_slot; s++)
            for (uint32_t k = 0; k < b->op[i]->arg[s].n; k++) {
                const ir_value *v = b->op[i]->arg[s].v[k];
                if (v->konst) place_constant(l, v);
            }
    for (size_t i = 0; i < b->n_out; i++)
        if (b->out[i]->konst) place_constant(l, b->out[i]);
}

static bool lower_constexpr(lower *l, const ir_op *op) {
    for (uint32_t i = 0; i < op->n_out; i++) {
        place p = {.space = SPACE_CONST, .buffer = i, .weight = op};
        ref_strides(&op->out[i]->type, p.stride);
        lower_set(l, op->out[i], p);
    }
    return true;
}

/* ---- the walk ---- */

bool lower_is_view(const ir_op *op) {
    switch (op->code) {
    case OP_identity:
    case OP_reshape:
    case OP_expand_dims:
    case OP_squeeze:
    case OP_flatten2d:
    case OP_reshape_like:
    case OP_transpose:
    case OP_slice_by_index:
    case OP_slice_by_size:
    case OP_split:
    case OP_cast:
    case OP_broadcast_to:
    case OP_tile: return true;
    default: return false;
    }
}

/* Last uses, views taken with what they look at. */
static void find_last_uses(lower *l) {
    const ir_block *b = &l->f->body;
    for (size_t i = 0; i < b->n_out; i++) l->last[b->out[i]->id] = PLAN_NEVER;
    for (size_t i = 0; i < b->n_out; i++) l->uses[b->out[i]->id]++;
    for (size_t i = b->n_op; i-- > 0;) {
        const ir_op *op = b->op[i];
        uint32_t until = (uint32_t)i;
        for (uint32_t k = 0; k < op->n_out && lower_is_view(op); k++)
            if (l->last[op->out[k]->id] > until) until = l->last[op->out[k]->id];
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) {
                const ir_value *v = op->arg[s].v[k];
                l->uses[v->id]++;
                if (until > l->last[v->id]) l->last[v->id] = until;
            }
    }
}

/* Of an input whose size is known at run time only, or of its cast: the run writes it. */
static bool lower_shape(lower *l, const ir_op *op) {
    plan *p = l->p;
    const ir_value *x = ir_in(op, A_x);
    while (x->def && (x->def->code == OP_cast || x->def->code == OP_identity)) x = ir_in(x->def, A_x);
    for (size_t i = 0; i < l->f->n_in; i++) {
        if (l->f->in[i] != x) continue;
        place y = lower_fresh(l, &op->out[0]->type);
        p->buffer[y.buffer].used = true; /* from the start */
        p->shape = arena_grow(p->a, p->shape, p->n_shape, &p->cap_shape, p->n_shape + 1, sizeof *p->shape);
        p->shape[p->n_shape++] = (plan_shape){(uint32_t)i, y.buffer};
        lower_set(l, op->out[0], y);
        return true;
    }
    if (!ir_type_known(&x->type))
        return err_set(l->e, ERR_UNSUPPORTED, "an operand's size is known at run time only");
    return lower_reference(l, op);
}

static bool lower_op(lower *l, const ir_op *op) {
    if (ir_info(op->code)->flags & OPF_CONSTEXPR) return lower_constexpr(l, op);
    if (op->code == OP_shape) return lower_shape(l, op);
    for (uint32_t i = 0; i < op->n_out; i++) {
        if (op->out[i]->type.rank > IR_MAX_RANK)
            return err_set(l->e, ERR_UNSUPPORTED, "the rank is out of range");
        if (ir_type_known(&op->out[i]->type) && ir_type_count(&op->out[i]->type) >= 0) continue;
        /* what looks at an input of unknown size is looked through by the ops that can */
        return lower_is_view(op) || err_set(l->e, ERR_UNSUPPORTED, "a size is known at run time only");
    }
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++)
            if (op->arg[i].v[k]->type.kind == IR_TENSOR && !ir_type_known(&op->arg[i].v[k]->type) &&
                !(op->code == OP_fused_attention && ir_info(op->code)->slot[i].name == A_mask) &&
                op->code != OP_slice_by_index)
                return err_set(l->e, ERR_UNSUPPORTED, "an operand's size is known at run time only");
    lower_fn *fn = rows[op->code];
    return (fn ? fn : lower_reference)(l, op) && !l->e->code;
}

static void add_inputs(lower *l) {
    plan *p = l->p;
    p->in = ARENA_ARRAY(p->a, plan_port, l->f->n_in);
    for (size_t i = 0; i < l->f->n_in; i++) {
        const ir_value *v = l->f->in[i];
        p->in[i].v = v;
        l->state[v->id].index = (uint32_t)i;
        if (v->type.kind != IR_TENSOR) continue;
        place q = lower_fresh(l, &v->type); /* of unknown size: enlarged by who reads it */
        p->in[i].buffer = q.buffer;
        p->in[i].unread = !ir_type_known(&v->type);
        p->buffer[q.buffer].used = true; /* from the start */
        lower_set(l, v, q);
    }
}

/* Results lie dense in cells at the end, each in its own buffer. */
static bool add_outputs(lower *l) {
    plan *p = l->p;
    const ir_block *b = &l->f->body;
    p->out = ARENA_ARRAY(p->a, plan_port, b->n_out);
    for (size_t i = 0; i < b->n_out; i++) {
        place q = *lower_at(l, b->out[i]);
        if (!ir_type_known(&b->out[i]->type)) /* an input of unknown size, seen through views */
            return err_set(l->e, ERR_UNSUPPORTED, "the size of %s is known at run time only",
                           b->out[i]->name);
        bool own = q.space == SPACE_ACT && !q.store && !q.weight && q.first == 0 && place_is_dense(&q);
        if (!own) {
            place to = lower_fresh(l, &b->out[i]->type);
            lower_copy(l, to, q, false);
            q = to;
        }
        p->out[i] = (plan_port){.v = b->out[i], .buffer = q.buffer};
    }
    return true;
}

bool lower_function(lower *l) {
    const ir_block *b = &l->f->body;
    find_last_uses(l);
    place_constants(l);
    add_inputs(l);
    for (l->index = 0; l->index < b->n_op; l->index++) {
        l->op = b->op[l->index];
        if (!lower_op(l, l->op))
            return err_where(l->e, "op %s (%s)", l->op->n_out ? l->op->out[0]->name : l->op->name,
                             ir_info(l->op->code)->name);
        arena_reset(l->scratch);
    }
    l->op = NULL;
    if (!add_outputs(l) || l->e->code) return false;
    lower_made_unread(l->p);
    return true;
}
