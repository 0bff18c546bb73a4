/* Contract descriptions: how the packages of a convention are recognised and driven, as data. One JSON file a
 * convention (share/contracts, docs/contracts.md, docs/schema/contract.schema.json); those that are shipped
 * are also part of the program. This file holds a description in memory; contract.h is what is made of it
 * and of packages. */
#ifndef GENERATE_DESCRIBE_H
#define GENERATE_DESCRIBE_H
#include "base/err.h"
#include "ir/type.h"

struct json; /* base/json.h */

/* What an input or output means: X(enumerator, word in descriptions, may be an input, may be an output). */
#define MEANINGS(X)                                                                                          \
    X(MEANS_TOKENS, "tokens", 1, 0)           /* token ids */                                                \
    X(MEANS_HIDDEN, "hidden", 1, 1)           /* what goes from package to package, or table rows */         \
    X(MEANS_POSITION, "position", 1, 0)       /* of the first token */                                       \
    X(MEANS_POSITIONS, "positions", 1, 0)     /* of each token */                                            \
    X(MEANS_SEEN, "seen_positions", 1, 0)     /* of every token so far, the call's included: 0, 1, 2 ... */  \
    X(MEANS_VALID, "valid_length", 1, 0)      /* tokens that are no padding */                               \
    X(MEANS_CAUSAL_MASK, "causal_mask", 1, 0) /* 0 where a token sees a position */                          \
    X(MEANS_UPDATE_MASK, "update_mask", 1, 0) /* 1 where a token's key and value are written */              \
    X(MEANS_COS, "rope_cos", 1, 0)            /* rotary tables of the tokens' positions */                   \
    X(MEANS_SIN, "rope_sin", 1, 0)                                                                           \
    X(MEANS_TEMPERATURE, "temperature", 1, 0) /* always 1 here: the host samples */                          \
    X(MEANS_CARRIED, "carried", 1, 0)         /* a state as input: what an output was the call before */     \
    X(MEANS_LOGITS, "logits", 0, 1)                                                                          \
    X(MEANS_TOP_VALUES, "top_values", 0, 1) /* the best candidates only: scores, */                          \
    X(MEANS_TOP_IDS, "top_ids", 0, 1)       /* ids */                                                        \
    X(MEANS_BEST_VALUE, "best_value", 0, 1) /* the best of each slice of the vocabulary: score, */           \
    X(MEANS_BEST_ID, "best_id", 0, 1)       /* id */                                                         \
    X(MEANS_LOG_SUM, "log_sum_exp", 0, 1)   /* of each slice, less its maximum; not needed */                \
    X(MEANS_MAXIMUM, "maximum", 0, 1)       /* of each slice; not needed */

typedef enum {
#define X(e, word, in, out) e,
    MEANINGS(X)
#undef X
        MEANS_COUNT
} meaning;

/* A size: a number, or a letter for what is only known from the package or the call.
 *   T tokens of a call   K positions   h width   V scores   *  anything */
typedef struct {
    char letter; /* 0: the number */
    int64_t size;
} describe_size;

typedef struct {
    const char *name; /* pattern */
    meaning is;
    int rank;
    describe_size dim[IR_MAX_RANK];
    bool optional;
    double hidden;            /* causal_mask: what is not seen */
    const char *from;         /* carried: the output, with {i} for the input's number */
    const struct json *theta; /* rope_*: base of the frequencies, a value (below) */
    bool pairs;               /* rope_*: each frequency twice side by side; else the two halves are alike */
    bool local;               /* best_id: counts from the beginning of its slice */
} describe_feature;

typedef struct {
    const char *const *s;
    size_t n;
} describe_names;

/* A package of the set, or a row of like ones. */
typedef struct {
    const char *role;
    describe_names files; /* patterns without .mlpackage; none: whatever the directory names */
    const char *named;    /* key of the metadata file that names one of them */
    bool optional;
    describe_names decode, prefill; /* names of functions, first choice first; none: any */
    describe_feature *in, *out;
    size_t n_in, n_out;
} describe_package;

typedef enum { TAIL_STEPS, TAIL_PAD, TAIL_REPEAT, TAIL_ROWS } describe_tail;
typedef enum { ROWS_LAST, ROWS_EVERY, ROWS_NONE } describe_rows;
typedef enum { STATES_UNIQUE, STATES_OWN, STATES_SHARED } describe_states;

typedef struct {
    const char *pattern;
    int axis; /* that counts positions, from the end: -1 is the last */
} describe_cache;

typedef struct {
    const char *what; /* the file, as errors name it */
    const char *name, *about;
    const char *metadata;      /* file that tells more; NULL: none */
    bool required;             /* it must be there */
    describe_names holds;      /* keys it must have */
    const struct json *equals; /* object: keys and what they must be */
    const struct json *table;  /* object; NULL: token ids go in */
    describe_names table_files;
    describe_names tokenizer;                               /* directories, first choice first */
    const struct json *context, *vocab, *slices, *stop_ids; /* values; NULL */
    describe_package *package;
    size_t n_package;
    describe_rows rows; /* of a call of several tokens: whose logits it returns */
    describe_tail tail; /* what fills a call with fewer tokens than it takes */
    int32_t pad;        /* TAIL_PAD: the id */
    bool one_token;     /* there must be a function for one token */
    describe_states states;
    describe_cache *cache;
    size_t n_cache;
} description;

/* what: a name for errors. Everything lives in a. ERR_FORMAT names file and field. */
const description *describe_parse(arena *a, const char *what, const char *text, size_t n, err *e);
const description *describe_file(arena *a, const char *path, err *e);

/* The shipped ones: their texts, in the order in which they are tried. */
typedef struct {
    const char *name;
    const unsigned char *text;
    size_t n;
} describe_builtin;
extern const describe_builtin describe_builtins[];
extern const size_t describe_n_builtin;
#endif
