#include "structured/regex.h"
#include "text/unicode.h"
#include <string.h>

enum { MAX_LENGTH = 10000, MAX_DEPTH = 100, MAX_REPEAT = 100000, LAST_CHAR = 0x10FFFF };

typedef struct {
    uint32_t lo, hi;
} range;

/* Characters: sorted ranges that don't touch. */
typedef struct {
    range *r;
    size_t n, cap;
} chars;

typedef struct {
    arena *a;
    const char *s, *p, *end;
    writing w;
    err *e;
    unsigned depth;
} parser;

/* ---- sets of characters ---- */

static void chars_add(parser *p, chars *c, uint32_t lo, uint32_t hi) {
    c->r = arena_grow(p->a, c->r, c->n, &c->cap, c->n + 1, sizeof *c->r);
    size_t i = c->n++;
    for (; i && c->r[i - 1].lo > lo; i--) c->r[i] = c->r[i - 1];
    c->r[i] = (range){lo, hi};
    size_t k = 0;
    for (size_t j = 1; j < c->n; j++) {
        if (c->r[j].lo > c->r[k].hi + 1)
            c->r[++k] = c->r[j];
        else if (c->r[j].hi > c->r[k].hi)
            c->r[k].hi = c->r[j].hi;
    }
    c->n = k + 1;
}

static void chars_join(parser *p, chars *c, const chars *more) {
    for (size_t i = 0; i < more->n; i++) chars_add(p, c, more->r[i].lo, more->r[i].hi);
}

static chars chars_not(parser *p, const chars *c) {
    chars x = {0};
    uint32_t from = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->r[i].lo > from) chars_add(p, &x, from, c->r[i].lo - 1);
        from = c->r[i].hi + 1;
    }
    if (from <= LAST_CHAR) chars_add(p, &x, from, LAST_CHAR);
    return x;
}

static const rx *chars_rx(const parser *p, const chars *c) {
    const rx *x = rx_none(p->a);
    for (size_t i = 0; i < c->n; i++) x = rx_alt(p->a, x, lex_chars(p->a, c->r[i].lo, c->r[i].hi, p->w));
    return x;
}

/* What no dialect takes for a digit, a letter, a space. */
static chars outside(parser *p, char kind) {
    chars x = {0};
    uint32_t from = 0;
    for (uint32_t c = 0; c <= LAST_CHAR + 1; c++) {
        bool in = c > LAST_CHAR;
        if (!in && kind == 'd') in = unicode_bit(c) & UC_IS_N;
        if (!in && kind == 'w')
            in = c == '_' || (unicode_bit(c) & (UC_IS_N | UC_IS_L | UC_IS_M)) ||
                 unicode_bit(c) & UC_BIT(UC_CN);
        if (!in && kind == 's')
            in = unicode_is_space(c) || (c >= 0x1C && c <= 0x1F) || c == 0x85 || c == 0xFEFF || c == 0x180E;
        if (!in) continue;
        if (c > from) chars_add(p, &x, from, c - 1);
        from = c + 1;
    }
    return x;
}

/* \d \w \s and their opposites. */
static chars shorthand(parser *p, char kind) {
    chars x = {0};
    if (kind >= 'A' && kind <= 'Z') return outside(p, (char)(kind | 32));
    if (kind == 's') {
        chars_add(p, &x, '\t', '\r');
        chars_add(p, &x, ' ', ' ');
        return x;
    }
    chars_add(p, &x, '0', '9');
    if (kind == 'd') return x;
    chars_add(p, &x, 'A', 'Z');
    chars_add(p, &x, 'a', 'z');
    chars_add(p, &x, '_', '_');
    return x;
}

/* ---- parsing ---- */

static bool bad(parser *p, const char *why) {
    return err_set(p->e, ERR_INVALID, "not a regular expression at byte %zu: %s", (size_t)(p->p - p->s), why);
}

static bool unsupported(parser *p, const char *what) {
    return err_set(p->e, ERR_UNSUPPORTED, "%s at byte %zu is not supported", what, (size_t)(p->p - p->s));
}

static bool more(const parser *p) {
    return p->p < p->end;
}

static bool take(parser *p, char c) {
    if (!more(p) || *p->p != c) return false;
    p->p++;
    return true;
}

static uint32_t next_char(parser *p) {
    size_t len;
    uint32_t c = utf8_decode((const uint8_t *)p->p, &len);
    p->p += len;
    return c;
}

static bool hex(parser *p, unsigned digits, uint32_t *out) {
    *out = 0;
    for (unsigned i = 0; i < digits; i++) {
        static const char all[] = "0123456789abcdef";
        const char *d = more(p) && *p->p ? strchr(all, *p->p | 32) : NULL;
        if (!d || !*d) return bad(p, "expected hexadecimal digits");
        *out = *out * 16 + (uint32_t)(d - all);
        p->p++;
    }
    return true;
}

/* Behind \u: four digits, a pair of them for what lies beyond, or braces. */
static bool unicode_escape(parser *p, uint32_t *out) {
    if (take(p, '{')) {
        *out = 0;
        while (more(p) && *p->p != '}') {
            uint32_t digit;
            if (!hex(p, 1, &digit)) return false;
            *out = *out * 16 + digit;
            if (*out > LAST_CHAR) return bad(p, "no such character");
        }
        return take(p, '}') || bad(p, "expected }");
    }
    if (!hex(p, 4, out)) return false;
    if (*out < 0xD800 || *out > 0xDFFF) return true;
    uint32_t low;
    if (*out > 0xDBFF || !take(p, '\\') || !take(p, 'u')) return bad(p, "half of a surrogate pair");
    if (!hex(p, 4, &low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return bad(p, "half of a surrogate pair");
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

/* Behind a backslash, at a character: *single, or a class (false). */
static bool escape(parser *p, bool in_class, chars *out, bool *single, uint32_t *c) {
    static const char control[] = "t\tn\nr\rf\fv\v";
    if (!more(p)) return bad(p, "a backslash at the end");
    char k = *p->p;
    *single = !strchr("dDwWsS", k);
    if (!*single) {
        p->p++;
        *out = shorthand(p, k);
        return true;
    }
    for (const char *q = control; *q; q += 2)
        if (*q == k) return *c = (uint32_t)q[1], p->p++, true;
    if (k == 'b' && in_class) return *c = '\b', p->p++, true;
    if (k == '0' && !(p->p + 1 < p->end && p->p[1] >= '0' && p->p[1] <= '9')) return *c = 0, p->p++, true;
    if (k == 'x') return p->p++, hex(p, 2, c);
    if (k == 'u') return p->p++, unicode_escape(p, c);
    if (k == 'b' || k == 'B') return unsupported(p, "a word boundary (\\b)");
    if (k == 'p' || k == 'P') return unsupported(p, "a Unicode property (\\p)");
    if (k == 'k' || (k >= '0' && k <= '9')) return unsupported(p, "a back reference");
    if ((k >= 'a' && k <= 'z') || (k >= 'A' && k <= 'Z')) return unsupported(p, "an escape of a letter");
    *c = next_char(p);
    return true;
}

/* One character or shorthand of a class. */
static bool class_item(parser *p, chars *set, bool *single, uint32_t *c) {
    *single = true;
    if (take(p, '\\')) return escape(p, true, set, single, c);
    *c = next_char(p);
    return true;
}

/* Behind [. A negated shorthand inside of a negated class would be wider than its dialects agree on. */
static bool parse_class(parser *p, chars *out) {
    bool negated = take(p, '^');
    *out = (chars){0};
    while (more(p) && *p->p != ']') {
        bool single, to_single;
        uint32_t lo, hi;
        chars set;
        const char *at = p->p;
        if (!class_item(p, &set, &single, &lo)) return false;
        if (!single && negated) {
            if (at[1] < 'a') return p->p = at, unsupported(p, "\\D, \\W or \\S in a negated class");
            chars wide = outside(p, at[1]);
            set = chars_not(p, &wide);
        }
        if (!single) {
            chars_join(p, out, &set);
            continue;
        }
        hi = lo;
        if (p->end - p->p >= 2 && p->p[0] == '-' && p->p[1] != ']') {
            p->p++;
            if (!class_item(p, &set, &to_single, &hi)) return false;
            if (!to_single || hi < lo) return bad(p, "a range out of order");
        }
        chars_add(p, out, lo, hi);
    }
    if (!take(p, ']')) return bad(p, "expected ]");
    if (negated) *out = chars_not(p, out);
    return true;
}

static const rx *parse_alternatives(parser *p);

/* Behind (. */
static const rx *parse_group(parser *p) {
    if (take(p, '?')) {
        if (take(p, '<')) {
            if (more(p) && (*p->p == '=' || *p->p == '!')) return unsupported(p, "a look-behind"), NULL;
            while (more(p) && *p->p != '>') p->p++;
            if (!take(p, '>')) return bad(p, "expected >"), NULL;
        } else if (!take(p, ':')) {
            bool look = more(p) && (*p->p == '=' || *p->p == '!');
            return unsupported(p, look ? "a look-ahead" : "this kind of group"), NULL;
        }
    }
    if (++p->depth > MAX_DEPTH) return err_set(p->e, ERR_LIMIT, "groups nest too deeply"), NULL;
    const rx *x = parse_alternatives(p);
    p->depth--;
    if (x && !take(p, ')')) return bad(p, "expected )"), NULL;
    return x;
}

static const rx *parse_atom(parser *p) {
    chars set = {0};
    bool single = true;
    uint32_t c = 0;
    if (take(p, '(')) return parse_group(p);
    if (take(p, '[')) {
        if (!parse_class(p, &set)) return NULL;
        return chars_rx(p, &set);
    }
    if (take(p, '.')) {
        chars_add(p, &set, '\n', '\n');
        chars_add(p, &set, '\r', '\r');
        chars_add(p, &set, 0x2028, 0x2029);
        set = chars_not(p, &set);
        return chars_rx(p, &set);
    }
    if (*p->p && strchr("*+?{", *p->p)) return bad(p, "nothing to repeat"), NULL;
    if (*p->p == '^' || *p->p == '$') return unsupported(p, "an anchor inside of the expression"), NULL;
    if (take(p, '\\')) {
        if (!escape(p, false, &set, &single, &c)) return NULL;
    } else
        c = next_char(p);
    if (single) chars_add(p, &set, c, c);
    return chars_rx(p, &set);
}

static bool count(parser *p, uint32_t *out) {
    const char *from = p->p;
    *out = 0;
    for (; more(p) && *p->p >= '0' && *p->p <= '9'; p->p++) {
        *out = *out * 10 + (uint32_t)(*p->p - '0');
        if (*out > MAX_REPEAT) return err_set(p->e, ERR_LIMIT, "repeats more than %d times", MAX_REPEAT);
    }
    return p->p > from || bad(p, "expected a number of repeats");
}

static const rx *parse_repeat(parser *p) {
    const rx *x = parse_atom(p);
    if (!x || !more(p)) return x;
    uint32_t min = 1, max = 1;
    if (take(p, '*'))
        min = 0, max = RX_FOREVER;
    else if (take(p, '+'))
        max = RX_FOREVER;
    else if (take(p, '?'))
        min = 0;
    else if (take(p, '{')) {
        if (!count(p, &min)) return NULL;
        max = min;
        if (take(p, ',')) {
            max = RX_FOREVER;
            if (more(p) && *p->p != '}' && !count(p, &max)) return NULL;
        }
        if (!take(p, '}')) return bad(p, "expected }"), NULL;
        if (max < min) return bad(p, "repeats out of order"), NULL;
    } else
        return x;
    take(p, '?'); /* lazy: the same texts */
    if (more(p) && *p->p && strchr("*+?{", *p->p)) return bad(p, "nothing to repeat"), NULL;
    return rx_repeat(p->a, x, min, max);
}

static const rx *parse_sequence(parser *p, bool top) {
    const rx *x = rx_empty(p->a);
    while (more(p) && *p->p != '|' && *p->p != ')') {
        if (top && *p->p == '$' && (p->p + 1 == p->end || p->p[1] == '|')) break;
        const rx *y = parse_repeat(p);
        if (!y) return NULL;
        x = rx_cat(p->a, x, y);
    }
    return x;
}

static const rx *parse_alternatives(parser *p) {
    const rx *all = NULL;
    do {
        const rx *x = parse_sequence(p, false);
        if (!x) return NULL;
        all = rx_alt(p->a, all, x);
    } while (take(p, '|'));
    return all;
}

const rx *regex_search(arena *a, const char *s, size_t n, writing w, err *e) {
    parser p = {.a = a, .s = s, .p = s, .end = s + n, .w = w, .e = e};
    const rx *any = rx_repeat(a, lex_chars(a, 0, LAST_CHAR, w), 0, RX_FOREVER), *all = NULL;
    if (n > MAX_LENGTH) return err_set(e, ERR_LIMIT, "longer than %d bytes", MAX_LENGTH), NULL;
    if (utf8_valid(s, n) != n) return bad(&p, "not UTF-8"), NULL;
    do {
        bool from_start = take(&p, '^');
        const rx *x = parse_sequence(&p, true);
        if (!x) return NULL;
        bool to_end = take(&p, '$');
        if (more(&p) && *p.p == ')') return bad(&p, "nothing is open"), NULL;
        if (!from_start) x = rx_cat(a, any, x);
        if (!to_end) x = rx_cat(a, x, any);
        all = rx_alt(a, all, x);
    } while (take(&p, '|'));
    return all;
}
