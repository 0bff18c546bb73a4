/* Builds a function op by op, with types inferred at once. The first error sticks: later calls do nothing and
 * return a harmless value, so that graph code reads straight down and checks once, at the end (b->e).
 *
 *   ir_builder b = ir_build(p, "main", 9, &e);
 *   ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, 64));
 *   ir_value *y = b_op(&b, OP_add, "y", A_x, x, A_y, b_f16(&b, 1.5f), A_NONE);
 *   b_output(&b, y);
 */
#ifndef IR_BUILD_H
#define IR_BUILD_H
#include "base/map.h"
#include "ir/program.h"

typedef struct {
    ir_program *p;
    ir_function *f;
    map *names;  /* every name in use */
    map *consts; /* small immediate constants by type and bytes, so that equal ones are one op: index in
                    shared */
    ir_value **shared;
    size_t cap_shared, cap_out;
    arena *scratch, *keys;
    err *e;
    uint32_t serial, const_serial;
    uint32_t composite; /* of the ops that are being added; 0: none */
} ir_builder;

ir_builder ir_build(ir_program *p, const char *function, int spec, err *e);
void ir_build_end(ir_builder *b); /* frees the scratch memory; the program stays. Call it on errors too */

/* Names of inputs, states and outputs are feature names: one in use already is an error, not renamed. */
ir_value *b_input(ir_builder *b, const char *name, ir_type t);
ir_value *b_state(ir_builder *b, const char *name, ir_type t); /* t: the wrapped tensor */
/* An op with one output. name: the output's name, NULL for one made from the op ("add_12"); a name already in
 * use gets a number. Then pairs (ir_operand, ir_value *) up to A_NONE; a NULL value leaves the operand out.
 */
ir_value *b_op(ir_builder *b, ir_opcode code, const char *name, ...);
/* The same with a variadic operand (concat.values, stack.values) put first. */
ir_value *b_opv(ir_builder *b, ir_opcode code, const char *name, ir_operand variadic, ir_value *const *v,
                uint32_t n, ...);
/* An op with n_out outputs, written to out[]; named name_0, name_1 ... when there is more than one. n_out 0
 * for write_state (out is not touched). */
void b_op_multi(ir_builder *b, ir_opcode code, const char *name, ir_value **out, uint32_t n_out, ...);
/* Marks an output of the function. The value's name is the feature's name. An input can't be an output (use
 * identity), nor can one value be two outputs. */
void b_output(ir_builder *b, ir_value *v);
ir_type b_type(const ir_builder *b, const ir_value *v); /* v->type; a zero type after an error */

/* What is added from here to b_composite_end() is one composite; c's output is set there. c is copied, what
 * it points to is not. */
void b_composite_begin(ir_builder *b, ir_composite c);
ir_value *b_composite_end(ir_builder *b, ir_value *output); /* returns output */

/* Constants: emitted as const ops. b_const() names one (NULL: "const_N") and emits it as it is; the others
 * are unnamed, and equal ones share one op. */
ir_value *b_const(ir_builder *b, const char *name, const ir_const *c);
ir_value *b_f16(ir_builder *b, float v);
ir_value *b_f32(ir_builder *b, float v);
ir_value *b_i32(ir_builder *b, int32_t v);
ir_value *b_bool(ir_builder *b, bool v);
ir_value *b_text(ir_builder *b, const char *s);
ir_value *b_ints(ir_builder *b, const int32_t *v, size_t n); /* int32[n] */
#define B_INTS(b, ...)                                                                                       \
    b_ints(b, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))
/* d fp16 or fp32, sizes from shape. Ten elements and more go to the weight file, as in coremltools' packages.
 */
ir_value *b_floats(ir_builder *b, ir_dtype d, const float *v, ir_type shape);
#endif
