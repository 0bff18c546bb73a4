/* BF16 kernels on AMX tiles: for prompts.
 *
 * A tile product adds to C[16][16] the products of A[16][32] and B[32][16]. A is 16 rows of the weight, 32
 * columns, decoded in order; B is 16 rows of x, prepared so that a tile row holds a pair of columns of all of
 * them; C is 16 results of 16 rows of x, transposed when it is stored. Each result adds its columns in steps
 * of 32, in order, whatever else is in the call.
 *
 * Prepared x: for each 16 rows of x, for each 32 columns (cols rounded up to 64), a tile of 1 KiB.
 */
#include "kernels/avx512_decode.h"
#include "kernels/overlay.h"
#include "kernels/x16.h"

#define TILE 1024 /* bytes */
#define BAND 32   /* rows of w decoded at a time */

static int64_t steps_of(int64_t cols) {
    return (cols + 63) / 64 * 2;
}

static void transpose16(__m512i v[16]) {
    __m512i t[16];
    EACH (i, 8) {
        t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    EACH (i, 4) {
        v[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        v[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        v[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        v[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    EACH (i, 4) { /* v[4 g + i]: rows 4 g .., columns i, 4 + i, 8 + i, 12 + i, four rows each */
        t[i] = _mm512_shuffle_i32x4(v[i], v[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(v[i], v[4 + i], 0xDD);
        t[8 + i] = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0xDD);
    }
    EACH (i, 4) {
        v[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
        v[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xDD);
        v[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
        v[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xDD);
    }
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

/* Row r of w (row k of its band) in bf16, CHANNEL8 without its scale. */
INLINE void decode_row(const kern_weight *w, const lut *t, int64_t r, int k, int kind, char *band) {
    int64_t steps = steps_of(w->cols), c = 0;
    char *out = band + k / 16 * steps * TILE + k % 16 * 64;
    __m512 v[4];
    for (; c < w->cols; c += 64, out += 2 * TILE) {
        __m512i a, b;
        if ((kind == NARROW || kind == WIDE) && c + 64 <= w->cols) {
            lut_words(t, kern_codes(w, r) + c / 8 * w->bits, kind == WIDE, false, &a, &b);
        } else {
            float end[64];
            if (c + 64 <= w->cols) {
                load64(w, t, r, c, kind, v);
            } else {
                load_end(w, r, c, kind, end);
                EACH (j, 4) v[j] = _mm512_loadu_ps(end + 16 * j);
            }
            a = (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0]), b = (__m512i)_mm512_cvtne2ps_pbh(v[3], v[2]);
        }
        _mm512_store_si512(out, a);
        _mm512_store_si512(out + TILE, b);
    }
}

/* The table of a palette as bf16. */
static void bf16_table(lut *t, const kern_weight *w, int64_t r) {
    int16_t q[256];
    for (int i = 0, n = 1 << w->bits; i < (w->bits == 8 ? 256 : 64); i++)
        q[i] = (int16_t)num_f32_bf16(kern_half_at(kern_table_of(w, r), i % n));
    lut_bytes(t, q, w->bits);
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

/* A band of 32 rows (a, from row r on) against the 32 or 16 rows of x from i on. */
static void band_tiles(const kern_linear *job, const char *a, int64_t r, int64_t m, int64_t i, bool scaled) {
    int64_t steps = steps_of(job->w->cols);
    const char *a1 = a + steps * TILE, *b = (const char *)job->x + i / 16 * steps * TILE,
               *b1 = b + steps * TILE;
    float c[4][256] __attribute__((aligned(64)));
    bool two = job->n - i > 16;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (two)
        for (int64_t s = 0; s < steps; s++) {
            _tile_loadd(4, a + s * TILE, 64);
            _tile_loadd(6, b + s * TILE, 64);
            _tile_loadd(5, a1 + s * TILE, 64);
            _tile_loadd(7, b1 + s * TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 5, 6);
            _tile_dpbf16ps(2, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
    else
        for (int64_t s = 0; s < steps; s++) {
            _tile_loadd(4, a + s * TILE, 64);
            _tile_loadd(6, b + s * TILE, 64);
            _tile_loadd(5, a1 + s * TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 5, 6);
        }
    _tile_stored(0, c[0], 64);
    _tile_stored(1, c[1], 64);
    _tile_stored(2, c[2], 64);
    _tile_stored(3, c[3], 64);
    for (int q = 0; q < (two ? 4 : 2); q++)
        if (m > q % 2 * 16) store_tile(job, c[q], r + q % 2 * 16, m - q % 2 * 16, i + q / 2 * 16, scaled);
}

static void tiles_on(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int t = 0; t < 8; t++) config.bytes[t] = 64, config.rows[t] = 16;
    _tile_loadconfig(&config);
}

INLINE void bf16(const kern_linear *job, int64_t lo, int64_t hi, int kind) {
    const kern_weight *w = job->w;
    bool palette = kind == NARROW || kind == WIDE;
    char *band = job->scratch;
    lut t;
    if (kind == NARROW) lut_init(&t, w->bits);
    tiles_on();
    for (int64_t r = lo; r < hi; r += BAND) {
        int64_t m = hi - r < BAND ? hi - r : BAND;
        for (int k = 0; k < BAND; k++) {
            int64_t row = r + (k < m ? k : m - 1); /* rows that are not there: any numbers do */
            if (palette && (row == lo || row % w->block_rows == 0)) bf16_table(&t, w, row);
            decode_row(w, &t, row, k, kind, band);
        }
        for (int64_t i = 0; i < job->n; i += 32) band_tiles(job, band, r, m, i, kind == CHANNEL8);
    }
    _tile_release();
}

#define KERNEL(name, kind)                                                                                   \
    static void name(const kern_linear *job, int64_t lo, int64_t hi) {                                       \
        bf16(job, lo, hi, kind);                                                                             \
    }
KERNEL(bf16_f32, F32)
KERNEL(bf16_f16, F16)
KERNEL(bf16_channel8, CHANNEL8)
KERNEL(bf16_block8, BLOCK8)
KERNEL(bf16_block4, BLOCK4)
KERNEL(bf16_narrow, NARROW)
KERNEL(bf16_wide, WIDE)

static void bf16_palette(const kern_linear *job, int64_t lo, int64_t hi) {
    if (job->w->bits == 8)
        bf16_wide(job, lo, hi);
    else
        bf16_narrow(job, lo, hi);
}

void kern_amx(kern_table *t) {
    static kern_linear_fn *const fn[KERN_W_KINDS] = {
        [KERN_W_F32] = bf16_f32,       [KERN_W_F16] = bf16_f16,       [KERN_W_CHANNEL8] = bf16_channel8,
        [KERN_W_BLOCK8] = bf16_block8, [KERN_W_BLOCK4] = bf16_block4, [KERN_W_PALETTE] = bf16_palette,
    };
    t->prepare[KERN_X_BF16] = prepare_bf16;
    for (int kind = 0; kind < KERN_W_KINDS; kind++)
        if (fn[kind]) {
            t->linear[KERN_BF16][kind] = fn[kind];
            t->form[KERN_BF16][kind] = KERN_X_BF16;
            t->scratch[KERN_BF16][kind] = BAND * 2;
        }
}
