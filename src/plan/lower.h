/* From ops to steps, inside this module. */
#ifndef PLAN_LOWER_H
#define PLAN_LOWER_H
#include "kernels/kernels.h"
#include "plan/steps.h"

/* Where a value lies and how: any strides (0 for repeated elements, negative for reversed ones), in cells or
 * in a packed form. Views are places; they cost nothing. */
typedef struct {
    uint8_t space; /* plan_space */
    uint8_t store; /* DT_NONE: cells; else packed elements of this ir_dtype */
    uint32_t buffer;
    int64_t first;    /* elements */
    const void *data; /* CONST */
    ir_type type;
    int64_t stride[IR_MAX_RANK];
    const ir_op *weight;   /* a compressed constant: the constexpr op; it has no elements in memory */
    const ir_const *konst; /* the constant that this is, whole and in its own order; else NULL */
    const ir_value *state; /* STATE: that this lies in */
} place;

/* x as a kernel wants it. */
typedef struct {
    place x, y;
    int64_t m, k;
    int form;
} lower_prepared;

/* A norm's step and what it does, for what may still join it. */
typedef struct {
    size_t step; /* its index plus 1; 0: there is none */
    place x, y, cos, sin, z;
    step_rows rows; /* of x */
    kern_norm job;  /* without addresses */
    bool in_order;  /* row i of the job is row i of y */
    bool turned, gated;
} lower_norm;

/* Where a state, or a part of one, lies: elements from `first` on of f->in[index]. */
typedef struct {
    uint32_t index, until; /* until: no view of it is used after this op */
    int64_t first;
} lower_state;

typedef struct {
    plan *p;
    lower_norm norm; /* the last one */
    const kern_table *kernels;
    plan_linear linear;
    lower_prepared *prepared;
    size_t n_prepared, cap_prepared;
    arena *a; /* the plan's */
    arena *scratch;
    const ir_function *f;
    place *at; /* by value id */
    uint32_t
        *last; /* by value id: index of the last op that uses it or a view of it; PLAN_NEVER: an output */
    uint32_t *uses;     /* by value id: how many operands it is */
    lower_state *state; /* by id of a state's value */
    size_t index;       /* of the op at hand */
    const ir_op *op;
    bool strict;
    err *e;
} lower;

#define PLAN_NEVER UINT32_MAX

typedef bool lower_fn(lower *l, const ir_op *op);

/* Lowers all ops of l->f. */
bool lower_function(lower *l);

/* ---- places ---- */
place *lower_at(lower *l, const ir_value *v);
void lower_set(lower *l, const ir_value *v, place p);
/* New activation memory, dense cells. */
place lower_fresh(lower *l, const ir_type *type);
/* The same elements as cells; as dense cells. Adds a copy step where they aren't. */
place lower_cells(lower *l, place p);
place lower_dense(lower *l, place p);
/* The operand as cells, elements of a row (the last dimension) in one piece. */
place lower_with_rows(lower *l, const ir_op *op, ir_operand name);
/* The operand's place; constants are expanded, once. */
place lower_in(lower *l, const ir_op *op, ir_operand name);
bool place_is_dense(const place *p);
/* View of p with another shape of as many elements; false when strides don't allow it. */
bool place_reshape(const place *p, const ir_type *type, place *out);
/* p broadcast to the sizes of type (aligned from the right). */
place place_broadcast(const place *p, const ir_type *type);
/* Expands a constant (compressed or packed) into cells that the plan keeps. */
bool lower_expand(lower *l, place *p);

/* ---- steps ---- */
plan_step *lower_emit(lower *l, plan_fn *fn, const void *param, const char *kernel, int64_t extent,
                      int64_t grain, const place *out, uint32_t n_out, const place *in, uint32_t n_in);
/* A step that writes states in place has read them, too: of its traffic both count. Returns s. */
plan_step *lower_updates(plan_step *s);
/* Takes the newest step back. */
void lower_take_back(lower *l);
/* Nobody else looks at v, nor at what it is a view of. */
bool lower_alone(const lower *l, const ir_value *v);
/* What a step reads from its start on, as a vector: for a step that replaces it. */
place lower_place_of(const plan_arg *a);
void lower_need_scratch(lower *l, size_t bytes);
/* dst = src, element by element; sizes are dst's. Rounds when dst holds fp16 in packed form, or when asked.
 */
bool lower_copy(lower *l, place dst, place src, bool round);
/* Results of ops of fp16 type are rounded in strict mode. */
static inline bool lower_rounds(const lower *l, const ir_type *t) {
    return l->strict && t->dtype == DT_FP16;
}

/* ---- small operands ---- */
/* The numbers of a constant operand; NULL when it is absent or no constant. */
const int64_t *lower_ints(lower *l, const ir_op *op, ir_operand name, size_t *n);
int64_t lower_int(lower *l, const ir_op *op, ir_operand name, int64_t fallback);
double lower_number(lower *l, const ir_op *op, ir_operand name, double fallback);
bool lower_is_const(const ir_op *op, ir_operand name); /* absent counts */
int lower_axis(lower *l, const ir_op *op, ir_operand name, int64_t fallback, int rank);

/* ---- products with weights ---- */
typedef struct {
    const ir_value *weight; /* [n,k] */
    int64_t m, n, k;
    place x;           /* [m,k], dense cells */
    const float *bias; /* [n] or NULL */
    const place *add;  /* [m,n], dense cells, added to the result; or NULL */
    bool round, alone; /* alone: nobody else reads x */
} lower_matrix;
/* y [m,n] dense. */
bool lower_product(lower *l, const lower_matrix *p, place *y);
/* The newest step, a norm or swiglu, makes x, the rows that are to be prepared: one step does both, a few
 * rows at a time. False: it isn't that. */
bool lower_made(lower *l, const step_prepare *prepare, const place *y, const place *x);
/* Such steps write x itself only where somebody reads it. */
void lower_made_unread(plan *p);
const float *lower_vector(lower *l, const ir_op *op, ir_operand name);

/* ---- groups of ops ---- */
lower_fn lower_reference; /* a step that calls the reference body */
lower_fn lower_reshape, lower_transpose, lower_slice_by_index, lower_slice_by_size, lower_split, lower_concat,
    lower_stack, lower_cast, lower_identity, lower_tile, lower_broadcast_to;
lower_fn lower_state_part, lower_read_state, lower_write_state, lower_slice_update, lower_fused_blend;
lower_fn lower_unary, lower_binary, lower_select;
lower_fn lower_reduce, lower_argmax, lower_softmax, lower_topk;
lower_fn lower_fused_norm, lower_fused_swiglu, lower_fused_rope, lower_fused_attention, lower_fused_delta,
    lower_fused_conv_step, lower_fused_conv, lower_fused_delta_rule;
/* The place of result `out` when it becomes the next content of the state that `memory` views: it can be
 * written there at once. */
bool lower_takes_over(lower *l, const ir_op *op, ir_operand memory, const ir_value *out, place *target);
/* What a recurrence changes: the state's memory, or (outside of strict mode) a copy in cells. False without
 * an error: neither. */
bool lower_memory(lower *l, const ir_op *op, const ir_value *out, place *target);
/* x is all of a state, v the value that is written to it next, and nobody looks at its old content from this
 * op on: v may lie in the state's memory. */
bool lower_state_passes(lower *l, const place *x, const ir_value *v);
/* Attention, the delta rule and its convolution where nothing is rounded on the way: false when the kernels
 * don't take such operands. j: without addresses; mask, visible: index in p of their place, 0 for none. */
bool lower_fast_attention(lower *l, const kern_rounded_attention *j, int mask, int visible, const place *o,
                          const place *in, uint32_t n);
bool lower_fast_delta(lower *l, const step_delta *d, int64_t heads, const place *out, uint32_t n_out,
                      const place *in);
void lower_fast_conv_step(lower *l, const step_conv_step *c, const place *out, const place *in);
/* A product with a number, taken over by the norm that made x; false: there is none. */
lower_fn lower_scaled_norm;
/* A sum, taken over by the linear that made one side; false: there is none. */
lower_fn lower_residual;
/* A cast to fp16 of what the newest step, a linear, made for nobody else: the linear rounds. False: it isn't
 * that. */
bool lower_rounded_linear(lower *l, const ir_op *op, const place *x);
/* silu of the newest convolution, which takes it over; false: there is none. */
lower_fn lower_conv_silu;
lower_fn lower_linear, lower_matmul, lower_gather, lower_gather_along_axis, lower_conv;
bool lower_is_view(const ir_op *op); /* the result may share the operand's memory */
#endif
