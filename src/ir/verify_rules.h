/* What the parts of the verifier share. Private to src/ir. */
#ifndef IR_VERIFY_RULES_H
#define IR_VERIFY_RULES_H
#include "base/map.h"
#include "ir/infer_rules.h"
#include "ir/verify.h"

typedef struct scope {
    const struct scope *outer;
    map *names;
} scope;

typedef struct {
    const ir_program *p;
    const ir_function *f; /* where we are; op may be NULL */
    const ir_op *op;
    ir_report_fn *report;
    void *ctx;
    err *e;
    size_t found;
    bool stop;             /* the receiver has had enough */
    arena *a, *scratch;    /* per function; per op */
    ir_type *types;        /* by value id: declared and inferred taken together */
    const ir_value **live; /* by value id: the value while it is defined and in scope */
    bool *used;            /* by value id: read by an op that is no constexpr, or an output */
    uint64_t immediate;    /* bytes of constants that stand in the model file */
    int trace_left;        /* steps that ver_slices() may still take */
} verifier;

/* Reports a violation of the named rule; "function F, op CODE NAME: " goes in front. */
void ver_bad(verifier *v, const char *rule, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Names come from files: made fit for one line of text. */
const char *ver_text(verifier *v, const char *s);
const char *ver_name(verifier *v, const ir_value *value);
ir_type ver_type(const verifier *v, const ir_value *value);

void ver_const(verifier *v, const ir_const *c, const char *name);
/* An op's operands, each for itself: scope, states, constants. False when nothing more can be said about the
 * op. */
bool ver_operands(verifier *v, const ir_op *op);
/* Inferred against declared types, and the rules of single ops. The outputs are in scope. */
void ver_types(verifier *v, const ir_op *op);
void ver_slices(verifier *v, const ir_op *op); /* slice_by_index and slice_update: bounds, lengths */
#endif
