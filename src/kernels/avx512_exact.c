/* EXACT kernels: lane l of 16 adds the products of elements l, l + 16, .. by fused multiply-adds, in order,
 * then tree(); a scale per row comes last, others multiply the weight first. One row of x reads the weight as
 * it is; more rows share four decoded rows of the weight. */
#include "kernels/avx512_decode.h"
#include "kernels/x16.h"

#define ROWS  STREAMS /* of w at once */
#define BATCH 6       /* rows of x at once */

INLINE float scale_of(const kern_weight *w, int64_t r, int kind) {
    return kind == CHANNEL8 && !w->rounded ? kern_at(w->scale, w->scale_type, r) : 1;
}

/* Rows r, r + apart, .. (`rows` of them, each with its table) against one row of x. */
INLINE void gemv(const kern_linear *job, const lut *t, int64_t r, int64_t apart, int rows, int kind) {
    const kern_weight *w = job->w;
    const float *x = job->x;
    __m512 f[ROWS], v[4];
    EACH (k, rows) f[k] = _mm512_setzero_ps();
    int64_t c = 0;
    for (; c + 64 <= w->cols; c += 64)
        EACH (k, rows) {
            load64(w, t + k, r + k * apart, c, kind, v);
            EACH (j, 4) f[k] = _mm512_fmadd_ps(_mm512_loadu_ps(x + c + 16 * j), v[j], f[k]);
        }
    if (c < w->cols)
        EACH (k, rows) {
            float end[64];
            load_end(w, r + k * apart, c, kind, end);
            for (int j = 0; j < 4; j++)
                f[k] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(first16(w->cols - c - 16 * j), x + c + 16 * j),
                                       _mm512_loadu_ps(end + 16 * j), f[k]);
        }
    EACH (k, rows) {
        float y = tree(f[k]);
        kern_store(job, 0, r + k * apart, kind == CHANNEL8 ? y * scale_of(w, r + k * apart, kind) : y);
    }
}

/* Decoded rows of w, `wide` elements apart, against `batch` rows of x from i on. */
INLINE void tile(const kern_linear *job, const float *v, int64_t wide, int64_t r, int rows, int64_t i,
                 int batch, int kind) {
    const float *x = (const float *)job->x + i * job->ldx;
    int64_t cols = job->w->cols, c = 0, whole = cols / 16 * 16;
    __m512 f[ROWS][BATCH], wv[ROWS];
    EACH (k, rows)
        EACH (b, batch) f[k][b] = _mm512_setzero_ps();
    for (; c < whole; c += 16) {
        EACH (k, rows) wv[k] = _mm512_load_ps(v + k * wide + c);
        EACH (b, batch) {
            __m512 xv = _mm512_loadu_ps(x + b * job->ldx + c);
            EACH (k, rows) f[k][b] = _mm512_fmadd_ps(xv, wv[k], f[k][b]);
        }
    }
    if (c < cols) {
        EACH (k, rows) wv[k] = _mm512_load_ps(v + k * wide + c);
        EACH (b, batch) {
            __m512 xv = _mm512_maskz_loadu_ps(first16(cols - c), x + b * job->ldx + c);
            EACH (k, rows) f[k][b] = _mm512_fmadd_ps(xv, wv[k], f[k][b]);
        }
    }
    EACH (b, batch) {
        float y[ROWS];
        EACH (k, rows) y[k] = tree(f[k][b]);
        EACH (k, rows)
            kern_store(job, i + b, r + k, kind == CHANNEL8 ? y[k] * scale_of(job->w, r + k, kind) : y[k]);
    }
}

INLINE void decode_row(const kern_weight *w, const lut *t, int64_t r, int kind, float *out) {
    int64_t c = 0;
    __m512 v[4];
    for (; c + 64 <= w->cols; c += 64) {
        load64(w, t, r, c, kind, v);
        for (int j = 0; j < 4; j++) _mm512_store_ps(out + c + 16 * j, v[j]);
    }
    if (c < w->cols) load_end(w, r, c, kind, out + c);
}

static void lut_inits(lut t[ROWS], unsigned bits) {
    for (int k = 0; k < ROWS; k++) lut_init(&t[k], bits);
}

INLINE void one_row_of_x(const kern_linear *job, int64_t lo, int64_t hi, int kind) {
    int64_t apart = (hi - lo) / ROWS, r = lo;
    lut t[ROWS];
    if (kind == NARROW) lut_inits(t, job->w->bits);
    for (; r < lo + apart; r++) {
        for (int k = 0; k < ROWS; k++) open_table(&t[k], job->w, r + k * apart, r == lo, kind);
        gemv(job, t, r, apart, ROWS, kind);
    }
    for (int64_t first = r = lo + ROWS * apart; r < hi; r++) {
        open_table(t, job->w, r, r == first, kind);
        gemv(job, t, r, 0, 1, kind);
    }
}

INLINE void many_rows_of_x(const kern_linear *job, int64_t lo, int64_t hi, int kind) {
    int64_t wide = (job->w->cols + 63) / 64 * 64;
    float *v = job->scratch;
    lut t[ROWS];
    if (kind == NARROW) lut_inits(t, job->w->bits);
    for (int64_t r = lo, rows; r < hi; r += rows) {
        rows = hi - r < ROWS ? hi - r : ROWS;
        for (int64_t k = 0; k < rows; k++) {
            open_table(t, job->w, r + k, r + k == lo, kind);
            decode_row(job->w, t, r + k, kind, v + k * wide);
        }
        int64_t i = 0;
        for (; rows == ROWS && i + BATCH <= job->n; i += BATCH) tile(job, v, wide, r, ROWS, i, BATCH, kind);
        for (; rows == ROWS && i < job->n; i++) tile(job, v, wide, r, ROWS, i, 1, kind);
        for (; i < job->n; i++)
            for (int64_t k = 0; k < rows; k++) tile(job, v + k * wide, wide, r + k, 1, i, 1, kind);
    }
}

INLINE void exact(const kern_linear *job, int64_t lo, int64_t hi, int kind) {
    if (job->n == 1)
        one_row_of_x(job, lo, hi, kind);
    else
        many_rows_of_x(job, lo, hi, kind);
}

#define KERNEL(name, kind)                                                                                   \
    static void name(const kern_linear *job, int64_t lo, int64_t hi) {                                       \
        exact(job, lo, hi, kind);                                                                            \
    }
KERNEL(exact_f32, F32)
KERNEL(exact_f16, F16)
KERNEL(exact_channel8, CHANNEL8)
KERNEL(exact_block8, BLOCK8)
KERNEL(exact_block4, BLOCK4)
KERNEL(exact_narrow, NARROW)
KERNEL(exact_wide, WIDE)

static void exact_palette(const kern_linear *job, int64_t lo, int64_t hi) {
    if (job->w->bits == 8)
        exact_wide(job, lo, hi);
    else
        exact_narrow(job, lo, hi);
}

void avx512_exact(kern_table *t) {
    static kern_linear_fn *const fn[KERN_W_KINDS] = {
        [KERN_W_F32] = exact_f32,          [KERN_W_F16] = exact_f16,       [KERN_W_CHANNEL8] = exact_channel8,
        [KERN_W_BLOCK8] = exact_block8,    [KERN_W_BLOCK4] = exact_block4, [KERN_W_PALETTE] = exact_palette,
        [KERN_W_PALETTE4] = exact_palette,
    };
    for (int kind = 0; kind < KERN_W_KINDS; kind++)
        if (fn[kind]) t->linear[KERN_EXACT][kind] = fn[kind], t->scratch[KERN_EXACT][kind] = ROWS * 4;
}
