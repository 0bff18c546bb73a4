#include "base/num.h"
#include "plan/profile.h"
#include "plan/step.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct plan_block {
    ref_buf *buf;
    char *scratch; /* of all workers */
    size_t scratch_bytes, each;
};

struct plan_exec {
    const plan *p;
    void **address;       /* by step: where its operands lie */
    const ref_buf *bound; /* the block that the addresses are in */
    void **state;         /* the states that they are in, by index of the function's inputs */
    plan_block *block;
    ref_eval v;
    arena *scratch;
    team *team;
    plan_profile *profile;
    atomic_bool failed;
};

plan_block *plan_block_new(void) {
    plan_block *b = mem_alloc(sizeof *b);
    *b = (plan_block){0};
    return b;
}

void plan_block_free(plan_block *b) {
    if (!b) return;
    ref_buf_drop(b->buf);
    free(b->scratch);
    free(b);
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
    x->address = mem_try(p->n_address, sizeof *x->address);
    x->state = mem_try(p->f->n_in, sizeof *x->state);
    x->v = (ref_eval){.mode = p->strict ? REF_STRICT : REF_FAST,
                      .spec = p->f->spec,
                      .env = mem_try(p->f->n_values, sizeof *x->v.env),
                      .scratch = x->scratch};
    if (!x->address || !x->state || !x->v.env)
        err_set(e, ERR_MEMORY, "no memory to run function %s", p->f->name);
    if (!e->code && add_constants(x, e)) return x;
    plan_exec_free(x);
    return NULL;
}

void plan_exec_free(plan_exec *x) {
    if (!x) return;
    for (uint32_t i = 0; x->v.env && i < x->p->f->n_values; i++) ref_tensor_drop(&x->v.env[i]);
    ref_eval_free_spares(&x->v);
    free(x->v.env);
    free(x->address);
    free(x->state);
    arena_free(x->scratch);
    free(x);
}

static bool block_room(plan_block *b, const plan *p, unsigned workers, err *e) {
    if (!b->buf || ref_buf_size(b->buf) < p->cells) {
        ref_buf_drop(b->buf);
        b->buf = ref_buf_new(p->cells, e);
        if (!b->buf) return false;
    }
    size_t each = p->scratch / 64 * 64 + 64;
    if (each < b->each) each = b->each;
    if (b->scratch_bytes < each * workers) {
        free(b->scratch);
        b->scratch = aligned_alloc(64, each * workers);
        b->scratch_bytes = b->scratch ? each * workers : 0;
    }
    b->each = each;
    return b->scratch || err_set(e, ERR_MEMORY, "no work memory for %u threads", workers);
}

/* Patches the addresses once: for as long as block and states stay where they are. */
static void bind(plan_exec *x, const plan_call *c) {
    const plan *p = x->p;
    bool same = x->bound == c->block->buf;
    for (size_t i = 0; i < p->f->n_in && same; i++) same = !c->state[i] || x->state[i] == c->state[i];
    if (same) return;
    ref_cell *cells = ref_buf_cells(c->block->buf);
    for (size_t i = 0; i < p->n_step; i++)
        for (uint32_t k = 0; k < p->step[i].n_arg; k++) {
            const plan_arg *a = &p->step[i].arg[k];
            char *at = a->space == SPACE_ACT     ? (char *)(cells + p->buffer[a->buffer].offset)
                       : a->space == SPACE_STATE ? (char *)c->state[a->buffer]
                                                 : (char *)(uintptr_t)a->data;
            x->address[p->step[i].first_address + k] = at + a->first * a->size;
        }
    for (size_t i = 0; i < p->f->n_in; i++) x->state[i] = c->state[i];
    x->bound = c->block->buf;
}

static void walk(void *ctx, unsigned worker) {
    plan_exec *x = ctx;
    const plan *p = x->p;
    int64_t t = worker, n = team_size(x->team);
    plan_worker w = {worker, x, x->block->scratch + (size_t)worker * x->block->each, &p->ops, &p->fast};
    double at;
    plan_lap *lap = plan_profile_start(x->profile, worker, &at); /* NULL: nobody measures */
    for (size_t i = 0; i < p->n_step; i++) {
        const plan_step *s = &p->step[i];
        if (s->barrier) {
            team_barrier(x->team);
            if (lap) plan_profile_add(&lap[i].wait, &at);
            if (atomic_load_explicit(&x->failed, memory_order_relaxed)) continue;
        }
        int64_t chunks = (s->extent + s->grain - 1) / s->grain; /* a single one is worker 0's */
        int64_t lo = (chunks * t + n - 1) / n * s->grain, hi = (chunks * (t + 1) + n - 1) / n * s->grain;
        if (hi > s->extent) hi = s->extent;
        if (lo < hi && !(worker == 0 && atomic_load_explicit(&x->failed, memory_order_relaxed)))
            s->fn(s->param, x->address + s->first_address, lo, hi, &w);
        if (lap) plan_profile_add(&lap[i].work, &at);
    }
    if (lap) plan_profile_stop(x->profile, worker, at);
}

static ref_cell *port_cells(const plan_exec *x, const plan_port *port) {
    return ref_buf_cells(x->block->buf) + x->p->buffer[port->buffer].offset;
}

static bool check_inputs(const plan *p, const plan_call *c, err *e) {
    for (size_t i = 0; i < p->f->n_in; i++)
        if (p->in[i].v->type.kind == IR_TENSOR && (!ir_type_compatible(&p->in[i].v->type, &c->in[i].type) ||
                                                   ref_count(&c->in[i]) > p->buffer[p->in[i].buffer].cells))
            return err_set(e, ERR_INVALID, "input %s has another size than planned", p->in[i].v->name);
    return true;
}

static bool take_outputs(plan_exec *x, const plan_call *c, err *e) {
    const plan *p = x->p;
    for (size_t i = 0; i < p->f->body.n_out; i++) {
        ref_tensor *t = &c->out[i];
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
    x->v.e = e;
    if (!check_inputs(p, c, e) || !block_room(c->block, p, team_size(c->team), e)) return false;
    bind(x, c);
    atomic_store(&x->failed, false);
    for (size_t i = 0; i < p->f->n_in; i++)
        if (p->in[i].v->type.kind == IR_TENSOR)
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
    if (atomic_load(&x->failed)) return err_where(e, "function %s", p->f->name);
    return take_outputs(x, c, e);
}
