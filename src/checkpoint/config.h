/* config.json as a typed configuration, one form for every family. */
#ifndef CHECKPOINT_CONFIG_H
#define CHECKPOINT_CONFIG_H
#include "base/arena.h"
#include "base/err.h"

typedef enum { ROPE_DEFAULT, ROPE_LLAMA3 } rope_kind;

typedef struct {
    rope_kind kind;
    double theta;
    int64_t dims; /* rotated dimensions of a head (head_dim * partial_rotary_factor) */
    double factor, low_freq_factor, high_freq_factor, original_max; /* ROPE_LLAMA3 */
} rope_config;

typedef struct {
    const char *family;       /* row of the family table in models/: "qwen3_5", "qwen3", "qwen2", "llama" */
    const char *model_type;   /* as written in the file */
    const char *name;         /* directory name or _name_or_path, for summaries */
    int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, max_position;
    double eps;
    rope_config rope;
    bool tie_embeddings, attention_bias, mlp_bias;
    const bool *linear_layer; /* [layers]: true = gated DeltaNet (qwen3_5) */
    int64_t linear_k_heads, linear_v_heads, linear_k_dim, linear_v_dim, conv_kernel;
    int64_t mtp_layers;
    const int64_t *eos;       /* eos_token_id of config.json and generation_config.json, united */
    size_t n_eos;
} ckpt_config;

/* Reads DIR/config.json (text_config first, then the top level) and, when present, generation_config.json's eos. Refuses
 * by name what is not supported: MoE, vision-only, pre-quantized, unknown model types, sliding windows in use, ... */
bool config_read(ckpt_config *c, arena *a, const char *dir, err *e);
/* The same from text (fuzzing). */
bool config_parse(ckpt_config *c, arena *a, const char *what, const void *text, size_t n, err *e);
#endif
