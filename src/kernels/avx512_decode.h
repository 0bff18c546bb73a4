/* Weights of every kind as vectors of floats. */
#ifndef KERNELS_AVX512_DECODE_H
#define KERNELS_AVX512_DECODE_H
#include "kernels/avx512.h"
#include "kernels/weight.h"

enum { F32, F16, CHANNEL8, BLOCK8, BLOCK4, NARROW, WIDE }; /* the last two: palettes */

/* The table of a palette, as fp16. */
static inline void half_table(lut *t, const uint16_t *half, unsigned bits) {
    int16_t q[256];
    for (int i = 0, n = 1 << bits; i < (bits == 8 ? 256 : 64); i++) q[i] = (int16_t)num_get16(half + i % n);
    lut_bytes(t, q, bits);
}

INLINE __m512 halves(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* To fp16 numbers. */
INLINE __m512 rounded16(__m512 v) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
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

/* The i-th of some halves in all lanes. */
INLINE __m512 half_in_all(const void *p, int64_t i) {
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(num_get16((const char *)p + 2 * i))));
}

/* 16 bytes of int4: the scaled value of each code is looked up. */
INLINE void nibbles32(const uint8_t *p, __m512 scale, bool rounded, __m512 v[2]) {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    const __m512i by = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
    __m512 value = _mm512_mul_ps(codes, scale);
    if (rounded) value = rounded16(value);
    __m512i q = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p));
    v[0] = _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_permutexvar_epi32(first, q), by), value);
    v[1] = _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_permutexvar_epi32(second, q), by), value);
}

/* Elements c .. c + 63 of row r; CHANNEL8 without its scale unless it is rounded. t: the row's table. */
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
        for (int j = 0; j < 4; j++) v[j] = _mm512_mul_ps(v[j], half_in_all(scale, at / 32 + j / 2));
    if (kind == CHANNEL8 && w->rounded)
        EACH (j, 4) v[j] = _mm512_mul_ps(v[j], _mm512_set1_ps(kern_at(scale, w->scale_type, r)));
    if ((kind == CHANNEL8 || kind == BLOCK8) && w->rounded)
        EACH (j, 4) v[j] = rounded16(v[j]);
    if (kind == BLOCK4)
        for (int j = 0; j < 2; j++)
            nibbles32(p + at / 2 + 16 * j, half_in_all(scale, at / 32 + j), w->rounded, v + 2 * j);
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
static inline void load_end(const kern_weight *w, int64_t r, int64_t c, int kind, float out[64]) {
    for (int64_t i = 0; i < 64; i++) out[i] = 0;
    if (kind == CHANNEL8 && !w->rounded)
        for (int64_t i = 0; c + i < w->cols; i++) out[i] = ((const int8_t *)w->data)[r * w->cols + c + i];
    else
        kern_decode(w, r, c, w->cols - c, out);
}

INLINE void open_table(lut *t, const kern_weight *w, int64_t r, bool first, int kind) {
    bool palette = kind == NARROW || kind == WIDE;
    if (palette && (first || r % w->block_rows == 0)) half_table(t, kern_table_of(w, r), w->bits);
}

/* ---- bf16 ---- */

/* The upper halves of 32 floats in order, rounded half away from zero unless they are bf16 numbers already.
 */
INLINE __m512i upper_halves(__m512 a, __m512 b, bool round) {
    static const uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                     33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const __m512i half = _mm512_set1_epi32(0x8000);
    __m512i u = _mm512_castps_si512(a), v = _mm512_castps_si512(b);
    if (round) u = _mm512_add_epi32(u, half), v = _mm512_add_epi32(v, half);
    return _mm512_permutex2var_epi16(u, _mm512_loadu_si512(odd), v);
}

/* The table of a palette as bf16, when row r starts one. */
INLINE void open_bf16_table(lut *t, const kern_weight *w, int64_t r, bool first, int kind) {
    if ((kind != NARROW && kind != WIDE) || (!first && r % w->block_rows)) return;
    const uint16_t *half = kern_table_of(w, r);
    int16_t q[256];
    int n = 1 << w->bits;
    for (int i = 0; i < (n < 64 ? 64 : n); i += 32) {
        uint16_t h[32];
        for (int j = 0; n < 32 && j < 32; j++) memcpy(h + j, half + j % n, 2);
        const uint16_t *from = n < 32 ? h : half + i % n;
        _mm512_storeu_si512(q + i, upper_halves(halves(from), halves(from + 16), true));
    }
    lut_bytes(t, q, w->bits);
}

/* Elements c .. c + 63 of row r, zeros behind the row's end; CHANNEL8 without its scale. t: by
 * open_bf16_table(). */
INLINE void bf16_64(const kern_weight *w, const lut *t, int64_t r, int64_t c, int kind, __m512i out[2]) {
    __m512 v[4];
    if (c + 64 > w->cols) {
        float last[64];
        load_end(w, r, c, kind, last);
        EACH (j, 4) v[j] = _mm512_loadu_ps(last + 16 * j);
        EACH (j, 2) out[j] = upper_halves(v[2 * j], v[2 * j + 1], true);
    } else if (kind == NARROW || kind == WIDE) {
        const uint8_t *p = kern_codes(w, r) + c / 8 * w->bits;
        prefetch(p);
        lut_words(t, p, kind == WIDE, false, &out[0], &out[1]);
    } else {
        load64(w, t, r, c, kind, v);
        EACH (j, 2) out[j] = upper_halves(v[2 * j], v[2 * j + 1], kind != CHANNEL8);
    }
}
#endif
