#include "base/clock.h"
#include "base/num.h"
#include "reference/frame.h"
#include "runtime/run.h"
#include <stdlib.h>
#include <string.h>

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

void session_drop_results(rt_session *s) {
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
    session_drop_results(s);
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
    *t = (rt_traffic){moved.bytes, moved.shared, moved.cache};
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

bool session_state_cells(rt_session *s, size_t i, err *e) {
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

void *session_state_packed(rt_session *s, size_t i, bool own, err *e) {
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
    return session_state_packed(s, i, write, e);
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

void session_join_states(rt_session *s, double seconds) {
    double now = clock_seconds();
    bool all = true;
    if (s->look > now) return;
    for (size_t i = 0; i < s->m->n_state && all && s->look > 0; i++)
        if (ref_buf_sole(s->state[i]->packed)) all = ref_buf_join(s->state[i]->packed, now + seconds / 8);
    if (all) s->look = now + LOOK_SECONDS;
}
