#include "kernels/rate_loops.h"
#include <arm_neon.h>

#define FP32(v) vfmaq_f32(v, x, x)
void rate_neon_fp32(int64_t rounds) {
    float32x4_t x = vdupq_n_f32(0.5f);
    RATE_LOOP(float32x4_t, x, "w", FP32)
}

/* Four products of 16-bit integers, added. */
#define INT16(v) vmlal_s16(v, x, x)
void rate_neon_int16(int64_t rounds) {
    int16x4_t x = vdup_n_s16(3);
    RATE_LOOP(int32x4_t, vdupq_n_s32(1), "w", INT16)
}
