/* The form that Core AI's pipelined engine drives: input_ids [1,S] and position_ids [1,T], T = past + S, in;
 * logits [1,S,V] out; keys and values of all attention layers in two states of flexible length, what DeltaNet
 * layers keep in two fixed ones. A model with DeltaNet layers takes one token a call; its prefill functions
 * take blocks of tokens, all of them real, and leave the states that the function for one token goes on from.
 * Each state is written once a call. Norms, rotations and attention are composites, which the engine has
 * kernels for.
 */
#include "models/blocks.h"
#include <math.h>

bool pipelined(const graph *g) {
    return g->o->preset == PRESET_PIPELINED;
}

/* ---- composites ---- */

ir_value *composite_norm(graph *g, const char *name, ir_value *x, ir_value *weight) {
    static const char *const names[] = {"input", "scale"};
    ir_value **input = ARENA_ARRAY(g->a, ir_value *, 2);
    ir_composite_attr *attr = ARENA_ARRAY(g->a, ir_composite_attr, 3);
    input[0] = x, input[1] = weight;
    attr[0] = (ir_composite_attr){"axes", IR_COMPOSITE_INT, -1};
    attr[1] = (ir_composite_attr){"eps", IR_COMPOSITE_REAL, g->c->eps};
    attr[2] = (ir_composite_attr){"version", IR_COMPOSITE_INT, 1};
    b_composite_begin(&g->b, (ir_composite){"rms_norm", "output", names, input, NULL, 2, 3, attr});
    ir_value *y =
        cast(g, normalize(g, "normalized", x, OP_reduce_mean, g->c->eps), b_type(&g->b, weight).dtype);
    return b_composite_end(&g->b, cast(g, binary(g, OP_mul, name, y, weight), g->type.stream));
}

/* [1,S] -> cos and sin of the angles [1,1,S,dims / 2], in the type of what is turned. */
static void angles(graph *g, ir_dtype d, ir_value **cos, ir_value **sin) {
    ir_builder *b = &g->b;
    ir_value *at = b_op(b, OP_expand_dims, graph_name(g, "rope_position"), A_x,
                        cast(g, g->positions, DT_FP32), A_axes, B_INTS(b, 1, 3), A_NONE);
    ir_value *angle = binary(g, OP_mul, "rope_angle", at, rope_frequencies(g));
    *cos = rope_table(g, OP_cos, "rope_cos", angle, d);
    *sin = rope_table(g, OP_sin, "rope_sin", angle, d);
}

static ir_value *turn(graph *g, const char *name, ir_value *x) {
    int32_t half = (int32_t)g->c->rope.dims / 2;
    ir_value *cos, *sin, *pair[2], *y[2];
    angles(g, b_type(&g->b, x).dtype, &cos, &sin);
    split_axis(g, "rope_halves", x, -1, (int32_t[]){half, half}, 2, pair);
    y[0] = binary(g, OP_sub, "rope_first", binary(g, OP_mul, "rope_first_cos", pair[0], cos),
                  binary(g, OP_mul, "rope_second_sin", pair[1], sin));
    y[1] = binary(g, OP_add, "rope_second", binary(g, OP_mul, "rope_second_cos", pair[1], cos),
                  binary(g, OP_mul, "rope_first_sin", pair[0], sin));
    return b_opv(&g->b, OP_concat, graph_name(g, name), A_values, y, 2, A_axis, b_i32(&g->b, -1),
                 A_interleave, b_bool(&g->b, false), A_NONE);
}

/* The composite is declared by a base alone: other frequencies are turned in place. */
ir_value *composite_rope(graph *g, const char *name, ir_value *x) {
    static const char *const names[] = {"input", "position_ids"};
    if (g->c->rope.kind != ROPE_DEFAULT) return turn(g, name, x);
    ir_value **input = ARENA_ARRAY(g->a, ir_value *, 2);
    ir_composite_attr *attr = ARENA_ARRAY(g->a, ir_composite_attr, 4);
    input[0] = x, input[1] = g->positions;
    attr[0] = (ir_composite_attr){"base", IR_COMPOSITE_REAL, g->c->rope.theta};
    attr[1] = (ir_composite_attr){"interleaved", IR_COMPOSITE_BOOL, 0};
    attr[2] = (ir_composite_attr){"scale", IR_COMPOSITE_REAL, 1};
    attr[3] = (ir_composite_attr){"version", IR_COMPOSITE_INT, 1};
    b_composite_begin(&g->b, (ir_composite){"rope", "output", names, input, NULL, 2, 4, attr});
    return b_composite_end(&g->b, turn(g, name, x));
}

/* 0 where a key may be seen, far below every score elsewhere: [S,K]. A single token sees all. */
static ir_value *causal(graph *g, ir_value *q, ir_value *keys, ir_dtype d) {
    ir_builder *b = &g->b;
    ir_value *zero = b_i32(b, 0), *one = b_i32(b, 1);
    ir_value *total = b_op(b, OP_squeeze, graph_name(g, "keys_seen"), A_x,
                           size_of(g, graph_name(g, "keys_count"), keys, 2), A_axes, B_INTS(b, 0), A_NONE);
    ir_value *count = b_op(b, OP_squeeze, graph_name(g, "queries_seen"), A_x,
                           size_of(g, graph_name(g, "queries_count"), q, 2), A_axes, B_INTS(b, 0), A_NONE);
    ir_value *first = binary(g, OP_sub, "first_query", total, count);
    ir_value *row = b_op(b, OP_range_1d, graph_name(g, "query_positions"), A_start, first, A_end, total,
                         A_step, one, A_NONE);
    ir_value *key = b_op(b, OP_range_1d, graph_name(g, "key_positions"), A_start, zero, A_end, total, A_step,
                         one, A_NONE);
    row = b_op(b, OP_expand_dims, graph_name(g, "query_column"), A_x, row, A_axes, B_INTS(b, 1), A_NONE);
    key = b_op(b, OP_expand_dims, graph_name(g, "key_row"), A_x, key, A_axes, B_INTS(b, 0), A_NONE);
    ir_value *hidden = cast(g, binary(g, OP_greater, "hidden_keys", key, row), d);
    return binary(g, OP_mul, "causal_mask", hidden, number(g, d, -30000));
}

/* Each key head serves A / G query heads by broadcasting. */
static ir_value *attend_causal(graph *g, ir_value *q, ir_value *keys, ir_value *values) {
    const ckpt_config *c = g->c;
    int32_t heads = (int32_t)c->heads, groups = (int32_t)c->kv_heads, d = (int32_t)c->head_dim;
    ir_dtype type = b_type(&g->b, q).dtype;
    ir_value *scaled = binary(g, OP_mul, "query_scaled", q, number(g, type, (float)(1 / sqrt((double)d))));
    scaled = RESHAPE(g, "query_groups", scaled, 1, groups, heads / groups, g->tokens, d);
    ir_value *k = RESHAPE(g, "key_groups", keys, 1, groups, 1, -1, d);
    ir_value *v = RESHAPE(g, "value_groups", values, 1, groups, 1, -1, d);
    ir_value *scores = matmul(g, "scores", scaled, k, false, true);
    if (g->tokens != 1) scores = binary(g, OP_add, "masked_scores", scores, causal(g, q, keys, type));
    ir_value *p =
        b_op(&g->b, OP_softmax, graph_name(g, "attention"), A_x, scores, A_axis, b_i32(&g->b, -1), A_NONE);
    return RESHAPE(g, "attended_by_head", matmul(g, "attended", p, v, false, false), 1, heads, g->tokens, d);
}

ir_value *composite_attention(graph *g, ir_value *q, ir_value *keys, ir_value *values) {
    static const char *const names[] = {"query", "key", "value"};
    ir_value **input = ARENA_ARRAY(g->a, ir_value *, 3);
    ir_composite_attr *attr = ARENA_ARRAY(g->a, ir_composite_attr, 4);
    input[0] = q, input[1] = keys, input[2] = values;
    attr[0] = (ir_composite_attr){"is_causal", IR_COMPOSITE_BOOL, 1};
    attr[1] = (ir_composite_attr){"scale", IR_COMPOSITE_REAL, 1 / sqrt((double)g->c->head_dim)};
    attr[2] = (ir_composite_attr){"version", IR_COMPOSITE_INT, 1};
    attr[3] = (ir_composite_attr){"window_size", IR_COMPOSITE_INT, 0};
    b_composite_begin(
        &g->b, (ir_composite){"scaled_dot_product_attention", "output", names, input, NULL, 3, 4, attr});
    return b_composite_end(&g->b, attend_causal(g, q, keys, values));
}

/* ---- the graph ---- */

static state_stack *declare_stack(graph *g, const char *name, ir_type of_layer) {
    int64_t n = count_layers(g, true);
    if (!n) return NULL;
    ir_type t = {.kind = of_layer.kind,
                 .dtype = (uint8_t)g->type.linear,
                 .rank = (uint8_t)(of_layer.rank + 1),
                 .dim = {n}};
    for (int i = 0; i < of_layer.rank; i++) t.dim[i + 1] = of_layer.dim[i];
    state_stack *s = ARENA_NEW(g->a, state_stack);
    *s = (state_stack){b_state(&g->b, name, t), ARENA_ARRAY(g->a, ir_value *, (size_t)n), (int32_t)n, 0};
    return s;
}

static void declare_states(graph *g) {
    const ckpt_config *c = g->c;
    ir_type t = IR_TYPE(g->type.linear, count_layers(g, false), 1, c->kv_heads, IR_DIM_UNKNOWN, c->head_dim);
    g->cache = ARENA_ARRAY(g->a, state_pair, 2);
    g->cache[0] = state_declare(g, "keyCache", t, false);
    g->cache[1] = state_declare(g, "valueCache", t, false);
    if (!count_layers(g, true)) return;
    int64_t key = c->linear_k_heads * c->linear_k_dim, value = c->linear_v_heads * c->linear_v_dim;
    g->convs = declare_stack(g, "convState", IR_TYPE(DT_FP16, 1, 2 * key + value, c->conv_kernel - 1));
    g->memories = declare_stack(g, "recState",
                                IR_TYPE(DT_FP16, 1, c->linear_v_heads, c->linear_k_dim, c->linear_v_dim));
}

void build_pipelined(graph *g) {
    ir_builder *b = &g->b;
    ir_value *ids = b_input(b, "input_ids", IR_TYPE(DT_INT32, 1, g->tokens));
    ir_value *positions = b_input(b, "position_ids", IR_TYPE(DT_INT32, 1, IR_DIM_UNKNOWN));
    declare_states(g);
    g->end = size_of(g, "total", positions, 1);
    ir_value *count = g->tokens > 0 ? B_INTS(b, g->tokens) : size_of(g, "tokens", ids, 1);
    g->past = binary(g, OP_sub, "past", g->end, count);
    ir_value *zero = B_INTS(b, 0), *one = B_INTS(b, 1);
    ir_value *here = b_op(b, OP_slice_by_index, "positions_here", A_x, positions, A_begin,
                          bounds(g, "positions_begin", (ir_value *[]){zero, g->past}, 2), A_end,
                          bounds(g, "positions_end", (ir_value *[]){one, g->end}, 2), A_NONE);
    g->positions = RESHAPE(g, "positions", here, 1, g->tokens);
    if (g->tokens > 1 && count_layers(g, true)) delta_prepare(g);
    ir_value *x = run_layers(g, embed(g, ids));
    if (g->tokens <= 1) head_logits(g, final_norm(g, x)); /* a prefill function leaves states only */
    stack_write(g, "convState", g->convs);
    stack_write(g, "recState", g->memories);
}
