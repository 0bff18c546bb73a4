/* Arrays of one test, each between pages that can't be touched, filled at random. */
#ifndef TEST_KERNELS_BUFFERS_H
#define TEST_KERNELS_BUFFERS_H
#include "kernels/ops.h"

typedef struct {
    uint64_t *seed;
    struct {
        void *p;
        size_t size, align;
        bool at_end;
    } list[64];
    int n;
    bool at_end; /* which side of the next array is guarded to the byte */
} buffers;

void *buffers_bytes(buffers *b, size_t size, size_t align);
/* n random numbers, normal with that spread. */
float *buffers_floats(buffers *b, int64_t n, double spread);
/* n numbers of that kind ('f': fp32, 'h': fp16, 'p': fp16 pair). */
kern_memory buffers_memory(buffers *b, char kind, int64_t n, double spread);
void buffers_free(buffers *b);

/* Element i in f64, read without the library's code. */
double memory_at(const kern_memory *m, int64_t i);
size_t memory_size(const kern_memory *m);

/* The end of a random piece that begins at lo; the whole when there is no seed. */
int64_t piece_end(int64_t lo, int64_t n, uint64_t *seed);
#define IN_PIECES(fn, job, n, seed)                                                                          \
    for (int64_t lo_ = 0, hi_; lo_ < (n); lo_ = hi_) {                                                       \
        hi_ = piece_end(lo_, n, seed);                                                                       \
        (fn)(job, lo_, hi_);                                                                                 \
    }
#endif
