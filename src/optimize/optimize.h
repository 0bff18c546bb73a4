/* Passes over a copy of a function, before it is planned. The program as read is never touched. */
#ifndef OPTIMIZE_OPTIMIZE_H
#define OPTIMIZE_OPTIMIZE_H
#include "ir/program.h"

/* Copies f into p with the types that follow from in[] (by index of f->in), and folds what is constant:
 * `shape` of a known type, and pure ops of small constants, evaluated by the reference evaluator. Constants
 * become values without an op. Sizes in in[] may be unknown; those of results may then be, too. strict:
 * results are rounded as that mode does. NULL with ERR_UNSUPPORTED for what can't be planned ahead (control
 * flow). */
ir_function *opt_specialize(ir_program *p, const ir_function *f, const ir_type *in, bool strict, err *e);
/* Replaces groups of ops by fused ones (patterns.def). strict: only where every rounding can be kept. */
void opt_fuse(ir_program *p, ir_function *f, bool strict);
/* States of which only parts are read and which are written as a concat of these become a state for each part
 * (op state_part), in the same memory. */
void opt_unstack(ir_program *p, ir_function *f);
/* Makes once, and first, what follows from inputs of whole numbers by other ops than products and lookups. */
void opt_share(ir_function *f);
/* Puts linears of one x side by side, so that they become steps without a barrier in between. */
void opt_order(ir_function *f);
/* Removes ops whose results nobody uses. */
void opt_clean(ir_function *f);
#endif
