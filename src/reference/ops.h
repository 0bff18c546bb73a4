/* The op bodies, by file. See eval.h for what they may use. */
#ifndef REFERENCE_OPS_H
#define REFERENCE_OPS_H
#include "reference/eval.h"

/* unary.c */
ref_op_fn ev_unary, ev_logical_not, ev_softplus_parametric, ev_cast;
/* binary.c */
ref_op_fn ev_binary, ev_select;
/* linear.c */
ref_op_fn ev_linear, ev_matmul;
/* attention.c */
ref_op_fn ev_sdpa, ev_einsum;
/* conv.c */
ref_op_fn ev_conv, ev_conv_transpose;
/* reduce.c */
ref_op_fn ev_reduce, ev_reduce_arg, ev_cumsum;
/* norm.c */
ref_op_fn ev_softmax, ev_layer_norm, ev_l2_norm, ev_instance_norm, ev_batch_norm;
/* order.c */
ref_op_fn ev_topk, ev_argsort, ev_non_zero;
/* shape.c */
ref_op_fn ev_same_cells, ev_transpose, ev_concat, ev_stack, ev_split, ev_tile, ev_broadcast_to, ev_reverse, ev_pad,
    ev_sliding_windows;
/* make.c */
ref_op_fn ev_shape, ev_fill, ev_fill_like, ev_range_1d, ev_one_hot, ev_band_part;
/* slice.c */
ref_op_fn ev_slice_by_index, ev_slice_by_size, ev_slice_update;
bool ev_check_update(ref_eval *v); /* before inference: a slice_update's end must not pass the tensor */
/* gather.c */
ref_op_fn ev_gather, ev_gather_along_axis, ev_gather_nd;
/* scatter.c */
ref_op_fn ev_scatter, ev_scatter_along_axis, ev_scatter_nd;
/* constexpr.c */
ref_op_fn ev_lut_to_dense, ev_affine_dequantize, ev_blockwise, ev_sparse_to_dense, ev_lut_to_sparse,
    ev_sparse_blockwise, ev_constexpr_cast;
/* fused.c */
ref_op_fn ev_fused_norm, ev_fused_attention, ev_fused_swiglu, ev_fused_rope, ev_fused_delta, ev_fused_conv_step, ev_fused_linear,
    ev_fused_blend;
/* What a recurrence keeps of x: result 1 is its memory. */
float ev_kept(const ref_eval *v, float x);
/* fused_tokens.c */
ref_op_fn ev_fused_conv, ev_fused_delta_rule;
/* quantize.c */
ref_op_fn ev_quantize, ev_dequantize, ev_round_as;

/* An index operand resolved against an axis of n elements: negative ones count from the end; out of range it
 * is clamped, or an error (-1, e set) when the op validates its indices. n > 0. */
int64_t ev_index(ref_eval *v, int64_t index, int64_t n, bool validate);
#endif
