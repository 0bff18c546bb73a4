#include "reference/gemm.h"
#include <string.h>

#define WIDTH 16  /* outputs at once */
#define DEPTH 256 /* of k per panel: panel and source rows stay in the first-level cache */

typedef float wide __attribute__((vector_size(WIDTH * 4)));
typedef float quad __attribute__((vector_size(16)));

/* Not functions: passing wide values would depend on the instruction set. */
#define LOAD(w, p)  memcpy(&(w), p, sizeof(w))
#define STORE(p, w) memcpy(p, &(w), sizeof(w))

/* c[m][0..16) += a[m][0..k) * p[k][0..16), for 2 rows. */
static void tile2(float *c, int64_t ldc, const float *a, int64_t lda, const float *p, int64_t ldp,
                  int64_t k) {
    wide s0, s1, b;
    LOAD(s0, c);
    LOAD(s1, c + ldc);
    for (int64_t i = 0; i < k; i++) {
        LOAD(b, p + i * ldp);
        s0 += a[i] * b;
        s1 += a[lda + i] * b;
    }
    STORE(c, s0);
    STORE(c + ldc, s1);
}

static void tile1(float *c, const float *a, const float *p, int64_t ldp, int64_t k) {
    wide s, b;
    LOAD(s, c);
    for (int64_t i = 0; i < k; i++) {
        LOAD(b, p + i * ldp);
        s += a[i] * b;
    }
    STORE(c, s);
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

/* out[0..4)[0..4) (rows 16 apart) = the transpose of in[0..4)[0..4) (rows ldi apart) */
static inline void transpose4(float *out, const float *in, int64_t ldi) {
    quad a, b, c, d;
    memcpy(&a, in, 16);
    memcpy(&b, in + ldi, 16);
    memcpy(&c, in + 2 * ldi, 16);
    memcpy(&d, in + 3 * ldi, 16);
    quad ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    quad cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    quad r0 = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5),
         r1 = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
    quad r2 = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5),
         r3 = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
    memcpy(out, &r0, 16);
    memcpy(out + WIDTH, &r1, 16);
    memcpy(out + 2 * WIDTH, &r2, 16);
    memcpy(out + 3 * WIDTH, &r3, 16);
}

/* panel[k][r] = row r of b, elements [k0, k0 + kb), for n rows from n0. */
static void pack_rows(float *panel, const ref_matrix *b, int64_t n0, int64_t n, int64_t k0, int64_t kb) {
    float rows[WIDTH * DEPTH];
    const float *in = rows;
    int64_t ld = DEPTH;
    if (b->cell) {
        in = b->cell + b->first + n0 * b->k + k0;
        ld = b->k;
    } else {
        for (int64_t r = 0; r < n; r++) ref_read(b->t, b->first + (n0 + r) * b->k + k0, kb, rows + r * DEPTH);
    }
    int64_t k4 = n == WIDTH ? kb / 4 * 4 : 0;
    for (int64_t k = 0; k < k4; k += 4)
        for (int r = 0; r < WIDTH; r += 4) transpose4(panel + k * WIDTH + r, in + r * ld + k, ld);
    for (int64_t k = k4; k < kb; k++)
        for (int64_t r = 0; r < WIDTH; r++) panel[k * WIDTH + r] = r < n ? in[r * ld + k] : 0;
}

static void pack_columns(float *panel, const ref_matrix *b, int64_t n0, int64_t n, int64_t k0, int64_t kb) {
    for (int64_t k = 0; k < kb; k++) {
        float *p = panel + k * WIDTH;
        int64_t at = b->first + (k0 + k) * b->n + n0;
        if (b->cell)
            memcpy(p, b->cell + at, (size_t)n * 4);
        else
            ref_read(b->t, at, n, p);
        for (int64_t r = n; r < WIDTH; r++) p[r] = 0;
    }
}

void ref_gemm(float *c, const float *a, int64_t m, const ref_matrix *b) {
    float panel[WIDTH * DEPTH];
    memset(c, 0, (size_t)(m * b->n) * 4);
    for (int64_t n0 = 0; n0 < b->n; n0 += WIDTH) {
        int64_t n = b->n - n0 < WIDTH ? b->n - n0 : WIDTH;
        for (int64_t k0 = 0; k0 < b->k; k0 += DEPTH) {
            int64_t kb = b->k - k0 < DEPTH ? b->k - k0 : DEPTH, ldp = WIDTH;
            const float *p = panel;
            if (b->by_output)
                pack_rows(panel, b, n0, n, k0, kb);
            else if (b->cell && n == WIDTH)
                p = b->cell + b->first + k0 * b->n + n0, ldp = b->n;
            else
                pack_columns(panel, b, n0, n, k0, kb);
            panel_rows(c + n0, b->n, a + k0, b->k, m, p, ldp, kb, n);
        }
    }
}
