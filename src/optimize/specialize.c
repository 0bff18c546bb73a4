#include "ir/infer.h"
#include "optimize/affine.h"
#include "optimize/optimize.h"
#include "reference/eval.h"
#include <stdlib.h>
#include <string.h>

/* Results up to this many elements are folded: shapes, indices, masks and tables, not weights. */
#define FOLD_ELEMENTS (1 << 16)

typedef struct {
    ir_program *p;
    ir_function *to;
    const ir_function *from;
    ir_value **copy; /* by id in from */
    ref_eval v;      /* env by id in from: constants only */
    arena *scratch;
    ir_env env;
    affine_table *ints;
    err *e;
} specializer;

static ir_type type_of(void *ctx, const ir_value *v) {
    const specializer *s = ctx;
    return s->copy[v->id] ? s->copy[v->id]->type : v->type;
}

static const double *numbers_of(void *ctx, const ir_value *v, size_t *n, arena *a) {
    const specializer *s = ctx;
    const ir_value *c = s->copy[v->id];
    return c && c->konst ? ir_const_numbers(c->konst, n, a) : NULL;
}

static bool add_constant(specializer *s, const ir_value *v, const ir_const *c) {
    ir_value *to = ir_value_new(s->p, s->to, v->name, c->type);
    to->type.kind = v->type.kind;
    to->konst = c;
    s->copy[v->id] = to;
    affine_constant(s->ints, v, c);
    if (c->type.kind != IR_TENSOR) return true;
    return ref_tensor_const(&s->v.env[v->id], c, s->e) ||
           err_where(s->e, "%s", v->name ? v->name : "literal");
}

static bool add_literals(specializer *s, const ir_op *op) {
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) {
            const ir_value *v = op->arg[i].v[k];
            if (v->konst && !s->copy[v->id] && !add_constant(s, v, v->konst)) return false;
            if (!s->copy[v->id])
                return err_set(s->e, ERR_INVALID, "%s is used before it is made",
                               v->name ? v->name : "a value");
        }
    return true;
}

static ir_type as_known(ir_type t, const ir_type *declared) {
    for (int i = 0; i < t.rank && i < declared->rank; i++)
        if (t.dim[i] == IR_DIM_UNKNOWN) t.dim[i] = declared->dim[i];
    return t;
}

static bool foldable(const specializer *s, const ir_op *op, const ir_type *types) {
    uint8_t flags = ir_info(op->code)->flags;
    if (flags != OPF_PURE || op->n_block || !op->n_out) return false;
    for (uint32_t i = 0; i < op->n_out; i++) {
        int64_t n = ir_type_count(&types[i]);
        if (n < 0 || n > FOLD_ELEMENTS || dtype_bits((ir_dtype)types[i].dtype) < 8) return false;
        /* outside of strict mode floats keep more than their type says */
        if (s->v.mode == REF_FAST && types[i].dtype == DT_FP16 && !ref_op_row_of(op->code)->exact)
            return false;
    }
    if (op->code == OP_shape) return true;
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) {
            const ir_value *v = s->copy[op->arg[i].v[k]->id];
            if (!v->konst || ir_type_count(&v->konst->type) > FOLD_ELEMENTS) return false;
        }
    return true;
}

/* The op's results as constants; false (no error) when the evaluator can't make them. */
static bool fold(specializer *s, const ir_op *op) {
    err ignored = {0};
    if (op->code == OP_shape) { /* needs the type only */
        const ir_type *t = &s->copy[ir_in(op, A_x)->id]->type;
        int32_t *dim = ARENA_ARRAY(s->p->a, int32_t, (size_t)t->rank + 1);
        for (int i = 0; i < t->rank; i++) dim[i] = (int32_t)t->dim[i];
        return ir_type_known(t) &&
               add_constant(s, op->out[0], ir_const_new(s->p->a, IR_TYPE(DT_INT32, t->rank), dim));
    }
    s->v.e = &ignored;
    if (!ref_eval_op(&s->v, op)) return false;
    for (uint32_t i = 0; i < op->n_out; i++) {
        ref_tensor *t = &s->v.env[op->out[i]->id];
        void *data = arena_alloc(s->p->a, (size_t)ir_type_bytes(&t->type) + 1);
        ref_pack(t, data);
        const ir_const *c = ir_const_new(s->p->a, t->type, data);
        ref_tensor_drop(t);
        if (!add_constant(s, op->out[i], c)) return false;
    }
    return true;
}

/* Bounds that say so: the last n of the last dimension, all of the others. */
static void take_tail(specializer *s, ir_op *slice, int rank, int64_t n) {
    int32_t *bound[2];
    uint8_t *mask = ARENA_ARRAY(s->p->a, uint8_t, (size_t)rank);
    for (int i = 0; i < 2; i++) bound[i] = ARENA_ARRAY(s->p->a, int32_t, (size_t)rank);
    memset(mask, 1, (size_t)rank);
    bound[0][rank - 1] = (int32_t)-n;
    const ir_const *c[3] = {ir_const_new(s->p->a, IR_TYPE(DT_INT32, rank), bound[0]),
                            ir_const_new(s->p->a, IR_TYPE(DT_INT32, rank), bound[1]),
                            ir_const_new(s->p->a, IR_TYPE(DT_BOOL, rank), mask)};
    static const ir_operand name[3] = {A_begin, A_end, A_end_mask};
    for (int i = 0; i < 3; i++)
        ir_set_arg(s->p, slice, name[i], ir_literal(s->p, s->to, c[i], IR_BY_LITERAL));
    slice->arg[ir_slot_of(OP_slice_by_index, A_begin_mask)] = (ir_arg){0};
}

static bool copy_op(specializer *s, const ir_op *op) {
    if (op->code == OP_const) return add_constant(s, op->out[0], op->out[0]->konst);
    if (op->n_block) return err_set(s->e, ERR_UNSUPPORTED, "control flow can't be planned");
    if (!add_literals(s, op)) return false;
    arena_reset(s->scratch);
    ir_type *types = ARENA_ARRAY(s->scratch, ir_type, op->n_out + 1);
    if (!ir_infer_op(op, s->from->spec, &s->env, types, s->scratch, s->e)) return false;
    for (uint32_t i = 0; i < op->n_out; i++) types[i] = as_known(types[i], &op->out[i]->type);
    if (op->code == OP_slice_by_index || op->code == OP_range_1d)
        affine_sizes(s->ints, op, op->code == OP_range_1d ? NULL : &s->copy[ir_in(op, A_x)->id]->type, types);
    if (foldable(s, op, types) && fold(s, op)) return true;
    if (op->code == OP_slice_by_index && !ir_type_known(types) &&
        affine_is_copy(s->ints, op, &s->copy[ir_in(op, A_x)->id]->type, types)) {
        s->copy[op->out[0]->id] = s->copy[ir_in(op, A_x)->id];
        return true;
    }
    int64_t tail = op->code == OP_slice_by_index
                       ? affine_tail(s->ints, op, &s->copy[ir_in(op, A_x)->id]->type, types)
                       : 0;
    ir_op *to = ir_add_op(s->p, &s->to->body, op->code, op->n_out);
    to->name = op->name;
    for (int i = 0; i < ir_info(op->code)->n_slot; i++) {
        to->arg[i] = (ir_arg){ARENA_ARRAY(s->p->a, ir_value *, op->arg[i].n), op->arg[i].n};
        for (uint32_t k = 0; k < op->arg[i].n; k++) to->arg[i].v[k] = s->copy[op->arg[i].v[k]->id];
    }
    if (tail) take_tail(s, to, types[0].rank, tail);
    for (uint32_t i = 0; i < op->n_out; i++) {
        to->out[i] = s->copy[op->out[i]->id] = ir_value_new(s->p, s->to, op->out[i]->name, types[i]);
        to->out[i]->def = to;
    }
    affine_op(s->ints, op, type_of, s);
    const ir_const *known = affine_known(s->ints, op, &types[0]);
    if (known && ir_info(op->code)->flags == OPF_PURE) return add_constant(s, op->out[0], known);
    if (op->n_out == 1) affine_unknown(s->ints, op->out[0], &types[0]);
    return true;
}

static bool copy_body(specializer *s) {
    const ir_block *b = &s->from->body;
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        if (!copy_op(s, op))
            return err_where(s->e, "op %s (%s)",
                             op->n_out  ? op->out[0]->name
                             : op->name ? op->name
                                        : "?",
                             ir_info(op->code)->name);
    }
    s->to->body.n_out = b->n_out;
    s->to->body.out = ARENA_ARRAY(s->p->a, ir_value *, b->n_out);
    for (size_t i = 0; i < b->n_out; i++) s->to->body.out[i] = s->copy[b->out[i]->id];
    return true;
}

ir_function *opt_specialize(ir_program *p, const ir_function *f, const ir_type *in, bool strict, err *e) {
    specializer s = {.p = p, .from = f, .scratch = arena_new(), .e = e};
    arena *scratch = arena_new();
    s.to = ir_function_new(p, f->name, f->spec);
    s.copy = ARENA_ARRAY(p->a, ir_value *, f->n_values);
    s.v = (ref_eval){.mode = strict ? REF_STRICT : REF_FAST,
                     .spec = f->spec,
                     .env = mem_try(f->n_values, sizeof *s.v.env),
                     .scratch = scratch};
    s.env = (ir_env){&s, type_of, numbers_of};
    s.ints = affine_new(p->a, f->n_values);
    bool ok = s.v.env || err_set(e, ERR_MEMORY, "no memory for the values of function %s", f->name);
    for (size_t i = 0; ok && i < f->n_in; i++) {
        ir_value *v = s.copy[f->in[i]->id] = ir_value_new(p, s.to, f->in[i]->name, f->in[i]->type);
        if (v->type.kind == IR_TENSOR) v->type = in[i];
        affine_unknown(s.ints, f->in[i], &v->type);
        ir_add_input(p, s.to, v);
    }
    ok = ok && copy_body(&s);
    for (uint32_t i = 0; s.v.env && i < f->n_values; i++) ref_tensor_drop(&s.v.env[i]);
    ref_eval_free_spares(&s.v);
    mem_free(s.v.env);
    arena_free(scratch);
    arena_free(s.scratch);
    if (!ok) err_where(e, "function %s", f->name);
    return ok ? s.to : NULL;
}
