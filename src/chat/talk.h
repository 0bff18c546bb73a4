/* A conversation with a model: messages, the prompt that they make, what of it need not be fed again, the
 * reply as it streams, split in reasoning and answer.
 *
 *     talk *t = talk_open(m, &o, &e);
 *     talk_system(t, "Be brief.");
 *     talk_ask(t, "Hello", on_text, ctx, &turn, &e);     the reply becomes a message, too
 *     talk_close(t);
 *
 * States are kept from turn to turn (generate/prefix.h): a turn feeds the new text only. What the model wrote
 * stands in the prompt of the next turn with the very ids that it chose, as long as the template writes it
 * down as it was; where the template drops the reasoning of earlier turns, feeding goes on from the end of
 * the question before. */
#ifndef CHAT_TALK_H
#define CHAT_TALK_H
#include "generate/generator.h"
#include "text/chat.h"

typedef enum { TALK_SYSTEM, TALK_USER, TALK_ASSISTANT } talk_role;

typedef struct {
    talk_role role;
    str content, reasoning;
} talk_message;

typedef struct {
    rt_mode mode;
    sampler_options sampling; /* talk_sampling() has what the checkpoint recommends */
    int64_t max_new;          /* -1: what fits */
    chat_thinking thinking;
    bool keep_thinking;        /* also in earlier turns */
    const char *template_name; /* NULL: the checkpoint's */
    size_t budget;             /* bytes for prefixes; PREFIX_BUDGET */
    /* What replies are held to, and the same behind free text up to </think>, for prompts that end inside of
     * the reasoning (grammar_options.behind). NULL: they are free. Borrowed. */
    grammar *form, *form_behind;
} talk_options;

/* The sampling that generation_config.json asks for; where there is none, a moderate one. Greedy where the
 * package returns its best id only. */
bool talk_sampling(const lm *m, sampler_options *o, err *e);

typedef struct talk talk;

/* NULL on error: no tokenizer, no chat template that we know. m must outlive it. */
talk *talk_open(const lm *m, const talk_options *o, err *e);
void talk_close(talk *t);
talk_options *talk_options_of(talk *t); /* may be changed between turns; mode, template, budget: no more */
/* From here on each reply that stays is drawn with the next of the seed's seeds (sampler_seed_of()), the
 * first with the seed itself: the same seed, messages and options give the same replies. */
void talk_seed(talk *t, uint64_t seed);
const chat_template *talk_template(const talk *t);
const lm *talk_lm(const talk *t);

/* ---- messages ---- */

size_t talk_count(const talk *t);
const talk_message *talk_at(const talk *t, size_t i);
/* The first message, if it is the system's, is replaced; NULL removes it. */
void talk_system(talk *t, const char *text);
const char *talk_system_text(const talk *t); /* NULL: none */
/* Removes all but the system message; seeds begin anew, as with talk_seed(). */
void talk_reset(talk *t);
/* Takes the last question and its reply back. False: there is none. *question (may be NULL): appended to. */
bool talk_undo(talk *t, str *question);
/* Drops the oldest questions with their replies until the prompt that the question makes leaves a quarter of
 * the context free, or there are none left. *dropped: how many. */
bool talk_drop(talk *t, const char *question, size_t n, size_t *dropped, err *e);
/* Adds a message as it is. */
void talk_add(talk *t, talk_role role, const char *content, size_t n, const char *reasoning,
              size_t n_reasoning);

/* ---- turns ---- */

typedef enum { TALK_REASONING, TALK_ANSWER } talk_kind;
/* Sees the text as it comes; false ends the reply. */
typedef bool talk_text_fn(void *ctx, talk_kind kind, const char *s, size_t n);

typedef enum {
    TALK_END,     /* the model ended it */
    TALK_LENGTH,  /* max_new tokens */
    TALK_FULL,    /* the context has no more room */
    TALK_STOPPED, /* the caller ended it */
    TALK_LOOP     /* it repeated itself without end */
} talk_end;
const char *talk_end_text(talk_end end); /* "the context is full", ... */

typedef struct {
    talk_end end;
    size_t prompt, reused, fed,
        written;  /* tokens; reused + fed < prompt where it was stopped before a reply */
    size_t moved; /* where the prompt parted from what had been fed; 0: it didn't */
    double prompt_seconds, decode_seconds;
} talk_turn;

typedef struct {
    talk_text_fn *text;
    bool (*keep_going)(void *ctx); /* polled between calls, also while the prompt is fed. May be NULL */
    void *ctx;
    const atomic_bool *cancel; /* once set, the turn stops within the step under way. May be NULL */
} talk_watch;

/* Asks and lets the model reply. The question and what came of the reply become messages; where nothing came
 * (an error, an end before the first text), the question is taken back. ERR_LIMIT: the prompt doesn't fit the
 * context; talk_tokens() tells by how much. */
bool talk_ask(talk *t, const char *question, size_t n, const talk_watch *w, talk_turn *turn, err *e);
/* The same for the last question once more: its reply is dropped first. ERR_USAGE: there is none. */
bool talk_again(talk *t, const talk_watch *w, talk_turn *turn, err *e);

/* Tokens of the prompt that a question (NULL: none) would make. */
bool talk_tokens(talk *t, const char *question, size_t n, size_t *tokens, err *e);
/* Tokens that a prompt may have: the rest is room for a reply. */
size_t talk_most(const talk *t);
/* The scores behind the prompt that the question makes, with `begin` as the beginning of the reply; until the
 * next call. Nothing is added to the messages. w: who may stop it (ERR_CANCELLED); NULL: nobody. */
bool talk_scores(talk *t, const char *question, size_t n, const char *begin, const talk_watch *w,
                 decoder_row *row, err *e);
/* Tokens of the context that the conversation takes: prompt and reply of the last turn, or, where messages
 * changed since, what they make. */
size_t talk_size(const talk *t);
/* Tokens fed: what the next turn may go on from. After a stop that may be less, or parts of a question that
 * was taken back. */
size_t talk_position(const talk *t);
prefix_figures talk_prefixes(const talk *t);

/* ---- on disk ---- */

/* Messages, options and states in one file. */
bool talk_save(talk *t, const char *path, err *e);
/* In place of what there is, which stays on an error. Where the file was written with another artifact the
 * messages are taken and *reread is set: the next turn feeds them. Seeds begin anew, as with talk_seed(). */
bool talk_load(talk *t, const char *path, bool *reread, err *e);
#endif
