/* Readable listing of a program, one op a line. Constants stand where they are used, large ones with their
 * name and place: %x_3: fp16[1,1,256] = linear(x=%x_2, weight=%w: fp16[256,256]@weights/weight.bin:64)  // op
 * name if it differs */
#ifndef IR_PRINT_H
#define IR_PRINT_H
#include "base/str.h"
#include "ir/program.h"

void ir_print_program(str *out, const ir_program *p);
void ir_print_function(str *out, const ir_function *f);
void ir_print_op(str *out, const ir_op *op, int indent);
/* A constant for people: small ones by value, large ones by type and place. */
void ir_print_const(str *out, const ir_const *c);
#endif
