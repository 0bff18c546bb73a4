/* Where a text stands in a grammar, and which tokens may come next. */
#ifndef STRUCTURED_MATCHER_H
#define STRUCTURED_MATCHER_H
#include "structured/grammar.h"
#include "text/tokenizer.h"

/* The tokens of a tokenizer as a trie of their bytes. Immutable, shared by threads and grammars; made once
 * per tokenizer (0.1 s for 248,320 tokens). */
typedef struct vocabulary vocabulary;

/* stop: ids that end a generation; they are allowed exactly where the text may end, and have no bytes. limit:
 * ids from here on are never allowed. Special tokens are never allowed; other added tokens (<tool_call>,
 * </think>) only where the grammar itself writes markup, or free text is. NULL on error. */
vocabulary *vocabulary_new(const tokenizer *t, const int32_t *stop, size_t n_stop, int32_t limit, err *e);
/* From the bytes themselves: token[i] of len[i] bytes has the id i (0 bytes: no such token). For tests. */
vocabulary *vocabulary_from_bytes(const uint8_t *const *token, const size_t *len, size_t n,
                                  const int32_t *stop, size_t n_stop, err *e);
void vocabulary_free(vocabulary *v);
int32_t vocabulary_limit(const vocabulary *v);
size_t vocabulary_words(const vocabulary *v); /* of a mask: limit bits, 32 a word */
size_t vocabulary_bytes(const vocabulary *v); /* memory that it takes */

/* One text under way. Used by one thread at a time. */
typedef struct matcher matcher;

/* At the beginning. Keeps g (grammar_share()); v must outlive it. */
matcher *matcher_new(grammar *g, const vocabulary *v, err *e);
void matcher_free(matcher *m);
matcher *matcher_clone(const matcher *m, err *e);
void matcher_reset(matcher *m); /* to the beginning */

/* Bit id % 32 of bits[id / 32] is set where token id may come next; vocabulary_words() words. ERR_INVALID
 * when there is no such token (the vocabulary lacks a byte that is needed, or too many readings were
 * possible); ERR_MEMORY. */
bool matcher_mask(matcher *m, uint32_t *bits, err *e);
bool matcher_allows(matcher *m, int32_t id);
/* Goes on by a token, or by bytes. False, and nothing changes, when that isn't allowed. A stop id is allowed
 * where matcher_may_end(); then matcher_ended(), and nothing more is allowed. */
bool matcher_accept(matcher *m, int32_t id);
bool matcher_accept_bytes(matcher *m, const void *bytes, size_t n);
/* Undoes the last n calls of matcher_accept (ids or bytes). False when there were fewer, or more than
 * MATCHER_HISTORY. */
enum { MATCHER_HISTORY = 64 };
bool matcher_rollback(matcher *m, size_t n);

int32_t matcher_limit(const matcher *m); /* of its vocabulary */
bool matcher_may_end(const matcher *m);  /* the text is complete, though it may be able to go on */
bool matcher_must_end(const matcher *m); /* complete, and nothing can follow */
bool matcher_ended(const matcher *m);    /* a stop id was accepted */
#endif
