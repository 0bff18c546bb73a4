/* What the inference rules share. Private to src/ir.
 *
 * A rule reads the operands of in->op and fills in->out. It may rely on ir_infer_op() having checked that
 * required operands are there, that every operand is a well-formed tensor (rank 0..8, sizes -1..INF_DIM_MAX)
 * of a dtype that the slot admits, and that the op has as many outputs as its row says. */
#ifndef IR_INFER_RULES_H
#define IR_INFER_RULES_H
#include "ir/infer.h"

/* No real size comes near it, and sums of sizes can't overflow below it. */
#define INF_DIM_MAX (INT64_C(1) << 48)

typedef struct {
    const ir_op *op;
    int spec;
    const ir_env *env;
    ir_type *out;
    arena *a;
    err *e;
} infer;

typedef bool infer_rule(infer *in);

/* The three steps of ir_infer_op(), apart so that the verifier can tell which rule was broken. */
bool inf_operands(infer *in);   /* each operand for itself: presence, kind, size, dtype */
bool inf_same_dtype(infer *in); /* operands that must share a dtype */
bool inf_outputs(infer *in);    /* the op's own rule */

/* A list operand (axes, shape, begin ...). */
typedef struct {
    bool present;
    const int64_t *v; /* NULL: absent, or not known now */
    size_t n;         /* entries of v */
    int64_t len;      /* length by type; IR_DIM_UNKNOWN when that is not known */
} inf_list;

bool inf_has(const infer *in, ir_operand name);
/* Type of an operand; a zero type when it is absent. */
ir_type inf_type(const infer *in, ir_operand name);
inf_list inf_ints(const infer *in, ir_operand name);
/* As inf_ints(); an error when the operand is present and its values are not known. */
bool inf_known_ints(infer *in, ir_operand name, inf_list *l);
/* Scalars that must be known when present. */
bool inf_int(infer *in, ir_operand name, int64_t fallback, int64_t *v);
bool inf_bool(infer *in, ir_operand name, bool fallback, bool *v);
/* The axis operand as an index below rank. */
bool inf_axis(infer *in, ir_operand name, int64_t fallback, int rank, int64_t *axis);
/* One flag an axis from a list of axes; all are set when the operand is absent. Refuses repeated axes. */
bool inf_axes(infer *in, ir_operand name, int rank, bool *chosen);
bool inf_text_among(infer *in, ir_operand name, const char *text, const char *const *allowed);

/* Error helpers: "operand x has type fp16[1,2]: <what>". Always false. */
bool inf_bad(infer *in, ir_operand name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool inf_fail(infer *in, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Arithmetic on sizes that may be unknown. */
bool inf_mul(infer *in, int64_t x, int64_t y, int64_t *product);
/* One size that two operands share: false when both are known and differ. */
bool inf_unify(int64_t x, int64_t y, int64_t *size);
/* Adds a dimension to t; an error beyond IR_MAX_RANK. */
bool inf_push(infer *in, ir_type *t, int64_t dim);
bool inf_broadcast(infer *in, ir_operand x, ir_operand y, ir_type *out);

/* The rules, by the group of ops: infer_elementwise.c, infer_linear.c, infer_conv.c, infer_reduce.c,
 * infer_shape.c, infer_make.c, infer_slice.c, infer_gather.c, infer_constexpr.c, infer_control.c. */
#define RULE(op, rule, n_out) infer_rule rule_##rule;
#include "ir/infer.def"
#undef RULE
#endif
