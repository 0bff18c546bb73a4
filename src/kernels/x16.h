/* Fixed-point numbers of the INT16 path: what every instruction set must compute, bit for bit.
 *
 * x is cut in chunks of 64. A chunk's scale is s = max|x| / 32639, its values q = round(x / s), |q| <= 32639,
 * so that q = 256 * high + low with both halves in a signed byte. A prepared row is float scale[K / 32] each
 * chunk's scale twice: one per 32 elements int32_t sum[K / 32]      of the 32 values values K int16 in the
 * order of the form with K = cols rounded up to 512, zeros behind the end.
 *
 * Whole-row scales and palettes ("lanes"): weights are integers w, |w| <= 2^14. Of each chunk, lane l (0 ..
 * 15) takes the elements 4l .. 4l+3: |sum of 4 products| <= 4 * 2^14 * 32639 < 2^31. The lane's float adds
 * (float)sum * s, rounded twice, chunk by chunk; x16_tree() adds the lanes; the row's scale comes last.
 *
 * Scales per 32 elements ("blocks"): |w| <= 128, a block's sum is below 32 * 2^7 * 2^15 = 2^27. Block b adds
 * (float)sum * (weight scale * x scale) to the float of lane b % 16; x16_tree() adds the lanes.
 *
 * All float arithmetic is a single IEEE operation at a time, never contracted to FMA.
 */
#ifndef KERNELS_X16_H
#define KERNELS_X16_H
#include "base/num.h"
#include "kernels/kernels.h"

#define X16_LIMIT 32639
#define X16_CHUNK 64
#define X16_BLOCK 32

static inline int64_t x16_padded(int64_t cols) {
    return (cols + 511) / 512 * 512;
}

static inline size_t x16_stride(int64_t cols) {
    return (size_t)x16_padded(cols) / X16_BLOCK * (8 + 2 * X16_BLOCK);
}

typedef struct {
    const float *scale;
    const int32_t *sum;
    const int16_t *value;
} x16_row;

/* Row i of the prepared x of a job. */
static inline x16_row x16_row_of(const kern_linear *job, int64_t i) {
    int64_t blocks = x16_padded(job->w->cols) / X16_BLOCK;
    const char *p = (const char *)job->x + (size_t)i * x16_stride(job->w->cols);
    return (x16_row){(const float *)(const void *)p, (const int32_t *)(const void *)(p + 4 * blocks),
                     (const int16_t *)(const void *)(p + 8 * blocks)};
}

/* The scale of a chunk from its largest |x| (as bits: an infinity or a NaN is larger than all numbers). Zero
 * and numbers so small that their reciprocal could overflow become zeros. */
static inline float x16_scale(uint32_t largest_bits, float *inverse) {
    float largest = num_bits_f32(largest_bits);
    *inverse = 0;
    if (largest_bits >= 0x7F800000u) return num_bits_f32(0x7FC00000u);
    if (largest < 1e-30f) return 0;
    *inverse = X16_LIMIT / largest;
    return largest / X16_LIMIT;
}

/* Adds 16 lanes: 8 pairs (l, l + 8), then 4 pairs, 2, 1. */
static inline float x16_tree(const float f[16]) {
    float s[8];
    for (int l = 0; l < 8; l++) s[l] = f[l] + f[l + 8];
    for (int l = 0; l < 4; l++) s[l] += s[l + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* The row's result with bias and addend, each addition rounded. */
static inline void kern_store(const kern_linear *job, int64_t i, int64_t row, float y) {
    if (job->bias) y += job->bias[row];
    if (job->add) y += job->add[i * job->ldadd + row];
    job->y[i * job->ldy + row] = y;
}

/* A palette's table in 15-bit fixed point: entry = round(value * 2^shift), the largest in [2^13, 2^14]; a
 * power of two loses nothing of the large entries. value = (float)entry * *scale. Tables of fewer than 64
 * entries are repeated up to 64, so that stray high bits of an index do no harm. n: 2^bits. Non-finite
 * entries give scale NaN. */
static inline void x16_table(int16_t *q, float *scale, const uint16_t *half, int n) {
    float v[256], m = 0;
    for (int i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, half + i, 2);
        v[i] = num_f16_f32(h);
        float a = num_bits_f32(num_f32_bits(v[i]) & 0x7FFFFFFFu);
        m = a > m || a != a ? a : m;
    }
    int exponent = (int)(num_f32_bits(m) >> 23) - 126; /* m = f * 2^exponent, 0.5 <= f < 1 */
    float up = num_bits_f32((uint32_t)(14 - exponent + 127) << 23);
    *scale = num_bits_f32((uint32_t)(exponent - 14 + 127) << 23);
    if (m == 0) up = 0, *scale = 0;
    if (num_f32_bits(m) >= 0x7F800000u) up = 0, *scale = num_bits_f32(0x7FC00000u);
    for (int i = 0; i < n; i++) {
        float r = up == 0 ? 0 : (v[i] * up + 0x1.8p23f) - 0x1.8p23f;
        q[i] = (int16_t)(int)r;
    }
    for (int i = n; i < 64; i++) q[i] = q[i - n];
}
#endif
