#include "plan/lower.h"
#include "plan/steps.h"
#include "reference/rows.h"
#include <string.h>

static bool is_float(const place *p) {
    return dtype_is_float((ir_dtype)p->type.dtype);
}

/* By a kernel, outside of strict mode. */
static bool fast_unary(lower *l, const ir_op *op, const place *x) {
    kern_pointwise_op code = op->code == OP_silu      ? KERN_SILU
                             : op->code == OP_sigmoid ? KERN_SIGMOID
                             : op->code == OP_exp     ? KERN_EXP
                                                      : KERN_POINTWISE;
    const ir_type *type = &op->out[0]->type;
    int64_t n = ir_type_count(type);
    if (l->strict || code == KERN_POINTWISE || !n || !place_is_dense(x)) return false;
    place y = lower_fresh(l, type);
    step_fast_unary *s = ARENA_NEW(l->a, step_fast_unary);
    *s = (step_fast_unary){code, n};
    lower_emit(l, run_fast_unary, s, ir_info(op->code)->name, n, 2048, &y, 1, x, 1);
    lower_set(l, op->out[0], y);
    return true;
}

bool lower_unary(lower *l, const ir_op *op) {
    if (op->code == OP_silu && lower_conv_silu(l, op)) return true;
    place x = lower_cells(l, lower_in(l, op, A_x));
    if (!is_float(&x)) return lower_reference(l, op);
    if (fast_unary(l, op, &x)) return true;
    const ir_type *type = &op->out[0]->type;
    place y = lower_fresh(l, type);
    step_unary *u = ARENA_NEW(l->a, step_unary);
    double eps = op->code == OP_log ? 1e-45 : op->code == OP_rsqrt ? 1e-12 : 1e-4;
    *u = (step_unary){.g = grid_make(type->rank, type->dim, 2, (const int64_t *const[]){y.stride, x.stride}),
                      .code = op->code,
                      .number = {(float)lower_number(l, op, A_epsilon, eps)},
                      .round = lower_rounds(l, type)};
    lower_emit(l, run_unary, u, ir_info(op->code)->name, grid_units(&u->g), grid_grain(&u->g, 2048), &y, 1,
               &x, 1);
    lower_set(l, op->out[0], y);
    return true;
}

/* Reads numbers of any precision: rounding them first would only lose. */
static bool takes_any(const ir_op *op, const ir_value *v) {
    switch (op->code) {
    case OP_linear:
    case OP_fused_linear: return ir_in(op, A_x) == v && (!ir_in(op, A_add) || ir_in(op, A_add) != v);
    case OP_fused_attention: return ir_in(op, A_query) == v;
    case OP_slice_update: return ir_in(op, A_update) == v && op->out[0]->type.dtype == DT_FP16; /* rounds */
    default: return false;
    }
}

/* All that look at v, through views or not, take any precision. */
static bool needs_no_rounding(const lower *l, const ir_value *v, size_t from) {
    uint32_t left = l->uses[v->id];
    for (size_t i = from; i < l->f->body.n_op && left; i++) {
        const ir_op *op = l->f->body.op[i];
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) {
                if (op->arg[s].v[k] != v) continue;
                bool view = lower_is_view(op) && op->code != OP_split && op->code != OP_cast;
                if (!(view ? needs_no_rounding(l, op->out[0], i + 1) : takes_any(op, v))) return false;
                left--;
            }
    }
    return !left;
}

/* Nothing changes in cells: only fp32 to fp16 rounds, and numbers become others only between kinds. */
static bool same_cells(ir_dtype from, ir_dtype to) {
    bool ff = dtype_is_float(from), tf = dtype_is_float(to);
    return from == to || (ff && tf && !(from == DT_FP32 && to == DT_FP16));
}

bool lower_cast(lower *l, const ir_op *op) {
    place x = lower_in(l, op, A_x);
    const ir_type *type = &op->out[0]->type;
    ir_dtype from = (ir_dtype)x.type.dtype, to = (ir_dtype)type->dtype;
    x.konst = NULL;
    bool rounds = from == DT_FP32 && to == DT_FP16;
    if (same_cells(from, to) || (rounds && !l->strict && needs_no_rounding(l, op->out[0], l->index + 1))) {
        lower_set(l, op->out[0], x);
        return true;
    }
    if (rounds && lower_rounded_linear(l, op, &x)) return true;
    x = lower_cells(l, x);
    place y = lower_fresh(l, type);
    step_unary *u = ARENA_NEW(l->a, step_unary);
    *u = (step_unary){.g = grid_make(type->rank, type->dim, 2, (const int64_t *const[]){y.stride, x.stride}),
                      .code = OP_cast,
                      .from = from,
                      .to = to};
    lower_emit(l, run_cast, u, "cast", grid_units(&u->g), grid_grain(&u->g, 8192), &y, 1, &x, 1);
    lower_set(l, op->out[0], y);
    return true;
}

bool lower_binary(lower *l, const ir_op *op) {
    if (op->code == OP_mul && lower_scaled_norm(l, op)) return true;
    if (lower_residual(l, op)) return true;
    place x = lower_cells(l, lower_in(l, op, A_x)), y = lower_cells(l, lower_in(l, op, A_y));
    const ir_type *type = &op->out[0]->type;
    step_row *row = ref_binary_row(op->code, is_float(&x));
    if (!row || is_float(&x) != is_float(&y)) return lower_reference(l, op);
    place o = lower_fresh(l, type), in[2] = {place_broadcast(&x, type), place_broadcast(&y, type)};
    step_binary *b = ARENA_NEW(l->a, step_binary);
    *b = (step_binary){.g = grid_make(type->rank, type->dim, 3,
                                      (const int64_t *const[]){o.stride, in[0].stride, in[1].stride}),
                       .row = row,
                       .round = lower_rounds(l, type) && is_float(&x)};
    lower_emit(l, run_binary, b, ir_info(op->code)->name, grid_units(&b->g), grid_grain(&b->g, 4096), &o, 1,
               in, 2);
    lower_set(l, op->out[0], o);
    return true;
}

bool lower_select(lower *l, const ir_op *op) {
    place c = lower_cells(l, lower_in(l, op, A_cond)), a = lower_cells(l, lower_in(l, op, A_a)),
          b = lower_cells(l, lower_in(l, op, A_b));
    const ir_type *type = &op->out[0]->type;
    if (is_float(&a) != is_float(&b)) return lower_reference(l, op);
    place o = lower_fresh(l, type),
          in[3] = {place_broadcast(&c, type), place_broadcast(&a, type), place_broadcast(&b, type)};
    step_select *s = ARENA_NEW(l->a, step_select);
    s->g = grid_make(type->rank, type->dim, 4,
                     (const int64_t *const[]){o.stride, in[0].stride, in[1].stride, in[2].stride});
    lower_emit(l, run_select, s, "select", grid_units(&s->g), grid_grain(&s->g, 4096), &o, 1, in, 3);
    lower_set(l, op->out[0], o);
    return true;
}
