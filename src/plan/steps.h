/* The functions that steps call, with what they are told. */
#ifndef PLAN_STEPS_H
#define PLAN_STEPS_H
#include "kernels/kernels.h"
#include "kernels/rounded.h"
#include "plan/grid.h"
#include "plan/step.h"

/* p: to, from. Stores are DT_NONE for cells. */
typedef struct {
    grid g;
    uint8_t to, from; /* ir_dtype of packed elements */
    bool round;       /* to fp16 */
} step_copy;
plan_fn run_copy;

/* p: results, operands; calls the reference body. */
typedef struct {
    const ir_op *op;
    const ir_value **operand; /* of those that lie in activation memory or in expanded constants */
    ir_type *type;
    uint32_t n_operand;
} step_reference;
plan_fn run_reference;

/* p: y, x. */
typedef struct {
    grid g;
    ir_opcode code;
    float number[2];   /* epsilon, alpha, beta */
    ir_dtype from, to; /* cast */
    bool round;
} step_unary;
plan_fn run_unary, run_cast;

/* p: o, x, y. */
typedef void step_row(void *o, const void *x, int64_t sx, const void *y, int64_t sy, int64_t n);
typedef struct {
    grid g;
    step_row *row;
    bool round;
} step_binary;
plan_fn run_binary;

/* p: o, cond, a, b. */
typedef struct {
    grid g;
} step_select;
plan_fn run_select;

/* p: o, x: x [rows, n] with any stride between rows and inside. run_argmax: o holds indices. */
typedef struct {
    int rank; /* of the rows */
    int64_t dim[IR_MAX_RANK], stride[IR_MAX_RANK], n, step;
    ir_opcode code;
    bool round;
} step_rows;
plan_fn run_reduce, run_argmax, run_softmax;

/* p: o, x, update [, begin, end]: writes update into x's memory (in place) or o's. */
typedef struct {
    const ir_op *op;
    grid g;                      /* of the target's memory and update, when plain */
    ir_type type, update;        /* of x, of update */
    int64_t stride[IR_MAX_RANK]; /* of x's memory */
    int64_t from[IR_MAX_RANK];   /* strides of update */
    uint8_t store;               /* DT_NONE: cells */
    bool round;
    int begin, end; /* index in p; -1: a constant */
    bool plain;     /* neither strides nor masks; begin and end are made at run time */
} step_update;
plan_fn run_update;

/* p: prepared x, x [m,k] dense. Units are rows. */
typedef struct {
    kern_prepare_fn *fn, *many; /* many: of several timelines */
    int64_t m, k;
    kern_form form;
} step_prepare;
plan_fn run_prepare;
plan_many_fn many_prepare;

/* p: y [m,n], x [m,k] (prepared) [, what is added]. Units are rows of the weight. */
typedef struct {
    kern_weight w;
    kern_choice c, many; /* many: of several timelines */
    int64_t m;
    const float *bias;
    uint32_t add; /* index in p; 0: none */
    bool round;
} step_linear;
plan_fn run_linear;
plan_many_fn many_linear; /* m is 1 */

/* p: c [batch,m,n] dense, a, b. */
typedef struct {
    int rank; /* of the batch */
    int64_t dim[IR_MAX_RANK], sa[IR_MAX_RANK], sb[IR_MAX_RANK];
    int64_t m, n, k, am, ak, bk, bn; /* sizes; strides of rows and columns */
    uint8_t store_b;                 /* DT_NONE or DT_FP16 */
    bool round;
} step_matmul;
plan_fn run_matmul;

/* p: o [count,width], index, table. */
typedef struct {
    int64_t count, width, rows;
    uint8_t store;
    kern_weight w; /* packed: without a table in p */
    kern_decode_fn *decode;
    bool round;
} step_gather;
plan_fn run_gather, run_gather_packed;

/* p: o, x [.., n, inner], index [.., m, inner]. Units are indices. */
typedef struct {
    int64_t count, n, m, inner;
} step_gather_along;
plan_fn run_gather_along;

/* p: y [n,C,T], x [n,C,S], w [C,taps]: depthwise, no padding. */
typedef struct {
    int64_t n, channels, out, taps;
    int64_t xn, xc, xt; /* strides of x */
    bool round;
} step_conv;
plan_fn run_conv;

/* p: values, indices (or none), x. */
typedef struct {
    int64_t rows, n, k;
    bool ascending, with_indices;
} step_topk;
plan_fn run_topk;
/* Fused ops. p: result, x. Units are rows. */
typedef struct {
    step_rows x;
    kern_rounded_norm job; /* without addresses */
} step_norm;
plan_fn run_norm;

/* p: result, gate, up. Units are 256 elements. */
typedef struct {
    int64_t n;
    bool round, round_result;
    bool fast; /* nothing is rounded on the way: by the kernels of kernels/ops.h */
} step_swiglu;
plan_fn run_swiglu;
/* Of n elements; y may be either operand. */
void steps_swiglu(const step_swiglu *s, float *y, const float *gate, const float *up, int64_t n,
                  const plan_worker *w);

/* p: result, x, cos, sin. Units are rows. */
typedef struct {
    step_rows x;
    int64_t n, cos[IR_MAX_RANK], sin[IR_MAX_RANK]; /* elements that turn; strides over the rows of x */
    bool round, round_result;
} step_rope;
plan_fn run_rope;

/* p: number of visible keys of each row, then of those before the first that its mask changes; mask [, how
 * many there are]. */
typedef struct {
    int64_t rows, keys, step; /* step: between rows of the mask */
    bool with_length;
} step_visible;
plan_fn run_visible;

/* p: number of keys that each token sees [, how many there are]: the last one all, those before it one less
 * each. */
typedef struct {
    int64_t tokens, keys;
    bool with_length;
} step_seen;
plan_fn run_seen;

/* p: result, query, key, value [, mask, visible]. */
typedef struct {
    kern_rounded_attention job; /* without addresses */
    int mask, visible;          /* index in p; 0: none */
} step_attention;
plan_fn run_attention;

/* p: result, memory (changed) [, low (changed)], query, key, value, decay, beta. Units are value heads. */
typedef struct {
    int64_t dk, dv, q_share, k_share; /* heads that share a query, a key */
    bool low, round;
    bool turned, cells; /* memory is [heads][dv][dk]; lies in cells: for the kernels of kernels/ops.h only */
} step_delta;
plan_fn run_delta;

/* p: memory (changed), row, mask: rows of memory blended with row where the mask is not 0. One unit. */
typedef struct {
    grid g;                /* of a row: in memory, in row */
    int64_t n, step, mask; /* rows; from one to the next in memory, in the mask */
    uint8_t store;         /* DT_NONE: cells */
    bool round_rest, round_kept, round_put, round;
} step_blend;
plan_fn run_blend;

/* p: result, memory (changed), x, weight. Units are channels. */
typedef struct {
    int64_t channels, kept, width; /* width: columns of memory */
    bool round;
} step_conv_step;
plan_fn run_conv_step;

/* p: number of real tokens, what the call says. Fails when that is not 0 .. tokens. */
typedef struct {
    int64_t tokens;
} step_valid;
plan_fn run_valid;

/* ---- the same by the kernels of kernels/ops.h ---- */

/* p: result, x [, cos, sin] [, z]. Units are rows. */
typedef struct {
    kern_norm job;   /* without addresses */
    int cos, sin, z; /* index in p; 0: none */
} step_fast_norm;
plan_fn run_fast_norm;

/* p: y, x. Units are elements. */
typedef struct {
    kern_pointwise_op code;
    int64_t n;
} step_fast_unary;
plan_fn run_fast_unary;

/* p: prepared x [, x itself], what x is made of: x of the norm; gate, up. Units are rows of x, which a chunk
 * starts at a multiple of PLAN_PREPARED of. */
typedef struct {
    step_prepare prepare;
    kern_norm norm; /* without addresses; of rows that lie at equal distances */
    step_swiglu swiglu;
    bool kept; /* x is read by others, too */
} step_made;
plan_fn run_norm_prepare, run_swiglu_prepare;
#define PLAN_PREPARED 16

/* Bytes of scratch for either of two kernels: what lies behind them begins on a cache line. */
static inline size_t scratch_for(size_t a, size_t b) {
    return ((a > b ? a : b) + 63) / 64 * 64;
}

/* p: silu(gate) * up [n], x of gate, x of up (prepared). Units are rows of both weights. */
typedef struct {
    step_linear part[2];
    size_t up; /* where in the scratch a chunk of it goes */
} step_gated;
plan_fn run_gated;
plan_many_fn many_gated;

/* The same for many rows of x; the result may be what the next linear wants to read as its x. */
typedef struct {
    step_linear part[2];
    size_t made; /* where in the scratch the results of GATED_ROWS rows of both weights go */
    kern_prepare_part_fn *prepare; /* NULL: the result is fp32 [m,n] */
} step_gated_rows;
plan_fn run_gated_rows;
#define GATED_ROWS KERN_PART

/* p: partial results or result, query, key, value [, mask, visible]; of the join: result, partial results [,
 * visible]. Units are shares; of the join: rows of the result. */
typedef struct {
    kern_attention job; /* without addresses */
    int mask, visible;  /* index in p; 0: none */
} step_fast_attention;
plan_fn run_fast_attention, run_fast_join;

/* p: as of run_delta. Units are value heads. */
typedef struct {
    kern_delta job; /* without addresses */
    bool low;
} step_fast_delta;
plan_fn run_fast_delta;

/* p: as of run_conv_step. */
typedef struct {
    kern_conv job; /* without addresses */
} step_fast_conv;
plan_fn run_fast_conv;

/* The same over many tokens. p: result, memory (changed), x, weight [, real tokens]. Units are channels. */
typedef struct {
    kern_conv job; /* without addresses; valid: where p has no number of real tokens */
    bool with_valid;
} step_tokens_conv;
plan_fn run_tokens_conv;

/* p: result, memory (changed) [, low (changed)], query, key, value, log decay, beta [, gate]. Units are value
 * heads. */
typedef struct {
    kern_delta job; /* without addresses, but the weight's */
    bool low, gate;
} step_tokens_delta;
plan_fn run_tokens_delta;
#endif
