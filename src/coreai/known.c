/* Integers of few elements that follow from constants and sizes: shapes, bounds, axes. */
#include "coreai/read.h"
#include <string.h>

#define FEW 64

typedef struct {
    const int64_t *v;
    uint32_t n;
    bool any;
} ints;

static ints of(ai_read *r, const ai_op *op, uint32_t i) {
    const ai_lowered *l = &r->at[op->in[i]->id];
    return (ints){l->known, l->n_known, l->known != NULL};
}

static bool all_known(ints x) {
    for (uint32_t i = 0; i < x.n; i++)
        if (x.v[i] == AI_UNKNOWN) return false;
    return x.any;
}

static void put(ai_read *r, const ai_op *op, const int64_t *v, uint32_t n) {
    r->at[op->out[0]->id].known = v;
    r->at[op->out[0]->id].n_known = n;
}

static int64_t *fresh(ai_read *r, uint32_t n) {
    return ARENA_ARRAY(r->a, int64_t, n);
}

static int64_t combine(char how, int64_t x, int64_t y) {
    int64_t v = 0;
    if (x == AI_UNKNOWN || y == AI_UNKNOWN) return AI_UNKNOWN;
    bool over = how == '+'   ? __builtin_add_overflow(x, y, &v)
                : how == '-' ? __builtin_sub_overflow(x, y, &v)
                             : __builtin_mul_overflow(x, y, &v);
    return over ? AI_UNKNOWN : v;
}

static void arithmetic(ai_read *r, const ai_op *op, char how) {
    ints x = of(r, op, 0), y = of(r, op, 1);
    uint32_t n = x.n > y.n ? x.n : y.n;
    if (!x.any || !y.any || op->out[0]->type->rank > 1 || (x.n != n && x.n != 1) || (y.n != n && y.n != 1))
        return;
    int64_t *v = fresh(r, n);
    for (uint32_t i = 0; i < n; i++) v[i] = combine(how, x.v[x.n == 1 ? 0 : i], y.v[y.n == 1 ? 0 : i]);
    put(r, op, v, n);
}

static void shape(ai_read *r, const ai_op *op) {
    const ai_lowered *x = &r->at[op->in[0]->id];
    ir_type t;
    if (x->v)
        t = x->v->type;
    else if (!x->konst || !ai_to_ir(r, op->in[0]->type, &t))
        return;
    int64_t *v = fresh(r, (uint32_t)t.rank);
    for (int i = 0; i < t.rank; i++) v[i] = t.dim[i] == IR_DIM_UNKNOWN ? AI_UNKNOWN : t.dim[i];
    put(r, op, v, (uint32_t)t.rank);
}

static void slice(ai_read *r, const ai_op *op) {
    ints x = of(r, op, 0), from = of(r, op, 1), to = of(r, op, 2), step = of(r, op, 3);
    if (!x.any || op->in[0]->type->rank != 1 || !all_known(from) || !all_known(to) || !all_known(step) ||
        from.n != 1 || to.n != 1 || step.n != 1 || step.v[0] != 1)
        return;
    int64_t a = from.v[0], b = to.v[0], n = x.n;
    if (a < 0) a += n;
    if (b < 0) b += n;
    a = a < 0 ? 0 : a > n ? n : a, b = b < 0 ? 0 : b > n ? n : b;
    if (a <= b) put(r, op, x.v + a, (uint32_t)(b - a));
}

static void concat(ai_read *r, const ai_op *op) {
    uint32_t n = 0;
    if (op->n_in < 2) return;
    for (uint32_t i = 1; i < op->n_in; i++) {
        ints x = of(r, op, i);
        if (!x.any || op->in[i]->type->rank > 1) return;
        n += x.n;
    }
    if (n > FEW) return;
    int64_t *v = fresh(r, n);
    n = 0;
    for (uint32_t i = 1; i < op->n_in; i++) {
        ints x = of(r, op, i);
        for (uint32_t k = 0; k < x.n; k++) v[n++] = x.v[k];
    }
    put(r, op, v, n);
}

/* Of a vector by constant indices. */
static void gather(ai_read *r, const ai_op *op) {
    ints x = of(r, op, 0), at = of(r, op, 1);
    const ai_type *t = op->in[1]->type;
    if (!x.any || !all_known(at) || op->in[0]->type->rank != 1 || !t->rank || t->dim[t->rank - 1] != 1)
        return;
    int64_t *v = fresh(r, at.n);
    for (uint32_t i = 0; i < at.n; i++) {
        int64_t k = at.v[i] < 0 ? at.v[i] + x.n : at.v[i];
        if (k < 0 || k >= x.n) return;
        v[i] = x.v[k];
    }
    put(r, op, v, at.n);
}

static void product(ai_read *r, const ai_op *op) {
    ints x = of(r, op, 0);
    if (!x.any || op->in[0]->type->rank > 1) return;
    int64_t *v = fresh(r, 1);
    v[0] = 1;
    for (uint32_t i = 0; i < x.n; i++) v[0] = combine('*', v[0], x.v[i]);
    put(r, op, v, 1);
}

static void broadcast(ai_read *r, const ai_op *op) {
    ints x = of(r, op, 0), y = of(r, op, 1);
    if (!x.any || !y.any || op->out[0]->type->rank != 1) return;
    uint32_t n = x.n > y.n ? x.n : y.n;
    int64_t *v = fresh(r, n);
    for (uint32_t i = 0; i < n; i++) {
        int64_t a = i + x.n < n ? 1 : x.v[i + x.n - n], b = i + y.n < n ? 1 : y.v[i + y.n - n];
        v[i] = a == 1 ? b : b == 1 || a == b ? a : a == AI_UNKNOWN ? b : b == AI_UNKNOWN ? a : AI_UNKNOWN;
    }
    put(r, op, v, n);
}

typedef void rule(ai_read *r, const ai_op *op);

static void same(ai_read *r, const ai_op *op) {
    ints x = of(r, op, 0);
    if (x.any) put(r, op, x.v, x.n);
}

static void add(ai_read *r, const ai_op *op) {
    arithmetic(r, op, '+');
}

static void subtract(ai_read *r, const ai_op *op) {
    arithmetic(r, op, '-');
}

static void multiply(ai_read *r, const ai_op *op) {
    arithmetic(r, op, '*');
}

static const struct {
    const char *op;
    rule *fn;
    uint32_t n_in; /* 0: any number */
} rules[] = {
    {"primitive.get_shape_v2", shape, 1},  {"primitive.cast_v1", same, 1},
    {"primitive.reshape_v1", same, 2},     {"primitive.reshape_v2", same, 2},
    {"primitive.expand_dims_v1", same, 2}, {"primitive.shrink_dims_v1", same, 2},
    {"primitive.slice_v1", slice, 4},      {"primitive.concat_v1", concat, 0},
    {"primitive.gather_nd_v1", gather, 2}, {"primitive.broadcast_shapes_v1", broadcast, 2},
    {"reduce_product_v1", product, 2},     {"primitive.add_v1", add, 2},
    {"broadcasting_add_v1", add, 2},       {"primitive.sub_v1", subtract, 2},
    {"broadcasting_sub_v1", subtract, 2},  {"primitive.mul_v1", multiply, 2},
    {"broadcasting_mul_v1", multiply, 2},
};

void ai_propagate(ai_read *r, const ai_op *op) {
    if (op->n_out != 1 || op->out[0]->type->code != AI_TENSOR || op->out[0]->type->rank > 4) return;
    ir_dclass c = dtype_class((ir_dtype)op->out[0]->type->inner->dtype);
    if (c != DTC_INT && c != DTC_UINT) return;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].op, op->name) && (!rules[i].n_in || op->n_in == rules[i].n_in))
            rules[i].fn(r, op);
}
