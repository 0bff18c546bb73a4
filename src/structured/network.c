#include "structured/network.h"
#include "base/map.h"
#include <string.h>

enum {
    MAX_STATES = 60000, /* of all terminals */
    MAX_EDGES = 1000000,
    MAX_LEFT = 1000 /* calls before the first byte */
};

typedef struct {
    dfa d;
    terminal_options o;
} terminal_part;

typedef struct {
    net_edge e;
    uint32_t from, next; /* the next edge of from, + 1 */
} edge_part;

typedef struct {
    net_node n;
    uint32_t first, last; /* edges, + 1 */
} node_part;

struct net {
    arena *a;
    err e;
    dfa_maker maker;
    net_rule *rule;
    node_part *node;
    edge_part *edge;
    terminal_part *terminal;
    size_t n_rule, n_node, n_edge, n_terminal, n_state, cap_rule, cap_node, cap_edge, cap_terminal;
    map *text; /* text and whether it is markup -> terminal */
};

net *net_new(void) {
    net *n = mem_alloc(sizeof *n);
    *n = (net){.a = arena_new(), .n_state = 1};
    n->text = map_new(n->a, 64);
    n->maker = (dfa_maker){n->a, DFA_WORK, &n->e};
    return n;
}

void net_free(net *n) {
    if (!n) return;
    arena_free(n->a);
    mem_free(n);
}

arena *net_arena(net *n) {
    return n->a;
}

dfa_maker *net_maker(net *n) {
    return &n->maker;
}

bool net_failed(const net *n) {
    return n->e.code != ERR_NONE;
}

err *net_err(net *n) {
    return &n->e;
}

uint32_t net_rule_new(net *n, uint32_t min, uint32_t max) {
    n->rule = arena_grow(n->a, n->rule, n->n_rule, &n->cap_rule, n->n_rule + 1, sizeof *n->rule);
    uint32_t r = (uint32_t)n->n_rule++;
    n->rule[r] = (net_rule){.min = min, .max = max};
    n->rule[r].start = net_node_new(n, r);
    return r;
}

uint32_t net_start(const net *n, uint32_t rule) {
    return n->rule[rule].start;
}

uint32_t net_node_new(net *n, uint32_t rule) {
    n->node = arena_grow(n->a, n->node, n->n_node, &n->cap_node, n->n_node + 1, sizeof *n->node);
    n->node[n->n_node] = (node_part){.n.rule = rule};
    return (uint32_t)n->n_node++;
}

void net_final(net *n, uint32_t node) {
    n->node[node].n.final = true;
}

void net_edge_add(net *n, uint32_t from, net_edge e) {
    if (n->n_edge >= MAX_EDGES) {
        err_set(&n->e, ERR_LIMIT, "a grammar of more than %d parts", MAX_EDGES);
        return;
    }
    if (e.kind != EDGE_FREE && e.what == UINT32_MAX) return; /* an error is set */
    n->edge = arena_grow(n->a, n->edge, n->n_edge, &n->cap_edge, n->n_edge + 1, sizeof *n->edge);
    n->edge[n->n_edge++] = (edge_part){.e = e, .from = from};
    uint32_t at = (uint32_t)n->n_edge;
    node_part *f = &n->node[from];
    *(f->last ? &n->edge[f->last - 1].next : &f->first) = at;
    f->last = at;
    f->n.n++;
}

void net_free_edge(net *n, uint32_t from, uint32_t to) {
    net_edge_add(n, from, (net_edge){.to = to});
}

void net_call(net *n, uint32_t from, uint32_t rule, uint32_t to) {
    net_edge_add(n, from, (net_edge){.kind = EDGE_RULE, .what = rule, .to = to});
}

void net_take(net *n, uint32_t from, uint32_t terminal, uint32_t to) {
    net_edge_add(n, from, (net_edge){.kind = EDGE_TERMINAL, .what = terminal, .to = to});
}

void net_take_text(net *n, uint32_t from, const char *text, uint32_t to) {
    net_take(n, from, net_terminal_text(n, text, strlen(text), true), to);
}

/* ---- terminals ---- */

uint32_t net_terminal_dfa(net *n, const dfa *d, const terminal_options *o) {
    if (net_failed(n)) return UINT32_MAX;
    if (n->n_state + d->n > MAX_STATES) {
        err_set(&n->e, ERR_LIMIT, "a grammar of more than %d states", MAX_STATES);
        return UINT32_MAX;
    }
    n->terminal = arena_grow(n->a, n->terminal, n->n_terminal, &n->cap_terminal, n->n_terminal + 1,
                             sizeof *n->terminal);
    n->terminal[n->n_terminal] = (terminal_part){*d, o ? *o : (terminal_options){0}};
    n->n_state += d->n ? d->n - 1 : 0;
    return (uint32_t)n->n_terminal++;
}

uint32_t net_terminal_rx(net *n, const rx *x, const char *what, const terminal_options *o) {
    dfa d;
    if (net_failed(n) || !dfa_make(&n->maker, &d, x, what)) return UINT32_MAX;
    return net_terminal_dfa(n, &d, o);
}

uint32_t net_terminal_text(net *n, const void *text, size_t len, bool markup) {
    char *key = arena_alloc(n->a, len + 1);
    memcpy(key, text, len);
    key[len] = markup;
    uint32_t known = map_get(n->text, key, len + 1);
    if (known != MAP_NONE) return known;
    uint32_t t =
        net_terminal_rx(n, rx_literal(n->a, text, len), "a text", &(terminal_options){.markup = markup});
    if (t != UINT32_MAX) map_add(n->text, key, len + 1, t);
    return t;
}

/* ---- what leads to an end ---- */

typedef struct {
    net *n;
    bool *good;                                      /* [node] an end can be reached */
    uint32_t *by_target, *by_rule, *next_t, *next_r; /* lists of edges, + 1 */
    uint32_t *rule_of;                               /* [node] 1 + the rule that it starts */
    uint32_t *todo;
    size_t n_todo;
} productive;

static bool edge_good(const productive *p, const net_edge *e) {
    const net *n = p->n;
    if (!p->good[e->to]) return false;
    if (e->kind == EDGE_TERMINAL) return !dfa_is_empty(&n->terminal[e->what].d);
    return e->kind == EDGE_FREE || p->good[n->rule[e->what].start];
}

static void mark_good(productive *p, uint32_t node) {
    if (p->good[node]) return;
    p->good[node] = true;
    p->todo[p->n_todo++] = node;
}

static void find_productive(productive *p, arena *a) {
    net *n = p->n;
    p->good = ARENA_ARRAY(a, bool, n->n_node);
    p->by_target = ARENA_ARRAY(a, uint32_t, n->n_node);
    p->rule_of = ARENA_ARRAY(a, uint32_t, n->n_node);
    p->by_rule = ARENA_ARRAY(a, uint32_t, n->n_rule);
    p->next_t = ARENA_ARRAY(a, uint32_t, n->n_edge);
    p->next_r = ARENA_ARRAY(a, uint32_t, n->n_edge);
    p->todo = ARENA_ARRAY(a, uint32_t, n->n_node);
    for (uint32_t r = 0; r < n->n_rule; r++) p->rule_of[n->rule[r].start] = r + 1;
    for (uint32_t i = 0; i < n->n_edge; i++) {
        const net_edge *e = &n->edge[i].e;
        p->next_t[i] = p->by_target[e->to];
        p->by_target[e->to] = i + 1;
        if (e->kind != EDGE_RULE) continue;
        p->next_r[i] = p->by_rule[e->what];
        p->by_rule[e->what] = i + 1;
    }
    for (uint32_t i = 0; i < n->n_node; i++)
        if (n->node[i].n.final) mark_good(p, i);
    while (p->n_todo) {
        uint32_t node = p->todo[--p->n_todo], r = p->rule_of[node];
        for (uint32_t i = p->by_target[node]; i; i = p->next_t[i - 1])
            if (edge_good(p, &n->edge[i - 1].e)) mark_good(p, n->edge[i - 1].from);
        for (uint32_t i = r ? p->by_rule[r - 1] : 0; i; i = p->next_r[i - 1])
            if (edge_good(p, &n->edge[i - 1].e)) mark_good(p, n->edge[i - 1].from);
    }
}

/* ---- what calls itself ---- */

typedef struct {
    const grammar *g;
    uint8_t *seen; /* [node] 1: under way, 2: done */
    err *e;
} left_walk;

static bool check_left(left_walk *l, uint32_t node, unsigned depth) {
    if (l->seen[node] == 2) return true;
    if (l->seen[node]) return err_set(l->e, ERR_INVALID, "a part of the schema stands for itself ($ref)");
    if (depth > MAX_LEFT) return err_set(l->e, ERR_LIMIT, "alternatives nest too deeply");
    l->seen[node] = 1;
    const net_node *x = &l->g->node[node];
    for (uint32_t i = x->first; i < x->first + x->n; i++) {
        const net_edge *e = &l->g->edge[i];
        if (e->kind == EDGE_TERMINAL) continue;
        if (!check_left(l, e->kind == EDGE_FREE ? e->to : l->g->rule[e->what].start, depth + 1)) return false;
    }
    l->seen[node] = 2;
    return true;
}

/* ---- tables ---- */

/* Whether all bytes of a class lead to the same state. */
static bool agrees(const uint8_t class[256], const uint32_t row[256]) {
    uint32_t to[256];
    bool seen[256] = {false};
    for (unsigned b = 0; b < 256; b++) {
        uint8_t c = class[b];
        if (seen[c] && to[c] != row[b]) return false;
        seen[c] = true;
        to[c] = row[b];
    }
    return true;
}

/* Parts classes whose bytes lead to different states; how many there are then. */
static uint32_t part_classes(uint8_t class[256], const uint32_t row[256]) {
    struct {
        uint8_t old;
        uint32_t to;
    } known[256];
    uint32_t n = 0;
    for (unsigned b = 0; b < 256; b++) {
        uint32_t k = 0;
        while (k < n && !(known[k].old == class[b] && known[k].to == row[b])) k++;
        if (k == n) {
            known[n].old = class[b];
            known[n++].to = row[b];
        }
        class[b] = (uint8_t)k;
    }
    return n;
}

/* Bytes that no state tells apart are of one class. */
static uint32_t find_classes(const net *n, uint8_t class[256]) {
    uint32_t count = 1;
    memset(class, 0, 256);
    for (size_t t = 0; t < n->n_terminal && count < 256; t++)
        for (uint32_t s = 1; s < n->terminal[t].d.n; s++)
            if (!agrees(class, n->terminal[t].d.next[s]))
                count = part_classes(class, n->terminal[t].d.next[s]);
    return count;
}

static bool is_wide(const uint32_t row[256]) {
    unsigned live = 0;
    for (unsigned b = 0x20; b < 0x7F; b++) live += row[b] != 0;
    return live > 32;
}

static void fill_state(const terminal_part *t, uint32_t s, uint32_t base, uint32_t *next, uint8_t *flags,
                       const uint8_t class[256]) {
    const uint32_t *row = t->d.next[s];
    bool on = false;
    for (unsigned b = 0; b < 256; b++) {
        next[class[b]] = row[b] ? base + row[b] - 1 : 0;
        on |= row[b] != 0;
    }
    *flags = (uint8_t)((t->d.accept[s] && !t->o.may_end ? STATE_ACCEPT : 0) | (on ? STATE_ON : 0) |
                       (is_wide(row) ? STATE_WIDE : 0) | (t->o.may_end ? STATE_MAY_END : 0) |
                       (t->o.counted && s == t->o.body ? STATE_COUNTS : 0));
}

static void fill_states(grammar *g, const net *n) {
    g->n_state = (uint32_t)n->n_state;
    g->n_class = find_classes(n, g->class);
    uint32_t *next = ARENA_ARRAY(g->a, uint32_t, (size_t)g->n_state * g->n_class);
    uint8_t *flags = ARENA_ARRAY(g->a, uint8_t, g->n_state);
    uint32_t *of = ARENA_ARRAY(g->a, uint32_t, g->n_state);
    net_terminal *t = ARENA_ARRAY(g->a, net_terminal, n->n_terminal);
    uint32_t base = 1;
    for (uint32_t i = 0; i < n->n_terminal; i++) {
        const terminal_part *x = &n->terminal[i];
        t[i] = (net_terminal){base, x->o.min, x->o.max, x->o.counted, x->o.markup};
        bool wide_end = false;
        uint32_t count = x->d.n - 1;
        for (uint32_t s = 0; s < count; s++) {
            uint32_t at = base + s;
            fill_state(x, s + 1, base, next + (size_t)at * g->n_class, &flags[at], g->class);
            of[at] = i;
            wide_end |= (flags[at] & STATE_WIDE) && (flags[at] & STATE_ACCEPT);
        }
        /* A mask of its own is for states where little is left of a token once the terminal has ended. */
        for (uint32_t s = 0; wide_end && s < count; s++) flags[base + s] &= (uint8_t)~STATE_WIDE;
        base += count;
    }
    g->next = next, g->flags = flags, g->of = of;
    g->terminal = t, g->n_terminal = (uint32_t)n->n_terminal;
}

static void fill_network(grammar *g, const net *n, const productive *p) {
    net_node *node = ARENA_ARRAY(g->a, net_node, n->n_node);
    net_edge *edge = ARENA_ARRAY(g->a, net_edge, n->n_edge);
    uint32_t k = 0;
    for (uint32_t i = 0; i < n->n_node; i++) {
        node[i] = (net_node){.first = k, .rule = n->node[i].n.rule, .final = n->node[i].n.final};
        for (uint32_t j = n->node[i].first; j; j = n->edge[j - 1].next)
            if (edge_good(p, &n->edge[j - 1].e)) edge[k++] = n->edge[j - 1].e;
        node[i].n = k - node[i].first;
    }
    g->node = node, g->n_node = (uint32_t)n->n_node;
    g->edge = edge, g->n_edge = k;
    g->rule = arena_copy(g->a, n->rule, n->n_rule * sizeof *n->rule);
    g->n_rule = (uint32_t)n->n_rule;
}

static bool finish(grammar *g, net *n, uint32_t root, err *e) {
    productive p = {.n = n};
    find_productive(&p, n->a);
    if (!p.good[n->rule[root].start]) return err_set(e, ERR_INVALID, "no document fits the schema");
    fill_network(g, n, &p);
    fill_states(g, n);
    g->root = root;
    left_walk l = {g, ARENA_ARRAY(n->a, uint8_t, n->n_node), e};
    for (uint32_t i = 0; i < g->n_node; i++)
        if (p.good[i] && !check_left(&l, i, 0)) return false;
    g->bytes = sizeof *g + (size_t)g->n_state * (g->n_class * sizeof *g->next + 5) +
               g->n_node * sizeof *g->node + g->n_edge * sizeof *g->edge;
    return true;
}

grammar *net_finish(net *n, uint32_t root, err *e) {
    if (net_failed(n)) {
        *e = n->e;
        net_free(n);
        return NULL;
    }
    grammar *g = mem_alloc(sizeof *g);
    *g = (grammar){.a = arena_new(), .home = heap_current(), .owners = 1};
    pthread_mutex_init(&g->lock, NULL);
    bool ok = finish(g, n, root, e);
    net_free(n);
    if (ok) return g;
    grammar_free(g);
    return NULL;
}
