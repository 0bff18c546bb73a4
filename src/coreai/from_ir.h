/* Programs of the IR as Core AI graphs, op by op. Composites (ir_function.composite) become private graphs
 * that are invoked. A state is read once and written once a call, however often the function does. */
#ifndef COREAI_FROM_IR_H
#define COREAI_FROM_IR_H
#include "coreai/make.h"

/* The version that is stamped on what is made: the date of the newest op in use. */
#define AI_MADE_VERSION 20260317

/* A graph for each function, of the same name. ERR_UNSUPPORTED names the first op that has no counterpart.
 * What p's constants point to must stay until the tree was written. */
const ai_tree *ai_from_program(arena *a, const ir_program *p, const char *producer, err *e);
#endif
