/* Shared by the AVX-512 files: looking up the codes of palettes. */
#ifndef KERNELS_AVX512_H
#define KERNELS_AVX512_H
#include "kernels/kernels.h"
#include "kernels/vec_avx512.h"

/* 64 codes become two vectors of 16-bit entries, 0 .. 31 and 32 .. 63: their bytes are looked up apart and
 * interleaved by unpacklo/hi, so byte k of the qword 2q + h must hold code 32 h + 8 q + k. Codes of 1 .. 6
 * bits: `spread` brings each qword the bytes of its eight codes, `shift` puts each at the bottom of its byte,
 * below stray bits, which tables of 64 entries (small ones repeated) ignore. */
typedef struct {
    __m512i spread, shift;
    __mmask64 bytes;         /* 8 * bits: of 64 codes */
    __m512i low[4], high[4]; /* bytes of the entries, 64 to a vector; 4 for codes of 8 bits, else 1 */
} lut;

static inline void lut_init(lut *t, unsigned bits) {
    uint8_t spread[64], shift[64];
    for (unsigned i = 0; i < 64; i++) {
        unsigned first = 32 * (i / 8 % 2) + 8 * (i / 16);
        spread[i] = (uint8_t)(first / 8 * bits + i % 8);
        shift[i] = (uint8_t)(i % 8 * bits);
    }
    t->spread = _mm512_loadu_si512(spread);
    t->shift = _mm512_loadu_si512(shift);
    t->bytes = first64(8 * bits);
}

/* q: 64 entries, small tables repeated, or 256. */
static inline void lut_bytes(lut *t, const int16_t *q, unsigned bits) {
    for (int i = 0; i < (bits == 8 ? 4 : 1); i++) {
        __m512i a = _mm512_loadu_si512(q + 64 * i), b = _mm512_loadu_si512(q + 64 * i + 32);
        t->low[i] =
            _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)), _mm512_cvtepi16_epi8(b), 1);
        a = _mm512_srli_epi16(a, 8), b = _mm512_srli_epi16(b, 8);
        t->high[i] =
            _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)), _mm512_cvtepi16_epi8(b), 1);
    }
}

/* wide: codes of 8 bits. inside: 64 bytes from p on may be read (a masked load costs an instruction). */
INLINE __m512i lut_codes(const lut *t, const uint8_t *p, bool wide, bool inside) {
    const __m512i qwords = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    if (wide) return _mm512_permutexvar_epi64(qwords, _mm512_loadu_si512(p));
    __m512i v = inside ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(t->bytes, p);
    v = _mm512_permutexvar_epi8(t->spread, v);
    return _mm512_multishift_epi64_epi8(t->shift, v);
}

INLINE __m512i lut_find(const __m512i byte[4], __m512i index, bool wide) {
    if (!wide) return _mm512_permutexvar_epi8(index, byte[0]);
    __m512i a = _mm512_permutex2var_epi8(byte[0], index, byte[1]);
    __m512i b = _mm512_permutex2var_epi8(byte[2], index, byte[3]);
    return _mm512_mask_mov_epi8(a, _mm512_movepi8_mask(index), b);
}

/* The entries of 64 codes from p on: 0 .. 31 and 32 .. 63. */
INLINE void lut_words(const lut *t, const uint8_t *p, bool wide, bool inside, __m512i *a, __m512i *b) {
    __m512i code = lut_codes(t, p, wide, inside);
    __m512i low = lut_find(t->low, code, wide), high = lut_find(t->high, code, wide);
    *a = _mm512_unpacklo_epi8(low, high);
    *b = _mm512_unpackhi_epi8(low, high);
}

/* The kern_prepare_fn of KERN_X_BYTES. */
void avx512_prepare_bytes(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi);
void avx512_exact(kern_table *t);
void avx512_many(kern_table *t);
#endif
