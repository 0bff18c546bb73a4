/* millet: language models in Core ML packages, read, run and made on any machine.
 *
 *     #include <millet.h>
 *     #include <stdio.h>
 *
 *     static bool print(void *ctx, int32_t id, const char *text, size_t len) {
 *         (void)ctx, (void)id;
 *         return fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
 *     }
 *
 *     int main(void) {
 *         millet_error e;
 *         millet_lm *lm = millet_lm_open("out/tiny", NULL, &e); // what `millet convert` made
 *         millet_generate_options o = {.size = sizeof o, .max_new_tokens = 100, .on_token = print};
 *         bool ok = lm && millet_generate(lm, "Once upon a time", &o, NULL, &e);
 *         if (!ok) fprintf(stderr, "%s\n", e.message);
 *         millet_lm_close(lm);
 *         return !ok;
 *     }
 *     // cc story.c $(pkg-config --cflags --libs millet)
 *
 * Conventions. Functions that can fail return false (or NULL) and fill *error; error may be NULL. The library
 * never prints, never ends the process because of bad input, keeps no global state and does not look at the
 * locale. Closing or freeing NULL is fine. Texts are UTF-8. Strings and tensors that the library hands out
 * are borrowed; how long they live is said where they are declared. What millet_free() must free says so. The
 * caller sets the member `size` of a struct that begins with it to the struct's sizeof, so that later
 * versions can add members; other members that are zero mean the default.
 *
 * Threads. A millet_package, a millet_tokenizer and a millet_lm never change once they are open: any number
 * of threads may use one at the same time. A millet_session, a millet_stream and a snapshot belong to one
 * thread at a time; several sessions of one package may run on several threads. Callbacks run on the thread
 * that called the library. */
#ifndef MILLET_H
#define MILLET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MILLET_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

typedef enum {
    MILLET_OK,
    MILLET_USAGE,       /* a wrong argument */
    MILLET_IO,          /* the system refused: no such file, disk full, ... */
    MILLET_FORMAT,      /* a malformed file */
    MILLET_UNSUPPORTED, /* well-formed, but not something that millet does */
    MILLET_INVALID,     /* breaks a rule of the format */
    MILLET_LIMIT,       /* too large; the context is full */
    MILLET_NUMERIC,     /* a NaN or an infinity where a number is needed */
    MILLET_MEMORY,
    MILLET_CANCELLED
} millet_code;

typedef struct {
    millet_code code;
    char message[1000]; /* one line that names the file, function, op or tensor, and what was expected */
} millet_error;

MILLET_API const char *millet_version(void);
MILLET_API void millet_free(void *p);

/* ---- packages ---- */

#define MILLET_MAX_RANK 8

typedef enum {
    MILLET_BOOL = 1, /* one byte an element */
    MILLET_INT8,
    MILLET_INT16,
    MILLET_INT32,
    MILLET_INT64,
    MILLET_UINT8,
    MILLET_UINT16,
    MILLET_UINT32,
    MILLET_UINT64,
    MILLET_FP16,
    MILLET_FP32,
    MILLET_FP64
} millet_dtype;

MILLET_API const char *millet_dtype_name(millet_dtype d); /* "fp16"; "?" for what is not listed */
MILLET_API size_t millet_dtype_size(millet_dtype d);      /* bytes of an element; 0 for what is not listed */

typedef enum { MILLET_INPUT, MILLET_OUTPUT, MILLET_STATE } millet_kind;

/* One input, output or state of a function. */
typedef struct {
    size_t size;
    const char *name;               /* lives as long as the package */
    millet_dtype dtype;             /* 0: not a tensor (an image, a string, ...) */
    int rank;                       /* -1: the shape is not declared (outputs of flexible functions) */
    int64_t shape[MILLET_MAX_RANK]; /* the default shape, outermost size first */
    int64_t lower[MILLET_MAX_RANK]; /* smallest and largest size; equal where the shape is fixed; upper -1:
                                       unbounded */
    int64_t upper[MILLET_MAX_RANK];
    bool optional;
} millet_feature;

typedef struct millet_package millet_package;

/* Opens and verifies a .mlpackage, or the one in a directory that `millet convert` made (of several, give the
 * path of one). Weights stay in the mapped files. */
MILLET_API millet_package *millet_package_open(const char *path, millet_error *error);
MILLET_API void millet_package_close(millet_package *p); /* after its sessions */
MILLET_API size_t millet_function_count(const millet_package *p);
/* Name of function i; NULL when there is none. The names live as long as the package. */
MILLET_API const char *millet_function_name(const millet_package *p, size_t i);
MILLET_API const char *millet_default_function(const millet_package *p);
/* How many features of a kind a function (NULL: the default one) has; 0 when there is no such function. */
MILLET_API size_t millet_feature_count(const millet_package *p, const char *function, millet_kind kind);
/* Describes feature i; false when there is none. f->size must be set. */
MILLET_API bool millet_feature_at(const millet_package *p, const char *function, millet_kind kind, size_t i,
                                  millet_feature *f);
/* A value of the package's metadata ("author", "license", "version", "description" or a key of its own), or
 * NULL. */
MILLET_API const char *millet_metadata(const millet_package *p, const char *key);

/* ---- sessions ---- */

/* A named tensor, row-major, without padding. */
typedef struct {
    const char *name;
    millet_dtype dtype;
    int rank;
    int64_t shape[MILLET_MAX_RANK];
    const void *data;
    size_t bytes;
} millet_tensor;

typedef enum {
    MILLET_FAST,  /* fp32 inside; fp16 is rounded at inputs, outputs and states */
    MILLET_STRICT /* every op rounds its result to the declared type */
} millet_precision;

typedef struct millet_session millet_session;
typedef struct millet_snapshot millet_snapshot;

/* One timeline over a package: its own states, all zero. */
MILLET_API millet_session *millet_session_new(const millet_package *p, millet_precision precision,
                                              millet_error *error);
MILLET_API void millet_session_free(millet_session *s);

typedef struct {
    size_t size;
    const char *function;       /* NULL: the default one */
    const millet_tensor *input; /* any order; dtype and shape as the function declares them */
    size_t n_input;
    const char *const *value; /* inner values to return too, by name */
    size_t n_value;
    millet_tensor
        *output; /* out: the function's outputs in its order, then the values; room for max_output */
    size_t max_output, n_output;
} millet_call;

/* Runs a function. The results live in the session until its next run. */
MILLET_API bool millet_run(millet_session *s, millet_call *call, millet_error *error);

/* States, by name. A tensor got lives until the next call on the session; set copies. */
MILLET_API size_t millet_state_count(const millet_session *s);
MILLET_API const char *millet_state_name(const millet_session *s, size_t i);
MILLET_API bool millet_state_get(millet_session *s, const char *name, millet_tensor *t, millet_error *error);
MILLET_API bool millet_state_set(millet_session *s, const char *name, const millet_tensor *t,
                                 millet_error *error);
MILLET_API void millet_state_reset(millet_session *s);
/* Copies all states; both sessions must be of one package. */
MILLET_API bool millet_state_copy(millet_session *to, const millet_session *from, millet_error *error);
/* A copy of all states that outlives further runs. Restores into any session of the same package. */
MILLET_API millet_snapshot *millet_snapshot_take(const millet_session *s, millet_error *error);
MILLET_API bool millet_snapshot_restore(millet_session *s, const millet_snapshot *snapshot,
                                        millet_error *error);
MILLET_API void millet_snapshot_free(millet_snapshot *snapshot);

/* ---- text ---- */

typedef struct millet_tokenizer millet_tokenizer;
typedef struct millet_stream millet_stream;

/* From a directory with tokenizer.json (and tokenizer_config.json). */
MILLET_API millet_tokenizer *millet_tokenizer_open(const char *dir, millet_error *error);
MILLET_API void millet_tokenizer_close(millet_tokenizer *t);
/* Text to ids. Texts of added tokens ("<|im_end|>") become their ids. *ids: millet_free() it. */
MILLET_API bool millet_encode(const millet_tokenizer *t, const char *text, size_t len, int32_t **ids,
                              size_t *n, millet_error *error);
/* Ids to text, with len bytes (len may be NULL) and a NUL behind them: millet_free() it. Ill-formed parts
 * come out as U+FFFD, ids that don't exist as nothing. */
MILLET_API char *millet_decode(const millet_tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                               size_t *len);
/* Ids to text as they come: pieces are whole characters, and joined they equal millet_decode(). */
MILLET_API millet_stream *millet_stream_new(const millet_tokenizer *t, bool skip_special);
MILLET_API void millet_stream_free(millet_stream *s);
/* The piece lives until the next call on the stream; it may be empty. */
MILLET_API void millet_stream_push(millet_stream *s, int32_t id, const char **text, size_t *len);
/* What is left at the end; the stream is as new then. */
MILLET_API void millet_stream_flush(millet_stream *s, const char **text, size_t *len);

/* ---- generation ---- */

typedef struct millet_lm millet_lm;

/* An artifact that can generate: a directory made by `millet convert`, of one package or of several that run
 * as one, or a .mlpackage with its table and Tokenizer beside it. tokenizer_dir (may be NULL) overrides the
 * place of the tokenizer. Without a tokenizer only ids work. */
MILLET_API millet_lm *millet_lm_open(const char *path, const char *tokenizer_dir, millet_error *error);
MILLET_API void millet_lm_close(millet_lm *lm);
/* NULL without a tokenizer; lives as long as lm. */
MILLET_API const millet_tokenizer *millet_lm_tokenizer(const millet_lm *lm);
MILLET_API int64_t millet_lm_context(const millet_lm *lm); /* positions that fit */

/* How to pick the next token. All zero: greedy, with the penalty that the checkpoint's generation_config.json
 * sets. */
typedef struct {
    size_t size;
    millet_precision precision;
    int64_t max_new_tokens; /* 0: 256, or what fits; negative: none (the prompt is run only) */
    double temperature;     /* 0: greedy */
    int64_t top_k;          /* 0: generation_config.json's, else off; negative: off */
    double top_p;           /* 0: generation_config.json's, else 1 */
    double min_p;
    double repetition_penalty; /* 0: generation_config.json's, else 1 */
    double presence_penalty, frequency_penalty;
    uint64_t seed;   /* the same seed gives the same ids on every machine */
    bool ignore_eos; /* go on behind stop tokens */
    /* Called for every new token with the text that became ready (possibly empty; without a tokenizer
     * always), and at the end once with id -1 if text is left. false ends the generation (MILLET_STOPPED). */
    bool (*on_token)(void *ctx, int32_t id, const char *text, size_t len);
    /* Polled between calls of the model, also while the prompt is run; false ends the generation. */
    bool (*keep_going)(void *ctx);
    void *ctx;
} millet_generate_options;

typedef enum {
    MILLET_STOP,   /* a stop token (the last of ids) */
    MILLET_LENGTH, /* max_new_tokens */
    MILLET_STOPPED /* a callback returned false */
} millet_finish;

typedef struct {
    size_t size;
    int32_t *ids; /* millet_free() it */
    size_t n_ids;
    size_t prompt_tokens;
    millet_finish finish;
    double prompt_seconds, decode_seconds;
} millet_generation;

/* Generates from fresh states. options may be NULL. result may be NULL; else its size must be set. A prompt
 * that does not fit the context together with max_new_tokens is an error before any work; logits that are not
 * finite end the run and name the op that made them. */
MILLET_API bool millet_generate(const millet_lm *lm, const char *prompt,
                                const millet_generate_options *options, millet_generation *result,
                                millet_error *error);
MILLET_API bool millet_generate_ids(const millet_lm *lm, const int32_t *ids, size_t n,
                                    const millet_generate_options *options, millet_generation *result,
                                    millet_error *error);

/* ---- conversion ---- */

typedef struct {
    size_t size;
    const char *preset;    /* "chunks", "single"; NULL: the family's default */
    const char *precision; /* "mixed" (NULL), "float16", "float32" */
    const char *state;     /* "split" (NULL), "fp16" */
    int64_t context;       /* 0: 2048, or what the model was made for where that is less */
    int64_t top_k;         /* single: 0: 64; negative: the package returns logits */
    bool overwrite;        /* replace an existing output; the old one stays complete until the new one is */
    /* Called now and then, with totals of 0 until the graph is built; false cancels: MILLET_CANCELLED, and
     * the output is as it was before. */
    bool (*progress)(void *ctx, const char *tensor, uint64_t done_bytes, uint64_t total_bytes,
                     uint64_t done_tensors, uint64_t tensors);
    void *ctx;
    /* Compression; docs/quantize.md has the schemes. */
    const char *quantize; /* "lut4", "lut6", "lut8", "w8", "w8b32", "w4", "fp16"; NULL: none */
    const char *vocab;    /* of embedding and head; NULL or "same": as the others */
    const char *recipe;   /* JSON file of rules by weight name; NULL: none */
    int64_t group_size;   /* lut schemes: output channels that share a palette; 0: 32 */
    /* Preset chunks; refused with single. */
    const char *prefill;    /* sizes of prefill functions, "4,16,64"; NULL: none */
    int64_t chunks;         /* packages; 0: as few as max_file_size allows */
    const char *kv;         /* "split" (NULL), "stacked" */
    const char *table;      /* "int8", "fp16", "fp32"; NULL: by precision and scheme */
    uint64_t max_file_size; /* bytes of a weight file; 0: 2 GiB - 16 MiB */
    /* Places. */
    bool into;                 /* out is a directory to make the artifact in, under a name made of model and
                                  options; the table lies beside it */
    const char *share_weights; /* directory of artifacts: equal weight files become hard links; NULL: none */
} millet_convert_options;

/* Converts a Hugging Face checkpoint directory into the artifact directory out. options may be NULL. *summary
 * (may be NULL) receives lines for people: files, sizes, bits per weight, what was skipped. millet_free() it.
 */
MILLET_API bool millet_convert(const char *checkpoint, const char *out, const millet_convert_options *options,
                               char **summary, millet_error *error);

#ifdef __cplusplus
}
#endif
#endif
