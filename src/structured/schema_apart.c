#include "structured/schema.h"
#include <string.h>

enum { LOOK_DEPTH = 4 }; /* properties of properties */

static bool numbers_apart(const facts *x, const facts *y) {
    for (int turn = 0; turn < 2; turn++) {
        const bound *low = turn ? &y->low : &x->low, *high = turn ? &x->high : &y->high;
        if (!low->v || !high->v) continue;
        int order = compare_numbers(low->v, high->v);
        if (order > 0 || (!order && (low->exclusive || high->exclusive))) return true;
    }
    return false;
}

static bool strings_apart(compiler *c, const facts *x, const facts *y, bool *apart) {
    *apart = x->min_length > y->max_length || y->min_length > x->max_length;
    if (*apart || !strings_have_form(x) || !strings_have_form(y)) return true;
    dfa one, other, both;
    dfa_maker *m = net_maker(c->n);
    if (!strings_dfa(c, x, WRITE_PLAIN, "", &one) || !strings_dfa(c, y, WRITE_PLAIN, "", &other) ||
        !dfa_intersect(m, &both, &one, &other, "strings of two branches"))
        return false;
    *apart = dfa_is_empty(&both);
    return true;
}

static bool requires(const facts *f, const json *name) {
    for (size_t i = 0; i < f->required.n; i++)
        if (json_equal(f->required.v[i], name)) return true;
    return false;
}

/* A property that one requires, and of which the two say what can't both be. */
static bool objects_apart(compiler *c, const facts *x, const facts *y, unsigned depth, bool *apart) {
    *apart = x->min_members > y->max_members || y->min_members > x->max_members;
    for (int turn = 0; turn < 2 && depth < LOOK_DEPTH; turn++) {
        const facts *from = turn ? y : x;
        for (size_t i = 0; !*apart && i < from->required.n; i++) {
            goal one, other;
            const json *name = from->required.v[i];
            if (turn && requires(x, from->required.v[i])) continue;
            if (!member_goal(c, x, name->s, name->len, &one) ||
                !member_goal(c, y, name->s, name->len, &other) ||
                !goals_apart(c, &one, &other, depth + 1, apart))
                return false;
        }
    }
    return true;
}

/* Whether what one of them lists is nothing for the other. */
static bool listed_apart(compiler *c, const facts *x, const facts *y, bool *apart) {
    const facts *list = x->listed ? x : y, *other = x->listed ? y : x;
    *apart = true;
    for (size_t i = 0; *apart && i < list->value.n; i++) {
        const json *v = list->value.v[i];
        bool ok = json_type(v) < T_ARRAY || (other->types & json_type(v));
        if (json_type(v) < T_ARRAY && !facts_allow(c, other, v, &ok)) return false;
        for (size_t k = 0; ok && other->listed; k++) {
            if (k == other->value.n)
                ok = false;
            else if (json_equal(other->value.v[k], v))
                break;
        }
        *apart = !ok;
    }
    return true;
}

static bool facts_apart(compiler *c, const facts *x, const facts *y, unsigned depth, bool *apart) {
    unsigned types = x->types & y->types;
    if (x->listed || y->listed) return listed_apart(c, x, y, apart);
    *apart = !(types & (T_NULL | T_BOOLEAN));
    if (*apart && (types & T_NUMBER)) *apart = numbers_apart(x, y);
    if (*apart && (types & T_STRING) && !strings_apart(c, x, y, apart)) return false;
    if (*apart && (types & T_ARRAY)) *apart = x->min_items > y->max_items || y->min_items > x->max_items;
    return !*apart || !(types & T_OBJECT) || objects_apart(c, x, y, depth, apart);
}

bool goals_apart(compiler *c, const goal *x, const goal *y, unsigned depth, bool *apart) {
    facts one, other;
    goal spread_x, spread_y;
    if (!goal_spread(c, x, &spread_x) || !goal_spread(c, y, &spread_y) || !facts_read(c, &spread_x, &one) ||
        !facts_read(c, &spread_y, &other))
        return false;
    return facts_apart(c, &one, &other, depth, apart);
}
