/* config.json as a typed configuration, one form for every family. */
#ifndef CHECKPOINT_CONFIG_H
#define CHECKPOINT_CONFIG_H
#include "base/arena.h"
#include "base/err.h"

/* What the reader has to know about a family of models. The families themselves are rows of a table in
 * models/. */
typedef struct {
    const char *name;
    const char *model_type[3];   /* the file's model_type values that mean this family; unused ones NULL */
    bool linear_layers;          /* some layers may be "linear_attention" */
    double rotary_factor;        /* partial_rotary_factor when the file gives none */
    bool partial_rotary;         /* other factors than rotary_factor are part of the family */
    int64_t head_dim;            /* when the file gives none; 0: hidden_size / num_attention_heads */
    const char *gguf;            /* what general.architecture of a GGUF file calls it; NULL: nothing */
    const char *gguf_model_type; /* the model_type that such a file has; NULL: the first */
    bool gguf_pairs; /* such files have rows of query and key heads in the order in which RoPE pairs them */
} ckpt_family;

typedef enum { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_DIVISORS } rope_kind;

typedef struct {
    rope_kind kind;
    double theta;
    int64_t dims;        /* rotated dimensions of a head (head_dim * partial_rotary_factor), even */
    double factor;       /* of the context; ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN */
    double original_max; /* positions of the context before; ROPE_LLAMA3, ROPE_YARN */
    double low_freq_factor, high_freq_factor; /* ROPE_LLAMA3 */
    double beta_fast, beta_slow; /* ROPE_YARN: turns over that context, from which on a pair is left alone,
                                    and up to which it is stretched whole */
    bool truncate;               /* ROPE_YARN: these bounds are whole pairs */
    double attention;            /* factor of cosines and sines; 1 but for ROPE_YARN */
    const float *divisor;        /* ROPE_DIVISORS: [dims / 2], of the frequencies */
} rope_config;

typedef struct {
    const ckpt_family *family;
    const char *model_type; /* as written in the file */
    const char *name;       /* directory name or _name_or_path, for summaries */
    int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, max_position;
    double eps;
    rope_config rope;
    bool tie_embeddings, attention_bias, mlp_bias;
    bool tie_conflict; /* text_config (which counts) and the top level disagree about tie_word_embeddings */
    const bool *linear_layer; /* [layers]: true = gated DeltaNet */
    int64_t linear_k_heads, linear_v_heads, linear_k_dim, linear_v_dim,
        conv_kernel; /* 0 without such layers */
    int64_t mtp_layers;
    const int64_t *eos; /* eos_token_id of config.json and generation_config.json, united */
    size_t n_eos;
} ckpt_config;

/* Reads DIR/config.json (text_config first, then the top level) and, when present, generation_config.json's
 * eos. families: NULL-terminated. Refuses by name what is not supported: MoE, vision-only, pre-quantized,
 * unknown model types, sliding windows in use, RoPE types, activations. */
bool config_read(ckpt_config *c, arena *a, const char *dir, const ckpt_family *const *families, err *e);
/* The same from the text of config.json. what: the file's name for errors. */
bool config_parse(ckpt_config *c, arena *a, const char *what, const void *text, size_t n,
                  const ckpt_family *const *families, err *e);
/* Whether some layer keeps a recurrent state. */
bool ckpt_is_recurrent(const ckpt_config *c);
#endif
