#include "coreai/print.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The input is a main.mlirb. What can be read is printed: the printer visits every op, value, type and
 * attribute. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    err e = {0};
    arena *a = arena_new();
    const ai_tree *t = ai_tree_read(a, data, n, &e);
    if (!t != (e.code != ERR_NONE) || strchr(e.msg, '\n')) abort();
    str out = {0};
    if (t) ai_print(&out, t, 4);
    str_free(&out);
    arena_free(a);
    return 0;
}
