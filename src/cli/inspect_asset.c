#include "cli/inspect_asset.h"
#include "base/json.h"
#include "coreai/print.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_VALUES 16 /* of a constant */

static const char *const facts[] = {"producer", "creationDate", "author", "license", "description"};

/* ---- what is in a graph ---- */

typedef struct {
    const char *name;
    uint64_t n;
} op_count;

typedef struct {
    arena *a;
    op_count *op;
    size_t n, cap;
    uint64_t total, bytes; /* ops; bytes of constants */
} census;

static void count_op(census *c, const char *name) {
    c->total++;
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->op[i].name, name)) {
            c->op[i].n++;
            return;
        }
    c->op = arena_grow(c->a, c->op, c->n, &c->cap, c->n + 1, sizeof *c->op);
    c->op[c->n++] = (op_count){name, 1};
}

/* Ops of a graph, those of decompositions apart. */
static void count_region(census *c, const ai_region *r) {
    for (uint32_t i = 0; i < r->n_op; i++) {
        const ai_op *op = r->op[i];
        count_op(c, op->name);
        if (!strcmp(op->name, "primitive.constant_v1") && op->prop && op->prop[0])
            c->bytes += op->prop[0]->bytes;
        for (uint32_t k = 0; k < op->n_region; k++)
            if (!op->region[k].isolated) count_region(c, &op->region[k]);
    }
}

static int by_count(const void *x, const void *y) {
    const op_count *a = x, *b = y;
    return a->n != b->n ? (a->n < b->n ? 1 : -1) : strcmp(a->name, b->name);
}

static census take_census(arena *a, const ai_graph *g) {
    census c = {.a = a};
    count_region(&c, g->body);
    if (c.n) qsort(c.op, c.n, sizeof *c.op, by_count);
    return c;
}

/* ---- text ---- */

static void add_bytes(str *out, uint64_t bytes) {
    if (bytes < 10240)
        str_printf(out, "%" PRIu64 " B", bytes);
    else if (bytes < 10u << 20)
        str_printf(out, "%.1f KiB", (double)bytes / 1024);
    else
        str_printf(out, "%.1f MiB", (double)bytes / 1048576);
}

static bool wanted(const ai_type *t, int code) {
    return code == AI_HANDLE ? t->code == AI_HANDLE : t->code != AI_HANDLE && t->code != AI_TOKEN;
}

/* Arguments that are handles, those that aren't, or results. */
static void add_features(str *out, arena *a, const char *title, const ai_graph *g, int prop, int code) {
    const ai_type *f = g->op->prop[AI_GRAPH_TYPE]->type;
    const ai_type *const *type = f->item + (prop == AI_GRAPH_RESULTS ? 0 : f->n_result);
    uint32_t n = prop == AI_GRAPH_RESULTS ? f->n_result : f->n_operand;
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (!wanted(type[i], code)) continue;
        const char *name = ai_graph_feature(g, prop, i);
        if (!any) str_printf(out, "  %s\n", title);
        any = true;
        str_printf(out, "    %-16s %s\n", name ? name : "(unnamed)",
                   ai_type_text(a, type[i]->code == AI_HANDLE ? type[i]->inner : type[i]));
    }
}

static void add_graph(str *out, arena *a, const ai_graph *g) {
    census c = take_census(a, g);
    const ai_attr *composite = g->op->prop[AI_GRAPH_COMPOSITE];
    str_printf(out, "\n%sgraph %s", g->is_private ? "private " : "", g->name);
    if (composite && composite->code == AI_NAMED) str_printf(out, ", a composite: %s", composite->text);
    str_addc(out, '\n');
    add_features(out, a, "inputs", g, AI_GRAPH_ARGS, AI_TENSOR);
    add_features(out, a, "outputs", g, AI_GRAPH_RESULTS, AI_TENSOR);
    add_features(out, a, "states", g, AI_GRAPH_ARGS, AI_HANDLE);
    str_printf(out, "  ops, %" PRIu64 ", constants of ", c.total);
    add_bytes(out, c.bytes);
    str_adds(out, "\n   ");
    size_t column = 4;
    for (size_t i = 0; i < c.n; i++) {
        size_t n = strlen(c.op[i].name) + 8;
        if (column + n > 108) {
            str_adds(out, "\n   ");
            column = 4;
        }
        column += n;
        str_printf(out, " %s %" PRIu64 "%s", c.op[i].name, c.op[i].n, i + 1 < c.n ? "," : "\n");
    }
}

void inspect_asset(str *out, const ai_asset *x, bool ops) {
    if (ops) {
        ai_print(out, x->tree, SHOWN_VALUES);
        return;
    }
    arena *a = arena_new();
    str_printf(out, "%s\n  Core AI asset %" PRId64 ", bytecode of %s, main.mlirb ", x->path, x->tree->version,
               x->tree->producer);
    add_bytes(out, x->code.size);
    str_addc(out, '\n');
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const char *v = json_str(x->metadata, facts[i], NULL);
        if (v && *v) str_printf(out, "  %s: %s\n", facts[i], v);
    }
    if (x->context) str_printf(out, "  context %" PRId64 "\n", x->context);
    for (int hidden = 0; hidden < 2; hidden++)
        for (uint32_t i = 0; i < x->tree->n_graph; i++)
            if (x->tree->graph[i].is_private == hidden) add_graph(out, a, &x->tree->graph[i]);
    arena_free(a);
}

/* ---- JSON ---- */

static void json_string(str *out, const char *key, const char *value) {
    str_json_string(out, key, strlen(key));
    str_addc(out, ':');
    str_json_string(out, value, strlen(value));
}

static void json_features(str *out, arena *a, const char *key, const ai_graph *g, int prop, int code) {
    const ai_type *f = g->op->prop[AI_GRAPH_TYPE]->type;
    const ai_type *const *type = f->item + (prop == AI_GRAPH_RESULTS ? 0 : f->n_result);
    uint32_t n = prop == AI_GRAPH_RESULTS ? f->n_result : f->n_operand;
    bool any = false;
    str_printf(out, ",\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++) {
        if (!wanted(type[i], code)) continue;
        const char *name = ai_graph_feature(g, prop, i);
        str_adds(out, any ? ",{" : "{");
        any = true;
        json_string(out, "name", name ? name : "");
        str_addc(out, ',');
        json_string(out, "type", ai_type_text(a, type[i]->code == AI_HANDLE ? type[i]->inner : type[i]));
        str_addc(out, '}');
    }
    str_addc(out, ']');
}

static void json_graph(str *out, arena *a, const ai_graph *g) {
    census c = take_census(a, g);
    str_addc(out, '{');
    json_string(out, "name", g->name);
    str_printf(out, ",\"private\":%s", g->is_private ? "true" : "false");
    json_features(out, a, "inputs", g, AI_GRAPH_ARGS, AI_TENSOR);
    json_features(out, a, "outputs", g, AI_GRAPH_RESULTS, AI_TENSOR);
    json_features(out, a, "states", g, AI_GRAPH_ARGS, AI_HANDLE);
    str_printf(out, ",\"constant_bytes\":%" PRIu64 ",\"ops\":{", c.bytes);
    for (size_t i = 0; i < c.n; i++) {
        if (i) str_addc(out, ',');
        str_json_string(out, c.op[i].name, strlen(c.op[i].name));
        str_printf(out, ":%" PRIu64, c.op[i].n);
    }
    str_adds(out, "}}");
}

void inspect_asset_json(str *out, const ai_asset *x) {
    arena *a = arena_new();
    str_addc(out, '{');
    json_string(out, "asset", x->path);
    str_printf(out, ",\"asset_version\":%" PRId64 ",\"bytes\":%zu,", x->tree->version, x->code.size);
    json_string(out, "bytecode_producer", x->tree->producer);
    str_adds(out, ",\"metadata\":");
    json_canonical(out, x->metadata);
    str_adds(out, ",\"graphs\":[");
    for (uint32_t i = 0; i < x->tree->n_graph; i++) {
        if (i) str_addc(out, ',');
        json_graph(out, a, &x->tree->graph[i]);
    }
    str_adds(out, "]}\n");
    arena_free(a);
}
