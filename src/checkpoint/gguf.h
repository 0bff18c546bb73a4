/* A GGUF file (version 2 or 3, little-endian), mapped:
 *
 *     "GGUF"  u32 version  u64 tensors  u64 values
 *     values:   key (u64 length, bytes)  u32 kind  value; an array: u32 kind, u64 length, elements
 *     tensors:  name  u32 rank  u64 sizes, fastest axis first  u32 type  u64 place, from the data's beginning
 * on data, from the next multiple of general.alignment (32) on */
#ifndef CHECKPOINT_GGUF_H
#define CHECKPOINT_GGUF_H
#include "base/arena.h"
#include "base/err.h"
#include "checkpoint/gguf_types.h"
#include <stdbool.h>

typedef struct gguf gguf;

typedef enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
} gguf_kind;

/* A value of the metadata, or an array of such. */
typedef struct {
    const char *key;
    gguf_kind kind; /* of the elements */
    bool array;
    uint64_t n;          /* elements; 1 of a single value */
    const uint8_t *data; /* as in the file: numbers side by side, strings with their lengths */
} gguf_value;

typedef struct {
    const char *name;
    ir_type type;          /* row-major, slowest axis first; dtype: of single numbers, else DT_NONE */
    const gguf_type *form; /* one that can be decoded */
    const uint8_t *data;   /* in the mapped file; not aligned */
    uint64_t bytes;
} gguf_tensor;

/* Checked: version and byte order, that every length and place lies in the file, kinds and types, keys and
 * names (UTF-8 without NUL, each once), that rows are whole blocks, the alignment. Errors name file and value
 * or tensor. */
gguf *gguf_open(const char *path, err *e);
gguf *gguf_open_memory(const char *what, const void *data, size_t n, err *e); /* borrows data (fuzzing) */
void gguf_close(gguf *g);
const char *gguf_path(const gguf *g);
size_t gguf_count(const gguf *g);
const gguf_tensor *gguf_at(const gguf *g, size_t i);           /* in file order */
const gguf_tensor *gguf_find(const gguf *g, const char *name); /* NULL when absent */

const gguf_value *gguf_get(const gguf *g, const char *key); /* NULL when absent */
/* Element i (below n) of a value of whole numbers or bools; false when it is of another kind or does not fit.
 */
bool gguf_int(const gguf_value *v, uint64_t i, int64_t *out);
/* The same of any numbers. */
bool gguf_number(const gguf_value *v, uint64_t i, double *out);

/* Strings one after another. s is not NUL-terminated and may hold anything. */
typedef struct {
    const uint8_t *at;
    uint64_t left;
} gguf_strings;
gguf_strings gguf_strings_of(const gguf_value *v); /* none when v is NULL or of another kind */
bool gguf_next(gguf_strings *it, const char **s, size_t *n);
/* A single string that is UTF-8 without NUL, copied; NULL when v is NULL or anything else. */
const char *gguf_text(arena *a, const gguf_value *v);
#endif
