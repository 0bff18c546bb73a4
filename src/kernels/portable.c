/* Every kernel in plain C: what a processor without an overlay runs, and what the overlays are compared with.
 */
#include "kernels/overlay.h"
#include "kernels/weight.h"
#include "kernels/x16.h"
#include "kernels/x8.h"

#define LANES 16
#define ROWS  16 /* of x that share one decoded chunk of w */

static void decode_palette(const kern_weight *w, int64_t r, int64_t c, int64_t n, float *out) {
    int64_t first = kern_row_block(w, r), at = r * w->cols + c;
    uint8_t code[256];
    for (int64_t i = 0; i < n; i++) {
        if (i % 256 == 0)
            num_unpack(code, w->data, (size_t)(at + i), (size_t)(n - i < 256 ? n - i : 256), w->bits);
        int64_t block = first + (c + i) / w->block_cols;
        out[i] = kern_at(w->table, w->table_type, (block << w->bits) + code[i % 256]);
    }
}

static void decode_scaled(const kern_weight *w, int64_t r, int64_t c, int64_t n, float *out) {
    int64_t block = kern_row_block(w, r) + c / w->block_cols, left = w->block_cols - c % w->block_cols;
    for (int64_t i = 0; i < n; block++, left = w->block_cols) {
        float scale = w->scale ? kern_at(w->scale, w->scale_type, block) : 1;
        float offset = w->offset ? kern_at(w->offset, w->offset_type, block) : 0;
        for (; left && i < n; i++, left--)
            out[i] = scale * (kern_at(w->data, w->type, r * w->cols + c + i) - offset);
    }
    if (w->rounded) num_round_f16_all(out, (size_t)n);
}

void kern_decode(const kern_weight *w, int64_t r, int64_t c, int64_t n, float *out) {
    if (w->bits)
        decode_palette(w, r, c, n, out);
    else
        decode_scaled(w, r, c, n, out);
}

/* Lane l of 16 adds the products of elements l, l + 16, ... in order. */
static void exact_any(const kern_linear *job, int64_t lo, int64_t hi) {
    const kern_weight *w = job->w;
    const float *x = job->x;
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i0 = 0; i0 < job->n; i0 += ROWS) {
            int64_t n = job->n - i0 < ROWS ? job->n - i0 : ROWS;
            float f[ROWS][LANES] = {{0}}, part[256];
            for (int64_t c = 0; c < w->cols; c += 256) {
                int64_t k = w->cols - c < 256 ? w->cols - c : 256;
                kern_decode(w, r, c, k, part);
                for (int64_t i = 0; i < n; i++) {
                    const float *xi = x + (i0 + i) * job->ldx + c;
                    int64_t j = 0;
                    for (; j + LANES <= k; j += LANES)
                        for (int l = 0; l < LANES; l++) f[i][l] += xi[j + l] * part[j + l];
                    for (int l = 0; j + l < k; l++) f[i][l] += xi[j + l] * part[j + l];
                }
            }
            for (int64_t i = 0; i < n; i++) kern_store(job, i0 + i, r, x16_tree(f[i]));
        }
}

/* ---- 16-bit fixed point: see x16.h ---- */

static void prepare_chunk(const float *x, int64_t n, float *scale, int32_t *sum, int16_t *q) {
    uint32_t largest = 0;
    float inverse;
    for (int64_t i = 0; i < n; i++) {
        uint32_t a = num_f32_bits(x[i]) & 0x7FFFFFFFu;
        largest = a > largest ? a : largest;
    }
    scale[0] = scale[1] = x16_scale(largest, &inverse);
    sum[0] = sum[1] = 0;
    for (int64_t i = 0; i < X16_CHUNK; i++) {
        q[i] = i < n && inverse > 0 ? (int16_t)(int)((x[i] * inverse + 0x1.8p23f) - 0x1.8p23f) : (int16_t)0;
        sum[i / X16_BLOCK] += q[i];
    }
}

static void prepare_words(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    int64_t blocks = x16_padded(cols) / X16_BLOCK;
    for (int64_t i = lo; i < hi; i++) {
        char *p = (char *)dst + (size_t)i * x16_stride(cols);
        float *scale = (float *)(void *)p;
        int32_t *sum = (int32_t *)(void *)(p + 4 * blocks);
        int16_t *q = (int16_t *)(void *)(p + 8 * blocks);
        for (int64_t b = 0; b < blocks; b += 2) {
            int64_t n = cols - b * X16_BLOCK;
            n = n < 0 ? 0 : n > X16_CHUNK ? X16_CHUNK : n;
            prepare_chunk(x + i * ldx + (n ? b * X16_BLOCK : 0), n, scale + b, sum + b, q + b * X16_BLOCK);
        }
    }
}

/* four: lane l takes 4l .. 4l+3. */
static void add_lanes(float f[LANES], const int16_t *w, const int16_t *x, float scale, bool four) {
    for (int l = 0; l < LANES; l++) {
        int a = four ? 4 * l : 2 * l, b = four ? a + 2 : a + 32;
        int32_t s = w[a] * x[a] + w[a + 1] * x[a + 1];
        s += w[b] * x[b] + w[b + 1] * x[b + 1];
        f[l] += (float)s * scale;
    }
}

static void int16_lanes(const kern_linear *job, int64_t lo, int64_t hi) {
    const kern_weight *w = job->w;
    int16_t table[256], q[X16_CHUNK];
    for (int64_t r = lo; r < hi; r++) {
        float scale;
        if (w->bits)
            x16_table(table, &scale, kern_table_of(w, r), 1 << w->bits);
        else
            scale = kern_at(w->scale, w->scale_type, r);
        for (int64_t i0 = 0; i0 < job->n; i0 += ROWS) {
            int64_t n = job->n - i0 < ROWS ? job->n - i0 : ROWS;
            float f[ROWS][LANES] = {{0}};
            for (int64_t c = 0; c < w->cols; c += X16_CHUNK) {
                x16_integers(w, w->bits ? table : NULL, r, c,
                             w->cols - c < X16_CHUNK ? w->cols - c : X16_CHUNK, q);
                for (int64_t i = 0; i < n; i++) {
                    x16_row x = x16_row_of(job, i0 + i);
                    add_lanes(f[i], q, x.value + c, x.scale[c / X16_BLOCK], w->bits == 4);
                }
            }
            for (int64_t i = 0; i < n; i++) kern_store(job, i0 + i, r, x16_tree(f[i]) * scale);
        }
    }
}

static void int16_blocks(const kern_linear *job, int64_t lo, int64_t hi) {
    const kern_weight *w = job->w;
    int64_t blocks = w->cols / X16_BLOCK;
    int16_t q[X16_CHUNK];
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i0 = 0; i0 < job->n; i0 += ROWS) {
            int64_t n = job->n - i0 < ROWS ? job->n - i0 : ROWS;
            float f[ROWS][LANES] = {{0}};
            for (int64_t b = 0; b < blocks; b++) {
                x16_integers(w, NULL, r, b * X16_BLOCK, X16_BLOCK, q);
                float scale = kern_half_at(w->scale, r * blocks + b);
                for (int64_t i = 0; i < n; i++) {
                    x16_row x = x16_row_of(job, i0 + i);
                    int32_t s = 0;
                    for (int j = 0; j < X16_BLOCK; j++) s += q[j] * x.value[b * X16_BLOCK + j];
                    f[i][b % LANES] += (float)s * (scale * x.scale[b]);
                }
            }
            for (int64_t i = 0; i < n; i++) kern_store(job, i0 + i, r, x16_tree(f[i]));
        }
}

/* ---- 8-bit fixed point: see x8.h ---- */

void x8_prepare(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; i++) {
        float *scale = (float *)(void *)((char *)dst + (size_t)(i / 16) * x8_group(cols));
        int8_t *tile = (int8_t *)scale + x8_chunks(cols) * 64;
        const float *row = x + i * ldx;
        for (int64_t c = 0; c < cols; c += X8_CHUNK) {
            int64_t n = cols - c < X8_CHUNK ? cols - c : X8_CHUNK;
            uint32_t largest = 0;
            float inverse;
            for (int64_t j = 0; j < n; j++) {
                uint32_t a = num_f32_bits(row[c + j]) & 0x7FFFFFFFu;
                largest = a > largest ? a : largest;
            }
            scale[c / X8_CHUNK * 16 + i % 16] = x8_scale(largest, &inverse);
            for (int64_t j = 0; j < (n + 63) / 64 * 64; j++) {
                float q = j < n && inverse > 0 ? (row[c + j] * inverse + 0x1.8p23f) - 0x1.8p23f : 0;
                tile[(c + j) / 4 * 64 + i % 16 * 4 + j % 4] = (int8_t)(int)q;
            }
        }
    }
}

static void int8_channel8(const kern_linear *job, int64_t lo, int64_t hi) {
    const kern_weight *w = job->w;
    for (int64_t r = lo; r < hi; r++) {
        const int8_t *q = (const int8_t *)w->data + r * w->cols;
        for (int64_t i = 0; i < job->n; i++) {
            const float *scale = x8_scales(job, i);
            const int8_t *x = x8_tiles(job, i) + i % 16 * 4;
            float y = 0;
            for (int64_t c = 0; c < w->cols; c += X8_CHUNK) {
                int32_t sum = 0;
                for (int64_t j = c; j < w->cols && j < c + X8_CHUNK; j++) sum += q[j] * x[j / 4 * 64 + j % 4];
                y += (float)sum * scale[c / X8_CHUNK * 16 + i % 16];
            }
            kern_store(job, i, r, y * kern_at(w->scale, w->scale_type, r));
        }
    }
}

void kern_portable(kern_table *t) {
    *t = (kern_table){.isa = "portable", .decode = kern_decode};
    for (int kind = 0; kind < KERN_W_KINDS; kind++) t->linear[KERN_EXACT][kind] = exact_any;
    t->prepare[KERN_X_WORDS] = prepare_words;
    t->prepare[KERN_X_INT8] = x8_prepare;
    t->linear[KERN_INT8][KERN_W_CHANNEL8] = int8_channel8;
    t->form[KERN_INT8][KERN_W_CHANNEL8] = KERN_X_INT8;
    t->linear[KERN_INT16][KERN_W_CHANNEL8] = t->linear[KERN_INT16][KERN_W_PALETTE] = int16_lanes;
    t->linear[KERN_INT16][KERN_W_PALETTE4] = int16_lanes;
    t->linear[KERN_INT16][KERN_W_BLOCK8] = t->linear[KERN_INT16][KERN_W_BLOCK4] = int16_blocks;
    for (int kind = 0; kind < KERN_W_KINDS; kind++) t->form[KERN_INT16][kind] = KERN_X_WORDS;
}
