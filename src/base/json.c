#include "base/json.h"
#include "base/file.h"
#include "base/map.h"
#include "base/str.h"
#include <stdio.h>
#include <string.h>
#include <yajl/yajl_parse.h>

typedef struct {
    arena *a;
    const char *what, *text;
    size_t n, value_end; /* bytes of text; where the last value ends */
    yajl_handle yajl;
    err *e;
    json *root;
    json *open[JSON_MAX_DEPTH]; /* the containers that are open, outermost first */
    json *last[JSON_MAX_DEPTH]; /* their last child so far */
    int depth;
    const char *key;
    uint32_t key_len;
} reader;

void json_place(char out[JSON_PLACE], const void *text, size_t n, size_t at) {
    const char *s = text, *begin = s;
    size_t line = 1;
    if (at > n) at = n;
    for (const char *p; (p = memchr(begin, '\n', at - (size_t)(begin - s))); begin = p + 1) line++;
    size_t column = at - (size_t)(begin - s) + 1;
    bool more = line > 1 || (n && memchr(s, '\n', n - 1));
    if (more)
        snprintf(out, JSON_PLACE, "line %zu column %zu (byte %zu)", line, column, at);
    else
        snprintf(out, JSON_PLACE, "column %zu (byte %zu)", column, at);
}

static bool bad(const reader *r, size_t at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool bad(const reader *r, size_t at, const char *fmt, ...) {
    char place[JSON_PLACE], why[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    json_place(place, r->text, r->n, at);
    return err_set(r->e, ERR_FORMAT, "%s: not valid JSON at %s: %s", r->what, place, why);
}

/* Where the token begins that ends in front of `end`. */
static size_t token_start(const reader *r, size_t end) {
    static const char word[] = "+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *s = r->text;
    size_t i = end > r->n ? r->n : end;
    if (!i || s[--i] != '"') {
        while (i && s[i] && strchr(word, s[i]) && s[i - 1] && strchr(word, s[i - 1])) i--;
        return i;
    }
    for (size_t slashes; i;) { /* back to a quote that isn't escaped */
        if (s[--i] != '"') continue;
        for (slashes = 0; slashes < i && s[i - 1 - slashes] == '\\'; slashes++) {
        }
        if (slashes % 2 == 0) break;
    }
    return i;
}

/* Where the token begins that yajl has just read. */
static size_t here(const reader *r) {
    return token_start(r, yajl_get_bytes_consumed(r->yajl));
}

static json *add(reader *r, json_kind kind) {
    json *j = ARENA_NEW(r->a, json);
    j->kind = kind;
    r->value_end = yajl_get_bytes_consumed(r->yajl);
    if (!r->depth) {
        r->root = j;
        return j;
    }
    json *parent = r->open[r->depth - 1], *last = r->last[r->depth - 1];
    if (parent->kind == JSON_OBJECT) {
        j->key = r->key;
        j->key_len = r->key_len;
    }
    if (last)
        last->next = j;
    else
        parent->child = j;
    r->last[r->depth - 1] = j;
    parent->len++;
    return j;
}

static int on_null(void *c) {
    add(c, JSON_NULL);
    return 1;
}

static int on_bool(void *c, int v) {
    add(c, JSON_BOOL)->i = v;
    return 1;
}

static int on_number(void *c, const char *s, size_t n) {
    reader *r = c;
    char *t = arena_strn(r->a, s, n);
    json *j = add(r, JSON_REAL);
    if (!strpbrk(t, ".eE") && str_to_int64(t, &j->i)) j->kind = JSON_INT;
    return str_to_double(t, &j->d) || bad(r, here(r), "bad number %s", t);
}

/* yajl lets overlong forms and surrogates through. */
static bool check_utf8(reader *r, const unsigned char *s, size_t n) {
    return utf8_valid((const char *)s, n) == n || bad(r, here(r), "a string is not UTF-8");
}

/* Four hexadecimal digits. */
static bool hex4(const char *p, const char *end, unsigned *out) {
    static const char digits[] = "0123456789abcdef";
    *out = 0;
    if (end - p < 4) return false;
    for (int i = 0; i < 4; i++) {
        const char *d = memchr(digits, p[i] | 32, 16);
        if (!d) return false;
        *out = *out * 16 + (unsigned)(d - digits);
    }
    return true;
}

/* yajl makes some other character of half a surrogate pair. An escape in D800..DBFF must stand before one in
 * DC00..DFFF, and the latter nowhere else. (A backslash outside a string is an error that yajl finds.) */
static bool check_surrogates(const reader *r, const char *text, size_t n) {
    const char *end = text + n;
    for (const char *p = text; (p = memchr(p, '\\', (size_t)(end - p))) && end - p > 2;) {
        unsigned first, second;
        size_t at = (size_t)(p - text);
        bool is_code = p[1] == 'u';
        p += 2;
        if (!is_code || !hex4(p, end, &first) || first >> 11 != 0x1B) continue;
        bool pair = first < 0xDC00 && end - p > 6 && p[4] == '\\' && p[5] == 'u' &&
                    hex4(p + 6, end, &second) && second >> 10 == 0x37;
        if (!pair) return bad(r, at, "\\u%04x is half of a surrogate pair", first);
        p += 10;
    }
    return true;
}

static int on_string(void *c, const unsigned char *s, size_t n) {
    reader *r = c;
    if (!check_utf8(r, s, n)) return 0;
    json *j = add(r, JSON_STRING);
    j->s = arena_strn(r->a, (const char *)s, n);
    j->len = (uint32_t)n;
    return 1;
}

static int on_key(void *c, const unsigned char *s, size_t n) {
    reader *r = c;
    if (!check_utf8(r, s, n)) return 0;
    r->key = arena_strn(r->a, (const char *)s, n);
    r->key_len = (uint32_t)n;
    return 1;
}

static int begin(reader *r, json_kind kind) {
    json *j = add(r, kind);
    if (r->depth == JSON_MAX_DEPTH) return bad(r, here(r), "nested deeper than %d levels", JSON_MAX_DEPTH);
    r->open[r->depth] = j;
    r->last[r->depth++] = NULL;
    return 1;
}

static int on_object(void *c) {
    return begin(c, JSON_OBJECT);
}
static int on_array(void *c) {
    return begin(c, JSON_ARRAY);
}

static int on_array_end(void *c) {
    reader *r = c;
    r->depth--;
    r->value_end = yajl_get_bytes_consumed(r->yajl);
    return 1;
}

static int on_object_end(void *c) {
    reader *r = c;
    const json *o = r->open[--r->depth];
    r->value_end = yajl_get_bytes_consumed(r->yajl);
    if (o->len < 2) return 1;
    arena *tmp = arena_new();
    map *seen = map_new(tmp, o->len);
    const json *again = NULL;
    for (const json *m = o->child; m && !again; m = m->next)
        if (!map_add(seen, m->key, m->key_len, 0)) again = m;
    arena_free(tmp);
    if (!again) return 1;
    char place[JSON_PLACE];
    json_place(place, r->text, r->n, here(r));
    return err_set(r->e, ERR_FORMAT, "%s: duplicate key \"%s\" in the object that ends at %s", r->what,
                   again->key, place);
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_bool,
    .yajl_number = on_number,
    .yajl_string = on_string,
    .yajl_map_key = on_key,
    .yajl_start_map = on_object,
    .yajl_end_map = on_object_end,
    .yajl_start_array = on_array,
    .yajl_end_array = on_array_end,
};

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t skip_space(const reader *r, size_t at) {
    while (at < r->n && is_space(r->text[at])) at++;
    return at;
}

/* yajl's words for what is wrong, without the line of input below them. */
static void syntax_error(const reader *r) {
    unsigned char *m = yajl_get_error(r->yajl, 0, NULL, 0);
    const char *why = (const char *)m, *colon = strstr(why, ": ");
    size_t at = yajl_get_bytes_consumed(r->yajl), len;
    if (strstr(why, "after key and value")) /* yajl's own place is off here */
        at = skip_space(r, r->value_end);
    else if (!strncmp(why, "parse error", 11))
        at = token_start(r, at);
    else if (at && (strstr(why, "invalid char in") || strstr(why, "UTF8")))
        at--; /* elsewhere in the lexer it gives back what it doesn't take */
    if (colon) why = colon + 2;
    len = strcspn(why, "\n");
    if (len && why[len - 1] == '.') len--;
    bad(r, at, "%.*s", (int)len, why);
    yajl_free_error(r->yajl, m);
}

/* The document is complete, and there is nothing but white space behind it. */
static void check_end(const reader *r, size_t end, bool complete) {
    end = skip_space(r, complete ? end : 0);
    if (end == r->n) return;
    if (complete)
        bad(r, end, "there is more text behind the document");
    else
        bad(r, r->n, "the text ends before the document does");
}

static void *yajl_take(void *ctx, size_t n) {
    (void)ctx;
    return mem_alloc(n);
}

static void *yajl_retake(void *ctx, void *p, size_t n) {
    (void)ctx;
    return mem_realloc(p, n);
}

static void yajl_give(void *ctx, void *p) {
    (void)ctx;
    mem_free(p);
}

const json *json_parse(arena *a, const char *what, const void *text, size_t n, err *e) {
    reader r = {.a = a, .what = what, .text = text, .n = n, .e = e};
    if (n > UINT32_MAX / 2) {
        err_set(e, ERR_LIMIT, "%s: JSON text of %zu bytes is too large", what, n);
        return NULL;
    }
    if (!check_surrogates(&r, text, n)) return NULL;
    yajl_alloc_funcs memory = {yajl_take, yajl_retake, yajl_give, NULL};
    r.yajl = yajl_alloc(&callbacks, &memory, &r);
    if (!r.yajl) mem_die(0);
    /* yajl takes the beginning of a string behind the document for nothing: what is there is looked at here.
     */
    yajl_config(r.yajl, yajl_allow_trailing_garbage, 1);
    yajl_status s = yajl_parse(r.yajl, text, n);
    size_t end = yajl_get_bytes_consumed(r.yajl);
    if (s == yajl_status_ok)
        check_end(&r, end, yajl_complete_parse(r.yajl) == yajl_status_ok);
    else if (e->code == ERR_NONE)
        syntax_error(&r);
    yajl_free(r.yajl);
    if (e->code == ERR_NONE && !r.root) err_set(e, ERR_FORMAT, "%s: empty, expected JSON", what);
    return e->code == ERR_NONE ? r.root : NULL;
}

const json *json_parse_file(arena *a, const char *path, err *e) {
    file_map m;
    if (!file_open_map(&m, path, e)) return NULL;
    const json *j = json_parse(a, path, m.data, m.size, e);
    file_unmap(&m);
    return j;
}

const json *json_object_file(arena *a, const char *path, err *e) {
    const json *j = json_parse_file(a, path, e);
    if (!j || j->kind == JSON_OBJECT) return j;
    err_set(e, ERR_FORMAT, "%s: holds %s, expected an object", path, json_kind_name(j->kind));
    return NULL;
}

const json *json_get(const json *o, const char *key) {
    if (!o || o->kind != JSON_OBJECT) return NULL;
    JSON_EACH(m, o) {
        if (json_named(m, key)) return m;
    }
    return NULL;
}

bool json_is(const json *v, const char *text) {
    return v && v->kind == JSON_STRING && v->len == strlen(text) && !memcmp(v->s, text, v->len);
}

bool json_named(const json *member, const char *key) {
    return member->key_len == strlen(key) && !memcmp(member->key, key, member->key_len);
}

const json *json_get_kind(const json *o, const char *key, json_kind kind) {
    const json *m = json_get(o, key);
    return m && m->kind == kind ? m : NULL;
}

int64_t json_int(const json *o, const char *key, int64_t fallback) {
    const json *m = json_get(o, key);
    if (m && m->kind == JSON_REAL && m->d >= -0x1p63 && m->d < 0x1p63 && m->d == (double)(int64_t)m->d)
        return (int64_t)m->d;
    return m && m->kind == JSON_INT ? m->i : fallback;
}

double json_double(const json *o, const char *key, double fallback) {
    const json *m = json_get(o, key);
    return m && (m->kind == JSON_INT || m->kind == JSON_REAL) ? m->d : fallback;
}

bool json_bool(const json *o, const char *key, bool fallback) {
    const json *m = json_get(o, key);
    return m && m->kind == JSON_BOOL ? m->i != 0 : fallback;
}

const char *json_str(const json *o, const char *key, const char *fallback) {
    const json *m = json_get(o, key);
    return m && m->kind == JSON_STRING && strlen(m->s) == m->len ? m->s : fallback;
}

const char *json_kind_name(json_kind k) {
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    return names[k];
}
