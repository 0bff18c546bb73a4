/* Steps that call the kernels of kernels/ops.h. */
#include "plan/steps.h"

void run_fast_norm(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_fast_norm *s = param;
    kern_norm job = s->job;
    job.y = p[0], job.x = p[1];
    if (s->cos) job.cos = p[s->cos], job.sin = p[s->sin];
    if (s->z) job.z = p[s->z];
    w->fast->norm(&job, lo, hi);
}

void run_gated(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_gated *s = param;
    float *up = (float *)(void *)((char *)w->scratch + s->up);
    for (int i = 0; i < 2; i++) {
        const step_linear *part = &s->part[i];
        kern_linear job = {.w = &part->w,
                           .x = p[1 + i],
                           .n = 1,
                           .ldx = part->w.cols,
                           .bias = part->bias,
                           .y = i ? up : p[0],
                           .ldy = part->w.rows,
                           .scratch = part->c.scratch ? w->scratch : NULL};
        part->c.run(&job, lo, hi);
    }
    float *y = (float *)p[0] + lo;
    w->fast->pointwise[KERN_SILU_MUL](&(kern_pointwise){.n = hi - lo, .x = y, .y = up + lo, .o = y}, 0,
                                      hi - lo);
}

void run_fast_attention(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_fast_attention *s = param;
    kern_attention job = s->job;
    job.partial = job.y = p[0]; /* one of them is written to */
    job.q = p[1], job.k.value = p[2], job.v.value = p[3];
    job.mask = s->mask ? p[s->mask] : NULL;
    job.visible = s->visible ? p[s->visible] : NULL;
    job.clear = s->mask && s->visible ? job.visible + job.tokens : NULL;
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
