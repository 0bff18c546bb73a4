/* X_embed_tokens.KIND.bin: the embedding table that the host keeps for packages of preset chunks. The rows
 * stay in the mapped file; opening reads the header only.
 *
 *   byte 0   "MLTEMBED"
 *        8   u32 version = 1       12  u32 kind (embedding_kind)
 *       16   u64 rows              24  u64 width
 *       32   u64 bytes of a row    40  u32 CRC-32 of the rows     44  12 bytes zero
 *       56   u32 zero              60  u32 CRC-32 of the bytes before
 *       64   the rows, adjoining                                  (little-endian; CRC-32 as in zlib)
 *
 * A row of kind fp16 or fp32 is its numbers. A row of kind int8 is width codes from -127 to 127, then its
 * scale, fp16 (width + 2 bytes): number = code * scale, symmetric, scale = absmax / 127 rounded to fp16; one
 * step more where that is too coarse (below 2^-14) for the largest code to stay in range; 1 for a row of
 * zeros. */
#ifndef COREML_EMBEDDING_H
#define COREML_EMBEDDING_H
#include "base/err.h"
#include <stdint.h>

typedef enum { EMBEDDING_FP16 = 1, EMBEDDING_FP32 = 2, EMBEDDING_INT8 = 3 } embedding_kind;

typedef struct embedding embedding;

/* Checks the header against its checksum and against the size of the file. */
embedding *embedding_open(const char *path, err *e);
/* Tables of others, without a checksum: raw rows of one kind (fp16, fp32), adjoining; or a NumPy file of
 * version 1 to 3 that holds a matrix of these, C order. ERR_FORMAT when the file is no whole number of rows.
 */
embedding *embedding_open_raw(const char *path, embedding_kind kind, int64_t width, err *e);
embedding *embedding_open_npy(const char *path, err *e);
void embedding_close(embedding *t); /* NULL is allowed */
int64_t embedding_rows(const embedding *t);
int64_t embedding_width(const embedding *t);
embedding_kind embedding_kind_of(const embedding *t);
const char *embedding_kind_name(embedding_kind kind);             /* "fp16", "fp32", "int8" */
uint64_t embedding_row_bytes(embedding_kind kind, int64_t width); /* in the file; 0 for an unknown kind */
/* Row id into out[width]; false when there is no such row. */
bool embedding_row(const embedding *t, int64_t id, float *out);
/* Reads all rows and compares their checksum (ERR_FORMAT). */
bool embedding_verify(const embedding *t, err *e);

/* Makes rows [first, first + n) as out[n][width]. Called for ascending, adjoining ranges of at most a MiB. */
typedef bool embedding_fill(void *ctx, int64_t first, int64_t n, float *out, err *e);
/* Writes a table; the same rows give the same bytes. Values are rounded to kind; a row with values that it
 * can't hold (fp16: finite ones that become infinite; int8: a NaN, an infinity, a scale beyond fp16) is
 * ERR_NUMERIC. */
bool embedding_write(const char *path, embedding_kind kind, int64_t rows, int64_t width, embedding_fill *fill,
                     void *ctx, err *e);
#endif
