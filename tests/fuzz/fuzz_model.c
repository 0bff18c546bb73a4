#include "coreml/model.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The input is a serialized Model message. What can be read is verified. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    err e = {0};
    coreml_package *p = coreml_open_memory(data, n, &e);
    if (!p != (e.code != ERR_NONE) || strchr(e.msg, '\n')) abort();
    if (!p) return 0;
    if (coreml_verify(p->model, NULL, NULL, &e) != (e.code == ERR_NONE)) abort();
    coreml_close(p);
    return 0;
}
