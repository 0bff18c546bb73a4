/* The tokenizer in a GGUF file's metadata, written as a Hugging Face tokenizer.json and
 * tokenizer_config.json. */
#include "base/map.h"
#include "checkpoint/gguf_set.h"
#include <inttypes.h>
#include <string.h>

typedef struct {
    const char *names, *regex;
    bool normalize, ignore_merges, bos;
} pretokenizer;

#define DIGITS "digits"
static const pretokenizer pretokenizers[] = {
#define PRE(...) {__VA_ARGS__},
#include "checkpoint/pretokenizers.def"
};

/* tokenizer.ggml.token_type. Unused ones fill the vocabulary up to the table's rows. */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED };

typedef struct {
    const char *s;
    size_t n;
    int64_t type;
} token;

typedef struct {
    const gguf_set *s;
    arena *a;
    const pretokenizer *pre;
    token *token;
    size_t n;
    int64_t bos, eos, pad; /* -1: none */
    bool add_bos, add_eos;
    str *out;
    err *e;
} writer;

static const gguf_value *get(const writer *w, const char *key) {
    return gguf_set_get(w->s, arena_printf(w->a, "tokenizer.ggml.%s", key));
}

static bool wrong(const writer *w, const char *key, const char *expected) {
    return err_set(w->e, ERR_FORMAT, "%s: metadata tokenizer.ggml.%s is not %s", w->s->path, key, expected);
}

/* --- reading --- */

/* Whether name is one of the words of list. */
static bool lists(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == n && !strncmp(p, name, n)) return n > 0;
    return false;
}

static bool find_pretokenizer(writer *w) {
    const char *name = gguf_text(w->a, get(w, "pre")), *known = "";
    if (!name) return wrong(w, "pre", "the name of a pre-tokenizer");
    for (size_t i = 0; i < sizeof pretokenizers / sizeof *pretokenizers; i++) {
        if (lists(pretokenizers[i].names, name)) w->pre = &pretokenizers[i];
        known = arena_printf(w->a, "%s%s%s", known, *known ? " " : "", pretokenizers[i].names);
    }
    return w->pre ||
           err_set(w->e, ERR_UNSUPPORTED,
                   "%s: pre-tokenizer \"%.80s\" is not supported (supported: %s): give the directory of the "
                   "model's tokenizer.json as tokenizer",
                   w->s->path, name, known);
}

static bool read_tokens(writer *w) {
    const gguf_value *list = get(w, "tokens"), *types = get(w, "token_type");
    gguf_strings it = gguf_strings_of(list);
    if (!list || !list->array || list->kind != GGUF_STRING || list->n > INT32_MAX)
        return wrong(w, "tokens", "an array of strings");
    if (types && (!types->array || types->n != list->n))
        return wrong(w, "token_type", "a number for each token");
    w->token = ARENA_ARRAY(w->a, token, (size_t)list->n);
    for (token *t = w->token; gguf_next(&it, &t->s, &t->n); t++, w->n++) {
        t->type = TYPE_NORMAL;
        if (types && !gguf_int(types, w->n, &t->type))
            return wrong(w, "token_type", "a number for each token");
        if (utf8_valid(t->s, t->n) < t->n)
            return err_set(w->e, ERR_FORMAT, "%s: metadata tokenizer.ggml.tokens: token %zu is not UTF-8",
                           w->s->path, w->n);
    }
    return true;
}

static bool read_id(const writer *w, const char *key, int64_t *id) {
    const gguf_value *v = get(w, key);
    *id = -1;
    if (!v) return true;
    if (v->array || !gguf_int(v, 0, id)) return wrong(w, key, "a token id");
    if (*id < 0 || *id >= (int64_t)w->n) *id = -1; /* what some writers put for none */
    return true;
}

static bool read_flag(const writer *w, const char *key, bool fallback, bool *out) {
    const gguf_value *v = get(w, key);
    int64_t n = fallback;
    if (v && (v->array || v->kind != GGUF_BOOL || !gguf_int(v, 0, &n))) return wrong(w, key, "true or false");
    *out = n != 0;
    return true;
}

/* --- writing --- */

static void put_text(str *out, const token *t) {
    str_json_string(out, t->s, t->n);
}

static void put_added(const writer *w) {
    bool any = false;
    str_adds(w->out, "\"added_tokens\":[");
    for (size_t i = 0; i < w->n; i++) {
        const token *t = &w->token[i];
        if (t->type != TYPE_CONTROL && t->type != TYPE_USER) continue;
        str_printf(w->out, "%s\n{\"id\":%zu,\"content\":", any ? "," : "", i);
        put_text(w->out, t);
        str_printf(
            w->out,
            ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}",
            t->type == TYPE_CONTROL ? "true" : "false");
        any = true;
    }
    str_adds(w->out, "],\n");
}

static void put_byte_level(str *out, bool regex) {
    str_printf(out,
               "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":%s}",
               regex ? "true" : "false");
}

static void put_pretokenizer(const writer *w) {
    const pretokenizer *p = w->pre;
    bool digits = p->regex && !strcmp(p->regex, DIGITS);
    str_printf(w->out,
               "\"normalizer\":%s,\n\"pre_tokenizer\":", p->normalize ? "{\"type\":\"NFC\"}" : "null");
    if (p->regex) str_adds(w->out, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    if (digits) {
        str_adds(w->out, "{\"type\":\"Digits\",\"individual_digits\":true},");
    } else if (p->regex) {
        str_adds(w->out, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        str_json_string(w->out, p->regex, strlen(p->regex));
        str_adds(w->out, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    put_byte_level(w->out, digits || !p->regex);
    str_adds(w->out, p->regex ? "]},\n" : ",\n");
}

/* The tokens put around a text, with the text itself between them; of a pair: around both. */
static void put_template(const writer *w, const char *key, const char *parts) {
    bool any = false;
    str_printf(w->out, "\"%s\":[", key);
    for (const char *p = parts; *p; p++) {
        bool bos = *p == '<', eos = *p == '>';
        if ((bos && !w->add_bos) || (eos && !w->add_eos)) continue;
        if (any) str_addc(w->out, ',');
        any = true;
        if (!bos && !eos) {
            str_printf(w->out, "{\"Sequence\":{\"id\":\"%c\",\"type_id\":0}}", *p);
            continue;
        }
        str_adds(w->out, "{\"SpecialToken\":{\"id\":");
        put_text(w->out, &w->token[bos ? w->bos : w->eos]);
        str_adds(w->out, ",\"type_id\":0}}");
    }
    str_adds(w->out, "],");
}

static void put_special(const writer *w, int64_t id) {
    const token *t = &w->token[id];
    put_text(w->out, t);
    str_adds(w->out, ":{\"id\":");
    put_text(w->out, t);
    str_printf(w->out, ",\"ids\":[%" PRId64 "],\"tokens\":[", id);
    put_text(w->out, t);
    str_adds(w->out, "]}");
}

static void put_post_processor(const writer *w) {
    str_adds(w->out, "\"post_processor\":");
    if (!w->add_bos && !w->add_eos) {
        str_adds(w->out, "null,\n");
        return;
    }
    str_adds(w->out, "{\"type\":\"TemplateProcessing\",");
    put_template(w, "single", "<A>");
    put_template(w, "pair", "<A><B>");
    str_adds(w->out, "\"special_tokens\":{");
    if (w->add_bos) put_special(w, w->bos);
    if (w->add_eos && !(w->add_bos && w->bos == w->eos)) {
        if (w->add_bos) str_addc(w->out, ',');
        put_special(w, w->eos);
    }
    str_adds(w->out, "}},\n");
}

static bool put_vocabulary(const writer *w) {
    map *seen = map_new(w->a, w->n);
    str_adds(w->out, "\"vocab\":{");
    for (size_t i = 0; i < w->n; i++) {
        const token *t = &w->token[i];
        if (t->type == TYPE_CONTROL || t->type == TYPE_USER || t->type == TYPE_UNUSED) continue;
        if (!map_add(seen, t->s, t->n, (uint32_t)i))
            return err_set(w->e, ERR_FORMAT,
                           "%s: metadata tokenizer.ggml.tokens: tokens %" PRIu32 " and %zu are the same",
                           w->s->path, map_get(seen, t->s, t->n), i);
        str_adds(w->out, map_count(seen) > 1 ? ",\n" : "\n");
        put_text(w->out, t);
        str_printf(w->out, ":%zu", i);
    }
    str_adds(w->out, "},\n");
    return true;
}

static bool put_merges(const writer *w) {
    const gguf_value *list = get(w, "merges");
    gguf_strings it = gguf_strings_of(list);
    const char *s;
    size_t n, count = 0;
    if (!list || !list->array || list->kind != GGUF_STRING) return wrong(w, "merges", "an array of strings");
    str_adds(w->out, "\"merges\":[");
    for (; gguf_next(&it, &s, &n); count++) {
        if (utf8_valid(s, n) < n)
            return err_set(w->e, ERR_FORMAT, "%s: metadata tokenizer.ggml.merges: merge %zu is not UTF-8",
                           w->s->path, count);
        str_adds(w->out, count ? ",\n" : "\n");
        str_json_string(w->out, s, n);
    }
    str_addc(w->out, ']');
    return true;
}

static bool put_tokenizer(const writer *w) {
    str_adds(w->out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n");
    put_added(w);
    put_pretokenizer(w);
    put_post_processor(w);
    str_adds(w->out, "\"decoder\":");
    put_byte_level(w->out, true);
    str_printf(
        w->out,
        ",\n\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":"
        "null,"
        "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%s,\n",
        w->pre->ignore_merges ? "true" : "false");
    if (!put_vocabulary(w) || !put_merges(w)) return false;
    str_adds(w->out, "}}\n");
    return true;
}

static bool put_config(const writer *w) {
    const struct {
        const char *key;
        int64_t id;
    } named[] = {{"bos_token", w->bos}, {"eos_token", w->eos}, {"pad_token", w->pad}};
    const gguf_value *v = gguf_set_get(w->s, "tokenizer.chat_template");
    const char *template = gguf_text(w->a, v);
    if (v && !template)
        return err_set(w->e, ERR_FORMAT, "%s: metadata tokenizer.chat_template is no text", w->s->path);
    str_printf(w->out, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"add_bos_token\": %s",
               w->add_bos ? "true" : "false");
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (named[i].id < 0) continue;
        str_printf(w->out, ",\n  \"%s\": ", named[i].key);
        put_text(w->out, &w->token[named[i].id]);
    }
    if (template) {
        str_adds(w->out, ",\n  \"chat_template\": ");
        str_json_string(w->out, template, strlen(template));
    }
    str_adds(w->out, "\n}\n");
    return true;
}

static bool read_all(writer *w) {
    if (!find_pretokenizer(w) || !read_tokens(w) || !read_id(w, "bos_token_id", &w->bos) ||
        !read_id(w, "eos_token_id", &w->eos) || !read_id(w, "padding_token_id", &w->pad) ||
        !read_flag(w, "add_bos_token", w->pre->bos, &w->add_bos) ||
        !read_flag(w, "add_eos_token", false, &w->add_eos))
        return false;
    w->add_bos = w->add_bos && w->bos >= 0;
    w->add_eos = w->add_eos && w->eos >= 0;
    return true;
}

bool gguf_tokenizer(str *tokenizer, str *config, const gguf_set *s, err *e) {
    writer w = {.s = s, .a = arena_new(), .out = tokenizer, .e = e};
    const gguf_value *v = get(&w, "model");
    const char *model = v ? gguf_text(w.a, v) : "none";
    bool ok = model || wrong(&w, "model", "a text"),
         any = ok && strcmp(model, "none") && strcmp(model, "no_vocab");
    if (any && strcmp(model, "gpt2"))
        ok = err_set(e, ERR_UNSUPPORTED,
                     "%s: tokenizer \"%.80s\" is not supported (gpt2, which is byte-level BPE, is): give the "
                     "directory of "
                     "another one's tokenizer.json as tokenizer",
                     s->path, model);
    ok = ok && (!any || (read_all(&w) && put_tokenizer(&w)));
    w.out = config;
    ok = ok && (!any || put_config(&w));
    arena_free(w.a);
    return ok;
}
