/* Compares an artifact with the checkpoint that it is said to come from: the measurements. report.h runs
 * them, judges and renders.
 *
 * The reference is the checkpoint's own graph, all in fp32: it is converted with precision float32 and
 * without compression into a temporary directory, opened, and the directory is removed at once (the maps
 * stay). */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H
#include "base/str.h"
#include "generate/decoder.h"

/* ---- watching a measurement ---- */

/* Where the work is: done of total (tokens fed, mostly). */
typedef struct {
    bool (*tick)(void *ctx, const char *phase, size_t done, size_t total); /* false stops; NULL: nobody */
    void *ctx;
    const char *phase;
    size_t done, total;
} check_watch;

void check_phase(check_watch *w, const char *phase, size_t total);
/* done more steps are behind us. False: ERR_CANCELLED. */
bool check_step(check_watch *w, size_t done, err *e);
/* The same without a step, as a keep_going hook; ctx is the check_watch. */
bool check_go(void *w);

/* ---- the reference ---- */

/* Same form and context as the artifact, one package; logits even where the artifact returns candidates.
 * Needs room for the checkpoint in fp32 below $TMPDIR (/tmp). For a Core AI asset it is one too, with the
 * same states. */
lm *check_reference(const char *checkpoint, const lm *artifact, check_watch *w, err *e);

/* A Core AI asset: its values have no names. */
bool check_is_asset(const lm *artifact);

/* ---- composites of a Core AI asset ---- */

#define CHECK_COMPOSITES 16 /* kinds that are told apart; there are five that plans know */
/* What a composite makes of its operands may differ from what its decomposition makes of them, in relation to
 * the largest number of a result (to 1 where all are smaller): in fp32 by other orders of sums; in fp16,
 * which decompositions round to at every op, by ten of its units. */
#define CHECK_COMPOSITE_FLOAT 1e-5
#define CHECK_COMPOSITE_HALF  0.01

typedef struct {
    char kind[64];
    size_t graphs, declared; /* that are called; of which so many are run as what they declare */
    double error;            /* the largest difference, measured by what is allowed */
    bool half;               /* of a result in fp16 */
} check_composite;

typedef struct {
    check_composite kind[CHECK_COMPOSITES];
    size_t n;
} check_composites;

/* Every composite of the asset at path that is run as what it declares, on made-up operands beside its
 * decomposition. */
bool check_composites_run(check_composites *r, const char *path, err *e);
bool check_composite_holds(const check_composite *c);
/* "1 of 1 composites rope run as declared, at most ... from the decomposition". */
void check_composite_text(const check_composite *c, str *s);

/* ---- what is fed ---- */

typedef struct {
    const char *name; /* "english", or the file */
    int32_t *ids;     /* malloc'ed, or borrowed (check_texts_cut) */
    size_t n;
} check_text;

typedef struct {
    check_text *text;
    size_t n;
    bool borrowed; /* the ids are another one's */
} check_texts;

/* Built-in texts in several languages, cut to the artifact's context; without a tokenizer one text of ids
 * that a fixed generator gives. Free with check_texts_free(), as the following. */
bool check_texts_builtin(check_texts *t, const lm *artifact, err *e);
/* Beginnings to continue, in the same languages. Without a tokenizer: of made-up ids. */
bool check_texts_prompts(check_texts *t, const lm *artifact, err *e);
/* Takes ids over. */
void check_texts_add(check_texts *t, const char *name, int32_t *ids, size_t n);
/* The beginnings of all texts of from that fit into a budget of tokens (0: all): short texts whole, the
 * others all as long as that allows. from must outlive it. */
void check_texts_cut(check_texts *t, const check_texts *from, size_t budget);
size_t check_texts_tokens(const check_texts *t);
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
    double cosine, kl;        /* KL(reference || artifact), nats */
    double error, range;      /* largest difference of two logits; largest spread of a position's logits */
    size_t next;              /* tokens whose score is part of the perplexities */
    size_t outside;           /* next tokens left out: not among the candidates */
    double nll_ref, nll;      /* sums over next */
    size_t bad_ids;           /* candidate ids outside of the vocabulary or returned twice at a position */
    check_position *position; /* malloc'ed; in the order in which they were fed */
    check_position worst[CHECK_WORST]; /* by KL */
    size_t n_worst;
    double seconds, seconds_ref;
} check_parity;

/* The residual stream behind a layer, over all positions: root of sum (x - ref)^2 / sum ref^2. */
typedef struct {
    int64_t layer;
    double error;
    uint64_t values;         /* compared */
    double difference, norm; /* the two sums */
} check_layer;

/* What a package hands to the next one, against the reference's value behind the same layer. */
typedef struct {
    const char *package; /* lives as long as the artifact */
    check_layer out;
} check_boundary;

typedef struct {
    check_layer *layer; /* malloc'ed; those that both have, by layer */
    size_t n;
    check_boundary *boundary; /* malloc'ed; one a package but the last */
    size_t n_boundary;
} check_layers;

/* Artifact and reference speak of the same vocabulary. */
bool check_same_vocabulary(const lm *artifact, const lm *reference, err *e);
/* Each text from fresh states, every token fed to the reference and to n artifacts, whose results are r[0 ..
 * n). layers: of the first one. Free the results with check_parity_free(), check_layers_free(), also after an
 * error. */
bool check_parity_run(check_parity *r, check_layers *layers, const lm *const *artifact, size_t n,
                      const lm *reference, const check_texts *t, rt_mode mode, check_watch *w, err *e);
void check_parity_free(check_parity *r);
void check_layers_free(check_layers *r);

/* ---- single steps from the reference's states ---- */

#define CHECK_STEPS 16

/* At a few positions the artifact takes over the reference's states, then both take one token: what a step
 * alone does to the scores, without what earlier steps have done to the states. own: the same positions,
 * reached by the artifact itself. */
typedef struct {
    size_t steps, agree, own_agree; /* the same best id as the reference */
    size_t certain, certain_agree;
    double kl, own_kl; /* means */
    double error;      /* largest difference of two logits */
} check_steps;

/* t: a text of at least two tokens. */
bool check_steps_run(check_steps *r, const lm *artifact, const lm *reference, const check_texts *t,
                     rt_mode mode, check_watch *w, err *e);

/* ---- prefill is decode ---- */

#define CHECK_TIE                                                                                            \
    0.02 /* of two ways to the same scores, the best id may differ where its lead is smaller                 \
          */
/* Largest root of sum (a - b)^2 / sum b^2 over the elements of a state. Two orders of summation give numbers
 * that round to neighbouring fp16 numbers (2^-11 of each); over the layers such differences add up in the
 * residual stream, and the recurrent state sums over tokens: eight roundings. */
#define CHECK_STATE_ERROR 0x1p-8

typedef struct {
    const char *text; /* "english", "repeated" */
    size_t tokens;
    char sizes[48]; /* of the calls, in turn: "16", "4,16,1" */
    int32_t want, got;
    double margin, kl, error; /* of the row behind the last token */
    double state_error;       /* the worst state's */
    const char *state;        /* its name; NULL: there are none */
    bool scores_ok, states_ok;
} check_prefill_case;

typedef struct {
    check_prefill_case *test; /* malloc'ed */
    size_t n, failed;
    size_t skipped; /* cases that the budget has no room for */
    size_t longest; /* tokens of the longest case that was run */
} check_prefill;

/* Each function for several tokens (preset single: blocks of tokens), alone and mixed, against one token a
 * call. budget: tokens fed in all; 0: no limit. */
bool check_prefill_run(check_prefill *r, const lm *artifact, const check_texts *t, size_t budget,
                       rt_mode mode, check_watch *w, err *e);
void check_prefill_free(check_prefill *r);

/* ---- weights ---- */

typedef struct {
    const char *name; /* lives as long as the artifact */
    uint64_t differ;  /* elements that are not the reference's, rounded to the artifact's type */
    uint64_t first;   /* the first of them; row-major */
    double error;     /* root of sum (x - ref)^2 / sum ref^2 */
    int64_t row;      /* the row with the largest row_error; -1: no matrix, or stored as it is */
    double row_error; /* the same over a row, but relative to the larger of its own and the mean row's norm */
    bool compressed, bad;
} check_weight;

/* Constants of at least CHECK_WEIGHT_MIN floats, by name; those of a Core AI asset by the order in which it
 * uses them. One that is stored as it is must be equal in every
 * element; a compressed one must have an error below CHECK_WEIGHT_ERROR, and below CHECK_ROW_ERROR in each
 * row (another row in its place has about 1.4). */
#define CHECK_WEIGHT_MIN   64
#define CHECK_WEIGHT_ERROR 0.3
#define CHECK_ROW_ERROR    0.7
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
} check_weights;

bool check_weights_run(check_weights *r, const lm *artifact, const lm *reference, check_watch *w, err *e);
void check_weights_free(check_weights *r);
/* Bits of the narrowest codes of a compressed weight; 16 when there are none. */
int check_least_bits(const lm *artifact);

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

bool check_ids_run(check_ids *r, const lm *artifact, check_watch *w, err *e);

/* ---- ranges ---- */

#define CHECK_FP16_MAX 65504.0
/* A value closer to CHECK_FP16_MAX than by this factor must be fp32: texts that were not tried may double it.
 */
#define CHECK_HEAD_ROOM 2.0
/* And so must one whose sum of magnitudes would lose more than this to subnormal fp16 numbers: as much as the
 * rounding of normal ones may take. */
#define CHECK_SUBNORMAL_LOSS 0x1p-11

/* One float value of the program, over all runs. Hidden: elements <= -20000 or -infinity of what is made of a
 * mask (up to the softmax or product that ends it); they count nowhere else. */
typedef struct {
    const char *package, *function, *name, *op; /* live as long as the artifact */
    ir_dtype dtype;
    double largest;                                /* finite magnitude */
    uint64_t values, subnormal, nonfinite, hidden; /* subnormal: not 0 and below 2^-14 */
    /* The same value in the fp32 reference; NAN when there is none of that name: */
    double reference; /* largest magnitude */
    double loss;      /* share of the sum of magnitudes that rounding to subnormal fp16 numbers takes away */
} check_range;

typedef enum { CHECK_KEEP_NO, CHECK_KEEP_RANGE, CHECK_KEEP_SUBNORMAL } check_keep;
/* Whether the value must be fp32, and why. */
check_keep check_range_keep(const check_range *r);

typedef struct {
    check_range *row; /* malloc'ed; by falling magnitude */
    size_t n, tokens;
    size_t beyond; /* rows with a magnitude beyond CHECK_FP16_MAX: fp32 values that would overflow fp16 */
    uint64_t nonfinite, hidden;
    const char *first_nonfinite; /* in time; NULL: none */
    str first_path;              /* where: package, function, text, token; and what it was made of */
} check_ranges;

/* Runs the artifact in strict mode: every op rounds to its declared type; and the reference for comparison.
 */
bool check_ranges_run(check_ranges *r, const lm *artifact, const lm *reference, const check_texts *t,
                      check_watch *w, err *e);
void check_ranges_free(check_ranges *r);
/* Writes the file that convert --precision-plan follows: the values that must be fp32. */
bool check_plan_write(const check_ranges *r, const char *path, size_t *entries, err *e);

/* ---- repetition ---- */

#define CHECK_CONTINUE 64 /* tokens to generate, greedily, end tokens being like others */

/* Shares are over all prompts. Tokens: those that came before in the same continuation. Characters: those
 * equal to the one before. Trigrams: of tokens, those that came before. */
typedef struct {
    size_t prompts, tokens, characters, trigrams;
    size_t repeated_tokens, repeated_characters, repeated_trigrams;
    size_t run; /* longest run of one token */
    double seconds;
} check_repetition;

/* One continuation into the sums; text may be empty. */
void check_repetition_add(check_repetition *r, const int32_t *ids, size_t n, const char *text, size_t len);
bool check_repetition_run(check_repetition *r, const lm *m, const check_texts *prompts, rt_mode mode,
                          check_watch *w, err *e);

/* ---- structure ---- */

typedef enum {
    CHECK_ATTENTION,
    CHECK_DELTANET,
    CHECK_MLP,
    CHECK_VOCABULARY,
    CHECK_OTHER, /* norms, tables of positions */
    CHECK_CLASSES
} check_class;
extern const char *const check_class_name[CHECK_CLASSES];

typedef struct {
    const char *name; /* of the package */
    size_t functions;
    uint64_t bytes;        /* of stored weights */
    uint64_t shared_bytes; /* of them, used by more than one function */
    uint64_t double_bytes; /* weights of one name that functions hold in different places */
} check_package;

typedef struct {
    check_package *package; /* malloc'ed */
    size_t n;
    uint64_t values[CHECK_CLASSES], bytes[CHECK_CLASSES]; /* weights as stored, the table among vocabulary */
    uint64_t file_bytes;                                  /* of packages and table */
    size_t states;
    size_t checked_files;        /* whose digest or size the metadata states */
    check_composites composites; /* of an asset */
} check_structure;

/* Weights, states and files of the artifact against each other and against its metadata. failures: a line a
 * contradiction. path: as for lm_open(). */
bool check_structure_run(check_structure *r, str *failures, const char *path, const lm *artifact,
                         check_watch *w, err *e);
void check_structure_free(check_structure *r);
#endif
