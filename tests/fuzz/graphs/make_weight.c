/* Constants in every scheme of compressed weights. */
#include "make.h"
#include <string.h>

static ir_value *blob(maker *m, ir_dtype d, ir_type shape, const void *data) {
    shape.dtype = (uint8_t)d;
    return b_const(&m->b, NULL, ir_const_new(m->a, shape, data));
}

/* Codes of so many bits, packed. */
static ir_value *codes(maker *m, ir_dtype d, ir_type shape) {
    size_t n = (size_t)ir_type_count(&shape);
    unsigned bits = dtype_bits(d);
    uint8_t *code = ARENA_ARRAY(m->a, uint8_t, n + 1), *packed = ARENA_ARRAY(m->a, uint8_t, n + 1);
    for (size_t i = 0; i < n; i++) code[i] = (uint8_t)roll(&m->d, 1u << bits);
    if (m->style == STYLE_EXACT && bits >= 4)
        for (size_t i = 0; i < n; i++) code[i] = (uint8_t)((roll(&m->d, 7) - 3) & ((1u << bits) - 1));
    num_pack(packed, code, n, bits);
    return blob(m, d, shape, packed);
}

static int64_t divisor(maker *m, int64_t n) {
    static const int64_t some[] = {1, 1, 2, 4, 8, 16, 32};
    int64_t d = some[roll(&m->d, sizeof some / sizeof *some)];
    return chance(&m->d, 20) ? n : n % d ? 1 : d;
}

static ir_value *scales(maker *m, ir_dtype d, ir_type shape) {
    int64_t n = ir_type_count(&shape);
    float *x = ARENA_ARRAY(m->a, float, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++)
        x[i] = m->style == STYLE_EXACT ? (float)(1 + roll(&m->d, 2)) : 0.02f + 0.01f * roll_float(&m->d);
    return b_floats(&m->b, d, x, shape);
}

/* A table for each group of rows (and columns). */
static ir_value *palette(maker *m, ir_dtype d, ir_type shape, ir_dtype entries) {
    static const ir_dtype kinds[] = {DT_UINT1, DT_UINT2, DT_UINT3, DT_UINT4,
                                     DT_UINT4, DT_UINT6, DT_UINT6, DT_UINT8};
    ir_dtype code = kinds[roll(&m->d, 8)];
    int64_t dim[IR_MAX_RANK], vector = 1;
    ir_value *axis = NULL;
    ir_type index = shape;
    if (chance(&m->d, 15) && shape.dim[0] % 2 == 0) {
        vector = 2, index.dim[0] /= 2;
        axis = b_i32(&m->b, 0);
    }
    for (int i = 0; i < shape.rank; i++) dim[i] = 1;
    if (chance(&m->d, 60)) dim[0] = divisor(m, index.dim[0]);
    if (chance(&m->d, 15)) dim[1] = divisor(m, index.dim[1]);
    dim[shape.rank] = INT64_C(1) << dtype_bits(code), dim[shape.rank + 1] = vector;
    ir_type table = ir_tensor(d, shape.rank + 2, dim);
    ir_value *lut = entries == DT_INT8 ? codes(m, DT_INT8, table) : make_const(m, d, table);
    ir_value *indices = codes(m, code, index);
    return b_op(&m->b, OP_constexpr_lut_to_dense, NULL, A_indices, indices, A_lut, lut, A_vector_axis, axis,
                A_NONE);
}

/* data: NULL, codes are made. */
static ir_value *blockwise(maker *m, ir_dtype d, ir_type shape, ir_value *data) {
    static const ir_dtype kinds[] = {DT_INT4, DT_UINT4, DT_INT8, DT_INT8, DT_UINT8};
    ir_dtype code = data ? dtype_of(data) : kinds[roll(&m->d, 5)];
    if (!data) data = codes(m, code, shape);
    ir_type scale = shape;
    for (int i = 0; i < shape.rank; i++) scale.dim[i] = 1;
    if (chance(&m->d, 80)) scale.dim[0] = chance(&m->d, 70) ? shape.dim[0] : divisor(m, shape.dim[0]);
    if (chance(&m->d, 50)) scale.dim[1] = shape.dim[1] % 32 ? divisor(m, shape.dim[1]) : shape.dim[1] / 32;
    ir_value *s = scales(m, d, scale), *offset = NULL;
    if (chance(&m->d, 25)) offset = chance(&m->d, 70) ? codes(m, code, scale) : make_const(m, d, scale);
    return b_op(&m->b, OP_constexpr_blockwise_shift_scale, NULL, A_data, data, A_scale, s, A_offset, offset,
                A_NONE);
}

static ir_value *affine(maker *m, ir_dtype d, ir_type shape) {
    ir_dtype code = chance(&m->d, 50) ? DT_INT8 : DT_UINT8;
    int axis = (int)roll(&m->d, 2);
    ir_type vector = chance(&m->d, 60) ? IR_TYPE(d, shape.dim[axis]) : ir_scalar(d);
    ir_value *data = codes(m, code, shape), *scale = scales(m, d, vector), *zero = codes(m, code, vector);
    return b_op(&m->b, OP_constexpr_affine_dequantize, NULL, A_quantized_data, data, A_zero_point, zero,
                A_scale, scale, A_axis, b_i32(&m->b, axis), A_NONE);
}

static ir_value *mask_of(maker *m, ir_type shape, int64_t *set) {
    size_t n = (size_t)ir_type_count(&shape);
    uint8_t *bit = ARENA_ARRAY(m->a, uint8_t, n + 1), *packed = ARENA_ARRAY(m->a, uint8_t, n / 8 + 1);
    *set = 0;
    for (size_t i = 0; i < n; i++) *set += bit[i] = chance(&m->d, 50) || i == 0;
    num_pack(packed, bit, n, 1);
    return blob(m, DT_UINT1, shape, packed);
}

static ir_value *sparse(maker *m, ir_dtype d, ir_type shape) {
    int64_t n;
    ir_value *mask = mask_of(m, shape, &n), *data, *two[2];
    ir_type list = IR_TYPE(d, n), one = shape;
    int kind = (int)roll(&m->d, 3);
    for (int i = 0; i < shape.rank; i++) one.dim[i] = 1;
    if (kind == 0) {
        data = make_const(m, d, list);
    } else if (kind == 1) {
        ir_dtype code = chance(&m->d, 50) ? DT_UINT4 : DT_UINT6;
        one.dim[one.rank++] = INT64_C(1) << dtype_bits(code), one.dim[one.rank++] = 1;
        ir_value *index = codes(m, code, list), *lut = make_const(m, d, one);
        b_op_multi(&m->b, OP_constexpr_lut_to_sparse, NULL, two, 2, A_indices_mask, mask,
                   A_indices_nonzero_data, index, A_lut, lut, A_NONE);
        mask = two[0], data = two[1];
    } else {
        one.dim[0] = shape.dim[0];
        ir_value *index = codes(m, DT_INT8, list), *scale = scales(m, d, one);
        b_op_multi(&m->b, OP_constexpr_sparse_blockwise_shift_scale, NULL, two, 2, A_data_mask, mask,
                   A_nonzero_data, index, A_scale, scale, A_NONE);
        mask = two[0], data = two[1];
    }
    return b_op(&m->b, OP_constexpr_sparse_to_dense, NULL, A_nonzero_data, data, A_mask, mask, A_NONE);
}

ir_value *make_weight(maker *m, ir_dtype d, ir_type shape) {
    if (!ok(m) || shape.rank < 2 || shape.rank > 5) return make_const(m, d, shape);
    switch (roll(&m->d, 10)) {
    case 0:
    case 1:
    case 2: return palette(m, d, shape, d);
    case 3:
    case 4: return blockwise(m, d, shape, NULL);
    case 5: return affine(m, d, shape);
    case 6: return sparse(m, d, shape);
    case 7:
        if (d == DT_FP16) return blockwise(m, d, shape, palette(m, d, shape, DT_INT8));
        return b_op(&m->b, OP_constexpr_cast, NULL, A_source_val, make_const(m, DT_FP16, shape),
                    A_output_dtype, b_text(&m->b, "fp32"), A_NONE);
    default: return make_const(m, d, shape);
    }
}
