#include "structured/schema.h"
#include <string.h>

static const char OPEN[] = "<tool_call>", CLOSE[] = "\n</tool_call>", END_VALUE[] = "</parameter>";

typedef struct {
    net *n;
    const tools_options *o;
    json_rules j;
    const json *object; /* {"type": "object"} */
    uint32_t rule;      /* the one under way */
    err *e;
} tools;

static uint32_t node(tools *t) {
    return net_node_new(t->n, t->rule);
}

static void text(tools *t, uint32_t from, const char *s, uint32_t to) {
    net_take_text(t->n, from, s, to);
}

/* Behind a name: it is not part of the tags and quotes around it. */
static bool check_name(const tools *t, const char *name) {
    static const char wrong[] = "\"\\<>";
    size_t n = strlen(name);
    bool ok = n && n <= 256 && utf8_valid(name, n) == n && !strpbrk(name, wrong);
    for (size_t i = 0; ok && i < n; i++) ok = (uint8_t)name[i] >= 32;
    return ok || err_set(t->e, ERR_INVALID, "\"%.60s\" can't be the name of a tool or parameter", name);
}

/* A compiler for the schema of one tool, which shares what others made. */
static compiler compiler_for(tools *t, const json *schema) {
    compiler c = compiler_new(t->n, schema, t->e);
    c.j = t->j;
    return c;
}

/* ---- <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call> ---- */

static bool arguments_goal(tools *t, compiler *c, const grammar_tool *tool, goal *g) {
    *g = (goal){0};
    return goal_add(c, g, (part){t->object, 0}) && goal_add(c, g, (part){tool->parameters, 0});
}

static bool json_call(tools *t, const grammar_tool *tool, uint32_t from, uint32_t to) {
    arena *a = net_arena(t->n);
    uint32_t arguments = node(t), behind = node(t), rule;
    const char *head = arena_printf(a, "\n{\"name\": \"%s\", \"arguments\": ", tool->name);
    text(t, from, head, arguments);
    text(t, behind, arena_printf(a, "}%s", CLOSE), to);
    if (!tool->parameters && !tool->loose) {
        text(t, arguments, "{}", behind);
        return true;
    }
    if (tool->loose)
        rule = json_object_rule(&t->j);
    else {
        compiler c = compiler_for(t, tool->parameters);
        goal g;
        rule = arguments_goal(t, &c, tool, &g) ? compile_goal(&c, &g) : UINT32_MAX;
        t->j = c.j;
    }
    if (rule != UINT32_MAX) net_call(t->n, arguments, rule, behind);
    return rule != UINT32_MAX;
}

/* ---- <function=f>\n<parameter=k>\nvalue\n</parameter>\n</function> ---- */

/* Adds a terminal of texts that end with END_VALUE, which they have only there. */
static bool take_ended(tools *t, const dfa *texts, uint32_t from, uint32_t to) {
    dfa first, both;
    search_for(&first, net_arena(t->n), END_VALUE);
    if (!dfa_intersect(net_maker(t->n), &both, texts, &first, "values of a parameter")) return false;
    uint32_t terminal = net_terminal_dfa(t->n, &both, NULL);
    net_take(t->n, from, terminal, to);
    return terminal != UINT32_MAX;
}

/* Strings as they are. */
static bool raw_strings(tools *t, compiler *c, const facts *f, uint32_t from, uint32_t to) {
    const char *end = arena_printf(c->a, "\n%s", END_VALUE);
    const rx *x = rx_none(c->a);
    json_list kept;
    dfa d;
    if (!f->listed) return strings_dfa(c, f, WRITE_PLAIN, end, &d) && take_ended(t, &d, from, to);
    if (!listed_values(c, f, &kept)) return false;
    for (size_t i = 0; i < kept.n; i++)
        if (kept.v[i]->kind == JSON_STRING) x = rx_alt(c->a, x, written_value(c->a, kept.v[i], true));
    if (x->kind == RX_NONE) return true;
    return dfa_make(net_maker(t->n), &d, rx_cat(c->a, x, rx_text(c->a, end)), "listed values") &&
           take_ended(t, &d, from, to);
}

static bool says_types(const facts *f) {
    for (unsigned type = 1; type <= T_ALL; type <<= 1)
        if (!f->plain[type]) return true;
    return f->types != T_ALL || f->listed || f->choice;
}

/* The goal without strings, as JSON. */
static bool json_values(tools *t, compiler *c, const goal *g, uint32_t from, uint32_t to) {
    static const char types[] = "{\"type\":[\"null\",\"boolean\",\"number\",\"array\",\"object\"]}";
    goal others = {0};
    const json *no_string = json_parse(c->a, "", types, sizeof types - 1, t->e);
    uint32_t behind = node(t);
    for (size_t i = 0; i < g->n; i++)
        if (!goal_add(c, &others, g->part[i])) return false;
    if (!no_string || !goal_add(c, &others, (part){no_string, 0})) return false;
    uint32_t rule = compile_goal(c, &others);
    if (rule == UINT32_MAX) return false;
    net_call(t->n, from, rule, behind);
    text(t, behind, arena_printf(c->a, "\n%s", END_VALUE), to);
    return true;
}

/* The value of a parameter and its closing tag; of what nothing is said, a string. */
static bool xml_value(tools *t, compiler *c, const goal *g, uint32_t from, uint32_t to) {
    goal all;
    facts f;
    if (!goal_spread(c, g, &all) || !facts_read(c, &all, &f)) return false;
    if (f.choice) {
        const json *branches = json_get(f.choice, f.choice_is_one ? "oneOf" : "anyOf");
        JSON_EACH(x, branches) {
            goal one;
            if (!goal_branch(c, &f, x, &one) || !xml_value(t, c, &one, from, to)) return false;
        }
        return true;
    }
    if ((f.types & T_STRING) && !raw_strings(t, c, &f, from, to)) return false;
    return !says_types(&f) || !(f.types & ~(unsigned)T_STRING) || json_values(t, c, &all, from, to);
}

static bool is_required(const facts *f, const json *member) {
    for (size_t i = 0; i < f->required.n; i++) {
        const json *name = f->required.v[i];
        if (name->len == member->key_len && !memcmp(name->s, member->key, name->len)) return true;
    }
    return false;
}

/* Each property once, in order; other ones are not written. */
static bool xml_parameters(tools *t, compiler *c, const facts *f, uint32_t *at) {
    arena *a = c->a;
    map *seen = map_new(a, 16);
    for (size_t k = 0; k < f->parts.n; k++) JSON_EACH(p, json_get(f->parts.part[k].schema, "properties")) {
            goal g;
            if (!map_add(seen, p->key, p->key_len, 0)) continue;
            if (!check_name(t, p->key) || !member_goal(c, f, p->key, p->key_len, &g)) return false;
            uint32_t value = node(t), behind = node(t), next = node(t);
            text(t, *at, arena_printf(a, "<parameter=%s>\n", p->key), value);
            if (!xml_value(t, c, &g, value, behind)) return false;
            text(t, behind, "\n", next);
            if (!is_required(f, p)) net_free_edge(t->n, *at, next);
            *at = next;
        }
    for (size_t i = 0; i < f->required.n; i++)
        if (map_get(seen, f->required.v[i]->s, f->required.v[i]->len) == MAP_NONE)
            return err_set(t->e, ERR_UNSUPPORTED,
                           "a required parameter that is not among \"properties\": \"%.60s\"",
                           f->required.v[i]->s);
    return true;
}

/* Any parameters, strings. */
static bool xml_any(tools *t, compiler *c, uint32_t *at) {
    arena *a = c->a;
    uint32_t name = node(t), value = node(t), behind = node(t);
    const rx *letter = rx_alt(a, rx_alt(a, rx_bytes(a, 'a', 'z'), rx_bytes(a, 'A', 'Z')),
                              rx_alt(a, rx_bytes(a, '0', '9'), rx_alt(a, rx_text(a, "_"), rx_text(a, "-"))));
    facts any = {.types = T_STRING, .max_length = UINT64_MAX};
    text(t, *at, "<parameter=", name);
    net_take(t->n, name,
             net_terminal_rx(t->n, rx_cat(a, rx_repeat(a, letter, 1, 64), rx_text(a, ">\n")), "a name", NULL),
             value);
    text(t, behind, "\n", *at);
    return raw_strings(t, c, &any, value, behind);
}

static bool xml_call(tools *t, const grammar_tool *tool, uint32_t from, uint32_t to) {
    compiler c = compiler_for(t, tool->parameters ? tool->parameters : t->object);
    uint32_t at = node(t);
    bool ok = true;
    goal g, all;
    facts f;
    text(t, from, arena_printf(c.a, "\n<function=%s>\n", tool->name), at);
    if (tool->loose)
        ok = xml_any(t, &c, &at);
    else if (tool->parameters) {
        ok = arguments_goal(t, &c, tool, &g) && goal_spread(&c, &g, &all) && facts_read(&c, &all, &f);
        if (ok && f.choice)
            ok = bad_keyword(&c, f.choice, f.choice_is_one ? "oneOf" : "anyOf", ERR_UNSUPPORTED,
                             "alternatives of all parameters can't be written in XML");
        ok = ok && xml_parameters(t, &c, &f, &at);
    }
    t->j = c.j;
    text(t, at, arena_printf(c.a, "</function>%s", CLOSE), to);
    return ok;
}

/* ---- all ---- */

/* Behind OPEN: one call of any tool. */
static bool any_call(tools *t, uint32_t from, uint32_t to) {
    for (size_t i = 0; i < t->o->n_tool; i++) {
        const grammar_tool *tool = &t->o->tool[i];
        if (!check_name(t, tool->name)) return false;
        bool ok = t->o->dialect == TOOLS_XML ? xml_call(t, tool, from, to) : json_call(t, tool, from, to);
        if (!ok) return err_where(t->e, "tool %.60s", tool->name);
    }
    return !net_failed(t->n);
}

static uint32_t all_calls(tools *t) {
    net *n = t->n;
    t->rule = net_rule_new(n, 0, NO_LIMIT);
    uint32_t start = net_start(n, t->rule), call = node(t), behind = node(t), end = node(t);
    net_final(n, end);
    if (t->o->choice == TOOLS_AUTO) {
        net_take(n, start, text_until(n, OPEN), call);
        net_take(n, start, text_to_end(n, OPEN), end);
        net_final(n, start); /* nothing at all is free text, too */
    } else
        text(t, start, OPEN, call);
    net_free_edge(n, behind, end);
    if (!t->o->one_call) text(t, behind, arena_printf(net_arena(n), "\n%s", OPEN), call);
    return any_call(t, call, behind) ? t->rule : UINT32_MAX;
}

grammar *grammar_tools(const tools_options *o, err *e) {
    static const char object[] = "{\"type\":\"object\"}";
    net *n = net_new();
    tools t = {.n = n, .o = o, .j = {.n = n}, .e = net_err(n)};
    t.object = json_parse(net_arena(n), "", object, sizeof object - 1, t.e);
    uint32_t rule = t.object ? all_calls(&t) : UINT32_MAX;
    uint32_t root = rule == UINT32_MAX ? 0 : with_options(n, &o->at, rule);
    return net_finish(n, root, e);
}
