/* What the inference rules share. Private to src/ir.
 *
 * A rule reads the operands of in->op and fills in->out. It may rely on ir_infer_op() having checked that
 * required operands are there, that every operand is a well-formed tensor (rank 0..8, sizes -1..INF_DIM_MAX)
 * of a dtype that the slot admits, and that the op has as many outputs as its row says. */
#ifndef IR_INFER_RULES_H
#define IR_INFER_RULES_H
#include "ir/infer.h"

#define INF_DIM_MAX                                                                                          \
    (INT64_C(1) << 48) /* no real size comes near it, and sums of sizes can't overflow below it */

typedef struct {
    const ir_op *op;
    int spec;
    const ir_env *env;
    ir_type *out;
    arena *a;
    err *e;
} infer;

typedef bool infer_rule(infer *in);

/* The three steps of ir_infer_op(), apart so that the verifier can tell which rule was broken. */
bool inf_operands(infer *in);   /* each operand for itself: presence, kind, size, dtype */
bool inf_same_dtype(infer *in); /* operands that must share a dtype */
bool inf_outputs(infer *in);    /* the op's own rule */

/* A list operand (axes, shape, begin ...). */
typedef struct {
    bool present;
    const int64_t *v; /* NULL: absent, or not known now */
    size_t n;         /* entries of v */
    int64_t len;      /* length by type; IR_DIM_UNKNOWN when that is not known */
} inf_list;

bool inf_has(const infer *in, ir_operand name);
/* Type of an operand; a zero type when it is absent. */
ir_type inf_type(const infer *in, ir_operand name);
inf_list inf_ints(const infer *in, ir_operand name);
/* As inf_ints(); an error when the operand is present and its values are not known. */
bool inf_known_ints(infer *in, ir_operand name, inf_list *l);
/* Scalars that must be known when present. */
bool inf_int(infer *in, ir_operand name, int64_t fallback, int64_t *v);
bool inf_bool(infer *in, ir_operand name, bool fallback, bool *v);
/* The axis operand as an index below rank. */
bool inf_axis(infer *in, ir_operand name, int64_t fallback, int rank, int64_t *axis);
/* One flag an axis from a list of axes; all are set when the operand is absent. Refuses repeated axes. */
bool inf_axes(infer *in, ir_operand name, int rank, bool *chosen);
bool inf_text_among(infer *in, ir_operand name, const char *text, const char *const *allowed);

/* Error helpers: "operand x has type fp16[1,2]: <what>". Always false. */
bool inf_bad(infer *in, ir_operand name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool inf_fail(infer *in, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Arithmetic on sizes that may be unknown. */
bool inf_mul(infer *in, int64_t x, int64_t y, int64_t *product);
/* One size that two operands share: false when both are known and differ. */
bool inf_unify(int64_t x, int64_t y, int64_t *size);
/* Adds a dimension to t; an error beyond IR_MAX_RANK. */
bool inf_push(infer *in, ir_type *t, int64_t dim);
bool inf_broadcast(infer *in, ir_operand x, ir_operand y, ir_type *out);

#define RULE(name) infer_rule name;
/* infer_elementwise.c */
RULE(rule_same)
RULE(rule_binary)
RULE(rule_compare) RULE(rule_select) RULE(rule_cast) RULE(rule_gelu) RULE(rule_softplus_parametric)
    /* infer_linear.c */
    RULE(rule_linear) RULE(rule_matmul) RULE(rule_einsum) RULE(rule_sdpa)
    /* infer_conv.c */
    RULE(rule_conv) RULE(rule_conv_transpose)
    /* infer_reduce.c */
    RULE(rule_reduce) RULE(rule_reduce_arg) RULE(rule_one_axis) RULE(rule_topk) RULE(rule_argsort)
        RULE(rule_layer_norm) RULE(rule_l2_norm) RULE(rule_channel_norm)
    /* infer_shape.c */
    RULE(rule_reshape) RULE(rule_reshape_like) RULE(rule_transpose) RULE(rule_expand_dims) RULE(rule_squeeze)
        RULE(rule_flatten2d) RULE(rule_concat) RULE(rule_stack) RULE(rule_split) RULE(rule_tile)
            RULE(rule_reverse) RULE(rule_pad) RULE(rule_band_part) RULE(rule_sliding_windows)
    /* infer_make.c */
    RULE(rule_range_1d) RULE(rule_fill) RULE(rule_fill_like) RULE(rule_one_hot) RULE(rule_shape)
        RULE(rule_non_zero)
    /* infer_slice.c */
    RULE(rule_slice_by_index) RULE(rule_slice_by_size) RULE(rule_slice_update)
    /* infer_gather.c */
    RULE(rule_gather) RULE(rule_gather_along_axis) RULE(rule_gather_nd) RULE(rule_scatter)
        RULE(rule_scatter_along_axis) RULE(rule_scatter_nd)
    /* infer_constexpr.c */
    RULE(rule_lut_to_dense) RULE(rule_affine_dequantize) RULE(rule_blockwise) RULE(rule_sparse_to_dense)
        RULE(rule_constexpr_cast) RULE(rule_lut_to_sparse) RULE(rule_sparse_blockwise) RULE(rule_quantize)
            RULE(rule_dequantize)
    /* infer_control.c */
    RULE(rule_const) RULE(rule_cond) RULE(rule_while_loop) RULE(rule_read_state) RULE(rule_write_state)
        RULE(rule_classify)
#undef RULE
#endif
