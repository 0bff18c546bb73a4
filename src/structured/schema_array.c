#include "structured/schema.h"
#include <string.h>

enum { MAX_PREFIX = 1000 };

/* What item i has to meet. */
static bool item_goal(compiler *c, const facts *f, size_t i, goal *g) {
    *g = (goal){0};
    for (size_t k = 0; k < f->parts.n; k++) {
        const json *s = f->parts.part[k].schema, *prefix = json_get(s, "prefixItems");
        const json *x = prefix ? prefix->child : NULL;
        for (size_t j = 0; x && j < i; j++) x = x->next;
        if (!x) x = json_get(s, "items");
        if (x && !goal_add(c, g, (part){x, 0})) return false;
    }
    return true;
}

static size_t prefix_length(const facts *f) {
    size_t n = 0;
    for (size_t k = 0; k < f->parts.n; k++) {
        const json *prefix = json_get(f->parts.part[k].schema, "prefixItems");
        if (prefix && prefix->len > n) n = prefix->len;
    }
    return n;
}

static uint32_t item_rule(compiler *c, const facts *f, size_t i) {
    goal g;
    return item_goal(c, f, i, &g) ? compile_goal(c, &g) : UINT32_MAX;
}

/* One node in front of each item of the prefix, and one behind; then a loop that counts. */
static bool fill_array(compiler *c, const facts *f, uint32_t rule) {
    net *n = c->n;
    size_t prefix = prefix_length(f);
    uint32_t end = net_node_new(n, rule), at = net_node_new(n, rule);
    net_final(n, end);
    net_take_text(n, net_start(n, rule), "[", at);
    if (prefix > MAX_PREFIX) return err_set(c->e, ERR_LIMIT, "prefixItems: more than %d", MAX_PREFIX);
    for (size_t i = 0;; i++) {
        if (i >= f->min_items) net_take_text(n, at, "]", end);
        if (i >= f->max_items) return true;
        uint32_t before = at;
        if (i) net_take(n, at, json_comma(&c->j), before = net_node_new(n, rule));
        uint32_t value = item_rule(c, f, i);
        if (value == UINT32_MAX) return false;
        uint32_t behind = net_node_new(n, rule);
        net_edge_add(n, before, (net_edge){.kind = EDGE_RULE, .what = value, .to = behind, .counts = true});
        if (i < prefix) {
            at = behind;
            continue;
        }
        /* from here on all are alike */
        uint32_t next = net_node_new(n, rule), close = net_terminal_text(n, "]", 1, true);
        net_edge_add(
            n, behind,
            (net_edge){.kind = EDGE_TERMINAL, .what = json_comma(&c->j), .to = next, .counts = true});
        net_call(n, next, value, behind);
        if (close != UINT32_MAX)
            net_edge_add(n, behind,
                         (net_edge){.kind = EDGE_TERMINAL, .what = close, .to = end, .enough = true});
        return !net_failed(n);
    }
}

bool add_arrays(compiler *c, const facts *f, uint32_t start, uint32_t end) {
    if (f->plain[T_ARRAY]) {
        net_call(c->n, start, json_array_rule(&c->j), end);
        return !net_failed(c->n);
    }
    uint32_t max = f->max_items == UINT64_MAX ? NO_LIMIT : (uint32_t)f->max_items;
    if (f->min_items > f->max_items) return true; /* there is none */
    uint32_t rule = net_rule_new(c->n, (uint32_t)f->min_items, max);
    if (!fill_array(c, f, rule)) return false;
    net_call(c->n, start, rule, end);
    return !net_failed(c->n);
}
