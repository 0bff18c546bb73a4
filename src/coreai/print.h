/* A tree as text, one op a line, regions indented. */
#ifndef COREAI_PRINT_H
#define COREAI_PRINT_H
#include "base/str.h"
#include "coreai/tree.h"

/* values: how many elements of a constant are shown. */
void ai_print(str *out, const ai_tree *t, size_t values);
#endif
