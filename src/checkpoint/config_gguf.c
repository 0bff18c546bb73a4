/* The metadata of a GGUF file as a configuration: written down as the config.json that says the same, and
 * read as such, so that one reader knows what is supported. */
#include "checkpoint/gguf_set.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const int64_t MOST = INT64_C(1) << 40;

typedef struct {
    const gguf_set *s;
    const ckpt_family *family;
    arena *a;
    str *out;
    err *e;
} writer;

/* NULL when absent. key is below the architecture's name. */
static const gguf_value *get(const writer *w, const char *key) {
    return gguf_set_get(w->s, arena_printf(w->a, "%s.%s", w->family->gguf, key));
}

static bool wrong(const writer *w, const gguf_value *v, const char *expected) {
    return err_set(w->e, ERR_FORMAT, "%s: metadata %s is not %s", w->s->path, v->key, expected);
}

static bool missing(const writer *w, const char *key) {
    return err_set(w->e, ERR_FORMAT, "%s: metadata %s.%s is missing", w->s->path, w->family->gguf, key);
}

/* A whole number; an array counts when its elements are all the same. fallback where it is absent; -1: it
 * must be there. */
static bool whole(const writer *w, const char *key, int64_t fallback, int64_t *out) {
    const gguf_value *v = get(w, key);
    *out = fallback;
    if (!v) return fallback >= 0 || missing(w, key);
    for (uint64_t i = 0; i < v->n; i++) {
        int64_t n;
        if (!gguf_int(v, i, &n) || n < 0 || n > MOST)
            return wrong(w, v, arena_printf(w->a, "a whole number up to %" PRId64, MOST));
        if (i && n != *out)
            return err_set(w->e, ERR_UNSUPPORTED, "%s: metadata %s differs between layers: not supported",
                           w->s->path, v->key);
        *out = n;
    }
    return v->n || wrong(w, v, "a whole number");
}

static bool real(const writer *w, const char *key, double fallback, double *out) {
    const gguf_value *v = get(w, key);
    *out = fallback;
    if (!v) return !isnan(fallback) || missing(w, key);
    return (!v->array && gguf_number(v, 0, out)) || wrong(w, v, "a number");
}

static void put_int(const writer *w, const char *key, int64_t v) {
    str_printf(w->out, "\"%s\":%" PRId64 ",", key, v);
}

static void put_real(const writer *w, const char *key, double v) {
    str_printf(w->out, "\"%s\":", key);
    str_json_double(w->out, v);
    str_addc(w->out, ',');
}

static void put_bool(const writer *w, const char *key, bool v) {
    str_printf(w->out, "\"%s\":%s,", key, v ? "true" : "false");
}

static bool put_sizes(const writer *w) {
    static const struct {
        const char *from, *to;
    } rows[] = {{"embedding_length", "hidden_size"},
                {"feed_forward_length", "intermediate_size"},
                {"attention.head_count", "num_attention_heads"},
                {"context_length", "max_position_embeddings"}};
    int64_t v, heads, hidden;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!whole(w, rows[i].from, -1, &v)) return false;
        put_int(w, rows[i].to, v);
    }
    if (!whole(w, "attention.head_count", -1, &heads) || !whole(w, "embedding_length", -1, &hidden) ||
        !whole(w, "attention.head_count_kv", heads, &v))
        return false;
    put_int(w, "num_key_value_heads", v);
    int64_t usual = heads > 0 && hidden % heads == 0 ? hidden / heads : 0, length;
    if (!whole(w, "attention.key_length", usual, &v) || !whole(w, "attention.value_length", v, &length))
        return false;
    if (length != v)
        return err_set(w->e, ERR_UNSUPPORTED,
                       "%s: keys of %" PRId64 " and values of %" PRId64 ": not supported", w->s->path, v,
                       length);
    put_int(w, "head_dim", v);
    return true;
}

/* Layers behind the model's own predict further tokens. */
static bool put_layers(const writer *w, int64_t *layers) {
    int64_t more, experts;
    if (!whole(w, "block_count", -1, layers) || !whole(w, "nextn_predict_layers", 0, &more) ||
        !whole(w, "expert_count", 0, &experts))
        return false;
    *layers -= more > 0 ? more : 0;
    put_int(w, "num_hidden_layers", *layers);
    put_int(w, "mtp_num_hidden_layers", more);
    if (experts) put_int(w, "num_experts", experts);
    return true;
}

static bool put_linear(const writer *w, int64_t layers) {
    static const struct {
        const char *from, *to;
    } rows[] = {{"ssm.conv_kernel", "linear_conv_kernel_dim"},
                {"ssm.state_size", "linear_key_head_dim"},
                {"ssm.group_count", "linear_num_key_heads"},
                {"ssm.time_step_rank", "linear_num_value_heads"}};
    int64_t v = 0, inner;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!whole(w, rows[i].from, -1, &v)) return false;
        put_int(w, rows[i].to, v);
    }
    if (!whole(w, "ssm.inner_size", -1, &inner)) return false;
    put_int(w, "linear_value_head_dim", v > 0 && inner % v == 0 ? inner / v : 0);
    const gguf_value *kinds = get(w, "attention.recurrent_layers");
    if (!kinds) {
        if (!whole(w, "full_attention_interval", 4, &v)) return false;
        put_int(w, "full_attention_interval", v);
        return true;
    }
    if (kinds->kind != GGUF_BOOL || (int64_t)kinds->n < layers)
        return wrong(w, kinds, "a bool for each layer");
    str_adds(w->out, "\"layer_types\":[");
    for (int64_t i = 0, linear; i < layers && gguf_int(kinds, (uint64_t)i, &linear); i++)
        str_printf(w->out, "%s\"%s\"", i ? "," : "", linear ? "linear_attention" : "full_attention");
    str_adds(w->out, "],");
    return true;
}

/* YaRN as transformers has it by default; files whose numbers say otherwise are refused. */
static bool put_yarn(const writer *w, double factor) {
    static const struct {
        const char *key;
        double usual;
    } keys[] = {{"rope.scaling.attn_factor", 1},      {"rope.scaling.yarn_ext_factor", 1},
                {"rope.scaling.yarn_attn_factor", 1}, {"rope.scaling.yarn_beta_fast", 32},
                {"rope.scaling.yarn_beta_slow", 1},   {"rope.scaling.yarn_log_multiplier", 0}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double x;
        if (!real(w, keys[i].key, keys[i].usual, &x)) return false;
        if (x != keys[i].usual)
            return err_set(w->e, ERR_UNSUPPORTED,
                           "%s: metadata %s.%s is %g: RoPE scaling with %g is supported", w->s->path,
                           w->family->gguf, keys[i].key, x, keys[i].usual);
    }
    int64_t original;
    if (!whole(w, "rope.scaling.original_context_length", -1, &original)) return false;
    str_adds(w->out, "\"rope_scaling\":{\"rope_type\":\"yarn\",");
    put_real(w, "factor", factor);
    put_int(w, "original_max_position_embeddings", original);
    w->out->s[w->out->len - 1] = '}';
    str_addc(w->out, ',');
    return true;
}

/* Before there was rope.scaling.type, rope.scale_linear had the factor. */
static bool put_scaling(const writer *w) {
    const gguf_value *v = get(w, "rope.scaling.type");
    const char *type = v ? gguf_text(w->a, v) : "linear";
    double factor;
    if (!type) return wrong(w, v, "a text");
    if (!real(w, "rope.scale_linear", 1, &factor) || !real(w, "rope.scaling.factor", factor, &factor))
        return false;
    if (!strcmp(type, "none")) return true;
    if (!strcmp(type, "yarn")) return put_yarn(w, factor);
    if (strcmp(type, "linear") != 0)
        return err_set(w->e, ERR_UNSUPPORTED,
                       "%s: RoPE scaling \"%.80s\" is not supported (supported: linear, yarn)", w->s->path,
                       type);
    if (factor == 1) return true;
    str_adds(w->out, "\"rope_scaling\":{\"rope_type\":\"linear\",");
    put_real(w, "factor", factor);
    w->out->s[w->out->len - 1] = '}';
    str_addc(w->out, ',');
    return true;
}

static bool put_rope(const writer *w) {
    double base;
    int64_t head, turned, usual;
    if (!real(w, "rope.freq_base", 10000, &base) || !put_scaling(w)) return false;
    put_real(w, "rope_theta", base);
    if (!whole(w, "embedding_length", -1, &usual) || !whole(w, "attention.head_count", -1, &head))
        return false;
    usual = head > 0 ? usual / head : 0;
    if (!whole(w, "attention.key_length", usual, &head)) return false;
    if (!whole(w, "rope.dimension_count", head, &turned)) return false;
    if (head > 0) put_real(w, "partial_rotary_factor", (double)turned / (double)head);
    return true;
}

/* The ids that end a text or a turn. */
static bool put_eos(const writer *w) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    bool any = false;
    str_adds(w->out, "\"eos_token_id\":[");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const gguf_value *v = gguf_set_get(w->s, keys[i]);
        int64_t id;
        if (!v) continue;
        if (v->array || !gguf_int(v, 0, &id)) return wrong(w, v, "a token id");
        if (id == UINT32_MAX || id == -1) continue; /* what some writers put for none */
        str_printf(w->out, "%s%" PRId64, any ? "," : "", id);
        any = true;
    }
    str_adds(w->out, "],");
    return true;
}

static bool put_all(const writer *w) {
    const gguf_tensor *table = gguf_set_find(w->s, "token_embd.weight");
    double eps;
    int64_t layers;
    if (!table || table->type.rank != 2)
        return err_set(w->e, ERR_FORMAT, "%s: there is no tensor token_embd.weight of two axes", w->s->path);
    const char *type = w->family->gguf_model_type;
    str_printf(w->out, "{\"model_type\":\"%s\",", type ? type : w->family->model_type[0]);
    put_int(w, "vocab_size", table->type.dim[0]);
    put_bool(w, "tie_word_embeddings", !gguf_set_find(w->s, "output.weight"));
    put_bool(w, "attention_bias", gguf_set_find(w->s, "blk.0.attn_q.bias"));
    put_bool(w, "mlp_bias", gguf_set_find(w->s, "blk.0.ffn_up.bias"));
    if (!put_layers(w, &layers) || !put_sizes(w) || (w->family->linear_layers && !put_linear(w, layers)) ||
        !put_rope(w) || !put_eos(w) || !real(w, "attention.layer_norm_rms_epsilon", NAN, &eps))
        return false;
    put_real(w, "rms_norm_eps", eps);
    str_adds(w->out, "\"hidden_act\":\"silu\"}");
    return true;
}

static const ckpt_family *find_family(const gguf_set *s, arena *a, const ckpt_family *const *families,
                                      err *e) {
    const char *name = gguf_text(a, gguf_set_get(s, "general.architecture")), *known = "";
    if (!name) {
        err_set(e, ERR_FORMAT, "%s: metadata general.architecture is missing or no text", s->path);
        return NULL;
    }
    for (; *families; families++) {
        if (!(*families)->gguf) continue;
        if (!strcmp((*families)->gguf, name)) return *families;
        known = arena_printf(a, "%s%s%s", known, *known ? ", " : "", (*families)->gguf);
    }
    err_set(e, ERR_UNSUPPORTED, "%s: architecture \"%.80s\" is not supported (supported: %s)", s->path, name,
            known);
    return NULL;
}

/* Divisors of the angles' frequencies, for models that stretch some of them. */
static bool read_divisors(ckpt_config *c, arena *a, const gguf_set *s, err *e) {
    const gguf_tensor *t = gguf_set_find(s, "rope_freqs.weight");
    if (!t) return true;
    if (c->rope.kind != ROPE_DEFAULT)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: RoPE scaling beside tensor rope_freqs.weight is not supported", s->path);
    if (t->type.rank != 1 || t->type.dim[0] != c->rope.dims / 2 || t->form->plain != DT_FP32)
        return err_set(e, ERR_FORMAT, "%s: tensor rope_freqs.weight is not F32 [%" PRId64 "]", s->path,
                       c->rope.dims / 2);
    float *divisor = ARENA_ARRAY(a, float, (size_t)t->type.dim[0]);
    memcpy(divisor, t->data, (size_t)t->bytes);
    for (int64_t i = 0; i < t->type.dim[0]; i++)
        if (!(divisor[i] > 0) || isinf(divisor[i]))
            return err_set(e, ERR_FORMAT, "%s: tensor rope_freqs.weight holds %g", s->path,
                           (double)divisor[i]);
    c->rope.kind = ROPE_DIVISORS;
    c->rope.divisor = divisor;
    return true;
}

bool gguf_config(ckpt_config *c, arena *a, const gguf_set *s, const ckpt_family *const *families, err *e) {
    str text = {0};
    writer w = {s, find_family(s, a, families, e), a, &text, e};
    bool ok = w.family && put_all(&w) && config_parse(c, a, s->path, text.s, text.len, families, e) &&
              read_divisors(c, a, s, e);
    str_free(&text);
    return ok;
}
