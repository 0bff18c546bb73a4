#include "optimize/affine.h"
#include <string.h>

struct affine_table {
    arena *a;
    affine **known; /* by value id */
    uint32_t symbols;
};

affine_table *affine_new(arena *a, uint32_t n_values) {
    affine_table *t = ARENA_NEW(a, affine_table);
    *t = (affine_table){.a = a, .known = ARENA_ARRAY(a, affine *, n_values)};
    return t;
}

static bool small_ints(const ir_type *t) {
    ir_dclass c = dtype_class((ir_dtype)t->dtype);
    int64_t n = ir_type_count(t);
    return t->kind == IR_TENSOR && (c == DTC_INT || c == DTC_UINT) && n >= 1 && n <= AFFINE_ELEMENTS;
}

static affine *make(affine_table *t, const ir_value *v, uint32_t n) {
    affine *x = t->known[v->id] = ARENA_NEW(t->a, affine);
    x->n = n;
    return x;
}

void affine_unknown(affine_table *t, const ir_value *v, const ir_type *type) {
    if (!small_ints(type) || t->known[v->id]) return;
    affine *x = make(t, v, (uint32_t)ir_type_count(type));
    for (uint32_t i = 0; i < x->n; i++) x->term[i].symbol = ++t->symbols;
}

static const affine *of(const affine_table *t, const ir_value *v) {
    return v ? t->known[v->id] : NULL;
}

void affine_constant(affine_table *t, const ir_value *v, const ir_const *c) {
    if (!small_ints(&c->type) || !c->data) return;
    affine *x = make(t, v, (uint32_t)ir_type_count(&c->type));
    for (uint32_t i = 0; i < x->n; i++) {
        double d = 0;
        ir_const_number(c, i, &d);
        x->term[i].add = (int64_t)d;
    }
}

static bool constant(const affine *x, uint32_t i, int64_t *v) {
    if (!x || i >= x->n || x->term[i].symbol) return false;
    *v = x->term[i].add;
    return true;
}

/* x + sign y where at most one of them has a symbol, or both have the same and it cancels. */
static bool combine(affine_term x, affine_term y, int64_t sign, affine_term *out) {
    if (!y.symbol)
        *out = (affine_term){x.symbol, x.add + sign * y.add};
    else if (sign < 0 && x.symbol == y.symbol)
        *out = (affine_term){0, x.add - y.add};
    else if (sign > 0 && !x.symbol)
        *out = (affine_term){y.symbol, x.add + y.add};
    else
        return false;
    return true;
}

static void add_op(affine_table *t, const ir_op *op, int64_t sign) {
    const affine *x = of(t, ir_in(op, A_x)), *y = of(t, ir_in(op, A_y));
    if (!x || !y || (x->n != y->n && x->n != 1 && y->n != 1)) return;
    affine r = {.n = x->n > y->n ? x->n : y->n};
    for (uint32_t i = 0; i < r.n; i++)
        if (!combine(x->term[x->n == 1 ? 0 : i], y->term[y->n == 1 ? 0 : i], sign, &r.term[i])) return;
    *make(t, op->out[0], r.n) = r;
}

/* Elements [first, first + n) of a list. */
static void part(affine_table *t, const ir_op *op, const affine *x, int64_t first, int64_t n) {
    if (!x || first < 0 || n < 1 || first + n > (int64_t)x->n) return;
    affine *r = make(t, op->out[0], (uint32_t)n);
    memcpy(r->term, x->term + first, (size_t)n * sizeof r->term[0]);
}

static void join(affine_table *t, const ir_op *op) {
    const ir_arg *arg = ir_args(op, A_values);
    affine r = {0};
    for (uint32_t i = 0; i < arg->n; i++) {
        const affine *x = of(t, arg->v[i]);
        if (!x || r.n + x->n > AFFINE_ELEMENTS) return;
        memcpy(r.term + r.n, x->term, x->n * sizeof r.term[0]);
        r.n += x->n;
    }
    *make(t, op->out[0], r.n) = r;
}

static bool absent(const ir_op *op, ir_operand name) {
    return !ir_in(op, name);
}

void affine_op(affine_table *t, const ir_op *op, ir_type (*type)(void *ctx, const ir_value *v), void *ctx) {
    if (op->n_out != 1) return;
    ir_type out = type(ctx, op->out[0]);
    if (!small_ints(&out)) return;
    const affine *x = ir_slot_of(op->code, A_x) >= 0 ? of(t, ir_in(op, A_x)) : NULL;
    int64_t at = 0;
    switch (op->code) {
    case OP_shape: {
        ir_type of_x = type(ctx, ir_in(op, A_x));
        affine *r = make(t, op->out[0], (uint32_t)of_x.rank);
        for (int d = 0; d < of_x.rank; d++)
            r->term[d] = of_x.dim[d] >= 0 ? (affine_term){0, of_x.dim[d]} : (affine_term){++t->symbols, 0};
        return;
    }
    case OP_cast: {
        ir_type from = type(ctx, ir_in(op, A_x));
        if (small_ints(&from)) part(t, op, x, 0, x ? x->n : 0);
        return;
    }
    case OP_identity:
    case OP_reshape:
    case OP_expand_dims:
    case OP_squeeze: part(t, op, x, 0, x ? x->n : 0); return;
    case OP_slice_by_index:
        if (out.rank <= 1 && absent(op, A_stride) && absent(op, A_begin_mask) && absent(op, A_end_mask) &&
            constant(of(t, ir_in(op, A_begin)), 0, &at) && x)
            part(t, op, x, at < 0 ? at + x->n : at, ir_type_count(&out));
        return;
    case OP_gather:
        if (ir_type_count(&out) == 1 && constant(of(t, ir_in(op, A_indices)), 0, &at) && x)
            part(t, op, x, at < 0 ? at + x->n : at, 1);
        return;
    case OP_concat:
        if (out.rank == 1) join(t, op);
        return;
    case OP_add: add_op(t, op, 1); return;
    case OP_sub: add_op(t, op, -1); return;
    default: return;
    }
}

/* ---- sizes ---- */

static bool difference(const affine *x, uint32_t i, const affine *y, uint32_t k, int64_t *d) {
    affine_term r;
    if (!x || !y || i >= x->n || k >= y->n || !combine(x->term[i], y->term[k], -1, &r) || r.symbol)
        return false;
    *d = r.add;
    return true;
}

static bool flag(const ir_op *op, ir_operand name, int d) {
    const ir_value *v = ir_in(op, name);
    double x = 0;
    return v && v->konst && ir_const_number(v->konst, (uint64_t)d, &x) && x != 0;
}

static void slice_sizes(affine_table *t, const ir_op *op, const ir_type *x, ir_type *out) {
    const affine *begin = of(t, ir_in(op, A_begin)), *end = of(t, ir_in(op, A_end)),
                 *stride = of(t, ir_in(op, A_stride));
    int at = 0;
    for (int d = 0; d < x->rank && at < out->rank; d++) {
        int64_t n, from = 0, to, step = 1;
        if (flag(op, A_squeeze_mask, d)) continue;
        int64_t *size = &out->dim[at++];
        if (*size != IR_DIM_UNKNOWN || (stride && (!constant(stride, (uint32_t)d, &step) || step != 1)))
            continue;
        bool open_begin = flag(op, A_begin_mask, d), open_end = flag(op, A_end_mask, d);
        bool low = open_begin || constant(begin, (uint32_t)d, &from);
        to = x->dim[d];
        bool high = open_end ? to >= 0 : constant(end, (uint32_t)d, &to);
        if (low && high && from >= 0 && to >= from && (x->dim[d] < 0 || to <= x->dim[d]))
            *size = to - from;
        else if (!open_begin && !open_end && difference(end, (uint32_t)d, begin, (uint32_t)d, &n) && n >= 0)
            *size = n; /* a slice that passes the end is an error at run time */
    }
}

void affine_sizes(affine_table *t, const ir_op *op, const ir_type *x, ir_type *out) {
    int64_t n, step;
    if (op->code == OP_slice_by_index) slice_sizes(t, op, x, out);
    if (op->code != OP_range_1d || out->rank != 1 || out->dim[0] != IR_DIM_UNKNOWN) return;
    const affine *start = of(t, ir_in(op, A_start)), *end = of(t, ir_in(op, A_end));
    if (constant(of(t, ir_in(op, A_step)), 0, &step) && step == 1 && difference(end, 0, start, 0, &n) &&
        n >= 0)
        out->dim[0] = n;
}
