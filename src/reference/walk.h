/* Walks several arrays in step, row-major over common sizes, each with its own strides (0 for broadcast or
 * reduced dimensions, negative for reversed ones). Sizes of 1 are dropped and dimensions that lie next to
 * each other in every array are merged, so that the innermost run, which the caller loops over, is long.
 *
 *   for (ref_walk w = ref_walk_start(rank, dim, 2, (const int64_t *const[]){sx, sy}); !w.done;
 * ref_walk_next(&w)) for (int64_t i = 0; i < w.run; i++) use(x[w.pos[0] + i * w.step[0]], y[w.pos[1] + i *
 * w.step[1]]);
 */
#ifndef REFERENCE_WALK_H
#define REFERENCE_WALK_H
#include "ir/type.h"

#define WALK_RANK   (2 * IR_MAX_RANK)
#define WALK_ARRAYS 4

typedef struct {
    int64_t run;               /* elements in the innermost run */
    int64_t pos[WALK_ARRAYS];  /* where the run starts, in elements */
    int64_t step[WALK_ARRAYS]; /* stride inside the run */
    bool done;
    int rank, n; /* outer dimensions, arrays */
    int64_t dim[WALK_RANK], at[WALK_RANK], stride[WALK_ARRAYS][WALK_RANK];
} ref_walk;

ref_walk ref_walk_start(int rank, const int64_t *dim, int n, const int64_t *const *stride);
void ref_walk_next(ref_walk *w);
/* Strides of a dense row-major tensor; s has room for its rank. */
void ref_strides(const ir_type *t, int64_t *s);
/* Strides of t seen with the sizes of `out`, broadcast (aligned from the right); s has room for out's rank.
 */
void ref_broadcast_strides(const ir_type *t, const ir_type *out, int64_t *s);
/* o[...] = x[...] with x's strides over the given sizes; o is dense. Elements have 4 bytes. */
void ref_copy_strided(void *o, const void *x, int rank, const int64_t *dim, const int64_t *stride);
/* The elements that sizes and strides describe lie one after the other, in order. */
bool ref_is_dense(int rank, const int64_t *dim, const int64_t *stride);
/* Elements per index of `axis` behind it, and before it. */
int64_t ref_inner(const ir_type *t, int axis);
int64_t ref_outer(const ir_type *t, int axis);
#endif
