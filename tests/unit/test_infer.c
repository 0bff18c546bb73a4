/* Inference against coremltools' own (tests/oracle/make_infer_cases.py), and against what no tool would send.
 */
#include "base/json.h"
#include "base/num.h"
#include "ir/infer.h"
#include "test.h"
#include <dirent.h>

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

/* ---- every op that genuine packages hold has a rule */

static void check_histogram(const json *h, size_t *n) {
    JSON_EACH(entry, h) {
        if (entry->kind == JSON_OBJECT) { /* one a function */
            check_histogram(entry, n);
            continue;
        }
        ir_opcode code = ir_opcode_by_name(entry->key);
        if (code == OP_NONE || !ir_op_inferable(code)) print_error("%s has no inference rule\n", entry->key);
        assert_true(code != OP_NONE && ir_op_inferable(code));
        ++*n;
    }
}

static void every_op_of_the_cases_has_a_rule(void **s) {
    (void)s;
    char dir[1024];
    snprintf(dir, sizeof dir, "%s", test_case_path("coreml/README.md"));
    *strrchr(dir, '/') = '\0';
    DIR *d = opendir(dir);
    assert_non_null(d);
    arena *a = arena_new();
    size_t n = 0;
    for (struct dirent *at; (at = readdir(d));) {
        size_t len = strlen(at->d_name);
        if (len < 5 || strcmp(at->d_name + len - 5, ".json")) continue;
        char path[1300];
        snprintf(path, sizeof path, "%s/%s", dir, at->d_name);
        err e = {0};
        const json *j = json_parse_file(a, path, &e);
        assert_string_equal(e.msg, "");
        check_histogram(json_get(j, "op_histogram"), &n);
    }
    closedir(d);
    arena_free(a);
    assert_true(n > 500);
}

/* ---- operands that no tool would write: an error or a type, never a crash */

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int64_t odd_number(uint64_t *r) {
    static const int64_t odd[] = {
        -1, 0, 1, 2, 3, 8, 16, -2, -9, INT32_MAX, INT32_MIN, INT64_C(1) << 47, INT64_C(1) << 62};
    return odd[next_random(r) % (sizeof odd / sizeof *odd)];
}

static ir_type odd_type(uint64_t *r, ir_dtype d) {
    ir_type t = ir_scalar(d);
    t.rank = (int8_t)(next_random(r) % (IR_MAX_RANK + 1));
    for (int i = 0; i < t.rank; i++) {
        t.dim[i] = next_random(r) % 8 ? (int64_t)(next_random(r) % 5) - 1 : odd_number(r);
        if (t.dim[i] < -1) t.dim[i] = 0;
    }
    if (next_random(r) % 64 == 0) t.kind = (uint8_t)(next_random(r) % 3);
    return t;
}

static ir_value *odd_value(trial *t, uint64_t *r, const ir_slot *slot) {
    static const char *const texts[] = {"int32",     "fp32", "same", "custom", "nchw,nwhu->nchu",
                                        "ab,bc->ac", "->",   "",     "abc"};
    uint32_t mask = ir_slot_dtypes(slot, t->f->spec);
    ir_dtype d = (ir_dtype)(1 + next_random(r) % (DT_COUNT - 1));
    while (mask && next_random(r) % 64 && !(mask >> d & 1))
        d = (ir_dtype)(1 + next_random(r) % (DT_COUNT - 1));
    ir_type type = odd_type(r, d);
    if (slot->is_const && next_random(r) % 4) type.rank = next_random(r) % 2 ? 0 : 1;
    ir_value *v = ir_value_new(t->p, t->f, "v", type);
    int64_t n = ir_type_count(&type);
    if (type.kind != IR_TENSOR || n < 0 || n > 64 || next_random(r) % 4 == 0) return v;
    if (d == DT_STRING) {
        if (!type.rank)
            v->konst = ir_const_string(t->a, texts[next_random(r) % (sizeof texts / sizeof *texts)]);
        return v;
    }
    uint8_t *bytes = arena_alloc(t->a, (size_t)ir_type_bytes(&type) + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t number = next_random(r) % 4 ? (int64_t)(next_random(r) % 6) - 2 : odd_number(r);
        if (dtype_bits(d) == 64)
            num_put64(bytes + 8 * i, (uint64_t)number);
        else if (dtype_bits(d) >= 8)
            put_number(bytes, d, (size_t)i, (double)(int32_t)number);
    }
    v->konst = ir_const_new(t->a, type, bytes);
    if (next_random(r) % 32 == 0) ((ir_const *)v->konst)->data = NULL; /* still to be filled */
    return v;
}

static void odd_operands(trial *t, uint64_t *r) {
    const ir_op_info *info = ir_info(t->op->code);
    for (int i = 0; i < info->n_slot; i++) {
        if (next_random(r) % (info->slot[i].optional ? 2 : 32) == 0) continue;
        ir_value *v[3];
        uint32_t n = info->slot[i].variadic || next_random(r) % 64 == 0 ? 1 + next_random(r) % 3 : 1;
        for (uint32_t k = 0; k < n; k++) {
            v[k] = odd_value(t, r, &info->slot[i]);
            if (k && next_random(r) % 4) v[k]->type = v[0]->type, v[k]->konst = v[0]->konst;
        }
        if (next_random(r) % 256 == 0) v[n - 1] = NULL;
        ir_set_args(t->p, t->op, info->slot[i].name, v, n);
    }
}

static void odd_operands_never_crash(void **s) {
    (void)s;
    uint64_t r = 7;
    size_t accepted = 0;
    for (int code = 1; code < OP_COUNT; code++)
        for (int i = 0; i < 1500; i++) {
            int spec = IR_SPEC_MIN + (int)(next_random(&r) % 5);
            trial t = begin(ir_info((ir_opcode)code)->name, spec,
                            (uint32_t)(next_random(&r) % 16 ? 1 : next_random(&r) % 4));
            for (uint32_t k = 0; k < t.op->n_out; k++)
                t.op->out[k] = ir_value_new(t.p, t.f, "o", ir_scalar(DT_FP16));
            odd_operands(&t, &r);
            bool ok = infer_trial(&t);
            assert_true(ok == (t.e.code == ERR_NONE));
            for (uint32_t k = 0; ok && k < t.op->n_out; k++)
                for (int d = 0; d < t.out[k].rank; d++) assert_true(t.out[k].dim[d] >= IR_DIM_UNKNOWN);
            accepted += ok;
            arena_free(t.a);
        }
    assert_true(accepted > 5000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_agrees_with_coremltools),
        cmocka_unit_test(every_op_of_the_cases_has_a_rule),
        cmocka_unit_test(odd_operands_never_crash),
    };
    return cmocka_run_group_tests_name("infer", tests, NULL, NULL);
}
