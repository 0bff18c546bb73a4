/* Symmetric integers with a scale per output channel, or per block of weights along the input axis. */
#include "base/num.h"
#include "base/parallel.h"
#include "quantize/job.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 65536 /* weights a thread takes at a time, rounded to whole scale groups */

/* Weights that share a scale. */
static uint64_t span(const quant_job *j) {
    return (uint64_t)(j->scheme.kind == QUANT_INT8_CHANNEL ? j->cols : j->scheme.group);
}

static float largest_of(const float *x, size_t n) {
    float part[8] = {0}, m = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 8; k++) part[k] = fabsf(x[i + k]) > part[k] ? fabsf(x[i + k]) : part[k];
    for (; i < n; i++) m = fabsf(x[i]) > m ? fabsf(x[i]) : m;
    for (size_t k = 0; k < 8; k++) m = part[k] > m ? part[k] : m;
    return m;
}

/* To the nearest integer, ties to even, for |x| < 2^22; unlike rintf() it needs no call and vectorises. */
static inline float nearest(float x) {
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

static inline float code_of(float x, float inverse, float low, float high) {
    float q = x * inverse;
    q = q < low ? low : q;
    return nearest(q > high ? high : q);
}

/* Eight partial sums: a fixed order that fills a vector. */
static float square_error(const float *x, size_t n, float scale, float low, float high) {
    float inverse = 1 / scale, part[8] = {0}, sum = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 8; k++) {
            float d = code_of(x[i + k], inverse, low, high) * scale - x[i + k];
            part[k] += d * d;
        }
    for (; i < n; i++) {
        float d = code_of(x[i], inverse, low, high) * scale - x[i];
        sum += d * d;
    }
    for (size_t k = 0; k < 8; k++) sum += part[k];
    return sum;
}

/* int4: 16 codes are few, so the scale with the least error is searched around absmax / 7. The domain is -8
 * .. 7; a negative scale turns it round, which makes a difference where absmax / scale is above 7. int8:
 * absmax / 127. A group of zeros gets scale 1. */
static uint16_t choose_scale(const quant_job *j, const float *x, size_t n) {
    float m = largest_of(x, n);
    if (!(m > 0) || !isfinite(m)) return num_f32_f16(1);
    if (j->scheme.bits == 8) {
        uint16_t s = num_f32_f16(m / 127);
        return s ? s : 1;
    }
    uint16_t best = 0;
    float least = INFINITY;
    for (int i = 0; i <= 8; i++)
        for (int sign = 1; sign >= (i > 4 ? -1 : 1); sign -= 2) {
            uint16_t s = num_f32_f16((float)sign * m / (6.0f + 0.25f * (float)i));
            float value = num_f16_f32(s), error = value == 0 ? INFINITY : square_error(x, n, value, -8, 7);
            if (error < least) least = error, best = s;
        }
    return best ? best : 1;
}

typedef struct {
    quant_job *j;
    uint64_t first, n, piece; /* weights; piece: whole scale groups */
    uint8_t *codes;           /* packed; NULL while only scales are made */
    uint16_t *scales;         /* of the scale groups from first on */
    quant_sum *sum;           /* of each piece */
    err error[PARALLEL_MAX];
    uint16_t *halves[PARALLEL_MAX];
    float *x[PARALLEL_MAX], *decoded[PARALLEL_MAX];
    uint8_t *q[PARALLEL_MAX];
} pass;

static void encode_group(const quant_job *j, const float *x, size_t n, float scale, uint8_t *q) {
    float high = j->scheme.bits == 8 ? 127 : 7, low = j->scheme.bits == 8 ? -127 : -8, inverse = 1 / scale;
    for (size_t i = 0; i < n; i++) q[i] = (uint8_t)(int8_t)code_of(x[i], inverse, low, high);
}

/* The values that the op makes of packed codes; its output is fp16. halves, q: scratch. */
static void decode(const quant_job *j, const uint8_t *packed, const uint16_t *scales, size_t n,
                   uint16_t *halves, uint8_t *q, float *out) {
    size_t size = (size_t)span(j);
    unsigned bits = j->scheme.bits;
    num_unpack(q, packed, 0, n, bits);
    for (size_t g = 0; g < n; g += size) {
        float scale = num_f16_f32(scales[g / size]);
        for (size_t i = g; i < g + size; i++)
            out[i] = scale * (float)((int8_t)(uint8_t)(q[i] << (8 - bits)) >> (8 - bits));
    }
    num_f32_to_f16(halves, out, n);
    num_f16_to_f32(out, halves, n);
}

static void piece_step(void *ctx, size_t i, unsigned thread) {
    pass *p = ctx;
    quant_job *j = p->j;
    uint64_t size = span(j), at = i * p->piece, n = p->n - at < p->piece ? p->n - at : p->piece;
    const uint16_t *h = quant_source(j, p->first + at, n, p->halves[thread], &p->error[thread]);
    if (!h) return;
    float *x = p->x[thread];
    uint16_t *scales = p->scales + at / size;
    num_f16_to_f32(x, h, (size_t)n);
    for (uint64_t g = 0; g < n; g += size) scales[g / size] = choose_scale(j, x + g, (size_t)size);
    if (!p->codes) return;
    uint8_t *q = p->q[thread], *out = p->codes + at * j->scheme.bits / 8;
    for (uint64_t g = 0; g < n; g += size)
        encode_group(j, x + g, (size_t)size, num_f16_f32(scales[g / size]), q + g);
    num_pack(out, q, (size_t)n, j->scheme.bits);
    decode(j, out, scales, (size_t)n, p->halves[thread], q, p->decoded[thread]);
    quant_measure(&p->sum[i], x, p->decoded[thread], (size_t)n);
}

/* Runs over weights [first, first + n), whole scale groups. */
static bool run_pass(pass *p, err *e) {
    uint64_t size = span(p->j);
    p->piece = (PIECE + size - 1) / size * size;
    size_t pieces = (size_t)((p->n + p->piece - 1) / p->piece);
    unsigned threads = p->j->threads ? p->j->threads : parallel_cpus();
    if (threads > PARALLEL_MAX) threads = PARALLEL_MAX;
    p->sum = mem_try(pieces, sizeof *p->sum);
    bool ok = p->sum != NULL;
    for (unsigned t = 0; t < threads; t++) {
        p->halves[t] = mem_try(p->piece, 2), p->q[t] = mem_try(p->piece, 1);
        p->x[t] = mem_try(p->piece, sizeof(float)), p->decoded[t] = mem_try(p->piece, sizeof(float));
        ok = ok && p->halves[t] && p->q[t] && p->x[t] && p->decoded[t];
    }
    if (ok)
        parallel_for(pieces, threads, piece_step, p);
    else
        err_set(e, ERR_MEMORY, "no memory to compress %s", p->j->result->name);
    for (unsigned t = 0; t < threads; t++) {
        if (ok && p->error[t].code) *e = p->error[t], ok = false;
        mem_free(p->halves[t]), mem_free(p->q[t]), mem_free(p->x[t]), mem_free(p->decoded[t]);
    }
    for (size_t i = 0; ok && p->codes && i < pieces; i++) quant_count(p->j, &p->sum[i]);
    mem_free(p->sum);
    return ok;
}

static bool fill_codes(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    quant_job *j = (quant_job *)ctx;
    quant_scales *s = j->scales;
    uint64_t size = span(j);
    quant_begin(j, first);
    if (!s->scale) s->scale = arena_array(j->a, s->most, sizeof *s->scale);
    if (!first || s->owner != j) s->owner = j, s->n = 0;
    pass p = {.j = j, .first = first, .n = n, .codes = dst, .scales = s->scale + first / size};
    if (!run_pass(&p, e)) return false;
    if (s->n == first / size) s->n += n / size;
    return true;
}

static bool fill_scales(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    quant_job *j = (quant_job *)ctx;
    if (j->scales->owner == j && first + n <= j->scales->n) {
        memcpy(dst, j->scales->scale + first, n * sizeof(uint16_t));
        return true;
    }
    pass p = {.j = j, .first = first * span(j), .n = n * span(j), .scales = dst}; /* before the codes */
    return run_pass(&p, e);
}

const ir_const *affine_codes(quant_job *j) {
    ir_dtype d = j->scheme.bits == 8 ? DT_INT8 : DT_INT4;
    ir_const *c = ir_const_fill(j->a, IR_TYPE(d, j->rows, j->cols), fill_codes, j);
    c->fill_unit = span(j);
    return c;
}

const ir_const *affine_scales(quant_job *j) {
    return ir_const_fill(j->a, IR_TYPE(DT_FP16, j->rows, j->cols / (int64_t)span(j)), fill_scales, j);
}
