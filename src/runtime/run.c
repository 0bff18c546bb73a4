/* A run of a function: inputs by name, the packages' parts in order, results. */
#include "runtime/run.h"
#include "base/clock.h"
#include "base/num.h"
#include "runtime/interface.h"
#include <stdlib.h>
#include <string.h>

static const ref_tensor *pool_find(const run *r, const char *name) {
    for (size_t i = 0; i < r->n_pool; i++)
        if (!strcmp(r->pool[i].name, name)) return &r->pool[i].t;
    return NULL;
}

/* Takes t over; a later tensor of the same name replaces an earlier one. */
static void pool_put(run *r, const char *name, ref_tensor t) {
    for (size_t i = 0; i < r->n_pool; i++)
        if (!strcmp(r->pool[i].name, name)) {
            ref_tensor_drop(&r->pool[i].t);
            r->pool[i].t = t;
            return;
        }
    r->pool = mem_realloc(r->pool, (r->n_pool + 1) * sizeof *r->pool);
    r->pool[r->n_pool++] = (run_named){name, t};
}

/* What leaves a program is a number of its type: fast mode rounds here. */
static bool rounded(ref_tensor *to, const ref_tensor *t, err *e) {
    bool round = t->type.dtype == DT_FP16 && !ref_buf_half(t->buf);
    if (!round) {
        *to = *t;
        ref_buf_keep(to->buf);
    } else {
        if (!ref_tensor_new(to, &t->type, e)) return false;
        ref_read(t, 0, ref_count(t), to->cell);
        num_round_f16_all(ref_floats(to), (size_t)ref_count(to));
        ref_buf_set_half(to->buf, true);
    }
    to->konst = NULL;
    return true;
}

static const ir_value *value_named(const ir_block *b, const char *name) {
    for (size_t i = 0; i < b->n_op; i++) {
        for (uint32_t k = 0; k < b->op[i]->n_out; k++)
            if (!strcmp(b->op[i]->out[k]->name, name)) return b->op[i]->out[k];
        for (uint32_t k = 0; k < b->op[i]->n_block; k++) {
            const ir_value *v = value_named(b->op[i]->block[k], name);
            if (v) return v;
        }
    }
    return NULL;
}

static size_t find_values(run *r, const ir_function *f) {
    size_t n = 0;
    for (size_t i = 0; i < r->c->n_values; i++) {
        if (r->value[i].t.cell) continue;
        const ir_value *v = value_named(&f->body, r->c->values[i]);
        for (size_t k = 0; !v && k < f->n_in; k++)
            if (f->in[k]->type.kind == IR_TENSOR && !strcmp(f->in[k]->name, r->c->values[i])) v = f->in[k];
        if (!v) continue;
        r->keep[n] = v;
        r->keep_name[n++] = i;
    }
    return n;
}

/* The function's inputs from the pool; a part of a pipeline may declare another float type than the one
 * before. */
static bool bind_input(run *r, const ir_value *v, ref_tensor *in, err *e) {
    const ref_tensor *t = pool_find(r, v->name);
    if (!t) return err_set(e, ERR_INVALID, "input %s comes from nowhere", v->name);
    ref_tensor as = {.type = t->type, .buf = t->buf, .cell = t->cell};
    as.type.dtype = v->type.dtype;
    bool same = t->type.dtype == v->type.dtype;
    bool floats = dtype_is_float((ir_dtype)t->type.dtype) && dtype_is_float((ir_dtype)v->type.dtype);
    if (!ir_type_compatible(&as.type, &v->type) || (!same && !floats))
        return err_set(e, ERR_INVALID, "input %s does not have the type that the program declares", v->name);
    return rounded(in, &as, e);
}

static void show(void *ctx, const ir_value *v, const ref_tensor *t) {
    const rt_session *s = ctx;
    s->observe(s->observe_ctx, v, ref_floats(t), (size_t)ref_count(t));
}

bool rt_run_evaluate(run *r, const rt_function *fn, const ref_tensor *in, err *e) {
    const ir_function *f = fn->plan->f;
    rt_session *s = r->s;
    ref_frame **frame = &s->frame[fn->serial];
    if (!*frame) *frame = ref_frame_new(fn->plan, s->mode == RT_STRICT ? REF_STRICT : REF_FAST, e);
    if (!*frame) return false;
    size_t n_keep = find_values(r, f);
    ref_tensor **states = mem_alloc(f->n_in * sizeof *states);
    bool ok = true;
    for (size_t i = 0; i < f->n_in && ok; i++) {
        bool is_state = fn->state[i] != SIZE_MAX;
        states[i] = is_state ? &s->state[fn->state[i]]->t : NULL;
        ok = !is_state || session_state_cells(s, fn->state[i], e);
    }
    ref_frame_call call = {in, states,      r->keep, n_keep, r->c->find_nonfinite, s->observe ? show : NULL,
                           s,  r->c->cancel};
    r->begun |= ok;
    ok = ok && ref_frame_run(*frame, &call, e);
    for (size_t i = 0; i < f->body.n_out && ok; i++) {
        const ref_tensor *t = ref_frame_result(*frame, i, e);
        ref_tensor out;
        ok = t && rounded(&out, t, e);
        if (ok) pool_put(r, f->body.out[i]->name, out);
    }
    for (size_t i = 0; i < n_keep && ok; i++) {
        const ref_tensor *t = ref_frame_kept(*frame, i, e);
        ok = t && rounded(&r->value[r->keep_name[i]].t, t, e);
        if (!t) err_where(e, "value %s", r->c->values[r->keep_name[i]]);
    }
    mem_free(states);
    ref_frame_clear(*frame);
    return ok;
}

bool rt_run_states(run *r, const rt_function *fn, void **states, err *e) {
    bool ok = true;
    for (size_t i = 0; i < fn->plan->f->n_in && ok; i++) {
        bool is_state = fn->state[i] != SIZE_MAX;
        states[i] = is_state ? session_state_packed(r->s, fn->state[i], true, e) : NULL;
        ok = !is_state || states[i];
    }
    r->begun |= ok;
    return ok;
}

void rt_run_outputs(run *r, const rt_function *fn, const ref_tensor *out) {
    const ir_function *f = fn->plan->f;
    for (size_t i = 0; i < f->body.n_out; i++) pool_put(r, f->body.out[i]->name, out[i]);
}

/* The plan runs it. */
static bool walk_plan(run *r, const rt_function *fn, plan_exec *x, const ref_tensor *in, err *e) {
    const ir_function *f = fn->plan->f;
    void **states = mem_alloc(f->n_in * sizeof *states);
    ref_tensor *out = mem_alloc((f->body.n_out + 1) * sizeof *out);
    bool ok = rt_run_states(r, fn, states, e) &&
              engine_run(r->engine, x, in, out, states, rt_run_borrows(r), r->c->cancel, e);
    if (ok) rt_run_outputs(r, fn, out);
    mem_free(states);
    mem_free(out);
    return ok;
}

bool rt_run_looks_inside(const run *r) {
    return r->c->n_values || r->c->find_nonfinite || r->s->observe;
}

bool rt_run_inputs(run *r, const rt_function *fn, ref_tensor *in, err *e) {
    const ir_function *f = fn->plan->f;
    bool ok = true;
    for (size_t i = 0; i < f->n_in && ok; i++)
        if (fn->state[i] == SIZE_MAX) ok = bind_input(r, f->in[i], &in[i], e);
    return ok;
}

static bool run_function(run *r, const rt_function *fn, err *e) {
    const ir_function *f = fn->plan->f;
    ref_tensor *in = mem_alloc(f->n_in * sizeof *in);
    memset(in, 0, f->n_in * sizeof *in);
    bool ok = rt_run_inputs(r, fn, in, e);
    plan_exec *x = ok && r->engine && !rt_run_looks_inside(r) ? engine_prepare(r->engine, fn, in, e) : NULL;
    ok = ok && !e->code && (x ? walk_plan(r, fn, x, in, e) : rt_run_evaluate(r, fn, in, e));
    for (size_t i = 0; i < f->n_in; i++) ref_tensor_drop(&in[i]);
    mem_free(in);
    return ok;
}

static bool run_part(run *r, const rt_part *part, const char *function, err *e) {
    for (size_t i = 0; i < part->n_part; i++)
        if (!run_part(r, &part->part[i], NULL, e)) return err_where(e, "part %zu of the pipeline", i);
    if (part->n_part) return true;
    const rt_function *fn = rt_function_find(part, function, e);
    return fn && run_function(r, fn, e);
}

/* Checks what the caller gave and puts it in the pool. */
static bool take_inputs(run *r, const coreml_function *desc, err *e) {
    const rt_call *c = r->c;
    if (!rt_check_inputs(desc, c->in, c->n_in, e)) return false;
    for (size_t i = 0; i < desc->n_in; i++) {
        ref_tensor t;
        if (!rt_make_input(&t, &desc->in[i], c->in, c->n_in, e)) return false;
        pool_put(r, desc->in[i].name, t);
    }
    return true;
}

static bool give_tensor(run *r, size_t i, const char *name, const ref_tensor *t, err *e) {
    if (dtype_bits((ir_dtype)t->type.dtype) < 8)
        return err_set(e, ERR_UNSUPPORTED, "%s is %s, which can't be returned", name,
                       dtype_name((ir_dtype)t->type.dtype));
    ir_dtype d = (ir_dtype)t->type.dtype;
    bool round = r->c->wide && d == DT_FP16;
    if ((d == DT_FP32 || d == DT_INT32 || round) && r->engine && engine_holds(r->engine, t->buf)) {
        rt_tensor *o = &r->c->out[i];
        *o = (rt_tensor){name, t->type, t->cell}; /* until the next run */
        if (round) o->type.dtype = DT_FP32, num_round_f16_all(ref_floats(t), (size_t)ref_count(t));
        return true;
    }
    void *data = mem_try((size_t)ir_type_bytes(&t->type), 1);
    if (!data) return err_set(e, ERR_MEMORY, "no memory for output %s", name);
    ref_pack(t, data);
    r->s->out[i] = data;
    r->c->out[i] = (rt_tensor){name, t->type, data};
    return true;
}

static bool give_results(run *r, const coreml_function *desc, err *e) {
    rt_call *c = r->c;
    r->s->n_out = desc->n_out + c->n_values;
    r->s->out = mem_alloc(r->s->n_out * sizeof *r->s->out);
    memset(r->s->out, 0, r->s->n_out * sizeof *r->s->out);
    for (size_t i = 0; i < desc->n_out; i++) {
        const ref_tensor *t = pool_find(r, desc->out[i].name);
        if (!t) return err_set(e, ERR_INVALID, "output %s is not made by the program", desc->out[i].name);
        if (!give_tensor(r, i, desc->out[i].name, t, e)) return false;
    }
    for (size_t i = 0; i < c->n_values; i++) {
        if (!r->value[i].t.cell) return err_set(e, ERR_USAGE, "there is no value %s", c->values[i]);
        if (!give_tensor(r, desc->n_out + i, c->values[i], &r->value[i].t, e)) return false;
    }
    c->n_out = desc->n_out;
    return true;
}

static bool cancelled(const rt_call *c, err *e) {
    return c->cancel && atomic_load_explicit(c->cancel, memory_order_relaxed) &&
           !err_set(e, ERR_CANCELLED, "cancelled");
}

bool rt_run_open(run *r, rt_session *s, rt_call *c, engine *g, err *e) {
    *r = (run){.s = s, .c = c, .engine = g, .fn = rt_function_find(&s->m->root, c->function, e)};
    if (!r->fn || cancelled(c, e)) return false;
    r->keep = mem_alloc(c->n_values * sizeof *r->keep);
    r->keep_name = mem_alloc(c->n_values * sizeof *r->keep_name);
    r->value = mem_alloc(c->n_values * sizeof *r->value);
    memset(r->value, 0, c->n_values * sizeof *r->value);
    session_drop_results(s);
    return take_inputs(r, r->fn->desc, e) || rt_run_close(r, false, 0, e);
}

bool rt_run_close(run *r, bool ok, double seconds, err *e) {
    rt_session *s = r->s;
    ok = ok && give_results(r, r->fn->desc, e);
    if (!ok) session_drop_results(s);
    if (!ok && e->code == ERR_USAGE) err_where(e, "%s: function %s", rt_model_path(s->m), r->fn->desc->name);
    if (!ok && r->begun && !r->c->leave_states) rt_state_reset(s);
    if (ok) s->calls++, s->seconds += seconds;
    session_join_states(s, seconds);
    for (size_t i = 0; i < r->n_pool; i++) ref_tensor_drop(&r->pool[i].t);
    for (size_t i = 0; i < r->c->n_values; i++) ref_tensor_drop(&r->value[i].t);
    mem_free(r->pool);
    mem_free(r->keep);
    mem_free(r->keep_name);
    mem_free(r->value);
    return ok;
}

bool rt_run(rt_session *s, rt_call *c, err *e) {
    double start = clock_seconds();
    run r;
    if (!rt_run_open(&r, s, c, s->engine, e)) return false;
    bool ok = run_part(&r, &s->m->root, r.fn->desc->name, e);
    return rt_run_close(&r, ok, clock_seconds() - start, e);
}
