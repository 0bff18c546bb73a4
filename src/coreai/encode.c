/* A tree as MLIR bytecode. The body of every region is made in memory, resources are streamed. */
#include "base/map.h"
#include "base/str.h"
#include "coreai/bytecode.h"
#include "coreai/write.h"
#include <string.h>

#define RESOURCE_ALIGN 16
#define PADDING        0xCB

/* Byte strings with numbers, in order of first use. */
typedef struct {
    map *index;
    struct item {
        const uint8_t *data;
        size_t n;
    } * item;
    uint32_t n;
    size_t cap;
} table;

typedef struct {
    arena *a;
    table string, op, attr, type, property;
    map *known_attr, *known_type; /* by address */
    const ai_attr **resource;
    uint32_t n_resource;
    size_t cap_resource;
    map *known_resource;
    uint32_t *number; /* of values by id, in the table of their region */
    uint32_t location;
    err *e;
} encoder;

/* ---- numbers ---- */

static void put_byte(str *o, unsigned v) {
    str_addc(o, (char)v);
}

static void put_varint(str *o, uint64_t v) {
    int n = 1;
    while (n < 9 && v >> (7 * n)) n++;
    if (n == 9) {
        put_byte(o, 0);
        for (int i = 0; i < 8; i++) put_byte(o, (uint8_t)(v >> (8 * i)));
        return;
    }
    /* n bytes: 7 n bits of v above n - 1 zeros and a one */
    uint64_t low = (v << n) | (UINT64_C(1) << (n - 1)), high = v >> (64 - n);
    for (int i = 0; i < n; i++) put_byte(o, (uint8_t)(i < 8 ? low >> (8 * i) : high));
}

static void put_signed(str *o, int64_t v) {
    put_varint(o, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63));
}

static size_t varint_size(uint64_t v) {
    size_t n = 1;
    while (n < 9 && v >> (7 * n)) n++;
    return n;
}

/* ---- tables ---- */

static uint32_t intern(encoder *x, table *t, const void *data, size_t n) {
    if (!t->index) t->index = map_new(x->a, 256);
    uint32_t at = map_get(t->index, data, n);
    if (at != MAP_NONE) return at;
    const uint8_t *copy = arena_copy(x->a, data, n);
    t->item = arena_grow(x->a, t->item, t->n, &t->cap, t->n + 1, sizeof *t->item);
    t->item[t->n] = (struct item){copy, n};
    map_add(t->index, (const char *)copy, n, t->n);
    return t->n++;
}

static uint32_t intern_buffer(encoder *x, table *t, str *b) {
    uint32_t at = intern(x, t, b->s, b->len);
    str_free(b);
    return at;
}

static void put_string(encoder *x, str *o, const char *s) {
    put_varint(o, intern(x, &x->string, s, strlen(s) + 1));
}

static uint32_t type_of(encoder *x, const ai_type *t);
static uint32_t attr_of(encoder *x, const ai_attr *t, int depth);

/* Nothing but numbers: another attribute might refer to the type. */
static void put_layout(encoder *x, str *o, const ai_attr *t) {
    ai_layout l;
    if (ai_layout_read(t, &l))
        put_varint(o, attr_of(x, t, 0));
    else
        err_set(x->e, ERR_UNSUPPORTED, "a layout of attribute %u can't be written", t->code);
}

static void encode_type(encoder *x, str *o, const ai_type *t) {
    put_varint(o, t->layout ? AI_TENSOR_LAID_OUT : t->code);
    switch (t->code) {
    case AI_TENSOR:
        put_varint(o, t->rank);
        for (int i = 0; i < t->rank; i++) put_signed(o, t->dim[i]);
        put_varint(o, type_of(x, t->inner));
        if (t->layout) put_layout(x, o, t->layout);
        break;
    case AI_FUNCTION:
        put_varint(o, t->n_result);
        for (uint32_t i = 0; i < t->n_result; i++) put_varint(o, type_of(x, t->item[i]));
        put_varint(o, t->n_operand);
        for (uint32_t i = 0; i < t->n_operand; i++) put_varint(o, type_of(x, t->item[t->n_result + i]));
        break;
    case AI_HANDLE: put_varint(o, type_of(x, t->inner)); break;
    default:
        if (t->n_raw) err_set(x->e, ERR_UNSUPPORTED, "a type of code %u can't be written", t->code);
    }
}

static uint32_t type_of(encoder *x, const ai_type *t) {
    uint32_t at = map_get(x->known_type, (const char *)&t, sizeof t);
    if (at != MAP_NONE) return at;
    str b = {0};
    encode_type(x, &b, t);
    at = intern_buffer(x, &x->type, &b);
    map_add(x->known_type, arena_copy(x->a, &t, sizeof t), sizeof t, at);
    return at;
}

/* Resources are one where their bytes are. */
static const void *resource_key(const ai_attr *t) {
    return t->konst ? (const void *)t->konst : (const void *)t->data;
}

static uint32_t resource_of(encoder *x, const ai_attr *t) {
    const void *key = resource_key(t);
    uint32_t at = map_get(x->known_resource, (const char *)&key, sizeof key);
    if (at != MAP_NONE) return at;
    x->resource = arena_grow(x->a, x->resource, x->n_resource, &x->cap_resource, x->n_resource + 1,
                             sizeof *x->resource);
    x->resource[x->n_resource] = t;
    map_add(x->known_resource, arena_copy(x->a, &key, sizeof key), sizeof key, x->n_resource);
    return x->n_resource++;
}

static void put_items(encoder *x, str *o, const ai_attr *t, int depth) {
    put_varint(o, t->n);
    for (uint32_t i = 0; i < t->n; i++) put_varint(o, attr_of(x, t->item[i], depth + 1));
}

static void encode_attr(encoder *x, str *o, const ai_attr *t, int depth) {
    put_varint(o, t->code);
    switch (t->code) {
    case AI_STRING: put_string(x, o, t->text); break;
    case AI_INTEGER:
        put_varint(o, t->width);
        put_byte(o, !t->is_signed);
        if (t->width > 8)
            put_signed(o, t->number);
        else
            put_byte(o, (uint8_t)t->number);
        break;
    case AI_FLOAT:
        put_varint(o, t->width);
        put_signed(o, t->number);
        break;
    case AI_TYPE: put_varint(o, type_of(x, t->type)); break;
    case AI_ARRAY:
    case AI_DICTIONARY: put_items(x, o, t, depth); break;
    case AI_DENSE:
        put_byte(o, t->splat);
        put_varint(o, t->bytes);
        str_add(o, t->data, t->bytes);
        break;
    case AI_RESOURCE: put_varint(o, resource_of(x, t)); break;
    case AI_NAMED:
        put_string(x, o, t->text);
        put_items(x, o, t, depth);
        break;
    case AI_SYMBOL:
        put_varint(o, t->n);
        for (uint32_t i = 0; i < t->n; i++) put_string(x, o, t->path[i]);
        break;
    case AI_PARAM:
        put_varint(o, attr_of(x, t->item[0], depth + 1));
        put_varint(o, type_of(x, t->type));
        break;
    case AI_LAYOUT: /* (as such: put_layout) */
    case AI_SCATTER_MODE: str_add(o, (const char *)t->raw, t->n_raw); break;
    case AI_UNIT: break;
    default: err_set(x->e, ERR_UNSUPPORTED, "an attribute of code %u can't be written", t->code);
    }
}

static uint32_t attr_of(encoder *x, const ai_attr *t, int depth) {
    if (depth > AI_MAX_DEPTH) {
        err_set(x->e, ERR_LIMIT, "attributes nested deeper than %d levels", AI_MAX_DEPTH);
        return 0;
    }
    uint32_t at = map_get(x->known_attr, (const char *)&t, sizeof t);
    if (at != MAP_NONE) return at;
    str b = {0};
    encode_attr(x, &b, t, depth);
    at = intern_buffer(x, &x->attr, &b);
    map_add(x->known_attr, arena_copy(x->a, &t, sizeof t), sizeof t, at);
    return at;
}

/* Where everything is said to come from: readers want a location of every op and argument. */
static uint32_t make_location(encoder *x) {
    str file = {0}, source = {0}, location = {0}, unit = {0};
    put_varint(&file, AI_FILE);
    put_string(x, &file, "millet");
    for (int i = 0; i < 2; i++) put_string(x, &file, "");
    put_varint(&source, AI_SOURCE);
    put_varint(&source, intern_buffer(x, &x->attr, &file));
    for (int i = 0; i < 4; i++) put_varint(&source, 1); /* line, column, and where it ends */
    put_varint(&unit, AI_UNIT);
    put_varint(&location, AI_LOCATION);
    put_varint(&location, intern_buffer(x, &x->attr, &source));
    put_varint(&location, intern_buffer(x, &x->attr, &unit));
    for (int i = 0; i < 2; i++) put_varint(&location, 0);
    return intern_buffer(x, &x->attr, &location);
}

/* ---- ops ---- */

static void put_section(str *o, int id, const str *content) {
    put_byte(o, (unsigned)id);
    put_varint(o, content->len);
    str_add(o, content->s, content->len);
}

static void put_properties(encoder *x, str *o, const ai_op *op) {
    const char *layout = ai_property_layout(op->name);
    str b = {0};
    if (!layout || !op->prop) {
        err_set(x->e, ERR_UNSUPPORTED, "properties of %s can't be written", op->name);
        return;
    }
    for (uint32_t i = 0; i < op->n_prop; i++) {
        const ai_attr *t = op->prop[i];
        uint64_t index = t ? attr_of(x, t, 0) : 0;
        put_varint(&b, layout[i] == 'o' ? (t ? index << 1 | 1 : 0) : index);
    }
    put_varint(o, intern_buffer(x, &x->property, &b));
}

static void put_region(encoder *x, str *o, const ai_region *r, uint32_t base);

static uint32_t count_values(const ai_region *r) {
    uint32_t n = r->n_arg;
    for (uint32_t i = 0; i < r->n_op; i++) n += r->op[i]->n_out;
    return n;
}

/* behind: the number of the first value behind the table of the op's region. */
static void put_regions(encoder *x, str *o, const ai_op *op, uint32_t behind) {
    bool isolated = op->region[0].isolated;
    put_varint(o, (uint64_t)op->n_region << 1 | isolated);
    for (uint32_t i = 0; i < op->n_region; i++) {
        if (!isolated) {
            put_region(x, o, &op->region[i], behind);
            continue;
        }
        str section = {0};
        put_region(x, &section, &op->region[i], 0);
        put_section(o, AI_SECTION_IR, &section);
        str_free(&section);
    }
}

static void put_op(encoder *x, str *o, const ai_op *op, uint32_t behind) {
    put_varint(o, intern(x, &x->op, op->name, strlen(op->name) + 1));
    put_byte(o, (op->n_out ? AI_HAS_RESULTS : 0u) | (op->n_in ? AI_HAS_OPERANDS : 0u) |
                    (op->n_region ? AI_HAS_REGIONS : 0u) | (op->n_prop ? AI_HAS_PROPERTIES : 0u));
    put_varint(o, x->location);
    if (op->n_prop) put_properties(x, o, op);
    if (op->n_out) put_varint(o, op->n_out);
    for (uint32_t i = 0; i < op->n_out; i++) put_varint(o, type_of(x, op->out[i]->type));
    if (op->n_in) put_varint(o, op->n_in);
    for (uint32_t i = 0; i < op->n_in; i++) put_varint(o, x->number[op->in[i]->id]);
    if (op->n_region) put_regions(x, o, op, behind);
}

static void put_block(encoder *x, str *o, const ai_region *r, uint32_t behind) {
    put_varint(o, (uint64_t)r->n_op << 1 | (r->n_arg > 0));
    if (r->n_arg) {
        put_varint(o, r->n_arg);
        for (uint32_t i = 0; i < r->n_arg; i++) {
            put_varint(o, (uint64_t)type_of(x, r->arg[i]->type) << 1 | 1);
            put_varint(o, x->location);
        }
        put_byte(o, 0); /* no orders of uses */
    }
    for (uint32_t i = 0; i < r->n_op; i++) put_op(x, o, r->op[i], behind);
}

/* base: how many values lie before its table: 0, or those around a region that is not isolated. */
static void put_region(encoder *x, str *o, const ai_region *r, uint32_t base) {
    uint32_t n = count_values(r), at = base;
    if (!r->n_op) {
        put_varint(o, 0);
        return;
    }
    put_varint(o, 1);
    put_varint(o, n);
    for (uint32_t i = 0; i < r->n_arg; i++) x->number[r->arg[i]->id] = at++;
    for (uint32_t i = 0; i < r->n_op; i++)
        for (uint32_t k = 0; k < r->op[i]->n_out; k++) x->number[r->op[i]->out[k]->id] = at++;
    put_block(x, o, r, at);
}

/* serialization.asset around the graphs. */
static void put_asset(encoder *x, str *o, const ai_tree *t) {
    ai_attr version = {.code = AI_INTEGER, .width = 32, .number = t->version};
    const ai_attr *prop[2] = {NULL, &version};
    const ai_op **graph = ARENA_ARRAY(x->a, const ai_op *, t->n_graph);
    for (uint32_t i = 0; i < t->n_graph; i++) graph[i] = t->graph[i].op;
    ai_region body = {.isolated = true, .op = graph, .n_op = t->n_graph};
    ai_op asset = {.name = "serialization.asset", .prop = prop, .n_prop = 2, .region = &body, .n_region = 1};
    const ai_op *only = &asset;
    put_block(x, o, &(ai_region){.op = &only, .n_op = 1}, 0);
}

/* ---- sections ---- */

static void put_dialect(encoder *x, str *o) {
    str version = {0};
    put_varint(&version, 2);
    put_varint(o, 1);
    put_varint(o, (uint64_t)intern(x, &x->string, "aicode", 7) << 1 | 1);
    put_section(o, AI_SECTION_DIALECT_VERSION, &version);
    str_free(&version);
    put_varint(o, x->op.n);
    put_varint(o, 0); /* all are of the first dialect */
    put_varint(o, x->op.n);
    for (uint32_t i = 0; i < x->op.n; i++)
        put_varint(o, (uint64_t)intern(x, &x->string, x->op.item[i].data, x->op.item[i].n) << 1 | 1);
}

static void put_entries(const table *t, str *offset, str *data) {
    if (!t->n) return;
    put_varint(offset, 0);
    put_varint(offset, t->n);
    for (uint32_t i = 0; i < t->n; i++) {
        put_varint(offset, (uint64_t)t->item[i].n << 1 | 1);
        str_add(data, (const char *)t->item[i].data, t->item[i].n);
    }
}

static uint64_t resource_bytes(const ai_attr *t) {
    return t->konst ? (uint64_t)ir_type_bytes(&t->konst->type) : t->bytes;
}

/* Where the bytes of a resource begin that starts at `at`: behind two numbers and padding. */
static uint64_t resource_data(const ai_attr *t, uint64_t at) {
    at += varint_size(RESOURCE_ALIGN) + varint_size(resource_bytes(t));
    return (at + RESOURCE_ALIGN - 1) / RESOURCE_ALIGN * RESOURCE_ALIGN;
}

/* Names by number, so that the file depends on nothing else. Returns the section's size. */
static uint64_t put_resource_offsets(encoder *x, str *o) {
    uint64_t at = 0;
    put_varint(o, 0); /* groups of no dialect */
    if (!x->n_resource) return 0;
    put_varint(o, 0);
    put_varint(o, x->n_resource);
    for (uint32_t i = 0; i < x->n_resource; i++) {
        const ai_attr *t = x->resource[i];
        uint64_t end = resource_data(t, at) + resource_bytes(t);
        put_string(x, o, t->resource ? t->resource : arena_printf(x->a, "resource_%u", i));
        put_varint(o, end - at);
        put_byte(o, 0); /* a blob */
        at = end;
    }
    return at;
}

static void put_strings(const encoder *x, str *o) {
    put_varint(o, x->string.n);
    for (uint32_t i = x->string.n; i-- > 0;) put_varint(o, x->string.item[i].n);
    for (uint32_t i = 0; i < x->string.n; i++)
        str_add(o, (const char *)x->string.item[i].data, x->string.item[i].n);
}

static void put_property_table(const encoder *x, str *o) {
    put_varint(o, x->property.n);
    for (uint32_t i = 0; i < x->property.n; i++) {
        put_varint(o, x->property.item[i].n);
        str_add(o, (const char *)x->property.item[i].data, x->property.item[i].n);
    }
}

static bool write_padding(ir_store *s, uint64_t n) {
    static const uint8_t pad[RESOURCE_ALIGN] = {PADDING, PADDING, PADDING, PADDING, PADDING, PADDING,
                                                PADDING, PADDING, PADDING, PADDING, PADDING, PADDING,
                                                PADDING, PADDING, PADDING, PADDING};
    return ir_store_put(s, pad, (size_t)n);
}

static bool write_resources(const encoder *x, ir_store *s, uint64_t size) {
    str o = {0};
    put_byte(&o, AI_SECTION_RESOURCE | 0x80u);
    put_varint(&o, size);
    put_varint(&o, RESOURCE_ALIGN);
    bool ok = ir_store_put(s, o.s, o.len);
    ok = ok && write_padding(s, (RESOURCE_ALIGN - s->at % RESOURCE_ALIGN) % RESOURCE_ALIGN);
    for (uint32_t i = 0; i < x->n_resource && ok; i++) {
        const ai_attr *t = x->resource[i];
        str_clear(&o);
        put_varint(&o, RESOURCE_ALIGN);
        put_varint(&o, resource_bytes(t));
        ok = ir_store_put(s, o.s, o.len) &&
             write_padding(s, (RESOURCE_ALIGN - s->at % RESOURCE_ALIGN) % RESOURCE_ALIGN);
        ok = ok && (t->konst ? ir_store_const(s, t->konst) : ir_store_put(s, t->data, t->bytes));
    }
    str_free(&o);
    return ok;
}

typedef enum { BODY, DIALECT, OFFSETS, ENTRIES, RESOURCES, STRINGS, PROPERTIES, N_SECTION } section_at;

/* In the order in which they refer to each other; strings last. */
static uint64_t make_sections(encoder *x, const ai_tree *t, str *s) {
    put_asset(x, &s[BODY], t);
    put_dialect(x, &s[DIALECT]);
    put_varint(&s[OFFSETS], x->attr.n);
    put_varint(&s[OFFSETS], x->type.n);
    put_entries(&x->attr, &s[OFFSETS], &s[ENTRIES]);
    put_entries(&x->type, &s[OFFSETS], &s[ENTRIES]);
    uint64_t resources = put_resource_offsets(x, &s[RESOURCES]);
    put_strings(x, &s[STRINGS]);
    put_property_table(x, &s[PROPERTIES]);
    return resources;
}

static bool write_sections(const encoder *x, ir_store *out, const ai_tree *t, const str *s,
                           uint64_t resources) {
    str o = {0};
    str_add(&o, "ML\xEFR", 4);
    put_varint(&o, 6);
    str_add(&o, t->producer, strlen(t->producer) + 1);
    put_section(&o, AI_SECTION_DIALECT, &s[DIALECT]);
    put_section(&o, AI_SECTION_ATTRIBUTE_OFFSET, &s[OFFSETS]);
    put_section(&o, AI_SECTION_ATTRIBUTE, &s[ENTRIES]);
    put_section(&o, AI_SECTION_IR, &s[BODY]);
    if (x->n_resource) put_section(&o, AI_SECTION_RESOURCE_OFFSET, &s[RESOURCES]);
    bool ok = ir_store_put(out, o.s, o.len) && (!x->n_resource || write_resources(x, out, resources));
    str_clear(&o);
    put_section(&o, AI_SECTION_STRING, &s[STRINGS]);
    put_section(&o, AI_SECTION_PROPERTY, &s[PROPERTIES]);
    ok = ok && ir_store_put(out, o.s, o.len);
    str_free(&o);
    return ok;
}

bool ai_tree_write(const ai_tree *t, const char *path, store_progress_fn *progress, void *ctx,
                   uint8_t digest[SHA256_BYTES], err *e) {
    encoder x = {.a = arena_new(), .e = e};
    x.known_attr = map_new(x.a, 1024);
    x.known_type = map_new(x.a, 256);
    x.known_resource = map_new(x.a, 256);
    x.number = ARENA_ARRAY(x.a, uint32_t, t->n_value + 1);
    x.location = make_location(&x);
    str s[N_SECTION] = {{0}};
    uint64_t resources = make_sections(&x, t, s);
    ir_store out;
    sha256 hash;
    bool ok = !e->code && ir_store_open(&out, path, progress, ctx, e);
    if (ok) {
        sha256_init(&hash);
        out.hash = &hash;
        ok = ir_store_close(&out, write_sections(&x, &out, t, s, resources));
        sha256_digest_of(&hash, digest);
    }
    for (int i = 0; i < N_SECTION; i++) str_free(&s[i]);
    arena_free(x.a);
    return ok;
}

static uint64_t resources_of(map *seen, arena *a, const ai_region *r) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < r->n_op; i++) {
        const ai_op *op = r->op[i];
        for (uint32_t k = 0; k < op->n_prop && op->prop; k++) {
            const ai_attr *t = op->prop[k];
            if (!t || t->code != AI_RESOURCE) continue;
            const void **key = ARENA_NEW(a, const void *);
            *key = resource_key(t);
            if (map_add(seen, (const char *)key, sizeof *key, 0)) bytes += resource_bytes(t);
        }
        for (uint32_t k = 0; k < op->n_region; k++) bytes += resources_of(seen, a, &op->region[k]);
    }
    return bytes;
}

uint64_t ai_tree_resources(const ai_tree *t) {
    arena *a = arena_new();
    map *seen = map_new(a, 256);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->n_graph; i++) bytes += resources_of(seen, a, t->graph[i].body);
    arena_free(a);
    return bytes;
}
