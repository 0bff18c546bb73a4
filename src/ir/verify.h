/* The rules of the format (facts: MIL.proto, coremltools' loader, Core ML's known refusals). */
#ifndef IR_VERIFY_H
#define IR_VERIFY_H
#include "ir/program.h"

/* Called for every violation; return false to stop early. rule is a stable short name:
 *   names      identifier, reserved-word, duplicate-name, undefined, functions, structure
 *   versions   opset, operand-version, binding (operands among the attributes or not)
 *   operands   operand (missing, wrong kind or dtype), mixed-dtypes, const-operand, operand-rank
 *   types      type (the op's own rule), declared-type, rank, linear-rank, select-branches, unsupported
 *   slices     slice-bounds, slice-end, slice-update-length
 *   constants  const-size, const-place, sparse-mask, size-limit (immediates of 2 GiB and more)
 *   states     state-version, state-dtype, state-shape, state-use, state-unused
 *   features   input-type, duplicate-output, output-is-input */
typedef bool ir_report_fn(void *ctx, const char *rule, const char *message);

/* Checks the whole program; returns true when there was no violation. Messages name function, op and value.
 * report may be NULL; then only the first violation is kept, in e (ERR_INVALID, "rule: message"). */
bool ir_verify(const ir_program *p, ir_report_fn *report, void *ctx, err *e);
bool ir_identifier_ok(const char *name, const char **why); /* MIL identifier and not a reserved word */
#endif
