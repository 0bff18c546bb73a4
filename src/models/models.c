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

/* Pipelined: a recurrence is stepped in fp32, whatever its states are. */
static precision_roles roles(const models_options *o) {
    ir_dtype core = o->split_state || o->preset == PRESET_PIPELINED ? DT_FP32 : DT_FP16;
    switch (o->precision) {
    case PRECISION_FLOAT32: return (precision_roles){DT_FP32, DT_FP32, DT_FP32, DT_FP32, 0};
    case PRECISION_FLOAT16: return (precision_roles){DT_FP16, DT_FP16, DT_FP16, core, 0};
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
    static const char *const presets[] = {"chunks", "single", "pipelined"};
    bool single = o->preset == PRESET_SINGLE;
    const char **p = ARENA_ARRAY(g->a, const char *, 24);
    size_t n = 0;
    p[n++] = "model_type", p[n++] = g->c->model_type;
    p[n++] = "family", p[n++] = g->c->family->name;
    p[n++] = "preset", p[n++] = presets[o->preset];
    p[n++] = "precision", p[n++] = precisions[o->precision];
    p[n++] = "context_length", p[n++] = arena_printf(g->a, "%lld", (long long)o->context);
    p[n++] = "vocab_size", p[n++] = arena_printf(g->a, "%lld", (long long)g->c->vocab);
    if (o->n_prefill) p[n++] = "prefill_sizes", p[n++] = prefill_list(g);
    if (single && o->top_k) {
        int64_t k = o->top_k < g->c->vocab ? o->top_k : g->c->vocab;
        p[n++] = "top_k", p[n++] = arena_printf(g->a, "%lld", (long long)k);
        p[n++] = "lm_head_strategy", p[n++] = arena_printf(g->a, "chunked_%d_fp32_ids", MODELS_HEAD_ROWS);
    }
    g->out->user = p;
    g->out->n_user = n;
}

static bool check_prefill(const ckpt_config *c, const models_options *o, err *e) {
    if (o->n_prefill && o->preset == PRESET_SINGLE)
        return err_set(e, ERR_USAGE, "prefill functions are for preset chunks");
    if (o->n_prefill && o->preset == PRESET_PIPELINED && !ckpt_is_recurrent(c))
        return err_set(e, ERR_USAGE, "prefill: function main of this model takes any number of tokens");
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
    if (o->stacked_kv && o->preset != PRESET_CHUNKS)
        return err_set(e, ERR_USAGE, "stacked keys and values are a choice of preset chunks only");
    if (o->top_k < 0)
        return err_set(e, ERR_USAGE, "top-k %lld: expected 0 (logits) or more", (long long)o->top_k);
    return check_prefill(c, o, e);
}

/* Begins another function of the program: what belongs to one function is made anew. */
static void begin_function(graph *g, const char *name, int64_t tokens) {
    g->b = ir_build(g->out->program, name, 9, g->b.e);
    g->tokens = (int32_t)tokens;
    g->type = roles(g->o);
    if (g->o->fp16_weights) g->type.weight = DT_FP16;
    g->type.small = g->type.core;
    if (tokens > 1)
        g->type.core = DT_FP32; /* sums of log decays over a chunk reach -100: too coarse in fp16 */
    g->layer = -1;
    g->head.part = NULL;
    g->past = g->end = g->valid = g->cache_begin = g->cache_end = NULL;
    g->cache = NULL;
    g->convs = g->memories = NULL;
}

static void build_function(graph *g, const char *name, int64_t tokens) {
    begin_function(g, name, tokens);
    static void (*const build[])(graph *) = {build_chunk, build_single, build_pipelined};
    build[g->o->preset](g);
    ir_build_end(&g->b);
}

/* The tensor behind the host's table, and the type that its rows are taken in. */
static bool choose_embedding(graph *g) {
    if (g->o->preset != PRESET_CHUNKS) return true;
    g->embedding = graph_tensor(g, "embed_tokens.weight", 2, (int64_t[]){g->c->vocab, g->c->hidden});
    if (g->embedding) g->input_dtype = graph_weight_dtype(g, g->embedding, FOLD_NONE, roles(g->o).weight);
    return g->b.e->code == ERR_NONE;
}

models_work *models_begin(arena *a, const checkpoint *c, const models_options *o, err *e) {
    const ckpt_config *config = checkpoint_config(c);
    if (!check_options(config, o, e)) return NULL;
    graph *g = ARENA_NEW(a, graph);
    *g = (graph){.b.e = e, .a = a, .ckpt = c, .c = config, .o = o, .family = family_of(config), .layer = -1};
    g->split_all =
        o->precision == PRECISION_FLOAT32 && o->preset != PRESET_PIPELINED; /* its states may be fp32 */
    g->weights = map_new(a, checkpoint_count(c));
    g->used = map_new(a, checkpoint_count(c));
    g->scanned = map_new(a, checkpoint_count(c));
    if (!refuse_packed(g) || !find_prefix(g) || !head_choose(g) || !choose_embedding(g)) return NULL;
    if (o->context > config->max_position)
        graph_note(g, NOTE_WARNING, "config.json", 1,
                   arena_printf(a, "context %lld is beyond max_position_embeddings %lld",
                                (long long)o->context, (long long)config->max_position));
    return g;
}

int64_t models_head_pieces(const models_work *w) {
    return w->head.n_part;
}

const st_tensor *models_embedding(const models_work *w, ir_dtype *taken_as) {
    *taken_as = w->input_dtype;
    return w->embedding;
}

models_part models_whole(const models_work *w) {
    return (models_part){.end_layer = w->c->layers, .end_piece = w->head.n_part};
}

/* A call takes any number of tokens; one with a recurrence takes one. */
static bool models_flexible(const graph *g) {
    return g->o->preset == PRESET_SINGLE || (pipelined(g) && !count_layers(g, true));
}

bool models_build_part(models_work *g, const models_part *part, bool decode_only, models_graph *out, err *e) {
    const models_options *o = g->o;
    size_t n_prefill = decode_only ? 0 : o->n_prefill;
    *out = (models_graph){.program = ir_program_new(g->a)};
    g->b.e = e;
    g->out = out;
    g->part = *part;
    g->state = NULL;
    g->n_state = g->cap_state = 0;
    build_function(g, o->n_prefill && !pipelined(g) ? "decode" : "main", models_flexible(g) ? -1 : 1);
    for (size_t i = 0; i < n_prefill && e->code == ERR_NONE; i++)
        build_function(g, arena_printf(g->a, "prefill_%lld", (long long)o->prefill[i]), o->prefill[i]);
    out->state = g->state;
    out->n_state = g->n_state;
    out->embedding = g->embedding;
    out->input_dtype = g->embedding ? dtype_name(g->input_dtype) : NULL;
    describe(g);
    return e->code == ERR_NONE;
}

const models_note *models_notes(models_work *g, size_t *n) {
    if (!g->noted) note_skipped(g);
    g->noted = true;
    *n = g->n_note;
    return g->note;
}

bool models_build(models_graph *out, arena *a, const checkpoint *c, const models_options *o, err *e) {
    *out = (models_graph){.program = ir_program_new(a)};
    models_work *w = models_begin(a, c, o, e);
    if (!w) return false;
    models_part whole = models_whole(w);
    bool ok = models_build_part(w, &whole, false, out, e);
    out->note = models_notes(w, &out->n_note);
    return ok;
}
