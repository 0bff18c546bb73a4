/* Decoding token by token. Text comes out as soon as it is certain; a character is never broken. Ill-formed
 * UTF-8 becomes one U+FFFD for each maximal ill-formed part (Unicode 3.9, U+FFFD substitution; Python's
 * errors="replace").
 *
 *     detokenizer d;
 *     detokenizer_begin(&d, t, true);
 *     while (...) detokenizer_push(&d, id, &text);
 *     detokenizer_flush(&d, &text);
 *
 * What push and flush append, joined, is what tokenizer_decode() gives. */
#ifndef TEXT_DETOKENIZE_H
#define TEXT_DETOKENIZE_H
#include "text/tokenizer.h"

/* Plain data: copy it to keep a position. */
typedef struct {
    const tokenizer *t;
    bool skip_special;
    uint8_t tail[4]; /* the beginning of a character that may still be completed */
    size_t tail_n;
} detokenizer;

/* t must outlive d. skip_special: special tokens count for nothing. */
void detokenizer_begin(detokenizer *d, const tokenizer *t, bool skip_special);
/* Appends the text that is certain now (nothing, perhaps). An id that doesn't exist counts for nothing. */
void detokenizer_push(detokenizer *d, int32_t id, str *out);
/* Appends what was held back; d is as new then. */
void detokenizer_flush(detokenizer *d, str *out);
#endif
