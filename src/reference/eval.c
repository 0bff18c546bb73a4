#include "reference/eval.h"
#include "base/num.h"
#include "reference/ops.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Constants up to this many elements are expanded once and kept; larger ones on each use. */
#define KEEP_CELLS (INT64_C(1) << 18)

/* Shapes, axes, bounds and scalars have far fewer elements. */
#define MAX_NUMBERS 4096
/* Buffers from 256 KiB on are worth keeping. */
#define SPARE_CELLS (1 << 16)

struct ev_temp {
    struct ev_temp *next;
    ref_buf *buf;
};

void ev_error(ref_eval *v, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(v->e, ERR_INVALID, "%s", text);
}

const ref_tensor *ev_value(ref_eval *v, const ir_value *x) {
    return &v->env[x->id];
}

const ref_tensor *ev_in(ref_eval *v, ir_operand name) {
    const ir_value *x = ir_in(v->op, name);
    return x ? ev_value(v, x) : NULL;
}

void *ev_temp(ref_eval *v, int64_t n) {
    ref_buf *b = ref_buf_new(n, v->e);
    if (!b) return NULL;
    struct ev_temp *t = ARENA_NEW(v->scratch, struct ev_temp);
    *t = (struct ev_temp){v->temps, b};
    v->temps = t;
    return ref_buf_cells(b);
}

const ref_cell *ev_cells(ref_eval *v, const ref_tensor *t) {
    if (t->cell) return t->cell;
    if (!t->konst) {
        ev_error(v, "an operand has no value here");
        return NULL;
    }
    if (!ref_dtype_ok(t->type.dtype)) {
        err_set(v->e, ERR_UNSUPPORTED, "%s tensors are not supported at run time", dtype_name(t->type.dtype));
        return NULL;
    }
    int64_t n = ref_count(t);
    if (n > KEEP_CELLS) {
        ref_cell *cell = ev_temp(v, n);
        if (cell) ref_read(t, 0, n, cell);
        return cell;
    }
    ref_buf *b = ref_buf_new(n, v->e);
    if (!b) return NULL;
    ref_read(t, 0, n, ref_buf_cells(b));
    ref_tensor *keep = (ref_tensor *)t; /* operands live in env, which is ours */
    keep->buf = b;
    keep->cell = ref_buf_cells(b);
    return keep->cell;
}

const float *ev_floats(ref_eval *v, const ref_tensor *t) {
    return (const float *)(const void *)ev_cells(v, t);
}

const int32_t *ev_ints(ref_eval *v, const ref_tensor *t) {
    return (const int32_t *)(const void *)ev_cells(v, t);
}

/* ---- what inference asks ---- */

static ir_type env_type(void *ctx, const ir_value *x) {
    const ref_tensor *t = ev_value(ctx, x);
    return x->type.kind == IR_TENSOR && (t->cell || t->konst) ? t->type : x->type;
}

static const double *env_numbers(void *ctx, const ir_value *x, size_t *n, arena *a) {
    ref_eval *v = ctx;
    const ref_tensor *t = ev_value(v, x);
    if ((!t->cell && !t->konst) || !ref_dtype_ok(t->type.dtype)) return NULL;
    int64_t count = ref_count(t);
    if (count > MAX_NUMBERS) return NULL;
    double *d = ARENA_ARRAY(a, double, (size_t)count);
    *n = (size_t)count;
    bool is_float = dtype_is_float(t->type.dtype), is_wide = t->type.dtype == DT_UINT32;
    for (int64_t i = 0; i < count; i++) {
        ref_cell c;
        float f;
        ref_read(t, i, 1, &c);
        memcpy(&f, &c, 4);
        d[i] = is_float ? (double)f : is_wide ? (double)c : (double)(int32_t)c;
    }
    return d;
}

ir_env ev_env(ref_eval *v) {
    return (ir_env){.ctx = v, .type = env_type, .numbers = env_numbers};
}

/* ---- small operands ---- */

static const double *numbers(ref_eval *v, ir_operand name, size_t *n) {
    const ir_value *x = ir_in(v->op, name);
    *n = 0;
    return x ? env_numbers(v, x, n, v->scratch) : NULL;
}

int64_t ev_int(ref_eval *v, ir_operand name, int64_t fallback) {
    size_t n;
    const double *d = numbers(v, name, &n);
    return d && n ? (int64_t)d[0] : fallback;
}

bool ev_bool(ref_eval *v, ir_operand name, bool fallback) {
    return ev_int(v, name, fallback) != 0;
}

float ev_float(ref_eval *v, ir_operand name, float fallback) {
    size_t n;
    const double *d = numbers(v, name, &n);
    return d && n ? (float)d[0] : fallback;
}

const char *ev_text(ref_eval *v, ir_operand name, const char *fallback) {
    return ir_env_text(v->op, name, fallback);
}

const int64_t *ev_list(ref_eval *v, ir_operand name, size_t *n) {
    const double *d = numbers(v, name, n);
    if (!d) return NULL;
    int64_t *r = ARENA_ARRAY(v->scratch, int64_t, *n);
    for (size_t i = 0; i < *n; i++) r[i] = (int64_t)d[i];
    return r;
}

int ev_axis(ref_eval *v, ir_operand name, int64_t fallback, int rank) {
    int64_t axis = ev_int(v, name, fallback);
    if (ir_axis(&axis, rank)) return (int)axis;
    ev_error(v, "%s %lld is out of range for rank %d", ir_operand_name(name), (long long)axis, rank);
    return -1;
}

bool ev_axes(ref_eval *v, ir_operand name, int rank, uint32_t *set) {
    size_t n;
    const int64_t *axes = ev_list(v, name, &n);
    *set = axes ? 0 : (1u << rank) - 1;
    for (size_t i = 0; axes && i < n; i++) {
        int64_t axis = axes[i];
        if (!ir_axis(&axis, rank))
            return ev_fail(v, "%s %lld is out of range for rank %d", ir_operand_name(name), (long long)axis,
                           rank);
        *set |= 1u << axis;
    }
    return true;
}

/* ---- results ---- */

/* A spare buffer that fits without wasting more than half of it. */
static ref_buf *take_spare(ref_eval *v, int64_t cells) {
    for (int i = 0; i < REF_SPARES && cells >= SPARE_CELLS; i++) {
        ref_buf *b = v->spare[i];
        if (!b || ref_buf_size(b) < cells || ref_buf_size(b) / 2 > cells) continue;
        v->spare[i] = NULL;
        ref_buf_set_half(b, false);
        return b;
    }
    return NULL;
}

void ref_eval_release(ref_eval *v, ref_tensor *t) {
    ref_buf *b = t->buf;
    if (b && ref_buf_size(b) >= SPARE_CELLS && ref_buf_sole(b)) {
        ref_buf_drop(v->spare[REF_SPARES - 1]); /* the oldest */
        memmove(v->spare + 1, v->spare, (REF_SPARES - 1) * sizeof *v->spare);
        v->spare[0] = b;
        t->buf = NULL;
    }
    ref_tensor_drop(t);
}

void ref_eval_free_spares(ref_eval *v) {
    for (int i = 0; i < REF_SPARES; i++) {
        ref_buf_drop(v->spare[i]);
        v->spare[i] = NULL;
    }
}

bool ev_new(ref_eval *v, uint32_t i) {
    ref_tensor *o = &v->out[i];
    o->buf = ref_dtype_ok(o->type.dtype) ? take_spare(v, ref_count(o)) : NULL;
    if (o->buf) {
        o->cell = ref_buf_cells(o->buf);
        return true;
    }
    ir_type type = o->type;
    return ref_tensor_new(o, &type, v->e);
}

bool ev_view(ref_eval *v, uint32_t i, const ref_tensor *t, int64_t first) {
    const ref_cell *cell = ev_cells(v, t);
    if (!cell) return false;
    ref_tensor *o = &v->out[i];
    if (!t->buf) { /* a large constant, expanded for this op only: the newest temp holds it */
        o->buf = ref_buf_keep(v->temps->buf);
        o->cell = ref_buf_cells(o->buf) + first;
        return true;
    }
    o->buf = ref_buf_keep(t->buf);
    o->cell = (ref_cell *)cell + first;
    return true;
}

bool ev_may_reuse(const ref_eval *v, ir_operand name) {
    const ir_value *x = ir_in(v->op, name);
    if (!x || v->env[x->id].konst || !ref_buf_sole(v->env[x->id].buf)) return false;
    for (size_t i = 0; i < v->n_dies; i++)
        if (v->dies[i] == x->id) return true;
    return false;
}

static bool check_types(ref_eval *v, const ir_op *op, const ir_type *types) {
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ir_type *want = &op->out[i]->type;
        if (!ir_type_compatible(&types[i], want))
            return ev_fail(v, "%s is declared %s but comes out as %s", op->out[i]->name,
                           ir_type_text(v->scratch, want), ir_type_text(v->scratch, &types[i]));
        if (!ir_type_known(&types[i]) && op->code != OP_non_zero)
            return ev_fail(v, "%s has no known size", op->out[i]->name);
    }
    return true;
}

/* Every operand has a value that op bodies can read: cells, or a constant's bytes. */
static bool check_operands(ref_eval *v, const ir_op *op) {
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) {
            const ref_tensor *t = ev_value(v, op->arg[i].v[k]);
            ir_dtype d = t->type.dtype;
            const char *name = ir_operand_name(ir_info(op->code)->slot[i].name);
            if ((!t->cell && !t->konst) || t->type.kind != IR_TENSOR)
                return ev_fail(v, "operand %s has no value", name);
            if (!t->cell && !ref_dtype_ok(d) && d != DT_STRING)
                return err_set(v->e, ERR_UNSUPPORTED, "operand %s: %s is not supported at run time", name,
                               dtype_name(d));
        }
    return true;
}

static bool run_body(ref_eval *v, const ir_op *op) {
    const ref_op_row *row = ref_op_row_of(op->code);
    if (!row->fn) return err_set(v->e, ERR_UNSUPPORTED, "this op can't be evaluated");
    if (!check_operands(v, op) || (op->code == OP_slice_update && !ev_check_update(v))) return false;
    ir_env env = ev_env(v);
    ir_type *types = ARENA_ARRAY(v->scratch, ir_type, op->n_out);
    if (!ir_infer_op(op, v->spec, &env, types, v->scratch, v->e) || !check_types(v, op, types)) return false;
    for (uint32_t i = 0; i < op->n_out; i++) v->out[i].type = types[i];
    if (!row->fn(v)) return false;
    for (uint32_t i = 0; i < op->n_out && v->mode == REF_STRICT; i++) {
        ref_tensor *o = &v->out[i];
        if (o->type.dtype != DT_FP16) continue;
        if (!row->exact) num_round_f16_all(ref_floats(o), (size_t)ref_count(o));
        if (!ref_buf_half(o->buf)) ref_buf_set_half(o->buf, true); /* a shared buffer must not be written */
    }
    return true;
}

bool ref_eval_op(ref_eval *v, const ir_op *op) {
    v->op = op;
    v->temps = NULL;
    v->out = ARENA_ARRAY(v->scratch, ref_tensor, op->n_out);
    bool ok = run_body(v, op);
    if (!ok)
        err_where(v->e, "op %s (%s)",
                  op->n_out  ? op->out[0]->name
                  : op->name ? op->name
                             : "?",
                  ir_info(op->code)->name);
    for (uint32_t i = 0; i < op->n_out; i++) {
        ref_tensor_drop(ok ? &v->env[op->out[i]->id] : &v->out[i]);
        if (ok) v->env[op->out[i]->id] = v->out[i];
    }
    for (struct ev_temp *t = v->temps; t; t = t->next) ref_buf_drop(t->buf);
    v->temps = NULL;
    arena_reset(v->scratch);
    return ok;
}
