/* A loop over independent pieces of work on several threads. */
#ifndef BASE_PARALLEL_H
#define BASE_PARALLEL_H
#include <stddef.h>

#define PARALLEL_MAX 64

unsigned parallel_cpus(void); /* CPUs that this process may use, 1 .. PARALLEL_MAX */
/* Calls fn(ctx, i, thread) once for every i < n; thread < threads tells scratch memory apart. Returns when
 * all are done. The calling thread works too; threads 0: parallel_cpus(). Pieces are taken in ascending
 * order. */
void parallel_for(size_t n, unsigned threads, void (*fn)(void *ctx, size_t i, unsigned thread), void *ctx);
#endif
