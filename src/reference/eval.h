/* Evaluates one op on tensors. This is the definition of every op's numbers: plain loops, fp32 inside, sums
 * in index order. In strict mode each result is rounded to its declared type; in fast mode floats stay fp32
 * (and the sums of linear may be taken in blocks), and fp16 rounding happens only in an explicit cast to fp16
 * (programs split numbers with it) and where the caller rounds (states, inputs, outputs). */
#ifndef REFERENCE_EVAL_H
#define REFERENCE_EVAL_H
#include "ir/infer.h"
#include "reference/tensor.h"

typedef enum { REF_STRICT, REF_FAST } ref_mode;

#define REF_SPARES 6

/* What an op body works on. Fields up to `e` are set by the caller of ref_eval_op() and stay. */
typedef struct {
    ref_mode mode;
    int spec;        /* opset as specification version */
    ref_tensor *env; /* tensors by value id: operands are read here, results put here */
    arena *scratch;  /* reset after every op */
    err *e;
    ref_buf *spare[REF_SPARES]; /* large buffers for reuse: fresh ones cost a page fault a page */
    /* Set for each op: */
    const ir_op *op;
    const uint32_t *dies; /* ids of the values whose last use is this op */
    size_t n_dies;
    bool to_state; /* slice_update: the result is written to a state (fast mode rounds the update at once) */
    ref_tensor *out; /* op->n_out results; their types are set before the body runs */
    struct ev_temp *temps;
} ref_eval;

/* Runs any op but const, control flow and states. On failure e names the op; results are dropped. */
bool ref_eval_op(ref_eval *v, const ir_op *op);

/* Drops a tensor and keeps its memory as a spare one when that is large and nobody else holds it. */
void ref_eval_release(ref_eval *v, ref_tensor *t);
void ref_eval_free_spares(ref_eval *v);

/* ---- for op bodies ---- */
typedef bool ref_op_fn(ref_eval *v);
typedef struct {
    ref_op_fn *fn;
    bool exact; /* only moves or compares elements: results need no rounding */
} ref_op_row;
const ref_op_row *ref_op_row_of(ir_opcode code); /* fn is NULL for ops that have no body */

void ev_error(ref_eval *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Sets the error and is false. (A macro, so that analysers see that.) */
#define ev_fail(v, ...) (ev_error(v, __VA_ARGS__), false)
const ref_tensor *ev_in(ref_eval *v, ir_operand name); /* NULL when absent */
const ref_tensor *ev_value(ref_eval *v, const ir_value *x);
/* The operand's cells, expanded when packed; NULL with e set when that fails. They live until the op ends. */
const ref_cell *ev_cells(ref_eval *v, const ref_tensor *t);
const float *ev_floats(ref_eval *v, const ref_tensor *t);
const int32_t *ev_ints(ref_eval *v, const ref_tensor *t);
/* Small operands, with the default for an absent one. */
int64_t ev_int(ref_eval *v, ir_operand name, int64_t fallback);
bool ev_bool(ref_eval *v, ir_operand name, bool fallback);
float ev_float(ref_eval *v, ir_operand name, float fallback);
const char *ev_text(ref_eval *v, ir_operand name, const char *fallback);
const int64_t *ev_list(ref_eval *v, ir_operand name, size_t *n); /* NULL and n = 0 when absent */
/* The axis operand made non-negative; -1 with e set when it is out of range. */
int ev_axis(ref_eval *v, ir_operand name, int64_t fallback, int rank);
/* Axes as a bit set; all when the operand is absent. */
bool ev_axes(ref_eval *v, ir_operand name, int rank, uint32_t *set);
/* Allocates result i in the type that was inferred. */
bool ev_new(ref_eval *v, uint32_t i);
/* Result i is the tensor t seen with result i's type, from cell `first` on. No copy. */
bool ev_view(ref_eval *v, uint32_t i, const ref_tensor *t, int64_t first);
/* Work memory until the op ends, n cells of 4 bytes, not initialised; NULL with e set. */
void *ev_temp(ref_eval *v, int64_t n);
/* x's cells may be overwritten: nobody else sees them after this op. */
bool ev_may_reuse(const ref_eval *v, ir_operand name);
ir_env ev_env(ref_eval *v);
#endif
