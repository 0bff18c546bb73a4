/* Times of a plan's steps: what must hold whatever they are. */
#include "base/clock.h"
#include "ir/build.h"
#include "plan/profile.h"
#include "test.h"

enum { N = 3, COLS = 64, ROWS = 96, RUNS = 20, WORKERS = 3 };

/* y = W silu(x) in layer 3, W fp16. */
static ir_function *build(ir_program *p, err *e) {
    ir_builder b = ir_build(p, "f", 9, e);
    static float w[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) w[i] = 0.001f * (float)(i % 500);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP32, N, COLS));
    ir_value *s = b_op(&b, OP_silu, "gate", A_x, x, A_NONE);
    ir_value *c = b_op(&b, OP_cast, "model.layers.3.gate16", A_x, s, A_dtype, b_text(&b, "fp16"), A_NONE);
    b_output(&b, b_op(&b, OP_linear, "layer_3_up_proj", A_x, c, A_weight,
                      b_floats(&b, DT_FP16, w, IR_TYPE(DT_FP16, ROWS, COLS)), A_NONE));
    ir_build_end(&b);
    return p->func[0];
}

static plan *plan_of(const ir_function *f, err *e) {
    kern_table kernels;
    kern_rounded ops;
    kern_ops fast;
    assert_true(kern_open(&kernels, getenv("MILLET_ISA"), e));
    assert_true(kern_ops_open(&fast, getenv("MILLET_ISA"), e));
    kern_rounded_open(&ops, getenv("MILLET_ISA"));
    ir_type in = IR_TYPE(DT_FP32, N, COLS);
    return plan_new(f, &in, &(plan_options){.kernels = &kernels, .ops = &ops, .fast = &fast}, e);
}

static double sum_of(const plan_profile *m, unsigned worker) {
    double sum = 0;
    for (size_t i = 0; i <= plan_profile_steps(m); i++) {
        plan_lap lap = plan_profile_lap(m, worker, i);
        assert_true(lap.work >= 0 && lap.wait >= 0);
        assert_true(lap.last >= 0 && lap.last <= lap.work * (1 + 1e-9));
        sum += lap.work + lap.wait;
    }
    return sum;
}

/* Every moment of a walk is some step's, for every worker. */
static void test_laps(void **state) {
    (void)state;
    arena *a = arena_new();
    err e = {0};
    plan *p = plan_of(build(ir_program_new(a), &e), &e);
    if (!p) fail_msg("%s", e.msg);
    plan_exec *x = plan_exec_new(p, &e);
    plan_block *block = plan_block_new();
    team *t = team_new(WORKERS, false);
    plan_profile *m = plan_profile_new(p, team_size(t));
    assert_non_null(m);
    ref_tensor in, out = {0};
    const ir_type type = IR_TYPE(DT_FP32, N, COLS);
    assert_true(ref_tensor_new(&in, &type, &e));
    for (int i = 0; i < N * COLS; i++) ref_floats(&in)[i] = 0.01f * (float)i;
    void *none = NULL;
    double start = clock_seconds();
    for (int i = 0; i < RUNS; i++) {
        if (!plan_run(x, &(plan_call){&in, &out, &none, t, block, false, i ? m : NULL, NULL}, &e))
            fail_msg("%s", e.msg);
        ref_tensor_drop(&out);
    }
    double whole = clock_seconds() - start;
    assert_int_equal(plan_profile_runs(m), RUNS - 1); /* the first was not measured */
    assert_int_equal(plan_profile_workers(m), team_size(t));
    double first = sum_of(m, 0);
    assert_true(first > 0 && first <= whole);
    for (unsigned w = 1; w < team_size(t);
         w++) /* all that differs is rounding of sums of some hundred times */
        assert_true(sum_of(m, w) > first * (1 - 1e-9) && sum_of(m, w) < first * (1 + 1e-9));
    for (size_t i = 0; i < plan_profile_steps(m); i++) {
        double work = 0;
        for (unsigned w = 0; w < team_size(t); w++) work += plan_profile_lap(m, w, i).work;
        assert_true(plan_profile_least(m, i) > 0 &&
                    plan_profile_least(m, i) * (RUNS - 1) <= work * (1 + 1e-9));
    }
    plan_profile_free(m);
    ref_tensor_drop(&in);
    team_free(t);
    plan_block_free(block);
    plan_exec_free(x);
    plan_free(p);
    arena_free(a);
}

static void test_steps(void **state) {
    (void)state;
    arena *a = arena_new();
    err e = {0};
    plan *p = plan_of(build(ir_program_new(a), &e), &e);
    if (!p) fail_msg("%s", e.msg);
    plan_profile *m = plan_profile_new(p, 1);
    size_t linears = 0, in_layer = 0;
    for (size_t i = 0; i < plan_profile_steps(m); i++) {
        plan_step_info s = plan_profile_step(m, i);
        assert_false(s.slow);
        in_layer += s.layer == 3;
        assert_true(s.layer == 3 || s.layer == -1);
        if (!s.rows) continue;
        linears++;
        assert_int_equal(s.rows, ROWS);
        assert_int_equal(s.cols, COLS);
        assert_int_equal(s.n, N);
        assert_int_equal(s.layer, 3);
        assert_int_equal(s.bytes, 2 * ROWS * COLS); /* fp16 */
        assert_true(s.flops == 2.0 * N * ROWS * COLS);
        assert_string_equal(s.op, "linear");
        assert_string_equal(s.result, "layer_3_up_proj");
    }
    assert_int_equal(linears, 1);
    assert_true(in_layer >= 1);
    plan_profile_free(m);
    plan_free(p);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_laps), cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
