/* Inside of the fuser: what builders may use. */
#ifndef OPTIMIZE_FUSE_H
#define OPTIMIZE_FUSE_H
#include "optimize/match.h"
#include "optimize/optimize.h"

typedef struct {
    ir_program *p;
    ir_function *f;
    bool strict;
    uint32_t *uses; /* by value id, room for cap_uses */
    size_t cap_uses;
    size_t at;    /* index of the op that is looked at */
    ir_op *fused; /* what a builder made; it replaces the op at `at`, or at `place` */
    size_t place;
    ir_op *extra[32]; /* that go in front of it */
    size_t n_extra;
} fuser;

/* Makes the fused op from a match whose inner values nobody else needs. False: it doesn't apply. */
typedef bool fuse_fn(fuser *f, const match *m);
#define FUSE(builder, text) fuse_fn fuse_##builder;
#include "optimize/patterns.def"
#undef FUSE

/* A fused op whose results are those of the root; operands follow by ir_set_arg(). */
ir_op *fuse_op(fuser *f, ir_opcode code, uint32_t n_out);
/* The same, put in front of the fused op, with one new result. */
ir_value *fuse_extra(fuser *f, ir_op *op, ir_type type);
void fuse_result(ir_op *op, uint32_t i, ir_value *v);
ir_value *fuse_int(fuser *f, int32_t v);
ir_value *fuse_float(fuser *f, float v);
ir_value *fuse_bool(fuser *f, bool v);
ir_value *fuse_text(fuser *f, const char *s);
void fuse_operand(fuser *f, ir_op *op, ir_operand name, ir_value *v); /* NULL: left out */
/* Bit when this intermediate result is rounded to fp16: by a cast, or by its type in strict mode. */
int32_t fuse_rounds(const fuser *f, const ir_value *v, int32_t bit);
/* Nothing outside of the matched ops uses their results; the root's and those of `open` may be. */
bool fuse_closed(const fuser *f, const match *m, const ir_op *const *open, int n_open);
/* The matched op of this code (the first), NULL when there is none. */
ir_op *fuse_find(const match *m, ir_opcode code);
bool fuse_uses(const ir_op *op, const ir_value *v); /* v is an operand */
/* The op in the function that uses v, when it is one only. */
ir_op *fuse_user(const fuser *f, const ir_value *v, ir_opcode code);
ir_value *fuse_in(const ir_op *op, ir_operand name); /* as ir_in() */
bool fuse_number(const ir_value *v, double *x);      /* a constant scalar, or a constant of equal values */
/* v [.., H, rows, depth] (columns: [.., H, depth, rows]) repeats each of G heads of its origin R times in a
 * row: that origin, of G rows depth elements in this order; NULL when it is no such. */
ir_value *fuse_unrepeat(ir_value *v, bool columns, int64_t *groups, int64_t *heads);
ir_value *fuse_list(fuser *f, const int64_t *v, int n); /* int32[n] */
/* v is a constant list of these n numbers. */
bool fuse_list_is(const ir_value *v, const int64_t *want, int n);
/* v with two axes exchanged; v itself where they are one. */
ir_value *fuse_swapped(fuser *f, ir_value *v, int a, int b);
/* op becomes the fused op; root is its result with two axes exchanged. */
void fuse_root_swapped(fuser *f, ir_op *op, ir_value *root, int a, int b);
/* What a slice_by_index takes of x, or a slice_update writes to it: elements [begin, begin + size) of each
 * axis. */
typedef struct {
    int rank;
    int64_t begin[IR_MAX_RANK], size[IR_MAX_RANK];
    bool squeezes; /* some axes are left out of the result */
    bool all;      /* everything */
} region;
/* False: the bounds aren't constant, or there are steps. */
bool fuse_region(fuser *f, const ir_op *op, region *r);
bool fuse_regions_meet(const region *a, const region *b);
/* v is elements [from, from + n) along this axis, and all of the others, of what a slice or a split looks at:
 * that; else NULL. */
ir_value *fuse_part(fuser *f, const ir_value *v, int axis, int64_t from, int64_t n);
ir_value *fuse_reshaped(fuser *f, ir_value *v, const ir_type *type);
/* A concat along this axis, one part behind the other. */
bool fuse_joins(const ir_op *op, int axis);
/* Everywhere, results of the function included. */
void fuse_replace(fuser *f, const ir_value *old, ir_value *by);
/* Puts op behind the one of this index, which is at or behind the one that is looked at. */
void fuse_insert(fuser *f, size_t behind, ir_op *op);
/* Index of an op in the function, SIZE_MAX when it is not there. */
size_t fuse_index(const fuser *f, const ir_op *op);

/* ---- memories of recurrences ---- */
bool fuse_is_read(const ir_value *v); /* an fp16 state was read */
/* s, seen through reshapes and casts, is what was read from a state [1,H,dk,dv], or the sum of two that were:
 * value and remainder; low is NULL then or the latter. */
bool fuse_memory(ir_value *s, ir_value **memory, ir_value **low);
/* The values as which S, used so many times, leaves as new memory: fp16, in the memory's shape; with split a
 * value and a remainder. */
bool fuse_stored(const fuser *f, ir_value *S, uint32_t uses, bool split, ir_value **hi, ir_value **lo);
#endif
