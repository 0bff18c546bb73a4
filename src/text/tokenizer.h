/* Tokenizer: text <-> token ids, as a Hugging Face tokenizer.json says. Byte-level (or plain) BPE, NFC, any
 * pre-tokenizer made of Sequence, Split, ByteLevel and Digits. Ids equal the tokenizers library's.
 *
 *     tokenizer *t = tokenizer_load("checkpoint", &e);
 *     token_list ids = {0};
 *     tokenizer_encode(t, text, n, 0, &ids, &e);
 *     str out = {0};
 *     tokenizer_decode(t, ids.ids, ids.n, false, &out);      // text/detokenize.h decodes token by token
 *
 * A tokenizer never changes: threads may share one. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H
#include "base/err.h"
#include "base/str.h"
#include "text/bpe.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tokenizer tokenizer;

/* Reads DIR/tokenizer.json, and where they are there tokenizer_config.json (further added tokens, eos, bos)
 * and special_tokens_map.json (eos, bos). NULL on error. */
tokenizer *tokenizer_load(const char *dir, err *e);
/* The same from memory; config is the text of tokenizer_config.json or NULL. Borrows nothing. */
tokenizer *tokenizer_load_memory(const void *text, size_t n, const void *config, size_t config_n, err *e);
void tokenizer_free(tokenizer *t);

enum {
    TOKENIZER_PLAIN = 1, /* added tokens are not looked for: for text that must not produce control tokens */
    TOKENIZER_TEMPLATE = 2 /* put the ids around it that the file's post-processor asks for (a BOS, mostly) */
};
/* Appends the ids of text[0..n), which may hold NUL. Text that isn't UTF-8 is an error that names the byte.
 * Linear in n (n log n inside one long piece). On an error, out may have grown. */
bool tokenizer_encode(const tokenizer *t, const char *text, size_t n, unsigned flags, token_list *out,
                      err *e);

/* A part of a text, in bytes: [start, end). */
typedef struct {
    size_t start, end;
} text_span;
/* The ids of the text as one, but with added tokens looked for only inside of the spans, which are in order
 * and don't overlap: a text that only partly may hold control tokens (text/chat.h). Where there is one span
 * of the whole text, that's tokenizer_encode(). */
bool tokenizer_encode_spans(const tokenizer *t, const char *text, size_t n, const text_span *spans,
                            size_t count, token_list *out, err *e);

/* Appends the text of the ids; ill-formed UTF-8 becomes U+FFFD, as Python's errors="replace" does. Ids that
 * don't exist count for nothing. */
void tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special, str *out);

/* The bytes of one token (part of a character, perhaps). NULL: there is no such token. */
const uint8_t *tokenizer_bytes(const tokenizer *t, int32_t id, size_t *n);
/* Id of the token with this text; -1 when there is none. Added tokens first, then the vocabulary. */
int32_t tokenizer_find(const tokenizer *t, const char *text, size_t n);
/* One more than the last id: rows of logits from here on are padding and must not be sampled. */
int32_t tokenizer_limit(const tokenizer *t);
bool tokenizer_is_added(const tokenizer *t, int32_t id);
/* Left out by skip_special. */
bool tokenizer_is_special(const tokenizer *t, int32_t id);
/* End-of-text ids that the tokenizer's files name (0 to 2 of them). */
const int32_t *tokenizer_eos(const tokenizer *t, size_t *n);
/* -1 when the files name none. */
int32_t tokenizer_bos(const tokenizer *t);
#endif
