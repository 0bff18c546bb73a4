/* States that hold those of several layers: their plans against the reference evaluator, as in test_plan.c,
 * and that they are changed where they lie. */
#include "base/str.h"
#include "plan_graph.h"
#include <string.h>

enum { LAYERS = 3, HEADS = 2, DK = 8, DV = 16, CHANNELS = HEADS * (2 * DK + DV), TAPS = 4 };

static ir_value *read_all(graph *g, ir_value *state) {
    return b_op(&g->b, OP_read_state, NULL, A_input, state, A_NONE);
}

static void write_all(graph *g, ir_value *state, ir_value **next, uint32_t n) {
    ir_value *v = b_opv(&g->b, OP_concat, NULL, A_values, next, n, A_axis, b_i32(&g->b, 0), A_NONE);
    b_op_multi(&g->b, OP_write_state, NULL, NULL, 0, A_input, state, A_data, v, A_NONE);
}

/* Part i of [n,1,..], without its first axis. */
static ir_value *part(graph *g, ir_value *all, int i) {
    ir_type t = b_type(&g->b, all);
    int32_t begin[5] = {i}, end[5] = {i + 1}, own[4];
    for (int d = 1; d < t.rank; d++) end[d] = own[d - 1] = (int32_t)t.dim[d];
    ir_value *v = b_op(&g->b, OP_slice_by_index, NULL, A_x, all, A_begin, b_ints(&g->b, begin, t.rank), A_end,
                       b_ints(&g->b, end, t.rank), A_NONE);
    return shaped(g, v, b_ints(&g->b, own, t.rank - 1u));
}

static ir_value *stackable(graph *g, ir_value *v) {
    return b_op(&g->b, OP_expand_dims, NULL, A_x, v, A_axes, B_INTS(&g->b, 0), A_NONE);
}

/* Convolution of a column and the history in front of it. */
static ir_value *convolve(graph *g, ir_value *old, ir_value *x, ir_value **next) {
    ir_builder *b = &g->b;
    ir_value *all =
        b_opv(b, OP_concat, NULL, A_values, (ir_value *[]){old, x}, 2, A_axis, b_i32(b, 2), A_NONE);
    *next = stackable(g, b_op(b, OP_slice_by_index, NULL, A_x, all, A_begin, B_INTS(b, 0, 0, 1), A_end,
                              B_INTS(b, 1, CHANNELS, TAPS), A_NONE));
    return b_op(b, OP_conv, NULL, A_x, cast(g, all, "fp32"), A_weight,
                constant(g, DT_FP32, IR_TYPE(DT_FP32, CHANNELS, 1, TAPS)), A_groups, b_i32(b, CHANNELS),
                A_NONE);
}

static ir_value *product(graph *g, ir_value *x, ir_value *y) {
    return b_op(&g->b, OP_matmul, NULL, A_x, x, A_y, y, A_NONE);
}

/* One token of the gated delta rule; qkv: [1,CHANNELS,1]. */
static ir_value *delta(graph *g, ir_value *old, ir_value *qkv, ir_value **next) {
    ir_builder *b = &g->b;
    ir_value *v[3], *decay = one(g, OP_sigmoid, constant(g, DT_FP32, IR_TYPE(DT_FP32, HEADS, 1, 1, 1))),
                    *beta = constant(g, DT_FP32, IR_TYPE(DT_FP32, HEADS, 1, 1, 1));
    b_op_multi(b, OP_split, NULL, v, 3, A_x, qkv, A_split_sizes,
               B_INTS(b, HEADS * DK, HEADS * DK, HEADS * DV), A_axis, b_i32(b, 1), A_NONE);
    for (int i = 0; i < 3; i++) v[i] = shaped(g, v[i], B_INTS(b, HEADS, 1, 1, i < 2 ? DK : DV));
    ir_value *S = shaped(g, cast(g, old, "fp32"), B_INTS(b, HEADS, 1, DK, DV));
    ir_value *faded = two(g, OP_mul, S, decay);
    ir_value *error = two(g, OP_sub, v[2], product(g, v[1], faded));
    ir_value *column = two(g, OP_mul, shaped(g, v[1], B_INTS(b, HEADS, 1, DK, 1)), beta);
    S = two(g, OP_add, faded, two(g, OP_mul, column, error));
    *next = stackable(g, cast(g, shaped(g, S, B_INTS(b, 1, HEADS, DK, DV)), "fp16"));
    return product(g, v[0], S);
}

/* Each layer takes the column from the one before it. crossed: the layers' memories change places; seen: all
 * of the old memories are a result, too. */
static graph *layers(uint64_t seed, bool once, bool crossed, bool seen) {
    graph *g = begin(seed);
    ir_builder *b = &g->b;
    ir_value *x = b_input(b, "x", IR_TYPE(DT_FP16, 1, CHANNELS, 1));
    ir_value *convs = b_state(b, "convs", IR_TYPE(DT_FP16, LAYERS, 1, CHANNELS, TAPS - 1)),
             *memories = b_state(b, "memories", IR_TYPE(DT_FP16, LAYERS, 1, HEADS, DK, DV));
    ir_value *conv = NULL, *memory = NULL, *next_conv[LAYERS], *next_memory[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        if (!i || !once) conv = read_all(g, convs), memory = read_all(g, memories);
        ir_value *qkv = one(g, OP_silu, convolve(g, part(g, conv, i), x, &next_conv[i]));
        int to = crossed ? (i + 1) % LAYERS : i;
        ir_value *o = delta(g, part(g, memory, i), qkv, &next_memory[to]);
        o = shaped(g, o, B_INTS(b, 1, HEADS * DV, 1));
        if (i + 1 < LAYERS)
            x = cast(g, b_op(b, OP_tile, NULL, A_x, o, A_reps, B_INTS(b, 1, 2, 1), A_NONE), "fp16");
        if (i + 1 == LAYERS) b_output(b, o);
    }
    if (seen) b_output(b, one(g, OP_identity, memory));
    write_all(g, convs, next_conv, LAYERS);
    write_all(g, memories, next_memory, LAYERS);
    finish(g);
    return g;
}

static void tally(const graph *g, bool strict, size_t *parts, size_t *steps, str *text) {
    plan *p = plan_of(g, strict);
    *parts = count(plan_function(p), OP_state_part);
    *steps = count(plan_function(p), OP_fused_delta) + count(plan_function(p), OP_fused_conv_step);
    plan_print(text, p);
    plan_free(p);
}

/* Every layer changes its part of the states' memory; nothing is copied, taken apart or put together. */
static void parts_are_states(void **state) {
    (void)state;
    for (int once = 0; once < 2; once++) {
        graph *g = layers(1, once, false, false);
        for (int strict = 0; strict < 2; strict++) {
            size_t parts, steps;
            str text = {0};
            tally(g, strict, &parts, &steps, &text);
            assert_int_equal(parts, 2 * LAYERS);
            assert_int_equal(steps, 2 * LAYERS);
            assert_null(strstr(text.s, "load"));
            assert_null(strstr(text.s, "store"));
            str_free(&text);
        }
        check_made(g, OP_NONE, true, "stacked states");
    }
}

/* A layer's memory goes to another layer's place, which is read first or later. */
static void parts_change_places(void **state) {
    (void)state;
    for (int once = 0; once < 2; once++)
        check_made(layers(2, once, true, false), OP_NONE, true, "crossed states");
}

static void whole_state_is_seen(void **state) {
    (void)state;
    graph *g = layers(3, true, false, true);
    size_t parts, steps;
    str text = {0};
    tally(g, false, &parts, &steps, &text);
    str_free(&text);
    assert_int_equal(parts, LAYERS); /* the convolutions' */
    check_made(g, OP_NONE, true, "a state that is seen");
}

/* Without a write of all parts a state is one. */
static void no_write(void **state) {
    (void)state;
    graph *g = begin(4);
    ir_value *s = b_state(&g->b, "s", IR_TYPE(DT_FP16, 2, 1, 4)), *all = read_all(g, s);
    b_output(&g->b, two(g, OP_add, part(g, all, 0), part(g, all, 1)));
    finish(g);
    size_t parts, steps;
    str text = {0};
    tally(g, false, &parts, &steps, &text);
    str_free(&text);
    assert_int_equal(parts, 0);
    check_made(g, OP_NONE, true, "read only");
}

/* Two parts of different sizes along an axis behind ones of size 1, exchanged in each call. */
static void uneven_parts(void **state) {
    (void)state;
    graph *g = begin(5);
    ir_builder *b = &g->b;
    ir_value *s = b_state(b, "s", IR_TYPE(DT_FP16, 1, 5, 3)), *all = read_all(g, s), *v[2];
    b_op_multi(b, OP_split, NULL, v, 2, A_x, all, A_split_sizes, B_INTS(b, 2, 3), A_axis, b_i32(b, 1),
               A_NONE);
    ir_value *sum =
        b_op(b, OP_reduce_sum, NULL, A_x, v[1], A_axes, B_INTS(b, 1), A_keep_dims, b_bool(b, true), A_NONE);
    b_output(b, two(g, OP_mul, v[0], sum));
    ir_value *next[2] = {two(g, OP_mul, v[0], sum), one(g, OP_tanh, v[1])};
    ir_value *data = b_opv(b, OP_concat, NULL, A_values, next, 2, A_axis, b_i32(b, 1), A_NONE);
    b_op_multi(b, OP_write_state, NULL, NULL, 0, A_input, s, A_data, data, A_NONE);
    finish(g);
    size_t parts, steps;
    str text = {0};
    tally(g, false, &parts, &steps, &text);
    str_free(&text);
    assert_int_equal(parts, 2);
    check_made(g, OP_NONE, true, "uneven parts");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_states),    cmocka_unit_test(parts_change_places),
        cmocka_unit_test(whole_state_is_seen), cmocka_unit_test(no_write),
        cmocka_unit_test(uneven_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
