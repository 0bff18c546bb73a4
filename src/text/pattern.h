/* Patterns that cut text in pieces: regular expressions, literal text, digits.
 * A tokenizer.json's expressions are written for Oniguruma (Ruby syntax). The well-known ones run on
 * hand-written matchers; all others are translated for PCRE2. Both use the exact classes of text/unicode.h.
 */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pattern pattern;

#define PATTERN_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* known: use a hand-written matcher when there is one (false: always PCRE2, for tests). NULL on error: bad
 * syntax, or a construct whose meaning would differ. The pattern is freed with pattern_free(). */
pattern *pattern_regex(const char *regex, size_t n, bool known, err *e);
pattern *pattern_literal(const char *text, size_t n);
/* One numeric code point (the Digits pre-tokenizer). */
pattern *pattern_digit(void);
void pattern_free(pattern *p);

/* A walk over the matches in one text, which must be well-formed UTF-8 and outlive it. */
typedef struct {
    const pattern *p;
    const uint8_t *s;
    size_t n, at;
    size_t last_match; /* end of the last match: an empty match there doesn't count */
    void *data;        /* PCRE2's match block */
} matcher;

void matcher_begin(matcher *m, const pattern *p, const uint8_t *s, size_t n);
/* 1: the next match is s[*start, *end); 0: no more; -1: error (the expression takes too many steps). */
int matcher_next(matcher *m, size_t *start, size_t *end, err *e);
void matcher_end(matcher *m);

/* The translation of an Oniguruma expression for PCRE2 (UTF, multi-line, LF newlines), appended to out. */
bool regex_translate(str *out, const char *regex, size_t n, err *e);
#endif
