#include "ir/program.h"
#include "base/num.h"
#include <assert.h>
#include <string.h>

ir_program *ir_program_new(arena *a) {
    ir_program *p = ARENA_NEW(a, ir_program);
    p->a = a;
    return p;
}

ir_function *ir_function_new(ir_program *p, const char *name, int spec) {
    ir_function *f = ARENA_NEW(p->a, ir_function);
    f->name = arena_str(p->a, name);
    f->spec = spec;
    p->func = arena_grow(p->a, p->func, p->n_func, &p->cap_func, p->n_func + 1, sizeof *p->func);
    p->func[p->n_func++] = f;
    return f;
}

ir_function *ir_function_find(const ir_program *p, const char *name) {
    for (size_t i = 0; i < p->n_func; i++)
        if (!strcmp(p->func[i]->name, name)) return p->func[i];
    return NULL;
}

ir_value *ir_value_new(ir_program *p, ir_function *f, const char *name, ir_type type) {
    ir_value *v = ARENA_NEW(p->a, ir_value);
    v->name = name ? arena_str(p->a, name) : NULL;
    v->type = type;
    v->id = f->n_values++;
    return v;
}

ir_value *ir_literal(ir_program *p, ir_function *f, const ir_const *c, ir_binding how) {
    ir_value *v = ir_value_new(p, f, NULL, c->type);
    v->konst = c;
    v->binding = (uint8_t)how;
    return v;
}

void ir_add_input(ir_program *p, ir_function *f, ir_value *v) {
    f->in = arena_grow(p->a, f->in, f->n_in, &f->cap_in, f->n_in + 1, sizeof *f->in);
    f->in[f->n_in++] = v;
}

ir_op *ir_add_op(ir_program *p, ir_block *b, ir_opcode code, uint32_t n_out) {
    ir_op *op = ARENA_NEW(p->a, ir_op);
    op->code = code;
    op->arg = ARENA_ARRAY(p->a, ir_arg, ir_info(code)->n_slot);
    op->out = ARENA_ARRAY(p->a, ir_value *, n_out);
    op->n_out = n_out;
    b->op = arena_grow(p->a, b->op, b->n_op, &b->cap_op, b->n_op + 1, sizeof *b->op);
    b->op[b->n_op++] = op;
    return op;
}

void ir_set_args(ir_program *p, ir_op *op, ir_operand name, ir_value *const *v, uint32_t n) {
    int slot = ir_slot_of(op->code, name);
    assert(slot >= 0);
    op->arg[slot] = (ir_arg){arena_copy(p->a, v, n * sizeof *v), n};
}

void ir_set_arg(ir_program *p, ir_op *op, ir_operand name, ir_value *v) {
    ir_set_args(p, op, name, &v, 1);
}

const ir_arg *ir_args(const ir_op *op, ir_operand name) {
    static const ir_arg absent;
    int slot = ir_slot_of(op->code, name);
    return slot < 0 ? &absent : &op->arg[slot];
}

const ir_value *ir_in(const ir_op *op, ir_operand name) {
    const ir_arg *a = ir_args(op, name);
    return a->n ? a->v[0] : NULL;
}

ir_const *ir_const_new(arena *a, ir_type type, const void *data) {
    ir_const *c = ARENA_NEW(a, ir_const);
    c->type = type;
    c->data = data;
    c->bytes = (size_t)ir_type_bytes(&type);
    return c;
}

ir_const *ir_const_string(arena *a, const char *s) {
    ir_string *str = ARENA_NEW(a, ir_string);
    *str = (ir_string){arena_str(a, s), strlen(s)};
    ir_const *c = ir_const_new(a, ir_scalar(DT_STRING), str);
    c->bytes = sizeof *str;
    return c;
}

ir_const *ir_const_fill(arena *a, ir_type type, ir_fill_fn *fill, const void *ctx) {
    ir_const *c = ir_const_new(a, type, NULL);
    c->fill = fill;
    c->fill_ctx = ctx;
    c->in_blob = true;
    return c;
}

bool ir_const_number(const ir_const *c, uint64_t i, double *v) {
    if (c->type.kind != IR_TENSOR || !c->data) return false;
    ir_dtype d = c->type.dtype;
    unsigned bits = dtype_bits(d);
    const uint8_t *p = (const uint8_t *)c->data + i * bits / 8;
    uint8_t code = 0;
    if (bits && bits < 8) num_unpack(&code, c->data, i, 1, bits);
    switch (d) {
    case DT_FP16: *v = (double)num_f16_f32(num_get16(p)); return true;
    case DT_BF16: *v = (double)num_bf16_f32(num_get16(p)); return true;
    case DT_FP32: *v = (double)num_bits_f32(num_get32(p)); return true;
    case DT_FP64: {
        uint64_t u = num_get64(p);
        memcpy(v, &u, 8);
        return true;
    }
    case DT_E4M3: *v = (double)num_e4m3_f32(*p); return true;
    case DT_E5M2: *v = (double)num_e5m2_f32(*p); return true;
    case DT_BOOL: *v = *p != 0; return true;
    case DT_UINT8: *v = *p; return true;
    case DT_INT8: *v = (int8_t)*p; return true;
    case DT_INT16: *v = (int16_t)num_get16(p); return true;
    case DT_UINT16: *v = num_get16(p); return true;
    case DT_INT32: *v = (int32_t)num_get32(p); return true;
    case DT_UINT32: *v = num_get32(p); return true;
    case DT_INT64: *v = (double)(int64_t)num_get64(p); return true;
    case DT_UINT64: *v = (double)num_get64(p); return true;
    case DT_INT4: *v = num_sign_extend(code, 4); return true;
    case DT_UINT1:
    case DT_UINT2:
    case DT_UINT3:
    case DT_UINT4:
    case DT_UINT6: *v = code; return true;
    case DT_NONE:
    case DT_STRING:
    case DT_COUNT: break;
    }
    return false;
}

const int64_t *ir_const_ints(arena *a, const ir_const *c, size_t *n) {
    ir_dclass cls = dtype_class(c->type.dtype);
    if (cls != DTC_INT && cls != DTC_UINT && cls != DTC_BOOL) return NULL;
    int64_t count = ir_type_count(&c->type);
    if (count < 0 || (count && !c->data)) return NULL;
    int64_t *r = ARENA_ARRAY(a, int64_t, (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        double v = 0;
        ir_const_number(c, (uint64_t)i, &v);
        r[i] = (int64_t)v;
    }
    *n = (size_t)count;
    return r;
}

const char *ir_const_text(const ir_const *c) {
    if (c->type.kind != IR_TENSOR || c->type.dtype != DT_STRING || ir_type_count(&c->type) != 1 || !c->data)
        return NULL;
    return ((const ir_string *)c->data)->s;
}

const char *ir_opset_name(int spec) {
    static const char *const names[] = {"CoreML5", "CoreML6", "CoreML7", "CoreML8", "CoreML9"};
    if (spec == IR_SPEC_COREAI) return "CoreAI";
    return spec >= IR_SPEC_MIN && spec <= IR_SPEC_MAX ? names[spec - IR_SPEC_MIN] : NULL;
}

int ir_opset_spec(const char *opset) {
    for (int s = IR_SPEC_MIN; s <= IR_SPEC_MAX; s++)
        if (!strcmp(ir_opset_name(s), opset)) return s;
    return 0;
}
