#include "runtime/session.h"
#include "base/clock.h"
#include "base/num.h"
#include "reference/frame.h"
#include "runtime/engine.h"
#include "runtime/interface.h"
#include "runtime/parts.h"
#include <stdlib.h>
#include <string.h>

/* A state in the form that last changed it: cells for the evaluator, packed elements for plans. Neither:
 * zero.
 */
typedef struct {
    ref_tensor t;
    ref_buf *packed;
    size_t holders; /* sessions that have it */
} state;

struct rt_session {
    const rt_model *m;
    rt_mode mode;
    engine *engine;    /* NULL: everything is evaluated */
    ref_frame **frame; /* by function serial; made when first run */
    state **state;     /* by state index; shared with other sessions after rt_state_bind() */
    void *packed;      /* what rt_state_get() gave out */
    void **out;        /* memory of the last run's results */
    size_t n_out;
    rt_observe_fn *observe;
    void *observe_ctx;
    uint64_t calls; /* that succeeded */
    double seconds; /* in them */
    double look;    /* when to look next which states have filled up */
};

struct rt_snapshot {
    const rt_model *m;
    state *state;
};

rt_session *rt_session_new(const rt_model *m, rt_mode mode, err *e) {
    rt_session *s = mem_alloc(sizeof *s);
    *s = (rt_session){.m = m, .mode = mode};
    s->frame = mem_try(m->n_planned, sizeof *s->frame);
    s->state = mem_try(m->n_state, sizeof *s->state);
    s->engine = engine_new(m->plans, mode == RT_STRICT);
    for (size_t i = 0; s->state && i < m->n_state; i++) {
        s->state[i] = mem_alloc(sizeof **s->state);
        *s->state[i] = (state){.holders = 1};
    }
    if (s->frame && s->state) return s;
    err_set(e, ERR_MEMORY, "no memory for a session");
    rt_session_free(s);
    return NULL;
}

static void drop_state(state *t) {
    ref_tensor_drop(&t->t);
    ref_buf_drop(t->packed);
    t->packed = NULL;
}

/* The last one that holds a state drops it. */
static void let_go(state *t) {
    if (--t->holders) return;
    drop_state(t);
    mem_free(t);
}

static void drop_results(rt_session *s) {
    for (size_t i = 0; i < s->n_out; i++) mem_free(s->out[i]);
    mem_free(s->out);
    s->out = NULL;
    s->n_out = 0;
    mem_free(s->packed);
    s->packed = NULL;
}

void rt_session_free(rt_session *s) {
    if (!s) return;
    for (size_t i = 0; s->frame && i < s->m->n_planned; i++) ref_frame_free(s->frame[i]);
    for (size_t i = 0; s->state && i < s->m->n_state; i++) let_go(s->state[i]);
    drop_results(s);
    engine_free(s->engine);
    mem_free(s->frame);
    mem_free(s->state);
    mem_free(s);
}

void rt_session_share(rt_session *s, rt_session *with) {
    if (s->engine && with->engine) engine_share(s->engine, with->engine);
}

void rt_session_threads(rt_session *s, unsigned n) {
    if (s->engine) engine_threads(s->engine, n);
}

rt_figures rt_session_figures(const rt_session *s) {
    rt_figures f = {s->calls, s->seconds, 0};
    for (size_t i = 0; i < s->m->n_state; i++) f.state_bytes += (uint64_t)ir_type_bytes(&s->m->state[i].type);
    return f;
}

bool rt_session_traffic(const rt_session *s, rt_traffic *t) {
    plan_traffic moved;
    if (!s->engine || !engine_traffic(s->engine, &moved)) return false;
    *t = (rt_traffic){moved.bytes, moved.cache};
    return true;
}

void rt_session_profile(rt_session *s, bool on) {
    if (s->engine) engine_profile(s->engine, on);
}

void rt_session_profiles(const rt_session *s, rt_profile_fn *fn, void *ctx) {
    if (s->engine) engine_profiles(s->engine, fn, ctx);
}

plan_work rt_session_work(const rt_session *s) {
    return s->engine ? engine_work(s->engine) : (plan_work){0, 0};
}

const rt_model *rt_session_model(const rt_session *s) {
    return s->m;
}

void rt_session_observe(rt_session *s, rt_observe_fn *fn, void *ctx) {
    s->observe = fn;
    s->observe_ctx = ctx;
}

/* ---- states ---- */

size_t rt_state_count(const rt_session *s) {
    return s->m->n_state;
}

const char *rt_state_name(const rt_session *s, size_t i) {
    return i < s->m->n_state ? s->m->state[i].name : NULL;
}

ir_type rt_state_type(const rt_session *s, size_t i) {
    return s->m->state[i].type;
}

void rt_state_reset(rt_session *s) {
    for (size_t i = 0; i < s->m->n_state; i++) drop_state(s->state[i]);
}

static size_t state_bytes(const rt_session *s, size_t i) {
    return (size_t)ir_type_bytes(&s->m->state[i].type);
}

/* The state as cells, for the evaluator. */
static bool state_cells(rt_session *s, size_t i, err *e) {
    state *st = s->state[i];
    const ir_type *type = &s->m->state[i].type;
    if (st->t.cell) return true;
    if (!ref_tensor_new(&st->t, type, e)) return err_where(e, "state %s", s->m->state[i].name);
    if (st->packed) {
        const ir_const c = {.type = *type, .data = ref_buf_cells(st->packed), .bytes = state_bytes(s, i)};
        ref_read(&(ref_tensor){.type = *type, .konst = &c}, 0, ref_count(&st->t), st->t.cell);
        ref_buf_drop(st->packed);
        st->packed = NULL;
    } else {
        memset(st->t.cell, 0, (size_t)ref_count(&st->t) * sizeof *st->t.cell);
    }
    ref_buf_set_half(st->t.buf, true);
    return true;
}

/* The state as packed elements. own: nobody else holds them, they may be written. */
static void *state_packed(rt_session *s, size_t i, bool own, err *e) {
    state *st = s->state[i];
    size_t bytes = state_bytes(s, i);
    if (st->packed && (!own || ref_buf_sole(st->packed))) return ref_buf_cells(st->packed);
    ref_buf *b = ref_buf_zeroed((int64_t)(bytes / 4 + 1), e);
    if (!b) {
        err_where(e, "state %s", s->m->state[i].name);
        return NULL;
    }
    if (st->packed)
        ref_buf_fill(b, ref_buf_cells(st->packed), bytes);
    else if (st->t.cell)
        ref_pack(&st->t, ref_buf_cells(b));
    drop_state(st);
    st->packed = b;
    return ref_buf_cells(b);
}

void *rt_state_memory(rt_session *s, size_t i, bool write, err *e) {
    return state_packed(s, i, write, e);
}

static bool find_state(const rt_session *s, const char *name, size_t *i, err *e) {
    for (*i = 0; *i < s->m->n_state; ++*i)
        if (!strcmp(s->m->state[*i].name, name)) return true;
    return err_set(e, ERR_USAGE, "the model has no state %s", name);
}

bool rt_state_get(rt_session *s, const char *name, rt_tensor *t, err *e) {
    size_t i;
    if (!find_state(s, name, &i, e)) return false;
    const ir_type *type = &s->m->state[i].type;
    void *packed = mem_try(state_bytes(s, i), 1); /* zeroed */
    if (!packed) return err_set(e, ERR_MEMORY, "no memory for a copy of state %s", name);
    mem_free(s->packed);
    s->packed = packed;
    if (s->state[i]->packed)
        memcpy(packed, ref_buf_cells(s->state[i]->packed), state_bytes(s, i));
    else if (s->state[i]->t.cell)
        ref_pack(&s->state[i]->t, packed);
    *t = (rt_tensor){s->m->state[i].name, *type, packed};
    return true;
}

bool rt_state_set(rt_session *s, const char *name, const rt_tensor *t, err *e) {
    size_t i;
    if (!find_state(s, name, &i, e)) return false;
    const ir_type *want = &s->m->state[i].type;
    if (!ir_type_equal(want, &t->type)) {
        arena *a = arena_new();
        err_set(e, ERR_USAGE, "state %s is %s, not %s", name, ir_type_text(a, want),
                ir_type_text(a, &t->type));
        arena_free(a);
        return false;
    }
    ref_buf *fresh = ref_buf_zeroed((int64_t)(state_bytes(s, i) / 4 + 1), e);
    if (!fresh) return err_where(e, "state %s", name);
    ref_buf_fill(fresh, t->data, state_bytes(s, i));
    drop_state(s->state[i]);
    s->state[i]->packed = fresh;
    return true;
}

bool rt_state_bind(rt_session *to, const rt_session *from, const char *name, err *e) {
    size_t i, k;
    if (!find_state(to, name, &i, e) || !find_state(from, name, &k, e)) return false;
    if (!ir_type_equal(&to->m->state[i].type, &from->m->state[k].type))
        return err_set(e, ERR_INVALID, "state %s has another type in the other package", name);
    from->state[k]->holders++;
    let_go(to->state[i]);
    to->state[i] = from->state[k];
    return true;
}

/* Makes to hold the values of from; they are copied when one of the two writes. */
static void take_values(state *to, const state *from) {
    state old = *to;
    ref_buf_keep(from->t.buf);
    ref_buf_keep(from->packed);
    to->t = from->t;
    to->packed = from->packed;
    drop_state(&old);
}

bool rt_state_copy(rt_session *to, const rt_session *from, err *e) {
    if (to->m != from->m)
        return err_set(e, ERR_USAGE, "states can be copied between sessions of one model only");
    for (size_t i = 0; i < to->m->n_state; i++) take_values(to->state[i], from->state[i]);
    return true;
}

rt_snapshot *rt_snapshot_take(const rt_session *s, err *e) {
    rt_snapshot *snap = mem_alloc(sizeof *snap);
    *snap = (rt_snapshot){s->m, mem_try(s->m->n_state, sizeof *snap->state)};
    if (!snap->state) {
        err_set(e, ERR_MEMORY, "no memory for a snapshot");
        mem_free(snap);
        return NULL;
    }
    for (size_t i = 0; i < s->m->n_state; i++) take_values(&snap->state[i], s->state[i]);
    return snap;
}

bool rt_snapshot_restore(rt_session *s, const rt_snapshot *snap, err *e) {
    if (s->m != snap->m) return err_set(e, ERR_USAGE, "the snapshot is of another model");
    for (size_t i = 0; i < s->m->n_state; i++) take_values(s->state[i], &snap->state[i]);
    return true;
}

void rt_snapshot_free(rt_snapshot *snap) {
    if (!snap) return;
    for (size_t i = 0; i < snap->m->n_state; i++) drop_state(&snap->state[i]);
    mem_free(snap->state);
    mem_free(snap);
}

#define LOOK_SECONDS 1.0 /* between looks; one takes microseconds for each large page that is not one yet */

/* Large pages for what has filled up of the states, for an eighth of the time that a run took. */
static void join_states(rt_session *s, double began) {
    double now = clock_seconds();
    bool all = true;
    if (s->look > now) return;
    for (size_t i = 0; i < s->m->n_state && all && s->look > 0; i++)
        if (ref_buf_sole(s->state[i]->packed))
            all = ref_buf_join(s->state[i]->packed, now + (now - began) / 8);
    if (all) s->look = now + LOOK_SECONDS;
}

/* ---- running ---- */

/* Tensors by feature name: what the caller gave and what parts have made. */
typedef struct {
    const char *name;
    ref_tensor t;
} named;

typedef struct {
    rt_session *s;
    rt_call *c;
    named *pool;
    size_t n_pool;
    const ir_value **keep; /* values found in the part that runs, and the index of their name */
    size_t *keep_name;
    named *value; /* by index of c->values */
    bool begun;   /* states may have changed */
} run;

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
    r->pool[r->n_pool++] = (named){name, t};
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

/* The evaluator runs the function. */
static bool evaluate(run *r, const rt_function *fn, const ref_tensor *in, err *e) {
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
        ok = !is_state || state_cells(s, fn->state[i], e);
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

/* The plan runs it. */
static bool walk_plan(run *r, const rt_function *fn, plan_exec *x, const ref_tensor *in, err *e) {
    const ir_function *f = fn->plan->f;
    rt_session *s = r->s;
    void **states = mem_alloc(f->n_in * sizeof *states);
    ref_tensor *out = mem_alloc((f->body.n_out + 1) * sizeof *out);
    bool ok = true;
    for (size_t i = 0; i < f->n_in && ok; i++) {
        bool is_state = fn->state[i] != SIZE_MAX;
        states[i] = is_state ? state_packed(s, fn->state[i], true, e) : NULL;
        ok = !is_state || states[i];
    }
    r->begun |= ok;
    ok = ok && engine_run(s->engine, x, in, out, states, !s->m->root.n_part, r->c->cancel, e);
    for (size_t i = 0; i < f->body.n_out && ok; i++) pool_put(r, f->body.out[i]->name, out[i]);
    mem_free(states);
    mem_free(out);
    return ok;
}

/* Plans don't keep inner values. */
static bool looks_inside(const run *r) {
    return r->c->n_values || r->c->find_nonfinite || r->s->observe;
}

static bool run_function(run *r, const rt_function *fn, err *e) {
    const ir_function *f = fn->plan->f;
    ref_tensor *in = mem_alloc(f->n_in * sizeof *in);
    memset(in, 0, f->n_in * sizeof *in);
    bool ok = true;
    for (size_t i = 0; i < f->n_in && ok; i++)
        if (fn->state[i] == SIZE_MAX) ok = bind_input(r, f->in[i], &in[i], e);
    plan_exec *x = ok && r->s->engine && !looks_inside(r) ? engine_prepare(r->s->engine, fn, in, e) : NULL;
    ok = ok && !e->code && (x ? walk_plan(r, fn, x, in, e) : evaluate(r, fn, in, e));
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
    bool as_is = t->type.dtype == DT_FP32 || t->type.dtype == DT_INT32;
    if (as_is && r->s->engine && engine_holds(r->s->engine, t->buf)) { /* until the next run */
        r->c->out[i] = (rt_tensor){name, t->type, t->cell};
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

bool rt_run(rt_session *s, rt_call *c, err *e) {
    const rt_function *fn = rt_function_find(&s->m->root, c->function, e);
    if (!fn || cancelled(c, e)) return false;
    double start = clock_seconds();
    run r = {.s = s, .c = c};
    r.keep = mem_alloc(c->n_values * sizeof *r.keep);
    r.keep_name = mem_alloc(c->n_values * sizeof *r.keep_name);
    r.value = mem_alloc(c->n_values * sizeof *r.value);
    memset(r.value, 0, c->n_values * sizeof *r.value);
    drop_results(s);
    bool ok = take_inputs(&r, fn->desc, e) && run_part(&r, &s->m->root, fn->desc->name, e) &&
              give_results(&r, fn->desc, e);
    if (!ok) drop_results(s);
    if (!ok && e->code == ERR_USAGE) err_where(e, "%s: function %s", rt_model_path(s->m), fn->desc->name);
    if (!ok && r.begun) rt_state_reset(s);
    if (ok) s->calls++, s->seconds += clock_seconds() - start;
    join_states(s, start);
    for (size_t i = 0; i < r.n_pool; i++) ref_tensor_drop(&r.pool[i].t);
    for (size_t i = 0; i < c->n_values; i++) ref_tensor_drop(&r.value[i].t);
    mem_free(r.pool);
    mem_free(r.keep);
    mem_free(r.keep_name);
    mem_free(r.value);
    return ok;
}
