/* A state that holds those of several layers, one behind the other: each call reads parts of it and writes
 * all of them together. Its parts become states of their own, which lie in the memory of the whole, so that
 * what is known about the state of a layer applies to them, and nothing is put together again. */
#include "optimize/fuse.h"

typedef struct {
    ir_value *whole;
    int axis; /* of which the parts are pieces; all axes in front of it are 1 */
    uint32_t n;
    const int64_t *begin, *size; /* of the parts along the axis */
    ir_value **part;             /* states */
} stack;

static bool reads(const ir_op *op, const stack *s) {
    return op->code == OP_read_state && ir_in(op, A_input) == s->whole;
}

static bool writes(const ir_op *op, const stack *s) {
    return op->code == OP_write_state && ir_in(op, A_input) == s->whole;
}

static bool is_reshape(const ir_op *op) {
    return op->code == OP_reshape || op->code == OP_squeeze || op->code == OP_expand_dims;
}

/* ---- is it one? ---- */

/* The joined values are the parts; those of another write must be the same. */
static bool take_cuts(fuser *f, stack *s, const ir_op *write) {
    const ir_op *join = ir_in(write, A_data)->def;
    double axis;
    if (!join || join->code != OP_concat || !fuse_number(ir_in(join, A_axis), &axis)) return false;
    const ir_arg *v = ir_args(join, A_values);
    int at = (int)(axis < 0 ? axis + s->whole->type.rank : axis);
    if (v->n < 2 || !fuse_joins(join, at) || (s->n && (s->n != v->n || s->axis != at))) return false;
    int64_t *begin = ARENA_ARRAY(f->p->a, int64_t, v->n), *size = ARENA_ARRAY(f->p->a, int64_t, v->n),
            sum = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        begin[i] = sum, size[i] = v->v[i]->type.dim[at];
        if (size[i] < 1 || (s->n && size[i] != s->size[i])) return false;
        sum += size[i];
    }
    for (int d = 0; d < at; d++)
        if (s->whole->type.dim[d] != 1) return false;
    s->axis = at, s->n = v->n, s->begin = begin, s->size = size;
    return true;
}

/* v, made from a read of the whole, is this part; n: none. */
static uint32_t part_of(fuser *f, const stack *s, const ir_value *v, const ir_value *read) {
    uint32_t i = 0;
    while (i < s->n && fuse_part(f, v, s->axis, s->begin[i], s->size[i]) != read) i++;
    return i;
}

static bool only_parts_are_read(fuser *f, const stack *s, const ir_value *read) {
    const ir_block *b = &f->f->body;
    for (size_t i = 0; i < b->n_out; i++)
        if (b->out[i] == read) return false;
    for (size_t i = 0; i < b->n_op; i++) {
        if (!fuse_uses(b->op[i], read)) continue;
        for (uint32_t k = 0; k < b->op[i]->n_out; k++)
            if (part_of(f, s, b->op[i]->out[k], read) == s->n) return false;
        if (!b->op[i]->n_out) return false;
    }
    return true;
}

static bool is_stack(fuser *f, stack *s) {
    const ir_block *b = &f->f->body;
    if (s->whole->type.kind != IR_STATE || !ir_type_known(&s->whole->type) ||
        ir_type_count(&s->whole->type) > INT32_MAX)
        return false;
    for (size_t i = 0; i < b->n_op; i++)
        if (writes(b->op[i], s) && !take_cuts(f, s, b->op[i])) return false;
    for (size_t i = 0; i < b->n_op && s->n; i++)
        if (reads(b->op[i], s) && !only_parts_are_read(f, s, b->op[i]->out[0])) return false;
    return s->n > 0;
}

/* ---- its parts ---- */

/* As a tensor: in the shape in which the function looks at the part, so that no reshape is in between. */
static ir_type part_type(fuser *f, const stack *s, uint32_t i) {
    const ir_block *b = &f->f->body;
    ir_type t = s->whole->type;
    t.kind = IR_TENSOR;
    t.dim[s->axis] = s->size[i];
    for (size_t k = 0; k < b->n_op; k++) {
        const ir_value *x = is_reshape(b->op[k]) ? ir_in(b->op[k], A_x) : NULL;
        const ir_value *read = x ? fuse_part(f, x, s->axis, s->begin[i], s->size[i]) : NULL;
        if (read && read->def && reads(read->def, s) && ir_type_known(&b->op[k]->out[0]->type))
            return b->op[k]->out[0]->type;
    }
    return t;
}

typedef struct {
    fuser *f;
    ir_block made;
} rewriter;

static void append(rewriter *w, ir_op *op) {
    ir_block *b = &w->made;
    b->op = arena_grow(w->f->p->a, b->op, b->n_op, &b->cap_op, b->n_op + 1, sizeof *b->op);
    b->op[b->n_op++] = op;
}

static void append_part(rewriter *w, stack *s, uint32_t i) {
    fuser *f = w->f;
    int64_t first = s->begin[i];
    ir_type t = part_type(f, s, i);
    for (int d = s->axis + 1; d < s->whole->type.rank; d++) first *= s->whole->type.dim[d];
    ir_op *op = fuse_op(f, OP_state_part, 1);
    fuse_operand(f, op, A_input, s->whole);
    fuse_operand(f, op, A_begin, fuse_int(f, (int32_t)first));
    fuse_operand(f, op, A_shape, fuse_list(f, t.dim, t.rank));
    t.kind = IR_STATE;
    fuse_result(op, 0, s->part[i] = ir_value_new(f->p, f->f, s->whole->name, t));
    append(w, op);
}

/* v in another shape, v itself where it has it, or what a reshape to v has it from. */
static ir_value *in_shape(rewriter *w, ir_value *v, const ir_type *type) {
    fuser *f = w->f;
    if (ir_type_equal(&v->type, type)) return v;
    if (v->def && is_reshape(v->def) && ir_type_equal(&fuse_in(v->def, A_x)->type, type))
        return fuse_in(v->def, A_x);
    ir_op *op = fuse_op(f, OP_reshape, 1);
    fuse_operand(f, op, A_x, v);
    fuse_operand(f, op, A_shape, fuse_list(f, type->dim, type->rank));
    ir_value *y = ir_value_new(f->p, f->f, v->name, *type);
    fuse_result(op, 0, y);
    append(w, op);
    return y;
}

/* ---- the function ---- */

/* All that looks at the part `was` looks at the part `is`, which may have another shape. */
static void look_at(rewriter *w, const ir_value *was, ir_value *is) {
    fuser *f = w->f;
    for (size_t i = 0; i < f->f->body.n_op; i++) {
        const ir_op *op = f->f->body.op[i];
        if (is_reshape(op) && ir_in(op, A_x) == was && ir_type_equal(&op->out[0]->type, &is->type))
            fuse_replace(f, op->out[0], is);
    }
    fuse_replace(f, was, in_shape(w, is, &was->type));
}

static void read_parts(rewriter *w, const stack *s, const ir_value *read) {
    fuser *f = w->f;
    for (uint32_t i = 0; i < s->n; i++) {
        ir_type t = s->part[i]->type;
        t.kind = IR_TENSOR;
        ir_op *op = fuse_op(f, OP_read_state, 1);
        fuse_operand(f, op, A_input, s->part[i]);
        ir_value *part = ir_value_new(f->p, f->f, read->name, t);
        fuse_result(op, 0, part);
        append(w, op);
        for (size_t k = 0; k < f->f->body.n_op; k++) {
            const ir_op *slice = f->f->body.op[k];
            for (uint32_t o = 0; o < slice->n_out && fuse_uses(slice, read); o++)
                if (part_of(f, s, slice->out[o], read) == i) look_at(w, slice->out[o], part);
        }
    }
}

static void write_parts(rewriter *w, const stack *s, const ir_op *write) {
    const ir_arg *v = ir_args(ir_in(write, A_data)->def, A_values);
    for (uint32_t i = 0; i < s->n; i++) {
        ir_type t = s->part[i]->type;
        t.kind = IR_TENSOR;
        ir_value *data = in_shape(w, v->v[i], &t);
        ir_op *op = fuse_op(w->f, OP_write_state, 0);
        fuse_operand(w->f, op, A_input, s->part[i]);
        fuse_operand(w->f, op, A_data, data);
        append(w, op);
    }
}

static void take_apart(fuser *f, stack *s) {
    rewriter w = {.f = f};
    ir_block *b = &f->f->body;
    s->part = ARENA_ARRAY(f->p->a, ir_value *, s->n);
    for (uint32_t i = 0; i < s->n; i++) append_part(&w, s, i);
    for (size_t i = 0; i < b->n_op; i++) {
        if (reads(b->op[i], s))
            read_parts(&w, s, b->op[i]->out[0]);
        else if (writes(b->op[i], s))
            write_parts(&w, s, b->op[i]);
        else
            append(&w, b->op[i]);
    }
    b->op = w.made.op, b->n_op = w.made.n_op, b->cap_op = w.made.cap_op;
}

void opt_unstack(ir_program *p, ir_function *f) {
    fuser u = {.p = p, .f = f};
    for (size_t i = 0; i < f->n_in; i++) {
        stack s = {.whole = f->in[i]};
        if (is_stack(&u, &s)) take_apart(&u, &s);
    }
    opt_clean(f);
}
