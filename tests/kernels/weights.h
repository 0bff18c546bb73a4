/* Random weights of every kind, for the kernel tests and the kernel benchmark: libc only. */
#ifndef TEST_KERNELS_WEIGHTS_H
#define TEST_KERNELS_WEIGHTS_H
#include "kernels/kernels.h"

/* One weight of the lists. */
typedef struct {
    const char *name;
    kern_type type; /* of elements; palettes: of the table */
    unsigned bits;  /* palette */
    int64_t rows, cols;
    int64_t block_rows, block_cols; /* 0: all rows, all columns */
    bool scale, offset;
    kern_type scale_type, offset_type;
} weight_case;

typedef struct {
    kern_weight w;
    void *data, *scale, *offset, *table; /* guarded buffers, or NULL */
    size_t data_size, scale_size, offset_size, table_size;
} test_weight;

/* n bytes, anonymous memory. at_end: the last byte is followed by a page that can't be touched; else the
 * first byte follows one. align: of the start; bytes behind an unaligned end are not guarded. */
extern bool guards; /* false: no page is made untouchable */
void *guarded(size_t n, size_t align, bool at_end);
void guarded_free(void *p, size_t n, size_t align, bool at_end);

uint64_t random_bits(uint64_t *seed);
double random_normal(uint64_t *seed);

/* A number of fp16 near v; element i of an array of them. */
uint16_t half_of(double v);
double half_at(const void *p, int64_t i);

void weight_make(test_weight *t, const weight_case *c, uint64_t *seed, bool at_end);
void weight_free(test_weight *t, bool at_end);
/* w[r][c] in f64, from the bytes, written without the library's code. */
double weight_at(const kern_weight *w, int64_t r, int64_t c);
#endif
