#include "plan/lower.h"
#include "plan/steps.h"
#include "reference/walk.h"
#include <string.h>

/* ---- along an axis ---- */

/* The rows of x along this axis; the others count them, in their order. */
static step_rows *rows_of(lower *l, const place *x, ir_opcode code, int axis) {
    step_rows *r = ARENA_NEW(l->a, step_rows);
    *r = (step_rows){.n = x->type.dim[axis], .step = x->stride[axis], .code = code};
    for (int d = 0; d < x->type.rank; d++) {
        if (d == axis) continue;
        r->dim[r->rank] = x->type.dim[d];
        r->stride[r->rank++] = x->stride[d];
    }
    return r;
}

static int64_t row_count(const step_rows *r) {
    int64_t n = 1;
    for (int d = 0; d < r->rank; d++) n *= r->dim[d];
    return n;
}

static int64_t row_grain(const step_rows *r, int64_t elements) {
    return r->n >= elements ? 1 : elements / (r->n ? r->n : 1);
}

/* One axis, or reference. */
static bool reduce(lower *l, const ir_op *op, int64_t axis, plan_fn *fn) {
    const ir_type *type = &ir_in(op, A_x)->type;
    if (axis < 0) axis += type->rank;
    if (!dtype_is_float((ir_dtype)type->dtype) || axis < 0 || axis >= type->rank || type->dim[axis] < 1)
        return lower_reference(l, op);
    place x = lower_cells(l, lower_in(l, op, A_x)), y = lower_fresh(l, &op->out[0]->type);
    step_rows *r = rows_of(l, &x, op->code, (int)axis);
    r->round = lower_rounds(l, &op->out[0]->type);
    lower_emit(l, fn, r, ir_info(op->code)->name, row_count(r), row_grain(r, 4096), &y, 1, &x, 1);
    lower_set(l, op->out[0], y);
    return true;
}

bool lower_reduce(lower *l, const ir_op *op) {
    size_t n;
    const int64_t *axes = lower_ints(l, op, A_axes, &n);
    return n == 1 ? reduce(l, op, axes[0], run_reduce) : lower_reference(l, op);
}

bool lower_argmax(lower *l, const ir_op *op) {
    return reduce(l, op, lower_int(l, op, A_axis, -1), run_argmax);
}

bool lower_softmax(lower *l, const ir_op *op) {
    const ir_type *type = &op->out[0]->type;
    if (type->rank < 1 || lower_axis(l, op, A_axis, -1, type->rank) != type->rank - 1)
        return lower_reference(l, op);
    place x = lower_cells(l, lower_in(l, op, A_x)), y = lower_fresh(l, type);
    step_rows *r = rows_of(l, &x, op->code, type->rank - 1);
    r->round = lower_rounds(l, type);
    lower_emit(l, run_softmax, r, "softmax", row_count(r), row_grain(r, 1024), &y, 1, &x, 1);
    lower_set(l, op->out[0], y);
    return true;
}

bool lower_topk(lower *l, const ir_op *op) {
    const ir_type *type = &ir_in(op, A_x)->type;
    if (type->rank < 1 || !dtype_is_float((ir_dtype)type->dtype) ||
        lower_axis(l, op, A_axis, -1, type->rank) != type->rank - 1)
        return lower_reference(l, op);
    place x = lower_dense(l, lower_in(l, op, A_x)), out[2];
    step_topk *t = ARENA_NEW(l->a, step_topk);
    *t = (step_topk){.n = type->dim[type->rank - 1],
                     .k = op->out[0]->type.dim[type->rank - 1],
                     .ascending = lower_int(l, op, A_ascending, 0) != 0,
                     .with_indices = op->n_out > 1};
    if (t->k > t->n || t->n == 0) return lower_reference(l, op);
    t->rows = ir_type_count(type) / t->n;
    for (uint32_t i = 0; i < op->n_out; i++) {
        out[i] = lower_fresh(l, &op->out[i]->type);
        lower_set(l, op->out[i], out[i]);
    }
    size_t need = (size_t)t->k * 8; /* a heap of values and indices */
    if (need > l->p->scratch) l->p->scratch = need;
    lower_emit(l, run_topk, t, "topk", t->rows, 1, out, op->n_out, &x, 1);
    return true;
}

/* ---- products ---- */

/* The operand as [batch..., rows, columns] with the batch broadcast to `batch`. */
static void batch_strides(const place *p, const ir_type *batch, int64_t *stride) {
    place q = *p;
    q.type.rank -= 2;
    q = place_broadcast(&q, batch);
    memcpy(stride, q.stride, (size_t)batch->rank * sizeof *stride);
}

bool lower_matmul(lower *l, const ir_op *op) {
    const ir_type *type = &op->out[0]->type, *tx = &ir_in(op, A_x)->type, *ty = &ir_in(op, A_y)->type;
    if (tx->rank < 2 || ty->rank < 2 || !dtype_is_float((ir_dtype)tx->dtype)) return lower_reference(l, op);
    place a = lower_cells(l, lower_in(l, op, A_x)), b = lower_in(l, op, A_y), c = lower_fresh(l, type);
    if (b.store && b.store != DT_FP16) b = lower_cells(l, b);
    bool swap_a = lower_int(l, op, A_transpose_x, 0), swap_b = lower_int(l, op, A_transpose_y, 0);
    int ra = tx->rank, rb = ty->rank;
    step_matmul *s = ARENA_NEW(l->a, step_matmul);
    ir_type batch = *type;
    batch.rank -= 2;
    *s = (step_matmul){.rank = batch.rank, .store_b = b.store, .round = lower_rounds(l, type)};
    memcpy(s->dim, batch.dim, sizeof s->dim);
    s->m = type->dim[type->rank - 2];
    s->n = type->dim[type->rank - 1];
    s->k = tx->dim[swap_a ? ra - 2 : ra - 1];
    s->am = a.stride[swap_a ? ra - 1 : ra - 2], s->ak = a.stride[swap_a ? ra - 2 : ra - 1];
    s->bk = b.stride[swap_b ? rb - 1 : rb - 2], s->bn = b.stride[swap_b ? rb - 2 : rb - 1];
    batch_strides(&a, &batch, s->sa);
    batch_strides(&b, &batch, s->sb);
    int64_t rows = ir_type_count(&batch) * s->m, work = s->n * s->k;
    place in[2] = {a, b};
    if (rows)
        lower_emit(l, run_matmul, s, s->store_b ? "matmul fp16" : "matmul", rows, 1 + 16384 / (work + 1), &c,
                   1, in, 2);
    lower_set(l, op->out[0], c);
    return true;
}
