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

void run_fast_unary(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_fast_unary *s = param;
    w->fast->pointwise[s->code](&(kern_pointwise){.n = s->n, .x = p[1], .o = p[0]}, lo, hi);
}

/* Rows i .. i + n of x, i being a multiple of PLAN_PREPARED. */
static void prepare_rows(const step_prepare *s, void *to, const float *x, int64_t i, int64_t n) {
    s->fn((char *)to + kern_x_bytes(s->form, s->k, i), x, s->k, s->k, 0, n);
}

void run_norm_prepare(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_made *s = param;
    kern_norm job = s->norm;
    for (int64_t i = lo, n; i < hi; i += n) {
        n = hi - i < PLAN_PREPARED ? hi - i : PLAN_PREPARED;
        job.x = (const float *)p[1 + s->kept] + i * job.x_step.inner;
        job.y = s->kept ? (float *)p[1] + i * s->prepare.k : w->scratch;
        w->fast->norm(&job, 0, n);
        prepare_rows(&s->prepare, p[0], job.y, i, n);
    }
}

void run_swiglu_prepare(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_made *s = param;
    int64_t k = s->prepare.k;
    for (int64_t i = lo, n; i < hi; i += n) {
        n = hi - i < PLAN_PREPARED ? hi - i : PLAN_PREPARED;
        const float *gate = (const float *)p[1 + s->kept] + i * k,
                    *up = (const float *)p[2 + s->kept] + i * k;
        float *y = s->kept ? (float *)p[1] + i * k : w->scratch;
        steps_swiglu(&s->swiglu, y, gate, up, n * k, w);
        prepare_rows(&s->prepare, p[0], y, i, n);
    }
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

void run_gated_rows(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_gated_rows *s = param;
    int64_t m = s->part[0].m, n = s->part[0].w.rows;
    float *gate = (float *)(void *)((char *)w->scratch + s->made), *up = gate + m * GATED_ROWS;
    for (int64_t r = lo, rows; r < hi; r += rows) {
        rows = hi - r < GATED_ROWS ? hi - r : GATED_ROWS;
        for (int i = 0; i < 2; i++) {
            const step_linear *part = &s->part[i];
            kern_linear job = {.w = &part->w,
                               .x = p[1 + i],
                               .n = m,
                               .ldx = part->w.cols,
                               .bias = part->bias,
                               .y = (i ? up : gate) - r, /* behind s->made there is room for it */
                               .ldy = GATED_ROWS,
                               .scratch = part->c.scratch ? w->scratch : NULL};
            part->c.run(&job, r, r + rows);
        }
        for (int64_t i = 0; i < m; i++) {
            float *y = gate + i * GATED_ROWS;
            kern_pointwise job = {
                .n = rows, .x = y, .y = up + i * GATED_ROWS, .o = s->prepare ? y : (float *)p[0] + i * n + r};
            w->fast->pointwise[KERN_SILU_MUL](&job, 0, rows);
        }
        if (s->prepare) s->prepare(p[0], gate, GATED_ROWS, n, r, rows, 0, m);
    }
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
