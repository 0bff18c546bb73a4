/* Kernels that round where a program does: without rounding against f64; with it every instruction set must
 * give the bytes of plain C, whose single steps the reference evaluator checks elsewhere. */
#include "kernels/rounded.h"
#include "buffers.h"
#include "kernels_test.h"
#include "weights.h"
#include <math.h>
#include <string.h>

typedef struct {
    kern_rounded plain, k;
    uint64_t *seed;
} pair;

static void same(const pair *p, const char *what, int64_t n, const void *a, const void *b, int64_t bytes) {
    test_check(!memcmp(a, b, (size_t)bytes), "%s: rounded %s of %lld differs from plain C's", p->k.isa, what,
               (long long)n);
}

static void close_to(const pair *p, const char *what, double error, double bound) {
    test_check(error <= bound, "%s: rounded %s is off by %g", p->k.isa, what, error);
}

/* ---- rows ---- */

static void check_functions(const pair *p, int64_t n) {
    buffers b = {.seed = p->seed};
    float *x = buffers_floats(&b, n, 4), *up = buffers_floats(&b, n, 2), *y = buffers_floats(&b, n, 0);
    float *z = buffers_floats(&b, n, 0);
    for (int f = KERN_ROUNDED_EXP; f <= KERN_ROUNDED_SIGMOID; f++) {
        double e = 0;
        p->k.function((kern_rounded_function)f, y, x, n),
            p->plain.function((kern_rounded_function)f, z, x, n);
        same(p, "function", n, y, z, n * 4);
        for (int64_t i = 0; i < n; i++) {
            double v = (double)x[i], want = f == KERN_ROUNDED_EXP    ? exp(v)
                                            : f == KERN_ROUNDED_SILU ? v / (1 + exp(-v))
                                                                     : 1 / (1 + exp(-v));
            e = fmax(e, fabs((double)y[i] - want) / (fabs(want) + 1e-30));
        }
        close_to(p, "function", e, 8 * 0x1p-24); /* exp has two ulp, then two more operations */
    }
    for (int round = 0; round < 2; round++) {
        p->k.swiglu(y, x, up, n, round), p->plain.swiglu(z, x, up, n, round);
        same(p, "swiglu", n, y, z, n * 4);
    }
    p->k.softmax(y, x, n), p->plain.softmax(z, x, n);
    same(p, "softmax", n, y, z, n * 4);
    p->k.round(y, n), p->plain.round(z, n);
    same(p, "round", n, y, z, n * 4);
    buffers_free(&b);
}

/* Halves of every kind: subnormal, infinite; NaN keeps a payload on some processors. */
static void check_halves(const pair *p) {
    enum { N = 0x7C01 };
    buffers b = {.seed = p->seed};
    uint16_t *h = buffers_bytes(&b, N * 2, 2), *back = buffers_bytes(&b, N * 2, 2);
    float *x = buffers_bytes(&b, N * 4, 4);
    for (int i = 0; i < N; i++) h[i] = (uint16_t)(i % 3 ? i : i | 0x8000);
    p->k.widen(x, h, N);
    int64_t bad = 0;
    for (int i = 0; i < N; i++) bad += i % 0x7C00 ? (double)x[i] != half_at(h, i) : i && !isinf(x[i]);
    test_check(bad == 0, "%s: %lld halves widened wrongly", p->k.isa, (long long)bad);
    p->k.narrow(back, x, N);
    same(p, "narrow", N, back, h, N * 2);
    for (int i = 0; i + 1 < N; i++)
        x[i] = (float)(half_at(h, i) * (1 + (double)(i % 4) * 0x1p-12)); /* ties too */
    uint16_t *plain = buffers_bytes(&b, N * 2, 2);
    p->k.narrow(back, x, N), p->plain.narrow(plain, x, N);
    same(p, "narrow", N, back, plain, N * 2);
    buffers_free(&b);
}

static void check_sums(const pair *p, int64_t n, char kind) {
    buffers b = {.seed = p->seed};
    float *x = buffers_floats(&b, n, 1), *y = buffers_floats(&b, n, 1), *z = buffers_floats(&b, n, 0);
    kern_memory m = buffers_memory(&b, kind, n, 1);
    float got = p->k.dot(x, m.value, kind == 'h', n), plain = p->plain.dot(x, m.value, kind == 'h', n);
    double sum = 0, size = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * memory_at(&m, i), size += fabs((double)x[i] * memory_at(&m, i));
    same(p, "dot", n, &got, &plain, 4);
    close_to(p, "dot", fabs((double)got - sum) / (size + 1e-30), ((double)n / 16 + 6) * 0x1p-24);
    memcpy(z, y, (size_t)n * 4);
    p->k.axpy(y, 0.3f, m.value, kind == 'h', n), p->plain.axpy(z, 0.3f, m.value, kind == 'h', n);
    same(p, "axpy", n, y, z, n * 4);
    buffers_free(&b);
}

static void check_norm(const pair *p, int64_t n, int round) {
    buffers b = {.seed = p->seed};
    kern_rounded_norm job = {.n = n, .x = buffers_floats(&b, n, 2), .gamma = buffers_floats(&b, n, 1)};
    float *y = buffers_floats(&b, n, 0), *z = buffers_floats(&b, n, 0);
    job.eps = 1e-6f, job.scale = 0.5f;
    job.round_unit = round & 1, job.round_scaled = round & 2, job.round_result = round & 4;
    job.y = y, p->k.norm(&job);
    job.y = z, p->plain.norm(&job);
    same(p, "norm", n, y, z, n * 4);
    double square = 0, e = 0;
    for (int64_t i = 0; i < n; i++) square += (double)job.x[i] * (double)job.x[i] / (double)n;
    for (int64_t i = 0; i < n && !round; i++) {
        double want = (double)job.x[i] / sqrt(square + (double)job.eps) * 0.5 * (double)job.gamma[i];
        e = fmax(e, fabs((double)y[i] - want) / (fabs(want) + 1e-30));
    }
    close_to(p, "norm", e, ((double)n / 16 + 10) * 0x1p-24);
    buffers_free(&b);
}

/* ---- attention, delta rule ---- */

static double attention_error(const kern_rounded_attention *j, const kern_memory *k, const kern_memory *v) {
    double e = 0, p[64];
    for (int64_t g = 0; g < j->groups; g++)
        for (int64_t h = 0; h < j->heads; h++) {
            const float *q = j->q + g * j->q_group + h * j->q_head;
            double sum = 0;
            for (int64_t i = 0; i < j->keys; i++) {
                p[i] = 0;
                for (int64_t d = 0; d < j->depth; d++)
                    p[i] += (double)q[d] * memory_at(k, g * j->k_group + i * j->k_row + d);
                sum += p[i] = exp(p[i] * (double)j->scale);
            }
            for (int64_t d = 0; d < j->value_depth; d++) {
                double want = 0;
                for (int64_t i = 0; i < j->keys; i++)
                    want += p[i] / sum * memory_at(v, g * j->v_group + i * j->v_row + d);
                e = fmax(e, fabs((double)j->o[g * j->o_group + h * j->o_head + d] - want));
            }
        }
    return e;
}

static void check_attention(const pair *p, int64_t heads, int64_t keys, int64_t depth, char kind,
                            bool round) {
    buffers b = {.seed = p->seed};
    const int64_t groups = 2, n = groups * heads * depth;
    kern_memory k = buffers_memory(&b, kind, groups * keys * depth, 1);
    kern_memory v = buffers_memory(&b, kind, groups * keys * depth, 1);
    kern_rounded_attention j = {.groups = groups,
                                .heads = heads,
                                .tokens = 1,
                                .keys = keys,
                                .depth = depth,
                                .value_depth = depth,
                                .q = buffers_floats(&b, n, 1),
                                .k = k.value,
                                .v = v.value,
                                .q_group = heads * depth,
                                .q_head = depth,
                                .k_group = keys * depth,
                                .k_row = depth,
                                .v_group = keys * depth,
                                .v_row = depth,
                                .o_group = heads * depth,
                                .o_head = depth,
                                .half_k = kind == 'h',
                                .half_v = kind == 'h',
                                .scale = (float)(1 / sqrt((double)depth)),
                                .round_product = round,
                                .round_scaled = round,
                                .round_weight = round,
                                .round_result = round};
    float *y = buffers_floats(&b, n, 0), *z = buffers_floats(&b, n, 0);
    void *scratch = buffers_bytes(&b, kern_rounded_scratch(heads, keys), 64);
    j.o = z, p->plain.attention(&j, 0, groups, scratch);
    j.o = y, p->k.attention(&j, 0, groups, scratch);
    same(p, "attention", keys, y, z, n * 4);
    if (!round) close_to(p, "attention", attention_error(&j, &k, &v), 5e-6); /* values of 1, scores up to 5 */
    buffers_free(&b);
}

static void check_delta(const pair *p, int64_t dk, int64_t dv, bool low, bool round) {
    buffers b = {.seed = p->seed};
    kern_memory state[2];
    float *o[2], *scratch = buffers_bytes(&b, (size_t)(dk * dv + 2 * dv) * 4, 64);
    for (int i = 0; i < 2; i++) {
        state[i] = buffers_memory(&b, 'p', dk * dv, 0.5);
        o[i] = buffers_floats(&b, dv, 0);
    }
    memcpy(state[1].value, state[0].value, (size_t)(dk * dv) * 2);
    memcpy(state[1].rest, state[0].rest, (size_t)(dk * dv) * 2);
    kern_rounded_delta j = {.dk = dk, .dv = dv, .decay = 0.9f, .beta = 0.5f, .round = round};
    j.q = buffers_floats(&b, dk, 0.2), j.k = buffers_floats(&b, dk, 0.2), j.v = buffers_floats(&b, dv, 1);
    for (int i = 0; i < 2; i++) {
        j.state = state[i].value, j.low = low ? state[i].rest : NULL, j.o = o[i];
        (i ? &p->plain : &p->k)->delta(&j, scratch);
    }
    same(p, "delta", dk, o[0], o[1], dv * 4);
    same(p, "state", dk, state[0].value, state[1].value, dk * dv * 2);
    same(p, "state's rest", dk, state[0].rest, state[1].rest, dk * dv * 2);
    buffers_free(&b);
}

void test_rounded(const char *isa) {
    uint64_t seed = 13;
    pair p = {.seed = &seed};
    kern_rounded_open(&p.plain, "portable");
    kern_rounded_open(&p.k, isa);
    if (strcmp(p.k.isa, isa) != 0) return; /* nothing of its own */
    static const int64_t sizes[] = {1, 15, 16, 100, 513};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_functions(&p, sizes[i]);
        check_sums(&p, sizes[i], 'h'), check_sums(&p, sizes[i], 'f');
        for (int round = 0; round < 8; round++) check_norm(&p, sizes[i], round);
    }
    check_halves(&p);
    for (int round = 0; round < 2; round++) {
        check_attention(&p, 4, 33, 64, 'h', round), check_attention(&p, 3, 20, 40, 'f', round);
        check_attention(&p, 7, 5, 21, 'h', round);
        check_delta(&p, 16, 48, true, round), check_delta(&p, 9, 35, false, round);
    }
}
