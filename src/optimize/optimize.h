/* Passes over a copy of a function, before it is planned. The program as read is never touched. */
#ifndef OPTIMIZE_OPTIMIZE_H
#define OPTIMIZE_OPTIMIZE_H
#include "ir/program.h"

/* Copies f into p with the types that follow from in[] (by index of f->in; sizes known), and folds what is
 * constant: `shape` of a known type, and pure ops of small constants, evaluated by the reference evaluator.
 * Constants become values without an op. strict: results are rounded as that mode does.
 * NULL with ERR_UNSUPPORTED for what can't be planned ahead (control flow, sizes that depend on values). */
ir_function *opt_specialize(ir_program *p, const ir_function *f, const ir_type *in, bool strict, err *e);
/* Removes ops whose results nobody uses. */
void opt_clean(ir_function *f);
#endif
