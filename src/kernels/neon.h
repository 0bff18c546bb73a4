/* What the files of NEON kernels share: behind lanes_neon.h. */
#ifndef KERNELS_NEON_H
#define KERNELS_NEON_H
#include "kernels/linear.h"

/* Weights are fetched this many bytes ahead of their use. */
#define AHEAD 1024
INLINE void prefetch(const uint8_t *p) {
    __builtin_prefetch(p + AHEAD);
}

/* The last n < 64 bytes of a row, zeros behind them. */
static const uint8_t *up_to_64(uint8_t last[64], const uint8_t *p, int64_t n) {
    memset(last, 0, 64);
    return memcpy(last, p, (size_t)n);
}

/* The order of x16_tree(). */
INLINE float tree(const vec f[4]) {
    vec s = (f[0] + f[2]) + (f[1] + f[3]);
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* 64 bytes so that those of a lane (2l, 2l+1, 32+2l, 33+2l) are neighbours. */
INLINE void lanes_together(const int8x16_t v[4], int8x16_t lane[4]) {
    EACH (i, 2) {
        int16x8_t a = vreinterpretq_s16_s8(v[i]), b = vreinterpretq_s16_s8(v[i + 2]);
        lane[2 * i] = vreinterpretq_s8_s16(vzip1q_s16(a, b));
        lane[2 * i + 1] = vreinterpretq_s8_s16(vzip2q_s16(a, b));
    }
}

/* 32 int4, low nibbles first, as bytes in order. */
INLINE void nibbles32(const uint8_t *p, int8x16_t v[2]) {
    int8x16_t b = vld1q_s8((const int8_t *)p), even = vshrq_n_s8(vshlq_n_s8(b, 4), 4), odd = vshrq_n_s8(b, 4);
    v[0] = vzip1q_s8(even, odd), v[1] = vzip2q_s8(even, odd);
}

/* Four blocks of 32: data and scales. */
typedef struct {
    const uint8_t *data;
    vec scale;
} four_blocks;

/* Those from block b of row r on, of `bytes` bytes each; zeros in `last` behind the row's end. */
INLINE four_blocks blocks_at(const kern_weight *w, int64_t r, int64_t b, int64_t bytes, uint8_t last[128]) {
    int64_t blocks = w->cols / X16_BLOCK, at = r * blocks + b, left = blocks - b;
    const uint8_t *p = (const uint8_t *)w->data + at * bytes;
    const uint16_t *scale = (const uint16_t *)w->scale + at;
    for (int64_t i = 0; i < 4 * bytes; i += 64) prefetch(p + i);
    prefetch((const uint8_t *)scale);
    if (left >= 4) return (four_blocks){p, v_half(scale)};
    memset(last, 0, 128);
    memcpy(last, p, (size_t)(left * bytes));
    return (four_blocks){last, v_half_n(scale, left)};
}

/* s: four lanes of each of the blocks b .. b + 3. */
INLINE void add_blocks(vec f[4], const int32x4_t s[4], vec scale, const x16_row *x, int64_t b) {
    int32x4_t sum = vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
    vec product = (vec)vcvtq_f32_s32(sum) * (scale * v_load(x->scale + b));
    EACH (i, 4) /* no index that isn't constant: f stays in registers */
        if (b / 4 % 4 == i) f[i] += product;
}
#endif
