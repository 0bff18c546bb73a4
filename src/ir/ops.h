/* The op table (ops.def) as data. */
#ifndef IR_OPS_H
#define IR_OPS_H
#include "ir/type.h"

typedef enum {
    OP_NONE,
#define OP(name, spec, flags, operands) OP_##name,
#include "ir/ops.def"
#undef OP
    OP_COUNT
} ir_opcode;

typedef enum {
    A_NONE,
#define OPERAND(name) A_##name,
#include "ir/operands.def"
#undef OPERAND
    A_COUNT
} ir_operand;

/* What an op does besides computing its outputs from its operands. */
enum { OPF_PURE = 0, OPF_CONST = 1, OPF_CONTROL = 2, OPF_STATE = 4, OPF_CONSTEXPR = 8, OPF_INTERNAL = 16 };

#define IR_MAX_SLOTS 13
#define IR_SPEC_MIN  6  /* opset CoreML5 */
#define IR_SPEC_MAX  10 /* opset CoreML9 */
/* Programs of Core AI assets: no Core ML specification has this number. Rules that only Core ML has don't
 * hold. */
#define IR_SPEC_COREAI 90

typedef struct {
    ir_operand name;
    bool is_const, optional, variadic;
    uint8_t since; /* specification version from which the operand exists; 0: always */
    struct {
        uint8_t since;
        uint32_t mask; /* bit (1u << ir_dtype); 0: any dtype */
    } types[3];        /* ascending; the last one with since <= the program's version counts */
} ir_slot;

typedef struct {
    const char *name;
    uint8_t spec; /* first specification version */
    uint8_t flags;
    uint8_t n_slot;
    ir_slot slot[IR_MAX_SLOTS];
} ir_op_info;

const ir_op_info *ir_info(ir_opcode code);
ir_opcode ir_opcode_by_name(const char *name); /* OP_NONE when there is no such op */
const char *ir_operand_name(ir_operand name);
/* Index of an operand in the op's slots, -1 when the op has none of that name. */
int ir_slot_of(ir_opcode code, ir_operand name);
int ir_slot_by_text(ir_opcode code, const char *name);
/* dtypes that the slot admits in a program of this specification version; 0: any. */
uint32_t ir_slot_dtypes(const ir_slot *s, int spec);
#endif
