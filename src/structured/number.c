#include "structured/number.h"
#include "base/str.h"
#include "structured/lexical.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FRACTION_DIGITS = 15 };

/* A decimal number: digits d[0..n), the point behind the first `point` of them (which may lie outside). */
typedef struct {
    char d[32];
    int n, point;
    bool negative;
} decimal;

static decimal decimal_of(const json *v) {
    str s = {0};
    if (v->kind == JSON_INT)
        str_printf(&s, "%lld", (long long)v->i);
    else
        str_json_double(&s, v->d);
    decimal x = {0};
    const char *p = str_get(&s);
    bool seen_point = false;
    if (*p == '-') x.negative = true, p++;
    for (; *p && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            seen_point = true;
            continue;
        }
        if (x.n || *p != '0') {
            if (x.n < (int)sizeof x.d) x.d[x.n++] = *p;
            x.point += !seen_point;
        } else if (seen_point)
            x.point--;
    }
    if (*p) x.point += atoi(p + 1);
    str_free(&s);
    while (x.n && x.d[x.n - 1] == '0') x.n--;
    if (!x.n) x.point = 0, x.negative = false;
    return x;
}

/* |x| * 10^shift as a whole number below `limit` (else limit); *exact: nothing was cut off. */
static uint64_t scaled(const decimal *x, int shift, uint64_t limit, bool *exact) {
    uint64_t v = 0;
    int digits = x->point + shift;
    *exact = x->n <= digits || !x->n;
    for (int i = 0; i < digits && x->n; i++) {
        unsigned digit = i < x->n ? (unsigned)(x->d[i] - '0') : 0;
        if (v >= limit / 10) return *exact = true, limit;
        v = v * 10 + digit;
    }
    return v;
}

/* ---- ranges of magnitudes ---- */

/* Texts of one length of the part before the point: digits lo..hi, of `whole` digits before and `after`
 * behind it.
 */
typedef struct {
    arena *a;
    const char *lo, *hi;
    int whole, after;
} window;

static const rx *digits(arena *a, unsigned lo, unsigned hi) {
    return lo > hi ? rx_none(a) : rx_bytes(a, '0' + lo, '0' + hi);
}

static bool zeros_from(const char *s, int i, int n) {
    while (i < n && s[i] == '0') i++;
    return i >= n;
}

/* What may follow i digits: tight_lo, tight_hi: they are those of the bound. */
static const rx *tail(const window *w, int i, bool tight_lo, bool tight_hi) {
    int n = w->whole + w->after;
    bool may_stop = i >= w->whole && (!tight_lo || zeros_from(w->lo, i, n));
    const rx *stop = may_stop && i != w->whole ? rx_empty(w->a) : rx_none(w->a), *x = rx_none(w->a);
    if (i == n) return n == w->whole ? rx_empty(w->a) : stop;
    arena *a = w->a;
    if (!tight_lo && !tight_hi) {
        const rx *any = digits(a, 0, 9);
        if (i < w->whole) {
            x = rx_repeat(a, any, (uint32_t)(w->whole - i), (uint32_t)(w->whole - i));
            if (!w->after) return x;
            const rx *f = rx_cat(a, rx_text(a, "."), rx_repeat(a, any, 1, (uint32_t)w->after));
            return rx_cat(a, x, rx_optional(a, f));
        }
        uint32_t left = (uint32_t)(n - i);
        if (i > w->whole) return rx_repeat(a, any, 0, left);
        return rx_optional(a, rx_cat(a, rx_text(a, "."), rx_repeat(a, any, 1, left)));
    }
    unsigned lo = tight_lo ? (unsigned)(w->lo[i] - '0') : 0, hi = tight_hi ? (unsigned)(w->hi[i] - '0') : 9;
    if (lo == hi)
        x = rx_cat(a, digits(a, lo, lo), tail(w, i + 1, tight_lo, tight_hi));
    else {
        unsigned from = lo + tight_lo, to = hi - tight_hi;
        if (tight_lo) x = rx_alt(a, x, rx_cat(a, digits(a, lo, lo), tail(w, i + 1, true, false)));
        if (from <= to) x = rx_alt(a, x, rx_cat(a, digits(a, from, to), tail(w, i + 1, false, false)));
        if (tight_hi) x = rx_alt(a, x, rx_cat(a, digits(a, hi, hi), tail(w, i + 1, false, true)));
    }
    if (i == w->whole) {
        x = rx_cat(a, rx_text(a, "."), x);
        if (may_stop) stop = rx_empty(a);
    }
    return stop->kind == RX_EMPTY ? rx_optional(a, x) : x;
}

static uint64_t power(int n) {
    uint64_t p = 1;
    while (n-- > 0) p *= 10;
    return p;
}

static void print(char *out, uint64_t v, int n) {
    for (out[n] = 0; n > 0; v /= 10) out[--n] = (char)('0' + v % 10);
}

/* Bounds of a magnitude. */
typedef struct {
    decimal low, high;
    bool low_exclusive, high_exclusive, has_high;
} span;

enum { MOST = 18 }; /* digits of a bound that are compared */

/* Magnitudes of the span with `whole` digits before the point and up to `after` behind it. */
static const rx *of_length(arena *a, const span *s, int whole, int after) {
    int n = whole + after;
    bool exact;
    uint64_t end = power(n), lo = scaled(&s->low, after, end, &exact);
    if (!exact || s->low_exclusive) lo++;
    uint64_t least = whole > 1 ? power(n - 1) : 0, hi = end - 1;
    if (lo < least) lo = least;
    if (s->has_high) {
        uint64_t top = scaled(&s->high, after, end, &exact);
        if (exact && s->high_exclusive) {
            if (!top) return rx_none(a);
            top--;
        }
        if (top < hi) hi = top;
    }
    if (lo > hi) return rx_none(a);
    char from[MOST + 2], to[MOST + 2];
    print(from, lo, n);
    print(to, hi, n);
    window w = {a, from, to, whole, after};
    return tail(&w, 0, true, true);
}

/* Magnitudes of a span. Beyond the digits that are compared all are taken when there is no upper bound. */
static const rx *magnitudes(arena *a, const span *s, bool whole_only) {
    const rx *x = rx_none(a);
    int most = whole_only ? MOST : FRACTION_DIGITS;
    for (int whole = 1; whole <= most; whole++)
        x = rx_alt(a, x, of_length(a, s, whole, whole_only ? 0 : FRACTION_DIGITS - whole));
    if (!whole_only || s->has_high || s->low.point > most) return x;
    const rx *rest = rx_repeat(a, digits(a, 0, 9), MOST, LEX_DIGITS - 1);
    return rx_alt(a, x, rx_cat(a, digits(a, 1, 9), rest));
}

const rx *number_range(arena *a, const json *low, bool low_exclusive, const json *high, bool high_exclusive,
                       bool whole) {
    decimal zero = {0}, lo = low ? decimal_of(low) : zero, hi = high ? decimal_of(high) : zero;
    const rx *x = rx_none(a);
    if (!high || !hi.negative) { /* from 0 on */
        bool from_low = low && !lo.negative;
        span s = {from_low ? lo : zero, hi, from_low && low_exclusive, high && high_exclusive, high != NULL};
        x = magnitudes(a, &s, whole);
    }
    if (!low || lo.negative) { /* below 0 */
        bool from_high = high && hi.negative;
        span s = {from_high ? hi : zero, lo, !from_high || high_exclusive, low && low_exclusive, low != NULL};
        x = rx_alt(a, x, rx_cat(a, rx_text(a, "-"), magnitudes(a, &s, whole)));
    }
    return x;
}

bool number_multiples(dfa_maker *m, dfa *d, uint32_t n) {
    /* 1 start, 2 behind the sign, 3 the digit 0, 4 + r: remainder r of digits so far */
    if (n > DFA_MAX_STATES - 4) return err_set(m->e, ERR_LIMIT, "multipleOf: too large");
    *d = (dfa){.n = n + 4, .next = arena_array(m->a, n + 4, sizeof *d->next)};
    d->accept = ARENA_ARRAY(m->a, bool, n + 4);
    d->next[1]['-'] = 2;
    d->next[1]['0'] = 3;
    for (uint32_t i = 1; i <= 9; i++) d->next[1]['0' + i] = d->next[2]['0' + i] = 4 + i % n;
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i <= 9; i++) d->next[4 + r]['0' + i] = 4 + (r * 10 + i) % n;
    d->accept[3] = d->accept[4] = true;
    return true;
}
