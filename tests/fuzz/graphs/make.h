/* The generator, inside: builds a function op by op and evaluates each at once, so that what comes next knows
 * the numbers. */
#ifndef FUZZ_MAKE_H
#define FUZZ_MAKE_H
#include "base/num.h"
#include "ir/build.h"
#include "reference/eval.h"
#include "sample.h"

#define MOST_POOL   400
#define MOST_VALUES 8000
#define MADE_CALLS  4 /* of a program */
#define MADE_STATES 6

typedef enum {
    STYLE_TAME,  /* numbers around 1; what grows is brought back */
    STYLE_EXACT, /* small integers, and only ops that keep them such */
    STYLE_WILD   /* zeros, huge, tiny and infinite numbers among the others; nothing is brought back */
} make_style;

typedef struct {
    sample *s;
    arena *a;
    ir_builder b;
    err *e;
    dice d;
    make_style style;
    int spec;        /* of all functions; 90: ops of Core AI assets, too */
    uint32_t mutate; /* percent of pattern ops that are changed */
    uint32_t expose; /* percent of pattern values that other ops may use */
    uint32_t half;   /* percent of inputs that are fp16 */
    ir_value *pool[MOST_POOL];
    size_t n_pool;
    ir_value *out[MOST_POOL]; /* wanted as results */
    size_t n_out;
    ir_value *twin[MOST_TWINS][2]; /* results of control flow, and the same without */
    size_t n_twin;
    ir_value *twin_now; /* what the op that is settled next gives */
    bool control;       /* the function has control flow */
    size_t done;        /* ops of the body that were evaluated */
    ref_eval v;
    ref_tensor *env;                  /* by value id, in the first call */
    ref_tensor (*in)[MOST_IN];        /* contents of inputs by call */
    ir_value *state[MOST_STATES];     /* of this function, by index of s->state */
    ir_value *state_now[MOST_STATES]; /* its content as a value; NULL: not read yet */
} maker;

/* ---- numbers ---- */
float make_number(maker *m);
ir_value *make_const(maker *m, ir_dtype d, ir_type shape); /* d: fp16, fp32, int32, bool */
ir_value *make_scalar(maker *m, ir_dtype d, float v);
/* A constant of sizes [n,k] or [n,k,1,1], in one of the schemes of compressed weights. */
ir_value *make_weight(maker *m, ir_dtype d, ir_type shape);
ir_value *make_input(maker *m, ir_dtype d, ir_type shape);
/* int32 with elements in [low, high]. */
ir_value *make_ints(maker *m, ir_type shape, int32_t low, int32_t high);

/* ---- the pool ---- */
/* Evaluates what was built and puts v into the pool, brought back to size where the style wants that. */
void keep(maker *m, ir_value *v);
void want(maker *m, ir_value *v); /* as a result of the function, where it can be one */
bool settle(maker *m);
/* A value of the pool, newer ones more often; NULL when there is none such. */
enum { FLOAT = 1, INT = 2, BOOL = 4, ANY = 7 };
ir_value *pick(maker *m, int kinds, int least_rank, int most_rank);
ir_value *pick_like(maker *m, const ir_value *x); /* of the same type; at worst x itself or an input */
ir_value *pick_float(maker *m, int least_rank, int most_rank); /* at worst an input */
int64_t make_size(maker *m);
ir_type make_shape(maker *m, int least_rank, int most_rank);
ir_value *make_list(maker *m, const int64_t *v, int n); /* int32 */

/* ---- ops ---- */
ir_value *op1(maker *m, ir_opcode code, ir_value *x);
ir_value *op2(maker *m, ir_opcode code, ir_value *x, ir_value *y); /* operands change places where they may */
ir_value *op_cast(maker *m, ir_value *x, ir_dtype d);
ir_value *op_as(maker *m, ir_value *x, ir_dtype d); /* a cast where the type is another one */
ir_value *op_reshape(maker *m, ir_value *x, int rank, const int64_t *dim);
ir_value *op_transpose(maker *m, ir_value *x, const int64_t *perm);
ir_value *op_swap(maker *m, ir_value *x, int a, int b); /* transposes two dimensions */
ir_value *op_concat(maker *m, ir_value *const *v, uint32_t n, int axis);
ir_value *op_slice(maker *m, ir_value *x, int axis, int64_t from, int64_t to);
ir_value *op_matmul(maker *m, ir_value *x, ir_value *y, bool tx, bool ty);
ir_value *op_reduce(maker *m, ir_opcode code, ir_value *x, int axis, bool keep_dims);
ir_value *op_linear(maker *m, ir_value *x, int64_t n, bool bias);
/* In the middle of a pattern: perhaps changed a little, perhaps seen by others. */
ir_value *inner(maker *m, ir_value *v);

static inline ir_dtype dtype_of(const ir_value *v) {
    return (ir_dtype)v->type.dtype;
}
static inline bool is_float(const ir_value *v) {
    return dtype_is_float(dtype_of(v));
}
static inline int64_t count_of(const ir_value *v) {
    return ir_type_count(&v->type);
}
static inline bool ok(const maker *m) {
    return !m->e->code;
}

/* One token of the delta rule, S = S decay + k^T beta (v - k S decay), with its result, q S. memory
 * [H,R,dk,dv]: S; the new one is given back. */
ir_value *plant_delta_step(maker *m, ir_value *memory);
/* A convolution over the history old [1,C,n] and new columns; what follows on the history. */
ir_value *plant_convolved(maker *m, ir_value *old, int64_t tokens, ir_value **history);

/* Adds some ops; nothing where the pool has no operands for it. */
typedef void make_fn(maker *m);
ir_value *plant_norm(maker *m, ir_value *x);
ir_value *plant_rope(maker *m, ir_value *x);
/* A state of this type, fp16: one of the session, or a new one. NULL: there are enough. */
ir_value *state_like(maker *m, ir_type t);
ir_value *read_state(maker *m, ir_value *state);
void write_state(maker *m, ir_value *state, ir_value *v);
/* key [1,G,S,D], value [1,G,S,E] */
ir_value *plant_attention(maker *m, ir_value *key, ir_value *value, int64_t tokens);
make_fn make_elementwise, make_rearranged, make_sliced, make_reduced, make_product, make_indexed, make_filled,
    make_planted, make_stated, plant_recurrent, plant_stacked, make_controlled;
#endif
