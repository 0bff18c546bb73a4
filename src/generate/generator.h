/* Prompt in, text out: prefill, then the decode loop of sample, detokenize, feed. */
#ifndef GENERATE_GENERATOR_H
#define GENERATE_GENERATOR_H
#include "base/str.h"
#include "generate/prefix.h"
#include "structured/matcher.h"

typedef enum {
    GENERATE_STOP,   /* a stop id came: the last of ids; it has no text */
    GENERATE_LENGTH, /* max_new ids */
    GENERATE_STOPPED /* a callback returned false */
} generate_finish;

#define GENERATE_MAX_NEW 256 /* when the caller doesn't say */

typedef struct {
    rt_mode mode;
    sampler_options sampling; /* start from lm.defaults */
    int64_t max_new;          /* -1: GENERATE_MAX_NEW, or what fits behind the prompt */
    bool ignore_eos;          /* go on behind stop ids */
    /* Only what it allows is generated (structured/grammar.h); it has to stand where the text begins, is
     * advanced by every id, and needs lm_vocabulary(). What can't go on ends as by a stop id, without one.
     * NULL: no constraint. Borrowed. */
    matcher *constraint;
    /* Sees every new id with the text that it completes (often empty; always without a tokenizer), and, when
     * text is left over at the end, id -1 with that. Text is whole characters, special tokens left out. false
     * stops. May be NULL. */
    bool (*on_token)(void *ctx, int32_t id, const char *text, size_t len);
    /* Polled between calls of the package; false stops. May be NULL. */
    bool (*keep_going)(void *ctx);
    void *ctx;
    const atomic_bool *cancel; /* once set, the generation stops, also within a call. NULL */
    /* generate_continue(): where prefixes are kept and looked for (generate/prefix.h), and the points of the
     * prompt to keep, ascending. NULL: d alone, as long as it goes on from where it stands. */
    prefix_cache *prefix;
    const size_t *keep;
    size_t n_keep;
} generate_options;

typedef struct {
    int32_t *ids; /* what was generated */
    size_t n_ids;
    str text; /* all of it; empty without a tokenizer */
    size_t prompt_tokens;
    size_t reused_tokens; /* of them: fed before */
    size_t fed_tokens;    /* of them: fed now; the rest, unless the generation was stopped in front of it */
    prefix_place place;   /* the same in full */
    generate_finish finish;
    double prompt_seconds; /* until the scores behind the prompt were there, or it was stopped */
    double decode_seconds; /* for the n_ids - 1 calls that followed */
} generate_result;

/* From fresh states. n > 0 prompt ids. Needs prompt + max_new - 1 positions (the last id is not fed): more
 * than the context is ERR_LIMIT before any work. The result is freed with generate_result_free(), also after
 * an error. */
bool generate_run(const lm *m, const int32_t *prompt, size_t n, const generate_options *o, generate_result *r,
                  err *e);
/* The same with a decoder that may have been fed before (mode is its own): where it was fed a part of the
 * beginning of the prompt, and less than all of it, only the rest is fed; else it starts anew, or where
 * o->prefix can put it. After an error it is as new; stopped by keep_going it stands behind a whole
 * call, stopped within a call where o->prefix has a point in front of that, or as new. */
bool generate_continue(decoder *d, const int32_t *prompt, size_t n, const generate_options *o,
                       generate_result *r, err *e);
void generate_result_free(generate_result *r);
const char *generate_finish_name(generate_finish f); /* "stop", "length", "cancelled" */
#endif
