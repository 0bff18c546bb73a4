/* Products of fp32 matrices, sums in order of the inner index. */
#ifndef KERNELS_BODY_PRODUCT_H
#define KERNELS_BODY_PRODUCT_H
#include "kernels/body_rows.h"

/* rows x width vectors of c. before: NULL, or what c is multiplied by, column by column, before the product
 * is added; else c is set. last: elements in the last vector. */
INLINE void product_tile(float *c, int64_t ldc, const float *before, const float *a, int64_t a_row,
                         int64_t a_step, const float *b, int64_t ldb, int64_t k, int rows, int width,
                         int64_t last) {
    vec sum[TILE_ROWS][TILE];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < width; j++) {
            sum[i][j] = v_all(0);
            if (before) sum[i][j] = v_load(c + i * ldc + j * LANES) * v_load(before + j * LANES);
        }
    for (int64_t p = 0; p < k; p++) {
        vec w[TILE];
        for (int j = 0; j < width; j++)
            w[j] = last < LANES ? v_load_n(b + p * ldb + j * LANES, last) : v_load(b + p * ldb + j * LANES);
        for (int i = 0; i < rows; i++) {
            vec x = v_all(a[i * a_row + p * a_step]);
            for (int j = 0; j < width; j++) sum[i][j] = v_fma(x, w[j], sum[i][j]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < width; j++)
            if (last < LANES)
                v_store_n(c + i * ldc + j * LANES, sum[i][j], last);
            else
                v_store(c + i * ldc + j * LANES, sum[i][j]);
}

/* c [m][n], n a multiple of LANES where there is a `before`. */
INLINE void product_all(float *c, int64_t ldc, const float *before, const float *a, int64_t a_row,
                        int64_t a_step, const float *b, int64_t ldb, int64_t m, int64_t n, int64_t k) {
    const int64_t wide = TILE * LANES;
    for (int64_t j = 0; j < n; j += n - j >= wide ? wide : LANES) {
        const float *f = before ? before + j : NULL;
        for (int64_t i = 0; i < m; i += m - i >= TILE_ROWS ? TILE_ROWS : 1) {
            float *to = c + i * ldc + j;
            const float *x = a + i * a_row;
            bool all = m - i >= TILE_ROWS;
            if (n - j >= wide && all)
                product_tile(to, ldc, f, x, a_row, a_step, b + j, ldb, k, TILE_ROWS, TILE, LANES);
            else if (n - j >= wide)
                product_tile(to, ldc, f, x, a_row, a_step, b + j, ldb, k, 1, TILE, LANES);
            else if (n - j >= LANES)
                for (int r = 0; r < (all ? TILE_ROWS : 1); r++)
                    product_tile(to + r * ldc, ldc, f, x + r * a_row, a_row, a_step, b + j, ldb, k, 1, 1,
                                 LANES);
            else
                for (int r = 0; r < (all ? TILE_ROWS : 1); r++)
                    product_tile(to + r * ldc, ldc, NULL, x + r * a_row, a_row, a_step, b + j, ldb, k, 1, 1,
                                 n - j);
        }
    }
}

static void product(const kern_product *job, int64_t lo, int64_t hi) {
    product_all(job->c + lo * job->ldc, job->ldc, NULL, job->a + lo * job->a_row, job->a_row, job->a_step,
                job->b, job->ldb, hi - lo, job->n, job->k);
}
#endif
