/* Which input means what. An ordered set of packages (often one) that can generate is recognised by the
 * names, types and shapes of inputs, outputs and states; nothing else about it is assumed.
 *
 *   form    inputs                                 outputs
 *   chunks  hidden fp16|fp32 [1,1,h],              logits [1,V]
 *           current_pos int32 [1]
 *   single  input_ids int32 [1,T],                 logits [1,T,V], or
 *           causal_mask [1,1,T,K]                  topk_values, topk_ids [1,T,k]
 *
 * States are what they are; the key caches among them bound the context: k_i [1,Hkv,context,D], k_cache_i or
 * key_cache [..,context,D].
 *
 * hidden is one row of the host's embedding table; causal_mask is 0 where a token (row) sees a position
 * (column) and -65504 elsewhere, K counts the positions up to and with these T tokens.
 *
 * Form chunks may be cut into several packages. A function has the same name in all of them, and a call runs
 * it in each, in order: every package but the last returns hidden_out [1,1,h] in place of logits, which is
 * the next one's hidden (fp16 or fp32, converted when the two differ). Or several packages without states
 * stand at the end: each takes the last hidden_out and returns a piece of the logits; the row is the pieces
 * in order. A package that has no use for it may lack current_pos.
 *
 * Beside the function for one token there may be prefill functions:
 *   hidden [1,T,h], current_pos [1], valid_length int32 [1]; logits of token valid_length - 1
 * hidden_out is [1,T,h] then, or [1,1,h] of that token where the packages behind it are heads. */
#ifndef GENERATE_CONTRACT_H
#define GENERATE_CONTRACT_H
#include "coreml/model.h"

typedef enum { CONTRACT_CHUNKS, CONTRACT_SINGLE } contract_form;

/* One package's part in a call. */
typedef struct {
    const char *function; /* borrowed from the model */
    bool position, valid; /* chunks: takes current_pos, valid_length */
    bool logits;      /* what it returns counts as scores: all of single; chunks: logits, not hidden_out */
    ir_type in;       /* of hidden (chunks) or causal_mask (single) */
    ir_type out;      /* of hidden_out, logits, or topk_values */
    size_t n_out, at; /* outputs of the function, and which one that is */
} contract_stage;

/* A function of the whole set. */
typedef struct {
    const char *name;            /* in the first package */
    int64_t tokens;              /* T that it takes; single: the most */
    const contract_stage *stage; /* one a package, in order */
} contract_function;

enum { CONTRACT_MAX_FUNCTIONS = 33 }; /* of more prefill functions the first ones are taken */

typedef struct {
    contract_form form;
    size_t n_package, n_layers; /* packages, and how many of them come before the ones that return logits */
    bool heads; /* chunks: those that return logits have no states: a call may end before them */
    const contract_function
        *func; /* [0]: for one token (single: the only one); then prefill, by T ascending */
    size_t n_func;
    const char *function; /* func[0].name */
    int64_t context;      /* positions that fit; INT32_MAX when no state bounds them */
    int64_t hidden;       /* chunks: width of a table row */
    ir_dtype input_type;  /* of the first package's hidden, or of causal_mask: fp16 or fp32 */
    int64_t vocab;        /* scores in a row of logits; 0 when the package returns candidates only */
    int64_t in_vocab;     /* single: rows of the embedding inside the package, 0 when not found */
    int64_t top_k;        /* candidates a token; 0: logits */
    size_t ids;           /* candidates: which output is topk_ids */
} contract;

/* A package as errors name it. */
typedef struct {
    const char *name; /* "chunk_1_of_6.mlpackage" */
    const coreml_model *model;
} contract_package;

/* n >= 1 packages in order. Looks at the default function first, then at the others of the first package.
 * Everything found lives in a or is borrowed from the models. Errors, in one line: what one package has and
 * each form lacks (ERR_UNSUPPORTED); what is wrong between packages: their order, a hand-over of another
 * width, type or token count, a state that two have, contexts that differ (ERR_INVALID). */
bool contract_find(contract *c, arena *a, const contract_package *p, size_t n, err *e);
#endif
