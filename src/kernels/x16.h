/* Fixed-point numbers of the INT16 path: what every instruction set must compute, bit for bit.
 *
 * x is cut in chunks of 64. A chunk's scale is s = max|x| / 32639, its values q = round(x / s), |q| <= 32639,
 * so that q = 256 * high + low with both halves in a signed byte. A prepared row is float scale[K / 32] each
 * chunk's scale twice: one per 32 elements int32_t sum[K / 32]      of the 32 values values K int16 in the
 * order of the form with K = cols rounded up to 512, zeros behind the end.
 *
 * Whole-row scales and palettes ("lanes"): weights are integers w, |w| <= 2^14. Of each chunk, lane l (0 ..
 * 15) takes the elements 2l, 2l+1, 32+2l, 33+2l, of palettes of 4 bits 4l .. 4l+3: |sum of 4 products| <= 4 *
 * 2^14 * 32639 < 2^31. The lane's float adds (float)sum * s, rounded twice, chunk by chunk; x16_tree() adds
 * the lanes; the row's scale comes last.
 *
 * Scales per 32 elements ("blocks"): |w| <= 128, a block's sum is at most 32 * 2^7 * 2^15 = 2^27. Block b
 * adds (float)sum * (weight scale * x scale) to the float of lane b % 16; x16_tree() adds the lanes.
 *
 * All float arithmetic is a single IEEE operation at a time, never contracted to FMA.
 */
#ifndef KERNELS_X16_H
#define KERNELS_X16_H
#include "kernels/weight.h"

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
 * power of two loses nothing of the large entries. value = (float)entry * *scale. Returns 2^shift, from the
 * largest |value| as bits; 0 when all entries become 0: all are, or one is not finite (then *scale is NaN).
 */
static inline float x16_table_scale(uint32_t largest_bits, float *scale) {
    int exponent = (int)(largest_bits >> 23) - 126; /* largest = f * 2^exponent, 0.5 <= f < 1 */
    *scale = num_bits_f32((uint32_t)(exponent - 14 + 127) << 23);
    if (largest_bits == 0) *scale = 0;
    if (largest_bits >= 0x7F800000u) *scale = num_bits_f32(0x7FC00000u);
    bool some = largest_bits && largest_bits < 0x7F800000u;
    return some ? num_bits_f32((uint32_t)(14 - exponent + 127) << 23) : 0;
}

/* n: 2^bits. Tables of fewer than 64 entries are repeated up to 64, so that stray high bits of an index do no
 * harm.
 */
static inline void x16_table(int16_t *q, float *scale, const uint16_t *half, int n) {
    uint32_t largest = 0;
    for (int i = 0; i < n; i++) {
        uint32_t a = num_f32_bits(kern_half_at(half, i)) & 0x7FFFFFFFu;
        largest = a > largest ? a : largest;
    }
    float up = x16_table_scale(largest, scale);
    for (int i = 0; i < n; i++)
        q[i] = up > 0 ? (int16_t)(int)((kern_half_at(half, i) * up + 0x1.8p23f) - 0x1.8p23f) : (int16_t)0;
    for (int i = n; i < 64; i++) q[i] = q[i - n];
}

/* Integer weights c .. c + n of row r, n <= 64, zeros behind them; table: of the row's palette, or NULL. */
static inline void x16_integers(const kern_weight *w, const int16_t *table, int64_t r, int64_t c, int64_t n,
                                int16_t q[X16_CHUNK]) {
    uint8_t code[X16_CHUNK];
    int64_t at = r * w->cols + c;
    if (table) num_unpack(code, w->data, (size_t)at, (size_t)n, w->bits);
    for (int64_t i = 0; i < X16_CHUNK; i++) {
        if (i >= n)
            q[i] = 0;
        else if (table)
            q[i] = table[code[i]];
        else
            q[i] = (int16_t)kern_at(w->data, w->type, at + i);
    }
}
#endif
