#include "kernels/rounded_overlay.h"
#include <string.h>

size_t kern_rounded_scratch(int64_t heads, int64_t keys) {
    int64_t row = (keys + 15) / 16 * 16;
    return (size_t)((heads < 4 ? heads : 4) * row) * sizeof(float);
}

void kern_rounded_open(kern_rounded *t, const char *cap) {
    kern_rounded_portable(t);
    if (cap && !strcmp(cap, "portable")) return;
#ifdef __x86_64__
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
        return;
    kern_rounded_avx2(t);
    if (cap && !strcmp(cap, "avx2")) return;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni"))
        kern_rounded_avx512(t);
#endif
}
