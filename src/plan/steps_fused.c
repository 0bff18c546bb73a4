#include "base/num.h"
#include "plan/steps.h"
#include <math.h>
#include <string.h>

static int64_t offset_of(const step_rows *r, const int64_t *stride, int64_t i) {
    int64_t at = 0;
    for (int d = r->rank - 1; d >= 0; d--) {
        at += i % r->dim[d] * stride[d];
        i /= r->dim[d];
    }
    return at;
}

void run_norm(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_norm *s = param;
    kern_rounded_norm job = s->job;
    for (int64_t i = lo; i < hi; i++) {
        job.x = (const float *)p[1] + offset_of(&s->x, s->x.stride, i);
        job.y = (float *)p[0] + i * s->x.n;
        w->ops->norm(&job);
    }
}

void steps_swiglu(const step_swiglu *s, float *y, const float *gate, const float *up, int64_t n,
                  const plan_worker *w) {
    if (s->fast)
        w->fast->pointwise[KERN_SILU_MUL](&(kern_pointwise){.n = n, .x = gate, .y = up, .o = y}, 0, n);
    else
        w->ops->swiglu(y, gate, up, n, s->round);
    if (s->round_result && !s->round) w->ops->round(y, n);
}

void run_swiglu(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_swiglu *s = param;
    int64_t from = lo * 256, to = hi * 256 < s->n ? hi * 256 : s->n;
    steps_swiglu(s, (float *)p[0] + from, (const float *)p[1] + from, (const float *)p[2] + from, to - from,
                 w);
}

void run_rope(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_rope *s = param;
    int64_t n = s->n, half = n / 2, whole = s->x.n;
    for (int64_t r = lo; r < hi; r++) {
        const float *x = (const float *)p[1] + offset_of(&s->x, s->x.stride, r);
        const float *c = (const float *)p[2] + offset_of(&s->x, s->cos, r);
        const float *sn = (const float *)p[3] + offset_of(&s->x, s->sin, r);
        float *y = (float *)p[0] + r * whole;
        if (s->round) {
            for (int64_t i = 0; i < n; i++) {
                float other = i < half ? -x[i + half] : x[i - half];
                y[i] = num_round_f16(x[i] * c[i]) + num_round_f16(other * sn[i]);
            }
        } else {
            for (int64_t i = 0; i < half; i++) {
                y[i] = x[i] * c[i] - x[i + half] * sn[i];
                y[i + half] = x[i + half] * c[i + half] + x[i] * sn[i + half];
            }
        }
        memcpy(y + n, x + n, (size_t)(whole - n) * 4);
        if (s->round_result) w->ops->round(y, whole);
    }
}

/* What hides a key: far below every score, so that its weight is 0. */
#define HIDDEN -10000.0f

void run_visible(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_visible *s = param;
    int64_t all = s->with_length ? *(const int32_t *)p[2] : s->keys;
    if (all < 1 || all > s->keys) {
        err_set(plan_evaluator(w)->e, ERR_INVALID, "%lld keys, the cache holds %lld", (long long)all,
                (long long)s->keys);
        plan_failed(w);
        all = s->keys;
    }
    for (int64_t t = lo; t < hi; t++) {
        const float *mask = (const float *)p[1] + t * s->step;
        int64_t n = all;
        while (n > 0 && mask[n - 1] <= HIDDEN) n--;
        n = n ? n : all; /* nothing to see: all count alike */
        int64_t clear = 0;
        while (clear < n && mask[clear] == 0) clear++;
        ((int32_t *)p[0])[t] = (int32_t)n;
        ((int32_t *)p[0])[s->rows + t] = (int32_t)clear;
    }
}

void run_seen(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_seen *s = param;
    int64_t all = s->with_length ? *(const int32_t *)p[1] : s->keys;
    (void)lo, (void)hi;
    if (all < s->tokens || all > s->keys) {
        err_set(plan_evaluator(w)->e, ERR_INVALID, "%lld keys for %lld tokens, the cache holds %lld",
                (long long)all, (long long)s->tokens, (long long)s->keys);
        plan_failed(w);
        all = s->keys;
    }
    for (int64_t t = 0; t < s->tokens; t++) ((int32_t *)p[0])[t] = (int32_t)(all - s->tokens + t + 1);
}

void run_attention(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_attention *s = param;
    kern_rounded_attention job = s->job;
    job.o = p[0], job.q = p[1], job.k = p[2], job.v = p[3];
    job.mask = s->mask ? p[s->mask] : NULL;
    job.visible = s->visible ? p[s->visible] : NULL;
    w->ops->attention(&job, lo, hi, w->scratch);
}

void run_delta(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_delta *s = param;
    void *const *in = p + (s->low ? 3 : 2);
    for (int64_t h = lo; h < hi; h++) {
        kern_rounded_delta job = {.dk = s->dk,
                                  .dv = s->dv,
                                  .state = (uint16_t *)p[1] + h * s->dk * s->dv,
                                  .low = s->low ? (uint16_t *)p[2] + h * s->dk * s->dv : NULL,
                                  .q = (const float *)in[0] + h / s->q_share * s->dk,
                                  .k = (const float *)in[1] + h / s->k_share * s->dk,
                                  .v = (const float *)in[2] + h * s->dv,
                                  .decay = ((const float *)in[3])[h],
                                  .beta = ((const float *)in[4])[h],
                                  .o = (float *)p[0] + h * s->dv,
                                  .round = s->round};
        w->ops->delta(&job, w->scratch);
    }
}

void run_conv_step(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_conv_step *s = param;
    float *y = p[0];
    const float *x = p[2], *tap = p[3];
    (void)w;
    for (int64_t c = lo; c < hi; c++) {
        uint16_t *kept = (uint16_t *)p[1] + c * s->width;
        const float *t = tap + c * (s->kept + 1);
        float sum = 0;
        for (int64_t i = 0; i < s->kept; i++) {
            sum += num_f16_f32(kept[i]) * t[i];
            if (i) kept[i - 1] = kept[i];
        }
        kept[s->kept - 1] = num_f32_f16(x[c]);
        sum += x[c] * t[s->kept];
        y[c] = s->round ? num_round_f16(sum) : sum;
    }
}

/* ---- caches ---- */

static float as_half(bool round, float x) {
    return round ? num_round_f16(x) : x;
}

static void blend_row(const step_blend *s, char *memory, const float *row, float m) {
    float rest = as_half(s->round_rest, 1 - m);
    int64_t pos[GRID_ARRAYS];
    for (int64_t u = 0; u < grid_units(&s->g); u++) {
        int64_t n = grid_unit(&s->g, u, pos);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = pos[0] + i * s->g.step[0];
            uint16_t *half = (uint16_t *)(void *)memory + at;
            float *cell = (float *)(void *)memory + at, old = s->store ? num_f16_f32(*half) : *cell;
            float x = as_half(s->round_kept, old * rest) +
                      as_half(s->round_put, row[pos[1] + i * s->g.step[1]] * m);
            if (s->store)
                *half = num_f32_f16(x);
            else
                *cell = as_half(s->round, x);
        }
    }
}

void run_blend(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_blend *s = param;
    const float *mask = p[2];
    int64_t bytes = s->store ? 2 : 4;
    (void)lo, (void)hi, (void)w;
    for (int64_t i = 0; i < s->n; i++)
        if (mask[i * s->mask] != 0) blend_row(s, (char *)p[0] + i * s->step * bytes, p[1], mask[i * s->mask]);
}
