#include "reference/gemm.h"
#include <string.h>

#define WIDTH 16  /* outputs at once */
#define DEPTH 256 /* of k per panel: a panel stays in the first-level cache */

typedef float quad __attribute__((vector_size(16)));
typedef uint32_t bits __attribute__((vector_size(16)));
typedef int32_t ints __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))

INLINE quad load(const void *p) {
    quad q;
    memcpy(&q, p, sizeof q);
    return q;
}

INLINE void store(float *p, quad q) {
    memcpy(p, &q, sizeof q);
}

/* As num_f16_f32(), four at once; w holds each half in its upper 16 bits. */
INLINE quad widen(bits w) {
    bits a = w & 0x7FFFFFFFu, sign = w ^ a;
    quad normal = (quad)((a >> 3) + (0xE0u << 23)) * 0x1p-112f;
    quad subnormal = (quad)((a >> 16) | (126u << 23)) - 0.5f;
    bits small = (bits)((ints)a < 0x04000000);
    return (quad)(((bits)subnormal & small) | ((bits)normal & ~small) | sign);
}

/* Elements p[0..8) of a row as fp32. */
INLINE void load8(const char *p, bool half, quad *lo, quad *hi) {
    if (!half) {
        *lo = load(p);
        *hi = load(p + 16);
        return;
    }
    halves h, zero = {0};
    memcpy(&h, p, sizeof h);
    *lo = widen((bits)__builtin_shufflevector(zero, h, 0, 8, 1, 9, 2, 10, 3, 11));
    *hi = widen((bits)__builtin_shufflevector(zero, h, 4, 12, 5, 13, 6, 14, 7, 15));
}

INLINE void transpose(quad q[4]) {
    quad ab0 = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5);
    quad ab1 = __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7);
    quad cd0 = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5);
    quad cd1 = __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7);
    q[0] = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
    q[1] = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
    q[2] = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
    q[3] = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

/* Elements k .. k+7 of four rows: lo[j] holds element k + j of the rows, hi[j] element k + 4 + j. */
INLINE void load_block(const char *w, int64_t row_bytes, bool half, quad lo[4], quad hi[4]) {
    for (int r = 0; r < 4; r++) load8(w + r * row_bytes, half, &lo[r], &hi[r]);
    transpose(lo);
    transpose(hi);
}

static float element(const char *w, bool half, int64_t i) {
    float f = 0;
    uint16_t h;
    if (!half) {
        memcpy(&f, w + 4 * i, 4);
        return f;
    }
    memcpy(&h, w + 2 * i, 2);
    quad q = widen((bits){(uint32_t)h << 16});
    return q[0];
}

/* s plus eight products: one after another, or, as a block, first among themselves. */
INLINE quad add8(quad s, const float *x, const quad lo[4], const quad hi[4], bool block) {
    quad a = block ? x[0] * lo[0] : s + x[0] * lo[0];
    for (int j = 1; j < 4; j++) a += x[j] * lo[j];
    quad b = block ? x[4] * hi[0] : a + x[4] * hi[0];
    for (int j = 1; j < 4; j++) b += x[4 + j] * hi[j];
    return block ? s + (a + b) : b;
}

/* y[0..16) = 16 rows of w times x: one row of a needs no panel. */
INLINE void rows16(float *y, const float *x, const char *w, int64_t k, bool half, bool blocks) {
    int64_t size = half ? 2 : 4, row = k * size, i = 0;
    quad s[4] = {0}, lo[4], hi[4];
    for (; i + 8 <= k; i += 8)
        for (int g = 0; g < 4; g++) {
            load_block(w + 4 * g * row + i * size, row, half, lo, hi);
            s[g] = add8(s[g], x + i, lo, hi, blocks);
        }
    for (int g = 0; g < 4; g++) store(y + 4 * g, s[g]);
    for (; i < k; i++)
        for (int r = 0; r < WIDTH; r++) y[r] += x[i] * element(w + r * row, half, i);
}

/* panel[i][r] = element k0 + i of row r, for n <= 16 rows. */
INLINE void pack_rows(float *panel, const char *w, int64_t n, int64_t k, int64_t k0, int64_t kb, bool half) {
    int64_t size = half ? 2 : 4, row = k * size, i = 0;
    quad lo[4], hi[4];
    w += k0 * size;
    for (; n == WIDTH && i + 8 <= kb; i += 8)
        for (int g = 0; g < 4; g++) {
            load_block(w + 4 * g * row + i * size, row, half, lo, hi);
            for (int j = 0; j < 4; j++) store(panel + (i + j) * WIDTH + 4 * g, lo[j]);
            for (int j = 0; j < 4; j++) store(panel + (i + 4 + j) * WIDTH + 4 * g, hi[j]);
        }
    for (; i < kb; i++)
        for (int64_t r = 0; r < WIDTH; r++) panel[i * WIDTH + r] = r < n ? element(w + r * row, half, i) : 0;
}

static void pack_columns(float *panel, const float *w, int64_t n, int64_t ld, int64_t kb) {
    for (int64_t i = 0; i < kb; i++)
        for (int64_t r = 0; r < WIDTH; r++) panel[i * WIDTH + r] = r < n ? w[i * ld + r] : 0;
}

/* c[0..rows)[0..16) += a[0..rows)[0..k) * p[0..k)[0..16), for 1 or 2 rows. */
INLINE void tile(float *c, int64_t ldc, const float *a, int64_t lda, const float *p, int64_t ldp, int64_t k,
                 int rows) {
    quad s[2][4];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < 4; j++) s[r][j] = load(c + r * ldc + 4 * j);
    for (int64_t i = 0; i < k; i++)
        for (int j = 0; j < 4; j++) {
            quad b = load(p + i * ldp + 4 * j);
            for (int r = 0; r < rows; r++) s[r][j] += a[r * lda + i] * b;
        }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < 4; j++) store(c + r * ldc + 4 * j, s[r][j]);
}

static void tile1(float *c, const float *a, const float *p, int64_t ldp, int64_t k) {
    tile(c, 0, a, 0, p, ldp, k, 1);
}

static void tile2(float *c, int64_t ldc, const float *a, int64_t lda, const float *p, int64_t ldp,
                  int64_t k) {
    tile(c, ldc, a, lda, p, ldp, k, 2);
}

/* One panel against all rows of a. Narrow panels (n < 16) go through a copy of the outputs. */
static void panel_rows(float *c, int64_t ldc, const float *a, int64_t lda, int64_t m, const float *p,
                       int64_t ldp, int64_t k, int64_t n) {
    if (n == WIDTH) {
        int64_t i = 0;
        for (; i + 2 <= m; i += 2) tile2(c + i * ldc, ldc, a + i * lda, lda, p, ldp, k);
        if (i < m) tile1(c + i * ldc, a + i * lda, p, ldp, k);
        return;
    }
    for (int64_t i = 0; i < m; i++) {
        float part[WIDTH] = {0};
        memcpy(part, c + i * ldc, (size_t)n * 4);
        tile1(part, a + i * lda, p, ldp, k);
        memcpy(c + i * ldc, part, (size_t)n * 4);
    }
}

/* Outputs n0 .. n0 + n for all rows of a, in panels of k. */
static void columns(float *c, const float *a, int64_t m, const ref_matrix *b, int64_t n0, int64_t n) {
    float panel[WIDTH * DEPTH];
    const char *w = b->data;
    for (int64_t k0 = 0; k0 < b->k; k0 += DEPTH) {
        int64_t kb = b->k - k0 < DEPTH ? b->k - k0 : DEPTH, ldp = WIDTH;
        const float *p = panel, *cells = (const float *)(const void *)w + k0 * b->n + n0;
        if (b->by_output && b->half)
            pack_rows(panel, w + n0 * b->k * 2, n, b->k, k0, kb, true);
        else if (b->by_output)
            pack_rows(panel, w + n0 * b->k * 4, n, b->k, k0, kb, false);
        else if (n == WIDTH)
            p = cells, ldp = b->n;
        else
            pack_columns(panel, cells, n, b->n, kb);
        panel_rows(c + n0, b->n, a + k0, b->k, m, p, ldp, kb, n);
    }
}

void ref_gemm(float *c, const float *a, int64_t m, const ref_matrix *b) {
    memset(c, 0, (size_t)(m * b->n) * 4);
    for (int64_t n0 = 0; n0 < b->n; n0 += WIDTH) {
        int64_t n = b->n - n0 < WIDTH ? b->n - n0 : WIDTH;
        const char *w = b->data;
        if (m == 1 && n == WIDTH && b->by_output && b->half)
            b->blocks ? rows16(c + n0, a, w + n0 * b->k * 2, b->k, true, true)
                      : rows16(c + n0, a, w + n0 * b->k * 2, b->k, true, false);
        else if (m == 1 && n == WIDTH && b->by_output)
            b->blocks ? rows16(c + n0, a, w + n0 * b->k * 4, b->k, false, true)
                      : rows16(c + n0, a, w + n0 * b->k * 4, b->k, false, false);
        else
            columns(c, a, m, b, n0, n);
    }
}

bool ref_weight(ref_matrix *b, const ref_tensor *t, int64_t k, int64_t n) {
    *b = (ref_matrix){.data = t->cell, .by_output = true, .k = k, .n = n};
    if (t->cell) return true;
    b->data = t->konst->data;
    b->half = t->type.dtype == DT_FP16;
    return b->half || t->type.dtype == DT_FP32;
}
