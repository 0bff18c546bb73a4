#include "kernels/rates.h"
#include "kernels/kernels.h"
#include "kernels/rate_loops.h"
#include <string.h>

#define LANES(bits) (RATE_CHAINS * 2.0 * 512 / (bits)) /* of a round with chains of 64 bytes */

/* Narrower numbers behind wider ones; of one name the best behind the others. */
static const kern_rate rows[] = {
    {"fp32 multiply, add", "portable", rate_portable_fp32, LANES(32) / 4, true},
#ifdef __x86_64__
    {"fp32 fma", "avx2", rate_avx2_fp32, LANES(32) / 2, true},
    {"fp32 fma", "avx512", rate_avx512_fp32, LANES(32), true},
    {"int16 products", "avx2", rate_avx2_int16, LANES(16) / 2, false},
    {"int16 products", "avx512", rate_avx512_int16, LANES(16), false},
    {"int8 products", "avx512", rate_avx512_int8, LANES(8), false},
    {"bf16 products", "avx512bf16", rate_avx512bf16_bf16, LANES(16), true},
    {"bf16 tiles", "amx", rate_amx_bf16, 4 * 2.0 * 16 * 16 * 32, true},
    {"int8 tiles", "amx", rate_amx_int8, 4 * 2.0 * 16 * 16 * 64, false},
#elif defined(__aarch64__)
    {"fp32 fma", "neon", rate_neon_fp32, LANES(32) / 4, true},
    {"int16 products", "neon", rate_neon_int16, LANES(32) / 4, false},
    {"int8 products", "neondot", rate_neondot_int8, LANES(8) / 4, false},
#endif
};

/* Place of an instruction set in the list, which ascends. */
static int level(const char *isa) {
    int i = 0;
    for (const char *const *name = kern_isas(); *name && strcmp(*name, isa) != 0; name++) i++;
    return i;
}

size_t kern_rates(const char *cap, kern_rate list[KERN_RATES_MOST]) {
    err ignored = {0};
    kern_table t;
    if (!kern_open(&t, cap, &ignored)) kern_open(&t, NULL, &ignored);
    size_t n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (level(rows[i].isa) > level(t.isa)) continue;
        if (n && !strcmp(list[n - 1].name, rows[i].name)) n--;
        list[n++] = rows[i];
    }
    return n;
}
