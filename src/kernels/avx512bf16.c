/* BF16 kernels by vdpbf16ps: for prompts. Lane l of 16 adds the products of the columns 32 j + 2 l and 32 j +
 * 2 l + 1, j = 0, 1, ..; then tree(). Four decoded rows of the weight meet six rows of x at a time.
 *
 * Prepared x: rows of cols rounded up to 64, zeros behind the end.
 */
#include "kernels/avx512_decode.h"
#include "kernels/overlay.h"
#include "kernels/x16.h"

#define ROWS  4 /* of w at once */
#define BATCH 6 /* rows of x at once */

static int64_t padded(int64_t cols) {
    return (cols + 63) / 64 * 64;
}

static void prepare_bf16_part(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t c, int64_t n,
                              int64_t lo, int64_t hi) {
    int64_t end = c + n < cols ? n : padded(cols) - c;
    for (int64_t i = lo; i < hi; i++)
        for (int64_t j = 0; j < end; j += 32) {
            __m512 a = _mm512_maskz_loadu_ps(first16(n - j), x + i * ldx + j);
            __m512 b = _mm512_maskz_loadu_ps(first16(n - j - 16), x + i * ldx + j + 16);
            _mm512_store_si512((uint16_t *)dst + i * padded(cols) + c + j,
                               (__m512i)_mm512_cvtne2ps_pbh(b, a));
        }
}

static void prepare_bf16(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare_bf16_part(dst, x, ldx, cols, 0, cols, lo, hi);
}

INLINE void tile(const kern_linear *job, const uint16_t *v, int64_t r, int rows, int64_t i, int batch,
                 int kind) {
    const kern_weight *w = job->w;
    int64_t wide = padded(w->cols);
    const uint16_t *x = (const uint16_t *)job->x + i * wide;
    __m512 f[ROWS][BATCH];
    __m512i wv[ROWS];
    EACH (k, rows)
        EACH (b, batch) f[k][b] = _mm512_setzero_ps();
    for (int64_t c = 0; c < wide; c += 32) {
        EACH (k, rows) wv[k] = _mm512_load_si512(v + k * wide + c);
        EACH (b, batch) {
            __m512i xv = _mm512_load_si512(x + b * wide + c);
            EACH (k, rows) f[k][b] = _mm512_dpbf16_ps(f[k][b], (__m512bh)wv[k], (__m512bh)xv);
        }
    }
    EACH (b, batch) {
        float y[ROWS];
        EACH (k, rows) y[k] = tree(f[k][b]);
        EACH (k, rows)
            kern_store(job, i + b, r + k,
                       kind == CHANNEL8 ? y[k] * kern_at(w->scale, w->scale_type, r + k) : y[k]);
    }
}

INLINE void bf16(const kern_linear *job, int64_t lo, int64_t hi, int kind) {
    const kern_weight *w = job->w;
    int64_t wide = padded(w->cols);
    uint16_t *v = job->scratch;
    lut t;
    if (kind == NARROW) lut_init(&t, w->bits);
    for (int64_t r = lo, rows; r < hi; r += rows) {
        rows = hi - r < ROWS ? hi - r : ROWS;
        for (int64_t k = 0; k < rows; k++) {
            open_bf16_table(&t, w, r + k, r + k == lo, kind);
            for (int64_t c = 0; c < wide; c += 64) {
                __m512i e[2];
                bf16_64(w, &t, r + k, c, kind, e);
                EACH (j, 2) _mm512_store_si512(v + k * wide + c + 32 * j, e[j]);
            }
        }
        int64_t i = 0;
        for (; rows == ROWS && i + BATCH <= job->n; i += BATCH) tile(job, v, r, ROWS, i, BATCH, kind);
        for (; rows == ROWS && i < job->n; i++) tile(job, v, r, ROWS, i, 1, kind);
        for (; i < job->n; i++)
            for (int64_t k = 0; k < rows; k++) tile(job, v + k * wide, r + k, 1, i, 1, kind);
    }
}

#include "kernels/bf16_kernels.h" /* out of bf16() and prepare_bf16() */

void kern_avx512bf16(kern_table *t) {
    bf16_overlay(t, ROWS, ROWS * 2);
}
