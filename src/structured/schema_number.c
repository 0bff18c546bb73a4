#include "structured/number.h"
#include "structured/schema.h"
#include <math.h>

/* Whether there are numbers within the bounds, of however many digits. */
static bool any_within(const facts *f, bool whole) {
    const json *low = f->low.v, *high = f->high.v;
    if (!low || !high) return true;
    if (!whole) return compare_numbers(low, high) < 0;
    double first = f->low.exclusive ? floor(low->d) + 1 : ceil(low->d);
    return first <= (f->high.exclusive ? ceil(high->d) - 1 : floor(high->d));
}

static bool is_empty(const dfa *d) {
    for (uint32_t i = 0; i < d->n; i++)
        if (d->accept[i]) return false;
    return true;
}

/* Numbers with bounds or multiples as an automaton. */
static bool numbers_dfa(compiler *c, const facts *f, bool whole, dfa *d) {
    dfa_maker *m = net_maker(c->n);
    const rx *x = number_range(c->a, f->low.v, f->low.exclusive, f->high.v, f->high.exclusive, whole);
    if (!dfa_make(m, d, x, "numbers with bounds")) return false;
    if (is_empty(d) && any_within(f, whole))
        return err_set(
            c->e, ERR_UNSUPPORTED,
            "schema: %s: bounds are compared in 15 digits without exponent (whole numbers: 18), and "
            "no such number lies within them",
            f->low.v ? f->low.v->key : f->high.v->key);
    for (size_t i = 0; i < f->multiple.n; i++) {
        dfa multiples, both;
        if (!number_multiples(m, &multiples, (uint32_t)f->multiple.v[i]->d) ||
            !dfa_intersect(m, &both, d, &multiples, "multipleOf with bounds"))
            return false;
        *d = both;
    }
    return true;
}

bool add_numbers(compiler *c, const facts *f, uint32_t start, uint32_t end) {
    bool whole = !(f->types & T_FRACTION) || f->multiple.n;
    if (!f->low.v && !f->high.v && !f->multiple.n) {
        net_take(c->n, start, whole ? json_integer(&c->j) : json_number(&c->j), end);
        return !net_failed(c->n);
    }
    dfa d;
    if (!numbers_dfa(c, f, whole, &d)) return false;
    net_take(c->n, start, net_terminal_dfa(c->n, &d, NULL), end);
    return !net_failed(c->n);
}
