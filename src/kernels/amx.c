/* BF16 kernels on AMX tiles: for prompts.
 *
 * A tile product adds to C[16][16] the products of A[16][32] and B[32][16]. A is 16 rows of the weight, 32
 * columns, decoded in order; B is 16 rows of x, prepared so that a tile row holds a pair of columns of all of
 * them; C is 16 results of 16 rows of x, transposed when it is stored. Each result adds its columns in steps
 * of 32, in order, whatever else is in the call.
 *
 * Prepared x: for each 16 rows of x, for each 32 columns (cols rounded up to 64), a tile of 1 KiB.
 */
#include "kernels/amx_tiles.h"
#include "kernels/avx512_decode.h"
#include "kernels/overlay.h"
#include "kernels/x16.h"
#include "kernels/x8.h"

#define TILE    1024      /* bytes */
#define BAND    32        /* rows of w decoded at a time */
#define X_BYTES (1 << 20) /* of prepared x that stay in the second-level cache while the weight passes by */
/* Steps of 32 columns that a band goes through all rows of x with before its next columns come: 32 KiB of it
 * stay in the first-level cache, while x passes by (loaded as what comes but once). Measured, products alone,
 * GFLOP/s a core: 2900; with 1024 columns at once 1760. */
#define BLOCK  16
#define STREAM (1 << 18) /* results of a linear */
#define SUMS                                                                                                 \
    256 /* bytes of sums for each column of w: they set how many rows of x there may be at a time            \
         */

static int64_t steps_of(int64_t cols) {
    return (cols + 63) / 64 * 2;
}

/* 32 columns of a row of x in bf16. */
static __m512i pairs(const float *x, int64_t left) {
    __m512 a = _mm512_maskz_loadu_ps(first16(left), x), b = _mm512_maskz_loadu_ps(first16(left - 16), x + 16);
    return (__m512i)_mm512_cvtne2ps_pbh(b, a);
}

static void prepare_bf16_part(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t c, int64_t n,
                              int64_t lo, int64_t hi) {
    int64_t steps = steps_of(cols), first = c / 32, end = c + n < cols ? (c + n) / 32 : steps;
    for (int64_t i = lo; i < hi;) {
        int64_t rows = 16 - i % 16 < hi - i ? 16 - i % 16 : hi - i;
        char *band = (char *)dst + i / 16 * steps * TILE;
        for (int64_t s = first; s < end; s++) {
            __m512i v[16];
            int32_t *tile = (int32_t *)(void *)(band + s * TILE);
            for (int64_t j = 0; j < rows; j++) v[j] = pairs(x + (i + j) * ldx + 32 * s - c, c + n - 32 * s);
            if (rows == 16) {
                transpose16(v);
                EACH (j, 16) _mm512_store_si512(tile + 16 * j, v[j]);
            } else {
                for (int64_t j = 0; j < rows; j++) {
                    int32_t pair[16];
                    _mm512_storeu_si512(pair, v[j]);
                    for (int k = 0; k < 16; k++) tile[16 * k + i % 16 + j] = pair[k];
                }
            }
        }
        i += rows;
    }
}

static void prepare_bf16(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    prepare_bf16_part(dst, x, ldx, cols, 0, cols, lo, hi);
}

/* Columns c .. c + 63 of row r as row k of two tiles. */
INLINE void decode_part(const kern_weight *w, const lut *t, int64_t r, int64_t c, char *tiles, int64_t k,
                        int kind) {
    __m512i v[2];
    bf16_64(w, t, r, c, kind, v);
    _mm512_store_si512(tiles + 64 * k, v[0]);
    _mm512_store_si512(tiles + TILE + 64 * k, v[1]);
}

/* Rows r .. of w, BAND of them (behind hi any numbers do), as tiles. CHANNEL8 without its scale. Tile by
 * tile, where 16 rows have one table: stores to tiles a KiB apart would meet in a few sets of the first
 * cache. */
INLINE void decode_band(const kern_weight *w, lut *t, int64_t r, int64_t hi, char *band, int kind) {
    int64_t steps = steps_of(w->cols);
    for (int64_t k = 0; k < BAND; k += 16, band += steps * TILE) {
        int64_t first = r + k < hi ? r + k : hi - 1, last = r + k + 15 < hi ? r + k + 15 : hi - 1;
        bool palette = kind == NARROW || kind == WIDE;
        if (!palette || first / w->block_rows == last / w->block_rows) {
            if (palette && (!k || first / w->block_rows != (first - 1) / w->block_rows))
                open_bf16_table(t, w, first, true, kind);
            for (int64_t c = 0; c < w->cols; c += 64)
                for (int64_t j = 0; j < 16; j++)
                    decode_part(w, t, first + j < last ? first + j : last, c, band + c / 32 * TILE, j, kind);
        } else {
            for (int64_t j = 0; j < 16; j++) {
                int64_t row = first + j < last ? first + j : last;
                if (first + j <= last) open_bf16_table(t, w, row, !j, kind);
                for (int64_t c = 0; c < w->cols; c += 64)
                    decode_part(w, t, row, c, band + c / 32 * TILE, j, kind);
            }
        }
    }
}

/* Results of 16 rows of w from r on (m of them are there) and 16 rows of x from i on. */
static void store_tile(const kern_linear *job, const float *c, int64_t r, int64_t m, int64_t i, bool scaled) {
    const kern_weight *w = job->w;
    __m512i v[16];
    __mmask16 some = first16(m);
    __m512 bias = _mm512_setzero_ps(), scale = bias;
    EACH (k, 16) v[k] = _mm512_load_si512(c + 16 * k);
    transpose16(v);
    if (scaled) {
        if (w->scale_type == KERN_F16)
            scale = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, (const uint16_t *)w->scale + r));
        else
            scale = _mm512_maskz_loadu_ps(some, (const float *)w->scale + r);
    }
    if (job->bias) bias = _mm512_maskz_loadu_ps(some, job->bias + r);
    int64_t n = job->n - i < 16 ? job->n - i : 16;
    /* Results that outgrow the second-level cache needn't be fetched before they are written. */
    bool stream =
        job->n * job->ldy > STREAM && m == 16 && job->ldy % 16 == 0 && (uintptr_t)(job->y + r) % 64 == 0;
    for (int64_t j = 0; j < n; j++) {
        __m512 y = _mm512_castsi512_ps(v[j]);
        if (scaled) y = _mm512_mul_ps(y, scale);
        if (job->bias) y = _mm512_add_ps(y, bias);
        if (job->add) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(some, job->add + (i + j) * job->ldadd + r));
        float *to = job->y + (i + j) * job->ldy + r;
        if (stream)
            _mm512_stream_ps(to, y);
        else
            _mm512_mask_storeu_ps(to, some, y);
    }
}

INLINE void sums_load(const float *c) {
    _tile_loadd(0, c, 64);
    _tile_loadd(1, c + 256, 64);
    _tile_loadd(2, c + 512, 64);
    _tile_loadd(3, c + 768, 64);
}

INLINE void sums_store(float *c) {
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 256, 64);
    _tile_stored(2, c + 512, 64);
    _tile_stored(3, c + 768, 64);
}

/* A band against 32 rows of x from i on: adds steps s .. end to sums. x passes by, the band stays. */
INLINE void band_tiles(const kern_linear *job, const char *a, int64_t i, int64_t s, int64_t end,
                       float *sums) {
    int64_t steps = steps_of(job->w->cols);
    const char *a1 = a + steps * TILE, *b = (const char *)job->x + i / 16 * steps * TILE;
    const char *b1 = job->n - i > 16 ? b + steps * TILE : b; /* no second 16 rows: the first ones again */
    if (s) {
        sums_load(sums);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (; s < end; s++) {
        _tile_loadd(4, a + s * TILE, 64);
        _tile_stream_loadd(6, b + s * TILE, 64);
        _tile_loadd(5, a1 + s * TILE, 64);
        _tile_stream_loadd(7, b1 + s * TILE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    sums_store(sums);
}

/* Rows i .. end of x against rows lo .. hi of w. Decoding, products and storing take turns: vector stores
 * between tile loads make those wait. */
INLINE void bf16_part(const kern_linear *job, int64_t lo, int64_t hi, int64_t i, int64_t end, int kind) {
    const kern_weight *w = job->w;
    int64_t steps = steps_of(w->cols);
    char *band = job->scratch;
    float *sums = (float *)(void *)(band + 2 * steps * TILE); /* 32 rows of x after another: [4][256] */
    lut t;
    if (kind == NARROW) lut_init(&t, w->bits);
    for (int64_t r = lo; r < hi; r += BAND) {
        decode_band(w, &t, r, hi, band, kind);
        for (int64_t s = 0; s < steps; s += BLOCK)
            for (int64_t j = i; j < end; j += 32)
                band_tiles(job, band, j, s, s + BLOCK < steps ? s + BLOCK : steps, sums + (j - i) * 32);
        for (int64_t j = i; j < end; j += 16)
            for (int64_t k = 0; k < BAND && r + k < hi; k += 16) {
                const float *c = sums + (j - i) * 32 + k * 16 - (j - i) % 32 * 32 + (j - i) % 32 / 16 * 512;
                store_tile(job, c, r + k, hi - r - k < 16 ? hi - r - k : 16, j, kind == CHANNEL8);
            }
    }
}

INLINE void bf16(const kern_linear *job, int64_t lo, int64_t hi, int kind) {
    int64_t part = X_BYTES / (steps_of(job->w->cols) * 64) / 32 * 32;
    int64_t most = steps_of(job->w->cols) * 32 * SUMS / 128 / 32 * 32;
    if (part > most) part = most;
    if (part < 32) part = 32;
    tiles_on();
    for (int64_t i = 0; i < job->n; i += part)
        bf16_part(job, lo, hi, i, job->n - i < part ? job->n : i + part, kind);
    _tile_release();
}

#include "kernels/bf16_kernels.h" /* out of bf16() and prepare_bf16() */

/* ---- int8: see x8.h ---- */

static void prepare_int8(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    for (int64_t i = lo; i < hi; i++) {
        float *scale = (float *)(void *)((char *)dst + (size_t)(i / 16) * x8_group(cols));
        char *tile = (char *)(scale + x8_chunks(cols) * 16) + i % 16 * 4;
        for (int64_t c = 0; c < cols; c += X8_CHUNK) {
            int64_t end = (cols - c < X8_CHUNK ? cols - c + 63 : X8_CHUNK) / 64 * 64;
            __m512i largest = _mm512_setzero_si512();
            float inverse;
            for (int64_t j = c; j < c + end; j += 16) {
                __m512 v = _mm512_maskz_loadu_ps(first16(cols - j), x + i * ldx + j);
                largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(v), magnitude));
            }
            scale[c / X8_CHUNK * 16 + i % 16] = x8_scale(_mm512_reduce_max_epu32(largest), &inverse);
            __mmask16 some = inverse > 0 ? 0xFFFF : 0;
            for (int64_t j = c; j < c + end; j += 16) {
                __m512 v = _mm512_maskz_loadu_ps(first16(cols - j), x + i * ldx + j);
                int32_t four[4];
                __m512i q = _mm512_maskz_cvtps_epi32(some, _mm512_mul_ps(v, _mm512_set1_ps(inverse)));
                _mm_storeu_si128((__m128i *)(void *)four, _mm512_cvtepi32_epi8(q));
                for (int k = 0; k < 4; k++) memcpy(tile + (j / 4 + k) * 64, &four[k], 4);
            }
        }
    }
}

/* Rows r .. r + m of an int8 weight as tiles: two times 16 rows, 64 columns each. */
static void copy_band(const kern_weight *w, int64_t r, int64_t m, char *band) {
    int64_t tiles = (w->cols + 63) / 64;
    for (int64_t k = 0; k < BAND; k++) {
        const char *p = (const char *)w->data + (r + (k < m ? k : m - 1)) * w->cols;
        char *out = band + k / 16 * tiles * TILE + k % 16 * 64;
        for (int64_t c = 0; c < w->cols; c += 64, out += TILE)
            _mm512_store_si512(out, _mm512_maskz_loadu_epi8(first64(w->cols - c), p + c));
    }
}

/* Adds a chunk's sums, times the scales of 16 rows of x, to the results so far. */
static void add_chunk(float *y, const int32_t *sum, const float *scale, bool first) {
    __m512 s = _mm512_loadu_ps(scale);
    EACH (k, 16) {
        __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sum + 16 * k)), s);
        _mm512_store_ps(y + 16 * k, first ? _mm512_add_ps(v, _mm512_setzero_ps())
                                          : _mm512_add_ps(_mm512_load_ps(y + 16 * k), v));
    }
}

/* A band against 32 rows of x from i on. */
static void int8_tiles(const kern_linear *job, const char *band, int64_t i, float y[4][256]) {
    int32_t sum[4][256] __attribute__((aligned(64)));
    int64_t tiles = (job->w->cols + 63) / 64, second = job->n - i > 16 ? i + 16 : i;
    const int8_t *x0 = x8_tiles(job, i), *x1 = x8_tiles(job, second);
    const float *scale[2] = {x8_scales(job, i), x8_scales(job, second)};
    for (int64_t t = 0; t < tiles;) {
        int64_t chunk = t / (X8_CHUNK / 64), end = t + X8_CHUNK / 64 < tiles ? t + X8_CHUNK / 64 : tiles;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (; t < end; t++) {
            _tile_loadd(4, band + t * TILE, 64);
            _tile_loadd(6, x0 + t * TILE, 64);
            _tile_loadd(5, band + (tiles + t) * TILE, 64);
            _tile_loadd(7, x1 + t * TILE, 64);
            _tile_dpbssd(0, 4, 6);
            _tile_dpbssd(1, 5, 6);
            _tile_dpbssd(2, 4, 7);
            _tile_dpbssd(3, 5, 7);
        }
        _tile_stored(0, sum[0], 64);
        _tile_stored(1, sum[1], 64);
        _tile_stored(2, sum[2], 64);
        _tile_stored(3, sum[3], 64);
        for (int k = 0; k < 4; k++) add_chunk(y[k], sum[k], scale[k / 2] + chunk * 16, !chunk);
    }
}

static void int8_channel8(const kern_linear *job, int64_t lo, int64_t hi) {
    float y[4][256] __attribute__((aligned(64)));
    tiles_on();
    for (int64_t r = lo; r < hi; r += BAND) {
        int64_t m = hi - r < BAND ? hi - r : BAND;
        copy_band(job->w, r, m, job->scratch);
        for (int64_t i = 0; i < job->n; i += 32) {
            int8_tiles(job, job->scratch, i, y);
            for (int k = 0; k < 4; k++) {
                int64_t below = k % 2 * 16, j = i + k / 2 * 16;
                if (m > below && j < job->n) store_tile(job, y[k], r + below, m - below, j, true);
            }
        }
    }
    _tile_release();
}

void kern_amx(kern_table *t) {
    bf16_overlay(t, BAND, 2 * BAND + SUMS);
    t->prepare[KERN_X_INT8] = prepare_int8;
    t->linear[KERN_INT8][KERN_W_CHANNEL8] = int8_channel8;
    t->form[KERN_INT8][KERN_W_CHANNEL8] = KERN_X_INT8;
    t->band[KERN_INT8][KERN_W_CHANNEL8] = BAND;
    t->scratch[KERN_INT8][KERN_W_CHANNEL8] = BAND;
}
