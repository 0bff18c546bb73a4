/* What works on rows: norms, gated activations, linears with what is added. */
#include "optimize/fuse.h"

/* The one axis that a reduction or a norm works along, of so many; -1 where there are more. */
static int one_axis(const ir_op *op, int rank) {
    const ir_value *v = ir_in(op, A_axes);
    double axis;
    if (!fuse_number(v, &axis)) return -1;
    int a = (int)(axis < 0 ? axis + rank : axis);
    return a >= 0 && a < rank ? a : -1;
}

bool fuse_joins(const ir_op *op, int axis) {
    int rank = op->out[0]->type.rank;
    double at, interleave = 0;
    return op->code == OP_concat && fuse_number(ir_in(op, A_axis), &at) &&
           (int)(at < 0 ? at + rank : at) == axis &&
           (!ir_in(op, A_interleave) || (fuse_number(ir_in(op, A_interleave), &interleave) && !interleave));
}

/* The first n numbers of a constant vector that lies along this axis of `rank`, as type [n]; NULL when it is
 * no such. */
static ir_value *gamma_of(fuser *f, ir_value *w, int64_t n, int axis, int rank) {
    int at = w->type.rank - (rank - axis);
    if (!w->konst || !w->konst->data || at < 0 || w->type.dim[at] < n ||
        ir_type_count(&w->type) != w->type.dim[at])
        return NULL;
    if (w->type.rank == 1 && w->type.dim[0] == n) return w;
    ir_const *c = ARENA_NEW(f->p->a, ir_const);
    *c = *w->konst;
    c->type = IR_TYPE((ir_dtype)c->type.dtype, n);
    return ir_literal(f->p, f->f, c, IR_BY_LITERAL);
}

typedef struct {
    ir_value *x, *gamma;
    int axis;
    double eps, scale;
    bool sum;
    int32_t rounding;
} norm;

/* Norms work along the last axis: another one takes its place. */
static bool make_norm(fuser *f, const norm *n, ir_value *root) {
    int last = n->x->type.rank - 1;
    ir_value *x = fuse_swapped(f, n->x, n->axis, last);
    ir_op *op = fuse_op(f, OP_fused_norm, 1);
    fuse_operand(f, op, A_x, x);
    fuse_operand(f, op, A_gamma, n->gamma);
    fuse_operand(f, op, A_epsilon, fuse_float(f, (float)n->eps));
    fuse_operand(f, op, A_scale, fuse_float(f, (float)n->scale));
    fuse_operand(f, op, A_sum, fuse_bool(f, n->sum));
    fuse_operand(f, op, A_rounding, fuse_int(f, n->rounding));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_root_swapped(f, op, root, n->axis, last);
    return true;
}

bool fuse_norm(fuser *f, const match *m) {
    ir_value *x = match_get(m, "x"), *w = match_get(m, "w"), *eps = match_get(m, "eps"),
             *two = match_get(m, "two");
    ir_value *root = m->op[0]->out[0], *unit = root;
    double number = 0, added = 0, keep = 0;
    if (!w) w = match_get(m, "s");
    ir_op *sum = fuse_find(m, OP_reduce_sum), *mean = fuse_find(m, OP_reduce_mean),
          *rsqrt = fuse_find(m, OP_rsqrt);
    ir_op *reduce = mean ? mean : sum, *cast = fuse_find(m, OP_cast);
    const ir_type *t = &x->type;
    norm n = {.x = x, .axis = one_axis(reduce, t->rank), .scale = 1, .sum = sum != NULL};
    if (n.axis < 0 || !fuse_number(ir_in(reduce, A_keep_dims), &keep) || !keep ||
        root->type.rank != t->rank || ir_type_count(&root->type) != ir_type_count(t) || t->dim[n.axis] < 1)
        return false;
    if (two && (!fuse_number(two, &number) || number != 2)) return false;
    if (eps && !fuse_number(eps, &added)) return false;
    number = 1e-12;
    if (ir_in(rsqrt, A_epsilon) && !fuse_number(ir_in(rsqrt, A_epsilon), &number)) return false;
    if (f->strict && reduce->out[0]->type.dtype == DT_FP16) return false; /* rounds inside */
    n.eps = number + added;
    n.gamma = w ? gamma_of(f, w, t->dim[n.axis], n.axis, t->rank) : NULL;
    if (n.gamma && ir_type_count(&w->type) != t->dim[n.axis]) return false;
    if (w && !n.gamma && !fuse_number(w, &n.scale)) return false;
    if (w) { /* the op in between made the unit row */
        unit = NULL;
        for (int i = 1; i < m->n_op && !unit; i++)
            if (cast ? m->op[i] == cast : m->op[i]->code == OP_mul) unit = m->op[i]->out[0];
    }
    if (!unit || !fuse_closed(f, m, NULL, 0)) return false;
    n.rounding = w ? fuse_rounds(f, unit, 1) : 0;
    return make_norm(f, &n, root);
}

/* Of what is normalised only the first half is used, perhaps with a weight of the norm's own for both. */
bool fuse_doubled_norm(fuser *f, const match *m) {
    ir_value *x = match_get(m, "x"), *w = match_get(m, "w"), *root = m->op[0]->out[0];
    ir_op *layer = fuse_find(m, OP_layer_norm), *both = fuse_find(m, OP_concat);
    double minus = 0;
    const ir_type *t = &x->type;
    norm n = {.x = x, .axis = one_axis(layer, t->rank), .eps = 1e-5, .scale = 1};
    int64_t size = n.axis < 0 ? 0 : t->dim[n.axis];
    ir_value *own = fuse_in(layer, A_gamma), *half = NULL;
    for (int i = 0; i < m->n_op; i++)
        if (m->op[i]->code == OP_split || m->op[i]->code == OP_slice_by_index) half = m->op[i]->out[0];
    if (size < 1 || !half || !fuse_number(match_get(m, "m"), &minus) || minus != -1 ||
        ir_args(both, A_values)->v[0] != x || (own && w) || ir_in(layer, A_beta) ||
        !fuse_joins(both, n.axis) ||
        (ir_in(layer, A_epsilon) && !fuse_number(ir_in(layer, A_epsilon), &n.eps)) ||
        fuse_part(f, half, n.axis, 0, size) != layer->out[0] || root->type.rank != t->rank ||
        ir_type_count(&root->type) != ir_type_count(t) || (w && ir_type_count(&w->type) != size) ||
        (own && ir_type_count(&own->type) != 2 * size))
        return false;
    for (uint32_t i = 1; i < m->op[0]->n_out; i++) /* the other half */
        if (f->uses[m->op[0]->out[i]->id]) return false;
    if (w || own) n.gamma = own ? gamma_of(f, own, size, 0, 1) : gamma_of(f, w, size, n.axis, t->rank);
    if (((w || own) && !n.gamma) || !fuse_closed(f, m, NULL, 0)) return false;
    n.rounding = w ? fuse_rounds(f, layer->out[0], 1) : 0;
    return make_norm(f, &n, root);
}

static bool same_shape(const ir_type *x, const ir_type *y) {
    bool same = x->rank == y->rank;
    for (int d = 0; d < x->rank && same; d++) same = x->dim[d] == y->dim[d];
    return same;
}

bool fuse_linear(fuser *f, const match *m) {
    ir_value *r = match_get(m, "r"), *root = m->op[0]->out[0];
    ir_op *linear = fuse_find(m, OP_linear), *cast = fuse_find(m, OP_cast);
    const ir_value *y = linear->out[0];
    if (!dtype_is_float((ir_dtype)y->type.dtype) || !ir_type_known(&root->type) ||
        !same_shape(&r->type, &root->type) || !same_shape(&y->type, &root->type) || fuse_rounds(f, y, 1) ||
        (cast && fuse_rounds(f, cast->out[0], 1)) ||
        (cast && !dtype_is_float((ir_dtype)cast->out[0]->type.dtype)) || !fuse_closed(f, m, NULL, 0))
        return false;
    ir_op *op = f->fused = fuse_op(f, OP_fused_linear, 1);
    fuse_operand(f, op, A_x, match_get(m, "x"));
    fuse_operand(f, op, A_weight, match_get(m, "w"));
    fuse_operand(f, op, A_bias, ir_args(linear, A_bias)->n ? ir_args(linear, A_bias)->v[0] : NULL);
    fuse_operand(f, op, A_add, r);
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_result(op, 0, root);
    return true;
}

bool fuse_swiglu(fuser *f, const match *m) {
    ir_value *gate = match_get(m, "gate"), *up = match_get(m, "up"), *root = m->op[0]->out[0];
    if (gate->type.rank < 1 || !same_shape(&root->type, &up->type) ||
        ir_type_count(&gate->type) != ir_type_count(&up->type) || ir_type_count(&up->type) < 1 ||
        !fuse_closed(f, m, NULL, 0))
        return false;
    if (!same_shape(&gate->type, &up->type)) { /* reshaped in between */
        ir_type t = up->type;
        t.dtype = gate->type.dtype;
        gate = fuse_reshaped(f, gate, &t);
    }
    ir_op *op = f->fused = fuse_op(f, OP_fused_swiglu, 1);
    fuse_operand(f, op, A_gate, gate);
    fuse_operand(f, op, A_up, up);
    fuse_operand(f, op, A_rounding, fuse_int(f, fuse_rounds(f, fuse_find(m, OP_silu)->out[0], 1)));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_result(op, 0, root);
    return true;
}

bool fuse_softplus(fuser *f, const match *m) {
    ir_value *y = match_get(m, "y"), *root = m->op[0]->out[0];
    double minus = 0, one = 0, tiny = 0;
    ir_op *log = fuse_find(m, OP_log);
    double zero = 0;
    if (match_get(m, "zero") && (!fuse_number(match_get(m, "zero"), &zero) || zero != 0)) return false;
    if (!fuse_number(match_get(m, "m"), &minus) || minus != -1 || !fuse_number(match_get(m, "one"), &one) ||
        one != 1 || (ir_in(log, A_epsilon) && (!fuse_number(ir_in(log, A_epsilon), &tiny) || tiny > 1e-7)) ||
        !ir_type_equal(&root->type, &y->type) || (f->strict && root->type.dtype == DT_FP16) ||
        !fuse_closed(f, m, NULL, 0))
        return false;
    f->fused = fuse_op(f, OP_softplus, 1);
    fuse_operand(f, f->fused, A_x, y);
    fuse_result(f->fused, 0, root);
    return true;
}

bool fuse_softplus_select(fuser *f, const match *m) {
    ir_value *y = match_get(m, "y"), *root = m->op[0]->out[0];
    double from = 0, one = 0, tiny = 0;
    const ir_op *log = fuse_find(m, OP_log);
    if (!fuse_number(match_get(m, "t"), &from) || from < 17 || !fuse_number(match_get(m, "one"), &one) ||
        one != 1 || (ir_in(log, A_epsilon) && (!fuse_number(ir_in(log, A_epsilon), &tiny) || tiny > 1e-7)) ||
        !ir_type_equal(&root->type, &y->type) || (f->strict && root->type.dtype == DT_FP16) ||
        !fuse_closed(f, m, NULL, 0))
        return false; /* below 17 what is left out counts in fp32 */
    f->fused = fuse_op(f, OP_softplus, 1);
    fuse_operand(f, f->fused, A_x, y);
    fuse_result(f->fused, 0, root);
    return true;
}

/* exp(x - max x) over its sum. In fp16 the spelled-out form rounds at every step. */
bool fuse_softmax(fuser *f, const match *m) {
    ir_value *x = match_get(m, "x"), *root = m->op[0]->out[0];
    ir_op *top = fuse_find(m, OP_reduce_max), *sum = fuse_find(m, OP_reduce_sum);
    int rank = x->type.rank, axis = one_axis(top, rank);
    double keep = 0;
    if (axis < 0 || one_axis(sum, rank) != axis || !fuse_number(ir_in(top, A_keep_dims), &keep) || !keep ||
        !fuse_number(ir_in(sum, A_keep_dims), &keep) || !keep || !ir_type_equal(&x->type, &root->type) ||
        (f->strict && root->type.dtype == DT_FP16) || !fuse_closed(f, m, NULL, 0))
        return false;
    f->fused = fuse_op(f, OP_softmax, 1);
    fuse_operand(f, f->fused, A_x, x);
    fuse_operand(f, f->fused, A_axis, fuse_int(f, axis));
    fuse_result(f->fused, 0, root);
    return true;
}
