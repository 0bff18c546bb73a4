/* Holds chosen fp16 values of a program in fp32: what a precision plan asks for. */
#ifndef MODELS_WIDEN_H
#define MODELS_WIDEN_H
#include "ir/program.h"

/* Length of the entry that stands for a value's name: the name without _ and the number that the builder puts
 * behind one that is used twice ("layer_7_square_134", the parts of a split), and without the _fp16 or _fp32
 * of a cast. So an entry means the same in every form and precision of a model's graph. */
size_t widen_entry(const char *name);
/* Whether an entry of a plan means the value of that name. */
bool widen_matches(const char *entry, const char *name);

/* Of one program, or added up over those of a model. */
typedef struct {
    size_t values; /* fp16 values that are fp32 now, over all functions */
    bool *seen;    /* an entry each: some float value has that name */
} widen_result;

/* Every fp16 value that an entry names becomes fp32: the op that makes it and the ops that use it compute in
 * fp32, the latter's results are cast back unless they are named too. Weights of linear ops stay as they are.
 * What must be fp16 stays so: states and what is written to them, constants, the function's outputs. r->seen
 * has room for n entries; r is added to. */
void widen_program(ir_program *p, const char *const *entry, size_t n, widen_result *r);
#endif
