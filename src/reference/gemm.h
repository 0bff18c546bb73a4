/* c[m][n] = sum over k of a[m][k] * b(k, n), every sum in fp32 and in index order. Sixteen neighbouring
 * outputs are computed at once, which vectorises without reordering any sum. */
#ifndef REFERENCE_GEMM_H
#define REFERENCE_GEMM_H
#include "reference/tensor.h"

typedef struct {
    const float *cell;   /* the elements as cells, or NULL: */
    const ref_tensor *t; /* a packed constant, converted block by block */
    int64_t first;       /* element (0, 0) in cell or t */
    int64_t k, n;
    bool by_output; /* element (k, n) lies at n * K + k (a linear weight); else at k * N + n */
} ref_matrix;

/* a and c are dense; a[m][k], c[m][n]. */
void ref_gemm(float *c, const float *a, int64_t m, const ref_matrix *b);
#endif
