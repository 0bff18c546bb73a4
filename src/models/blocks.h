/* The pieces that model families share, and the graph that is being built. Every piece appends ops and
 * returns its result; the builder's first error sticks, so that nothing is checked in between.
 *
 * Shapes: T is the number of tokens of a call (preset chunks: 1, or the size of a prefill function; preset
 * single: flexible), K the length
 * of the context that is attended to, A query heads and G key/value heads of size D, h the hidden size. */
#ifndef MODELS_BLOCKS_H
#define MODELS_BLOCKS_H
#include "models/models.h"
#include "models/weights.h"

/* dtypes by role, from --precision: mixed, float16, float32. */
typedef struct {
    ir_dtype weight; /* matrices and biases: fp16, fp16, fp32 */
    ir_dtype linear; /* results of projections, K/V, convolution history: fp16, fp16, fp32 */
    ir_dtype stream; /* residual stream, norms, RoPE, scores, softmax: fp32, fp16, fp32 */
    ir_dtype core;   /* DeltaNet step and gates: fp32, fp16 (fp32 when its state is split), fp32 */
    ir_dtype small;  /* parameters of the core: as the core of a step, whatever function they are used in */
} precision_roles;

/* Constant C x C matrices of the chunked delta rule in core dtype, C tokens a chunk. */
enum { DELTA_CHUNK = 64 };
typedef struct {
    ir_value *lower, *below, *eye; /* 1 on and below the diagonal; below it; on it */
    ir_value *merge[8]; /* level n: rows in the second, columns in the first half of a block of 2^(n+1) */
    int levels;
} delta_triangle;

/* The head's weight in pieces of MODELS_HEAD_ROWS rows, which a tied embedding shares. */
typedef struct {
    ir_value **part; /* of the function that is being built, from its first piece on; NULL: not made yet */
    int64_t rows;    /* of a piece */
    int64_t n_part;  /* of the whole head */
    const st_tensor *tensor;
    bool tied;  /* it is the embedding */
    bool apart; /* it is the embedding, in a constant of its own */
} head_weights;

struct model_family;

typedef struct graph {
    ir_builder b;
    arena *a;
    const checkpoint *ckpt;
    const ckpt_config *c;
    const models_options *o;
    const struct model_family *family;
    models_graph *out;
    models_part part; /* what out computes */
    precision_roles type;
    bool split_all;     /* float32: every state is two fp16 states, value and remainder */
    const char *prefix; /* of the checkpoint's tensor names: "model." */
    int64_t layer;      /* the layer that is being built; -1 outside of the layers */
    map *used;          /* tensors that are part of the program, by name */
    map *scanned;       /* tensors whose values have been looked at, by name; 1: they need fp32 */
    head_weights head;
    models_note *note;
    size_t n_note, cap_note;
    bool noted;          /* what is not used has its notes */
    models_state *state; /* of the part */
    size_t n_state, cap_state;
    const st_tensor *embedding; /* chunks: behind the host table, whose rows are taken in input_dtype */
    ir_dtype input_dtype;
    /* Functions share constants, so that each lies in the weight file once: */
    map *weights; /* of the checkpoint: index in weight */
    const ir_const **weight;
    size_t cap_weight;
    const ir_const *frequency; /* of RoPE */
    /* Made once per function: */
    int32_t tokens;       /* T: 1 (one step), more (prefill), -1 (single: flexible) */
    ir_value *cos, *sin;  /* [T, rope.dims], stream dtype */
    ir_value *mask;       /* added to the scores: [K] or [T,K] (chunks), [1,1,1,T,K] (single), stream dtype */
    ir_value *past, *end; /* int32 [1]: position of the first token of the call; past + T */
    ir_value *cache_begin, *cache_end;    /* bounds of this call's keys and values in their states */
    struct state_pair *cache;             /* the stacked keys and values; NULL: a state for each layer */
    ir_value *positions;                  /* pipelined: int32 [1,T], of this call's tokens */
    struct state_stack *convs, *memories; /* pipelined: of all DeltaNet layers */
    ir_value *valid;      /* prefill: int32 [1], how many tokens are real; the others stand behind them */
    ir_value *live;       /* with DeltaNet: [T,1] in core dtype, 1 for real tokens and 0 for others */
    ir_value *kept_begin; /* the same: where the columns begin that a convolution keeps */
    delta_triangle tri;   /* the same */
} graph;

/* --- graph.c: names, numbers, constants, states
 * ---------------------------------------------------------------- */

/* "layer_3_q" inside layer 3, else "q". Lives in the arena. */
const char *graph_name(graph *g, const char *name);
void graph_note(graph *g, models_note_kind kind, const char *tensor, uint64_t count, const char *what);

ir_value *unary(graph *g, ir_opcode code, const char *name, ir_value *x);
ir_value *binary(graph *g, ir_opcode code, const char *name, ir_value *x, ir_value *y);
ir_value *number(graph *g, ir_dtype d, float v);   /* scalar constant */
ir_value *cast(graph *g, ir_value *x, ir_dtype d); /* x itself when it is of dtype d */
ir_value *cast_named(graph *g, const char *name, ir_value *x,
                     ir_dtype d); /* the result is named, even if x is of dtype d */
ir_value *reshape(graph *g, const char *name, ir_value *x, ir_value *shape);
ir_value *transpose(graph *g, const char *name, ir_value *x, ir_value *perm);
ir_value *matmul(graph *g, const char *name, ir_value *x, ir_value *y, bool transpose_x, bool transpose_y);
/* n int32 [1] in a row: [n], for slices. The name is not prefixed. */
ir_value *bounds(graph *g, const char *name, ir_value *const *v, uint32_t n);
/* 0, 1, ... n - 1 as int32 [n], made at run time: no constant depends on n. */
ir_value *iota(graph *g, const char *name, int64_t n);
#define RESHAPE(g, name, x, ...) reshape(g, name, x, B_INTS(&(g)->b, __VA_ARGS__))
/* Splits the axis into n pieces of the given sizes. */
void split_axis(graph *g, const char *name, ir_value *x, int axis, const int32_t *sizes, uint32_t n,
                ir_value **out);

/* A tensor of the checkpoint, by its name below the layer (or below the prefix outside of the layers); NULL
 * and an error when it is absent, has another shape or a dtype that can't be read. */
const st_tensor *graph_tensor(graph *g, const char *name, int rank, const int64_t *dim);
/* The dtype that its constant gets: d, or fp32 where d is fp16 and values would overflow. Counts go to the
 * notes. */
ir_dtype graph_weight_dtype(graph *g, const st_tensor *t, weight_fold fold, ir_dtype d);
/* Rows of a tensor as weight_const() makes them, the same one for every function. */
const ir_const *graph_const(graph *g, const st_tensor *t, weight_fold fold, int64_t row, ir_type shape);
/* A vector or other small parameter as a constant (dtype as above). */
ir_value *parameter(graph *g, const char *name, weight_fold fold, ir_dtype d, int rank, const int64_t *dim);
#define PARAMETER(g, name, fold, d, ...)                                                                     \
    parameter(g, name, fold, d, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                   \
              (int64_t[]){__VA_ARGS__})

/* The states of several layers in one, [layers,1,...], which is read once and written once a call. */
typedef struct state_stack {
    ir_value *state;
    ir_value **next; /* what each layer leaves, [1,1,...] */
    int32_t n, at;   /* layers; of those built so far */
} state_stack;

/* A state, or two: Core ML states are fp16 only; a value kept as fp16 value + fp16 remainder has 22 bits. */
typedef struct state_pair {
    const char *name;
    ir_value *value, *rest; /* rest NULL: not split */
    state_stack *stack;     /* it is layer `slice` of one; NULL */
    int32_t slice;
    ir_type type;
} state_pair;
state_pair state_declare(graph *g, const char *name, ir_type t, bool split);
/* A state of a DeltaNet layer, [1,...]: its own, or its layer of a stack (NULL: there is none). */
state_pair state_of_layer(graph *g, state_stack *stack, const char *name, ir_type t, bool split);
/* Writes what the layers left. */
void stack_write(graph *g, const char *name, state_stack *s);
/* Tells the outside which slice of a state the layer has. */
void state_note(graph *g, const state_pair *s, bool recurrent, int64_t slice);
ir_value *state_read(graph *g, const state_pair *s, ir_dtype d);
/* A part of it. Each half is sliced before they are joined: the sum of a whole cache would be made for every
 * layer. */
ir_value *state_slice(graph *g, const state_pair *s, ir_value *begin, ir_value *end, ir_dtype d);
void state_write(graph *g, const state_pair *s, ir_value *v);
/* Writes v at [begin, end) of the state (slice_update). */
void state_update(graph *g, const state_pair *s, ir_value *v, ir_value *begin, ir_value *end);

/* --- blocks.c
 * ---------------------------------------------------------------------------------------------------- */

/* x * rsqrt(reduce(x^2) + eps) over the last axis, in fp32 whatever x is: squares of real activations
 * overflow fp16, and eps is subnormal there. reduce: OP_reduce_mean (RMS norm) or OP_reduce_sum (L2 norm). */
ir_value *normalize(graph *g, const char *name, ir_value *x, ir_opcode reduce, double eps);
/* RMS norm with a weight vector [n], result in stream dtype. fold: how the family stores the weight. */
ir_value *rms_norm(graph *g, const char *tensor, ir_value *x, weight_fold fold, int64_t n,
                   const char *result);
/* x * weight^T (+ bias), named after the module; tensors MODULE.weight [out, in] and MODULE.bias [out]. x's
 * dtype decides the result's, except that a weight kept in fp32 makes it fp32. */
ir_value *linear(graph *g, const char *module, ir_value *x, int64_t in, int64_t out, bool bias);
/* x + y in stream dtype; the second one of a layer is layer_N_out. */
ir_value *residual(graph *g, const char *name, ir_value *x, ir_value *y);
/* down(silu(gate(x)) * up(x)); x in linear dtype. */
ir_value *swiglu(graph *g, ir_value *x);

/* Positions past, past + 1, ... end - 1 as fp32 angles; sets g->cos and g->sin. */
void rope_tables(graph *g, ir_value *positions);
/* rope_frequency() of all pairs, fp32 [dims / 2]. */
ir_value *rope_frequencies(graph *g);
/* Cosines (OP_cos) or sines of the angles, by the factor that rope_scaling gives them, in type d. */
ir_value *rope_table(graph *g, ir_opcode op, const char *name, ir_value *angle, ir_dtype d);
/* Radians a position of pair j (models/frequency.c). */
double rope_frequency(const rope_config *r, int64_t j);
/* Rotates the first rope.dims of the last axis; x [1, heads, T, D] in stream dtype. */
ir_value *rope(graph *g, const char *name, ir_value *x);

typedef struct {
    bool qk_norm;     /* RMS norm of each query and key head before RoPE */
    weight_fold fold; /* of those norms */
    bool gate;        /* q_proj also makes a gate per head; the result is multiplied by its sigmoid */
    bool qkv_bias, o_bias;
} attention_kind;
/* Grouped-query attention over the cache; x [1,T,h] in linear dtype. */
ir_value *attention(graph *g, ir_value *x, const attention_kind *k);

/* One decoder layer of the usual form: x + attention(norm(x)), then x + mlp(norm(x)). */
ir_value *decoder_layer(graph *g, ir_value *x, const attention_kind *k, weight_fold norms);

/* A gated DeltaNet layer; x [1,T,h] in linear dtype. (deltanet.c) */
ir_value *deltanet(graph *g, ir_value *x);
/* Makes g->tri, g->live and g->kept_begin, for T > 1. (delta_chunk.c) */
void delta_prepare(graph *g);
/* The delta rule over T tokens, min(T, DELTA_CHUNK) at a time. H key heads, each for R value heads: q and k
 * [H,1,T,dk] of unit length (q scaled), v [H,R,T,dv], beta and log_decay [H,R,T,1] (both 0: the token changes
 * nothing), *memory [H,R,dk,dv], which becomes the one behind the last token. -> [H,R,T,dv], core dtype. */
ir_value *delta_chunks(graph *g, ir_value *q, ir_value *k, ir_value *v, ir_value *beta, ir_value *log_decay,
                       ir_value **memory);

/* --- head.c
 * ------------------------------------------------------------------------------------------------------ */

/* Chooses the head: by configuration, verified by tensors. */
bool head_choose(graph *g);
/* Rows of the embedding for int32 ids [1,T]: [1,T,h] in stream dtype. */
ir_value *embed(graph *g, ir_value *ids);
/* Marks the outputs: logits of the part's pieces, or the best k with their ids. x: normalised, [1,T,h] or
 * [1,h]. */
void head_logits(graph *g, ir_value *x);
void head_top_k(graph *g, ir_value *x, int64_t k);

/* --- forms.c
 * ----------------------------------------------------------------------------------------------------- */

/* The body of the current function, in the form of each preset. */
void build_chunk(graph *g);
void build_single(graph *g);
void build_pipelined(graph *g); /* pipelined.c */
/* Size of an axis of x, int32 [1]. */
ir_value *size_of(graph *g, const char *name, ir_value *x, int axis);
ir_value *run_layers(graph *g, ir_value *x);
ir_value *final_norm(graph *g, ir_value *x);
/* How many layers of the part are of a kind. */
int64_t count_layers(const graph *g, bool linear);

/* --- pipelined.c: what is one thing by name there
 * ---------------------------------------------------------------------------------------------- */

bool pipelined(const graph *g);
/* weight times the normalised x, both given. */
ir_value *composite_norm(graph *g, const char *name, ir_value *x, ir_value *weight);
/* Turns x [1,heads,T,dims] by g->positions. */
ir_value *composite_rope(graph *g, const char *name, ir_value *x);
/* Causal attention of q [1,A,T,D] over keys and values [1,G,K,D]: [1,A,T,D]. */
ir_value *composite_attention(graph *g, ir_value *q, ir_value *keys, ir_value *values);

/* --- families
 * ------------------------------------------------------------------------------------------------------ */

typedef struct model_family {
    ckpt_family config;
    const char *no_single; /* why preset single is not offered; NULL: it is, and is the default */
    weight_fold final_norm;
    ir_value *(*layer)(graph *g, ir_value *x); /* builds layer g->layer; x [1,T,h] in stream dtype */
} model_family;

extern const model_family family_qwen3_5, family_qwen3, family_qwen2, family_llama;
#endif
