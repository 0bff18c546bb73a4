/* From a checkpoint to the programs that compute it. A family is known here only: one file a family over
 * shared blocks. */
#ifndef MODELS_MODELS_H
#define MODELS_MODELS_H
#include "checkpoint/checkpoint.h"
#include "ir/build.h"

/* The form of the graph; pipelined is that of Core AI's engines (models/pipelined.c). */
typedef enum { PRESET_CHUNKS, PRESET_SINGLE, PRESET_PIPELINED } models_preset;
typedef enum { PRECISION_MIXED, PRECISION_FLOAT16, PRECISION_FLOAT32 } models_precision;

typedef struct {
    models_preset preset;
    models_precision precision;
    bool fp16_weights; /* matrices in fp16 also in float32: what compressed weights decode to */
    bool split_state;  /* recurrent state as value + remainder (always on in float32, where every state is
                          split) */
    bool stacked_kv;  /* chunks: keys and values of a part's layers in one state each; else a state a layer */
    bool untied_head; /* pipelined: a head that is the embedding is a constant of its own, to be compressed
                         apart */
    int64_t context;  /* static KV cache length (chunks), upper bound of K (single, pipelined) */
    int64_t top_k;    /* single: 0 = logits */
    const int64_t
        *prefill;     /* chunks: tokens of each prefill function, ascending; up to 64, or multiples of 64 */
    size_t n_prefill; /* 0: one function "main"; else "decode" and "prefill_N" for each */
    /* Called before a tensor's values are looked at (it takes a while, for large ones); false cancels
     * (ERR_CANCELLED). NULL: never called. */
    bool (*progress)(void *ctx, const char *tensor);
    void *ctx;
} models_options;

enum { MODELS_MAX_PREFILL = 16, MODELS_MAX_PREFILL_TOKENS = 4096 };

/* One flexible dimension of an input, for the description. */
typedef struct {
    const char *input;
    int dim;
    int64_t lower, upper, fallback; /* fallback: the default shape's size */
} models_range;

/* What became of the checkpoint's tensors. */
typedef enum {
    NOTE_SKIPPED,  /* count tensors, named by a pattern, are not used; what says why: "vision" */
    NOTE_OVERFLOW, /* count values overflow fp16: the tensor is kept fp32 */
    NOTE_VANISH,   /* count values that are not 0 are 0 in fp16 */
    NOTE_WARNING   /* what says what is odd about the tensor (or file) */
} models_note_kind;

typedef struct {
    models_note_kind kind;
    const char *tensor, *what;
    uint64_t count;
} models_note;

/* Which of a model's layers and head pieces a program computes. Pieces are rows of the head's weight, at most
 * MODELS_HEAD_ROWS each; models_head_pieces() counts them.
 *
 * Preset chunks, programs in order: the first takes a row of the embedding table, the others the fp32 hidden
 * state of the one before; all but the last give hidden_out fp32 [1,T,h], the last logits of the last valid
 * token. With row set the head is in programs of its own, a range of pieces each: the last program with
 * layers gives hidden_out [1,1,h] of the last valid token, the head's take it and give logits of their rows.
 * Presets single and pipelined: everything. */
typedef struct {
    int64_t layer, end_layer; /* may be empty: the head alone */
    int64_t piece, end_piece; /* empty: no head */
    bool row;
} models_part;

enum { MODELS_HEAD_ROWS = 32768 };

/* A layer's place in a state of the program. */
typedef struct {
    int64_t layer;
    const char *name, *rest; /* rest: the state with what rounding took away; NULL: not split */
    bool recurrent;          /* DeltaNet memory or convolution history; else keys or values */
    int64_t slice;           /* index on the state's first axis */
} models_state;

typedef struct {
    ir_program *program; /* function "main", or several that share their constants; constants are borrowed
                            from the checkpoint or fill jobs over it */
    const models_range *range;
    size_t n_range;
    const models_state *state; /* by layer */
    size_t n_state;
    const models_note *note; /* models_build() only: models_notes() */
    size_t n_note;
    const char *const *user; /* metadata pairs: key, value, key, value, ... */
    size_t n_user;
    const st_tensor *embedding; /* chunks: the tensor behind the host table; NULL for single */
    const char *input_dtype;    /* chunks: dtype that a row of it is taken in, "fp16" or "fp32" */
} models_graph;

/* The families that can be built, for checkpoint_open(); NULL-terminated. */
const ckpt_family *const *models_families(void);
bool models_has_preset(const ckpt_config *c, models_preset preset, const char **why_not);
models_preset models_default_preset(const ckpt_config *c);
/* Builds the whole model in a. The checkpoint must stay open until the program has been written. */
bool models_build(models_graph *g, arena *a, const checkpoint *c, const models_options *o, err *e);

/* The same in parts. What has been learnt about tensors is kept: their values are looked at once, whatever
 * number of parts they are used in, and parts share their constants. Everything lives in a, o too. */
typedef struct graph models_work;
models_work *models_begin(arena *a, const checkpoint *c, const models_options *o, err *e);
int64_t models_head_pieces(const models_work *w);
/* The tensor behind the host table, and the type in which the first program takes its rows; NULL for single.
 */
const st_tensor *models_embedding(const models_work *w, ir_dtype *taken_as);
models_part models_whole(const models_work *w);
/* decode_only: the first function alone, to measure a part: further ones add no constants. */
bool models_build_part(models_work *w, const models_part *part, bool decode_only, models_graph *g, err *e);
/* What became of the checkpoint's tensors, once all of the model has been built. */
const models_note *models_notes(models_work *w, size_t *n);
#endif
