/* Checkpoint tensors as constants of the program: converted row block by row block when the package is
 * written. */
#ifndef MODELS_WEIGHTS_H
#define MODELS_WEIGHTS_H
#include "checkpoint/safetensors.h"
#include "ir/program.h"

/* What happens to the values, in fp32, before they are rounded to the constant's dtype. */
typedef enum {
    FOLD_NONE,
    FOLD_ADD_ONE, /* 1 + w: norms that are stored as offsets from 1 */
    FOLD_NEG_EXP  /* -exp(w): the decay rates of gated DeltaNet */
} weight_fold;

/* What fp16 would do to the (folded) values of a tensor. */
typedef struct {
    uint64_t overflow, vanish, not_finite; /* finite -> infinity; not 0 -> 0; infinity or NaN already */
} weight_range;

bool weight_readable(ir_dtype d); /* fp32, fp16, bf16 */
weight_range weight_scan(const st_tensor *t, weight_fold fold);
/* Rows [row, row + shape.dim[0]) of a readable tensor as a constant of that shape; d: fp16 or fp32. Borrows
 * the mapped bytes when nothing has to be converted. Blocks of codes that an op can hold as they are, are the
 * constant's packed form. */
const ir_const *weight_const(arena *a, const st_tensor *t, weight_fold fold, int64_t row, ir_type shape);
/* The same elements in the same dtype. Both readable. */
bool weight_equal(const st_tensor *a, const st_tensor *b);
#endif
