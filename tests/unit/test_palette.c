#include "quantize/palette.h"
#include "test.h"
#include <math.h>

static uint64_t state = 1;

static double uniform(void) { /* splitmix64 */
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* The textbook O(k n^2) dynamic program with costs summed point by point. */
static double least_error(const double *x, const double *c, size_t n, size_t k) {
    double best[257], next[257];
    for (size_t i = 0; i <= n; i++) best[i] = i ? INFINITY : 0;
    for (size_t layer = 0; layer < k; layer++) {
        for (size_t i = 0; i <= n; i++) next[i] = INFINITY;
        for (size_t i = 1; i <= n; i++) {
            double w = 0, mean = 0, m2 = 0; /* Welford, adding points downwards */
            for (size_t j = i; j-- > 0;) {
                w += c[j];
                double d = x[j] - mean;
                mean += d * c[j] / w;
                m2 += c[j] * d * (x[j] - mean);
                if (best[j] + m2 < next[i]) next[i] = best[j] + m2;
            }
        }
        memcpy(best, next, sizeof best);
    }
    return best[n];
}

static double direct_error(const double *x, const double *c, size_t n, const double *centre, size_t k) {
    double e = 0;
    for (size_t i = 0; i < n; i++) {
        double d = INFINITY;
        for (size_t j = 0; j < k; j++) d = fmin(d, fabs(x[i] - centre[j]));
        e += c[i] * d * d;
    }
    return e;
}

static size_t make(double *x, double *c, size_t n, int kind) {
    double at = kind == 1 ? -1 : uniform();
    for (size_t i = 0; i < n; i++) {
        at += kind == 0 ? uniform() + 1e-3 : kind == 1 ? 1.0 / 64 : pow(10, -3 * uniform());
        x[i] = at;
        c[i] = kind == 1 ? 1 : 1 + floor(20 * uniform());
    }
    return n;
}

static void optimal(size_t (*fit)(palette_work *, const double *, const double *, size_t, size_t, double *,
                                  double *)) {
    palette_work *w = palette_work_new();
    for (int kind = 0; kind < 3; kind++)
        for (size_t n = 1; n <= 130; n += n < 20 ? 1 : 37)
            for (size_t k = 1; k <= 64; k = k < 4 ? k + 1 : k * 2) {
                double x[200], c[200], centre[PALETTE_MAX], error;
                make(x, c, n, kind);
                size_t got = fit(w, x, c, n, k, centre, &error);
                assert_int_equal(got, n < k ? n : k);
                double want = n <= k ? 0 : least_error(x, c, n, k);
                /* prefix sums lose about 2^-52 of the whole spread in each of at most 130 additions */
                double tolerance = 1e-13 * fabs(least_error(x, c, n, 1)) + 1e-9 * want + 1e-15;
                if (fabs(error - want) > tolerance ||
                    fabs(direct_error(x, c, n, centre, got) - want) > tolerance)
                    fail_msg("kind %d n %zu k %zu: %g, expected %g", kind, n, k, error, want);
                for (size_t i = 1; i < got; i++) assert_true(centre[i] > centre[i - 1]);
            }
    palette_work_free(w);
}

static void lagrangian_search_is_optimal(void **s) {
    (void)s, optimal(palette_fit);
}
static void layered_program_is_optimal(void **s) {
    (void)s, optimal(palette_fit_layers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lagrangian_search_is_optimal),
        cmocka_unit_test(layered_program_is_optimal),
    };
    return cmocka_run_group_tests_name("palette", tests, NULL, NULL);
}
