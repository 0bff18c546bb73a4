/* weight.bin, "blob storage v2": a 64-byte header (u32 count, u32 version 2), then records: 64 bytes of
 * metadata at an offset that is a multiple of 64, followed by the data. All numbers are little-endian.
 *
 *   metadata: u32 0xDEADBEEF | u32 dtype | u64 size | u64 data offset | u64 padding bits | 32 bytes 0
 */
#ifndef COREML_BLOB_H
#define COREML_BLOB_H
#include "base/err.h"
#include "ir/store.h"

#define BLOB_ALIGN    64u
#define BLOB_SENTINEL 0xDEADBEEFu

typedef struct {
    ir_dtype dtype;
    uint64_t at;          /* of the metadata: what BlobFileValue.offset holds */
    uint64_t data, bytes; /* absolute offset and size of the data */
    uint64_t count;       /* elements */
} blob_record;

/* Checks the header of a weight file; count: the number of records that it announces. */
bool blob_check(const uint8_t *file, size_t size, uint32_t *count, err *e);
/* The record whose metadata is at offset: sentinel, data type, alignment, bounds and padding are checked. */
bool blob_read(const uint8_t *file, size_t size, uint64_t offset, blob_record *r, err *e);
/* The data of the record at offset, which must hold exactly a tensor of type t. NULL on error. */
const void *blob_tensor(const uint8_t *file, size_t size, uint64_t offset, const ir_type *t, err *e);

/* Writing: the records of one weight file are planned first, so that the program that refers to them can be
 * serialized at any time, and written in one pass. Constants that share their bytes (the same ir_const, or
 * the same place in a mapped file) share a record. */
typedef struct blob_plan blob_plan;

/* file_name: as it stands in references, "weights/weight.bin". */
blob_plan *blob_plan_new(arena *a, const char *file_name);
bool blob_plan_add(blob_plan *p, const ir_const *c, err *e);
uint64_t blob_plan_offset(const blob_plan *p, const ir_const *c); /* of the metadata; c was added */
const char *blob_plan_name(const blob_plan *p);
uint64_t blob_plan_size(const blob_plan *p); /* of the file; 0: no constants, no file */
/* Streams the file (ir/store.h). progress may be NULL. */
bool blob_write(const blob_plan *p, const char *path, store_progress_fn *progress, void *ctx, err *e);
#endif
