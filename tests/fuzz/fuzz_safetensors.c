#include "checkpoint/safetensors.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Opens, reads every byte of every tensor, finds each by name. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    err e = {0};
    st_file *f = st_open_memory("input", data, n, &e);
    if (!f != (e.code != ERR_NONE)) abort();
    if (!f) return 0;
    unsigned sum = 0;
    for (size_t i = 0; i < st_count(f); i++) {
        const st_tensor *t = st_at(f, i);
        if (st_find(f, t->name) != t) abort();
        const uint8_t *p = t->data;
        for (int64_t k = 0; k < ir_type_bytes(&t->type); k++) sum += p[k];
    }
    volatile unsigned keep = sum;
    (void)keep;
    st_metadata(f, "format");
    st_close(f);
    return 0;
}
