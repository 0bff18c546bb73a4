#include "models/blocks.h"

/* Three of four layers are gated DeltaNet, the others gated attention; norms are stored as offsets from 1. */
static ir_value *layer(graph *g, ir_value *x) {
    bool bias = g->c->attention_bias;
    attention_kind gated = {
        .qk_norm = true, .fold = FOLD_ADD_ONE, .gate = true, .qkv_bias = bias, .o_bias = bias};
    return decoder_layer(g, x, g->c->linear_layer[g->layer] ? NULL : &gated, FOLD_ADD_ONE);
}

const model_family family_qwen3_5 = {
    .config = {.name = "qwen3_5",
               .model_type = {"qwen3_5", "qwen3_5_text"},
               .linear_layers = true,
               .rotary_factor = 0.25,
               .partial_rotary = true,
               .head_dim = 256,
               .gguf = "qwen35",
               .gguf_model_type = "qwen3_5_text"},
    .no_single =
        "its DeltaNet layers keep a recurrent state that a call with a flexible number of tokens can't step",
    .final_norm = FOLD_ADD_ONE,
    .layer = layer,
};
