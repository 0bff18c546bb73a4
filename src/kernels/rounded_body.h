/* The body of rounded.h, compiled once for each instruction set by the file that includes it. Vectors are
 * GCC's: 16 floats, whatever registers they take. */
#include "base/num.h"
#include "kernels/rounded.h"
#include <math.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif
#pragma GCC diagnostic ignored "-Wpsabi" /* everything that passes vectors is inlined */

typedef float vec __attribute__((vector_size(64)));
typedef int32_t ivec __attribute__((vector_size(64)));
typedef uint32_t uvec __attribute__((vector_size(64)));
typedef uint16_t hvec __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, vec v) {
    memcpy(p, &v, sizeof v);
}

INLINE vec all(float x) {
    return x - (vec){0};
}

INLINE vec choose(ivec mask, vec a, vec b) {
    return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
}

INLINE vec load_half(const uint16_t *p) {
#if defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(__F16C__)
    union {
        __m256 part[2];
        vec v;
    } u;
    u.part[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
    u.part[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)));
    return u.v;
#elif defined(CONVERT_NEON)
    union {
        float32x4_t part[4];
        vec v;
    } u;
    for (int i = 0; i < 4; i++) u.part[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
    return u.v;
#else
    hvec h;
    memcpy(&h, p, sizeof h);
    uvec w = __builtin_convertvector(h, uvec) << 16, a = w & 0x7FFFFFFFu, sign = w ^ a;
    vec normal = (vec)((a >> 3) + (0xE0u << 23)) * 0x1p-112f;
    vec subnormal = (vec)((a >> 16) | (126u << 23)) - 0.5f;
    return (vec)((uvec)choose((ivec)a < 0x04000000, subnormal, normal) | sign);
#endif
}

INLINE void store_half(uint16_t *p, vec v) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    union {
        vec v;
        __m256 part[2];
    } u = {v};
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(u.part[0], _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(u.part[1], _MM_FROUND_TO_NEAREST_INT));
#elif defined(CONVERT_NEON)
    union {
        vec v;
        float32x4_t part[4];
    } u = {v};
    for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(u.part[i])));
#else
    for (int i = 0; i < 16; i++) p[i] = num_f32_f16(v[i]);
#endif
}

INLINE vec to_half(vec v) {
    uint16_t h[16];
    store_half(h, v);
    return load_half(h);
}

INLINE vec load_any(const void *p, bool half, int64_t i) {
    return half ? load_half((const uint16_t *)p + i) : load((const float *)p + i);
}

INLINE float get_any(const void *p, bool half, int64_t i) {
    return half ? num_f16_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

/* Always pairs 8, 4, 2, 1 apart. */
INLINE float sum(vec v) {
    float f[16];
    store(f, v);
    for (int step = 8; step; step /= 2)
        for (int i = 0; i < step; i++) f[i] += f[i + step];
    return f[0];
}

/* e^x to about an ulp: 2^n times a polynomial on [-ln2/2, ln2/2]; below the normal numbers 0. */
INLINE vec exp_vec(vec x) {
    vec n = x * 1.44269504088896341f;
    const vec magic = all(12582912.0f); /* rounds to nearest in the last bits */
    n = choose(n > 128.0f, all(129.0f), choose(n < -126.0f, all(-127.0f), (n + magic) - magic));
    vec r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vec p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    /* in two factors: n may be 128 or 129 */
    ivec e = __builtin_convertvector(n, ivec), half = e >> 1;
    vec y = p * (vec)((half + 127) << 23) * (vec)((e - half + 127) << 23);
    y = choose(x > 88.7228394f, all(INFINITY), choose(x < -87.3365479f, all(0), y));
    return choose(x != x, x, y);
}

INLINE vec silu_vec(vec x) {
    return x / (1.0f + exp_vec(-x));
}

/* ---- rows ---- */

static void narrow(uint16_t *y, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) store_half(y + i, load(x + i));
    for (; i < n; i++) y[i] = num_f32_f16(x[i]);
}

static void widen(float *y, const uint16_t *x, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) store(y + i, load_half(x + i));
    for (; i < n; i++) y[i] = num_f16_f32(x[i]);
}

static void round_row(float *y, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) store(y + i, to_half(load(y + i)));
    for (; i < n; i++) y[i] = num_round_f16(y[i]);
}

/* The last, incomplete vector of a row. */
INLINE vec load_tail(const float *x, int64_t n) {
    float f[16] = {0};
    memcpy(f, x, (size_t)n * 4);
    return load(f);
}

INLINE void store_tail(float *y, vec v, int64_t n) {
    float f[16];
    store(f, v);
    memcpy(y, f, (size_t)n * 4);
}

INLINE vec apply(kern_rounded_function f, vec x) {
    return f == KERN_ROUNDED_EXP    ? exp_vec(x)
           : f == KERN_ROUNDED_SILU ? silu_vec(x)
                                    : 1.0f / (1.0f + exp_vec(-x));
}

static void function(kern_rounded_function f, float *y, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) store(y + i, apply(f, load(x + i)));
    if (i < n) store_tail(y + i, apply(f, load_tail(x + i, n - i)), n - i);
}

static void swiglu(float *y, const float *gate, const float *up, int64_t n, bool round) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        vec g = silu_vec(load(gate + i));
        if (round) g = to_half(g);
        g = g * load(up + i);
        store(y + i, round ? to_half(g) : g);
    }
    if (i == n) return;
    vec g = silu_vec(load_tail(gate + i, n - i));
    if (round) g = to_half(g);
    g = g * load_tail(up + i, n - i);
    store_tail(y + i, round ? to_half(g) : g, n - i);
}

static float dot(const float *x, const void *y, bool half, int64_t n) {
    vec s = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) s += load(x + i) * load_any(y, half, i);
    float r = sum(s);
    for (; i < n; i++) r += x[i] * get_any(y, half, i);
    return r;
}

static void axpy(float *y, float a, const void *x, bool half, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) store(y + i, load(y + i) + a * load_any(x, half, i));
    for (; i < n; i++) y[i] += a * get_any(x, half, i);
}

static float largest(const float *x, int64_t n) {
    vec t = all(-INFINITY);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        vec a = load(x + i);
        t = choose(a > t, a, t);
    }
    float top = -INFINITY;
    for (int k = 0; k < 16; k++) top = t[k] > top ? t[k] : top;
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

static void softmax(float *y, const float *x, int64_t n) {
    float top = largest(x, n);
    vec s = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        vec e = exp_vec(load(x + i) - top);
        store(y + i, e);
        s += e;
    }
    float total = sum(s);
    if (i < n) {
        store_tail(y + i, exp_vec(load_tail(x + i, n - i) - top), n - i);
        for (int64_t k = i; k < n; k++) total += y[k];
    }
    for (i = 0; i + 16 <= n; i += 16) store(y + i, load(y + i) / total);
    for (; i < n; i++) y[i] /= total;
}

static void norm(const kern_rounded_norm *j) {
    float square = dot(j->x, j->x, false, j->n);
    float factor = 1 / sqrtf((j->sum ? square : square / (float)j->n) + j->eps);
    for (int64_t i = 0; i < j->n; i += 16) {
        int64_t n = j->n - i < 16 ? j->n - i : 16;
        vec y = (n == 16 ? load(j->x + i) : load_tail(j->x + i, n)) * factor;
        if (j->round_unit) y = to_half(y);
        if (j->scale != 1) y = y * j->scale;
        if (j->round_scaled) y = to_half(y);
        if (j->gamma) y = y * (n == 16 ? load(j->gamma + i) : load_tail(j->gamma + i, n));
        if (j->round_result) y = to_half(y);
        if (n == 16)
            store(j->y + i, y);
        else
            store_tail(j->y + i, y, n);
    }
}

/* ---- attention ---- */

#define HEADS 4 /* that share a load of a key or value */

/* Scores of one key for n heads, n <= HEADS. */
INLINE void score(float *s, int64_t ld, const float *q, int64_t q_head, const void *k, bool half,
                  int64_t depth, int n) {
    vec a[HEADS];
    for (int h = 0; h < n; h++) a[h] = (vec){0};
    int64_t i = 0;
    for (; i + 16 <= depth; i += 16) {
        vec key = load_any(k, half, i);
        for (int h = 0; h < n; h++) a[h] += load(q + h * q_head + i) * key;
    }
    for (int h = 0; h < n; h++) {
        float r = sum(a[h]);
        for (int64_t t = i; t < depth; t++) r += q[h * q_head + t] * get_any(k, half, t);
        s[h * ld] = r;
    }
}

INLINE void scores(float *s, int64_t ld, const kern_rounded_attention *j, const float *q, const char *k,
                   int64_t keys, bool half, int n) {
    int64_t step = j->k_row * (half ? 2 : 4);
    for (int64_t i = 0; i < keys; i++) score(s + i, ld, q, j->q_head, k + i * step, half, j->depth, n);
}

/* o = sum of p[key] v[key] over 32 columns (or fewer) for n heads. */
INLINE void gather(const kern_rounded_attention *j, const float *p, int64_t ld, const char *v, int64_t keys,
                   bool half, float *o, int64_t column, int n) {
    int64_t size = half ? 2 : 4, step = j->v_row * size, left = j->value_depth - column;
    v += column * size;
    if (left < 32) {
        for (int h = 0; h < n; h++) {
            float *y = o + h * j->o_head + column;
            memset(y, 0, (size_t)left * 4);
            for (int64_t i = 0; i < keys; i++) axpy(y, p[h * ld + i], v + i * step, half, left);
        }
        return;
    }
    vec a[HEADS][2];
    for (int h = 0; h < n; h++) a[h][0] = a[h][1] = (vec){0};
    for (int64_t i = 0; i < keys; i++) {
        vec x = load_any(v + i * step, half, 0), y = load_any(v + i * step, half, 16);
        for (int h = 0; h < n; h++) {
            float w = p[h * ld + i];
            a[h][0] += w * x;
            a[h][1] += w * y;
        }
    }
    for (int h = 0; h < n; h++) {
        store(o + h * j->o_head + column, a[h][0]);
        store(o + h * j->o_head + column + 16, a[h][1]);
    }
}

#define FOR_HEADS(n, half, call)                                                                             \
    do {                                                                                                     \
        if (half) switch (n) {                                                                               \
            case 1: call(true, 1); break;                                                                    \
            case 2: call(true, 2); break;                                                                    \
            case 3: call(true, 3); break;                                                                    \
            default: call(true, 4); break;                                                                   \
            }                                                                                                \
        else                                                                                                 \
            switch (n) {                                                                                     \
            case 1: call(false, 1); break;                                                                   \
            case 2: call(false, 2); break;                                                                   \
            case 3: call(false, 3); break;                                                                   \
            default: call(false, 4); break;                                                                  \
            }                                                                                                \
    } while (0)

/* One row of scores becomes one of weights. */
static void weigh(const kern_rounded_attention *j, float *s, const float *mask, int64_t keys) {
    if (j->round_product) round_row(s, keys);
    if (j->scale != 1)
        for (int64_t i = 0; i < keys; i++) s[i] *= j->scale;
    if (j->scale != 1 && j->round_scaled) round_row(s, keys);
    if (mask)
        for (int64_t i = 0; i < keys; i++) s[i] += mask[i];
    if (mask && j->round_masked) round_row(s, keys);
    softmax(s, s, keys);
    if (j->round_weight) round_row(s, keys);
}

static void attention(const kern_rounded_attention *j, int64_t lo, int64_t hi, void *scratch) {
    float *s = scratch;
    for (int64_t u = lo; u < hi; u++) {
        int64_t g = u / j->tokens, t = u % j->tokens, ld = (j->keys + 15) / 16 * 16;
        int64_t keys = j->visible ? j->visible[t * j->visible_step] : j->keys;
        const char *k = (const char *)j->k + g * j->k_group * (j->half_k ? 2 : 4);
        const char *v = (const char *)j->v + g * j->v_group * (j->half_v ? 2 : 4);
        const float *mask = j->mask ? j->mask + t * j->mask_token : NULL;
        for (int64_t h = 0; h < j->heads; h += HEADS) {
            int n = (int)(j->heads - h < HEADS ? j->heads - h : HEADS);
            const float *q = j->q + g * j->q_group + h * j->q_head + t * j->q_token;
            float *o = j->o + g * j->o_group + h * j->o_head + t * j->o_token;
#define CALL(half, count) scores(s, ld, j, q, k, keys, half, count)
            FOR_HEADS(n, j->half_k, CALL);
#undef CALL
            for (int i = 0; i < n; i++) weigh(j, s + i * ld, mask, keys);
            for (int64_t c = 0; c < j->value_depth; c += 32) {
#define CALL(half, count) gather(j, s, ld, v, keys, half, o, c, count)
                FOR_HEADS(n, j->half_v, CALL);
#undef CALL
            }
            for (int i = 0; i < n && j->round_result; i++) round_row(o + i * j->o_head, j->value_depth);
        }
    }
}

/* ---- the gated delta rule ---- */

static void delta(const kern_rounded_delta *j, float *scratch) {
    float *S = scratch, *recall = S + j->dk * j->dv, *error = recall + j->dv;
    int64_t dv = j->dv;
    memset(recall, 0, (size_t)dv * 4);
    for (int64_t i = 0; i < j->dk; i++) {
        float *row = S + i * dv;
        widen(row, j->state + i * dv, dv);
        if (j->low) /* value + remainder, a float */
            for (int64_t c = 0; c < dv; c++) row[c] += num_f16_f32(j->low[i * dv + c]);
        for (int64_t c = 0; c < dv; c++) row[c] *= j->decay;
        if (j->round) round_row(row, dv);
        axpy(recall, j->k[i], row, false, dv);
    }
    if (j->round) round_row(recall, dv);
    for (int64_t c = 0; c < dv; c++) error[c] = j->v[c] - recall[c];
    if (j->round) round_row(error, dv);
    memset(j->o, 0, (size_t)dv * 4);
    for (int64_t i = 0; i < j->dk; i++) {
        float *row = S + i * dv, write = j->k[i] * j->beta;
        if (j->round) write = num_round_f16(write);
        for (int64_t c = 0; c < dv; c++) {
            float change = write * error[c];
            row[c] += j->round ? num_round_f16(change) : change;
        }
        if (j->round) round_row(row, dv);
        axpy(j->o, j->q[i], row, false, dv);
        narrow(j->state + i * dv, row, dv);
        if (!j->low) continue;
        for (int64_t c = 0; c < dv; c++) row[c] -= num_f16_f32(j->state[i * dv + c]);
        narrow(j->low + i * dv, row, dv);
    }
    if (j->round) round_row(j->o, dv);
}

static const kern_rounded body = {
    .attention = attention,
    .norm = norm,
    .delta = delta,
    .function = function,
    .swiglu = swiglu,
    .softmax = softmax,
    .dot = dot,
    .axpy = axpy,
    .widen = widen,
    .narrow = narrow,
    .round = round_row,
};
