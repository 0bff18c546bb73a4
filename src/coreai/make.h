/* Trees (tree.h) that are being made: types and attributes, of which equal ones are one; ops, in the region
 * that they are appended to. Everything lives in the maker's arena. */
#ifndef COREAI_MAKE_H
#define COREAI_MAKE_H
#include "base/map.h"
#include "coreai/tree.h"
#include "ir/program.h"

typedef struct ai_make {
    arena *a;
    map *types, *attrs; /* by content */
    const ai_type **type;
    const ai_attr **attr;
    size_t cap_type, cap_attr;
    ai_graph *graph;
    uint32_t n_graph;
    size_t cap_graph;
    uint32_t n_value;
} ai_make;

ai_make *ai_make_new(arena *a);
/* The tree of the graphs added so far. producer is borrowed; version: of the asset. */
const ai_tree *ai_make_tree(ai_make *m, const char *producer, int64_t version);

/* ---- types and attributes ---- */

const ai_type *ai_make_plain(ai_make *m, uint32_t code); /* one without parts: AI_TOKEN, a number's */
/* d: a number or bool; dim: sizes, AI_DYNAMIC where they are known at run time only. */
const ai_type *ai_make_tensor(ai_make *m, ir_dtype d, int rank, const int64_t *dim);
const ai_type *ai_make_handle(ai_make *m, const ai_type *inner);

const ai_attr *ai_make_text(ai_make *m, const char *s);
const ai_attr *ai_make_integer(ai_make *m, uint32_t width, bool is_signed, int64_t v);
const ai_attr *ai_make_real(ai_make *m, float v);
const ai_attr *ai_make_list(ai_make *m, uint32_t code, const ai_attr *const *item,
                            uint32_t n); /* array, dictionary */
const ai_attr *ai_make_named(ai_make *m, const char *name, const ai_attr *item);
const ai_attr *ai_make_named_list(ai_make *m, const char *name, const ai_attr *const *item, uint32_t n);

/* ---- regions ---- */

typedef struct ai_scope {
    ai_make *m;
    const struct ai_scope *outer; /* of a region that is not isolated */
    ai_value **arg;
    const ai_op **op;
    uint32_t n_arg, n_op;
    size_t cap_arg, cap_op;
} ai_scope;

ai_scope *ai_scope_new(ai_make *m);
const ai_value *ai_scope_argument(ai_scope *s, const ai_type *t);
/* Appends an op of n_out results; its regions and properties are the caller's to set. */
ai_op *ai_scope_op(ai_scope *s, const char *name, const ai_type *const *out, uint32_t n_out,
                   const ai_value *const *in, uint32_t n_in);
/* One of one result and no regions; operands up to NULL. */
const ai_value *ai_scope_value(ai_scope *s, const char *name, const ai_type *out, ...);
void ai_scope_region(const ai_scope *s, bool isolated, ai_region *r);

/* primitive.constant_v1. Elements of d, packed (below a byte: one a byte); equal ones become a splat. */
const ai_value *ai_scope_dense(ai_scope *s, ir_dtype d, int rank, const int64_t *dim, const void *data,
                               size_t bytes);
/* Of type t, all elements this one. */
const ai_value *ai_scope_splat(ai_scope *s, const ai_type *t, const void *element, size_t bytes);
/* A resource: the bytes of c, in shape and type of its own. */
const ai_value *ai_scope_resource(ai_scope *s, const ir_const *c);
const ai_value *ai_scope_ints(ai_scope *s, ir_dtype d, const int64_t *v, uint32_t n); /* d[n], of 32 bits */
const ai_value *ai_scope_int(ai_scope *s, int64_t v);               /* si32, no dimensions */
const ai_value *ai_scope_number(ai_scope *s, ir_dtype d, double v); /* d: fp16 or fp32, no dimensions */

/* ---- graphs ---- */

/* Ends a graph: output_v1 of these values, features by name. composite: AI_NAMED, NULL. A private graph that
 * equals an earlier one is that one. */
const ai_graph *ai_make_graph(ai_make *m, ai_scope *s, const char *name, const ai_value *const *out,
                              uint32_t n_out, const char *const *in_name, const char *const *out_name,
                              const ai_attr *composite);
/* dataflow.invoke_v1 of a graph: its results. */
const ai_op *ai_scope_invoke(ai_scope *s, const ai_graph *g, const ai_value *const *in, uint32_t n_in);
#endif
