/* What no CPU can run is refused by name when it is to run: an input that is an image (readers take it: tools
 * may look at such packages). Custom layers, unknown ops and neural networks: test_coreml_hostile.c. */
#include "proto.h"
#include "runtime/session.h"
#include "test.h"

#define F32 11

static void images(void **state) {
    (void)state;
    proto_arena = arena_new();
    /* FeatureDescription: name, type (3) = image (4) of 2 x 2, grayscale (10); array of fp32 (65568) */
    bytes image = M(1, S(1, "photo"), M(3, M(4, I(1, 2), I(2, 2), I(3, 10))));
    bytes array = M(10, S(1, "y"), M(3, M(5, I(1, 1), I(1, 1), I(1, 2), I(1, 2), I(2, 65568))));
    bytes in = NAMED(1, "photo", TENSOR(F32, 4, dim(1), dim(1), dim(2), dim(2)));
    bytes relu = M(3, S(1, "relu"), BOUND("x", "photo"),
                   NAMED(3, "y", TENSOR(F32, 4, dim(1), dim(1), dim(2), dim(2))), OPNAME("op_y"));
    bytes model = MODEL(in, P(image, array), S(2, "y"), relu);
    err e = {0};
    rt_model *m = rt_model_open_memory(model.p, model.n, &e);
    if (!m) fail_msg("%s", e.msg);
    rt_session *s = rt_session_new(m, RT_FAST, &e);
    static const float x[4] = {1, 2, 3, 4};
    const rt_tensor t = {"photo", IR_TYPE(DT_FP32, 1, 1, 2, 2), x};
    rt_tensor out[1];
    rt_call c = {.in = &t, .n_in = 1, .out = out};
    assert_false(rt_run(s, &c, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_string_equal(e.msg,
                        "function main: input photo is no multi-array (image), and only such can be fed or "
                        "returned: convert the model with a tensor in its place");
    rt_session_free(s);
    rt_model_close(m);
    arena_free(proto_arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(images)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
