#include "base/num.h"
#include <math.h>

float num_e4m3_f32(uint8_t b) {
    int e = b >> 3 & 15, m = b & 7;
    float v = e == 15 && m == 7 ? NAN : e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);
    return b & 0x80 ? -v : v;
}

float num_e5m2_f32(uint8_t b) {
    return num_f16_f32((uint16_t)(b << 8));
}

/* Loops over unaligned halves in a form that compilers vectorise. */
static inline uint16_t load16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return h;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "halves in files are little-endian");

void num_f16_to_f32(float *out, const void *in, size_t n) {
    const uint8_t *p = in;
    for (size_t i = 0; i < n; i++) out[i] = num_f16_f32(load16(p + 2 * i));
}

void num_bf16_to_f32(float *out, const void *in, size_t n) {
    const uint8_t *p = in;
    for (size_t i = 0; i < n; i++) out[i] = num_bf16_f32(load16(p + 2 * i));
}

void num_f32_to_f16(void *out, const float *in, size_t n) {
    uint8_t *p = out;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = num_f32_f16(in[i]);
        memcpy(p + 2 * i, &h, 2);
    }
}

void num_round_f16_all(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = num_round_f16(x[i]);
}

void num_unpack(uint8_t *out, const uint8_t *in, size_t first, size_t n, unsigned bits) {
    unsigned mask = (1u << bits) - 1;
    if (bits == 8) {
        memcpy(out, in + first, n);
        return;
    }
    uint64_t bit = (uint64_t)first * bits;
    if (bits == 4 && bit % 8 == 0) {
        in += bit / 8;
        for (size_t i = 0; i < n / 2; i++) out[2 * i] = in[i] & 15, out[2 * i + 1] = in[i] >> 4;
        if (n % 2) out[n - 1] = in[n / 2] & 15;
        return;
    }
    for (size_t i = 0; i < n; i++, bit += bits) {
        const uint8_t *p = in + bit / 8;
        unsigned shift = bit % 8, v = p[0] >> shift;
        if (shift + bits > 8) v |= (unsigned)p[1] << (8 - shift);
        out[i] = (uint8_t)(v & mask);
    }
}

void num_pack(uint8_t *out, const uint8_t *in, size_t n, unsigned bits) {
    if (bits == 8) {
        memcpy(out, in, n);
        return;
    }
    unsigned acc = 0, have = 0;
    size_t i = 0;
    for (; bits == 4 && i + 2 <= n; i += 2) *out++ = (uint8_t)((in[i] & 15) | in[i + 1] << 4);
    for (; bits == 6 && i + 4 <= n; i += 4, out += 3) {
        unsigned four =
            (in[i] & 63u) | (in[i + 1] & 63u) << 6 | (in[i + 2] & 63u) << 12 | (in[i + 3] & 63u) << 18;
        out[0] = (uint8_t)four, out[1] = (uint8_t)(four >> 8), out[2] = (uint8_t)(four >> 16);
    }
    for (; i < n; i++) {
        acc |= (unsigned)(in[i] & ((1u << bits) - 1)) << have;
        have += bits;
        while (have >= 8) {
            *out++ = (uint8_t)acc;
            acc >>= 8;
            have -= 8;
        }
    }
    if (have) *out = (uint8_t)acc;
}
