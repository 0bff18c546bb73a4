/* Fixed-point numbers of the INT8 path: what every instruction set must compute, bit for bit.
 *
 * x is cut in chunks of 256 columns. A chunk's scale is s = max|x| / 127, its values q = round(x / s).
 * Sixteen rows of x make a group: float scale[chunks][16], then for each 64 columns a tile int8_t
 * q[16][16][4]: fours of columns of all rows; zeros behind the last column. Rows that are not there hold
 * anything.
 *
 * A result is 0 + (float)sum * s, chunk by chunk, each operation rounded; the row's scale comes last.
 */
#ifndef KERNELS_X8_H
#define KERNELS_X8_H
#include "kernels/weight.h"

#define X8_LIMIT 127
#define X8_CHUNK 256
#define X8_TILE  1024 /* bytes */

static inline int64_t x8_chunks(int64_t cols) {
    return (cols + X8_CHUNK - 1) / X8_CHUNK;
}

/* Bytes of a group. */
static inline size_t x8_group(int64_t cols) {
    return (size_t)(x8_chunks(cols) * 64 + (cols + 63) / 64 * X8_TILE);
}

static inline const float *x8_scales(const kern_linear *job, int64_t i) {
    return (const float *)(const void *)((const char *)job->x + (size_t)(i / 16) * x8_group(job->w->cols));
}

static inline const int8_t *x8_tiles(const kern_linear *job, int64_t i) {
    return (const int8_t *)x8_scales(job, i) + x8_chunks(job->w->cols) * 64;
}

/* As x16_scale(). */
static inline float x8_scale(uint32_t largest_bits, float *inverse) {
    float largest = num_bits_f32(largest_bits);
    *inverse = 0;
    if (largest_bits >= 0x7F800000u) return num_bits_f32(0x7FC00000u);
    if (largest < 1e-30f) return 0;
    *inverse = X8_LIMIT / largest;
    return largest / X8_LIMIT;
}

/* The kern_prepare_fn of plain C. */
void x8_prepare(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi);
#endif
