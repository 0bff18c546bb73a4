/* Inference against coremltools' own (tests/oracle/make_infer_cases.py), and against what no tool would send. */
#include "base/json.h"
#include "base/num.h"
#include "ir/infer.h"
#include "test.h"

typedef struct {
    arena *a;
    ir_program *p;
    ir_function *f;
    ir_op *op;
    ir_type out[16];
    err e;
} trial;

static ir_type any_type(void *ctx, const ir_value *v) {
    (void)ctx;
    return v->type;
}

static const double *any_numbers(void *ctx, const ir_value *v, size_t *n, arena *a) {
    (void)ctx;
    return v->konst ? ir_const_numbers(v->konst, n, a) : NULL;
}

static trial begin(const char *op, int spec, uint32_t n_out) {
    trial t = {.a = arena_new()};
    t.p = ir_program_new(t.a);
    t.f = ir_function_new(t.p, "main", spec);
    ir_opcode code = ir_opcode_by_name(op);
    assert_int_not_equal(code, OP_NONE);
    t.op = ir_add_op(t.p, &t.f->body, code, n_out);
    return t;
}

static bool infer_trial(trial *t) {
    ir_env env = {NULL, any_type, any_numbers};
    if (ir_info(t->op->code)->spec > t->f->spec) return err_set(&t->e, ERR_INVALID, "not in the opset");
    return ir_infer_op(t->op, t->f->spec, &env, t->out, t->a, &t->e);
}

static void put_number(uint8_t *data, ir_dtype d, size_t i, double v) {
    switch (dtype_bits(d)) {
    case 8: data[i] = (uint8_t)(int)v; break;
    case 16: num_put16(data + 2 * i, d == DT_FP16 ? num_f32_f16((float)v) : (uint16_t)(int)v); break;
    case 32: num_put32(data + 4 * i, d == DT_FP32 ? num_f32_bits((float)v) : (uint32_t)(int64_t)v); break;
    default: assert_true(v == 0); /* sub-byte constants are listed as zeros */
    }
}

/* [dtype, shape] or [dtype, shape, elements]; fewer elements than the shape asks for stand for zeros. */
static ir_value *read_value(trial *t, const json *j) {
    const json *shape = j->child->next, *data = shape->next;
    ir_type type = ir_scalar(dtype_by_name(j->child->s));
    assert_int_not_equal(type.dtype, DT_NONE);
    JSON_EACH(d, shape) type.dim[type.rank++] = d->i;
    ir_value *v = ir_value_new(t->p, t->f, "v", type);
    if (!data) return v;
    if (type.dtype == DT_STRING) {
        v->konst = ir_const_string(t->a, data->child->s);
        return v;
    }
    uint8_t *bytes = arena_alloc(t->a, (size_t)ir_type_bytes(&type) + 1);
    size_t i = 0;
    JSON_EACH(x, data)
    put_number(bytes, (ir_dtype)type.dtype, i++, x->kind == JSON_BOOL ? (double)x->i : x->d);
    v->konst = ir_const_new(t->a, type, bytes);
    return v;
}

static void read_operand(trial *t, const json *j) {
    int slot = ir_slot_by_text(t->op->code, j->key);
    assert_true(slot >= 0);
    ir_value *v[16];
    uint32_t n = 0;
    if (j->child->kind == JSON_STRING)
        v[n++] = read_value(t, j);
    else
        JSON_EACH(one, j) v[n++] = read_value(t, one);
    ir_set_args(t->p, t->op, ir_info(t->op->code)->slot[slot].name, v, n);
}

static bool same_type(trial *t, const ir_type *got, const json *want, size_t row) {
    ir_type w = ir_scalar(dtype_by_name(want->child->s));
    JSON_EACH(d, want->child->next) w.dim[w.rank++] = d->i;
    if (ir_type_equal(got, &w)) return true;
    print_error("row %zu: %s: %s, coremltools says %s\n", row, ir_info(t->op->code)->name,
                ir_type_text(t->a, got), ir_type_text(t->a, &w));
    return false;
}

static bool agrees(const json *row, size_t number) {
    const json *out = json_get(row, "out");
    trial t = begin(json_str(row, "op", ""), (int)json_int(row, "spec", 0), out ? out->len : 1);
    JSON_EACH(operand, json_get(row, "in")) read_operand(&t, operand);
    if (!out && t.op->code == OP_topk) t.op->n_out = 2;
    bool ok = infer_trial(&t);
    bool same = ok == (out != NULL);
    if (!same) print_error("row %zu: %s: %s\n", number, ir_info(t.op->code)->name, ok ? "accepted" : t.e.msg);
    uint32_t i = 0;
    if (ok) JSON_EACH(want, out) same &= same_type(&t, &t.out[i++], want, number);
    arena_free(t.a);
    return same;
}

static void every_case_agrees_with_coremltools(void **s) {
    (void)s;
    const char *source = getenv("MILLET_SOURCE");
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/data/infer_cases.json", source ? source : ".");
    arena *a = arena_new();
    err e = {0};
    const json *rows = json_parse_file(a, path, &e);
    assert_string_equal(e.msg, "");
    size_t n = 0, bad = 0;
    JSON_EACH(row, rows) bad += !agrees(row, ++n);
    assert_true(n > 500);
    assert_int_equal(bad, 0);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_agrees_with_coremltools),
    };
    return cmocka_run_group_tests_name("infer", tests, NULL, NULL);
}
