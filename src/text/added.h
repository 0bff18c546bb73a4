/* Added tokens: texts such as <|im_end|> that are found before anything else is done. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H
#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *s; /* the text, n bytes */
    size_t n;
    const char *key; /* what is searched for, key_len bytes: the text, normalised when the flag says so */
    size_t key_len;
    const uint8_t *bytes; /* what it decodes to, byte_count bytes */
    size_t byte_count;
    int32_t id;
    bool special;        /* left out by skip_special_tokens */
    bool lstrip, rstrip; /* takes the white space before, behind it too */
    bool single_word;    /* not found where it touches a letter, digit or '_' */
    bool normalized;     /* searched in normalised text */
} added_token;

/* Tokens to search for. */
typedef struct {
    const added_token **token; /* sorted by key, each key once */
    size_t count;
    bool first[256]; /* bytes that a key begins with */
} added_set;

/* Reads the flags and the text of one entry ({"content": ..., "special": ...}); the id is the caller's. */
bool added_read(added_token *t, const json *entry, err *e);

/* Fills in key and bytes; nfc: the tokenizer normalises. */
bool added_finish(added_token *t, arena *a, bool nfc, err *e);

/* The set of those tokens whose flag normalized is as given. Lives in a; borrows tokens. */
void added_index(added_set *set, arena *a, const added_token *tokens, size_t count, bool normalized);

/* The first token in s[from..n): leftmost, and the longest there. Text between matches is s[from, *start);
 * the search goes on at *end. *resume is where the bare match ended (keep it between calls, begin with from).
 * NULL when there is none. */
const added_token *added_next(const added_set *set, const uint8_t *s, size_t n, size_t from, size_t *resume,
                              size_t *start, size_t *end);
#endif
