#include "models/blocks.h"
#include <math.h>
#include <string.h>

/* Keys and values of all layers are in one state of five dimensions, of which a call sees the first K
 * positions. */
static bool single(const graph *g) {
    return g->o->preset != PRESET_CHUNKS;
}

ir_value *normalize(graph *g, const char *name, ir_value *x, ir_opcode reduce, double eps) {
    ir_builder *b = &g->b;
    const char *power = reduce == OP_reduce_mean ? "mean_square" : "sum_square";
    ir_value *wide = cast(g, x, DT_FP32), *square = unary(g, OP_square, "square", wide);
    ir_value *sum = b_op(b, reduce, graph_name(g, power), A_x, square, A_axes, B_INTS(b, -1), A_keep_dims,
                         b_bool(b, true), A_NONE);
    ir_value *scale =
        b_op(b, OP_rsqrt, graph_name(g, "rsqrt"), A_x, sum, A_epsilon, b_f32(b, (float)eps), A_NONE);
    return binary(g, OP_mul, name, wide, scale);
}

ir_value *rms_norm(graph *g, const char *tensor, ir_value *x, weight_fold fold, int64_t n,
                   const char *result) {
    ir_value *w = PARAMETER(g, tensor, fold, g->type.stream, n);
    if (pipelined(g)) return composite_norm(g, result, x, w);
    ir_value *y = cast(g, normalize(g, "normalized", x, OP_reduce_mean, g->c->eps), b_type(&g->b, w).dtype);
    return cast(g, binary(g, OP_mul, result, y, w), g->type.stream);
}

ir_value *residual(graph *g, const char *name, ir_value *x, ir_value *y) {
    return binary(g, OP_add, name, x, cast(g, y, g->type.stream));
}

ir_value *swiglu(graph *g, ir_value *x) {
    const ckpt_config *c = g->c;
    ir_value *gate = linear(g, "mlp.gate_proj", x, c->hidden, c->intermediate, c->mlp_bias);
    ir_value *up = linear(g, "mlp.up_proj", x, c->hidden, c->intermediate, c->mlp_bias);
    gate = unary(g, OP_silu, "mlp_silu", cast(g, gate, g->type.linear));
    ir_value *y = binary(g, OP_mul, "mlp_product", gate, cast(g, up, g->type.linear));
    return linear(g, "mlp.down_proj", y, c->intermediate, c->hidden, c->mlp_bias);
}

/* --- RoPE --- */

/* [1, rope.dims], the same constant for every function. */
static const ir_const *frequencies(graph *g) {
    const rope_config *r = &g->c->rope;
    if (g->frequency) return g->frequency;
    float *f = ARENA_ARRAY(g->a, float, (size_t)r->dims); /* both elements of a pair turn by one angle */
    for (int64_t j = 0; j < r->dims / 2; j++) f[j] = f[j + r->dims / 2] = (float)rope_frequency(r, j);
    ir_const *table = ir_const_new(g->a, IR_TYPE(DT_FP32, 1, r->dims), f);
    table->in_blob = r->dims >= 10;
    return g->frequency = table;
}

ir_value *rope_frequencies(graph *g) {
    int64_t half = g->c->rope.dims / 2;
    float *f = ARENA_ARRAY(g->a, float, (size_t)half);
    for (int64_t j = 0; j < half; j++) f[j] = (float)rope_frequency(&g->c->rope, j);
    return b_const(&g->b, "rope_frequency", ir_const_new(g->a, IR_TYPE(DT_FP32, half), f));
}

ir_value *rope_table(graph *g, ir_opcode op, const char *name, ir_value *angle, ir_dtype d) {
    ir_value *table = unary(g, op, name, angle);
    const double factor = g->c->rope.attention;
    if (factor != 1)
        table = binary(g, OP_mul, arena_printf(g->a, "%s_scaled", name), table,
                       number(g, DT_FP32, (float)factor));
    return cast(g, table, d);
}

void rope_tables(graph *g, ir_value *positions) {
    ir_value *frequency = b_const(&g->b, "rope_frequency", frequencies(g));
    ir_value *column = b_op(&g->b, OP_expand_dims, "position_column", A_x, cast(g, positions, DT_FP32),
                            A_axes, B_INTS(&g->b, 1), A_NONE);
    ir_value *angle = binary(g, OP_mul, "rope_angle", column, frequency);
    g->cos = rope_table(g, OP_cos, "rope_cos", angle, g->type.stream);
    g->sin = rope_table(g, OP_sin, "rope_sin", angle, g->type.stream);
}

/* What was turned, and behind it what was not (NULL: nothing). */
static ir_value *join_parts(graph *g, const char *name, ir_value *turned, ir_value *rest) {
    if (!rest) return turned;
    return b_opv(&g->b, OP_concat, graph_name(g, name), A_values, (ir_value *[]){turned, rest}, 2, A_axis,
                 b_i32(&g->b, -1), A_interleave, b_bool(&g->b, false), A_NONE);
}

ir_value *rope(graph *g, const char *name, ir_value *x) {
    ir_builder *b = &g->b;
    int32_t dims = (int32_t)g->c->rope.dims, half = dims / 2, pass = (int32_t)g->c->head_dim - dims;
    ir_value *part[2] = {x, NULL}, *pair[2];
    if (pass) split_axis(g, "rope_parts", x, -1, (int32_t[]){dims, pass}, 2, part);
    if (pipelined(g)) return join_parts(g, name, composite_rope(g, name, part[0]), part[1]);
    split_axis(g, "rope_halves", part[0], -1, (int32_t[]){half, half}, 2, pair);
    ir_value *swapped[2] = {binary(g, OP_mul, "rope_negated", pair[1], number(g, g->type.stream, -1)),
                            pair[0]};
    ir_value *turned = b_opv(b, OP_concat, graph_name(g, "rope_swapped"), A_values, swapped, 2, A_axis,
                             b_i32(b, -1), A_interleave, b_bool(b, false), A_NONE);
    ir_value *straight = binary(g, OP_mul, "rope_x_cos", part[0], g->cos);
    ir_value *y = binary(g, OP_add, name, straight, binary(g, OP_mul, "rope_x_sin", turned, g->sin));
    return join_parts(g, name, y, part[1]);
}

/* --- attention --- */

static ir_value *swap_heads_and_tokens(graph *g, const char *name, ir_value *x) {
    return transpose(g, name, x, B_INTS(&g->b, 0, 2, 1, 3));
}

/* [1,T,n*d] -> [1,n,T,d] and back; for one token both are plain reshapes. */
static ir_value *to_heads(graph *g, const char *name, ir_value *x, int64_t n, int64_t d) {
    if (g->tokens == 1) return RESHAPE(g, name, x, 1, (int32_t)n, 1, (int32_t)d);
    return swap_heads_and_tokens(g, name, RESHAPE(g, "by_token", x, 1, g->tokens, (int32_t)n, (int32_t)d));
}

static ir_value *from_heads(graph *g, const char *name, ir_value *x, int64_t n, int64_t d) {
    if (g->tokens != 1) x = swap_heads_and_tokens(g, "by_token", x);
    return RESHAPE(g, name, x, 1, g->tokens, (int32_t)(n * d));
}

/* This layer's index in stacked states. */
static int32_t slice_of(const graph *g) {
    int32_t n = 0;
    for (int64_t i = g->part.layer; i < g->layer; i++) n += !g->c->linear_layer[i];
    return n;
}

/* Where this call's keys and values go: [past, past + T) of every layer's state, or of this layer's slice of
 * the stacked ones. */
static void cache_bounds(graph *g) {
    ir_builder *b = &g->b;
    if (!g->cache && g->cache_begin) return;
    int32_t at = g->cache ? slice_of(g) : 0;
    ir_value *zero = B_INTS(b, 0), *one = B_INTS(b, 1), *n = B_INTS(b, (int32_t)g->c->kv_heads);
    ir_value *width = B_INTS(b, (int32_t)g->c->head_dim);
    ir_value *begin[5] = {zero, zero, zero, g->past, zero}, *end[5] = {one, one, n, g->end, width};
    uint32_t skip = !single(g); /* no axis of layers beside that of batches */
    begin[skip] = B_INTS(b, at);
    end[skip] = B_INTS(b, at + 1);
    const char *begin_name = g->cache ? graph_name(g, "cache_begin") : "cache_begin";
    const char *end_name = g->cache ? graph_name(g, "cache_end") : "cache_end";
    g->cache_begin = bounds(g, begin_name, begin + skip, 5 - skip);
    g->cache_end = bounds(g, end_name, end + skip, 5 - skip);
}

/* One layer's own state [1,G,context,D]: append at past, give all of it. */
static ir_value *append_own(graph *g, const char *name, ir_value *v) {
    int32_t heads = (int32_t)g->c->kv_heads, d = (int32_t)g->c->head_dim, context = (int32_t)g->o->context;
    const char *state = arena_printf(g->a, "%.1s_%lld", name, (long long)g->layer);
    state_pair s = state_declare(g, state, IR_TYPE(DT_FP16, 1, heads, context, d), g->split_all);
    state_note(g, &s, false, 0);
    state_update(g, &s, v, g->cache_begin, g->cache_end);
    return RESHAPE(g, arena_printf(g->a, "all_%ss", name), state_read(g, &s, g->type.linear), 1, heads, 1,
                   context, d);
}

/* The states of several layers stacked: append at this layer's slice and past, give the slice. Chunks:
 * [n,G,context,D]; single: [L,1,G,context,D], and only its first K positions. */
static ir_value *append_stacked(graph *g, const char *name, const state_pair *s, ir_value *v) {
    ir_builder *b = &g->b;
    int32_t heads = (int32_t)g->c->kv_heads, d = (int32_t)g->c->head_dim, at = slice_of(g);
    int32_t context = (int32_t)g->o->context;
    const char *entry = graph_name(g, arena_printf(g->a, "%s_entry", name));
    state_note(g, s, false, at);
    if (single(g)) v = b_op(b, OP_expand_dims, entry, A_x, v, A_axes, B_INTS(b, 0), A_NONE);
    state_update(g, s, v, g->cache_begin, g->cache_end);
    ir_value *begin = single(g) ? B_INTS(b, at, 0, 0, 0, 0) : B_INTS(b, at, 0, 0, 0);
    ir_value *end = single(g) ? g->cache_end : B_INTS(b, at + 1, heads, context, d);
    ir_value *all = state_slice(g, s, begin, end, g->type.linear);
    const char *whole = arena_printf(g->a, "all_%ss", name);
    if (pipelined(g)) return RESHAPE(g, whole, all, 1, heads, -1, d);
    return RESHAPE(g, whole, all, 1, heads, 1, single(g) ? -1 : context, d);
}

static ir_value *append(graph *g, const char *name, ir_value *v) {
    v = cast(g, v, g->type.linear);
    if (!g->cache) return append_own(g, name, v);
    return append_stacked(g, name, &g->cache[*name == 'v'], v);
}

/* q [1,A,T,D]; keys and values [1,G,1,K,D]. Each key head serves A/G query heads by broadcasting. */
static ir_value *attend(graph *g, ir_value *q, ir_value *keys, ir_value *values) {
    const ckpt_config *c = g->c;
    ir_builder *b = &g->b;
    int32_t heads = (int32_t)c->heads, groups = (int32_t)c->kv_heads, d = (int32_t)c->head_dim, t = g->tokens;
    if (pipelined(g))
        return from_heads(g, "attended_heads", composite_attention(g, q, keys, values), heads, d);
    q = RESHAPE(g, "query_groups", q, 1, groups, heads / groups, t, d);
    ir_value *scores = matmul(g, "scores", q, keys, false, true);
    scores = binary(g, OP_add, "masked_scores", cast(g, scores, g->type.stream), g->mask);
    ir_value *p = b_op(b, OP_softmax, graph_name(g, "attention"), A_x, scores, A_axis, b_i32(b, -1), A_NONE);
    ir_value *y = matmul(g, "attended", cast(g, p, g->type.linear), values, false, false);
    return from_heads(g, "attended_heads", RESHAPE(g, "attended_by_head", y, 1, heads, t, d), heads, d);
}

/* A projected query or key [1,n,T,D], normalised and rotated, in stream dtype. */
static ir_value *positioned(graph *g, const char *name, ir_value *x, const attention_kind *k) {
    x = cast(g, x, g->type.stream);
    if (k->qk_norm)
        x = rms_norm(g, arena_printf(g->a, "self_attn.%.1s_norm.weight", name), x, k->fold, g->c->head_dim,
                     arena_printf(g->a, "%s_normed", name));
    return rope(g, arena_printf(g->a, "%s_rotated", name), x);
}

ir_value *attention(graph *g, ir_value *x, const attention_kind *k) {
    const ckpt_config *c = g->c;
    int64_t d = c->head_dim, width = k->gate ? 2 * d : d;
    ir_value *q = linear(g, "self_attn.q_proj", x, c->hidden, c->heads * width, k->qkv_bias);
    ir_value *key = linear(g, "self_attn.k_proj", x, c->hidden, c->kv_heads * d, k->qkv_bias);
    ir_value *value = linear(g, "self_attn.v_proj", x, c->hidden, c->kv_heads * d, k->qkv_bias);
    ir_value *q_gate[2] = {to_heads(g, "query", q, c->heads, width), NULL};
    if (k->gate)
        split_axis(g, "query_and_gate", q_gate[0], -1, (int32_t[]){(int32_t)d, (int32_t)d}, 2, q_gate);
    q = positioned(g, "query", q_gate[0], k);
    if (!pipelined(g))
        q = binary(g, OP_mul, "query_scaled", q, number(g, g->type.stream, (float)(1 / sqrt((double)d))));
    key = positioned(g, "key", to_heads(g, "key", key, c->kv_heads, d), k);
    cache_bounds(g);
    ir_value *keys = append(g, "key", key);
    ir_value *values = append(g, "value", to_heads(g, "value", value, c->kv_heads, d));
    ir_value *y = attend(g, cast(g, q, g->type.linear), keys, values);
    if (k->gate) {
        ir_value *gate = cast(g, from_heads(g, "gate", q_gate[1], c->heads, d), g->type.linear);
        y = binary(g, OP_mul, "attended_gated", y, unary(g, OP_sigmoid, "gate_sigmoid", gate));
    }
    return linear(g, "self_attn.o_proj", y, c->heads * d, c->hidden, k->o_bias);
}

ir_value *decoder_layer(graph *g, ir_value *x, const attention_kind *k, weight_fold norms) {
    int64_t h = g->c->hidden;
    ir_value *y = rms_norm(g, "input_layernorm.weight", x, norms, h, "input_normed");
    y = cast(g, y, g->type.linear);
    x = residual(g, "mixed", x, k ? attention(g, y, k) : deltanet(g, y));
    y = rms_norm(g, "post_attention_layernorm.weight", x, norms, h, "mlp_normed");
    return residual(g, "out", x, swiglu(g, cast(g, y, g->type.linear)));
}
