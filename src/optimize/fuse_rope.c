/* Rotations of pairs (i, i + n/2) along an axis, in the spellings of several converters. */
#include "optimize/fuse.h"

/* The factor of a product that is not `other`. */
static ir_value *factor(const ir_value *product, const ir_value *other) {
    ir_value *x, *y;
    if (!product->def || product->def->code != OP_mul) return NULL;
    x = fuse_in(product->def, A_x), y = fuse_in(product->def, A_y);
    return x == other ? y : y == other ? x : NULL;
}

typedef struct {
    ir_value *x, *cos, *sin; /* x: whose first elements along the axis turn */
    int axis;
} rotation;

/* n numbers along the axis; any other size is x's or 1. */
static bool fits(const ir_value *table, const rotation *r, int64_t n) {
    const ir_type *t = &table->type, *x = &r->x->type;
    int shift = x->rank - t->rank;
    if (shift < 0 || r->axis < shift || t->dim[r->axis - shift] != n) return false;
    for (int d = 0; d < t->rank; d++)
        if (d != r->axis - shift && t->dim[d] != 1 && t->dim[d] != x->dim[d + shift]) return false;
    return true;
}

static bool same_shape(const ir_type *x, const ir_type *y) {
    bool same = x->rank == y->rank;
    for (int d = 0; d < x->rank && same; d++) same = x->dim[d] == y->dim[d];
    return same;
}

/* A table with the axis at its end; one that has no such axis but the last. */
static ir_value *table_of(fuser *f, ir_value *t, const rotation *r) {
    int rank = r->x->type.rank, shift = rank - t->type.rank;
    return fuse_swapped(f, t, r->axis - shift, rank - 1 - shift);
}

static bool rotate(fuser *f, const match *m, const rotation *r) {
    ir_value *root = m->op[0]->out[0];
    int last = r->x->type.rank - 1;
    if (!same_shape(&root->type, &r->x->type)) return false;
    ir_value *x = fuse_swapped(f, r->x, r->axis, last), *cos = table_of(f, r->cos, r),
             *sin = table_of(f, r->sin, r);
    ir_op *op = fuse_op(f, OP_fused_rope, 1);
    fuse_operand(f, op, A_x, x);
    fuse_operand(f, op, A_cos, cos);
    fuse_operand(f, op, A_sin, sin);
    fuse_operand(f, op, A_rounding, fuse_int(f, f->strict && root->type.dtype == DT_FP16));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_root_swapped(f, op, root, r->axis, last);
    return true;
}

/* x cos + (-x2, x1) sin, the value of `sum`: x, and the axis, when all parts are what they should be. */
static ir_value *turned(fuser *f, const match *m, const ir_value *sum, int *axis) {
    ir_value *cos = match_get(m, "cos"), *sin = match_get(m, "sin");
    double minus = 0, at;
    ir_value *a = fuse_in(sum->def, A_x), *b = fuse_in(sum->def, A_y);
    ir_value *x = factor(a, cos), *other = factor(b, sin);
    if (!x || !other || !other->def || other->def->code != OP_concat)
        x = factor(b, cos), other = factor(a, sin);
    if (!x || !other || !other->def || other->def->code != OP_concat ||
        !fuse_number(ir_in(other->def, A_axis), &at) || !fuse_number(match_get(m, "m"), &minus) ||
        minus != -1)
        return NULL;
    *axis = (int)(at < 0 ? at + x->type.rank : at);
    if (*axis < 0 || *axis >= x->type.rank || !fuse_joins(other->def, *axis)) return NULL;
    int64_t n = x->type.dim[*axis];
    ir_value *high = factor(ir_args(other->def, A_values)->v[0], match_get(m, "m")),
             *low = ir_args(other->def, A_values)->v[1];
    bool ok = n >= 2 && n % 2 == 0 && high && fuse_part(f, high, *axis, n / 2, n / 2) == x &&
              fuse_part(f, low, *axis, 0, n / 2) == x;
    return ok ? x : NULL;
}

bool fuse_rope(fuser *f, const match *m) {
    rotation r = {.cos = match_get(m, "cos"), .sin = match_get(m, "sin")};
    r.x = turned(f, m, m->op[0]->out[0], &r.axis);
    if (!r.x || !fits(r.cos, &r, r.x->type.dim[r.axis]) || !fits(r.sin, &r, r.x->type.dim[r.axis]) ||
        !same_shape(&r.cos->type, &r.sin->type) || !fuse_closed(f, m, NULL, 0))
        return false;
    return rotate(f, m, &r);
}

/* The first elements of a row turn, the others pass. */
bool fuse_rope_part(fuser *f, const match *m) {
    rotation r = {.x = match_get(m, "r"), .cos = match_get(m, "cos"), .sin = match_get(m, "sin")};
    const ir_arg *both = ir_args(m->op[0], A_values);
    ir_value *x = turned(f, m, both->v[0], &r.axis);
    if (!x || !fuse_joins(m->op[0], r.axis)) return false;
    int64_t n = x->type.dim[r.axis], whole = r.x->type.dim[r.axis];
    if (fuse_part(f, x, r.axis, 0, n) != r.x || fuse_part(f, both->v[1], r.axis, n, whole - n) != r.x ||
        !fits(r.cos, &r, n) || !fits(r.sin, &r, n) || !same_shape(&r.cos->type, &r.sin->type) ||
        !fuse_closed(f, m, NULL, 0))
        return false;
    return rotate(f, m, &r);
}

static ir_value *twice(fuser *f, ir_value *v, const rotation *r) {
    int at = v->type.rank - (r->x->type.rank - r->axis);
    ir_type t = v->type;
    t.dim[at] *= 2;
    ir_op *op = fuse_op(f, OP_concat, 1);
    fuse_operand(f, op, A_values, v);
    ir_value **both = ARENA_ARRAY(f->p->a, ir_value *, 2);
    both[0] = both[1] = v;
    *(ir_arg *)(uintptr_t)ir_args(op, A_values) = (ir_arg){both, 2};
    fuse_operand(f, op, A_axis, fuse_int(f, at));
    return fuse_extra(f, op, t);
}

/* (x1 cos - x2 sin, x2 cos + x1 sin), the value of `both`, with tables of half of what turns: r takes the
 * axis, n the elements along it. */
static bool halves(fuser *f, const match *m, const ir_op *both, rotation *r, int64_t *n) {
    const ir_value *x = match_get(m, "x");
    const ir_arg *v = ir_args(both, A_values);
    const ir_op *low = v->v[0]->def, *high = v->v[1]->def;
    double at;
    if (!fuse_number(ir_in(both, A_axis), &at)) return false;
    r->axis = (int)(at < 0 ? at + x->type.rank : at);
    if (r->axis < 0 || r->axis >= x->type.rank || !fuse_joins(both, r->axis)) return false;
    *n = x->type.dim[r->axis];
    ir_value *x1 = factor(ir_in(low, A_x), r->cos), *x2 = factor(ir_in(low, A_y), r->sin);
    ir_value *a = fuse_in(high, A_x), *b = fuse_in(high, A_y);
    bool crossed = (factor(a, r->cos) == x2 && factor(b, r->sin) == x1) ||
                   (factor(b, r->cos) == x2 && factor(a, r->sin) == x1);
    return *n >= 2 && *n % 2 == 0 && x1 && x2 && crossed && fuse_part(f, x1, r->axis, 0, *n / 2) == x &&
           fuse_part(f, x2, r->axis, *n / 2, *n / 2) == x && fits(r->cos, r, *n / 2) &&
           fits(r->sin, r, *n / 2) && same_shape(&r->cos->type, &r->sin->type);
}

static bool rotate_twice(fuser *f, const match *m, rotation *r) {
    r->cos = twice(f, r->cos, r);
    r->sin = twice(f, r->sin, r);
    return rotate(f, m, r);
}

bool fuse_rope_halves(fuser *f, const match *m) {
    rotation r = {.x = match_get(m, "x"), .cos = match_get(m, "cos"), .sin = match_get(m, "sin")};
    int64_t n;
    return halves(f, m, m->op[0], &r, &n) && fuse_closed(f, m, NULL, 0) &&
           same_shape(&m->op[0]->out[0]->type, &r.x->type) && rotate_twice(f, m, &r);
}

/* Of the first elements of a row; the others pass. */
bool fuse_rope_halves_part(fuser *f, const match *m) {
    rotation r = {.x = match_get(m, "r"), .cos = match_get(m, "cos"), .sin = match_get(m, "sin")};
    const ir_arg *both = ir_args(m->op[0], A_values);
    int64_t n;
    if (r.x->type.rank != match_get(m, "x")->type.rank || !halves(f, m, both->v[0]->def, &r, &n) ||
        !fuse_joins(m->op[0], r.axis) || !same_shape(&m->op[0]->out[0]->type, &r.x->type))
        return false;
    int64_t whole = r.x->type.dim[r.axis];
    return fuse_part(f, match_get(m, "x"), r.axis, 0, n) == r.x &&
           fuse_part(f, both->v[1], r.axis, n, whole - n) == r.x && fuse_closed(f, m, NULL, 0) &&
           rotate_twice(f, m, &r);
}
