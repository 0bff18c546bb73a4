/* metadata.json: the packages of one model in their order, their states, the host table. */
#include "base/map.h"
#include "base/sha256.h"
#include "check/verify.h"
#include "coreml/embedding.h"
#include "generate/lm.h"
#include <inttypes.h>
#include <string.h>

typedef struct {
    verify *v;
    const char **name; /* of each package */
    coreml_package **package;
    size_t n;
    stated_scheme said;
    uint64_t weight_bytes, parameters;
    map *states; /* what the document lists: "PACKAGE NAME" and "PACKAGE NAME SLICE" */
    bool stacked,
        apart; /* attention layers of a package that have a state together, and such that have not */
} set;

/* --- features --- */

static void verify_feature(verify *v, const char *package, const json *x, const char *where,
                           const coreml_feature *f) {
    verify_text(v, package, x, "name", f->name);
    verify_text(v, package, x, "dtype", dtype_name(f->type.dtype));
    const json *shape = json_get(x, "shape");
    str is = {0}, said = {0};
    if (f->no_shape) str_adds(&is, "null");
    for (int d = 0; d < f->type.rank && !f->no_shape; d++)
        str_printf(&is, "%s%" PRId64, d ? "," : "[", f->type.dim[d]);
    if (!f->no_shape) str_adds(&is, f->type.rank ? "]" : "[]");
    if (shape) json_canonical(&said, shape);
    if (strcmp(str_get(&is), str_get(&said)))
        verify_fail(v, package, arena_printf(v->a, "shape of %s %s", where, f->name),
                    shape ? str_get(&said) : "nothing", str_get(&is));
    str_free(&is);
    str_free(&said);
}

static void verify_features(verify *v, const char *package, const json *function, const char *key,
                            const coreml_feature *f, size_t n) {
    const json *list = verify_member(v, function, key, JSON_ARRAY);
    if (!list) return;
    const char *where = arena_printf(v->a, "%s of %s", key, json_str(function, "name", "a function"));
    if (list->len != n) {
        verify_fail(v, package, where, arena_printf(v->a, "%u", list->len), arena_printf(v->a, "%zu", n));
        return;
    }
    JSON_EACH(x, list) verify_feature(v, package, x, where, f++);
}

static void verify_functions(verify *v, const char *package, const json *x, const coreml_model *m) {
    const json *list = verify_member(v, x, "functions", JSON_ARRAY);
    const json *names = json_get_kind(json_get(v->j, "graph"), "functions", JSON_ARRAY);
    if (!list) return;
    if (list->len != m->n_func)
        verify_fail(v, package, "functions", arena_printf(v->a, "%u", list->len),
                    arena_printf(v->a, "%zu", m->n_func));
    const json *name = names ? names->child : NULL;
    JSON_EACH(f, list) {
        const char *called = json_str(f, "name", "");
        const coreml_function *is = coreml_function_find(m, called);
        if (!name || name->kind != JSON_STRING || strcmp(name->s, called))
            verify_fail(v, v->r->document, "graph.functions",
                        arena_printf(v->a, "%s, as of %s", called, package),
                        name && name->kind == JSON_STRING ? name->s : "nothing");
        name = name ? name->next : NULL;
        if (!is) {
            verify_fail(v, package, "function", called, "nothing");
            continue;
        }
        verify_features(v, package, f, "inputs", is->in, is->n_in);
        verify_features(v, package, f, "outputs", is->out, is->n_out);
        verify_features(v, package, f, "states", is->state, is->n_state);
    }
}

/* --- packages --- */

static void verify_package(set *s, const json *x, const char *name) {
    verify *v = s->v;
    verify_files(v, x, name);
    coreml_package *p = verify_open(v, name);
    s->name[s->n] = name;
    s->package[s->n++] = p;
    if (!p) return;
    verify_functions(v, name, x, p->model);
    verify_described(v, name, p->model, json_get(v->j, "graph"));
    verify_weights(v, name, p->model, &s->said);
    s->weight_bytes += verify_weight_bytes(p);
    s->parameters += verify_parameters(p->model);
}

/* -1 when it is no whole number. */
static int64_t whole(const json *x) {
    return x->kind == JSON_INT ? x->i : -1;
}

/* Whether the layers of the packages follow one another and are all there. */
static void verify_layers(verify *v, const json *packages) {
    int64_t at = 0, all = json_int(json_get(v->j, "model"), "layers", -1), heads = 0;
    JSON_EACH(x, packages) {
        const char *role = json_str(x, "role", ""), *name = json_str(x, "path", "");
        const json *range = verify_member(v, x, "layers", JSON_ARRAY);
        if (!range || range->len != 2) continue;
        int64_t first = whole(range->child), end = whole(range->child->next);
        bool head = !strcmp(role, "head");
        if ((head ? first != end : first != at || end <= first) ||
            (!strcmp(role, "all") && packages->len != 1))
            verify_fail(v, name, "layers",
                        arena_printf(v->a, head ? "none" : "layers from %" PRId64 " on", at),
                        arena_printf(v->a, "[%" PRId64 ", %" PRId64 "] with role %s", first, end, role));
        heads += head;
        if (!head) at = end;
    }
    verify_int(v, v->r->document, json_get(v->j, "graph"), "heads", heads);
    verify_int(v, v->r->document, json_get(v->j, "graph"), "chunks", packages->len - heads);
    if (at != all)
        verify_fail(v, v->r->document, "layers", arena_printf(v->a, "%" PRId64 " in all packages", all),
                    arena_printf(v->a, "%" PRId64, at));
}

/* --- states --- */

static const coreml_feature *state_named(const coreml_model *m, const char *name) {
    for (size_t i = 0; i < m->n_func; i++)
        for (size_t k = 0; k < m->func[i].n_state; k++)
            if (!strcmp(m->func[i].state[k].name, name)) return &m->func[i].state[k];
    return NULL;
}

static bool is_recurrent(const char *name) {
    return !strncmp(name, "conv", 4) || !strncmp(name, "rec", 3);
}

/* Notes a state of the list; false: it is there already. */
static bool note_state(set *s, int64_t package, const char *name, int64_t slice) {
    const char *key =
        arena_printf(s->v->a, slice < 0 ? "%" PRId64 " %s" : "%" PRId64 " %s %" PRId64, package, name, slice);
    return map_add(s->states, key, strlen(key), 0);
}

/* One of a layer's states: of the kind, with the heads, and the slice its own. */
static void verify_state(set *s, const json *x, int64_t at, const char *name, const coreml_feature *is) {
    verify *v = s->v;
    const char *where = arena_printf(v->a, "%s: state %s", s->name[at], name);
    const json *slices = verify_member(v, x, "slices", JSON_ARRAY);
    int64_t first = slices && slices->len == 2 ? whole(slices->child) : -1,
            end = first < 0 ? -1 : whole(slices->child->next);
    note_state(s, at, name, -1);
    verify_text(v, where, x, "kind", is_recurrent(name) ? "recurrent" : "attention");
    if (is->type.rank == 4) verify_int(v, where, x, "heads", is->type.dim[1]);
    if (slices && (first < 0 || end != first + 1 || end > is->type.dim[0]))
        verify_fail(
            v, where, "slices", "one of the first axis",
            arena_printf(v->a, "[%" PRId64 ", %" PRId64 "] of %" PRId64, first, end, is->type.dim[0]));
    else if (!note_state(s, at, name, first < 0 ? 0 : first))
        verify_fail(v, where, "slices", "one layer each",
                    arena_printf(v->a, "slice %" PRId64 " twice", first));
}

/* The layer's states are in the package that has the layer. */
static void verify_layer_states(set *s, const json *x, const json *packages) {
    verify *v = s->v;
    int64_t layer = json_int(x, "layer", -1), at = json_int(x, "package", -1);
    const json *names = verify_member(v, x, "names", JSON_ARRAY), *p = packages->child;
    const char *what = arena_printf(v->a, "states of layer %" PRId64, layer);
    if (at < 0 || (size_t)at >= s->n) {
        verify_fail(v, v->r->document, what, "a package of the list", arena_printf(v->a, "%" PRId64, at));
        return;
    }
    for (int64_t i = 0; i < at; i++) p = p->next;
    const json *range = json_get(p, "layers");
    if (range && range->len == 2 && (layer < range->child->i || layer >= range->child->next->i))
        verify_fail(
            v, s->name[at], what, "a package that has the layer",
            arena_printf(v->a, "layers [%" PRId64 ", %" PRId64 "]", range->child->i, range->child->next->i));
    JSON_EACH(n, names) {
        const char *name = n->kind == JSON_STRING ? n->s : "a name";
        const coreml_feature *is = s->package[at] ? state_named(s->package[at]->model, name) : NULL;
        v->r->statements++;
        if (is)
            verify_state(s, x, at, name, is);
        else if (s->package[at])
            verify_fail(v, s->name[at], what, name, "no such state");
    }
}

/* Each state of a package is some layer's. Tells whether attention layers have states of their own. */
static void verify_listed(set *s, size_t i, bool *split) {
    verify *v = s->v;
    const coreml_model *m = s->package[i] ? s->package[i]->model : NULL;
    for (size_t k = 0; m && m->n_func && k < m->func[0].n_state; k++) {
        const char *name = m->func[0].state[k].name, *end = strrchr(name, '_');
        const char *key = arena_printf(v->a, "%zu %s", i, name);
        if (end && !strcmp(end, "_lo")) *split = true;
        s->stacked |= !strncmp(name, "k_cache_", 8);
        s->apart |= *name == 'k' && strncmp(name, "k_cache_", 8);
        if (map_get(s->states, key, strlen(key)) == MAP_NONE)
            verify_fail(v, s->name[i], arena_printf(v->a, "state %s", name), "not listed", "in the package");
    }
}

/* Each layer has its states, and they are kept as the graph says. */
static void verify_states(set *s, const json *packages) {
    verify *v = s->v;
    const json *list = verify_member(v, v->j, "states", JSON_ARRAY), *graph = json_get(v->j, "graph");
    s->states = map_new(v->a, 64);
    bool split = false;
    int64_t layers = json_int(json_get(v->j, "model"), "layers", 0), at = 0;
    JSON_EACH(x, list) {
        int64_t layer = json_int(x, "layer", -1);
        for (; at < layer && at < layers; at++)
            verify_fail(v, v->r->document, "states", arena_printf(v->a, "states of layer %" PRId64, at),
                        "nothing");
        if (layer == at) at++;
        verify_layer_states(s, x, packages);
    }
    for (; list && at < layers; at++)
        verify_fail(v, v->r->document, "states", arena_printf(v->a, "states of layer %" PRId64, at),
                    "nothing");
    for (size_t i = 0; i < s->n; i++) verify_listed(s, i, &split);
    verify_text(v, s->name[0], graph, "state", split ? "split" : "fp16");
    if (strcmp(json_str(graph, "preset", ""), "single") && (s->stacked || s->apart))
        verify_text(v, s->name[0], graph, "kv", s->stacked ? "stacked" : "split");
}

/* --- table --- */

static void verify_table(verify *v) {
    const json *t = verify_member(v, v->j, "table", JSON_OBJECT), *model = json_get(v->j, "model");
    const json *path = t ? verify_member(v, t, "path", JSON_STRING) : NULL;
    if (!path || !verify_path(v, path->s, true)) return;
    const char *full = arena_printf(v->a, "%s/%s", v->dir, path->s);
    char digest[SHA256_HEX];
    uint64_t bytes;
    err e = {0};
    v->r->files++;
    if (!sha256_file(full, digest, &bytes, &e)) {
        verify_fail(v, path->s, "file", "listed", e.msg);
        return;
    }
    v->r->bytes += bytes;
    verify_int(v, path->s, t, "bytes", (int64_t)bytes);
    verify_text(v, path->s, t, "sha256", digest);
    embedding *is = embedding_open(full, &e);
    if (!is || !embedding_verify(is, &e)) verify_fail(v, path->s, "table", "one that can be read", e.msg);
    if (is) {
        verify_text(v, path->s, t, "kind", embedding_kind_name(embedding_kind_of(is)));
        verify_int(v, path->s, t, "rows", embedding_rows(is));
        verify_int(v, path->s, t, "width", embedding_width(is));
        verify_int(v, path->s, model, "vocab_size", embedding_rows(is));
        verify_int(v, path->s, model, "hidden_size", embedding_width(is));
    }
    embedding_close(is);
}

/* --- the whole --- */

static void verify_prefill(verify *v, const contract *c) {
    const json *sizes = verify_member(v, json_get(v->j, "graph"), "prefill_sizes", JSON_ARRAY);
    if (!sizes) return;
    size_t i = 1;
    JSON_EACH(x, sizes) {
        if (i < c->n_func && x->kind == JSON_INT && x->i == c->func[i].tokens && i++) continue;
        verify_fail(v, v->r->document, "prefill_sizes",
                    arena_printf(v->a, "a function for %" PRId64 " tokens", x->i), "nothing");
    }
    if (i < c->n_func)
        verify_fail(v, v->r->document, "prefill_sizes", "all functions",
                    arena_printf(v->a, "one more for %" PRId64 " tokens", c->func[i].tokens));
}

/* As generation sees it: packages that fit together in this order. */
static void verify_together(verify *v) {
    err e = {0};
    const json *graph = json_get(v->j, "graph"), *model = json_get(v->j, "model");
    const char *doc = v->r->document;
    lm *m = lm_open(v->dir, NULL, &e);
    if (!m) {
        verify_fail(v, doc, "packages", "packages that work together in this order", e.msg);
        return;
    }
    bool single = m->form.form == CONTRACT_SINGLE;
    verify_text(v, m->name[0], graph, "preset", single ? "single" : "chunks");
    if (m->form.context < INT32_MAX) verify_int(v, m->name[0], graph, "context", m->form.context);
    if (single) verify_int(v, m->name[0], graph, "top_k", m->form.top_k);
    if (m->vocab) verify_int(v, m->name[m->n_model - 1], model, "vocab_size", m->vocab);
    if (!single) verify_int(v, m->name[0], model, "hidden_size", m->form.hidden);
    if (!single) verify_prefill(v, &m->form);
    lm_close(m);
}

bool verify_set(verify *v, bool (*keep_going)(void *ctx), void *ctx, err *e) {
    const json *packages = verify_member(v, v->j, "packages", JSON_ARRAY);
    size_t n = packages ? packages->len : 0;
    set s = {.v = v,
             .name = ARENA_ARRAY(v->a, const char *, n),
             .package = ARENA_ARRAY(v->a, coreml_package *, n)};
    const json *scheme = verify_member(v, v->j, "scheme", JSON_OBJECT);
    const json *weights = verify_member(v, scheme, "weights", JSON_STRING);
    s.said = verify_stated(v, scheme, weights ? weights->s : "");
    s.said.free = verify_digest(v, scheme, "recipe_sha256");
    s.said.free |= verify_digest(v, json_get(v->j, "graph"), "precision_plan_sha256");
    bool ok = true;
    JSON_EACH(x, packages) {
        ok = !keep_going || keep_going(ctx) || err_set(e, ERR_CANCELLED, "verification cancelled");
        const json *path = ok ? verify_member(v, x, "path", JSON_STRING) : NULL;
        if (!path || !verify_path(v, path->s, false)) break;
        verify_package(&s, x, path->s);
    }
    if (ok && n && s.n == n) {
        verify_layers(v, packages);
        verify_states(&s, packages);
        if (s.parameters)
            verify_number(v, v->r->document, json_get(v->j, "scheme"), "bits_per_weight",
                          (double)s.weight_bytes * 8 / (double)s.parameters);
        if (strcmp(json_str(json_get(v->j, "graph"), "preset", ""), "single")) verify_table(v);
        verify_together(v);
    }
    for (size_t i = 0; i < s.n; i++) coreml_close(s.package[i]);
    return ok;
}
