/* Element-wise kernels, norms, softmax, order and products against loops in f64. Every kernel runs twice, as
 * a whole and in random pieces: the bytes must be the same. */
#include "base/num.h"
#include "buffers.h"
#include "kernels_test.h"
#include "weights.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ULP 0x1p-23

/* The largest |x - want| / (|want| + floor). */
static double worst(const float *x, const double *want, int64_t n, double floor) {
    double w = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)x[i] - want[i]) / (fabs(want[i]) + floor);
        if (!(e <= w)) w = e; /* NaN too */
    }
    return w;
}

/* ---- exp ---- */

static void exp_of(const kern_ops *k, const float *x, float *y, int64_t n) {
    kern_pointwise job = {.n = n, .x = x, .o = y};
    k->pointwise[KERN_EXP](&job, 0, n);
}

static void check_exp(const kern_ops *k) {
    const int64_t n = test_wanted(200000) ? 200000 : 20000;
    float *x = malloc((size_t)n * 4), *y = malloc((size_t)n * 4);
    double most = 0;
    for (int64_t i = 0; i < n; i++) x[i] = (float)(-87.3 + 176.0 * (double)i / (double)n);
    exp_of(k, x, y, n);
    for (int64_t i = 0; i < n; i++) {
        double want = exp((double)x[i]), unit;
        if (want > 0x1.fffffep127) continue;
        unit = ldexp(1, ilogb(want) - 23);
        most = fmax(most, fabs((double)y[i] - want) / unit);
    }
    test_check(most <= 2, "%s: exp is off by %.3f ulp", k->isa, most);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(-104.0 + 17.0 * (double)i / (double)n);
    exp_of(k, x, y, n);
    most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)y[i] - exp((double)x[i])));
    test_check(most <= 0x1p-148, "%s: a subnormal exp is off by %g", k->isa, most);
    const float special[] = {0, -INFINITY, INFINITY, NAN, 88.8f, -200, 1e38f, -1e38f};
    exp_of(k, special, y, 8);
    bool ok = y[0] == 1 && y[1] == 0 && isinf(y[2]) && isnan(y[3]) && isinf(y[4]) && y[5] == 0 &&
              isinf(y[6]) && y[7] == 0;
    test_check(ok, "%s: exp of special values", k->isa);
    free(x), free(y);
}

/* ---- element by element ---- */

static double pointwise_want(kern_pointwise_op op, double x, double y) {
    double sigmoid = 1 / (1 + exp(-x));
    switch (op) {
    case KERN_ADD: return x + y;
    case KERN_SUB: return x - y;
    case KERN_MUL: return x * y;
    case KERN_SILU: return x * sigmoid;
    case KERN_SIGMOID: return sigmoid;
    case KERN_EXP: return exp(x);
    case KERN_SILU_MUL: return x * sigmoid * y;
    default: return sigmoid * y;
    }
}

static void check_pointwise(const kern_ops *k, uint64_t *seed, int64_t n, bool repeat) {
    const int64_t rows = 3, ldx = n + 5, ldo = n + 1;
    for (int op = 0; op < KERN_POINTWISE; op++) {
        buffers b = {.seed = seed};
        float *x = buffers_floats(&b, (rows - 1) * ldx + n, 4), *y = buffers_floats(&b, rows * n, 1);
        float *o = buffers_floats(&b, (rows - 1) * ldo + n, 1),
              *p = buffers_floats(&b, (rows - 1) * ldo + n, 1);
        double want[3 * 1100];
        float got[3 * 1100];
        memcpy(p, o, (size_t)((rows - 1) * ldo + n) * 4);
        kern_pointwise job = {.n = n, .x = x, .y = y, .o = o, .ldx = ldx, .ldy = repeat ? 0 : n, .ldo = ldo};
        IN_PIECES(k->pointwise[op], &job, rows * n, NULL)
        job.o = p;
        IN_PIECES(k->pointwise[op], &job, rows * n, seed)
        test_check(!memcmp(o, p, (size_t)((rows - 1) * ldo + n) * 4), "%s: op %d of %lld in pieces", k->isa,
                   op, (long long)n);
        for (int64_t i = 0; i < rows * n; i++) {
            int64_t r = i / n, c = i % n;
            want[i] =
                pointwise_want((kern_pointwise_op)op, (double)x[r * ldx + c], (double)y[repeat ? c : i]);
            got[i] = o[r * ldo + c];
        }
        /* one rounding; else exp (2 ulp), +, / and * with half an ulp each */
        double bound = op <= KERN_MUL ? ULP / 2 : 4 * ULP, e = worst(got, want, rows * n, 1e-37);
        test_check(e <= bound, "%s: op %d of %lld is off by %g", k->isa, op, (long long)n, e);
        job.half = true, job.o = p;
        IN_PIECES(k->pointwise[op], &job, rows * n, seed)
        int64_t bad = 0;
        for (int64_t i = 0; i < rows * n; i++) {
            float f = p[i / n * ldo + i % n], g = got[i];
            bad += f != num_round_f16(g);
        }
        test_check(bad == 0, "%s: op %d: %lld elements not rounded to fp16", k->isa, op, (long long)bad);
        buffers_free(&b);
    }
}

static void check_memory(const kern_ops *k, uint64_t *seed, int64_t n) {
    for (const char *kind = "fhp"; *kind; kind++) {
        buffers b = {.seed = seed};
        float *x = buffers_floats(&b, n, 3), *back = buffers_floats(&b, n, 1);
        kern_memory m = buffers_memory(&b, *kind, n, 1);
        x[0] = 1e-7f;
        for (int64_t lo = 0, hi; lo < n; lo = hi) {
            hi = piece_end(lo, n, seed);
            k->narrow(&m, x, lo, hi);
            k->widen(back, &m, lo, hi);
        }
        int64_t bad = 0;
        for (int64_t i = 0; i < n; i++) {
            float h = num_round_f16(x[i]), rest = num_round_f16(x[i] - h);
            float want = *kind == 'f' ? x[i] : *kind == 'h' ? h : h + rest;
            bad += back[i] != want ||
                   memory_at(&m, i) != (*kind == 'p' ? (double)h + (double)rest : (double)want);
        }
        test_check(bad == 0, "%s: kept as '%c': %lld of %lld numbers are wrong", k->isa, *kind,
                   (long long)bad, (long long)n);
        buffers_free(&b);
    }
}

/* ---- norms ---- */

typedef struct {
    kern_norm_kind kind;
    int64_t n, outer, inner, dims; /* dims: rotated */
    bool weight, bias, gate, half_table;
    char to; /* memory, or 0 */
} norm_case;

static const norm_case norms[] = {
    {KERN_NORM_MEAN, 1024, 2, 1, 0, true, false, false, false, 0},
    {KERN_NORM_MEAN, 128, 3, 4, 128, true, false, false, false, 0},
    {KERN_NORM_MEAN, 256, 2, 3, 64, true, false, false, true, 'h'},
    {KERN_NORM_MEAN, 128, 2, 5, 0, true, false, true, false, 0},
    {KERN_NORM_SUM, 128, 1, 6, 0, false, false, false, false, 0},
    {KERN_NORM_SUM, 7, 3, 1, 0, false, false, false, false, 0},
    {KERN_NORM_LAYER, 100, 4, 1, 0, true, true, false, false, 0},
    {KERN_NORM_NONE, 64, 3, 2, 64, false, false, false, true, 'p'},
    {KERN_NORM_NONE, 90, 2, 2, 30, false, false, false, false, 'f'},
    {KERN_NORM_MEAN, 45, 2, 2, 10, true, true, true, false, 0},
};

static void norm_want(const kern_norm *job, int64_t r, double *y) {
    int64_t outer = r / job->inner, inner = r % job->inner, n = job->n, h = job->dims / 2;
    const float *x = job->x + outer * job->x_step.outer + inner * job->x_step.inner;
    double mean = 0, sum = 0, factor = (double)job->scale, *v = malloc((size_t)n * 8);
    for (int64_t i = 0; i < n && job->kind == KERN_NORM_LAYER; i++) mean += (double)x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    if (job->kind != KERN_NORM_SUM) sum /= (double)n;
    if (job->kind != KERN_NORM_NONE) factor /= sqrt(sum + (double)job->eps);
    for (int64_t i = 0; i < n; i++) {
        v[i] = ((double)x[i] - mean) * factor * (job->weight ? (double)job->weight[i] : 1) +
               (job->bias ? (double)job->bias[i] : 0);
        y[i] = v[i];
    }
    for (int64_t i = 0; i < h && job->cos; i++) {
        const float *c = job->cos + outer * job->ld_table, *s = job->sin + outer * job->ld_table;
        int64_t second = job->half_table ? i : i + h;
        y[i] = v[i] * (double)c[i] - v[i + h] * (double)s[i];
        y[i + h] = v[i + h] * (double)c[second] + v[i] * (double)s[second];
    }
    const float *z = job->z ? job->z + outer * job->z_step.outer + inner * job->z_step.inner : NULL;
    for (int64_t i = 0; i < n && z; i++) y[i] *= (double)z[i] / (1 + exp(-(double)z[i]));
    free(v);
}

static void check_norm(const kern_ops *k, uint64_t *seed, const norm_case *c) {
    buffers b = {.seed = seed};
    int64_t rows = c->outer * c->inner, wide = c->n + 3, size = rows * c->n;
    float *y = buffers_floats(&b, size, 1), *p = buffers_floats(&b, size, 1);
    kern_memory m = {0};
    if (c->to) m = buffers_memory(&b, c->to, size, 1);
    int64_t width = c->half_table ? c->dims / 2 : c->dims;
    kern_norm job = {.n = c->n,
                     .inner = c->inner,
                     .kind = c->kind,
                     .eps = 1e-6f,
                     .scale = c->n == 128 ? 0.5f : 1,
                     .x = buffers_floats(&b, rows * wide - 3, 2),
                     .x_step = {c->inner * wide, wide},
                     .y_step = {c->n, c->outer * c->n}, /* the other way round */
                     .y = y,
                     .dims = c->dims,
                     .ld_table = width,
                     .half_table = c->half_table,
                     .to = c->to ? &m : NULL};
    if (c->weight) job.weight = buffers_floats(&b, c->n, 1);
    if (c->bias) job.bias = buffers_floats(&b, c->n, 1);
    if (c->gate) job.z = buffers_floats(&b, size, 2), job.z_step = (kern_step){c->inner * c->n, c->n};
    if (c->dims)
        job.cos = buffers_floats(&b, c->outer * width, 1), job.sin = buffers_floats(&b, c->outer * width, 1);
    IN_PIECES(k->norm, &job, rows, NULL)
    double *want = malloc((size_t)c->n * 8), e = 0, bound = c->to == 'h' ? 0x1p-10 : 1e-6;
    float *got = malloc((size_t)c->n * 4);
    for (int64_t r = 0; r < rows; r++) {
        norm_want(&job, r, want);
        int64_t at = r / c->inner * job.y_step.outer + r % c->inner * job.y_step.inner;
        for (int64_t i = 0; i < c->n; i++) got[i] = c->to ? (float)memory_at(&m, at + i) : y[at + i];
        e = fmax(e, worst(got, want, c->n, 1)); /* rotation and bias cancel: errors are of the size of 1 */
    }
    test_check(e <= bound, "%s: norm %ld is off by %g", k->isa, (long)(c - norms), e);
    if (!c->weight && !c->bias && !c->dims && !c->gate && job.scale == 1) {
        job.y = p, job.half = true;
        k->norm(&job, 0, rows);
        for (int64_t i = 0; i < size; i++)
            test_check(p[i] == num_round_f16(y[i]), "%s: norm %ld, rounded to fp16", k->isa,
                       (long)(c - norms));
        job.half = false;
    }
    job.y = p;
    if (!c->to) {
        IN_PIECES(k->norm, &job, rows, seed)
        test_check(!memcmp(y, p, (size_t)size * 4), "%s: norm %ld in pieces", k->isa, (long)(c - norms));
    }
    free(want), free(got);
    buffers_free(&b);
}

static void check_softmax(const kern_ops *k, uint64_t *seed, int64_t n, int mask_rows) {
    buffers b = {.seed = seed};
    const int64_t rows = 4;
    float *y = buffers_floats(&b, rows * n, 1), *p = buffers_floats(&b, rows * n, 1);
    float *x = buffers_floats(&b, rows * n, 5), *m = NULL;
    if (mask_rows) m = buffers_floats(&b, mask_rows * n, 2);
    for (int64_t i = 1; mask_rows && i < mask_rows * n; i += 3) m[i] = i % 2 ? -INFINITY : -6e4f;
    kern_softmax job = {
        .n = n, .x = x, .mask = m, .ldx = n, .ldm = mask_rows > 1 ? n : 0, .ldy = n, .scale = 0.7f, .y = y};
    IN_PIECES(k->softmax, &job, rows, NULL)
    job.y = p;
    IN_PIECES(k->softmax, &job, rows, seed)
    test_check(!memcmp(y, p, (size_t)(rows * n) * 4), "%s: softmax of %lld in pieces", k->isa, (long long)n);
    double *want = malloc((size_t)n * 8), e = 0;
    for (int64_t r = 0; r < rows; r++) {
        double top = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) {
            want[i] = (double)x[r * n + i] * (double)0.7f + (m ? (double)m[r * job.ldm + i] : 0);
            top = fmax(top, want[i]);
        }
        for (int64_t i = 0; i < n; i++) sum += want[i] = exp(want[i] - top);
        for (int64_t i = 0; i < n; i++) want[i] /= sum;
        e = fmax(e, worst(y + r * n, want, n, 1e-30));
    }
    /* a score of up to 30 has half an ulp of 2^-20; then exp */
    test_check(e <= 4e-6, "%s: softmax of %lld is off by %g", k->isa, (long long)n, e);
    for (int64_t i = 0; i < n; i++) x[i] = -INFINITY;
    job.mask = NULL;
    k->softmax(&job, 0, 1);
    test_check(isnan(p[0]) && isnan(p[n - 1]), "%s: softmax of nothing but -inf isn't NaN", k->isa);
    free(want);
    buffers_free(&b);
}

/* ---- order ---- */

static const float *sorted_row;
static int by_order(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    double x = (double)sorted_row[i], y = (double)sorted_row[j];
    if (isnan(x) != isnan(y)) return isnan(x) ? -1 : 1;
    if (!isnan(x) && x != y) return x > y ? -1 : 1;
    return i < j ? -1 : 1;
}

static void check_top(const kern_ops *k, uint64_t *seed, int64_t n, int64_t most, double spread, bool nan) {
    buffers b = {.seed = seed};
    const int64_t rows = 2;
    float *x = buffers_floats(&b, rows * n, spread), *values = buffers_floats(&b, rows * most, 1);
    for (int64_t i = 0; i < rows * n; i++) x[i] = roundf(x[i]); /* many ties */
    for (int64_t i = 0; nan && i < 3; i++) x[(int64_t)(random_bits(seed) % (uint64_t)n)] = NAN;
    int32_t *ids = buffers_bytes(&b, (size_t)(rows * most) * 4, 4), *order = malloc((size_t)n * 4);
    kern_top job = {.n = n, .k = most, .x = x, .ldx = n, .values = values, .ids = ids, .first = 7};
    job.scratch = buffers_bytes(&b, kern_top_scratch(most), 64);
    IN_PIECES(k->top, &job, rows, seed)
    int64_t bad = 0;
    for (int64_t r = 0; r < rows; r++) {
        sorted_row = x + r * n;
        for (int64_t i = 0; i < n; i++) order[i] = (int32_t)i;
        qsort(order, (size_t)n, 4, by_order);
        for (int64_t i = 0; i < most; i++) {
            bad += ids[r * most + i] != order[i] + 7;
            bad += memcmp(&values[r * most + i], &x[r * n + order[i]], 4) != 0;
        }
        int64_t first = 0;
        for (int64_t i = 1; i < n; i++)
            if (x[r * n + i] > x[r * n + first]) first = i;
        int64_t best = k->argmax(x + r * n, n);
        test_check(best == first, "%s: argmax of %lld gives %lld, not %lld", k->isa, (long long)n,
                   (long long)best, (long long)first);
    }
    test_check(bad == 0, "%s: top %lld of %lld: %lld wrong", k->isa, (long long)most, (long long)n,
               (long long)bad);
    free(order);
    buffers_free(&b);
}

static void check_scan(const kern_ops *k, uint64_t *seed, int64_t n) {
    static const float worse[] = {NAN, INFINITY, -INFINITY};
    buffers b = {.seed = seed};
    float *x = buffers_floats(&b, n, 30);
    for (int64_t i = 0; i < n; i++) x[i] = roundf(x[i]) - 1000; /* many ties, all below zero */
    int64_t first = 0, at = -1;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[first]) first = i;
    test_check(k->scan(x, n, &at) && at == first, "%s: scan of %lld finds %lld, not %lld", k->isa,
               (long long)n, (long long)at, (long long)first);
    int64_t places[] = {0, n - 1, (int64_t)(random_bits(seed) % (uint64_t)n)};
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++) {
            float kept = x[places[i]];
            x[places[i]] = worse[j];
            test_check(!k->scan(x, n, &at), "%s: scan of %lld takes %g", k->isa, (long long)n,
                       (double)worse[j]);
            x[places[i]] = kept;
        }
    buffers_free(&b);
}

/* ---- products ---- */

static void check_product(const kern_ops *k, uint64_t *seed, int64_t m, int64_t n, int64_t length,
                          bool turned) {
    buffers b = {.seed = seed};
    float *x = buffers_floats(&b, m * length, 1), *w = buffers_floats(&b, length * n, 1);
    float *y = buffers_floats(&b, m * n, 1), *p = buffers_floats(&b, m * n, 1);
    kern_product job = {.n = n, .k = length, .a = x, .b = w, .ldb = n, .ldc = n, .c = y};
    job.a_row = turned ? 1 : length, job.a_step = turned ? m : 1;
    IN_PIECES(k->product, &job, m, NULL)
    job.c = p;
    IN_PIECES(k->product, &job, m, seed)
    test_check(!memcmp(y, p, (size_t)(m * n) * 4), "%s: product %lld x %lld in pieces", k->isa, (long long)m,
               (long long)n);
    double e = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, size = 0;
            for (int64_t q = 0; q < length; q++) {
                double v = (double)x[i * job.a_row + q * job.a_step] * (double)w[q * n + j];
                sum += v, size += fabs(v);
            }
            e = fmax(e, fabs((double)y[i * n + j] - sum) / (size * (double)(length + 1)));
        }
    /* summing in order: length * half an ulp of the sum of sizes, at worst */
    test_check(e <= ULP, "%s: product %lld x %lld is off by %g", k->isa, (long long)m, (long long)n, e);
    buffers_free(&b);
}

void test_rows(const kern_ops *k, uint64_t *seed) {
    static const int64_t sizes[] = {1, 3, 16, 100, 1023};
    check_exp(k);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_pointwise(k, seed, sizes[i], i % 2);
        check_memory(k, seed, sizes[i]);
        check_softmax(k, seed, sizes[i], (int)(i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : 4));
    }
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) check_norm(k, seed, &norms[i]);
    check_top(k, seed, 1, 1, 1, false);
    check_top(k, seed, 77, 77, 3, true);
    check_top(k, seed, 20000, 64, 3, false);
    check_top(k, seed, 5003, 1000, 1e6, true);
    check_top(k, seed, 1000, 1, 2, true);
    for (int64_t n = 1; n < 20000; n = 3 * n + 1) check_scan(k, seed, n);
    check_product(k, seed, 64, 64, 128, false);
    check_product(k, seed, 7, 37, 20, true);
    check_product(k, seed, 1, 5, 3, false);
    check_product(k, seed, 13, 200, 33, false);
}
