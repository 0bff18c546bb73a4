/* Which body evaluates which op. */
#include "reference/ops.h"

#define ROUNDED(op, body) [OP_##op] = {body, false},
#define EXACT(op, body)   [OP_##op] = {body, true},

// clang-format off
static const ref_op_row rows[OP_COUNT] = {
    EXACT(identity, ev_same_cells)
    /* linear algebra */
    ROUNDED(linear, ev_linear) ROUNDED(matmul, ev_matmul) ROUNDED(einsum, ev_einsum) ROUNDED(conv, ev_conv)
    ROUNDED(conv_transpose, ev_conv_transpose) ROUNDED(scaled_dot_product_attention, ev_sdpa)
    ROUNDED(causal_attention, ev_fused_attention)
    /* gather and scatter */
    EXACT(gather, ev_gather) EXACT(gather_along_axis, ev_gather_along_axis) EXACT(gather_nd, ev_gather_nd)
    ROUNDED(scatter, ev_scatter) ROUNDED(scatter_along_axis, ev_scatter_along_axis) ROUNDED(scatter_nd, ev_scatter_nd)
    /* normalisation */
    ROUNDED(softmax, ev_softmax) ROUNDED(layer_norm, ev_layer_norm) ROUNDED(l2_norm, ev_l2_norm)
    ROUNDED(instance_norm, ev_instance_norm) ROUNDED(batch_norm, ev_batch_norm)
    /* reductions and ordering */
    ROUNDED(reduce_sum, ev_reduce) ROUNDED(reduce_mean, ev_reduce) EXACT(reduce_max, ev_reduce)
    EXACT(reduce_min, ev_reduce) ROUNDED(reduce_prod, ev_reduce) ROUNDED(reduce_sum_square, ev_reduce)
    ROUNDED(reduce_l2_norm, ev_reduce) ROUNDED(reduce_l1_norm, ev_reduce) ROUNDED(reduce_log_sum_exp, ev_reduce)
    ROUNDED(reduce_log_sum, ev_reduce) EXACT(reduce_argmax, ev_reduce_arg) EXACT(reduce_argmin, ev_reduce_arg)
    ROUNDED(cumsum, ev_cumsum) EXACT(topk, ev_topk) EXACT(argsort, ev_argsort)
    /* shape */
    EXACT(reshape, ev_same_cells) EXACT(reshape_like, ev_same_cells) EXACT(expand_dims, ev_same_cells)
    EXACT(squeeze, ev_same_cells) EXACT(flatten2d, ev_same_cells) EXACT(transpose, ev_transpose)
    EXACT(concat, ev_concat) EXACT(stack, ev_stack) EXACT(split, ev_split)
    EXACT(slice_by_index, ev_slice_by_index) EXACT(slice_by_size, ev_slice_by_size)
    EXACT(slice_update, ev_slice_update) EXACT(tile, ev_tile) EXACT(broadcast_to, ev_broadcast_to) EXACT(reverse, ev_reverse) ROUNDED(pad, ev_pad)
    EXACT(sliding_windows, ev_sliding_windows) EXACT(band_part, ev_band_part) ROUNDED(range_1d, ev_range_1d)
    EXACT(fill, ev_fill) EXACT(fill_like, ev_fill_like) EXACT(one_hot, ev_one_hot) EXACT(shape, ev_shape)
    EXACT(non_zero, ev_non_zero)
    /* element-wise, two operands */
    ROUNDED(add, ev_binary) ROUNDED(sub, ev_binary) ROUNDED(mul, ev_binary) ROUNDED(real_div, ev_binary)
    ROUNDED(floor_div, ev_binary) ROUNDED(mod, ev_binary) ROUNDED(pow, ev_binary) ROUNDED(maximum, ev_binary)
    ROUNDED(minimum, ev_binary) EXACT(less, ev_binary) EXACT(less_equal, ev_binary) EXACT(greater, ev_binary)
    EXACT(greater_equal, ev_binary) EXACT(equal, ev_binary) EXACT(not_equal, ev_binary)
    EXACT(logical_and, ev_binary) EXACT(logical_or, ev_binary) EXACT(logical_xor, ev_binary)
    EXACT(select, ev_select)
    /* element-wise, one operand */
    EXACT(cast, ev_cast) EXACT(logical_not, ev_logical_not) ROUNDED(silu, ev_unary) ROUNDED(sigmoid, ev_unary)
    ROUNDED(tanh, ev_unary) EXACT(relu, ev_unary) ROUNDED(softplus, ev_unary)
    ROUNDED(softplus_parametric, ev_softplus_parametric) ROUNDED(gelu, ev_unary) ROUNDED(exp, ev_unary)
    ROUNDED(exp2, ev_unary) ROUNDED(log, ev_unary) ROUNDED(sqrt, ev_unary) ROUNDED(rsqrt, ev_unary)
    ROUNDED(inverse, ev_unary) ROUNDED(erf, ev_unary) EXACT(abs, ev_unary) ROUNDED(square, ev_unary)
    EXACT(floor, ev_unary) EXACT(ceil, ev_unary) EXACT(round, ev_unary) EXACT(sign, ev_unary)
    ROUNDED(sin, ev_unary) ROUNDED(cos, ev_unary) ROUNDED(clip, ev_unary) ROUNDED(threshold, ev_unary)
    ROUNDED(leaky_relu, ev_unary) ROUNDED(elu, ev_unary) ROUNDED(round_as, ev_round_as)
    /* weight decompression, quantized activations */
    EXACT(constexpr_lut_to_dense, ev_lut_to_dense) ROUNDED(constexpr_affine_dequantize, ev_affine_dequantize)
    ROUNDED(constexpr_blockwise_shift_scale, ev_blockwise) EXACT(constexpr_sparse_to_dense, ev_sparse_to_dense)
    EXACT(constexpr_cast, ev_constexpr_cast) EXACT(constexpr_lut_to_sparse, ev_lut_to_sparse)
    ROUNDED(constexpr_sparse_blockwise_shift_scale, ev_sparse_blockwise)
    ROUNDED(quantize, ev_quantize) ROUNDED(dequantize, ev_dequantize)
    /* fused */
    ROUNDED(fused_norm, ev_fused_norm) ROUNDED(fused_attention, ev_fused_attention)
    ROUNDED(fused_swiglu, ev_fused_swiglu) ROUNDED(fused_rope, ev_fused_rope) ROUNDED(fused_delta, ev_fused_delta)
    ROUNDED(fused_conv_step, ev_fused_conv_step) ROUNDED(fused_linear, ev_fused_linear)
    ROUNDED(fused_conv, ev_fused_conv) ROUNDED(fused_delta_rule, ev_fused_delta_rule)
    ROUNDED(fused_blend, ev_fused_blend)
};
// clang-format on

const ref_op_row *ref_op_row_of(ir_opcode code) {
    return &rows[code];
}
