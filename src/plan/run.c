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

struct plan_exec {
    const plan *p;
    void **address;       /* [workers][n_address] by step: where its operands lie */
    unsigned workers;     /* that the addresses are for */
    const ref_buf *bound; /* the block that the addresses are in */
    const char *own;      /* and the workers' own memory */
    size_t each;
    void **state;            /* the states that they are in, by index of the function's inputs */
    _Atomic uint64_t *claim; /* [workers][n_claim]: begin and, in the upper half, end of what is left */
    uint64_t *claims;        /* what they are at the start of a run */
    plan_block *block;
    ref_eval v;
    arena *scratch;
    team *team;
    plan_profile *profile;
    const atomic_bool *cancel; /* of the run; NULL */
    atomic_bool failed;        /* or cancelled */
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
    return &w->exec->v;
}

ref_buf *plan_buffer_of(plan_worker *w) {
    return w->exec->block->buf;
}

void plan_failed(plan_worker *w) {
    atomic_store(&w->exec->failed, true);
}

bool plan_guarded(plan_worker *w, void (*fn)(void *ctx), void *ctx) {
    size_t wanted;
    if (mem_guard(heap_current(), fn, ctx, &wanted)) return true;
    err_set(w->exec->v.e, ERR_MEMORY, "out of memory (%zu bytes asked for)", wanted);
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
    x->state = mem_try(p->f->n_in, sizeof *x->state);
    x->v = (ref_eval){.mode = p->strict ? REF_STRICT : REF_FAST,
                      .spec = p->f->spec,
                      .env = mem_try(p->f->n_values, sizeof *x->v.env),
                      .scratch = x->scratch};
    if (!x->state || !x->v.env) err_set(e, ERR_MEMORY, "no memory to run function %s", p->f->name);
    if (!e->code && add_constants(x, e)) return x;
    plan_exec_free(x);
    return NULL;
}

void plan_exec_free(plan_exec *x) {
    if (!x) return;
    for (uint32_t i = 0; x->v.env && i < x->p->f->n_values; i++) ref_tensor_drop(&x->v.env[i]);
    ref_eval_free_spares(&x->v);
    mem_free(x->v.env);
    mem_free(x->address);
    mem_free((void *)x->claim);
    mem_free(x->claims);
    mem_free(x->state);
    arena_free(x->scratch);
    mem_free(x);
}

/* Where a worker's own buffers begin, behind its scratch. */
static size_t own_offset(const plan *p) {
    return p->scratch / 64 * 64 + 64;
}

static bool block_room(plan_block *b, const plan *p, unsigned workers, err *e) {
    if (!b->buf || ref_buf_size(b->buf) < p->cells) {
        ref_buf_drop(b->buf);
        b->buf = ref_buf_new(p->cells, e);
        if (!b->buf) return false;
    }
    size_t each = own_offset(p) + (size_t)(p->own + 16) / 16 * 64;
    if (each < b->each) each = b->each;
    if (b->own_bytes < each * workers) {
        mem_free(b->own);
        b->own = mem_try_aligned(each * workers, 64);
        b->own_bytes = b->own ? each * workers : 0;
    }
    b->each = each;
    return b->own || err_set(e, ERR_MEMORY, "no work memory for %u threads", workers);
}

static char *address_of(const plan_exec *x, const plan_call *c, const plan_arg *a, unsigned worker) {
    int64_t cell = x->p->buffer[a->space == SPACE_ACT || a->space == SPACE_OWN ? a->buffer : 0].offset;
    switch (a->space) {
    case SPACE_ACT: return (char *)(ref_buf_cells(c->block->buf) + cell);
    case SPACE_OWN: return c->block->own + worker * c->block->each + own_offset(x->p) + cell * 4;
    case SPACE_STATE: return c->state[a->buffer];
    default: return (char *)(uintptr_t)a->data;
    }
}

/* Each worker's share of the steps that are claimed. */
static void share_claims(plan_exec *x) {
    const plan *p = x->p;
    for (size_t i = 0; i < p->n_step; i++) {
        const plan_step *s = &p->step[i];
        uint64_t chunks = (uint64_t)plan_chunks(s);
        for (uint64_t w = 0; w < x->workers && s->spread == SPREAD_CLAIM; w++)
            x->claims[w * p->n_claim + s->claim] = chunks * w / x->workers | chunks * (w + 1) / x->workers
                                                                                 << 32;
    }
}

static bool room_for(plan_exec *x, unsigned workers, err *e) {
    size_t claims = (size_t)x->p->n_claim * workers;
    if (x->workers == workers) return true;
    mem_free(x->address);
    mem_free((void *)x->claim);
    mem_free(x->claims);
    x->workers = 0;
    x->address = mem_try(x->p->n_address * workers, sizeof *x->address);
    x->claim = mem_try(claims, sizeof *x->claim);
    x->claims = mem_try(claims, sizeof *x->claims);
    if (!x->address || !x->claim || !x->claims)
        return err_set(e, ERR_MEMORY, "no memory to run function %s with %u threads", x->p->f->name, workers);
    x->workers = workers;
    x->bound = NULL;
    share_claims(x);
    return true;
}

/* Patches the addresses once: for as long as memory, team and states stay what they are. */
static bool bind(plan_exec *x, const plan_call *c, err *e) {
    const plan *p = x->p;
    if (!room_for(x, team_size(c->team), e)) return false;
    bool same = x->bound == c->block->buf && x->own == c->block->own && x->each == c->block->each;
    for (size_t i = 0; i < p->f->n_in && same; i++) same = !c->state[i] || x->state[i] == c->state[i];
    if (same) return true;
    for (unsigned w = 0; w < x->workers; w++)
        for (size_t i = 0; i < p->n_step; i++)
            for (uint32_t k = 0; k < p->step[i].n_arg; k++) {
                const plan_arg *a = &p->step[i].arg[k];
                x->address[w * p->n_address + p->step[i].first_address + k] =
                    address_of(x, c, a, w) + a->first * a->size;
            }
    for (size_t i = 0; i < p->f->n_in; i++) x->state[i] = c->state[i];
    x->bound = c->block->buf;
    x->own = c->block->own;
    x->each = c->block->each;
    return true;
}

/* ---- the walk ---- */

/* No step runs once one has failed: what it reads may not have been made. Whoever passes a barrier behind a
 * worker that has stopped sees that it has. */
static bool stopped(plan_exec *x) {
    if (atomic_load_explicit(&x->failed, memory_order_relaxed)) return true;
    if (!x->cancel || !atomic_load_explicit(x->cancel, memory_order_relaxed)) return false;
    atomic_store_explicit(&x->failed, true, memory_order_relaxed); /* stays, should the flag be cleared */
    return true;
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

/* Half of what is left of the own share; then half of what another has left. */
static bool claim(plan_exec *x, const plan_step *s, unsigned worker, int64_t *lo, int64_t *hi) {
    uint64_t first = 0, n = 0;
    for (unsigned i = 0; i < x->workers && !n; i++) {
        _Atomic uint64_t *left = &x->claim[(worker + i) % x->workers * x->p->n_claim + s->claim];
        n = take(left, half_of(left, s), i > 0, &first);
    }
    *lo = (int64_t)first * s->grain;
    *hi = (int64_t)(first + n) * s->grain;
    if (*hi > s->extent) *hi = s->extent;
    return n > 0;
}

static void run_step(plan_exec *x, const plan_step *s, plan_worker *w) {
    void *const *address = x->address + w->index * x->p->n_address + s->first_address;
    int64_t t = w->index, n = x->workers, lo = 0, hi = s->extent;
    if (s->spread == SPREAD_CLAIM) {
        while (!stopped(x) && claim(x, s, w->index, &lo, &hi)) s->fn(s->param, address, lo, hi, w);
        return;
    }
    if (s->spread == SPREAD_EVEN) {
        int64_t chunks = plan_chunks(s);
        lo = (chunks * t + n - 1) / n * s->grain, hi = (chunks * (t + 1) + n - 1) / n * s->grain;
        if (hi > s->extent) hi = s->extent;
    }
    if (s->spread == SPREAD_ONE && w->index) return;
    if (lo < hi) s->fn(s->param, address, lo, hi, w);
}

static void walk(void *ctx, unsigned worker) {
    plan_exec *x = ctx;
    const plan *p = x->p;
    plan_worker w = {worker, x, x->block->own + worker * x->block->each, &p->ops, &p->fast};
    double at;
    plan_lap *lap = plan_profile_start(x->profile, worker, &at); /* NULL: nobody measures */
    for (size_t i = 0; i < p->n_step; i++) {
        const plan_step *s = &p->step[i];
        if (s->barrier) {
            team_barrier(x->team, worker);
            if (lap) plan_profile_wait(&lap[i], &at);
        }
        if (!stopped(x)) run_step(x, s, &w);
        if (lap) plan_profile_work(&lap[i], &at);
    }
    if (lap) plan_profile_stop(x->profile, worker, at);
}

static ref_cell *port_cells(const plan_exec *x, const plan_port *port) {
    return ref_buf_cells(x->block->buf) + x->p->buffer[port->buffer].offset;
}

static bool check_inputs(const plan *p, const plan_call *c, err *e) {
    for (size_t i = 0; i < p->f->n_in; i++)
        if (p->in[i].v->type.kind == IR_TENSOR &&
            (!ir_type_compatible(&p->in[i].v->type, &c->in[i].type) ||
             (!p->in[i].unread && ref_count(&c->in[i]) > p->buffer[p->in[i].buffer].cells)))
            return err_set(e, ERR_INVALID, "input %s has another size than planned", p->in[i].v->name);
    return true;
}

static bool take_outputs(plan_exec *x, const plan_call *c, err *e) {
    const plan *p = x->p;
    for (size_t i = 0; i < p->f->body.n_out; i++) {
        ref_tensor *t = &c->out[i];
        if (c->borrow) {
            *t =
                (ref_tensor){p->out[i].v->type, ref_buf_keep(c->block->buf), port_cells(x, &p->out[i]), NULL};
            continue;
        }
        if (!ref_tensor_new(t, &p->out[i].v->type, e)) {
            while (i-- > 0) ref_tensor_drop(&c->out[i]);
            return false;
        }
        memcpy(t->cell, port_cells(x, &p->out[i]), (size_t)ref_count(t) * 4);
        if (t->type.dtype != DT_FP16) continue;
        num_round_f16_all(ref_floats(t),
                          (size_t)ref_count(t)); /* what leaves a program is a number of its type */
        ref_buf_set_half(t->buf, true);
    }
    return true;
}

bool plan_run(plan_exec *x, const plan_call *c, err *e) {
    const plan *p = x->p;
    x->block = c->block;
    x->team = c->team;
    x->profile = c->profile;
    x->cancel = c->cancel;
    x->v.e = e;
    if (!check_inputs(p, c, e) || !block_room(c->block, p, team_size(c->team), e)) return false;
    if (!bind(x, c, e)) return false;
    for (size_t i = 0; i < (size_t)p->n_claim * x->workers; i++)
        atomic_store_explicit(&x->claim[i], x->claims[i], memory_order_relaxed);
    atomic_store(&x->failed, false);
    for (size_t i = 0; i < p->f->n_in; i++)
        if (p->in[i].v->type.kind == IR_TENSOR && !p->in[i].unread)
            ref_read(&c->in[i], 0, ref_count(&c->in[i]), port_cells(x, &p->in[i]));
    for (size_t i = 0; i < p->n_shape; i++) {
        const ir_type *t = &c->in[p->shape[i].input].type;
        int32_t *to =
            (int32_t *)(void *)(ref_buf_cells(c->block->buf) + p->buffer[p->shape[i].buffer].offset);
        for (int d = 0; d < t->rank; d++) to[d] = (int32_t)t->dim[d];
    }
    if (c->profile) plan_profile_begin(c->profile);
    team_run(c->team, walk, x);
    if (c->profile) plan_profile_end(c->profile);
    if (!atomic_load(&x->failed)) return take_outputs(x, c, e);
    if (!e->code) err_set(e, ERR_CANCELLED, "cancelled");
    return err_where(e, "function %s", p->f->name);
}
