/* Linear kernels: every weight kind x number path x instruction set of this machine against sums in f64. */
#include "cases.h"
#include "kernels_test.h"
#include "weights.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_N 17
static const int64_t counts[] = {1, 2, 3, 5, 8, 16, MAX_N};

typedef struct {
    const weight_case *c;
    test_weight t;
    float *x, *bias, *add; /* x: guarded [MAX_N][cols] */
    double *want, *size;   /* [MAX_N][rows]: the sum; the sum of |x w| */
    double *fixed;         /* bound of what INT16's rounding of x and of the table may add */
    double *fixed8;        /* of what INT8's rounding of x may add */
    bool at_end;
} subject;

static size_t x_bytes(const subject *s) {
    return (size_t)(MAX_N * s->c->cols) * 4;
}

/* Activations with a few outliers, one row with tiny numbers, one with zeros in it. */
static void make_x(subject *s, uint64_t *seed) {
    int64_t cols = s->c->cols;
    s->x = guarded(x_bytes(s), 4, s->at_end);
    for (int64_t i = 0; i < MAX_N; i++)
        for (int64_t j = 0; j < cols; j++) {
            double v = random_normal(seed) * (random_bits(seed) % 97 ? 1 : 60);
            s->x[i * cols + j] = (float)(i == 2 ? v * 1e-6 : i == 3 && j / 64 % 2 ? 0 : v);
        }
}

static double largest_entry(const kern_weight *w, int64_t r) {
    double m = 0;
    for (int64_t j = 0; j < w->cols; j++) m = fmax(m, fabs(weight_at(w, r, j)));
    return m;
}

static void make_wanted(subject *s) {
    const kern_weight *w = &s->t.w;
    for (int64_t r = 0; r < w->rows; r++) {
        double step =
            w->bits ? largest_entry(w, r) * 0x1p-13 : 0; /* table entries are multiples of at most this */
        for (int64_t i = 0; i < MAX_N; i++) {
            const float *x = s->x + i * w->cols;
            double sum = 0, size = 0, fixed = 0, weights = 0, most = 0, xs = 0, all = 0, top = 0, fixed8 = 0;
            for (int64_t j = 0; j < w->cols; j++) {
                double v = weight_at(w, r, j), p = v * (double)x[j];
                sum += p, size += fabs(p), weights += fabs(v) + step, xs += fabs((double)x[j]);
                most = fmax(most, fabs((double)x[j]));
                all += fabs(v), top = fmax(top, fabs((double)x[j]));
                if (j % 256 == 255 || j + 1 == w->cols) {
                    fixed8 += all * top / 127 * 0.5001;
                    all = top = 0;
                }
                if (j % 64 == 63 || j + 1 == w->cols) {
                    fixed += weights * most / 32639 * 0.5001;
                    weights = most = 0;
                }
            }
            int64_t at = i * w->rows + r;
            s->want[at] = sum + (double)s->bias[r] + (double)s->add[at];
            s->size[at] = size + fabs((double)s->bias[r]) + fabs((double)s->add[at]);
            s->fixed8[at] = fixed8;
            s->fixed[at] =
                fixed + xs * step * 2; /* half a step; a table whose top entry no code uses: twice that */
        }
    }
}

static void subject_make(subject *s, const weight_case *c, uint64_t *seed, bool at_end, bool rounded) {
    *s = (subject){.c = c, .at_end = at_end};
    weight_make(&s->t, c, seed, at_end);
    s->t.w.rounded = rounded;
    make_x(s, seed);
    size_t n = (size_t)(MAX_N * c->rows);
    s->bias = guarded((size_t)c->rows * 4, 4, at_end);
    s->add = malloc(n * 4), s->want = malloc(n * 8), s->size = malloc(n * 8), s->fixed = malloc(n * 8);
    s->fixed8 = malloc(n * 8);
    for (int64_t r = 0; r < c->rows; r++) s->bias[r] = (float)random_normal(seed);
    for (size_t i = 0; i < n; i++) s->add[i] = (float)random_normal(seed);
    make_wanted(s);
}

static void subject_free(subject *s) {
    weight_free(&s->t, s->at_end);
    guarded_free(s->x, x_bytes(s), 4, s->at_end);
    guarded_free(s->bias, (size_t)s->c->rows * 4, 4, s->at_end);
    free(s->add), free(s->want), free(s->size), free(s->fixed), free(s->fixed8);
}

/* y[n][rows] of one kernel, in random pieces of rows when a seed is given. */
static void run(const subject *s, const kern_choice *c, int64_t n, float *y, uint64_t *seed) {
    int64_t rows = s->c->rows, cols = s->c->cols;
    size_t prepared = kern_x_bytes(c->form, cols, n);
    void *px = prepared ? guarded(prepared, 64, true) : NULL;
    void *scratch = c->scratch ? guarded(c->scratch, 64, true) : NULL;
    if (c->prepare) c->prepare(px, s->x, cols, cols, n / 2, n), c->prepare(px, s->x, cols, cols, 0, n / 2);
    if (c->prepare_part) { /* by columns it is the same */
        void *parts = guarded(prepared, 64, true);
        memset(parts, 0x5A, prepared), memset(px, 0x5A, prepared);
        c->prepare(px, s->x, cols, cols, 0, n);
        for (int64_t at = 0; at < cols; at += 3 * KERN_PART)
            c->prepare_part(parts, s->x + at, cols, cols, at,
                            cols - at < 3 * KERN_PART ? cols - at : 3 * KERN_PART, 0, n);
        test_check(!memcmp(parts, px, prepared), "%s: prepared by columns differs", s->c->name);
        guarded_free(parts, prepared, 64, true);
    }
    kern_linear job = {.w = &s->t.w,
                       .x = px ? px : s->x,
                       .n = n,
                       .ldx = cols,
                       .bias = s->bias,
                       .add = s->add,
                       .ldadd = rows,
                       .y = y,
                       .ldy = rows,
                       .scratch = scratch};
    for (int64_t lo = 0; lo < rows;) {
        int64_t hi = seed ? lo + 1 + (int64_t)(random_bits(seed) % (uint64_t)(rows - lo)) : rows;
        c->run(&job, lo, hi);
        lo = hi;
    }
    guarded_free(px, prepared, 64, true);
    guarded_free(scratch, c->scratch, 64, true);
}

/* What a path may lose beside the rounding of sums, as a share of the sum of |x w|. */
static double operand_loss(kern_path path) {
    return path == KERN_BF16 ? 0x1p-8 + 0x1p-18
                             : 0; /* x and w each rounded to 8 bits: 2^-9 of them at most */
}

static void check_values(const subject *s, const kern_choice *c, const char *isa, const float *y, int64_t n) {
    double worst = 0;
    int64_t where = 0;
    for (int64_t i = 0; i < n * s->c->rows; i++) {
        /* each of cols / 16 additions of a lane, of the 4 of the tree and of scale, bias and addend: half an
         * ulp */
        double bound =
            s->size[i] * ((double)s->c->cols / 16 + 10) * 0x1p-24 + s->size[i] * operand_loss(c->path);
        if (c->path == KERN_INT16) bound += s->fixed[i];
        if (c->path == KERN_INT8) bound += s->fixed8[i];
        double error = fabs((double)y[i] - s->want[i]) / (bound + 1e-30);
        if (!(error <= worst)) worst = error, where = i;
    }
    test_check(worst <= 1,
               "%s %lldx%lld %s path %d n %lld: y[%lld] = %.9g, expected %.9g (%.3g of the bound)",
               s->c->name, (long long)s->c->rows, (long long)s->c->cols, isa, (int)c->path, (long long)n,
               (long long)where, (double)y[where], s->want[where], worst);
}

static void same(const subject *s, const char *isa, kern_path path, int64_t n, const char *what,
                 const float *a, const float *b) {
    size_t count = (size_t)(n * s->c->rows), i = 0;
    while (i < count && !memcmp(a + i, b + i, 4)) i++;
    test_check(i == count, "%s %lldx%lld %s path %d n %lld: y[%zu] = %.9g %s %.9g", s->c->name,
               (long long)s->c->rows, (long long)s->c->cols, isa, (int)path, (long long)n, i,
               i < count ? (double)a[i] : 0, what, i < count ? (double)b[i] : 0);
}

/* portable: results of integer products by plain C, which every instruction set must repeat bit for bit; or
 * NULL. */
static void check_path(const subject *s, const kern_table *k, kern_path path, const float *portable,
                       uint64_t *seed) {
    size_t bytes = (size_t)(MAX_N * s->c->rows) * 4;
    float *all = malloc(bytes), *y = malloc(bytes);
    for (int t = (int)(sizeof counts / sizeof *counts) - 1; t >= 0; t--) {
        int64_t n = counts[t];
        kern_choice c = kern_choose(k, &s->t.w, path, n);
        if (c.path != path) break;
        memset(y, 0xFF, bytes);
        run(s, &c, n, y, NULL);
        check_values(s, &c, k->isa, y, n);
        if (n == MAX_N) memcpy(all, y, bytes);
        if (path != KERN_BF16) same(s, k->isa, path, n, "differs from the larger call's", y, all);
        if (portable) same(s, k->isa, path, n, "differs from plain C's", y, portable);
        float *split = malloc(bytes);
        run(s, &c, n, split, seed);
        same(s, k->isa, path, n, "differs when rows are split:", y, split);
        free(split);
    }
    free(all), free(y);
}

static void check_decode(const subject *s, const kern_table *k) {
    const kern_weight *w = &s->t.w;
    float *row = guarded((size_t)w->cols * 4, 4, true);
    int64_t bad = 0;
    for (int64_t r = 0; r < w->rows; r++) {
        int64_t cut = (r * 37) % (w->cols + 1);
        k->decode(w, r, 0, cut, row);
        k->decode(w, r, cut, w->cols - cut, row + cut);
        for (int64_t j = 0; j < w->cols; j++) {
            double v = weight_at(w, r, j);
            bad += !(fabs((double)row[j] - v) <= fabs(v) * 0x1p-23); /* at most two roundings */
        }
    }
    test_check(!bad, "%s %lldx%lld %s: decode gives %lld wrong elements", s->c->name, (long long)w->rows,
               (long long)w->cols, k->isa, (long long)bad);
    guarded_free(row, (size_t)w->cols * 4, 4, true);
}

/* NaN and infinity in x reach the results; a palette with an outlier keeps to exact arithmetic. */
static void check_special(const kern_table *k) {
    uint64_t seed = 5;
    subject s;
    subject_make(&s, &weight_cases[0], &seed, false, false);
    s.x[3] = NAN, s.x[s.c->cols + 700] = -INFINITY;
    float *y = malloc((size_t)(MAX_N * s.c->rows) * 4);
    for (int path = KERN_EXACT; path <= KERN_INT16; path++) {
        kern_choice c = kern_choose(k, &s.t.w, (kern_path)path, 3);
        run(&s, &c, 3, y, NULL);
        bool ok = true;
        for (int64_t r = 0; r < s.c->rows; r++)
            ok = ok && isnan(y[r]) && !isfinite(y[s.c->rows + r]) && isfinite(y[2 * s.c->rows + r]);
        test_check(ok, "%s path %d: NaN or infinity in x is lost, or spreads to other rows", k->isa, path);
    }
    ((uint16_t *)s.t.table)[5] = 0x6000; /* 512 among 0.05s */
    kern_choice c = kern_choose(k, &s.t.w, KERN_INT16, 1);
    test_check(c.path == KERN_EXACT, "%s: a table with an outlier is put in fixed point", k->isa);
    free(y);
    subject_free(&s);
}

static void check_case(const weight_case *w, const kern_table *tables, int n_tables, uint64_t *seed,
                       bool at_end, bool rounded) {
    subject s;
    subject_make(&s, w, seed, at_end, rounded);
    float *portable[KERN_PATHS] = {NULL};
    for (int path = KERN_INT16; path < KERN_PATHS; path++) {
        kern_choice c = kern_choose(&tables[0], &s.t.w, (kern_path)path, MAX_N);
        if (path == KERN_BF16 || c.path != (kern_path)path) continue;
        portable[path] = malloc((size_t)(MAX_N * s.c->rows) * 4);
        run(&s, &c, MAX_N, portable[path], NULL);
    }
    for (int t = 0; t < n_tables; t++) {
        for (int path = 0; path < KERN_PATHS; path++)
            check_path(&s, &tables[t], (kern_path)path, portable[path], seed);
        check_decode(&s, &tables[t]);
    }
    for (int path = 0; path < KERN_PATHS; path++) free(portable[path]);
    subject_free(&s);
}

void test_linear(const kern_table *tables, int n_tables) {
    uint64_t seed = 1;
    for (size_t i = 0; i < (size_t)n_weight_cases; i++) {
        if (!test_wanted(weight_cases[i].rows * weight_cases[i].cols * MAX_N)) continue;
        check_case(&weight_cases[i], tables, n_tables, &seed, i % 2 == 0, false);
        if (weight_cases[i].scale &&
            weight_cases[i].scale_type == KERN_F16) /* the product is exact in fp32 */
            check_case(&weight_cases[i], tables, n_tables, &seed, i % 2 == 0, true);
    }
    for (int t = 0; t < n_tables; t++) check_special(&tables[t]);
}
