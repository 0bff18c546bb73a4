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

static void prepare_bf16(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; i++)
        for (int64_t c = 0; c < padded(cols); c += 32) {
            __m512 a = _mm512_maskz_loadu_ps(first16(cols - c), x + i * ldx + c);
            __m512 b = _mm512_maskz_loadu_ps(first16(cols - c - 16), x + i * ldx + c + 16);
            _mm512_store_si512((uint16_t *)dst + i * padded(cols) + c, (__m512i)_mm512_cvtne2ps_pbh(b, a));
        }
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

#define KERNEL(name, kind)                                                                                   \
    static void name(const kern_linear *job, int64_t lo, int64_t hi) {                                       \
        bf16(job, lo, hi, kind);                                                                             \
    }
KERNEL(bf16_f32, F32)
KERNEL(bf16_f16, F16)
KERNEL(bf16_channel8, CHANNEL8)
KERNEL(bf16_block8, BLOCK8)
KERNEL(bf16_block4, BLOCK4)
KERNEL(bf16_narrow, NARROW)
KERNEL(bf16_wide, WIDE)

static void bf16_palette(const kern_linear *job, int64_t lo, int64_t hi) {
    if (job->w->bits == 8)
        bf16_wide(job, lo, hi);
    else
        bf16_narrow(job, lo, hi);
}

void kern_avx512bf16(kern_table *t) {
    static kern_linear_fn *const fn[KERN_W_KINDS] = {
        [KERN_W_F32] = bf16_f32,          [KERN_W_F16] = bf16_f16,       [KERN_W_CHANNEL8] = bf16_channel8,
        [KERN_W_BLOCK8] = bf16_block8,    [KERN_W_BLOCK4] = bf16_block4, [KERN_W_PALETTE] = bf16_palette,
        [KERN_W_PALETTE4] = bf16_palette,
    };
    t->prepare[KERN_X_BF16] = prepare_bf16;
    for (int kind = 0; kind < KERN_W_KINDS; kind++)
        if (fn[kind]) {
            t->linear[KERN_BF16][kind] = fn[kind];
            t->form[KERN_BF16][kind] = KERN_X_BF16;
            t->scratch[KERN_BF16][kind] = ROWS * 2;
        }
}
