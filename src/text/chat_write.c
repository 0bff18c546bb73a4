#include "text/chat_forms.h"
#include "text/unicode.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The prompt ---- */

void chat_own(chat_writer *w, const char *s) {
    chat_prompt *p = w->p;
    size_t start = p->text.len;
    str_adds(&p->text, s);
    if (p->count && p->control[p->count - 1].end == start) {
        p->control[p->count - 1].end = p->text.len;
        return;
    }
    if (p->count == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 16;
        p->control = mem_realloc(p->control, p->cap * sizeof *p->control);
    }
    p->control[p->count++] = (text_span){start, p->text.len};
}

void chat_theirs(chat_writer *w, chat_view v) {
    str_add(&w->p->text, v.s, v.n);
}

void chat_json_theirs(chat_writer *w, const json *v) {
    chat_json(&w->p->text, v);
}

/* ---- Text as Python writes it ---- */

static void add_string(str *out, const char *s, size_t n) {
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    str_addc(out, '"');
    for (size_t i = 0; i < n; i++) {
        const char *c = s[i] ? strchr(from, s[i]) : NULL;
        if (c) {
            str_addc(out, '\\');
            str_addc(out, to[c - from]);
        } else if ((unsigned char)s[i] < 32) {
            str_printf(out, "\\u%04x", (unsigned)s[i]);
        } else {
            str_addc(out, s[i]);
        }
    }
    str_addc(out, '"');
}

/* The shortest digits that read back as v, into digits; returns scale: v = 0.DIGITS * 10^scale. */
static long shortest_digits(double v, char digits[20]) {
    char text[40], whole[60];
    long exponent = 0;
    for (int n = 1; n <= 17; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, v);
        size_t count = 0;
        const char *c = text;
        for (; *c && *c != 'e'; c++) /* the locale's decimal point is passed over */
            if (*c >= '0' && *c <= '9') digits[count++] = *c;
        digits[count] = 0;
        exponent = strtol(c + 1, NULL, 10);
        snprintf(whole, sizeof whole, "%se%ld", digits, exponent - n + 1);
        double back = 0;
        if (str_to_double(whole, &back) && back == v) break;
    }
    return exponent + 1;
}

/* repr(): with an exponent outside of 1e-4 .. 1e16. */
static void add_double(str *out, double v) {
    if (!isfinite(v)) {
        str_adds(out, isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
        return;
    }
    char digits[20];
    long scale = shortest_digits(fabs(v), digits);
    size_t n = strlen(digits);
    if (signbit(v)) str_addc(out, '-');
    if (digits[0] == '0') {
        str_adds(out, "0.0");
    } else if (scale > 16 || scale < -3) {
        str_addc(out, digits[0]);
        if (n > 1) str_printf(out, ".%s", digits + 1);
        str_printf(out, "e%c%02ld", scale > 0 ? '+' : '-', labs(scale - 1));
    } else if (scale <= 0) {
        str_printf(out, "0.%.*s%s", (int)-scale, "0000", digits);
    } else if (n <= (size_t)scale) {
        str_printf(out, "%s%.*s.0", digits, (int)(scale - (long)n), "0000000000000000");
    } else {
        str_printf(out, "%.*s.%s", (int)scale, digits, digits + scale);
    }
}

void chat_json(str *out, const json *v) {
    switch (v->kind) {
    case JSON_NULL: str_adds(out, "null"); break;
    case JSON_BOOL: str_adds(out, v->i ? "true" : "false"); break;
    case JSON_INT: str_printf(out, "%" PRId64, v->i); break;
    case JSON_REAL: add_double(out, v->d); break;
    case JSON_STRING: add_string(out, v->s, v->len); break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        str_addc(out, v->kind == JSON_ARRAY ? '[' : '{');
        JSON_EACH(c, v) {
            if (c != v->child) str_adds(out, ", ");
            if (v->kind == JSON_OBJECT) add_string(out, c->key, c->key_len);
            if (v->kind == JSON_OBJECT) str_adds(out, ": ");
            chat_json(out, c);
        }
        str_addc(out, v->kind == JSON_ARRAY ? ']' : '}');
    }
}

void chat_scalar(str *out, const json *v) {
    if (v->kind == JSON_NULL)
        str_adds(out, "None");
    else if (v->kind == JSON_BOOL)
        str_adds(out, v->i ? "True" : "False");
    else
        chat_json(out, v);
}

/* ---- Views ---- */

bool chat_starts(chat_view v, const char *s) {
    size_t n = strlen(s);
    return v.n >= n && !memcmp(v.s, s, n);
}

bool chat_ends(chat_view v, const char *s) {
    size_t n = strlen(s);
    return v.n >= n && !memcmp(v.s + v.n - n, s, n);
}

size_t chat_find(chat_view v, const char *s) {
    for (size_t n = strlen(s), i = 0; i + n <= v.n; i++)
        if (!memcmp(v.s + i, s, n)) return i;
    return SIZE_MAX;
}

size_t chat_find_last(chat_view v, const char *s) {
    size_t n = strlen(s);
    for (size_t i = v.n < n ? 0 : v.n - n + 1; i-- > 0;)
        if (!memcmp(v.s + i, s, n)) return i;
    return SIZE_MAX;
}

chat_view chat_from(chat_view v, size_t at) {
    return (chat_view){v.s + at, v.n - at};
}

/* str.isspace() of one character: white space of bidirectional type WS, B or S, or category Zs. */
static bool is_python_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

chat_view chat_trim(chat_view v) {
    size_t len;
    while (v.n && is_python_space(utf8_decode((const uint8_t *)v.s, &len))) v = chat_from(v, len);
    while (v.n) {
        size_t before = utf8_before((const uint8_t *)v.s, v.n);
        if (!is_python_space(utf8_decode((const uint8_t *)v.s + before, &len))) break;
        v.n = before;
    }
    return v;
}

chat_view chat_no_lines_before(chat_view v) {
    while (v.n && v.s[0] == '\n') v = chat_from(v, 1);
    return v;
}

chat_view chat_no_lines_behind(chat_view v) {
    while (v.n && v.s[v.n - 1] == '\n') v.n--;
    return v;
}
