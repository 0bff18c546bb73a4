/* One side of a comparison: a package of the artifact's or the reference's, to evaluate parts of it by hand.
 * For this module only. */
#ifndef CHECK_SIDE_H
#define CHECK_SIDE_H
#include "check/check.h"
#include "reference/eval.h"

typedef struct {
    const ir_function *f;
    ref_eval v; /* env: one tensor a value of f */
} side;

/* The function for one token, of package i; NULL when it is a pipeline. */
const ir_function *side_function(const lm *m, size_t i);
/* To evaluate that. s is zeroed; side_end() also after an error. */
bool side_begin(side *s, const lm *m, size_t i, arena *scratch, err *e);
void side_end(side *s);
/* Puts a constant, or what a decompressing op makes of constants, into env. */
bool side_decode(side *s, const ir_value *v);

/* By value id: it is an operand of a decompressing op. Lives in a. */
bool *side_parts(arena *a, const ir_function *f);

/* Rows of scores (rows.c): index of the highest (of equal ones the lowest), its lead, log(sum(exp)). */
size_t row_best(const float *x, size_t n);
double row_margin(const float *x, size_t n, size_t best);
double row_log_sum(const float *x, size_t n);
/* KL(ref || got) in nats. error (may be NULL): raised to the largest difference. */
double row_divergence(const float *ref, const float *got, size_t n, double *error);
/* Two rows behind the same tokens. ref: n logits; got: logits or candidates, with which the divergence is
 * that of their scores alone. */
typedef struct {
    int32_t want, got; /* best ids */
    double margin;     /* of want */
    double kl, error;
} row_result;
bool row_compare(row_result *r, const decoder_row *ref, const decoder_row *got, err *e);

/* layer_N_out: N; -1 for other names. */
int64_t side_layer_of(const char *name);
#endif
