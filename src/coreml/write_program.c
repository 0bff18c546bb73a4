/* Functions, blocks, ops, constants, written back to front: the last field of a message comes first. */
#include "base/num.h"
#include "coreml/schema.h"
#include "coreml/write.h"
#include <stdlib.h>
#include <string.h>

static bool each_in_block(const ir_block *b, write_const_fn *f, void *ctx, err *e);

static bool each_in_op(const ir_op *op, write_const_fn *f, void *ctx, err *e) {
    if (op->code == OP_const && op->out[0]->konst->in_blob && !f(ctx, op->out[0]->konst, e)) return false;
    for (int s = 0; s < ir_info(op->code)->n_slot; s++)
        for (uint32_t i = 0; i < op->arg[s].n; i++) {
            const ir_value *v = op->arg[s].v[i];
            if (v->binding != IR_BY_NAME && v->konst->in_blob && !f(ctx, v->konst, e)) return false;
        }
    for (uint32_t i = 0; i < op->n_block; i++)
        if (!each_in_block(op->block[i], f, ctx, e)) return false;
    return true;
}

static bool each_in_block(const ir_block *b, write_const_fn *f, void *ctx, err *e) {
    for (size_t i = 0; i < b->n_op; i++)
        if (!each_in_op(b->op[i], f, ctx, e)) {
            const ir_op *op = b->op[i];
            return err_where(e, "%s %s", ir_info(op->code)->name, op->n_out ? op->out[0]->name : "");
        }
    return true;
}

bool write_each_blob(const ir_program *p, write_const_fn *f, void *ctx, err *e) {
    for (size_t i = 0; i < p->n_attr; i++)
        if (p->attr[i].value->in_blob && !f(ctx, p->attr[i].value, e)) return false;
    for (size_t i = 0; i < p->n_func; i++)
        if (!each_in_block(&p->func[i]->body, f, ctx, e))
            return err_where(e, "function %s", p->func[i]->name);
    return true;
}

static void put_text(wire_out *o, uint32_t field, const char *s) {
    wire_string(o, field, s, strlen(s));
}

static void put_dim(wire_out *o, int64_t dim) {
    size_t whole = wire_begin(o), inner = wire_begin(o);
    if (dim > 0) wire_int(o, 1, dim);
    wire_end(o, dim == IR_DIM_UNKNOWN ? DIM_UNKNOWN : DIM_CONSTANT, inner);
    wire_end(o, TENSOR_DIM, whole);
}

static void put_type(wire_out *o, uint32_t field, const ir_type *t) {
    size_t whole = wire_begin(o), tensor = wire_begin(o);
    for (int i = t->rank; i-- > 0;) put_dim(o, t->dim[i]);
    if (t->rank) wire_int(o, TENSOR_RANK, t->rank);
    wire_int(o, TENSOR_DTYPE, schema_of(t->dtype)->mil);
    wire_end(o, VTYPE_TENSOR, tensor);
    if (t->kind == IR_STATE) {
        wire_end(o, 1, whole);
        wire_end(o, VTYPE_STATE, whole);
    }
    wire_end(o, field, whole);
}

static void put_named(wire_out *o, uint32_t field, const ir_value *v) {
    size_t whole = wire_begin(o);
    if (v->type.kind == IR_OPAQUE)
        wire_string(o, NAMED_TYPE, v->opaque.s, v->opaque.len);
    else
        put_type(o, NAMED_TYPE, &v->type);
    put_text(o, NAMED_NAME, v->name);
    wire_end(o, field, whole);
}

static uint64_t element(ir_dtype d, const uint8_t *p) {
    switch (d) {
    case DT_INT16: return (uint64_t)(int64_t)(int16_t)num_get16(p);
    case DT_UINT16: return num_get16(p);
    case DT_INT32: return (uint64_t)(int64_t)(int32_t)num_get32(p);
    case DT_INT64:
    case DT_UINT64: return num_get64(p);
    default: return *p != 0; /* bool */
    }
}

static void put_elements(wire_out *o, const ir_const *c, const void *data) {
    ir_dtype d = c->type.dtype;
    size_t n = (size_t)ir_type_count(&c->type), size = dtype_bits(d) / 8;
    uint8_t field = schema_of(d)->field;
    size_t values = wire_begin(o);
    if (field == TENSOR_STRINGS) {
        const ir_string *s = data;
        for (size_t i = s ? n : 0; i-- > 0;) wire_string(o, 1, s[i].s, s[i].len);
    } else if (n) {
        size_t packed = wire_begin(o);
        if (field == TENSOR_INTS || field == TENSOR_LONGS || field == TENSOR_BOOLS)
            for (size_t i = n; i-- > 0;) wire_put_varint(o, element(d, (const uint8_t *)data + i * size));
        else
            wire_put_bytes(o, data, c->bytes);
        wire_end(o, 1, packed);
    }
    wire_end(o, field, values);
}

/* The constant's bytes as a TensorValue in an ImmediateValue. */
static bool put_immediate(writer *w, const ir_const *c) {
    size_t whole = wire_begin(w->o), tensor = wire_begin(w->o);
    void *made = NULL;
    bool ok = true;
    if (!c->data && c->fill) {
        if (!(made = mem_try(c->bytes, 1)))
            return err_set(w->e, ERR_MEMORY, "no memory for a constant of %zu bytes", c->bytes);
        ok = c->fill(c->fill_ctx, 0, (uint64_t)ir_type_count(&c->type), made, w->e);
    }
    if (ok) put_elements(w->o, c, made ? made : c->data);
    mem_free(made);
    wire_end(w->o, IMMEDIATE_TENSOR, tensor);
    wire_end(w->o, VALUE_IMMEDIATE, whole);
    return ok;
}

static void put_blob(writer *w, const ir_const *c) {
    size_t whole = wire_begin(w->o);
    wire_int(w->o, BLOB_OFFSET, (int64_t)blob_plan_offset(w->weights, c));
    size_t name = wire_begin(w->o);
    const char *file = blob_plan_name(w->weights);
    wire_put_bytes(w->o, file, strlen(file));
    wire_put_bytes(w->o, MODEL_PATH, strlen(MODEL_PATH));
    wire_end(w->o, BLOB_FILE, name);
    wire_end(w->o, VALUE_BLOB, whole);
}

static bool put_value(writer *w, uint32_t field, const ir_const *c) {
    if (c->type.kind == IR_OPAQUE) {
        wire_string(w->o, field, c->data, c->bytes);
        return true;
    }
    size_t whole = wire_begin(w->o);
    if (c->in_blob)
        put_blob(w, c);
    else if (!put_immediate(w, c))
        return false;
    put_type(w->o, VALUE_TYPE, &c->type);
    wire_end(w->o, field, whole);
    return true;
}

/* An entry of a map from text to Value. */
static bool put_value_entry(writer *w, uint32_t field, const char *key, const ir_const *c) {
    size_t entry = wire_begin(w->o);
    if (!put_value(w, ENTRY_VALUE, c)) return false;
    put_text(w->o, ENTRY_KEY, key);
    wire_end(w->o, field, entry);
    return true;
}

static bool put_attributes(writer *w, const ir_op *op) {
    const ir_op_info *info = ir_info(op->code);
    for (int s = info->n_slot; s-- > 0;) {
        const ir_arg *a = &op->arg[s];
        if (a->n && a->v[0]->binding == IR_BY_ATTRIBUTE &&
            !put_value_entry(w, OPERATION_ATTRIBUTE, ir_operand_name(info->slot[s].name), a->v[0]->konst))
            return false;
    }
    if (op->code == OP_const && !put_value_entry(w, OPERATION_ATTRIBUTE, "val", op->out[0]->konst))
        return false;
    if (!op->name) return true;
    ir_string text = {op->name, strlen(op->name)};
    ir_const name = {.type = ir_scalar(DT_STRING), .data = &text, .bytes = sizeof text};
    return put_value_entry(w, OPERATION_ATTRIBUTE, "name", &name);
}

static bool put_inputs(writer *w, const ir_op *op) {
    const ir_op_info *info = ir_info(op->code);
    for (int s = info->n_slot; s-- > 0;) {
        const ir_arg *a = &op->arg[s];
        if (!a->n || a->v[0]->binding == IR_BY_ATTRIBUTE) continue;
        size_t entry = wire_begin(w->o), argument = wire_begin(w->o);
        for (uint32_t i = a->n; i-- > 0;) {
            size_t binding = wire_begin(w->o);
            if (a->v[i]->binding == IR_BY_NAME)
                put_text(w->o, BINDING_NAME, a->v[i]->name);
            else if (!put_value(w, BINDING_VALUE, a->v[i]->konst))
                return false;
            wire_end(w->o, 1, binding);
        }
        wire_end(w->o, ENTRY_VALUE, argument);
        put_text(w->o, ENTRY_KEY, ir_operand_name(info->slot[s].name));
        wire_end(w->o, OPERATION_INPUT, entry);
    }
    return true;
}

static bool put_block(writer *w, uint32_t field, const ir_block *b);

static bool put_op(writer *w, const ir_op *op) {
    size_t whole = wire_begin(w->o);
    if (!put_attributes(w, op)) return false;
    for (uint32_t i = op->n_block; i-- > 0;)
        if (!put_block(w, OPERATION_BLOCK, op->block[i])) return false;
    for (uint32_t i = op->n_out; i-- > 0;) put_named(w->o, OPERATION_OUTPUT, op->out[i]);
    if (!put_inputs(w, op)) return false;
    put_text(w->o, OPERATION_TYPE, ir_info(op->code)->name);
    wire_end(w->o, BLOCK_OP, whole);
    return true;
}

static bool put_block(writer *w, uint32_t field, const ir_block *b) {
    size_t whole = wire_begin(w->o);
    for (size_t i = b->n_op; i-- > 0;)
        if (!put_op(w, b->op[i])) return false;
    for (size_t i = b->n_out; i-- > 0;) put_text(w->o, BLOCK_OUTPUT, b->out[i]->name);
    for (size_t i = b->n_in; i-- > 0;) put_named(w->o, BLOCK_INPUT, b->in[i]);
    wire_end(w->o, field, whole);
    return true;
}

static bool put_function(writer *w, const ir_function *f) {
    const char *opset = ir_opset_name(f->spec);
    if (!opset)
        return err_set(w->e, ERR_INVALID, "function %s: no opset for specification version %d", f->name,
                       f->spec);
    size_t entry = wire_begin(w->o), whole = wire_begin(w->o), block = wire_begin(w->o);
    if (!put_block(w, ENTRY_VALUE, &f->body)) return err_where(w->e, "function %s", f->name);
    put_text(w->o, ENTRY_KEY, opset);
    wire_end(w->o, FUNCTION_BLOCK, block);
    put_text(w->o, FUNCTION_OPSET, opset);
    for (size_t i = f->n_in; i-- > 0;) put_named(w->o, FUNCTION_INPUT, f->in[i]);
    wire_end(w->o, ENTRY_VALUE, whole);
    put_text(w->o, ENTRY_KEY, f->name);
    wire_end(w->o, PROGRAM_FUNCTION, entry);
    return true;
}

bool write_program(writer *w, const ir_program *p) {
    size_t whole = wire_begin(w->o);
    for (size_t i = p->n_attr; i-- > 0;)
        if (!put_value_entry(w, PROGRAM_ATTRIBUTE, p->attr[i].name, p->attr[i].value)) return false;
    for (size_t i = p->n_func; i-- > 0;)
        if (!put_function(w, p->func[i])) return false;
    wire_int(w->o, PROGRAM_VERSION, 1);
    wire_end(w->o, MODEL_PROGRAM, whole);
    return true;
}
