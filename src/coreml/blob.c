#include "coreml/blob.h"
#include "base/num.h"
#include "coreml/schema.h"
#include <inttypes.h>

bool blob_check(const uint8_t *file, size_t size, uint32_t *count, err *e) {
    if (size < BLOB_ALIGN)
        return err_set(e, ERR_FORMAT, "%zu bytes are too few for a weight file: expected a header of 64",
                       size);
    uint32_t version = num_get32(file + 4);
    if (version != 2)
        return err_set(e, ERR_UNSUPPORTED, "weight file version %" PRIu32 ", expected 2", version);
    *count = num_get32(file);
    return true;
}

/* Bits at the end of the last byte that belong to no element. Only sub-byte types have any; older writers
 * left garbage in the field for the others. */
static bool check_padding(uint64_t bytes, uint64_t padding, unsigned bits, uint64_t offset, err *e) {
    if (bits >= 8) {
        if (bytes % (bits / 8) == 0) return true;
        return err_set(e, ERR_FORMAT,
                       "byte %" PRIu64 ": record of %" PRIu64
                       " bytes holds no whole number of elements of %u bits",
                       offset, bytes, bits);
    }
    if (padding < 8 && padding <= bytes * 8 && (bytes * 8 - padding) % bits == 0) return true;
    return err_set(e, ERR_FORMAT,
                   "byte %" PRIu64 ": record has %" PRIu64
                   " padding bits, which does not fit %u-bit elements",
                   offset, padding, bits);
}

bool blob_read(const uint8_t *file, size_t size, uint64_t offset, blob_record *r, err *e) {
    if (offset % BLOB_ALIGN || offset < BLOB_ALIGN)
        return err_set(e, ERR_FORMAT,
                       "weight record offset %" PRIu64 ": expected a multiple of 64, at least 64", offset);
    if (offset > size || size - offset < BLOB_ALIGN)
        return err_set(e, ERR_FORMAT, "weight record offset %" PRIu64 " is past the end (file has %zu bytes)",
                       offset, size);
    const uint8_t *m = file + offset;
    uint32_t sentinel = num_get32(m), code = num_get32(m + 4);
    uint64_t bytes = num_get64(m + 8), data = num_get64(m + 16);
    if (sentinel != BLOB_SENTINEL)
        return err_set(e, ERR_FORMAT,
                       "byte %" PRIu64 ": no weight record (found %08" PRIx32 ", expected deadbeef)", offset,
                       sentinel);
    ir_dtype d = schema_by_blob(code);
    if (d == DT_NONE)
        return err_set(e, ERR_UNSUPPORTED, "byte %" PRIu64 ": weight record of unknown data type %" PRIu32,
                       offset, code);
    if (data % BLOB_ALIGN || data < offset + BLOB_ALIGN)
        return err_set(e, ERR_FORMAT,
                       "byte %" PRIu64 ": weight data at %" PRIu64
                       ", expected a multiple of 64 behind the record",
                       offset, data);
    if (data > size || bytes > size - data)
        return err_set(e, ERR_FORMAT,
                       "byte %" PRIu64 ": weight data of %" PRIu64 " bytes at %" PRIu64
                       " is past the end (file has %zu bytes)",
                       offset, bytes, data, size);
    unsigned bits = dtype_bits(d);
    uint64_t padding = bits < 8 ? num_get64(m + 24) : 0;
    if (!check_padding(bytes, padding, bits, offset, e)) return false;
    /* bytes <= size of a mapped file, so bytes * 8 can't overflow */
    *r = (blob_record){d, offset, data, bytes, (bytes * 8 - padding) / bits};
    return true;
}

const void *blob_tensor(const uint8_t *file, size_t size, uint64_t offset, const ir_type *t, err *e) {
    blob_record r = {0};
    if (!blob_read(file, size, offset, &r, e)) return NULL;
    int64_t count = ir_type_count(t);
    if (r.dtype != t->dtype) {
        err_set(e, ERR_FORMAT, "byte %" PRIu64 ": weight record holds %s, the program says %s", offset,
                dtype_name(r.dtype), dtype_name(t->dtype));
    } else if (count < 0 || r.count != (uint64_t)count) {
        err_set(e, ERR_FORMAT,
                "byte %" PRIu64 ": weight record holds %" PRIu64 " elements, the program's type has %" PRId64,
                offset, r.count, count);
    }
    return e->code == ERR_NONE ? file + r.data : NULL;
}
