/* Ops that carry their own decomposition into primitives ("decomposable"): the op, and a region with its
 * definition. */
#ifndef COREAI_COMPOSE_H
#define COREAI_COMPOSE_H
#include "coreai/make.h"

/* x OP y with numpy's broadcasting; op: "add", "sub", "mul", "divide", "pow", "maximum", "minimum", "equal",
 * "not_equal", "greater", "logical_and", ... The result is of out, whose sizes are what x and y broadcast to.
 */
const ai_value *ai_broadcasting(ai_scope *s, const char *op, const ai_type *out, const ai_value *x,
                                const ai_value *y);
/* cond ? x : y */
const ai_value *ai_where(ai_scope *s, const ai_type *out, const ai_value *cond, const ai_value *x,
                         const ai_value *y);
/* x [.., n, k] times y [.., k, m]; leading sizes broadcast. */
const ai_value *ai_matmul(ai_scope *s, const ai_type *out, const ai_value *x, const ai_value *y);
/* Over one axis, which stays with size 1: "sum", "mean". fp16 is summed in fp32. */
const ai_value *ai_reduce(ai_scope *s, const char *op, const ai_value *x, int axis);
const ai_value *ai_softmax(ai_scope *s, const ai_value *x, int axis);
const ai_value *ai_sigmoid(ai_scope *s, const ai_value *x);
const ai_value *ai_silu(ai_scope *s, const ai_value *x);

/* x as a tensor of the shape that out says, which has as many elements: every size but one must be known. */
const ai_value *ai_reshape(ai_scope *s, const ai_type *out, const ai_value *x);
/* Sizes of x, ui32 [rank]. */
const ai_value *ai_shape(ai_scope *s, const ai_value *x);
#endif
