#include "models/blocks.h"
#include <math.h>

/* The gated delta rule. H key heads of size dk; each serves R value heads of size dv; C = 2 H dk +
 * H R dv. */
typedef struct {
    int32_t heads, repeat, dk, dv, channels, taps;
} sizes;

static sizes sizes_of(const ckpt_config *c) {
    sizes s = {.heads = (int32_t)c->linear_k_heads,
               .repeat = (int32_t)(c->linear_v_heads / c->linear_k_heads)};
    s.dk = (int32_t)c->linear_k_dim;
    s.dv = (int32_t)c->linear_v_dim;
    s.channels = 2 * s.heads * s.dk + s.heads * s.repeat * s.dv;
    s.taps = (int32_t)c->conv_kernel;
    return s;
}

/* The last taps - 1 columns of the history [1,C,taps - 1 + T], up to the last real token. */
static ir_value *newest(graph *g, const sizes *s, ir_value *history) {
    ir_builder *b = &g->b;
    const char *name = graph_name(g, "conv_kept");
    if (g->tokens == 1)
        return b_op(b, OP_slice_by_index, name, A_x, history, A_begin, B_INTS(b, 0, 0, 1), A_end,
                    B_INTS(b, 1, s->channels, s->taps), A_NONE);
    return b_op(b, OP_slice_by_size, name, A_x, history, A_begin, g->kept_begin, A_size,
                B_INTS(b, 1, s->channels, s->taps - 1), A_NONE);
}

/* silu(causal depthwise convolution) of u [1,T,C]; the state keeps the last taps - 1 columns of u (of its
 * real tokens). -> [1,C,T] */
static ir_value *convolve(graph *g, const sizes *s, ir_value *u) {
    ir_builder *b = &g->b;
    const char *name = arena_printf(g->a, "conv_%lld", (long long)g->layer);
    state_pair state =
        state_of_layer(g, g->convs, name, IR_TYPE(DT_FP16, 1, s->channels, s->taps - 1), g->split_all);
    state_note(g, &state, true, 0);
    u = cast(g, u, g->type.linear);
    u = g->tokens == 1 ? RESHAPE(g, "conv_column", u, 1, s->channels, 1)
                       : transpose(g, "conv_columns", u, B_INTS(b, 0, 2, 1));
    ir_value *columns[2] = {state_read(g, &state, g->type.linear), u};
    ir_value *history = b_opv(b, OP_concat, graph_name(g, "conv_history"), A_values, columns, 2, A_axis,
                              b_i32(b, 2), A_interleave, b_bool(b, false), A_NONE);
    state_write(g, &state, newest(g, s, history));
    ir_value *w =
        PARAMETER(g, "linear_attn.conv1d.weight", FOLD_NONE, g->type.small, s->channels, 1, s->taps);
    ir_value *y = b_op(b, OP_conv, graph_name(g, "conv"), A_x, cast(g, history, b_type(b, w).dtype), A_weight,
                       w, A_groups, b_i32(b, s->channels), A_NONE);
    return unary(g, OP_silu, "conv_silu", cast(g, y, g->type.core));
}

/* log(1 + e), e in [0, 1], to the last bit: u = 1 + e is rounded, and (e - (u - 1)) / u puts back what that
 * took away. Small e are what slow decays are made of. */
static ir_value *log1p_of(graph *g, ir_value *e) {
    ir_value *one = number(g, g->type.core, 1), *u = binary(g, OP_add, "log1p_sum", e, one);
    ir_value *lost = binary(g, OP_sub, "log1p_lost", e, binary(g, OP_sub, "log1p_kept", u, one));
    ir_value *rest = binary(g, OP_real_div, "log1p_rest", lost, u);
    return binary(g, OP_add, "log1p", unary(g, OP_log, "log1p_log", u), rest);
}

/* softplus(y) = max(y, 0) + log(1 + exp(-|y|)): never overflows. */
static ir_value *softplus(graph *g, ir_value *y) {
    ir_value *abs = unary(g, OP_abs, "softplus_abs", y);
    ir_value *small = binary(g, OP_mul, "softplus_minus_abs", abs, number(g, g->type.core, -1));
    ir_value *tail = log1p_of(g, unary(g, OP_exp, "softplus_exp", small));
    return binary(g, OP_add, "softplus", unary(g, OP_relu, "softplus_relu", y), tail);
}

/* -exp(A_log) * softplus(a + dt_bias), the logarithm of the decay of each value head. -> [1,T,H R] */
static ir_value *log_decay(graph *g, ir_value *x) {
    ir_dtype d = g->type.core;
    int64_t heads = g->c->linear_v_heads;
    ir_value *a = cast(g, linear(g, "linear_attn.in_proj_a", x, g->c->hidden, heads, false), d);
    ir_value *bias = cast(g, PARAMETER(g, "linear_attn.dt_bias", FOLD_NONE, g->type.small, heads), d);
    ir_value *rate = cast(g, PARAMETER(g, "linear_attn.A_log", FOLD_NEG_EXP, g->type.small, heads), d);
    return binary(g, OP_mul, "log_decay", softplus(g, binary(g, OP_add, "decay_input", a, bias)), rate);
}

/* How much of a token is written, 0 to 1, for each value head. -> [1,T,H R] */
static ir_value *write_strength(graph *g, ir_value *x) {
    ir_value *v = linear(g, "linear_attn.in_proj_b", x, g->c->hidden, g->c->linear_v_heads, false);
    return unary(g, OP_sigmoid, "beta_by_head", cast(g, v, g->type.core));
}

/* A number for each token and value head, [1,T,H R] -> [H,R,T,1]; 0 for tokens that are not real. */
static ir_value *by_head(graph *g, const sizes *s, const char *name, ir_value *x) {
    if (g->tokens == 1) return RESHAPE(g, name, x, s->heads, s->repeat, 1, 1);
    if (g->live) x = binary(g, OP_mul, arena_printf(g->a, "%s_live", name), x, g->live);
    x = transpose(g, arena_printf(g->a, "%s_rows", name), x, B_INTS(&g->b, 0, 2, 1));
    return RESHAPE(g, name, x, s->heads, s->repeat, g->tokens, 1);
}

/* Channels of the convolution as vectors: [1,H n d,T] -> [H,n,T,d]. */
static ir_value *vectors(graph *g, const sizes *s, const char *name, ir_value *x, int32_t n, int32_t d) {
    if (g->tokens == 1) return RESHAPE(g, name, x, s->heads, n, 1, d);
    x = RESHAPE(g, arena_printf(g->a, "%s_columns", name), x, s->heads, n, d, g->tokens);
    return transpose(g, name, x, B_INTS(&g->b, 0, 1, 3, 2));
}

static ir_value *memory_read(graph *g, const sizes *s, const state_pair *state) {
    return RESHAPE(g, "memory", state_read(g, state, g->type.core), s->heads, s->repeat, s->dk, s->dv);
}

static void memory_write(graph *g, const sizes *s, const state_pair *state, ir_value *S) {
    state_write(g, state, RESHAPE(g, "memory_stored", S, 1, s->heads * s->repeat, s->dk, s->dv));
}

/* S <- decay * S; S <- S + k (beta (v - S^T k))^T; o = S^T q. Rows q, k [H,1,1,dk], v [H,R,1,dv] -> o
 * [H,R,1,dv]. */
static ir_value *step(graph *g, const sizes *s, const state_pair *state, ir_value *q, ir_value *k,
                      ir_value *v, ir_value *beta, ir_value *alpha) {
    ir_value *S = binary(g, OP_mul, "memory_decayed", memory_read(g, s, state), alpha);
    ir_value *error = binary(g, OP_sub, "memory_error", v, matmul(g, "memory_recall", k, S, false, false));
    ir_value *column = RESHAPE(g, "key_column", k, s->heads, 1, s->dk, 1);
    ir_value *change =
        binary(g, OP_mul, "memory_change", binary(g, OP_mul, "memory_write", column, beta), error);
    S = binary(g, OP_add, "memory_new", S, change);
    memory_write(g, s, state, S);
    return matmul(g, "memory_read", q, S, false, false);
}

/* The same over T tokens. -> o [T,H,R,dv] */
static ir_value *steps(graph *g, const sizes *s, const state_pair *state, ir_value *q, ir_value *k,
                       ir_value *v, ir_value *beta, ir_value *log) {
    ir_value *S = memory_read(g, s, state);
    ir_value *o = delta_chunks(g, q, k, v, beta, log, &S);
    memory_write(g, s, state, S);
    return transpose(g, "memory_by_token", o, B_INTS(&g->b, 2, 0, 1, 3));
}

/* What the memory gives back for the queries, after it has taken the tokens in. */
static ir_value *recall(graph *g, const sizes *s, ir_value *x, ir_value *q, ir_value *k, ir_value *v) {
    bool one = g->tokens == 1;
    ir_value *log = log_decay(g, x);
    ir_value *decay = by_head(g, s, "decay", one ? unary(g, OP_exp, "decay_by_head", log) : log);
    ir_value *beta = by_head(g, s, "beta", write_strength(g, x));
    const char *name = arena_printf(g->a, "rec_%lld", (long long)g->layer);
    bool split = g->split_all || g->o->split_state;
    state_pair state =
        state_of_layer(g, g->memories, name, IR_TYPE(DT_FP16, 1, s->heads * s->repeat, s->dk, s->dv), split);
    state_note(g, &state, true, 0);
    return (one ? step : steps)(g, s, &state, q, k, v, beta, decay);
}

ir_value *deltanet(graph *g, ir_value *x) {
    const ckpt_config *c = g->c;
    sizes s = sizes_of(c);
    int32_t key = s.heads * s.dk, value = s.heads * s.repeat * s.dv, t = g->tokens;
    ir_dtype d = g->type.core;
    ir_value *part[3];
    ir_value *u = linear(g, "linear_attn.in_proj_qkv", x, c->hidden, s.channels, false);
    ir_value *z = linear(g, "linear_attn.in_proj_z", x, c->hidden, value, false);
    split_axis(g, "conv_parts", convolve(g, &s, u), 1, (int32_t[]){key, key, value}, 3, part);
    ir_value *q = vectors(g, &s, "query", part[0], 1, s.dk), *k = vectors(g, &s, "key", part[1], 1, s.dk);
    ir_value *v = vectors(g, &s, "value", part[2], s.repeat, s.dv);
    q = normalize(g, "query_unit", q, OP_reduce_sum, 1e-6);
    q = binary(g, OP_mul, "query_scaled", cast(g, q, d), number(g, d, (float)(1 / sqrt((double)s.dk))));
    k = cast(g, normalize(g, "key_unit", k, OP_reduce_sum, 1e-6), d);
    ir_value *o = recall(g, &s, x, q, k, v);

    ir_value *w = PARAMETER(g, "linear_attn.norm.weight", FOLD_NONE, g->type.small, s.dv);
    o = cast(g, normalize(g, "memory_normalized", o, OP_reduce_mean, c->eps), b_type(&g->b, w).dtype);
    o = cast(g, binary(g, OP_mul, "memory_normed", o, w), d);
    z = cast(g, z, d);
    z = t == 1 ? RESHAPE(g, "output_gate", z, s.heads, s.repeat, 1, s.dv)
               : RESHAPE(g, "output_gate", z, t, s.heads, s.repeat, s.dv);
    o = binary(g, OP_mul, "output_gated", o, unary(g, OP_silu, "output_gate_silu", z));
    o = RESHAPE(g, "output", o, 1, t, value);
    return linear(g, "linear_attn.out_proj", cast(g, o, g->type.linear), value, c->hidden, false);
}
