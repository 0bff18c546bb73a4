/* Who does which chunks of a step, and where workers wait for each other. */
#include "plan/step.h"
#include <stdlib.h>

/* ---- what every worker does for itself ---- */

static bool may_repeat(const plan_step *s) {
    bool states = false;
    for (uint32_t k = 0; k < s->n_out; k++) states |= s->arg[k].space != SPACE_ACT;
    return s->extent <= s->grain && !s->once && !states;
}

/* Buffers that others than steps read or write. (The evaluator knows the block only.) */
static void share_ports(plan *p, bool *shared) {
    for (size_t i = 0; i < p->f->n_in; i++)
        if (p->in[i].v->type.kind == IR_TENSOR) shared[p->in[i].buffer] = true;
    for (size_t i = 0; i < p->f->body.n_out; i++) shared[p->out[i].buffer] = true;
    for (size_t i = 0; i < p->n_shape; i++) shared[p->shape[i].buffer] = true;
    for (size_t i = 0; i < p->n_step; i++)
        for (uint32_t k = 0; k < p->step[i].n_arg && p->step[i].fallback; k++)
            if (p->step[i].arg[k].space == SPACE_ACT) shared[p->step[i].arg[k].buffer] = true;
}

/* A short step is repeated by every worker when all its results are for such steps' buffers only: whoever
 * writes to a shared one makes the others that write there share, too. */
static void repeat_short_steps(plan *p) {
    bool *shared = mem_alloc((p->n_buffer + 1) * sizeof *shared);
    for (size_t i = 0; i < p->n_buffer; i++) shared[i] = false;
    for (size_t i = 0; i < p->n_step; i++)
        p->step[i].spread = may_repeat(&p->step[i]) ? SPREAD_EACH : SPREAD_EVEN;
    share_ports(p, shared);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < p->n_step; i++) {
            plan_step *s = &p->step[i];
            bool each = s->spread == SPREAD_EACH;
            for (uint32_t k = 0; k < s->n_out && each; k++) each = !shared[s->arg[k].buffer];
            if (each) continue;
            changed |= s->spread == SPREAD_EACH;
            s->spread = SPREAD_EVEN;
            for (uint32_t k = 0; k < s->n_out; k++) {
                if (s->arg[k].space != SPACE_ACT || shared[s->arg[k].buffer]) continue;
                shared[s->arg[k].buffer] = changed = true;
            }
        }
    }
    for (size_t i = 0; i < p->n_buffer; i++) p->buffer[i].own = !shared[i];
    for (size_t i = 0; i < p->n_step; i++)
        for (uint32_t k = 0; k < p->step[i].n_arg; k++) {
            plan_arg *a = &p->step[i].arg[k];
            if (a->space == SPACE_ACT && p->buffer[a->buffer].own) a->space = SPACE_OWN;
        }
    mem_free(shared);
}

/* ---- what workers take piece by piece ---- */

/* Of weights: a piece should keep several streams of memory busy for some microseconds, and not be so long
 * that they lie far apart. Measured on Sapphire Rapids (6-bit palettes, 4 streams): 11.8 GB/s a core in
 * pieces of 48 KiB, 16.3 of 192 KiB, 16.7 of 768 KiB, 13.3 of 3 MiB. */
#define LEAST_BYTES 65536
#define MOST_BYTES  589824

static void claim_long_steps(plan *p) {
    for (size_t i = 0; i < p->n_step; i++) {
        plan_step *s = &p->step[i];
        int64_t chunks = plan_chunks(s);
        if (chunks <= 1 && s->spread == SPREAD_EVEN) s->spread = SPREAD_ONE;
        if (s->spread != SPREAD_EVEN || s->even || s->bytes < 2 * LEAST_BYTES) continue;
        uint64_t each = s->bytes / (uint64_t)chunks / (s->weights ? s->weights : 1) + 1;
        s->spread = SPREAD_CLAIM;
        s->claim = p->n_claim++;
        s->least = (uint32_t)(LEAST_BYTES / each + 1);
        s->most = (uint32_t)(MOST_BYTES / each + 1);
    }
}

void plan_spread_steps(plan *p) {
    repeat_short_steps(p);
    claim_long_steps(p);
}

/* ---- barriers ---- */

typedef struct {
    uint8_t space, spread;
    uint32_t buffer;             /* states */
    int64_t low, high;           /* cells of the block; elements of a state */
    int64_t first, part, chunks; /* as in plan_arg, for SPREAD_EVEN */
    bool write;
} span;

static span span_of(const plan *p, const plan_step *s, uint32_t k) {
    const plan_arg *a = &s->arg[k];
    int64_t at = a->first + (a->space == SPACE_ACT ? p->buffer[a->buffer].offset : 0);
    return (span){.space = a->space,
                  .spread = s->spread,
                  .buffer = a->space == SPACE_STATE ? a->buffer : 0,
                  .low = at + a->low,
                  .high = at + a->high,
                  .first = at,
                  .part = s->spread == SPREAD_EVEN ? a->part : 0,
                  .chunks = plan_chunks(s),
                  .write = k < s->n_out};
}

/* Each worker meets only what itself did. */
static bool apart(const span *x, const span *y) {
    if (x->spread == SPREAD_ONE && y->spread == SPREAD_ONE) return true;
    return x->part > 0 && x->part == y->part && x->first == y->first && x->chunks == y->chunks;
}

static bool conflict(const span *x, const span *y) {
    return (x->write || y->write) && x->space == y->space && x->buffer == y->buffer && x->low < y->high &&
           y->low < x->high && !apart(x, y);
}

/* A step waits for the others when it reads what they may still write, or writes what they may still read or
 * write, since the last barrier. */
void plan_place_barriers(plan *p) {
    size_t n = 0, cap = 256;
    span *since = mem_alloc(cap * sizeof *since);
    for (size_t i = 0; i < p->n_step; i++) {
        plan_step *s = &p->step[i];
        if (n + s->n_arg > cap) since = mem_realloc(since, (cap = 2 * (n + s->n_arg)) * sizeof *since);
        for (uint32_t k = 0; k < s->n_arg && !s->barrier; k++) {
            span x = span_of(p, s, k);
            bool shared = x.space == SPACE_ACT || x.space == SPACE_STATE;
            for (size_t j = 0; j < n && !s->barrier && shared; j++) s->barrier = conflict(&x, &since[j]);
        }
        if (s->barrier) n = 0;
        for (uint32_t k = 0; k < s->n_arg; k++)
            if (s->arg[k].space == SPACE_ACT || s->arg[k].space == SPACE_STATE) since[n++] = span_of(p, s, k);
    }
    mem_free(since);
}
