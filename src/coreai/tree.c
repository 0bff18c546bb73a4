/* Regions of ops, and the graphs of an asset. */
#include "coreai/tree.h"
#include "coreai/bytecode.h"
#include <string.h>

/* Values that ops may refer to: a table for each region that is being read. An isolated one sees its own; the
 * table of another lies behind those around it. */
typedef struct scope {
    ai_value **value;
    size_t n, cap;
} scope;

/* How the properties of the ops that have any are laid out: one letter an attribute, optional ones as 2 index
 * + 1. */
static const struct {
    const char *op, *layout;
} layouts[] = {
    {"primitive.constant_v1", "a"}, {"dataflow.graph_v1", "aoaaaaaaa"},       {"dataflow.invoke_v1", "aaa"},
    {"serialization.asset", "oo"},  {"primitive.scatter_along_axis_v1", "a"},
};

const char *ai_property_layout(const char *op) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (!strcmp(op, layouts[i].op)) return layouts[i].layout;
    return NULL;
}

#define MAX_REGIONS 8 /* of an op */

static bool read_region(ai_bytecode *b, ai_cursor *c, ai_region *r, scope *s, int depth);

static ai_value *define(ai_bytecode *b, ai_cursor *c, scope *s, size_t *next, const ai_op *def,
                        uint32_t index, uint32_t type) {
    if (c->bad || *next >= s->n) {
        ai_bad(b, c, ERR_FORMAT, "a region defines more values than it announces");
        return NULL;
    }
    ai_value *v = ARENA_NEW(b->a, ai_value);
    *v = (ai_value){&b->type[type], def, index, b->n_value++};
    return s->value[(*next)++] = v;
}

static bool read_properties(ai_bytecode *b, ai_cursor *c, ai_op *op) {
    uint32_t i = ai_index(c, b->n_property);
    if (!ai_good(b, c, "reference to properties")) return false;
    op->raw_prop = b->property[i].number;
    op->n_prop = b->property[i].n;
    const char *layout = ai_property_layout(op->name);
    if (!layout) return true;
    if (strlen(layout) != op->n_prop)
        return ai_bad(b, c, ERR_FORMAT, "%s has %u properties, expected %zu", op->name, op->n_prop,
                      strlen(layout));
    const ai_attr **prop = ARENA_ARRAY(b->a, const ai_attr *, op->n_prop);
    for (uint32_t k = 0; k < op->n_prop; k++) {
        uint64_t raw = op->raw_prop[k], index = layout[k] == 'o' ? raw >> 1 : raw;
        if (layout[k] == 'o' && !raw) continue;
        if (index >= b->n_attr || (layout[k] == 'o' && !(raw & 1)))
            return ai_bad(b, c, ERR_FORMAT, "property %u of %s is no attribute", k, op->name);
        prop[k] = &b->attr[index];
    }
    op->prop = prop;
    return true;
}

static bool read_operands(ai_bytecode *b, ai_cursor *c, ai_op *op, const scope *s) {
    op->n_in = ai_count(c);
    const ai_value **in = ARENA_ARRAY(b->a, const ai_value *, op->n_in);
    for (uint32_t i = 0; i < op->n_in; i++) {
        uint32_t k = ai_index(c, s->n);
        if (!ai_good(b, c, "operand")) return false;
        if (!(in[i] = s->value[k]))
            return ai_bad(b, c, ERR_FORMAT, "operand %u of %s is not defined before it", i, op->name);
    }
    op->in = in;
    return true;
}

static bool read_regions(ai_bytecode *b, ai_cursor *c, ai_op *op, scope *s, int depth) {
    bool isolated;
    uint64_t n = ai_flagged(c, &isolated);
    if (c->bad || n > MAX_REGIONS) return ai_bad(b, c, ERR_FORMAT, "malformed regions of %s", op->name);
    if (depth >= AI_MAX_DEPTH)
        return ai_bad(b, c, ERR_LIMIT, "regions nested deeper than %d levels", AI_MAX_DEPTH);
    op->n_region = (uint32_t)n;
    ai_region *r = ARENA_ARRAY(b->a, ai_region, n);
    op->region = r;
    for (uint32_t i = 0; i < op->n_region; i++) {
        r[i].isolated = isolated;
        if (!isolated) {
            if (!read_region(b, c, &r[i], s, depth + 1)) return false;
            continue;
        }
        uint8_t id;
        ai_cursor section = ai_section(c, &id);
        if (!ai_good(b, c, "region")) return false;
        if (id != AI_SECTION_IR)
            return ai_bad(b, c, ERR_FORMAT, "an isolated region of %s is no IR section", op->name);
        scope own = {0};
        if (!read_region(b, &section, &r[i], &own, depth + 1)) return false;
    }
    return true;
}

static bool read_op(ai_bytecode *b, ai_cursor *c, ai_op *op, scope *s, size_t *next, int depth) {
    op->at = ai_at(c);
    uint32_t name = ai_index(c, b->n_op);
    uint8_t mask = ai_byte(c);
    uint32_t location = ai_index(c, b->n_attr);
    if (!ai_good(b, c, "op")) return false;
    op->name = b->op[name];
    op->location = &b->attr[location];
    if (mask & ~0x7F || mask & (AI_HAS_SUCCESSORS | AI_HAS_ORDERS | AI_HAS_ATTRIBUTES))
        return ai_bad(b, c, ERR_UNSUPPORTED, "%s has %s", op->name,
                      mask & AI_HAS_SUCCESSORS   ? "successors"
                      : mask & AI_HAS_ORDERS     ? "orders of uses"
                      : mask & AI_HAS_ATTRIBUTES ? "discardable attributes"
                                                 : "an unknown part");
    if (mask & AI_HAS_PROPERTIES && !read_properties(b, c, op)) return false;
    uint32_t n_out = mask & AI_HAS_RESULTS ? ai_count(c) : 0;
    uint32_t *type = ARENA_ARRAY(b->a, uint32_t, n_out);
    for (uint32_t i = 0; i < n_out; i++) type[i] = ai_index(c, b->n_type);
    if (!ai_good(b, c, "op") || (mask & AI_HAS_OPERANDS && !read_operands(b, c, op, s))) return false;
    if (mask & AI_HAS_REGIONS && !read_regions(b, c, op, s, depth)) return false;
    ai_value **out = ARENA_ARRAY(b->a, ai_value *, n_out);
    for (uint32_t i = 0; i < n_out; i++)
        if (!(out[i] = define(b, c, s, next, op, i, type[i]))) return false;
    op->out = out;
    op->n_out = n_out;
    return true;
}

static bool read_arguments(ai_bytecode *b, ai_cursor *c, ai_region *r, scope *s, size_t *next) {
    r->n_arg = ai_count(c);
    ai_value **arg = ARENA_ARRAY(b->a, ai_value *, r->n_arg);
    r->arg = arg;
    for (uint32_t i = 0; i < r->n_arg; i++) {
        bool located;
        uint64_t type = ai_flagged(c, &located);
        if (type >= b->n_type) ai_spoil(c);
        if (located) ai_index(c, b->n_attr);
        if (!ai_good(b, c, "argument of a block") ||
            !(arg[i] = define(b, c, s, next, NULL, i, (uint32_t)type)))
            return false;
    }
    return !ai_byte(c) || ai_bad(b, c, ERR_UNSUPPORTED, "orders of uses of a block's arguments");
}

/* What blocks and regions announce is counted over the whole file, in which each op and value takes a byte at
 * least. */
static bool read_block(ai_bytecode *b, ai_cursor *c, ai_region *r, scope *s, size_t next, int depth) {
    bool has_args;
    uint64_t n = ai_flagged(c, &has_args);
    if (c->bad || n > ai_left(c) || (b->ops += n) > ai_left(&b->section[AI_SECTION_IR]))
        return ai_bad(b, c, ERR_FORMAT, "malformed block");
    if (has_args && !read_arguments(b, c, r, s, &next)) return false;
    ai_op *op = ARENA_ARRAY(b->a, ai_op, n);
    const ai_op **list = ARENA_ARRAY(b->a, const ai_op *, n);
    for (uint32_t i = 0; i < n; i++) {
        list[i] = &op[i];
        if (!read_op(b, c, &op[i], s, &next, depth)) return false;
    }
    r->op = list;
    r->n_op = (uint32_t)n;
    if (next != s->n) return ai_bad(b, c, ERR_FORMAT, "a region defines fewer values than it announces");
    return ai_good(b, c, "block");
}

static bool read_region(ai_bytecode *b, ai_cursor *c, ai_region *r, scope *s, int depth) {
    uint32_t n_block = ai_count(c);
    if (!n_block) return ai_good(b, c, "region");
    uint32_t n = ai_count(c);
    if ((b->values += n) > ai_left(&b->section[AI_SECTION_IR])) ai_spoil(c);
    if (!ai_good(b, c, "region")) return false;
    if (n_block > 1) return ai_bad(b, c, ERR_UNSUPPORTED, "a region of %u blocks", n_block);
    size_t before = s->n;
    s->value = arena_grow(b->a, s->value, s->n, &s->cap, s->n + n + 1, sizeof *s->value);
    s->n += n;
    memset(s->value + before, 0, n * sizeof *s->value);
    bool ok = read_block(b, c, r, s, before, depth);
    s->n = before;
    return ok;
}

/* ---- graphs ---- */

static bool read_graph(ai_bytecode *b, const ai_op *op, ai_graph *g) {
    if (op->n_prop != AI_GRAPH_PROPS || op->n_region != 1)
        return err_set(b->e, ERR_FORMAT, "byte %zu: a graph without properties or body", op->at);
    const ai_attr *name = op->prop[AI_GRAPH_NAME], *hidden = op->prop[AI_GRAPH_PRIVATE];
    const ai_attr *type = op->prop[AI_GRAPH_TYPE];
    if (name->code != AI_STRING || hidden->code != AI_INTEGER || type->code != AI_TYPE ||
        type->type->code != AI_FUNCTION)
        return err_set(b->e, ERR_FORMAT, "byte %zu: a graph without a name or type", op->at);
    *g = (ai_graph){name->text, op, op->region, hidden->number != 0};
    const ai_type *f = type->type;
    bool same = f->n_operand == g->body->n_arg && g->body->n_op;
    for (uint32_t i = 0; same && i < f->n_operand; i++)
        same = f->item[f->n_result + i] == g->body->arg[i]->type;
    return same || err_set(b->e, ERR_FORMAT, "byte %zu: graph %.60s: its arguments are not those of its type",
                           op->at, g->name);
}

static bool read_graphs(ai_bytecode *b, ai_tree *t, const ai_op *asset) {
    if (strcmp(asset->name, "serialization.asset") || asset->n_region != 1)
        return err_set(b->e, ERR_FORMAT,
                       "byte %zu: the program is %s of %u regions, expected serialization.asset of one",
                       asset->at, asset->name, asset->n_region);
    if (asset->n_prop == 2 && asset->prop[1] && asset->prop[1]->code == AI_INTEGER)
        t->version = asset->prop[1]->number;
    const ai_region *r = asset->region;
    ai_graph *g = ARENA_ARRAY(b->a, ai_graph, r->n_op);
    t->graph = g;
    for (uint32_t i = 0; i < r->n_op; i++) {
        if (strcmp(r->op[i]->name, "dataflow.graph_v1"))
            return err_set(b->e, ERR_UNSUPPORTED, "byte %zu: %s among the graphs", r->op[i]->at,
                           r->op[i]->name);
        if (!read_graph(b, r->op[i], &g[t->n_graph])) return false;
        if (ai_graph_find(t, g[t->n_graph].name))
            return err_set(b->e, ERR_FORMAT, "byte %zu: two graphs are named %.60s", r->op[i]->at,
                           g[t->n_graph].name);
        t->n_graph++;
    }
    return true;
}

const ai_tree *ai_tree_read(arena *a, const void *data, size_t n, err *e) {
    ai_bytecode *b = ARENA_NEW(a, ai_bytecode);
    *b = (ai_bytecode){.a = a, .e = e, .data = data};
    ai_tree *t = ARENA_NEW(a, ai_tree);
    ai_region top = {.isolated = true};
    scope s = {0};
    if (!ai_read_container(b, n) || !ai_read_tables(b)) return NULL;
    ai_cursor c = b->section[AI_SECTION_IR];
    if (!read_block(b, &c, &top, &s, 0, 0)) return NULL;
    if (top.n_op != 1) {
        ai_bad(b, &b->section[AI_SECTION_IR], ERR_FORMAT, "%u programs, expected one", top.n_op);
        return NULL;
    }
    t->producer = b->producer;
    if (!read_graphs(b, t, top.op[0])) return NULL;
    t->n_value = b->n_value;
    return t;
}

const ai_graph *ai_graph_find(const ai_tree *t, const char *name) {
    for (uint32_t i = 0; i < t->n_graph; i++)
        if (!strcmp(t->graph[i].name, name)) return &t->graph[i];
    return NULL;
}

const ai_attr *ai_attr_named(const ai_attr *list, const char *name) {
    if (!list || (list->code != AI_ARRAY && list->code != AI_DICTIONARY && list->code != AI_NAMED))
        return NULL;
    for (uint32_t i = 0; i < list->n; i++)
        if (list->item[i]->code == AI_NAMED && !strcmp(list->item[i]->text, name)) return list->item[i];
    return NULL;
}

const char *ai_attr_text(const ai_attr *list, const char *name) {
    const ai_attr *x = ai_attr_named(list, name);
    return x && x->n == 1 && x->item[0]->code == AI_STRING ? x->item[0]->text : NULL;
}

const char *ai_graph_feature(const ai_graph *g, int prop, uint32_t i) {
    const ai_attr *list = g->op->prop[prop];
    return list->code == AI_ARRAY && i < list->n ? ai_attr_text(list->item[i], "aicode.name") : NULL;
}

const ai_graph *ai_callee(const ai_tree *t, const ai_op *op) {
    if (op->n_prop != AI_INVOKE_PROPS) return NULL;
    const ai_attr *callee = op->prop[AI_INVOKE_CALLEE];
    if (callee->code == AI_PARAM) callee = callee->item[0];
    return callee->code == AI_SYMBOL && callee->n == 1 ? ai_graph_find(t, callee->path[0]) : NULL;
}
