#include "coreai/compose.h"
#include <stdio.h>
#include <string.h>

static const char *op_name(ai_make *m, const char *prefix, const char *op) {
    return arena_printf(m->a, "%s%s_v1", prefix, op);
}

static bool is_static(const ai_type *t) {
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] == AI_DYNAMIC) return false;
    return true;
}

static bool same_sizes(const ai_type *x, const ai_type *y) {
    return x->rank == y->rank && (!x->rank || !memcmp(x->dim, y->dim, (size_t)x->rank * sizeof *x->dim));
}

static const ai_type *with_dtype(ai_make *m, const ai_type *t, ir_dtype d) {
    return ai_make_tensor(m, d, t->rank, t->dim);
}

static ir_dtype dtype_of(const ai_type *t) {
    return (ir_dtype)t->inner->dtype;
}

/* ---- pieces ---- */

const ai_value *ai_shape(ai_scope *s, const ai_value *x) {
    const ai_type *t = x->type;
    if (is_static(t) && t->rank) return ai_scope_ints(s, DT_UINT32, t->dim, t->rank);
    return ai_scope_value(s, "primitive.get_shape_v2",
                          ai_make_tensor(s->m, DT_UINT32, 1, (int64_t[]){t->rank}), x, NULL);
}

const ai_value *ai_reshape(ai_scope *s, const ai_type *out, const ai_value *x) {
    int64_t dim[AI_MAX_RANK];
    for (int i = 0; i < out->rank; i++) dim[i] = out->dim[i] == AI_DYNAMIC ? -1 : out->dim[i];
    return ai_scope_value(s, "primitive.reshape_v2", out, x, ai_scope_ints(s, DT_INT32, dim, out->rank),
                          NULL);
}

/* A value without dimensions gets rank many of size 1. */
static const ai_value *at_least(ai_scope *s, const ai_value *x, int rank) {
    if (x->type->rank || !rank) return x;
    int64_t ones[AI_MAX_RANK];
    for (int i = 0; i < rank; i++) ones[i] = 1;
    return ai_reshape(s, ai_make_tensor(s->m, dtype_of(x->type), rank, ones), x);
}

static const ai_value *broadcast_to(ai_scope *s, const ai_value *x, const ai_type *sizes,
                                    const ai_value *shape) {
    const ai_type *out = with_dtype(s->m, sizes, dtype_of(x->type));
    if (out == x->type && is_static(out)) return x;
    return ai_scope_value(s, "primitive.broadcast_to_v1", out, x, shape, NULL);
}

static const ai_value *part_of(ai_scope *s, const ai_value *shape, int64_t from, int64_t to) {
    const ai_type *t = ai_make_tensor(s->m, DT_UINT32, 1, (int64_t[]){to - from});
    return ai_scope_value(s, "primitive.slice_v1", t, shape, ai_scope_ints(s, DT_INT32, &from, 1),
                          ai_scope_ints(s, DT_INT32, &to, 1), ai_scope_ints(s, DT_INT32, (int64_t[]){1}, 1),
                          NULL);
}

static const ai_value *common_shape(ai_scope *s, const ai_value *x, const ai_value *y, int rank) {
    return ai_scope_value(s, "primitive.broadcast_shapes_v1",
                          ai_make_tensor(s->m, DT_UINT32, 1, (int64_t[]){rank}), x, y, NULL);
}

static const ai_value *joined(ai_scope *s, const ai_value *x, const ai_value *y, int rank) {
    return ai_scope_value(s, "primitive.concat_v1", ai_make_tensor(s->m, DT_UINT32, 1, (int64_t[]){rank}),
                          ai_scope_int(s, 0), x, y, NULL);
}

static void yield(ai_scope *s, const ai_value *v) {
    ai_scope_op(s, "dataflow.yield_v1", NULL, 0, &v, 1);
}

/* The op over the values that the decomposition's arguments stand for. */
static const ai_value *decomposable(ai_scope *s, const char *name, const ai_type *out,
                                    const ai_value *const *in, uint32_t n, const ai_scope *body) {
    ai_op *op = ai_scope_op(s, name, &out, 1, in, n);
    ai_region *r = ARENA_NEW(s->m->a, ai_region);
    ai_scope_region(body, true, r);
    op->region = r;
    op->n_region = 1;
    return op->out[0];
}

static ai_scope *body_over(ai_scope *s, const ai_value *const *in, uint32_t n, const ai_value **arg) {
    ai_scope *body = ai_scope_new(s->m);
    for (uint32_t i = 0; i < n; i++) arg[i] = ai_scope_argument(body, in[i]->type);
    return body;
}

/* ---- elementwise ---- */

/* arg[i] as tensors of the sizes of out. */
static void broadcast_all(ai_scope *b, const ai_type *out, const ai_value **arg, uint32_t n) {
    bool same = true;
    for (uint32_t i = 0; i < n; i++) {
        arg[i] = at_least(b, arg[i], out->rank);
        same &= same_sizes(arg[i]->type, out) && (is_static(out) || arg[i]->type == arg[0]->type);
    }
    if (same && is_static(out)) return;
    const ai_value *shape = ai_shape(b, arg[0]);
    for (uint32_t i = 1; i < n; i++) shape = common_shape(b, shape, ai_shape(b, arg[i]), out->rank);
    for (uint32_t i = 0; i < n; i++) arg[i] = broadcast_to(b, arg[i], out, shape);
}

const ai_value *ai_broadcasting(ai_scope *s, const char *op, const ai_type *out, const ai_value *x,
                                const ai_value *y) {
    const ai_value *in[2] = {x, y}, *arg[2];
    ai_scope *b = body_over(s, in, 2, arg);
    broadcast_all(b, out, arg, 2);
    yield(b, ai_scope_value(b, op_name(s->m, "primitive.", op), out, arg[0], arg[1], NULL));
    return decomposable(s, op_name(s->m, "broadcasting_", op), out, in, 2, b);
}

const ai_value *ai_where(ai_scope *s, const ai_type *out, const ai_value *cond, const ai_value *x,
                         const ai_value *y) {
    const ai_value *in[3] = {cond, x, y}, *arg[3];
    ai_scope *b = body_over(s, in, 3, arg);
    broadcast_all(b, out, arg, 3);
    yield(b, ai_scope_value(b, "primitive.where_v1", out, arg[0], arg[1], arg[2], NULL));
    return decomposable(s, "broadcasting_where_v1", out, in, 3, b);
}

static const ai_value *sigmoid_of(ai_scope *b, const ai_value *x) {
    ir_dtype d = dtype_of(x->type);
    const ai_value *zero = ai_scope_number(b, d, 0), *one = ai_scope_number(b, d, 1);
    const ai_value *e =
        ai_scope_value(b, "primitive.exp_v1", x->type, ai_broadcasting(b, "sub", x->type, zero, x), NULL);
    return ai_broadcasting(b, "divide", x->type, one, ai_broadcasting(b, "add", x->type, one, e));
}

const ai_value *ai_sigmoid(ai_scope *s, const ai_value *x) {
    const ai_value *arg;
    ai_scope *b = body_over(s, &x, 1, &arg);
    yield(b, sigmoid_of(b, arg));
    return decomposable(s, "sigmoid_v1", x->type, &x, 1, b);
}

const ai_value *ai_silu(ai_scope *s, const ai_value *x) {
    const ai_value *arg;
    ai_scope *b = body_over(s, &x, 1, &arg);
    yield(b, ai_broadcasting(b, "mul", x->type, arg, sigmoid_of(b, arg)));
    return decomposable(s, "silu_v1", x->type, &x, 1, b);
}

/* ---- products ---- */

/* x or y with the leading sizes of both. */
static const ai_value *batched(ai_scope *b, const ai_value *x, const ai_value *lead, const ai_type *out) {
    const ai_type *t = x->type;
    int64_t dim[AI_MAX_RANK];
    for (int i = 0; i < out->rank; i++)
        dim[i] = i < out->rank - 2 ? out->dim[i] : t->dim[t->rank - out->rank + i];
    const ai_type *wide = ai_make_tensor(b->m, dtype_of(t), out->rank, dim);
    const ai_value *own = part_of(b, ai_shape(b, x), t->rank - 2, t->rank);
    return broadcast_to(b, x, wide, joined(b, lead, own, out->rank));
}

const ai_value *ai_matmul(ai_scope *s, const ai_type *out, const ai_value *x, const ai_value *y) {
    const ai_value *in[2] = {x, y}, *arg[2], *lead = NULL;
    ai_scope *b = body_over(s, in, 2, arg);
    int n = out->rank - 2;
    for (int i = 0; i < 2 && n; i++) {
        int rank = arg[i]->type->rank;
        if (rank <= 2) continue;
        const ai_value *part = part_of(b, ai_shape(b, arg[i]), 0, rank - 2);
        lead = lead ? common_shape(b, lead, part, n) : part;
    }
    for (int i = 0; i < 2 && n; i++) arg[i] = batched(b, arg[i], lead, out);
    yield(b, ai_scope_value(b, "primitive.batch_matmul_v1", out, arg[0], arg[1], NULL));
    return decomposable(s, "broadcasting_batch_matmul_v1", out, in, 2, b);
}

/* ---- reductions ---- */

static const ai_type *reduced(ai_make *m, const ai_type *t, int axis) {
    int64_t dim[AI_MAX_RANK];
    for (int i = 0; i < t->rank; i++) dim[i] = i == axis ? 1 : t->dim[i];
    return ai_make_tensor(m, dtype_of(t), t->rank, dim);
}

/* The region of primitive.reduce_v1: of what came so far, and an element. */
static const ai_value *reduce_with(ai_scope *b, const char *op, const ai_value *x, const ai_value *axes,
                                   const ai_value *first) {
    ai_make *m = b->m;
    ir_dtype wide = dtype_of(first->type);
    ai_scope *step = ai_scope_new(m);
    const ai_value *sum = ai_scope_argument(step, first->type);
    const ai_value *element = ai_scope_argument(step, ai_make_tensor(m, dtype_of(x->type), 0, NULL));
    if (dtype_of(x->type) != wide)
        element = ai_scope_value(step, "primitive.cast_v1", first->type, element, NULL);
    yield(step, ai_scope_value(step, op_name(m, "primitive.", op), first->type, sum, element, NULL));
    int64_t unknown[AI_MAX_RANK];
    for (int i = 0; i < x->type->rank; i++) unknown[i] = AI_DYNAMIC;
    const ai_type *out = ai_make_tensor(m, dtype_of(x->type), x->type->rank, unknown);
    ai_op *reduce =
        ai_scope_op(b, "primitive.reduce_v1", &out, 1, (const ai_value *const[]){x, axes, first}, 3);
    ai_region *r = ARENA_NEW(m->a, ai_region);
    ai_scope_region(step, false, r);
    reduce->region = r;
    reduce->n_region = 1;
    return reduce->out[0];
}

static const ai_value *reduce_sum(ai_scope *s, const ai_type *out, const ai_value *x, const ai_value *axes) {
    const ai_value *in[2] = {x, axes}, *arg[2];
    ai_scope *b = body_over(s, in, 2, arg);
    yield(b, reduce_with(b, "add", arg[0], arg[1], ai_scope_number(b, DT_FP32, 0)));
    return decomposable(s, "reduce_sum_v1", out, in, 2, b);
}

/* How many elements a reduction over these axes takes together, ui64 [1]. */
static const ai_value *reduced_count(ai_scope *b, const ai_value *x, const ai_value *axes) {
    ai_make *m = b->m;
    const ai_type *one64 = ai_make_tensor(m, DT_UINT64, 1, (int64_t[]){1});
    const ai_value *index = ai_reshape(b, ai_make_tensor(m, DT_INT32, 2, (int64_t[]){1, 1}), axes);
    const ai_value *size =
        ai_scope_value(b, "primitive.gather_nd_v1", ai_make_tensor(m, DT_UINT32, 1, (int64_t[]){1}),
                       ai_shape(b, x), index, NULL);
    const ai_value *in[2] = {ai_scope_value(b, "primitive.cast_v1", one64, size, NULL),
                             ai_scope_ints(b, DT_INT32, (int64_t[]){0}, 1)},
                   *arg[2];
    ai_scope *body = body_over(b, in, 2, arg);
    static const uint8_t one[8] = {1};
    yield(body, reduce_with(body, "mul", arg[0], arg[1],
                            ai_scope_dense(body, DT_UINT64, 0, NULL, one, sizeof one)));
    return decomposable(b, "reduce_product_v1", one64, in, 2, body);
}

const ai_value *ai_reduce(ai_scope *s, const char *op, const ai_value *x, int axis) {
    ai_make *m = s->m;
    const ai_type *out = reduced(m, x->type, axis);
    const ai_value *in[2] = {x, ai_scope_ints(s, DT_INT32, (int64_t[]){axis}, 1)}, *arg[2];
    if (!strcmp(op, "sum")) return reduce_sum(s, out, in[0], in[1]);
    ai_scope *b = body_over(s, in, 2, arg);
    const ai_value *sum = reduce_sum(b, out, arg[0], arg[1]);
    const ai_value *count =
        ai_scope_value(b, "primitive.cast_v1", ai_make_tensor(m, dtype_of(out), 1, (int64_t[]){1}),
                       reduced_count(b, arg[0], arg[1]), NULL);
    yield(b, ai_broadcasting(b, "divide", out, sum, count));
    return decomposable(s, op_name(m, "reduce_", op), out, in, 2, b);
}

const ai_value *ai_softmax(ai_scope *s, const ai_value *x, int axis) {
    const ai_value *in[2] = {x, ai_scope_int(s, axis)}, *arg[2];
    ai_scope *b = body_over(s, in, 2, arg);
    const ai_value *axes = ai_reshape(b, ai_make_tensor(s->m, DT_INT32, 1, (int64_t[]){1}), arg[1]);
    const ai_value *e = ai_scope_value(b, "primitive.exp_v1", x->type, arg[0], NULL);
    yield(b, ai_broadcasting(b, "divide", x->type, e, reduce_sum(b, reduced(s->m, x->type, axis), e, axes)));
    return decomposable(s, "softmax_v1", x->type, in, 2, b);
}
