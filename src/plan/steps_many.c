/* Steps that do several timelines at once. In a plan for one row of x, the rows of all of them are the rows
 * of one product: its weights are read, and decoded, once. */
#include "base/num.h"
#include "plan/steps.h"

/* Elements from a timeline's operand to the next one's. */
static int64_t apart(const plan_rows *r, uint32_t k) {
    return (const float *)r->p[r->pitch + k] - (const float *)r->p[k];
}

void many_prepare(const void *param, const plan_rows *r, int64_t lo, int64_t hi, plan_worker *w) {
    const step_prepare *s = param;
    (void)lo, (void)hi, (void)w;
    s->many(r->p[0], r->p[1], apart(r, 1), s->k, 0, (int64_t)r->n);
}

/* The product with x, operand k, for rows [lo, hi) of the weight. */
static kern_linear product(const step_linear *s, const plan_rows *r, uint32_t k, const plan_worker *w) {
    return (kern_linear){.w = &s->w,
                         .x = r->p[k],
                         .n = (int64_t)r->n,
                         .ldx = apart(r, k),
                         .bias = s->bias,
                         .y = r->p[0],
                         .ldy = apart(r, 0),
                         .scratch = s->many.scratch ? w->scratch : NULL};
}

void many_linear(const void *param, const plan_rows *r, int64_t lo, int64_t hi, plan_worker *w) {
    const step_linear *s = param;
    kern_linear job = product(s, r, 1, w);
    if (s->add) job.add = r->p[s->add], job.ldadd = apart(r, s->add);
    s->many.run(&job, lo, hi);
    for (size_t i = 0; i < r->n && s->round; i++) w->ops->round((float *)r->p[i * r->pitch] + lo, hi - lo);
}

/* Where in the scratch the chunks of `up` begin. */
static size_t up_at(const step_gated *s) {
    return scratch_for(s->part[0].many.scratch, s->part[1].many.scratch);
}

void many_gated(const void *param, const plan_rows *r, int64_t lo, int64_t hi, plan_worker *w) {
    const step_gated *s = param;
    float *up = (float *)(void *)((char *)w->scratch + up_at(s));
    kern_linear gate = product(&s->part[0], r, 1, w), other = product(&s->part[1], r, 2, w);
    other.y = up;
    other.ldy = s->part[1].w.rows;
    s->part[0].many.run(&gate, lo, hi);
    s->part[1].many.run(&other, lo, hi);
    for (size_t i = 0; i < r->n; i++) {
        float *y = (float *)r->p[i * r->pitch] + lo;
        kern_pointwise job = {.n = hi - lo, .x = y, .y = up + (int64_t)i * other.ldy + lo, .o = y};
        w->fast->pointwise[KERN_SILU_MUL](&job, 0, hi - lo);
    }
}

/* ---- which ones ---- */

/* What other timelines have lies at equal distances, or is the same. */
static bool regular(const plan_step *s) {
    for (uint32_t k = 0; k < s->n_arg; k++)
        if (s->arg[k].space == SPACE_STATE || s->arg[k].size != sizeof(float)) return false;
    return true;
}

static void need(plan *p, size_t scratch, size_t row) {
    if (scratch > p->many_scratch) p->many_scratch = scratch;
    if (row > p->many_row) p->many_row = row;
}

void plan_find_many(plan *p) {
    for (size_t i = 0; i < p->n_step; i++) {
        plan_step *s = &p->step[i];
        if (!regular(s)) continue;
        if (s->fn == run_prepare && ((const step_prepare *)s->param)->m == 1) {
            s->many = many_prepare;
        } else if (s->fn == run_linear && ((const step_linear *)s->param)->m == 1) {
            s->many = many_linear;
            need(p, ((const step_linear *)s->param)->many.scratch, 0);
        } else if (s->fn == run_gated) {
            const step_gated *g = s->param;
            s->many = many_gated;
            need(p, up_at(g), (size_t)g->part[1].w.rows * sizeof(float));
        }
    }
}
