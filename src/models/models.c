#include "models/blocks.h"
#include <stdio.h>
#include <string.h>

#define FAMILIES(X) X(qwen3_5) X(qwen3) X(qwen2) X(llama)

static const model_family *const families[] = {
#define X(name) &family_##name,
    FAMILIES(X)
#undef X
};

const ckpt_family *const *models_families(void) {
    static const ckpt_family *const configs[] = {
#define X(name) &family_##name.config,
        FAMILIES(X)
#undef X
            NULL};
    return configs;
}

static const model_family *family_of(const ckpt_config *c) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (&families[i]->config == c->family) return families[i];
    return NULL;
}

bool models_has_preset(const ckpt_config *c, models_preset preset, const char **why_not) {
    const char *reason = preset == PRESET_SINGLE ? family_of(c)->no_single : NULL;
    if (why_not) *why_not = reason;
    return !reason;
}

models_preset models_default_preset(const ckpt_config *c) {
    return models_has_preset(c, PRESET_SINGLE, NULL) ? PRESET_SINGLE : PRESET_CHUNKS;
}

static precision_roles roles(const models_options *o) {
    switch (o->precision) {
    case PRECISION_FLOAT32: return (precision_roles){DT_FP32, DT_FP32, DT_FP32, DT_FP32, 0};
    case PRECISION_FLOAT16:
        return (precision_roles){DT_FP16, DT_FP16, DT_FP16, o->split_state ? DT_FP32 : DT_FP16, 0};
    case PRECISION_MIXED: break;
    }
    return (precision_roles){DT_FP16, DT_FP16, DT_FP32, DT_FP32, 0};
}

/* --- the checkpoint's tensors as a whole --- */

static bool find_prefix(graph *g) {
    static const char *const prefixes[] = {"model.language_model.", "model."};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !g->prefix; i++)
        if (checkpoint_find(g->ckpt, arena_printf(g->a, "%sembed_tokens.weight", prefixes[i])))
            g->prefix = prefixes[i];
    return g->prefix || err_set(g->b.e, ERR_FORMAT,
                                "%s: there is no tensor model.embed_tokens.weight (nor "
                                "model.language_model.embed_tokens.weight)",
                                checkpoint_dir(g->ckpt));
}

/* Packed formats put their scales and codes beside, or in place of, the weights. */
static bool refuse_packed(graph *g) {
    static const char *const marks[] = {"weight_scale", "weight_packed", "weight_zero_point", ".qweight",
                                        ".qzeros",      ".scales",       ".weight_shape",     ".absmax"};
    for (size_t i = 0; i < checkpoint_count(g->ckpt); i++)
        for (size_t k = 0; k < sizeof marks / sizeof *marks; k++) {
            const st_tensor *t = checkpoint_at(g->ckpt, i);
            if (strstr(t->name, marks[k]))
                return err_set(
                    g->b.e, ERR_UNSUPPORTED,
                    "%s: tensor %s: the weights are quantized already: convert the original checkpoint",
                    t->file, t->name);
        }
    return true;
}

/* Names what the program does not contain: whole groups once, anything else one by one. */
static void note_skipped(graph *g) {
    struct {
        const char *prefix, *what;
        size_t n;
    } group[] = {{"mtp.", "MTP", 0}, {"model.visual.", "vision", 0}, {"visual.", "vision", 0}};
    for (size_t i = 0; i < checkpoint_count(g->ckpt); i++) {
        const char *name = checkpoint_at(g->ckpt, i)->name;
        bool known = map_get(g->used, name, strlen(name)) != MAP_NONE || strstr(name, "rotary_emb.inv_freq");
        for (size_t k = 0; k < sizeof group / sizeof *group && !known; k++) {
            known = !strncmp(name, group[k].prefix, strlen(group[k].prefix));
            group[k].n += known;
        }
        if (!known) graph_note(g, NOTE_SKIPPED, name, 1, "not part of this model");
    }
    for (size_t k = 0; k < sizeof group / sizeof *group; k++)
        if (group[k].n)
            graph_note(g, NOTE_SKIPPED, arena_printf(g->a, "%s*", group[k].prefix), group[k].n,
                       group[k].what);
}

/* --- the two forms --- */

/* Which cache positions each token may see, those up to its own: 0, or far below every score. positions: [1],
 * or [T,1]. */
static ir_value *causal_mask(graph *g, ir_value *positions) {
    ir_dtype d = g->type.stream;
    ir_value *slots = iota(g, "cache_slots", g->o->context);
    ir_value *visible = cast(g, binary(g, OP_less_equal, "visible", slots, positions), d);
    ir_value *hidden = binary(g, OP_sub, "minus_hidden", visible, number(g, d, 1));
    return binary(g, OP_mul, "mask", hidden, number(g, d, d == DT_FP16 ? 30000 : 65504));
}

static void run_layers(graph *g, const model_family *f, ir_value **x) {
    for (g->layer = 0; g->layer < g->c->layers; g->layer++) *x = f->layer(g, *x);
    g->layer = -1;
}

static ir_value *final_norm(graph *g, const model_family *f, ir_value *x) {
    return rms_norm(g, "norm.weight", x, f->final_norm, g->c->hidden, "final_norm_out");
}

/* What a prefill function has beside a step: positions of its own, and which tokens are real. */
static void prepare_prefill(graph *g) {
    ir_builder *b = &g->b;
    g->valid = b_input(b, "valid_length", IR_TYPE(DT_INT32, 1));
    g->end = binary(g, OP_add, "next_pos", g->past, b_i32(b, g->tokens));
    ir_value *positions = binary(g, OP_add, "positions", iota(g, "offsets", g->tokens), g->past);
    rope_tables(g, positions);
    g->mask =
        causal_mask(g, b_op(b, OP_expand_dims, "mask_column", A_x, positions, A_axes, B_INTS(b, 1), A_NONE));
    bool delta = false;
    for (int64_t i = 0; i < g->c->layers; i++) delta |= g->c->linear_layer[i];
    if (delta) delta_prepare(g);
}

/* Row valid_length - 1 of x: [1,T,h] -> [1,1,h]. */
static ir_value *last_token(graph *g, ir_value *x) {
    ir_builder *b = &g->b;
    ir_value *zero = B_INTS(b, 0), *at = binary(g, OP_sub, "last_token", g->valid, b_i32(b, 1));
    ir_value *begin = bounds(g, "last_begin", (ir_value *[]){zero, at, zero}, 3);
    return b_op(b, OP_slice_by_size, "last_out", A_x, x, A_begin, begin, A_size,
                B_INTS(b, 1, 1, (int32_t)g->c->hidden), A_NONE);
}

/* hidden [1,T,h] and current_pos [1], with T > 1 also valid_length [1] -> logits [1,V] of the last real
 * token.
 */
static void build_chunk(graph *g, const model_family *f, head_weights *w) {
    ir_builder *b = &g->b;
    const char *table = arena_printf(g->a, "%sembed_tokens.weight", g->prefix);
    g->out->embedding = checkpoint_find(g->ckpt, table);
    ir_dtype d = graph_weight_dtype(g, g->out->embedding, FOLD_NONE, g->type.weight);
    g->out->input_dtype = dtype_name(d);
    ir_value *x = cast(g, b_input(b, "hidden", IR_TYPE(d, 1, g->tokens, g->c->hidden)), g->type.stream);
    g->past = b_input(b, "current_pos", IR_TYPE(DT_INT32, 1));
    if (g->tokens == 1) {
        g->end = binary(g, OP_add, "next_pos", g->past, b_i32(b, 1));
        rope_tables(g, g->past);
        g->mask = causal_mask(g, g->past);
    } else {
        prepare_prefill(g);
    }
    run_layers(g, f, &x);
    if (g->tokens > 1) x = last_token(g, x);
    x = final_norm(g, f, x);
    x = b_op(b, OP_squeeze, "final_row", A_x, x, A_axes, B_INTS(b, 1), A_NONE);
    head_logits(g, w, x);
}

static ir_value *size_of(graph *g, const char *name, ir_value *x, int axis) {
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
static void build_single(graph *g, const model_family *f, head_weights *w) {
    ir_builder *b = &g->b;
    const ckpt_config *c = g->c;
    const models_options *o = g->o;
    ir_value *ids = b_input(b, "input_ids", IR_TYPE(DT_INT32, 1, IR_DIM_UNKNOWN));
    ir_value *mask = b_input(b, "causal_mask", IR_TYPE(DT_FP16, 1, 1, IR_DIM_UNKNOWN, IR_DIM_UNKNOWN));
    ir_type t = IR_TYPE(DT_FP16, c->layers, 1, c->kv_heads, o->context, c->head_dim);
    state_pair cache[2] = {state_declare(g, "key_cache", t, g->split_all),
                           state_declare(g, "value_cache", t, g->split_all)};
    g->cache = cache;
    ir_value *x = embed(g, w, ids);
    g->end = size_of(g, "total", mask, 3);
    g->past = binary(g, OP_sub, "past", g->end, size_of(g, "tokens", ids, 1));
    ir_value *from = b_op(b, OP_squeeze, "first_pos", A_x, g->past, A_axes, B_INTS(b, 0), A_NONE);
    ir_value *to = b_op(b, OP_squeeze, "end_pos", A_x, g->end, A_axes, B_INTS(b, 0), A_NONE);
    rope_tables(g, b_op(b, OP_range_1d, "positions", A_start, from, A_end, to, A_step, b_i32(b, 1), A_NONE));
    g->mask = given_mask(g, mask);
    run_layers(g, f, &x);
    x = final_norm(g, f, x);
    if (o->top_k)
        head_top_k(g, w, x, o->top_k);
    else
        head_logits(g, w, x);

    static const char tokens[] = "input_ids", square[] = "causal_mask";
    models_range *r = ARENA_ARRAY(g->a, models_range, 3);
    r[0] = (models_range){tokens, 1, 1, o->context, 1};
    r[1] = (models_range){square, 2, 1, o->context, 1};
    r[2] = (models_range){square, 3, 1, o->context, o->context};
    g->out->range = r;
    g->out->n_range = 3;
}

/* --- metadata --- */

static const char *prefill_list(graph *g) {
    const char *s = "";
    for (size_t i = 0; i < g->o->n_prefill; i++)
        s = arena_printf(g->a, "%s%s%lld", s, i ? "," : "", (long long)g->o->prefill[i]);
    return s;
}

static void describe(graph *g) {
    static const char *const precisions[] = {"mixed", "float16", "float32"};
    const models_options *o = g->o;
    bool single = o->preset == PRESET_SINGLE;
    const char **p = ARENA_ARRAY(g->a, const char *, 24);
    size_t n = 0;
    p[n++] = "model_type", p[n++] = g->c->model_type;
    p[n++] = "family", p[n++] = g->c->family->name;
    p[n++] = "preset", p[n++] = single ? "single" : "chunks";
    p[n++] = "precision", p[n++] = precisions[o->precision];
    p[n++] = "context_length", p[n++] = arena_printf(g->a, "%lld", (long long)o->context);
    p[n++] = "vocab_size", p[n++] = arena_printf(g->a, "%lld", (long long)g->c->vocab);
    if (o->n_prefill) p[n++] = "prefill_sizes", p[n++] = prefill_list(g);
    if (single && o->top_k) {
        int64_t k = o->top_k < g->c->vocab ? o->top_k : g->c->vocab;
        p[n++] = "top_k", p[n++] = arena_printf(g->a, "%lld", (long long)k);
        p[n++] = "lm_head_strategy", p[n++] = arena_printf(g->a, "chunked_%d_fp32_ids", HEAD_ROWS);
    }
    g->out->user = p;
    g->out->n_user = n;
}

static bool check_prefill(const models_options *o, err *e) {
    if (o->n_prefill && o->preset != PRESET_CHUNKS)
        return err_set(e, ERR_USAGE, "prefill functions are for preset chunks");
    if (o->n_prefill > MODELS_MAX_PREFILL)
        return err_set(e, ERR_USAGE, "%zu prefill sizes: expected up to %d", o->n_prefill,
                       MODELS_MAX_PREFILL);
    for (size_t i = 0; i < o->n_prefill; i++) {
        int64_t n = o->prefill[i];
        if (n < 2 || n > MODELS_MAX_PREFILL_TOKENS || (n > DELTA_CHUNK && n % DELTA_CHUNK))
            return err_set(e, ERR_USAGE, "prefill size %lld: expected 2 to %d, or a multiple of %d up to %d",
                           (long long)n, DELTA_CHUNK, DELTA_CHUNK, MODELS_MAX_PREFILL_TOKENS);
        if (n > o->context)
            return err_set(e, ERR_USAGE, "prefill size %lld is beyond the context of %lld", (long long)n,
                           (long long)o->context);
        if (i && n <= o->prefill[i - 1])
            return err_set(e, ERR_USAGE, "prefill sizes must ascend: %lld follows %lld", (long long)n,
                           (long long)o->prefill[i - 1]);
    }
    return true;
}

static bool check_options(const ckpt_config *c, const models_options *o, err *e) {
    const char *why;
    if (!models_has_preset(c, o->preset, &why))
        return err_set(e, ERR_UNSUPPORTED, "preset single is not offered for %s: %s", c->family->name, why);
    if (o->context < 1 || o->context > INT64_C(1) << 24) /* positions up to here are exact in fp32 */
        return err_set(e, ERR_USAGE, "a context of %lld: expected 1 to 16777216", (long long)o->context);
    if (o->top_k < 0)
        return err_set(e, ERR_USAGE, "top-k %lld: expected 0 (logits) or more", (long long)o->top_k);
    return check_prefill(o, e);
}

/* Begins another function of the program: what belongs to one function is made anew. */
static void begin_function(graph *g, head_weights *w, const char *name, int64_t tokens) {
    g->b = ir_build(g->out->program, name, 9, g->b.e);
    g->tokens = (int32_t)tokens;
    g->type = roles(g->o);
    if (g->o->fp16_weights) g->type.weight = DT_FP16;
    g->type.small = g->type.core;
    if (tokens > 1)
        g->type.core = DT_FP32; /* sums of log decays over a chunk reach -100: too coarse in fp16 */
    w->part = NULL;
    g->cache_begin = g->cache_end = NULL;
}

static void build_functions(graph *g, const model_family *f, head_weights *w) {
    const models_options *o = g->o;
    if (o->preset == PRESET_SINGLE) {
        build_single(g, f, w);
        return;
    }
    build_chunk(g, f, w);
    for (size_t i = 0; i < o->n_prefill; i++) {
        ir_build_end(&g->b);
        begin_function(g, w, arena_printf(g->a, "prefill_%lld", (long long)o->prefill[i]), o->prefill[i]);
        build_chunk(g, f, w);
    }
}

bool models_build(models_graph *out, arena *a, const checkpoint *c, const models_options *o, err *e) {
    const ckpt_config *config = checkpoint_config(c);
    *out = (models_graph){.program = ir_program_new(a)};
    if (!check_options(config, o, e)) return false;
    graph g = {.b.e = e, .a = a, .ckpt = c, .c = config, .o = o, .out = out};
    head_weights head = {0};
    begin_function(&g, &head, o->n_prefill ? "decode" : "main", o->preset == PRESET_SINGLE ? -1 : 1);
    g.split_all = o->precision == PRECISION_FLOAT32;
    g.layer = -1;
    g.weights = map_new(a, checkpoint_count(c));
    g.used = map_new(a, checkpoint_count(c));
    g.scanned = map_new(a, checkpoint_count(c));
    if (refuse_packed(&g) && find_prefix(&g) && head_choose(&g, &head)) {
        const model_family *f = family_of(config);
        build_functions(&g, f, &head);
        note_skipped(&g);
        if (o->context > config->max_position)
            graph_note(&g, NOTE_WARNING, "config.json", 1,
                       arena_printf(a, "context %lld is beyond max_position_embeddings %lld",
                                    (long long)o->context, (long long)config->max_position));
        describe(&g);
    }
    ir_build_end(&g.b);
    return e->code == ERR_NONE;
}
