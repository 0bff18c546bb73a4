/* NEON kernels: linear layers, EXACT and INT16, with what every aarch64 has. INT16: see x16.h.
 * Codes are unpacked by fourths: of 64, vector j has 4k + j, k = 0 .. 15; activations lie in the same order.
 */
#include "kernels/lanes_neon.h"
/* the words of its bodies */
#include "kernels/neon.h"
#include "kernels/overlay.h"

/* ---- activations ---- */

/* 64 values as words; of those from 32 h on, 4 h + j has the eight that the form puts into its j-th part. */
INLINE void put(char *value, kern_form form, int64_t c, const int16x8_t q[8]) {
    if (form == KERN_X_FOURTHS) {
        int16_t *p = (int16_t *)(void *)value + c;
        EACH (i, 8) vst1q_s16(p + 16 * (i % 4) + 8 * (i / 4), q[i]);
        return;
    }
    int8_t *p = (int8_t *)value + 2 * c;
    int8x16_t byte[2][4]; /* high, low */
    EACH (i, 4) {
        byte[0][i] = vcombine_s8(vrshrn_n_s16(q[2 * i], 8), vrshrn_n_s16(q[2 * i + 1], 8));
        byte[1][i] = vcombine_s8(vmovn_s16(q[2 * i]), vmovn_s16(q[2 * i + 1]));
    }
    EACH (h, 2) {
        int8x16_t lane[4];
        lanes_together(byte[h], lane);
        EACH (i, 4) vst1q_s8(p + 64 * h + 16 * i, form == KERN_X_LANES ? lane[i] : byte[h][i]);
    }
}

INLINE void prepare_chunk(char *value, kern_form form, int64_t c, const float *x, float *scale,
                          int32_t *sum) {
    float32x4_t v[16];
    int16x8_t q[8];
    uint32x4_t largest = vdupq_n_u32(0);
    EACH (m, 4) {
        float32x4x4_t fourth = vld4q_f32(x + 16 * m);
        EACH (j, 4) v[4 * m + j] = form == KERN_X_FOURTHS ? fourth.val[j] : vld1q_f32(x + 16 * m + 4 * j);
    }
    EACH (i, 16) largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    float inverse;
    scale[0] = scale[1] = x16_scale(vmaxvq_u32(largest), &inverse);
    EACH (i, 8) { /* where inverse is 0, infinities become NaN, and NaN 0 */
        int a = form == KERN_X_FOURTHS ? i / 4 * 8 + i % 4 : 2 * i,
            b = form == KERN_X_FOURTHS ? a + 4 : a + 1;
        q[i] = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[a], inverse))),
                            vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[b], inverse))));
    }
    EACH (h, 2) {
        sum[h] = 0;
        EACH (j, 4) sum[h] += vaddlvq_s16(q[4 * h + j]);
    }
    put(value, form, c, q);
}

INLINE void prepare(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi,
                    kern_form form) {
    int64_t padded = x16_padded(cols), blocks = padded / X16_BLOCK;
    for (int64_t i = lo; i < hi; i++) {
        char *p = (char *)dst + (size_t)i * x16_stride(cols);
        float *scale = (float *)(void *)p;
        int32_t *sum = (int32_t *)(void *)(p + 4 * blocks);
        for (int64_t c = 0; c < padded; c += X16_CHUNK) {
            float end[X16_CHUNK];
            const float *from = x + i * ldx + c;
            if (c + X16_CHUNK > cols) {
                memset(end, 0, sizeof end);
                if (c < cols) memcpy(end, from, (size_t)(cols - c) * sizeof *end);
                from = end;
            }
            prepare_chunk(p + 8 * blocks, form, c, from, scale + c / X16_BLOCK, sum + c / X16_BLOCK);
        }
    }
}

static void prepare_fourths(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare(dst, x, ldx, cols, lo, hi, KERN_X_FOURTHS);
}

static void prepare_bytes(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare(dst, x, ldx, cols, lo, hi, KERN_X_BYTES);
}

static void prepare_lanes(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare(dst, x, ldx, cols, lo, hi, KERN_X_LANES);
}

/* ---- palettes ---- */

typedef struct {
    uint8x16x4_t low[4], high[4]; /* bytes of the entries: 64 to a table */
    int16_t entry[256];
    float scale; /* of fixed-point entries */
} lut;

static void lut_open(lut *t, const kern_weight *w, int64_t r, bool fixed) {
    const uint16_t *half = kern_table_of(w, r);
    int n = 1 << w->bits;
    if (fixed)
        x16_table(t->entry, &t->scale, half, n);
    else
        for (int i = 0; i < (n < 64 ? 64 : n); i++) t->entry[i] = (int16_t)num_get16(half + i % n);
    for (int i = 0; i < (n < 64 ? 4 : n / 16); i++) {
        uint8x16x2_t byte = vld2q_u8((const uint8_t *)(t->entry + 16 * i));
        t->low[i / 4].val[i % 4] = byte.val[0];
        t->high[i / 4].val[i % 4] = byte.val[1];
    }
}

/* 16 groups of 4 codes of 3 bits, as bytes: code j of each. */
INLINE void codes_of_three(const uint8_t *p, uint8x16_t c[4]) {
    const uint8x16_t first = {0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11};
    const int16x8_t down = {0, -4, 0, -4, 0, -4, 0, -4};
    uint8x16_t second = vaddq_u8(first, vdupq_n_u8(4)); /* of what begins at byte 8 */
    uint16x8_t a = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(p), first)), down);
    uint16x8_t b = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(p + 8), second)), down);
    EACH (j, 4) {
        const int16x8_t by = vdupq_n_s16((int16_t)(-3 * j));
        c[j] = vuzp1q_u8(vreinterpretq_u8_u16(vshlq_u16(a, by)), vreinterpretq_u8_u16(vshlq_u16(b, by)));
        c[j] = vandq_u8(c[j], vdupq_n_u8(7));
    }
}

/* The 64 codes of 8 * bits bytes, by fourths. */
INLINE void codes64(const uint8_t *p, int bits, uint8x16_t c[4]) {
    uint8_t byte[64];
    const uint8x16_t mask = vdupq_n_u8((uint8_t)((1 << bits) - 1));
    if (bits == 6) {
        uint8x16x3_t v = vld3q_u8(p);
        c[0] = vandq_u8(v.val[0], mask);
        c[1] = vandq_u8(vsliq_n_u8(vshrq_n_u8(v.val[0], 6), v.val[1], 2), mask);
        c[2] = vandq_u8(vsliq_n_u8(vshrq_n_u8(v.val[1], 4), v.val[2], 4), mask);
        c[3] = vshrq_n_u8(v.val[2], 2);
    } else if (bits == 4) {
        uint8x16x2_t v = vld2q_u8(p);
        EACH (j, 4) c[j] = j % 2 ? vshrq_n_u8(v.val[j / 2], 4) : vandq_u8(v.val[j / 2], mask);
    } else if (bits == 3) {
        codes_of_three(p, c);
    } else if (bits <= 2) {
        const int8x16_t odd =
            vreinterpretq_s8_u16(vdupq_n_u16(0xFC00)); /* of 1 bit: the high halves of bytes */
        uint8x16_t v = bits == 2 ? vld1q_u8(p) : vcombine_u8(vld1_u8(p), vld1_u8(p));
        if (bits == 1) v = vshlq_u8(vzip1q_u8(v, v), odd);
        EACH (j, 4) c[j] = vandq_u8(vshlq_u8(v, vdupq_n_s8((int8_t)(-j * bits))), mask);
    } else {
        if (bits != 8) num_unpack(byte, p, 0, 64, (unsigned)bits);
        uint8x16x4_t v = vld4q_u8(bits == 8 ? p : byte);
        EACH (j, 4) c[j] = v.val[j];
    }
}

/* The entries of codes: those of c[j] are q[j] (k < 8) and q[4 + j]. */
INLINE void find64(const lut *t, const uint8x16_t c[4], int bits, int16x8_t q[8]) {
    uint8x16_t low[4], high[4];
    EACH (j, 4)
        if (bits <= 4)
            low[j] = vqtbl1q_u8(t->low[0].val[0], c[j]), high[j] = vqtbl1q_u8(t->high[0].val[0], c[j]);
        else
            low[j] = vqtbl4q_u8(t->low[0], c[j]), high[j] = vqtbl4q_u8(t->high[0], c[j]);
    if (bits > 6)
        for (int i = 1; i < 1 << (bits - 6); i++)
            EACH (j, 4) { /* an index outside of the table changes nothing */
                uint8x16_t at = vsubq_u8(c[j], vdupq_n_u8((uint8_t)(64 * i)));
                low[j] = vqtbx4q_u8(low[j], t->low[i], at), high[j] = vqtbx4q_u8(high[j], t->high[i], at);
            }
    EACH (j, 4) {
        q[j] = vreinterpretq_s16_u8(vzip1q_u8(low[j], high[j]));
        q[4 + j] = vreinterpretq_s16_u8(vzip2q_u8(low[j], high[j]));
    }
}

/* ---- INT16 ---- */

/* 64 int8 or int4 weights as words, by fourths. */
INLINE void words64(const uint8_t *p, bool nibbles, int16x8_t q[8]) {
    int8x16_t v[4];
    if (nibbles) {
        int8x16x2_t two = vld2q_s8((const int8_t *)p);
        EACH (j, 4) v[j] = vshrq_n_s8(j % 2 ? two.val[j / 2] : vshlq_n_s8(two.val[j / 2], 4), 4);
    } else {
        int8x16x4_t four = vld4q_s8((const int8_t *)p);
        EACH (j, 4) v[j] = four.val[j];
    }
    EACH (j, 4) q[j] = vmovl_s8(vget_low_s8(v[j])), q[4 + j] = vmovl_high_s8(v[j]);
}

/* The words of x that q[i] is multiplied by. */
INLINE int16x8_t x_words(const x16_row *x, int64_t c, int i) {
    return vld1q_s16(x->value + c + 16 * (i % 4) + 8 * (i / 4));
}

/* four: lane l takes 4l .. 4l+3, and f has the lanes in order; else the even ones, then the odd ones. */
INLINE void add_chunk(vec f[4], const int16x8_t q[8], const x16_row *x, int64_t c, bool four) {
    int32x4_t s[4];
    EACH (i, 4) s[i] = vdupq_n_s32(0);
    EACH (i, 8) {
        int16x8_t v = x_words(x, c, i);
        int k = four ? i / 4 * 2 : i % 4 / 2 * 2;
        s[k] = vmlal_s16(s[k], vget_low_s16(q[i]), vget_low_s16(v));
        s[k + 1] = vmlal_high_s16(s[k + 1], q[i], v);
    }
    EACH (i, 4) f[i] += (vec)vcvtq_f32_s32(s[i]) * x->scale[c / X16_BLOCK];
}

INLINE float tree_of(const vec f[4], bool four) {
    if (four) return tree(f);
    vec lane[4];
    EACH (i, 4) lane[i] = i % 2 ? vzip2q_f32(f[i / 2], f[i / 2 + 2]) : vzip1q_f32(f[i / 2], f[i / 2 + 2]);
    return tree(lane);
}

/* bits: of a palette; 0: int8. */
INLINE void lanes_row(const kern_linear *job, int64_t r, const lut *t, int64_t i0, int n, int bits) {
    const kern_weight *w = job->w;
    int64_t step = bits ? 8 * bits : 64, row = bits ? w->cols * bits / 8 : w->cols;
    const uint8_t *p = (const uint8_t *)w->data + r * row, *end = p + row;
    x16_row x[BATCH];
    vec f[BATCH][4];
    EACH (i, n) {
        x[i] = x16_row_of(job, i0 + i);
        EACH (j, 4) f[i][j] = v_all(0);
    }
    for (int64_t c = 0; c < w->cols; c += X16_CHUNK, p += step) {
        uint8_t last[64];
        int16x8_t q[8];
        const uint8_t *from = end - p < step ? up_to_64(last, p, end - p) : p;
        prefetch(p);
        if (bits) {
            uint8x16_t code[4];
            codes64(from, bits, code);
            find64(t, code, bits, q);
        } else {
            words64(from, false, q);
        }
        EACH (i, n) add_chunk(f[i], q, &x[i], c, bits == 4);
    }
    float scale = bits ? t->scale : kern_at(w->scale, w->scale_type, r);
    EACH (i, n) kern_store(job, i0 + i, r, tree_of(f[i], bits == 4) * scale);
}

INLINE void lanes(const kern_linear *job, int64_t lo, int64_t hi, int bits) {
    lut t;
    for (int64_t r = lo; r < hi; r++) {
        int64_t i = 0;
        if (bits && (r == lo || r % job->w->block_rows == 0)) lut_open(&t, job->w, r, true);
        for (; i + BATCH <= job->n; i += BATCH) lanes_row(job, r, &t, i, BATCH, bits);
        for (; i < job->n; i++) lanes_row(job, r, &t, i, 1, bits);
    }
}

static void int16_channel8(const kern_linear *job, int64_t lo, int64_t hi) {
    lanes(job, lo, hi, 0);
}

static void int16_palette(const kern_linear *job, int64_t lo, int64_t hi) {
    switch (job->w->bits) {
    case 1: lanes(job, lo, hi, 1); break;
    case 2: lanes(job, lo, hi, 2); break;
    case 3: lanes(job, lo, hi, 3); break;
    case 4: lanes(job, lo, hi, 4); break;
    case 5: lanes(job, lo, hi, 5); break;
    case 6: lanes(job, lo, hi, 6); break;
    default: lanes(job, lo, hi, 8); break;
    }
}

/* Sums of the two blocks from element c on, each of 4 lanes. */
INLINE void add_two(int32x4_t s[2], const int16x8_t q[8], const x16_row *x, int64_t c) {
    EACH (h, 2) s[h] = vdupq_n_s32(0);
    EACH (i, 8) {
        int16x8_t v = x_words(x, c, i);
        s[i / 4] = vmlal_s16(s[i / 4], vget_low_s16(q[i]), vget_low_s16(v));
        s[i / 4] = vmlal_high_s16(s[i / 4], q[i], v);
    }
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
        int16x8_t q[2][8];
        four_blocks v = blocks_at(w, r, b, bytes, last);
        EACH (h, 2) words64(v.data + 2 * h * bytes, nibbles, q[h]);
        EACH (i, n) {
            int32x4_t s[4];
            EACH (h, 2) add_two(s + 2 * h, q[h], &x[i], (b + 2 * h) * X16_BLOCK);
            add_blocks(f[i], s, v.scale, &x[i], b);
        }
    }
    EACH (i, n) kern_store(job, i0 + i, r, tree(f[i]));
}

#include "kernels/neon_blocks.h" /* out of blocks_row() */

/* ---- EXACT ---- */

INLINE void bytes_to_floats(int8x16_t b, vec v[4]) {
    int16x8_t low = vmovl_s8(vget_low_s8(b)), high = vmovl_high_s8(b);
    v[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), v[1] = vcvtq_f32_s32(vmovl_high_s16(low));
    v[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), v[3] = vcvtq_f32_s32(vmovl_high_s16(high));
}

INLINE void halves_to_floats(int16x8_t h, vec v[2]) {
    float16x8_t half = vreinterpretq_f16_s16(h);
    v[0] = vcvt_f32_f16(vget_low_f16(half)), v[1] = vcvt_high_f32_f16(half);
}

/* 64 entries of fp16, in order. */
INLINE void palette64(const lut *t, const uint8_t *p, int bits, vec v[16]) {
    uint8x16_t c[4], two[4], in[4];
    int16x8_t q[8];
    codes64(p, bits, c);
    EACH (i, 2) { /* 4 k, 4 k + 2 side by side, then all */
        two[2 * i] = vzip1q_u8(c[i], c[i + 2]), two[2 * i + 1] = vzip2q_u8(c[i], c[i + 2]);
    }
    EACH (i, 2) in[2 * i] = vzip1q_u8(two[i], two[2 + i]), in[2 * i + 1] = vzip2q_u8(two[i], two[2 + i]);
    find64(t, in, bits, q);
    EACH (i, 4) halves_to_floats(q[i], v + 4 * i), halves_to_floats(q[4 + i], v + 4 * i + 2);
}

/* Elements c .. c + 63 of row r; CHANNEL8 without its scale unless it is rounded. */
INLINE void floats64(const kern_weight *w, const lut *t, int64_t r, int64_t c, int kind, vec v[16]) {
    const uint8_t *p = w->data;
    int64_t at = r * w->cols + c;
    if (kind >= TINY) {
        p += at * w->bits / 8;
        prefetch(p);
        if (w->bits == 6)
            palette64(t, p, 6, v);
        else if (w->bits == 4)
            palette64(t, p, 4, v);
        else if (w->bits == 8)
            palette64(t, p, 8, v);
        else
            palette64(t, p, (int)w->bits, v);
        return;
    }
    p += kind == F32 ? 4 * at : kind == F16 ? 2 * at : kind == BLOCK4 ? at / 2 : at;
    for (int i = 0; i < (kind == F32 ? 4 : kind == F16 ? 2 : 1); i++) prefetch(p + 64 * i);
    if (kind == F32)
        EACH (i, 16) v[i] = v_load((const float *)(const void *)p + 4 * i);
    if (kind == F16)
        EACH (i, 8) halves_to_floats(vld1q_s16((const int16_t *)(const void *)p + 8 * i), v + 2 * i);
    if (kind == CHANNEL8 || kind == BLOCK8)
        EACH (i, 4) bytes_to_floats(vld1q_s8((const int8_t *)p + 16 * i), v + 4 * i);
    if (kind == BLOCK4)
        EACH (i, 2) {
            int8x16_t b[2];
            nibbles32(p + 16 * i, b);
            EACH (h, 2) bytes_to_floats(b[h], v + 8 * i + 4 * h);
        }
    if (kind == BLOCK8 || kind == BLOCK4)
        EACH (i, 16) v[i] *= kern_half_at(w->scale, at / X16_BLOCK + i / 8);
    if (kind == CHANNEL8 && w->rounded)
        EACH (i, 16) v[i] *= kern_at(w->scale, w->scale_type, r);
    if (kind >= CHANNEL8 && w->rounded)
        EACH (i, 16) v[i] = v_round_half(v[i]);
}

#define SLACK 0
#include "kernels/body_exact.h"

void kern_neon(kern_table *t) {
    t->linear[KERN_INT8][KERN_W_CHANNEL8] = NULL; /* plain C is slower than int16 here */
    exact_fill(t);
    t->prepare[KERN_X_FOURTHS] = prepare_fourths;
    t->prepare[KERN_X_BYTES] = prepare_bytes;
    t->prepare[KERN_X_LANES] = prepare_lanes;
    t->linear[KERN_INT16][KERN_W_CHANNEL8] = int16_channel8;
    t->linear[KERN_INT16][KERN_W_PALETTE] = t->linear[KERN_INT16][KERN_W_PALETTE4] = int16_palette;
    t->linear[KERN_INT16][KERN_W_BLOCK8] = int16_block8;
    t->linear[KERN_INT16][KERN_W_BLOCK4] = int16_block4;
    for (int kind = 0; kind < KERN_W_KINDS; kind++) t->form[KERN_INT16][kind] = KERN_X_FOURTHS;
}
