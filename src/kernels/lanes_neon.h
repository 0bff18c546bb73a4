/* The vector vocabulary of NEON as every aarch64 has it: see lanes_portable.h. */
#ifndef KERNELS_LANES_NEON_H
#define KERNELS_LANES_NEON_H
#include <arm_neon.h>
#include <stdint.h>

#define LANES     4
#define REGISTERS 32
#define TILE      4
#define TILE_ROWS 6
#define INLINE    static inline __attribute__((always_inline))

typedef float vec
    __attribute__((vector_size(16))); /* not float32x4_t: clang has no operators with scalars for it */

INLINE vec v_all(float x) {
    return vdupq_n_f32(x);
}
INLINE vec v_load(const float *p) {
    return vld1q_f32(p);
}
INLINE void v_store(float *p, vec v) {
    vst1q_f32(p, v);
}
INLINE vec v_load_n(const float *p, int64_t n) {
    vec v = {0};
    for (int64_t i = 0; i < n; i++) v[i] = p[i];
    return v;
}
INLINE void v_store_n(float *p, vec v, int64_t n) {
    for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
INLINE vec v_half(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
INLINE vec v_half_n(const uint16_t *p, int64_t n) {
    uint16_t part[LANES] = {0};
    for (int64_t i = 0; i < n; i++) part[i] = p[i];
    return v_half(part);
}
INLINE void v_put_half(uint16_t *p, vec v) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
INLINE void v_put_half_n(uint16_t *p, vec v, int64_t n) {
    uint16_t part[LANES];
    v_put_half(part, v);
    for (int64_t i = 0; i < n; i++) p[i] = part[i];
}
INLINE vec v_round_half(vec v) {
    return vcvt_f32_f16(vcvt_f16_f32(v));
}
INLINE vec v_fma(vec a, vec b, vec c) {
    return vfmaq_f32(c, a, b);
}
INLINE vec v_max(vec a, vec b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
INLINE vec v_min(vec a, vec b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
INLINE vec v_below(vec x, vec limit, vec a, vec b) {
    return vbslq_f32(vcltq_f32(x, limit), a, b);
}
INLINE vec v_whole(vec x) {
    return vrndnq_f32(x);
}
INLINE vec v_scale(vec v, vec n) {
    int32x4_t i = vcvtq_s32_f32(n), half = vshrq_n_s32(i, 1), bias = vdupq_n_s32(127);
    int32x4_t a = vshlq_n_s32(vaddq_s32(half, bias), 23);
    int32x4_t b = vshlq_n_s32(vaddq_s32(vsubq_s32(i, half), bias), 23);
    return v * (vec)vreinterpretq_f32_s32(a) * (vec)vreinterpretq_f32_s32(b);
}
INLINE float v_sum(vec v) {
    return vaddvq_f32(v);
}
INLINE void v_sum4(float *out, vec a, vec b, vec c, vec d) {
    vst1q_f32(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}
INLINE float v_top(vec v) {
    return vmaxnmvq_f32(v);
}
INLINE unsigned v_above(vec v, float limit) {
    const uint32x4_t bit = {1, 2, 4, 8};
    return vaddvq_u32(vbicq_u32(bit, vcleq_f32(v, v_all(limit))));
}
/* Brings the cache line of p to the second cache; p may be any address. */
INLINE void v_fetch(const void *p) {
    __builtin_prefetch(p, 0, 2);
}
/* Element i of x[j] is p[3 i + j]. */
INLINE void v_half3(vec x[3], const uint16_t *p) {
    uint16x4x3_t h = vld3_u16(p);
    for (int j = 0; j < 3; j++) x[j] = vcvt_f32_f16(vreinterpret_f16_u16(h.val[j]));
}
INLINE void v_put_half3(uint16_t *p, const vec x[3]) {
    uint16x4x3_t h;
    for (int j = 0; j < 3; j++) h.val[j] = vreinterpret_u16_f16(vcvt_f16_f32(x[j]));
    vst3_u16(p, h);
}
/* Element i of x[j] is p[4 i + j]. */
INLINE void v_load4(vec x[4], const float *p) {
    float32x4x4_t v = vld4q_f32(p);
    for (int j = 0; j < 4; j++) x[j] = v.val[j];
}
#endif
