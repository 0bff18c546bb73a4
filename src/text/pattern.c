#define _GNU_SOURCE
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"
#include "base/arena.h"
#include "text/unicode.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* Steps that one attempt of PCRE2 may take: far more than a long run of spaces needs, far less than a hang.
 */
#define MATCH_LIMIT 50000000u

typedef struct rule rule;
/* End of the match that begins at s[i], i < n. The known expressions match something everywhere. */
typedef size_t match_fn(const rule *r, const uint8_t *s, size_t n, size_t i);

struct rule {
    const char *regex;
    match_fn *match;
    uint32_t word;   /* categories that make a word */
    unsigned digits; /* at most so many in a piece */
};

typedef enum { KIND_RULE, KIND_PCRE, KIND_LITERAL, KIND_DIGIT } kind;

struct pattern {
    kind kind;
    const rule *rule;
    str text; /* the literal; the translated expression */
    pcre2_code *code;
    pcre2_general_context *memory;
    pcre2_match_context *context;
};

/* ---- Known expressions ---- */

/* End of the run of code points of these categories that begins at s[i]. */
static size_t run(const uint8_t *s, size_t n, size_t i, uint32_t categories) {
    size_t len;
    for (; i < n && unicode_bit(utf8_decode(s + i, &len)) & categories; i += len) {
    }
    return i;
}

/* The same for [^\s...]: neither a space nor of these categories. */
static size_t run_other(const uint8_t *s, size_t n, size_t i, uint32_t categories) {
    size_t len;
    for (; i < n; i += len) {
        unsigned c = unicode_class(utf8_decode(s + i, &len));
        if (c & UC_SPACE || UC_BIT(c & UC_CATEGORY) & categories) break;
    }
    return i;
}

static size_t run_newlines(const uint8_t *s, size_t n, size_t i) {
    while (i < n && (s[i] == '\r' || s[i] == '\n')) i++;
    return i;
}

/* \s*[\r\n]+ (if newlines), \s+(?!\S), \s+ for a space at s[i]. */
static size_t match_spaces(const uint8_t *s, size_t n, size_t i, bool newlines) {
    size_t end = i, last = i, newline = 0, len;
    for (; end < n && unicode_is_space(utf8_decode(s + end, &len)); end += len) {
        last = end;
        if (s[end] == '\r' || s[end] == '\n') newline = end + 1;
    }
    if (newlines && newline) return newline;
    return end < n && last > i ? last : end;
}

/* Length of 's 't 're 've 'm 'll 'd at s[i] == '\''; 0 when none. Caseless: U+017F is an s too. */
static size_t contraction(const uint8_t *s, size_t n, size_t i, bool caseless) {
    uint8_t fold = caseless ? 0x20 : 0;
    if (n - i < 2) return 0;
    uint8_t a = s[i + 1] | fold, b = n - i > 2 ? s[i + 2] | fold : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return caseless && n - i > 2 && s[i + 1] == 0xC5 && s[i + 2] == 0xBF ? 3 : 0;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?WORD+|\p{N}{1,digits}| ?[^\s WORD \p{N}]+[\r\n]*|\s*[\r\n]+|
 * \s+(?!\S)|\s+ */
static size_t match_words(const rule *r, const uint8_t *s, size_t n, size_t i) {
    size_t len, end;
    if (s[i] == '\'' && (len = contraction(s, n, i, true))) return i + len;
    uint32_t bit = unicode_bit(utf8_decode(s + i, &len));
    bool newline = s[i] == '\r' || s[i] == '\n';
    size_t from = newline || bit & (UC_IS_L | UC_IS_N) ? i : i + len;
    if ((end = run(s, n, from, r->word)) > from) return end;
    if (bit & r->word) return i + len; /* a mark that was tried as the optional character */
    if (bit & UC_IS_N) {
        end = i + len;
        for (unsigned k = 1; k < r->digits && end < n; k++, end += len)
            if (!(unicode_bit(utf8_decode(s + end, &len)) & UC_IS_N)) break;
        return end;
    }
    from = s[i] == ' ' ? i + 1 : i;
    if ((end = run_other(s, n, from, r->word | UC_IS_N)) > from) return run_newlines(s, n, end);
    return match_spaces(s, n, i, true);
}

static size_t match_gpt2(const rule *r, const uint8_t *s, size_t n, size_t i) {
    size_t len, end, from = s[i] == ' ' ? i + 1 : i;
    if (s[i] == '\'' && (len = contraction(s, n, i, false))) return i + len;
    if ((end = run(s, n, from, r->word)) > from) return end;
    if ((end = run(s, n, from, UC_IS_N)) > from) return end;
    if ((end = run_other(s, n, from, r->word | UC_IS_N)) > from) return end;
    return match_spaces(s, n, i, false);
}

static const rule rules[] = {
    /* digits one by one */
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     match_words, UC_IS_L, 1},
    /* the same, marks as parts of words */
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
     "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     match_words, UC_IS_L | UC_IS_M, 1},
    /* digits in threes */
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     match_words, UC_IS_L, 3},
    {PATTERN_GPT2, match_gpt2, UC_IS_L, 0},
};

/* ---- Making patterns ---- */

static pattern *pattern_new(kind k) {
    pattern *p = mem_alloc(sizeof *p);
    *p = (pattern){.kind = k};
    return p;
}

void pattern_free(pattern *p) {
    if (!p) return;
    str_free(&p->text);
    pcre2_code_free(p->code);
    pcre2_match_context_free(p->context);
    pcre2_general_context_free(p->memory);
    mem_free(p);
}

pattern *pattern_digit(void) {
    return pattern_new(KIND_DIGIT);
}

pattern *pattern_literal(const char *text, size_t n) {
    pattern *p = pattern_new(KIND_LITERAL);
    str_add(&p->text, text, n);
    return p;
}

/* The expression without what would break the one line of an error message. */
static const char *shown(const char *regex, size_t n, char out[200]) {
    size_t len = 0;
    for (size_t i = 0; i < n && len < 199; i++)
        if ((uint8_t)regex[i] >= 32 && regex[i] != 127) out[len++] = regex[i];
    out[len] = 0;
    return out;
}

static void *pcre2_take(size_t n, void *ctx) {
    (void)ctx;
    return mem_try_aligned(n, 1);
}

static void pcre2_give(void *p, void *ctx) {
    (void)ctx;
    mem_free(p);
}

static bool compile(pattern *p, err *e) {
    if (p->text.len > 1 << 20) return err_set(e, ERR_LIMIT, "too large: %zu bytes for PCRE2", p->text.len);
    int code;
    size_t at;
    p->memory = pcre2_general_context_create(pcre2_take, pcre2_give, NULL);
    pcre2_compile_context *c = pcre2_compile_context_create(p->memory);
    if (!p->memory || !c) mem_die(0);
    pcre2_set_newline(c, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(c, 100);
    p->code = pcre2_compile((PCRE2_SPTR)str_get(&p->text), p->text.len,
                            PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, c);
    pcre2_compile_context_free(c);
    if (!p->code) {
        char why[160];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(e, ERR_FORMAT, "%s", why);
    }
    pcre2_jit_compile(p->code,
                      PCRE2_JIT_COMPLETE); /* without it (no executable memory) the interpreter runs */
    p->context = pcre2_match_context_create(p->memory);
    if (!p->context) mem_die(0);
    pcre2_set_match_limit(p->context, MATCH_LIMIT);
    return true;
}

pattern *pattern_regex(const char *regex, size_t n, bool known, err *e) {
    for (size_t i = 0; known && i < sizeof rules / sizeof *rules; i++) {
        if (strlen(rules[i].regex) != n || memcmp(rules[i].regex, regex, n)) continue;
        pattern *p = pattern_new(KIND_RULE);
        p->rule = &rules[i];
        return p;
    }
    char text[200];
    pattern *p = pattern_new(KIND_PCRE);
    if (regex_translate(&p->text, regex, n, e) && compile(p, e)) return p;
    err_where(e, "regular expression \"%s\"", shown(regex, n, text));
    pattern_free(p);
    return NULL;
}

/* ---- Matching ---- */

void matcher_begin(matcher *m, const pattern *p, const uint8_t *s, size_t n) {
    *m = (matcher){p, s, n, 0, SIZE_MAX, NULL};
    if (p->kind == KIND_PCRE) {
        m->data = pcre2_match_data_create(1, p->memory);
        if (!m->data) mem_die(0);
    }
}

void matcher_end(matcher *m) {
    pcre2_match_data_free(m->data);
    m->data = NULL;
}

static int next_pcre(matcher *m, size_t *start, size_t *end, err *e) {
    while (m->at <= m->n) {
        const pattern *p = m->p;
        /* 1 pair of offsets is enough, so 0 (no room for groups) is a match too */
        int r = pcre2_match(p->code, m->s, m->n, m->at, PCRE2_NO_UTF_CHECK, m->data, p->context);
        if (r == PCRE2_ERROR_JIT_STACKLIMIT)
            r = pcre2_match(p->code, m->s, m->n, m->at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
                            p->context);
        if (r == PCRE2_ERROR_NOMATCH) break;
        if (r < 0) {
            char why[160];
            pcre2_get_error_message(r, (PCRE2_UCHAR *)why, sizeof why);
            err_set(e, ERR_LIMIT, "the tokenizer's regular expression fails at byte %zu of the text: %s",
                    m->at, why);
            return -1;
        }
        const size_t *v = pcre2_get_ovector_pointer(m->data);
        if (v[0] < m->at || v[1] < v[0]) { /* \K in a lookaround */
            err_set(e, ERR_UNSUPPORTED, "the tokenizer's regular expression matches backwards");
            return -1;
        }
        if (v[0] != v[1] || v[1] != m->last_match) {
            *start = v[0];
            *end = m->at = m->last_match = v[1];
            return 1;
        }
        size_t len = 1;
        if (m->at < m->n) utf8_decode(m->s + m->at, &len);
        m->at += len;
    }
    m->at = m->n + 1;
    return 0;
}

static bool next_literal(matcher *m, size_t *start, size_t *end) {
    const str *t = &m->p->text;
    const uint8_t *hit = m->at < m->n ? memmem(m->s + m->at, m->n - m->at, t->s, t->len) : NULL;
    if (!hit) return false;
    *start = (size_t)(hit - m->s);
    *end = m->at = *start + t->len;
    return true;
}

static bool next_digit(matcher *m, size_t *start, size_t *end) {
    for (size_t len; m->at < m->n; m->at += len) {
        if (!(unicode_class(utf8_decode(m->s + m->at, &len)) & UC_NUMERIC)) continue;
        *start = m->at;
        *end = m->at += len;
        return true;
    }
    return false;
}

int matcher_next(matcher *m, size_t *start, size_t *end, err *e) {
    switch (m->p->kind) {
    case KIND_PCRE: return next_pcre(m, start, end, e);
    case KIND_LITERAL: return next_literal(m, start, end);
    case KIND_DIGIT: return next_digit(m, start, end);
    case KIND_RULE: break;
    }
    if (m->at >= m->n) return 0;
    *start = m->at;
    *end = m->at = m->p->rule->match(m->p->rule, m->s, m->n, m->at);
    return 1;
}
