/* EXACT kernels: lane l of 16 adds the products of elements l, l + 16, .. by fused multiply-adds, in order,
 * then tree(); a scale per row comes last, others multiply the weight first. One row of x reads the weight as
 * it is; more rows share four decoded rows of the weight. */
#include "kernels/avx512.h"
#include "kernels/weight.h"
#include "kernels/x16.h"

#define ROWS  STREAMS /* of w at once */
#define BATCH 6       /* rows of x at once */

enum { F32, F16, CHANNEL8, BLOCK8, BLOCK4, NARROW, WIDE }; /* the last two: palettes */

/* The table of a palette, as fp16. */
static void half_table(lut *t, const uint16_t *half, unsigned bits) {
    int16_t q[256];
    for (int i = 0, n = 1 << bits; i < (bits == 8 ? 256 : 64); i++) q[i] = (int16_t)num_get16(half + i % n);
    lut_bytes(t, q, bits);
}

INLINE __m512 halves(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE __m512 int8s(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

INLINE void palette64(const lut *t, const uint8_t *p, bool wide, __m512 v[4]) {
    __m512i a, b;
    lut_words(t, p, wide, false, &a, &b);
    v[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(a));
    v[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(a, 1));
    v[2] = _mm512_cvtph_ps(_mm512_castsi512_si256(b));
    v[3] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(b, 1));
}

/* 16 bytes of int4: the scaled value of each code is looked up. */
INLINE void nibbles32(const uint8_t *p, float scale, __m512 v[2]) {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    const __m512i by = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
    __m512 value = _mm512_mul_ps(codes, _mm512_set1_ps(scale));
    __m512i q = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p));
    v[0] = _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_permutexvar_epi32(first, q), by), value);
    v[1] = _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_permutexvar_epi32(second, q), by), value);
}

/* Elements c .. c + 63 of row r; CHANNEL8 without its scale. t: the row's table. */
INLINE void load64(const kern_weight *w, const lut *t, int64_t r, int64_t c, int kind, __m512 v[4]) {
    const uint8_t *p = w->data, *scale = w->scale;
    int64_t at = r * w->cols + c;
    if (kind == F32)
        EACH (j, 4) v[j] = _mm512_loadu_ps(p + 4 * (at + 16 * j));
    if (kind == F16)
        EACH (j, 4) v[j] = halves(p + 2 * (at + 16 * j));
    if (kind == CHANNEL8 || kind == BLOCK8)
        EACH (j, 4) v[j] = int8s(p + at + 16 * j);
    if (kind == BLOCK8)
        for (int j = 0; j < 4; j++)
            v[j] = _mm512_mul_ps(v[j], _mm512_set1_ps(kern_half_at(scale, at / 32 + j / 2)));
    if (kind == BLOCK4)
        for (int j = 0; j < 2; j++)
            nibbles32(p + at / 2 + 16 * j, kern_half_at(scale, at / 32 + j), v + 2 * j);
    if (kind == NARROW || kind == WIDE) palette64(t, p + at * w->bits / 8, kind == WIDE, v);
    prefetch(p + (kind == F32      ? 4 * at
                  : kind == F16    ? 2 * at
                  : kind == BLOCK4 ? at / 2
                  : w->bits        ? at * w->bits / 8
                                   : at));
    if (kind == F16) prefetch(p + 2 * at + 64);
    if (kind == F32) prefetch(p + 4 * at + 64), prefetch(p + 4 * at + 128), prefetch(p + 4 * at + 192);
}

/* The elements behind the last whole 64, zeros behind them. */
static void load_end(const kern_weight *w, int64_t r, int64_t c, int kind, float out[64]) {
    for (int64_t i = 0; i < 64; i++) out[i] = 0;
    if (kind == CHANNEL8)
        for (int64_t i = 0; c + i < w->cols; i++) out[i] = ((const int8_t *)w->data)[r * w->cols + c + i];
    else
        kern_decode(w, r, c, w->cols - c, out);
}

INLINE float scale_of(const kern_weight *w, int64_t r, int kind) {
    return kind == CHANNEL8 ? kern_at(w->scale, w->scale_type, r) : 1;
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

INLINE void open_row(lut *t, const kern_weight *w, int64_t r, bool first, int kind) {
    bool palette = kind == NARROW || kind == WIDE;
    if (palette && (first || r % w->block_rows == 0)) half_table(t, kern_table_of(w, r), w->bits);
}

static void lut_inits(lut t[ROWS], unsigned bits) {
    for (int k = 0; k < ROWS; k++) lut_init(&t[k], bits);
}

INLINE void one_row_of_x(const kern_linear *job, int64_t lo, int64_t hi, int kind) {
    int64_t apart = (hi - lo) / ROWS, r = lo;
    lut t[ROWS];
    if (kind == NARROW) lut_inits(t, job->w->bits);
    for (; r < lo + apart; r++) {
        for (int k = 0; k < ROWS; k++) open_row(&t[k], job->w, r + k * apart, r == lo, kind);
        gemv(job, t, r, apart, ROWS, kind);
    }
    for (int64_t first = r = lo + ROWS * apart; r < hi; r++) {
        open_row(t, job->w, r, r == first, kind);
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
            open_row(t, job->w, r + k, r + k == lo, kind);
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
        [KERN_W_F32] = exact_f32,       [KERN_W_F16] = exact_f16,       [KERN_W_CHANNEL8] = exact_channel8,
        [KERN_W_BLOCK8] = exact_block8, [KERN_W_BLOCK4] = exact_block4, [KERN_W_PALETTE] = exact_palette,
    };
    for (int kind = 0; kind < KERN_W_KINDS; kind++)
        if (fn[kind]) t->linear[KERN_EXACT][kind] = fn[kind], t->scratch[KERN_EXACT][kind] = ROWS * 4;
}
