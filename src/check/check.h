/* Compares an artifact with the checkpoint that it is said to come from.
 *
 * The reference is the checkpoint's own graph, all in fp32: it is converted with precision float32 and
 * without compression into a temporary directory, opened, and the directory is removed at once (the maps
 * stay). */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H
#include "base/str.h"
#include "generate/decoder.h"

/* ---- the reference ---- */

/* Same form and context as the artifact; logits even where the artifact returns candidates. Needs room for
 * the checkpoint in fp32 below $TMPDIR (/tmp). keep_going may be NULL; false: ERR_CANCELLED. */
lm *check_reference(const char *checkpoint, const lm *artifact, bool (*keep_going)(void *ctx), void *ctx,
                    err *e);

/* ---- what is fed ---- */

typedef struct {
    const char *name; /* "english", or the file */
    int32_t *ids;     /* malloc'ed */
    size_t n;
} check_text;

typedef struct {
    check_text *text;
    size_t n;
} check_texts;

/* Short built-in texts in several languages, cut to the artifact's context; without a tokenizer one text of
 * ids that a fixed generator gives. Free with check_texts_free(). */
bool check_texts_builtin(check_texts *t, const lm *artifact, err *e);
/* Takes ids over. */
void check_texts_add(check_texts *t, const char *name, int32_t *ids, size_t n);
void check_texts_free(check_texts *t);

/* ---- parity ---- */

#define CHECK_MARGIN 0.1 /* lead of the reference's best logit from which on its choice counts as certain */
#define CHECK_WORST  5

typedef struct {
    size_t text, index; /* the scores behind token index of this text */
    int32_t token, want, got;
    double kl, margin;
} check_position;

/* Means are over all positions. A package that returns candidates is compared on them alone: cosine, KL,
 * error and both perplexities see the scores of these ids only, p relative to them. */
typedef struct {
    size_t positions, agree; /* agree: the same best id */
    size_t certain, certain_agree;
    double cosine, kl;   /* KL(reference || artifact), nats */
    double error, range; /* largest difference of two logits; largest spread of a position's logits */
    size_t next;         /* tokens whose score is part of the perplexities */
    size_t outside;      /* next tokens left out: not among the candidates */
    double nll_ref, nll; /* sums over next */
    size_t bad_ids;      /* candidate ids outside of the vocabulary or returned twice at a position */
    check_position worst[CHECK_WORST]; /* by KL */
    size_t n_worst;
    double seconds, seconds_ref;
} check_parity;

/* Each text from fresh states, every token fed to both. */
bool check_parity_run(check_parity *r, const lm *artifact, const lm *reference, const check_texts *t,
                      rt_mode mode, bool (*keep_going)(void *ctx), void *ctx, err *e);

/* ---- weights ---- */

typedef struct {
    const char *name; /* lives as long as the artifact */
    uint64_t differ;  /* elements that are not the reference's, rounded to the artifact's type */
    uint64_t first;   /* the first of them; row-major */
    double error;     /* root of sum (x - ref)^2 / sum ref^2 */
    bool compressed, bad;
} check_weight;

/* Constants of at least CHECK_WEIGHT_MIN floats, by name. One that is stored as it is must be equal in every
 * element; a compressed one must have an error below CHECK_WEIGHT_ERROR. */
#define CHECK_WEIGHT_MIN   64
#define CHECK_WEIGHT_ERROR 0.3
typedef struct {
    size_t exact, compressed; /* weights that were compared */
    size_t unmatched;         /* weights of the artifact that the reference doesn't have, by name and shape */
    const char *first_unmatched;
    size_t missing; /* the other way round */
    const char *first_missing;
    const char *worst; /* the compressed weight with the largest error */
    double worst_error;
    check_weight *bad; /* malloc'ed */
    size_t n_bad;
    int least_bits; /* of the codes of compressed weights; 16 when there are none */
} check_weights;

bool check_weights_run(check_weights *r, const lm *artifact, const lm *reference, err *e);
void check_weights_free(check_weights *r);

/* ---- ids ---- */

/* The part of a top-k package behind the vocabulary projection is run on made-up scores that put known rows
 * on top: the ids that come back must be theirs. Rows are counted over the projection's pieces, in program
 * order. */
typedef struct {
    int64_t pieces, rows; /* of the projection; 0: the package returns logits, whose place is their id */
    int64_t audited;      /* rows that were on top once: all, or a sample when that would take too long */
    int64_t wrong;        /* of them, how many got another id */
    int64_t row, id;      /* the first of these */
} check_ids;

bool check_ids_run(check_ids *r, const lm *artifact, bool (*keep_going)(void *ctx), void *ctx, err *e);

/* ---- ranges ---- */

#define CHECK_FP16_MAX 65504.0

/* One float value of the program, over all runs. Hidden: elements <= -20000 or -infinity of what is made of a
 * mask (up to the softmax or product that ends it); they count nowhere else. */
typedef struct {
    const char *name, *op; /* live as long as the artifact */
    ir_dtype dtype;
    double largest;                                /* finite magnitude */
    uint64_t values, subnormal, nonfinite, hidden; /* subnormal: not 0 and below 2^-14 */
} check_range;

typedef struct {
    check_range *row; /* malloc'ed; by falling magnitude */
    size_t n;
    size_t beyond; /* rows with a magnitude beyond CHECK_FP16_MAX */
    uint64_t nonfinite, hidden;
    const char *first_nonfinite; /* in time; NULL: none */
} check_ranges;

/* Runs the artifact in strict mode: every op rounds to its declared type. */
bool check_ranges_run(check_ranges *r, const lm *artifact, const check_texts *t,
                      bool (*keep_going)(void *ctx), void *ctx, err *e);
void check_ranges_free(check_ranges *r);

/* ---- metadata.json ---- */

/* What metadata.json beside the package says against what the package is. Appends a line a contradiction. No
 * file: nothing. path: as for lm_open(). */
bool check_metadata_run(str *failures, const char *path, const lm *artifact, err *e);
#endif
