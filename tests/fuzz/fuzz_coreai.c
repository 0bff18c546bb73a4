#include "coreai/package.h"
#include "coreai/print.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool clear(const err *e, bool ok) {
    return ok == (e->code == ERR_NONE) && !strchr(e->msg, '\n');
}

/* As a program; what can be read is verified. */
static void as_program(const uint8_t *data, size_t n, bool decompose) {
    err e = {0};
    coreai_options o = {.capacity = 16, .decompose = decompose};
    coreml_package *p = coreai_open_memory(data, n, &o, &e);
    if (!clear(&e, p != NULL)) abort();
    if (!p) return;
    bool ok = coreml_verify(p->model, NULL, NULL, &e);
    if (!clear(&e, ok)) abort();
    coreml_close(p);
}

/* The input is a main.mlirb. What can be read is printed: the printer visits every op, value, type and
 * attribute. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    err e = {0};
    arena *a = arena_new();
    const ai_tree *t = ai_tree_read(a, data, n, &e);
    if (!clear(&e, t != NULL)) abort();
    str out = {0};
    if (t) ai_print(&out, t, 4);
    str_free(&out);
    arena_free(a);
    for (int decompose = 0; decompose < 2; decompose++) as_program(data, n, decompose);
    return 0;
}
