/* How fast this machine multiplies and adds in registers: the roof of everything that is bound by arithmetic.
 * Loops of independent chains of one instruction, to be timed.
 */
#ifndef KERNELS_RATES_H
#define KERNELS_RATES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KERN_RATES_MOST = 8 };

typedef struct {
    const char *name, *isa;      /* numbers and instruction, "fp32 fma"; the instruction set that has it */
    void (*run)(int64_t rounds); /* on any thread */
    double ops;                  /* multiplications and additions of a round */
    bool floats;                 /* of floating-point numbers, not of integers */
} kern_rate;

/* Every kind of product that this processor has (cap: as in kern_open), at its widest; wider numbers first.
 * Returns how many. */
size_t kern_rates(const char *cap, kern_rate list[KERN_RATES_MOST]);
#endif
