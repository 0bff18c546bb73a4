#include "coreml/schema.h"

static const schema_dtype table[DT_COUNT] = {
    [DT_BOOL] = {1, 0, TENSOR_BOOLS},    [DT_STRING] = {2, 0, TENSOR_STRINGS},
    [DT_FP16] = {10, 1, TENSOR_BYTES},   [DT_FP32] = {11, 2, TENSOR_FLOATS},
    [DT_FP64] = {12, 0, TENSOR_DOUBLES}, [DT_BF16] = {13, 5, TENSOR_BYTES},
    [DT_INT8] = {21, 4, TENSOR_BYTES},   [DT_INT16] = {22, 6, TENSOR_INTS},
    [DT_INT32] = {23, 14, TENSOR_INTS},  [DT_INT64] = {24, 0, TENSOR_LONGS},
    [DT_INT4] = {25, 8, TENSOR_BYTES},   [DT_UINT8] = {31, 3, TENSOR_BYTES},
    [DT_UINT16] = {32, 7, TENSOR_INTS},  [DT_UINT32] = {33, 15, TENSOR_BYTES},
    [DT_UINT64] = {34, 0, TENSOR_LONGS}, [DT_UINT4] = {35, 11, TENSOR_BYTES},
    [DT_UINT2] = {36, 10, TENSOR_BYTES}, [DT_UINT1] = {37, 9, TENSOR_BYTES},
    [DT_UINT6] = {38, 13, TENSOR_BYTES}, [DT_UINT3] = {39, 12, TENSOR_BYTES},
    [DT_E4M3] = {40, 16, TENSOR_BYTES},  [DT_E5M2] = {41, 17, TENSOR_BYTES},
};

const schema_dtype *schema_of(ir_dtype d) {
    return &table[d];
}

ir_dtype schema_by_mil(uint64_t code) {
    for (int d = 1; d < DT_COUNT; d++)
        if (table[d].mil == code) return (ir_dtype)d;
    return DT_NONE;
}

ir_dtype schema_by_blob(uint32_t code) {
    for (int d = 1; d < DT_COUNT && code; d++)
        if (table[d].blob == code) return (ir_dtype)d;
    return DT_NONE;
}

static const struct {
    uint32_t code;
    ir_dtype d;
} arrays[] = {{65552, DT_FP16}, {65568, DT_FP32}, {65600, DT_FP64}, {131104, DT_INT32}, {131080, DT_INT8}};

ir_dtype schema_by_array(uint64_t code) {
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (arrays[i].code == code) return arrays[i].d;
    return DT_NONE;
}

uint32_t schema_array_code(ir_dtype d) {
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (arrays[i].d == d) return arrays[i].code;
    return 0;
}
