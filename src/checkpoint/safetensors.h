/* safetensors files, mapped. */
#ifndef CHECKPOINT_SAFETENSORS_H
#define CHECKPOINT_SAFETENSORS_H
#include "base/err.h"
#include "base/map.h"
#include "ir/type.h"

typedef struct {
    const char *name;
    ir_type type;     /* dtype from F64 F32 F16 BF16 I64 I32 I16 I8 U8 U16 U32 U64 BOOL F8_E4M3 F8_E5M2 */
    const void *data; /* in the mapped file; not aligned */
    const char *file;
} st_tensor;

typedef struct st_file st_file;

/* Opens one file. Checked: header length and limit (100 MB), JSON, dtypes, shapes against byte ranges, ranges
 * inside the file, in order, without overlap or holes; duplicate names. Errors name file and tensor. */
st_file *st_open(const char *path, err *e);
st_file *st_open_memory(const char *what, const void *data, size_t n, err *e); /* borrows data (fuzzing) */
void st_close(st_file *f);
size_t st_count(const st_file *f);
const st_tensor *st_at(const st_file *f, size_t i);           /* in file order */
const st_tensor *st_find(const st_file *f, const char *name); /* NULL when absent */
const char *st_metadata(const st_file *f, const char *key);   /* from __metadata__; NULL when absent */
/* Elements [first, first + n) of an F32, F16 or BF16 tensor as fp32; false when it has another dtype. */
bool st_floats(const st_tensor *t, uint64_t first, uint64_t n, float *out);

/* Writes a file (atomically): tensors in the order given. DT_BOOL..DT_FP64 as above. */
bool st_write(const char *path, const st_tensor *t, size_t n, err *e);
#endif
