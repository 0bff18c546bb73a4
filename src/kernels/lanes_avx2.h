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
/* Words of a, b and c, each where its index says (in bytes of words; -1: nothing there). */
#define WORD(i) (i) < 0 ? -1 : 2 * (i), (i) < 0 ? -1 : 2 * (i) + 1
#define WORDS(i0, i1, i2, i3, i4, i5, i6, i7)                                                                \
    _mm_setr_epi8(WORD(i0), WORD(i1), WORD(i2), WORD(i3), WORD(i4), WORD(i5), WORD(i6), WORD(i7))
INLINE __m128i v_words(const __m128i v[3], __m128i a, __m128i b, __m128i c) {
    __m128i ab = _mm_or_si128(_mm_shuffle_epi8(v[0], a), _mm_shuffle_epi8(v[1], b));
    return _mm_or_si128(ab, _mm_shuffle_epi8(v[2], c));
}
/* Element i of x[j] is p[3 i + j]. */
INLINE void v_half3(vec x[3], const uint16_t *p) {
    __m128i v[3];
    for (int j = 0; j < 3; j++) v[j] = _mm_loadu_si128((const __m128i *)(const void *)(p + 8 * j));
    x[0] = _mm256_cvtph_ps(v_words(v, WORDS(0, 3, 6, -1, -1, -1, -1, -1), WORDS(-1, -1, -1, 1, 4, 7, -1, -1),
                                   WORDS(-1, -1, -1, -1, -1, -1, 2, 5)));
    x[1] = _mm256_cvtph_ps(v_words(v, WORDS(1, 4, 7, -1, -1, -1, -1, -1), WORDS(-1, -1, -1, 2, 5, -1, -1, -1),
                                   WORDS(-1, -1, -1, -1, -1, 0, 3, 6)));
    x[2] = _mm256_cvtph_ps(v_words(v, WORDS(2, 5, -1, -1, -1, -1, -1, -1), WORDS(-1, -1, 0, 3, 6, -1, -1, -1),
                                   WORDS(-1, -1, -1, -1, -1, 1, 4, 7)));
}
INLINE void v_put_half3(uint16_t *p, const vec x[3]) {
    __m128i v[3], *to = (__m128i *)(void *)p;
    for (int j = 0; j < 3; j++) v[j] = v_to_half(x[j]);
    _mm_storeu_si128(to, v_words(v, WORDS(0, -1, -1, 1, -1, -1, 2, -1), WORDS(-1, 0, -1, -1, 1, -1, -1, 2),
                                 WORDS(-1, -1, 0, -1, -1, 1, -1, -1)));
    _mm_storeu_si128(to + 1,
                     v_words(v, WORDS(-1, 3, -1, -1, 4, -1, -1, 5), WORDS(-1, -1, 3, -1, -1, 4, -1, -1),
                             WORDS(2, -1, -1, 3, -1, -1, 4, -1)));
    _mm_storeu_si128(to + 2, v_words(v, WORDS(-1, -1, 6, -1, -1, 7, -1, -1),
                                     WORDS(5, -1, -1, 6, -1, -1, 7, -1), WORDS(-1, 5, -1, -1, 6, -1, -1, 7)));
}
/* Element i of x[j] is p[4 i + j]. */
INLINE void v_load4(vec x[4], const float *p) {
    vec two[4]; /* i and i + 4 */
    for (int i = 0; i < 4; i++)
        two[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4 * i)),
                                      _mm_loadu_ps(p + 4 * i + 16), 1);
    for (int h = 0; h < 2; h++) {
        __m256 a = h ? _mm256_unpackhi_ps(two[0], two[1]) : _mm256_unpacklo_ps(two[0], two[1]);
        __m256 b = h ? _mm256_unpackhi_ps(two[2], two[3]) : _mm256_unpacklo_ps(two[2], two[3]);
        x[2 * h] = _mm256_shuffle_ps(a, b, 0x44);
        x[2 * h + 1] = _mm256_shuffle_ps(a, b, 0xEE);
    }
}
#endif
