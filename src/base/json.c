#include "base/json.h"
#include "base/file.h"
#include "base/map.h"
#include "base/str.h"
#include <string.h>
#include <yajl/yajl_parse.h>

typedef struct {
    arena *a;
    const char *what;
    err *e;
    json *root;
    json *open[JSON_MAX_DEPTH]; /* the containers that are open, outermost first */
    json *last[JSON_MAX_DEPTH]; /* their last child so far */
    int depth;
    const char *key;
    uint32_t key_len;
} reader;

static json *add(reader *r, json_kind kind) {
    json *j = ARENA_NEW(r->a, json);
    j->kind = kind;
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
    return str_to_double(t, &j->d) || err_set(r->e, ERR_FORMAT, "%s: bad number %s", r->what, t);
}

/* yajl lets overlong forms and surrogates through. */
static bool check_utf8(reader *r, const unsigned char *s, size_t n) {
    return utf8_valid((const char *)s, n) == n ||
           err_set(r->e, ERR_FORMAT, "%s: a string is not UTF-8", r->what);
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
        if (!pair)
            return err_set(r->e, ERR_FORMAT, "%s: byte %zu: \\u%04x is half of a surrogate pair", r->what, at,
                           first);
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
    if (r->depth == JSON_MAX_DEPTH)
        return err_set(r->e, ERR_FORMAT, "%s: JSON nested deeper than %d levels", r->what, JSON_MAX_DEPTH);
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
    ((reader *)c)->depth--;
    return 1;
}

static int on_object_end(void *c) {
    reader *r = c;
    const json *o = r->open[--r->depth];
    if (o->len < 2) return 1;
    arena *tmp = arena_new();
    map *seen = map_new(tmp, o->len);
    int ok = 1;
    JSON_EACH(m, o) {
        if (ok && !map_add(seen, m->key, m->key_len, 0))
            ok = err_set(r->e, ERR_FORMAT, "%s: duplicate key \"%s\"", r->what, m->key);
    }
    arena_free(tmp);
    return ok;
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

static void syntax_error(reader *r, yajl_handle h) {
    unsigned char *m = yajl_get_error(h, 0, NULL, 0);
    char line[200];
    size_t n = 0;
    for (const unsigned char *p = m; *p && n + 1 < sizeof line; p++)
        if (*p != '\n') line[n++] = (char)*p;
    line[n] = 0;
    yajl_free_error(h, m);
    err_set(r->e, ERR_FORMAT, "%s: not valid JSON near byte %zu: %s", r->what, yajl_get_bytes_consumed(h),
            line);
}

/* Nothing but white space behind the document. */
static void check_rest(reader *r, const char *text, size_t n, size_t end) {
    while (end < n && (text[end] == ' ' || text[end] == '\n' || text[end] == '\t' || text[end] == '\r'))
        end++;
    if (end < n)
        err_set(r->e, ERR_FORMAT, "%s: not valid JSON near byte %zu: trailing garbage", r->what, end);
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
    reader r = {.a = a, .what = what, .e = e};
    if (n > UINT32_MAX / 2) {
        err_set(e, ERR_LIMIT, "%s: JSON text of %zu bytes is too large", what, n);
        return NULL;
    }
    if (!check_surrogates(&r, text, n)) return NULL;
    yajl_alloc_funcs memory = {yajl_take, yajl_retake, yajl_give, NULL};
    yajl_handle h = yajl_alloc(&callbacks, &memory, &r);
    if (!h) mem_die(0);
    /* yajl takes the beginning of a string behind the document for nothing: what is there is looked at here.
     */
    yajl_config(h, yajl_allow_trailing_garbage, 1);
    yajl_status s = yajl_parse(h, text, n);
    size_t end = yajl_get_bytes_consumed(h);
    if (s == yajl_status_ok) s = yajl_complete_parse(h);
    if (s == yajl_status_ok) check_rest(&r, text, n, end);
    if (s != yajl_status_ok && e->code == ERR_NONE) syntax_error(&r, h);
    yajl_free(h);
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
    size_t n = strlen(key);
    JSON_EACH(m, o) {
        if (m->key_len == n && !memcmp(m->key, key, n)) return m;
    }
    return NULL;
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
    return m && m->kind == JSON_STRING ? m->s : fallback;
}

const char *json_kind_name(json_kind k) {
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    return names[k];
}
