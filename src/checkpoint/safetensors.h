/* safetensors files, mapped. */
#ifndef CHECKPOINT_SAFETENSORS_H
#define CHECKPOINT_SAFETENSORS_H
#include "base/err.h"
#include "base/map.h"
#include "checkpoint/tensor.h"

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

/* Writes a file (atomically): tensors in the order given. DT_BOOL..DT_FP64 as above. */
bool st_write(const char *path, const st_tensor *t, size_t n, err *e);
#endif
