#include "runtime/batch.h"
#include "base/clock.h"
#include "runtime/run.h"
#include <string.h>

/* A call on its way through the parts of its function. */
typedef struct {
    rt_batch_call *call;
    run r;
    const rt_function *fn; /* of the part at hand */
    ref_tensor *in;        /* its inputs and outputs */
    ref_tensor *out;
    void **states;
    bool waiting; /* for the part to be run */
} lane;

struct rt_batch {
    const rt_model *m;
    engine *engine; /* NULL: everything is evaluated */
    lane *lane;
    plan_one *one;
    lane **group; /* of the calls that are walked together */
    size_t room;
    size_t most, runs; /* the largest batch of so many last runs */
    size_t together;   /* calls of this run that were walked with others */
};

rt_batch *rt_batch_new(const rt_model *m, rt_mode mode, unsigned threads) {
    rt_batch *b = mem_alloc(sizeof *b);
    *b = (rt_batch){.m = m, .engine = engine_new(m->plans, mode == RT_STRICT)};
    if (b->engine) engine_threads(b->engine, threads);
    return b;
}

void rt_batch_free(rt_batch *b) {
    if (!b) return;
    engine_free(b->engine);
    mem_free(b->lane);
    mem_free(b->one);
    mem_free(b->group);
    mem_free(b);
}

void rt_batch_share(rt_batch *b, rt_batch *with) {
    if (b->engine && with->engine) engine_share(b->engine, with->engine);
}

void rt_batch_adopt(rt_batch *b, rt_session *s) {
    if (b->engine && s->engine) engine_join(s->engine, b->engine);
}

static void grow(rt_batch *b, size_t n) {
    if (n <= b->room) return;
    b->lane = mem_realloc(b->lane, n * sizeof *b->lane);
    b->one = mem_realloc(b->one, n * sizeof *b->one);
    b->group = mem_realloc(b->group, n * sizeof *b->group);
    b->room = n;
}

#define RUNS 64 /* that a batch stays smaller before memory is given back */

/* Whoever was there before has its results elsewhere, or doesn't look at them any more. */
static void give_back(rt_batch *b, size_t n) {
    if (n > b->most / 4) b->runs = 0;
    if (n > b->most) b->most = n;
    if ((n && ++b->runs < RUNS) || !b->engine) return;
    engine_trim(b->engine);
    b->most = n;
    b->runs = 0;
}

/* ---- a part ---- */

static void fail(lane *l) {
    l->call->ok = false;
}

/* Its inputs, and memory for the rest. */
static void enter(lane *l, const rt_part *part, const char *function) {
    l->fn = rt_function_find(part, function, l->call->e);
    l->in = l->out = NULL;
    l->states = NULL;
    if (!l->fn) {
        fail(l);
        return;
    }
    const ir_function *f = l->fn->plan->f;
    l->in = mem_alloc((f->n_in + 1) * sizeof *l->in);
    memset(l->in, 0, f->n_in * sizeof *l->in);
    l->out = mem_alloc((f->body.n_out + 1) * sizeof *l->out);
    l->states = mem_alloc((f->n_in + 1) * sizeof *l->states);
    l->waiting = rt_run_inputs(&l->r, l->fn, l->in, l->call->e);
    if (!l->waiting) fail(l);
}

static void leave(lane *l) {
    for (size_t i = 0; l->in && i < l->fn->plan->f->n_in; i++) ref_tensor_drop(&l->in[i]);
    mem_free(l->in);
    mem_free(l->out);
    mem_free(l->states);
    l->in = l->out = NULL;
    l->states = NULL;
}

/* Its plan, NULL when there is none. */
static plan_exec *plan_of(rt_batch *b, lane *l) {
    if (!b->engine || rt_run_looks_inside(&l->r)) return NULL;
    return engine_prepare(b->engine, l->fn, l->in, l->call->e);
}

#define MOST_MISSES 8 /* other plans that may be found before the first one's executor could be given up */

/* The lanes from `first` on that have its plan. */
static size_t find_group(rt_batch *b, size_t first, size_t n, const plan_exec *x) {
    size_t count = 0;
    b->group[count++] = &b->lane[first];
    for (size_t i = first + 1, misses = 0; i < n && misses < MOST_MISSES; i++) {
        lane *l = &b->lane[i];
        if (!l->waiting || l->fn != b->lane[first].fn || rt_run_looks_inside(&l->r)) continue;
        bool same = plan_of(b, l) == x;
        if (same) b->group[count++] = l;
        misses += !same;
    }
    return count;
}

static void walk(rt_batch *b, plan_exec *x, size_t count) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        lane *l = b->group[i];
        l->waiting = false;
        if (l->call->e->code || !rt_run_states(&l->r, l->fn, l->states, l->call->e)) {
            fail(l);
            continue;
        }
        b->group[n] = l;
        b->one[n++] =
            (plan_one){.call = {.in = l->in, .out = l->out, .state = l->states, .cancel = l->call->c->cancel},
                       .e = l->call->e};
    }
    if (!n) return;
    engine_run_many(b->engine, x, b->one, n, rt_run_borrows(&b->group[0]->r));
    for (size_t i = 0; i < n; i++) {
        lane *l = b->group[i];
        if (b->one[i].ok)
            rt_run_outputs(&l->r, l->fn, l->out);
        else
            fail(l);
    }
    if (n > 1) b->together += n;
}

/* The function, by all lanes that are still there. */
static void run_leaf(rt_batch *b, size_t n, const rt_part *part, bool named) {
    for (size_t i = 0; i < n; i++) {
        lane *l = &b->lane[i];
        l->waiting = false;
        if (l->call->ok) enter(l, part, named ? l->r.fn->desc->name : NULL);
    }
    for (size_t i = 0; i < n; i++) {
        lane *l = &b->lane[i];
        if (!l->waiting) continue;
        plan_exec *x = plan_of(b, l);
        if (x) {
            walk(b, x, find_group(b, i, n, x));
            continue;
        }
        l->waiting = false;
        if (l->call->e->code || !rt_run_evaluate(&l->r, l->fn, l->in, l->call->e)) fail(l);
    }
    for (size_t i = 0; i < n; i++) leave(&b->lane[i]);
}

static void run_parts(rt_batch *b, size_t n, const rt_part *part, bool named) {
    bool *there = part->n_part ? mem_alloc((n + 1) * sizeof *there) : NULL;
    for (size_t i = 0; i < part->n_part; i++) {
        for (size_t k = 0; k < n; k++) there[k] = b->lane[k].call->ok;
        run_parts(b, n, &part->part[i], false);
        for (size_t k = 0; k < n; k++)
            if (there[k] && !b->lane[k].call->ok)
                err_where(b->lane[k].call->e, "part %zu of the pipeline", i);
    }
    mem_free(there);
    if (!part->n_part) run_leaf(b, n, part, named);
}

size_t rt_batch_run(rt_batch *b, rt_batch_call *list, size_t n) {
    double start = clock_seconds();
    size_t live = 0;
    give_back(b, n);
    grow(b, n);
    b->together = 0;
    for (size_t i = 0; i < n; i++) {
        lane *l = &b->lane[live];
        *l = (lane){.call = &list[i]};
        list[i].ok = rt_run_open(&l->r, list[i].s, list[i].c, b->engine, list[i].e);
        live += list[i].ok;
    }
    run_parts(b, live, &b->m->root, true);
    double seconds = (clock_seconds() - start) / (double)(live ? live : 1);
    for (size_t i = 0; i < live; i++) {
        rt_batch_call *c = b->lane[i].call;
        c->ok = rt_run_close(&b->lane[i].r, c->ok, seconds, c->e);
    }
    return b->together;
}

bool rt_batch_traffic(const rt_batch *b, rt_traffic *t) {
    plan_traffic moved;
    if (!b->engine || !engine_traffic(b->engine, &moved)) return false;
    *t = (rt_traffic){moved.bytes, moved.shared, moved.cache};
    return true;
}
