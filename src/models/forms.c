/* The two forms of a graph: chunks and single. */
#include "models/blocks.h"
#include <string.h>

/* Which cache positions each token may see, those up to its own: 0, or far below every score. positions: [1],
 * or [T,1]. */
static ir_value *causal_mask(graph *g, ir_value *positions) {
    ir_dtype d = g->type.stream;
    ir_value *slots = iota(g, "cache_slots", g->o->context);
    ir_value *visible = cast(g, binary(g, OP_less_equal, "visible", slots, positions), d);
    ir_value *hidden = binary(g, OP_sub, "minus_hidden", visible, number(g, d, 1));
    return binary(g, OP_mul, "mask", hidden, number(g, d, d == DT_FP16 ? 30000 : 65504));
}

ir_value *run_layers(graph *g, ir_value *x) {
    for (g->layer = g->part.layer; g->layer < g->part.end_layer; g->layer++) x = g->family->layer(g, x);
    g->layer = -1;
    return x;
}

ir_value *final_norm(graph *g, ir_value *x) {
    return rms_norm(g, "norm.weight", x, g->family->final_norm, g->c->hidden, "final_norm_out");
}

int64_t count_layers(const graph *g, bool linear) {
    int64_t n = 0;
    for (int64_t i = g->part.layer; i < g->part.end_layer; i++) n += g->c->linear_layer[i] == linear;
    return n;
}

static ir_value *valid_length(graph *g) {
    if (!g->valid) g->valid = b_input(&g->b, "valid_length", IR_TYPE(DT_INT32, 1));
    return g->valid;
}

/* Positions of the tokens, RoPE tables and mask, for a part that has attention. */
static void prepare_attention(graph *g) {
    ir_builder *b = &g->b;
    g->past = b_input(b, "current_pos", IR_TYPE(DT_INT32, 1));
    g->end = binary(g, OP_add, "next_pos", g->past, b_i32(b, g->tokens));
    if (g->tokens == 1) {
        rope_tables(g, g->past);
        g->mask = causal_mask(g, g->past);
        return;
    }
    ir_value *positions = binary(g, OP_add, "positions", iota(g, "offsets", g->tokens), g->past);
    rope_tables(g, positions);
    g->mask =
        causal_mask(g, b_op(b, OP_expand_dims, "mask_column", A_x, positions, A_axes, B_INTS(b, 1), A_NONE));
}

/* The keys and values of n layers in one state each; named after the first layer, as names differ between
 * parts. */
static void declare_stacked(graph *g, int64_t n) {
    const ckpt_config *c = g->c;
    ir_type t = IR_TYPE(DT_FP16, n, c->kv_heads, g->o->context, c->head_dim);
    int64_t first = g->part.layer;
    while (c->linear_layer[first]) first++;
    g->cache = ARENA_ARRAY(g->a, state_pair, 2);
    for (int i = 0; i < 2; i++) {
        const char *name = arena_printf(g->a, "%c_cache_%lld", i ? 'v' : 'k', (long long)first);
        g->cache[i] = state_declare(g, name, t, g->split_all);
    }
}

/* Row valid_length - 1 of x: [1,T,h] -> [1,1,h]. */
static ir_value *last_token(graph *g, ir_value *x) {
    ir_builder *b = &g->b;
    ir_value *zero = B_INTS(b, 0), *at = binary(g, OP_sub, "last_token", valid_length(g), b_i32(b, 1));
    ir_value *begin = bounds(g, "last_begin", (ir_value *[]){zero, at, zero}, 3);
    return b_op(b, OP_slice_by_size, "last_out", A_x, x, A_begin, begin, A_size,
                B_INTS(b, 1, 1, (int32_t)g->c->hidden), A_NONE);
}

/* The fp32 hidden state for the next program. */
static void give_hidden(graph *g, ir_value *x) {
    bool wide = b_type(&g->b, x).dtype == DT_FP32;
    b_output(&g->b, wide ? b_op(&g->b, OP_identity, "hidden_out", A_x, x, A_NONE)
                         : cast_named(g, "hidden_out", x, DT_FP32));
}

void build_chunk(graph *g) {
    ir_builder *b = &g->b;
    const models_part *part = &g->part;
    bool first = part->layer == 0, head = part->end_piece > part->piece;
    bool layers = part->end_layer > part->layer;
    int64_t rows = part->row && !layers ? 1 : g->tokens;
    ir_type t = IR_TYPE(first ? g->input_dtype : DT_FP32, 1, rows, g->c->hidden);
    ir_value *x = cast(g, b_input(b, "hidden", t), g->type.stream);
    int64_t attention = count_layers(g, false);
    if (attention || (first && head)) prepare_attention(g); /* a whole model takes current_pos in any case */
    if (g->tokens > 1 && count_layers(g, true)) {
        valid_length(g);
        delta_prepare(g);
    }
    if (attention && g->o->stacked_kv) declare_stacked(g, attention);
    x = run_layers(g, x);
    if (rows > 1 && (head || (part->row && part->end_layer == g->c->layers))) x = last_token(g, x);
    if (!head) {
        give_hidden(g, x);
        return;
    }
    x = final_norm(g, x);
    x = b_op(b, OP_squeeze, "final_row", A_x, x, A_axes, B_INTS(b, 1), A_NONE);
    head_logits(g, x);
}

ir_value *size_of(graph *g, const char *name, ir_value *x, int axis) {
    ir_value *shape = b_op(&g->b, OP_shape, arena_printf(g->a, "%s_shape", x->name), A_x, x, A_NONE);
    return b_op(&g->b, OP_slice_by_index, name, A_x, shape, A_begin, B_INTS(&g->b, axis), A_end,
                B_INTS(&g->b, axis + 1), A_NONE);
}

/* The mask [1,1,T,K] -> [1,1,1,T,K] beside scores by group. */
static ir_value *given_mask(graph *g, ir_value *mask) {
    ir_value *m = b_op(&g->b, OP_expand_dims, "mask", A_x, mask, A_axes, B_INTS(&g->b, 1), A_NONE);
    if (g->type.stream == DT_FP16) return binary(g, OP_maximum, "mask_floor", m, number(g, DT_FP16, -30000));
    return cast(g, m, g->type.stream);
}

/* input_ids [1,T] and causal_mask [1,1,T,K] -> the best k, or logits [1,T,V]. */
void build_single(graph *g) {
    ir_builder *b = &g->b;
    const ckpt_config *c = g->c;
    const models_options *o = g->o;
    ir_value *ids = b_input(b, "input_ids", IR_TYPE(DT_INT32, 1, IR_DIM_UNKNOWN));
    ir_value *mask = b_input(b, "causal_mask", IR_TYPE(DT_FP16, 1, 1, IR_DIM_UNKNOWN, IR_DIM_UNKNOWN));
    ir_type t = IR_TYPE(DT_FP16, c->layers, 1, c->kv_heads, o->context, c->head_dim);
    g->cache = ARENA_ARRAY(g->a, state_pair, 2);
    g->cache[0] = state_declare(g, "key_cache", t, g->split_all);
    g->cache[1] = state_declare(g, "value_cache", t, g->split_all);
    ir_value *x = embed(g, ids);
    g->end = size_of(g, "total", mask, 3);
    g->past = binary(g, OP_sub, "past", g->end, size_of(g, "tokens", ids, 1));
    ir_value *from = b_op(b, OP_squeeze, "first_pos", A_x, g->past, A_axes, B_INTS(b, 0), A_NONE);
    ir_value *to = b_op(b, OP_squeeze, "end_pos", A_x, g->end, A_axes, B_INTS(b, 0), A_NONE);
    rope_tables(g, b_op(b, OP_range_1d, "positions", A_start, from, A_end, to, A_step, b_i32(b, 1), A_NONE));
    g->mask = given_mask(g, mask);
    x = run_layers(g, x);
    x = final_norm(g, x);
    if (o->top_k)
        head_top_k(g, x, o->top_k);
    else
        head_logits(g, x);

    static const char tokens[] = "input_ids", square[] = "causal_mask";
    models_range *r = ARENA_ARRAY(g->a, models_range, 3);
    r[0] = (models_range){tokens, 1, 1, o->context, 1};
    r[1] = (models_range){square, 2, 1, o->context, 1};
    r[2] = (models_range){square, 3, 1, o->context, o->context};
    g->out->range = r;
    g->out->n_range = 3;
}
