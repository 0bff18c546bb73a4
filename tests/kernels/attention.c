/* Attention kernels against the textbook formula in f64. */
#include "buffers.h"
#include "cases.h"
#include "kernels_test.h"
#include "weights.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const attention_case *c;
    kern_attention job;
    int64_t q_size, y_size;
} subject;

static void subject_make(subject *s, buffers *b, const attention_case *c) {
    int64_t rows = c->heads * c->tokens, wide = c->d + 7; /* queries lie in wider rows */
    *s = (subject){.c = c};
    kern_attention *job = &s->job;
    *job = (kern_attention){.heads = c->heads,
                            .groups = c->groups,
                            .tokens = c->tokens,
                            .d = c->d,
                            .d_v = c->d_v,
                            .keys = c->keys,
                            .first = c->first,
                            .units = 37,
                            .scale = (float)(1 / sqrt((double)c->d)),
                            .ldm = c->keys};
    job->q_step = c->by_token ? (kern_step){wide, c->heads * wide} : (kern_step){c->tokens * wide, wide};
    job->y_step =
        c->by_token ? (kern_step){c->d_v, c->heads * c->d_v} : (kern_step){c->tokens * c->d_v, c->d_v};
    job->gate_step = job->y_step;
    job->q = buffers_floats(b, rows * wide - 7, 3);
    if (c->gate) job->gate = buffers_floats(b, rows * c->d_v, 2);
    job->k_step = (kern_step){c->keys * (c->d + 2), c->d + 2};
    job->v_step = (kern_step){c->d_v, c->groups * c->d_v};
    job->k = buffers_memory(b, c->kept, c->groups * c->keys * (c->d + 2) - 2, 1);
    job->v = buffers_memory(b, c->kept, c->groups * c->keys * c->d_v, 1);
    if (c->mask) {
        float *m = buffers_floats(b, c->tokens * c->keys, 1);
        for (int64_t t = 0; t < c->tokens; t++) /* a hidden head, a hidden tail, holes */
            for (int64_t j = 0; j < c->keys; j++)
                if (j < 3 * (t % 9) || j > c->keys / 2 + t || j % 5 == 4)
                    m[t * c->keys + j] = t % 2 ? -INFINITY : -6e4f;
        job->mask = m;
        int32_t *visible = buffers_bytes(b, (size_t)c->tokens * 4, 4); /* the hidden tail, said */
        for (int64_t t = 0; t < c->tokens; t++) {
            int64_t n = c->keys / 2 + t + 1;
            visible[t] = (int32_t)(n < c->keys ? n : c->keys);
        }
        if (c->keys == 300 || c->tokens > 8) job->visible = visible;
        int32_t *clear =
            buffers_bytes(b, (size_t)c->tokens * 4, 4); /* all that is visible, a part, nothing */
        for (int64_t t = 0; t < c->tokens; t++) {
            clear[t] = t % 3 == 0 ? visible[t] : t % 3 == 1 ? visible[t] / 4 : 0;
            for (int64_t j = 0; c->tokens > 8 && j < clear[t]; j++) m[t * c->keys + j] = 0;
        }
        if (c->tokens > 8) job->clear = clear;
    }
    s->y_size = rows * c->d_v;
    job->y = buffers_floats(b, s->y_size, 1);
    job->partial = buffers_floats(b, kern_partial_size(job) + 1, 1);
    job->scratch = buffers_bytes(b, kern_attention_scratch(job), 64);
}

/* The largest error of a head's results, relative to the largest value. */
static double error_of(const subject *s, int64_t h, int64_t t) {
    const kern_attention *job = &s->job;
    int64_t g = h / (job->heads / job->groups), n = job->mask ? job->keys : job->first + t + 1;
    const float *q = job->q + h * job->q_step.outer + t * job->q_step.inner;
    const float *y = job->y + h * job->y_step.outer + t * job->y_step.inner;
    double *p = malloc((size_t)job->keys * 8), top = -INFINITY, sum = 0, e = 0;
    for (int64_t j = 0; j < n; j++) {
        double dot = 0;
        for (int64_t i = 0; i < job->d; i++)
            dot += (double)q[i] * memory_at(&job->k, g * job->k_step.outer + j * job->k_step.inner + i);
        p[j] = dot * (double)job->scale + (job->mask ? (double)job->mask[t * job->ldm + j] : 0);
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - top);
    for (int64_t i = 0; i < job->d_v; i++) {
        double want = 0;
        for (int64_t j = 0; j < n; j++)
            want += p[j] / sum * memory_at(&job->v, g * job->v_step.outer + j * job->v_step.inner + i);
        if (job->gate)
            want /= 1 + exp(-(double)job->gate[h * job->gate_step.outer + t * job->gate_step.inner + i]);
        double d = fabs((double)y[i] - want);
        if (!(d <= e)) e = d;
    }
    free(p);
    return e;
}

static void run(const kern_ops *k, const kern_attention *job, uint64_t *seed) {
    IN_PIECES(k->attend, job, job->units, seed)
    if (job->tokens < KERN_MANY) IN_PIECES(k->attend_join, job, job->tokens * job->heads, seed)
}

static void check_case(const kern_ops *k, uint64_t *seed, const attention_case *c) {
    buffers b = {.seed = seed};
    subject s;
    subject_make(&s, &b, c);
    run(k, &s.job, NULL);
    double e = 0;
    for (int64_t h = 0; h < c->heads; h++)
        for (int64_t t = 0; t < c->tokens; t++) e = fmax(e, error_of(&s, h, t));
    /* scores reach 12: an error of sqrt(d) ulps there moves exp by 1e-5 of itself; values are about 1 */
    bool pairs = !strcmp(k->isa, "amx") && c->tokens >= KERN_MANY &&
                 c->kept == 'h'; /* factors off by 2^-17: of 12, 1e-4 */
    test_check(e <= (pairs ? 1e-4 : 2e-5), "%s: attention %ld is off by %g", k->isa,
               (long)(c - attention_cases), e);
    kern_attention again = s.job;
    again.y = buffers_floats(&b, s.y_size, 1);
    again.units = 5;
    run(k, &again, seed);
    test_check(!memcmp(s.job.y, again.y, (size_t)s.y_size * 4), "%s: attention %ld in pieces", k->isa,
               (long)(c - attention_cases));
    buffers_free(&b);
}

/* A query that sees nothing gets NaN, its neighbours don't. */
static void check_nothing(const kern_ops *k, uint64_t *seed, const attention_case *c) {
    buffers b = {.seed = seed};
    subject s;
    subject_make(&s, &b, c);
    float *mask = buffers_floats(&b, c->tokens * c->keys, 1);
    for (int64_t j = 0; j < c->keys; j++) mask[j] = -INFINITY;
    s.job.mask = mask;
    s.job.visible = s.job.clear = NULL;
    run(k, &s.job, seed);
    bool ok = true;
    for (int64_t h = 0; h < c->heads; h++)
        for (int64_t t = 0; t < c->tokens; t++)
            ok = ok && isnan(s.job.y[h * s.job.y_step.outer + t * s.job.y_step.inner]) == (t == 0);
    test_check(ok, "%s: attention to nothing", k->isa);
    int64_t n = c->keys;
    test_check(k->visible(mask, n, -1e4f) == 0 && k->visible(mask + n, n, -1e4f) == n, "%s: visible keys",
               k->isa);
    buffers_free(&b);
}

void test_attention(const kern_ops *k, uint64_t *seed) {
    for (size_t i = 0; i < (size_t)n_attention_cases; i++) {
        const attention_case *c = &attention_cases[i];
        if (test_wanted(c->heads * c->tokens * c->keys * c->d)) check_case(k, seed, c);
    }
    check_nothing(k, seed, &attention_cases[5]);
    check_nothing(k, seed, &attention_cases[9]);
}
