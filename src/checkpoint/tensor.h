/* A tensor of a checkpoint: elements as they lie in a mapped file, or values made from what lies there. */
#ifndef CHECKPOINT_TENSOR_H
#define CHECKPOINT_TENSOR_H
#include "checkpoint/gguf_types.h"
#include "ir/type.h"
#include <stdbool.h>

/* The order of rows or columns, element i of the tensor being element order_of(i) of what is stored:
 *
 *   ORDER_PAIRS  heads of `unit`: elements that RoPE turns together (i and i + unit / 2 of a head) lie side
 * by side ORDER_TILED  from `first` on `groups` * `each` heads of `unit`: head 0 of every group, then head 1
 * of every group,
 *                ... where the tensor has the `each` heads of group 0, then those of group 1, ... */
typedef struct {
    enum { ORDER_SAME, ORDER_PAIRS, ORDER_TILED } kind;
    int64_t first, unit, groups, each;
} tensor_order;

/* Values that are not stored as plain numbers in the tensor's order. */
typedef struct {
    const gguf_type *form;
    const uint8_t *data; /* in the mapped file */
    uint64_t bytes;
    int64_t rows,
        cols; /* the tensor seen as a matrix, its last axis as columns; of a vector the other way round */
    tensor_order row, col;
    bool keeps; /* codes and scales can be carried over: form->keep, and no block is torn apart */
} tensor_view;

typedef struct {
    const char *name;
    ir_type type;     /* dtype from F64 F32 F16 BF16 I64 I32 I16 I8 U8 U16 U32 U64 BOOL F8_E4M3 F8_E5M2 */
    const void *data; /* in the mapped file; not aligned. NULL: see view */
    const char *file;
    const tensor_view *view; /* NULL: data */
    bool folded;             /* what a family does to stored values (norms: 1 + w) has been done to these */
} st_tensor;

/* Elements [first, first + n) of an F32, F16 or BF16 tensor as fp32; false when it has another dtype. */
bool st_floats(const st_tensor *t, uint64_t first, uint64_t n, float *out);
/* They are not needed any more: drops their pages from memory (a hint). */
void st_drop(const st_tensor *t, uint64_t first, uint64_t n);
/* The bytes as stored, and how many. */
const void *st_stored(const st_tensor *t, uint64_t *bytes);

/* Of a view that keeps: codes of elements [first, first + n), whole blocks of 32; scales (fp16) of blocks
 * [first, first + n). */
void tensor_codes(const tensor_view *v, uint64_t first, uint64_t n, int8_t *out);
void tensor_scales(const tensor_view *v, uint64_t first, uint64_t n, uint16_t *out);
#endif
