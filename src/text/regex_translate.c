/* Oniguruma (Ruby syntax) -> PCRE2. Classes that depend on a Unicode version become explicit ranges from our
 * tables; what means the same in both is copied; what doesn't, or isn't known here, is refused. */
#include "text/pattern.h"
#include "text/unicode.h"
#include <ctype.h>
#include <string.h>

typedef struct {
    const char *s; /* the expression */
    size_t n, i;
    str *out;
    err *e;
} translator;

/* A set of code points: those with one of these categories or flags. */
typedef struct {
    uint32_t categories;
    unsigned flags;
} char_set;

static bool refuse(translator *t, size_t at, const char *what) {
    return err_set(t->e, ERR_UNSUPPORTED, "%s at byte %zu is not supported", what, at);
}

static int peek(const translator *t, size_t ahead) {
    return t->i + ahead < t->n ? (uint8_t)t->s[t->i + ahead] : -1;
}

static bool starts(const translator *t, const char *text) {
    size_t len = strlen(text);
    return t->n - t->i >= len && !memcmp(t->s + t->i, text, len);
}

static bool has(const char_set *set, uint32_t cp) {
    unsigned c = unicode_class(cp);
    return c & set->flags || UC_BIT(c & UC_CATEGORY) & set->categories;
}

/* End of the run of code points from cp on that are all in the set, or all not. */
static uint32_t run_end(const char_set *set, uint32_t start) {
    const uint32_t size = 0x110000;
    const uint16_t *block = unicode_class_index;
    bool in = has(set, start);
    uint32_t cp = start + 1;
    for (; cp < size && has(set, cp) == in; cp++) {
        /* blocks of the table that equal one inside the run are in it too */
        while (cp % 128 == 127 && cp + 1 < size && cp - start >= 127 &&
               block[cp / 128 + 1] == block[cp / 128])
            cp += 128;
    }
    return cp;
}

/* The set (or what isn't in it) as ranges of a PCRE2 class. A range may span the surrogates, but not end
 * there. */
static void add_ranges(str *out, const char_set *set, bool negate) {
    for (uint32_t cp = 0, end; cp < 0x110000; cp = end) {
        end = run_end(set, cp);
        uint32_t first = cp, last = end - 1;
        if (has(set, cp) == negate) continue;
        if (first >= 0xD800 && first < 0xE000) first = 0xE000;
        if (last >= 0xD800 && last < 0xE000) last = 0xD7FF;
        if (first > last) continue;
        str_printf(out, "\\x{%X}", (unsigned)first);
        if (last > first) str_printf(out, "-\\x{%X}", (unsigned)last);
    }
}

static void add_set(str *out, const char_set *set, bool negate, bool in_class) {
    if (in_class) {
        add_ranges(out, set, negate);
        return;
    }
    str_adds(out, negate ? "[^" : "[");
    add_ranges(out, set, false);
    str_addc(out, ']');
}

/* ---- \p{Name} ---- */

static const struct {
    const char *name; /* lower case, without spaces, '-' and '_' */
    char_set set;
} names[] = {
#define C(name, category)                                                                                    \
    {                                                                                                        \
        name, {                                                                                              \
            UC_BIT(category), 0                                                                              \
        }                                                                                                    \
    }
    C("lu", UC_LU),
    C("ll", UC_LL),
    C("lt", UC_LT),
    C("lm", UC_LM),
    C("lo", UC_LO),
    C("mn", UC_MN),
    C("mc", UC_MC),
    C("me", UC_ME),
    C("nd", UC_ND),
    C("nl", UC_NL),
    C("no", UC_NO),
    C("pc", UC_PC),
    C("pd", UC_PD),
    C("ps", UC_PS),
    C("pe", UC_PE),
    C("pi", UC_PI),
    C("pf", UC_PF),
    C("po", UC_PO),
    C("sm", UC_SM),
    C("sc", UC_SC),
    C("sk", UC_SK),
    C("so", UC_SO),
    C("zs", UC_ZS),
    C("zl", UC_ZL),
    C("zp", UC_ZP),
    C("cc", UC_CC),
    C("cf", UC_CF),
    C("co", UC_CO),
    C("cn", UC_CN),
    C("uppercaseletter", UC_LU),
    C("lowercaseletter", UC_LL),
    C("titlecaseletter", UC_LT),
    C("modifierletter", UC_LM),
    C("otherletter", UC_LO),
    C("nonspacingmark", UC_MN),
    C("spacingmark", UC_MC),
    C("enclosingmark", UC_ME),
    C("decimalnumber", UC_ND),
    C("letternumber", UC_NL),
    C("othernumber", UC_NO),
    C("mathsymbol", UC_SM),
    C("currencysymbol", UC_SC),
    C("modifiersymbol", UC_SK),
    C("othersymbol", UC_SO),
    C("digit", UC_ND),
#undef C
#define PUNCTUATION                                                                                          \
    (UC_BIT(UC_PC) | UC_BIT(UC_PD) | UC_BIT(UC_PS) | UC_BIT(UC_PE) | UC_BIT(UC_PI) | UC_BIT(UC_PF) |         \
     UC_BIT(UC_PO))
#define SYMBOL    (UC_BIT(UC_SM) | UC_BIT(UC_SC) | UC_BIT(UC_SK) | UC_BIT(UC_SO))
#define SEPARATOR (UC_BIT(UC_ZS) | UC_BIT(UC_ZL) | UC_BIT(UC_ZP))
#define OTHER     (UC_BIT(UC_CN) | UC_BIT(UC_CC) | UC_BIT(UC_CF) | UC_BIT(UC_CO) | UC_BIT(UC_CS))
    {"l", {UC_IS_L, 0}},
    {"letter", {UC_IS_L, 0}},
    {"m", {UC_IS_M, 0}},
    {"mark", {UC_IS_M, 0}},
    {"n", {UC_IS_N, 0}},
    {"number", {UC_IS_N, 0}},
    {"p", {PUNCTUATION, 0}},
    {"punctuation", {PUNCTUATION, 0}},
    {"s", {SYMBOL, 0}},
    {"symbol", {SYMBOL, 0}},
    {"z", {SEPARATOR, 0}},
    {"separator", {SEPARATOR, 0}},
    {"c", {OTHER, 0}},
    {"other", {OTHER, 0}},
    {"any", {~0u, 0}},
    {"space", {0, UC_SPACE}},
    {"whitespace", {0, UC_SPACE}},
    {"word", {0, UC_WORD}},
};

/* At the brace of \p{...} or \P{...}. Names that aren't categories are left to PCRE2 as scripts. */
static bool property(translator *t, bool negate, bool in_class) {
    size_t at = t->i, len = 0;
    char name[48];
    if (peek(t, 0) != '{') return refuse(t, at, "\\p without braces");
    t->i++;
    if (peek(t, 0) == '^') t->i++, negate = !negate;
    for (; peek(t, 0) != '}'; t->i++) {
        int c = peek(t, 0);
        if (c == ' ' || c == '_' || c == '-') continue;
        if (c < 0 || !(isalnum(c) && c < 128) || len + 1 == sizeof name)
            return refuse(t, at, "this property name");
        name[len++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    t->i++;
    name[len] = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        if (strcmp(names[k].name, name) != 0) continue;
        add_set(t->out, &names[k].set, negate, in_class);
        return true;
    }
    str_printf(t->out, "\\%c{sc:%s}", negate ? 'P' : 'p', name);
    return true;
}

/* ---- Escapes ---- */

static bool hex_escape(translator *t, size_t digits) {
    str_adds(t->out, "\\x{");
    for (size_t k = 0; k < digits; k++, t->i++) {
        if (peek(t, 0) < 0 || !isxdigit(peek(t, 0))) return refuse(t, t->i, "a short hexadecimal escape");
        str_addc(t->out, t->s[t->i]);
    }
    str_addc(t->out, '}');
    return true;
}

/* The escapes that mean a set or a single character, inside and outside of classes. *done: it was one. */
static bool common_escape(translator *t, int c, bool in_class, bool *done) {
    static const char_set digit = {UC_BIT(UC_ND), 0}, space = {0, UC_SPACE}, word = {0, UC_WORD};
    *done = true;
    switch (c) {
    case 'd':
    case 'D': add_set(t->out, &digit, c == 'D', in_class); return true;
    case 's':
    case 'S': add_set(t->out, &space, c == 'S', in_class); return true;
    case 'w':
    case 'W': add_set(t->out, &word, c == 'W', in_class); return true;
    case 'h': str_adds(t->out, in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]"); return true;
    case 'p':
    case 'P': return property(t, c == 'P', in_class);
    case 'v': str_adds(t->out, "\\x{0B}"); return true;
    case 'n':
    case 'r':
    case 't':
    case 'f':
    case 'e':
    case 'a':
        str_addc(t->out, '\\');
        str_addc(t->out, (char)c);
        return true;
    case 'x':
        if (peek(t, 0) != '{') return hex_escape(t, 2);
        str_adds(t->out, "\\x");
        do str_addc(t->out, t->s[t->i]);
        while (t->s[t->i++] != '}' && t->i < t->n);
        return true;
    case 'u': return hex_escape(t, 4);
    default: *done = false; return true;
    }
}

static bool escape(translator *t, bool in_class) {
    /* PCRE2's own \b knows other words than \w above */
    static const char_set word = {0, UC_WORD};
    size_t at = t->i++;
    int c = peek(t, 0);
    bool done;
    if (c < 0) return refuse(t, at, "a backslash at the end");
    t->i++;
    if (!common_escape(t, c, in_class, &done) || done) return t->e->code == ERR_NONE;
    if (c >= 128) {
        str_addc(t->out, (char)c);
    } else if (!isalnum(c)) {
        str_addc(t->out, '\\');
        str_addc(t->out, (char)c);
    } else if (in_class && c == 'b') {
        str_adds(t->out, "\\x{08}");
    } else if (!in_class && (c == 'b' || c == 'B')) {
        str w = {0};
        add_set(&w, &word, false, false);
        const char *s =
            str_get(&w); /* if the last is a word character: the next isn't; else: it is. \B the other way */
        str_printf(t->out, "(?(?<=%s)(?%c%s)|(?%c%s))", s, c == 'b' ? '!' : '=', s, c == 'b' ? '=' : '!', s);
        str_free(&w);
    } else if (!in_class &&
               (c == 'A' || c == 'z' || c == 'Z' || c == 'G' || c == 'R' || (c >= '1' && c <= '9'))) {
        str_addc(t->out, '\\');
        str_addc(t->out, (char)c);
    } else {
        char what[] = "the escape \\?";
        what[sizeof what - 2] = (char)c;
        return refuse(t, at, what);
    }
    return true;
}

/* ---- The rest of the syntax ---- */

static bool bracket(translator *t) {
    size_t at = t->i++;
    str_addc(t->out, '[');
    if (peek(t, 0) == '^') str_addc(t->out, '^'), t->i++;
    if (peek(t, 0) == ']') return refuse(t, at, "a class that begins with ]");
    for (;;) {
        int c = peek(t, 0);
        if (c < 0) return refuse(t, at, "a class without its end");
        if (c == '[') return refuse(t, t->i, "a class inside a class");
        if (starts(t, "&&")) return refuse(t, t->i, "an intersection of classes");
        if (c == '\\') {
            if (!escape(t, true)) return false;
            continue;
        }
        str_addc(t->out, (char)c);
        t->i++;
        if (c == ']') return true;
    }
}

/* (?flags) and (?flags: ... Ruby's m is PCRE2's s. */
static bool flags(translator *t) {
    size_t at = t->i;
    bool first = at == 0;
    str_adds(t->out, "(?");
    for (t->i += 2;; t->i++) {
        int c = peek(t, 0);
        if (c == 'i' || c == '-')
            str_addc(t->out, (char)c);
        else if (c == 'm')
            str_addc(t->out, 's');
        else if (c == ':' || (c == ')' && first))
            break;
        else
            return refuse(t, at, "this kind of group");
    }
    str_addc(t->out, t->s[t->i++]);
    return true;
}

static bool group(translator *t) {
    static const char *const same[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    for (size_t k = 0; k < sizeof same / sizeof *same; k++) {
        if (!starts(t, same[k])) continue;
        str_adds(t->out, same[k]);
        t->i += strlen(same[k]);
        return true;
    }
    if (starts(t, "(?")) return flags(t);
    if (starts(t, "(*")) return refuse(t, t->i, "(*");
    str_addc(t->out, t->s[t->i++]);
    return true;
}

/* {n}, {n,}, {n,m}, {,m}; any other brace is literal. In Ruby {n,m}+ isn't possessive and {n}? isn't lazy. */
static bool brace(translator *t) {
    size_t at = t->i, i = t->i + 1, low = i, comma = 0;
    while (i < t->n && (isdigit((uint8_t)t->s[i]) || (t->s[i] == ',' && !comma))) {
        if (t->s[i] == ',') comma = i;
        i++;
    }
    bool number = comma ? comma > low || i > comma + 1 : i > low;
    if (i >= t->n || t->s[i] != '}' || !number) {
        str_adds(t->out, "\\{");
        t->i++;
        return true;
    }
    int next = i + 1 < t->n ? t->s[i + 1] : 0;
    if (next == '+' || (next == '?' && !comma)) return refuse(t, at, "a suffix of {n,m}");
    str_addc(t->out, '{');
    if (comma == low) str_addc(t->out, '0');
    str_add(t->out, t->s + low, i + 1 - low);
    t->i = i + 1;
    return true;
}

bool regex_translate(str *out, const char *regex, size_t n, err *e) {
    translator t = {regex, n, 0, out, e};
    if (n > 10000) return err_set(e, ERR_LIMIT, "%zu bytes long, 10000 are supported", n);
    while (t.i < n) {
        bool ok = true;
        switch (regex[t.i]) {
        case '\\': ok = escape(&t, false); break;
        case '[': ok = bracket(&t); break;
        case '(': ok = group(&t); break;
        case '{': ok = brace(&t); break;
        default: str_addc(out, regex[t.i++]);
        }
        if (!ok) return false;
        if (out->len > 4 << 20) return err_set(e, ERR_LIMIT, "needs more than %d bytes of classes", 4 << 20);
    }
    return true;
}
