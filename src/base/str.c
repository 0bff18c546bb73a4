#define _GNU_SOURCE
#include "base/str.h"
#include "base/arena.h"
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void str_free(str *b) {
    mem_free(b->s);
    *b = (str){0};
}

void str_clear(str *b) {
    b->len = 0;
    if (b->s) b->s[0] = 0;
}

static void reserve(str *b, size_t n) {
    if (n > SIZE_MAX / 4 - b->len) mem_die(n);
    size_t need = b->len + n + 1;
    if (need <= b->cap) return;
    size_t cap = b->cap ? b->cap * 2 : 64;
    if (cap < need) cap = need;
    b->s = mem_realloc(b->s, cap);
    b->cap = cap;
}

void str_add(str *b, const void *data, size_t n) {
    reserve(b, n);
    if (n) memcpy(b->s + b->len, data, n);
    b->len += n;
    b->s[b->len] = 0;
}

void str_adds(str *b, const char *s) {
    str_add(b, s, strlen(s));
}

void str_addc(str *b, char c) {
    str_add(b, &c, 1);
}

void str_printf(str *b, const char *fmt, ...) {
    va_list ap, aq;
    va_start(ap, fmt);
    va_copy(aq, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n > 0) {
        reserve(b, (size_t)n);
        vsnprintf(b->s + b->len, (size_t)n + 1, fmt, aq);
        b->len += (size_t)n;
    }
    va_end(aq);
}

const char *str_get(const str *b) {
    return b->s ? b->s : "";
}

/* Length of the well-formed UTF-8 character at s, 0 when ill-formed or cut (Unicode table 3-7). */
static size_t utf8_char(const unsigned char *s, size_t n) {
    unsigned c = s[0];
    if (c < 0x80) return 1;
    size_t len = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (c < 0xC2 || c > 0xF4 || n < len) return 0;
    unsigned lo = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, hi = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    if (s[1] < lo || s[1] > hi) return 0;
    for (size_t i = 2; i < len; i++)
        if (s[i] < 0x80 || s[i] > 0xBF) return 0;
    return len;
}

size_t utf8_valid(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        size_t len = utf8_char((const unsigned char *)s + i, n - i);
        if (!len) break;
        i += len;
    }
    return i;
}

void str_json_string(str *b, const char *s, size_t n) {
    str_addc(b, '"');
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = utf8_char((const unsigned char *)s + i, n - i);
        if (!len) {
            str_adds(b, "\xEF\xBF\xBD");
            i++;
            continue;
        }
        if (c == '"' || c == '\\') {
            str_addc(b, '\\');
            str_addc(b, (char)c);
        } else if (c == '\n') {
            str_adds(b, "\\n");
        } else if (c == '\t') {
            str_adds(b, "\\t");
        } else if (c < 32 || c == 127) {
            str_printf(b, "\\u%04x", c);
        } else {
            str_add(b, s + i, len);
        }
        i += len;
    }
    str_addc(b, '"');
}

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void) {
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool str_to_double(const char *s, double *v) {
    pthread_once(&c_locale_once, make_c_locale);
    char *end;
    if (!*s || strspn(s, " \t\n\v\f\r")) return false;
    *v = strtod_l(s, &end, c_locale);
    return !*end;
}

bool str_to_int64(const char *s, int64_t *v) {
    char *end;
    if (!*s || strspn(s, " \t\n\v\f\r+")) return false;
    errno = 0;
    *v = strtoimax(s, &end, 10);
    return !*end && !errno;
}

void str_json_double(str *b, double v) {
    if (!isfinite(v)) {
        str_adds(b, "null");
        return;
    }
    pthread_once(&c_locale_once, make_c_locale);
    locale_t old = uselocale(c_locale);
    char t[40];
    double back = 0;
    static const int digits[] = {6, 9, 15, 16, 17};
    for (size_t i = 0; i < sizeof digits / sizeof *digits; i++) {
        snprintf(t, sizeof t, "%.*g", digits[i], v);
        if (str_to_double(t, &back) && back == v) break;
    }
    uselocale(old);
    str_adds(b, t);
}
