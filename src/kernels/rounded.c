#include "kernels/kernels.h"
#include "kernels/rounded_overlay.h"
#include <string.h>

size_t kern_rounded_scratch(int64_t heads, int64_t keys) {
    int64_t row = (keys + 15) / 16 * 16;
    return (size_t)((heads < 4 ? heads : 4) * row) * sizeof(float);
}

void kern_rounded_open(kern_rounded *t, const char *cap) {
    kern_table k;
    err ignored = {0}; /* of a cap that is no name */
    kern_rounded_portable(t);
    if (!kern_open(&k, cap, &ignored) || !strcmp(k.isa, "portable")) return;
#ifdef __x86_64__
    kern_rounded_avx2(t);
    if (strcmp(k.isa, "avx2")) kern_rounded_avx512(t);
#elif defined(__aarch64__)
    kern_rounded_neon(t);
#endif
}
