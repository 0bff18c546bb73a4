/* Number formats: fp16 and bf16 <-> fp32 (round to nearest even, exact on every machine), codes of 1..8 bits.
 */
#ifndef BASE_NUM_H
#define BASE_NUM_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline float num_bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint32_t num_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* Branch-free, so that loops over it vectorise; exact for subnormals, infinities and NaN. */
static inline float num_f16_f32(uint16_t h) {
    uint32_t w = (uint32_t)h << 16, sign = w & 0x80000000u, two = w + w;
    float normal = num_bits_f32((two >> 4) + (0xE0u << 23)) * 0x1p-112f;
    float subnormal = num_bits_f32((two >> 17) | (126u << 23)) - 0.5f;
    uint32_t r = two < (1u << 27) ? num_f32_bits(subnormal) : num_f32_bits(normal);
    return num_bits_f32(sign | r);
}

/* Round to nearest even; overflow gives infinity; NaN stays NaN. Branch-free, as above. */
static inline uint16_t num_f32_f16(float f) {
    uint32_t u = num_f32_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu, odd = a >> 13 & 1;
    uint32_t normal = (a + 0xC8000FFFu + odd) >> 13;
    uint32_t subnormal =
        num_f32_bits(num_bits_f32(a) + 0.5f) - 0x3F000000u; /* the FPU rounds at the right bit */
    uint32_t r = a < 0x38800000u ? subnormal : normal;
    r = a >= 0x477FF000u ? 0x7C00u : r;
    r = a > 0x7F800000u ? 0x7E00u : r;
    return (uint16_t)(sign | r);
}

static inline float num_bf16_f32(uint16_t h) {
    return num_bits_f32((uint32_t)h << 16);
}

static inline uint16_t num_f32_bf16(float f) {
    uint32_t u = num_f32_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1)) >> 16);
}

/* The value of f once stored as fp16. */
static inline float num_round_f16(float f) {
    return num_f16_f32(num_f32_f16(f));
}

float num_e4m3_f32(uint8_t b); /* FP8 E4M3FN: no infinities, NaN = 0x7F and 0xFF */
float num_e5m2_f32(uint8_t b);

void num_f16_to_f32(float *out, const void *in, size_t n); /* in: n unaligned halves */
void num_bf16_to_f32(float *out, const void *in, size_t n);
void num_f32_to_f16(void *out, const float *in, size_t n);
void num_round_f16_all(float *x, size_t n);

/* Codes of `bits` (1..8) as one little-endian bit stream, least significant bit first, no per-row alignment:
 * element i holds bits [i*bits, (i+1)*bits) (the layout of weight.bin). Unpacked unsigned codes are
 * 0..2^bits-1, one byte each. */
static inline size_t num_packed_size(size_t n, unsigned bits) {
    return (n * bits + 7) / 8;
}
void num_unpack(uint8_t *out, const uint8_t *in, size_t first, size_t n, unsigned bits);
/* Writes num_packed_size(n, bits) bytes; spare bits of the last byte are 0. */
void num_pack(uint8_t *out, const uint8_t *in, size_t n, unsigned bits);
static inline int num_sign_extend(unsigned code, unsigned bits) {
    int half = 1 << (bits - 1);
    return (int)(code ^ (unsigned)half) - half;
}

static inline uint16_t num_get16(const void *p) {
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}
static inline uint32_t num_get32(const void *p) {
    const uint8_t *b = p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}
static inline uint64_t num_get64(const void *p) {
    return num_get32(p) | (uint64_t)num_get32((const uint8_t *)p + 4) << 32;
}
static inline void num_put16(void *p, uint16_t v) {
    uint8_t *b = p;
    b[0] = (uint8_t)v, b[1] = (uint8_t)(v >> 8);
}
static inline void num_put32(void *p, uint32_t v) {
    num_put16(p, (uint16_t)v), num_put16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}
static inline void num_put64(void *p, uint64_t v) {
    num_put32(p, (uint32_t)v), num_put32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}
#endif
