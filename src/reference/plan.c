#include "reference/plan.h"
#include <string.h>

#define NEVER UINT32_MAX /* dies at no op: the block's result */

typedef struct {
    arena *a;
    const ir_block **owner; /* by value id: the block that makes it; NULL for constants */
    uint32_t *last;         /* by value id: index of the last op of the owner that uses it */
    bool *to_state;         /* by value id */
} planner;

static bool is_constant(const ir_op *op) {
    return ir_info(op->code)->flags & (OPF_CONST | OPF_CONSTEXPR);
}

static void use(planner *p, const ir_block *b, const ir_value *v, uint32_t at) {
    if (p->owner[v->id] == b) p->last[v->id] = at;
}

/* Op `at` of b uses its operands and whatever its nested blocks use from outside. */
static void mark_uses(planner *p, const ir_block *b, const ir_op *op, uint32_t at) {
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) use(p, b, op->arg[i].v[k], at);
    for (uint32_t i = 0; i < op->n_block; i++) {
        const ir_block *inner = op->block[i];
        for (size_t k = 0; k < inner->n_op; k++) mark_uses(p, b, inner->op[k], at);
        for (size_t k = 0; k < inner->n_out; k++) use(p, b, inner->out[k], at);
    }
}

static const ir_value *state_of(const ir_op *op) {
    return op->code == OP_read_state || op->code == OP_write_state ? ir_in(op, A_input) : NULL;
}

static bool touches(const ir_op *op, const ir_value *state) {
    if (state_of(op) == state) return true;
    for (uint32_t i = 0; i < op->n_block; i++)
        for (size_t k = 0; k < op->block[i]->n_op; k++)
            if (touches(op->block[i]->op[k], state)) return true;
    return false;
}

static bool may_take(const ir_block *b, size_t at) {
    const ir_value *state = state_of(b->op[at]);
    for (size_t i = at + 1; i < b->n_op; i++)
        if (touches(b->op[i], state)) return b->op[i]->code == OP_write_state;
    return false;
}

static void define(planner *p, const ir_block *b, ref_block_plan *plan, const ir_value *v, uint32_t at) {
    p->owner[v->id] = b;
    p->last[v->id] = at;
    plan->defs[plan->n_defs++] = v->id;
}

/* Turns "last use by value" into "values by last use". */
static void sort_deaths(planner *p, const ir_block *b, ref_block_plan *plan) {
    uint32_t *room = ARENA_ARRAY(p->a, uint32_t, plan->n_defs);
    for (size_t i = 0; i < plan->n_defs; i++) {
        uint32_t at = p->last[plan->defs[i]];
        if (at != NEVER) plan->op[at].n_dies++;
    }
    size_t used = 0;
    for (size_t i = 0; i < b->n_op; i++) {
        plan->op[i].dies = room + used;
        used += plan->op[i].n_dies;
        plan->op[i].n_dies = 0;
    }
    for (size_t i = 0; i < plan->n_defs; i++) {
        uint32_t at = p->last[plan->defs[i]];
        if (at == NEVER) continue;
        ref_op_plan *o = &plan->op[at];
        ((uint32_t *)o->dies)[o->n_dies++] = plan->defs[i];
    }
}

static ref_block_plan *plan_block(planner *p, const ir_block *b, ir_value *const *in, size_t n_in) {
    ref_block_plan *plan = ARENA_NEW(p->a, ref_block_plan);
    size_t n = n_in;
    for (size_t i = 0; i < b->n_op; i++) n += b->op[i]->n_out;
    plan->defs = ARENA_ARRAY(p->a, uint32_t, n);
    plan->op = ARENA_ARRAY(p->a, ref_op_plan, b->n_op);
    for (size_t i = 0; i < n_in; i++)
        if (in[i]->type.kind == IR_TENSOR) define(p, b, plan, in[i], b->n_op ? 0 : NEVER);
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        ref_op_plan *o = &plan->op[i];
        mark_uses(p, b, op, (uint32_t)i);
        for (uint32_t k = 0; k < op->n_out && !is_constant(op); k++)
            define(p, b, plan, op->out[k], (uint32_t)i);
        o->block = ARENA_ARRAY(p->a, ref_block_plan *, op->n_block);
        for (uint32_t k = 0; k < op->n_block; k++)
            o->block[k] = plan_block(p, op->block[k], op->block[k]->in, op->block[k]->n_in);
        o->take = op->code == OP_read_state && may_take(b, i);
        o->to_state = op->code == OP_slice_update && p->to_state[op->out[0]->id];
    }
    for (size_t i = 0; i < b->n_out; i++) use(p, b, b->out[i], NEVER);
    sort_deaths(p, b, plan);
    return plan;
}

static void mark_written(planner *p, const ir_block *b) {
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        if (op->code == OP_write_state) p->to_state[ir_in(op, A_data)->id] = true;
        for (uint32_t k = 0; k < op->n_block; k++) mark_written(p, op->block[k]);
    }
}

ref_plan *ref_plan_new(arena *a, const ir_function *f) {
    arena *scratch = arena_new();
    planner p = {.a = a,
                 .owner = ARENA_ARRAY(scratch, const ir_block *, f->n_values),
                 .last = ARENA_ARRAY(scratch, uint32_t, f->n_values),
                 .to_state = ARENA_ARRAY(scratch, bool, f->n_values)};
    ref_plan *plan = ARENA_NEW(a, ref_plan);
    plan->f = f;
    mark_written(&p, &f->body);
    plan->body = plan_block(&p, &f->body, f->in, f->n_in);
    arena_free(scratch);
    return plan;
}
