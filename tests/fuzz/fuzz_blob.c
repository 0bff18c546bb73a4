#include "base/num.h"
#include "coreml/blob.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The input is a weight file. Every record that can be found is read to its last element. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    err e = {0};
    uint32_t count;
    if (!blob_check(data, n, &count, &e)) return 0;
    double sum = 0;
    for (uint64_t at = BLOB_ALIGN; at < n + 2 * BLOB_ALIGN; at += BLOB_ALIGN / 2) {
        blob_record r;
        e = (err){0};
        if (blob_read(data, n, at, &r, &e) != (e.code == ERR_NONE)) abort();
        if (e.code != ERR_NONE) continue;
        ir_type t = ir_tensor(r.dtype, 1, (int64_t[]){(int64_t)r.count});
        const void *bytes = blob_tensor(data, n, at, &t, &e);
        if (!bytes || (uint64_t)ir_type_bytes(&t) != r.bytes) abort();
        ir_const c = {.type = t, .data = bytes, .bytes = (size_t)r.bytes};
        double v;
        uint64_t step = r.count > 64 ? r.count / 64 : 1;
        for (uint64_t i = 0; i < r.count; i += step)
            if (ir_const_number(&c, i, &v)) sum += v;
        if (r.count && ir_const_number(&c, r.count - 1, &v)) sum += v;
        t.dim[0]++;
        if (blob_tensor(data, n, at, &t, &e)) abort();
    }
    volatile double keep = sum;
    (void)keep;
    return 0;
}
