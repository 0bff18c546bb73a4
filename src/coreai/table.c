/* Types and attributes. Those of a code that nobody here knows stay as they are: it is an error to need one.
 */
#include "coreai/bytecode.h"
#include <string.h>

static const uint8_t dtypes[] = {
#define AI_CODE_OF_TYPE(code, name, dtype) [code] = dtype,
#include "coreai/codes.def"
#undef AI_CODE_OF_TYPE
};
static const char *const type_names[] = {
#define AI_CODE_OF_TYPE(code, name, dtype) [code] = name,
#include "coreai/codes.def"
#undef AI_CODE_OF_TYPE
};
static const char *const attribute_names[] = {
#define AI_CODE_OF_ATTRIBUTE(code, name) [code] = name,
#include "coreai/codes.def"
#undef AI_CODE_OF_ATTRIBUTE
};

const char *ai_type_name(uint32_t code) {
    return code < sizeof type_names / sizeof *type_names ? type_names[code] : NULL;
}

const char *ai_attr_name(uint32_t code) {
    return code < sizeof attribute_names / sizeof *attribute_names ? attribute_names[code] : NULL;
}

uint32_t ai_code_of(ir_dtype d) {
    for (uint32_t i = 0; i < sizeof dtypes; i++)
        if (dtypes[i] == d && d != DT_NONE) return i;
    return 0;
}

ir_dtype ai_dtype_of(uint32_t code) {
    return code < sizeof dtypes ? (ir_dtype)dtypes[code] : DT_NONE;
}

static const ai_type *read_type_index(ai_bytecode *b, ai_cursor *c) {
    uint32_t i = ai_index(c, b->n_type);
    return c->bad ? NULL : &b->type[i];
}

static const ai_attr *read_attr_index(ai_bytecode *b, ai_cursor *c) {
    uint32_t i = ai_index(c, b->n_attr);
    return c->bad ? NULL : &b->attr[i];
}

static bool read_tensor(ai_bytecode *b, ai_cursor *c, ai_type *t) {
    uint32_t rank = ai_count(c);
    if (rank > AI_MAX_RANK) return ai_bad(b, c, ERR_UNSUPPORTED, "a tensor of %u dimensions", rank);
    int64_t *dim = ARENA_ARRAY(b->a, int64_t, rank);
    for (uint32_t i = 0; i < rank; i++) {
        dim[i] = ai_signed(c);
        if (dim[i] < 0 && dim[i] != AI_DYNAMIC) ai_spoil(c);
    }
    t->rank = (uint8_t)rank;
    t->dim = dim;
    t->inner = read_type_index(b, c);
    if (t->code == AI_TENSOR_LAID_OUT) t->layout = read_attr_index(b, c);
    t->code = AI_TENSOR;
    return true;
}

static void read_function(ai_bytecode *b, ai_cursor *c, ai_type *t) {
    const ai_type **list[2] = {NULL, NULL};
    uint32_t n[2];
    for (int k = 0; k < 2; k++) {
        n[k] = ai_count(c);
        list[k] = ARENA_ARRAY(b->a, const ai_type *, n[k]);
        for (uint32_t i = 0; i < n[k]; i++) list[k][i] = read_type_index(b, c);
    }
    const ai_type **item = ARENA_ARRAY(b->a, const ai_type *, (size_t)n[0] + n[1]);
    for (uint32_t i = 0; i < n[0]; i++) item[i] = list[0][i];
    for (uint32_t i = 0; i < n[1]; i++) item[n[0] + i] = list[1][i];
    t->item = item;
    t->n_result = n[0];
    t->n_operand = n[1];
}

static bool read_type(ai_bytecode *b, ai_type *t, ai_cursor c) {
    t->code = (uint32_t)ai_index(&c, UINT32_MAX);
    t->raw = c.p;
    t->n_raw = (uint32_t)ai_left(&c);
    if (t->code < sizeof dtypes) t->dtype = dtypes[t->code];
    if ((t->code == AI_TENSOR || t->code == AI_TENSOR_LAID_OUT) && !read_tensor(b, &c, t)) return false;
    if (t->code == AI_FUNCTION) read_function(b, &c, t);
    if (t->code == AI_HANDLE) t->inner = read_type_index(b, &c);
    return ai_good(b, &c, "type");
}

/* Tensors of numbers, handles of tensors: nothing else nests, so types have no cycles. */
static bool check_type(ai_bytecode *b, const ai_type *t) {
    bool ok = t->code == AI_TENSOR ? t->inner->code != AI_TENSOR && t->inner->code != AI_FUNCTION &&
                                         t->inner->code != AI_HANDLE
              : t->code == AI_HANDLE ? t->inner->code != AI_FUNCTION && t->inner->code != AI_HANDLE
                                     : true;
    for (uint32_t i = 0; i < t->n_result + t->n_operand; i++) ok &= t->item[i]->code != AI_FUNCTION;
    return ok || err_set(b->e, ERR_FORMAT, "byte %td: type %td, a %s, nests what can't be nested",
                         t->raw - b->data, t - b->type, ai_type_name(t->code));
}

static const char *read_string(ai_bytecode *b, ai_cursor *c) {
    uint32_t i = ai_index(c, b->n_string);
    return c->bad ? NULL : b->string[i];
}

static void read_items(ai_bytecode *b, ai_cursor *c, ai_attr *t) {
    t->n = ai_count(c);
    const ai_attr **item = ARENA_ARRAY(b->a, const ai_attr *, t->n);
    for (uint32_t i = 0; i < t->n; i++) item[i] = read_attr_index(b, c);
    t->item = item;
}

static void read_integer(ai_cursor *c, ai_attr *t) {
    t->width = ai_index(c, 65);
    t->is_signed = !ai_byte(c);
    if (t->width > 8)
        t->number = ai_signed(c);
    else
        t->number = t->is_signed ? (int8_t)ai_byte(c) : ai_byte(c);
}

static void read_dense(ai_cursor *c, ai_attr *t) {
    t->splat = ai_byte(c) != 0;
    ai_cursor data = ai_take(c, ai_varint(c));
    t->data = data.p;
    t->bytes = ai_left(&data);
}

static void read_path(ai_bytecode *b, ai_cursor *c, ai_attr *t) {
    t->n = ai_count(c);
    const char **path = ARENA_ARRAY(b->a, const char *, t->n);
    for (uint32_t i = 0; i < t->n; i++) path[i] = read_string(b, c);
    t->path = path;
}

static bool read_resource(ai_bytecode *b, ai_cursor *c, ai_attr *t) {
    uint32_t i = ai_index(c, b->n_blob);
    if (!ai_good(b, c, "reference to a resource")) return false;
    const ai_blob *blob = &b->blob[i];
    if (!blob->data) return ai_bad(b, c, ERR_FORMAT, "resource %.60s holds no tensor", blob->name);
    t->resource = blob->name;
    t->data = blob->data;
    t->bytes = blob->bytes;
    return true;
}

static void read_param(ai_bytecode *b, ai_cursor *c, ai_attr *t) {
    const ai_attr **item = ARENA_ARRAY(b->a, const ai_attr *, 1);
    item[0] = read_attr_index(b, c);
    t->item = item;
    t->n = 1;
    t->type = read_type_index(b, c);
}

static bool read_attr(ai_bytecode *b, ai_attr *t, ai_cursor c) {
    t->code = (uint32_t)ai_index(&c, UINT32_MAX);
    t->raw = c.p;
    t->n_raw = (uint32_t)ai_left(&c);
    switch (t->code) {
    case AI_STRING: t->text = read_string(b, &c); break;
    case AI_INTEGER: read_integer(&c, t); break;
    case AI_FLOAT:
        t->width = ai_index(&c, 65);
        t->number = ai_signed(&c);
        break;
    case AI_TYPE: t->type = read_type_index(b, &c); break;
    case AI_ARRAY:
    case AI_DICTIONARY: read_items(b, &c, t); break;
    case AI_DENSE: read_dense(&c, t); break;
    case AI_RESOURCE:
        if (!read_resource(b, &c, t)) return false;
        break;
    case AI_NAMED:
        t->text = read_string(b, &c);
        read_items(b, &c, t);
        break;
    case AI_SYMBOL: read_path(b, &c, t); break;
    case AI_PARAM: read_param(b, &c, t); break;
    default: break;
    }
    return ai_good(b, &c, "attribute");
}

static uint32_t read_numbers(ai_cursor *c, int64_t *to, uint32_t most) {
    uint32_t n = ai_count(c);
    if (n > most) ai_spoil(c);
    for (uint32_t i = 0; i < n && !c->bad; i++) to[i] = ai_signed(c);
    return n;
}

bool ai_layout_read(const ai_attr *t, ai_layout *l) {
    ai_cursor c = {.base = t->raw, .p = t->raw, .end = t->raw + t->n_raw};
    if (t->code != AI_LAYOUT) return false;
    l->n_align = read_numbers(&c, l->align, AI_MAX_RANK + 1);
    l->n_interleave = read_numbers(&c, l->interleave, AI_MAX_RANK);
    l->memory = ai_varint(&c);
    return !c.bad && !ai_left(&c);
}

/* The length of each entry, grouped by dialect. */
static bool read_lengths(ai_bytecode *b, ai_cursor *c, ai_cursor *entry, uint32_t n) {
    ai_cursor data = b->section[AI_SECTION_ATTRIBUTE];
    uint32_t i = 0;
    while (c->p < c->end) {
        ai_varint(c); /* the dialect; there is only one */
        for (uint32_t k = ai_count(c); k && !c->bad; k--) {
            bool custom;
            uint64_t length = ai_flagged(c, &custom);
            if (i == n || !custom) ai_spoil(c);
            if (c->bad) break;
            entry[i++] = ai_take(&data, length);
            if (!ai_good(b, &data, "attribute or type")) return false;
        }
    }
    return ai_good(b, c, "offsets of attributes and types") &&
           (i == n || ai_bad(b, c, ERR_FORMAT, "%u attributes and types of %u", i, n));
}

bool ai_read_tables(ai_bytecode *b) {
    ai_cursor c = b->section[AI_SECTION_ATTRIBUTE_OFFSET];
    b->n_attr = ai_count(&c);
    b->n_type = ai_count(&c);
    b->attr = ARENA_ARRAY(b->a, ai_attr, b->n_attr);
    b->type = ARENA_ARRAY(b->a, ai_type, b->n_type);
    ai_cursor *entry = ARENA_ARRAY(b->a, ai_cursor, (size_t)b->n_attr + b->n_type);
    if (!ai_good(b, &c, "offsets of attributes and types") ||
        !read_lengths(b, &c, entry, b->n_attr + b->n_type))
        return false;
    for (uint32_t i = 0; i < b->n_attr; i++)
        if (!read_attr(b, &b->attr[i], entry[i])) return false;
    for (uint32_t i = 0; i < b->n_type; i++)
        if (!read_type(b, &b->type[i], entry[b->n_attr + i])) return false;
    for (uint32_t i = 0; i < b->n_type; i++)
        if (!check_type(b, &b->type[i])) return false;
    return true;
}
