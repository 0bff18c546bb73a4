/* AVX2 kernels: linear layers, EXACT (body_exact.h) and INT16 (x16.h). Palettes are unpacked in the order
 * that takes the fewest instructions; activations are prepared in the same one. */
#include "kernels/lanes_avx2.h"
/* the words of its bodies */
#include "kernels/linear.h"
#include "kernels/overlay.h"

INLINE __m256i load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
INLINE __m128i load128(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}
INLINE long long load64(const void *p) {
    long long v;
    memcpy(&v, p, 8);
    return v;
}

/* The order of x16_tree(). */
INLINE float tree(const vec f[2]) {
    __m256 s = _mm256_add_ps(f[0], f[1]);
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}

/* The same of lanes 0 .. 3 and 8 .. 11, 4 .. 7 and 12 .. 15. */
INLINE float tree_across(const vec f[2]) {
    return tree((vec[2]){_mm256_permute2f128_ps(f[0], f[1], 0x20), _mm256_permute2f128_ps(f[0], f[1], 0x31)});
}

/* ---- activations ---- */

/* Low halves of a and b, high halves. */
INLINE __m256i halves(__m256i a, __m256i b, bool high) {
    return high ? _mm256_permute2x128_si256(a, b, 0x31) : _mm256_permute2x128_si256(a, b, 0x20);
}

/* Even words to the low half, odd ones to the high half. */
INLINE __m256i by_parity(__m256i v) {
    const __m256i at = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8,
                                        9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, at), 0xD8);
}

/* 64 values in order to the order of the form. */
INLINE void put(int16_t *value, kern_form form, __m256i q[4]) {
    __m256i v[4];
    EACH (i, 4) v[i] = form == KERN_X_PAIRS || form == KERN_X_WORDS ? q[i] : by_parity(q[i]);
    EACH (i, 4) {
        if (form == KERN_X_PAIRS)
            q[i] = _mm256_shufflehi_epi16(
                _mm256_shufflelo_epi16(halves(v[i / 2 * 2], v[i / 2 * 2 + 1], i % 2), 0xB1), 0xB1);
        else if (form == KERN_X_PARITY)
            q[i] = halves(v[i / 2 * 2], v[i / 2 * 2 + 1], i % 2);
        else if (form == KERN_X_EIGHTHS)
            q[i] = halves(v[i % 2], v[i % 2 + 2], i / 2);
    }
    EACH (i, 4) _mm256_storeu_si256((__m256i *)(void *)(value + 16 * i), q[i]);
}

INLINE int32_t sum_of(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

INLINE uint32_t largest_of(__m256i v) {
    __m128i s = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_max_epu32(s, _mm_shuffle_epi32(s, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(s, _mm_shuffle_epi32(s, 0xB1)));
}

INLINE void prepare_chunk(int16_t *value, kern_form form, const float *x, float *scale, int32_t *sum) {
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF), one = _mm256_set1_epi16(1);
    __m256i largest = _mm256_setzero_si256(), q[4];
    EACH (i, 8) largest = _mm256_max_epu32(largest, _mm256_and_si256(load(x + 8 * i), magnitude));
    float inverse;
    scale[0] = scale[1] = x16_scale(largest_of(largest), &inverse);
    __m256i some = _mm256_set1_epi32(inverse > 0 ? -1 : 0);
    EACH (i, 4) {
        __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(v_load(x + 16 * i), v_all(inverse)));
        __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(v_load(x + 16 * i + 8), v_all(inverse)));
        a = _mm256_packs_epi32(_mm256_and_si256(a, some), _mm256_and_si256(b, some));
        q[i] = _mm256_permute4x64_epi64(a, 0xD8);
    }
    EACH (i, 2)
        sum[i] =
            sum_of(_mm256_add_epi32(_mm256_madd_epi16(q[2 * i], one), _mm256_madd_epi16(q[2 * i + 1], one)));
    put(value, form, q);
}

INLINE void prepare(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi,
                    kern_form form) {
    int64_t padded = x16_padded(cols), blocks = padded / X16_BLOCK;
    for (int64_t i = lo; i < hi; i++) {
        char *p = (char *)dst + (size_t)i * x16_stride(cols);
        float *scale = (float *)(void *)p;
        int32_t *sum = (int32_t *)(void *)(p + 4 * blocks);
        int16_t *value = (int16_t *)(void *)(p + 8 * blocks);
        for (int64_t c = 0; c < padded; c += X16_CHUNK) {
            float end[X16_CHUNK];
            const float *from = x + i * ldx + c;
            if (c + X16_CHUNK > cols) {
                memset(end, 0, sizeof end);
                if (c < cols) memcpy(end, from, (size_t)(cols - c) * sizeof *end);
                from = end;
            }
            prepare_chunk(value + c, form, from, scale + c / X16_BLOCK, sum + c / X16_BLOCK);
        }
    }
}

#define PREPARE(name, form)                                                                                  \
    static void name(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {         \
        prepare(dst, x, ldx, cols, lo, hi, form);                                                            \
    }
PREPARE(prepare_words, KERN_X_WORDS)
PREPARE(prepare_pairs, KERN_X_PAIRS)
PREPARE(prepare_eighths, KERN_X_EIGHTHS)
PREPARE(prepare_parity, KERN_X_PARITY)

/* ---- palettes ---- */

/* Weights are fetched this many bytes ahead of their use. */
#define AHEAD 3072
INLINE void prefetch(const void *p) {
    _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
}

typedef struct {
    __m256i low[4],
        high[4]; /* not WIDE: bytes of entries 16 i .. 16 i + 15, xor those 16 before; both halves */
    uint64_t wide[4][256]; /* WIDE: entry << 16 k */
    int16_t entry[256];
    float scale; /* of fixed-point entries */
} lut;

/* As x16_table(), in vectors. */
static void fixed_table(lut *t, const uint16_t *half, int n) {
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < n; i += LANES) {
        __m256i bits = _mm256_castps_si256(v_half(half + i));
        largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF)));
    }
    float up = x16_table_scale(largest_of(largest), &t->scale);
    __m256i some = _mm256_set1_epi32(up > 0 ? -1 : 0);
    for (int i = 0; i < n; i += 2 * LANES) {
        __m256i q[2];
        EACH (k, 2) {
            q[k] = _mm256_cvtps_epi32(_mm256_mul_ps(v_half(half + i + LANES * k), v_all(up)));
            q[k] = _mm256_and_si256(q[k], some);
        }
        __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[0], q[1]), 0xD8);
        _mm256_storeu_si256((__m256i *)(void *)(t->entry + i), both);
    }
    for (int i = n; i < 64; i++) t->entry[i] = t->entry[i - n];
}

static void lut_open(lut *t, const kern_weight *w, int64_t r, bool fixed) {
    const uint16_t *half = kern_table_of(w, r);
    int n = 1 << w->bits;
    if (fixed && n >= 2 * LANES)
        fixed_table(t, half, n);
    else if (fixed)
        x16_table(t->entry, &t->scale, half, n);
    else
        for (int i = 0; i < (n < 64 ? 64 : n); i++) t->entry[i] = (int16_t)num_get16(half + i % n);
    if (n > 64) {
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < n; i++) t->wide[k][i] = (uint64_t)(uint16_t)t->entry[i] << 16 * k;
        return;
    }
    __m256i before = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        const __m256i bytes = _mm256_set1_epi16(0xFF);
        __m256i at = load(t->entry + 16 * i), e = _mm256_xor_si256(at, before);
        __m256i l = _mm256_and_si256(e, bytes), h = _mm256_srli_epi16(e, 8);
        t->low[i] = _mm256_permute4x64_epi64(_mm256_packus_epi16(l, l), 0x88);
        t->high[i] = _mm256_permute4x64_epi64(_mm256_packus_epi16(h, h), 0x88);
        before = at;
    }
}

/* 32 codes of b bits from p on, one to a byte: in the halves the codes 0 .. 7 and 16 .. 23, 8 .. 15 and 24 ..
 * 31, so that unpacking with a second byte gives words in order; crossed: 0 .. 15, 16 .. 31, neighbours
 * swapped. Reads 8 bytes from p + 3 b on. */
INLINE __m256i codes32(const uint8_t *p, int b, bool crossed) {
    int second = crossed ? 1 : 2;
    __m256i v =
        _mm256_set_epi64x(load64(p + 3 * b), load64(p + (3 - second) * b), load64(p + second * b), load64(p));
    __m256i m =
        _mm256_set1_epi64x((1ll << 4 * b) - 1); /* four codes to each half of a qword, then two, then one */
    v = _mm256_or_si256(
        _mm256_and_si256(v, m),
        _mm256_and_si256(_mm256_sll_epi64(v, _mm_cvtsi32_si128(32 - 4 * b)), _mm256_slli_epi64(m, 32)));
    m = _mm256_set1_epi32((1 << 2 * b) - 1);
    v = _mm256_or_si256(
        _mm256_and_si256(v, m),
        _mm256_and_si256(_mm256_sll_epi32(v, _mm_cvtsi32_si128(16 - 2 * b)), _mm256_slli_epi32(m, 16)));
    m = _mm256_set1_epi16((short)((1 << b) - 1));
    v = _mm256_or_si256(
        _mm256_and_si256(v, m),
        _mm256_and_si256(_mm256_sll_epi16(v, _mm_cvtsi32_si128(8 - b)), _mm256_slli_epi16(m, 8)));
    return crossed ? _mm256_or_si256(_mm256_slli_epi16(v, 8), _mm256_srli_epi16(v, 8)) : v;
}

/* The same of 6 bits, crossed: four codes of three bytes b0 b1 b2 are moved in the words b0 b1 and b1 b2 to
 * where they are wanted, by multiplication. Reads 16 bytes from p + 12 on. */
INLINE __m256i codes_of_six(const uint8_t *p) {
    const __m256i spread = _mm256_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11, 0, 1, 1, 2, 3,
                                            4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11);
    __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(p)), load128(p + 12), 1);
    v = _mm256_shuffle_epi8(v, spread);
    __m256i up = _mm256_and_si256(v, _mm256_set1_epi32(0x03F0003F));
    __m256i down = _mm256_and_si256(v, _mm256_set1_epi32((int)0xFC000FC0));
    return _mm256_or_si256(_mm256_mullo_epi16(up, _mm256_set1_epi32(0x00100100)),
                           _mm256_mulhi_epu16(down, _mm256_set1_epi32(0x00400400)));
}

/* The entries of 32 codes, unpacked; tables: of 16 entries each. */
INLINE void find32(const lut *t, __m256i code, int tables, __m256i *a, __m256i *b) {
    __m256i low = _mm256_shuffle_epi8(t->low[0], code), high = _mm256_shuffle_epi8(t->high[0], code);
    for (int i = 1; i < tables; i++) { /* what is negative finds zero: codes below 16 i */
        __m256i at = _mm256_sub_epi8(code, _mm256_set1_epi8((char)(16 * i)));
        low = _mm256_xor_si256(low, _mm256_shuffle_epi8(t->low[i], at));
        high = _mm256_xor_si256(high, _mm256_shuffle_epi8(t->high[i], at));
    }
    *a = _mm256_unpacklo_epi8(low, high);
    *b = _mm256_unpackhi_epi8(low, high);
}

/* The entries of 4 codes of 8 bits. */
INLINE long long wide4(const lut *t, const uint8_t *p, bool crossed) {
    int other = crossed;
    return (long long)(t->wide[0][p[other]] | t->wide[1][p[!other]] | t->wide[2][p[2 + other]] |
                       t->wide[3][p[3 - other]]);
}

/* The entries of 64 codes from p on; crossed: in the order of KERN_X_PAIRS (KERN_X_EIGHTHS for FOUR). */
INLINE void palette64(const lut *t, const uint8_t *p, int bits, int kind, bool crossed, __m256i q[4]) {
    if (kind == WIDE) {
        EACH (j, 4) {
            const uint8_t *a = p + (crossed ? j / 2 * 32 + j % 2 * 8 : 16 * j), *b = a + (crossed ? 16 : 8);
            q[j] = _mm256_set_epi64x(wide4(t, b + 4, crossed), wide4(t, b, crossed), wide4(t, a + 4, crossed),
                                     wide4(t, a, crossed));
        }
    } else if (kind == FOUR) {
        const __m256i mask = _mm256_set1_epi8(15);
        __m256i v = load(p);
        find32(t, _mm256_and_si256(v, mask), 1, &q[0], &q[1]);
        find32(t, _mm256_and_si256(_mm256_srli_epi16(v, 4), mask), 1, &q[2], &q[3]);
    } else {
        EACH (j, 2) {
            const uint8_t *at = p + 4 * j * bits;
            __m256i code = crossed && bits == 6 ? codes_of_six(at) : codes32(at, bits, crossed);
            find32(t, code, kind == TINY ? 1 : 4, &q[2 * j], &q[2 * j + 1]);
        }
    }
}

/* ---- INT16 ---- */

INLINE void add_chunk(vec f[2], const __m256i q[4], const x16_row *x, int64_t c) {
    __m256i m[4];
    EACH (j, 4) m[j] = _mm256_madd_epi16(q[j], load(x->value + c + 16 * j));
    vec scale = v_all(x->scale[c / X16_BLOCK]);
    EACH (j, 2)
        f[j] =
            _mm256_add_ps(f[j], _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(m[j], m[j + 2])), scale));
}

/* The n <= 64 bytes at p, zeros behind them. */
static __attribute__((noinline)) const uint8_t *up_to_64(uint8_t last[80], const uint8_t *p, int64_t n) {
    memset(last, 0, 80);
    return memcpy(last, p, (size_t)n);
}

/* `rows` rows of w from r on, which share a table, against n of x; one of both is 1. bits: of a code or an
 * int8. */
INLINE void lanes_rows(const kern_linear *job, int64_t r, int rows, const lut *t, int64_t i0, int n, int kind,
                       int bits) {
    const kern_weight *w = job->w;
    int64_t row = w->cols * bits / 8, step = 8 * bits, slack = kind == NARROW || kind == TINY ? 8 : 0;
    int64_t readable = (w->rows - r) * row - step - slack; /* up to here whole chunks are */
    const uint8_t *p = (const uint8_t *)w->data + r * row;
    x16_row x[BATCH];
    vec f[BATCH][2];
    EACH (i, n) x[i] = x16_row_of(job, i0 + i);
    EACH (i, rows * n) f[i][0] = f[i][1] = v_all(0);
    for (int64_t c = 0, at = 0; c < w->cols; c += X16_CHUNK, at += step)
        EACH (k, rows) {
            uint8_t part[80];
            const uint8_t *from = p + k * row + at;
            __m256i q[4];
            prefetch(from);
            if (c + X16_CHUNK > w->cols || k * row + at > readable)
                from = up_to_64(part, from, c + X16_CHUNK > w->cols ? (w->cols - c) * bits / 8 : step);
            if (kind == CHANNEL8)
                EACH (j, 4) q[j] = _mm256_cvtepi8_epi16(load128(from + 16 * j));
            else
                palette64(t, from, bits, kind, true, q);
            EACH (i, n) add_chunk(f[k + i], q, &x[i], c);
        }
    EACH (k, rows)
        EACH (i, n) {
            float y = kind == CHANNEL8 ? tree(f[k + i]) * kern_at(w->scale, w->scale_type, r + k)
                                       : tree_across(f[k + i]) * t->scale;
            kern_store(job, i0 + i, r + k, y);
        }
}

INLINE void lanes(const kern_linear *job, int64_t lo, int64_t hi, int kind, int bits) {
    lut t;
    int64_t group = kind == CHANNEL8 ? job->w->rows : job->w->block_rows;
    for (int64_t r = lo; r < hi;) {
        int64_t end = r / group * group + group, i = 0;
        if (end > hi) end = hi;
        if (kind != CHANNEL8) lut_open(&t, job->w, r, true);
        for (; job->n == 1 && r + 2 <= end; r += 2) lanes_rows(job, r, 2, &t, 0, 1, kind, bits);
        for (; r < end; r++, i = 0) {
            for (; i + BATCH <= job->n; i += BATCH) lanes_rows(job, r, 1, &t, i, BATCH, kind, bits);
            for (; i < job->n; i++) lanes_rows(job, r, 1, &t, i, 1, kind, bits);
        }
    }
}

static void int16_channel8(const kern_linear *job, int64_t lo, int64_t hi) {
    lanes(job, lo, hi, CHANNEL8, 8);
}

static void int16_palette4(const kern_linear *job, int64_t lo, int64_t hi) {
    lanes(job, lo, hi, FOUR, 4);
}

static void int16_palette(const kern_linear *job, int64_t lo, int64_t hi) {
    unsigned bits = job->w->bits;
    if (bits <= 4)
        lanes(job, lo, hi, TINY, (int)bits);
    else if (bits == 6)
        lanes(job, lo, hi, NARROW, 6);
    else if (bits == 5)
        lanes(job, lo, hi, NARROW, 5);
    else
        lanes(job, lo, hi, WIDE, 8);
}

/* The 32 weights of a block as bytes: 16 of int4 in order, low nibbles first. */
INLINE void block_bytes(const uint8_t *p, bool nibbles, __m128i v[2]) {
    if (nibbles) {
        const __m128i low = _mm_set1_epi8(15), sign = _mm_set1_epi8(8);
        __m128i q = load128(p), even = _mm_and_si128(q, low), odd = _mm_and_si128(_mm_srli_epi16(q, 4), low);
        v[0] = _mm_unpacklo_epi8(even, odd), v[1] = _mm_unpackhi_epi8(even, odd);
        EACH (j, 2) v[j] = _mm_sub_epi8(_mm_xor_si128(v[j], sign), sign);
    } else {
        v[0] = load128(p), v[1] = load128(p + 16);
    }
}

/* 8 lanes whose sum is that of a block; of int4 (x by parity) with 8 added to the weights. */
INLINE __m256i block_lanes(const uint8_t *p, const int16_t *x, bool nibbles) {
    __m256i a, b;
    if (nibbles) {
        __m256i v = _mm256_cvtepu8_epi16(_mm_xor_si128(load128(p), _mm_set1_epi8((char)0x88)));
        a = _mm256_and_si256(v, _mm256_set1_epi16(15)), b = _mm256_srli_epi16(v, 4);
    } else {
        a = _mm256_cvtepi8_epi16(load128(p)), b = _mm256_cvtepi8_epi16(load128(p + 16));
    }
    return _mm256_add_epi32(_mm256_madd_epi16(a, load(x)), _mm256_madd_epi16(b, load(x + 16)));
}

/* f + sums * scales of n (1 .. 8) blocks. */
INLINE __m256 add_blocks(__m256 f, const uint8_t *p, const uint8_t *scales, const x16_row *x, int64_t b,
                         int n, bool nibbles) {
    __m256i s[8];
    __m128i half = _mm_setzero_si128();
    memcpy(&half, scales, (size_t)n * 2);
    prefetch(scales);
    for (int k = 0; k < (nibbles ? 2 : 4); k++) prefetch(p + 64 * k);
    EACH (k, 8)
        s[k] = k < n ? block_lanes(p + k * (nibbles ? 16 : 32), x->value + (b + k) * X16_BLOCK, nibbles)
                     : _mm256_setzero_si256();
    EACH (k, 4) s[k] = _mm256_hadd_epi32(s[2 * k], s[2 * k + 1]);
    EACH (k, 2) s[k] = _mm256_hadd_epi32(s[2 * k], s[2 * k + 1]);
    __m256i sum = _mm256_add_epi32(_mm256_permute2x128_si256(s[0], s[1], 0x20),
                                   _mm256_permute2x128_si256(s[0], s[1], 0x31));
    if (nibbles) sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(load(x->sum + b), 3));
    __m256 scale = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_loadu_ps(x->scale + b));
    return _mm256_add_ps(f, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale));
}

INLINE void blocks(const kern_linear *job, int64_t lo, int64_t hi, bool nibbles) {
    int64_t n = job->w->cols / X16_BLOCK, bytes = nibbles ? 16 : 32;
    for (int64_t r = lo; r < hi; r++) {
        const uint8_t *p = (const uint8_t *)job->w->data + r * n * bytes;
        const uint8_t *scales = (const uint8_t *)job->w->scale + r * n * 2;
        for (int64_t i = 0; i < job->n; i++) {
            x16_row x = x16_row_of(job, i);
            __m256 f[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
            int64_t b = 0;
            for (; b + 8 <= n; b += 8)
                f[b / 8 % 2] = add_blocks(f[b / 8 % 2], p + b * bytes, scales + 2 * b, &x, b, 8, nibbles);
            if (b < n)
                f[b / 8 % 2] =
                    add_blocks(f[b / 8 % 2], p + b * bytes, scales + 2 * b, &x, b, (int)(n - b), nibbles);
            kern_store(job, i, r, tree(f));
        }
    }
}

static void int16_block8(const kern_linear *job, int64_t lo, int64_t hi) {
    blocks(job, lo, hi, false);
}

static void int16_block4(const kern_linear *job, int64_t lo, int64_t hi) {
    blocks(job, lo, hi, true);
}

/* ---- EXACT ---- */

INLINE __m256 bytes8(__m128i v) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
}

/* To fp16 numbers. */
INLINE __m256 rounded8(__m256 v) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Elements c .. c + 63 of row r; CHANNEL8 without its scale unless it is rounded. */
INLINE void floats64(const kern_weight *w, const lut *t, int64_t r, int64_t c, int kind, __m256 v[8]) {
    const uint8_t *p = w->data;
    int64_t at = r * w->cols + c, byte = kind == F32      ? 4 * at
                                         : kind == F16    ? 2 * at
                                         : kind == BLOCK4 ? at / 2
                                                          : at;
    __m256i q[4];
    prefetch(p + (kind >= TINY ? at * w->bits / 8 : byte));
    if (kind == F16) prefetch(p + byte + 64);
    if (kind == F32)
        EACH (j, 3) prefetch(p + byte + 64 * (j + 1));
    if (kind == F32)
        EACH (j, 8) v[j] = _mm256_loadu_ps((const float *)(const void *)(p + 4 * (at + 8 * j)));
    if (kind == F16)
        EACH (j, 8) v[j] = _mm256_cvtph_ps(load128(p + 2 * (at + 8 * j)));
    if (kind == CHANNEL8)
        EACH (j, 8) v[j] = bytes8(_mm_loadl_epi64((const __m128i *)(const void *)(p + at + 8 * j)));
    if (kind == BLOCK8 || kind == BLOCK4)
        EACH (h, 2) {
            __m128i b[2];
            block_bytes(kind == BLOCK4 ? p + at / 2 + 16 * h : p + at + 32 * h, kind == BLOCK4, b);
            __m256 scale = _mm256_set1_ps(kern_half_at(w->scale, at / X16_BLOCK + h));
            EACH (j, 4)
                v[4 * h + j] = _mm256_mul_ps(bytes8(j % 2 ? _mm_srli_si128(b[j / 2], 8) : b[j / 2]), scale);
        }
    if (kind == CHANNEL8 && w->rounded)
        EACH (j, 8) v[j] = _mm256_mul_ps(v[j], _mm256_set1_ps(kern_at(w->scale, w->scale_type, r)));
    if ((kind == CHANNEL8 || kind == BLOCK8 || kind == BLOCK4) && w->rounded)
        EACH (j, 8) v[j] = rounded8(v[j]);
    if (kind >= TINY) {
        palette64(t, p + at * w->bits / 8, (int)w->bits, kind, false, q);
        EACH (j, 4) {
            v[2 * j] = _mm256_cvtph_ps(_mm256_castsi256_si128(q[j]));
            v[2 * j + 1] = _mm256_cvtph_ps(_mm256_extracti128_si256(q[j], 1));
        }
    }
}

#define SLACK 8 /* bytes that codes32() may read behind 64 codes */
#include "kernels/body_exact.h"

void kern_avx2(kern_table *t) {
    t->linear[KERN_INT8][KERN_W_CHANNEL8] = NULL; /* plain C is slower than int16 here */
    exact_fill(t);
    t->prepare[KERN_X_WORDS] = prepare_words;
    t->prepare[KERN_X_PAIRS] = prepare_pairs;
    t->prepare[KERN_X_EIGHTHS] = prepare_eighths;
    t->prepare[KERN_X_PARITY] = prepare_parity;
    t->form[KERN_INT16][KERN_W_PALETTE] = KERN_X_PAIRS;
    t->form[KERN_INT16][KERN_W_PALETTE4] = KERN_X_EIGHTHS;
    t->form[KERN_INT16][KERN_W_BLOCK4] = KERN_X_PARITY;
    t->linear[KERN_INT16][KERN_W_CHANNEL8] = int16_channel8;
    t->linear[KERN_INT16][KERN_W_PALETTE] = int16_palette;
    t->linear[KERN_INT16][KERN_W_PALETTE4] = int16_palette4;
    t->linear[KERN_INT16][KERN_W_BLOCK8] = int16_block8;
    t->linear[KERN_INT16][KERN_W_BLOCK4] = int16_block4;
}
