/* The engine of `millet predict`: tensors of other dtypes, names of results, errors. (Numbers:
 * golden/test_cases.c.) */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/num.h"
#include "checkpoint/safetensors.h"
#include "runtime/calls.h"
#include "work_dir.h"
#include <math.h>

/* op_state: x fp16[1,4] and pos int32[1]; acc = acc / 2 + x, a = acc + 1. */
static bool predict(const st_tensor *in, size_t n, const char *calls, const char *const *values,
                    size_t n_values, err *e) {
    *e = (err){0};
    assert_true(st_write(in_work("in.safetensors"), in, n, e));
    char package[1100];
    snprintf(package, sizeof package, "%s", test_case_path("coreml/op_state.mlpackage"));
    calls_options o = {.package = package,
                       .inputs = in_work("in.safetensors"),
                       .output = in_work("out.safetensors"),
                       .calls = calls,
                       .n_calls = calls ? strlen(calls) : 0,
                       .calls_name = "calls.json",
                       .values = values,
                       .n_values = n_values,
                       .mode = RT_STRICT};
    return calls_predict(&o, e);
}

static double at(const st_file *f, const char *name, uint64_t i) {
    const st_tensor *t = st_find(f, name);
    if (!t) fail_msg("no tensor %s", name);
    const ir_const c = {.type = t->type, .data = t->data};
    double v = NAN;
    assert_true(ir_const_number(&c, i, &v));
    return v;
}

static const int64_t wide_pos[1] = {3};
static const float wide_x[4] = {1, 2.00048828125f, -3, 0.5f};
static const st_tensor wide[2] = {
    {.name = "x", .type = {.kind = IR_TENSOR, .dtype = DT_FP32, .rank = 2, .dim = {1, 4}}, .data = wide_x},
    {.name = "pos", .type = {.kind = IR_TENSOR, .dtype = DT_INT64, .rank = 1, .dim = {1}}, .data = wide_pos}};

static void other_dtypes_are_converted(void **state) {
    (void)state;
    err e;
    if (!predict(wide, 2, NULL, NULL, 0, &e)) fail_msg("%s", e.msg);
    st_file *f = st_open(in_work("out.safetensors"), &e);
    assert_non_null(f);
    assert_int_equal(st_count(f), 3);
    assert_int_equal(st_find(f, "a")->type.dtype, DT_FP16); /* as the package declares */
    assert_float_equal(at(f, "a", 1), 3, 0); /* 2.00048828125 lies between two halves: 2 is the even one */
    assert_float_equal(at(f, "a", 2), -2, 0);
    st_close(f);
}

static void calls_name_their_results(void **state) {
    (void)state;
    err e;
    const char *calls = "{\"calls\": [{\"state\": \"A\", \"inputs\": {\"x\": \"x\", \"pos\": \"pos\"}, "
                        "\"states_after\": {\"acc\": 0}},"
                        "{\"state\": \"A\", \"function\": \"main\", \"inputs\": {\"x\": \"x\", \"pos\": "
                        "\"pos\"}, \"outputs\": {\"a\": 0}},"
                        "{\"state\": null, \"inputs\": {\"x\": \"x\", \"pos\": \"pos\"}}]}";
    if (!predict(wide, 2, calls, NULL, 0, &e)) fail_msg("%s", e.msg);
    st_file *f = st_open(in_work("out.safetensors"), &e);
    assert_non_null(f);
    assert_int_equal(st_count(f), 10);
    assert_float_equal(at(f, "call0.state.acc", 0), 1, 0);
    double first = at(f, "call0.out.a", 0);
    assert_true(fabs(at(f, "call1.out.a", 0) - first) > 0.1); /* the state went on */
    assert_float_equal(at(f, "call2.out.a", 0), first, 0);    /* fresh states */
    st_close(f);
}

static void errors_are_clear(void **state) {
    (void)state;
    err e;
    static const float big[4] = {1, 70000, 0, 0}, whole[1] = {3};
    static const int64_t far[1] = {INT64_C(1) << 40};
    st_tensor in[2] = {wide[0], wide[1]};
    in[0].data = big;
    assert_false(predict(in, 2, NULL, NULL, 0, &e));
    assert_non_null(strstr(e.msg, "tensor x: element 1 is 70000, which fp16 can't hold"));
    in[0] = wide[0];
    in[1].data = far;
    assert_false(predict(in, 2, NULL, NULL, 0, &e));
    assert_non_null(strstr(e.msg, "tensor pos: element 0 is"));
    in[1].data = whole;
    in[1].type.dtype = DT_FP32;
    assert_false(predict(in, 2, NULL, NULL, 0, &e));
    assert_non_null(strstr(e.msg, "tensor pos is fp32, the input is int32"));
    assert_false(predict(wide, 1, NULL, NULL, 0, &e));
    assert_non_null(strstr(e.msg, "needs input pos"));
    static const char *const values[] = {"nowhere"};
    assert_false(predict(wide, 2, NULL, values, 1, &e));
    assert_non_null(strstr(e.msg, "no value nowhere"));

    const struct {
        const char *calls, *expected;
    } bad[] = {{"{", "calls.json"},
               {"{\"calls\": {}}", "no array \"calls\""},
               {"{\"calls\": [1]}", "call 0: must be an object"},
               {"{\"calls\": [{\"inputs\": {\"x\": 1}}]}", "the value of x must be the key of a tensor"},
               {"{\"calls\": [{\"inputs\": {\"x\": \"y\"}}]}", "there is no tensor y for input x"},
               {"{\"calls\": [{\"function\": \"f\"}]}", "no function f"},
               {"{\"calls\": [{\"state\": 7}]}", "\"state\" must be a string"},
               {"{\"calls\": [{\"inputs\": {\"x\": \"x\", \"pos\": \"pos\"}, \"outputs\": {\"q\": 0}}]}",
                "no output q"},
               {"{\"calls\": [{\"inputs\": {\"x\": \"x\", \"pos\": \"pos\"}, \"states_after\": {\"q\": 0}}]}",
                "no state q"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(predict(wide, 2, bad[i].calls, NULL, 0, &e));
        if (!strstr(e.msg, bad[i].expected)) fail_msg("\"%s\" instead of \"%s\"", e.msg, bad[i].expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_dtypes_are_converted),
                                       cmocka_unit_test(calls_name_their_results),
                                       cmocka_unit_test(errors_are_clear)};
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
