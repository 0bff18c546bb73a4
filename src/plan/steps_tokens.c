/* Recurrences over many tokens. */
#include "plan/steps.h"

void run_valid(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_valid *s = param;
    int32_t n = *(const int32_t *)p[1];
    (void)lo, (void)hi;
    if (n < 0 || n > s->tokens) {
        err_set(plan_evaluator(w)->e, ERR_INVALID, "%d of %lld tokens", n, (long long)s->tokens);
        plan_failed(w);
        n = 0;
    }
    *(int32_t *)p[0] = n;
}

void run_tokens_conv(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_tokens_conv *s = param;
    kern_conv job = s->job;
    job.y = p[0], job.state.value = p[1], job.u = p[2], job.w = p[3];
    if (s->with_valid) job.valid = *(const int32_t *)p[4];
    w->fast->conv(&job, lo, hi);
}

void run_tokens_delta(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_tokens_delta *s = param;
    void *const *in = p + (s->low ? 3 : 2);
    kern_delta job = s->job;
    job.y = p[0], job.state.value = p[1], job.state.rest = s->low ? p[2] : NULL;
    job.q = in[0], job.k = in[1], job.v = in[2], job.log_decay = in[3], job.beta = in[4];
    job.z = s->gate ? in[5] : NULL;
    job.scratch = w->scratch;
    w->fast->delta(&job, lo, hi);
}
