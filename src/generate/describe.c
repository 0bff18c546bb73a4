#include "generate/describe.h"
#include "base/file.h"
#include "base/json.h"
#include "generate/pattern.h"
#include <math.h>
#include <string.h>

static const struct {
    const char *word;
    bool in, out;
} meanings[] = {
#define X(e, word, in, out) {word, in, out},
    MEANINGS(X)
#undef X
};

/* A description being read; at: the field, as errors name it. */
typedef struct {
    arena *a;
    description *d;
    err *e;
} reader;

static bool wrong(const reader *r, const char *at, const char *expected) {
    return err_set(r->e, ERR_FORMAT, "%s: %s: expected %s", r->d->what, at, expected);
}

static const char *below(const reader *r, const char *at, const char *key) {
    return *at ? arena_printf(r->a, "%s.%s", at, key) : arena_str(r->a, key);
}

/* Every member of o is one of these words, which are separated by spaces. */
static bool only(const reader *r, const json *o, const char *at, const char *known) {
    JSON_EACH(m, o) {
        const char *p = known;
        size_t n = strlen(m->key);
        for (; *p; p += strcspn(p, " "), p += *p == ' ')
            if (strcspn(p, " ") == n && !strncmp(p, m->key, n)) break;
        if (!*p || !n) return wrong(r, below(r, at, m->key), arena_printf(r->a, "one of %s", known));
    }
    return true;
}

/* Member key of o, NULL when it is absent; *ok false when it has another kind. */
static const json *member(const reader *r, const json *o, const char *at, const char *key, json_kind kind,
                          const char *expected, bool *ok) {
    const json *v = json_get(o, key);
    if (!v || v->kind == kind) return v;
    *ok = wrong(r, below(r, at, key), expected);
    return NULL;
}

static const char *text(const reader *r, const json *o, const char *at, const char *key, bool *ok) {
    const json *v = member(r, o, at, key, JSON_STRING, "a text", ok);
    if (v && (!v->len || strlen(v->s) != v->len))
        *ok = wrong(r, below(r, at, key), "a text that is not empty");
    return v ? v->s : NULL;
}

static bool flag(const reader *r, const json *o, const char *at, const char *key, bool fallback, bool *ok) {
    const json *v = member(r, o, at, key, JSON_BOOL, "true or false", ok);
    return v ? v->i != 0 : fallback;
}

/* A list of texts. */
static bool names(const reader *r, const json *o, const char *at, const char *key, bool patterns,
                  describe_names *to) {
    bool ok = true;
    const json *v = member(r, o, at, key, JSON_ARRAY, "a list of texts", &ok);
    if (!v) return ok;
    const char **s = ARENA_ARRAY(r->a, const char *, v->len + 1);
    to->s = s;
    JSON_EACH(x, v) {
        if (x->kind != JSON_STRING || !x->len || strlen(x->s) != x->len)
            return wrong(r, below(r, at, key), "a list of texts that are not empty");
        if (patterns && !pattern_valid(x->s))
            return wrong(r, below(r, at, key), "names with * {i} {n} {a} only, at most four *");
        s[to->n++] = x->s;
    }
    return to->n || wrong(r, below(r, at, key), "at least one text");
}

/* Index of the word in a list that ends with NULL. */
static bool choice(const reader *r, const json *o, const char *at, const char *key, const char *const *words,
                   int *to) {
    bool ok = true;
    const char *s = text(r, o, at, key, &ok);
    if (!s) return ok;
    str all = {0};
    for (int i = 0; words[i]; i++) {
        if (!strcmp(words[i], s)) {
            *to = i;
            str_free(&all);
            return ok;
        }
        str_printf(&all, "%s%s", i ? ", " : "one of ", words[i]);
    }
    wrong(r, below(r, at, key), str_get(&all));
    str_free(&all);
    return false;
}

/* Files and directories lie in the set's directory. */
static bool inside(const reader *r, const char *at, const char *path) {
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        if (!n || (n == 2 && !strncmp(p, "..", 2))) return wrong(r, at, "a relative path without .. parts");
        p += n;
        if (!*p) return true;
    }
}

/* A value: a number, or a list of numbers and "FILE:KEY.KEY". */
static bool value(const reader *r, const json *o, const char *at, const char *key, const json **to) {
    static const char expected[] = "a number, or a list of numbers and \"FILE:KEY.KEY\"";
    const json *v = *to = json_get(o, key);
    if (!v || v->kind == JSON_INT || v->kind == JSON_REAL) return true;
    if (v->kind != JSON_ARRAY) return wrong(r, below(r, at, key), expected);
    JSON_EACH(x, v) {
        if (x->kind == JSON_INT || x->kind == JSON_REAL) continue;
        const char *colon = x->kind == JSON_STRING && strlen(x->s) == x->len ? strchr(x->s, ':') : NULL;
        if (!colon || !colon[1]) return wrong(r, below(r, at, key), expected);
        if (!inside(r, below(r, at, key), arena_strn(r->a, x->s, (size_t)(colon - x->s)))) return false;
    }
    return true;
}

/* ---- inputs and outputs ---- */

static bool read_shape(const reader *r, const json *o, const char *at, describe_feature *f) {
    static const char expected[] = "a list of sizes and of T, K, h, V, * (1 to 5 of them)";
    const json *v = json_get_kind(o, "shape", JSON_ARRAY);
    const char *here = below(r, at, "shape");
    if (!v || !v->len || v->len > 5) return wrong(r, here, expected);
    JSON_EACH(x, v) {
        describe_size *d = &f->dim[f->rank++];
        if (x->kind == JSON_INT && x->i > 0 && x->i <= INT32_MAX)
            d->size = x->i;
        else if (x->kind == JSON_STRING && x->len == 1 && strchr("TKhV*", x->s[0]))
            d->letter = x->s[0];
        else
            return wrong(r, here, expected);
        for (int k = 0; d->letter && d->letter != '*' && k < f->rank - 1; k++)
            if (f->dim[k].letter == d->letter) return wrong(r, here, "each letter at most once");
    }
    return true;
}

static bool has(const describe_feature *f, char letter) {
    for (int i = 0; i < f->rank; i++)
        if (f->dim[i].letter == letter) return true;
    return false;
}

/* The letters without which a meaning makes no sense. */
static bool check_shape(const reader *r, const char *at, const describe_feature *f) {
    static const char *const need[MEANS_COUNT] = {
        [MEANS_TOKENS] = "T",      [MEANS_HIDDEN] = "h",      [MEANS_POSITIONS] = "T",
        [MEANS_CAUSAL_MASK] = "K", [MEANS_UPDATE_MASK] = "K", [MEANS_SEEN] = "K",
        [MEANS_LOGITS] = "V",      [MEANS_TOP_VALUES] = "V",  [MEANS_TOP_IDS] = "V"};
    if (need[f->is] && !has(f, need[f->is][0]))
        return wrong(r, below(r, at, "shape"),
                     arena_printf(r->a, "a size %s for %s", need[f->is], meanings[f->is].word));
    return true;
}

static bool read_meaning(const reader *r, const json *o, const char *at, bool is_input, describe_feature *f) {
    bool ok = true;
    const char *word = text(r, o, at, "is", &ok);
    int i = 0;
    while (word && i < MEANS_COUNT &&
           (strcmp(meanings[i].word, word) || !(is_input ? meanings[i].in : meanings[i].out)))
        i++;
    if (word && i < MEANS_COUNT) {
        f->is = (meaning)i;
        return ok;
    }
    str all = {0};
    for (i = 0; i < MEANS_COUNT; i++)
        if (is_input ? meanings[i].in : meanings[i].out)
            str_printf(&all, "%s%s", all.len ? ", " : "one of ", meanings[i].word);
    wrong(r, below(r, at, "is"), str_get(&all));
    str_free(&all);
    return false;
}

/* "-inf" or a number. */
static bool read_hidden(const reader *r, const json *o, const char *at, describe_feature *f) {
    const json *v = json_get(o, "hidden");
    f->hidden = -INFINITY;
    if (!v) return true;
    if (v->kind == JSON_STRING && !strcmp(v->s, "-inf")) return true;
    if ((v->kind != JSON_INT && v->kind != JSON_REAL) || v->d >= 0)
        return wrong(r, below(r, at, "hidden"), "a number below 0, or \"-inf\"");
    f->hidden = v->d;
    return true;
}

static bool read_feature(const reader *r, const json *o, const char *at, bool is_input, describe_feature *f) {
    static const char *const layouts[] = {"halves", "pairs", NULL};
    static const char of_meaning[][8] = {"hidden", "from", "theta", "layout", "local"};
    static const char in_words[] = "is shape optional hidden from theta layout",
                      out_words[] = "is shape local";
    bool ok = true;
    int pairs = 0;
    if (o->kind != JSON_OBJECT) return wrong(r, at, "an object");
    f->name = o->key;
    if (!pattern_valid(f->name) || strchr(f->name, '*') || strstr(f->name, "{n}"))
        return wrong(r, at, "a name, perhaps with {i} or {a}");
    if (!only(r, o, at, is_input ? in_words : out_words) || !read_meaning(r, o, at, is_input, f) ||
        !read_shape(r, o, at, f) || !check_shape(r, at, f) || !read_hidden(r, o, at, f) ||
        !value(r, o, at, "theta", &f->theta) || !choice(r, o, at, "layout", layouts, &pairs))
        return false;
    const bool may[] = {f->is == MEANS_CAUSAL_MASK, f->is == MEANS_CARRIED,
                        f->is == MEANS_COS || f->is == MEANS_SIN, f->is == MEANS_COS || f->is == MEANS_SIN,
                        f->is == MEANS_BEST_ID};
    for (size_t i = 0; i < sizeof may / sizeof *may; i++)
        if (json_get(o, of_meaning[i]) && !may[i])
            return wrong(r, below(r, at, of_meaning[i]), "nothing: this meaning has no use for it");
    f->optional = flag(r, o, at, "optional", false, &ok);
    f->local = flag(r, o, at, "local", false, &ok);
    f->from = text(r, o, at, "from", &ok);
    f->pairs = pairs != 0;
    if (ok && f->is == MEANS_CARRIED && (!f->from || !pattern_valid(f->from)))
        return wrong(r, below(r, at, "from"), "the name of the output that it comes from");
    if (ok && may[2] && !f->theta) return wrong(r, below(r, at, "theta"), "the base of the frequencies");
    return ok;
}

static bool read_features(const reader *r, const json *o, const char *at, const char *key,
                          describe_feature **to, size_t *n) {
    bool ok = true;
    const json *v = member(r, o, at, key, JSON_OBJECT, "an object", &ok);
    if (!v || !v->len) return ok ? wrong(r, below(r, at, key), "at least one name") : false;
    *to = ARENA_ARRAY(r->a, describe_feature, v->len);
    JSON_EACH(x, v)
    if (!read_feature(r, x, below(r, below(r, at, key), x->key), !strcmp(key, "inputs"), &(*to)[(*n)++]))
        return false;
    return true;
}

/* ---- packages ---- */

static bool read_package(const reader *r, const json *o, const char *at, describe_package *p) {
    bool ok = true;
    if (o->kind != JSON_OBJECT) return wrong(r, at, "an object");
    if (!only(r, o, at, "role files named optional functions inputs outputs")) return false;
    p->role = text(r, o, at, "role", &ok);
    p->named = text(r, o, at, "named", &ok);
    p->optional = flag(r, o, at, "optional", false, &ok);
    if (ok && !p->role) return wrong(r, below(r, at, "role"), "a word for this package in errors");
    const json *f = member(r, o, at, "functions", JSON_OBJECT, "an object", &ok);
    const char *functions = below(r, at, "functions");
    return ok && names(r, o, at, "files", true, &p->files) &&
           (!f || only(r, f, functions, "decode prefill")) &&
           names(r, f, functions, "decode", true, &p->decode) &&
           names(r, f, functions, "prefill", true, &p->prefill) &&
           (!f || p->decode.n || wrong(r, below(r, functions, "decode"), "names of functions")) &&
           read_features(r, o, at, "inputs", &p->in, &p->n_in) &&
           read_features(r, o, at, "outputs", &p->out, &p->n_out);
}

static bool read_packages(const reader *r, const json *o) {
    bool ok = true;
    const json *v = member(r, o, "", "packages", JSON_ARRAY, "a list", &ok);
    if (!v || !v->len) return ok && wrong(r, "packages", "a list of at least one");
    description *d = r->d;
    d->package = ARENA_ARRAY(r->a, describe_package, v->len);
    JSON_EACH(x, v) {
        describe_package *p = &d->package[d->n_package];
        if (!read_package(r, x, arena_printf(r->a, "packages[%zu]", d->n_package), p)) return false;
        d->n_package++;
        if ((p->files.n == 0) != (d->package[0].files.n == 0) || (!p->files.n && d->n_package > 1))
            return wrong(r, arena_printf(r->a, "packages[%zu].files", d->n_package - 1),
                         "patterns for every package, or one package without");
    }
    return true;
}

/* ---- the rest ---- */

static bool read_metadata(const reader *r, const json *o) {
    bool ok = true;
    description *d = r->d;
    const json *m = member(r, o, "", "metadata", JSON_OBJECT, "an object", &ok);
    if (!m) return ok;
    if (!only(r, m, "metadata", "file required holds equals")) return false;
    d->metadata = text(r, m, "metadata", "file", &ok);
    if (ok && !d->metadata) return wrong(r, "metadata.file", "the name of a file");
    d->required = flag(r, m, "metadata", "required", false, &ok);
    d->equals = member(r, m, "metadata", "equals", JSON_OBJECT, "an object", &ok);
    return ok && inside(r, "metadata.file", d->metadata) &&
           names(r, m, "metadata", "holds", false, &d->holds);
}

static bool read_table(const reader *r, const json *o) {
    static const char *const forms[] = {"millet", "npy", "fp16", "fp32", NULL};
    bool ok = true;
    int form = -1;
    description *d = r->d;
    d->table = member(r, o, "", "table", JSON_OBJECT, "an object", &ok);
    if (!d->table) return ok;
    if (!only(r, d->table, "table", "form files") || !choice(r, d->table, "table", "form", forms, &form) ||
        !names(r, d->table, "table", "files", false, &d->table_files))
        return false;
    if (form < 0) return wrong(r, "table.form", "millet, npy, fp16 or fp32");
    if (form > 0 && !d->table_files.n) return wrong(r, "table.files", "names of files");
    for (size_t i = 0; i < d->table_files.n; i++)
        if (!inside(r, "table.files", d->table_files.s[i])) return false;
    return true;
}

static bool read_prefill(const reader *r, const json *o) {
    static const char *const rows[] = {"last", "every", "none", NULL};
    static const char *const tails[] = {"steps", "pad", "repeat", "zeros", NULL};
    bool ok = true;
    int row = ROWS_LAST, tail = TAIL_STEPS;
    description *d = r->d;
    d->one_token = true;
    const json *p = member(r, o, "", "prefill", JSON_OBJECT, "an object", &ok);
    if (!p) return ok;
    if (!only(r, p, "prefill", "rows tail pad one_token") || !choice(r, p, "prefill", "rows", rows, &row) ||
        !choice(r, p, "prefill", "tail", tails, &tail))
        return false;
    const json *pad = member(r, p, "prefill", "pad", JSON_INT, "a token id", &ok);
    if (pad && (pad->i < 0 || pad->i > INT32_MAX || tail != TAIL_PAD))
        return wrong(r, "prefill.pad", "a token id, with \"tail\": \"pad\"");
    d->pad = pad ? (int32_t)pad->i : 0;
    d->rows = (describe_rows)row;
    d->tail = (describe_tail)tail;
    d->one_token = flag(r, p, "prefill", "one_token", true, &ok);
    if (ok && !d->one_token && (d->tail == TAIL_STEPS || d->rows != ROWS_EVERY))
        return wrong(r, "prefill.one_token", "true, unless every row comes out and tails are filled");
    return ok;
}

static bool read_states(const reader *r, const json *o) {
    static const char *const words[] = {"unique", "own", "shared", NULL};
    bool ok = true;
    int sharing = STATES_OWN;
    description *d = r->d;
    d->states = STATES_OWN;
    const json *s = member(r, o, "", "states", JSON_OBJECT, "an object", &ok);
    if (!s) return ok;
    if (!only(r, s, "states", "sharing caches") || !choice(r, s, "states", "sharing", words, &sharing))
        return false;
    d->states = (describe_states)sharing;
    const json *c = member(r, s, "states", "caches", JSON_OBJECT, "an object", &ok);
    d->cache = ARENA_ARRAY(r->a, describe_cache, c ? c->len : 0);
    JSON_EACH(x, c) {
        if (!pattern_valid(x->key) || x->kind != JSON_INT || x->i < -4 || x->i > -1)
            return wrong(r, below(r, "states.caches", x->key),
                         "a name with the axis that counts positions, -4 to -1 from the end");
        d->cache[d->n_cache++] = (describe_cache){x->key, (int)x->i};
    }
    return ok;
}

static bool read_values(const reader *r, const json *o) {
    description *d = r->d;
    if (!names(r, o, "", "tokenizer", false, &d->tokenizer)) return false;
    for (size_t i = 0; i < d->tokenizer.n; i++)
        if (!inside(r, "tokenizer", d->tokenizer.s[i])) return false;
    return value(r, o, "", "context", &d->context) && value(r, o, "", "vocab", &d->vocab) &&
           value(r, o, "", "slices", &d->slices) && value(r, o, "", "stop_ids", &d->stop_ids);
}

/* What fits only together. */
static bool check_whole(const reader *r) {
    const description *d = r->d;
    bool takes_ids = false, scores = false;
    for (size_t i = 0; i < d->n_package; i++) {
        for (size_t k = 0; k < d->package[i].n_in; k++) takes_ids |= d->package[i].in[k].is == MEANS_TOKENS;
        for (size_t k = 0; k < d->package[i].n_out; k++) {
            meaning is = d->package[i].out[k].is;
            scores |= is == MEANS_LOGITS || is == MEANS_TOP_IDS || is == MEANS_BEST_ID;
        }
    }
    if (takes_ids == (d->table != NULL))
        return wrong(r, "table",
                     takes_ids ? "none: a package takes token ids" : "a table: no package takes token ids");
    return scores || wrong(r, "packages", "an output that means logits, top_ids or best_id");
}

static bool read_all(const reader *r, const json *o) {
    bool ok = true;
    description *d = r->d;
    const char *format = text(r, o, "", "format", &ok);
    if (!format || strcmp(format, "millet contract")) return wrong(r, "format", "\"millet contract\"");
    if (json_int(o, "version", 0) != 1) return wrong(r, "version", "1");
    if (!only(r, o, "",
              "$schema format version name about metadata table packages prefill states context vocab slices "
              "stop_ids tokenizer"))
        return false;
    d->name = text(r, o, "", "name", &ok);
    d->about = text(r, o, "", "about", &ok);
    if (ok && !d->name) return wrong(r, "name", "a word");
    return ok && read_metadata(r, o) && read_table(r, o) && read_packages(r, o) && read_prefill(r, o) &&
           read_states(r, o) && read_values(r, o) && check_whole(r);
}

const description *describe_parse(arena *a, const char *what, const char *s, size_t n, err *e) {
    description *d = ARENA_NEW(a, description);
    d->what = arena_str(a, what);
    const json *o = json_parse(a, what, s, n, e);
    if (!o) return NULL;
    const reader r = {a, d, e};
    if (o->kind != JSON_OBJECT) {
        wrong(&r, "the document", "an object");
        return NULL;
    }
    return read_all(&r, o) ? d : NULL;
}

const description *describe_file(arena *a, const char *path, err *e) {
    file_map m;
    if (!file_open_map(&m, path, e)) return NULL;
    const description *d = describe_parse(a, path, (const char *)m.data, m.size, e);
    file_unmap(&m);
    return d;
}
