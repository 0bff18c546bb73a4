#include "kernels/rate_loops.h"
#include <immintrin.h>

#define FP32(v) _mm256_fmadd_ps(x, x, v)
void rate_avx2_fp32(int64_t rounds) {
    __m256 x = _mm256_set1_ps(0.5f);
    RATE_LOOP(__m256, x, "x", FP32)
}

/* Products of 16-bit integers, added in pairs, and the sum of these: two instructions. */
#define INT16(v) _mm256_add_epi32(x, _mm256_madd_epi16(x, v))
void rate_avx2_int16(int64_t rounds) {
    __m256i x = _mm256_set1_epi16(3);
    RATE_LOOP(__m256i, x, "x", INT16)
}
