/* Names with wildcards: of files, functions, inputs, outputs and states, as contract descriptions write them.
 *
 *   *     any text, also none (the shortest that fits)
 *   {i}   a number: which one of several ("02" is 2)      {n}   how many there are
 *   {a}   a letter in place of {i}: a is 0
 *
 * Everything else stands for itself. */
#ifndef GENERATE_PATTERN_H
#define GENERATE_PATTERN_H
#include <stdbool.h>
#include <stddef.h>

enum { PATTERN_STARS = 4 }; /* what * may stand for is kept for so many of them */

typedef struct {
    long i, n; /* -1: the pattern has none */
    struct {
        const char *s; /* into the name */
        size_t len;
    } star[PATTERN_STARS];
    size_t n_star;
} pattern_match;

/* Whether the whole name fits. m may be NULL. */
bool pattern_fits(const char *pattern, const char *name, pattern_match *m);
/* Whether a pattern is well-formed: known braces, {i} or {a} at most once, {n} at most once, few stars. */
bool pattern_valid(const char *pattern);
/* Whether it has {i} or {a}: then it stands for several names. */
bool pattern_is_indexed(const char *pattern);
#endif
