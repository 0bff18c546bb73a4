/* AVX2 kernels: linear layers, EXACT and INT16. INT16: see x16.h; lanes 0 .. 7 and 8 .. 15 are two vectors.
 * EXACT: lane l of 16 adds the products of elements l, l + 16, .. by fused multiply-adds, then tree(). */
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

/* ---- palettes ---- */

/* Weights are fetched this many bytes ahead of their use. */
#define AHEAD 3072
INLINE void prefetch(const void *p) {
    _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
}

typedef struct {
    __m256i low[4], high[4]; /* not WIDE: the bytes of entries 16 i .. 16 i + 15, in both halves */
    int16_t entry[256];
    float scale; /* of fixed-point entries */
} lut;

static void lut_open(lut *t, const kern_weight *w, int64_t r, bool fixed) {
    const uint16_t *half = kern_table_of(w, r);
    int n = 1 << w->bits;
    if (fixed)
        x16_table(t->entry, &t->scale, half, n);
    else
        for (int i = 0; i < (n < 64 ? 64 : n); i++) t->entry[i] = (int16_t)num_get16(half + i % n);
    if (n > 64) return;
    for (int i = 0; i < 4; i++) {
        const __m256i bytes = _mm256_set1_epi16(0xFF);
        __m256i e = load(t->entry + 16 * i), l = _mm256_and_si256(e, bytes), h = _mm256_srli_epi16(e, 8);
        t->low[i] = _mm256_permute4x64_epi64(_mm256_packus_epi16(l, l), 0x88);
        t->high[i] = _mm256_permute4x64_epi64(_mm256_packus_epi16(h, h), 0x88);
    }
}

/* 32 codes of b bits from p on, one to a byte: of each half the codes 0 .. 7 and 16 .. 23 (then 8 .. 15 and
 * 24 .. 31), so that unpacking with zeros or a second byte gives words in order. Reads 8 bytes from p + 3 b
 * on. */
INLINE __m256i codes32(const uint8_t *p, int b) {
    __m256i v = _mm256_set_epi64x(load64(p + 3 * b), load64(p + b), load64(p + 2 * b), load64(p));
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
    return _mm256_or_si256(
        _mm256_and_si256(v, m),
        _mm256_and_si256(_mm256_sll_epi16(v, _mm_cvtsi32_si128(8 - b)), _mm256_slli_epi16(m, 8)));
}

/* The entries of 32 codes, in order; tables: of 16 entries each. */
INLINE void find32(const lut *t, __m256i code, int tables, __m256i *a, __m256i *b) {
    __m256i low = _mm256_setzero_si256(), high = low;
    EACH (i, tables) { /* an index outside of 16 i .. 16 i + 15 gets its high bit set, which gives zero */
        __m256i at =
            _mm256_adds_epu8(_mm256_sub_epi8(code, _mm256_set1_epi8((char)(16 * i))), _mm256_set1_epi8(0x70));
        low = _mm256_or_si256(low, _mm256_shuffle_epi8(t->low[i], at));
        high = _mm256_or_si256(high, _mm256_shuffle_epi8(t->high[i], at));
    }
    *a = _mm256_unpacklo_epi8(low, high);
    *b = _mm256_unpackhi_epi8(low, high);
}

/* The entries of 64 codes from p on. */
INLINE void palette64(const lut *t, const uint8_t *p, int bits, int kind, __m256i q[4]) {
    int tables = kind == TINY || kind == FOUR ? 1 : 4;
    if (kind == WIDE) {
        int16_t e[64];
        for (int i = 0; i < 64; i++) e[i] = t->entry[p[i]];
        EACH (j, 4) q[j] = load(e + 16 * j);
    } else {
        find32(t, codes32(p, bits), tables, &q[0], &q[1]);
        find32(t, codes32(p + 4 * bits, bits), tables, &q[2], &q[3]);
    }
}

/* ---- INT16 ---- */

/* four: lane l takes 4l .. 4l+3. */
INLINE void add_chunk(__m256 f[2], const __m256i q[4], const x16_row *x, int64_t c, bool four) {
    __m256i m[4];
    EACH (j, 4) m[j] = _mm256_madd_epi16(q[j], load(x->value + c + 16 * j));
    __m256i lo = _mm256_add_epi32(m[0], m[2]), hi = _mm256_add_epi32(m[1], m[3]);
    if (four) {
        lo = _mm256_permute4x64_epi64(_mm256_hadd_epi32(m[0], m[1]), 0xD8);
        hi = _mm256_permute4x64_epi64(_mm256_hadd_epi32(m[2], m[3]), 0xD8);
    }
    __m256 scale = _mm256_set1_ps(x->scale[c / X16_BLOCK]);
    f[0] = _mm256_add_ps(f[0], _mm256_mul_ps(_mm256_cvtepi32_ps(lo), scale));
    f[1] = _mm256_add_ps(f[1], _mm256_mul_ps(_mm256_cvtepi32_ps(hi), scale));
}

INLINE void lanes_row(const kern_linear *job, int64_t r, const lut *t, int64_t i0, int n, int kind) {
    const kern_weight *w = job->w;
    int64_t row = kind == CHANNEL8 ? w->cols : w->cols * w->bits / 8,
            step = kind == CHANNEL8 ? 64 : 8 * w->bits, c = 0;
    const uint8_t *p = (const uint8_t *)w->data + r * row, *end = (const uint8_t *)w->data + w->rows * row;
    x16_row x[BATCH];
    __m256 f[BATCH][2];
    __m256i q[4];
    EACH (i, n) x[i] = x16_row_of(job, i0 + i), f[i][0] = f[i][1] = _mm256_setzero_ps();
    for (; c < w->cols; c += X16_CHUNK, p += step) {
        prefetch(p);
        if (c + X16_CHUNK <= w->cols && (kind == CHANNEL8 || kind == WIDE || end - p >= step + 8)) {
            if (kind == CHANNEL8)
                EACH (j, 4) q[j] = _mm256_cvtepi8_epi16(load128(p + 16 * j));
            else
                palette64(t, p, (int)w->bits, kind, q);
        } else {
            int16_t e[X16_CHUNK];
            int64_t left = w->cols - c < X16_CHUNK ? w->cols - c : X16_CHUNK;
            x16_integers(w, kind == CHANNEL8 ? NULL : t->entry, r, c, left, e);
            EACH (j, 4) q[j] = load(e + 16 * j);
        }
        EACH (i, n) add_chunk(f[i], q, &x[i], c, kind == FOUR);
    }
    float scale = kind == CHANNEL8 ? kern_at(w->scale, w->scale_type, r) : t->scale;
    EACH (i, n) kern_store(job, i0 + i, r, tree(f[i]) * scale);
}

INLINE void lanes(const kern_linear *job, int64_t lo, int64_t hi, int kind) {
    lut t;
    for (int64_t r = lo; r < hi; r++) {
        int64_t i = 0;
        if (kind != CHANNEL8 && (r == lo || r % job->w->block_rows == 0)) lut_open(&t, job->w, r, true);
        for (; i + BATCH <= job->n; i += BATCH) lanes_row(job, r, &t, i, BATCH, kind);
        for (; i < job->n; i++) lanes_row(job, r, &t, i, 1, kind);
    }
}

static void int16_channel8(const kern_linear *job, int64_t lo, int64_t hi) {
    lanes(job, lo, hi, CHANNEL8);
}

static void int16_palette4(const kern_linear *job, int64_t lo, int64_t hi) {
    lanes(job, lo, hi, FOUR);
}

static void int16_palette(const kern_linear *job, int64_t lo, int64_t hi) {
    if (job->w->bits <= 4)
        lanes(job, lo, hi, TINY);
    else if (job->w->bits <= 6)
        lanes(job, lo, hi, NARROW);
    else
        lanes(job, lo, hi, WIDE);
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

/* 8 lanes whose sum is that of a block. */
INLINE __m256i block_lanes(const uint8_t *p, const int16_t *x, bool nibbles) {
    __m128i v[2];
    block_bytes(p, nibbles, v);
    return _mm256_add_epi32(_mm256_madd_epi16(_mm256_cvtepi8_epi16(v[0]), load(x)),
                            _mm256_madd_epi16(_mm256_cvtepi8_epi16(v[1]), load(x + 16)));
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
        palette64(t, p + at * w->bits / 8, (int)w->bits, kind, q);
        EACH (j, 4) {
            v[2 * j] = _mm256_cvtph_ps(_mm256_castsi256_si128(q[j]));
            v[2 * j + 1] = _mm256_cvtph_ps(_mm256_extracti128_si256(q[j], 1));
        }
    }
}

#define SLACK 8 /* bytes that codes32() may read behind 64 codes */
#include "kernels/body_exact.h"

void kern_avx2(kern_table *t) {
    exact_fill(t);
    t->linear[KERN_INT16][KERN_W_CHANNEL8] = int16_channel8;
    t->linear[KERN_INT16][KERN_W_PALETTE] = int16_palette;
    t->linear[KERN_INT16][KERN_W_PALETTE4] = int16_palette4;
    t->linear[KERN_INT16][KERN_W_BLOCK8] = int16_block8;
    t->linear[KERN_INT16][KERN_W_BLOCK4] = int16_block4;
}
