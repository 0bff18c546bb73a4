#include "models/weights.h"
#include "base/file.h"
#include "base/num.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 4096 };      /* elements converted at a time, on the stack */
enum { SCANNED = 4 << 20 }; /* elements whose pages are dropped together */

typedef struct {
    const uint8_t *data;
    ir_dtype from, to;
    weight_fold fold;
} job;

bool weight_readable(ir_dtype d) {
    return d == DT_FP32 || d == DT_FP16 || d == DT_BF16;
}

static void fold_values(float *x, size_t n, weight_fold fold) {
    if (fold == FOLD_ADD_ONE)
        for (size_t i = 0; i < n; i++) x[i] = 1 + x[i];
    if (fold == FOLD_NEG_EXP)
        for (size_t i = 0; i < n; i++) x[i] = (float)-exp((double)x[i]);
}

static void load(float *x, const job *j, uint64_t first, size_t n) {
    const uint8_t *p = j->data + first * (dtype_bits(j->from) / 8);
    if (j->from == DT_FP16)
        num_f16_to_f32(x, p, n);
    else if (j->from == DT_BF16)
        num_bf16_to_f32(x, p, n);
    else
        memcpy(x, p, n * sizeof *x);
    fold_values(x, n, j->fold);
}

static bool fill(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    (void)e;
    const job *j = ctx;
    unsigned size = dtype_bits(j->to) / 8;
    float x[BLOCK];
    for (uint64_t i = 0; i < n; i += BLOCK) {
        size_t m = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
        load(x, j, first + i, m);
        uint8_t *to = (uint8_t *)dst + i * size;
        if (j->to == DT_FP16)
            num_f32_to_f16(to, x, m);
        else
            memcpy(to, x, m * sizeof *x);
    }
    unsigned width = dtype_bits(j->from) / 8;
    file_drop(j->data + first * width, n * width);
    return true;
}

/* The same as below on bf16 bits: rounding to bf16 left nothing between 65280 and 65536. */
static void scan_bf16(weight_range *r, const uint8_t *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i += BLOCK, p += 2 * (size_t)BLOCK) {
        size_t m = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
        uint16_t over = 0, under = 0, bad = 0; /* at most BLOCK each */
        for (size_t k = 0; k < m; k++) {
            uint16_t u;
            memcpy(&u, p + 2 * k, 2);
            u &= 0x7FFF;
            bad = (uint16_t)(bad + (u >= 0x7F80));
            over = (uint16_t)(over + (u >= 0x4780));
            under = (uint16_t)(under + ((uint16_t)(u - 1) < 0x3300));
        }
        r->overflow += (uint64_t)(over - bad);
        r->vanish += under;
        r->not_finite += bad;
    }
}

static void scan_values(weight_range *r, const job *j, uint64_t first, uint64_t n) {
    float x[BLOCK];
    for (uint64_t i = 0; i < n; i += BLOCK) {
        size_t m = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
        load(x, j, first + i, m);
        uint32_t over = 0, under = 0, bad = 0;
        for (size_t k = 0; k < m; k++) {
            uint32_t u = num_f32_bits(x[k]) & 0x7FFFFFFFu;
            bad += u >= 0x7F800000u;
            over += u >= 0x477FF000u;     /* 65520, half way to 65536 */
            under += u - 1 < 0x33000000u; /* above 0 and at most 2^-25, half of the smallest fp16 */
        }
        r->overflow += over - bad;
        r->vanish += under;
        r->not_finite += bad;
    }
}

weight_range weight_scan(const st_tensor *t, weight_fold fold) {
    job j = {.data = t->data, .from = t->type.dtype, .fold = fold};
    uint64_t n = (uint64_t)ir_type_count(&t->type), width = dtype_bits(j.from) / 8;
    weight_range r = {0};
    for (uint64_t at = 0; at < n; at += SCANNED) {
        uint64_t m = n - at < SCANNED ? n - at : SCANNED;
        if (j.from == DT_BF16 && fold == FOLD_NONE)
            scan_bf16(&r, j.data + at * width, m);
        else
            scan_values(&r, &j, at, m);
        file_drop(j.data + at * width, (size_t)(m * width));
    }
    return r;
}

const ir_const *weight_const(arena *a, const st_tensor *t, weight_fold fold, int64_t row, ir_type shape) {
    ir_type rest = t->type;
    if (rest.rank) rest.dim[0] = row;
    const uint8_t *data = (const uint8_t *)t->data + (row ? ir_type_bytes(&rest) : 0);
    if (t->type.dtype == shape.dtype && fold == FOLD_NONE) {
        ir_const *c = ir_const_new(a, shape, data);
        c->in_blob = true;
        return c;
    }
    job *j = ARENA_NEW(a, job);
    *j = (job){data, t->type.dtype, shape.dtype, fold};
    return ir_const_fill(a, shape, fill, j);
}

bool weight_equal(const st_tensor *a, const st_tensor *b) {
    return ir_type_equal(&a->type, &b->type) && !memcmp(a->data, b->data, (size_t)ir_type_bytes(&a->type));
}
