/* One side of a comparison: the artifact's or the reference's function, to evaluate parts of it by hand. For
 * this module only. */
#ifndef CHECK_SIDE_H
#define CHECK_SIDE_H
#include "check/check.h"
#include "reference/eval.h"

typedef struct {
    const ir_function *f;
    ref_eval v; /* env: one tensor a value of f */
} side;

/* s is zeroed; side_end() also after an error. */
bool side_begin(side *s, const lm *m, arena *scratch, err *e);
void side_end(side *s);
/* Puts a constant, or what a decompressing op makes of constants, into env. */
bool side_decode(side *s, const ir_value *v);
#endif
