/* Steps that call the kernels of kernels/ops.h. */
#include "plan/steps.h"

void run_fast_attention(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_fast_attention *s = param;
    kern_attention job = s->job;
    job.partial = job.y = p[0]; /* one of them is written to */
    job.q = p[1], job.k.value = p[2], job.v.value = p[3];
    job.mask = s->mask ? p[s->mask] : NULL;
    job.visible = s->visible ? p[s->visible] : NULL;
    job.scratch = w->scratch;
    w->fast->attend(&job, lo, hi);
}

void run_fast_join(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_fast_attention *s = param;
    kern_attention job = s->job;
    job.y = p[0], job.partial = p[1];
    job.visible = s->visible ? p[2] : NULL;
    w->fast->attend_join(&job, lo, hi);
}

void run_fast_delta(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_fast_delta *s = param;
    void *const *in = p + (s->low ? 3 : 2);
    kern_delta job = s->job;
    job.y = p[0], job.state.value = p[1], job.state.rest = s->low ? p[2] : NULL;
    job.q = in[0], job.k = in[1], job.v = in[2], job.log_decay = in[3], job.beta = in[4];
    job.scratch = w->scratch;
    w->fast->delta(&job, lo, hi);
}

void run_fast_conv(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_fast_conv *s = param;
    kern_conv job = s->job;
    job.y = p[0], job.state.value = p[1], job.u = p[2], job.w = p[3];
    w->fast->conv(&job, lo, hi);
}
