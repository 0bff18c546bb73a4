/* Sessions: states (values, sharing, snapshots, in-place updates), number modes, checks of inputs, run-time
 * errors, inner values, threads. Expected numbers are worked out by hand. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/num.h"
#include "ir/build.h"
#include "reference/frame.h"
#include "runtime/session.h"
#include "work_dir.h"
#include <math.h>
#include <pthread.h>

/* Writes the program as a package and opens it. edit may change the description. */
static rt_model *open_program(ir_program *p, void (*edit)(coreml_model *m)) {
    err e = {0};
    char path[128];
    static int serial;
    snprintf(path, sizeof path, "%s/%d.mlpackage", work_dir, serial++);
    coreml_model *m = coreml_model_new(p->a, p, 9);
    if (edit) edit(m);
    coreml_write_options o = {0};
    if (!coreml_write(path, m, &o, &e)) fail_msg("%s", e.msg);
    rt_model *r = rt_model_open(path, &e);
    if (!r) fail_msg("%s", e.msg);
    return r;
}

static rt_tensor halves(arena *a, const char *name, ir_type t, const float *v) {
    size_t n = (size_t)ir_type_count(&t);
    uint16_t *h = arena_array(a, n, 2);
    num_f32_to_f16(h, v, n);
    return (rt_tensor){name, t, h};
}

static double at(const rt_tensor *t, uint64_t i) {
    const ir_const c = {.type = t->type, .data = t->data};
    double v = NAN;
    assert_true(ir_const_number(&c, i, &v));
    return v;
}

static rt_session *session(const rt_model *m, rt_mode mode) {
    err e = {0};
    rt_session *s = rt_session_new(m, mode, &e);
    assert_non_null(s);
    return s;
}

/* A cache of 4 rows of 2: function "put" writes x to row pos; it returns the sum of the cache as it was read
 * (taken after the write) and as it is then. Function "look" returns the cache. */
static void build_put(ir_program *p, bool late_look) {
    err e = {0};
    ir_builder b = ir_build(p, "put", 9, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, 2)), *pos = b_input(&b, "pos", IR_TYPE(DT_INT32, 1));
    ir_value *k = b_state(&b, "k", IR_TYPE(DT_FP16, 4, 2));
    ir_value *old = b_op(&b, OP_read_state, "old", A_input, k, A_NONE);
    ir_value *next = b_op(&b, OP_add, "next", A_x, pos, A_y, B_INTS(&b, 1), A_NONE);
    ir_value *from[2] = {pos, B_INTS(&b, 0)}, *to[2] = {next, B_INTS(&b, 2)};
    ir_value *begin = b_opv(&b, OP_concat, "from", A_values, from, 2, A_axis, b_i32(&b, 0), A_NONE);
    ir_value *end = b_opv(&b, OP_concat, "to", A_values, to, 2, A_axis, b_i32(&b, 0), A_NONE);
    ir_value *u = b_op(&b, OP_slice_update, "u", A_x, old, A_update, x, A_begin, begin, A_end, end, A_NONE);
    b_op_multi(&b, OP_write_state, "w", NULL, 0, A_input, k, A_data, u, A_NONE);
    ir_value *now = b_op(&b, OP_read_state, "now", A_input, k, A_NONE);
    b_output(&b, b_op(&b, OP_reduce_sum, "after", A_x, now, A_axes, B_INTS(&b, 0, 1), A_keep_dims,
                      b_bool(&b, true), A_NONE));
    if (late_look)
        b_output(&b, b_op(&b, OP_reduce_sum, "before", A_x, old, A_axes, B_INTS(&b, 0, 1), A_keep_dims,
                          b_bool(&b, true), A_NONE));
    if (e.code) fail_msg("%s", e.msg);
    ir_build_end(&b);
}

static void build_look(ir_program *p) {
    err e = {0};
    ir_builder b = ir_build(p, "look", 9, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1));
    ir_value *k = b_state(&b, "k", IR_TYPE(DT_FP16, 4, 2));
    b_output(&b,
             b_op(&b, OP_add, "y", A_x, b_op(&b, OP_read_state, "r", A_input, k, A_NONE), A_y, x, A_NONE));
    if (e.code) fail_msg("%s", e.msg);
    ir_build_end(&b);
}

static bool put(rt_session *s, float a, float b, int32_t pos, rt_tensor *out, err *e) {
    arena *mem = arena_new();
    int32_t where[1] = {pos};
    rt_tensor in[2] = {halves(mem, "x", IR_TYPE(DT_FP16, 1, 2), (float[]){a, b}),
                       {"pos", IR_TYPE(DT_INT32, 1), where}};
    rt_call c = {.function = "put", .in = in, .n_in = 2, .out = out};
    bool ok = rt_run(s, &c, e);
    arena_free(mem);
    return ok;
}

static double look(rt_session *s, uint64_t i) {
    arena *mem = arena_new();
    err e = {0};
    rt_tensor in = halves(mem, "x", IR_TYPE(DT_FP16, 1), (float[]){0}), out[1];
    rt_call c = {.function = "look", .in = &in, .n_in = 1, .out = out};
    if (!rt_run(s, &c, &e)) fail_msg("%s", e.msg);
    arena_free(mem);
    return at(&out[0], i);
}

static void states_have_value_semantics(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        arena *a = arena_new();
        ir_program *p = ir_program_new(a);
        err e = {0};
        build_put(p, true);
        build_look(p);
        rt_model *m = open_program(p, NULL);
        rt_session *s = session(m, mode ? RT_FAST : RT_STRICT), *other = session(m, RT_STRICT);
        rt_tensor out[2];
        assert_true(put(s, 1, 2, 0, out, &e));
        assert_true(put(s, 10, 20, 3, out, &e));
        assert_float_equal(at(&out[0], 0), 33, 0); /* after */
        assert_float_equal(at(&out[1], 0), 3, 0);  /* a read keeps the value of its moment */
        assert_float_equal(look(s, 7), 20, 0);     /* one state for both functions */
        assert_float_equal(look(other, 7), 0, 0);  /* sessions are separate */
        rt_session_free(s);
        rt_session_free(other);
        rt_model_close(m);
        arena_free(a);
    }
}

static void snapshots_copies_sets(void **state) {
    (void)state;
    arena *a = arena_new();
    ir_program *p = ir_program_new(a);
    err e = {0};
    build_put(p, false);
    build_look(p);
    rt_model *m = open_program(p, NULL);
    rt_session *s = session(m, RT_FAST), *t = session(m, RT_FAST);
    rt_tensor out[2], k;
    assert_true(put(s, 1, 2, 0, out, &e));
    rt_snapshot *snap = rt_snapshot_take(s, &e);
    assert_true(rt_state_copy(t, s, &e));
    assert_true(put(s, 5, 5, 0, out, &e)); /* in place only where nobody else holds the cells */
    assert_float_equal(look(t, 0), 1, 0);
    assert_true(put(t, 7, 7, 1, out, &e));
    assert_float_equal(look(s, 2), 0, 0);
    assert_true(rt_snapshot_restore(s, snap, &e));
    assert_float_equal(look(s, 0), 1, 0);
    rt_snapshot_free(snap);
    assert_float_equal(look(s, 1), 2, 0);

    assert_int_equal(rt_state_count(s), 1);
    assert_string_equal(rt_state_name(s, 0), "k");
    assert_true(rt_state_get(t, "k", &k, &e));
    assert_float_equal(at(&k, 3), 7, 0);
    assert_true(rt_state_set(s, "k", &k, &e));
    assert_float_equal(look(s, 3), 7, 0);
    rt_state_reset(s);
    assert_float_equal(look(s, 3), 0, 0);
    assert_false(rt_state_get(s, "none", &k, &e));
    assert_non_null(strstr(e.msg, "no state none"));
    e = (err){0};
    k = halves(a, "k", IR_TYPE(DT_FP16, 2, 4), (float[8]){0});
    assert_false(rt_state_set(s, "k", &k, &e));
    assert_non_null(strstr(e.msg, "state k is fp16[4,2], not fp16[2,4]"));
    rt_session_free(s);
    rt_session_free(t);
    rt_model_close(m);
    arena_free(a);
}

/* The evaluator itself: a cache that is read, updated and written back keeps its memory, unless the old value
 * is needed once more. */
static void caches_are_updated_in_place(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        arena *a = arena_new();
        ir_program *p = ir_program_new(a);
        err e = {0};
        build_put(p, late);
        ref_frame *f = ref_frame_new(ref_plan_new(a, p->func[0]), REF_FAST, &e);
        ref_tensor in[3] = {0}, k;
        ir_type t = IR_TYPE(DT_FP16, 4, 2);
        assert_true(ref_tensor_new(&k, &t, &e));
        memset(k.cell, 0, 32);
        ref_buf_set_half(k.buf, true);
        assert_true(ref_tensor_new(&in[0], &p->func[0]->in[0]->type, &e));
        assert_true(ref_tensor_new(&in[1], &p->func[0]->in[1]->type, &e));
        ref_floats(&in[0])[0] = 2049; /* no half: states round, in fast mode too */
        ref_floats(&in[0])[1] = 1;
        ref_ints(&in[1])[0] = 2;
        ref_tensor *states[3] = {NULL, NULL, &k};
        ref_cell *before = k.cell;
        ref_frame_call call = {.in = in, .state = states};
        if (!ref_frame_run(f, &call, &e)) fail_msg("%s", e.msg);
        assert_int_equal(k.cell == before, !late);
        assert_float_equal(ref_floats(&k)[4], 2048, 0);
        assert_float_equal(ref_floats(ref_frame_result(f, 0, &e))[0], 2049, 0);
        ref_tensor_drop(&in[0]);
        ref_tensor_drop(&in[1]);
        ref_tensor_drop(&k);
        ref_frame_free(f);
        arena_free(a);
    }
}

static void errors_at_run_time_reset_states(void **state) {
    (void)state;
    arena *a = arena_new();
    ir_program *p = ir_program_new(a);
    err e = {0};
    build_put(p, false);
    build_look(p);
    rt_model *m = open_program(p, NULL);
    rt_session *s = session(m, RT_FAST);
    rt_tensor out[2];
    assert_true(put(s, 1, 2, 0, out, &e));
    assert_false(put(s, 1, 2, 4, out, &e));
    assert_non_null(strstr(e.msg, "op u (slice_update): end 5 passes the 4 elements of dimension 0"));
    assert_float_equal(look(s, 0), 0, 0);
    rt_session_free(s);
    rt_model_close(m);
    arena_free(a);
}

/* y = (x + 1) + 1 and z = fp32(fp16(w)) */
static void number_modes(void **state) {
    (void)state;
    arena *a = arena_new();
    ir_program *p = ir_program_new(a);
    err e = {0};
    ir_builder b = ir_build(p, "main", 9, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1)), *w = b_input(&b, "w", IR_TYPE(DT_FP32, 1));
    ir_value *one = b_f16(&b, 1);
    ir_value *once = b_op(&b, OP_add, "once", A_x, x, A_y, one, A_NONE);
    b_output(&b, b_op(&b, OP_add, "y", A_x, once, A_y, one, A_NONE));
    ir_value *h = b_op(&b, OP_cast, "h", A_x, w, A_dtype, b_text(&b, "fp16"), A_NONE);
    b_output(&b, b_op(&b, OP_cast, "z", A_x, h, A_dtype, b_text(&b, "fp32"), A_NONE));
    if (e.code) fail_msg("%s", e.msg);
    ir_build_end(&b);
    rt_model *m = open_program(p, NULL);
    float wide[1] = {2049};
    rt_tensor in[2] = {halves(a, "x", IR_TYPE(DT_FP16, 1), (float[]){2048}),
                       {"w", IR_TYPE(DT_FP32, 1), wide}},
              out[3];
    const char *values[] = {"once"};
    for (int mode = 0; mode < 2; mode++) {
        rt_session *s = session(m, mode ? RT_FAST : RT_STRICT);
        rt_call c = {.in = in, .n_in = 2, .out = out, .values = values, .n_values = 1};
        if (!rt_run(s, &c, &e)) fail_msg("%s", e.msg);
        assert_int_equal(c.n_out, 2);
        assert_float_equal(at(&out[0], 0), mode ? 2050 : 2048,
                           0);                       /* 2049 is no half: each step falls back to 2048 */
        assert_float_equal(at(&out[1], 0), 2048, 0); /* an explicit cast rounds in both modes */
        assert_string_equal(out[2].name, "once");
        assert_float_equal(at(&out[2], 0), 2048, 0);
        values[0] = "nothing";
        assert_false(rt_run(s, &c, &e));
        assert_non_null(strstr(e.msg, "no value nothing"));
        values[0] = "once";
        e = (err){0};
        rt_session_free(s);
    }
    rt_model_close(m);
    arena_free(a);
}

/* softmax(x + mask) and 1 / x */
static void first_non_finite_op(void **state) {
    (void)state;
    arena *a = arena_new();
    ir_program *p = ir_program_new(a);
    err e = {0};
    ir_builder b = ir_build(p, "main", 9, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP32, 2)), *mask = b_input(&b, "mask", IR_TYPE(DT_FP32, 2));
    ir_value *sum = b_op(&b, OP_add, "masked", A_x, x, A_y, mask, A_NONE);
    b_output(&b, b_op(&b, OP_softmax, "p", A_x, sum, A_axis, b_i32(&b, 0), A_NONE));
    b_output(&b, b_op(&b, OP_real_div, "inv", A_x, b_f32(&b, 1), A_y, x, A_NONE));
    if (e.code) fail_msg("%s", e.msg);
    ir_build_end(&b);
    rt_model *m = open_program(p, NULL);
    rt_session *s = session(m, RT_STRICT);
    float xs[2] = {1, 2}, ms[2] = {0, -INFINITY};
    rt_tensor in[2] = {{"x", IR_TYPE(DT_FP32, 2), xs}, {"mask", IR_TYPE(DT_FP32, 2), ms}}, out[2];
    rt_call c = {.in = in, .n_in = 2, .out = out, .find_nonfinite = true};
    if (!rt_run(s, &c, &e)) fail_msg("%s", e.msg); /* a mask is no offence */
    ms[0] = -INFINITY;
    assert_false(rt_run(s, &c, &e));
    assert_int_equal(e.code, ERR_NUMERIC);
    assert_non_null(strstr(e.msg, "op p (softmax) is the first that makes a NaN"));
    e = (err){0};
    ms[0] = 0, xs[1] = 0;
    assert_false(rt_run(s, &c, &e));
    assert_non_null(strstr(e.msg, "op inv (real_div) is the first that makes an infinity"));
    e = (err){0};
    c.find_nonfinite = false;
    assert_true(rt_run(s, &c, &e));
    assert_true(isinf(at(&out[1], 1)));
    rt_session_free(s);
    rt_model_close(m);
    arena_free(a);
}

static void optional_y(coreml_model *m) {
    m->func[0].in[1].optional = m->func[0].in[1].has_default = true;
    m->func[0].in[1].default_value = 2.5;
}

static void inputs_are_checked(void **state) {
    (void)state;
    arena *a = arena_new();
    ir_program *p = ir_program_new(a);
    err e = {0};
    ir_builder b = ir_build(p, "main", 9, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 2)), *y = b_input(&b, "y", IR_TYPE(DT_FP16, 2));
    b_output(&b, b_op(&b, OP_mul, "z", A_x, x, A_y, y, A_NONE));
    if (e.code) fail_msg("%s", e.msg);
    ir_build_end(&b);
    rt_model *m = open_program(p, optional_y);
    rt_session *s = session(m, RT_FAST);
    rt_tensor in[2] = {halves(a, "x", IR_TYPE(DT_FP16, 2), (float[]){2, 4})}, out[1];
    rt_call c = {.in = in, .n_in = 1, .out = out};
    if (!rt_run(s, &c, &e)) fail_msg("%s", e.msg);
    assert_float_equal(at(&out[0], 1), 10, 0); /* the default of y */

    const struct {
        const char *name, *expected;
        ir_type type;
        size_t n;
    } bad[] = {{"x", "needs input x", IR_TYPE(DT_FP16, 2), 0},
               {"q", "no input q", IR_TYPE(DT_FP16, 2), 1},
               {"x", "input x is fp32[2], expected fp16[2]", IR_TYPE(DT_FP32, 2), 1},
               {"x", "input x is fp16[2,1], expected fp16[2]", IR_TYPE(DT_FP16, 2, 1), 1},
               {"x", "input x is fp16[1], expected fp16[2]", IR_TYPE(DT_FP16, 1), 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e = (err){0};
        in[0].name = bad[i].name;
        in[0].type = bad[i].type;
        c.n_in = bad[i].n;
        assert_false(rt_run(s, &c, &e));
        if (!strstr(e.msg, bad[i].expected)) fail_msg("\"%s\" instead of \"%s\"", e.msg, bad[i].expected);
    }
    e = (err){0};
    c.function = "nope";
    assert_false(rt_run(s, &c, &e));
    assert_non_null(strstr(e.msg, "no function nope"));
    rt_session_free(s);
    rt_model_close(m);
    arena_free(a);
}

/* Flexible shapes of the shared cases: sizes outside of the description. */
static void flexible_shapes_are_checked(void **state) {
    (void)state;
    err e = {0};
    char path[1100];
    snprintf(path, sizeof path, "%s/op_enumerated_shapes.mlpackage", test_case_path("coreml"));
    rt_model *m = rt_model_open(path, &e);
    if (!m) fail_msg("%s", e.msg);
    rt_session *s = session(m, RT_FAST);
    arena *a = arena_new();
    float zeros[3 * 16] = {0};
    rt_tensor in = halves(a, "x", IR_TYPE(DT_FP16, 1, 3, 16), zeros), out[8];
    rt_call c = {.in = &in, .n_in = 1, .out = out};
    assert_false(rt_run(s, &c, &e));
    assert_non_null(strstr(e.msg, "input x is fp16[1,3,16], expected one of its enumerated shapes"));
    rt_session_free(s);
    rt_model_close(m);
    arena_free(a);
}

/* while (true): ends with an error. The loop's condition returns a constant. */
static void endless_loops_end(void **state) {
    (void)state;
    arena *a = arena_new();
    ir_program *p = ir_program_new(a);
    err e = {0};
    ir_function *f = ir_function_new(p, "main", 9);
    ir_value *x = ir_value_new(p, f, "x", IR_TYPE(DT_INT32, 1));
    ir_add_input(p, f, x);
    ir_op *yes = ir_add_op(p, &f->body, OP_const, 1);
    static const uint8_t on = 1;
    yes->out[0] = ir_value_new(p, f, "yes", ir_scalar(DT_BOOL));
    yes->out[0]->konst = ir_const_new(a, ir_scalar(DT_BOOL), &on);
    ir_op *loop = ir_add_op(p, &f->body, OP_while_loop, 1);
    loop->out[0] = ir_value_new(p, f, "y", x->type);
    ir_set_args(p, loop, A_loop_vars, &x, 1);
    loop->block = ARENA_ARRAY(a, ir_block *, 2);
    loop->n_block = 2;
    for (int i = 0; i < 2; i++) {
        ir_block *b = loop->block[i] = ARENA_NEW(a, ir_block);
        b->in = ARENA_ARRAY(a, ir_value *, 1);
        b->out = ARENA_ARRAY(a, ir_value *, 1);
        b->n_in = b->n_out = 1;
        b->in[0] = ir_value_new(p, f, i ? "v" : "u", x->type);
        b->out[0] = i ? b->in[0] : yes->out[0];
    }
    f->body.out = loop->out;
    f->body.n_out = 1;
    ref_frame *frame = ref_frame_new(ref_plan_new(a, f), REF_STRICT, &e);
    ref_tensor in = {0}, *none = NULL;
    assert_true(ref_tensor_new(&in, &x->type, &e));
    ref_ints(&in)[0] = 1;
    ref_frame_call call = {.in = &in, .state = &none};
    assert_false(ref_frame_run(frame, &call, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_non_null(strstr(e.msg, "loop iterations"));
    ref_tensor_drop(&in);
    ref_frame_free(frame);
    arena_free(a);
}

typedef struct {
    const rt_model *m;
    const rt_snapshot *snap;
    double sum;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    err e = {0};
    rt_session *s = rt_session_new(w->m, RT_FAST, &e);
    rt_tensor out[2];
    if (!s || !rt_snapshot_restore(s, w->snap, &e)) return NULL;
    for (int i = 0; i < 40; i++)
        if (!put(s, (float)i, 1, i % 4, out, &e)) return NULL;
    w->sum = at(&out[0], 0);
    rt_session_free(s);
    return w;
}

/* Four sessions over one model and one snapshot. */
static void sessions_on_threads(void **state) {
    (void)state;
    arena *a = arena_new();
    ir_program *p = ir_program_new(a);
    err e = {0};
    build_put(p, false);
    rt_model *m = open_program(p, NULL);
    rt_session *s = session(m, RT_FAST);
    rt_tensor out[2];
    assert_true(put(s, 1, 2, 0, out, &e));
    rt_snapshot *snap = rt_snapshot_take(s, &e);
    pthread_t thread[4];
    worker w[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (worker){m, snap, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *ok;
        pthread_join(thread[i], &ok);
        assert_non_null(ok);
        assert_float_equal(w[i].sum, 36 + 37 + 38 + 39 + 4, 0);
    }
    rt_snapshot_free(snap);
    rt_session_free(s);
    rt_model_close(m);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_have_value_semantics),
        cmocka_unit_test(snapshots_copies_sets),
        cmocka_unit_test(caches_are_updated_in_place),
        cmocka_unit_test(errors_at_run_time_reset_states),
        cmocka_unit_test(number_modes),
        cmocka_unit_test(first_non_finite_op),
        cmocka_unit_test(inputs_are_checked),
        cmocka_unit_test(flexible_shapes_are_checked),
        cmocka_unit_test(endless_loops_end),
        cmocka_unit_test(sessions_on_threads),
    };
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
