#include "plan/grid.h"
#include "reference/walk.h"
#include <string.h>

grid grid_make(int rank, const int64_t *dim, int n, const int64_t *const *stride) {
    ref_walk w = ref_walk_start(rank, dim, n, stride); /* drops sizes of 1, merges what adjoins */
    grid g = {.rank = w.rank, .n = n, .run = w.run, .rows = 1};
    for (int d = 0; d < w.rank; d++) g.dim[d] = w.dim[d], g.rows *= w.dim[d];
    for (int k = 0; k < n; k++) {
        g.step[k] = w.step[k];
        for (int d = 0; d < w.rank; d++) g.stride[k][d] = w.stride[k][d];
    }
    if (w.done) g.rows = 0;
    g.blocks = (g.run + GRID_BLOCK - 1) / GRID_BLOCK;
    return g;
}

int64_t grid_grain(const grid *g, int64_t elements) {
    int64_t unit = g->run < GRID_BLOCK ? g->run : GRID_BLOCK;
    int64_t n = elements / (unit ? unit : 1);
    return n < 1 ? 1 : n;
}
