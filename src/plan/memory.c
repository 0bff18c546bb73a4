#include "plan/step.h"
#include <stdlib.h>

#define ALIGN 16 /* cells: a cache line */

static bool is_buffer(const plan_arg *a) {
    return a->space == SPACE_ACT || a->space == SPACE_OWN;
}

static void touch(plan *p, uint32_t buffer, uint32_t step) {
    plan_buffer *b = &p->buffer[buffer];
    if (!b->used) b->first = b->last = step;
    b->used = true;
    if (step < b->first) b->first = step;
    if (step > b->last) b->last = step;
}

static int by_size(const void *x, const void *y) {
    const plan_buffer *a = *(plan_buffer *const *)x, *b = *(plan_buffer *const *)y;
    if (a->cells != b->cells) return a->cells < b->cells ? 1 : -1;
    return a < b ? -1 : a > b; /* the same plan every time */
}

/* Steps that memory rests before it is used again: at once would make the next writer wait for its last
 * readers. */
#define REST 6

static bool together(const plan_buffer *a, const plan_buffer *b) {
    return a->own == b->own && a->first <= b->last + REST && b->first <= a->last + REST;
}

/* The lowest gap among those that live at the same time. */
static void place(plan_buffer *b, plan_buffer *const *placed, size_t n) {
    int64_t size = (b->cells + ALIGN - 1) / ALIGN * ALIGN;
    b->offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n; i++) {
            const plan_buffer *o = placed[i];
            int64_t end = o->offset + (o->cells + ALIGN - 1) / ALIGN * ALIGN;
            if (!together(b, o) || b->offset >= end || b->offset + size <= o->offset) continue;
            b->offset = end;
            moved = true;
        }
    }
}

void plan_place_buffers(plan *p) {
    for (uint32_t i = 0; i < p->n_step; i++)
        for (uint32_t k = 0; k < p->step[i].n_arg; k++)
            if (is_buffer(&p->step[i].arg[k])) touch(p, p->step[i].arg[k].buffer, i);
    for (size_t i = 0; i < p->f->n_in; i++)
        if (p->in[i].v->type.kind == IR_TENSOR) touch(p, p->in[i].buffer, 0);
    for (size_t i = 0; i < p->n_shape; i++) touch(p, p->shape[i].buffer, 0);
    for (size_t i = 0; i < p->f->body.n_out; i++) touch(p, p->out[i].buffer, (uint32_t)p->n_step);
    plan_buffer **order = ARENA_ARRAY(p->a, plan_buffer *, p->n_buffer);
    size_t n = 0;
    for (size_t i = 0; i < p->n_buffer; i++)
        if (p->buffer[i].used) order[n++] = &p->buffer[i];
    qsort(order, n, sizeof *order, by_size);
    for (size_t i = 0; i < n; i++) {
        place(order[i], order, i);
        int64_t end = order[i]->offset + order[i]->cells, *most = order[i]->own ? &p->own : &p->cells;
        if (end > *most) *most = end;
    }
}
