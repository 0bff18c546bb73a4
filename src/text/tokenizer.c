#include "text/tokenizer.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/map.h"
#include "text/added.h"
#include "text/detokenize.h"
#include "text/split.h"
#include "text/unicode.h"
#include <stdlib.h>
#include <string.h>

struct tokenizer {
    arena *a;
    bpe *model;
    split split;
    bool nfc, byte_decoder;
    added_token *added;
    size_t added_count;
    map *added_text, *added_id; /* text -> index, id (4 bytes) -> index */
    added_set raw, normalized;  /* searched before and after normalisation */
    int32_t limit;
    int32_t bos, eos[2];
    size_t eos_count;
    token_list before, after; /* what the template puts around a text */
};

/* ---- Reading ---- */

/* A reader of one tokenizer: t is what it becomes. */
typedef struct {
    tokenizer *t;
    const json *root, *config,
        *map; /* tokenizer.json; tokenizer_config.json and special_tokens_map.json or NULL */
    err *e;
} reader;

static bool is_null(const json *o) {
    return !o || o->kind == JSON_NULL;
}

static bool read_normalizer(reader *r, const json *o) {
    if (is_null(o)) return true;
    const char *type = json_str(o, "type", "");
    if (!strcmp(type, "Sequence")) {
        JSON_EACH(c, json_get_kind(o, "normalizers", JSON_ARRAY)) {
            if (!read_normalizer(r, c)) return false;
        }
        return true;
    }
    if (!strcmp(type, "NFC")) return r->t->nfc = true;
    return err_set(r->e, ERR_UNSUPPORTED, "normalizer \"%.40s\" is not supported (NFC is)", type);
}

static bool read_decoder(reader *r, const json *o) {
    if (is_null(o)) return true;
    const char *type = json_str(o, "type", "");
    if (!strcmp(type, "ByteLevel")) return r->t->byte_decoder = true;
    if (!strcmp(type, "Sequence")) {
        JSON_EACH(c, json_get_kind(o, "decoders", JSON_ARRAY)) {
            if (!read_decoder(r, c)) return false;
        }
        return true;
    }
    return err_set(r->e, ERR_UNSUPPORTED, "decoder \"%.40s\" is not supported (ByteLevel is)", type);
}

/* The ids of one {"SpecialToken": {"id": NAME}}, which the template's special_tokens explain. */
static bool read_template_token(reader *r, const json *template, const json *item, token_list *out) {
    const char *name = json_str(item, "id", "");
    const json *ids = json_get_kind(json_get(json_get(template, "special_tokens"), name), "ids", JSON_ARRAY);
    if (!ids) return err_set(r->e, ERR_FORMAT, "post_processor: its special_tokens lack \"%.60s\"", name);
    JSON_EACH(id, ids) {
        if (id->kind != JSON_INT || id->i < 0 || id->i >= TOKEN_LIMIT)
            return err_set(r->e, ERR_FORMAT, "post_processor: a token of \"%.60s\" has no valid id", name);
        if (!token_list_add(out, (int32_t)id->i, r->e)) return false;
    }
    return true;
}

static bool read_template(reader *r, const json *template) {
    token_list *out = &r->t->before;
    JSON_EACH(item, json_get_kind(template, "single", JSON_ARRAY)) {
        const json *special = json_get(item, "SpecialToken");
        if (special && !read_template_token(r, template, special, out)) return false;
        if (json_get(item, "Sequence")) out = &r->t->after;
    }
    return true;
}

static bool read_post_processor(reader *r, const json *o) {
    if (is_null(o)) return true;
    const char *type = json_str(o, "type", "");
    if (!strcmp(type, "ByteLevel")) return true; /* concerns offsets only */
    if (!strcmp(type, "TemplateProcessing")) return read_template(r, o);
    if (!strcmp(type, "Sequence")) {
        JSON_EACH(c, json_get_kind(o, "processors", JSON_ARRAY)) {
            if (!read_post_processor(r, c)) return false;
        }
        return true;
    }
    return err_set(r->e, ERR_UNSUPPORTED,
                   "post_processor \"%.40s\" is not supported (ByteLevel and TemplateProcessing are)", type);
}

static int32_t find_added(const tokenizer *t, const char *s, size_t n) {
    uint32_t i = map_get(t->added_text, s, n);
    return i == MAP_NONE ? -1 : (int32_t)i;
}

/* One added token. A text that is known already gets the new flags; a text of the vocabulary keeps its id
 * there. */
static bool add_token(reader *r, const json *entry, int64_t id) {
    tokenizer *t = r->t;
    added_token x = {0};
    if (!added_read(&x, entry, r->e)) return false;
    int32_t known = find_added(t, x.s, x.n), own = bpe_find(t->model, x.s, x.n);
    if (known >= 0) {
        added_token *old = &t->added[known];
        x.s = old->s, x.id = old->id;
        *old = x;
        return true;
    }
    size_t unused;
    if (own < 0 && (id < 0 || id >= TOKEN_LIMIT))
        return err_set(r->e, ERR_FORMAT, "an added token has no id in 0..%d", TOKEN_LIMIT - 1);
    x.id = own >= 0 ? own : (int32_t)id;
    x.s = arena_strn(t->a, x.s, x.n);
    char *key = arena_copy(t->a, &x.id, sizeof x.id);
    if (!map_add(t->added_id, key, sizeof x.id, (uint32_t)t->added_count) ||
        (own < 0 && bpe_bytes(t->model, x.id, &unused)))
        return err_set(r->e, ERR_FORMAT, "an added token has the id %d of another token", (int)x.id);
    map_add(t->added_text, x.s, x.n, (uint32_t)t->added_count);
    t->added[t->added_count++] = x;
    if (x.id >= t->limit) t->limit = x.id + 1;
    return true;
}

static bool read_added(reader *r) {
    tokenizer *t = r->t;
    const json *list = json_get_kind(r->root, "added_tokens", JSON_ARRAY);
    const json *more = json_get_kind(r->config, "added_tokens_decoder", JSON_OBJECT);
    size_t count = (list ? list->len : 0) + (size_t)(more ? more->len : 0);
    t->added = ARENA_ARRAY(t->a, added_token, count);
    t->added_text = map_new(t->a, count);
    t->added_id = map_new(t->a, count);
    JSON_EACH(entry, list) {
        if (!add_token(r, entry, json_int(entry, "id", -1))) return false;
    }
    JSON_EACH(entry, more) {
        int64_t id;
        if (!str_to_int64(entry->key, &id)) id = -1;
        if (!add_token(r, entry, id)) return err_where(r->e, "tokenizer_config.json");
    }
    for (size_t i = 0; i < t->added_count; i++)
        if (!added_finish(&t->added[i], t->a, t->nfc, r->e)) return false;
    added_index(&t->raw, t->a, t->added, t->added_count, false);
    added_index(&t->normalized, t->a, t->added, t->added_count, true);
    return true;
}

/* The id that a file gives to "eos_token" and the like: a text, or an object with a content. */
static int32_t named_token(const tokenizer *t, const json *file, const char *name) {
    const json *o = json_get(file, name);
    if (o && o->kind == JSON_OBJECT) o = json_get(o, "content");
    return o && o->kind == JSON_STRING ? tokenizer_find(t, o->s, o->len) : -1;
}

static void read_named(reader *r) {
    tokenizer *t = r->t;
    const json *files[] = {r->config, r->map};
    for (size_t i = 0; i < 2; i++) {
        if (t->bos < 0) t->bos = named_token(t, files[i], "bos_token");
        int32_t eos = named_token(t, files[i], "eos_token");
        if (eos >= 0 && !(t->eos_count && t->eos[0] == eos)) t->eos[t->eos_count++] = eos;
    }
}

static bool read_all(reader *r) {
    tokenizer *t = r->t;
    const json *model = json_get_kind(r->root, "model", JSON_OBJECT);
    if (!model) return err_set(r->e, ERR_FORMAT, "expected an object \"model\"");
    if (!read_normalizer(r, json_get(r->root, "normalizer")) ||
        !split_read(&t->split, json_get(r->root, "pre_tokenizer"), r->e) ||
        !read_decoder(r, json_get(r->root, "decoder")) ||
        !read_post_processor(r, json_get(r->root, "post_processor")))
        return false;
    t->model = bpe_read(t->a, model, t->split.byte_level, r->e);
    if (!t->model) return false;
    if (t->byte_decoder) bpe_decode_as_bytes(t->a, t->model);
    t->limit = bpe_limit(t->model);
    if (!read_added(r)) return false;
    read_named(r);
    return true;
}

static tokenizer *make(const char *what, const json *root, const json *config, const json *map_file, err *e) {
    tokenizer *t = mem_alloc(sizeof *t);
    *t = (tokenizer){.a = arena_new(), .bos = -1};
    reader r = {t, root, config, map_file, e};
    if (read_all(&r)) return t;
    err_where(e, "%s", what);
    tokenizer_free(t);
    return NULL;
}

tokenizer *tokenizer_load(const char *dir, err *e) {
    arena *tmp = arena_new();
    const char *path = arena_printf(tmp, "%s/tokenizer.json", dir),
               *paths[] = {"tokenizer_config.json", "special_tokens_map.json"};
    const json *root = json_parse_file(tmp, path, e), *more[2] = {NULL, NULL};
    for (size_t i = 0; root && i < 2 && e->code == ERR_NONE; i++) {
        const char *p = arena_printf(tmp, "%s/%s", dir, paths[i]);
        if (file_exists(p)) more[i] = json_object_file(tmp, p, e);
    }
    tokenizer *t = root && e->code == ERR_NONE ? make(path, root, more[0], more[1], e) : NULL;
    arena_free(tmp);
    return t;
}

tokenizer *tokenizer_load_memory(const void *text, size_t n, const void *config, size_t config_n, err *e) {
    arena *tmp = arena_new();
    const char *what = "tokenizer.json";
    const json *root = json_parse(tmp, what, text, n, e), *more = NULL;
    if (root && config) more = json_parse(tmp, "tokenizer_config.json", config, config_n, e);
    tokenizer *t = root && e->code == ERR_NONE ? make(what, root, more, NULL, e) : NULL;
    arena_free(tmp);
    return t;
}

void tokenizer_free(tokenizer *t) {
    if (!t) return;
    split_free(&t->split);
    token_list_free(&t->before);
    token_list_free(&t->after);
    arena_free(t->a);
    mem_free(t);
}

/* ---- Encoding ---- */

typedef struct {
    const tokenizer *t;
    bpe_scratch *scratch;
    token_list *out;
    str normal; /* a normalised part */
} encoder;

static bool encode_piece(void *ctx, const uint8_t *s, size_t n, err *e) {
    encoder *c = ctx;
    return bpe_encode(c->t->model, s, n, c->scratch, c->out, e);
}

static bool encode_text(encoder *c, const uint8_t *s, size_t n, err *e) {
    return split_text(&c->t->split, s, n, encode_piece, c, e);
}

static bool encode_part(encoder *c, const uint8_t *s, size_t n, bool plain, err *e);

/* Cuts s at the added tokens of one set; what is between goes to the next stage. */
static bool encode_around(encoder *c, const added_set *set, const uint8_t *s, size_t n, err *e) {
    bool raw = set == &c->t->raw;
    size_t from = 0, resume = 0, start, end;
    const added_token *x;
    while ((x = added_next(set, s, n, from, &resume, &start, &end))) {
        if (start > from && !(raw ? encode_part(c, s + from, start - from, false, e)
                                  : encode_text(c, s + from, start - from, e)))
            return false;
        if (!token_list_add(c->out, x->id, e)) return false;
        from = end;
    }
    return raw ? encode_part(c, s + from, n - from, false, e) : encode_text(c, s + from, n - from, e);
}

/* Text between (raw) added tokens: normalised, then searched for the others. */
static bool encode_part(encoder *c, const uint8_t *s, size_t n, bool plain, err *e) {
    if (c->t->nfc && !unicode_is_nfc(s, n)) {
        str_clear(&c->normal);
        if (!unicode_nfc(&c->normal, s, n, e)) return false;
        s = (const uint8_t *)c->normal.s;
        n = c->normal.len;
    }
    return plain ? encode_text(c, s, n, e) : encode_around(c, &c->t->normalized, s, n, e);
}

/* Parts of a text in which added tokens may be. */
typedef struct {
    const text_span *span;
    size_t count;
} span_list;

/* Cuts s[from..to) at those added tokens of one set that lie inside of a span; what is between is searched
 * for those of the other set. Those that are looked for in normalised text are looked for as they are: what
 * spans hold is the text of a template. */
static bool encode_spans(encoder *c, const added_set *set, const uint8_t *s, size_t from, size_t to,
                         span_list in, err *e);

/* Text between tokens of a set: to the other one, with the spans that reach into it. */
static bool encode_gap(encoder *c, const added_set *set, const uint8_t *s, size_t from, size_t to,
                       span_list in, err *e) {
    if (from >= to) return true;
    if (set == &c->t->raw && c->t->normalized.count)
        return encode_spans(c, &c->t->normalized, s, from, to, in, e);
    return encode_part(c, s + from, to - from, true, e);
}

static bool encode_spans(encoder *c, const added_set *set, const uint8_t *s, size_t from, size_t to,
                         span_list in, err *e) {
    size_t first = 0; /* spans in front of it end before from */
    for (size_t i = 0; i < in.count; i++) {
        size_t resume = in.span[i].start > from ? in.span[i].start : from, start, end;
        size_t stop = in.span[i].end < to ? in.span[i].end : to;
        const added_token *x;
        while (resume < stop && (x = added_next(set, s, stop, from, &resume, &start, &end))) {
            if (!encode_gap(c, set, s, from, start, (span_list){in.span + first, i + 1 - first}, e))
                return false;
            if (!token_list_add(c->out, x->id, e)) return false;
            from = end;
            while (first < i && in.span[first].end <= from) first++;
        }
    }
    if (first) in = (span_list){in.span + first, in.count - first};
    return encode_gap(c, set, s, from, to, in, e);
}

static bool add_all(token_list *out, const token_list *from, err *e) {
    for (size_t i = 0; i < from->n; i++)
        if (!token_list_add(out, from->ids[i], e)) return false;
    return true;
}

static bool check_text(const char *text, size_t n, err *e) {
    size_t valid = utf8_valid(text, n);
    return valid == n || err_set(e, ERR_FORMAT, "text to encode is not UTF-8 at byte %zu of %zu", valid, n);
}

bool tokenizer_encode(const tokenizer *t, const char *text, size_t n, unsigned flags, token_list *out,
                      err *e) {
    if (!check_text(text, n, e)) return false;
    const uint8_t *s = (const uint8_t *)text;
    encoder c = {.t = t, .scratch = bpe_scratch_new(), .out = out};
    bool ok = !(flags & TOKENIZER_TEMPLATE) || add_all(out, &t->before, e);
    if (ok)
        ok = flags & TOKENIZER_PLAIN ? encode_part(&c, s, n, true, e) : encode_around(&c, &t->raw, s, n, e);
    if (ok && flags & TOKENIZER_TEMPLATE) ok = add_all(out, &t->after, e);
    bpe_scratch_free(c.scratch);
    str_free(&c.normal);
    return ok;
}

bool tokenizer_encode_spans(const tokenizer *t, const char *text, size_t n, const text_span *spans,
                            size_t count, token_list *out, err *e) {
    if (!check_text(text, n, e)) return false;
    encoder c = {.t = t, .scratch = bpe_scratch_new(), .out = out};
    bool ok = encode_spans(&c, &t->raw, (const uint8_t *)text, 0, n, (span_list){spans, count}, e);
    bpe_scratch_free(c.scratch);
    str_free(&c.normal);
    return ok;
}

/* ---- Tokens ---- */

static const added_token *added_by_id(const tokenizer *t, int32_t id) {
    uint32_t i = map_get(t->added_id, (const char *)&id, sizeof id);
    return i == MAP_NONE ? NULL : &t->added[i];
}

const uint8_t *tokenizer_bytes(const tokenizer *t, int32_t id, size_t *n) {
    const added_token *x = added_by_id(t, id);
    if (!x) return bpe_bytes(t->model, id, n);
    *n = x->byte_count;
    return x->bytes;
}

int32_t tokenizer_find(const tokenizer *t, const char *text, size_t n) {
    int32_t i = find_added(t, text, n);
    return i >= 0 ? t->added[i].id : bpe_find(t->model, text, n);
}

int32_t tokenizer_limit(const tokenizer *t) {
    return t->limit;
}

bool tokenizer_is_added(const tokenizer *t, int32_t id) {
    return added_by_id(t, id) != NULL;
}

bool tokenizer_is_special(const tokenizer *t, int32_t id) {
    const added_token *x = added_by_id(t, id);
    return x && x->special;
}

const int32_t *tokenizer_eos(const tokenizer *t, size_t *n) {
    *n = t->eos_count;
    return t->eos;
}

int32_t tokenizer_bos(const tokenizer *t) {
    return t->bos;
}

void tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special, str *out) {
    detokenizer d;
    detokenizer_begin(&d, t, skip_special);
    for (size_t i = 0; i < n; i++) detokenizer_push(&d, ids[i], out);
    detokenizer_flush(&d, out);
}
