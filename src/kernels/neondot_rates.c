#include "kernels/rate_loops.h"
#include <arm_neon.h>

#define INT8(v) vdotq_s32(v, x, x)
void rate_neondot_int8(int64_t rounds) {
    int8x16_t x = vdupq_n_s8(3);
    RATE_LOOP(int32x4_t, vdupq_n_s32(1), "w", INT8)
}
