#include "base/json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE 100 /* characters of a container that stays on one line */

typedef struct {
    bool sorted;
    const char *colon, *comma;
} format;

static int by_key(const void *x, const void *y) {
    const json *a = *(const json *const *)x, *b = *(const json *const *)y;
    uint32_t n = a->key_len < b->key_len ? a->key_len : b->key_len;
    int order = memcmp(a->key, b->key, n);
    return order ? order : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

static void add_flat(str *out, const json *v, const format *f);

static void add_children(str *out, const json *v, const format *f) {
    const json **child = mem_alloc(sizeof *child * (v->len + (size_t)1));
    size_t n = 0;
    JSON_EACH(c, v) child[n++] = c;
    if (f->sorted && v->kind == JSON_OBJECT && n) qsort(child, n, sizeof *child, by_key);
    for (size_t i = 0; i < n; i++) {
        if (i) str_adds(out, f->comma);
        if (v->kind == JSON_OBJECT) str_json_string(out, child[i]->key, child[i]->key_len);
        if (v->kind == JSON_OBJECT) str_adds(out, f->colon);
        add_flat(out, child[i], f);
    }
    mem_free(child);
}

static void add_flat(str *out, const json *v, const format *f) {
    switch (v->kind) {
    case JSON_NULL: str_adds(out, "null"); break;
    case JSON_BOOL: str_adds(out, v->i ? "true" : "false"); break;
    case JSON_INT: str_printf(out, "%" PRId64, v->i); break;
    case JSON_REAL: str_json_double(out, v->d); break;
    case JSON_STRING: str_json_string(out, v->s, v->len); break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        str_addc(out, v->kind == JSON_ARRAY ? '[' : '{');
        add_children(out, v, f);
        str_addc(out, v->kind == JSON_ARRAY ? ']' : '}');
    }
}

void json_canonical(str *out, const json *v) {
    add_flat(out, v, &(format){true, ":", ","});
}

static void add_pretty(str *out, const json *v, int depth) {
    size_t start = out->len;
    add_flat(out, v, &(format){false, ": ", ", "});
    bool container = v->kind == JSON_ARRAY || v->kind == JSON_OBJECT;
    if (!container || (depth && out->len - start <= LINE)) return;
    out->len = start;
    str_addc(out, v->kind == JSON_ARRAY ? '[' : '{');
    JSON_EACH(c, v) {
        str_printf(out, "%s\n%*s", c == v->child ? "" : ",", 2 * depth + 2, "");
        if (v->kind == JSON_OBJECT) str_json_string(out, c->key, c->key_len);
        if (v->kind == JSON_OBJECT) str_adds(out, ": ");
        add_pretty(out, c, depth + 1);
    }
    str_printf(out, "\n%*s%c", 2 * depth, "", v->kind == JSON_ARRAY ? ']' : '}');
}

void json_pretty(str *out, const json *v) {
    add_pretty(out, v, 0);
    str_addc(out, '\n');
}
