#include "checkpoint/gguf_types.h"
#include "base/num.h"

static float half_at(const uint8_t *p) {
    return num_f16_f32(num_get16(p));
}

/* --- single numbers --- */

static void decode_f32(float *out, const uint8_t *p, size_t n) {
    memcpy(out, p, n * sizeof *out);
}

static void decode_f16(float *out, const uint8_t *p, size_t n) {
    num_f16_to_f32(out, p, n);
}

static void decode_bf16(float *out, const uint8_t *p, size_t n) {
    num_bf16_to_f32(out, p, n);
}

/* --- blocks of 32: value i of the first half is in the low, of the second half in the high four bits of byte
 * i
 * --- */

/* Codes 0..15 of 16 bytes. */
static void nibbles(uint8_t q[32], const uint8_t *p) {
    for (int i = 0; i < 16; i++) q[i] = p[i] & 15, q[i + 16] = p[i] >> 4;
}

/* The same with a fifth bit each, from 32 bits. */
static void five_bits(uint8_t q[32], const uint8_t *p, uint32_t high) {
    nibbles(q, p);
    for (int i = 0; i < 32; i++) q[i] = (uint8_t)(q[i] | (high >> i & 1) << 4);
}

/* Q4_0: fp16 d, 16 bytes; d * (q - 8). */
static void decode_q4_0(float *out, const uint8_t *p, size_t blocks) {
    for (; blocks--; p += 18, out += 32) {
        uint8_t q[32];
        float d = half_at(p);
        nibbles(q, p + 2);
        for (int i = 0; i < 32; i++) out[i] = d * (float)(q[i] - 8);
    }
}

static void keep_q4_0(int8_t code[32], uint16_t *scale, const uint8_t *p) {
    uint8_t q[32];
    nibbles(q, p + 2);
    for (int i = 0; i < 32; i++) code[i] = (int8_t)(q[i] - 8);
    *scale = num_get16(p);
}

/* Q4_1: fp16 d, fp16 m, 16 bytes; d * q + m. */
static void decode_q4_1(float *out, const uint8_t *p, size_t blocks) {
    for (; blocks--; p += 20, out += 32) {
        uint8_t q[32];
        float d = half_at(p), m = half_at(p + 2);
        nibbles(q, p + 4);
        for (int i = 0; i < 32; i++) out[i] = d * (float)q[i] + m;
    }
}

/* Q5_0: fp16 d, 32 high bits, 16 bytes; d * (q - 16). */
static void decode_q5_0(float *out, const uint8_t *p, size_t blocks) {
    for (; blocks--; p += 22, out += 32) {
        uint8_t q[32];
        float d = half_at(p);
        five_bits(q, p + 6, num_get32(p + 2));
        for (int i = 0; i < 32; i++) out[i] = d * (float)(q[i] - 16);
    }
}

static void keep_q5_0(int8_t code[32], uint16_t *scale, const uint8_t *p) {
    uint8_t q[32];
    five_bits(q, p + 6, num_get32(p + 2));
    for (int i = 0; i < 32; i++) code[i] = (int8_t)(q[i] - 16);
    *scale = num_get16(p);
}

/* Q5_1: fp16 d, fp16 m, 32 high bits, 16 bytes; d * q + m. */
static void decode_q5_1(float *out, const uint8_t *p, size_t blocks) {
    for (; blocks--; p += 24, out += 32) {
        uint8_t q[32];
        float d = half_at(p), m = half_at(p + 2);
        five_bits(q, p + 8, num_get32(p + 4));
        for (int i = 0; i < 32; i++) out[i] = d * (float)q[i] + m;
    }
}

/* Q8_0: fp16 d, 32 int8; d * q. */
static void decode_q8_0(float *out, const uint8_t *p, size_t blocks) {
    for (; blocks--; p += 34, out += 32) {
        float d = half_at(p);
        for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)p[2 + i];
    }
}

static void keep_q8_0(int8_t code[32], uint16_t *scale, const uint8_t *p) {
    memcpy(code, p + 2, 32);
    *scale = num_get16(p);
}

/* IQ4_NL: fp16 d, 16 bytes; d * table[q]. */
static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void decode_iq4_nl(float *out, const uint8_t *p, size_t blocks) {
    for (; blocks--; p += 18, out += 32) {
        uint8_t q[32];
        float d = half_at(p);
        nibbles(q, p + 2);
        for (int i = 0; i < 32; i++) out[i] = d * (float)uneven[q[i]];
    }
}

static void keep_iq4_nl(int8_t code[32], uint16_t *scale, const uint8_t *p) {
    uint8_t q[32];
    nibbles(q, p + 2);
    for (int i = 0; i < 32; i++) code[i] = uneven[q[i]];
    *scale = num_get16(p);
}

/* --- blocks of 256 --- */

/* Code k of 128 two-bit codes in 32 bytes: the first 32 are bits 0 and 1 of the bytes, the next bits 2 and 3.
 */
static unsigned two_bits(const uint8_t *p, int k) {
    return p[k % 32] >> (k / 32 * 2) & 3;
}

/* Q2_K: 16 bytes of scales, 64 of codes, fp16 d, fp16 m. For 16 values each: d * (s & 15) * q - m * (s >> 4).
 */
static void decode_q2_k(float *out, const uint8_t *p, size_t blocks) {
    for (; blocks--; p += 84) {
        float d = half_at(p + 80), m = half_at(p + 82);
        for (int g = 0; g < 16; g++) {
            float scale = d * (float)(p[g] & 15), low = m * (float)(p[g] >> 4);
            const uint8_t *q = p + 16 + g / 8 * 32;
            for (int i = 0; i < 16; i++) *out++ = scale * (float)two_bits(q, g % 8 * 16 + i) - low;
        }
    }
}

/* Six-bit scale g of Q3_K's 12 bytes: four low bits in the first 8, two high ones in the last 4. */
static int scale_of_3(const uint8_t *s, int g) {
    unsigned low = (g < 8 ? s[g] : s[g - 8] >> 4) & 15, high = s[8 + g % 4] >> (g / 4 * 2) & 3;
    return (int)(low | high << 4) - 32;
}

/* Q3_K: 32 bytes of third bits, 64 of codes, 12 of scales, fp16 d. For 16 values each: d * s * (q - 4), third
 * bits counting 4. */
static void decode_q3_k(float *out, const uint8_t *p, size_t blocks) {
    for (; blocks--; p += 110) {
        float d = half_at(p + 108);
        for (int g = 0; g < 16; g++) {
            float scale = d * (float)scale_of_3(p + 96, g);
            const uint8_t *q = p + 32 + g / 8 * 32;
            for (int i = 0; i < 16; i++) {
                int third = p[g % 2 * 16 + i] >> (g / 2) & 1;
                *out++ = scale * (float)((int)two_bits(q, g % 8 * 16 + i) - (third ? 0 : 4));
            }
        }
    }
}

/* Six-bit scale and minimum g (0..7) of the 12 bytes of Q4_K and Q5_K. */
static void scale_and_minimum(const uint8_t *s, int g, unsigned *scale, unsigned *minimum) {
    if (g < 4) {
        *scale = s[g] & 63, *minimum = s[g + 4] & 63;
    } else {
        *scale = (s[g + 4] & 15) | (unsigned)s[g - 4] >> 6 << 4;
        *minimum = (unsigned)s[g + 4] >> 4 | (unsigned)s[g] >> 6 << 4;
    }
}

/* Q4_K: fp16 d, fp16 m, 12 bytes of scales, 128 of codes; 32 bytes hold one group of 32 in their low and the
 * next one in their high bits. For 32 values each: d * s * q - m * minimum. Q5_K (fifth): with 32 bytes of
 * fifth bits in front of the codes, bit g of byte i is value i's of group g. */
static void decode_45_k(float *out, const uint8_t *p, size_t blocks, bool fifth) {
    const uint8_t *codes = p + (fifth ? 48 : 16);
    for (size_t bytes = fifth ? 176 : 144; blocks--; p += bytes, codes += bytes) {
        float d = half_at(p), m = half_at(p + 2);
        for (int g = 0; g < 8; g++) {
            unsigned s, least;
            scale_and_minimum(p + 4, g, &s, &least);
            float scale = d * (float)s, low = m * (float)least;
            const uint8_t *high = p + 16, *q = codes + g / 2 * 32;
            for (int i = 0; i < 32; i++)
                *out++ =
                    scale * (float)((q[i] >> g % 2 * 4 & 15) | (fifth ? high[i] >> g & 1 : 0) << 4) - low;
        }
    }
}

static void decode_q4_k(float *out, const uint8_t *p, size_t blocks) {
    decode_45_k(out, p, blocks, false);
}

static void decode_q5_k(float *out, const uint8_t *p, size_t blocks) {
    decode_45_k(out, p, blocks, true);
}

/* Q6_K: 128 bytes of low bits, 64 of high ones, 16 int8 scales, fp16 d. In each half of 128 values, 32 are in
 * the low bits of the first 32 bytes, 32 in those of the next, then the high bits of both. For 16 values
 * each: d * s * (q - 32). */
static void decode_q6_k(float *out, const uint8_t *p, size_t blocks) {
    for (; blocks--; p += 210) {
        float d = half_at(p + 208);
        for (int g = 0; g < 16; g++) {
            float scale = d * (float)(int8_t)p[192 + g];
            int half = g / 8, quarter = g % 8 / 2, at = g % 2 * 16;
            const uint8_t *low = p + half * 64 + quarter % 2 * 32 + at, *high = p + 128 + half * 32 + at;
            for (int i = 0; i < 16; i++) {
                int q = (low[i] >> quarter / 2 * 4 & 15) | (high[i] >> quarter * 2 & 3) << 4;
                *out++ = scale * (float)(q - 32);
            }
        }
    }
}

/* IQ4_XS: fp16 d, 16 high and 32 low bits of scales, 128 bytes of codes; blocks of 32 as in IQ4_NL, for which
 * d * (s - 32) is the scale. */
static void decode_iq4_xs(float *out, const uint8_t *p, size_t blocks) {
    for (; blocks--; p += 136) {
        float d = half_at(p);
        unsigned high = num_get16(p + 2);
        for (int g = 0; g < 8; g++, out += 32) {
            int s = (int)((p[4 + g / 2] >> g % 2 * 4 & 15) | (high >> g * 2 & 3) << 4);
            float scale = d * (float)(s - 32);
            uint8_t q[32];
            nibbles(q, p + 8 + g * 16);
            for (int i = 0; i < 32; i++) out[i] = scale * (float)uneven[q[i]];
        }
    }
}

static const gguf_type types[] = {
    {0, "F32", 1, 4, DT_FP32, decode_f32, 0, NULL},
    {1, "F16", 1, 2, DT_FP16, decode_f16, 0, NULL},
    {30, "BF16", 1, 2, DT_BF16, decode_bf16, 0, NULL},
    {2, "Q4_0", 32, 18, DT_NONE, decode_q4_0, 4, keep_q4_0},
    {3, "Q4_1", 32, 20, DT_NONE, decode_q4_1, 0, NULL},
    {6, "Q5_0", 32, 22, DT_NONE, decode_q5_0, 8, keep_q5_0},
    {7, "Q5_1", 32, 24, DT_NONE, decode_q5_1, 0, NULL},
    {8, "Q8_0", 32, 34, DT_NONE, decode_q8_0, 8, keep_q8_0},
    {10, "Q2_K", 256, 84, DT_NONE, decode_q2_k, 0, NULL},
    {11, "Q3_K", 256, 110, DT_NONE, decode_q3_k, 0, NULL},
    {12, "Q4_K", 256, 144, DT_NONE, decode_q4_k, 0, NULL},
    {13, "Q5_K", 256, 176, DT_NONE, decode_q5_k, 0, NULL},
    {14, "Q6_K", 256, 210, DT_NONE, decode_q6_k, 0, NULL},
    {20, "IQ4_NL", 32, 18, DT_NONE, decode_iq4_nl, 8, keep_iq4_nl},
    {23, "IQ4_XS", 256, 136, DT_NONE, decode_iq4_xs, 0, NULL},
    /* for error messages */
    {9, "Q8_1", 32, 36, DT_NONE, NULL, 0, NULL},
    {15, "Q8_K", 256, 292, DT_NONE, NULL, 0, NULL},
    {16, "IQ2_XXS", 256, 66, DT_NONE, NULL, 0, NULL},
    {17, "IQ2_XS", 256, 74, DT_NONE, NULL, 0, NULL},
    {18, "IQ3_XXS", 256, 98, DT_NONE, NULL, 0, NULL},
    {19, "IQ1_S", 256, 50, DT_NONE, NULL, 0, NULL},
    {21, "IQ3_S", 256, 110, DT_NONE, NULL, 0, NULL},
    {22, "IQ2_S", 256, 82, DT_NONE, NULL, 0, NULL},
    {24, "I8", 1, 1, DT_NONE, NULL, 0, NULL},
    {25, "I16", 1, 2, DT_NONE, NULL, 0, NULL},
    {26, "I32", 1, 4, DT_NONE, NULL, 0, NULL},
    {27, "I64", 1, 8, DT_NONE, NULL, 0, NULL},
    {28, "F64", 1, 8, DT_NONE, NULL, 0, NULL},
    {29, "IQ1_M", 256, 56, DT_NONE, NULL, 0, NULL},
    {34, "TQ1_0", 256, 54, DT_NONE, NULL, 0, NULL},
    {35, "TQ2_0", 256, 66, DT_NONE, NULL, 0, NULL},
    {39, "MXFP4", 32, 17, DT_NONE, NULL, 0, NULL},
};

const gguf_type *gguf_type_by_id(uint32_t id) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].id == id) return &types[i];
    return NULL;
}
