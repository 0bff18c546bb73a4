#include "structured/dfa.h"
#include "base/map.h"
#include <stdlib.h>
#include <string.h>

/* ---- expressions ---- */

static rx *make(arena *a, rx_kind kind, uint64_t size) {
    rx *x = ARENA_NEW(a, rx);
    x->kind = kind;
    x->size = size;
    return x;
}

const rx *rx_none(arena *a) {
    return make(a, RX_NONE, 1);
}

const rx *rx_empty(arena *a) {
    return make(a, RX_EMPTY, 1);
}

const rx *rx_bytes(arena *a, unsigned lo, unsigned hi) {
    rx *x = make(a, RX_BYTES, 2);
    x->lo = (uint8_t)lo;
    x->hi = (uint8_t)hi;
    return x;
}

const rx *rx_cat(arena *a, const rx *x, const rx *y) {
    if (!x || x->kind == RX_EMPTY) return y;
    if (y->kind == RX_EMPTY) return x;
    rx *z = make(a, RX_CAT, x->size + y->size);
    z->a = x, z->b = y;
    return z;
}

const rx *rx_alt(arena *a, const rx *x, const rx *y) {
    if (!x || x->kind == RX_NONE) return y;
    if (y->kind == RX_NONE) return x;
    rx *z = make(a, RX_ALT, x->size + y->size + 2);
    z->a = x, z->b = y;
    return z;
}

/* A balanced tree, so that long texts don't nest deeply. */
const rx *rx_literal(arena *a, const void *s, size_t n) {
    const uint8_t *p = s;
    if (!n) return rx_empty(a);
    if (n == 1) return rx_bytes(a, *p, *p);
    return rx_cat(a, rx_literal(a, p, n / 2), rx_literal(a, p + n / 2, n - n / 2));
}

const rx *rx_text(arena *a, const char *s) {
    return rx_literal(a, s, strlen(s));
}

const rx *rx_repeat(arena *a, const rx *x, uint32_t min, uint32_t max) {
    if (x->kind == RX_EMPTY || !max) return rx_empty(a);
    if (x->kind == RX_NONE) return min ? x : rx_empty(a);
    if (min == 1 && max == 1) return x;
    uint64_t times = max == RX_FOREVER ? (uint64_t)min + 1 : max;
    rx *z = make(a, RX_REPEAT, x->size > UINT64_MAX / 4 / times ? UINT64_MAX / 4 : (x->size + 2) * times);
    z->a = x, z->min = min, z->max = max;
    return z;
}

const rx *rx_optional(arena *a, const rx *x) {
    return rx_repeat(a, x, 0, 1);
}

/* ---- expression to NFA: each state has two empty moves, or one move by a range of bytes ---- */

typedef struct {
    uint32_t to, other; /* other: 0 when there is none (state 0 is not used) */
    uint8_t lo, hi;
    bool by_byte;
} nfa_state;

typedef struct {
    arena *a;
    nfa_state *s;
    size_t n, cap;
} nfa;

static uint32_t nfa_add(nfa *m, nfa_state s) {
    m->s = arena_grow(m->a, m->s, m->n, &m->cap, m->n + 1, sizeof *m->s);
    m->s[m->n] = s;
    return (uint32_t)m->n++;
}

static uint32_t compile(nfa *m, const rx *x, uint32_t to);

static uint32_t compile_repeat(nfa *m, const rx *x, uint32_t to) {
    if (x->max == RX_FOREVER) {
        uint32_t loop = nfa_add(m, (nfa_state){.to = to});
        uint32_t body = compile(m, x->a, loop);
        m->s[loop].other = body;
        to = loop;
    } else {
        uint32_t end = to;
        for (uint32_t i = x->min; i < x->max; i++)
            to = nfa_add(m, (nfa_state){.to = compile(m, x->a, to), .other = end});
    }
    for (uint32_t i = 0; i < x->min; i++) to = compile(m, x->a, to);
    return to;
}

/* The state from which a string of x leads to `to`; 0: none does. */
static uint32_t compile(nfa *m, const rx *x, uint32_t to) {
    switch (x->kind) {
    case RX_NONE: return nfa_add(m, (nfa_state){.lo = 1, .by_byte = true});
    case RX_EMPTY: return to;
    case RX_BYTES: return nfa_add(m, (nfa_state){.to = to, .lo = x->lo, .hi = x->hi, .by_byte = true});
    case RX_CAT: return compile(m, x->a, compile(m, x->b, to));
    case RX_ALT: {
        uint32_t one = compile(m, x->a, to), other = compile(m, x->b, to);
        return nfa_add(m, (nfa_state){.to = one, .other = other});
    }
    case RX_REPEAT: return compile_repeat(m, x, to);
    }
    return 0;
}

/* ---- growing an automaton whose states stand for keys ---- */

enum { STATE_WORK = 1500 }; /* what a state costs, so that memory is bounded too */

typedef struct {
    dfa_maker *maker;
    arena *a;
    dfa d;
    map *known; /* key -> state */
    const uint32_t **key;
    size_t *key_n, key_cap, key_n_cap, next_cap, accept_cap;
    const char *what;
} grower;

static grower grower_new(dfa_maker *m, const char *what) {
    return (grower){.maker = m, .a = m->a, .what = what, .known = map_new(m->a, 64)};
}

static bool work(grower *g, int64_t steps) {
    g->maker->work -= steps;
    return g->maker->work >= 0 || err_set(g->maker->e, ERR_LIMIT, "%s: too much for an automaton", g->what);
}

/* The state of a key, made if it is new. UINT32_MAX: too many. */
static uint32_t grower_state(grower *g, const uint32_t *key, size_t n) {
    uint32_t known = map_get(g->known, (const char *)key, n * sizeof *key);
    if (known != MAP_NONE) return known;
    if (g->d.n >= DFA_MAX_STATES) {
        err_set(g->maker->e, ERR_LIMIT, "%s: needs more than %d states", g->what, DFA_MAX_STATES);
        return UINT32_MAX;
    }
    if (!work(g, STATE_WORK)) return UINT32_MAX;
    size_t at = g->d.n;
    g->d.next = arena_grow(g->a, g->d.next, at, &g->next_cap, at + 1, sizeof *g->d.next);
    g->d.accept = arena_grow(g->a, g->d.accept, at, &g->accept_cap, at + 1, sizeof *g->d.accept);
    g->key = arena_grow(g->a, g->key, at, &g->key_cap, at + 1, sizeof *g->key);
    g->key_n = arena_grow(g->a, g->key_n, at, &g->key_n_cap, at + 1, sizeof *g->key_n);
    memset(g->d.next[at], 0, sizeof g->d.next[at]);
    g->d.accept[at] = false;
    g->key[at] = arena_copy(g->a, key, n * sizeof *key);
    g->key_n[at] = n;
    map_add(g->known, (const char *)g->key[at], n * sizeof *key, (uint32_t)at);
    return g->d.n++;
}

/* Keeps the states that reach an end, in their order; without them all moves are dead. */
static void prune(dfa *d, arena *a) {
    uint32_t *count = ARENA_ARRAY(a, uint32_t, d->n + 1), *todo = ARENA_ARRAY(a, uint32_t, d->n), n = 0;
    bool *live = ARENA_ARRAY(a, bool, d->n);
    /* moves by their targets */
    for (uint32_t s = 0; s < d->n; s++)
        for (unsigned b = 0; b < 256; b++)
            if (d->next[s][b] && (!b || d->next[s][b] != d->next[s][b - 1])) count[d->next[s][b]]++;
    uint32_t total = 0;
    for (uint32_t s = 0; s <= d->n; s++) {
        uint32_t c = count[s];
        count[s] = total;
        total += c;
    }
    uint32_t *from = ARENA_ARRAY(a, uint32_t, total), *fill = arena_copy(a, count, d->n * sizeof *fill);
    for (uint32_t s = 0; s < d->n; s++)
        for (unsigned b = 0; b < 256; b++)
            if (d->next[s][b] && (!b || d->next[s][b] != d->next[s][b - 1])) from[fill[d->next[s][b]]++] = s;
    for (uint32_t s = 1; s < d->n; s++)
        if (d->accept[s]) live[s] = true, todo[n++] = s;
    while (n) {
        uint32_t s = todo[--n];
        for (uint32_t i = count[s]; i < count[s + 1]; i++)
            if (!live[from[i]]) live[from[i]] = true, todo[n++] = from[i];
    }
    uint32_t *name = ARENA_ARRAY(a, uint32_t, d->n), kept = 1;
    for (uint32_t s = 1; s < d->n; s++)
        if (live[s]) name[s] = kept++;
    if (d->n > 1 && !live[1]) kept = 1;
    for (uint32_t s = 1; kept > 1 && s < d->n; s++) {
        if (!live[s]) continue;
        for (unsigned b = 0; b < 256; b++) d->next[name[s]][b] = name[d->next[s][b]];
        d->accept[name[s]] = d->accept[s];
    }
    d->n = kept;
}

/* ---- NFA to DFA ---- */

typedef struct {
    const nfa *m;
    uint32_t end;
    uint32_t *stack, *set, *mark, turn;
    int64_t steps;
} closure;

static int by_number(const void *x, const void *y) {
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

/* Adds s and what is reached from it by empty moves: states that move by a byte, and the end. */
static size_t close_over(closure *c, uint32_t s, size_t n) {
    size_t top = 0;
    c->stack[top++] = s;
    while (top) {
        uint32_t t = c->stack[--top];
        c->steps++;
        if (c->mark[t] == c->turn) continue;
        c->mark[t] = c->turn;
        const nfa_state *x = &c->m->s[t];
        if (t == c->end || x->by_byte) {
            c->set[n++] = t;
            continue;
        }
        if (x->other && c->mark[x->other] != c->turn) c->stack[top++] = x->other;
        if (c->mark[x->to] != c->turn) c->stack[top++] = x->to;
    }
    return n;
}

/* The bytes at which the moves out of a set may change. */
static void boundaries(const closure *c, const uint32_t *key, size_t n, bool *at) {
    memset(at, 0, 257 * sizeof *at);
    at[0] = true;
    for (size_t i = 0; i < n; i++) {
        const nfa_state *x = &c->m->s[key[i]];
        if (key[i] != c->end) at[x->lo] = at[x->hi + 1] = true;
    }
}

static bool expand(grower *g, closure *c, uint32_t state) {
    bool at[257];
    const uint32_t *key = g->key[state];
    size_t n = g->key_n[state];
    boundaries(c, key, n, at);
    uint32_t to = 0;
    for (unsigned b = 0; b < 256; b++) {
        if (at[b]) {
            size_t k = 0;
            if (!work(g, (int64_t)n)) return false;
            c->turn++;
            for (size_t i = 0; i < n; i++) {
                const nfa_state *x = &c->m->s[key[i]];
                if (key[i] != c->end && x->lo <= b && b <= x->hi) k = close_over(c, x->to, k);
            }
            if (!work(g, c->steps)) return false;
            c->steps = 0;
            qsort(c->set, k, sizeof *c->set, by_number);
            to = k ? grower_state(g, c->set, k) : 0;
            if (to == UINT32_MAX) return false;
        }
        g->d.next[state][b] = to;
    }
    for (size_t i = 0; i < n; i++)
        if (key[i] == c->end) g->d.accept[state] = true;
    return true;
}

bool dfa_make(dfa_maker *maker, dfa *d, const rx *x, const char *what) {
    if (x->size > DFA_MAX_NFA)
        return err_set(maker->e, ERR_LIMIT, "%s: too large (repeats more than an automaton can hold)", what);
    arena *tmp = arena_new();
    nfa m = {.a = tmp};
    nfa_add(&m, (nfa_state){0});
    closure c = {.m = &m, .end = nfa_add(&m, (nfa_state){.by_byte = true, .lo = 1})};
    uint32_t start = compile(&m, x, c.end);
    c.stack = ARENA_ARRAY(tmp, uint32_t, 2 * m.n + 2);
    c.set = ARENA_ARRAY(tmp, uint32_t, m.n);
    c.mark = ARENA_ARRAY(tmp, uint32_t, m.n);
    grower g = grower_new(maker, what);
    grower_state(&g, NULL, 0); /* the dead one */
    c.turn = 1;
    size_t n = close_over(&c, start, 0);
    qsort(c.set, n, sizeof *c.set, by_number);
    bool ok = grower_state(&g, c.set, n) != UINT32_MAX;
    for (uint32_t s = 1; ok && s < g.d.n; s++) ok = expand(&g, &c, s);
    if (ok) {
        prune(&g.d, tmp);
        *d = g.d;
    }
    arena_free(tmp);
    return ok;
}

/* ---- products ---- */

/* Pairs of states; subtract: y's dead state goes on, and its ends are none. */
static bool product(dfa_maker *maker, dfa *d, const dfa *x, const dfa *y, bool subtract, const char *what) {
    grower g = grower_new(maker, what);
    if (grower_state(&g, NULL, 0) == UINT32_MAX) return false;
    uint32_t pair[2] = {x->n > 1, y->n > 1};
    if (!pair[0] || (!pair[1] && !subtract)) {
        *d = g.d;
        return true;
    }
    if (grower_state(&g, pair, 2) == UINT32_MAX) return false;
    for (uint32_t s = 1; s < g.d.n; s++) {
        uint32_t p = g.key[s][0], q = g.key[s][1];
        g.d.accept[s] = x->accept[p] && (subtract ? !(q && y->accept[q]) : y->accept[q]);
        for (unsigned b = 0; b < 256; b++) {
            pair[0] = x->next[p][b];
            pair[1] = q ? y->next[q][b] : 0;
            if (!pair[0] || (!pair[1] && !subtract)) continue;
            uint32_t to = grower_state(&g, pair, 2);
            if (to == UINT32_MAX) return false;
            g.d.next[s][b] = to;
        }
    }
    arena *tmp = arena_new();
    prune(&g.d, tmp);
    arena_free(tmp);
    *d = g.d;
    return true;
}

bool dfa_intersect(dfa_maker *m, dfa *d, const dfa *x, const dfa *y, const char *what) {
    return product(m, d, x, y, false, what);
}

bool dfa_subtract(dfa_maker *m, dfa *d, const dfa *x, const dfa *y, const char *what) {
    return product(m, d, x, y, true, what);
}

bool dfa_is_empty(const dfa *d) {
    return d->n <= 1;
}

bool dfa_accepts(const dfa *d, const void *s, size_t n) {
    const uint8_t *p = s;
    uint32_t state = d->n > 1;
    for (size_t i = 0; state && i < n; i++) state = d->next[state][p[i]];
    return state && d->accept[state];
}
