/* The inner loops of element-wise ops, for executors that lay memory out themselves: the same numbers as the
 * op bodies give. */
#ifndef REFERENCE_ROWS_H
#define REFERENCE_ROWS_H
#include "reference/eval.h"

/* out[i] = x[i sx] op y[i sy], i < n, on cells; out does not overlap x or y unless it is one of them. */
typedef void ref_row_fn(void *out, const void *x, int64_t sx, const void *y, int64_t sy, int64_t n);
/* NULL when the op has none for floats (or integers and bools). */
ref_row_fn *ref_binary_row(ir_opcode code, bool is_float);
/* y[i] = op(x[i]) for ops without parameters, and log, rsqrt, inverse with their epsilon. False for others.
 */
bool ref_unary_row(ir_opcode code, const float *x, float *y, int64_t n, float epsilon);
/* Elements of one dtype as another, on cells, as the op cast does. */
void ref_cast_row(const void *x, ir_dtype from, void *y, ir_dtype to, int64_t n);
#endif
