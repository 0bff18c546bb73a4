#include "ir/build.h"
#include "base/num.h"
#include "ir/infer.h"
#include <stdio.h>
#include <string.h>

ir_builder ir_build(ir_program *p, const char *function, int spec, err *e) {
    ir_builder b = {.p = p, .e = e, .scratch = arena_new(), .keys = arena_new()};
    b.names = map_new(b.keys, 256);
    b.consts = map_new(b.keys, 64);
    if (ir_function_find(p, function)) err_set(e, ERR_USAGE, "function %s exists already", function);
    if (!ir_opset_name(spec))
        err_set(e, ERR_USAGE, "function %s: no opset for specification version %d", function, spec);
    b.f = ir_function_new(p, function, spec);
    return b;
}

static bool failed(const ir_builder *b) {
    return b->e->code != ERR_NONE;
}

/* The body's ops in their final order; shared and placed tell about constants, by value id. */
typedef struct {
    bool *shared, *placed;
    ir_op **op;
    size_t n;
} final_order;

static void place_constants(final_order *f, ir_value *const *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!f->shared[v[i]->id] || f->placed[v[i]->id]) continue;
        f->placed[v[i]->id] = true;
        f->op[f->n++] = (ir_op *)v[i]->def;
    }
}

static void place_operands(final_order *f, const ir_op *op) {
    for (int s = 0; s < ir_info(op->code)->n_slot; s++) place_constants(f, op->arg[s].v, op->arg[s].n);
    for (uint32_t k = 0; k < op->n_block; k++) {
        for (size_t i = 0; i < op->block[k]->n_op; i++) place_operands(f, op->block[k]->op[i]);
        place_constants(f, op->block[k]->out, op->block[k]->n_out);
    }
}

/* Puts every shared constant before its first use and numbers them in that order. They were made as arguments
 * of calls, which each compiler evaluates in an order of its own; the program must not depend on that. */
static void settle_constants(ir_builder *b) {
    ir_block *body = &b->f->body;
    size_t n_shared = map_count(b->consts), named = 0;
    final_order f = {ARENA_ARRAY(b->keys, bool, b->f->n_values), ARENA_ARRAY(b->keys, bool, b->f->n_values),
                     ARENA_ARRAY(b->keys, ir_op *, body->n_op), 0};
    const char **name = ARENA_ARRAY(b->keys, const char *, n_shared);
    for (size_t i = 0; i < n_shared; i++) {
        f.shared[b->shared[i]->id] = true;
        name[i] = b->shared[i]->name;
    }
    for (size_t i = 0; i < body->n_op; i++) {
        ir_op *op = body->op[i];
        if (op->code == OP_const && f.shared[op->out[0]->id]) continue;
        place_operands(&f, op);
        f.op[f.n++] = op;
    }
    place_constants(&f, b->shared, n_shared); /* outputs, and what nothing uses */
    for (size_t i = 0; i < f.n; i++) {
        ir_op *op = body->op[i] = f.op[i];
        if (op->code == OP_const && f.shared[op->out[0]->id]) op->name = op->out[0]->name = name[named++];
    }
}

void ir_build_end(ir_builder *b) {
    if (!failed(b)) settle_constants(b);
    arena_free(b->scratch);
    arena_free(b->keys);
    b->scratch = b->keys = NULL;
    b->names = b->consts = NULL;
}

/* What calls return after an error: belongs to nothing. */
static ir_value *harmless(ir_builder *b) {
    return ir_value_new(b->p, b->f, "none", (ir_type){0});
}

static bool take_name(ir_builder *b, const char *name) {
    if (map_get(b->names, name, strlen(name)) != MAP_NONE) return false;
    const char *kept = arena_str(b->keys, name);
    return map_add(b->names, kept, strlen(kept), 0);
}

/* A name that is free: the wanted one, else with a number behind it; without a wish the op's own name and a
 * number. */
static const char *fresh_name(ir_builder *b, const char *wish, ir_opcode code) {
    if (wish && take_name(b, wish)) return wish;
    const char *name;
    do {
        name = arena_printf(b->scratch, "%s_%u", wish ? wish : ir_info(code)->name,
                            code == OP_const && !wish ? b->const_serial++ : b->serial++);
    } while (!take_name(b, name));
    return name;
}

static ir_value *feature(ir_builder *b, const char *name, ir_type t) {
    if (failed(b)) return harmless(b);
    if (!take_name(b, name)) {
        err_set(b->e, ERR_USAGE, "function %s: the name %s is in use already", b->f->name, name);
        return harmless(b);
    }
    ir_value *v = ir_value_new(b->p, b->f, name, t);
    ir_add_input(b->p, b->f, v);
    return v;
}

ir_value *b_input(ir_builder *b, const char *name, ir_type t) {
    return feature(b, name, t);
}

ir_value *b_state(ir_builder *b, const char *name, ir_type t) {
    t.kind = IR_STATE;
    return feature(b, name, t);
}

ir_type b_type(const ir_builder *b, const ir_value *v) {
    (void)b;
    return v->type;
}

static ir_type value_type(void *ctx, const ir_value *v) {
    (void)ctx;
    return v->type;
}

static const double *value_numbers(void *ctx, const ir_value *v, size_t *n, arena *a) {
    (void)ctx;
    return v->konst ? ir_const_numbers(v->konst, n, a) : NULL;
}

static bool take_operands(ir_builder *b, ir_op *op, va_list ap) {
    ir_operand name;
    while ((name = va_arg(ap, ir_operand)) != A_NONE) {
        ir_value *v = va_arg(ap, ir_value *);
        if (!v) continue;
        int slot = name < A_COUNT ? ir_slot_of(op->code, name) : -1;
        if (slot < 0)
            return err_set(b->e, ERR_USAGE, "it has no operand %s",
                           name < A_COUNT ? ir_operand_name(name) : "?");
        ir_set_arg(b->p, op, name, v);
    }
    return true;
}

/* Infers the finished op and gives it its outputs. */
static bool finish(ir_builder *b, ir_op *op, const char *name, ir_value **out) {
    ir_env env = {NULL, value_type, value_numbers};
    ir_type *types = ARENA_ARRAY(b->scratch, ir_type, op->n_out + 1);
    if (ir_info(op->code)->spec > b->f->spec)
        return err_set(b->e, ERR_INVALID, "it exists from %s on", ir_opset_name(ir_info(op->code)->spec));
    if (!ir_infer_op(op, b->f->spec, &env, types, b->scratch, b->e)) return false;
    const char *base = op->n_out == 1 ? name : fresh_name(b, name, op->code);
    for (uint32_t i = 0; i < op->n_out; i++) {
        const char *wish = op->n_out == 1 ? name : arena_printf(b->scratch, "%s_%u", base, i);
        ir_value *v = ir_value_new(b->p, b->f, fresh_name(b, wish, op->code), types[i]);
        v->def = op;
        op->out[i] = out[i] = v;
    }
    op->name = op->n_out == 1 ? out[0]->name : arena_str(b->p->a, base);
    return true;
}

static void emit(ir_builder *b, ir_opcode code, const char *name, ir_value **out, uint32_t n_out,
                 ir_operand variadic, ir_value *const *v, uint32_t n, va_list ap) {
    bool ok = !failed(b);
    if (ok) {
        ir_op *op = ir_add_op(b->p, &b->f->body, code, n_out);
        op->composite = b->composite;
        if (variadic) ir_set_args(b->p, op, variadic, v, n);
        ok = take_operands(b, op, ap) && finish(b, op, name, out);
        if (!ok) err_where(b->e, "function %s, op %s %s", b->f->name, ir_info(code)->name, name ? name : "");
        arena_reset(b->scratch);
    }
    for (uint32_t i = 0; !ok && i < n_out; i++) out[i] = harmless(b);
}

ir_value *b_op(ir_builder *b, ir_opcode code, const char *name, ...) {
    ir_value *out;
    va_list ap;
    va_start(ap, name);
    emit(b, code, name, &out, 1, A_NONE, NULL, 0, ap);
    va_end(ap);
    return out;
}

ir_value *b_opv(ir_builder *b, ir_opcode code, const char *name, ir_operand variadic, ir_value *const *v,
                uint32_t n, ...) {
    ir_value *out;
    va_list ap;
    va_start(ap, n);
    emit(b, code, name, &out, 1, variadic, v, n, ap);
    va_end(ap);
    return out;
}

void b_op_multi(ir_builder *b, ir_opcode code, const char *name, ir_value **out, uint32_t n_out, ...) {
    va_list ap;
    va_start(ap, n_out);
    emit(b, code, name, out, n_out, A_NONE, NULL, 0, ap);
    va_end(ap);
}

void b_output(ir_builder *b, ir_value *v) {
    if (failed(b)) return;
    ir_block *body = &b->f->body;
    const char *wrong = v->def ? NULL : "is an input, which needs an identity to be an output";
    for (size_t i = 0; i < body->n_out; i++)
        if (body->out[i] == v) wrong = "is an output already";
    if (wrong) {
        err_set(b->e, ERR_USAGE, "function %s: %s %s", b->f->name, v->name ? v->name : "a literal", wrong);
        return;
    }
    body->out = arena_grow(b->p->a, body->out, body->n_out, &b->cap_out, body->n_out + 1, sizeof(ir_value *));
    body->out[body->n_out++] = v;
}

ir_value *b_const(ir_builder *b, const char *name, const ir_const *c) {
    if (failed(b)) return harmless(b);
    ir_op *op = ir_add_op(b->p, &b->f->body, OP_const, 1);
    ir_value *v = ir_value_new(b->p, b->f, fresh_name(b, name, OP_const), c->type);
    arena_reset(b->scratch);
    v->konst = c;
    v->def = op;
    op->name = v->name;
    op->out[0] = v;
    return v;
}

/* The const op of an equal constant, or a new one. data is copied; len: its bytes, which tell constants
 * apart. */
static ir_value *shared_const(ir_builder *b, ir_type t, const void *data, size_t len) {
    if (failed(b)) return harmless(b);
    size_t head = sizeof t.dtype + sizeof t.rank + sizeof t.dim;
    char *key = arena_alloc(b->keys, head + len);
    memcpy(key, &t.dtype, sizeof t.dtype);
    memcpy(key + sizeof t.dtype, &t.rank, sizeof t.rank);
    memcpy(key + sizeof t.dtype + sizeof t.rank, t.dim, sizeof t.dim);
    if (len) memcpy(key + head, data, len);
    uint32_t at = map_get(b->consts, key, head + len);
    if (at != MAP_NONE) return b->shared[at];
    ir_const *c = t.dtype == DT_STRING ? ir_const_string(b->p->a, data)
                                       : ir_const_new(b->p->a, t, arena_copy(b->p->a, data, len));
    c->in_blob = ir_type_count(&t) >= 10 && dtype_is_float((ir_dtype)t.dtype);
    size_t n = map_count(b->consts);
    b->shared = arena_grow(b->keys, b->shared, n, &b->cap_shared, n + 1, sizeof *b->shared);
    map_add(b->consts, key, head + len, (uint32_t)n);
    return b->shared[n] = b_const(b, NULL, c);
}

ir_value *b_f16(ir_builder *b, float v) {
    uint8_t bytes[2];
    num_put16(bytes, num_f32_f16(v));
    return shared_const(b, ir_scalar(DT_FP16), bytes, 2);
}

ir_value *b_f32(ir_builder *b, float v) {
    uint8_t bytes[4];
    num_put32(bytes, num_f32_bits(v));
    return shared_const(b, ir_scalar(DT_FP32), bytes, 4);
}

ir_value *b_i32(ir_builder *b, int32_t v) {
    uint8_t bytes[4];
    num_put32(bytes, (uint32_t)v);
    return shared_const(b, ir_scalar(DT_INT32), bytes, 4);
}

ir_value *b_bool(ir_builder *b, bool v) {
    uint8_t byte = v;
    return shared_const(b, ir_scalar(DT_BOOL), &byte, 1);
}

ir_value *b_text(ir_builder *b, const char *s) {
    return shared_const(b, ir_scalar(DT_STRING), s, strlen(s));
}

ir_value *b_ints(ir_builder *b, const int32_t *v, size_t n) {
    if (failed(b)) return harmless(b);
    uint8_t *bytes = ARENA_ARRAY(b->scratch, uint8_t, n * 4 + 1);
    for (size_t i = 0; i < n; i++) num_put32(bytes + 4 * i, (uint32_t)v[i]);
    return shared_const(b, IR_TYPE(DT_INT32, (int64_t)n), bytes, n * 4);
}

ir_value *b_floats(ir_builder *b, ir_dtype d, const float *v, ir_type shape) {
    if (failed(b)) return harmless(b);
    shape.kind = IR_TENSOR;
    shape.dtype = (uint8_t)d;
    int64_t n = ir_type_count(&shape);
    if (n < 0 || (d != DT_FP16 && d != DT_FP32)) {
        err_set(b->e, ERR_USAGE, "function %s: b_floats() makes fp16 and fp32 constants of known shape",
                b->f->name);
        return harmless(b);
    }
    size_t each = dtype_bits(d) / 8;
    uint8_t *bytes = ARENA_ARRAY(b->scratch, uint8_t, (size_t)n * each + 1);
    for (int64_t i = 0; i < n; i++) {
        if (d == DT_FP16)
            num_put16(bytes + 2 * i, num_f32_f16(v[i]));
        else
            num_put32(bytes + 4 * i, num_f32_bits(v[i]));
    }
    return shared_const(b, shape, bytes, (size_t)n * each);
}

void b_composite_begin(ir_builder *b, ir_composite c) {
    ir_function *f = b->f;
    f->composite = arena_grow(b->p->a, f->composite, f->n_composite, &f->cap_composite, f->n_composite + 1,
                              sizeof *f->composite);
    f->composite[f->n_composite++] = c;
    b->composite = f->n_composite;
}

ir_value *b_composite_end(ir_builder *b, ir_value *output) {
    b->f->composite[b->composite - 1].output = output;
    b->composite = 0;
    return output;
}
