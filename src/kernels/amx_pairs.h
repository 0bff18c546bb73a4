/* Products of fp32 matrices on AMX tiles. A number is two of bf16, x = high + low with an error of at most
 * 2^-17 |x|; of the four products high * high, high * low and low * high are taken, so that a product is off
 * by about as much, and sums are fp32. That is a tenth of the time that fused multiply-adds take.
 *
 * A left operand is tiles of 16 rows by 32 inner elements, a right one of 16 columns by 32 inner elements, in
 * which tile row p holds elements 2 p and 2 p + 1 of all columns. A tile is 1 KiB of high parts, then 1 KiB
 * of low ones; tiles along the inner index follow each other. */
#ifndef KERNELS_AMX_PAIRS_H
#define KERNELS_AMX_PAIRS_H
#include "kernels/amx_tiles.h"
#include <stdbool.h>

#define PAIR_TILE 2048 /* bytes */

/* Two vectors as bf16 halves of 32-bit words: high parts and low parts, each in the upper half. */
INLINE void pair_split(__m512 x, __m512i *high, __m512i *low) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(-0x10000);
    *high = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), upper);
    __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(*high));
    *low = _mm512_add_epi32(_mm512_castps_si512(rest), half);
}

/* Row p of a tile: elements of a and b by turns. */
INLINE void pair_put(char *tile, int64_t p, __m512 a, __m512 b) {
    const __m512i upper = _mm512_set1_epi32(-0x10000);
    __m512i ah, al, bh, bl;
    pair_split(a, &ah, &al);
    pair_split(b, &bh, &bl);
    ah = _mm512_or_si512(_mm512_srli_epi32(ah, 16), bh);
    al = _mm512_or_si512(_mm512_srli_epi32(al, 16), _mm512_and_si512(bl, upper));
    _mm512_store_si512(tile + 64 * p, ah);
    _mm512_store_si512(tile + 1024 + 64 * p, al);
}

/* Row p of a tile: the 16 elements of a, then those of b. */
INLINE void pair_put_row(char *tile, int64_t p, __m512 a, __m512 b) {
    const __m512i words = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31,
                                           29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    __m512i ah, al, bh, bl;
    pair_split(a, &ah, &al);
    pair_split(b, &bh, &bl);
    _mm512_store_si512(tile + 64 * p, _mm512_permutex2var_epi16(ah, words, bh));
    _mm512_store_si512(tile + 1024 + 64 * p, _mm512_permutex2var_epi16(al, words, bl));
}

/* Exchanges rows and pairs: rows of a left operand become columns of a right one, and back. */
static inline void pair_turn(char *to, const char *tile) {
    for (int part = 0; part < PAIR_TILE; part += 1024) {
        __m512i v[16];
        EACH (i, 16) v[i] = _mm512_load_si512(tile + part + 64 * i);
        transpose16(v);
        EACH (i, 16) _mm512_store_si512(to + part + 64 * i, v[i]);
    }
}

/* A tile of an operand; pass: it is not wanted again soon, and what is should stay in the first cache. */
#define PAIR_LOAD(tile, from, pass)                                                                          \
    do {                                                                                                     \
        if (pass)                                                                                            \
            _tile_stream_loadd(tile, from, 64);                                                              \
        else                                                                                                 \
            _tile_loadd(tile, from, 64);                                                                     \
    } while (0)

/* Adds the products of 32 x inner and inner x 32 elements to tiles 0 .. 3 (two rows of two); more: of 16 rows
 * (more_a false) or columns only. pass: a passes by. */
INLINE void pair_block(const char *a, const char *b, int64_t steps, int64_t apart, bool more_a, bool more_b,
                       bool pass) {
    const char *a1 = a + apart * PAIR_TILE, *b1 = b + apart * PAIR_TILE;
    for (int64_t s = 0; s < steps * PAIR_TILE; s += PAIR_TILE) {
        PAIR_LOAD(4, a + s, pass);
        _tile_loadd(6, b + s + 1024, 64);
        if (more_a) PAIR_LOAD(5, a1 + s, pass);
        if (more_b) _tile_loadd(7, b1 + s + 1024, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (more_b) _tile_dpbf16ps(1, 4, 7);
        if (more_a) _tile_dpbf16ps(2, 5, 6);
        if (more_a && more_b) _tile_dpbf16ps(3, 5, 7);
        _tile_loadd(6, b + s, 64);
        if (more_b) _tile_loadd(7, b1 + s, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (more_b) _tile_dpbf16ps(1, 4, 7);
        if (more_a) _tile_dpbf16ps(2, 5, 6);
        if (more_a && more_b) _tile_dpbf16ps(3, 5, 7);
        PAIR_LOAD(4, a + s + 1024, pass);
        if (more_a) PAIR_LOAD(5, a1 + s + 1024, pass);
        _tile_dpbf16ps(0, 4, 6);
        if (more_b) _tile_dpbf16ps(1, 4, 7);
        if (more_a) _tile_dpbf16ps(2, 5, 6);
        if (more_a && more_b) _tile_dpbf16ps(3, 5, 7);
    }
}

/* The block of c at c [16 or 32][16 or 32], rows ldc apart; add: to what is there. */
INLINE void pair_result(float *c, int64_t ldc, const char *a, const char *b, int64_t steps, int64_t apart,
                        bool add, bool more_a, bool more_b, bool pass) {
    int64_t step = ldc * 4;
    if (add) {
        _tile_loadd(0, c, step);
        if (more_b) _tile_loadd(1, c + 16, step);
        if (more_a) _tile_loadd(2, c + 16 * ldc, step);
        if (more_a && more_b) _tile_loadd(3, c + 16 * ldc + 16, step);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    pair_block(a, b, steps, apart, more_a, more_b, pass);
    _tile_stored(0, c, step);
    if (more_b) _tile_stored(1, c + 16, step);
    if (more_a) _tile_stored(2, c + 16 * ldc, step);
    if (more_a && more_b) _tile_stored(3, c + 16 * ldc + 16, step);
}

typedef struct {
    float *c;
    int64_t ldc;
    const char *a, *b;
    int64_t rows, columns, steps; /* tiles: of a, of b, along the inner index */
    int64_t apart;                /* tiles from 16 rows or columns to the next: steps, or more */
    bool add;
    bool lower; /* blocks right of the diagonal are left out */
} pair_product;

/* c = a b, or c += a b. */
static inline void pair_multiply(const pair_product *p) {
    for (int64_t i = 0; i < p->rows; i += 2)
        for (int64_t j = 0; j < (p->lower ? i + 2 : p->columns) && j < p->columns; j += 2) {
            float *c = p->c + i * 16 * p->ldc + j * 16;
            const char *a = p->a + i * p->apart * PAIR_TILE, *b = p->b + j * p->apart * PAIR_TILE;
            bool more_a = i + 1 < p->rows, more_b = j + 1 < p->columns;
            if (more_a && more_b)
                pair_result(c, p->ldc, a, b, p->steps, p->apart, p->add, true, true, false);
            else if (more_a)
                pair_result(c, p->ldc, a, b, p->steps, p->apart, p->add, true, false, false);
            else if (more_b)
                pair_result(c, p->ldc, a, b, p->steps, p->apart, p->add, false, true, false);
            else
                pair_result(c, p->ldc, a, b, p->steps, p->apart, p->add, false, false, false);
        }
}
#endif
