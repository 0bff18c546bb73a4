/* An artifact opened for generation: packages, embedding table, tokenizer, stop ids, sampling defaults.
 * Immutable; any number of threads may use one. */
#ifndef GENERATE_LM_H
#define GENERATE_LM_H
#include "generate/contract.h"
#include "generate/sampler.h"
#include "runtime/model.h"
#include "structured/matcher.h"
#include "text/tokenizer.h"

typedef struct {
    arena *a;
    rt_model **model; /* in the order in which a token goes through them */
    size_t n_model;
    const char *const *name; /* of each: the last part of its path */
    contract form;
    struct embedding *table;  /* chunks: rows of the hidden input; else NULL */
    const char *table_path;   /* where that is; NULL */
    bool ours;                /* a metadata file of millet's lies beside it */
    const char *dir;          /* where packages and side files lie */
    const char *text_path;    /* where the tokenizer's files lie; NULL */
    tokenizer *text;          /* NULL: ids only */
    int64_t vocab;            /* ids below it can be fed; 0: not known */
    stop_set stop;            /* union of all end ids */
    sampler_options defaults; /* temperature 0; the rest from generation_config.json */
    struct lm_lazy *lazy;     /* what is made when it is first asked for */
} lm;

/* path: an artifact directory or a .mlpackage (generate/artifact.h), or packages of others; tokenizer_dir:
 * NULL, or in place of the Tokenizer beside it. One package of a set is refused: the others are needed too.
 * Where nothing fits the error lists what was found and what each contract lacks. */
lm *lm_open(const char *path, const char *tokenizer_dir, err *e);
/* The same for packages that contract_file describes (docs/contracts.md), and only so. NULL: as lm_open(),
 * which knows what millet makes and the conventions of share/contracts. */
lm *lm_open_as(const char *path, const char *tokenizer_dir, const char *contract_file, err *e);
void lm_close(lm *m);
/* Ids from here on are never sampled: what the tokenizer doesn't know is padding in what millet made; in
 * packages of others all ids count, as their own programs sample them. */
int32_t lm_sample_limit(const lm *m);
/* Its tokens for constraints (structured/grammar.h): made by the first call, by any thread, and kept with m.
 * NULL: ERR_USAGE when there is no tokenizer, ERR_MEMORY. */
const vocabulary *lm_vocabulary(const lm *m, err *e);
/* Text to ids: the tokenizer's own beginning (BOS) and added tokens included. ERR_USAGE when there is no
 * tokenizer or nothing to feed. *ids: mem_free() it. */
bool lm_encode(const lm *m, const char *text, size_t len, int32_t **ids, size_t *n, err *e);
#endif
