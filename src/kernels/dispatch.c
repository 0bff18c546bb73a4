#define _GNU_SOURCE
#include "kernels/overlay.h"
#include "kernels/weight.h"
#include "kernels/x16.h"
#include "kernels/x8.h"
#include <math.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

typedef struct {
    const char *name;
    bool (*present)(void);
    void (*overlay)(kern_table *t);
} isa;

static bool always(void) {
    return true;
}

#ifdef __x86_64__
/* Leaf 1: F16C is bit 29 of ECX; not every compiler knows its name. */
static bool has_avx2(void) {
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

/* Ice Lake and Zen 4 on. */
static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
}

/* Leaf 7.1: bit 5 of EAX. */
static bool has_avx512bf16(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

/* Tiles need the processor's word (leaf 7: bf16 22, tiles 24, int8 25 of EDX) and, on Linux, the kernel's
 * permission for the process. */
static bool has_amx(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1) || !(d >> 25 & 1))
        return false;
#ifdef __linux__
    return !syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */);
#else
    return false;
#endif
}
#endif

#ifdef __aarch64__
/* Dot products of bytes, from Armv8.2 on: HWCAP_ASIMDDP. */
static bool has_neondot(void) {
#ifdef __linux__
    return getauxval(AT_HWCAP) >> 20 & 1;
#else
    return false;
#endif
}
#endif

/* In ascending order; each may use what the ones before it have. */
#ifdef __x86_64__
#define ISAS(ROW)                                                                                            \
    ROW(portable, always)                                                                                    \
    ROW(avx2, has_avx2)                                                                                      \
    ROW(avx512, has_avx512) ROW(avx512bf16, has_avx512bf16) ROW(amx, has_amx)
#elif defined(__aarch64__)
#define ISAS(ROW) ROW(portable, always) ROW(neon, always) ROW(neondot, has_neondot)
#else
#define ISAS(ROW) ROW(portable, always)
#endif

#define AS_ROW(name, present) {#name, present, kern_##name},
static const isa table[] = {ISAS(AS_ROW)};
#define N_ISA (sizeof table / sizeof *table)

const char *const kern_path_name[KERN_PATHS] = {"exact", "int16", "bf16", "int8"};

const char *const *kern_isas(void) {
#define AS_NAME(name, present) #name,
    static const char *const name[] = {ISAS(AS_NAME) NULL};
    return name;
}

bool kern_open(kern_table *t, const char *cap, err *e) {
    size_t last = N_ISA - 1;
    for (size_t i = 0; cap && i <= N_ISA; i++) {
        if (i == N_ISA) return err_set(e, ERR_USAGE, "there is no instruction set named '%s'", cap);
        if (!strcmp(cap, table[i].name)) {
            last = i;
            break;
        }
    }
    for (size_t i = 0; i <= last && table[i].present(); i++) {
        table[i].overlay(t);
        t->isa = table[i].name;
    }
    return true;
}

size_t kern_x_bytes(kern_form form, int64_t cols, int64_t n) {
    if (form == KERN_X_F32) return 0;
    if (form == KERN_X_INT8) return (size_t)((n + 15) / 16) * x8_group(cols);
    if (form == KERN_X_BF16) return (size_t)((n + 15) / 16 * 16 * ((cols + 63) / 64 * 64)) * 2;
    return (size_t)n * x16_stride(cols);
}

kern_kind kern_kind_of(const kern_weight *w) {
    bool rows = w->block_cols == w->cols;
    if (w->bits) {
        if (!rows || w->table_type != KERN_F16 || w->cols * w->bits % 8) return KERN_W_ANY;
        if (w->bits == 7) return KERN_W_ANY; /* Core ML has none: plain C is fast enough */
        return w->bits == 4 ? KERN_W_PALETTE4 : KERN_W_PALETTE;
    }
    if (!w->scale)
        return w->offset             ? KERN_W_ANY
               : w->type == KERN_F32 ? KERN_W_F32
               : w->type == KERN_F16 ? KERN_W_F16
                                     : KERN_W_ANY;
    if (w->offset || w->block_rows != 1) return KERN_W_ANY;
    if (w->type == KERN_I8 && rows) return KERN_W_CHANNEL8;
    if (w->block_cols != X16_BLOCK || w->scale_type != KERN_F16) return KERN_W_ANY;
    return w->type == KERN_I8 ? KERN_W_BLOCK8 : w->type == KERN_I4 ? KERN_W_BLOCK4 : KERN_W_ANY;
}

/* Whether rounding a table's entries to fixed point costs (rms) at most 2^-10 of their mean size: far below
 * what choosing the palette cost. In that mean an entry counts as an eighth of the largest at most, so that a
 * table with a far outlier, whose other entries would lose more, does not fit. */
static bool table_fits(const uint16_t *half, int n) {
    int16_t q[256];
    float scale, largest = 0;
    double error = 0, size = 0;
    x16_table(q, &scale, half, n);
    for (int i = 0; i < n; i++) largest = fmaxf(largest, fabsf(kern_half_at(half, i)));
    for (int i = 0; i < n; i++) {
        float v = kern_half_at(half, i), d = v - (float)q[i] * scale;
        error += (double)d * (double)d;
        size += (double)fminf(fabsf(v), largest / 8);
    }
    double limit = size / n * 0x1p-10;
    return error <= limit * limit * n;
}

static bool palette_fits(const kern_weight *w) {
    for (int64_t r = 0; r < w->rows; r += w->block_rows)
        if (!table_fits(kern_table_of(w, r), 1 << w->bits)) return false;
    return true;
}

static bool has_kernel(const kern_table *t, const kern_weight *w, kern_path path, kern_kind kind) {
    if (path == KERN_EXACT) return true;
    return !w->rounded && t->linear[path][kind] && (path != KERN_INT16 || !w->bits || palette_fits(w));
}

static kern_choice choice_of(const kern_table *t, const kern_weight *w, kern_path path, kern_kind kind,
                             int64_t n) {
    bool many = n > 1 && t->many[path][kind];
    kern_form form = many ? t->many_form[path][kind] : t->form[path][kind];
    size_t columns = (size_t)(w->cols + 63) / 64 * 64;
    return (kern_choice){.run = many ? t->many[path][kind] : t->linear[path][kind],
                         .prepare = t->prepare[form],
                         .prepare_part = t->prepare_part[form],
                         .form = form,
                         .path = path,
                         .scratch = n > 1 || path >= KERN_BF16 ? columns * t->scratch[path][kind] : 0,
                         .grain = t->band[path][kind] ? t->band[path][kind] : 4,
                         .isa = t->isa};
}

kern_choice kern_choose(const kern_table *t, const kern_weight *w, kern_path path, int64_t n) {
    kern_kind kind = kern_kind_of(w);
    while (!has_kernel(t, w, path, kind)) path--;
    return choice_of(t, w, path, kind, n);
}

kern_choice kern_choose_again(const kern_table *t, const kern_weight *w, const kern_choice *c, int64_t n) {
    return choice_of(t, w, c->path, kern_kind_of(w), n);
}
