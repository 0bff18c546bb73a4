/* EXACT kernels of linear layers, in the words of a lanes_*.h and of the file that includes this:
 *     lut, lut_open()   the table of a palette's row
 *     floats64()        64 elements of a row; SLACK: bytes that it may read behind those of a palette
 *     tree()            the sum of 16 lanes
 * Lane l of 16 adds the products of elements l, l + 16, .. by fused multiply-adds, then tree(). */
#ifndef KERNELS_BODY_EXACT_H
#define KERNELS_BODY_EXACT_H
#include "kernels/linear.h"

#define ROWS  2            /* of w, far apart, against one row of x */
#define PARTS (16 / LANES) /* vectors of the 16 lanes */

/* The factor of row r that is left for its sum. */
INLINE float scale_of(const kern_weight *w, int64_t r, int kind) {
    return kind == CHANNEL8 && !w->rounded ? kern_at(w->scale, w->scale_type, r) : 1;
}

/* As floats64(), where whole vectors would reach behind the row or the data; zeros behind the row. */
static void floats_end(const kern_weight *w, int64_t r, int64_t c, int kind, float out[64]) {
    int64_t n = w->cols - c < 64 ? w->cols - c : 64;
    memset(out, 0, 64 * sizeof *out);
    if (kind == CHANNEL8 && !w->rounded)
        for (int64_t i = 0; i < n; i++) out[i] = ((const int8_t *)w->data)[r * w->cols + c + i];
    else
        kern_decode(w, r, c, n, out);
}

INLINE bool is_inside(const kern_weight *w, int64_t r, int64_t c, int kind) {
    if (c + 64 > w->cols) return false;
    return kind < TINY || kind == WIDE || ((w->rows - r) * w->cols - c) * w->bits / 8 >= 8 * w->bits + SLACK;
}

INLINE vec load_first(const float *x, int64_t n) {
    return n >= LANES ? v_load(x) : n > 0 ? v_load_n(x, n) : v_all(0);
}

/* Rows r, r + apart, .. against one row of x. */
INLINE void gemv(const kern_linear *job, const lut *t, int64_t r, int64_t apart, int rows, int kind) {
    const kern_weight *w = job->w;
    const float *x = job->x;
    vec f[ROWS][PARTS], v[4 * PARTS];
    EACH (k, rows)
        EACH (j, PARTS) f[k][j] = v_all(0);
    for (int64_t c = 0; c < w->cols; c += 64)
        EACH (k, rows) {
            if (is_inside(w, r + k * apart, c, kind)) {
                floats64(w, t + k, r + k * apart, c, kind, v);
                EACH (j, 4 * PARTS) f[k][j % PARTS] = v_fma(v_load(x + c + LANES * j), v[j], f[k][j % PARTS]);
            } else {
                float end[64];
                floats_end(w, r + k * apart, c, kind, end);
                for (int j = 0; j < 4 * PARTS; j++)
                    f[k][j % PARTS] = v_fma(load_first(x + c + LANES * j, w->cols - c - LANES * j),
                                            v_load(end + LANES * j), f[k][j % PARTS]);
            }
        }
    EACH (k, rows) {
        float y = tree(f[k]);
        kern_store(job, 0, r + k * apart, kind == CHANNEL8 ? y * scale_of(w, r + k * apart, kind) : y);
    }
}

/* A decoded row of w against rows of x from i0 on. */
INLINE void tile(const kern_linear *job, const float *v, int64_t r, int64_t i0, int n, int kind) {
    const kern_weight *w = job->w;
    const float *x = (const float *)job->x + i0 * job->ldx;
    vec f[BATCH][PARTS];
    int64_t c = 0;
    EACH (i, n)
        EACH (j, PARTS) f[i][j] = v_all(0);
    for (; c + 16 <= w->cols; c += 16)
        EACH (j, PARTS) {
            vec wv = v_load(v + c + LANES * j);
            EACH (i, n) f[i][j] = v_fma(v_load(x + i * job->ldx + c + LANES * j), wv, f[i][j]);
        }
    if (c < w->cols)
        EACH (j, PARTS)
            EACH (i, n)
                f[i][j] = v_fma(load_first(x + i * job->ldx + c + LANES * j, w->cols - c - LANES * j),
                                v_load(v + c + LANES * j), f[i][j]);
    EACH (i, n) {
        float y = tree(f[i]);
        kern_store(job, i0 + i, r, kind == CHANNEL8 ? y * scale_of(w, r, kind) : y);
    }
}

INLINE void decode_row(const kern_weight *w, const lut *t, int64_t r, int kind, float *out) {
    vec v[4 * PARTS];
    for (int64_t c = 0; c < w->cols; c += 64)
        if (is_inside(w, r, c, kind)) {
            floats64(w, t, r, c, kind, v);
            EACH (j, 4 * PARTS) v_store(out + c + LANES * j, v[j]);
        } else {
            floats_end(w, r, c, kind, out + c);
        }
}

INLINE void open_table(lut *t, const kern_weight *w, int64_t r, bool first, int kind) {
    if (kind >= TINY && (first || r % w->block_rows == 0)) lut_open(t, w, r, false);
}

INLINE void exact(const kern_linear *job, int64_t lo, int64_t hi, int kind) {
    int64_t apart = job->n == 1 ? (hi - lo) / ROWS : 0, r = lo;
    lut t[ROWS];
    for (; r < lo + apart; r++) {
        for (int k = 0; k < ROWS; k++) open_table(&t[k], job->w, r + k * apart, r == lo, kind);
        gemv(job, t, r, apart, ROWS, kind);
    }
    for (int64_t first = r = lo + ROWS * apart; r < hi; r++) {
        open_table(t, job->w, r, r == first, kind);
        if (job->n == 1) {
            gemv(job, t, r, 0, 1, kind);
            continue;
        }
        int64_t i = 0;
        decode_row(job->w, t, r, kind, job->scratch);
        for (; i + BATCH <= job->n; i += BATCH) tile(job, job->scratch, r, i, BATCH, kind);
        for (; i < job->n; i++) tile(job, job->scratch, r, i, 1, kind);
    }
}

#define KERNEL(name, kind)                                                                                   \
    static void name(const kern_linear *job, int64_t lo, int64_t hi) {                                       \
        exact(job, lo, hi, kind);                                                                            \
    }
KERNEL(exact_f32, F32)
KERNEL(exact_f16, F16)
KERNEL(exact_channel8, CHANNEL8)
KERNEL(exact_block8, BLOCK8)
KERNEL(exact_block4, BLOCK4)
KERNEL(exact_tiny, TINY)
KERNEL(exact_narrow, NARROW)
KERNEL(exact_wide, WIDE)

static void exact_palette(const kern_linear *job, int64_t lo, int64_t hi) {
    if (job->w->bits <= 4)
        exact_tiny(job, lo, hi);
    else if (job->w->bits <= 6)
        exact_narrow(job, lo, hi);
    else
        exact_wide(job, lo, hi);
}

static void exact_fill(kern_table *t) {
    static kern_linear_fn *const fn[KERN_W_KINDS] = {
        [KERN_W_F32] = exact_f32,          [KERN_W_F16] = exact_f16,       [KERN_W_CHANNEL8] = exact_channel8,
        [KERN_W_BLOCK8] = exact_block8,    [KERN_W_BLOCK4] = exact_block4, [KERN_W_PALETTE] = exact_palette,
        [KERN_W_PALETTE4] = exact_palette,
    };
    for (int kind = 0; kind < KERN_W_KINDS; kind++)
        if (fn[kind]) t->linear[KERN_EXACT][kind] = fn[kind], t->scratch[KERN_EXACT][kind] = 4;
}
#endif
