#include "models/blocks.h"

/* Attention with biases on q, k and v, always; none elsewhere. Covers Qwen2 and Qwen2.5. */
static ir_value *layer(graph *g, ir_value *x) {
    return decoder_layer(g, x, &(attention_kind){.qkv_bias = true}, FOLD_NONE);
}

const model_family family_qwen2 = {
    .config = {.name = "qwen2", .model_type = {"qwen2"}, .rotary_factor = 1, .gguf = "qwen2"},
    .layer = layer,
};
