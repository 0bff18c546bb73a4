/* JSON's own words as regular sets: strings, numbers, and how characters are written in them. */
#ifndef STRUCTURED_LEXICAL_H
#define STRUCTURED_LEXICAL_H
#include "structured/dfa.h"

/* How a character stands in the text. */
typedef enum {
    WRITE_JSON, /* in a JSON string: quote, backslash and controls escaped, in one way */
    WRITE_PLAIN /* as it is */
} writing;

/* One of the characters lo..hi; surrogates are none. */
const rx *lex_chars(arena *a, uint32_t lo, uint32_t hi, writing w);
/* Any character in a JSON string, with all escapes that JSON has. */
const rx *lex_any_char(arena *a);
/* The text of a JSON string, as it is written between quotes; s is UTF-8. */
const rx *lex_written(arena *a, const char *s, size_t n, writing w);
/* At most LEX_DIGITS digits before and behind the point, two of an exponent. */
enum { LEX_DIGITS = 32 };
const rx *lex_integer(arena *a);
const rx *lex_number(arena *a);
#endif
