/* The vector vocabulary of AVX-512 (F, BW, DQ, VL): see lanes_portable.h. */
#ifndef KERNELS_LANES_AVX512_H
#define KERNELS_LANES_AVX512_H
#include <immintrin.h>
#include <stdint.h>

#define LANES     16
#define REGISTERS 32
#define TILE      4
#define TILE_ROWS 6
#define INLINE    static inline __attribute__((always_inline))

typedef __m512 vec;

INLINE vec v_all(float x) {
    return _mm512_set1_ps(x);
}
INLINE vec v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE void v_store(float *p, vec v) {
    _mm512_storeu_ps(p, v);
}
INLINE __mmask16 v_first(int64_t n) {
    return (__mmask16)((1u << n) - 1);
}
INLINE vec v_load_n(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(v_first(n), p);
}
INLINE void v_store_n(float *p, vec v, int64_t n) {
    _mm512_mask_storeu_ps(p, v_first(n), v);
}
INLINE vec v_half(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
INLINE vec v_half_n(const uint16_t *p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_first(n), p));
}
INLINE __m256i v_to_half(vec v) {
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE void v_put_half(uint16_t *p, vec v) {
    _mm256_storeu_si256((__m256i *)(void *)p, v_to_half(v));
}
INLINE void v_put_half_n(uint16_t *p, vec v, int64_t n) {
    _mm256_mask_storeu_epi16(p, v_first(n), v_to_half(v));
}
INLINE vec v_round_half(vec v) {
    return _mm512_cvtph_ps(v_to_half(v));
}
INLINE vec v_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vec v_max(vec a, vec b) {
    return _mm512_max_ps(a, b);
}
INLINE vec v_min(vec a, vec b) {
    return _mm512_min_ps(a, b);
}
INLINE vec v_below(vec x, vec limit, vec a, vec b) {
    return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, limit, _CMP_LT_OQ), a);
}
INLINE vec v_whole(vec x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vec v_scale(vec v, vec n) {
    return _mm512_scalef_ps(v, n);
}
INLINE float v_sum(vec v) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
/* Quarters of a pair of vectors side by side, added; then elements of a pair. */
INLINE void v_sum4(float *out, vec a, vec b, vec c, vec d) {
    vec ab = _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xEE); /* a a b b */
    vec cd = _mm512_shuffle_f32x4(c, d, 0x44) + _mm512_shuffle_f32x4(c, d, 0xEE);
    vec all = _mm512_shuffle_f32x4(ab, cd, 0x88) + _mm512_shuffle_f32x4(ab, cd, 0xDD); /* a b c d */
    all += _mm512_permute_ps(all, 0x4E);
    all += _mm512_permute_ps(all, 0xB1);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, all)));
}
INLINE float v_top(vec v) {
    return _mm512_reduce_max_ps(v);
}
INLINE unsigned v_above(vec v, float limit) {
    return _mm512_cmp_ps_mask(v, v_all(limit), _CMP_NLE_UQ);
}
/* Brings the cache line of p to the second cache; p may be any address. */
INLINE void v_fetch(const void *p) {
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}
/* Element i of x[j] is p[3 i + j]. */
INLINE void v_half3(vec x[3], const uint16_t *p) {
    const __m512i lane = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 45, 42, 39, 36, 33,
                                          30, 27, 24, 21, 18, 15, 12, 9, 6, 3, 0);
    __m512i a = _mm512_loadu_si512(p);
    __m512i b = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)(p + 32)));
    for (int j = 0; j < 3; j++) {
        __m512i at = _mm512_add_epi16(lane, _mm512_set1_epi16((short)j));
        x[j] = _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutex2var_epi16(a, at, b)));
    }
}
INLINE void v_put_half3(uint16_t *p, const vec x[3]) {
    /* 16 (i % 3) + i / 3 for i = 0 .. 47 */
    const __m512i first = _mm512_set_epi16(26, 10, 41, 25, 9, 40, 24, 8, 39, 23, 7, 38, 22, 6, 37, 21, 5, 36,
                                           20, 4, 35, 19, 3, 34, 18, 2, 33, 17, 1, 32, 16, 0);
    const __m512i second = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 47, 31, 15, 46,
                                            30, 14, 45, 29, 13, 44, 28, 12, 43, 27, 11, 42);
    __m512i a = _mm512_inserti64x4(_mm512_castsi256_si512(v_to_half(x[0])), v_to_half(x[1]), 1);
    __m512i b = _mm512_castsi256_si512(v_to_half(x[2]));
    _mm512_storeu_si512(p, _mm512_permutex2var_epi16(a, first, b));
    __m512i rest = _mm512_permutex2var_epi16(a, second, b);
    _mm256_storeu_si256((__m256i *)(void *)(p + 32), _mm512_castsi512_si256(rest));
}
/* Element i of x[j] is p[4 i + j]. */
INLINE void v_load4(vec x[4], const float *p) {
    const __m512i lane =
        _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 28, 24, 20, 16, 12, 8, 4, 0); /* of two vectors */
    vec a = v_load(p), b = v_load(p + 16), c = v_load(p + 32), d = v_load(p + 48);
    for (int j = 0; j < 4; j++) {
        __m512i at = _mm512_add_epi32(lane, _mm512_set1_epi32(j));
        x[j] = _mm512_shuffle_f32x4(_mm512_permutex2var_ps(a, at, b), _mm512_permutex2var_ps(c, at, d), 0x44);
    }
}
#endif
