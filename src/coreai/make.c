#include "coreai/make.h"
#include "base/num.h"
#include "base/str.h"
#include <stdarg.h>
#include <string.h>

ai_make *ai_make_new(arena *a) {
    ai_make *m = ARENA_NEW(a, ai_make);
    *m = (ai_make){.a = a, .types = map_new(a, 64), .attrs = map_new(a, 256)};
    return m;
}

const ai_tree *ai_make_tree(ai_make *m, const char *producer, int64_t version) {
    ai_tree *t = ARENA_NEW(m->a, ai_tree);
    *t = (ai_tree){.producer = producer,
                   .version = version,
                   .graph = m->graph,
                   .n_graph = m->n_graph,
                   .n_value = m->n_value};
    return t;
}

/* ---- types and attributes ---- */

/* Parts are interned themselves, so that their addresses tell them apart. */
static void key_bytes(str *k, const void *data, size_t n) {
    str_add(k, data, n);
}
#define KEY(k, v) key_bytes(k, &(v), sizeof(v))

static const ai_type *intern_type(ai_make *m, ai_type t) {
    str k = {0};
    KEY(&k, t.code);
    KEY(&k, t.rank);
    for (int i = 0; i < t.rank; i++) KEY(&k, t.dim[i]);
    KEY(&k, t.inner);
    KEY(&k, t.n_result);
    for (uint32_t i = 0; i < t.n_result + t.n_operand; i++) KEY(&k, t.item[i]);
    uint32_t at = map_get(m->types, k.s, k.len);
    if (at == MAP_NONE) {
        at = (uint32_t)map_count(m->types);
        if (t.rank) t.dim = arena_copy(m->a, t.dim, (size_t)t.rank * sizeof *t.dim);
        ai_type *copy = ARENA_NEW(m->a, ai_type);
        *copy = t;
        m->type = arena_grow(m->a, m->type, at, &m->cap_type, at + 1, sizeof *m->type);
        m->type[at] = copy;
        map_add(m->types, arena_copy(m->a, k.s, k.len), k.len, at);
    }
    str_free(&k);
    return m->type[at];
}

const ai_type *ai_make_plain(ai_make *m, uint32_t code) {
    return intern_type(m, (ai_type){.code = code, .dtype = ai_dtype_of(code)});
}

const ai_type *ai_make_tensor(ai_make *m, ir_dtype d, int rank, const int64_t *dim) {
    return intern_type(m, (ai_type){.code = AI_TENSOR,
                                    .rank = (uint8_t)rank,
                                    .dim = dim,
                                    .inner = ai_make_plain(m, ai_code_of(d))});
}

const ai_type *ai_make_handle(ai_make *m, const ai_type *inner) {
    return intern_type(m, (ai_type){.code = AI_HANDLE, .inner = inner});
}

static const ai_attr *intern_attr(ai_make *m, ai_attr t) {
    str k = {0};
    KEY(&k, t.code), KEY(&k, t.width), KEY(&k, t.is_signed), KEY(&k, t.splat), KEY(&k, t.number);
    KEY(&k, t.type), KEY(&k, t.konst), KEY(&k, t.bytes), KEY(&k, t.n);
    if (t.code != AI_SYMBOL)
        for (uint32_t i = 0; i < t.n; i++) KEY(&k, t.item[i]);
    else
        str_adds(&k, t.path[0]);
    if (t.text) str_adds(&k, t.text);
    if (t.data) str_add(&k, (const char *)t.data, t.bytes);
    uint32_t at = map_get(m->attrs, k.s, k.len);
    if (at == MAP_NONE) {
        at = (uint32_t)map_count(m->attrs);
        ai_attr *copy = ARENA_NEW(m->a, ai_attr);
        *copy = t;
        if (t.text) copy->text = arena_str(m->a, t.text);
        if (t.data) copy->data = arena_copy(m->a, t.data, t.bytes);
        if (t.item) copy->item = arena_copy(m->a, t.item, t.n * sizeof *t.item);
        if (t.path) copy->path = arena_copy(m->a, t.path, t.n * sizeof *t.path);
        m->attr = arena_grow(m->a, m->attr, at, &m->cap_attr, at + 1, sizeof *m->attr);
        m->attr[at] = copy;
        map_add(m->attrs, arena_copy(m->a, k.s, k.len), k.len, at);
    }
    str_free(&k);
    return m->attr[at];
}

const ai_attr *ai_make_text(ai_make *m, const char *s) {
    return intern_attr(m, (ai_attr){.code = AI_STRING, .text = s});
}

const ai_attr *ai_make_integer(ai_make *m, uint32_t width, bool is_signed, int64_t v) {
    return intern_attr(m, (ai_attr){.code = AI_INTEGER, .width = width, .is_signed = is_signed, .number = v});
}

const ai_attr *ai_make_real(ai_make *m, float v) {
    int32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return intern_attr(m, (ai_attr){.code = AI_FLOAT, .width = 32, .number = bits});
}

const ai_attr *ai_make_list(ai_make *m, uint32_t code, const ai_attr *const *item, uint32_t n) {
    return intern_attr(m, (ai_attr){.code = code, .item = item, .n = n});
}

const ai_attr *ai_make_named(ai_make *m, const char *name, const ai_attr *item) {
    return intern_attr(m, (ai_attr){.code = AI_NAMED, .text = name, .item = &item, .n = 1});
}

const ai_attr *ai_make_named_list(ai_make *m, const char *name, const ai_attr *const *item, uint32_t n) {
    return intern_attr(m, (ai_attr){.code = AI_NAMED, .text = name, .item = item, .n = n});
}

/* ---- regions ---- */

ai_scope *ai_scope_new(ai_make *m) {
    ai_scope *s = ARENA_NEW(m->a, ai_scope);
    *s = (ai_scope){.m = m};
    return s;
}

static ai_value *new_value(ai_make *m, const ai_type *t, const ai_op *def, uint32_t index) {
    ai_value *v = ARENA_NEW(m->a, ai_value);
    *v = (ai_value){t, def, index, m->n_value++};
    return v;
}

const ai_value *ai_scope_argument(ai_scope *s, const ai_type *t) {
    s->arg = arena_grow(s->m->a, s->arg, s->n_arg, &s->cap_arg, s->n_arg + 1, sizeof *s->arg);
    return s->arg[s->n_arg] = new_value(s->m, t, NULL, s->n_arg), s->arg[s->n_arg++];
}

ai_op *ai_scope_op(ai_scope *s, const char *name, const ai_type *const *out, uint32_t n_out,
                   const ai_value *const *in, uint32_t n_in) {
    arena *a = s->m->a;
    ai_op *op = ARENA_NEW(a, ai_op);
    ai_value **value = ARENA_ARRAY(a, ai_value *, n_out);
    for (uint32_t i = 0; i < n_out; i++) value[i] = new_value(s->m, out[i], op, i);
    *op = (ai_op){.name = name, .out = value, .n_out = n_out, .n_in = n_in};
    if (n_in) op->in = arena_copy(a, in, n_in * sizeof *in);
    s->op = arena_grow(a, s->op, s->n_op, &s->cap_op, s->n_op + 1, sizeof *s->op);
    s->op[s->n_op++] = op;
    return op;
}

const ai_value *ai_scope_value(ai_scope *s, const char *name, const ai_type *out, ...) {
    const ai_value *in[8];
    uint32_t n = 0;
    va_list ap;
    va_start(ap, out);
    for (const ai_value *v; n < 8 && (v = va_arg(ap, const ai_value *));) in[n++] = v;
    va_end(ap);
    return ai_scope_op(s, name, &out, 1, in, n)->out[0];
}

void ai_scope_region(const ai_scope *s, bool isolated, ai_region *r) {
    *r = (ai_region){.isolated = isolated, .arg = s->arg, .op = s->op, .n_arg = s->n_arg, .n_op = s->n_op};
}

/* ---- constants ---- */

static const ai_value *constant(ai_scope *s, const ai_type *t, ai_attr value) {
    ai_op *op = ai_scope_op(s, "primitive.constant_v1", &t, 1, NULL, 0);
    const ai_attr **prop = ARENA_ARRAY(s->m->a, const ai_attr *, 1);
    prop[0] = intern_attr(s->m, value);
    op->prop = prop;
    op->n_prop = 1;
    return op->out[0];
}

static bool all_equal(const uint8_t *data, size_t bytes, size_t each) {
    return bytes > 0 && !memcmp(data, data + each, bytes - each);
}

const ai_value *ai_scope_dense(ai_scope *s, ir_dtype d, int rank, const int64_t *dim, const void *data,
                               size_t bytes) {
    size_t each = (dtype_bits(d) + 7) / 8;
    bool splat = all_equal(data, bytes, each);
    return constant(s, ai_make_tensor(s->m, d, rank, dim),
                    (ai_attr){.code = AI_DENSE, .splat = splat, .data = data, .bytes = splat ? each : bytes});
}

const ai_value *ai_scope_splat(ai_scope *s, const ai_type *t, const void *element, size_t bytes) {
    return constant(s, t, (ai_attr){.code = AI_DENSE, .splat = true, .data = element, .bytes = bytes});
}

const ai_value *ai_scope_resource(ai_scope *s, const ir_const *c) {
    return constant(s, ai_make_tensor(s->m, (ir_dtype)c->type.dtype, c->type.rank, c->type.dim),
                    (ai_attr){.code = AI_RESOURCE, .konst = c});
}

const ai_value *ai_scope_ints(ai_scope *s, ir_dtype d, const int64_t *v, uint32_t n) {
    uint8_t *data = ARENA_ARRAY(s->m->a, uint8_t, 4 * (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++) num_put32(data + 4 * i, (uint32_t)v[i]);
    return ai_scope_dense(s, d, 1, (int64_t[]){n}, data, 4 * (size_t)n);
}

const ai_value *ai_scope_int(ai_scope *s, int64_t v) {
    uint8_t data[4];
    num_put32(data, (uint32_t)v);
    return ai_scope_dense(s, DT_INT32, 0, NULL, data, sizeof data);
}

const ai_value *ai_scope_number(ai_scope *s, ir_dtype d, double v) {
    uint8_t data[4];
    float f = (float)v;
    uint16_t half = num_f32_f16(f);
    memcpy(data, d == DT_FP16 ? (const void *)&half : (const void *)&f, d == DT_FP16 ? 2 : 4);
    return ai_scope_dense(s, d, 0, NULL, data, d == DT_FP16 ? 2 : 4);
}

/* ---- graphs ---- */

/* What a graph does, in bytes: its values by number, types and attributes by address, as equal ones are one.
 */
static void fingerprint(str *k, const ai_region *r, uint32_t *number, uint32_t next) {
    uint32_t counts[2] = {r->n_arg, r->n_op};
    KEY(k, counts);
    for (uint32_t i = 0; i < r->n_arg; i++) {
        KEY(k, r->arg[i]->type);
        number[r->arg[i]->id] = next++;
    }
    for (uint32_t i = 0; i < r->n_op; i++) {
        const ai_op *op = r->op[i];
        str_add(k, op->name, strlen(op->name) + 1);
        for (uint32_t x = 0; x < op->n_prop; x++) KEY(k, op->prop[x]);
        for (uint32_t x = 0; x < op->n_in; x++) KEY(k, number[op->in[x]->id]);
        for (uint32_t x = 0; x < op->n_out; x++) {
            KEY(k, op->out[x]->type);
            number[op->out[x]->id] = next++;
        }
        for (uint32_t x = 0; x < op->n_region; x++) fingerprint(k, &op->region[x], number, next);
    }
}

static bool same_graph(ai_make *m, const ai_region *x, const ai_region *y) {
    str kx = {0}, ky = {0};
    uint32_t *number = ARENA_ARRAY(m->a, uint32_t, m->n_value);
    fingerprint(&kx, x, number, 0);
    fingerprint(&ky, y, number, 0);
    bool same = kx.len == ky.len && !memcmp(kx.s, ky.s, kx.len);
    str_free(&kx);
    str_free(&ky);
    return same;
}

/* An array of arrays that name features. */
static const ai_attr *feature_names(ai_make *m, const char *const *name, uint32_t n) {
    const ai_attr **list = ARENA_ARRAY(m->a, const ai_attr *, n);
    for (uint32_t i = 0; i < n; i++) {
        const ai_attr *one = ai_make_named(m, "aicode.name", ai_make_text(m, name[i]));
        list[i] = ai_make_list(m, AI_ARRAY, &one, 1);
    }
    return ai_make_list(m, AI_ARRAY, list, n);
}

static const ai_type *function_type(ai_make *m, const ai_scope *s, const ai_value *const *out,
                                    uint32_t n_out) {
    const ai_type **item = ARENA_ARRAY(m->a, const ai_type *, (size_t)n_out + s->n_arg);
    for (uint32_t i = 0; i < n_out; i++) item[i] = out[i]->type;
    for (uint32_t i = 0; i < s->n_arg; i++) item[n_out + i] = s->arg[i]->type;
    return intern_type(
        m, (ai_type){.code = AI_FUNCTION, .item = item, .n_result = n_out, .n_operand = s->n_arg});
}

static const ai_graph *known_graph(ai_make *m, const ai_region *body, const ai_attr *composite) {
    for (uint32_t i = 0; i < m->n_graph; i++) {
        const ai_graph *g = &m->graph[i];
        if (g->is_private && g->op->prop[AI_GRAPH_COMPOSITE] == composite && same_graph(m, g->body, body))
            return g;
    }
    return NULL;
}

const ai_graph *ai_make_graph(ai_make *m, ai_scope *s, const char *name, const ai_value *const *out,
                              uint32_t n_out, const char *const *in_name, const char *const *out_name,
                              const ai_attr *composite) {
    ai_scope_op(s, "dataflow.output_v1", NULL, 0, out, n_out);
    ai_region *body = ARENA_NEW(m->a, ai_region);
    ai_scope_region(s, true, body);
    const ai_graph *known = composite ? known_graph(m, body, composite) : NULL;
    if (known) return known;
    const ai_attr *hidden = ai_make_integer(m, 1, false, composite != NULL),
                  *no = ai_make_integer(m, 1, false, 0);
    const ai_attr **prop = ARENA_ARRAY(m->a, const ai_attr *, AI_GRAPH_PROPS);
    prop[AI_GRAPH_ARGS] = feature_names(m, in_name, s->n_arg);
    prop[AI_GRAPH_COMPOSITE] = composite;
    prop[AI_GRAPH_EXTERNALIZE] = no;
    prop[AI_GRAPH_TYPE] = intern_attr(m, (ai_attr){.code = AI_TYPE, .type = function_type(m, s, out, n_out)});
    prop[AI_GRAPH_PRIVATE] = prop[AI_GRAPH_NO_INLINE] = hidden;
    prop[AI_GRAPH_NAME] = ai_make_text(m, name);
    prop[AI_GRAPH_PARAMS] = ai_make_list(m, AI_ARRAY, NULL, 0);
    prop[AI_GRAPH_RESULTS] = feature_names(m, out_name, n_out);
    ai_op *op = ARENA_NEW(m->a, ai_op);
    *op = (ai_op){
        .name = "dataflow.graph_v1", .prop = prop, .n_prop = AI_GRAPH_PROPS, .region = body, .n_region = 1};
    m->graph = arena_grow(m->a, m->graph, m->n_graph, &m->cap_graph, m->n_graph + 1, sizeof *m->graph);
    m->graph[m->n_graph] = (ai_graph){arena_str(m->a, name), op, body, composite != NULL};
    return &m->graph[m->n_graph++];
}

const ai_op *ai_scope_invoke(ai_scope *s, const ai_graph *g, const ai_value *const *in, uint32_t n_in) {
    ai_make *m = s->m;
    const ai_type *f = g->op->prop[AI_GRAPH_TYPE]->type;
    ai_op *op = ai_scope_op(s, "dataflow.invoke_v1", f->item, f->n_result, in, n_in);
    const char *path = g->name;
    const ai_attr *symbol = intern_attr(m, (ai_attr){.code = AI_SYMBOL, .path = &path, .n = 1});
    const ai_attr **prop = ARENA_ARRAY(m->a, const ai_attr *, AI_INVOKE_PROPS);
    prop[0] = prop[2] = ai_make_list(m, AI_ARRAY, NULL, 0);
    prop[AI_INVOKE_CALLEE] = intern_attr(
        m, (ai_attr){.code = AI_PARAM, .item = &symbol, .n = 1, .type = ai_make_plain(m, AI_SYMBOL_TYPE)});
    op->prop = prop;
    op->n_prop = AI_INVOKE_PROPS;
    return op;
}
