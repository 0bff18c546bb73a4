#include "runtime/calls.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Parses; what is accepted is complete. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    arena *a = arena_new();
    err e = {0};
    const calls_file *f = calls_parse(a, "calls.json", data, n, &e);
    if (!f == (e.code == ERR_NONE)) abort();
    size_t length = 0;
    for (size_t i = 0; f && i < f->n; i++) {
        const calls_call *c = &f->call[i];
        length += (c->function ? strlen(c->function) : 0) + (c->state ? strlen(c->state) : 0);
        for (size_t k = 0; k < c->n_in; k++) length += strlen(c->in[k].name) + strlen(c->in[k].key);
        for (size_t k = 0; k < c->n_out; k++) length += strlen(c->out[k].name);
        for (size_t k = 0; k < c->n_state_after; k++) length += strlen(c->state_after[k].name);
    }
    if (length > n) abort();
    arena_free(a);
    return 0;
}
