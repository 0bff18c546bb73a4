/* What a main.mlirb says, as it says it: graphs of ops over values, with attributes and types. It is MLIR
 * bytecode, version 6, of one dialect, `aicode`; see docs/coreai.md. Everything is checked against the file's
 * own counts here: whoever walks a tree needs no checks of indices. Attributes may refer to each other in
 * cycles: walk them to AI_MAX_DEPTH. */
#ifndef COREAI_TREE_H
#define COREAI_TREE_H
#include "base/err.h"
#include "ir/type.h"

#define AI_MAX_DEPTH 64
#define AI_MAX_RANK  16
#define AI_DYNAMIC   INT64_MIN

/* Codes of types. */
enum {
    AI_TENSOR = 2,
    AI_TENSOR_LAID_OUT = 3, /* in files only: an AI_TENSOR with a layout */
    AI_BOOL = 4,
    AI_FUNCTION = 30,
    AI_HANDLE = 31,
    AI_TOKEN = 32,
    AI_SYMBOL_TYPE = 33
};

typedef struct ai_type {
    uint32_t code;
    uint8_t dtype;                     /* ir_dtype of a number; DT_NONE for the rest */
    uint8_t rank;                      /* AI_TENSOR */
    const int64_t *dim;                /* >= 0 or AI_DYNAMIC */
    const struct ai_type *inner;       /* of a tensor: its elements; of a handle: what it refers to */
    const struct ai_attr *layout;      /* AI_TENSOR: how a processor is to keep it; NULL: as it likes */
    const struct ai_type *const *item; /* AI_FUNCTION: results, then operands */
    uint32_t n_result, n_operand;
    const uint8_t *raw; /* what is behind the code */
    uint32_t n_raw;
} ai_type;

/* Codes of attributes. */
enum {
    AI_STRING = 1,
    AI_INTEGER = 2,
    AI_FLOAT = 3,
    AI_TYPE = 4,
    AI_ARRAY = 5,
    AI_DENSE = 6,
    AI_RESOURCE = 7,
    AI_NAMED = 9,
    AI_LAYOUT = 12, /* of a tensor: raw */
    AI_SYMBOL = 14,
    AI_PARAM = 16,
    AI_SCATTER_MODE = 20, /* a number, raw */
    AI_FILE = 30,
    AI_SOURCE = 31,
    AI_LOCATION = 40,
    AI_DICTIONARY = 45,
    AI_UNIT = 46
};

typedef struct ai_attr {
    uint32_t code;
    uint32_t width;                    /* AI_INTEGER, AI_FLOAT: bits */
    bool is_signed;                    /* AI_INTEGER */
    bool splat;                        /* AI_DENSE: data is one element */
    int64_t number;                    /* AI_INTEGER; AI_FLOAT: the bits */
    const char *text;                  /* AI_STRING, AI_NAMED */
    const char *const *path;           /* AI_SYMBOL: n of them */
    const struct ai_attr *const *item; /* AI_ARRAY, AI_NAMED, AI_DICTIONARY: n; AI_PARAM: its symbol */
    uint32_t n;
    const ai_type *type; /* AI_TYPE, AI_PARAM */
    const uint8_t *data; /* AI_DENSE, AI_RESOURCE: little-endian elements */
    size_t bytes;
    const struct ir_const *konst; /* AI_RESOURCE that is to be written: where its bytes come from, in place of
                                     data */
    const char *resource;         /* AI_RESOURCE: its name */
    const uint8_t *raw;           /* what is behind the code */
    uint32_t n_raw;
} ai_attr;

typedef struct ai_value {
    const ai_type *type;
    const struct ai_op *def; /* NULL: an argument of a block */
    uint32_t index;          /* which result or argument */
    uint32_t id;             /* dense, of the whole tree */
} ai_value;

/* The properties of an op: indices as the file has them, and the attributes that they mean where the op's
 * layout is known; NULL: absent, or not known. */
typedef struct ai_op {
    const char *name; /* without the dialect: "primitive.add_v1" */
    const ai_attr *location;
    const ai_attr *const *prop;
    const uint64_t *raw_prop;
    uint32_t n_prop;
    ai_value *const *out;
    const ai_value *const *in;
    const struct ai_region *region;
    uint32_t n_out, n_in, n_region;
    size_t at; /* byte of the file */
} ai_op;

/* One block, or none. */
typedef struct ai_region {
    bool isolated; /* sees no values but its own */
    ai_value *const *arg;
    const ai_op *const *op;
    uint32_t n_arg, n_op;
} ai_region;

/* Properties of dataflow.graph_v1, in order. */
enum {
    AI_GRAPH_ARGS,      /* array: an array of named attributes for each argument */
    AI_GRAPH_COMPOSITE, /* named: what the graph is a decomposition of; optional */
    AI_GRAPH_EXTERNALIZE,
    AI_GRAPH_TYPE,
    AI_GRAPH_PRIVATE,
    AI_GRAPH_NAME,
    AI_GRAPH_NO_INLINE,
    AI_GRAPH_PARAMS,
    AI_GRAPH_RESULTS,
    AI_GRAPH_PROPS
};
/* Of dataflow.invoke_v1. */
enum { AI_INVOKE_CALLEE = 1, AI_INVOKE_PROPS = 3 };

typedef struct ai_graph {
    const char *name;
    const ai_op *op; /* dataflow.graph_v1 */
    const ai_region *body;
    bool is_private;
} ai_graph;

typedef struct ai_tree {
    const char *producer; /* of the bytecode */
    int64_t version;      /* of the asset: a date, 20260317; 0: none */
    const ai_graph *graph;
    uint32_t n_graph;
    uint32_t n_value; /* ids are 0 .. n_value-1 */
} ai_tree;

/* The newest version of an asset whose ops are known here. */
#define AI_ASSET_VERSION 20260409

/* Code of a number's type, and back; 0 and DT_NONE: there is none. */
uint32_t ai_code_of(ir_dtype d);
ir_dtype ai_dtype_of(uint32_t code);
/* What codes of types and attributes are called (codes.def); NULL: nobody has named it. */
const char *ai_type_name(uint32_t code);
const char *ai_attr_name(uint32_t code);

/* Reads n bytes, which must stay; the tree lies in a. NULL on error. */
const ai_tree *ai_tree_read(arena *a, const void *data, size_t n, err *e);
const ai_graph *ai_graph_find(const ai_tree *t, const char *name); /* NULL when absent */
/* The named attribute of that name in an array or dictionary of such; NULL when absent. */
const ai_attr *ai_attr_named(const ai_attr *list, const char *name);
/* How a processor is to lay a tensor out, an AI_LAYOUT: alignments (one more than it has axes), interleave
 * factors of its axes, in which kind of memory. */
typedef struct {
    int64_t align[AI_MAX_RANK + 1], interleave[AI_MAX_RANK];
    uint32_t n_align, n_interleave;
    uint64_t memory;
} ai_layout;
/* False: t says anything else. */
bool ai_layout_read(const ai_attr *t, ai_layout *l);
/* The only item of the named attribute of that name as text; NULL. */
const char *ai_attr_text(const ai_attr *list, const char *name);
/* The name of a graph's argument or result (AI_GRAPH_ARGS, AI_GRAPH_RESULTS); NULL when it has none. */
const char *ai_graph_feature(const ai_graph *g, int prop, uint32_t i);
/* The graph that a dataflow.invoke_v1 calls; NULL. */
const ai_graph *ai_callee(const ai_tree *t, const ai_op *op);

/* "f16[1,?,64]", "handle<f32[8]>". */
const char *ai_type_text(arena *a, const ai_type *t);
#endif
