/* Kernels of everything that is no linear layer: element by element, norms and rotations, softmax, attention
 * over a cache, the gated delta rule, ordering.
 *
 *     kern_ops k;
 *     kern_ops_open(&k, getenv("MILLET_ISA"), &e);
 *     k.norm(&job, lo, hi);                       any range of the job's units, any thread
 *
 * Every job says what its units are. Results don't depend on how units are split. Activations are fp32, sums
 * are fp32. Strides count elements. Nothing needs alignment beyond that of its elements, except scratch (64
 * bytes; of one thread, contents don't matter). No byte outside the arrays is read or written.
 */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H
#include "kernels/kernels.h"

/* Numbers kept between calls: fp32, fp16, or fp16 and, in `rest`, the fp16 remainder that rounding took away
 * (22 bits together). */
typedef struct {
    void *value;
    uint16_t *rest; /* same layout as value, or NULL */
    kern_type type; /* KERN_F16 or KERN_F32 */
} kern_memory;

/* ---- element by element ---- */

typedef enum {
    KERN_ADD,
    KERN_SUB,
    KERN_MUL,
    KERN_SILU,        /* x * sigmoid(x) */
    KERN_SIGMOID,     /* 1 / (1 + exp(-x)) */
    KERN_EXP,         /* 2 ulp */
    KERN_SILU_MUL,    /* silu(x) * y */
    KERN_SIGMOID_MUL, /* sigmoid(x) * y */
    KERN_POINTWISE
} kern_pointwise_op;

/* o[r][c] = op(x[r][c], y[r][c]). Units: elements, row by row (row i / n, column i % n). A stride of 0
 * repeats a row. o may be x or y. */
typedef struct {
    int64_t n; /* elements of a row */
    const float *x, *y;
    int64_t ldx, ldy, ldo; /* between rows */
    float *o;
    bool half; /* o is rounded to numbers that fp16 has */
} kern_pointwise;
typedef void kern_pointwise_fn(const kern_pointwise *job, int64_t lo, int64_t hi);

/* Units: elements. Rounds to nearest even. With a rest, value = fp16(x), rest = fp16(x - value); read back as
 * value + rest. x [] fp32. */
typedef void kern_narrow_fn(const kern_memory *to, const float *x, int64_t lo, int64_t hi);
typedef void kern_widen_fn(float *to, const kern_memory *x, int64_t lo, int64_t hi);

/* ---- rows ---- */

/* Where row i of a job lies: i / inner * outer_step + i % inner * inner_step, inner being the job's. Rows of
 * a matrix: inner 1. Heads of tokens, in any layout: inner = heads. Elements of a row are neighbours. */
typedef struct {
    int64_t outer, inner;
} kern_step;

typedef enum {
    KERN_NORM_NONE, /* 1 */
    KERN_NORM_MEAN, /* 1 / sqrt(mean(x^2) + eps): RMS norm */
    KERN_NORM_SUM,  /* 1 / sqrt(sum(x^2) + eps): L2 norm */
    KERN_NORM_LAYER /* x - mean(x) first, then as MEAN */
} kern_norm_kind;

/* y = rotate(x * norm(x) * scale * weight + bias) * silu(z), row by row; parts that are NULL are left out.
 * Units: rows. rotate: with h = dims / 2 and the table row of the row's outer index, element j < h becomes
 * x[j] cos[j] - x[j + h] sin[j], element j + h becomes x[j + h] cos[j + h] + x[j] sin[j + h]; elements from
 * dims on stay. */
typedef struct {
    int64_t n, inner; /* elements of a row; rows in the inner step */
    kern_norm_kind kind;
    float eps, scale; /* scale: 1 for none */
    bool half;        /* x * norm(x) is rounded to numbers that fp16 has */
    const float *x, *weight, *bias, *z;
    kern_step x_step, z_step, y_step;
    const float *cos, *sin; /* [outer][dims] ld_table apart */
    int64_t dims, ld_table;
    bool half_table; /* the table row has dims / 2 elements, which serve both halves */
    float *y;        /* may be x */
    kern_memory *to; /* if not NULL, results go there instead of y, with y_step */
} kern_norm;
typedef void kern_norm_fn(const kern_norm *job, int64_t lo, int64_t hi);

/* y = softmax(x * scale + mask), row by row. Units: rows. A row of nothing but -inf gives NaN. */
typedef struct {
    int64_t n;
    const float *x, *mask; /* mask: NULL or rows ldm apart, 0 for one that serves all */
    int64_t ldx, ldm, ldy;
    float scale;
    float *y; /* may be x */
} kern_softmax;
typedef void kern_softmax_fn(const kern_softmax *job, int64_t lo, int64_t hi);

/* ---- attention ---- */

#define KERN_KEYS 256 /* keys in a block */

/* y[h][t] = sum over j of softmax_j(scale * q[h][t] . k[g][j] (+ mask[t][j])) v[g][j], times sigmoid(gate),
 * where g = h / (heads / groups). Query t sees keys 0 .. first + t, or the first visible[t] of them; with a
 * mask and no `visible`, all; never more than `keys`. A query that sees nothing, or only -inf, gives NaN.
 *
 * Few queries (`tokens` < KERN_MANY): blocks of keys are independent. attend() writes, for every query head
 * and block, its maximum, its sum of exponentials and its d_v sums to `partial`; when all are there,
 * attend_join() (units: tokens * heads) adds the blocks up in order. Many queries: attend() makes y, there is
 * no join. Units of attend() are shares, `units` of them (choose about 16 for every thread, or more): blocks
 * that a query doesn't see cost nothing and don't unbalance the shares. */
typedef struct {
    int64_t heads, groups, tokens, d, d_v; /* of q and k; of v and y */
    int64_t keys, first, units;
    float scale;
    const float *q, *mask, *gate;        /* mask, gate: or NULL */
    const int32_t *visible;              /* [tokens] or NULL */
    const int32_t *clear;                /* [tokens] or NULL: the mask of as many first keys is 0 */
    kern_step q_step, gate_step, y_step; /* outer: between heads, inner: between tokens */
    int64_t ldm;                         /* mask: between tokens */
    kern_memory k, v;
    kern_step k_step, v_step; /* outer: between groups, inner: between keys */
    float *y;
    float *partial; /* kern_partial_size() floats */
    void *scratch;  /* attend_scratch() bytes */
} kern_attention;
typedef void kern_attention_fn(const kern_attention *job, int64_t lo, int64_t hi);

#define KERN_MANY 8 /* tokens from which on attend() does without partial results */

/* Floats that `partial` needs when there may be up to job->keys keys. */
int64_t kern_partial_size(const kern_attention *job);
/* Bytes of scratch that attend() needs. */
size_t kern_attention_scratch(const kern_attention *job);

/* 1 + the last j < n with mask[j] > hidden: how many keys a row of an additive mask leaves visible. */
typedef int64_t kern_visible_fn(const float *mask, int64_t n, float hidden);

/* ---- the gated delta rule ---- */

/* y[t][c] = sum over j of w[j][c] * u[t - taps + 1 + j][c], then silu if wanted; units: channels. u before
 * token 0 is the state, [channels][taps - 1] with the newest last; it becomes the last taps - 1 columns up to
 * token `valid`
 * - 1. */
typedef struct {
    int64_t channels, taps, tokens, valid; /* taps <= 8; valid <= tokens */
    const float *u, *w;
    int64_t ldu, ldy, ld_state; /* between tokens; between the state's channels */
    int64_t w_tap, w_channel;   /* strides of w */
    bool silu;
    kern_memory state; /* of the newest taps - 1 columns */
    float *y;
} kern_conv;
typedef void kern_conv_fn(const kern_conv *job, int64_t lo, int64_t hi);

/* log_decay = rate * softplus(a + bias), beta = sigmoid(b); units: tokens * heads. Tokens from `valid` on get
 * 0, 0. rate is -exp(A_log). */
typedef struct {
    int64_t heads, valid;
    const float *a, *b, *rate, *bias; /* [tokens] lda, ldb apart; [heads] */
    int64_t lda, ldb;
    float *log_decay, *beta; /* [tokens][heads] */
} kern_gates;
typedef void kern_gates_fn(const kern_gates *job, int64_t lo, int64_t hi);

/* For each token in order, S [dk][dv] being the head's state:
 *     S <- exp(log_decay) S;  S <- S + k (beta (v - S^T k))^T;  o = S^T q
 * Units: value heads; head h uses key head h / repeat. With `unit`, q and k are L2-normalised first (eps
 * unit_eps), q times q_scale always. With `weight`, o becomes o / sqrt(mean(o^2) + eps) * weight, and with z
 * it is multiplied by silu(z). Tokens at once or one by one: the same
 * bytes, but for rounding of a state in fp16 between calls, and but for KERN_DELTA_MANY tokens or more where
 * there are AMX tiles: unless `exact` they are taken in chunks of 64, in products off by 2^-17. */
typedef struct {
    int64_t repeat, dk, dv, tokens;
    const float *q, *k, *v, *z;
    kern_step q_step, k_step, v_step, z_step, y_step; /* outer: between heads, inner: between tokens */
    const float *log_decay, *beta;
    kern_step gate_step; /* of both */
    bool decayed;        /* log_decay holds exp(log_decay) */
    bool unit;
    float unit_eps, q_scale, eps;
    const float *weight; /* [dv] or NULL */
    kern_memory state;   /* [heads][dk][dv], dense */
    bool transposed;     /* the state is [heads][dv][dk] */
    bool exact;          /* fp32 throughout */
    float *y;
    void *scratch; /* kern_delta_scratch() bytes */
} kern_delta;
typedef void kern_delta_fn(const kern_delta *job, int64_t lo, int64_t hi);
#define KERN_DELTA_MANY 16 /* tokens from which on there may be something faster than one by one */
size_t kern_delta_scratch(const kern_delta *job);

/* ---- order ---- */

/* The k largest of each row, in order; equal ones by lowest index, NaN counts as larger than all numbers.
 * Units: rows. */
typedef struct {
    int64_t n, k; /* k <= n */
    const float *x;
    int64_t ldx;
    float *values; /* [rows][k] or NULL */
    int32_t *ids;  /* [rows][k] or NULL */
    int32_t first; /* is added to the ids */
    void *scratch; /* kern_top_scratch(k) bytes */
} kern_top;
typedef void kern_top_fn(const kern_top *job, int64_t lo, int64_t hi);
size_t kern_top_scratch(int64_t k);

/* Index of the first largest element, as the op reduce_argmax finds it: NaN is never larger. */
typedef int64_t kern_argmax_fn(const float *x, int64_t n);

/* Whether all of n > 0 elements are finite; *largest: index of the first largest one then. */
typedef bool kern_scan_fn(const float *x, int64_t n, int64_t *largest);

/* ---- products of activations ---- */

/* c[i][j] = sum over p of a[i][p] b[p][j]; units: rows of c. Elements of rows of b and c are neighbours. Sums
 * run over p in order. */
typedef struct {
    int64_t n, k; /* columns of c; length of the sums */
    const float *a, *b;
    int64_t a_row, a_step, ldb, ldc; /* a: between rows, between neighbours of a row */
    float *c;
} kern_product;
typedef void kern_product_fn(const kern_product *job, int64_t lo, int64_t hi);

/* Filled by portable C, overlaid by each instruction set. */
typedef struct {
    const char *isa;
    kern_pointwise_fn *pointwise[KERN_POINTWISE];
    kern_narrow_fn *narrow;
    kern_widen_fn *widen;
    kern_norm_fn *norm;
    kern_softmax_fn *softmax;
    kern_attention_fn *attend, *attend_join;
    kern_visible_fn *visible;
    kern_conv_fn *conv;
    kern_gates_fn *gates;
    kern_delta_fn *delta;
    kern_top_fn *top;
    kern_argmax_fn *argmax;
    kern_scan_fn *scan;
    kern_product_fn *product;
} kern_ops;

/* As kern_open(). */
bool kern_ops_open(kern_ops *t, const char *cap, err *e);
#endif
