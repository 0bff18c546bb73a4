/* The gated delta rule, its convolution and gates against the recurrences in f64. */
#include "buffers.h"
#include "cases.h"
#include "kernels_test.h"
#include "weights.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every token of one head; the state s [dk][dv] in f64. Returns the largest error of y. */
static double recur(const kern_delta *job, int64_t h, double *s) {
    int64_t dk = job->dk, dv = job->dv, kh = h / job->repeat;
    double e = 0, *r = malloc((size_t)dv * 8);
    for (int64_t t = 0; t < job->tokens; t++) {
        const float *q = job->q + kh * job->q_step.outer + t * job->q_step.inner;
        const float *k = job->k + kh * job->k_step.outer + t * job->k_step.inner;
        const float *v = job->v + h * job->v_step.outer + t * job->v_step.inner;
        const float *y = job->y + h * job->y_step.outer + t * job->y_step.inner;
        int64_t gate = h * job->gate_step.outer + t * job->gate_step.inner;
        double alpha = (double)job->log_decay[gate], beta = (double)job->beta[gate], qq = 0, kk = 0, oo = 0;
        if (!job->decayed) alpha = exp(alpha);
        for (int64_t i = 0; i < dk; i++) qq += (double)q[i] * (double)q[i], kk += (double)k[i] * (double)k[i];
        double fq = (double)job->q_scale, fk = 1;
        if (job->unit) fq /= sqrt(qq + (double)job->unit_eps), fk /= sqrt(kk + (double)job->unit_eps);
        for (int64_t j = 0; j < dv; j++) {
            double sum = 0;
            for (int64_t i = 0; i < dk; i++) sum += (s[i * dv + j] *= alpha) * (double)k[i] * fk;
            for (int64_t i = 0; i < dk; i++) s[i * dv + j] += (double)k[i] * fk * beta * ((double)v[j] - sum);
            r[j] = 0;
            for (int64_t i = 0; i < dk; i++) r[j] += s[i * dv + j] * (double)q[i] * fq;
            oo += r[j] * r[j];
        }
        for (int64_t j = 0; j < dv; j++) {
            double factor = 1;
            if (job->weight) factor *= (double)job->weight[j] / sqrt(oo / (double)dv + (double)job->eps);
            if (job->z) {
                double z = (double)job->z[h * job->z_step.outer + t * job->z_step.inner + j];
                factor *= z / (1 + exp(-z));
            }
            /* before the factor a result is as wrong as what it is a sum of, which may cancel: query times
             * state */
            double o = r[j] * factor, terms = fabs((double)job->q_scale * factor);
            e = fmax(e, fabs((double)y[j] - o) / (1 + fabs(o) + terms));
        }
    }
    free(r);
    return e;
}

static int64_t state_index(const kern_delta *job, int64_t h, int64_t i, int64_t j) {
    return job->transposed ? (h * job->dv + j) * job->dk + i : (h * job->dk + i) * job->dv + j;
}

static void job_make(kern_delta *job, buffers *b, const delta_case *c) {
    int64_t kh = c->heads / c->repeat;
    *job = (kern_delta){.repeat = c->repeat,
                        .dk = c->dk,
                        .dv = c->dv,
                        .tokens = c->tokens,
                        .q_step = {c->dk, kh * c->dk},
                        .k_step = {c->dk, kh * c->dk},
                        .v_step = {c->dv, c->heads * c->dv},
                        .z_step = {c->tokens * c->dv, c->dv},
                        .y_step = {c->dv, c->heads * c->dv},
                        .gate_step = {1, c->heads},
                        .decayed = c->decayed,
                        .unit = c->unit,
                        .unit_eps = 1e-6f,
                        .q_scale = (float)(1 / sqrt((double)c->dk)),
                        .eps = 1e-6f,
                        .transposed = c->transposed};
    double spread = c->unit ? 1 : 1 / sqrt((double)c->dk);
    job->q = buffers_floats(b, kh * c->dk * c->tokens, 1);
    job->k = buffers_floats(b, kh * c->dk * c->tokens, spread);
    job->v = buffers_floats(b, c->heads * c->dv * c->tokens, 1);
    if (c->gate) job->z = buffers_floats(b, c->heads * c->dv * c->tokens, 2);
    if (c->weight) job->weight = buffers_floats(b, c->dv, 1);
    float *decay = buffers_floats(b, c->heads * c->tokens, 1),
          *beta = buffers_floats(b, c->heads * c->tokens, 1);
    for (int64_t i = 0; i < c->heads * c->tokens; i++) {
        double g = -fabs((double)decay[i]) * (i % 7 ? 0.1 : 20);
        decay[i] = (float)(c->decayed ? exp(g) : g);
        beta[i] = i % 5 ? (float)(1 / (1 + exp((double)beta[i]))) : 1;
    }
    job->log_decay = decay, job->beta = beta;
    job->state = buffers_memory(b, c->kept, c->heads * c->dk * c->dv, 0.3);
    job->y = buffers_floats(b, c->heads * c->dv * c->tokens, 1);
    job->scratch = buffers_bytes(b, kern_delta_scratch(job), 64);
}

static void copy_memory(kern_memory *to, const kern_memory *m, int64_t n) {
    memcpy(to->value, m->value, (size_t)n * memory_size(m));
    if (m->rest) memcpy(to->rest, m->rest, (size_t)n * 2);
}

static bool same_memory(const kern_memory *a, const kern_memory *b, int64_t n) {
    return !memcmp(a->value, b->value, (size_t)n * memory_size(a)) &&
           (!a->rest || !memcmp(a->rest, b->rest, (size_t)n * 2));
}

static void check_delta(const kern_ops *k, uint64_t *seed, const delta_case *c, bool exact) {
    buffers b = {.seed = seed};
    kern_delta job, again;
    job_make(&job, &b, c);
    job.exact = exact;
    int64_t size = c->dk * c->dv, n = c->heads * size, out = c->heads * c->dv * c->tokens;
    kern_memory start = buffers_memory(&b, c->kept, n, 0);
    again = job;
    again.state = buffers_memory(&b, c->kept, n, 0);
    again.y = buffers_floats(&b, out, 1);
    copy_memory(&start, &job.state, n), copy_memory(&again.state, &job.state, n);
    IN_PIECES(k->delta, &job, c->heads, NULL)
    IN_PIECES(k->delta, &again, c->heads, seed)
    test_check(!memcmp(job.y, again.y, (size_t)out * 4) && same_memory(&job.state, &again.state, n),
               "%s: delta %ld in pieces", k->isa, (long)(c - delta_cases));
    bool chunks = !strcmp(k->isa, "amx") && c->tokens >= KERN_DELTA_MANY && !exact;
    double *s = malloc((size_t)size * 8), e = 0, es = 0;
    for (int64_t h = 0; h < c->heads; h++) {
        for (int64_t i = 0; i < size; i++)
            s[i] = memory_at(&start, state_index(&job, h, i / c->dv, i % c->dv));
        e = fmax(e, recur(&job, h, s));
        for (int64_t i = 0; i < size; i++)
            es = fmax(es, fabs(memory_at(&job.state, state_index(&job, h, i / c->dv, i % c->dv)) - s[i]));
    }
    /* values of about 1 after sums of up to 256; a state in fp16 is below 4: half an ulp there is 2^-10. In
     * chunks a product is off by 2^-17 of its factors. */
    test_check(e <= (chunks ? 0x1p-15 : 1e-5), "%s: delta %ld: output off by %g", k->isa,
               (long)(c - delta_cases), e);
    test_check(es <= (c->kept == 'h' ? 0x1p-10
                      : chunks       ? 0x1p-15
                                     : 3e-6),
               "%s: delta %ld: state off by %g", k->isa, (long)(c - delta_cases), es);
    free(s);
    if (c->kept == 'f' && !chunks) { /* token by token: the same bytes */
        copy_memory(&again.state, &start, n);
        again.tokens = 1;
        for (int64_t t = 0; t < c->tokens; t++) {
            k->delta(&again, 0, c->heads);
            again.q += again.q_step.inner, again.k += again.k_step.inner, again.v += again.v_step.inner;
            if (again.z) again.z += again.z_step.inner;
            again.log_decay += again.gate_step.inner, again.beta += again.gate_step.inner;
            again.y += again.y_step.inner;
        }
        again.y -= c->tokens * again.y_step.inner;
        test_check(!memcmp(job.y, again.y, (size_t)out * 4) && same_memory(&job.state, &again.state, n),
                   "%s: delta %ld token by token", k->isa, (long)(c - delta_cases));
    }
    buffers_free(&b);
}

/* ---- convolution ---- */

static void check_conv(const kern_ops *k, uint64_t *seed, int64_t channels, int64_t taps, int64_t tokens,
                       int64_t valid, char kind, bool by_tap) {
    buffers b = {.seed = seed};
    int64_t kept = taps - 1, ld = kept + (kind == 'f'), n = (channels - 1) * ld + kept;
    kern_memory state = buffers_memory(&b, kind, n, 2), start = buffers_memory(&b, kind, n, 0);
    float *u = buffers_floats(&b, (tokens - 1) * (channels + 3) + channels, 2);
    float *y = buffers_floats(&b, tokens * channels, 1), *w = buffers_floats(&b, taps * channels, 1);
    copy_memory(&start, &state, n);
    kern_conv job = {.channels = channels,
                     .taps = taps,
                     .tokens = tokens,
                     .valid = valid,
                     .u = u,
                     .w = w,
                     .ldu = channels + 3,
                     .ldy = channels,
                     .ld_state = ld,
                     .w_tap = by_tap ? channels : 1,
                     .w_channel = by_tap ? 1 : taps,
                     .silu = channels != 50,
                     .state = state,
                     .y = y};
    IN_PIECES(k->conv, &job, channels, seed)
    double e = 0, es = 0, column[64];
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t j = 0; j < kept; j++) column[j] = memory_at(&start, c * ld + j);
        for (int64_t t = 0; t < tokens; t++) column[kept + t] = (double)u[t * job.ldu + c];
        for (int64_t t = 0; t < tokens; t++) {
            double s = 0;
            for (int64_t j = 0; j < taps; j++)
                s += (double)w[j * job.w_tap + c * job.w_channel] * column[t + j];
            double want = job.silu ? s / (1 + exp(-s)) : s;
            e = fmax(e, fabs((double)y[t * channels + c] - want) / (1 + fabs(want)));
        }
        for (int64_t j = 0; j < kept; j++)
            es = fmax(es, fabs(memory_at(&state, c * ld + j) - column[valid + j]) /
                              (1 + fabs(column[valid + j])));
    }
    test_check(e <= 2e-6 && es <= (kind == 'h'   ? 0x1p-11
                                   : kind == 'p' ? 0x1p-21
                                                 : 0),
               "%s: convolution of %lld channels is off by %g, its state by %g", k->isa, (long long)channels,
               e, es);
    buffers_free(&b);
}

static void check_gates(const kern_ops *k, uint64_t *seed) {
    buffers b = {.seed = seed};
    const int64_t heads = 5, tokens = 7, valid = 6;
    float *decay = buffers_floats(&b, heads * tokens, 1), *beta = buffers_floats(&b, heads * tokens, 1);
    kern_gates job = {.heads = heads,
                      .valid = valid,
                      .a = buffers_floats(&b, heads * tokens, 20),
                      .b = buffers_floats(&b, heads * tokens, 5),
                      .rate = buffers_floats(&b, heads, 3),
                      .bias = buffers_floats(&b, heads, 1),
                      .lda = heads,
                      .ldb = heads,
                      .log_decay = decay,
                      .beta = beta};
    IN_PIECES(k->gates, &job, heads * tokens, seed)
    double e = 0;
    for (int64_t i = 0; i < heads * tokens; i++) {
        double x = (double)job.a[i] + (double)job.bias[i % heads];
        double g = (double)job.rate[i % heads] * log1p(exp(x)), s = 1 / (1 + exp(-(double)job.b[i]));
        if (i / heads >= valid) g = s = 0;
        /* a + bias is rounded: of 60, half an ulp is 2e-6 */
        e = fmax(e, fmax(fabs((double)decay[i] - g) / (fabs(g) + 1e-37), fabs((double)beta[i] - s)));
    }
    test_check(e <= 4e-6, "%s: gates are off by %g", k->isa, e);
    buffers_free(&b);
}

void test_delta(const kern_ops *k, uint64_t *seed) {
    for (size_t i = 0; i < (size_t)n_delta_cases; i++) {
        const delta_case *c = &delta_cases[i];
        if (!test_wanted(c->heads * c->tokens * c->dk * c->dv)) continue;
        check_delta(k, seed, c, false);
        check_delta(k, seed, c, true);
    }
    check_conv(k, seed, 96, 4, 1, 1, 'h', true);
    check_conv(k, seed, 37, 4, 1, 1, 'p', false);
    check_conv(k, seed, 64, 4, 1, 1, 'h', false);
    check_conv(k, seed, 50, 4, 9, 5, 'h', true);
    check_conv(k, seed, 21, 4, 6, 0, 'p', true);
    check_conv(k, seed, 33, 3, 2, 1, 'f', false);
    check_conv(k, seed, 300, 4, 20, 20, 'h', false);
    check_conv(k, seed, 272, 4, 8, 2, 'p', true);
    check_conv(k, seed, 19, 3, 31, 1, 'f', false);
    check_gates(k, seed);
}
