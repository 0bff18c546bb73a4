/* Patterns of JSON Schema (ECMA 262) as regular sets. */
#ifndef STRUCTURED_REGEX_H
#define STRUCTURED_REGEX_H
#include "structured/lexical.h"

/* The texts in which s[0..n) finds something: with free text on a side that has no anchor. Characters are
 * written as w says. Shorthand classes are taken so that all dialects agree: \d is 0-9, \D nothing that is a
 * digit in any script. NULL: ERR_UNSUPPORTED names the construct, ERR_INVALID the byte. */
const rx *regex_search(arena *a, const char *s, size_t n, writing w, err *e);
#endif
