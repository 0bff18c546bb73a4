#include "kernels/rate_loops.h"
#include <immintrin.h>

#define BF16(v) _mm512_dpbf16_ps(v, x, x)
void rate_avx512bf16_bf16(int64_t rounds) {
    __m512 half = _mm512_set1_ps(0.5f);
    __m512bh x = _mm512_cvtne2ps_pbh(half, half);
    RATE_LOOP(__m512, half, "v", BF16)
}
