/* What the AVX-512 kernels share. */
#ifndef KERNELS_VEC_AVX512_H
#define KERNELS_VEC_AVX512_H
#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

/* A loop of constant length that must be unrolled: only then do arrays of vectors stay in registers. */
#ifdef __clang__
#define EACH(k, n) _Pragma("unroll") for (int k = 0; k < (n); k++)
#else
#define EACH(k, n) _Pragma("GCC unroll 16") for (int k = 0; k < (n); k++)
#endif

/* Bytes that a stream of weights is fetched ahead of its use: the hardware stops at the end of a 4 KiB page.
 */
#define AHEAD        3072
#define SCALES_AHEAD 1024 /* of blocks; 256: 1 % slower */

/* Parts of a call's rows that are walked at once when n = 1: one stream does not fill the memory bus.
 * Measured on Sapphire Rapids, 6-bit palette from memory: 13.4, 15.3, 15.9 GB/s with 1, 2, 4 streams. */
#define STREAMS 4

INLINE void prefetch(const void *p) {
    _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
}

/* The beginning of n streams, of `bytes` each, `apart` bytes from one to the next, what is needed first
 * first. */
INLINE void begin_streams(const uint8_t *p, int64_t apart, int n, int64_t bytes) {
    if (bytes > AHEAD) bytes = AHEAD;
    for (int64_t i = 0; i < bytes; i += 64)
        for (int k = 0; k < n; k++) _mm_prefetch((const char *)p + k * apart + i, _MM_HINT_T0);
}

/* The sum of 16 lanes in the order of x16_tree(), down to four lanes. */
INLINE __m128 tree4(__m512 f) {
    __m256 s = _mm256_add_ps(_mm512_castps512_ps256(f), _mm512_extractf32x8_ps(f, 1));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

INLINE float tree(__m512 f) {
    __m128 s = tree4(f), t = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}

/* The masks of the first n of 64 bytes, 16 floats, ..; any n. */
INLINE __mmask64 first64(int64_t n) {
    return n >= 64 ? ~0ull : n <= 0 ? 0 : ~0ull >> (64 - n);
}
INLINE __mmask16 first16(int64_t n) {
    return (__mmask16)(n >= 16 ? 0xFFFF : n <= 0 ? 0 : 0xFFFF >> (16 - n));
}
#endif
