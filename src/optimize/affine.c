#include "optimize/affine.h"
#include <string.h>

struct affine_table {
    arena *a;
    affine **known; /* by value id */
    affine **sizes; /* by value id: of its dimensions */
    uint32_t symbols;
};

affine_table *affine_new(arena *a, uint32_t n_values) {
    affine_table *t = ARENA_NEW(a, affine_table);
    *t = (affine_table){
        .a = a, .known = ARENA_ARRAY(a, affine *, n_values), .sizes = ARENA_ARRAY(a, affine *, n_values)};
    return t;
}

static bool small_ints(const ir_type *t) {
    ir_dclass c = dtype_class((ir_dtype)t->dtype);
    int64_t n = ir_type_count(t);
    return t->kind == IR_TENSOR && (c == DTC_INT || c == DTC_UINT || t->dtype == DT_BOOL) && n >= 1 &&
           n <= AFFINE_ELEMENTS;
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

/* The sizes of v: those that its type leaves open are symbols. */
static affine *sizes_of(affine_table *t, const ir_value *v, const ir_type *type) {
    affine *x = t->sizes[v->id];
    if (x || type->rank > AFFINE_ELEMENTS) return x;
    x = t->sizes[v->id] = ARENA_NEW(t->a, affine);
    x->n = (uint32_t)type->rank;
    for (int d = 0; d < type->rank; d++)
        x->term[d] = type->dim[d] >= 0 ? (affine_term){.add = type->dim[d]}
                                       : (affine_term){.symbol = ++t->symbols, .size = true};
    return x;
}

/* x + sign y where at most one of them has a symbol, or both have the same and it cancels. */
static bool combine(affine_term x, affine_term y, int64_t sign, affine_term *out) {
    if (!y.symbol)
        *out = (affine_term){x.symbol, x.size, x.add + sign * y.add};
    else if (sign < 0 && x.symbol == y.symbol)
        *out = (affine_term){.add = x.add - y.add};
    else if (sign > 0 && !x.symbol)
        *out = (affine_term){y.symbol, y.size, x.add + y.add};
    else
        return false;
    return true;
}

static bool add_terms(affine_term x, affine_term y, affine_term *out) {
    return combine(x, y, 1, out);
}

static bool sub_terms(affine_term x, affine_term y, affine_term *out) {
    return combine(x, y, -1, out);
}

/* x = y: constants, or a size and what no size is. */
static bool equal_terms(affine_term x, affine_term y, affine_term *out) {
    affine_term d;
    *out = (affine_term){0};
    if (combine(x, y, -1, &d) && !d.symbol) {
        out->add = d.add == 0;
        return true;
    }
    return (x.size && !y.symbol && y.add < 1 + x.add) || (y.size && !x.symbol && x.add < 1 + y.add);
}

/* Quotients without a rest. */
static bool div_terms(affine_term x, affine_term y, affine_term *out) {
    bool same = x.symbol == y.symbol && x.add == y.add && (x.symbol ? x.size && x.add >= 0 : x.add > 0);
    *out = (affine_term){.add = 1};
    if (same) return true;
    if (x.symbol || y.symbol || y.add <= 0 || x.add < 0 || x.add % y.add) return false;
    out->add = x.add / y.add;
    return true;
}

/* Element by element; a list of one goes with every element of the other. */
static void binary(affine_table *t, const ir_op *op,
                   bool (*fn)(affine_term x, affine_term y, affine_term *out)) {
    const affine *x = of(t, ir_in(op, A_x)), *y = of(t, ir_in(op, A_y));
    if (!x || !y || (x->n != y->n && x->n != 1 && y->n != 1)) return;
    affine r = {.n = x->n > y->n ? x->n : y->n};
    for (uint32_t i = 0; i < r.n; i++)
        if (!fn(x->term[x->n == 1 ? 0 : i], y->term[y->n == 1 ? 0 : i], &r.term[i])) return;
    *make(t, op->out[0], r.n) = r;
}

static void choose(affine_table *t, const ir_op *op) {
    const affine *c = of(t, ir_in(op, A_cond)), *a = of(t, ir_in(op, A_a)), *b = of(t, ir_in(op, A_b));
    if (!c || !a || !b || a->n != b->n || c->n != a->n) return;
    affine r = {.n = a->n};
    for (uint32_t i = 0; i < r.n; i++) {
        if (c->term[i].symbol) return;
        r.term[i] = c->term[i].add ? a->term[i] : b->term[i];
    }
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

static bool starts_at_zero(const affine_table *t, const ir_op *op, int d) {
    int64_t from;
    return flag(op, A_begin_mask, d) ||
           (constant(of(t, ir_in(op, A_begin)), (uint32_t)d, &from) && from == 0);
}

/* The size of dimension d of a slice that begins at 0: where it ends. */
static void slice_end(const affine_table *t, const ir_op *op, uint32_t d, const affine_term *x,
                      affine_term *out) {
    const affine *end = of(t, ir_in(op, A_end));
    if (ir_in(op, A_stride) || ir_in(op, A_squeeze_mask) || !starts_at_zero(t, op, (int)d)) return;
    if (flag(op, A_end_mask, (int)d))
        *out = *x;
    else if (end && d < end->n && end->term[d].symbol && end->term[d].size && end->term[d].add >= 0)
        *out = end->term[d]; /* past the end of x: an error at run time */
}

bool affine_is_copy(affine_table *t, const ir_op *op, const ir_type *x, const ir_type *out) {
    if (op->code != OP_slice_by_index || x->rank != out->rank || ir_in(op, A_stride) ||
        ir_in(op, A_squeeze_mask))
        return false;
    const affine *from = sizes_of(t, ir_in(op, A_x), x), *end = of(t, ir_in(op, A_end));
    for (int d = 0; from && d < x->rank; d++) {
        const affine_term *e = end && d < (int)end->n ? &end->term[d] : NULL, *n = &from->term[d];
        if (!starts_at_zero(t, op, d)) return false;
        if (!flag(op, A_end_mask, d) && (!e || e->symbol != n->symbol || e->add != n->add)) return false;
    }
    return from != NULL;
}

int64_t affine_tail(affine_table *t, const ir_op *op, const ir_type *x, const ir_type *out) {
    int last = x->rank - 1;
    if (op->code != OP_slice_by_index || last < 0 || x->rank != out->rank || x->dim[last] >= 0 ||
        out->dim[last] < 1 || ir_in(op, A_stride) || ir_in(op, A_squeeze_mask))
        return 0;
    const affine *from = sizes_of(t, ir_in(op, A_x), x), *begin = of(t, ir_in(op, A_begin)),
                 *end = of(t, ir_in(op, A_end));
    for (int d = 0; d < last; d++)
        if (x->dim[d] < 0 || x->dim[d] != out->dim[d]) return 0;
    const affine_term *n = from ? &from->term[last] : NULL,
                      *b = begin && last < (int)begin->n ? &begin->term[last] : NULL,
                      *e = end && last < (int)end->n ? &end->term[last] : NULL;
    bool ends = flag(op, A_end_mask, last) || (n && e && e->symbol == n->symbol && e->add == n->add);
    bool begins = n && b && !flag(op, A_begin_mask, last) && b->symbol == n->symbol &&
                  b->add == n->add - out->dim[last];
    return ends && begins ? out->dim[last] : 0;
}

/* The only size that is a symbol, and the product of the others. False: another number of them. */
static bool only_symbol(const affine *sizes, uint32_t *at, int64_t *others) {
    int found = 0;
    *others = 1;
    for (uint32_t d = 0; d < sizes->n; d++)
        if (sizes->term[d].symbol)
            *at = d, found++;
        else
            *others *= sizes->term[d].add;
    return found == 1;
}

/* Sizes that the type leaves open, of results that have those of x in some place. */
static void follow_sizes(affine_table *t, const ir_op *op, const ir_type *x, const ir_type *out) {
    affine *from = sizes_of(t, ir_in(op, A_x), x), *to = sizes_of(t, op->out[0], out);
    uint32_t i = 0, k = 0;
    int64_t n, m, reps = 0;
    if (!from || !to) return;
    if (op->code == OP_slice_by_index) {
        for (uint32_t d = 0; d < to->n && from->n == to->n; d++)
            if (to->term[d].symbol) slice_end(t, op, d, &from->term[d], &to->term[d]);
        return;
    }
    if (!only_symbol(from, &i, &n) || !only_symbol(to, &k, &m)) return;
    if (op->code == OP_tile ? i == k && constant(of(t, ir_in(op, A_reps)), k, &reps) && reps == 1 : n == m)
        to->term[k] = from->term[i];
}

static bool moves_sizes(const ir_op *op) {
    return op->code == OP_expand_dims || op->code == OP_squeeze || op->code == OP_reshape ||
           op->code == OP_transpose || op->code == OP_tile || op->code == OP_slice_by_index;
}

void affine_op(affine_table *t, const ir_op *op, ir_type (*type)(void *ctx, const ir_value *v), void *ctx) {
    if (op->n_out != 1) return;
    ir_type out = type(ctx, op->out[0]);
    if (!ir_type_known(&out) && moves_sizes(op)) {
        ir_type of_x = type(ctx, ir_in(op, A_x));
        follow_sizes(t, op, &of_x, &out);
    }
    if (!small_ints(&out)) return;
    const affine *x = ir_slot_of(op->code, A_x) >= 0 ? of(t, ir_in(op, A_x)) : NULL;
    int64_t at = 0;
    switch (op->code) {
    case OP_shape: {
        ir_type of_x = type(ctx, ir_in(op, A_x));
        const affine *sizes = sizes_of(t, ir_in(op, A_x), &of_x);
        if (sizes) *make(t, op->out[0], sizes->n) = *sizes;
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
    case OP_add: binary(t, op, add_terms); return;
    case OP_sub: binary(t, op, sub_terms); return;
    case OP_equal: binary(t, op, equal_terms); return;
    case OP_real_div:
    case OP_floor_div: binary(t, op, div_terms); return;
    case OP_select: choose(t, op); return;
    default: return;
    }
}

const ir_const *affine_known(const affine_table *t, const ir_op *op, const ir_type *type) {
    const affine *x = op->n_out == 1 ? t->known[op->out[0]->id] : NULL;
    if (!x || (type->dtype != DT_INT32 && type->dtype != DT_BOOL)) return NULL;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->term[i].symbol || x->term[i].add != (int32_t)x->term[i].add) return NULL;
    void *data = arena_alloc(t->a, x->n * sizeof(int32_t));
    for (uint32_t i = 0; i < x->n; i++)
        if (type->dtype == DT_BOOL)
            ((uint8_t *)data)[i] = x->term[i].add != 0;
        else
            ((int32_t *)data)[i] = (int32_t)x->term[i].add;
    return ir_const_new(t->a, *type, data);
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
