#include "kernels/rate_loops.h"

typedef float lanes __attribute__((vector_size(16)));

#if defined(__x86_64__)
#define REGISTER "x"
#elif defined(__aarch64__)
#define REGISTER "w"
#else
#define REGISTER "m"
#endif

/* A product and a sum, as plain C is compiled: without contraction. */
#define NEXT(v) ((v)*x + x)
void rate_portable_fp32(int64_t rounds) {
    lanes x = {0.5f, 0.25f, 0.5f, 0.25f};
    RATE_LOOP(lanes, x, REGISTER, NEXT)
}
