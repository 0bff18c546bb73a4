/* Loops over several strided arrays in step, cut into units that workers can take in any order: rows of the
 * merged inner dimension, and blocks of a row. */
#ifndef PLAN_GRID_H
#define PLAN_GRID_H
#include "ir/type.h"

#define GRID_ARRAYS 4
#define GRID_BLOCK  1024

typedef struct {
    int rank, n;
    int64_t run, rows, blocks; /* elements in a row, rows, blocks of a row */
    int64_t dim[IR_MAX_RANK], stride[GRID_ARRAYS][IR_MAX_RANK], step[GRID_ARRAYS];
} grid;

grid grid_make(int rank, const int64_t *dim, int n, const int64_t *const *stride);
static inline int64_t grid_units(const grid *g) {
    return g->rows * g->blocks;
}
/* Units that are worth a worker's while. */
int64_t grid_grain(const grid *g, int64_t elements);

/* Where unit u begins in each array; returns how many elements it has. */
static inline int64_t grid_unit(const grid *g, int64_t u, int64_t *pos) {
    int64_t row = u / g->blocks, from = u % g->blocks * GRID_BLOCK;
    for (int k = 0; k < g->n; k++) pos[k] = from * g->step[k];
    for (int d = g->rank - 1; d >= 0; d--) {
        int64_t i = row % g->dim[d];
        row /= g->dim[d];
        for (int k = 0; k < g->n; k++) pos[k] += i * g->stride[k][d];
    }
    return g->run - from < GRID_BLOCK ? g->run - from : GRID_BLOCK;
}
#endif
