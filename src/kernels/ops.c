#include "kernels/ops.h"
#include "kernels/overlay.h"
#include <string.h>

static const struct {
    const char *name;
    void (*overlay)(kern_ops *t);
} table[] = {
    {"portable", kern_ops_portable},
#ifdef __x86_64__
    {"avx2", kern_ops_avx2},
    {"avx512", kern_ops_avx512},
    {"amx", kern_ops_amx},
#elif defined(__aarch64__)
    {"neon", kern_ops_neon},
#endif
};

bool kern_ops_open(kern_ops *t, const char *cap, err *e) {
    kern_table k;
    if (!kern_open(&k, cap, e)) return false;
    for (const char *const *name = kern_isas(); *name; name++) {
        for (size_t i = 0; i < sizeof table / sizeof *table; i++)
            if (!strcmp(*name, table[i].name)) {
                table[i].overlay(t);
                t->isa = table[i].name;
            }
        if (!strcmp(*name, k.isa)) break;
    }
    return true;
}

/* ---- sizes, for every instruction set alike ---- */

int64_t kern_partial_size(const kern_attention *job) {
    if (job->tokens >= KERN_MANY) return 0;
    return job->tokens * job->heads * ((job->keys + KERN_KEYS - 1) / KERN_KEYS) * (job->d_v + 16);
}

size_t kern_attention_scratch(const kern_attention *job) {
    int64_t pairs = job->k.rest ? KERN_KEYS * (job->d + job->d_v) : 0;
    int64_t few = 4 * (job->d + 16) + pairs, many = 64 * (2 * job->d + 2 * job->d_v + 64 + 4);
    size_t floats = (size_t)(job->tokens < KERN_MANY ? few : many) * sizeof(float), tiles = 0;
#ifdef __x86_64__
    if (job->tokens >= KERN_MANY) tiles = kern_amx_attention_scratch(job->d, job->d_v);
#endif
    return tiles > floats ? tiles : floats;
}

size_t kern_delta_scratch(const kern_delta *job) {
    int64_t columns = (job->dv + 63) / 64 * 64;
    size_t steps = (size_t)(columns * job->dk + 2 * 32 * (job->dk + 64) + 3 * 32) * sizeof(float), chunks = 0;
#ifdef __x86_64__
    if (job->tokens >= KERN_DELTA_MANY) chunks = kern_amx_delta_scratch(job->dk, job->dv);
#endif
    return chunks > steps ? chunks : steps;
}

size_t kern_top_scratch(int64_t k) {
    return (size_t)k * 8;
}
