#include "structured/regex.h"
#include "structured/schema.h"
#include <string.h>

enum { MAX_LISTED_LENGTH = 1500 }; /* of strings whose form is given, too */

/* Formats as patterns. A time has no leap second: what reads it may not know them. */
#define YEARS     "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP      "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define LONG_DAYS "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
#define DAYS      "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
#define FEBRUARY  "02-(?:0[1-9]|1[0-9]|2[0-8])"
#define TIME                                                                                                 \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define BYTE  "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define DATE  "(?:" YEARS "-(?:" LONG_DAYS "|" DAYS "|" FEBRUARY ")|" LEAP "-02-29)"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"ipv4", "^" BYTE "\\." BYTE "\\." BYTE "\\." BYTE "$"},
    {"hostname", "^(?:" LABEL "\\.){0,3}" LABEL "$"},
    {"email", "^[A-Za-z0-9_+-]+(?:\\.[A-Za-z0-9_+-]+){0,3}@(?:" LABEL "\\.){1,3}" LABEL "$"},
};

bool strings_have_form(const facts *f) {
    return f->pattern.n || f->format.n;
}

/* What a keyword of strings is a member of, for messages. */
static const json *owner_of(const facts *f, const json *v) {
    for (size_t i = 0; i < f->parts.n; i++) JSON_EACH(x, f->parts.part[i].schema)
    if (x == v) return f->parts.part[i].schema;
    return NULL;
}

/* Adds what a pattern says to d (n 0: nothing yet). */
static bool intersect(compiler *c, const facts *f, const json *v, const char *s, size_t n, writing w,
                      const char *behind, dfa *d) {
    err inner = {0};
    dfa_maker *m = net_maker(c->n);
    const rx *x = regex_search(c->a, s, n, w, &inner);
    dfa one, both;
    if (!x) return bad_keyword(c, owner_of(f, v), v->key, inner.code, inner.msg);
    if (!dfa_make(m, &one, rx_cat(c->a, x, rx_text(c->a, behind)), place_of(c, v))) return false;
    if (!d->n) return *d = one, true;
    if (!dfa_intersect(m, &both, d, &one, place_of(c, v))) return false;
    return *d = both, true;
}

static bool intersect_format(compiler *c, const facts *f, const json *v, writing w, const char *behind,
                             dfa *d) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (json_is(v, formats[i].name))
            return intersect(c, f, v, formats[i].pattern, strlen(formats[i].pattern), w, behind, d);
    const char *why =
        arena_printf(c->a,
                     "format %.60s is not supported (date, time, date-time, uuid, ipv4, hostname, "
                     "email are)",
                     v->s);
    return bad_keyword(c, owner_of(f, v), v->key, ERR_UNSUPPORTED, why);
}

/* Strings of so many characters. */
static bool intersect_lengths(compiler *c, const facts *f, writing w, const char *behind, dfa *d) {
    dfa_maker *m = net_maker(c->n);
    bool no_limit = f->max_length == UINT64_MAX;
    uint64_t most = no_limit ? f->min_length : f->max_length;
    if (most > MAX_LISTED_LENGTH)
        return err_set(c->e, ERR_LIMIT, "schema %s: a pattern or format with lengths above %d",
                       place_of(c, f->parts.part[0].schema), MAX_LISTED_LENGTH);
    const rx *any = lex_chars(c->a, 0, 0x10FFFF, w);
    const rx *x =
        rx_repeat(c->a, any, (uint32_t)f->min_length, no_limit ? RX_FOREVER : (uint32_t)f->max_length);
    dfa lengths, both;
    if (f->min_length > f->max_length) x = rx_none(c->a);
    if (!dfa_make(m, &lengths, rx_cat(c->a, x, rx_text(c->a, behind)), "lengths of strings")) return false;
    if (!dfa_intersect(m, &both, d, &lengths, "a pattern or format with lengths")) return false;
    return *d = both, true;
}

bool strings_dfa(compiler *c, const facts *f, writing w, const char *behind, dfa *d) {
    *d = (dfa){0};
    for (size_t i = 0; i < f->pattern.n; i++)
        if (!intersect(c, f, f->pattern.v[i], f->pattern.v[i]->s, f->pattern.v[i]->len, w, behind, d))
            return false;
    for (size_t i = 0; i < f->format.n; i++)
        if (!intersect_format(c, f, f->format.v[i], w, behind, d)) return false;
    bool lengths = f->min_length || f->max_length != UINT64_MAX;
    const rx *any = rx_repeat(c->a, lex_chars(c->a, 0, 0x10FFFF, w), 0, RX_FOREVER);
    if (!d->n && !dfa_make(net_maker(c->n), d, rx_cat(c->a, any, rx_text(c->a, behind)), "a string"))
        return false;
    return !lengths || intersect_lengths(c, f, w, behind, d);
}

/* before, d, behind: one after the other. */
bool dfa_enclose(compiler *c, const char *before, dfa *d, const char *behind) {
    size_t n = strlen(before), k = strlen(behind);
    dfa x = {.n = (uint32_t)(d->n + n + k)};
    if (dfa_is_empty(d)) return true;
    x.next = arena_array(c->a, x.n, sizeof *x.next);
    x.accept = ARENA_ARRAY(c->a, bool, x.n);
    uint32_t inner = (uint32_t)n, close = (uint32_t)(d->n + n); /* d's state s is inner + s */
    for (size_t i = 0; i < n; i++) x.next[1 + i][(uint8_t)before[i]] = (uint32_t)(i + 2);
    for (uint32_t s = 1; s < d->n; s++) {
        for (unsigned b = 0; b < 256; b++)
            if (d->next[s][b]) x.next[inner + s][b] = inner + d->next[s][b];
        /* the closing text begins with a byte that d does not go on by */
        if (d->accept[s]) x.next[inner + s][(uint8_t)*behind] = close;
    }
    for (size_t i = 1; i < k; i++) x.next[close + i - 1][(uint8_t)behind[i]] = (uint32_t)(close + i);
    x.accept[close + k - 1] = true;
    *d = x;
    return true;
}

/* Strings of which lengths are all that is said: counted as they are written. */
static bool add_counted(compiler *c, const facts *f, uint32_t start, uint32_t end) {
    uint32_t max = f->max_length == UINT64_MAX ? NO_LIMIT : (uint32_t)f->max_length;
    dfa d;
    if (!dfa_make(net_maker(c->n), &d, json_quoted(c->a, rx_repeat(c->a, lex_any_char(c->a), 0, RX_FOREVER)),
                  "a string"))
        return false;
    terminal_options o = {
        .min = (uint32_t)f->min_length, .max = max, .counted = true, .body = d.next[1]['"']};
    if (f->min_length <= f->max_length) net_take(c->n, start, net_terminal_dfa(c->n, &d, &o), end);
    return !net_failed(c->n);
}

bool add_strings(compiler *c, const facts *f, uint32_t start, uint32_t end) {
    dfa d;
    if (f->plain[T_STRING]) {
        net_take(c->n, start, json_string(&c->j), end);
        return !net_failed(c->n);
    }
    if (!strings_have_form(f)) return add_counted(c, f, start, end);
    if (!strings_dfa(c, f, WRITE_JSON, "", &d) || !dfa_enclose(c, "\"", &d, "\"")) return false;
    net_take(c->n, start, net_terminal_dfa(c->n, &d, NULL), end);
    return !net_failed(c->n);
}
