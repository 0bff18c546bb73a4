#include "structured/schema.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 400, MAX_RULES = 20000, MAX_DEPTH = 500, MAX_ALL_PARTS = 2000000 };

/* ---- places ---- */

static bool find_place(str *out, const json *at, const json *what) {
    if (at == what) return true;
    size_t index = 0, from = out->len;
    JSON_EACH(c, at) {
        str_addc(out, '/');
        if (at->kind == JSON_ARRAY) str_printf(out, "%zu", index++);
        for (uint32_t i = 0; at->kind == JSON_OBJECT && i < c->key_len; i++) {
            if (c->key[i] == '~' || c->key[i] == '/')
                str_adds(out, c->key[i] == '~' ? "~0" : "~1");
            else
                str_addc(out, c->key[i]);
        }
        if (find_place(out, c, what)) return true;
        out->len = from;
    }
    return false;
}

const char *place_of(const compiler *c, const json *schema) {
    str s = {0};
    const char *place = "";
    if (find_place(&s, c->root, schema)) place = arena_strn(c->a, str_get(&s), s.len);
    str_free(&s);
    return place;
}

bool bad_keyword(compiler *c, const json *schema, const char *keyword, err_code code, const char *why) {
    if (c->e->code) return false;
    return err_set(c->e, code, "schema %.300s/%.100s: %.400s", place_of(c, schema), keyword, why);
}

/* ---- references ---- */

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The next part of a pointer, without its escapes. */
static size_t pointer_part(const char **p, const char *end, char *out) {
    size_t n = 0;
    while (*p < end && **p != '/') {
        char c = *(*p)++;
        if (c == '%' && end - *p >= 2 && hex_value((*p)[0]) >= 0 && hex_value((*p)[1]) >= 0) {
            c = (char)(hex_value((*p)[0]) * 16 + hex_value((*p)[1]));
            *p += 2;
        }
        if (c == '~' && *p < end && (**p == '0' || **p == '1')) c = *(*p)++ == '0' ? '~' : '/';
        out[n++] = c;
    }
    return n;
}

static const json *child_of(const json *at, const char *name, size_t n) {
    size_t index = 0;
    int64_t wanted;
    JSON_EACH(c, at) {
        if (at->kind == JSON_OBJECT && c->key_len == n && !memcmp(c->key, name, n)) return c;
        if (at->kind == JSON_ARRAY && str_to_int64(name, &wanted) && wanted == (int64_t)index++) return c;
    }
    return NULL;
}

static const json *resolve(compiler *c, const json *schema, const json *ref) {
    const char *id = json_str(c->root, "$id", ""), *p = ref->kind == JSON_STRING ? ref->s : "";
    const char *end = p + (ref->kind == JSON_STRING ? ref->len : 0);
    if (*id && !strncmp(p, id, strlen(id))) p += strlen(id);
    if (ref->kind != JSON_STRING || (p < end && *p != '#') || (p + 1 < end && p[1] != '/')) {
        bad_keyword(c, schema, "$ref", ERR_UNSUPPORTED,
                    "only places in this schema (#/...) can be referred to");
        return NULL;
    }
    const json *at = c->root;
    for (p += p < end; at && p < end;) {
        char *name = arena_alloc(c->a, (size_t)(end - p) + 1);
        p++;
        size_t n = pointer_part(&p, end, name);
        at = child_of(at, name, n);
    }
    if (!at || (at->kind != JSON_OBJECT && at->kind != JSON_BOOL))
        return bad_keyword(c, schema, "$ref", ERR_INVALID, "there is no schema at that place"), NULL;
    return at;
}

/* ---- goals ---- */

bool goal_add(compiler *c, goal *g, part p) {
    for (size_t i = 0; i < g->n; i++)
        if (g->part[i].schema == p.schema) {
            unsigned *done = &g->part[i].done;
            *done = (*done & p.done) | ((*done | p.done) & PART_SPREAD);
            return true;
        }
    if (g->n >= MAX_PARTS || ++c->n_parts > MAX_ALL_PARTS)
        return err_set(c->e, ERR_LIMIT, "schema %s: too many schemas have to hold at once",
                       place_of(c, p.schema));
    g->part = arena_grow(c->a, g->part, g->n, &g->cap, g->n + 1, sizeof *g->part);
    g->part[g->n++] = p;
    return true;
}

typedef struct path {
    const json *schema;
    const struct path *up;
} path;

/* Adds a schema and what it refers to and includes. */
static bool spread(compiler *c, goal *g, part p, const path *up) {
    path here = {p.schema, up};
    size_t depth = 0;
    for (const path *q = up; q; q = q->up, depth++)
        if (q->schema == p.schema)
            return bad_keyword(c, p.schema, json_get(p.schema, "$ref") ? "$ref" : "allOf", ERR_INVALID,
                               "stands for itself");
    if (depth > MAX_DEPTH) return bad_keyword(c, p.schema, "$ref", ERR_LIMIT, "refers too deeply");
    bool known = p.done & PART_SPREAD;
    for (size_t i = 0; !known && i < g->n; i++)
        known = g->part[i].schema == p.schema && (g->part[i].done & PART_SPREAD);
    p.done |= PART_SPREAD;
    if (!goal_add(c, g, p)) return false;
    if (known) return true;
    const json *ref = json_get(p.schema, "$ref"), *all = json_get(p.schema, "allOf");
    if (ref) {
        const json *to = resolve(c, p.schema, ref);
        if (!to || !spread(c, g, (part){to, 0}, &here)) return false;
    }
    if (all && all->kind != JSON_ARRAY)
        return bad_keyword(c, p.schema, "allOf", ERR_INVALID, "expected a list of schemas");
    JSON_EACH(x, all) {
        if (x->kind != JSON_OBJECT && x->kind != JSON_BOOL)
            return bad_keyword(c, p.schema, "allOf", ERR_INVALID, "expected a list of schemas");
        if (!spread(c, g, (part){x, 0}, &here)) return false;
    }
    return true;
}

bool goal_spread(compiler *c, const goal *g, goal *all) {
    *all = (goal){0};
    for (size_t i = 0; i < g->n; i++)
        if (!spread(c, all, g->part[i], NULL)) return false;
    return true;
}

/* ---- alternatives ---- */

/* The goal with a branch of its choice. */
bool goal_branch(compiler *c, const facts *f, const json *branch, goal *g) {
    *g = (goal){0};
    for (size_t i = 0; i < f->parts.n; i++) {
        part p = f->parts.part[i];
        if (p.schema == f->choice) p.done |= f->choice_is_one ? PART_ONE_DONE : PART_ANY_DONE;
        if (!goal_add(c, g, p)) return false;
    }
    return goal_add(c, g, (part){branch, 0});
}

#define MAX_ONE_OF 200 /* branches, which are compared in pairs */

/* oneOf: a value that met two branches would not do, and what is generated can't be checked at its end. */
static bool check_apart(compiler *c, const facts *f, const json *branches) {
    size_t i = 0, k, n = 0;
    JSON_EACH(x, branches) n++;
    if (n > MAX_ONE_OF)
        return bad_keyword(
            c, f->choice, "oneOf", ERR_LIMIT,
            arena_printf(c->a, "%zu branches, expected at most %d; anyOf has no such limit", n, MAX_ONE_OF));
    JSON_EACH(x, branches) {
        k = i + 1;
        for (const json *y = x->next; y; y = y->next, k++) {
            goal one, other;
            bool apart = false;
            if (!goal_branch(c, f, x, &one) || !goal_branch(c, f, y, &other) ||
                !goals_apart(c, &one, &other, 0, &apart))
                return false;
            if (apart) continue;
            const char *why =
                arena_printf(c->a,
                             "branches %zu and %zu may both hold: tell them apart by type, or by a "
                             "required property of different const, or use anyOf",
                             i, k);
            return bad_keyword(c, f->choice, "oneOf", ERR_UNSUPPORTED, why);
        }
        i++;
    }
    return true;
}

static bool add_branches(compiler *c, const facts *f, uint32_t start, uint32_t end) {
    const json *branches = json_get(f->choice, f->choice_is_one ? "oneOf" : "anyOf");
    if (f->choice_is_one && !check_apart(c, f, branches)) return false;
    JSON_EACH(x, branches) {
        goal g;
        if (!goal_branch(c, f, x, &g)) return false;
        uint32_t rule = compile_goal(c, &g);
        if (rule == UINT32_MAX) return false;
        net_call(c->n, start, rule, end);
    }
    return true;
}

/* ---- rules ---- */

static bool add_all(compiler *c, const facts *f, uint32_t start, uint32_t end) {
    if (f->choice) return add_branches(c, f, start, end);
    if (f->listed) return add_listed(c, f, start, end);
    if (f->types & T_NULL) net_take(c->n, start, net_terminal_text(c->n, "null", 4, false), end);
    if (f->types & T_BOOLEAN) {
        net_take(c->n, start, net_terminal_text(c->n, "true", 4, false), end);
        net_take(c->n, start, net_terminal_text(c->n, "false", 5, false), end);
    }
    return (!(f->types & T_NUMBER) || add_numbers(c, f, start, end)) &&
           (!(f->types & T_STRING) || add_strings(c, f, start, end)) &&
           (!(f->types & T_ARRAY) || add_arrays(c, f, start, end)) &&
           (!(f->types & T_OBJECT) || add_objects(c, f, start, end));
}

static bool says_nothing(const facts *f) {
    bool plain = f->types == T_ALL && !f->listed && !f->choice;
    for (unsigned t = 1; t <= T_ALL; t <<= 1) plain = plain && f->plain[t];
    return plain;
}

static int by_address(const void *x, const void *y) {
    const part *a = x, *b = y;
    return (a->schema > b->schema) - (a->schema < b->schema);
}

/* A goal as bytes, whatever the order of its parts. */
static const char *goal_key(compiler *c, const goal *g, size_t *n) {
    part *p = arena_alloc(c->a, (g->n + 1) * sizeof *p);
    for (size_t i = 0; i < g->n; i++)
        p[i].schema = g->part[i].schema, p[i].done = g->part[i].done & ~(unsigned)PART_SPREAD;
    qsort(p, g->n, sizeof *p, by_address);
    *n = g->n * sizeof *p;
    return (const char *)p;
}

static uint32_t compile_new(compiler *c, const goal *g, const char *key, size_t n) {
    goal all;
    facts f;
    if (!goal_spread(c, g, &all) || !facts_read(c, &all, &f)) return UINT32_MAX;
    if (says_nothing(&f)) {
        uint32_t any = json_value(&c->j);
        map_add(c->rules, key, n, any);
        return any;
    }
    uint32_t rule = net_rule_new(c->n, 0, NO_LIMIT), end = net_node_new(c->n, rule);
    map_add(c->rules, key, n, rule);
    net_final(c->n, end);
    return add_all(c, &f, net_start(c->n, rule), end) && !net_failed(c->n) ? rule : UINT32_MAX;
}

uint32_t compile_goal(compiler *c, const goal *g) {
    size_t n;
    const char *key = goal_key(c, g, &n);
    uint32_t known = map_get(c->rules, key, n);
    if (known != MAP_NONE) return known;
    if (++c->n_rules > MAX_RULES || c->depth > MAX_DEPTH) {
        err_set(c->e, ERR_LIMIT, "the schema has more than %d parts, or %d inside of each other", MAX_RULES,
                MAX_DEPTH);
        return UINT32_MAX;
    }
    c->depth++;
    uint32_t rule = compile_new(c, g, key, n);
    c->depth--;
    return rule;
}

compiler compiler_new(net *n, const json *root, err *e) {
    arena *a = net_arena(n);
    return (compiler){.n = n, .a = a, .j = {.n = n}, .root = root, .rules = map_new(a, 64), .e = e};
}

grammar *grammar_from_schema(const json *schema, const grammar_options *o, err *e) {
    if (schema->kind != JSON_OBJECT && schema->kind != JSON_BOOL) {
        err_set(e, ERR_INVALID, "a schema is an object or true; found %s", json_kind_name(schema->kind));
        return NULL;
    }
    net *n = net_new();
    compiler c = compiler_new(n, schema, net_err(n));
    goal g = {0};
    bool ok = goal_add(&c, &g, (part){schema, 0});
    uint32_t rule = ok ? compile_goal(&c, &g) : UINT32_MAX;
    uint32_t root = rule == UINT32_MAX ? 0 : with_options(n, o, rule);
    return net_finish(n, root, e);
}
