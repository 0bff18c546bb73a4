#include "structured/schema.h"
#include <math.h>
#include <string.h>

/* ---- comparing ---- */

static bool is_number(const json *v) {
    return v->kind == JSON_INT || v->kind == JSON_REAL;
}

int compare_numbers(const json *x, const json *y) {
    if (x->kind == JSON_INT && y->kind == JSON_INT) return (x->i > y->i) - (x->i < y->i);
    return (x->d > y->d) - (x->d < y->d);
}

static const json *member_of(const json *o, const json *like) {
    JSON_EACH(m, o) {
        if (m->key_len == like->key_len && !memcmp(m->key, like->key, like->key_len)) return m;
    }
    return NULL;
}

bool json_equal(const json *x, const json *y) {
    if (is_number(x) && is_number(y)) return !compare_numbers(x, y);
    if (x->kind != y->kind || x->len != y->len) return false;
    switch (x->kind) {
    case JSON_BOOL: return x->i == y->i;
    case JSON_STRING: return !memcmp(x->s, y->s, x->len);
    case JSON_ARRAY:
        for (const json *a = x->child, *b = y->child; a; a = a->next, b = b->next)
            if (!json_equal(a, b)) return false;
        return true;
    case JSON_OBJECT:
        JSON_EACH(a, x) {
            const json *b = member_of(y, a);
            if (!b || !json_equal(a, b)) return false;
        }
        return true;
    default: return true;
    }
}

unsigned json_type(const json *v) {
    static const unsigned type[] = {T_NULL, T_BOOLEAN, T_INTEGER, T_FRACTION, T_STRING, T_ARRAY, T_OBJECT};
    return v->kind == JSON_REAL && v->d == floor(v->d) ? T_INTEGER : type[v->kind];
}

/* ---- which of the listed values the other keywords allow ---- */

static bool number_allowed(const facts *f, const json *v) {
    int low = f->low.v ? compare_numbers(v, f->low.v) : 1,
        high = f->high.v ? compare_numbers(f->high.v, v) : 1;
    if (low < 0 || high < 0 || (!low && f->low.exclusive) || (!high && f->high.exclusive)) return false;
    for (size_t i = 0; i < f->multiple.n; i++)
        if (fmod(v->d, f->multiple.v[i]->d) != 0) return false;
    return true;
}

static uint64_t characters(const json *v) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < v->len; i++) n += ((uint8_t)v->s[i] & 0xC0) != 0x80;
    return n;
}

static bool string_allowed(compiler *c, const facts *f, const json *v, bool *ok) {
    uint64_t n = characters(v);
    *ok = n >= f->min_length && n <= f->max_length;
    if (!*ok || !strings_have_form(f)) return true;
    facts form = *f;
    form.min_length = 0, form.max_length = UINT64_MAX;
    dfa d;
    if (!strings_dfa(c, &form, WRITE_PLAIN, "", &d)) return false;
    *ok = dfa_accepts(&d, v->s, v->len);
    return true;
}

bool facts_allow(compiler *c, const facts *f, const json *v, bool *ok) {
    unsigned type = json_type(v);
    *ok = (f->types & type) != 0;
    if (!*ok || f->plain[type]) return true;
    if (type & T_NUMBER) return *ok = number_allowed(f, v), true;
    if (type == T_STRING) return string_allowed(c, f, v, ok);
    for (size_t k = 0; k < f->parts.n; k++) {
        const json *s = f->parts.part[k].schema;
        const char *keyword = json_get(s, "enum") ? "enum" : "const";
        if (json_get(s, keyword))
            return bad_keyword(c, s, keyword, ERR_UNSUPPORTED,
                               "arrays and objects beside keywords that look into them");
    }
    return true;
}

/* ---- how a value is written ---- */

static const rx *written(arena *a, const json *v);

static const rx *written_children(arena *a, const json *v, const char *open, const char *close) {
    const rx *comma = rx_cat(a, rx_text(a, ","), rx_optional(a, rx_text(a, " "))), *x = rx_text(a, open);
    JSON_EACH(c, v) {
        if (c != v->child) x = rx_cat(a, x, comma);
        if (v->kind == JSON_OBJECT)
            x = rx_cat(a, x, json_keyed(a, json_quoted(a, lex_written(a, c->key, c->key_len, WRITE_JSON))));
        x = rx_cat(a, x, written(a, c));
    }
    return rx_cat(a, x, rx_text(a, close));
}

static const rx *written(arena *a, const json *v) {
    str s = {0};
    if (v->kind == JSON_STRING) return json_quoted(a, lex_written(a, v->s, v->len, WRITE_JSON));
    if (v->kind == JSON_ARRAY) return written_children(a, v, "[", "]");
    if (v->kind == JSON_OBJECT) return written_children(a, v, "{", "}");
    if (v->kind == JSON_NULL)
        str_adds(&s, "null");
    else if (v->kind == JSON_BOOL)
        str_adds(&s, v->i ? "true" : "false");
    else if (v->kind == JSON_INT)
        str_printf(&s, "%lld", (long long)v->i);
    else
        str_json_double(&s, v->d);
    const rx *x = rx_literal(a, str_get(&s), s.len);
    str_free(&s);
    return x;
}

const rx *written_value(arena *a, const json *v, bool plain) {
    return plain && v->kind == JSON_STRING ? rx_literal(a, v->s, v->len) : written(a, v);
}

/* One of v[0..n), as a balanced tree. */
static const rx *any_of(arena *a, const json *const *v, size_t n) {
    if (!n) return rx_none(a);
    if (n == 1) return written(a, *v);
    return rx_alt(a, any_of(a, v, n / 2), any_of(a, v + n / 2, n - n / 2));
}

bool listed_values(compiler *c, const facts *f, json_list *out) {
    *out = (json_list){.v = arena_alloc(c->a, (f->value.n + 1) * sizeof(json *))};
    for (size_t i = 0; i < f->value.n; i++) {
        bool ok;
        if (!facts_allow(c, f, f->value.v[i], &ok)) return false;
        if (ok) out->v[out->n++] = f->value.v[i];
    }
    return true;
}

bool add_listed(compiler *c, const facts *f, uint32_t start, uint32_t end) {
    json_list kept;
    if (!listed_values(c, f, &kept)) return false;
    if (kept.n)
        net_take(c->n, start, net_terminal_rx(c->n, any_of(c->a, kept.v, kept.n), "listed values", NULL),
                 end);
    return !net_failed(c->n);
}
