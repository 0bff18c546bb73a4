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
#define PIECE   256       /* columns of a row decoded in one go */
#define X_BYTES (1 << 20) /* of prepared x that stay in the second-level cache while the weight passes by */

static int64_t steps_of(int64_t cols) {
    return (cols + 63) / 64 * 2;
}

/* 32 columns of a row of x in bf16. */
static __m512i pairs(const float *x, int64_t left) {
    __m512 a = _mm512_maskz_loadu_ps(first16(left), x), b = _mm512_maskz_loadu_ps(first16(left - 16), x + 16);
    return (__m512i)_mm512_cvtne2ps_pbh(b, a);
}

static void prepare_bf16(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi) {
    int64_t steps = steps_of(cols);
    for (int64_t i = lo; i < hi;) {
        int64_t n = 16 - i % 16 < hi - i ? 16 - i % 16 : hi - i;
        char *band = (char *)dst + i / 16 * steps * TILE;
        for (int64_t s = 0; s < steps; s++) {
            __m512i v[16];
            int32_t *tile = (int32_t *)(void *)(band + s * TILE);
            for (int64_t j = 0; j < n; j++) v[j] = pairs(x + (i + j) * ldx + 32 * s, cols - 32 * s);
            if (n == 16) {
                transpose16(v);
                EACH (j, 16) _mm512_store_si512(tile + 16 * j, v[j]);
            } else {
                for (int64_t j = 0; j < n; j++) {
                    int32_t pair[16];
                    _mm512_storeu_si512(pair, v[j]);
                    for (int k = 0; k < 16; k++) tile[16 * k + i % 16 + j] = pair[k];
                }
            }
        }
        i += n;
    }
}

/* A band of the weight being decoded, 64 columns of a row at a time, so that it can be done between tile
 * products.
 */
typedef struct {
    const kern_weight *w;
    lut t;
    int64_t first, m; /* row of w, and how many are there: behind them any numbers do */
    int64_t k, c;     /* row of the band and column that come next; k = BAND: done */
    char *band;
} decoder;

INLINE void decode_row_starts(decoder *d, int kind) {
    int64_t r = d->first + d->k;
    if (d->k < d->m) open_bf16_table(&d->t, d->w, r, d->k == 0, kind);
}

INLINE void decode_start(decoder *d, int64_t r, int64_t hi, char *band, int kind) {
    d->first = r, d->band = band, d->m = hi - r < BAND ? hi - r : BAND, d->k = d->c = 0;
    if (d->m > 0)
        decode_row_starts(d, kind);
    else
        d->k = BAND;
}

/* Up to PIECE columns of a row; CHANNEL8 without its scale. */
INLINE void decode_piece(decoder *d, int kind) {
    const kern_weight *w = d->w;
    int64_t r = d->first + (d->k < d->m ? d->k : d->m - 1), c = d->c,
            end = c + PIECE < w->cols ? c + PIECE : w->cols;
    char *out = d->band + (d->k / 16 * steps_of(w->cols) + c / 32) * TILE + d->k % 16 * 64;
    for (; c < end; c += 64, out += 2 * TILE) {
        __m512i v[2];
        bf16_64(w, &d->t, r, c, kind, v);
        _mm512_store_si512(out, v[0]);
        _mm512_store_si512(out + TILE, v[1]);
    }
    d->c = end;
    if (end == w->cols) {
        d->c = 0, d->k++;
        decode_row_starts(d, kind);
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
        float s[16];
        for (int64_t k = 0; k < 16; k++) s[k] = k < m ? kern_at(w->scale, w->scale_type, r + k) : 0;
        scale = _mm512_loadu_ps(s);
    }
    if (job->bias) bias = _mm512_maskz_loadu_ps(some, job->bias + r);
    int64_t n = job->n - i < 16 ? job->n - i : 16;
    for (int64_t j = 0; j < n; j++) {
        __m512 y = _mm512_castsi512_ps(v[j]);
        if (scaled) y = _mm512_mul_ps(y, scale);
        if (job->bias) y = _mm512_add_ps(y, bias);
        if (job->add) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(some, job->add + (i + j) * job->ldadd + r));
        _mm512_mask_storeu_ps(job->y + (i + j) * job->ldy + r, some, y);
    }
}

/* Four tiles of results: they go to their places while the next ones are computed. */
typedef struct {
    float c[4][256] __attribute__((aligned(64)));
    int64_t r, m, i; /* first row of w, how many are there; first row of x */
    int next;        /* of the four; 4: all are stored */
} results;

static void store_next(const kern_linear *job, results *p, bool scaled) {
    int64_t below = p->next % 2 * 16, i = p->i + p->next / 2 * 16;
    if (p->m > below && i < job->n) store_tile(job, p->c[p->next], p->r + below, p->m - below, i, scaled);
    p->next++;
}

/* A band (a, m rows from row r on) against 32 rows of x from i on, into p. In each step, `share` columns of
 * the next band are decoded; now and then a tile of the results before is stored. */
INLINE void band_tiles(const kern_linear *job, const char *a, int64_t r, int64_t m, int64_t i, results *p,
                       decoder *next, int64_t share, int kind) {
    int64_t steps = steps_of(job->w->cols), due = 0;
    const char *a1 = a + steps * TILE, *b = (const char *)job->x + i / 16 * steps * TILE;
    const char *b1 = job->n - i > 16 ? b + steps * TILE : b; /* no second 16 rows: the first ones again */
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < steps; s++) {
        _tile_loadd(4, a + s * TILE, 64);
        _tile_loadd(6, b + s * TILE, 64);
        _tile_loadd(5, a1 + s * TILE, 64);
        _tile_loadd(7, b1 + s * TILE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
        if (p->next < 4 && s % 4 == 3) store_next(job, p, kind == CHANNEL8);
        for (due += share; due >= PIECE && next->k < BAND; due -= PIECE) decode_piece(next, kind);
    }
    while (p->next < 4) store_next(job, p, kind == CHANNEL8);
    _tile_stored(0, p->c[0], 64);
    _tile_stored(1, p->c[1], 64);
    _tile_stored(2, p->c[2], 64);
    _tile_stored(3, p->c[3], 64);
    p->r = r, p->m = m, p->i = i, p->next = 0;
}

/* Rows i .. end of x against rows lo .. hi of w. */
INLINE void bf16_part(const kern_linear *job, int64_t lo, int64_t hi, int64_t i, int64_t end, int kind) {
    const kern_weight *w = job->w;
    int64_t steps = steps_of(w->cols), pairs = (end - i + 31) / 32;
    int64_t share = BAND * 32 / pairs + 8; /* of the next band, in one of pairs * steps steps */
    char *band = job->scratch, *other = band + 2 * steps * TILE;
    decoder d = {.w = w};
    results p;
    p.next = 4;
    if (kind == NARROW) lut_init(&d.t, w->bits);
    decode_start(&d, lo, hi, band, kind);
    for (int64_t r = lo; r < hi; r += BAND) {
        while (d.k < BAND) decode_piece(&d, kind);
        int64_t m = d.m;
        decode_start(&d, r + BAND, hi, other, kind);
        for (int64_t j = i; j < end; j += 32) band_tiles(job, band, r, m, j, &p, &d, share, kind);
        char *swap = band;
        band = other, other = swap;
    }
    while (p.next < 4) store_next(job, &p, kind == CHANNEL8);
}

INLINE void bf16(const kern_linear *job, int64_t lo, int64_t hi, int kind) {
    int64_t part = X_BYTES / (steps_of(job->w->cols) * 64) / 32 * 32;
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
    bf16_overlay(t, BAND, 2 * BAND * 2);
    t->prepare[KERN_X_INT8] = prepare_int8;
    t->linear[KERN_INT8][KERN_W_CHANNEL8] = int8_channel8;
    t->form[KERN_INT8][KERN_W_CHANNEL8] = KERN_X_INT8;
    t->band[KERN_INT8][KERN_W_CHANNEL8] = BAND;
    t->scratch[KERN_INT8][KERN_W_CHANNEL8] = BAND;
}
