#include "convert/job.h"
#include "convert/precision_plan.h"
#include <inttypes.h>
#include <string.h>

#define MAX_CONTEXT      (1 << 20)
#define MAX_TOP_K        (1 << 20)
#define MAX_CHUNKS       4096
#define STEERED_CAPACITY 2048 /* of keys and values, from which on iOS 27 fails (docs/coreai.md) */

/* Index of word in a NULL-terminated list; fallback when word is NULL; -1 and an error when it is none. */
static int choice(const char *option, const char *word, const char *const *list, int fallback, err *e) {
    str all = {0};
    if (!word) return fallback;
    for (int i = 0; list[i]; i++) {
        if (!strcmp(word, list[i])) {
            str_free(&all);
            return i;
        }
        str_printf(&all, "%s%s", !i ? "" : list[i + 1] ? ", " : " or ", list[i]);
    }
    err_set(e, ERR_USAGE, "--%s %.50s: expected %s", option, word, str_get(&all));
    str_free(&all);
    return -1;
}
#define CHOICE(option, word, fallback, ...)                                                                  \
    choice(option, word, (const char *const[]){__VA_ARGS__, NULL}, fallback, e)

static bool read_graph_options(job *j, err *e) {
    const convert_options *o = j->o;
    j->coreai = CHOICE("format", o->format, 0, "coreml", "coreai") == 1;
    j->steers = j->coreai && CHOICE("steer-around", o->steer_around, 0, "ios27", "none") == 0;
    if (o->steer_around && !j->coreai && !e->code)
        return err_set(e, ERR_USAGE, "--steer-around is for --format coreai");
    int precision = CHOICE("precision", o->precision, PRECISION_MIXED, "mixed", "float16", "float32");
    int split = CHOICE("state", o->state, precision != PRECISION_FLOAT16, "fp16", "split");
    int preset = CHOICE("preset", o->preset, PRESET_CHUNKS, "chunks", "single");
    int stacked = CHOICE("kv", o->kv, 0, "split", "stacked");
    if (e->code) return false;
    if (j->coreai && precision == PRECISION_FLOAT16)
        return err_set(
            e, ERR_USAGE,
            "--precision float16 is not offered for format coreai: runtimes that add products up in "
            "fp16 lose the head's last bits; mixed has fp16 weights and caches");
    if (j->coreai) preset = PRESET_PIPELINED, split = 0;
    if (!j->coreai && !split && precision == PRECISION_FLOAT32)
        return err_set(e, ERR_USAGE, "--state fp16 contradicts precision float32, which splits every state");
    if (o->context < 0 || o->context > MAX_CONTEXT)
        return err_set(e, ERR_USAGE, "--context %" PRId64 ": expected 1 to %d", o->context, MAX_CONTEXT);
    if (o->top_k < -1 || o->top_k > MAX_TOP_K)
        return err_set(e, ERR_USAGE, "--top-k %" PRId64 ": expected 0 to %d", o->top_k, MAX_TOP_K);
    j->graph_options = (models_options){
        .preset = (models_preset)preset,
        .precision = (models_precision)precision,
        .split_state = split,
        .stacked_kv = stacked,
        .context = o->context,
        .top_k = o->top_k < 0 ? 64 : o->top_k,
    };
    return true;
}

/* "4,16,64": ascending numbers. */
static bool read_prefill(job *j, err *e) {
    const char *list = j->o->prefill;
    if (!list) return true;
    int64_t *size = ARENA_ARRAY(j->a, int64_t, MODELS_MAX_PREFILL);
    size_t n = 0;
    for (const char *p = list, *end; p; p = *end ? end + 1 : NULL) {
        end = p + strcspn(p, ",");
        if (n == MODELS_MAX_PREFILL || !str_to_int64(arena_strn(j->a, p, (size_t)(end - p)), &size[n]))
            return err_set(e, ERR_USAGE, "--prefill %.100s: expected up to %d sizes, as in 4,16,64", list,
                           MODELS_MAX_PREFILL);
        n++;
    }
    j->graph_options.prefill = size;
    j->graph_options.n_prefill = n;
    return true;
}

static bool read_chunks(job *j, err *e) {
    const char *s = j->o->chunks;
    j->max_file_size = j->o->max_file_size ? j->o->max_file_size : (UINT64_C(2) << 30) - (16 << 20);
    if (!s || !strcmp(s, "auto")) return true;
    if (str_to_int64(s, &j->chunks) && j->chunks >= 1 && j->chunks <= MAX_CHUNKS) return true;
    return err_set(e, ERR_USAGE, "--chunks %.50s: expected auto, or 1 to %d", s, MAX_CHUNKS);
}

static bool read_group_size(job *j, err *e) {
    int64_t size = j->o->group_size;
    quant_recipe *r = &j->recipe;
    if (size < 0) return err_set(e, ERR_USAGE, "group size %" PRId64 ": expected 1 or more", size);
    if (size && r->weights.kind == QUANT_LUT) r->weights.group = size;
    if (size && r->vocab.kind == QUANT_LUT) r->vocab.group = size;
    return true;
}

/* The names that Core AI's exporters have for sets of schemes. The embedding stays fp16; hu: the head is
 * compressed, and the embedding that it shares its weight with is a constant of its own. */
static const struct {
    const char *name, *weights;
    bool head;
} coreai_schemes[] = {
    {"none", "fp16", false},  {"fp16", "fp16", false}, {"int8lin", "w8b32", false}, {"int8hu", "w8b32", true},
    {"int4lin", "w4", false}, {"lut4", "lut4", false}, {"lut6", "lut6", false},     {"lut8", "lut8", false},
};

static bool refuse_channel_scales(const char *name, err *e) {
    return strcmp(name, "w8") ||
           err_set(e, ERR_USAGE,
                   "scheme w8 is not offered for format coreai: int8 per channel gives garbage on the "
                   "GPU delegate; int8lin has a scale for each 32 weights");
}

/* What a rule of a recipe may name: one scheme, by the format's name. */
static bool coreai_scheme_by_name(quant_scheme *s, const char *name, err *e) {
    if (!refuse_channel_scales(name, e)) return false;
    for (size_t i = 0; i < sizeof coreai_schemes / sizeof *coreai_schemes; i++) {
        if (strcmp(name, coreai_schemes[i].name) || coreai_schemes[i].head) continue;
        if (!quant_scheme_by_name(s, coreai_schemes[i].weights, e)) return false;
        s->name = coreai_schemes[i].name;
        return true;
    }
    return err_set(e, ERR_USAGE,
                   "scheme %.50s: rules for format coreai have none, int8lin, int4lin, lut4, lut6 and lut8",
                   name);
}

/* Rules of the file first, then those that the scheme has. */
static bool read_coreai_rules(job *j, err *e) {
    quant_recipe *r = &j->recipe;
    const quant_rule *own = r->rule;
    size_t n_own = r->n_rule;
    if (!j->o->recipe) return true;
    if (!quant_recipe_read(r, j->a, j->o->recipe, coreai_scheme_by_name, e)) return false;
    quant_rule *all = ARENA_ARRAY(j->a, quant_rule, r->n_rule + n_own);
    if (r->n_rule) memcpy(all, r->rule, r->n_rule * sizeof *all);
    if (n_own) memcpy(all + r->n_rule, own, n_own * sizeof *all);
    r->rule = all;
    r->n_rule += n_own;
    return true;
}

/* Scheme i of the table for all linear layers. */
static bool set_coreai_scheme(job *j, size_t i, err *e) {
    quant_recipe *r = &j->recipe;
    r->vocab_apart = true;
    j->compress = i > 1 || j->o->recipe;
    j->graph_options.fp16_weights = j->compress;
    if (!quant_scheme_by_name(&r->weights, coreai_schemes[i].weights, e) ||
        !quant_scheme_by_name(&r->vocab, "fp16", e))
        return false;
    r->weights.name = coreai_schemes[i].name;
    if (!coreai_schemes[i].head) return true;
    quant_rule *rule = ARENA_NEW(j->a, quant_rule);
    *rule = (quant_rule){"lm_head_weight", r->weights};
    r->rule = rule;
    r->n_rule = 1;
    j->graph_options.untied_head = true;
    return true;
}

static bool read_coreai_recipe(job *j, err *e) {
    const convert_options *o = j->o;
    const char *name = o->quantize ? o->quantize : "none";
    if (!refuse_channel_scales(name, e)) return false;
    if (o->vocab && strcmp(o->vocab, "same"))
        return err_set(e, ERR_USAGE,
                       "--vocab is for --format coreml; scheme int8hu compresses the head of a bundle");
    for (size_t i = 0; i < sizeof coreai_schemes / sizeof *coreai_schemes; i++)
        if (!strcmp(name, coreai_schemes[i].name))
            return set_coreai_scheme(j, i, e) && read_group_size(j, e) && read_coreai_rules(j, e);
    return err_set(e, ERR_USAGE,
                   "--quantize %.50s: format coreai has none, int8lin, int8hu, int4lin, lut4, lut6 and lut8",
                   name);
}

static bool is_coreai_only(const char *name) {
    return name && (!strcmp(name, "int8lin") || !strcmp(name, "int8hu") || !strcmp(name, "int4lin") ||
                    !strcmp(name, "none"));
}

bool job_read_recipe(job *j, err *e) {
    const convert_options *o = j->o;
    quant_recipe *r = &j->recipe;
    if (j->coreai) return read_coreai_recipe(j, e);
    if (!j->coreai && is_coreai_only(o->quantize))
        return err_set(e, ERR_USAGE, "--quantize %s is for --format coreai; see w8b32 and w4", o->quantize);
    r->vocab_apart = o->vocab && strcmp(o->vocab, "same");
    j->compress = o->quantize || r->vocab_apart || o->recipe;
    if (!quant_scheme_by_name(&r->weights, o->quantize ? o->quantize : "fp16", e)) return false;
    if (r->vocab_apart && !quant_scheme_by_name(&r->vocab, o->vocab, e)) return false;
    if (!read_group_size(j, e)) return false;
    j->graph_options.fp16_weights = j->compress;
    return !o->recipe || quant_recipe_read(r, j->a, o->recipe, quant_scheme_by_name, e);
}

static bool read_plan(job *j, err *e) {
    if (!j->o->precision_plan) return true;
    if (j->graph_options.precision == PRECISION_FLOAT32)
        return err_set(e, ERR_USAGE,
                       "a precision plan contradicts precision float32, where everything is fp32");
    if (!precision_plan_read(&j->plan, &j->n_plan, j->a, j->o->precision_plan, e)) return false;
    j->widened.seen = ARENA_ARRAY(j->a, bool, j->n_plan);
    return true;
}

static bool check_group(const job *j, err *e) {
    bool lut = j->recipe.weights.kind == QUANT_LUT || j->recipe.vocab.kind == QUANT_LUT;
    for (size_t i = 0; i < j->n_variant; i++) lut |= j->variant[i].j->recipe.weights.kind == QUANT_LUT;
    return lut || !j->o->group_size ||
           err_set(e, ERR_USAGE, "a group size is for lut schemes; rules of a recipe have their own");
}

bool job_read_options(job *j, err *e) {
    return read_graph_options(j, e) && read_prefill(j, e) && read_chunks(j, e) && job_read_recipe(j, e) &&
           read_plan(j, e) && job_read_variants(j, e) && check_group(j, e);
}

bool job_is_vocab(const char *name) {
    return !strncmp(name, "lm_head_weight", 14) || !strncmp(name, "embed_tokens_weight", 19);
}

/* The preset asked for must be one the family has. */
static bool choose_preset(job *j, err *e) {
    const ckpt_config *c = checkpoint_config(j->c);
    const char *why = "";
    if (j->coreai) return true;
    if (!j->o->preset) j->graph_options.preset = j->n_variant ? PRESET_SINGLE : models_default_preset(c);
    return models_has_preset(c, j->graph_options.preset, &why) ||
           err_set(e, ERR_UNSUPPORTED, "%s: preset %s is not for %s: %s", j->dir, job_preset_name(j),
                   c->family->name, why);
}

static bool refuse_coreml_options(const job *j, err *e) {
    const convert_options *o = j->o;
    const struct {
        const char *option;
        bool given;
    } rows[] = {{"preset", o->preset != NULL},
                {"state", o->state != NULL},
                {"top-k", o->top_k > 0},
                {"chunks", o->chunks != NULL},
                {"kv", o->kv != NULL},
                {"table", o->table != NULL},
                {"variants", o->variants != NULL},
                {"max-file-size", o->max_file_size != 0},
                {"share-weights", o->share_weights != NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given) return err_set(e, ERR_USAGE, "--%s is for --format coreml", rows[i].option);
    return true;
}

static bool refuse_foreign(const job *j, err *e) {
    const convert_options *o = j->o;
    if (j->coreai) return refuse_coreml_options(j, e);
    bool single = j->graph_options.preset == PRESET_SINGLE;
    const struct {
        const char *option;
        bool given, of_single;
    } rows[] = {{"top-k", o->top_k > 0, true},        {"prefill", o->prefill != NULL, false},
                {"chunks", o->chunks != NULL, false}, {"kv", o->kv != NULL, false},
                {"table", o->table != NULL, false},   {"max-file-size", o->max_file_size != 0, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given && rows[i].of_single != single)
            return err_set(e, ERR_USAGE, "--%s is for preset %s, this is preset %s", rows[i].option,
                           single ? "chunks" : "single", job_preset_name(j));
    return true;
}

static bool choose_table(job *j, err *e) {
    if (j->graph_options.preset != PRESET_CHUNKS) return true;
    static const embedding_kind kinds[] = {EMBEDDING_INT8, EMBEDDING_FP16, EMBEDDING_FP32};
    quant_kind kind_of_weights = j->recipe.weights.kind; /* keep loses nothing: nor shall the table */
    int fallback = kind_of_weights != QUANT_NONE && kind_of_weights != QUANT_KEEP ? 0
                   : j->graph_options.precision == PRECISION_FLOAT32              ? 2
                                                                                  : 1;
    int kind = CHOICE("table", j->o->table, fallback, "int8", "fp16", "fp32");
    if (kind < 0) return false;
    j->table.kind = kinds[kind];
    j->table.name = job_table_name(j);
    return true;
}

static bool keeps(const job *j) {
    bool any = j->recipe.weights.kind == QUANT_KEEP || j->recipe.vocab.kind == QUANT_KEEP;
    for (size_t i = 0; i < j->recipe.n_rule; i++) any |= j->recipe.rule[i].scheme.kind == QUANT_KEEP;
    for (size_t i = 0; i < j->n_variant; i++) any |= keeps(j->variant[i].j);
    return any;
}

bool job_settle_options(job *j, err *e) {
    const ckpt_config *c = checkpoint_config(j->c);
    models_options *o = &j->graph_options;
    if (keeps(j) && !checkpoint_is_gguf(j->c))
        return err_set(e, ERR_USAGE, "scheme keep is for GGUF files: the weights of %s are plain numbers",
                       j->dir);
    if (!choose_preset(j, e) || !refuse_foreign(j, e) || !choose_table(j, e)) return false;
    if (o->top_k > c->vocab) o->top_k = c->vocab;
    int64_t usual = j->steers ? STEERED_CAPACITY - 1 : 2048;
    if (!o->context) o->context = c->max_position < usual ? c->max_position : usual;
    if (j->steers && o->context >= STEERED_CAPACITY)
        return err_set(e, ERR_USAGE,
                       "context %" PRId64
                       ": iOS 27 corrupts the output of models with %d positions and more; "
                       "--steer-around none makes one all the same",
                       o->context, STEERED_CAPACITY);
    return true;
}
