#include "base/yaml.h"
#include "base/file.h"
#include <string.h>

#define MAX_DEPTH 32

typedef struct {
    const char *s; /* without indentation, comment and trailing blanks */
    size_t len;
    const char *raw; /* the whole line */
    size_t raw_len;
    int indent;
    int number;
} line;

typedef struct {
    arena *a;
    const char *what;
    line *l;
    size_t n, at;
    err *e;
} reader;

static const json *fail(const reader *r, int number, const char *text) {
    err_set(r->e, ERR_FORMAT, "%s: line %d: %s", r->what, number, text);
    return NULL;
}

/* ---- lines ---- */

/* Where a comment begins, outside of quotes; else n. */
static size_t comment(const char *s, size_t n) {
    char quote = 0;
    for (size_t i = 0; i < n; i++) {
        if (quote)
            quote = s[i] == quote ? 0 : quote;
        else if ((s[i] == '"' || s[i] == '\'') && (!i || strchr(" [,:-", s[i - 1])))
            quote = s[i];
        else if (s[i] == '#' && (!i || s[i - 1] == ' '))
            return i;
    }
    return n;
}

static line make_line(const char *s, size_t n, int number) {
    line l = {.raw = s, .raw_len = n, .number = number};
    while (l.indent < (int)n && s[l.indent] == ' ') l.indent++;
    l.s = s + l.indent;
    l.len = comment(l.s, n - (size_t)l.indent);
    while (l.len && strchr(" \t\r", l.s[l.len - 1])) l.len--;
    return l;
}

static void split_lines(reader *r, const char *text, size_t n) {
    size_t count = 1;
    for (size_t i = 0; i < n; i++) count += text[i] == '\n';
    r->l = ARENA_ARRAY(r->a, line, count);
    for (size_t i = 0; i < n;) {
        const char *end = memchr(text + i, '\n', n - i);
        size_t len = end ? (size_t)(end - text) - i : n - i;
        r->l[r->n] = make_line(text + i, len, (int)r->n + 1);
        r->n++;
        i += len + 1;
    }
}

/* The next line that says something; NULL: none. */
static line *peek(reader *r) {
    while (r->at < r->n && !r->l[r->at].len) r->at++;
    return r->at < r->n ? &r->l[r->at] : NULL;
}

/* ---- scalars ---- */

static json *node(reader *r, json_kind kind) {
    json *j = ARENA_NEW(r->a, json);
    j->kind = kind;
    return j;
}

static json *text_node(reader *r, const char *s, size_t n) {
    json *j = node(r, JSON_STRING);
    j->s = arena_strn(r->a, s, n);
    j->len = (uint32_t)n;
    return j;
}

static const json *plain(reader *r, const char *s, size_t n) {
    const char *t = arena_strn(r->a, s, n);
    json *j;
    int64_t i;
    double d;
    if (!n || !strcmp(t, "~") || !strcmp(t, "null")) return node(r, JSON_NULL);
    if (!strcmp(t, "true") || !strcmp(t, "false")) {
        j = node(r, JSON_BOOL);
        j->i = *t == 't';
        return j;
    }
    if (str_to_int64(t, &i)) {
        j = node(r, JSON_INT);
        j->i = i;
        j->d = (double)i;
        return j;
    }
    if (((*t >= '0' && *t <= '9') || *t == '-' || *t == '.') && str_to_double(t, &d)) {
        j = node(r, JSON_REAL);
        j->d = d;
        return j;
    }
    return text_node(r, s, n);
}

static const json *flow_list(reader *r, const char *s, size_t n, int number);

static const json *scalar(reader *r, const char *s, size_t n, int number) {
    if (n && (*s == '&' || *s == '*' || *s == '!' || *s == '{' || *s == '@' || *s == '`'))
        return fail(r, number, "anchors, tags and flow mappings are not read");
    if (n && *s == '[') return flow_list(r, s, n, number);
    if (n && (*s == '"' || *s == '\'')) {
        if (n < 2 || s[n - 1] != *s || memchr(s + 1, *s, n - 2) || memchr(s, '\\', n))
            return fail(r, number, "a quoted text must end on its line and have no escapes");
        return text_node(r, s + 1, n - 2);
    }
    return plain(r, s, n);
}

static void append(json *parent, json **last, const json *child) {
    json *c = (json *)child; /* a node of this tree */
    if (*last)
        (*last)->next = c;
    else
        parent->child = c;
    *last = c;
    parent->len++;
}

/* [a, b]: scalars only. */
static const json *flow_list(reader *r, const char *s, size_t n, int number) {
    json *list = node(r, JSON_ARRAY), *last = NULL;
    if (n < 2 || s[n - 1] != ']' || memchr(s + 1, '[', n - 1))
        return fail(r, number, "a list in brackets must end on its line and hold no lists");
    const char *p = s + 1, *end = s + n - 1;
    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
        const char *from = p, *to = stop;
        while (from < to && *from == ' ') from++;
        while (to > from && to[-1] == ' ') to--;
        if (from == to && comma) return fail(r, number, "an element of the list is missing");
        if (from < to) {
            const json *x = scalar(r, from, (size_t)(to - from), number);
            if (!x) return NULL;
            append(list, &last, x);
        }
        p = stop + 1;
    }
    return list;
}

/* | or >: the lines below that are indented further than parent. */
static const json *block_text(reader *r, int parent, bool fold) {
    str s = {0};
    int indent = -1;
    for (; r->at < r->n; r->at++) {
        const line *l = &r->l[r->at];
        bool blank = true;
        for (size_t i = 0; i < l->raw_len; i++) blank &= strchr(" \t\r", l->raw[i]) != NULL;
        if (!blank && l->indent <= parent) break;
        if (!blank && indent < 0) indent = l->indent;
        size_t skip = indent < 0 || blank ? 0 : l->indent < indent ? (size_t)l->indent : (size_t)indent;
        if (!blank) str_add(&s, l->raw + skip, l->raw_len - skip);
        str_addc(&s, fold ? ' ' : '\n');
    }
    const json *j = text_node(r, str_get(&s), s.len);
    str_free(&s);
    return j;
}

/* ---- blocks ---- */

static const json *block(reader *r, int indent, int depth);

/* What follows "key:" or "-": on the line, or below it. */
static const json *below(reader *r, const char *s, size_t n, int indent, int number, int depth) {
    if (n && (*s == '|' || *s == '>') && n <= 2) return block_text(r, indent, *s == '>');
    if (n) return scalar(r, s, n, number);
    const line *next = peek(r);
    bool list = next && next->indent == indent && *next->s == '-' && (next->len == 1 || next->s[1] == ' ');
    if (!next || (next->indent <= indent && !list)) return node(r, JSON_NULL);
    return block(r, next->indent, depth + 1);
}

/* Length of the key of "key: value"; 0: the line has none. */
static size_t key_length(const line *l) {
    for (size_t i = 0; i < l->len; i++)
        if (l->s[i] == ':' && (i + 1 == l->len || l->s[i + 1] == ' ')) return i;
    return 0;
}

static const json *list_block(reader *r, int indent, int depth) {
    json *list = node(r, JSON_ARRAY), *last = NULL;
    for (const line *l; (l = peek(r)) && l->indent == indent && *l->s == '-';) {
        const char *s = l->s + 1;
        size_t n = l->len - 1;
        while (n && *s == ' ') s++, n--;
        line item = make_line(s, n, l->number);
        if (n && *s != '"' && *s != '\'' && *s != '[' && key_length(&item))
            return fail(r, l->number, "mappings in lists are not read");
        r->at++;
        const json *x = below(r, s, n, indent, l->number, depth);
        if (!x) return NULL;
        append(list, &last, x);
    }
    return list;
}

static bool member(reader *r, json *map, json **last, const line *l, int depth) {
    size_t n = key_length(l);
    if (!n || strchr("\"'?&*!{[", *l->s)) return fail(r, l->number, "expected \"key: value\"") != NULL;
    const char *key = arena_strn(r->a, l->s, n), *s = l->s + n + 1;
    size_t rest = l->len - n - 1;
    while (rest && *s == ' ') s++, rest--;
    if (json_get(map, key)) return fail(r, l->number, "the key stands there twice") != NULL;
    r->at++;
    json *x = (json *)below(r, s, rest, l->indent, l->number, depth);
    if (!x) return false;
    x->key = key;
    x->key_len = (uint32_t)n;
    append(map, last, x);
    return true;
}

static const json *block(reader *r, int indent, int depth) {
    const line *l = peek(r);
    if (depth > MAX_DEPTH) return fail(r, l->number, "nested too deeply");
    if (*l->s == '-' && (l->len == 1 || l->s[1] == ' ')) return list_block(r, indent, depth);
    json *map = node(r, JSON_OBJECT), *last = NULL;
    while ((l = peek(r)) && l->indent == indent)
        if (!member(r, map, &last, l, depth)) return NULL;
    if (l && l->indent > indent) return fail(r, l->number, "indented further than what is above it");
    return map;
}

const json *yaml_parse(arena *a, const char *what, const char *text, size_t n, err *e) {
    reader r = {.a = a, .what = what, .e = e};
    if (utf8_valid(text, n) != n || memchr(text, 0, n) || memchr(text, '\t', n))
        return fail(&r, 1, "not UTF-8 text without tabs");
    split_lines(&r, text, n);
    const line *l = peek(&r);
    if (l && l->len == 3 && !memcmp(l->s, "---", 3)) r.at++, l = peek(&r);
    if (!l) return node(&r, JSON_OBJECT);
    const json *j = block(&r, l->indent, 0);
    if (j && (l = peek(&r))) return fail(&r, l->number, "indented less than what is above it");
    return j;
}

const json *yaml_parse_file(arena *a, const char *path, err *e) {
    file_map m;
    if (!file_open_map(&m, path, e)) return NULL;
    const json *j = yaml_parse(a, path, (const char *)m.data, m.size, e);
    file_unmap(&m);
    if (j && j->kind != JSON_OBJECT) {
        err_set(e, ERR_FORMAT, "%s: holds no mapping", path);
        return NULL;
    }
    return j;
}
