/* Timing of kernels, for the programs here: many short bins in processor time, and the limits beside them. */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H
#include "kernels/rates.h"
#include <stdint.h>

#define MOST_THREADS 16

typedef struct {
    int threads;
    double seconds; /* for a figure, three bins at least */
} timing;

/* Units a second, of all threads together. best: that of a twentieth of the bins (one lucky tick is no
 * figure). */
typedef struct {
    double best, median;
} speed;

/* Zeroed memory in huge pages where the system has them; ends the program when there is none. */
void *timing_memory(int64_t bytes);

/* Times piece(ctx[t], i), units of work each, on thread t; the pieces i are shared out, and each thread walks
 * its share in a circle. Processor time: on a shared machine, waiting for the processor is no property of a
 * kernel. */
typedef void piece_fn(void *ctx, int64_t i);
speed timing_run(const timing *t, piece_fn *piece, void *const *ctx, int64_t pieces, double units);

/* Plain reads of data[0 .. pieces * bytes), bytes a piece: bytes a second. */
speed timing_read(const timing *t, const void *data, int64_t bytes, int64_t pieces);
/* Multiplications and additions a second. */
speed timing_arithmetic(const timing *t, const kern_rate *r);
/* The fastest products of an instruction set whose name begins with one of `names` ("int16 bf16": with
 * either), or else its fp32; *name: which. */
speed timing_roof(const timing *t, const char *isa, const char *names, const char **name);
#endif
