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
 * caller sets the member `size` of a struct that begins with it to the struct's sizeof: the library reads
 * and writes no member beyond it, so that programs built with an older header go on working; members that
 * are zero mean the default. Wrong arguments are MILLET_USAGE; objects (a session, an lm) must not be NULL.
 *
 * Threads. A millet_package, a millet_tokenizer, a millet_lm and a millet_snapshot never change once they are
 * made: any number of threads may use one at the same time. A millet_session, a millet_generator and a
 * millet_stream belong to one thread at a time; several sessions of one package, and several generators of
 * one lm, run on several threads and see nothing of each other. A millet_cancel may be set from any thread.
 * Callbacks run on the thread that called the library; a log may ask for figures of what it is the log of.
 * What is opened from something is closed before it. */
#ifndef MILLET_H
#define MILLET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MILLET_API __attribute__((visibility("default")))

/* The version of this interface: the N of libmillet.so.N. Within one, functions and members at the end of
 * structs are added; nothing changes or goes. */
#define MILLET_ABI 1

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
    MILLET_MEMORY, /* there is none left. A session or generator that says so may refuse all work from then
                      on; what it was made from is as it was */
    MILLET_CANCELLED
} millet_code;

typedef struct {
    millet_code code;
    char message[1000]; /* one line that names the file, function, op or tensor, and what was expected */
} millet_error;

MILLET_API const char *millet_version(void);
MILLET_API int millet_abi(void); /* MILLET_ABI of the library that runs */
MILLET_API void millet_free(void *p);

/* ---- memory and log ---- */

/* Where memory comes from. Called from any thread, several at a time. alloc returns at least `bytes` bytes,
 * aligned to align (a power of two, 16 or more), or NULL: the call of the library ends with MILLET_MEMORY.
 * free gets what alloc returned and the same size. */
typedef struct {
    size_t size;
    void *(*alloc)(void *ctx, size_t bytes, size_t align);
    void (*free)(void *ctx, void *p, size_t bytes);
    void *ctx;
} millet_allocator;

typedef enum {
    MILLET_LOG_WARNING, /* slower than it might be: a function without a plan, fewer threads than asked for */
    MILLET_LOG_INFO,    /* a plan was made */
    MILLET_LOG_DUMP     /* stages of plans, many lines, as the environment's MILLET_DUMP asks */
} millet_log_level;

/* Takes a line without a newline at its end. Called on the thread that called the library. */
typedef void millet_log_fn(void *ctx, millet_log_level level, const char *text);

/* ---- cancellation ---- */

/* A flag that ends what runs with it, within the step under way. It stays set until it is cleared, so that it
 * can't be missed: work that begins with a flag that is set ends at once. One flag may serve many calls. It
 * must outlive them. */
typedef struct millet_cancel millet_cancel;
MILLET_API millet_cancel *millet_cancel_new(void); /* NULL: no memory */
MILLET_API void millet_cancel_free(millet_cancel *c);
MILLET_API void millet_cancel_set(millet_cancel *c); /* from any thread, or a signal handler */
MILLET_API void millet_cancel_clear(millet_cancel *c);
MILLET_API bool millet_cancel_is_set(const millet_cancel *c);

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
    bool has_default; /* an optional input that has this value where it is left out */
    double default_value;
    const char *kind; /* "tensor"; "image", "string", ... */
    size_t n_shapes;  /* 0, or how many shapes are enumerated: */
    const int64_t
        *shapes; /* [n_shapes][MILLET_MAX_RANK], the default one first; live as long as the package */
    const char *description; /* for people; "" */
    bool ranged;             /* lower and upper are declared as ranges, not implied by shape */
    millet_dtype
        default_dtype; /* as what default_value is written: MILLET_INT32, _FP32, _FP64; 0: no default */
} millet_feature;

typedef struct millet_package millet_package;

typedef struct {
    size_t size;
    /* How linear layers multiply in MILLET_FAST: "DECODE,PREFILL", each "int16", "bf16" or "exact"; one word
     * stands for both. NULL: the environment's MILLET_LINEAR, else "int16,bf16". */
    const char *linear;
    const millet_allocator *allocator; /* of what is opened, of its sessions, and of results that
                                          millet_free() frees. NULL: malloc. Copied */
    millet_log_fn *log;                /* NULL: none */
    void *log_ctx;
} millet_open_options;

/* Opens and verifies a .mlpackage or .aimodel, or the one in a directory that `millet convert` made or in a
 * Core AI bundle (of several, give the path of one). Weights stay in the mapped files. options may be NULL.
 */
MILLET_API millet_package *millet_package_open(const char *path, const millet_open_options *options,
                                               millet_error *error);
MILLET_API void millet_package_close(millet_package *p); /* after its sessions */
MILLET_API const char *millet_package_path(const millet_package *p);

/* What a package, or all packages of an lm, hold and have cost. */
typedef struct {
    size_t size;
    uint64_t memory, memory_peak; /* bytes from the allocator: of the package, its plans and its sessions, now
                                     and at most. Mapped weight files are not among them, nor are, unless
                                     millet_open_options has an allocator, states of 1 MiB and more */
    uint64_t plans;               /* kept */
    double plan_seconds;          /* spent on making plans */
} millet_model_stats;
MILLET_API bool millet_package_stats(const millet_package *p, millet_model_stats *stats);
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
/* Entry i of the metadata with keys of the package's own; false when there is none. Both texts live as long
 * as the package. */
MILLET_API bool millet_metadata_at(const millet_package *p, size_t i, const char **key, const char **value);

typedef struct {
    size_t size;
    int specification_version;
    bool multifunction; /* the description lists functions by name */
    bool pipeline;      /* several models that run one after another */
} millet_package_info;
MILLET_API bool millet_package_describe(const millet_package *p,
                                        millet_package_info *info); /* false: no size set */

/* ---- sessions ---- */

/* A named tensor, row-major, without padding. (This struct has no size member and never changes.) */
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

typedef struct {
    size_t size;
    millet_precision precision;
    unsigned threads; /* that work on a call, the caller's included; 0: the environment's MILLET_THREADS, else
                         as many as physical cores that the process may use. They are the session's own,
                         started by its first run */
} millet_session_options;

/* One timeline over a package: its own states, all zero. options may be NULL. */
MILLET_API millet_session *millet_session_new(const millet_package *p, const millet_session_options *options,
                                              millet_error *error);
MILLET_API void millet_session_free(millet_session *s);

typedef struct {
    size_t size;
    const char *function;       /* NULL: the default one */
    const millet_tensor *input; /* any order; dtype and shape as the function declares them. The data is the
                                   caller's, read during the call only */
    size_t n_input;
    const char *const *value; /* inner values to return too, by name */
    size_t n_value;
    millet_tensor
        *output; /* out: the function's outputs in its order, then the values; room for max_output */
    size_t max_output, n_output;
    const millet_cancel *cancel; /* NULL, or what ends the call: MILLET_CANCELLED */
} millet_call;

/* Runs a function. The results live in the session until its next run. A call that fails after its inputs
 * were accepted, a cancelled one too, leaves all states zero (they are written in place): the session can be
 * used again, from a snapshot where the states matter. */
MILLET_API bool millet_run(millet_session *s, millet_call *call, millet_error *error);

/* What a session, or the sessions of a generator, have done and hold. */
typedef struct {
    size_t size;
    uint64_t calls;               /* functions run to their end */
    double seconds;               /* in them */
    uint64_t state_bytes;         /* of all states, which take memory as they fill */
    uint64_t memory, memory_peak; /* bytes from the allocator, now and at most: work memory, results, and
                                     states as millet_model_stats counts them */
} millet_stats;
MILLET_API bool millet_session_stats(const millet_session *s, millet_stats *stats); /* false: no size set */

/* States, by name. A tensor got lives until the next call on the session; set copies. */
MILLET_API size_t millet_state_count(const millet_session *s);
MILLET_API const char *millet_state_name(const millet_session *s, size_t i);
MILLET_API bool millet_state_get(millet_session *s, const char *name, millet_tensor *t, millet_error *error);
MILLET_API bool millet_state_set(millet_session *s, const char *name, const millet_tensor *t,
                                 millet_error *error);
MILLET_API void millet_state_reset(millet_session *s);
/* From here on both sessions have the state of that name together: what one writes, the other reads, and one
 * that is closed leaves it to the other. Its value is that of from. The packages may differ, the types not.
 * The two sessions then belong to one thread at a time. */
MILLET_API bool millet_state_bind(millet_session *to, const millet_session *from, const char *name,
                                  millet_error *error);
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
/* The same with an allocator. options may be NULL. */
MILLET_API millet_tokenizer *millet_tokenizer_open_with(const char *dir, const millet_open_options *options,
                                                        millet_error *error);
MILLET_API void millet_tokenizer_close(millet_tokenizer *t);
/* Text to ids. Texts of added tokens ("<|im_end|>") become their ids. *ids: millet_free() it. */
MILLET_API bool millet_encode(const millet_tokenizer *t, const char *text, size_t len, int32_t **ids,
                              size_t *n, millet_error *error);
/* The same with the ids around it that the tokenizer's files ask for (a BOS, mostly): what millet_generate()
 * feeds. */
MILLET_API bool millet_encode_prompt(const millet_tokenizer *t, const char *text, size_t len, int32_t **ids,
                                     size_t *n, millet_error *error);
/* A conversation in the words of a chat template: text and ids of a prompt. dir: a directory with
 * chat_template.jinja or tokenizer_config.json; name: a template in place of the one there (docs/chat.md
 * lists them), then dir may be NULL. conversation: JSON as millet tokenize --chat takes it, {"messages":
 * [{"role":
 * ..., "content": ...}, ...], "options": {"add_generation_prompt": true, "enable_thinking": ..., "tools":
 * ...}}, len bytes. Text of messages never becomes control tokens. *text: text_len bytes and a NUL; *ids: n
 * of them; millet_free() both. Either pair may be NULL. */
MILLET_API bool millet_chat_encode(const millet_tokenizer *t, const char *dir, const char *name,
                                   const char *conversation, size_t len, char **text, size_t *text_len,
                                   int32_t **ids, size_t *n, millet_error *error);
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

typedef struct {
    size_t size;
    const millet_open_options *open; /* of its packages; may be NULL */
    const char *tokenizer;           /* directory in place of the Tokenizer beside it; NULL */
    const char *contract;            /* file that says how a foreign set is driven; NULL: it is recognised */
} millet_lm_options;

/* An artifact that can generate: a directory made by `millet convert`, of one package or of several that run
 * as one, a Core AI bundle, or a .mlpackage with its table and Tokenizer beside it. Without a tokenizer only
 * ids work. options may be NULL. */
MILLET_API millet_lm *millet_lm_open(const char *path, const millet_lm_options *options, millet_error *error);
MILLET_API void millet_lm_close(millet_lm *lm);
/* NULL without a tokenizer; lives as long as lm. */
MILLET_API const millet_tokenizer *millet_lm_tokenizer(const millet_lm *lm);
/* The directory that it was read from, which may hold a chat template; NULL without a tokenizer. */
MILLET_API const char *millet_lm_tokenizer_path(const millet_lm *lm);
MILLET_API int64_t millet_lm_context(const millet_lm *lm);    /* positions that fit */
MILLET_API int64_t millet_lm_vocabulary(const millet_lm *lm); /* ids below it can be fed; 0: not known */
MILLET_API bool millet_lm_is_stop(const millet_lm *lm, int32_t id);
MILLET_API bool millet_lm_stats(const millet_lm *lm, millet_model_stats *stats); /* false: no size set */
/* Its packages, in the order in which a token goes through them; they live as long as lm. NULL: there is no
 * package i. */
MILLET_API size_t millet_lm_package_count(const millet_lm *lm);
MILLET_API const millet_package *millet_lm_package(const millet_lm *lm, size_t i);

/* How to pick the next token. All zero: greedy, with the penalty that the checkpoint's generation_config.json
 * sets. */
typedef struct {
    size_t size;
    millet_precision precision; /* of millet_generate(); a generator has its own */
    int64_t max_new_tokens;     /* 0: 256, or what fits; negative: none (the prompt is run only) */
    double temperature;         /* 0: greedy */
    int64_t top_k;              /* 0: generation_config.json's, else off; negative: off */
    double top_p;               /* 0: generation_config.json's, else 1 */
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
    const millet_cancel *cancel; /* NULL, or what ends the generation (MILLET_STOPPED) */
} millet_generate_options;

typedef enum {
    MILLET_STOP,   /* a stop token (the last of ids) */
    MILLET_LENGTH, /* max_new_tokens */
    MILLET_STOPPED /* a callback returned false, or it was cancelled */
} millet_finish;

typedef struct {
    size_t size;
    int32_t *ids; /* millet_free() it; NULL: none */
    size_t n_ids;
    size_t prompt_tokens;
    millet_finish finish;
    double prompt_seconds, decode_seconds;
    size_t reused_tokens; /* of the prompt: what a generator had fed before */
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

/* A timeline that stays: what it has been fed is not fed again. */
typedef struct millet_generator millet_generator;
MILLET_API millet_generator *millet_generator_new(const millet_lm *lm, const millet_session_options *options,
                                                  millet_error *error);
MILLET_API void millet_generator_free(millet_generator *g);
/* As millet_generate_ids(): ids are the whole sequence so far (a chat with all its turns). Where the sequence
 * begins with all that the generator was fed, only the rest is fed; else it starts anew. */
MILLET_API bool millet_generator_run(millet_generator *g, const int32_t *ids, size_t n,
                                     const millet_generate_options *options, millet_generation *result,
                                     millet_error *error);
/* The scores that follow a token. They live until the next call on the generator. */
typedef struct {
    size_t size;
    const float *score;
    const int32_t *id; /* NULL: score i is the logit of id i; else of the package's candidates, best first */
    size_t n;
} millet_scores;
/* Feeds n ids behind what was fed before. scores may be NULL; else its size must be set. After an error the
 * generator is as new. */
MILLET_API bool millet_generator_feed(millet_generator *g, const int32_t *ids, size_t n,
                                      const millet_cancel *cancel, millet_scores *scores,
                                      millet_error *error);
MILLET_API int64_t millet_generator_position(const millet_generator *g); /* ids fed */
MILLET_API void millet_generator_reset(millet_generator *g);
MILLET_API bool millet_generator_stats(const millet_generator *g, millet_stats *stats);

/* ---- conversion ---- */

typedef struct {
    size_t size;
    const char *preset;    /* "chunks", "single"; NULL: the family's default */
    const char *precision; /* "mixed" (NULL), "float16" (format coreml), "float32" */
    const char *state;     /* "split" (NULL), "fp16" */
    int64_t context;       /* 0: 2048, or what the model was made for where that is less */
    int64_t top_k;         /* single: 0: 64; negative: the package returns logits */
    bool overwrite;        /* replace an existing output; the old one stays complete until the new one is */
    /* Called now and then, with totals of 0 until the graph is built; false cancels: MILLET_CANCELLED, and
     * the output is as it was before. */
    bool (*progress)(void *ctx, const char *tensor, uint64_t done_bytes, uint64_t total_bytes,
                     uint64_t done_tensors, uint64_t tensors);
    void *ctx;
    /* Compression; `millet convert --help` explains the schemes, docs/fidelity.md what they cost. */
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
    const millet_cancel *cancel;     /* NULL, or what ends the conversion as `progress` does */
    const millet_open_options *open; /* its allocator and log; may be NULL */
    const char *format;              /* "coreml" (NULL), "coreai": a bundle with one .aimodel */
    const char *steer_around;        /* coreai: "ios27" (NULL), "none" */
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
