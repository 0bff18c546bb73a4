#include "base/num.h"
#include "plan/profile.h"
#include "plan/step.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct plan_block {
    ref_buf *buf;
    char *own; /* of all workers, `each` bytes: scratch first, then buffers */
    size_t own_bytes, each;
};

/* One of the timelines that a walk goes on with. */
typedef struct {
    plan_one *one;
    void **state;       /* that the addresses are in, by index of the function's inputs */
    bool placed;        /* its addresses are those in the block that is bound */
    atomic_bool failed; /* or cancelled */
} lane;

struct plan_exec {
    const plan *p;
    void **address;       /* [workers][room][n_address] by step: where its operands lie */
    unsigned workers;     /* that the addresses are for */
    size_t room;          /* lanes that they are for: a power of two */
    const ref_buf *bound; /* the block that the addresses are in */
    const char *own;      /* and the workers' own memory */
    size_t each;
    lane *lane;              /* [room] */
    size_t n;                /* of them: this run's */
    _Atomic uint64_t *claim; /* [workers][n_claim]: begin and, in the upper half, end of what is left */
    uint64_t *claims;        /* what they are at the start of a run */
    size_t claims_for;       /* lanes */
    plan_block *block;
    ref_eval v; /* worker 0 evaluates for one lane at a time */
    arena *scratch;
    team *team;
    plan_profile *profile;
};

plan_block *plan_block_new(void) {
    plan_block *b = mem_alloc(sizeof *b);
    *b = (plan_block){0};
    return b;
}

void plan_block_free(plan_block *b) {
    if (!b) return;
    ref_buf_drop(b->buf);
    mem_free(b->own);
    mem_free(b);
}

const ref_buf *plan_block_buffer(const plan_block *b) {
    return b->buf;
}

ref_eval *plan_evaluator(plan_worker *w) {
    w->exec->v.e = w->exec->lane[w->lane].one->e;
    return &w->exec->v;
}

ref_buf *plan_buffer_of(plan_worker *w) {
    return w->exec->block->buf;
}

void plan_failed(plan_worker *w) {
    atomic_store(&w->exec->lane[w->lane].failed, true);
}

bool plan_guarded(plan_worker *w, void (*fn)(void *ctx), void *ctx) {
    size_t wanted;
    if (mem_guard(heap_current(), fn, ctx, &wanted)) return true;
    err_set(plan_evaluator(w)->e, ERR_MEMORY, "out of memory (%zu bytes asked for)", wanted);
    plan_failed(w);
    return false;
}

/* The evaluator's environment holds the constants that fallback steps read. */
static bool add_constants(plan_exec *x, err *e) {
    const plan *p = x->p;
    for (size_t i = 0; i < p->n_step; i++) {
        const ir_op *op = p->step[i].origin;
        if (!p->step[i].fallback) continue;
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) {
                const ir_value *v = op->arg[s].v[k];
                if (v->konst && !x->v.env[v->id].konst && !ref_tensor_const(&x->v.env[v->id], v->konst, e))
                    return false;
            }
    }
    return true;
}

plan_exec *plan_exec_new(const plan *p, err *e) {
    plan_exec *x = mem_alloc(sizeof *x);
    *x = (plan_exec){.p = p, .scratch = arena_new()};
    x->v = (ref_eval){.mode = p->strict ? REF_STRICT : REF_FAST,
                      .spec = p->f->spec,
                      .env = mem_try(p->f->n_values, sizeof *x->v.env),
                      .scratch = x->scratch};
    if (!x->v.env) err_set(e, ERR_MEMORY, "no memory to run function %s", p->f->name);
    if (!e->code && add_constants(x, e)) return x;
    plan_exec_free(x);
    return NULL;
}

static void drop_room(plan_exec *x) {
    for (size_t i = 0; i < x->room; i++) mem_free(x->lane[i].state);
    mem_free(x->lane);
    mem_free(x->address);
    mem_free((void *)x->claim);
    mem_free(x->claims);
    x->lane = NULL;
    x->address = NULL;
    x->claim = NULL;
    x->claims = NULL;
    x->room = x->claims_for = x->workers = 0;
    x->bound = NULL;
}

void plan_exec_free(plan_exec *x) {
    if (!x) return;
    for (uint32_t i = 0; x->v.env && i < x->p->f->n_values; i++) ref_tensor_drop(&x->v.env[i]);
    ref_eval_free_spares(&x->v);
    mem_free(x->v.env);
    drop_room(x);
    arena_free(x->scratch);
    mem_free(x);
}

void plan_exec_trim(plan_exec *x) {
    if (x->room > 1) drop_room(x);
}

void plan_block_trim(plan_block *b) {
    ref_buf_drop(b->buf);
    mem_free(b->own);
    *b = (plan_block){0};
}

/* ---- where everything lies ---- */

/* Every buffer is there once for each lane, side by side: what is one row in the plan is `room` rows in one
 * piece. Offsets of the plan grow by that factor, so that buffers that don't meet there don't meet here. */
static int64_t lane_cells(const plan_buffer *b) {
    return (b->cells + 15) / 16 * 16;
}

static int64_t lane_cell(const plan_exec *x, const plan_buffer *b, size_t i) {
    return b->offset * (int64_t)x->room + (int64_t)i * lane_cells(b);
}

/* Where a worker's own buffers begin, behind its scratch. */
static size_t own_offset(const plan *p, size_t room) {
    size_t scratch = room > 1 ? p->many_scratch + room * p->many_row : 0;
    if (scratch < p->scratch) scratch = p->scratch;
    return scratch / 64 * 64 + 64;
}

static bool block_room(plan_block *b, const plan *p, size_t room, unsigned workers, err *e) {
    int64_t cells = (p->cells + 15) / 16 * 16 * (int64_t)room;
    if (!b->buf || ref_buf_size(b->buf) < cells) {
        ref_buf_drop(b->buf);
        b->buf = ref_buf_new(cells, e);
        if (!b->buf) return false;
    }
    size_t each = own_offset(p, room) + (size_t)(p->own + 16) / 16 * 64 * room;
    if (each < b->each) each = b->each;
    if (b->own_bytes < each * workers) {
        mem_free(b->own);
        b->own = mem_try_aligned(each * workers, 64);
        b->own_bytes = b->own ? each * workers : 0;
    }
    b->each = each;
    return b->own || err_set(e, ERR_MEMORY, "no work memory for %u threads", workers);
}

static char *address_of(const plan_exec *x, const plan_block *b, const plan_arg *a, unsigned worker,
                        size_t i) {
    const plan_buffer *at = &x->p->buffer[a->space == SPACE_ACT || a->space == SPACE_OWN ? a->buffer : 0];
    switch (a->space) {
    case SPACE_ACT: return (char *)(ref_buf_cells(b->buf) + lane_cell(x, at, i));
    case SPACE_OWN: return b->own + worker * b->each + own_offset(x->p, x->room) + lane_cell(x, at, i) * 4;
    case SPACE_STATE: return x->lane[i].state[a->buffer];
    default: return (char *)(uintptr_t)a->data;
    }
}

/* Chunks of a step in a run: where lanes take it in turn each of them has its own. */
static int64_t chunks_of(const plan_exec *x, const plan_step *s) {
    return plan_chunks(s) * (s->many ? 1 : (int64_t)x->n);
}

/* Each worker's share of the steps that are claimed. */
static void share_claims(plan_exec *x) {
    const plan *p = x->p;
    for (size_t i = 0; i < p->n_step && x->claims_for != x->n; i++) {
        const plan_step *s = &p->step[i];
        uint64_t chunks = (uint64_t)chunks_of(x, s);
        for (uint64_t w = 0; w < x->workers && s->spread == SPREAD_CLAIM; w++)
            x->claims[w * p->n_claim + s->claim] = chunks * w / x->workers | chunks * (w + 1) / x->workers
                                                                                 << 32;
    }
    x->claims_for = x->n;
    for (size_t i = 0; i < (size_t)p->n_claim * x->workers; i++)
        atomic_store_explicit(&x->claim[i], x->claims[i], memory_order_relaxed);
}

static bool room_for(plan_exec *x, size_t n, unsigned workers, err *e) {
    size_t claims = (size_t)x->p->n_claim * workers, room = 1;
    while (room < n) room *= 2;
    if (x->workers == workers && x->room >= room) return true;
    drop_room(x);
    x->address = mem_try(x->p->n_address * workers, room * sizeof *x->address);
    x->claim = mem_try(claims, sizeof *x->claim);
    x->claims = mem_try(claims, sizeof *x->claims);
    x->lane = mem_try(room, sizeof *x->lane);
    bool ok = x->address && x->claim && x->claims && x->lane;
    for (x->room = 0; ok && x->room < room; x->room++) {
        x->lane[x->room].state = mem_try(x->p->f->n_in, sizeof *x->lane->state);
        ok = x->lane[x->room].state;
    }
    if (!ok) {
        drop_room(x);
        return err_set(e, ERR_MEMORY, "no memory to run function %s with %u threads", x->p->f->name, workers);
    }
    x->workers = workers;
    return true;
}

/* The addresses of a lane, all or those in its states. */
static void patch(plan_exec *x, const plan_block *b, size_t i, bool all) {
    const plan *p = x->p;
    for (unsigned w = 0; w < x->workers; w++) {
        void **to = x->address + (w * x->room + i) * p->n_address;
        for (size_t s = 0; s < p->n_step; s++)
            for (uint32_t k = 0; k < p->step[s].n_arg; k++) {
                const plan_arg *a = &p->step[s].arg[k];
                if (all || a->space == SPACE_STATE)
                    to[p->step[s].first_address + k] = address_of(x, b, a, w, i) + a->first * a->size;
            }
    }
}

/* Patches the addresses once: for as long as memory, team and states stay what they are. */
static void bind(plan_exec *x, const plan_block *b) {
    bool same = x->bound == b->buf && x->own == b->own && x->each == b->each;
    for (size_t i = 0; i < x->room && !same; i++) x->lane[i].placed = false;
    for (size_t i = 0; i < x->n; i++) {
        lane *l = &x->lane[i];
        bool kept = l->placed;
        for (size_t k = 0; k < x->p->f->n_in; k++) {
            void *state = l->one->call.state[k];
            kept &= !state || l->state[k] == state;
            l->state[k] = state;
        }
        if (!kept) patch(x, b, i, !l->placed);
        l->placed = true;
    }
    x->bound = b->buf;
    x->own = b->own;
    x->each = b->each;
}

/* ---- the walk ---- */

/* No step runs once one has failed: what it reads may not have been made. Whoever passes a barrier behind a
 * worker that has stopped sees that it has. */
static bool stopped(lane *l) {
    const atomic_bool *cancel = l->one->call.cancel;
    if (atomic_load_explicit(&l->failed, memory_order_relaxed)) return true;
    if (!cancel || !atomic_load_explicit(cancel, memory_order_relaxed)) return false;
    atomic_store_explicit(&l->failed, true, memory_order_relaxed); /* stays, should the flag be cleared */
    return true;
}

static bool all_stopped(plan_exec *x) {
    size_t i = 0;
    while (i < x->n && stopped(&x->lane[i])) i++;
    return i == x->n;
}

/* Takes up to n of what is left, from the front or the back; how many, and the first of them. */
static uint64_t take(_Atomic uint64_t *left, uint64_t n, bool back, uint64_t *first) {
    uint64_t v = atomic_load_explicit(left, memory_order_relaxed), begin, end, new;
    do {
        begin = v & UINT32_MAX, end = v >> 32;
        if (begin >= end) return 0;
        if (n > end - begin) n = end - begin;
        *first = back ? end - n : begin;
        new = back ? begin | (end - n) << 32 : (begin + n) | end << 32;
    } while (
        !atomic_compare_exchange_weak_explicit(left, &v, new, memory_order_relaxed, memory_order_relaxed));
    return n;
}

static uint64_t half_of(_Atomic uint64_t *left, const plan_step *s) {
    uint64_t v = atomic_load_explicit(left, memory_order_relaxed), begin = v & UINT32_MAX, end = v >> 32;
    uint64_t n = begin < end ? (end - begin) / 2 : 0;
    return n < s->least ? s->least : n > s->most ? s->most : n;
}

/* Half of what is left of the own share; then half of what another has left. Chunks. */
static uint64_t claim(plan_exec *x, const plan_step *s, unsigned worker, uint64_t *first) {
    uint64_t n = 0;
    for (unsigned i = 0; i < x->workers && !n; i++) {
        _Atomic uint64_t *left = &x->claim[(worker + i) % x->workers * x->p->n_claim + s->claim];
        n = take(left, half_of(left, s), i > 0, first);
    }
    return n;
}

/* Chunks [first, end) of a step, of one lane. */
static void run_lane(plan_exec *x, const plan_step *s, plan_worker *w, size_t i, int64_t first, int64_t end) {
    int64_t lo = first * s->grain, hi = end * s->grain < s->extent ? end * s->grain : s->extent;
    if (lo >= hi || stopped(&x->lane[i])) return;
    w->lane = i;
    s->fn(s->param, x->address + (w->index * x->room + i) * x->p->n_address + s->first_address, lo, hi, w);
}

/* Of all lanes. A lane that has stopped goes along where that costs little: nobody looks at it. */
static void run_lanes(plan_exec *x, const plan_step *s, plan_worker *w, int64_t first, int64_t end) {
    int64_t lo = first * s->grain, hi = end * s->grain < s->extent ? end * s->grain : s->extent;
    if (x->n == 1 || !s->many) {
        for (size_t i = 0; i < x->n; i++) run_lane(x, s, w, i, first, end);
    } else if (lo < hi && !all_stopped(x)) {
        const plan_rows r = {x->address + w->index * x->room * x->p->n_address + s->first_address,
                             x->p->n_address, x->n};
        s->many(s->param, &r, lo, hi, w);
    }
}

/* Pieces of a step that nobody else takes from: a claim waits for all reads before it. */
static void run_pieces(plan_exec *x, const plan_step *s, plan_worker *w) {
    int64_t chunks = plan_chunks(s), piece = s->most;
    for (int64_t first = 0; first < chunks; first += piece)
        run_lanes(x, s, w, first, chunks - first < piece ? chunks : first + piece);
}

static void run_claims(plan_exec *x, const plan_step *s, plan_worker *w) {
    uint64_t first = 0, n, each = (uint64_t)plan_chunks(s);
    while (!all_stopped(x) && (n = claim(x, s, w->index, &first)) > 0) {
        if (x->n == 1 || s->many) {
            run_lanes(x, s, w, (int64_t)first, (int64_t)(first + n));
            continue;
        }
        for (uint64_t at = first, end = first + n, here; at < end; at += here) { /* lane by lane */
            here = each - at % each < end - at ? each - at % each : end - at;
            run_lane(x, s, w, at / each, (int64_t)(at % each), (int64_t)(at % each + here));
        }
    }
}

static void run_step(plan_exec *x, const plan_step *s, plan_worker *w) {
    int64_t t = w->index, n = x->workers, chunks = plan_chunks(s);
    if (s->spread == SPREAD_CLAIM && n == 1)
        run_pieces(x, s, w);
    else if (s->spread == SPREAD_CLAIM)
        run_claims(x, s, w);
    else if (s->spread == SPREAD_EVEN)
        run_lanes(x, s, w, (chunks * t + n - 1) / n, (chunks * (t + 1) + n - 1) / n);
    else if (s->spread == SPREAD_EACH || !w->index)
        run_lanes(x, s, w, 0, chunks);
}

static void walk(void *ctx, unsigned worker) {
    plan_exec *x = ctx;
    const plan *p = x->p;
    plan_worker w = {worker, x, 0, x->block->own + worker * x->block->each, &p->ops, &p->fast};
    double at;
    plan_lap *lap = plan_profile_start(x->profile, worker, &at); /* NULL: nobody measures */
    for (size_t i = 0; i < p->n_step; i++) {
        const plan_step *s = &p->step[i];
        if (s->barrier) {
            team_barrier(x->team, worker);
            if (lap) plan_profile_wait(&lap[i], &at);
        }
        run_step(x, s, &w);
        if (lap) plan_profile_work(&lap[i], &at);
    }
    if (lap) plan_profile_stop(x->profile, worker, at);
}

static ref_cell *port_cells(const plan_exec *x, uint32_t buffer, size_t i) {
    return ref_buf_cells(x->block->buf) + lane_cell(x, &x->p->buffer[buffer], i);
}

static bool check_inputs(const plan *p, const plan_call *c, err *e) {
    for (size_t i = 0; i < p->f->n_in; i++)
        if (p->in[i].v->type.kind == IR_TENSOR &&
            (!ir_type_compatible(&p->in[i].v->type, &c->in[i].type) ||
             (p->in[i].tail ? ref_count(&c->in[i]) < p->in[i].tail
                            : !p->in[i].unread && ref_count(&c->in[i]) > p->buffer[p->in[i].buffer].cells)))
            return err_set(e, ERR_INVALID, "input %s has another size than planned", p->in[i].v->name);
    return true;
}

static bool take_outputs(plan_exec *x, size_t at, err *e) {
    const plan *p = x->p;
    const plan_call *c = &x->lane[at].one->call;
    for (size_t i = 0; i < p->f->body.n_out; i++) {
        ref_tensor *t = &c->out[i];
        ref_cell *cells = port_cells(x, p->out[i].buffer, at);
        if (c->borrow) {
            *t = (ref_tensor){p->out[i].v->type, ref_buf_keep(x->block->buf), cells, NULL};
            continue;
        }
        if (!ref_tensor_new(t, &p->out[i].v->type, e)) {
            while (i-- > 0) ref_tensor_drop(&c->out[i]);
            return false;
        }
        memcpy(t->cell, cells, (size_t)ref_count(t) * 4);
        if (t->type.dtype != DT_FP16) continue;
        num_round_f16_all(ref_floats(t),
                          (size_t)ref_count(t)); /* what leaves a program is a number of its type */
        ref_buf_set_half(t->buf, true);
    }
    return true;
}

static void put_inputs(const plan_exec *x, size_t at) {
    const plan *p = x->p;
    const plan_call *c = &x->lane[at].one->call;
    for (size_t i = 0; i < p->f->n_in; i++)
        if (p->in[i].v->type.kind == IR_TENSOR && !p->in[i].unread) {
            int64_t all = ref_count(&c->in[i]), n = p->in[i].tail ? p->in[i].tail : all;
            ref_read(&c->in[i], all - n, n, port_cells(x, p->in[i].buffer, at));
        }
    for (size_t i = 0; i < p->n_shape; i++) {
        const ir_type *t = &c->in[p->shape[i].input].type;
        int32_t *to = (int32_t *)(void *)port_cells(x, p->shape[i].buffer, at);
        for (int d = 0; d < t->rank; d++) to[d] = (int32_t)t->dim[d];
    }
}

/* The calls that can be run, as lanes. */
static bool take_calls(plan_exec *x, plan_one *list, size_t n) {
    const plan_call *c = &list->call;
    err e = {0};
    x->n = 0;
    x->block = c->block;
    x->team = c->team;
    x->profile = c->profile;
    if (!room_for(x, n, team_size(c->team), &e) ||
        !block_room(c->block, x->p, x->room, team_size(c->team), &e)) {
        for (size_t i = 0; i < n; i++) list[i].ok = err_set(list[i].e, e.code, "%s", e.msg);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        list[i].ok = check_inputs(x->p, &list[i].call, list[i].e);
        if (!list[i].ok) continue;
        x->lane[x->n].one = &list[i];
        atomic_store(&x->lane[x->n++].failed, false);
    }
    return x->n > 0;
}

void plan_run_many(plan_exec *x, plan_one *list, size_t n) {
    if (!n || !take_calls(x, list, n)) return;
    plan_profile *profile = list->call.profile;
    bind(x, x->block);
    share_claims(x);
    for (size_t i = 0; i < x->n; i++) put_inputs(x, i);
    if (profile) plan_profile_begin(profile);
    team_run(x->team, walk, x);
    if (profile) plan_profile_end(profile);
    for (size_t i = 0; i < x->n; i++) {
        plan_one *one = x->lane[i].one;
        one->ok = !atomic_load(&x->lane[i].failed);
        if (one->ok)
            one->ok = take_outputs(x, i, one->e);
        else if (!one->e->code)
            err_set(one->e, ERR_CANCELLED, "cancelled");
        if (!one->ok) err_where(one->e, "function %s", x->p->f->name);
    }
}

bool plan_run(plan_exec *x, const plan_call *c, err *e) {
    plan_one one = {*c, e, false};
    plan_run_many(x, &one, 1);
    return one.ok;
}
