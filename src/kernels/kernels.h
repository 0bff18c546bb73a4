/* Kernels: the loops where the time goes, over plain arrays. They know no IR and decide nothing.
 *
 *     kern_table k;
 *     kern_open(&k, getenv("MILLET_ISA"), &e);                  the best this processor has
 *     kern_choice c = kern_choose(&k, &weight, KERN_INT16, n);  once, when a plan is made
 *     c.prepare(px, x, ldx, cols, 0, n);                        if not NULL; shared by linears of one form
 *     c.run(&job, lo, hi);                                      any rows [lo, hi) of the weight, any thread
 *
 * A result's bytes depend neither on how rows are split nor on how many rows of x are in the call.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Elements of an array. Four-bit ones lie two to a byte, low nibble first; I4 is two's complement. */
typedef enum { KERN_F32, KERN_F16, KERN_I8, KERN_U8, KERN_I4, KERN_U4 } kern_type;

/* A weight [rows][cols] in the layout of a package's blob; nothing here is owned or copied, nothing needs
 * alignment beyond that of its elements. The grid of blocks, [rows / block_rows][cols / block_cols] in
 * row-major order, says which scale, offset or table an element has; block sizes divide the sizes.
 *     palette (bits > 0)    w = table[block][code]; codes of `bits` bits (1 .. 8) are one little-endian bit
 *                           stream over the whole weight, rows are not padded
 *     else                  w = scale[block] * (data - offset[block]); scale NULL: 1, offset NULL: 0
 * Kernels read no byte outside the arrays. */
typedef struct {
    int64_t rows, cols, block_rows, block_cols;
    const void *data, *scale, *offset, *table;
    kern_type type, scale_type, offset_type,
        table_type; /* type: of data without a palette; table: F16, F32 */
    unsigned bits;
    bool rounded; /* scaled elements are rounded to fp16; for the path EXACT and decode */
} kern_weight;

/* How numbers are multiplied.
 * EXACT  the declared operands in fp32, summed in fp32 in an order that is fixed for an instruction set.
 * INT16  x in 16-bit fixed point, a scale per 64 elements (relative rms error 2.3e-5 on Gaussian x, below
 *        that of fp16 activations); palettes in 15-bit fixed point; integer products: the same bytes on
 *        every machine. Not for palettes that would lose by it.
 * BF16   x and w rounded to bf16 (int8 with a scale per row is exact), fp32 sums in a fixed order.
 * INT8   x in 8-bit fixed point, a scale per 256 elements (x8.h): 6.6e-3 and more; for int8 with a scale per
 *        row. Integer products, the same bytes on every machine.
 * From the most to the least accurate: where a weight has no kernel for a path, the one before it is taken;
 * weights whose elements are rounded have EXACT alone. */
typedef enum { KERN_EXACT, KERN_INT16, KERN_BF16, KERN_INT8, KERN_PATHS } kern_path;
extern const char *const kern_path_name[KERN_PATHS]; /* "exact", ... */

/* What a kernel wants to read as x. Linears with equal form and cols can share one prepared copy. */
typedef enum {
    KERN_X_F32,     /* x itself, [n] rows, ldx apart */
    KERN_X_WORDS,   /* INT16: see x16.h; values in order */
    KERN_X_SPLIT,   /* of 64 values the even ones, then the odd ones */
    KERN_X_BYTES,   /* int16 as high and low bytes, 64 of each at a time */
    KERN_X_NIBBLES, /* as BYTES; of 128 elements the even ones, then the odd ones */
    KERN_X_PAIRS,   /* of 32 values 1 0 3 2 .. 7 6, 17 16 .. 23 22, 9 8 .. 15 14, 25 24 .. 31 30 */
    KERN_X_EIGHTHS, /* of 64 values 0 2 .. 14, 32 .. 46, 16 .. 30, 48 .. 62, then the odd ones so */
    KERN_X_PARITY,  /* of 32 values the even ones, then the odd ones */
    KERN_X_FOURTHS, /* of 64 values every fourth from 0, 1, 2, 3 on */
    KERN_X_LANES,   /* as BYTES, those of a lane together */
    KERN_X_TURNED,  /* of 16 blocks of 32 values the high bytes, then the low ones: of fours of a block, the
                       first of all blocks, the second of all, .. */
    KERN_X_TURNED4, /* as TURNED; a block's even values come before its odd ones */
    KERN_X_BF16,    /* as the instruction set wants it */
    KERN_X_INT8,    /* INT8: see x8.h */
    KERN_X_FORMS
} kern_form;

/* Bytes of n prepared rows of x, which start at a multiple of 64; 0 for KERN_X_F32. */
size_t kern_x_bytes(kern_form form, int64_t cols, int64_t n);

/* y[i][r] = sum over c of x[i][c] * w[r][c], + bias[r], + add[i][r]; i < n. */
typedef struct {
    const kern_weight *w;
    const void *x;     /* fp32 rows ldx apart, or prepared rows */
    int64_t n, ldx;    /* ldx in elements; unused for prepared rows */
    const float *bias; /* [rows] or NULL */
    const float *add;  /* [n] rows, ldadd apart, or NULL; may be y itself */
    int64_t ldadd;
    float *y;      /* [n] rows, ldy apart */
    int64_t ldy;   /* for many rows better no multiple of 1024: their cache lines compete */
    void *scratch; /* of this thread: kern_choice.scratch bytes at a multiple of 64; NULL where that is 0 */
} kern_linear;

typedef void kern_linear_fn(const kern_linear *job, int64_t lo, int64_t hi);
/* Rows [lo, hi) of x (ldx apart, cols elements each) into their places in dst, by any threads; splits at
 * multiples of 16 are the fastest. A row that holds an infinity or a NaN makes the results of its block NaN.
 */
typedef void kern_prepare_fn(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t lo, int64_t hi);
/* The same of columns [c, c + n), c a multiple of KERN_PART and so is n unless it ends the row; x: theirs. */
typedef void kern_prepare_part_fn(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t c, int64_t n,
                                  int64_t lo, int64_t hi);
#define KERN_PART 32
/* Elements [c, c + n) of row r of w as fp32 (embedding rows). */
typedef void kern_decode_fn(const kern_weight *w, int64_t r, int64_t c, int64_t n, float *out);

/* Weights that have kernels of their own; the rest is KERN_W_ANY. */
typedef enum {
    KERN_W_ANY,
    KERN_W_F32,
    KERN_W_F16,
    KERN_W_CHANNEL8, /* int8, a scale per row */
    KERN_W_BLOCK8,   /* int8, fp16 scale per 32 elements of a row */
    KERN_W_BLOCK4,   /* int4, fp16 scale per 32 elements of a row */
    KERN_W_PALETTE,  /* fp16 tables for whole rows; rows start at a byte */
    KERN_W_PALETTE4, /* the same of 4 bits */
    KERN_W_KINDS
} kern_kind;

kern_kind kern_kind_of(const kern_weight *w);

/* Every kernel: portable C fills the table, each instruction set overlays what it does better. */
typedef struct {
    const char *isa;                                  /* of the last overlay: "portable", "avx2", ... */
    kern_linear_fn *linear[KERN_PATHS][KERN_W_KINDS]; /* NULL: the path has none for this kind */
    kern_form form[KERN_PATHS][KERN_W_KINDS];
    uint16_t scratch[KERN_PATHS][KERN_W_KINDS];     /* bytes a column (rounded up to 64); EXACT: n > 1 */
    uint8_t band[KERN_PATHS][KERN_W_KINDS];         /* rows of w that are taken at a time; 0: 4 */
    kern_linear_fn *many[KERN_PATHS][KERN_W_KINDS]; /* for more than one row of x, which it wants in another
                                                       form; NULL: linear takes any */
    kern_form many_form[KERN_PATHS][KERN_W_KINDS];
    kern_prepare_fn *prepare[KERN_X_FORMS];           /* NULL for KERN_X_F32 */
    kern_prepare_part_fn *prepare_part[KERN_X_FORMS]; /* NULL for most */
    kern_decode_fn *decode;
} kern_table;

/* Fills t for this processor. cap: the highest instruction set to use, by name ("portable", "avx2",
 * "avx512", ...); NULL: no cap. False: cap is no such name. */
bool kern_open(kern_table *t, const char *cap, err *e);
/* The names from the least on, NULL behind the last. Those that the processor lacks are listed too. */
const char *const *kern_isas(void);

typedef struct {
    kern_linear_fn *run;
    kern_prepare_fn *prepare;           /* NULL: run reads x itself */
    kern_prepare_part_fn *prepare_part; /* NULL: x must be prepared by whole rows */
    kern_form form;
    kern_path path;  /* the one taken: at least as accurate as the wanted one */
    size_t scratch;  /* bytes per thread that run needs */
    int64_t grain;   /* splits at multiples of this many rows waste nothing */
    const char *isa; /* whose kernel: for reports */
} kern_choice;

/* The kernel for w and n rows of x at a time. Looks at the tables of a palette (INT16), not at the codes. */
kern_choice kern_choose(const kern_table *t, const kern_weight *w, kern_path path, int64_t n);
/* The kernel of the same path for another number of rows. */
kern_choice kern_choose_again(const kern_table *t, const kern_weight *w, const kern_choice *c, int64_t n);
#endif
