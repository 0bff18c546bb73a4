#include "checkpoint/config.h"
#include "models/models.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Parses; what is accepted keeps the promises that graphs rely on. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    arena *a = arena_new();
    err e = {0};
    ckpt_config c;
    bool ok = config_parse(&c, a, "config.json", data, n, models_families(), &e);
    if (ok == (e.code != ERR_NONE)) abort();
    if (ok) {
        if (!c.family || c.heads % c.kv_heads || c.rope.dims % 2 || c.rope.dims > c.head_dim || !(c.eps > 0))
            abort();
        unsigned linear = 0;
        for (int64_t i = 0; i < c.layers; i++) linear += c.linear_layer[i];
        if (linear && (!c.linear_k_heads || c.linear_v_heads % c.linear_k_heads || c.conv_kernel < 2))
            abort();
        for (size_t i = 0; i < c.n_eos; i++)
            if (c.eos[i] < 0) abort();
    }
    arena_free(a);
    return 0;
}
