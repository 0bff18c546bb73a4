/* Rows that a norm or swiglu makes for linear layers, made and prepared in one step: between both they stay
 * in the first caches. */
#include "plan/lower.h"
#include "plan/steps.h"
#include <string.h>

/* Rows at equal distances, neither turned nor gated. */
static bool takes_norm(const plan_step *made, step_made *s) {
    const step_fast_norm *norm = made->param;
    if (made->fn != run_fast_norm || norm->cos || norm->z || norm->job.n != s->prepare.k ||
        norm->job.inner != s->prepare.m || norm->job.y_step.inner != s->prepare.k || norm->job.to)
        return false;
    s->norm = norm->job;
    return true;
}

static bool takes_swiglu(const plan_step *made, step_made *s) {
    const step_swiglu *swiglu = made->param;
    if (made->fn != run_swiglu || swiglu->n != s->prepare.m * s->prepare.k) return false;
    s->swiglu = *swiglu;
    return true;
}

bool lower_made(lower *l, const step_prepare *prepare, const place *y, const place *x) {
    plan *p = l->p;
    if (l->strict || !p->n_step || prepare->m < PLAN_PREPARED) return false;
    plan_step made = p->step[p->n_step - 1];
    step_made *s = ARENA_NEW(l->a, step_made);
    *s = (step_made){.prepare = *prepare, .kept = true};
    if (made.arg[0].space != SPACE_ACT || x->space != SPACE_ACT || made.arg[0].buffer != x->buffer ||
        x->first)
        return false;
    bool norm = takes_norm(&made, s);
    if (!norm && !takes_swiglu(&made, s)) return false;
    place out[2] = {*y, *x}, in[2];
    uint32_t n = norm ? 1 : 2;
    for (uint32_t i = 0; i < n; i++) {
        if (made.arg[1 + i].low) return false;
        in[i] = lower_place_of(&made.arg[1 + i]);
    }
    lower_take_back(l);
    l->norm.step = 0;
    lower_need_scratch(l, (size_t)(PLAN_PREPARED * prepare->k) * sizeof(float));
    const char *name = arena_printf(l->a, "%s, prepare", made.kernel);
    lower_emit(l, norm ? run_norm_prepare : run_swiglu_prepare, s, name, prepare->m, PLAN_PREPARED, out, 2,
               in, n)
        ->origin = made.origin;
    return true;
}

static bool reads(const plan_step *s, uint32_t buffer) {
    for (uint32_t k = 0; k < s->n_arg; k++)
        if (s->arg[k].space == SPACE_ACT && s->arg[k].buffer == buffer) return true;
    return false;
}

static bool wanted(const plan *p, size_t maker, uint32_t buffer) {
    for (size_t i = 0; i < p->f->body.n_out; i++)
        if (p->out[i].buffer == buffer) return true;
    for (size_t i = maker + 1; i < p->n_step; i++)
        if (reads(&p->step[i], buffer)) return true;
    return false;
}

void lower_made_unread(plan *p) {
    for (size_t i = 0; i < p->n_step; i++) {
        plan_step *s = &p->step[i];
        if ((s->fn != run_norm_prepare && s->fn != run_swiglu_prepare) || wanted(p, i, s->arg[1].buffer))
            continue;
        ((step_made *)(uintptr_t)s->param)->kept = false;
        memmove(s->arg + 1, s->arg + 2, (s->n_arg - 2) * sizeof *s->arg);
        s->n_arg--, s->n_out--;
    }
}
