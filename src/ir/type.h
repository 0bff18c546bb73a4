/* Element types and value types. */
#ifndef IR_TYPE_H
#define IR_TYPE_H
#include "base/arena.h"
#include <stdbool.h>

#define IR_MAX_RANK                                                                                          \
    8 /* rank 5 is the most a program may use at run time; palettes of rank-5 weights have rank 7 */
#define IR_DIM_UNKNOWN (-1) /* a size that is only known when the function is called */

/* X(enumerator, name in listings, bits per element, class) */
#define IR_DTYPES(X)                                                                                         \
    X(DT_BOOL, "bool", 8, BOOL)                                                                              \
    X(DT_STRING, "string", 0, STRING)                                                                        \
    X(DT_FP16, "fp16", 16, FLOAT)                                                                            \
    X(DT_FP32, "fp32", 32, FLOAT)                                                                            \
    X(DT_FP64, "fp64", 64, FLOAT)                                                                            \
    X(DT_BF16, "bf16", 16, FLOAT)                                                                            \
    X(DT_E4M3, "fp8e4m3fn", 8, FLOAT)                                                                        \
    X(DT_E5M2, "fp8e5m2", 8, FLOAT)                                                                          \
    X(DT_INT4, "int4", 4, INT)                                                                               \
    X(DT_INT8, "int8", 8, INT)                                                                               \
    X(DT_INT16, "int16", 16, INT)                                                                            \
    X(DT_INT32, "int32", 32, INT)                                                                            \
    X(DT_INT64, "int64", 64, INT)                                                                            \
    X(DT_UINT1, "uint1", 1, UINT)                                                                            \
    X(DT_UINT2, "uint2", 2, UINT)                                                                            \
    X(DT_UINT3, "uint3", 3, UINT)                                                                            \
    X(DT_UINT4, "uint4", 4, UINT)                                                                            \
    X(DT_UINT6, "uint6", 6, UINT)                                                                            \
    X(DT_UINT8, "uint8", 8, UINT)                                                                            \
    X(DT_UINT16, "uint16", 16, UINT)                                                                         \
    X(DT_UINT32, "uint32", 32, UINT)                                                                         \
    X(DT_UINT64, "uint64", 64, UINT)

typedef enum {
    DT_NONE,
#define X(e, name, bits, cls) e,
    IR_DTYPES(X)
#undef X
        DT_COUNT
} ir_dtype;

typedef enum { DTC_NONE, DTC_BOOL, DTC_STRING, DTC_FLOAT, DTC_INT, DTC_UINT } ir_dclass;

const char *dtype_name(ir_dtype d);
unsigned dtype_bits(ir_dtype d);
ir_dclass dtype_class(ir_dtype d);
ir_dtype dtype_by_name(const char *name); /* "fp16" ...; DT_NONE when unknown */
static inline bool dtype_is_float(ir_dtype d) {
    return dtype_class(d) == DTC_FLOAT;
}

typedef enum {
    IR_TENSOR,
    IR_STATE, /* a function input that names a state: dtype, rank and dim are those of the wrapped tensor */
    IR_OPAQUE /* lists, tuples, dictionaries: constants that are carried along, never computed with */
} ir_type_kind;

typedef struct {
    uint8_t kind;             /* ir_type_kind */
    uint8_t dtype;            /* ir_dtype */
    int8_t rank;              /* 0: a scalar */
    int64_t dim[IR_MAX_RANK]; /* outermost first; IR_DIM_UNKNOWN or >= 0 */
} ir_type;

ir_type ir_tensor(ir_dtype d, int rank, const int64_t *dim);
#define IR_TYPE(d, ...)                                                                                      \
    ir_tensor(d, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})
static inline ir_type ir_scalar(ir_dtype d) {
    return (ir_type){.kind = IR_TENSOR, .dtype = (uint8_t)d};
}
bool ir_type_equal(const ir_type *a, const ir_type *b);
/* Same kind, dtype and rank, and no two known sizes that differ. */
bool ir_type_compatible(const ir_type *a, const ir_type *b);
bool ir_type_known(const ir_type *t); /* no unknown sizes */
/* Number of elements, -1 when a size is unknown or the product passes 2^62. */
int64_t ir_type_count(const ir_type *t);
/* Bytes when packed as in weight.bin (sub-byte types without row padding); -1 as ir_type_count(). */
int64_t ir_type_bytes(const ir_type *t);
/* "fp16[1,?,64]", "state<fp16[1,2,64]>". */
const char *ir_type_text(arena *a, const ir_type *t);
#endif
