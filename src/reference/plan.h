/* What can be said about a function before it runs: where each value is used last, and which state reads may
 * take the state's memory because the state is overwritten before anyone looks at it again. Immutable, shared
 * by threads. */
#ifndef REFERENCE_PLAN_H
#define REFERENCE_PLAN_H
#include "base/arena.h"
#include "ir/program.h"

typedef struct ref_block_plan ref_block_plan;

typedef struct {
    const uint32_t *dies; /* values of the op's own block that nothing uses after this op */
    uint32_t n_dies;
    bool take;     /* read_state: the next access of the state, in the same block, is a write_state */
    bool to_state; /* slice_update: the result is written to a state */
    ref_block_plan **block; /* one a nested block */
} ref_op_plan;

struct ref_block_plan {
    ref_op_plan *op; /* one an op of the block */
    uint32_t *defs;  /* values that the block makes, its inputs included; constants left out */
    size_t n_defs;
};

typedef struct {
    const ir_function *f;
    ref_block_plan *body;
} ref_plan;

ref_plan *ref_plan_new(arena *a, const ir_function *f);
#endif
