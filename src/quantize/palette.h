/* Globally optimal one-dimensional k-means: the palette of k entries with the least squared error.
 *
 * Optimal clusters of sorted points are intervals, and the cost of an interval obeys the quadrangle
 * inequality, so the best k intervals are a k-link shortest path in a Monge DAG. palette_fit() finds it by a
 * Lagrangian search (Aggarwal, Schieber, Tokuyama 1994; Groenlund et al., "Fast exact k-means, k-medians and
 * Bregman divergence clustering in 1D", 2017): a path that minimises cost + lambda * links and has k links is
 * the optimum. Where no lambda yields exactly k links (ties), the layered dynamic program with SMAWK row
 * minima, linear in the points per layer, decides. */
#ifndef QUANTIZE_PALETTE_H
#define QUANTIZE_PALETTE_H
#include <stddef.h>
#include <stdint.h>

#define PALETTE_MAX 256

typedef struct palette_work palette_work; /* scratch memory of one thread */

palette_work *palette_work_new(void);
void palette_work_free(palette_work *w);

/* x[0..n): distinct finite values in ascending order; count[i] > 0: how often x[i] occurs. Writes at most k
 * (1..256) ascending centres and returns how many (n when n <= k: exact). *error receives the weighted sum of
 * squared errors. */
size_t palette_fit(palette_work *w, const double *x, const double *count, size_t n, size_t k, double *centre,
                   double *error);

/* The same by the layered dynamic program alone: slower, for tests and for ties. */
size_t palette_fit_layers(palette_work *w, const double *x, const double *count, size_t n, size_t k,
                          double *centre, double *error);
#endif
