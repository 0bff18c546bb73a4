/* INT16 kernels of blocks of 32 for several rows of x: weights are put in an order in which sums of a block
 * need not be gathered from lanes, once for all rows. x lies in that order, too. */
#include "kernels/avx512.h"
#include "kernels/overlay.h"
#include "kernels/x16.h"
#include <string.h>

#define GROUP 16 /* blocks that are taken at a time: a lane each */
#define TOP   4  /* rows of w that meet the same part of x before the next part */
#define SIDE  8  /* rows of x whose sums are kept at the same time */

/* ---- the order ---- */

/* In each 128-bit lane the 4 x 4 words of four vectors, turned. */
INLINE void turn4(__m512i v[4]) {
    __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]),
            c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(a, c), v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d), v[3] = _mm512_unpackhi_epi64(b, d);
}

/* 16 blocks of 32 bytes, two to a vector: then v[j] holds word j of all blocks, in the lanes of ORDER8. */
INLINE void turn_bytes(__m512i v[8]) {
    turn4(v);     /* by 128 bits: words 0 .. 3 of blocks 0 2 4 6, words 4 .. 7, the same of 1 3 5 7 */
    turn4(v + 4); /* of blocks 8 .. 15 */
    EACH (j, 4) {
        __m512i a = v[j], b = v[j + 4];
        v[j] = _mm512_shuffle_i64x2(a, b, 0x88);
        v[j + 4] = _mm512_shuffle_i64x2(a, b, 0xDD);
    }
}

/* Which block a lane is. For int4 (four blocks to a vector): word j of block 4 t + q is in lane 4 q + t. */
#define ORDER8 _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
#define ORDER4 _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
/* Which lane a block is in. */
#define BACK8 _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15)
#define BACK4 ORDER4

/* ---- activations ---- */

/* Of x prepared as BYTES 16 blocks: high and low bytes of 64 values in turns. */
INLINE void turn_values(char *p, bool nibbles) {
    __m512i half[2][8];
    EACH (v, 8)
        EACH (h, 2) half[h][v] = _mm512_load_si512(p + 128 * v + 64 * h);
    EACH (h, 2) {
        if (nibbles) { /* even values of a block first, so that words 0 .. 3 are even ones, 4 .. 7 odd ones */
            const __m512i even =
                _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
            const __m512i qwords = _mm512_setr_epi64(0, 2, 1, 3, 4, 6, 5, 7);
            EACH (v, 8) half[h][v] = _mm512_permutexvar_epi64(qwords, _mm512_shuffle_epi8(half[h][v], even));
        }
        turn_bytes(half[h]);
        EACH (v, 8) {
            if (nibbles)
                half[h][v] = _mm512_permutexvar_epi32(ORDER4, _mm512_permutexvar_epi32(BACK8, half[h][v]));
            _mm512_store_si512(p + 512 * h + 64 * v, half[h][v]);
        }
    }
}

INLINE void prepare(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi,
                    bool nibbles) {
    int64_t blocks = x16_padded(cols) / X16_BLOCK;
    avx512_prepare_bytes(dst, x, ldx, cols, lo, hi);
    for (int64_t i = lo; i < hi; i++) {
        char *p = (char *)dst + (size_t)i * x16_stride(cols), *value = p + 8 * blocks;
        for (int64_t b = 0; b < blocks; b += GROUP) {
            __m512i *scale = (__m512i *)(void *)(p + 4 * b), *sum = (__m512i *)(void *)(p + 4 * (blocks + b));
            const __m512i order = nibbles ? ORDER4 : ORDER8;
            _mm512_store_si512(scale, _mm512_permutexvar_epi32(order, _mm512_load_si512(scale)));
            __m512i bias = _mm512_slli_epi32(_mm512_load_si512(sum), nibbles ? 3 : 7);
            bias = _mm512_sub_epi32(_mm512_setzero_si512(), bias);
            _mm512_store_si512(sum, _mm512_permutexvar_epi32(order, bias));
            turn_values(value + b * 2 * X16_BLOCK, nibbles);
        }
    }
}

static void prepare_turned(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare(dst, x, ldx, cols, lo, hi, false);
}

static void prepare_turned4(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare(dst, x, ldx, cols, lo, hi, true);
}

/* ---- products ---- */

/* n <= 16 blocks of a row, biased by 128 or 8: as turn_bytes() says, of int4 even elements in w[0 .. 3], odd
 * ones in w[4 .. 7]. */
INLINE void load_group(__m512i w[8], const uint8_t *p, int64_t n, bool nibbles) {
    int64_t bytes = n * (nibbles ? 16 : 32);
    const __m512i flip = _mm512_set1_epi8(nibbles ? (char)0x88 : (char)0x80), low = _mm512_set1_epi8(0x0F);
    EACH (v, 8) {
        if (nibbles && v >= 4) break;
        prefetch(p + 64 * v);
        __m512i q = n == GROUP ? _mm512_loadu_si512(p + 64 * v)
                               : _mm512_maskz_loadu_epi8(first64(bytes - 64 * v), p + 64 * v);
        w[v] = _mm512_xor_si512(q, flip);
    }
    if (!nibbles) {
        turn_bytes(w);
        return;
    }
    turn4(w);
    EACH (v, 4) {
        w[v + 4] = _mm512_and_si512(_mm512_srli_epi16(w[v], 4), low);
        w[v] = _mm512_and_si512(w[v], low);
    }
}

/* The scales of n blocks, in the order of the lanes. */
INLINE __m512 load_scales(const uint8_t *p, int64_t n, bool nibbles) {
    const __m256i *at = (const __m256i *)(const void *)p;
    __m256i half = n == GROUP ? _mm256_loadu_si256(at) : _mm256_maskz_loadu_epi16(first16(n), at);
    _mm_prefetch((const char *)p + SCALES_AHEAD, _MM_HINT_T0);
    return _mm512_permutexvar_ps(nibbles ? ORDER4 : ORDER8, _mm512_cvtph_ps(half));
}

/* f + sums * scales of the group of blocks from b on. What w is biased by is taken off by the sums of x,
 * which prepare() has multiplied so. */
INLINE __m512 add_group(__m512 f, const __m512i w[8], __m512 scale, const char *row, int64_t blocks,
                        int64_t b) {
    const char *x = row + 8 * blocks + b * 2 * X16_BLOCK;
    __m512i high = _mm512_setzero_si512(), low = _mm512_load_si512(row + 4 * (blocks + b));
    EACH (j, 8) {
        high = _mm512_dpbusd_epi32(high, w[j], _mm512_load_si512(x + 64 * j));
        low = _mm512_dpbusd_epi32(low, w[j], _mm512_load_si512(x + 512 + 64 * j));
    }
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
    scale = _mm512_mul_ps(scale, _mm512_load_ps(row + 4 * b));
    return _mm512_add_ps(f, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale));
}

/* The sums of the lanes of four vectors, each as tree() adds them. */
INLINE __m128 trees(const __m512 f[4]) {
    __m512 s[2];
    EACH (k, 2)
        s[k] = _mm512_add_ps(_mm512_shuffle_f32x4(f[2 * k], f[2 * k + 1], 0x44),
                             _mm512_shuffle_f32x4(f[2 * k], f[2 * k + 1], 0xEE));
    __m512 t = _mm512_add_ps(_mm512_shuffle_f32x4(s[0], s[1], 0x88), _mm512_shuffle_f32x4(s[0], s[1], 0xDD));
    t = _mm512_add_ps(t, _mm512_permute_ps(t, 0x4E));
    t = _mm512_add_ps(t, _mm512_permute_ps(t, 0xB1));
    return _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, t));
}

/* As kern_store(), for the first `rows` of TOP rows from r on. */
INLINE void store_rows(const kern_linear *job, int64_t i, int64_t r, int64_t rows, __m128 y) {
    __mmask8 m = (__mmask8)((1 << rows) - 1);
    if (job->bias) y = _mm_add_ps(y, _mm_maskz_loadu_ps(m, job->bias + r));
    if (job->add) y = _mm_add_ps(y, _mm_maskz_loadu_ps(m, job->add + i * job->ldadd + r));
    _mm_mask_storeu_ps(job->y + i * job->ldy + r, m, y);
}

/* Rows r .. r + rows of w against rows i0 .. i0 + n of x. */
INLINE void tile(const kern_linear *job, int64_t r, int64_t rows, int64_t i0, int64_t n, bool nibbles) {
    const kern_weight *w = job->w;
    int64_t blocks = w->cols / X16_BLOCK, padded = x16_padded(w->cols) / X16_BLOCK, bytes = nibbles ? 16 : 32;
    size_t stride = x16_stride(w->cols);
    const char *x = (const char *)job->x + (size_t)i0 * stride;
    __m512 f[SIDE][TOP];
    for (int64_t b = 0; b < blocks; b += GROUP)
        for (int64_t k = 0; k < rows; k++) {
            int64_t at = (r + k) * blocks + b, left = blocks - b < GROUP ? blocks - b : GROUP;
            __mmask16 some = b ? 0xFFFF : 0; /* of sums; none yet */
            __m512i v[8];
            load_group(v, (const uint8_t *)w->data + at * bytes, left, nibbles);
            __m512 scale = load_scales((const uint8_t *)w->scale + 2 * at, left, nibbles);
            const char *row = x;
            for (int64_t i = 0; i < n; i++, row += stride)
                f[i][k] = add_group(_mm512_maskz_load_ps(some, &f[i][k]), v, scale, row, padded, b);
        }
    for (int64_t i = 0; i < n; i++) {
        __m512 own[TOP];
        EACH (k, TOP)
            own[k] = k < rows ? _mm512_permutexvar_ps(nibbles ? BACK4 : BACK8, f[i][k]) : _mm512_setzero_ps();
        store_rows(job, i0 + i, r, rows, trees(own));
    }
}

INLINE void blocks(const kern_linear *job, int64_t lo, int64_t hi, bool nibbles) {
    for (int64_t r = lo; r < hi; r += TOP)
        for (int64_t i = 0; i < job->n; i += SIDE)
            tile(job, r, hi - r < TOP ? hi - r : TOP, i, job->n - i < SIDE ? job->n - i : SIDE, nibbles);
}

static void int16_block8(const kern_linear *job, int64_t lo, int64_t hi) {
    blocks(job, lo, hi, false);
}

static void int16_block4(const kern_linear *job, int64_t lo, int64_t hi) {
    blocks(job, lo, hi, true);
}

void avx512_many(kern_table *t) {
    t->prepare[KERN_X_TURNED] = prepare_turned;
    t->prepare[KERN_X_TURNED4] = prepare_turned4;
    t->many[KERN_INT16][KERN_W_BLOCK8] = int16_block8;
    t->many[KERN_INT16][KERN_W_BLOCK4] = int16_block4;
    t->many_form[KERN_INT16][KERN_W_BLOCK8] = KERN_X_TURNED;
    t->many_form[KERN_INT16][KERN_W_BLOCK4] = KERN_X_TURNED4;
}
