/* The vector vocabulary in plain C: 4 lanes, which every compiler maps to what its processor has.
 * What the words mean is the same in every lanes_*.h; max() and min() give b when either is NaN. */
#ifndef KERNELS_LANES_PORTABLE_H
#define KERNELS_LANES_PORTABLE_H
#include "base/num.h"
#include <math.h>

#define LANES     4
#define REGISTERS 16
#define TILE      2 /* vectors across a tile of a product: its accumulators must fit the registers */
#define TILE_ROWS 4
#define INLINE    static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(16)));
typedef int32_t vec_int __attribute__((vector_size(16)));

INLINE vec v_all(float x) {
    return (vec){x, x, x, x};
}
INLINE vec v_load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void v_store(float *p, vec v) {
    memcpy(p, &v, sizeof v);
}
/* The first n < LANES, zeros behind them. */
INLINE vec v_load_n(const float *p, int64_t n) {
    vec v = {0};
    for (int64_t i = 0; i < n; i++) v[i] = p[i];
    return v;
}
INLINE void v_store_n(float *p, vec v, int64_t n) {
    for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
INLINE vec v_half(const uint16_t *p) {
    return (vec){num_f16_f32(p[0]), num_f16_f32(p[1]), num_f16_f32(p[2]), num_f16_f32(p[3])};
}
INLINE vec v_half_n(const uint16_t *p, int64_t n) {
    vec v = {0};
    for (int64_t i = 0; i < n; i++) v[i] = num_f16_f32(p[i]);
    return v;
}
INLINE void v_put_half_n(uint16_t *p, vec v, int64_t n) {
    for (int64_t i = 0; i < n; i++) p[i] = num_f32_f16(v[i]);
}
INLINE void v_put_half(uint16_t *p, vec v) {
    v_put_half_n(p, v, LANES);
}
/* Rounded to what fp16 has. */
INLINE vec v_round_half(vec v) {
    for (int i = 0; i < LANES; i++) v[i] = num_round_f16(v[i]);
    return v;
}
/* a * b + c, in one rounding where the processor can. */
INLINE vec v_fma(vec a, vec b, vec c) {
    return a * b + c;
}
INLINE vec v_select(vec_int which, vec a, vec b) {
    return (vec)((which & (vec_int)a) | (~which & (vec_int)b));
}
INLINE vec v_max(vec a, vec b) {
    return v_select(a > b, a, b);
}
INLINE vec v_min(vec a, vec b) {
    return v_select(a < b, a, b);
}
/* x < limit ? a : b */
INLINE vec v_below(vec x, vec limit, vec a, vec b) {
    return v_select(x < limit, a, b);
}
/* To the nearest whole number, |x| < 2^22. */
INLINE vec v_whole(vec x) {
    return (x + 0x1.8p23f) - 0x1.8p23f;
}
/* v * 2^n, n whole, |n| <= 250. */
INLINE vec v_scale(vec v, vec n) {
    vec_int i = __builtin_convertvector(n, vec_int), half = i >> 1;
    return v * (vec)((half + 127) << 23) * (vec)((i - half + 127) << 23);
}
INLINE float v_sum(vec v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}
/* out[i] = v_sum(i-th) */
INLINE void v_sum4(float *out, vec a, vec b, vec c, vec d) {
    out[0] = v_sum(a), out[1] = v_sum(b), out[2] = v_sum(c), out[3] = v_sum(d);
}
INLINE float v_top(vec v) {
    float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
}
/* Bit i: not v[i] <= limit. */
INLINE unsigned v_above(vec v, float limit) {
    unsigned bits = 0;
    for (int i = 0; i < LANES; i++) bits |= (unsigned)!(v[i] <= limit) << i;
    return bits;
}
/* Brings the cache line of p to the second cache; p may be any address. */
INLINE void v_fetch(const void *p) {
    __builtin_prefetch(p, 0, 2);
}
/* Element i of x[j] is p[3 i + j]. */
INLINE void v_half3(vec x[3], const uint16_t *p) {
    uint16_t part[3][LANES];
    for (int i = 0; i < 3 * LANES; i++) part[i % 3][i / 3] = p[i];
    for (int j = 0; j < 3; j++) x[j] = v_half(part[j]);
}
INLINE void v_put_half3(uint16_t *p, const vec x[3]) {
    uint16_t part[3][LANES];
    for (int j = 0; j < 3; j++) v_put_half(part[j], x[j]);
    for (int i = 0; i < 3 * LANES; i++) p[i] = part[i % 3][i / 3];
}
/* Element i of x[j] is p[4 i + j]. */
INLINE void v_load4(vec x[4], const float *p) {
    float part[4][LANES];
    for (int i = 0; i < 4 * LANES; i++) part[i % 4][i / 4] = p[i];
    for (int j = 0; j < 4; j++) x[j] = v_load(part[j]);
}
#endif
