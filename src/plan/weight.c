#include "plan/weight.h"
#include <string.h>

static bool element_type(ir_dtype d, kern_type *t) {
    switch (d) {
    case DT_FP32: *t = KERN_F32; return true;
    case DT_FP16: *t = KERN_F16; return true;
    case DT_INT8: *t = KERN_I8; return true;
    case DT_UINT8: *t = KERN_U8; return true;
    case DT_INT4: *t = KERN_I4; return true;
    case DT_UINT4: *t = KERN_U4; return true;
    default: return false;
    }
}

static bool constant(const ir_op *op, ir_operand name, const ir_const **c) {
    const ir_value *v = ir_in(op, name);
    *c = v ? v->konst : NULL;
    return !v || (*c && (*c)->data);
}

static bool aligned(const ir_const *c) {
    unsigned bytes = dtype_bits((ir_dtype)c->type.dtype) / 8;
    return bytes < 2 || (uintptr_t)c->data % bytes == 0;
}

/* Grid of blocks from the sizes of scale or table: the first two count, all others are 1 (the matrix may be a
 * kernel of a convolution). */
static bool grid_of(const ir_type *t, int rank, int64_t rows, int64_t cols, kern_weight *w) {
    if (t->rank < rank || rank < 2) return false;
    for (int d = 2; d < rank; d++)
        if (t->dim[d] != 1) return false;
    if (t->dim[0] < 1 || t->dim[1] < 1 || rows % t->dim[0] || cols % t->dim[1]) return false;
    w->block_rows = rows / t->dim[0];
    w->block_cols = cols / t->dim[1];
    return true;
}

static bool palette(const ir_op *op, int64_t rows, int64_t cols, kern_weight *w) {
    const ir_const *index, *lut, *axis;
    if (!constant(op, A_indices, &index) || !constant(op, A_lut, &lut) || !constant(op, A_vector_axis, &axis))
        return false;
    if (!element_type((ir_dtype)lut->type.dtype, &w->table_type) || w->table_type > KERN_F16 || !aligned(lut))
        return false;
    w->data = index->data;
    w->table = lut->data;
    w->type = KERN_U8;
    if (ir_in(op, A_shape)) { /* before CoreML8: one table, the codes are a stream of bytes */
        int64_t n = ir_type_count(&lut->type);
        while (n > 1 && n > (INT64_C(1) << w->bits)) w->bits++;
        w->block_rows = rows, w->block_cols = cols;
        return n == INT64_C(1) << w->bits && w->bits <= 8;
    }
    w->bits = dtype_bits((ir_dtype)index->type.dtype);
    int rank = index->type.rank;
    return lut->type.rank == rank + 2 && lut->type.dim[rank + 1] == 1 &&
           lut->type.dim[rank] == INT64_C(1) << w->bits && grid_of(&lut->type, rank, rows, cols, w);
}

static bool blockwise(const ir_op *op, int64_t rows, int64_t cols, kern_weight *w) {
    const ir_const *data, *scale, *offset;
    if (!constant(op, A_data, &data) || !constant(op, A_scale, &scale) || !constant(op, A_offset, &offset))
        return false;
    if (!element_type((ir_dtype)data->type.dtype, &w->type) ||
        !element_type((ir_dtype)scale->type.dtype, &w->scale_type) || w->type <= KERN_F16 ||
        w->scale_type > KERN_F16 || !aligned(scale))
        return false;
    if (offset && (!element_type((ir_dtype)offset->type.dtype, &w->offset_type) || !aligned(offset)))
        return false;
    w->data = data->data;
    w->scale = scale->data;
    w->offset = offset ? offset->data : NULL;
    return grid_of(&scale->type, data->type.rank, rows, cols, w);
}

/* One scale and zero point a row, or one for all. */
static bool affine(const ir_op *op, int64_t rows, int64_t cols, kern_weight *w) {
    const ir_const *data, *scale, *zero, *axis;
    double at = 0;
    if (!constant(op, A_quantized_data, &data) || !constant(op, A_scale, &scale) ||
        !constant(op, A_zero_point, &zero) || !constant(op, A_axis, &axis) || !ir_const_number(axis, 0, &at))
        return false;
    int64_t n = ir_type_count(&scale->type);
    if (ir_type_count(&zero->type) != n || (n != 1 && (n != rows || at != 0)) || !aligned(scale) ||
        !aligned(zero) || !element_type((ir_dtype)data->type.dtype, &w->type) ||
        !element_type((ir_dtype)scale->type.dtype, &w->scale_type) ||
        !element_type((ir_dtype)zero->type.dtype, &w->offset_type))
        return false;
    w->data = data->data;
    w->scale = scale->data;
    w->offset = zero->data;
    w->block_rows = n == 1 ? rows : 1;
    w->block_cols = cols;
    return true;
}

bool plan_weight(const ir_value *v, int64_t rows, int64_t cols, kern_weight *w) {
    *w = (kern_weight){.rows = rows, .cols = cols, .block_rows = rows, .block_cols = cols};
    if (v->type.rank < 1 || rows < 1 || cols < 1 || ir_type_count(&v->type) != rows * cols) return false;
    if (v->konst) {
        w->data = v->konst->data;
        return element_type((ir_dtype)v->konst->type.dtype, &w->type) && w->type <= KERN_F16 && w->data &&
               aligned(v->konst);
    }
    if (!v->def) return false;
    switch (v->def->code) {
    case OP_constexpr_lut_to_dense: return palette(v->def, rows, cols, w);
    case OP_constexpr_blockwise_shift_scale: return blockwise(v->def, rows, cols, w);
    case OP_constexpr_affine_dequantize: return affine(v->def, rows, cols, w);
    default: return false;
    }
}

static unsigned type_bits(kern_type t) {
    return t == KERN_F32 ? 32 : t == KERN_F16 ? 16 : t == KERN_I4 || t == KERN_U4 ? 4 : 8;
}

uint64_t plan_weight_bytes(const kern_weight *w) {
    uint64_t n = (uint64_t)w->rows * (uint64_t)w->cols;
    uint64_t blocks = n / ((uint64_t)w->block_rows * (uint64_t)w->block_cols);
    if (w->bits) return n * w->bits / 8 + ((blocks * type_bits(w->table_type) / 8) << w->bits);
    return n * type_bits(w->type) / 8 + (w->scale ? blocks * type_bits(w->scale_type) / 8 : 0) +
           (w->offset ? blocks * type_bits(w->offset_type) / 8 : 0);
}
