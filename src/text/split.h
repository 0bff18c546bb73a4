/* The pre-tokenizer of a tokenizer.json: cuts normalised text in the pieces that BPE works on. */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H
#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPLIT_MAX_STEPS 32

typedef enum {
    SPLIT_ISOLATED,   /* every match and every gap is a piece */
    SPLIT_REMOVED,    /* gaps only */
    SPLIT_CONTIGUOUS, /* neighbouring matches are one piece */
    SPLIT_PREVIOUS,   /* a match joins the gap before it */
    SPLIT_NEXT,       /* a match joins the gap behind it */
    SPLIT_PREFIX      /* no cut: the piece gets a space in front unless it has one */
} split_behaviour;

typedef struct {
    split_behaviour behaviour;
    bool invert; /* gaps are the matches */
    struct pattern *pattern;
} split_step;

typedef struct {
    split_step steps[SPLIT_MAX_STEPS];
    size_t count;
    bool byte_level; /* the vocabulary spells bytes as printable characters */
} split;

/* Reads the value of "pre_tokenizer" (NULL or null: the whole text is one piece). On an error too,
 * split_free() it. */
bool split_read(split *p, const json *pre_tokenizer, err *e);
void split_free(split *p);

/* Takes one piece, never empty; false stops the walk. */
typedef bool split_fn(void *ctx, const uint8_t *s, size_t n, err *e);
/* Calls fn for the pieces of s[0..n), which must be well-formed UTF-8, in order. */
bool split_text(const split *p, const uint8_t *s, size_t n, split_fn *fn, void *ctx, err *e);
#endif
