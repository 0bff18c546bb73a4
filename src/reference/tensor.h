/* Tensors of the evaluator. Whatever its element type, a tensor at run time is a dense row-major array of
 * 4-byte cells: floats of any width are fp32 in memory, integers and bools are int32. So an op that only
 * moves elements is written once. Constants stay in their packed bytes (often a mapped file) until an op asks
 * for cells, and large ones are converted piece by piece. */
#ifndef REFERENCE_TENSOR_H
#define REFERENCE_TENSOR_H
#include "base/err.h"
#include "ir/program.h"

typedef uint32_t __attribute__((may_alias)) ref_cell;

/* Shared, reference-counted cells. A tensor may be a view of a part of them. */
typedef struct ref_buf ref_buf;

ref_buf *ref_buf_new(int64_t cells, err *e); /* not initialised; NULL when there is no memory */
/* The same, all zeros. Large ones take memory as it is used: a cache that is mostly empty costs little. The
 * heap counts these only where its memory comes from hooks: elsewhere they are pages. */
ref_buf *ref_buf_zeroed(int64_t cells, err *e);
/* Bytes [0, n) of a fresh zeroed one. */
void ref_buf_fill(ref_buf *b, const void *from, size_t n);
/* Large pages for a zeroed one's full parts, see pages_join(). The caller must be its only holder. */
bool ref_buf_join(ref_buf *b, double until);
ref_buf *ref_buf_keep(ref_buf *b);   /* one more holder; returns b */
void ref_buf_drop(ref_buf *b);       /* NULL is allowed */
bool ref_buf_sole(const ref_buf *b); /* the caller holds the only reference */
ref_cell *ref_buf_cells(ref_buf *b);
int64_t ref_buf_size(const ref_buf *b); /* cells */
/* True when every cell is known to be an fp16 number, so that rounding changes nothing. */
bool ref_buf_half(const ref_buf *b);
void ref_buf_set_half(ref_buf *b, bool half);

typedef struct {
    ir_type type;          /* all sizes known */
    ref_buf *buf;          /* holds the cells; NULL: none yet (a packed constant, or no tensor at all) */
    ref_cell *cell;        /* the first cell; NULL when packed */
    const ir_const *konst; /* the constant that this is, else NULL */
} ref_tensor;

/* Memory for t of the given type (sizes known), not initialised. */
bool ref_tensor_new(ref_tensor *t, const ir_type *type, err *e);
void ref_tensor_drop(ref_tensor *t); /* also forgets the constant */
/* A constant as a tensor; fails for strings (allowed, without cells), types that have no run-time form and
 * constants that are still to be filled. */
bool ref_tensor_const(ref_tensor *t, const ir_const *c, err *e);
/* Elements [first, first + n) as cells. t may be packed. */
void ref_read(const ref_tensor *t, int64_t first, int64_t n, void *cells);
/* All elements in their packed form (ir_type_bytes(&t->type) bytes; sub-byte types are not supported at run
 * time). */
void ref_pack(const ref_tensor *t, void *out);
/* A run-time tensor can hold elements of this type. */
bool ref_dtype_ok(ir_dtype d);

static inline int64_t ref_count(const ref_tensor *t) {
    return ir_type_count(&t->type);
}
static inline float *ref_floats(const ref_tensor *t) {
    return (float *)(void *)t->cell;
}
static inline int32_t *ref_ints(const ref_tensor *t) {
    return (int32_t *)(void *)t->cell;
}
/* The value as stored in a dtype of at most 32 bits (integers wrap). */
int32_t ref_wrap_int(ir_dtype d, int32_t v);
#endif
