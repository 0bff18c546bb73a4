#include "models/blocks.h"

/* Attention with a plain RMS norm on each query and key head. */
static ir_value *layer(graph *g, ir_value *x) {
    bool bias = g->c->attention_bias;
    return decoder_layer(g, x, &(attention_kind){.qk_norm = true, .qkv_bias = bias, .o_bias = bias},
                         FOLD_NONE);
}

const model_family family_qwen3 = {
    .config =
        {.name = "qwen3", .model_type = {"qwen3"}, .rotary_factor = 1, .head_dim = 128, .gguf = "qwen3"},
    .layer = layer,
};
