/* Regular sets of byte strings: expressions, and the automata that recognise them. */
#ifndef STRUCTURED_DFA_H
#define STRUCTURED_DFA_H
#include "base/arena.h"
#include "base/err.h"

/* ---- expressions ---- */

typedef enum { RX_NONE, RX_EMPTY, RX_BYTES, RX_CAT, RX_ALT, RX_REPEAT } rx_kind;

typedef struct rx {
    rx_kind kind;
    uint8_t lo, hi;         /* RX_BYTES: one byte of lo..hi */
    uint32_t min, max;      /* RX_REPEAT: of a, so many times; RX_FOREVER: no limit */
    const struct rx *a, *b; /* RX_CAT, RX_ALT: both; RX_REPEAT: a */
    uint64_t size;          /* states that an automaton needs at most, about */
} rx;

#define RX_FOREVER UINT32_MAX

const rx *rx_none(arena *a);  /* no string */
const rx *rx_empty(arena *a); /* the empty string */
const rx *rx_bytes(arena *a, unsigned lo, unsigned hi);
const rx *rx_literal(arena *a, const void *s, size_t n);
const rx *rx_text(arena *a, const char *s);
/* NULL stands for nothing yet: rx_cat(a, NULL, x) and rx_alt(a, NULL, x) are x. */
const rx *rx_cat(arena *a, const rx *x, const rx *y);
const rx *rx_alt(arena *a, const rx *x, const rx *y);
const rx *rx_repeat(arena *a, const rx *x, uint32_t min, uint32_t max);
const rx *rx_optional(arena *a, const rx *x);

/* ---- automata ---- */

/* State 0 is dead, 1 the start. Every other state is reached and reaches an end; where the set is empty n is
 * 1. */
typedef struct {
    uint32_t n;
    uint32_t (*next)[256];
    bool *accept;
} dfa;

enum { DFA_MAX_STATES = 20000, DFA_MAX_NFA = 400000 };
#define DFA_WORK 100000000 /* steps for all automata of a grammar: less than a second */

/* Where automata are made, and what that may still cost. */
typedef struct {
    arena *a;
    int64_t work;
    err *e;
} dfa_maker;

/* what names the set in ERR_LIMIT. */
bool dfa_make(dfa_maker *m, dfa *d, const rx *x, const char *what);
bool dfa_intersect(dfa_maker *m, dfa *d, const dfa *x, const dfa *y, const char *what);
/* What x has and y has not. */
bool dfa_subtract(dfa_maker *m, dfa *d, const dfa *x, const dfa *y, const char *what);
bool dfa_is_empty(const dfa *d);
bool dfa_accepts(const dfa *d, const void *s, size_t n);
#endif
