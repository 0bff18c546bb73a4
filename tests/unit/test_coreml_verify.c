/* The rules about descriptions: each broken alone, in a model that is otherwise in order. The rules
 * themselves are those of coremltools' open validators and of Core ML (facts/coreml.md 6). */
#include "coreml/model.h"
#include "ir/build.h"
#include "test.h"

static coreml_model *m;
static coreml_function *f; /* "main" */

/* y = x + 1; z = s read; with a state s. */
static int setup(void **state) {
    (void)state;
    err e = {0};
    arena *a = arena_new();
    ir_program *p = ir_program_new(a);
    ir_builder b = ir_build(p, "main", 9, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, 64)), *w = b_input(&b, "w", IR_TYPE(DT_FP32, -1, 2));
    ir_value *s = b_state(&b, "s", IR_TYPE(DT_FP16, 1, 64));
    b_output(&b,
             b_op(&b, OP_add, "y", A_x, x, A_y, b_op(&b, OP_read_state, "r", A_input, s, A_NONE), A_NONE));
    b_output(&b, b_op(&b, OP_relu, "v", A_x, w, A_NONE));
    ir_build_end(&b);
    assert_int_equal(e.code, ERR_NONE);
    m = coreml_model_new(a, p, 9);
    f = m->func;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    arena_free(m->a);
    return 0;
}

typedef struct {
    const char *rule, *text;
    int count, hits;
} expected;

static bool on_report(void *ctx, const char *rule, const char *message) {
    expected *x = ctx;
    x->count++;
    x->hits += !strcmp(rule, x->rule) && strstr(message, x->text);
    return true;
}

/* This rule is reported, in these words. */
static void broken(const char *rule, const char *text) {
    err e = {0};
    expected x = {rule, text, 0, 0};
    assert_false(coreml_verify(m, on_report, &x, &e));
    if (x.hits != 1)
        fail_msg("%d violations, %d times \"%s: %s\"; first: %s", x.count, x.hits, rule, text, e.msg);
    e = (err){0};
    assert_false(coreml_verify(m, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_INVALID);
}

static void in_order(void) {
    err e = {0};
    if (!coreml_verify(m, NULL, NULL, &e)) fail_msg("%s", e.msg);
}

static void a_made_description_is_in_order(void **state) {
    (void)state;
    in_order();
    assert_false(m->multifunction);
    assert_int_equal(f->n_in, 2);
    assert_int_equal(f->n_state, 1);
    assert_int_equal(f->n_out, 2);
    assert_int_equal(f->in[1].range[0].upper, -1);
    assert_int_equal(f->in[1].range[1].upper, 2);
    assert_true(f->out[1].no_shape);
    coreml_add_user(m, "k", "1");
    coreml_add_user(m, "l", "2");
    coreml_add_user(m, "k", "3");
    assert_int_equal(m->n_user, 2);
    assert_string_equal(m->user[0].value, "3");
}

static void names(void **state) {
    (void)state;
    f->in[0].name = "";
    broken("feature-name", "without a name");
    f->in[0].name = "q";
    broken("description", "the program has no input q");
    broken("description", "input x of the program is not described");
    f->in[0].name = "w";
    broken("duplicate-feature", "w is listed twice");
    f->in[0].name = "s";
    broken("duplicate-feature", "s is listed twice");
    f->in[0].name = "x";
    f->out[0].name = "q";
    broken("description", "output y of the program is not described");
    f->out[0].name = "y";
    f->state[0].name = "q";
    broken("description", "state s of the program is not described");
    f->state[0].name = "s";
    coreml_feature first = f->out[0];
    f->out[0] = f->out[1], f->out[1] = first;
    broken("output-order", "output 0 is v in the description and y in the program");
}

static void types(void **state) {
    (void)state;
    f->in[0].type.dtype = DT_FP32;
    broken("description", "input x is fp16[1,64] in the program and fp32[1,64] in the description");
    f->in[0].type.dtype = DT_BOOL;
    broken("feature-type", "x: bool[1,64] is not allowed with specification version 9");
    f->in[0].type.dtype = DT_FP16;
    f->in[0].type.dim[1] = 32;
    broken("description", "input x has shape fp16[1,64] in the program and fp16[1,32] in the description");
    f->in[0].type.dim[1] = 64;
    f->out[0].type.rank = 1;
    broken("description", "output y has shape");
    f->out[0].type.rank = 2;
    f->out[0].optional = true;
    broken("optional", "output y is optional");
    f->out[0].optional = false;
    f->in[0].optional = f->in[1].optional = true;
    broken("optional", "all inputs are optional");
    f->in[0].optional = false;
    in_order();
    f->in[0].type.dim[0] = -1;
    broken("feature-shape", "size -1 of dimension 0");
}

static void versions(void **state) {
    (void)state;
    m->spec = 8;
    broken("state", "states need specification version 9, this is 8");
    m->spec = 6;
    broken("feature-type", "x: fp16[1,64] is not allowed with specification version 6");
    broken("opset", "function main uses opset CoreML8, specification version 6 has CoreML5");
    m->spec = 11;
    broken("version", "specification version 11");
    m->spec = 10;
    in_order();
}

static void flexible_shapes(void **state) {
    (void)state;
    coreml_feature *w = &f->in[1];
    coreml_range range[2] = {{2, 8}, {2, 2}};
    const coreml_range *any = w->range;
    w->range = range;
    broken("default-shape", "w: default size 1 of dimension 0 is outside its range");
    w->type.dim[0] = 2;
    in_order();
    range[0].lower = 9;
    broken("range", "w: dimension 0 ranges from 9 to 8");
    range[0] = (coreml_range){1, 8};
    range[1].upper = 3;
    broken("description", "input w has shape fp32[?,2] in the program");
    w->range = NULL;
    broken("description", "input w has unknown sizes in the program and a fixed shape in the description");
    int64_t shapes[129][IR_MAX_RANK] = {{2, 2}, {3, 2}};
    w->shapes = (const int64_t(*)[IR_MAX_RANK])shapes;
    w->n_shapes = 2;
    in_order();
    w->type.dim[0] = 4;
    broken("default-shape", "w: the default shape is not among the enumerated ones");
    w->type.dim[0] = 3;
    for (int i = 2; i < 129; i++) shapes[i][0] = i, shapes[i][1] = 2;
    w->n_shapes = 129;
    broken("enumerated-shapes", "w: 129 shapes, at most 128");
    w->n_shapes = 0;
    w->no_shape = true;
    broken("feature-shape", "input w has no shape");
    w->no_shape = false;
    w->range = any;
    f->in[0].range = (const coreml_range[]){{1, 1}, {1, 64}};
    broken("description", "input x has shape fp16[1,64] in the program");
}

static void default_values(void **state) {
    (void)state;
    coreml_feature *x = &f->in[0];
    x->has_default = true;
    broken("default-value", "input x has a default value and is not optional");
    x->optional = true;
    in_order();
    x->default_dtype = DT_INT32;
    broken("default-value", "input x: a int32 default for fp16");
    x->default_dtype = DT_FP32;
    in_order();
}

static void states(void **state) {
    (void)state;
    coreml_feature *s = &f->state[0];
    s->type.dtype = DT_FP32;
    broken("state", "s: state<fp32[1,64]> is not allowed");
    s->type.dtype = DT_FP16;
    s->optional = true;
    broken("state", "state s is optional");
    s->optional = false;
    s->has_default = true;
    broken("state", "state s has a default value");
    s->has_default = false;
    s->range = (const coreml_range[]){{1, 1}, {64, 64}};
    broken("state", "state s has a flexible shape");
    s->range = NULL;
    s->type.kind = IR_TENSOR;
    broken("state", "s is listed as a state and is none");
    s->type.kind = IR_STATE;
    f->in[0].type.kind = IR_STATE;
    broken("state", "state x is listed among the inputs");
}

static void function_lists(void **state) {
    (void)state;
    m->multifunction = true;
    in_order();
    m->default_function = "other";
    broken("functions", "the default function other is not described");
    m->default_function = "main";
    coreml_function two[2] = {*f, *f};
    m->func = two;
    m->n_func = 2;
    broken("functions", "function main is described twice");
    two[1].name = "extra";
    broken("functions", "the program has no function extra");
    m->n_func = 1;
    m->program->func[0]->name = "gone";
    broken("functions", "function gone of the program is not described");
    m->n_func = 0;
    broken("functions", "no function is described");
}

static void pipelines(void **state) {
    (void)state;
    coreml_model second = *m, whole = {.a = m->a, .spec = 9, .default_function = "main"},
                 *part[] = {m, &second}, *saved = m;
    coreml_function main_f = {.name = "main", .in = f->in, .n_in = 2, .out = f->out, .n_out = 2};
    whole.func = &main_f, whole.n_func = 1;
    whole.part = part, whole.n_part = 2;
    m = &whole;
    in_order();
    main_f.n_in = 1;
    err e = {0};
    expected x = {"pipeline", "nothing gives input w of model 0", 0, 0};
    assert_false(coreml_verify(m, on_report, &x, &e));
    assert_int_equal(x.hits, 1);
    m = saved;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_made_description_is_in_order),
        CASE(names),
        CASE(types),
        CASE(versions),
        CASE(flexible_shapes),
        CASE(default_values),
        CASE(states),
        CASE(function_lists),
        CASE(pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
