#include "kernels/rate_loops.h"
#include <immintrin.h>

#define FP32(v) _mm512_fmadd_ps(x, x, v)
void rate_avx512_fp32(int64_t rounds) {
    __m512 x = _mm512_set1_ps(0.5f);
    RATE_LOOP(__m512, x, "v", FP32)
}

#define INT16(v) _mm512_dpwssd_epi32(v, x, x)
void rate_avx512_int16(int64_t rounds) {
    __m512i x = _mm512_set1_epi16(3);
    RATE_LOOP(__m512i, x, "v", INT16)
}

#define INT8(v) _mm512_dpbusd_epi32(v, x, x)
void rate_avx512_int8(int64_t rounds) {
    __m512i x = _mm512_set1_epi8(3);
    RATE_LOOP(__m512i, x, "v", INT8)
}
