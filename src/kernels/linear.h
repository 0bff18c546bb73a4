/* What the linear kernels of several instruction sets share: behind a lanes_*.h. */
#ifndef KERNELS_LINEAR_H
#define KERNELS_LINEAR_H
#include "kernels/weight.h"
#include "kernels/x16.h"

#ifdef __clang__
#define EACH(k, n) _Pragma("unroll") for (int k = 0; k < (n); k++)
#else
#define EACH(k, n) _Pragma("GCC unroll 16") for (int k = 0; k < (n); k++)
#endif

#define BATCH 4 /* rows of x against one decoded row of w */

/* Weights, as constants of the functions that are compiled for each. The last four: palettes of up to 4 bits,
 * of 4, of up to 6, of 8. */
enum { F32, F16, CHANNEL8, BLOCK8, BLOCK4, TINY, FOUR, NARROW, WIDE };
#endif
