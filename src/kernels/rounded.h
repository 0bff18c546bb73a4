/* Kernels of everything between linear layers: attention, norms, activations, the gated delta rule. One body
 * (rounded_body.h) is compiled for each instruction set; the order of every sum is the same in all of them,
 * so that a result depends neither on the processor nor on how units are split among threads. */
#ifndef KERNELS_ROUNDED_H
#define KERNELS_ROUNDED_H
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Softmax attention of query rows over a cache: o = softmax(scale q K^T + mask) V. `heads` query heads share
 * the keys and values of a group. Offsets count elements; rows of q, k, v and o lie in one piece. A unit is
 * one token of one group: groups * tokens units, token fastest. */
typedef struct {
    int64_t groups, heads, tokens, keys, depth, value_depth;
    const float *q;
    const void *k, *v;
    float *o;
    int64_t q_group, q_head, q_token, k_group, k_row, v_group, v_row, o_group, o_head, o_token;
    bool half_k, half_v; /* fp16, else fp32 */
    const float *mask;   /* added; [tokens] rows; NULL: none */
    int64_t mask_token;
    const int32_t *visible; /* [tokens]: keys from here on are hidden by the mask; NULL: none is */
    int64_t visible_step;
    float scale; /* 1: none */
    /* Rounding to fp16 as the ops of the program would do it: the products, the scaled ones, the masked ones,
     * the probabilities, the result. */
    bool round_product, round_scaled, round_masked, round_weight, round_result;
} kern_rounded_attention;
size_t kern_rounded_scratch(int64_t heads, int64_t keys);

/* y = x / sqrt(mean(x^2) + eps) * gamma, row by row; rows of x lie x_row apart (units: rows). */
typedef struct {
    int64_t n;
    const float *x, *gamma; /* gamma [n] or NULL */
    float *y;
    float eps, scale;                            /* scale: a factor behind the division, 1: none */
    bool sum;                                    /* the sum of squares instead of their mean */
    bool round_unit, round_scaled, round_result; /* to fp16: the normalised row, times scale, times gamma */
} kern_rounded_norm;

/* One step of the gated delta rule for one value head: S <- decay S; S <- S + k (beta (v - S^T k))^T; o = S^T
 * q. S is [dk][dv]; it is kept in fp16, or in fp16 and the rest that rounding took away (low), and used in
 * fp32. */
typedef struct {
    int64_t dk, dv;
    uint16_t *state, *low; /* low: NULL or as state */
    const float *q, *k, *v;
    float decay, beta;
    float *o;
    /* To fp16, as the ops would: every intermediate result. */
    bool round;
} kern_rounded_delta;

typedef enum { KERN_ROUNDED_EXP, KERN_ROUNDED_SILU, KERN_ROUNDED_SIGMOID } kern_rounded_function;

typedef struct {
    const char *isa;
    /* scratch: kern_rounded_scratch() bytes of this thread, at a multiple of 64. */
    void (*attention)(const kern_rounded_attention *job, int64_t lo, int64_t hi, void *scratch);
    void (*norm)(const kern_rounded_norm *job);
    void (*delta)(const kern_rounded_delta *job, float *scratch); /* scratch: dk dv + 2 dv floats */
    void (*function)(kern_rounded_function f, float *y, const float *x, int64_t n);
    /* y = silu(gate) up; round: after the silu too. y may be either operand. */
    void (*swiglu)(float *y, const float *gate, const float *up, int64_t n, bool round);
    void (*softmax)(float *y, const float *x, int64_t n);
    float (*dot)(const float *x, const void *y, bool half, int64_t n);
    void (*axpy)(float *y, float a, const void *x, bool half, int64_t n); /* y += a x */
    void (*widen)(float *y, const uint16_t *x, int64_t n);
    void (*narrow)(uint16_t *y, const float *x, int64_t n);
    void (*round)(float *y, int64_t n); /* to fp16 numbers */
} kern_rounded;

/* The best for this processor below the cap (names as in kernels.h; NULL: no cap). */
void kern_rounded_open(kern_rounded *t, const char *cap);
#endif
