/* INT16 kernels and the overlay: see x16.h for the numbers. */
#include "kernels/avx512.h"
#include "kernels/overlay.h"
#include "kernels/vec_avx512.h"
#include "kernels/x16.h"

/* ---- activations ---- */

/* 16 fixed-point values of a chunk to where the form wants them; j: 0, 16, 32, 48. */
INLINE void put(char *value, kern_form form, int64_t c, int j, __m512i q) {
    __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8);
    if (form == KERN_X_WORDS) {
        _mm256_store_si256((__m256i *)(void *)(value + 2 * (c + j)), _mm512_cvtepi32_epi16(q));
    } else if (form == KERN_X_SPLIT) {
        char *p = value + 2 * c + j;
        _mm_store_si128((__m128i *)(void *)p, _mm512_cvtepi64_epi16(q));
        _mm_store_si128((__m128i *)(void *)(p + 64), _mm512_cvtepi64_epi16(_mm512_srli_epi64(q, 32)));
    } else if (form == KERN_X_BYTES) {
        char *p = value + 2 * c + j;
        _mm_store_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(high));
        _mm_store_si128((__m128i *)(void *)(p + 64), _mm512_cvtepi32_epi8(q));
    } else {
        char *p = value + c / 128 * 256 + (c % 128 + j) / 2;
        _mm_storel_epi64((__m128i *)(void *)p, _mm512_cvtepi64_epi8(high));
        _mm_storel_epi64((__m128i *)(void *)(p + 64), _mm512_cvtepi64_epi8(q));
        _mm_storel_epi64((__m128i *)(void *)(p + 128), _mm512_cvtepi64_epi8(_mm512_srli_epi64(high, 32)));
        _mm_storel_epi64((__m128i *)(void *)(p + 192), _mm512_cvtepi64_epi8(_mm512_srli_epi64(q, 32)));
    }
}

INLINE void prepare(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi,
                    kern_form form) {
    int64_t padded = x16_padded(cols), blocks = padded / X16_BLOCK;
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    for (int64_t i = lo; i < hi; i++) {
        char *p = (char *)dst + (size_t)i * x16_stride(cols), *value = p + 8 * blocks;
        float *scale = (float *)(void *)p;
        int32_t *sum = (int32_t *)(void *)(p + 4 * blocks);
        for (int64_t c = 0; c < padded; c += X16_CHUNK) {
            __m512 v[4];
            __m512i largest = _mm512_setzero_si512(), q[4];
            for (int j = 0; j < 4; j++) {
                v[j] = _mm512_maskz_loadu_ps(first16(cols - c - 16 * j), x + i * ldx + c + 16 * j);
                largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(v[j]), magnitude));
            }
            float inverse, s = x16_scale(_mm512_reduce_max_epu32(largest), &inverse);
            __mmask16 some = inverse > 0 ? 0xFFFF : 0;
            for (int j = 0; j < 4; j++) {
                q[j] = _mm512_maskz_cvtps_epi32(some, _mm512_mul_ps(v[j], _mm512_set1_ps(inverse)));
                put(value, form, c, 16 * j, q[j]);
            }
            int64_t b = c / X16_BLOCK;
            scale[b] = scale[b + 1] = s;
            sum[b] = _mm512_reduce_add_epi32(_mm512_add_epi32(q[0], q[1]));
            sum[b + 1] = _mm512_reduce_add_epi32(_mm512_add_epi32(q[2], q[3]));
        }
    }
}

static void prepare_words(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare(dst, x, ldx, cols, lo, hi, KERN_X_WORDS);
}

static void prepare_split(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare(dst, x, ldx, cols, lo, hi, KERN_X_SPLIT);
}

void avx512_prepare_bytes(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare(dst, x, ldx, cols, lo, hi, KERN_X_BYTES);
}

static void prepare_nibbles(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare(dst, x, ldx, cols, lo, hi, KERN_X_NIBBLES);
}

/* ---- lanes: palettes, and int8 with a scale per row ---- */

/* As x16_table(), in vectors; then into t. */
static void fixed_table(lut *t, float *scale, int16_t q[256], const uint16_t *half, unsigned bits) {
    int n = 1 << bits;
    if (n < 16) {
        x16_table(q, scale, half, n);
    } else {
        __m512i largest = _mm512_setzero_si512();
        for (int i = 0; i < n; i += 16) {
            __m512 v = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(half + i)));
            largest = _mm512_max_epu32(largest, _mm512_castps_si512(_mm512_abs_ps(v)));
        }
        float up = x16_table_scale(_mm512_reduce_max_epu32(largest), scale);
        for (int i = 0; i < n; i += 16) {
            __m512 v = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(half + i)));
            __m512i k = _mm512_maskz_cvtps_epi32(up > 0 ? 0xFFFF : 0, _mm512_mul_ps(v, _mm512_set1_ps(up)));
            _mm256_storeu_si256((__m256i *)(void *)(q + i), _mm512_cvtepi32_epi16(k));
        }
        for (int i = n; i < 64; i++) q[i] = q[i - n];
    }
    lut_bytes(t, q, bits);
}

INLINE void int8_words(const uint8_t *p, __m512i *a, __m512i *b) {
    *a = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
    *b = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(p + 32)));
}

INLINE __m512 add_chunk(__m512 f, __m512i a, __m512i b, const x16_row *x, int64_t c) {
    __m512i s = _mm512_dpwssd_epi32(_mm512_setzero_si512(), a, _mm512_load_si512(x->value + c));
    s = _mm512_dpwssd_epi32(s, b, _mm512_load_si512(x->value + c + 32));
    return _mm512_add_ps(f, _mm512_mul_ps(_mm512_cvtepi32_ps(s), _mm512_set1_ps(x->scale[c / X16_BLOCK])));
}

enum { INT8, FOUR, NARROW, WIDE }; /* codes: int8; palettes of 4 bits, of others up to 6, of 8 */

/* The entries of 64 codes of 4 bits, even and odd ones: an index of 5 bits, whose highest is any, into 16
 * entries that are there twice. */
INLINE void four_words(const int16_t *entry, const uint8_t *p, __m512i *a, __m512i *b) {
    __m512i v = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
    __m512i table = _mm512_loadu_si512(entry);
    *a = _mm512_permutexvar_epi16(v, table);
    *b = _mm512_permutexvar_epi16(_mm512_srli_epi16(v, 4), table);
}

/* The end of a row: n weights from element c on. */
static void last_words(const kern_weight *w, const int16_t *entry, int64_t r, int64_t c, bool split,
                       __m512i *a, __m512i *b) {
    int16_t q[X16_CHUNK], even[32], odd[32];
    x16_integers(w, entry, r, c, w->cols - c, q);
    for (int i = 0; i < 32; i++) even[i] = q[split ? 2 * i : i], odd[i] = q[split ? 2 * i + 1 : i + 32];
    *a = _mm512_loadu_si512(even), *b = _mm512_loadu_si512(odd);
}

/* The integer weights of a row: a palette's table, or int8 with its scale. */
typedef struct {
    lut t;
    int16_t entry[256]; /* for the end of a row */
    float scale;
} integers;

/* Tables lie far from the codes: without this, every new one is a wait for memory. */
INLINE void fetch_table(const kern_weight *w, int64_t r) {
    if (r < w->rows)
        for (int i = 0; i < 2 << w->bits; i += 64)
            _mm_prefetch((const char *)kern_table_of(w, r) + i, _MM_HINT_T0);
}

INLINE void open_row(integers *s, const kern_weight *w, int64_t r, bool first, int codes) {
    if (codes == INT8)
        s->scale = kern_at(w->scale, w->scale_type, r);
    else if (first || r % w->block_rows == 0) {
        fixed_table(&s->t, &s->scale, s->entry, kern_table_of(w, r), w->bits);
        fetch_table(w, r + w->block_rows);
    }
}

/* Rows r, r + apart, .. (`rows` of them, each with its s) against n rows of x from i0 on. inside: codes can
 * be read by whole vectors. */
INLINE void lanes_tile(const kern_linear *job, int64_t r, int64_t apart, int rows, const integers *s,
                       int64_t i0, int n, int codes, bool inside) {
    const kern_weight *w = job->w;
    int64_t row = codes == INT8 ? w->cols : w->cols * w->bits / 8, step = codes == INT8 ? 64 : 8 * w->bits,
            c = 0;
    const uint8_t *p = (const uint8_t *)w->data + r * row;
    x16_row x[8];
    __m512 f[STREAMS][8];
    __m512i a, b;
    EACH (i, n) x[i] = x16_row_of(job, i0 + i);
    EACH (k, rows)
        EACH (i, n) f[k][i] = _mm512_setzero_ps();
    for (; c + X16_CHUNK <= w->cols; c += X16_CHUNK, p += step)
        EACH (k, rows) {
            const uint8_t *at = p + k * apart * row;
            prefetch(at);
            if (codes == INT8)
                int8_words(at, &a, &b);
            else if (codes == FOUR)
                four_words(s[k].entry, at, &a, &b);
            else
                lut_words(&s[k].t, at, codes == WIDE, inside, &a, &b);
            EACH (i, n) f[k][i] = add_chunk(f[k][i], a, b, &x[i], c);
        }
    if (c < w->cols)
        EACH (k, rows) {
            last_words(w, codes == INT8 ? NULL : s[k].entry, r + k * apart, c, codes == FOUR, &a, &b);
            EACH (i, n) f[k][i] = add_chunk(f[k][i], a, b, &x[i], c);
        }
    EACH (k, rows)
        EACH (i, n) kern_store(job, i0 + i, r + k * apart, tree(f[k][i]) * s[k].scale);
}

INLINE void lanes(const kern_linear *job, int64_t lo, int64_t hi, int codes) {
    const kern_weight *w = job->w;
    int64_t row = codes == INT8 ? w->cols : w->cols * w->bits / 8, apart = 0, r = lo;
    integers s[STREAMS];
    for (int k = 0; codes == NARROW && k < STREAMS; k++) lut_init(&s[k].t, w->bits);
    if (job->n == 1) {
        int64_t inside =
            codes == NARROW ? w->rows - (row + 63) / row : w->rows; /* 64 bytes follow these rows */
        int64_t end = hi < inside ? hi : inside;
        apart = end > lo ? (end - lo) / STREAMS : 0;
        for (int k = 0; k < STREAMS && codes != INT8; k++) fetch_table(w, r + k * apart);
        if (apart) begin_streams((const uint8_t *)w->data + r * row, apart * row, STREAMS, apart * row);
    }
    for (; r < lo + apart; r++) {
        for (int k = 0; k < STREAMS; k++) open_row(&s[k], w, r + k * apart, r == lo, codes);
        lanes_tile(job, r, apart, STREAMS, s, 0, 1, codes, true);
    }
    for (int64_t first = r = lo + STREAMS * apart; r < hi; r++) {
        int64_t i = 0;
        open_row(s, w, r, r == first, codes);
        for (; i + 8 <= job->n; i += 8) lanes_tile(job, r, 0, 1, s, i, 8, codes, false);
        for (; i + 4 <= job->n; i += 4) lanes_tile(job, r, 0, 1, s, i, 4, codes, false);
        for (; i + 2 <= job->n; i += 2) lanes_tile(job, r, 0, 1, s, i, 2, codes, false);
        for (; i < job->n; i++) lanes_tile(job, r, 0, 1, s, i, 1, codes, false);
    }
}

static void int16_channel8(const kern_linear *job, int64_t lo, int64_t hi) {
    lanes(job, lo, hi, INT8);
}

static void int16_palette4(const kern_linear *job, int64_t lo, int64_t hi) {
    lanes(job, lo, hi, FOUR);
}

static void int16_palette(const kern_linear *job, int64_t lo, int64_t hi) {
    if (job->w->bits == 8)
        lanes(job, lo, hi, WIDE);
    else
        lanes(job, lo, hi, NARROW);
}

/* ---- blocks of 32 ---- */

/* The 16 sums of four neighbouring lanes of a, b, c and d. */
INLINE __m512i sums_of_4(__m512i a, __m512i b, __m512i c, __m512i d) {
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* Lane 4q + v of sums_of_4() holds the sum of lanes 4q .. 4q+3 of vector v; of all four vectors in order,
 * that is block 4v + q: a transposition. */
INLINE __m512i in_order(__m512i s) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, s);
}

/* Lanes of 4 products: sum of w * x = sum of (w + bias) * x - bias * (sum of x), the latter once per block.
 */
INLINE __m512i dot_bytes(__m512i s, __m512i w, const char *x) {
    return _mm512_dpbusd_epi32(s, w, _mm512_load_si512(x));
}

/* Two blocks of 8 lanes each, down to 4 lanes each. */
INLINE __m512i pairs_of_8(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xDD));
}

/* Sums of 16 int8 blocks from p on with their values of x (form BYTES), biased by 128; n bytes are there. */
INLINE __m512i block8_sums(const uint8_t *p, const char *x, int64_t n, bool all) {
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512i s[8];
    for (int v = 0; v < 8; v++, p += 64, x += 128) {
        prefetch(p);
        __m512i w = all ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(first64(n - 64 * v), p);
        w = _mm512_xor_si512(w, flip);
        s[v] = dot_bytes(_mm512_slli_epi32(dot_bytes(_mm512_setzero_si512(), w, x), 8), w, x + 64);
    }
    /* Two blocks to a vector, 8 lanes each: first down to 4 lanes each, blocks 4v + q in lanes 4q.. of vector
     * v. */
    __m512i t[4];
    for (int v = 0; v < 4; v++) t[v] = pairs_of_8(s[2 * v], s[2 * v + 1]);
    return in_order(sums_of_4(t[0], t[1], t[2], t[3]));
}

/* Sums of 16 int4 blocks from p on (x of form NIBBLES), biased by 8. */
INLINE __m512i block4_sums(const uint8_t *p, const char *x, int64_t n, bool all) {
    const __m512i flip = _mm512_set1_epi8((char)0x88), low = _mm512_set1_epi8(0x0F);
    __m512i s[4];
    for (int v = 0; v < 4; v++, p += 64, x += 256) {
        prefetch(p);
        __m512i w = all ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(first64(n - 64 * v), p);
        w = _mm512_xor_si512(w, flip);
        __m512i even = _mm512_and_si512(w, low), odd = _mm512_and_si512(_mm512_srli_epi16(w, 4), low);
        __m512i h = dot_bytes(dot_bytes(_mm512_setzero_si512(), even, x), odd, x + 128);
        s[v] = dot_bytes(dot_bytes(_mm512_slli_epi32(h, 8), even, x + 64), odd, x + 192);
    }
    return in_order(sums_of_4(s[0], s[1], s[2], s[3]));
}

/* f + sums * scales of the blocks b .. b + n of a row. */
INLINE __m512 add_blocks(__m512 f, const kern_linear *job, const uint8_t *p, const uint8_t *scales, int64_t i,
                         int64_t b, int64_t n, bool nibbles, bool all) {
    x16_row x = x16_row_of(job, i);
    const char *value = (const char *)x.value + b * 2 * X16_BLOCK;
    __m512i s = nibbles ? block4_sums(p, value, n * 16, all) : block8_sums(p, value, n * 32, all);
    __m512i bias = _mm512_slli_epi32(_mm512_load_si512(x.sum + b), nibbles ? 3 : 7);
    const __m256i *at = (const __m256i *)(const void *)scales;
    __m256i half = all ? _mm256_loadu_si256(at) : _mm256_maskz_loadu_epi16(first16(n), at);

    __m512 scale = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_load_ps(x.scale + b));
    return _mm512_add_ps(f, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(s, bias)), scale));
}

/* As add_blocks() for 16 int8 blocks of STREAMS rows at once, `apart` blocks from one to the next: codes of
 * the rows are read in turns, what is read of x serves all of them, and scales are fetched, too. */
INLINE void add_rows8(__m512 f[STREAMS], const kern_linear *job, const uint8_t *p, const uint8_t *scales,
                      int64_t apart, int64_t b) {
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    x16_row x = x16_row_of(job, 0);
    const char *value = (const char *)x.value + b * 2 * X16_BLOCK;
    __m512i t[STREAMS][4];
    EACH (v, 4) {
        EACH (k, STREAMS) {
            const uint8_t *at = p + k * apart * 32 + 128 * v;
            __m512i s[2];
            EACH (i, 2) {
                prefetch(at + 64 * i);
                __m512i w = _mm512_xor_si512(_mm512_loadu_si512(at + 64 * i), flip);
                s[i] = dot_bytes(_mm512_setzero_si512(), w, value + 256 * v + 128 * i);
                s[i] = dot_bytes(_mm512_slli_epi32(s[i], 8), w, value + 256 * v + 128 * i + 64);
            }
            t[k][v] = pairs_of_8(s[0], s[1]);
        }
    }
    __m512i bias = _mm512_slli_epi32(_mm512_load_si512(x.sum + b), 7);
    EACH (k, STREAMS) {
        const uint8_t *at = scales + k * apart * 2;
        _mm_prefetch((const char *)at + SCALES_AHEAD, _MM_HINT_T0);
        __m512i s = in_order(sums_of_4(t[k][0], t[k][1], t[k][2], t[k][3]));
        __m512 scale = _mm512_mul_ps(_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at)),
                                     _mm512_load_ps(x.scale + b));
        f[k] = _mm512_add_ps(f[k], _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(s, bias)), scale));
    }
}

/* Rows r, r + apart, .. against row i of x. */
INLINE void blocks_tile(const kern_linear *job, int64_t r, int64_t apart, int rows, int64_t i, bool nibbles) {
    const kern_weight *w = job->w;
    int64_t n = w->cols / X16_BLOCK, bytes = nibbles ? 16 : 32, b = 0;
    const uint8_t *p = (const uint8_t *)w->data + r * n * bytes,
                  *scales = (const uint8_t *)w->scale + r * n * 2;
    __m512 f[STREAMS];
    EACH (k, rows) f[k] = _mm512_setzero_ps();
    if (!nibbles && rows == STREAMS)
        for (; b + 16 <= n; b += 16) add_rows8(f, job, p + b * 32, scales + b * 2, apart * n, b);
    for (; b + 16 <= n; b += 16)
        EACH (k, rows) {
            int64_t at = k * apart * n + b;
            f[k] = add_blocks(f[k], job, p + at * bytes, scales + 2 * at, i, b, 16, nibbles, true);
        }
    if (b < n)
        EACH (k, rows) {
            int64_t at = k * apart * n + b;
            f[k] = add_blocks(f[k], job, p + at * bytes, scales + 2 * at, i, b, n - b, nibbles, false);
        }
    EACH (k, rows) kern_store(job, i, r + k * apart, tree(f[k]));
}

INLINE void blocks(const kern_linear *job, int64_t lo, int64_t hi, bool nibbles) {
    const int streams = nibbles ? 2 : STREAMS; /* int4 from memory: 14.1, 17.5, 15.6 GB/s with 1, 2, 4 */
    int64_t apart = job->n == 1 ? (hi - lo) / streams : 0, r = lo;
    int64_t row = job->w->cols * (nibbles ? 1 : 2) / 2;
    if (apart) begin_streams((const uint8_t *)job->w->data + r * row, apart * row, streams, apart * row);
    for (; r < lo + apart; r++) blocks_tile(job, r, apart, streams, 0, nibbles);
    for (r = lo + streams * apart; r < hi; r++)
        for (int64_t i = 0; i < job->n; i++) blocks_tile(job, r, 0, 1, i, nibbles);
}

static void int16_block8(const kern_linear *job, int64_t lo, int64_t hi) {
    blocks(job, lo, hi, false);
}

static void int16_block4(const kern_linear *job, int64_t lo, int64_t hi) {
    blocks(job, lo, hi, true);
}

void kern_avx512(kern_table *t) {
    t->prepare[KERN_X_WORDS] = prepare_words;
    t->prepare[KERN_X_SPLIT] = prepare_split;
    t->prepare[KERN_X_BYTES] = avx512_prepare_bytes;
    t->prepare[KERN_X_NIBBLES] = prepare_nibbles;
    t->linear[KERN_INT16][KERN_W_CHANNEL8] = int16_channel8;
    t->linear[KERN_INT16][KERN_W_PALETTE] = int16_palette;
    t->linear[KERN_INT16][KERN_W_PALETTE4] = int16_palette4;
    t->form[KERN_INT16][KERN_W_PALETTE] = KERN_X_WORDS;
    t->form[KERN_INT16][KERN_W_PALETTE4] = KERN_X_SPLIT;
    t->linear[KERN_INT16][KERN_W_BLOCK8] = int16_block8;
    t->linear[KERN_INT16][KERN_W_BLOCK4] = int16_block4;
    t->form[KERN_INT16][KERN_W_BLOCK8] = KERN_X_BYTES;
    t->form[KERN_INT16][KERN_W_BLOCK4] = KERN_X_NIBBLES;
    avx512_exact(t);
    avx512_many(t);
}
