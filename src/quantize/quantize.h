/* Compresses the weights of a program: const ops that feed linear layers or embeddings become constexpr_* ops
 * whose operands are fill jobs. The work is done when the package is written, group by group on all cores;
 * nothing of a tensor is kept but its tables. Constants shared by functions stay shared. */
#ifndef QUANTIZE_QUANTIZE_H
#define QUANTIZE_QUANTIZE_H
#include "ir/program.h"
#include "quantize/scheme.h"

/* What became of one weight. Error figures are there once it has been written. */
typedef struct {
    const char *name; /* of the constant */
    ir_type type;
    quant_scheme scheme; /* applied; meaningless when the weight stays as it is */
    bool weight;         /* of a linear layer, or a table: can be compressed in principle */
    const char *why;     /* why it stays as it is; NULL when it was compressed */
    uint64_t bytes;      /* compressed, tables and scales included */
    double error;        /* rms of (decoded - weight) / rms of weight */
    double largest;      /* largest |decoded - weight| */
} quant_result;

typedef struct {
    const quant_result *const *weight; /* in program order */
    size_t n;
} quant_report;

/* Rewrites every function of p. Weights that a scheme does not divide evenly stay as they are, and the report
 * says why. Constants of the weight file that are not the weight of a linear op or a gathered table (norms,
 * convolutions, RoPE tables) are not touched, and listed too. is_vocab tells embedding and head constants
 * from the rest. The scheme keep takes the packed form that a constant has, and its results are those of
 * w8b32 or w4 without an error. */
bool quantize_program(ir_program *p, const quant_recipe *r, bool (*is_vocab)(const char *name),
                      quant_report *report, err *e);
#endif
