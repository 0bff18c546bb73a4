#include "checkpoint/config.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The file while it is read: a key is looked up in text_config first (nested checkpoints), then at the top
 * level. */
typedef struct {
    arena *a;
    const char *what;
    const json *top, *text; /* text == top when nothing is nested */
    err *e;
} source;

/* NULL when absent or null. */
static const json *lookup(const source *s, const char *key) {
    const json *v = json_get(s->text, key);
    if (!v || v->kind == JSON_NULL) v = json_get(s->top, key);
    return v && v->kind != JSON_NULL ? v : NULL;
}

static bool wrong_kind(const source *s, const char *key, const json *v, const char *expected) {
    return err_set(s->e, ERR_FORMAT, "%s: \"%s\" is of kind %s, expected %s", s->what, key,
                   json_kind_name(v->kind), expected);
}

static bool missing(const source *s, const char *key) {
    return err_set(s->e, ERR_FORMAT, "%s: \"%s\" is missing", s->what, key);
}

static bool refuse(const source *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(const source *s, const char *fmt, ...) {
    char msg[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return err_set(s->e, ERR_UNSUPPORTED, "%s: %s", s->what, msg);
}

/* An integer in [min, max]; 2048.0 counts as one. */
static bool as_int(const source *s, const char *key, const json *v, int64_t min, int64_t max, int64_t *out) {
    if (v->kind != JSON_INT && v->kind != JSON_REAL) return wrong_kind(s, key, v, "an integer");
    if (!(v->d >= (double)min && v->d <= (double)max) || v->d != floor(v->d))
        return err_set(s->e, ERR_FORMAT, "%s: \"%s\" is %g, expected an integer from %lld to %lld", s->what,
                       key, v->d, (long long)min, (long long)max);
    *out = (int64_t)v->d;
    return true;
}

/* A finite number > 0. */
static bool as_positive(const source *s, const json *v, double *out) {
    if (v->kind != JSON_INT && v->kind != JSON_REAL) return wrong_kind(s, v->key, v, "a number");
    if (!(v->d > 0) || isinf(v->d))
        return err_set(s->e, ERR_FORMAT, "%s: \"%s\" is %g, expected a number above 0", s->what, v->key,
                       v->d);
    *out = v->d;
    return true;
}

/* The key's value, or fallback when it is absent; fallback 0: the key is required. */
static bool get_int(const source *s, const char *key, int64_t min, int64_t max, int64_t fallback,
                    int64_t *out) {
    const json *v = lookup(s, key);
    *out = fallback;
    return v ? as_int(s, key, v, min, max, out) : fallback ? true : missing(s, key);
}

static bool get_bool(const source *s, const char *key, bool fallback, bool *out) {
    const json *v = lookup(s, key);
    *out = fallback;
    if (!v) return true;
    if (v->kind != JSON_BOOL) return wrong_kind(s, v->key, v, "true or false");
    *out = v->i != 0;
    return true;
}

/* NULL in *out when absent. */
static bool get_text(const source *s, const char *key, const char **out) {
    const json *v = lookup(s, key);
    *out = NULL;
    if (!v) return true;
    if (v->kind != JSON_STRING) return wrong_kind(s, v->key, v, "a string");
    *out = v->s;
    return true;
}

static bool refuse_experts(const source *s, const char *type) {
    static const char *const keys[] = {"num_experts", "num_local_experts", "n_routed_experts",
                                       "moe_intermediate_size"};
    if (strstr(type, "moe"))
        return refuse(s, "model_type \"%s\" is a mixture of experts (MoE): not supported", type);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json *v = lookup(s, keys[i]);
        if (v && v->d > 0)
            return refuse(s, "\"%s\" is %g: a mixture of experts (MoE) is not supported", keys[i], v->d);
    }
    return true;
}

static bool refuse_quantized(const source *s) {
    static const char *const keys[] = {"quantization_config", "compression_config", "quantization"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json *v = lookup(s, keys[i]);
        if (v)
            return refuse(
                s, "\"%s\" says that the weights are quantized already (%s): convert the original checkpoint",
                keys[i], json_str(v, "quant_method", "method not named"));
    }
    return true;
}

static bool find_family(ckpt_config *c, const source *s, const ckpt_family *const *families) {
    str known = {0};
    for (; *families; families++)
        for (size_t i = 0; i < 3 && (*families)->model_type[i]; i++) {
            const char *type = (*families)->model_type[i];
            if (!c->family && !strcmp(type, c->model_type)) c->family = *families;
            str_printf(&known, "%s%s", known.len ? ", " : "", type);
        }
    if (!c->family)
        refuse(s, "model_type \"%.80s\" is not supported (supported: %s)", c->model_type, str_get(&known));
    str_free(&known);
    return c->family != NULL;
}

/* Which model it is, and whether it is one that can be converted at all. */
static bool read_kind(ckpt_config *c, source *s, const ckpt_family *const *families) {
    const json *nested = json_get(s->top, "text_config");
    if (nested && nested->kind == JSON_OBJECT)
        s->text = nested;
    else if (nested && nested->kind != JSON_NULL)
        return wrong_kind(s, nested->key, nested, "an object");
    const json *type = json_get(s->top, "model_type");
    if (!type) return missing(s, "model_type");
    if (type->kind != JSON_STRING) return wrong_kind(s, type->key, type, "a string");
    c->model_type = type->s;
    if (!refuse_experts(s, type->s)) return false;
    const char *inner = json_str(s->text, "model_type", "");
    if (s->text != s->top && !refuse_experts(s, inner)) return false;
    bool vision = strstr(type->s, "vision") ||
                  (json_get_kind(s->top, "vision_config", JSON_OBJECT) && s->text == s->top);
    if (vision && !lookup(s, "hidden_size"))
        return refuse(s,
                      "a vision-only checkpoint (model_type \"%.80s\", no text_config): there is no language "
                      "model in it",
                      type->s);
    if (strstr(type->s, "vision"))
        return refuse(s, "model_type \"%.80s\" is vision-only: not supported", type->s);
    if (!find_family(c, s, families) || !refuse_quantized(s)) return false;
    const json *arch = json_get_kind(s->top, "architectures", JSON_ARRAY);
    const json *first = arch ? arch->child : NULL;
    if (first && first->kind == JSON_STRING && !strstr(first->s, "ForCausalLM") &&
        !strstr(first->s, "ForConditionalGeneration"))
        return refuse(s, "architecture \"%.80s\" has no language-model head", first->s);
    return true;
}

static bool read_sizes(ckpt_config *c, const source *s) {
    const int64_t big = INT64_C(1) << 24; /* ids up to here are exact in fp32 */
    if (!get_int(s, "vocab_size", 1, big, 0, &c->vocab) ||
        !get_int(s, "hidden_size", 1, big, 0, &c->hidden) ||
        !get_int(s, "intermediate_size", 1, big, 0, &c->intermediate) ||
        !get_int(s, "num_hidden_layers", 1, 4096, 0, &c->layers) ||
        !get_int(s, "num_attention_heads", 1, 65536, 0, &c->heads) ||
        !get_int(s, "num_key_value_heads", 1, 65536, c->heads, &c->kv_heads) ||
        !get_int(s, "max_position_embeddings", 1, INT64_C(1) << 40, 2048, &c->max_position) ||
        !get_int(s, "mtp_num_hidden_layers", 0, 4096, -1, &c->mtp_layers))
        return false;
    if (c->mtp_layers < 0) c->mtp_layers = 0;
    if (c->heads % c->kv_heads)
        return err_set(s->e, ERR_FORMAT, "%s: %lld attention heads can't be shared by %lld key/value heads",
                       s->what, (long long)c->heads, (long long)c->kv_heads);
    int64_t usual = c->family->head_dim ? c->family->head_dim : c->hidden / c->heads;
    if (!usual || (!lookup(s, "head_dim") && !c->family->head_dim && c->hidden % c->heads))
        return err_set(
            s->e, ERR_FORMAT,
            "%s: hidden_size %lld is no multiple of %lld attention heads, and there is no head_dim", s->what,
            (long long)c->hidden, (long long)c->heads);
    if (!get_int(s, "head_dim", 1, 65536, usual, &c->head_dim)) return false;
    const json *eps = lookup(s, "rms_norm_eps");
    c->eps = 1e-6;
    if (eps && !as_positive(s, eps, &c->eps)) return false;
    if (c->eps <= (double)FLT_MAX) return true;
    return err_set(s->e, ERR_FORMAT, "%s: \"rms_norm_eps\" is %g, which fp32 can't hold", s->what, c->eps);
}

static bool read_flags(ckpt_config *c, const source *s) {
    const char *act;
    if (!get_bool(s, "tie_word_embeddings", false, &c->tie_embeddings) ||
        !get_bool(s, "attention_bias", false, &c->attention_bias) ||
        !get_bool(s, "mlp_bias", false, &c->mlp_bias) || !get_text(s, "hidden_act", &act))
        return false;
    const json *inner = json_get_kind(s->text, "tie_word_embeddings", JSON_BOOL);
    const json *outer = json_get_kind(s->top, "tie_word_embeddings", JSON_BOOL);
    c->tie_conflict = inner && outer && inner->i != outer->i;
    if (act && strcmp(act, "silu") && strcmp(act, "swish"))
        return refuse(s, "activation \"%.80s\" is not supported (supported: silu)", act);
    const json *dense = lookup(s, "mlp_only_layers");
    if (dense && dense->len) return refuse(s, "\"mlp_only_layers\" is not empty: not supported");
    bool sliding;
    int64_t from;
    if (!get_bool(s, "use_sliding_window", false, &sliding) ||
        !get_int(s, "max_window_layers", 0, INT64_C(1) << 40, -1, &from))
        return false;
    if (sliding && lookup(s, "sliding_window") && from < c->layers)
        return refuse(
            s, "sliding-window attention is in use (use_sliding_window, from layer %lld on): not supported",
            (long long)(from < 0 ? 0 : from));
    return true;
}

static bool read_linear_sizes(ckpt_config *c, const source *s) {
    if (!get_int(s, "linear_num_key_heads", 1, 65536, 0, &c->linear_k_heads) ||
        !get_int(s, "linear_num_value_heads", 1, 65536, 0, &c->linear_v_heads) ||
        !get_int(s, "linear_key_head_dim", 1, 65536, 0, &c->linear_k_dim) ||
        !get_int(s, "linear_value_head_dim", 1, 65536, 0, &c->linear_v_dim) ||
        !get_int(s, "linear_conv_kernel_dim", 2, 64, 0, &c->conv_kernel))
        return false;
    if (c->linear_v_heads % c->linear_k_heads)
        return err_set(s->e, ERR_FORMAT, "%s: %lld linear value heads can't share %lld key heads", s->what,
                       (long long)c->linear_v_heads, (long long)c->linear_k_heads);
    return true;
}

/* layer_types, or full_attention_interval where the list is absent. */
static bool read_layers(ckpt_config *c, const source *s) {
    bool *linear = ARENA_ARRAY(s->a, bool, (size_t)c->layers), any = false;
    c->linear_layer = linear;
    const json *types = lookup(s, "layer_types");
    if (types && types->kind != JSON_ARRAY) return wrong_kind(s, types->key, types, "an array");
    if (types && types->len != c->layers)
        return err_set(s->e, ERR_FORMAT, "%s: \"layer_types\" has %u entries for %lld layers", s->what,
                       types->len, (long long)c->layers);
    int64_t i = 0;
    JSON_EACH(t, types) {
        const char *kind = t->kind == JSON_STRING ? t->s : "?";
        linear[i] = !strcmp(kind, "linear_attention");
        if (!(linear[i] ? c->family->linear_layers : !strcmp(kind, "full_attention")))
            return refuse(s, "layer %lld is of type \"%.80s\": not supported", (long long)i, kind);
        any |= linear[i++];
    }
    if (!types && c->family->linear_layers) {
        int64_t every;
        if (!get_int(s, "full_attention_interval", 1, 4096, 4, &every)) return false;
        for (i = 0; i < c->layers; i++) any |= linear[i] = (i + 1) % every != 0;
    }
    return !any || read_linear_sizes(c, s);
}

/* A positive number of rope_scaling; usual 0: it must be there. */
static bool rope_number(const source *s, const json *o, const char *key, double usual, double *to) {
    const json *v = json_get(o, key);
    *to = usual;
    if (v && v->kind != JSON_NULL) return as_positive(s, v, to);
    return usual > 0 || missing(s, key);
}

static bool read_llama3(rope_config *r, const source *s, const json *o) {
    if (!rope_number(s, o, "factor", 0, &r->factor) ||
        !rope_number(s, o, "low_freq_factor", 0, &r->low_freq_factor) ||
        !rope_number(s, o, "high_freq_factor", 0, &r->high_freq_factor) ||
        !rope_number(s, o, "original_max_position_embeddings", 0, &r->original_max))
        return false;
    if (r->high_freq_factor <= r->low_freq_factor)
        return err_set(s->e, ERR_FORMAT, "%s: RoPE high_freq_factor %g is not above low_freq_factor %g",
                       s->what, r->high_freq_factor, r->low_freq_factor);
    return true;
}

/* 0.1 m ln(factor) + 1, for factors above 1. */
static double attention_of(double factor, double m) {
    return factor > 1 ? 0.1 * m * log(factor) + 1 : 1;
}

/* As transformers: max_position_embeddings is the context before where nothing else says it. */
static bool read_yarn(rope_config *r, const source *s, const json *o, int64_t max_position) {
    double m = 1, all = 1;
    const json *attention = json_get(o, "attention_factor"), *truncate = json_get(o, "truncate");
    if (!rope_number(s, o, "factor", 0, &r->factor) ||
        !rope_number(s, o, "original_max_position_embeddings", (double)max_position, &r->original_max) ||
        !rope_number(s, o, "beta_fast", 32, &r->beta_fast) ||
        !rope_number(s, o, "beta_slow", 1, &r->beta_slow))
        return false;
    if (r->beta_fast <= r->beta_slow)
        return err_set(s->e, ERR_FORMAT, "%s: RoPE beta_fast %g is not above beta_slow %g", s->what,
                       r->beta_fast, r->beta_slow);
    if (truncate && truncate->kind != JSON_BOOL)
        return wrong_kind(s, truncate->key, truncate, "true or false");
    r->truncate = !truncate || truncate->i;
    r->attention = attention_of(r->factor, 1);
    if (attention && attention->kind != JSON_NULL) return as_positive(s, attention, &r->attention);
    if (!json_get(o, "mscale") || !json_get(o, "mscale_all_dim")) return true;
    if (!rope_number(s, o, "mscale", 1, &m) || !rope_number(s, o, "mscale_all_dim", 1, &all)) return false;
    r->attention = attention_of(r->factor, m) / attention_of(r->factor, all);
    return true;
}

static bool read_scaling(ckpt_config *c, const source *s, const json *o) {
    rope_config *r = &c->rope;
    static const char *const names[] = {
        [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn"};
    const char *type = json_str(o, "rope_type", json_str(o, "type", "default"));
    r->attention = 1;
    int kind = 0;
    while (kind < ROPE_DIVISORS && strcmp(type, names[kind]) != 0) kind++;
    r->kind = (rope_kind)kind;
    switch (r->kind) {
    case ROPE_DEFAULT: return true;
    case ROPE_LINEAR: return rope_number(s, o, "factor", 0, &r->factor);
    case ROPE_LLAMA3: return read_llama3(r, s, o);
    case ROPE_YARN: return read_yarn(r, s, o, c->max_position);
    default:
        return refuse(s, "RoPE type \"%.80s\" is not supported (supported: default, linear, llama3, yarn)",
                      type);
    }
}

/* New spelling: rope_parameters {rope_type, rope_theta, partial_rotary_factor, ...}; old: rope_theta beside
 * rope_scaling {type or rope_type, ...}. */
static bool read_rope(ckpt_config *c, const source *s) {
    rope_config *r = &c->rope;
    const json *o = lookup(s, "rope_parameters");
    if (!o) o = lookup(s, "rope_scaling");
    if (o && o->kind != JSON_OBJECT) return wrong_kind(s, o->key, o, "an object");
    if (!read_scaling(c, s, o)) return false;

    const json *theta = json_get(o, "rope_theta"), *part = json_get(o, "partial_rotary_factor");
    if (!theta || theta->kind == JSON_NULL) theta = lookup(s, "rope_theta");
    if (!part || part->kind == JSON_NULL) part = lookup(s, "partial_rotary_factor");
    double factor = c->family->rotary_factor;
    r->theta = 10000;
    if ((theta && !as_positive(s, theta, &r->theta)) || (part && !as_positive(s, part, &factor)))
        return false;
    if (factor != c->family->rotary_factor && !c->family->partial_rotary)
        return refuse(s, "\"partial_rotary_factor\" is %g: not supported for model_type \"%s\"", factor,
                      c->model_type);
    r->dims = factor <= 1 ? (int64_t)((double)c->head_dim * factor) : 0;
    if (r->dims < 2 || r->dims % 2)
        return err_set(s->e, ERR_FORMAT, "%s: RoPE can't rotate %g of %lld head dimensions in pairs", s->what,
                       factor, (long long)c->head_dim);
    return true;
}

/* Adds the ids of one file's eos_token_id (an integer, a list, null or absent). */
static bool add_eos(ckpt_config *c, const source *s) {
    const json *v = lookup(s, "eos_token_id");
    if (!v) return true;
    size_t room = c->n_eos + (v->kind == JSON_ARRAY ? v->len : 1);
    int64_t *ids = ARENA_ARRAY(s->a, int64_t, room);
    if (c->n_eos) memcpy(ids, c->eos, c->n_eos * sizeof *ids);
    c->eos = ids;
    for (const json *id = v->kind == JSON_ARRAY ? v->child : v; id;
         id = v->kind == JSON_ARRAY ? id->next : NULL) {
        int64_t n = -1;
        if (!as_int(s, v->key, id, 0, INT32_MAX, &n)) return false;
        bool known = false;
        for (size_t i = 0; i < c->n_eos; i++) known |= ids[i] == n;
        if (!known) ids[c->n_eos++] = n;
    }
    return true;
}

bool config_parse(ckpt_config *c, arena *a, const char *what, const void *text, size_t n,
                  const ckpt_family *const *families, err *e) {
    *c = (ckpt_config){0};
    source s = {.a = a, .what = what, .e = e};
    s.top = s.text = json_parse(a, what, text, n, e);
    if (!s.top) return false;
    if (s.top->kind != JSON_OBJECT)
        return err_set(e, ERR_FORMAT, "%s: holds %s, expected an object", what, json_kind_name(s.top->kind));
    if (!read_kind(c, &s, families) || !read_sizes(c, &s) || !read_flags(c, &s) || !read_layers(c, &s) ||
        !read_rope(c, &s) || !add_eos(c, &s))
        return false;
    c->name = json_str(s.top, "_name_or_path", "");
    return true;
}

static bool read_generation_config(ckpt_config *c, arena *a, const char *dir, err *e) {
    const char *path = arena_printf(a, "%s/generation_config.json", dir);
    if (!file_exists(path)) return true;
    source s = {.a = a, .what = path, .e = e};
    s.top = s.text = json_object_file(a, path, e);
    return s.top && add_eos(c, &s);
}

bool config_read(ckpt_config *c, arena *a, const char *dir, const ckpt_family *const *families, err *e) {
    const char *path = arena_printf(a, "%s/config.json", dir);
    file_map m;
    if (!file_open_map(&m, path, e)) return false;
    bool ok = config_parse(c, a, path, m.data, m.size, families, e) && read_generation_config(c, a, dir, e);
    file_unmap(&m);
    if (ok && !*c->name) {
        size_t end = strlen(dir);
        while (end && dir[end - 1] == '/') end--;
        size_t start = end;
        while (start && dir[start - 1] != '/') start--;
        c->name = arena_strn(a, dir + start, end - start);
    }
    return ok;
}

bool ckpt_is_recurrent(const ckpt_config *c) {
    for (int64_t i = 0; i < c->layers; i++)
        if (c->linear_layer[i]) return true;
    return false;
}
