#include "quantize/palette.h"
#include "base/arena.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct palette_work {
    size_t cap, cap_layers, cap_rows;
    double *w, *s, *q;   /* prefix sums of count, count * x, count * x^2; cap + 1 entries */
    double *best, *next; /* cost of the best partition of the first i points */
    uint32_t *from;      /* where the last interval of that partition starts */
    uint32_t *links;     /* its number of intervals */
    uint32_t *queue, *start;
    uint32_t *layer; /* [k][cap + 1] starts, for the layered program */
    uint32_t *rows;  /* index lists of the SMAWK recursion */
};

palette_work *palette_work_new(void) {
    palette_work *w = mem_alloc(sizeof *w);
    *w = (palette_work){0};
    return w;
}

void palette_work_free(palette_work *w) {
    if (!w) return;
    void *parts[] = {w->w,     w->s,     w->q,     w->best,  w->next, w->from,
                     w->links, w->queue, w->start, w->layer, w->rows};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) mem_free(parts[i]);
    mem_free(w);
}

static void reserve(palette_work *w, size_t n) {
    if (n + 1 <= w->cap) return;
    w->cap = n + 1 + n / 2;
    double **d[] = {&w->w, &w->s, &w->q, &w->best, &w->next};
    uint32_t **u[] = {&w->from, &w->links, &w->queue, &w->start};
    for (size_t i = 0; i < sizeof d / sizeof *d; i++) *d[i] = mem_realloc(*d[i], w->cap * sizeof(double));
    for (size_t i = 0; i < sizeof u / sizeof *u; i++) *u[i] = mem_realloc(*u[i], w->cap * sizeof(uint32_t));
}

/* Prefix sums about the mean, which keeps the differences of squares small. Returns the mean. */
static double prepare(palette_work *w, const double *x, const double *count, size_t n) {
    reserve(w, n);
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; i++) total += count[i], sum += count[i] * x[i];
    double mean = sum / total;
    w->w[0] = w->s[0] = w->q[0] = 0;
    for (size_t i = 0; i < n; i++) {
        double d = x[i] - mean;
        w->w[i + 1] = w->w[i] + count[i];
        w->s[i + 1] = w->s[i] + count[i] * d;
        w->q[i + 1] = w->q[i] + count[i] * d * d;
    }
    return mean;
}

/* Squared error of the points j .. i-1 about their mean. */
static inline double cost(const palette_work *w, size_t j, size_t i) {
    double s = w->s[i] - w->s[j];
    return (w->q[i] - w->q[j]) - s * s / (w->w[i] - w->w[j]);
}

/* First i in (from, n] at which candidate b (later) beats candidate a; n + 1 when never. Monge: once better,
 * always. */
static size_t overtakes(const palette_work *w, size_t a, size_t b, size_t from, size_t n) {
    double gap = w->best[b] - w->best[a];
#define BETTER(i) (gap + cost(w, b, i) < cost(w, a, i))
    size_t lo = from, step = 8, hi = from + step;
    while (hi <= n && !BETTER(hi)) lo = hi, step *= 2, hi += step; /* the crossing is usually near */
    if (hi > n) {
        if (lo >= n || !BETTER(n)) return n + 1;
        hi = n;
    }
    while (hi - lo > 1) { /* not better at lo (or lo == from), better at hi */
        size_t mid = lo + (hi - lo) / 2;
        if (BETTER(mid))
            hi = mid;
        else
            lo = mid;
    }
#undef BETTER
    return hi;
}

/* Best partition into any number of intervals at a price of lambda each; returns how many it has. */
static uint32_t penalized(palette_work *w, size_t n, double lambda) {
    size_t head = 0,
           tail = 0; /* queue[head..tail]: candidates; start[]: from where on each is the best of them */
    w->best[0] = 0;
    w->links[0] = 0;
    w->queue[0] = 0, w->start[0] = 1;
    for (size_t i = 1; i <= n; i++) {
        while (head < tail && w->start[head + 1] <= i) head++;
        size_t j = w->queue[head];
        w->best[i] = w->best[j] + cost(w, j, i) + lambda;
        w->from[i] = (uint32_t)j;
        w->links[i] = w->links[j] + 1;
        if (i == n) break;
        size_t at = n + 1;
        for (;;) { /* drop candidates that i beats from where they would begin */
            size_t a = w->queue[tail], s = w->start[tail] > i + 1 ? w->start[tail] : i + 1;
            if (w->best[i] + cost(w, i, s) < w->best[a] + cost(w, a, s)) {
                at = s;
                if (tail == head || s == i + 1) break;
                tail--;
                continue;
            }
            size_t from = overtakes(w, a, i, s, n);
            at = from < at ? from : at;
            break;
        }
        if (at > n) continue;
        if (at == i + 1 && w->start[tail] <= i + 1 && tail == head) {
            w->queue[tail] = (uint32_t)i; /* the old best ends with i */
            w->start[tail] = (uint32_t)at;
            continue;
        }
        if (w->start[tail] >= at) tail--;
        tail++;
        w->queue[tail] = (uint32_t)i;
        w->start[tail] = (uint32_t)at;
    }
    return w->links[n];
}

/* Centres and exact error of the partition whose interval ends are end[0..k). */
static void finish(const palette_work *w, double mean, const uint32_t *end, size_t k, double *centre,
                   double *error) {
    size_t begin = 0;
    *error = 0;
    for (size_t c = 0; c < k; c++) {
        centre[c] = mean + (w->s[end[c]] - w->s[begin]) / (w->w[end[c]] - w->w[begin]);
        double e = cost(w, begin, end[c]);
        if (e > 0) *error += e;
        begin = end[c];
    }
}

static size_t exact(const double *x, size_t n, double *centre, double *error) {
    for (size_t i = 0; i < n; i++) centre[i] = x[i];
    *error = 0;
    return n;
}

/* High-resolution theory (Panter and Dite): error(k) ~ c / k^2, so an interval more saves about 2 error / k;
 * k equal intervals of the range bound the error from above. A starting point only. */
static double first_lambda(const palette_work *w, const double *x, size_t n, size_t k) {
    double range = x[n - 1] - x[0], step = range / (double)k;
    double lambda = 2 * w->w[n] * step * step / 12 / (double)k;
    return lambda > 0 ? lambda : 1e-300;
}

size_t palette_fit(palette_work *w, const double *x, const double *count, size_t n, size_t k, double *centre,
                   double *error) {
    if (n <= k) return exact(x, n, centre, error);
    double mean = prepare(w, x, count, n);
    double lambda = first_lambda(w, x, n, k), lo = 0, hi = 0; /* more than k links at lo, fewer at hi */
    double lo_links = 0, hi_links = 0;
    for (int round = 0; round < 60; round++) {
        uint32_t links = penalized(w, n, lambda);
        if (links == k) {
            uint32_t end[PALETTE_MAX];
            size_t i = n;
            for (size_t c = k; c-- > 0; i = w->from[i]) end[c] = (uint32_t)i;
            finish(w, mean, end, k, centre, error);
            return k;
        }
        if (links > k)
            lo = lambda, lo_links = links;
        else
            hi = lambda, hi_links = links;
        /* links ~ lambda^(-1/3): step by that law while one side is open, then between the two sides by it as
         * well. */
        double guess = lambda * pow((double)links / (double)k, 3);
        if (lo > 0 && hi > 0) {
            double t = log(lo_links / (double)k) / log(lo_links / hi_links);
            guess = round % 4 == 3 ? sqrt(lo * hi) : lo * pow(hi / lo, t);
            if (!(guess > lo && guess < hi)) guess = sqrt(lo * hi);
            if (!(guess > lo && guess < hi)) break;
        }
        lambda = guess;
    }
    return palette_fit_layers(w, x, count, n, k, centre, error);
}

/* --- layered dynamic program ------------------------------------------------------------------------------
 */

/* best[j] + cost(j, i): splitting off points j .. i-1; only j < i is a partition. */
static inline double entry(const palette_work *w, size_t j, size_t i) {
    return j < i ? w->best[j] + cost(w, j, i) : INFINITY;
}

/* SMAWK: for each row i of rows[0..n) the column j of cols[0..m) with the least entry(j, i), written to
 * arg[i]. scratch: room for n + m indices. */
static void row_minima(palette_work *w, const uint32_t *rows, size_t n, const uint32_t *cols, size_t m,
                       uint32_t *arg, uint32_t *scratch) {
    if (!n) return;
    uint32_t *kept = scratch; /* reduce: at most n columns can hold a minimum */
    size_t used = 0;
    for (size_t c = 0; c < m; c++) {
        while (used && entry(w, kept[used - 1], rows[used - 1]) > entry(w, cols[c], rows[used - 1])) used--;
        if (used < n) kept[used++] = cols[c];
    }
    uint32_t *odd = scratch + used;
    size_t n_odd = 0;
    for (size_t r = 1; r < n; r += 2) odd[n_odd++] = rows[r];
    row_minima(w, odd, n_odd, kept, used, arg, odd + n_odd);
    for (size_t r = 0, c = 0; r < n; r += 2) { /* even rows: between the minima of their neighbours */
        uint32_t last = r + 1 < n ? arg[rows[r + 1]] : kept[used - 1];
        double least = INFINITY;
        arg[rows[r]] = kept[c];
        for (;; c++) {
            double v = entry(w, kept[c], rows[r]);
            if (v < least) least = v, arg[rows[r]] = kept[c];
            if (kept[c] == last) break;
        }
    }
}

size_t palette_fit_layers(palette_work *w, const double *x, const double *count, size_t n, size_t k,
                          double *centre, double *error) {
    if (n <= k) return exact(x, n, centre, error);
    double mean = prepare(w, x, count, n);
    if (w->cap_layers < k * (n + 1)) {
        w->cap_layers = k * (n + 1);
        w->layer = mem_realloc(w->layer, w->cap_layers * sizeof *w->layer);
    }
    if (w->cap_rows < 8 * (n + 1)) {
        w->cap_rows = 8 * (n + 1);
        w->rows = mem_realloc(w->rows, w->cap_rows * sizeof *w->rows);
    }
    for (size_t i = 1; i <= n; i++) w->best[i] = cost(w, 0, i);
    uint32_t *rows = w->rows, *cols = rows + n, *scratch = cols + n;
    for (size_t c = 1; c < k; c++) { /* partitions into c + 1 intervals; the first i > c points */
        size_t count_rows = n - c;
        for (size_t i = 0; i < count_rows; i++) rows[i] = (uint32_t)(c + 1 + i), cols[i] = (uint32_t)(c + i);
        uint32_t *arg = w->layer + c * (n + 1);
        row_minima(w, rows, count_rows, cols, count_rows, arg, scratch);
        for (size_t i = c + 1; i <= n; i++) w->next[i] = entry(w, arg[i], i);
        double *t = w->best;
        w->best = w->next;
        w->next = t;
    }
    uint32_t end[PALETTE_MAX];
    size_t i = n;
    for (size_t c = k; c-- > 0;) {
        end[c] = (uint32_t)i;
        i = c ? w->layer[c * (n + 1) + i] : 0;
    }
    finish(w, mean, end, k, centre, error);
    return k;
}
