/* Which input means what: packages that a description (generate/describe.h) fits, ready to be driven. An
 * ordered set of packages (often one) is recognised by the names, types and shapes of inputs, outputs and
 * states; nothing else about it is assumed.
 *
 * A call runs a function in each package, in order. Packages hand hidden states on, the last one or several
 * return scores: pieces of one row, in order. Beside the function for one token there may be functions for
 * several tokens of a prompt. The two forms that millet makes are descriptions too:
 *
 *   form    inputs                                 outputs
 *   chunks  hidden fp16|fp32 [1,1,h],              logits [1,V], or hidden_out [1,1,h] for the next package
 *           current_pos int32 [1]
 *           beside it prefill functions: hidden [1,T,h], current_pos, valid_length int32 [1]; the logits are
 *           those of token valid_length - 1; hidden_out may be that of this token only, [1,1,h]
 *   single  input_ids int32 [1,T],                 logits [1,T,V], or
 *           causal_mask [1,1,T,K]                  topk_values, topk_ids [1,T,k]
 *
 * causal_mask is 0 where a token (row) sees a position (column); caches among the states, and masks of a
 * fixed length, bound the context. */
#ifndef GENERATE_CONTRACT_H
#define GENERATE_CONTRACT_H
#include "base/str.h"
#include "coreml/model.h"
#include "generate/describe.h"

typedef enum { CONTRACT_CHUNKS, CONTRACT_SINGLE, CONTRACT_OTHER } contract_form;

/* An input or output of a function, with its meaning. */
typedef struct {
    meaning is;
    const char *name;
    ir_type type;      /* T and K are IR_DIM_UNKNOWN where every call chooses them */
    int8_t t, k, c;    /* axes of tokens, of positions, of h or V; -1: it has none */
    size_t at;         /* output: which one of the function; carried: the output that it comes from */
    size_t carried;    /* carried: which one of the contract */
    float value;       /* causal_mask: what is not seen */
    double theta;      /* rope_* */
    bool pairs, local; /* as in describe_feature */
} contract_feature;

/* One package's part in a call. */
typedef struct {
    const char *function; /* borrowed from the model */
    const contract_feature *input, *output;
    size_t n_input, n_output; /* outputs that mean something */
    bool position, valid;     /* takes position, valid_length */
    bool logits;              /* what it returns counts as scores, not as hidden states */
    ir_type in;               /* of hidden, or of causal_mask, or of the first input */
    ir_type out;              /* of the first one of output */
    size_t n_out, at;         /* outputs of the function, and which one out is */
} contract_stage;

/* A function of the whole set. */
typedef struct {
    const char *name;            /* in the package that chooses */
    int64_t tokens;              /* T that it takes; flexible: the most */
    bool flexible;               /* T is 1 to tokens */
    describe_rows rows;          /* of T > 1 tokens: whose scores it returns; NONE: it leaves states */
    const contract_stage *stage; /* one a package, in order */
} contract_function;

enum { CONTRACT_MAX_FUNCTIONS = 33 }; /* of more prefill functions the first ones are taken */

typedef struct {
    const description *d;
    contract_form form;
    size_t n_package, n_layers; /* packages, and how many of them come before the ones that return scores */
    bool heads;                 /* those that return scores have no states: a call may end before them */
    const contract_function *func; /* [0]: for one token; then those for several, by T ascending */
    size_t n_func;
    const char *function; /* func[0].name */
    int64_t context;      /* positions that fit; INT32_MAX when nothing bounds them */
    int64_t hidden;       /* width of a row of hidden states; 0: there are none between packages */
    ir_dtype input_type;  /* of the first package's hidden, or of causal_mask */
    int64_t vocab;        /* scores in a row of logits; 0 when there are candidates only */
    int64_t in_vocab;     /* ids that the embedding inside a package has rows for; 0: not known */
    int64_t top_k;        /* candidates a token; 0: logits */
    size_t ids;           /* candidates: which output is topk_ids */
    bool best;            /* the graph returns the best id only: no scores to sample from */
    const int64_t *slice; /* best, of several slices with ids of their own: sizes of these; NULL */
    size_t n_slice;
    const struct contract_carried {
        const char *name; /* of the input */
        size_t package;
        ir_type type;
    } * carried; /* states that go in and out of every call */
    size_t n_carried;
} contract;

/* A package as errors name it. */
typedef struct {
    const char *name; /* "chunk_1_of_6.mlpackage" */
    const coreml_model *model;
} contract_package;

/* Fits n >= 1 packages in order to d. role: which of d->package each one is; NULL: the first. dir: where side
 * files lie (NULL: there are none). Everything found lives in a or is borrowed from d and the models. lacks
 * (may be NULL): of a package that is alone, what its default function lacks; e is set in any case when
 * false. Errors, in one line: what a package lacks (ERR_UNSUPPORTED); what is wrong between packages: their
 * order, a hand-over of another width, type or token count, a state that two have, contexts that differ
 * (ERR_INVALID). */
bool contract_match(contract *c, arena *a, const description *d, const char *dir, const contract_package *p,
                    const size_t *role, size_t n, str *lacks, err *e);

/* The same with the two forms of our own. Errors: what one package has and each form lacks, and as above. */
bool contract_find(contract *c, arena *a, const contract_package *p, size_t n, err *e);
/* The same, and what a lone package lacks for each of the two forms; free them. */
enum { CONTRACT_OWN = 2 }; /* chunks and single are the first descriptions */
bool contract_find_own(contract *c, arena *a, const contract_package *p, size_t n, str lacks[CONTRACT_OWN],
                       err *e);

/* "inputs x fp16[1,64]; outputs ...; states ...": what a function has, for errors. */
void contract_list(str *out, const coreml_function *f);

/* ---- contract_stage.c: one function and one described package ---- */

/* What a look at a function found. */
typedef struct {
    arena *a;
    const description *d;
    const char *dir;
    const coreml_model *m;
    const coreml_function *f;
    bool one;             /* a function for one token is wanted */
    bool states_only;     /* one that returns nothing will do: it leaves states */
    str lacks;            /* what is missing or wrong: "input hidden, output logits" */
    int64_t lower, upper; /* T that it takes; upper 0: it has none */
    int64_t positions;    /* K that fit; INT32_MAX when not bounded */
    int64_t width;        /* h; 0: none */
} contract_look;

void contract_lack(contract_look *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The part that l->f plays as package p of the description; false with l->lacks. */
bool contract_stage_match(contract_look *l, const describe_package *p, contract_stage *s);
/* Whether every input with a size T can have that one. */
bool contract_stage_admits(const coreml_function *f, const contract_stage *s, int64_t tokens);
/* Puts T in place. */
void contract_stage_fix(contract_stage *s, int64_t tokens);
#endif
