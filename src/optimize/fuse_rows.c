/* What works on rows: norms, rotations, gated activations. */
#include "ir/infer.h"
#include "optimize/fuse.h"

static bool last_axis(const ir_op *op, ir_operand name, int rank) {
    const ir_value *v = ir_in(op, name);
    double axis;
    return fuse_number(v, &axis) && (axis == -1 || axis == rank - 1);
}

/* A concat along the last axis, one part behind the other. */
static bool joins(const ir_op *op, int rank) {
    double interleave = 0;
    return last_axis(op, A_axis, rank) &&
           (!ir_in(op, A_interleave) || (fuse_number(ir_in(op, A_interleave), &interleave) && !interleave));
}

/* A constant vector as long as a row, as type [n]; NULL when it is no such. */
static ir_value *gamma_of(fuser *f, ir_value *w, int64_t n) {
    if (!w->konst || ir_type_count(&w->type) != n || w->type.rank < 1 || w->type.dim[w->type.rank - 1] != n)
        return NULL;
    if (w->type.rank == 1) return w;
    ir_const *c = ARENA_NEW(f->p->a, ir_const);
    *c = *w->konst;
    c->type = IR_TYPE((ir_dtype)c->type.dtype, n);
    return ir_literal(f->p, f->f, c, IR_BY_LITERAL);
}

bool fuse_norm(fuser *f, const match *m) {
    ir_value *x = match_get(m, "x"), *w = match_get(m, "w"), *eps = match_get(m, "eps"),
             *two = match_get(m, "two");
    ir_value *root = m->op[0]->out[0], *unit = root;
    double number = 0, added = 0, scale = 1, keep = 0;
    if (!w) w = match_get(m, "s");
    ir_op *sum = fuse_find(m, OP_reduce_sum), *mean = fuse_find(m, OP_reduce_mean),
          *rsqrt = fuse_find(m, OP_rsqrt);
    ir_op *reduce = mean ? mean : sum, *cast = fuse_find(m, OP_cast);
    const ir_type *t = &x->type;
    if (t->rank < 1 || !last_axis(reduce, A_axes, t->rank) ||
        !fuse_number(ir_in(reduce, A_keep_dims), &keep) || !keep || root->type.rank != t->rank ||
        ir_type_count(&root->type) != ir_type_count(t) || t->dim[t->rank - 1] < 1)
        return false;
    if (two && (!fuse_number(two, &number) || number != 2)) return false;
    if (eps && !fuse_number(eps, &added)) return false;
    number = 1e-12;
    if (ir_in(rsqrt, A_epsilon) && !fuse_number(ir_in(rsqrt, A_epsilon), &number)) return false;
    if (f->strict && reduce->out[0]->type.dtype == DT_FP16) return false; /* rounds inside */
    ir_value *gamma = w ? gamma_of(f, w, t->dim[t->rank - 1]) : NULL;
    if (w && !gamma && !fuse_number(w, &scale)) return false;
    if (w) { /* the op in between made the unit row */
        unit = NULL;
        for (int i = 1; i < m->n_op && !unit; i++)
            if (cast ? m->op[i] == cast : m->op[i]->code == OP_mul) unit = m->op[i]->out[0];
    }
    if (!unit || !fuse_closed(f, m, NULL, 0)) return false;
    ir_op *op = f->fused = fuse_op(f, OP_fused_norm, 1);
    fuse_operand(f, op, A_x, x);
    fuse_operand(f, op, A_gamma, gamma);
    fuse_operand(f, op, A_epsilon, fuse_float(f, (float)(number + added)));
    fuse_operand(f, op, A_scale, fuse_float(f, (float)scale));
    fuse_operand(f, op, A_sum, fuse_bool(f, sum != NULL));
    fuse_operand(f, op, A_rounding, fuse_int(f, w ? fuse_rounds(f, unit, 1) : 0));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_result(op, 0, root);
    return true;
}

/* ---- slices ---- */

static ir_type slice_type(void *ctx, const ir_value *v) {
    (void)ctx;
    return v->type;
}

static const double *slice_numbers(void *ctx, const ir_value *v, size_t *n, arena *a) {
    (void)ctx;
    return v->konst ? ir_const_numbers(v->konst, n, a) : NULL;
}

/* The op takes elements [from, from + n) of the last axis and everything of all others. */
static bool takes(fuser *f, const ir_op *op, int64_t from, int64_t n) {
    const ir_type *x = &ir_in(op, A_x)->type;
    const ir_env env = {NULL, slice_type, slice_numbers};
    ir_slice s[IR_MAX_RANK];
    err ignored = {0};
    if (op->code != OP_slice_by_index || !ir_in(op, A_begin)->konst || !ir_in(op, A_end)->konst ||
        !ir_type_known(x) || !ir_resolve_slices(op, &env, x, s, f->p->a, &ignored))
        return false;
    for (int d = 0; d < x->rank; d++) {
        bool last = d == x->rank - 1;
        if (s[d].squeeze || s[d].step != 1 || s[d].begin != (last ? from : 0) ||
            s[d].count != (last ? n : x->dim[d]))
            return false;
    }
    return true;
}

bool fuse_doubled_norm(fuser *f, const match *m) {
    ir_value *x = match_get(m, "x"), *w = match_get(m, "w"), *root = m->op[0]->out[0];
    ir_op *norm = fuse_find(m, OP_layer_norm), *slice = fuse_find(m, OP_slice_by_index),
          *both = fuse_find(m, OP_concat);
    double minus = 0, eps = 1e-5;
    const ir_type *t = &x->type;
    int64_t n = t->rank < 1 ? 0 : t->dim[t->rank - 1];
    if (n < 1 || !fuse_number(match_get(m, "m"), &minus) || minus != -1 ||
        ir_args(both, A_values)->v[0] != x || !last_axis(norm, A_axes, t->rank) || ir_in(norm, A_gamma) ||
        ir_in(norm, A_beta) || !joins(both, t->rank) ||
        (ir_in(norm, A_epsilon) && !fuse_number(ir_in(norm, A_epsilon), &eps)) || !takes(f, slice, 0, n) ||
        root->type.rank != t->rank || ir_type_count(&root->type) != ir_type_count(t))
        return false;
    ir_value *gamma = w ? gamma_of(f, w, n) : NULL;
    if ((w && !gamma) || !fuse_closed(f, m, NULL, 0)) return false;
    ir_op *op = f->fused = fuse_op(f, OP_fused_norm, 1);
    fuse_operand(f, op, A_x, x);
    fuse_operand(f, op, A_gamma, gamma);
    fuse_operand(f, op, A_epsilon, fuse_float(f, (float)eps));
    fuse_operand(f, op, A_scale, fuse_float(f, 1));
    fuse_operand(f, op, A_sum, fuse_bool(f, false));
    fuse_operand(f, op, A_rounding, fuse_int(f, w ? fuse_rounds(f, norm->out[0], 1) : 0));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_result(op, 0, root);
    return true;
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
    if (gate->type.rank < 1 || !same_shape(&gate->type, &up->type) || !fuse_closed(f, m, NULL, 0))
        return false;
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

/* ---- rotations ---- */

/* The op cuts its last axis after n elements of `whole`. */
static bool cuts(const ir_op *split, int64_t n, int64_t whole) {
    const ir_type *first = &split->out[0]->type, *second = &split->out[1]->type;
    int last = first->rank - 1;
    return split->n_out == 2 && last >= 0 && last_axis(split, A_axis, first->rank) && first->dim[last] == n &&
           second->dim[last] == whole - n;
}

/* halves: the op that splits x; NULL: that was checked. */
static bool rotate(fuser *f, const match *m, ir_value *x, ir_op *halves, ir_op *turned) {
    ir_value *cos = match_get(m, "cos"), *sin = match_get(m, "sin"), *root = m->op[0]->out[0];
    double minus = 0;
    int64_t n = cos->type.rank ? cos->type.dim[cos->type.rank - 1] : 0;
    if (n < 2 || n % 2 || !fuse_number(match_get(m, "m"), &minus) || minus != -1 ||
        !same_shape(&cos->type, &sin->type) || (halves && !cuts(halves, n / 2, n)) ||
        !joins(turned, x->type.rank) || !same_shape(&root->type, &x->type) || cos->type.rank > x->type.rank)
        return false;
    for (int d = 1; d < cos->type.rank; d++) {
        int64_t have = cos->type.dim[cos->type.rank - 1 - d];
        if (have != 1 && have != x->type.dim[x->type.rank - 1 - d]) return false;
    }
    if (!fuse_closed(f, m, NULL, 0)) return false;
    ir_op *op = f->fused = fuse_op(f, OP_fused_rope, 1);
    fuse_operand(f, op, A_x, x);
    fuse_operand(f, op, A_cos, cos);
    fuse_operand(f, op, A_sin, sin);
    fuse_operand(f, op, A_rounding, fuse_int(f, f->strict && root->type.dtype == DT_FP16));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_result(op, 0, root);
    return true;
}

bool fuse_rope(fuser *f, const match *m) {
    return rotate(f, m, match_get(m, "x"), fuse_find(m, OP_split), fuse_find(m, OP_concat));
}

/* The first elements of a row turn, the others pass. */
bool fuse_rope_part(fuser *f, const match *m) {
    ir_value *x = match_get(m, "r");
    ir_op *outer = NULL, *halves = NULL, *turned = NULL;
    for (int i = 1; i < m->n_op; i++) {
        ir_op *op = m->op[i];
        if (op->code == OP_split && ir_in(op, A_x) == x) outer = op;
        if (op->code == OP_split && ir_in(op, A_x) != x) halves = op;
        if (op->code == OP_concat) turned = op;
    }
    const ir_type *cos = &match_get(m, "cos")->type;
    if (!outer || !halves || !turned || x->type.rank < 1 || cos->rank < 1 || !joins(m->op[0], x->type.rank) ||
        !cuts(outer, cos->dim[cos->rank - 1], x->type.dim[x->type.rank - 1]))
        return false;
    return rotate(f, m, x, halves, turned);
}

bool fuse_rope_slices(fuser *f, const match *m) {
    ir_value *x = match_get(m, "x");
    ir_op *turned = fuse_find(m, OP_concat);
    const ir_arg *both = ir_args(turned, A_values);
    int64_t n = x->type.rank < 1 ? 0 : x->type.dim[x->type.rank - 1];
    const ir_value *cos = match_get(m, "cos"), *high = both->v[0]; /* x2 times -1 */
    const ir_value *a = ir_in(high->def, A_x), *b = ir_in(high->def, A_y);
    const ir_op *second = a->def && a->def->code == OP_slice_by_index ? a->def : b->def,
                *first = both->v[1]->def;
    if (n < 2 || n % 2 || cos->type.rank < 1 || cos->type.dim[cos->type.rank - 1] != n || !second ||
        second->code != OP_slice_by_index || !takes(f, second, n / 2, n / 2) || !takes(f, first, 0, n / 2))
        return false;
    return rotate(f, m, x, NULL, turned);
}
