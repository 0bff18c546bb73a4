/* Which input means what. A package that can generate is recognised by the names, types and shapes of its
 * inputs, outputs and states; nothing else about it is assumed.
 *
 *   form    inputs                                              outputs                        states
 *   chunks  hidden fp16|fp32 [1,1,h], current_pos int32 [1]     logits [1,V]                   k_i
 * [1,Hkv,context,D], ... single  input_ids int32 [1,T], causal_mask [1,1,T,K]        logits [1,T,V], or
 * key_cache topk_values, topk_ids [1,T,k]  [L,1,Hkv,context,D], ...
 *
 * A package of form chunks may have prefill functions beside that one, with the same states and logits:
 *   hidden [1,T,h], current_pos [1], valid_length int32 [1]; logits of token valid_length - 1
 *
 * hidden is one row of the host's embedding table; causal_mask is 0 where a token (row) sees a position
 * (column) and -65504 elsewhere, K counts the positions up to and with these T tokens. */
#ifndef GENERATE_CONTRACT_H
#define GENERATE_CONTRACT_H
#include "coreml/model.h"

typedef enum { CONTRACT_CHUNKS, CONTRACT_SINGLE } contract_form;

/* A function of form chunks for several tokens of a prompt. */
typedef struct {
    const char *function; /* borrowed from the model */
    int64_t tokens;       /* T > 1 */
    size_t n_out, logits; /* outputs, and which one is logits */
} contract_prefill;

enum { CONTRACT_MAX_PREFILL = 16 };

typedef struct {
    contract_form form;
    const char *function; /* borrowed from the model */
    int64_t context;      /* positions that fit; INT32_MAX when no state bounds them */
    int64_t block;        /* most tokens a call of this function may carry (chunks: 1) */
    int64_t hidden;       /* chunks: width of a table row */
    ir_dtype input_type;  /* of hidden (chunks) or causal_mask (single): fp16 or fp32 */
    int64_t vocab;        /* rows of the logits; 0 when the package returns candidates only */
    int64_t in_vocab;     /* single: rows of the embedding inside the package, 0 when not found */
    int64_t top_k;        /* candidates a token; 0: logits */
    size_t n_out;         /* outputs of the function, and where among them are: */
    size_t logits, values, ids;
    contract_prefill
        prefill[CONTRACT_MAX_PREFILL]; /* chunks: by tokens, ascending; of more, the first ones */
    size_t n_prefill;
} contract;

/* Looks at the default function first, then at the others. ERR_UNSUPPORTED lists what the default one has and
 * what each form lacks. */
bool contract_find(contract *c, const coreml_model *m, err *e);

/* Where the parts of an artifact are; NULL: not there. Strings live in the arena. */
typedef struct {
    const char *package;   /* OUT/model.mlpackage, or the package itself */
    const char *table;     /* embed_tokens.bin beside it */
    const char *metadata;  /* metadata.json beside it */
    const char *tokenizer; /* the directory given, or Tokenizer beside the package */
} contract_paths;

/* path: an artifact directory or a .mlpackage. ERR_IO when it is neither. */
bool contract_locate(contract_paths *p, arena *a, const char *path, const char *tokenizer_dir, err *e);
#endif
