/* The vector vocabulary of AVX2 with FMA and F16C: see lanes_portable.h. */
#ifndef KERNELS_LANES_AVX2_H
#define KERNELS_LANES_AVX2_H
#include <immintrin.h>
#include <stdint.h>

#define LANES     8
#define REGISTERS 16
#define TILE      2
#define TILE_ROWS 6
#define INLINE    static inline __attribute__((always_inline))

typedef __m256 vec;

INLINE vec v_all(float x) {
    return _mm256_set1_ps(x);
}
INLINE vec v_load(const float *p) {
    return _mm256_loadu_ps(p);
}
INLINE void v_store(float *p, vec v) {
    _mm256_storeu_ps(p, v);
}
INLINE __m256i v_first(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vec v_load_n(const float *p, int64_t n) {
    return _mm256_maskload_ps(p, v_first(n));
}
INLINE void v_store_n(float *p, vec v, int64_t n) {
    _mm256_maskstore_ps(p, v_first(n), v);
}
INLINE vec v_half(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE vec v_half_n(const uint16_t *p, int64_t n) {
    uint16_t part[LANES] = {0};
    for (int64_t i = 0; i < n; i++) part[i] = p[i];
    return v_half(part);
}
INLINE __m128i v_to_half(vec v) {
    return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE void v_put_half(uint16_t *p, vec v) {
    _mm_storeu_si128((__m128i *)(void *)p, v_to_half(v));
}
INLINE void v_put_half_n(uint16_t *p, vec v, int64_t n) {
    uint16_t part[LANES];
    v_put_half(part, v);
    for (int64_t i = 0; i < n; i++) p[i] = part[i];
}
INLINE vec v_round_half(vec v) {
    return _mm256_cvtph_ps(v_to_half(v));
}
INLINE vec v_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vec v_max(vec a, vec b) {
    return _mm256_max_ps(a, b);
}
INLINE vec v_min(vec a, vec b) {
    return _mm256_min_ps(a, b);
}
INLINE vec v_below(vec x, vec limit, vec a, vec b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, limit, _CMP_LT_OQ));
}
INLINE vec v_whole(vec x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vec v_scale(vec v, vec n) {
    __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
    __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), bias), 23);
    return v * _mm256_castsi256_ps(a) * _mm256_castsi256_ps(b);
}
INLINE float v_sum(vec v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
INLINE void v_sum4(float *out, vec a, vec b, vec c, vec d) {
    __m256 ab = _mm256_hadd_ps(a, b), cd = _mm256_hadd_ps(c, d), all = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}
INLINE float v_top(vec v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
INLINE unsigned v_above(vec v, float limit) {
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(v, v_all(limit), _CMP_NLE_UQ));
}
/* Brings the cache line of p to the second cache; p may be any address. */
INLINE void v_fetch(const void *p) {
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}
/* Element i of x[j] is p[3 i + j]. */
INLINE void v_half3(vec x[3], const uint16_t *p) {
    uint16_t part[3][LANES];
    for (int i = 0; i < 3 * LANES; i++) part[i % 3][i / 3] = p[i];
    for (int j = 0; j < 3; j++) x[j] = v_half(part[j]);
}
INLINE void v_put_half3(uint16_t *p, const vec x[3]) {
    uint16_t part[3][LANES];
    for (int j = 0; j < 3; j++) v_put_half(part[j], x[j]);
    for (int i = 0; i < 3 * LANES; i++) p[i] = part[i % 3][i / 3];
}
/* Element i of x[j] is p[4 i + j]. */
INLINE void v_load4(vec x[4], const float *p) {
    float part[4][LANES];
    for (int i = 0; i < 4 * LANES; i++) part[i % 4][i / 4] = p[i];
    for (int j = 0; j < 4; j++) x[j] = v_load(part[j]);
}
#endif
