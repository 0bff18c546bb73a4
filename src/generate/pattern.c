#include "generate/pattern.h"
#include <string.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* A number that was found before must be found again. */
static bool set(long *to, long value) {
    if (*to >= 0 && *to != value) return false;
    *to = value;
    return true;
}

static bool fits(const char *p, const char *s, pattern_match *m);

/* {i} or {n}: all digits that stand there. */
static bool number(const char *p, const char *s, pattern_match *m) {
    long value = 0;
    if (!is_digit(*s)) return false;
    for (; is_digit(*s); s++) {
        value = value * 10 + (*s - '0');
        if (value > 100000) return false;
    }
    return set(p[1] == 'i' ? &m->i : &m->n, value) && fits(p + 3, s, m);
}

static bool star(const char *p, const char *s, pattern_match *m) {
    size_t at = m->n_star;
    if (at == PATTERN_STARS) return false;
    for (size_t len = 0;; len++) {
        pattern_match saved = *m;
        m->star[at].s = s;
        m->star[at].len = len;
        m->n_star = at + 1;
        if (fits(p + 1, s + len, m)) return true;
        *m = saved;
        if (!s[len]) return false;
    }
}

static bool fits(const char *p, const char *s, pattern_match *m) {
    for (; *p; p++, s++) {
        if (*p == '*') return star(p, s, m);
        if (!strncmp(p, "{i}", 3) || !strncmp(p, "{n}", 3)) return number(p, s, m);
        if (!strncmp(p, "{a}", 3))
            return *s >= 'a' && *s <= 'z' && set(&m->i, *s - 'a') && fits(p + 3, s + 1, m);
        if (*p != *s) return false;
    }
    return !*s;
}

bool pattern_fits(const char *pattern, const char *name, pattern_match *m) {
    pattern_match own;
    if (!m) m = &own;
    *m = (pattern_match){.i = -1, .n = -1};
    return fits(pattern, name, m);
}

bool pattern_is_indexed(const char *pattern) {
    return strstr(pattern, "{i}") || strstr(pattern, "{a}");
}

bool pattern_valid(const char *pattern) {
    size_t stars = 0, index = 0, count = 0;
    for (const char *p = pattern; *p; p++) {
        stars += *p == '*';
        if (*p != '{') continue;
        if (!p[1] || p[2] != '}' || !strchr("ina", p[1])) return false;
        if (p[1] == 'n')
            count++;
        else
            index++;
        p += 2;
    }
    return *pattern && stars <= PATTERN_STARS && index <= 1 && count <= 1;
}
