/* Patterns over ops, as small expressions:
 *
 *   (mul ?x (rsqrt (reduce_mean (square ?x))))
 *
 * (op a b ...)  a value that this op makes; a, b ... match its operands in the order of its row in ops.def;
 * what is left out may be anything. (op#1 ...): its result number 1; (part a): a result of split, or of
 * slice_by_index, of a. ?x: any value; the same name again must be the same value. %w: a constant, or a
 * compressed weight. _: anything, also an absent operand. add and mul try both orders. */
#ifndef OPTIMIZE_MATCH_H
#define OPTIMIZE_MATCH_H
#include "ir/program.h"

#define MATCH_NAMES 12
#define MATCH_OPS   24

typedef struct pattern pattern;

typedef struct {
    char name[MATCH_NAMES][8];
    ir_value *value[MATCH_NAMES];
    int n_name;
    ir_op *op[MATCH_OPS]; /* that make the matched values; op[0]: the root */
    int n_op;
} match;

/* text is trusted (an assert guards it); the result lives in a. */
const pattern *pattern_parse(arena *a, const char *text);
ir_opcode pattern_root(const pattern *p);
bool pattern_match(const pattern *p, ir_op *op, match *m);
/* The value that a name stands for; NULL when the pattern has none of that name. */
ir_value *match_get(const match *m, const char *name);
#endif
