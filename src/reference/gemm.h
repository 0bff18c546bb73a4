/* c[m][n] = sum over k of a[m][k] * b(k, n), every sum in fp32 and, unless blocks are allowed, in index
 * order. Sixteen neighbouring outputs are computed at once, which vectorises without reordering any sum. */
#ifndef REFERENCE_GEMM_H
#define REFERENCE_GEMM_H
#include "reference/tensor.h"

typedef struct {
    const void *data; /* element (0, 0); need not be aligned */
    bool half;        /* elements are fp16 (only by_output), else fp32 */
    bool by_output;   /* element (k, n) lies at n * K + k (a linear weight); else at k * N + n */
    bool blocks;      /* sums may be taken eight terms at a time: shorter chains of rounding (fast mode) */
    int64_t k, n;
} ref_matrix;

/* A float tensor as the [n][k] weight matrix of a product. False when its packed form is neither fp16 nor
 * fp32: then the caller gives its cells instead. */
bool ref_weight(ref_matrix *b, const ref_tensor *t, int64_t k, int64_t n);
/* a and c are dense; a[m][k], c[m][n]. */
void ref_gemm(float *c, const float *a, int64_t m, const ref_matrix *b);
#endif
