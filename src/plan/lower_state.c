/* States keep value semantics in the program; here reads become views of the state's memory and updates are
 * written in place, where nobody can tell the difference. */
#include "plan/lower.h"
#include "plan/steps.h"
#include "reference/walk.h"
#include <string.h>

/* The first op behind `from` that writes the state. */
static uint32_t next_write(const lower *l, const ir_value *s, size_t from) {
    for (size_t i = from + 1; i < l->f->body.n_op; i++)
        if (l->f->body.op[i]->code == OP_write_state && ir_in(l->f->body.op[i], A_input) == s)
            return (uint32_t)i;
    return PLAN_NEVER - 1; /* results of the function are taken after everything else */
}

static place state_place(const lower *l, const ir_value *s) {
    ir_type type = s->type;
    type.kind = IR_TENSOR;
    place p = {.space = SPACE_STATE,
               .store = type.dtype,
               .buffer = l->state[s->id].index,
               .first = l->state[s->id].first,
               .type = type,
               .state = s};
    if (dtype_bits((ir_dtype)type.dtype) == 32) p.store = DT_NONE;
    ref_strides(&type, p.stride);
    return p;
}

bool lower_state_part(lower *l, const ir_op *op) {
    const lower_state *whole = &l->state[ir_in(op, A_input)->id];
    l->state[op->out[0]->id] =
        (lower_state){.index = whole->index, .first = whole->first + lower_int(l, op, A_begin, 0)};
    return true;
}

bool lower_read_state(lower *l, const ir_op *op) {
    const ir_value *s = ir_in(op, A_input), *v = op->out[0];
    lower_state *state = &l->state[s->id];
    place p = state_place(l, s);
    if (l->last[v->id] < next_write(l, s, l->index)) {
        if (l->last[v->id] > state->until) state->until = l->last[v->id];
        lower_set(l, v, p);
        return true;
    }
    place copy = lower_fresh(l, &v->type);
    if (!lower_copy(l, copy, p, false)) return false;
    lower_set(l, v, copy);
    return true;
}

static bool whole_state(const lower *l, const place *p, const ir_value *s) {
    return p->space == SPACE_STATE && p->state == s && p->first == l->state[s->id].first && place_is_dense(p);
}

bool lower_write_state(lower *l, const ir_op *op) {
    const ir_value *s = ir_in(op, A_input);
    place to = state_place(l, s), *from = lower_at(l, ir_in(op, A_data));
    if (whole_state(l, from, s)) return true; /* updated in place */
    place p = *from;
    if (p.space == SPACE_STATE) p = lower_dense(l, p);
    return lower_copy(l, to, p, false);
}

/* What reshapes look at. */
static const ir_value *origin(const ir_value *v) {
    while (v->def && (v->def->code == OP_reshape || v->def->code == OP_identity)) v = ir_in(v->def, A_x);
    return v;
}

/* The op of the body that makes v. */
static uint32_t index_of(const lower *l, const ir_op *op) {
    uint32_t i = 0;
    while (i < l->f->body.n_op && l->f->body.op[i] != op) i++;
    return i;
}

/* v is what is written, or is changed by updates one after the other that end in that; it is not looked at
 * behind the first of them, whose index is *until then (PLAN_NEVER: there is none). */
static bool becomes(const lower *l, const ir_value *v, const ir_value *written, uint32_t *until) {
    *until = PLAN_NEVER;
    for (written = origin(written); written != v; written = origin(ir_in(written->def, A_x))) {
        if (!written->def || written->def->code != OP_slice_update) return false;
        *until = index_of(l, written->def);
    }
    return *until == PLAN_NEVER || l->last[v->id] <= *until;
}

bool lower_state_passes(lower *l, const place *x, const ir_value *v) {
    const ir_value *s = x->state;
    if (!whole_state(l, x, s)) return false;
    uint32_t write = next_write(l, s, l->index), until;
    lower_state *state = &l->state[s->id];
    if (write >= l->f->body.n_op || !becomes(l, v, ir_in(l->f->body.op[write], A_data), &until)) return false;
    if (state->until > l->index) return false;
    for (size_t i = l->index + 1; i < write; i++) /* would have to see the old content */
        if (l->f->body.op[i]->code == OP_read_state && ir_in(l->f->body.op[i], A_input) == s) return false;
    if (l->last[v->id] >= next_write(l, s, write)) return false;
    if (l->last[v->id] > state->until) state->until = l->last[v->id];
    return true;
}

/* A cast to fp16 made it, which may have been left to who reads it (lower_cast()). */
static bool was_cast(const ir_value *v) {
    for (; v->def && lower_is_view(v->def); v = ir_in(v->def, A_x))
        if (v->def->code == OP_cast && v->type.dtype == DT_FP16 && ir_in(v->def, A_x)->type.dtype == DT_FP32)
            return true;
    return false;
}

bool lower_slice_update(lower *l, const ir_op *op) {
    const ir_value *r = op->out[0];
    place x = *lower_at(l, ir_in(op, A_x));
    place update = lower_cells(l, lower_in(l, op, A_update)), target;
    bool apart = x.space != SPACE_STATE || update.space != SPACE_STATE || update.buffer != x.buffer;
    if (apart && lower_state_passes(l, &x, r)) {
        target = x;
    } else {
        x = lower_in(l, op, A_x);
        target = lower_fresh(l, &r->type);
        if (!lower_copy(l, target, x, false)) return false;
    }
    step_update *u = ARENA_NEW(l->a, step_update);
    *u = (step_update){.op = op,
                       .type = target.type,
                       .update = update.type,
                       .store = target.store,
                       .round = lower_rounds(l, &r->type) || was_cast(ir_in(op, A_update)),
                       .begin = -1,
                       .end = -1};
    memcpy(u->stride, target.stride, sizeof u->stride);
    memcpy(u->from, update.stride, sizeof u->from);
    place in[3] = {update};
    uint32_t n = 1;
    if (!lower_is_const(op, A_begin)) {
        u->begin = (int)(1 + n);
        in[n++] = lower_dense(l, lower_in(l, op, A_begin));
    }
    if (!lower_is_const(op, A_end)) {
        u->end = (int)(1 + n);
        in[n++] = lower_dense(l, lower_in(l, op, A_end));
    }
    u->plain = u->begin > 0 && u->end > 0 && !ir_in(op, A_stride) && !ir_in(op, A_begin_mask) &&
               !ir_in(op, A_end_mask) && !ir_in(op, A_squeeze_mask) && update.type.rank == target.type.rank;
    u->g = grid_make(update.type.rank, update.type.dim, 2, (const int64_t *const[]){u->stride, u->from});
    int64_t units = u->plain ? grid_units(&u->g) : 1, grain = u->plain ? grid_grain(&u->g, 8192) : 1;
    plan_step *s = lower_emit(l, run_update, u, "update", units, grain, &target, 1, in, n);
    s->bytes = (uint64_t)ir_type_count(&update.type) * s->arg[0].size;
    s->once = units <= grain; /* bounds that are wrong are worker 0's, too */
    lower_set(l, r, target);
    return true;
}

/* The memory that op's result lies in: the state's, when nobody can tell, else a copy of memory. */
static bool changed_memory(lower *l, const ir_op *op, place *target) {
    place x = *lower_at(l, ir_in(op, A_memory));
    if (lower_state_passes(l, &x, op->out[0])) {
        *target = x;
        return true;
    }
    x = lower_in(l, op, A_memory);
    *target = lower_fresh(l, &op->out[0]->type);
    return lower_copy(l, *target, x, false);
}

bool lower_fused_blend(lower *l, const ir_op *op) {
    place row = lower_cells(l, lower_in(l, op, A_row)), mask = lower_cells(l, lower_in(l, op, A_mask)),
          memory;
    int64_t bits = lower_int(l, op, A_rounding, 0);
    size_t n;
    if (!changed_memory(l, op, &memory)) return false;
    const int64_t *begin = lower_ints(l, op, A_begin, &n), *size = lower_ints(l, op, A_size, &n);
    place part = memory;
    step_blend *s = ARENA_NEW(l->a, step_blend);
    int axis = -1, rank = memory.type.rank;
    for (int d = 0; d < rank; d++) {
        if (size) part.type.dim[d] = size[d];
        if (begin) part.first += begin[d] * part.stride[d];
        if (mask.type.dim[d] != 1) axis = d;
    }
    ir_type one = part.type;
    *s = (step_blend){.n = 1,
                      .store = memory.store,
                      .round_rest = bits & 1,
                      .round_kept = bits & 2,
                      .round_put = bits & 4,
                      .round = lower_rounds(l, &op->out[0]->type)};
    if (axis >= 0) {
        s->n = one.dim[axis], s->step = part.stride[axis], s->mask = mask.stride[axis];
        one.dim[axis] = 1;
    }
    place spread = place_broadcast(&row, &one);
    s->g = grid_make(rank, one.dim, 2, (const int64_t *const[]){part.stride, spread.stride});
    part.konst = mask.konst = row.konst = NULL;
    lower_emit(l, run_blend, s, "blend", 1, 1, &part, 1, (place[]){row, mask}, 2)->bytes =
        (uint64_t)ir_type_count(&one) * (memory.store ? 2 : 4);
    lower_set(l, op->out[0], memory);
    return true;
}
