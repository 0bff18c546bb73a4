/* What is known about small integers that are not known: each is a constant, or a symbol plus a constant.
 * Enough to see that [past, past + tokens) has `tokens` elements, and that a tensor whose length nobody knows
 * is repeated as often as there are heads. Inside of src/optimize. */
#ifndef OPTIMIZE_AFFINE_H
#define OPTIMIZE_AFFINE_H
#include "ir/program.h"

#define AFFINE_ELEMENTS 8

typedef struct {
    uint32_t symbol; /* 0: none */
    bool size;       /* the symbol is a size: at least 1 */
    int64_t add;
} affine_term;

typedef struct {
    uint32_t n;
    affine_term term[AFFINE_ELEMENTS];
} affine;

typedef struct affine_table affine_table;

affine_table *affine_new(arena *a, uint32_t n_values);
/* An integer of which nothing is known: new symbols, when it has few elements. */
void affine_unknown(affine_table *t, const ir_value *v, const ir_type *type);
void affine_constant(affine_table *t, const ir_value *v, const ir_const *c);
/* Records what follows for the op's result (a value of the function whose ids the table has); types are those
 * of its operands, by ctx. */
void affine_op(affine_table *t, const ir_op *op, ir_type (*type)(void *ctx, const ir_value *v), void *ctx);
/* The op's result when all of it is known to be constant, NULL otherwise. */
const ir_const *affine_known(const affine_table *t, const ir_op *op, const ir_type *type);
/* The op copies its x as it is: a slice from the start to the very end. */
bool affine_is_copy(affine_table *t, const ir_op *op, const ir_type *x, const ir_type *out);
/* How many elements at the end of x's last dimension, whose size is not known, a slice takes, and all of the
 * others; 0: it is none such. */
int64_t affine_tail(affine_table *t, const ir_op *op, const ir_type *x, const ir_type *out);
/* Fills sizes of the op's result that follow from differences of its operands: range_1d, slice_by_index. */
void affine_sizes(affine_table *t, const ir_op *op, const ir_type *x, ir_type *out);
#endif
