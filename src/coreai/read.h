/* From a tree to the program that everything else works on; private to src/coreai. read.c: graphs to
 * functions, their description; constant.c: constants and weights; known.c: integers that are known; ops_*.c:
 * op by op (ops.def);
 * composite.c: graphs that say what they are.
 *
 * Calls and decompositions are read where they stand: a graph's values have other lowered ones at each call.
 * Integers of every width become int32 (those beyond it its ends), bf16 and fp8 fp32 that is rounded. */
#ifndef COREAI_READ_H
#define COREAI_READ_H
#include "coreai/tree.h"
#include "ir/build.h"

#define AI_UNKNOWN INT64_MIN /* an element that is not known */

typedef struct {
    ir_value *v;          /* NULL: a constant that nobody has needed yet, a handle, a token */
    const ai_attr *konst; /* the output of a constant op */
    const ai_type *type;  /* its type in the tree */
    const int64_t *known; /* integers of few elements: each, or AI_UNKNOWN; NULL: nothing is known */
    uint32_t n_known;
    ir_value *state;        /* a handle: the state */
    const ai_value *turned; /* the transpose of this constant matrix */
    bool widened;           /* of its fp16 numbers as fp32 */
    const ai_value *spread; /* this, repeated along axes where its size is 1 */
} ai_lowered;

typedef struct {
    const ai_tree *t;
    arena *a, *scratch;
    err *e;
    ir_program *p;
    ir_builder b;
    ai_lowered *at;        /* by value id */
    const ai_graph *graph; /* that is being read */
    const ai_op *op;
    bool placed;          /* the error says where it is */
    bool decompose;       /* read composites' own decompositions, whatever they say they are */
    bool *active;         /* by graph: it is being read, further out */
    uint32_t declared;    /* calls that were taken by what they declare */
    int depth;            /* of calls and regions */
    uint64_t ops;         /* read so far */
    uint64_t bytes;       /* of constants that had to be made larger than they are in the file */
    int64_t capacity;     /* size of the dimensions of states that a caller chooses */
    struct ai_pool *pool; /* constants by where they lie */
} ai_read;

/* "graph G, op NAME (byte N): ...". Always false. */
bool ai_fail(ai_read *r, err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static inline bool ai_ok(const ai_read *r) {
    return r->e->code == ERR_NONE;
}
/* The op type and shape of a tree's tensor; false with an error for what isn't one, or has no equal. */
bool ai_to_ir(ai_read *r, const ai_type *t, ir_type *to);
/* A number that the op's result is to be rounded to: DT_BF16, DT_E4M3, DT_E5M2; else DT_NONE. */
ir_dtype ai_narrow(const ai_type *t);

/* Operand i of the op as a value; constants become const ops here. Never NULL. */
ir_value *ai_in(ai_read *r, uint32_t i);
ir_value *ai_value_of(ai_read *r, const ai_value *v);
/* Its integers; NULL when they (any: some of them) aren't known. */
const int64_t *ai_known(ai_read *r, const ai_value *v, uint32_t *n);
const int64_t *ai_known_any(ai_read *r, const ai_value *v, uint32_t *n);
/* Operand i: n integers that must be known (ERR_UNSUPPORTED). */
const int64_t *ai_ints(ai_read *r, uint32_t i, uint32_t *n);
bool ai_int(ai_read *r, uint32_t i, int64_t *v);
/* The same as an operand: a constant, or the value where not all is known. */
ir_value *ai_list(ai_read *r, uint32_t i);
ir_value *ai_list_of(ai_read *r, const int64_t *v, uint32_t n);
void ai_set(ai_read *r, const ai_value *v, ir_value *to);
/* Result 0 of the op, rounded to its narrow type. */
bool ai_result(ai_read *r, ir_value *v);
bool ai_expect(ai_read *r, uint32_t n_in, uint32_t n_out);

/* v in another shape; a reshape of a reshape is one. */
ir_value *ai_reshaped(ai_read *r, ir_value *v, const ir_type *to);
ir_value *ai_reshaped_by(ai_read *r, ir_value *v, ir_value *shape);
/* A constant, or a weight that a constant expression makes. */
bool ai_is_weight(const ir_value *v);

/* constant.c */
/* What a constant op's output holds, as a constant of t's counterpart (sub-byte types stay). NULL on error.
 */
const ir_const *ai_constant(ai_read *r, const ai_attr *x, const ai_type *t);
/* Elements as integers, when there are few. */
const int64_t *ai_constant_ints(ai_read *r, const ai_attr *x, const ai_type *t, uint32_t *n);
bool ai_constant_is(ai_read *r, const ai_value *v, double number); /* every element is */

/* known.c */
void ai_propagate(ai_read *r, const ai_op *op);

/* Reads a region with these arguments; out gets what its terminator passes on (n_out of them). */
bool ai_region_read(ai_read *r, const ai_region *g, const ai_lowered *in, uint32_t n_in, ai_lowered *out,
                    uint32_t n_out);
/* composite.c: what a graph says it is a decomposition of (NULL: nothing), and the call of it that is being
 * read. *done false: it is to be read from its decomposition. */
const char *ai_composite_kind(const ai_graph *g);
bool ai_composite(ai_read *r, const ai_graph *g, bool *done);
/* Every element along the axis, times in a row: as converters repeat keys and values for query heads. */
ir_value *ai_repeated(ai_read *r, ir_value *x, int axis, int64_t times);

/* A row of ops.def. */
typedef bool ai_op_fn(ai_read *r, ir_opcode code);
#define AI_OP(name, fn, code) ai_op_fn ai_op_##fn;
#include "coreai/ops.def"
#undef AI_OP
#endif
