/* Single ops against PyTorch (tests/data/op_cases.json, written by tests/oracle/make_op_cases.py): the ops
 * and forms that no shared case holds. Float32 sums may differ in their order: 1e-5 of the value, 1e-6 near
 * zero. Results in fp16 are rounded once and must be equal. */
#include "base/json.h"
#include "base/num.h"
#include "reference/frame.h"
#include "test.h"
#include <math.h>

static double number(const json *j) {
    if (j->kind == JSON_BOOL) return (double)j->i;
    if (j->kind != JSON_STRING) return j->d;
    return !strcmp(j->s, "nan") ? NAN : !strcmp(j->s, "inf") ? INFINITY : -INFINITY;
}

static void pack(ir_dtype d, uint8_t *out, size_t i, double v) {
    float f = (float)v;
    switch (d) {
    case DT_FP16: num_put16(out + 2 * i, num_f32_f16(f)); break;
    case DT_FP32: memcpy(out + 4 * i, &f, 4); break;
    case DT_INT32: num_put32(out + 4 * i, (uint32_t)(int32_t)v); break;
    default: out[i] = (uint8_t)(int)v; break;
    }
}

static ir_const *tensor(arena *a, const json *j) {
    ir_type t = ir_scalar(dtype_by_name(json_str(j, "d", "")));
    JSON_EACH(n, json_get(j, "s")) t.dim[t.rank++] = n->i;
    uint8_t *data = arena_alloc(a, (size_t)ir_type_bytes(&t));
    size_t i = 0;
    JSON_EACH(n, json_get(j, "v")) pack((ir_dtype)t.dtype, data, i++, number(n));
    assert_int_equal((int64_t)i, ir_type_count(&t));
    return ir_const_new(a, t, data);
}

/* A function of one op. Operands marked "input" are its inputs, whose contents go to in[]. */
typedef struct {
    ir_program *p;
    ir_function *f;
    ir_op *op;
    const ir_const *in[16];
} single;

static ir_value *operand(single *s, const json *j, bool input) {
    if (j->kind == JSON_STRING) return ir_literal(s->p, s->f, ir_const_string(s->p->a, j->s), IR_BY_LITERAL);
    ir_const *c = tensor(s->p->a, j);
    if (!input) return ir_literal(s->p, s->f, c, IR_BY_LITERAL);
    ir_value *v = ir_value_new(s->p, s->f, arena_printf(s->p->a, "in%zu", s->f->n_in), c->type);
    assert_true(s->f->n_in < 16);
    s->in[s->f->n_in] = c;
    ir_add_input(s->p, s->f, v);
    return v;
}

static void build(single *s, arena *a, const json *j) {
    *s = (single){.p = ir_program_new(a)};
    s->f = ir_function_new(s->p, "main", (int)json_int(j, "spec", 9));
    uint32_t n_out = json_get(j, "want")->len;
    s->op = ir_add_op(s->p, &s->f->body, ir_opcode_by_name(json_str(j, "op", "")), n_out);
    JSON_EACH(o, json_get(j, "operands")) {
        const json *list = json_get(o, "list");
        ir_value *v[16];
        uint32_t n = 0;
        if (!list) v[n++] = operand(s, o, json_bool(o, "input", false));
        JSON_EACH(x, list) v[n++] = operand(s, x, true);
        int slot = ir_slot_by_text(s->op->code, o->key);
        assert_true(slot >= 0);
        ir_set_args(s->p, s->op, ir_info(s->op->code)->slot[slot].name, v, n);
    }
    uint32_t k = 0;
    JSON_EACH(w, json_get(j, "want")) {
        ir_value *v = ir_value_new(s->p, s->f, arena_printf(a, "out%u", k), tensor(a, w)->type);
        v->def = s->op;
        s->op->out[k++] = v;
    }
    s->f->body.out = s->op->out;
    s->f->body.n_out = n_out;
}

static void compare(const json *j, const ref_tensor *got, const ir_const *want) {
    const char *op = json_str(j, "op", ""), *note = json_str(j, "note", "");
    if (!ir_type_equal(&got->type, &want->type)) fail_msg("%s (%s): the result's type differs", op, note);
    for (int64_t i = 0, n = ref_count(got); i < n; i++) {
        double b, a = dtype_is_float((ir_dtype)got->type.dtype) ? (double)ref_floats(got)[i]
                                                                : (double)ref_ints(got)[i];
        assert_true(ir_const_number(want, (uint64_t)i, &b));
        double slack = got->type.dtype == DT_FP32 ? 1e-5 * fabs(b) + 1e-6 : 0;
        bool same = isfinite(b) ? fabs(a - b) <= slack : (isnan(a) && isnan(b)) || a == b;
        if (!same) fail_msg("%s (%s): element %lld is %.9g, expected %.9g", op, note, (long long)i, a, b);
    }
}

static void run_case(const json *j, ref_mode mode) {
    arena *a = arena_new();
    single s;
    err e = {0};
    build(&s, a, j);
    ref_frame *frame = ref_frame_new(ref_plan_new(a, s.f), mode, &e);
    assert_non_null(frame);
    ref_tensor in[16] = {0};
    ref_tensor *state[16] = {0};
    for (size_t i = 0; i < s.f->n_in; i++) {
        assert_true(ref_tensor_new(&in[i], &s.in[i]->type, &e));
        ref_tensor packed;
        assert_true(ref_tensor_const(&packed, s.in[i], &e));
        ref_read(&packed, 0, ref_count(&in[i]), in[i].cell);
    }
    ref_frame_call call = {.in = in, .state = state};
    if (!ref_frame_run(frame, &call, &e))
        fail_msg("%s (%s): %s", json_str(j, "op", ""), json_str(j, "note", ""), e.msg);
    size_t k = 0;
    JSON_EACH(w, json_get(j, "want")) {
        const ref_tensor *t = ref_frame_result(frame, k++, &e);
        assert_non_null(t);
        if (mode == REF_STRICT || t->type.dtype != DT_FP16) compare(j, t, tensor(a, w));
    }
    for (size_t i = 0; i < s.f->n_in; i++) ref_tensor_drop(&in[i]);
    ref_frame_free(frame);
    arena_free(a);
}

static void every_op_case(void **state) {
    (void)state;
    const char *root = getenv("MILLET_SOURCE");
    char path[1024];
    err e = {0};
    arena *a = arena_new();
    snprintf(path, sizeof path, "%s/tests/data/op_cases.json", root ? root : ".");
    const json *j = json_parse_file(a, path, &e);
    if (!j) fail_msg("%s", e.msg);
    size_t n = 0;
    JSON_EACH(c, json_get(j, "cases")) {
        run_case(c, REF_STRICT);
        run_case(c, REF_FAST);
        n++;
    }
    assert_true(n > 150);
    arena_free(a);
}

/* Control flow and states are the frame's; classifiers and lists are refused. */
static void every_op_has_a_body(void **state) {
    (void)state;
    static const ir_opcode others[] = {OP_const,       OP_cond,       OP_while_loop, OP_read_state,
                                       OP_write_state, OP_state_part, OP_classify,   OP_list_read};
    for (int op = OP_NONE + 1; op < OP_COUNT; op++) {
        bool expected = true;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) expected &= others[i] != (ir_opcode)op;
        if ((ref_op_row_of((ir_opcode)op)->fn != NULL) != expected)
            fail_msg("%s", ir_info((ir_opcode)op)->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_op_case),
                                       cmocka_unit_test(every_op_has_a_body)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
