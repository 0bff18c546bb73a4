#include "coreml/model.h"
#include "coreml/write.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static coreml_package *read(const void *data, size_t n) {
    err e = {0};
    coreml_package *p = coreml_open_memory(data, n, &e);
    if (!p != (e.code != ERR_NONE) || strchr(e.msg, '\n')) abort();
    return p;
}

/* What was read and written can be read, and is written the same. */
static void write_and_read(const coreml_package *p) {
    err e = {0};
    wire_out first = {0}, second = {0};
    if (write_model(&first, p->model, &e)) {
        coreml_package *q = read(wire_data(&first), wire_size(&first));
        if (!q || !write_model(&second, q->model, &e)) abort();
        if (wire_size(&first) != wire_size(&second) ||
            memcmp(wire_data(&first), wire_data(&second), wire_size(&first)))
            abort();
        coreml_close(q);
    }
    wire_free(&first);
    wire_free(&second);
}

/* The input is a serialized Model message. What can be read is verified, and written. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    err e = {0};
    coreml_package *p = read(data, n);
    if (!p) return 0;
    if (coreml_verify(p->model, NULL, NULL, &e) != (e.code == ERR_NONE)) abort();
    write_and_read(p);
    coreml_close(p);
    return 0;
}
