/* NEON kernels with dot products of bytes: int8 and int4 weights in the path INT16. A value of x is 256 high
 * + low, so that two products of bytes make one of words. See x16.h. */
#include "kernels/lanes_neon.h"
/* the words of its bodies */
#include "kernels/neon.h"
#include "kernels/overlay.h"

/* s + v . x, a lane for four bytes; x: high bytes, the low ones 64 behind them. */
INLINE int32x4_t dot_high(int32x4_t s, int8x16_t v, const int8_t *x) {
    return vdotq_s32(s, v, vld1q_s8(x));
}
INLINE int32x4_t dot_low(int32x4_t s, int8x16_t v, const int8_t *x) {
    return vdotq_s32(s, v, vld1q_s8(x + 64));
}

INLINE const int8_t *x_bytes(const x16_row *x, int64_t c) {
    return (const int8_t *)(x->value + c);
}

INLINE void lanes_row(const kern_linear *job, int64_t r, int64_t i0, int n) {
    const kern_weight *w = job->w;
    const uint8_t *p = (const uint8_t *)w->data + r * w->cols;
    x16_row x[BATCH];
    vec f[BATCH][4];
    EACH (i, n) {
        x[i] = x16_row_of(job, i0 + i);
        EACH (j, 4) f[i][j] = v_all(0);
    }
    for (int64_t c = 0; c < w->cols; c += X16_CHUNK, p += X16_CHUNK) {
        int64_t left = w->cols - c;
        uint8_t last[64];
        const uint8_t *from = left < X16_CHUNK ? up_to_64(last, p, left) : p;
        int8x16_t v[4], lane[4];
        prefetch(p);
        EACH (j, 4) v[j] = vld1q_s8((const int8_t *)from + 16 * j);
        lanes_together(v, lane);
        EACH (i, n)
            EACH (j, 4) {
                const int8_t *xj = x_bytes(&x[i], c) + 16 * j;
                int32x4_t s = vshlq_n_s32(dot_high(vdupq_n_s32(0), lane[j], xj), 8);
                f[i][j] += (vec)vcvtq_f32_s32(dot_low(s, lane[j], xj)) * x[i].scale[c / X16_BLOCK];
            }
    }
    EACH (i, n) kern_store(job, i0 + i, r, tree(f[i]) * kern_at(w->scale, w->scale_type, r));
}

static void int16_channel8(const kern_linear *job, int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; r++) {
        int64_t i = 0;
        for (; i + BATCH <= job->n; i += BATCH) lanes_row(job, r, i, BATCH);
        for (; i < job->n; i++) lanes_row(job, r, i, 1);
    }
}

/* 32 weights and those of x: four lanes of their sum. */
INLINE int32x4_t block_lanes(const int8x16_t v[2], const int8_t *x) {
    int32x4_t s = dot_high(dot_high(vdupq_n_s32(0), v[0], x), v[1], x + 16);
    return dot_low(dot_low(vshlq_n_s32(s, 8), v[0], x), v[1], x + 16);
}

INLINE void blocks_row(const kern_linear *job, int64_t r, int64_t i0, int n, bool nibbles) {
    const kern_weight *w = job->w;
    int64_t blocks = w->cols / X16_BLOCK, bytes = nibbles ? 16 : 32;
    x16_row x[BATCH];
    vec f[BATCH][4];
    EACH (i, n) {
        x[i] = x16_row_of(job, i0 + i);
        EACH (j, 4) f[i][j] = v_all(0);
    }
    for (int64_t b = 0; b < blocks; b += 4) {
        uint8_t last[128];
        int8x16_t v[4][2];
        four_blocks at = blocks_at(w, r, b, bytes, last);
        EACH (k, 4)
            if (nibbles)
                nibbles32(at.data + 16 * k, v[k]);
            else
                EACH (h, 2) v[k][h] = vld1q_s8((const int8_t *)at.data + 32 * k + 16 * h);
        EACH (i, n) {
            int32x4_t s[4];
            EACH (k, 4) s[k] = block_lanes(v[k], x_bytes(&x[i], (b + k) / 2 * X16_CHUNK) + k % 2 * 32);
            add_blocks(f[i], s, at.scale, &x[i], b);
        }
    }
    EACH (i, n) kern_store(job, i0 + i, r, tree(f[i]));
}

#include "kernels/neon_blocks.h" /* out of blocks_row() */

void kern_neondot(kern_table *t) {
    t->linear[KERN_INT16][KERN_W_CHANNEL8] = int16_channel8;
    t->linear[KERN_INT16][KERN_W_BLOCK8] = int16_block8;
    t->linear[KERN_INT16][KERN_W_BLOCK4] = int16_block4;
    t->form[KERN_INT16][KERN_W_CHANNEL8] = KERN_X_LANES;
    t->form[KERN_INT16][KERN_W_BLOCK8] = t->form[KERN_INT16][KERN_W_BLOCK4] = KERN_X_BYTES;
}
