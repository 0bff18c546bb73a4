/* Weight decompression and quantized activations. */
#include "ir/infer_rules.h"
#include <string.h>

static bool vector_operand(infer *in, ir_operand name, int64_t *n) {
    ir_type t = inf_type(in, name);
    *n = t.rank ? t.dim[0] : 1;
    return t.rank == 1 || inf_bad(in, name, "expected a vector");
}

/* CoreML6 and 7 spell the dense shape out; r gets it, bits its number of elements times bits_each. */
static bool spelled_shape(infer *in, ir_dtype dtype, int64_t bits_each, ir_type *r, int64_t *bits) {
    inf_list l;
    if (!inf_known_ints(in, A_shape, &l)) return false;
    *r = ir_scalar(dtype);
    for (size_t i = 0; i < l.n; i++) {
        if (l.v[i] < 0 || l.v[i] > INF_DIM_MAX)
            return inf_fail(in, "operand shape holds %lld", (long long)l.v[i]);
        if (!inf_push(in, r, l.v[i])) return false;
    }
    int64_t n = ir_type_count(r);
    if (n < 0) return inf_fail(in, "operand shape has too many elements");
    return inf_mul(in, n, bits_each, bits);
}

static bool lut_by_shape(infer *in) {
    ir_type lut = inf_type(in, A_lut), r;
    int64_t entries, bytes, bits = 0, stream;
    if (!vector_operand(in, A_lut, &entries) || !vector_operand(in, A_indices, &bytes)) return false;
    while (bits < 8 && INT64_C(1) << bits < entries) bits++;
    if (entries != INT64_C(1) << bits || bits == 0 || bits == 3 || bits == 5 || bits == 7)
        return inf_bad(in, A_lut, "expected 2, 4, 16, 64 or 256 entries");
    if (!spelled_shape(in, (ir_dtype)lut.dtype, bits, &r, &stream)) return false;
    if (bytes != IR_DIM_UNKNOWN && bytes != (stream + 7) / 8)
        return inf_bad(in, A_indices, "expected %lld bytes for %s", (long long)(stream + 7) / 8,
                       ir_type_text(in->a, &r));
    in->out[0] = r;
    return true;
}

/* Every size of the table's leading dimensions (or the scales') divides that of the data. */
static bool divides(infer *in, ir_operand name, const ir_type *small, const ir_type *data) {
    for (int i = 0; i < data->rank; i++) {
        int64_t d = data->dim[i], s = small->dim[i];
        if (d == IR_DIM_UNKNOWN || s == IR_DIM_UNKNOWN) continue;
        if (s < 1 || d % s)
            return inf_bad(in, name, "size %d does not divide that of %s", i, ir_type_text(in->a, data));
    }
    return true;
}

/* The table [groups.., 2^n, V] against indices of shape `indices` and n bits; *vector gets V and *axis where
 * it goes. */
static bool check_table(infer *in, const ir_type *indices, ir_dtype code, int64_t *vector, int64_t *axis) {
    ir_type lut = inf_type(in, A_lut);
    if (indices->rank < 1 || lut.rank != indices->rank + 2)
        return inf_bad(in, A_lut, "expected two dimensions more than the indices, %s",
                       ir_type_text(in->a, indices));
    if (!divides(in, A_lut, &lut, indices)) return false;
    if (lut.dim[lut.rank - 2] != INT64_C(1) << dtype_bits(code))
        return inf_bad(in, A_lut, "expected %d entries for %s indices", 1 << dtype_bits(code),
                       dtype_name(code));
    *vector = lut.dim[lut.rank - 1];
    if (*vector < 1) return inf_bad(in, A_lut, "its vectors must have a known, positive length");
    *axis = 0;
    if (!inf_has(in, A_vector_axis))
        return *vector == 1 || inf_fail(in, "operand vector_axis is missing, the table holds vectors");
    return inf_axis(in, A_vector_axis, 0, indices->rank, axis);
}

bool rule_lut_to_dense(infer *in) {
    if (inf_has(in, A_shape)) return lut_by_shape(in);
    ir_type indices = inf_type(in, A_indices), r = indices;
    int64_t vector = 1, axis = 0;
    if (!check_table(in, &indices, (ir_dtype)indices.dtype, &vector, &axis)) return false;
    r.dtype = inf_type(in, A_lut).dtype;
    in->out[0] = r;
    return inf_mul(in, r.dim[axis], vector, &in->out[0].dim[axis]);
}

/* A scalar, or one entry along the axis. */
static bool along(infer *in, ir_operand name, const ir_type *data, bool has_axis, int64_t axis) {
    ir_type t = inf_type(in, name);
    int64_t unused;
    if (!inf_has(in, name) || t.rank == 0) return true;
    if (t.rank != 1) return inf_bad(in, name, "expected a scalar or a vector");
    if (!has_axis) return inf_fail(in, "operand axis is missing, %s is a vector", ir_operand_name(name));
    return inf_unify(t.dim[0], data->dim[axis], &unused) ||
           inf_bad(in, name, "expected one entry along axis %lld of %s", (long long)axis,
                   ir_type_text(in->a, data));
}

bool rule_affine_dequantize(infer *in) {
    ir_type data = inf_type(in, A_quantized_data);
    int64_t axis;
    if (!inf_axis(in, A_axis, 0, data.rank, &axis) || !along(in, A_scale, &data, true, axis) ||
        !along(in, A_zero_point, &data, true, axis))
        return false;
    in->out[0] = data;
    in->out[0].dtype = inf_type(in, A_scale).dtype;
    return true;
}

static bool check_scales(infer *in, const ir_type *data, ir_dtype code) {
    ir_type scale = inf_type(in, A_scale), offset = inf_type(in, A_offset), like = scale;
    if (data->rank < 1 || scale.rank != data->rank)
        return inf_bad(in, A_scale, "expected the rank of the data, %s", ir_type_text(in->a, data));
    if (!divides(in, A_scale, &scale, data)) return false;
    if (!inf_has(in, A_offset)) return true;
    like.dtype = offset.dtype;
    if (!ir_type_compatible(&offset, &like))
        return inf_bad(in, A_offset, "expected the shape of scale, %s", ir_type_text(in->a, &scale));
    if (!dtype_is_float((ir_dtype)offset.dtype) && offset.dtype != code)
        return inf_bad(in, A_offset, "expected the dtype of the data, %s, or a float", dtype_name(code));
    return true;
}

bool rule_blockwise(infer *in) {
    ir_type data = inf_type(in, A_data);
    if (!check_scales(in, &data, (ir_dtype)data.dtype)) return false;
    in->out[0] = data;
    in->out[0].dtype = inf_type(in, A_scale).dtype;
    return true;
}

bool rule_sparse_to_dense(infer *in) {
    int64_t n, bytes, bits = 0;
    if (!vector_operand(in, A_nonzero_data, &n)) return false;
    ir_dtype dtype = (ir_dtype)inf_type(in, A_nonzero_data).dtype;
    in->out[0] = inf_type(in, A_mask);
    in->out[0].dtype = (uint8_t)dtype;
    if (!inf_has(in, A_shape)) return true;
    if (!vector_operand(in, A_mask, &bytes) || !spelled_shape(in, dtype, 1, in->out, &bits)) return false;
    return bytes == IR_DIM_UNKNOWN || bytes == (bits + 7) / 8 ||
           inf_bad(in, A_mask, "expected %lld bytes for %s", (long long)(bits + 7) / 8,
                   ir_type_text(in->a, in->out));
}

bool rule_constexpr_cast(infer *in) {
    const char *dtype = ir_env_text(in->op, A_output_dtype, "");
    in->out[0] = inf_type(in, A_source_val);
    in->out[0].dtype = DT_FP32;
    return !strcmp(dtype, "fp32") || inf_fail(in, "operand output_dtype is \"%.40s\", expected fp32", dtype);
}

/* Outputs: the mask, widened where vectors go, and the values. */
bool rule_lut_to_sparse(infer *in) {
    ir_type mask = inf_type(in, A_indices_mask);
    int64_t n, vector = 1, axis = 0;
    if (!vector_operand(in, A_indices_nonzero_data, &n) ||
        !check_table(in, &mask, (ir_dtype)inf_type(in, A_indices_nonzero_data).dtype, &vector, &axis) ||
        !inf_mul(in, mask.dim[axis], vector, &mask.dim[axis]) || !inf_mul(in, n, vector, &n))
        return false;
    in->out[0] = mask;
    in->out[1] = ir_tensor((ir_dtype)inf_type(in, A_lut).dtype, 1, &n);
    return true;
}

bool rule_sparse_blockwise(infer *in) {
    ir_type mask = inf_type(in, A_data_mask), data = inf_type(in, A_nonzero_data);
    int64_t n;
    if (!vector_operand(in, A_nonzero_data, &n) || !check_scales(in, &mask, (ir_dtype)data.dtype))
        return false;
    in->out[0] = mask;
    in->out[1] = ir_tensor((ir_dtype)inf_type(in, A_scale).dtype, 1, &n);
    return true;
}

static bool check_quantization(infer *in, const ir_type *x) {
    int64_t axis = 0;
    bool has_axis = inf_has(in, A_axis);
    if (has_axis && !inf_axis(in, A_axis, 0, x->rank, &axis)) return false;
    ir_type scale = inf_type(in, A_scale), zero = inf_type(in, A_zero_point);
    if (inf_has(in, A_zero_point) && zero.rank != scale.rank)
        return inf_bad(in, A_zero_point, "expected the shape of scale, %s", ir_type_text(in->a, &scale));
    return along(in, A_scale, x, has_axis, axis) && along(in, A_zero_point, x, has_axis, axis);
}

bool rule_quantize(infer *in) {
    ir_type x = inf_type(in, A_input);
    ir_dtype d = dtype_by_name(ir_env_text(in->op, A_output_dtype, ""));
    if (d != DT_INT8 && d != DT_UINT8) return inf_fail(in, "operand output_dtype must be int8 or uint8");
    if (inf_has(in, A_zero_point) && inf_type(in, A_zero_point).dtype != d)
        return inf_bad(in, A_zero_point, "expected output_dtype, %s", dtype_name(d));
    in->out[0] = x;
    in->out[0].dtype = (uint8_t)d;
    return check_quantization(in, &x);
}

bool rule_dequantize(infer *in) {
    ir_type x = inf_type(in, A_input);
    in->out[0] = x;
    in->out[0].dtype = inf_type(in, A_scale).dtype;
    return check_quantization(in, &x);
}
