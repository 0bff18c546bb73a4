/* Shape and type inference. One function serves the verifier (sizes may be unknown) and the executor (all
 * sizes known and run-time values of shape operands at hand): what an op's outputs look like is written once,
 * per op. */
#ifndef IR_INFER_H
#define IR_INFER_H
#include "ir/program.h"

/* What inference may ask about an operand. */
typedef struct {
    void *ctx;
    /* The operand's type now (declared, inferred for the shapes at hand, or actual). */
    ir_type (*type)(void *ctx, const ir_value *v);
    /* All elements of a numeric operand when they are known now (constants; at run time everything), else
     * NULL. Asked only for small operands: shapes, axes, bounds, scalars. The result lives until the next
     * reset of a. */
    const double *(*numbers)(void *ctx, const ir_value *v, size_t *n, arena *a);
} ir_env;

/* The types that values declare, and the numbers of constants. */
extern const ir_env ir_env_declared;

/* Types of the op's outputs (out has op->n_out entries). Checks ranks, sizes and dtypes of the operands as
 * far as they are known; the message names the operand and what was expected, not the function or op (callers
 * add that). a: scratch. cond and while_loop take their outputs from the blocks' declared types; read_state
 * from the state. spec: the opset. */
bool ir_infer_op(const ir_op *op, int spec, const ir_env *env, ir_type *out, arena *a, err *e);
/* False for ops that ir_infer_op() always refuses with ERR_UNSUPPORTED. */
bool ir_op_inferable(ir_opcode code);

/* Infers a whole function from the types of its inputs (in[i] for f->in[i]; NULL: as declared) without
 * run-time values. types has f->n_values entries and receives every value's type: what follows from the
 * operands and what was declared, taken together; an error where they contradict each other. Errors name
 * function, op and value. */
bool ir_infer_function(const ir_function *f, const ir_type *in, ir_type *types, err *e);

/* Helpers shared with the evaluator. */
/* A constant's elements as ir_env.numbers gives them; NULL when it is not small, not numeric or still to be
 * filled. */
const double *ir_const_numbers(const ir_const *c, size_t *n, arena *a);
/* Python slice of one dimension of known size: first index, step and number of elements. */
typedef struct {
    int64_t begin, step, count;
    bool squeeze;
} ir_slice;
/* Resolves begin/end/stride/masks of slice_by_index or slice_update (all bounds known) against x's known
 * type: fills rank entries. */
bool ir_resolve_slices(const ir_op *op, const ir_env *env, const ir_type *x, ir_slice *slices, arena *a,
                       err *e);
/* The operand's numbers as integers (clamped to +-2^53); NULL when unknown or absent (then *n = 0). */
const int64_t *ir_env_ints(const ir_env *env, const ir_op *op, ir_operand name, size_t *n, arena *a);
/* A scalar operand with a default for when it is absent; false when it is present but unknown. */
bool ir_env_int(const ir_env *env, const ir_op *op, ir_operand name, int64_t fallback, int64_t *v, arena *a);
bool ir_env_bool(const ir_env *env, const ir_op *op, ir_operand name, bool fallback, bool *v, arena *a);
const char *ir_env_text(const ir_op *op, ir_operand name,
                        const char *fallback); /* strings are always constants */
/* Axis in [-rank, rank) made non-negative; false when out of range. */
bool ir_axis(int64_t *axis, int rank);
/* NumPy broadcast of two types' sizes (dtype from a); unknown sizes stay unknown unless the other side
 * decides. */
bool ir_broadcast(const ir_type *x, const ir_type *y, ir_type *out);
#endif
