#include "plan/grid.h"
#include "plan/lower.h"
#include "plan/steps.h"
#include "reference/walk.h"
#include <stdlib.h>
#include <string.h>

place *lower_at(lower *l, const ir_value *v) {
    return &l->at[v->id];
}

void lower_set(lower *l, const ir_value *v, place p) {
    p.type = v->type;
    l->at[v->id] = p;
}

place lower_fresh(lower *l, const ir_type *type) {
    plan *p = l->p;
    p->buffer = arena_grow(p->a, p->buffer, p->n_buffer, &p->cap_buffer, p->n_buffer + 1, sizeof *p->buffer);
    int64_t n = ir_type_count(type);
    p->buffer[p->n_buffer] = (plan_buffer){.cells = n > 0 ? n : 1};
    place q = {.space = SPACE_ACT, .buffer = (uint32_t)p->n_buffer++, .type = *type};
    ref_strides(type, q.stride);
    return q;
}

bool place_is_dense(const place *p) {
    return ref_is_dense(p->type.rank, p->type.dim, p->stride);
}

/* Walks both shapes from the left: groups of old dimensions whose product equals a group of new ones must be
 * dense among themselves. */
bool place_reshape(const place *p, const ir_type *type, place *out) {
    int64_t dim[IR_MAX_RANK], stride[IR_MAX_RANK];
    int n = 0, old = 0;
    for (int d = 0; d < p->type.rank; d++)
        if (p->type.dim[d] != 1) dim[n] = p->type.dim[d], stride[n++] = p->stride[d];
    place q = *p;
    q.type = *type;
    if (ir_type_count(type) == 0) return false;
    for (int d = 0; d < type->rank;) {
        if (type->dim[d] == 1) { /* any stride will do */
            q.stride[d++] = 0;
            continue;
        }
        int from = old, to = d;
        int64_t have = dim[old++], want = type->dim[to++];
        while (have != want) {
            if (have < want)
                have *= dim[old++];
            else
                want *= type->dim[to++];
        }
        for (int i = from; i + 1 < old; i++)
            if (stride[i] != stride[i + 1] * dim[i + 1]) return false;
        int64_t step = stride[old - 1];
        for (int i = to - 1; i >= d; i--) {
            q.stride[i] = step;
            step *= type->dim[i];
        }
        d = to;
    }
    *out = q;
    return true;
}

place place_broadcast(const place *p, const ir_type *type) {
    place q = *p;
    int shift = type->rank - p->type.rank;
    q.type.rank = type->rank;
    for (int d = 0; d < type->rank; d++) {
        q.type.dim[d] = type->dim[d];
        q.stride[d] = d < shift || p->type.dim[d - shift] == 1 ? 0 : p->stride[d - shift];
    }
    return q;
}

/* ---- constants ---- */

static void *keep_big(plan *p, void *data) {
    p->big = arena_grow(p->a, p->big, p->n_big, &p->cap_big, p->n_big + 1, sizeof *p->big);
    return p->big[p->n_big++] = data;
}

/* Compressed weights are made by the evaluator, op by op: their operands may be compressed themselves. */
static bool evaluate(lower *l, ref_eval *v, const ir_op *op) {
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) {
            const ir_value *x = op->arg[i].v[k];
            ref_tensor *t = &v->env[x->id];
            if (t->cell || t->konst) continue;
            if (x->konst ? !ref_tensor_const(t, x->konst, l->e) : !evaluate(l, v, x->def)) return false;
        }
    return ref_eval_op(v, op);
}

static bool expand_compressed(lower *l, const place *p, void *cells) {
    arena *scratch = arena_new();
    ref_eval v = {.mode = l->strict ? REF_STRICT : REF_FAST,
                  .spec = l->f->spec,
                  .env = mem_try(l->f->n_values, sizeof *v.env),
                  .scratch = scratch,
                  .e = l->e};
    bool ok = v.env || err_set(l->e, ERR_MEMORY, "no memory to expand a weight");
    ok = ok && evaluate(l, &v, p->weight);
    const ir_value *out = p->weight->out[p->buffer];
    if (ok) ref_read(&v.env[out->id], 0, ir_type_count(&p->type), cells);
    for (uint32_t i = 0; v.env && i < l->f->n_values; i++) ref_tensor_drop(&v.env[i]);
    ref_eval_free_spares(&v);
    mem_free(v.env);
    arena_free(scratch);
    return ok;
}

bool lower_expand(lower *l, place *p) {
    int64_t n = ir_type_count(&p->type);
    bool small = n <= 4096;
    void *cells = small ? arena_array(l->a, (size_t)n + 1, 4) : mem_try((size_t)n, 4);
    if (!cells)
        return err_set(l->e, ERR_MEMORY, "no memory to expand a constant of %lld elements", (long long)n);
    if (!small) keep_big(l->p, cells);
    if (p->weight) {
        if (!expand_compressed(l, p, cells)) return false;
    } else {
        const ref_tensor t = {.type = p->konst->type, .konst = p->konst};
        if (!ref_dtype_ok((ir_dtype)t.type.dtype))
            return err_set(l->e, ERR_UNSUPPORTED, "a constant of %s can't be expanded",
                           dtype_name((ir_dtype)t.type.dtype));
        ref_read(&t, 0, n, cells);
    }
    ir_type type = p->type;
    const ir_const *konst = p->konst;
    *p = (place){.space = SPACE_CONST, .data = cells, .type = type, .konst = konst};
    ref_strides(&type, p->stride);
    return true;
}

/* ---- steps ---- */

static plan_arg arg_of(const place *p) {
    int64_t low = 0, high = 1;
    for (int d = 0; d < p->type.rank; d++) {
        int64_t reach = (p->type.dim[d] - 1) * p->stride[d];
        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    return (plan_arg){.space = p->space,
                      .size = p->store ? (uint8_t)(dtype_bits((ir_dtype)p->store) / 8) : 4,
                      .buffer = p->buffer,
                      .first = p->first,
                      .low = low,
                      .high = high,
                      .data = p->data};
}

plan_step *lower_emit(lower *l, plan_fn *fn, const void *param, const char *kernel, int64_t extent,
                      int64_t grain, const place *out, uint32_t n_out, const place *in, uint32_t n_in) {
    plan *p = l->p;
    p->step = arena_grow(p->a, p->step, p->n_step, &p->cap_step, p->n_step + 1, sizeof *p->step);
    plan_step *s = &p->step[p->n_step++];
    *s = (plan_step){.fn = fn,
                     .param = param,
                     .kernel = kernel,
                     .origin = l->op,
                     .arg = ARENA_ARRAY(p->a, plan_arg, n_out + n_in),
                     .n_arg = n_out + n_in,
                     .n_out = n_out,
                     .first_address = (uint32_t)p->n_address,
                     .extent = extent,
                     .grain = grain};
    for (uint32_t i = 0; i < n_out; i++) s->arg[i] = arg_of(&out[i]);
    for (uint32_t i = 0; i < n_in; i++) s->arg[n_out + i] = arg_of(&in[i]);
    for (uint32_t i = 0; i < s->n_arg; i++)
        if (s->arg[i].space != SPACE_ACT)
            s->bytes += (uint64_t)(s->arg[i].high - s->arg[i].low) * s->arg[i].size;
    p->n_address += s->n_arg;
    return s;
}

plan_step *lower_updates(plan_step *s) {
    for (uint32_t i = 0; i < s->n_out; i++)
        if (s->arg[i].space == SPACE_STATE)
            s->bytes += (uint64_t)(s->arg[i].high - s->arg[i].low) * s->arg[i].size;
    return s;
}

/* Nobody looks at the other parts of what v is a part of. */
static bool only_part(const lower *l, const ir_value *v) {
    for (uint32_t i = 0; i < v->def->n_out; i++)
        if (v->def->out[i] != v && l->uses[v->def->out[i]->id]) return false;
    return true;
}

bool lower_alone(const lower *l, const ir_value *v) {
    for (; l->uses[v->id] == 1 && v->def && lower_is_view(v->def); v = ir_in(v->def, A_x))
        if (!only_part(l, v)) return false;
    return l->uses[v->id] == 1;
}

place lower_place_of(const plan_arg *a) {
    return (place){.space = a->space,
                   .buffer = a->buffer,
                   .first = a->first,
                   .data = a->data,
                   .type = IR_TYPE(DT_FP32, a->high),
                   .stride = {1}};
}

void lower_take_back(lower *l) {
    l->p->n_address = l->p->step[--l->p->n_step].first_address;
}

void lower_need_scratch(lower *l, size_t bytes) {
    if (bytes > l->p->scratch) l->p->scratch = bytes;
}

bool lower_copy(lower *l, place dst, place src, bool round) {
    if (ir_type_count(&dst.type) == 0) return true;
    if (src.weight && !lower_expand(l, &src)) return false;
    if (src.store && src.store != DT_FP16 && src.konst && !lower_expand(l, &src)) return false;
    step_copy *c = ARENA_NEW(l->a, step_copy);
    c->g = grid_make(dst.type.rank, dst.type.dim, 2, (const int64_t *const[]){dst.stride, src.stride});
    c->to = dst.store;
    c->from = src.store;
    c->round = round;
    lower_emit(l, run_copy, c,
               dst.space == SPACE_STATE   ? "store"
               : src.space == SPACE_STATE ? "load"
                                          : "copy",
               grid_units(&c->g), grid_grain(&c->g, 8192), &dst, 1, &src, 1);
    return true;
}

place lower_cells(lower *l, place p) {
    if (p.weight || (p.konst && p.store)) lower_expand(l, &p);
    return p.store ? lower_dense(l, p) : p;
}

place lower_dense(lower *l, place p) {
    if (p.weight || (p.konst && p.store)) lower_expand(l, &p);
    if (!p.store && place_is_dense(&p)) return p;
    place q = lower_fresh(l, &p.type);
    lower_copy(l, q, p, false);
    return q;
}

place lower_in(lower *l, const ir_op *op, ir_operand name) {
    place *p = lower_at(l, ir_in(op, name));
    if (p->weight || (p->konst && p->store)) lower_expand(l, p);
    return *p;
}
