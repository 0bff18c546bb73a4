/* Functions, blocks, ops. */
#include "coreml/read.h"
#include "coreml/schema.h"
#include <inttypes.h>
#include <string.h>

static ir_value *find(const reader *r, const char *name, size_t n) {
    for (const read_scope *s = r->scope; s; s = s->up) {
        uint32_t id = s->names ? map_get(s->names, name, n) : MAP_NONE;
        if (id != MAP_NONE) return r->value[id];
    }
    return NULL;
}

/* Makes v known by its name from here on. */
static bool define(reader *r, const wire_in *in, ir_value *v) {
    read_scope *s = r->scope;
    if (!s->names) s->names = map_new(r->scratch, 0);
    if (!map_add(s->names, v->name, strlen(v->name), v->id))
        return read_bad(r, in, ERR_INVALID, "value %s is defined twice", v->name);
    size_t known = r->cap_value;
    r->value = arena_grow(r->scratch, r->value, known, &r->cap_value, v->id + 1, sizeof *r->value);
    r->value[v->id] = v;
    return true;
}

/* The field as a NamedValueType: a fresh value, not yet defined. NULL on error. */
static ir_value *read_named(reader *r, wire_in *in) {
    wire_in m = wire_message(in);
    const char *name = NULL;
    ir_type t = {0};
    ir_string opaque = {0};
    bool typed = false;
    while (wire_next(&m)) {
        if (m.field == NAMED_NAME && !(name = read_text(r, &m))) return NULL;
        if (m.field != NAMED_TYPE) continue;
        if (!read_value_type(r, &m, &t, &opaque)) return NULL;
        typed = true;
    }
    if (!read_done(r, &m)) return NULL;
    if (!name || !typed) {
        read_bad(r, &m, ERR_FORMAT, "a value without a %s", name ? "type" : "name");
        return NULL;
    }
    ir_value *v = ir_value_new(r->p, r->f, NULL, t);
    v->name = name;
    v->opaque = opaque;
    return v;
}

/* How often a field occurs in what is left of a message. */
static uint32_t count_field(wire_in m, uint32_t field) {
    uint32_t n = 0;
    while (wire_next(&m)) n += m.field == field;
    return n;
}

/* The field as an Argument: the value of one slot, or several of a variadic one. */
static bool read_argument(reader *r, wire_in *in, ir_op *op, const char *key) {
    int slot = ir_slot_by_text(op->code, key);
    if (slot < 0) return read_bad(r, in, ERR_UNSUPPORTED, "no operand is called %s", key);
    if (op->arg[slot].n) return read_bad(r, in, ERR_FORMAT, "operand %s is given twice", key);
    wire_in m = wire_message(in);
    uint32_t n = 0, expected = count_field(m, 1);
    if (expected > 1 && !ir_info(op->code)->slot[slot].variadic)
        return read_bad(r, in, ERR_FORMAT, "operand %s has %" PRIu32 " values, expected one", key, expected);
    ir_value **v = ARENA_ARRAY(r->a, ir_value *, expected);
    while (wire_next(&m)) {
        if (m.field != 1) continue;
        wire_in b = wire_message(&m);
        ir_value *bound = NULL;
        while (wire_next(&b)) {
            if (b.field == BINDING_NAME) {
                if (!wire_is(&b, WIRE_BYTES)) break;
                bound = find(r, (const char *)b.bytes, b.len);
                if (!bound)
                    return read_bad(r, &b, ERR_INVALID,
                                    "operand %s: value %.*s is not defined before its use", key,
                                    b.len > 200 ? 200 : (int)b.len, (const char *)b.bytes);
            } else if (b.field == BINDING_VALUE) {
                const ir_const *c = read_value(r, &b);
                if (!c) return false;
                bound = ir_literal(r->p, r->f, c, IR_BY_LITERAL);
            }
        }
        if (!read_done(r, &b)) return false;
        if (!bound) return read_bad(r, &m, ERR_FORMAT, "operand %s: a binding without a value", key);
        v[n++] = bound;
    }
    op->arg[slot] = (ir_arg){v, n};
    return read_done(r, &m);
}

/* An attribute that is no operand and not the name is nothing that the program's meaning depends on: it is
 * skipped. */
static bool read_attribute(reader *r, read_entry *entry, ir_op *op) {
    bool val = op->code == OP_const && !strcmp(entry->key, "val");
    int slot = val ? -1 : ir_slot_by_text(op->code, entry->key);
    if (!val && slot < 0) return true;
    const ir_const *c = read_value(r, &entry->value);
    if (!c) return false;
    if (val) {
        op->out[0]->konst = c;
        return true;
    }
    if (op->arg[slot].n)
        return read_bad(r, &entry->value, ERR_FORMAT, "operand %s is given twice", entry->key);
    ir_value *v = ir_literal(r->p, r->f, c, IR_BY_ATTRIBUTE);
    op->arg[slot] = (ir_arg){arena_copy(r->a, &v, sizeof v), 1};
    return true;
}

static bool read_block(reader *r, wire_in *in, ir_block *b);

typedef struct {
    const char *type, *name, *class_name;
    uint32_t n_out, n_block;
} op_head;

/* What must be known before an op's operands can be read: they may come first. */
static bool read_op_head(reader *r, wire_in m, op_head *h) {
    while (wire_next(&m)) {
        if (m.field == OPERATION_TYPE && !(h->type = read_text(r, &m))) return false;
        h->n_out += m.field == OPERATION_OUTPUT;
        h->n_block += m.field == OPERATION_BLOCK;
        if (m.field != OPERATION_ATTRIBUTE) continue;
        read_entry entry;
        if (!read_map_entry(r, &m, &entry)) return false;
        const char **to = !strcmp(entry.key, "name")         ? &h->name
                          : !strcmp(entry.key, "class_name") ? &h->class_name
                                                             : NULL;
        if (!to) continue;
        const ir_const *c = read_value(r, &entry.value);
        if (!c) return false;
        if (!(*to = ir_const_text(c)))
            return read_bad(r, &m, ERR_FORMAT, "an op's %s must be a string", entry.key);
    }
    return read_done(r, &m) && (h->type || read_bad(r, &m, ERR_FORMAT, "an op without a type"));
}

static bool check_op_head(reader *r, const wire_in *m, const op_head *h, ir_opcode code) {
    if (!strcmp(h->type, "custom_layer"))
        return read_bad(
            r, m, ERR_UNSUPPORTED,
            "a custom layer%s%.100s: its code is in an app and not in the package; convert the model "
            "with ordinary ops in its place",
            h->class_name ? " of class " : "", h->class_name ? h->class_name : "");
    if (code == OP_NONE)
        return read_bad(
            r, m, ERR_UNSUPPORTED,
            "op type %.100s is not known; convert the model with ops of MIL's opsets up to CoreML9", h->type);
    bool control = ir_info(code)->flags & OPF_CONTROL;
    if (h->n_block != (control ? 2 : 0))
        return read_bad(r, m, ERR_FORMAT, "%" PRIu32 " blocks, expected %d", h->n_block, control ? 2 : 0);
    if (code == OP_const && h->n_out != 1)
        return read_bad(r, m, ERR_FORMAT, "%" PRIu32 " outputs, expected 1", h->n_out);
    return true;
}

static bool read_op_parts(reader *r, wire_in m, ir_op *op) {
    while (wire_next(&m)) {
        read_entry entry;
        if (m.field == OPERATION_BLOCK) {
            ir_block *b = ARENA_NEW(r->a, ir_block);
            op->block[op->n_block++] = b;
            if (!read_block(r, &m, b)) return false;
        }
        if (m.field != OPERATION_INPUT && m.field != OPERATION_ATTRIBUTE) continue;
        if (!read_map_entry(r, &m, &entry)) return false;
        if (m.field == OPERATION_INPUT ? !read_argument(r, &entry.value, op, entry.key)
                                       : !read_attribute(r, &entry, op))
            return false;
    }
    return read_done(r, &m);
}

static bool read_const_end(reader *r, const wire_in *m, const ir_value *v) {
    if (!v->konst) return read_bad(r, m, ERR_FORMAT, "no attribute val");
    if (v->konst->type.kind == IR_OPAQUE ? v->type.kind == IR_OPAQUE
                                         : ir_type_equal(&v->konst->type, &v->type))
        return true;
    return read_bad(r, m, ERR_INVALID, "the value is %s, the output is declared %s",
                    ir_type_text(r->a, &v->konst->type), ir_type_text(r->a, &v->type));
}

/* The field as an Operation. Its outputs are known after it, not inside. */
static bool read_op(reader *r, wire_in *in, ir_block *b) {
    wire_in m = wire_message(in);
    op_head h = {0};
    r->op_type = r->op_name = NULL;
    if (!read_op_head(r, m, &h)) return false;
    r->op_type = h.type;
    r->op_name = h.name;
    ir_opcode code = ir_opcode_by_name(h.type);
    if (code && (ir_info(code)->flags & OPF_INTERNAL || ir_info(code)->spec > IR_SPEC_MAX))
        code = OP_NONE; /* no op of the format */
    if (!check_op_head(r, &m, &h, code)) return false;
    ir_op *op = ir_add_op(r->p, b, code, h.n_out);
    op->name = h.name;
    op->block = ARENA_ARRAY(r->a, ir_block *, h.n_block);
    uint32_t n = 0;
    for (wire_in o = m; wire_next(&o);) {
        if (o.field != OPERATION_OUTPUT) continue;
        ir_value *v = read_named(r, &o);
        if (!v) return false;
        v->def = op;
        op->out[n++] = v;
    }
    if (!read_op_parts(r, m, op)) return false;
    if (code == OP_const && !read_const_end(r, &m, op->out[0])) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!define(r, &m, op->out[i])) return false;
    r->op_type = r->op_name = NULL;
    return true;
}

/* Appends a value that a block or function takes. */
static ir_value *read_input(reader *r, wire_in *in) {
    ir_value *v = read_named(r, in);
    return v && define(r, in, v) ? v : NULL;
}

static bool read_block_outputs(reader *r, wire_in m, ir_block *b) {
    b->out = ARENA_ARRAY(r->a, ir_value *, count_field(m, BLOCK_OUTPUT));
    while (wire_next(&m)) {
        if (m.field != BLOCK_OUTPUT) continue;
        if (!wire_is(&m, WIRE_BYTES)) break;
        ir_value *v = find(r, (const char *)m.bytes, m.len);
        if (!v)
            return read_bad(r, &m, ERR_INVALID, "block output %.*s is not defined",
                            m.len > 200 ? 200 : (int)m.len, (const char *)m.bytes);
        b->out[b->n_out++] = v;
    }
    return read_done(r, &m);
}

/* The field as a Block. Its outputs may be listed before the ops that make them. */
static bool read_block(reader *r, wire_in *in, ir_block *b) {
    wire_in whole = wire_message(in);
    read_scope scope = {r->scope, NULL};
    const char *type = r->op_type, *name = r->op_name;
    r->scope = &scope;
    b->in = ARENA_ARRAY(r->a, ir_value *, count_field(whole, BLOCK_INPUT));
    bool ok = true;
    for (wire_in m = whole; ok && wire_next(&m);)
        if (m.field == BLOCK_INPUT) ok = (b->in[b->n_in++] = read_input(r, &m)) != NULL;
    wire_in m = whole;
    while (ok && wire_next(&m))
        if (m.field == BLOCK_OP) ok = read_op(r, &m, b);
    ok = ok && read_done(r, &m) && read_block_outputs(r, whole, b);
    r->scope = scope.up;
    r->op_type = type;
    r->op_name = name;
    return ok;
}

static bool has_key(reader *r, wire_in *in, const char *key, wire_in *value) {
    read_entry entry;
    if (!read_map_entry(r, in, &entry)) return false;
    if (!strcmp(entry.key, key)) *value = entry.value;
    return true;
}

/* Ordinary inputs first, then states, whatever the file's order. */
static bool read_function_inputs(reader *r, wire_in whole) {
    size_t n = 0;
    ir_value **in = ARENA_ARRAY(r->scratch, ir_value *, count_field(whole, FUNCTION_INPUT));
    for (wire_in m = whole; wire_next(&m);)
        if (m.field == FUNCTION_INPUT && !(in[n++] = read_input(r, &m))) return false;
    for (int states = 0; states < 2; states++)
        for (size_t i = 0; i < n; i++)
            if ((in[i]->type.kind == IR_STATE) == states) ir_add_input(r->p, r->f, in[i]);
    return true;
}

/* The field as a Function. */
static bool read_function(reader *r, wire_in *in, const char *name) {
    wire_in whole = wire_message(in), m = whole;
    read_scope scope = {0};
    const char *opset = NULL;
    while (wire_next(&m))
        if (m.field == FUNCTION_OPSET && !(opset = read_text(r, &m))) return false;
    if (!read_done(r, &m)) return false;
    r->f = ir_function_new(r->p, name, opset ? ir_opset_spec(opset) : 0);
    if (!opset) return read_bad(r, &m, ERR_FORMAT, "no opset");
    if (!r->f->spec)
        return read_bad(r, &m, ERR_UNSUPPORTED, "opset %.100s, expected CoreML5 to CoreML9", opset);
    wire_in block = {0};
    for (m = whole; wire_next(&m);)
        if (m.field == FUNCTION_BLOCK && !has_key(r, &m, opset, &block)) return false;
    if (!block.base) return read_bad(r, &m, ERR_FORMAT, "no block for its opset %s", opset);
    r->scope = &scope;
    r->cap_value = 0;
    bool ok = read_function_inputs(r, whole) && read_block(r, &block, &r->f->body);
    r->scope = NULL;
    r->f = NULL;
    return ok;
}

static bool read_program_attribute(reader *r, wire_in *in, size_t *cap) {
    read_entry entry;
    if (!read_map_entry(r, in, &entry)) return false;
    const ir_const *c = read_value(r, &entry.value);
    if (!c) return false;
    ir_program *p = r->p;
    p->attr = arena_grow(r->a, p->attr, p->n_attr, cap, p->n_attr + 1, sizeof *p->attr);
    p->attr[p->n_attr++] = (ir_attribute){entry.key, c};
    return true;
}

ir_program *read_program(reader *r, wire_in *in) {
    wire_in m = wire_message(in);
    ir_program *p = r->p = ir_program_new(r->a);
    map *names = map_new(r->scratch, 0);
    size_t cap_attr = 0;
    uint64_t version = 0;
    while (wire_next(&m)) {
        read_entry entry;
        if (m.field == PROGRAM_VERSION && !read_number(r, &m, &version)) return NULL;
        if (m.field == PROGRAM_ATTRIBUTE && !read_program_attribute(r, &m, &cap_attr)) return NULL;
        if (m.field != PROGRAM_FUNCTION) continue;
        if (!read_map_entry(r, &m, &entry)) return NULL;
        if (!map_add(names, entry.key, strlen(entry.key), 0)) {
            read_bad(r, &m, ERR_FORMAT, "two functions are called %.100s", entry.key);
            return NULL;
        }
        if (!read_function(r, &entry.value, entry.key)) return NULL;
    }
    if (!read_done(r, &m)) return NULL;
    if (version != 1) {
        read_bad(r, &m, ERR_UNSUPPORTED, "ML Program version %" PRIu64 ", expected 1", version);
        return NULL;
    }
    return p;
}
