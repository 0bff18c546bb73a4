/* Ops that only look at elements in another way: views where strides allow it, copies where not. */
#include "ir/infer.h"
#include "plan/lower.h"
#include "reference/walk.h"
#include <string.h>

/* What views start from: constants are expanded, what a view looks at is no longer a whole constant. */
static place base(lower *l, const ir_op *op, ir_operand name) {
    place p = lower_in(l, op, name);
    p.konst = NULL;
    return p;
}

bool lower_identity(lower *l, const ir_op *op) {
    lower_set(l, op->out[0], base(l, op, A_x));
    return true;
}

bool lower_reshape(lower *l, const ir_op *op) {
    place p = base(l, op, A_x), q;
    const ir_type *type = &op->out[0]->type;
    if (ir_type_count(type) != ir_type_count(&p.type)) return lower_reference(l, op);
    if (!place_reshape(&p, type, &q)) {
        p = lower_dense(l, p);
        q = p;
        ref_strides(type, q.stride);
    }
    lower_set(l, op->out[0], q);
    return true;
}

bool lower_transpose(lower *l, const ir_op *op) {
    place p = base(l, op, A_x), q = p;
    size_t n;
    const int64_t *perm = lower_ints(l, op, A_perm, &n);
    if (!perm || n != (size_t)p.type.rank) return lower_reference(l, op);
    for (int d = 0; d < p.type.rank; d++)
        q.stride[d] = p.stride[perm[d] < 0 ? perm[d] + p.type.rank : perm[d]];
    lower_set(l, op->out[0], q);
    return true;
}

/* The last elements of an input that is one row of unknown length: a run puts nothing else into its buffer.
 */
static bool tail_of_input(lower *l, const ir_op *op) {
    const ir_value *x = ir_in(op, A_x);
    const ir_type *type = &op->out[0]->type;
    int last = x->type.rank - 1;
    int64_t n = ir_type_count(type);
    size_t k, i = 0;
    const int64_t *begin = lower_ints(l, op, A_begin, &k);
    while (i < l->f->n_in && l->f->in[i] != x) i++;
    if (i == l->f->n_in || n < 1 || type->rank != x->type.rank || !begin || begin[last] != -n) return false;
    plan_port *port = &l->p->in[i];
    plan_buffer *b = &l->p->buffer[port->buffer];
    if (port->tail ? port->tail != n : !port->unread) return false;
    port->tail = n;
    port->unread = false;
    if (b->cells < n) b->cells = n;
    place p = {.space = SPACE_ACT, .buffer = port->buffer, .type = *type};
    ref_strides(type, p.stride);
    lower_set(l, op->out[0], p);
    return true;
}

bool lower_slice_by_index(lower *l, const ir_op *op) {
    if (!ir_type_known(&ir_in(op, A_x)->type))
        return tail_of_input(l, op) ||
               err_set(l->e, ERR_UNSUPPORTED, "an operand's size is known at run time only");
    if (!lower_is_const(op, A_begin) || !lower_is_const(op, A_end)) return lower_reference(l, op);
    place p = base(l, op, A_x), q = p;
    ir_slice s[IR_MAX_RANK];
    if (!ir_resolve_slices(op, &ir_env_declared, &p.type, s, l->scratch, l->e)) return false;
    int rank = 0;
    for (int d = 0; d < p.type.rank; d++) {
        q.first += s[d].count ? s[d].begin * p.stride[d] : 0;
        if (!s[d].squeeze) q.stride[rank++] = s[d].step * p.stride[d];
    }
    if (rank != op->out[0]->type.rank) return lower_reference(l, op);
    lower_set(l, op->out[0], q);
    return true;
}

bool lower_slice_by_size(lower *l, const ir_op *op) {
    size_t n;
    const int64_t *begin = lower_ints(l, op, A_begin, &n);
    if (!begin) return lower_reference(l, op);
    place p = base(l, op, A_x), q = p;
    for (int d = 0; d < p.type.rank && (size_t)d < n; d++) {
        int64_t at = begin[d] < 0 ? begin[d] + p.type.dim[d] : begin[d];
        if (at < 0 || at + op->out[0]->type.dim[d] > p.type.dim[d]) return lower_reference(l, op);
        q.first += at * p.stride[d];
    }
    lower_set(l, op->out[0], q);
    return true;
}

bool lower_split(lower *l, const ir_op *op) {
    place p = base(l, op, A_x);
    int axis = lower_axis(l, op, A_axis, 0, p.type.rank);
    for (uint32_t i = 0; i < op->n_out; i++) {
        lower_set(l, op->out[i], p);
        p.first += op->out[i]->type.dim[axis] * p.stride[axis];
    }
    return true;
}

/* Repeating a size of 1 is a stride of 0. */
bool lower_tile(lower *l, const ir_op *op) {
    place p = base(l, op, A_x);
    const ir_type *type = &op->out[0]->type;
    for (int d = 0; d < p.type.rank; d++)
        if (p.type.dim[d] != 1 && p.type.dim[d] != type->dim[d]) return lower_reference(l, op);
    lower_set(l, op->out[0], place_broadcast(&p, type));
    return true;
}

bool lower_broadcast_to(lower *l, const ir_op *op) {
    place p = base(l, op, A_x);
    lower_set(l, op->out[0], place_broadcast(&p, &op->out[0]->type));
    return true;
}

/* v is all of a buffer that nobody else looks at: who makes it writes to `to` instead. */
static bool made_in_place(lower *l, const ir_value *v, const place *to) {
    plan *p = l->p;
    place *from = lower_at(l, v);
    for (const ir_value *x = v;; x = ir_in(x->def, A_x)) {
        if (l->uses[x->id] != 1) return false;
        if (!x->def || !lower_is_view(x->def)) break;
    }
    if (from->space != SPACE_ACT || from->store || from->first || p->buffer[from->buffer].used ||
        p->buffer[from->buffer].cells != ir_type_count(&from->type) || !place_is_dense(from) ||
        !place_is_dense(to))
        return false;
    for (size_t i = 0; i < p->n_step; i++)
        for (uint32_t k = 0; k < p->step[i].n_arg; k++) {
            plan_arg *a = &p->step[i].arg[k];
            if (a->space != SPACE_ACT || a->buffer != from->buffer) continue;
            a->buffer = to->buffer;
            a->first += to->first;
        }
    from->buffer = to->buffer;
    from->first = to->first;
    return true;
}

/* Each part is made in its place of the result, or copied there. */
static bool join(lower *l, const ir_op *op, int axis, bool stack) {
    const ir_arg *v = ir_args(op, A_values);
    const ir_type *type = &op->out[0]->type;
    place whole = lower_fresh(l, type);
    int64_t at = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        place *at_v = lower_at(l, v->v[i]);
        if ((at_v->weight || (at_v->konst && at_v->store)) && !lower_expand(l, at_v)) return false;
        place from = *at_v, to = whole;
        from.konst = NULL;
        if (stack || !from.type.rank) { /* a new dimension of 1 */
            for (int d = type->rank - 1; d > axis; d--) {
                from.type.dim[d] = from.type.dim[d - 1];
                from.stride[d] = from.stride[d - 1];
            }
            from.type.rank = type->rank;
            from.type.dim[axis] = 1;
            from.stride[axis] = 0;
        }
        to.type = from.type;
        to.type.dtype = type->dtype;
        to.first += at * whole.stride[axis];
        at += from.type.dim[axis];
        if (!made_in_place(l, v->v[i], &to) && !lower_copy(l, to, from, false)) return false;
    }
    lower_set(l, op->out[0], whole);
    return true;
}

bool lower_concat(lower *l, const ir_op *op) {
    if (lower_int(l, op, A_interleave, 0)) return lower_reference(l, op);
    return join(l, op, lower_axis(l, op, A_axis, 0, op->out[0]->type.rank), false);
}

bool lower_stack(lower *l, const ir_op *op) {
    return join(l, op, lower_axis(l, op, A_axis, 0, op->out[0]->type.rank), true);
}
