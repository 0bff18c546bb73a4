/* What millet inspect counts in a model: how its weights are stored, and how often each op occurs. */
#ifndef CLI_SUMMARY_H
#define CLI_SUMMARY_H
#include "coreml/model.h"

/* Weights that are stored in one way: "fp16", or "lut_to_dense uint4" for what a constexpr op expands. */
typedef struct {
    const char *name;
    uint64_t tensors;
    uint64_t values; /* after expansion */
    uint64_t bytes;  /* as stored, with palettes, scales and masks */
} summary_kind;

typedef struct {
    summary_kind *kind; /* most bytes first */
    size_t n_kind;
    uint64_t values, bytes;
} summary_weights;

/* Constants of the weight files and what constexpr ops expand, each counted once however many functions use
 * it. Small values written in the program itself are not weights. */
void summary_of_weights(summary_weights *w, arena *a, const ir_program *p);
double summary_bits(uint64_t bytes, uint64_t values); /* bits per weight; 0 for no values */

typedef struct {
    ir_opcode code;
    uint64_t count;
} summary_op;

/* Ops of a function, nested blocks included, most frequent first; const ops left out. Returns how many
 * entries. */
size_t summary_of_ops(summary_op ops[OP_COUNT], const ir_function *f);
#endif
