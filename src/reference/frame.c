#include "reference/frame.h"
#include "base/num.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a value holds besides finite numbers. */
enum { HAS_INF = 1, HAS_NAN = 2, SCANNED = 4 };

struct ref_frame {
    const ref_plan *plan;
    arena *a, *scratch;
    ref_tensor *env; /* by value id */
    bool *constant;  /* by value id: survives a run */
    uint8_t *finite; /* by value id: SCANNED and what was found */
    uint32_t *slot;  /* by value id: 1 + index of keep[], 0: not kept */
    ref_tensor *kept;
    size_t n_kept;
    ref_eval v;
    const ref_frame_call *call;
    int iterations;
};

static bool add_constants(ref_frame *f, const ir_block *b, err *e) {
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) {
                const ir_value *v = op->arg[s].v[k];
                if (v->konst && !v->def && !ref_tensor_const(&f->env[v->id], v->konst, e)) return false;
                f->constant[v->id] |= v->konst != NULL;
            }
        for (uint32_t k = 0; k < op->n_out; k++) {
            const ir_value *v = op->out[k];
            if (v->konst && !ref_tensor_const(&f->env[v->id], v->konst, e))
                return err_where(e, "%s", v->name);
            f->constant[v->id] = ir_info(op->code)->flags & (OPF_CONST | OPF_CONSTEXPR);
        }
        for (uint32_t k = 0; k < op->n_block; k++)
            if (!add_constants(f, op->block[k], e)) return false;
    }
    return true;
}

ref_frame *ref_frame_new(const ref_plan *plan, ref_mode mode, err *e) {
    arena *a = arena_new();
    ref_frame *f = ARENA_NEW(a, ref_frame);
    uint32_t n = plan->f->n_values;
    f->plan = plan;
    f->a = a;
    f->scratch = arena_new();
    f->env = mem_try(n, sizeof *f->env);
    f->constant = ARENA_ARRAY(a, bool, n);
    f->finite = ARENA_ARRAY(a, uint8_t, n);
    f->slot = ARENA_ARRAY(a, uint32_t, n);
    f->v = (ref_eval){.mode = mode, .spec = plan->f->spec, .env = f->env, .scratch = f->scratch};
    if (!f->env) err_set(e, ERR_MEMORY, "no memory for the %u values of function %s", n, plan->f->name);
    if (f->env && add_constants(f, &plan->f->body, e)) return f;
    ref_frame_free(f);
    return NULL;
}

void ref_frame_clear(ref_frame *f) {
    ref_eval_free_spares(&f->v);
    for (uint32_t i = 0; f->env && i < f->plan->f->n_values; i++)
        if (!f->constant[i]) ref_tensor_drop(&f->env[i]);
    for (size_t i = 0; i < f->n_kept; i++) ref_tensor_drop(&f->kept[i]);
    mem_free(f->kept);
    f->kept = NULL;
    f->n_kept = 0;
}

void ref_frame_free(ref_frame *f) {
    if (!f) return;
    ref_frame_clear(f);
    for (uint32_t i = 0; f->env && i < f->plan->f->n_values; i++) ref_tensor_drop(&f->env[i]);
    mem_free(f->env);
    arena_free(f->scratch);
    arena_free(f->a);
}

/* ---- NaN and infinity ---- */

static uint8_t scan(const ref_tensor *t) {
    enum { CHUNK = 1024 };
    float x[CHUNK];
    uint8_t found = SCANNED;
    if (!dtype_is_float(t->type.dtype) || (!t->cell && !t->konst)) return found;
    for (int64_t at = 0, n = ref_count(t); at < n; at += CHUNK) {
        int64_t k = n - at < CHUNK ? n - at : CHUNK;
        ref_read(t, at, k, x);
        for (int64_t i = 0; i < k; i++) {
            if (isnan(x[i]))
                found |= HAS_NAN;
            else if (isinf(x[i]))
                found |= HAS_INF;
        }
    }
    return found;
}

static uint8_t finite_of(ref_frame *f, const ir_value *v) {
    if (!f->finite[v->id]) f->finite[v->id] = scan(&f->env[v->id]);
    return f->finite[v->id];
}

/* An infinity among the operands (a mask) excuses infinities, but not NaN. */
static bool check_finite(ref_frame *f, const ir_op *op, err *e) {
    uint8_t before = 0;
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) before |= finite_of(f, op->arg[i].v[k]);
    for (uint32_t k = 0; k < op->n_out; k++) {
        f->finite[op->out[k]->id] = 0;
        uint8_t after = finite_of(f, op->out[k]);
        const char *what = after & HAS_NAN && !(before & HAS_NAN)    ? "a NaN"
                           : after & HAS_INF && !(before & ~SCANNED) ? "an infinity"
                                                                     : NULL;
        if (what)
            return err_set(e, ERR_NUMERIC, "op %s (%s) is the first that makes %s", op->out[k]->name,
                           ir_info(op->code)->name, what);
    }
    return true;
}

/* ---- states ---- */

static ref_tensor *state_of(ref_frame *f, const ir_op *op, err *e) {
    const ir_value *s = ir_in(op, A_input);
    for (size_t i = 0; i < f->plan->f->n_in; i++)
        if (f->plan->f->in[i] == s && f->call->state[i] && f->call->state[i]->cell) return f->call->state[i];
    err_set(e, ERR_INVALID, "%s: %s is no state here", ir_info(op->code)->name,
            s && s->name ? s->name : "operand input");
    return NULL;
}

static bool read_state(ref_frame *f, const ir_op *op, const ref_op_plan *plan, err *e) {
    ref_tensor *s = state_of(f, op, e);
    if (!s) return false;
    ref_tensor *to = &f->env[op->out[0]->id];
    ref_tensor_drop(to);
    *to = *s;
    to->type.kind = IR_TENSOR;
    f->finite[op->out[0]->id] = 0;
    if (plan->take)
        s->buf = NULL, s->cell = NULL; /* written before it is read again */
    else
        ref_buf_keep(to->buf);
    return true;
}

/* States hold what their declared type can hold. */
static bool write_state(ref_frame *f, const ir_op *op, const ref_op_plan *plan, err *e) {
    const ir_value *s = ir_in(op, A_input);
    ref_tensor *state = NULL;
    const ref_tensor *t = &f->env[ir_in(op, A_data)->id];
    for (size_t i = 0; i < f->plan->f->n_in; i++)
        if (f->plan->f->in[i] == s) state = f->call->state[i];
    if (!state || (!t->cell && !t->konst))
        return err_set(e, ERR_INVALID, "write_state: no state %s", s->name);
    if (t->type.dtype != state->type.dtype || t->type.rank != state->type.rank ||
        memcmp(t->type.dim, state->type.dim, (size_t)t->type.rank * sizeof t->type.dim[0]))
        return err_set(e, ERR_INVALID, "write_state: %s gets %s, it is %s", s->name,
                       ir_type_text(f->scratch, &t->type), ir_type_text(f->scratch, &state->type));
    bool round = t->type.dtype == DT_FP16 && !(t->buf && ref_buf_half(t->buf)), dies = false;
    for (uint32_t i = 0; i < plan->n_dies; i++) dies |= plan->dies[i] == ir_in(op, A_data)->id;
    ref_tensor fresh = *t;
    if (!t->cell || (round && !(dies && ref_buf_sole(t->buf)))) {
        if (!ref_tensor_new(&fresh, &t->type, e)) return false;
        ref_read(t, 0, ref_count(t), fresh.cell);
    } else {
        ref_buf_keep(fresh.buf);
    }
    if (round) {
        num_round_f16_all(ref_floats(&fresh), (size_t)ref_count(&fresh));
        ref_buf_set_half(fresh.buf, true); /* nobody else sees the buffer */
    }
    fresh.konst = NULL;
    fresh.type = state->type;
    ref_buf_drop(state->buf);
    *state = fresh;
    return true;
}

/* ---- blocks ---- */

static bool run_block(ref_frame *f, const ir_block *b, const ref_block_plan *plan, err *e);

/* to = from, sharing the cells. */
static void share(ref_tensor *to, const ref_tensor *from) {
    ref_buf *old = to->buf;
    ref_buf_keep(from->buf);
    *to = *from;
    ref_buf_drop(old);
}

/* A value made here and now. */
static void put(ref_frame *f, const ir_value *v, const ref_tensor *from) {
    share(&f->env[v->id], from);
    f->finite[v->id] = 0;
}

static void release_block(ref_frame *f, const ref_block_plan *plan) {
    for (size_t i = 0; i < plan->n_defs; i++) ref_tensor_drop(&f->env[plan->defs[i]]);
}

/* Reads a bool scalar. */
static bool flag(ref_frame *f, const ir_value *v, bool *on, err *e) {
    const ref_tensor *t = &f->env[v->id];
    int32_t c = 0;
    if ((!t->cell && !t->konst) || ref_count(t) != 1 || t->type.dtype != DT_BOOL)
        return err_set(e, ERR_INVALID, "%s is no bool scalar", v->name ? v->name : "the condition");
    ref_read(t, 0, 1, &c);
    *on = c != 0;
    return true;
}

/* A block's results as the op's. */
static void take_results(ref_frame *f, const ir_op *op, const ir_block *b) {
    for (uint32_t k = 0; k < op->n_out; k++) put(f, op->out[k], &f->env[b->out[k]->id]);
}

static bool run_cond(ref_frame *f, const ir_op *op, const ref_op_plan *plan, err *e) {
    bool on = false;
    if (op->n_block != 2 || !flag(f, ir_in(op, A_pred), &on, e))
        return err_set(e, ERR_INVALID, "cond needs two blocks");
    const ir_block *b = op->block[!on];
    if (b->n_out != op->n_out) return err_set(e, ERR_INVALID, "cond: a block has %zu results", b->n_out);
    if (!run_block(f, b, plan->block[!on], e)) return false;
    take_results(f, op, b);
    release_block(f, plan->block[!on]);
    return true;
}

/* The op's results serve as the loop variables between iterations. */
static bool run_while(ref_frame *f, const ir_op *op, const ref_op_plan *plan, err *e) {
    const ir_arg *vars = ir_args(op, A_loop_vars);
    if (op->n_block != 2 || vars->n != op->n_out)
        return err_set(e, ERR_INVALID, "while_loop needs two blocks");
    const ir_block *cond = op->block[0], *body = op->block[1];
    if (cond->n_in != vars->n || body->n_in != vars->n || cond->n_out != 1 || body->n_out != vars->n)
        return err_set(e, ERR_INVALID, "while_loop: the blocks don't fit the loop variables");
    for (uint32_t i = 0; i < vars->n; i++) put(f, op->out[i], &f->env[vars->v[i]->id]);
    for (;;) {
        bool on = false;
        for (uint32_t i = 0; i < vars->n; i++) put(f, cond->in[i], &f->env[op->out[i]->id]);
        if (!run_block(f, cond, plan->block[0], e) || !flag(f, cond->out[0], &on, e)) return false;
        release_block(f, plan->block[0]);
        if (!on) return true;
        if (++f->iterations > REF_MAX_ITERATIONS)
            return err_set(e, ERR_LIMIT, "more than %d loop iterations", REF_MAX_ITERATIONS);
        for (uint32_t i = 0; i < vars->n; i++) {
            put(f, body->in[i], &f->env[op->out[i]->id]);
            ref_tensor_drop(&f->env[op->out[i]->id]);
        }
        if (!run_block(f, body, plan->block[1], e)) return false;
        take_results(f, op, body);
        release_block(f, plan->block[1]);
    }
}

static bool run_op(ref_frame *f, const ir_op *op, const ref_op_plan *plan, err *e) {
    const ir_op_info *info = ir_info(op->code);
    switch (op->code) {
    case OP_const: return true;
    case OP_cond: return run_cond(f, op, plan, e) || err_where(e, "op %s", op->name ? op->name : info->name);
    case OP_while_loop:
        return run_while(f, op, plan, e) || err_where(e, "op %s", op->name ? op->name : info->name);
    case OP_read_state: return read_state(f, op, plan, e);
    case OP_write_state: return write_state(f, op, plan, e);
    default: break;
    }
    if (info->flags & OPF_CONSTEXPR && op->n_out && f->env[op->out[0]->id].cell) return true;
    f->v.e = e;
    f->v.dies = plan->dies;
    f->v.n_dies = plan->n_dies;
    f->v.to_state = plan->to_state;
    return ref_eval_op(&f->v, op) && (!f->call->find_nonfinite || check_finite(f, op, e));
}

static void observe(const ref_frame *f, const ir_op *op) {
    if (ir_info(op->code)->flags & (OPF_CONST | OPF_CONSTEXPR)) return;
    for (uint32_t k = 0; k < op->n_out; k++) {
        const ref_tensor *t = &f->env[op->out[k]->id];
        if (t->cell && dtype_is_float((ir_dtype)t->type.dtype))
            f->call->observe(f->call->observe_ctx, op->out[k], t);
    }
}

static bool run_block(ref_frame *f, const ir_block *b, const ref_block_plan *plan, err *e) {
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        if (f->call->cancel && atomic_load_explicit(f->call->cancel, memory_order_relaxed))
            return err_set(e, ERR_CANCELLED, "cancelled");
        if (!run_op(f, op, &plan->op[i], e)) return false;
        if (f->call->observe) observe(f, op);
        for (uint32_t k = 0; k < op->n_out && f->n_kept; k++) {
            uint32_t slot = f->slot[op->out[k]->id];
            if (slot) share(&f->kept[slot - 1], &f->env[op->out[k]->id]);
        }
        for (uint32_t k = 0; k < plan->op[i].n_dies; k++)
            ref_eval_release(&f->v, &f->env[plan->op[i].dies[k]]);
    }
    return true;
}

bool ref_frame_run(ref_frame *f, const ref_frame_call *call, err *e) {
    const ir_function *fn = f->plan->f;
    ref_frame_clear(f);
    f->call = call;
    f->iterations = 0;
    memset(f->slot, 0, fn->n_values * sizeof *f->slot);
    memset(f->finite, 0, fn->n_values);
    f->kept = mem_alloc(call->n_keep * sizeof *f->kept);
    memset(f->kept, 0, call->n_keep * sizeof *f->kept);
    f->n_kept = call->n_keep;
    for (size_t i = 0; i < call->n_keep; i++) f->slot[call->keep[i]->id] = (uint32_t)i + 1;
    for (size_t i = 0; i < fn->n_in; i++) {
        if (fn->in[i]->type.kind != IR_TENSOR) continue;
        share(&f->env[fn->in[i]->id], &call->in[i]);
        if (f->slot[fn->in[i]->id]) share(&f->kept[f->slot[fn->in[i]->id] - 1], &call->in[i]);
    }
    bool ok = run_block(f, &fn->body, f->plan->body, e);
    f->call = NULL;
    arena_reset(f->scratch);
    if (!ok) ref_frame_clear(f);
    return ok || err_where(e, "function %s", fn->name);
}

/* A value with its cells; packed constants are expanded. */
static const ref_tensor *with_cells(ref_frame *f, ref_tensor *t, const char *name, err *e) {
    f->v.e = e;
    if (!t->cell && t->konst) {
        ref_tensor full;
        if (!ref_tensor_new(&full, &t->type, e)) return NULL;
        ref_read(t, 0, ref_count(t), full.cell);
        full.konst = t->konst;
        *t = full;
    }
    if (t->cell) return t;
    err_set(e, ERR_INVALID, "%s was not computed", name);
    return NULL;
}

const ref_tensor *ref_frame_result(ref_frame *f, size_t i, err *e) {
    const ir_value *v = f->plan->f->body.out[i];
    return with_cells(f, &f->env[v->id], v->name, e);
}

const ref_tensor *ref_frame_kept(ref_frame *f, size_t i, err *e) {
    ref_tensor *t = &f->kept[i];
    for (uint32_t id = 0; !t->cell && !t->konst && id < f->plan->f->n_values; id++)
        if (f->slot[id] == i + 1) t = &f->env[id]; /* a constant */
    return with_cells(f, t, "the value", e);
}
