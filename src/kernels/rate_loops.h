/* The loops behind kern_measure_rates(): independent chains of one instruction. ops: multiplications and
 * additions a round. */
#ifndef KERNELS_RATE_LOOPS_H
#define KERNELS_RATE_LOOPS_H
#include <stdint.h>

typedef void rate_fn(int64_t rounds);

#define RATE_CHAINS 12 /* cover a latency of 4 to 6 cycles on two ports */

rate_fn rate_portable_fp32, rate_avx2_fp32, rate_avx2_int16, rate_avx512_fp32, rate_avx512_int16,
    rate_avx512_int8, rate_avx512bf16_bf16, rate_amx_bf16, rate_amx_int8, rate_neon_fp32, rate_neon_int16,
    rate_neondot_int8;

/* Twelve variables of a type (an array would go through memory), which become NEXT(themselves) in each round;
 * reg: the constraint of their registers. */
#define RATE_LOOP(type, first, reg, NEXT)                                                                    \
    type a = first, b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a;             \
    for (int64_t round = 0; round < rounds; round++) {                                                       \
        a = NEXT(a), b = NEXT(b), c = NEXT(c), d = NEXT(d), e = NEXT(e), f = NEXT(f);                        \
        g = NEXT(g), h = NEXT(h), i = NEXT(i), j = NEXT(j), k = NEXT(k), l = NEXT(l);                        \
        __asm__ volatile("" /* so that nothing is left out */                                                \
                         : "+" reg(a), "+" reg(b), "+" reg(c), "+" reg(d), "+" reg(e), "+" reg(f),           \
                           "+" reg(g), "+" reg(h), "+" reg(i), "+" reg(j), "+" reg(k), "+" reg(l));          \
    }
#endif
