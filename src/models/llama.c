#include "models/blocks.h"

/* Plain attention; biases only where config.json asks for them. */
static ir_value *layer(graph *g, ir_value *x) {
    bool bias = g->c->attention_bias;
    return decoder_layer(g, x, &(attention_kind){.qkv_bias = bias, .o_bias = bias}, FOLD_NONE);
}

const model_family family_llama = {
    .config =
        {.name = "llama", .model_type = {"llama"}, .rotary_factor = 1, .gguf = "llama", .gguf_pairs = true},
    .layer = layer,
};
