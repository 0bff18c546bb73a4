/* The program: functions of blocks of ops over values. It mirrors an ML Program one to one, so that reading
 * and writing lose nothing; the executor works on the same structures.
 *
 * Everything lives in the program's arena. Values, ops and blocks are referred to by pointer; every value of
 * a function also has a dense number (id) for side tables. SSA: a value is defined once (by an op, as a
 * function or block input, or as a literal) and never changes; states keep value semantics through read_state
 * and write_state. Attributes of an op are ordinary operands that are constant: slots are the attributes. */
#ifndef IR_PROGRAM_H
#define IR_PROGRAM_H
#include "base/err.h"
#include "ir/ops.h"

typedef struct ir_op ir_op;

/* Makes elements [first, first + n) of a constant: writes their packed bytes to dst (first and n are
 * multiples of fill_unit except at the end). Called for ascending, adjoining ranges; may be called again from
 * 0. */
typedef bool ir_fill_fn(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e);

typedef struct {
    const char *s;
    size_t len;
} ir_string;

/* Where the values of a matrix [rows, cols] are codes times scales to begin with: the operands of a
 * constexpr_blockwise_shift_scale that makes them. */
typedef struct {
    const struct ir_const *codes,
        *scales;     /* int8 or int4 [rows, cols], fp16 [rows, cols / n]; or NULL, and */
    const char *why; /* why there is no such op */
} ir_packed;

/* A constant's bytes: row-major, packed as in weight.bin (sub-byte types are one LSB-first bit stream).
 * Exactly one of data and fill is set, except for zero elements. Functions that use the same ir_const share
 * its bytes in the file. */
typedef struct ir_const {
    ir_type type;     /* dims known. IR_OPAQUE: data is the serialized protobuf Value */
    const void *data; /* borrowed from a mapped file or the arena. DT_STRING: ir_string[count] */
    size_t bytes;     /* size of data (ir_type_bytes(); DT_STRING: count * sizeof(ir_string)) */
    ir_fill_fn *fill; /* or: how to make the bytes when they are written */
    const void *fill_ctx;
    const ir_packed *packed; /* with fill: a shorter way to say the same; NULL: none */
    uint64_t fill_unit;      /* elements that are made together; 0: 64. Whole bytes, at most 16 MiB of them */
    const char *blob_file;   /* where it was read from: "weights/weight.bin" below @model_path; NULL: an
                                immediate value */
    uint64_t blob_offset;    /* of the record's metadata */
    bool in_blob;            /* keep (reader) or put (builder) it in the weight file */
} ir_const;

/* How a value appears where it is used as an operand. */
typedef enum {
    IR_BY_NAME,     /* the output of an op or an input */
    IR_BY_LITERAL,  /* a constant written in place, among the op's inputs */
    IR_BY_ATTRIBUTE /* a constant written in place, among the op's attributes (constexpr ops before CoreML8)
                     */
} ir_binding;

typedef struct {
    const char *name;      /* unique in its scope; NULL for literals */
    ir_type type;          /* as declared */
    const ir_const *konst; /* set for outputs of const ops and for literals */
    const ir_op *def;      /* the op that makes it; NULL for inputs and literals */
    uint32_t id;           /* dense, per function */
    uint8_t binding;       /* ir_binding */
    ir_string opaque;      /* type.kind IR_OPAQUE and no constant: the serialized protobuf ValueType */
} ir_value;

typedef struct {
    ir_value **v;
    uint32_t n; /* 0: the optional operand is absent; > 1 only for variadic slots */
} ir_arg;

typedef struct ir_block {
    ir_value **in; /* nested blocks of while_loop only: the loop variables */
    ir_op **op;
    ir_value **out;
    size_t n_in, n_op, n_out, cap_op;
} ir_block;

struct ir_op {
    ir_opcode code;
    const char *name; /* attribute "name"; NULL when absent */
    ir_arg *arg;      /* one a slot of ir_info(code) */
    ir_value **out;
    ir_block **block; /* cond: true, false. while_loop: condition, body */
    uint32_t n_out, n_block;
    uint32_t composite; /* 1 + index of the one that it is part of; 0: none */
};

/* A number that a composite declares. */
typedef struct {
    const char *name;
    enum { IR_COMPOSITE_INT, IR_COMPOSITE_REAL, IR_COMPOSITE_BOOL } kind;
    double value;
} ir_composite_attr;

/* Ops that together are one thing by name, "rms_norm" or "rope", which formats that know such can say. They
 * run as any others. Of values made elsewhere they use constants and the inputs only, of theirs nobody uses
 * but the output. */
typedef struct {
    const char *name, *output_name;
    const char *const *input_name;
    ir_value *const *input;
    ir_value *output;
    uint32_t n_input, n_attr;
    const ir_composite_attr *attr;
} ir_composite;

typedef struct {
    const char *name;
    int spec;      /* opset as specification version: CoreML8 is 9 */
    ir_value **in; /* inputs first, then states (type.kind == IR_STATE) */
    size_t n_in, cap_in;
    ir_block body;
    uint32_t n_values; /* ids are 0 .. n_values-1 */
    ir_composite *composite;
    uint32_t n_composite;
    size_t cap_composite;
} ir_function;

typedef struct {
    const char *name;
    const ir_const *value;
} ir_attribute;

typedef struct {
    arena *a;
    ir_function **func;
    size_t n_func, cap_func;
    ir_attribute *attr; /* program attributes, e.g. buildInfo */
    size_t n_attr;
} ir_program;

ir_program *ir_program_new(arena *a);
ir_function *ir_function_new(ir_program *p, const char *name, int spec);
ir_function *ir_function_find(const ir_program *p, const char *name); /* NULL when absent */
/* A fresh value (not yet placed anywhere). name is copied; NULL for literals. */
ir_value *ir_value_new(ir_program *p, ir_function *f, const char *name, ir_type type);
ir_value *ir_literal(ir_program *p, ir_function *f, const ir_const *c, ir_binding how);
/* Appends an input or a state. */
void ir_add_input(ir_program *p, ir_function *f, ir_value *v);
/* Appends an op with empty slots and n_out outputs that the caller fills in. */
ir_op *ir_add_op(ir_program *p, ir_block *b, ir_opcode code, uint32_t n_out);
void ir_set_arg(ir_program *p, ir_op *op, ir_operand name, ir_value *v);
void ir_set_args(ir_program *p, ir_op *op, ir_operand name, ir_value *const *v, uint32_t n);

/* The operand of that name, NULL when absent or when the op has none (variadic: the first). */
const ir_value *ir_in(const ir_op *op, ir_operand name);
const ir_arg *ir_args(const ir_op *op, ir_operand name); /* never NULL; n = 0 when absent */

/* Constants. */
ir_const *ir_const_new(arena *a, ir_type type, const void *data); /* borrows data */
ir_const *ir_const_string(arena *a, const char *s);
ir_const *ir_const_fill(arena *a, ir_type type, ir_fill_fn *fill, const void *ctx);
/* Element i as a number; false for strings, opaque values and constants that are still to be filled. */
bool ir_const_number(const ir_const *c, uint64_t i, double *v);
/* Integer (or bool) elements; n = count. NULL when c is not such a constant. */
const int64_t *ir_const_ints(arena *a, const ir_const *c, size_t *n);
/* Scalar string, NULL when c is not one. */
const char *ir_const_text(const ir_const *c);

const char *ir_opset_name(int spec);  /* "CoreML8" for 9; NULL when out of range */
int ir_opset_spec(const char *opset); /* 9 for "CoreML8"; 0 when unknown */
#endif
