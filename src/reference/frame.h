/* A function in execution: its values. One frame runs one call at a time; decompressed and expanded constants
 * stay in it from call to call. */
#ifndef REFERENCE_FRAME_H
#define REFERENCE_FRAME_H
#include "reference/eval.h"
#include "reference/plan.h"
#include <stdatomic.h>

/* A call stops with ERR_LIMIT after so many loop iterations in all. */
#define REF_MAX_ITERATIONS (1 << 20)

typedef struct ref_frame ref_frame;

typedef struct {
    const ref_tensor *in;     /* by index of function->in; entries of states are not read. Kept, not taken */
    ref_tensor *const *state; /* by index of function->in: where the state lives (NULL for other inputs) */
    const ir_value **keep;    /* inner values to keep for ref_frame_kept() */
    size_t n_keep;
    bool find_nonfinite; /* ERR_NUMERIC at the first op that makes a NaN without having got one, or an
                            infinity from finite operands */
    /* Sees every float result of every op but constants, as it is made. NULL: nobody looks. */
    void (*observe)(void *ctx, const ir_value *v, const ref_tensor *t);
    void *observe_ctx;
    const atomic_bool *cancel; /* once set, no further op begins: ERR_CANCELLED. NULL */
} ref_frame_call;

ref_frame *ref_frame_new(const ref_plan *plan, ref_mode mode, err *e);
void ref_frame_free(ref_frame *f);
/* Runs the function. On failure a state may have lost its content (state->cell is NULL) or be half updated.
 */
bool ref_frame_run(ref_frame *f, const ref_frame_call *call, err *e);
/* Result i of the last run (until the next one), with cells. */
const ref_tensor *ref_frame_result(ref_frame *f, size_t i, err *e);
/* The value keep[i] of the last run: the last one made, in a loop. NULL with e set when it was not computed.
 */
const ref_tensor *ref_frame_kept(ref_frame *f, size_t i, err *e);
void ref_frame_clear(ref_frame *f); /* drops all values but constants */
#endif
