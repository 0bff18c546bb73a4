#include "structured/schema.h"
#include <string.h>

enum { MAX_MEMBERS = 2000 };

/* A member that is written in its place. */
typedef struct {
    const char *name;
    size_t len;
    bool required;
} member;

typedef struct {
    compiler *c;
    const facts *f;
    member *m;
    size_t n, cap, n_required;
    map *known; /* name -> index */
    uint32_t rule;
    uint32_t end;
} object;

bool member_goal(compiler *c, const facts *f, const char *name, size_t len, goal *g) {
    *g = (goal){0};
    for (size_t k = 0; k < f->parts.n; k++) {
        const json *s = f->parts.part[k].schema, *x = NULL;
        JSON_EACH(p, json_get(s, "properties")) {
            if (name && p->key_len == len && !memcmp(p->key, name, len)) x = p;
        }
        if (!x) x = json_get(s, "additionalProperties");
        if (x && !goal_add(c, g, (part){x, 0})) return false;
    }
    return true;
}

static bool add_member(object *o, const char *name, size_t len, bool required) {
    uint32_t i = map_get(o->known, name, len);
    if (i == MAP_NONE) {
        if (o->n >= MAX_MEMBERS)
            return err_set(o->c->e, ERR_LIMIT, "an object of more than %d properties", MAX_MEMBERS);
        o->m = arena_grow(o->c->a, o->m, o->n, &o->cap, o->n + 1, sizeof *o->m);
        i = (uint32_t)o->n++;
        o->m[i] = (member){name, len, false};
        map_add(o->known, name, len, i);
    }
    if (required && !o->m[i].required) o->m[i].required = true, o->n_required++;
    return true;
}

/* Members in the order of "properties", then those that are only required. */
static bool list_members(object *o) {
    const facts *f = o->f;
    for (size_t k = 0; k < f->parts.n; k++) JSON_EACH(p, json_get(f->parts.part[k].schema, "properties")) {
            if (!add_member(o, p->key, p->key_len, false)) return false;
        }
    for (size_t i = 0; i < f->required.n; i++)
        if (!add_member(o, f->required.v[i]->s, f->required.v[i]->len, true)) return false;
    return true;
}

/* "name": with the space behind it, and with a comma in front. */
static uint32_t key_terminal(object *o, const member *m, bool comma) {
    arena *a = o->c->a;
    const rx *x = json_keyed(a, json_quoted(a, lex_written(a, m->name, m->len, WRITE_JSON)));
    if (comma) x = rx_cat(a, rx_cat(a, rx_text(a, ","), rx_optional(a, rx_text(a, " "))), x);
    return net_terminal_rx(o->c->n, x, "the name of a property", NULL);
}

/* The key of any other member. Names are written in one way only, so that none of those above comes again. */
static uint32_t other_key(object *o) {
    compiler *c = o->c;
    dfa_maker *m = net_maker(c->n);
    const rx *names = rx_none(c->a);
    if (!o->n) return json_key(&c->j);
    for (size_t i = 0; i < o->n; i++)
        names = rx_alt(c->a, names, lex_written(c->a, o->m[i].name, o->m[i].len, WRITE_JSON));
    dfa all, listed, others;
    if (!dfa_make(m, &all, rx_repeat(c->a, lex_chars(c->a, 0, 0x10FFFF, WRITE_JSON), 0, RX_FOREVER),
                  "names") ||
        !dfa_make(m, &listed, names, "names of properties") ||
        !dfa_subtract(m, &others, &all, &listed, "names of other properties") ||
        !dfa_enclose(c, "\"", &others, "\":"))
        return UINT32_MAX;
    return net_terminal_dfa(c->n, &others, NULL);
}

/* Members that are not named: from `none` (nothing was written yet) and `some`. */
static bool add_others(object *o, uint32_t none, uint32_t some) {
    compiler *c = o->c;
    net *n = c->n;
    goal g;
    if (!member_goal(o->c, o->f, NULL, 0, &g)) return false;
    for (size_t i = 0; i < g.n; i++)
        if (g.part[i].schema->kind == JSON_BOOL && !g.part[i].schema->i) return true;
    uint32_t value = compile_goal(c, &g), key = value == UINT32_MAX ? value : other_key(o);
    if (key == UINT32_MAX) return false;
    uint32_t colon = net_node_new(n, o->rule), ready = net_node_new(n, o->rule),
             behind = net_node_new(n, o->rule), next = net_node_new(n, o->rule);
    net_edge_add(n, none, (net_edge){.kind = EDGE_TERMINAL, .what = key, .to = colon, .counts = true});
    net_free_edge(n, colon, ready);
    if (o->n) net_take_text(n, colon, " ", ready); /* json_key() has the space */
    net_call(n, ready, value, behind);
    net_edge comma = {.kind = EDGE_TERMINAL, .what = json_comma(&c->j), .to = next, .counts = true};
    net_edge_add(n, some, comma);
    net_edge_add(n, behind, comma);
    net_take(n, next, key, colon);
    net_take_text(n, behind, "}", o->end);
    return !net_failed(n);
}

/* Two rows of nodes: in front of member i with nothing written before it, and with something. */
static bool fill_object(object *o) {
    compiler *c = o->c;
    net *n = c->n;
    uint32_t none = net_node_new(n, o->rule), some = net_node_new(n, o->rule);
    net_take_text(n, net_start(n, o->rule), "{", none);
    for (size_t i = 0; i < o->n; i++) {
        const member *m = &o->m[i];
        goal g;
        if (!member_goal(c, o->f, m->name, m->len, &g)) return false;
        uint32_t value = compile_goal(c, &g);
        if (value == UINT32_MAX) return false;
        uint32_t ready = net_node_new(n, o->rule), none_next = net_node_new(n, o->rule),
                 some_next = net_node_new(n, o->rule);
        net_edge key = {.kind = EDGE_TERMINAL, .to = ready, .counts = true};
        key.what = key_terminal(o, m, false);
        net_edge_add(n, none, key);
        key.what = i ? key_terminal(o, m, true) : UINT32_MAX; /* nothing comes before the first one */
        if (i) net_edge_add(n, some, key);
        net_call(n, ready, value, some_next);
        if (!m->required) {
            net_free_edge(n, none, none_next);
            net_free_edge(n, some, some_next);
        }
        none = none_next, some = some_next;
    }
    if (!o->f->min_members) net_take_text(n, none, "}", o->end);
    net_take_text(n, some, "}", o->end);
    return add_others(o, none, some);
}

static bool others_allowed(object *o) {
    goal g;
    if (!member_goal(o->c, o->f, NULL, 0, &g)) return true;
    for (size_t i = 0; i < g.n; i++)
        if (g.part[i].schema->kind == JSON_BOOL && !g.part[i].schema->i) return false;
    return true;
}

/* Numbers of members: only what the order of writing can keep. */
static bool check_counts(object *o) {
    const facts *f = o->f;
    const json *s = NULL;
    const char *keyword =
        f->min_members > 1 && f->min_members > o->n_required ? "minProperties" : "maxProperties";
    bool min_ok = f->min_members <= 1 || f->min_members <= o->n_required;
    bool max_ok = f->max_members >= o->n && f->max_members > 0;
    if (f->max_members < o->n_required) return true; /* there is none */
    if (!max_ok && !o->n) max_ok = true;             /* at most 0: {} */
    for (size_t k = 0; k < f->parts.n; k++)
        if (json_get(f->parts.part[k].schema, keyword)) s = f->parts.part[k].schema;
    if (min_ok && max_ok) return true;
    return bad_keyword(o->c, s, keyword, ERR_UNSUPPORTED,
                       min_ok ? "below the number of named properties"
                              : "above 1 and the number of required ones");
}

bool add_objects(compiler *c, const facts *f, uint32_t start, uint32_t end) {
    if (f->plain[T_OBJECT]) {
        net_call(c->n, start, json_object_rule(&c->j), end);
        return !net_failed(c->n);
    }
    object o = {.c = c, .f = f, .known = map_new(c->a, 16)};
    if (!list_members(&o) || !check_counts(&o)) return false;
    if (f->max_members < o.n_required || f->min_members > f->max_members) return true; /* there is none */
    bool counts = others_allowed(&o) && f->max_members != UINT64_MAX;
    o.rule = net_rule_new(c->n, 0, counts ? (uint32_t)f->max_members : NO_LIMIT);
    o.end = net_node_new(c->n, o.rule);
    net_final(c->n, o.end);
    if (!fill_object(&o)) return false;
    net_call(c->n, start, o.rule, end);
    return !net_failed(c->n);
}
