/* Decoding, sampling and scoring on packages that are built here so that the answer is known by construction.
 */
#define _GNU_SOURCE
#include "base/file.h"
#include "coreml/embedding.h"
#include "generate/generator.h"
#include "generate/score.h"
#include "ir/build.h"
#include "work_dir.h"
#include <math.h>
#include <unistd.h>

static void must(bool ok, const err *e) {
    if (!ok) fail_msg("%s", e->msg);
}

static void save(arena *a, ir_program *p, const coreml_range (*ids)[2], const coreml_range (*mask)[4]) {
    err e = {0};
    coreml_model *m = coreml_model_new(a, p, 9);
    if (ids) {
        static const int64_t one[4] = {1, 1, 1, 1};
        m->func[0].in[0].range = *ids;
        m->func[0].in[1].range = *mask;
        memcpy(m->func[0].in[0].type.dim, one, 2 * sizeof *one);
        memcpy(m->func[0].in[1].type.dim, one, 4 * sizeof *one);
    }
    coreml_write_options o = {.overwrite = true};
    must(file_remove_tree(in_work("model.mlpackage"), &e) &&
             coreml_write(in_work("model.mlpackage"), m, &o, &e),
         &e);
}

/* ---- form chunks: a chain 2 0 1 4 6 5 2 ..., as long as the state counts the calls right ---- */

enum { ROWS = 7, WIDTH = 8, CONTEXT = 12 };

static int32_t next_in_chain(int32_t id) {
    return (3 * id + 1) % ROWS;
}

static bool one_hot_rows(void *ctx, int64_t first, int64_t n, float *out, err *e) {
    (void)ctx, (void)e;
    memset(out, 0, (size_t)(n * WIDTH) * sizeof *out);
    for (int64_t i = 0; i < n; i++) out[i * WIDTH + first + i] = 1;
    return true;
}

/* A NaN appears at position bad_at, in the value "root". */
static void save_chain(float bad_at) {
    arena *a = arena_new();
    err e = {0};
    ir_program *p = ir_program_new(a);
    ir_builder b = ir_build(p, "main", 9, &e);
    float weight[ROWS * WIDTH] = {0};
    for (int32_t i = 0; i < ROWS; i++) weight[next_in_chain(i) * WIDTH + i] = 1;
    ir_value *x = b_input(&b, "hidden", IR_TYPE(DT_FP16, 1, 1, WIDTH)),
             *pos = b_input(&b, "current_pos", IR_TYPE(DT_INT32, 1));
    ir_value *state = b_state(&b, "k_0", IR_TYPE(DT_FP16, 1, 1, CONTEXT, 1)), *out[1];
    /* the state counts calls: where it disagrees with the position, states were not fresh */
    ir_value *calls = b_op(&b, OP_read_state, NULL, A_input, state, A_NONE);
    ir_value *more = b_op(&b, OP_add, NULL, A_x, calls, A_y, b_f16(&b, 1), A_NONE);
    b_op_multi(&b, OP_write_state, NULL, out, 0, A_input, state, A_data, more, A_NONE);
    ir_value *count = b_op(&b, OP_cast, NULL, A_x,
                           b_op(&b, OP_reduce_max, NULL, A_x, calls, A_axes, B_INTS(&b, 0, 1, 2, 3),
                                A_keep_dims, b_bool(&b, false), A_NONE),
                           A_dtype, b_text(&b, "fp32"), A_NONE);
    ir_value *at = b_op(&b, OP_cast, NULL, A_x, pos, A_dtype, b_text(&b, "fp32"), A_NONE);
    ir_value *fresh = b_op(&b, OP_cast, NULL, A_x, b_op(&b, OP_equal, NULL, A_x, at, A_y, count, A_NONE),
                           A_dtype, b_text(&b, "fp32"), A_NONE);
    ir_value *left = b_op(&b, OP_sub, "left", A_x, b_f32(&b, bad_at - 0.5f), A_y, at, A_NONE);
    ir_value *root = b_op(&b, OP_sqrt, "root", A_x, left, A_NONE);
    ir_value *zero = b_op(&b, OP_mul, NULL, A_x, root, A_y, b_f32(&b, 0), A_NONE);
    ir_value *y = b_op(&b, OP_linear, NULL, A_x, x, A_weight,
                       b_floats(&b, DT_FP16, weight, IR_TYPE(DT_FP16, ROWS, WIDTH)), A_NONE);
    y = b_op(&b, OP_cast, NULL, A_x, b_op(&b, OP_reshape, NULL, A_x, y, A_shape, B_INTS(&b, 1, ROWS), A_NONE),
             A_dtype, b_text(&b, "fp32"), A_NONE);
    y = b_op(&b, OP_mul, NULL, A_x, y, A_y, fresh, A_NONE);
    b_output(&b, b_op(&b, OP_add, "logits", A_x, y, A_y, zero, A_NONE));
    ir_build_end(&b);
    must(!e.code, &e);
    save(a, p, NULL, NULL);
    must(embedding_write(in_work("embed_tokens.bin"), EMBEDDING_FP16, ROWS, WIDTH, one_hot_rows, NULL, &e),
         &e);
    arena_free(a);
}

static lm *open_work(void) {
    err e = {0};
    lm *m = lm_open(work_dir, NULL, &e);
    must(m, &e);
    return m;
}

static void the_chain(void **state) {
    (void)state;
    save_chain(1000);
    lm *m = open_work();
    err e = {0};
    const int32_t prompt[] = {5, 2};
    for (int again = 0; again < 2; again++) { /* the second generation starts from fresh states too */
        generate_result r;
        const generate_options o = {.mode = RT_FAST, .sampling = m->defaults, .max_new = -1};
        must(generate_run(m, prompt, 2, &o, &r, &e), &e);
        assert_int_equal(r.n_ids, CONTEXT - 1); /* what fits: the last id is not fed */
        assert_int_equal(r.finish, GENERATE_LENGTH);
        int32_t id = 2;
        for (size_t i = 0; i < r.n_ids; i++) {
            id = next_in_chain(id);
            assert_int_equal(r.ids[i], id);
        }
        generate_result_free(&r);
    }
    lm_close(m);
}

static void the_first_bad_op_is_named(void **state) {
    (void)state;
    save_chain(4);
    lm *m = open_work();
    for (rt_mode mode = RT_STRICT; mode <= RT_FAST; mode++) {
        err e = {0};
        generate_result r;
        const int32_t prompt[] = {5, 2};
        const generate_options o = {.mode = mode, .sampling = m->defaults, .max_new = 8};
        assert_false(generate_run(m, prompt, 2, &o, &r, &e));
        assert_int_equal(e.code, ERR_NUMERIC);
        /* 2 prompt ids, then 0 and 1 at positions 2 and 3: position 4 takes id 4 */
        if (!strstr(e.msg, "token 4 (id 4)") || !strstr(e.msg, "root")) fail_msg("%s", e.msg);
        assert_int_equal(r.n_ids, 3);
        generate_result_free(&r);
    }
    lm_close(m);
}

/* NLL of one row: V - 1 zeros and a one. */
static void scored_chain(void **state) {
    (void)state;
    save_chain(1000);
    lm *m = open_work();
    err e = {0};
    const int32_t ids[] = {2, 0, 1, 4, 0};
    score_result r;
    const score_options o = {.mode = RT_FAST, .logits = in_work("logits.safetensors")};
    must(score_ids(m, ids, 5, &o, &r, &e), &e);
    assert_int_equal(r.compared, 4);
    assert_int_equal(r.agree, 3); /* after 4 comes 6 */
    double all = log(ROWS - 1 + exp(1));
    assert_true(fabs(r.nll - (3 * (all - 1) + all)) < 1e-9);
    assert_true(fabs(score_mean(&r) - r.nll / 4) < 1e-12);
    file_map f;
    must(file_open_map(&f, in_work("logits.safetensors"), &e), &e);
    assert_int_equal(f.size, 8 + (int)f.data[0] + 5 * ROWS * 4);
    float row[ROWS];
    memcpy(row, f.data + f.size - sizeof row, sizeof row);
    for (int i = 0; i < ROWS; i++) assert_true(row[i] == (i == next_in_chain(0) ? 1.0f : 0.0f));
    file_unmap(&f);
    must(score_ids(m, ids, 1, &o, &r, &e), &e);
    assert_true(isnan(score_mean(&r)));
    lm_close(m);
}

/* ---- form single: the id after id i at position p is (i + p + 1) mod V, p + 1 counted in the mask ---- */

enum { VOCAB = 101, LONGEST = 150 };

static void save_counter(int k) {
    static const coreml_range ids_range[2] = {{1, 1}, {1, LONGEST}};
    static const coreml_range mask_range[4] = {{1, 1}, {1, 1}, {1, LONGEST}, {1, LONGEST}};
    arena *a = arena_new();
    err e = {0};
    ir_program *p = ir_program_new(a);
    ir_builder b = ir_build(p, "main", 9, &e);
    ir_value *ids = b_input(&b, "input_ids", IR_TYPE(DT_INT32, 1, IR_DIM_UNKNOWN));
    ir_value *mask = b_input(&b, "causal_mask", IR_TYPE(DT_FP16, 1, 1, IR_DIM_UNKNOWN, IR_DIM_UNKNOWN));
    ir_value *seen =
        b_op(&b, OP_cast, NULL, A_x, b_op(&b, OP_equal, NULL, A_x, mask, A_y, b_f16(&b, 0), A_NONE), A_dtype,
             b_text(&b, "fp32"), A_NONE);
    ir_value *count = b_op(&b, OP_reduce_sum, NULL, A_x, seen, A_axes, B_INTS(&b, 1, 3), A_keep_dims,
                           b_bool(&b, false), A_NONE);
    ir_value *next = b_op(&b, OP_add, NULL, A_x, ids, A_y,
                          b_op(&b, OP_cast, NULL, A_x, count, A_dtype, b_text(&b, "int32"), A_NONE), A_NONE);
    next = b_op(&b, OP_mod, NULL, A_x, next, A_y, b_i32(&b, VOCAB), A_NONE);
    ir_value *logits =
        b_op(&b, OP_one_hot, k ? NULL : "logits", A_indices, next, A_one_hot_vector_size, b_i32(&b, VOCAB),
             A_axis, b_i32(&b, -1), A_on_value, b_f32(&b, 1), A_off_value, b_f32(&b, 0), A_NONE);
    if (!k) {
        b_output(&b, logits);
    } else {
        ir_value *out[2];
        b_op_multi(&b, OP_topk, "topk", out, 2, A_x, logits, A_k, b_i32(&b, k), A_axis, b_i32(&b, -1),
                   A_NONE);
        b_output(&b, b_op(&b, OP_identity, "topk_ids", A_x, out[1], A_NONE));
        b_output(&b, b_op(&b, OP_identity, "topk_values", A_x, out[0], A_NONE));
    }
    ir_build_end(&b);
    must(!e.code, &e);
    save(a, p, &ids_range, &mask_range);
    arena_free(a);
}

static void blocks_and_masks(void **state) {
    (void)state;
    for (int k = 0; k <= 4; k += 4) {
        save_counter(k);
        lm *m = open_work();
        err e = {0};
        int32_t prompt[130]; /* three calls */
        for (int i = 0; i < 130; i++) prompt[i] = i % 50;
        generate_result r;
        const generate_options o = {.mode = RT_FAST, .sampling = m->defaults, .max_new = 21};
        must(generate_run(m, prompt, 130, &o, &r, &e), &e);
        int32_t id = prompt[129];
        for (size_t i = 0; i < 21; i++) {
            id = (int32_t)((id + 130 + (int)i) % VOCAB);
            assert_int_equal(r.ids[i], id);
        }
        generate_result_free(&r);
        const generate_options more = {.mode = RT_FAST, .sampling = m->defaults, .max_new = 22};
        assert_false(generate_run(m, prompt, 130, &more, &r, &e));
        assert_int_equal(e.code, ERR_LIMIT);
        generate_result_free(&r);
        lm_close(m);
    }
}

/* The counter's next id is last + position + 1: two decoders fed a call at a time, in turn, count each for
 * itself. */
static void calls_in_turn(void **state) {
    (void)state;
    save_counter(0);
    lm *m = open_work();
    err e = {0};
    int32_t prompt[2][130];
    decoder *d[2];
    decoder_row row[2] = {{0}, {0}};
    const size_t n[2] = {130, 70};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 130; i++) prompt[k][i] = (i + 7 * k) % 50;
        must((d[k] = decoder_new(m, RT_FAST, &e)), &e);
        must(decoder_begin(d[k], prompt[k], n[k], false, &e), &e);
        assert_int_equal(decoder_left(d[k]), n[k]);
    }
    size_t calls = 0;
    while (decoder_left(d[0]) || decoder_left(d[1]))
        for (int k = 0; k < 2; k++)
            if (decoder_left(d[k])) {
                must(decoder_call(d[k], NULL, &row[k], &e), &e);
                calls++;
            }
    assert_int_equal(calls, 3 + 2); /* of at most 64 tokens */
    for (int k = 0; k < 2; k++) {
        assert_int_equal(decoder_position(d[k]), n[k]);
        assert_int_equal(row[k].id ? row[k].id[row[k].largest] : (int32_t)row[k].largest,
                         (prompt[k][n[k] - 1] + (int32_t)n[k]) % VOCAB);
        decoder_free(d[k]);
    }
    lm_close(m);
}

/* Candidates: what was not returned is -1e4 in the file, and a next id outside of them is counted apart. */
static void scored_candidates(void **state) {
    (void)state;
    save_counter(4);
    lm *m = open_work();
    err e = {0};
    m->vocab = VOCAB; /* nothing in this package tells */
    const int32_t ids[] = {10, 11, 13, 90, 94};
    score_result r;
    const score_options o = {.mode = RT_STRICT, .logits = in_work("logits.safetensors")};
    must(score_ids(m, ids, 5, &o, &r, &e), &e);
    assert_int_equal(r.compared, 4);
    assert_int_equal(r.agree, 3);
    assert_int_equal(r.outside, 1); /* 90: neither 16 nor one of the three zeros with the lowest ids */
    double all = log(3 + exp(1));
    assert_true(fabs(score_mean(&r) - (all - 1)) < 1e-6);
    file_map f;
    must(file_open_map(&f, in_work("logits.safetensors"), &e), &e);
    float row[VOCAB];
    size_t absent = 0;
    memcpy(row, f.data + f.size - sizeof row, sizeof row);
    for (int i = 0; i < VOCAB; i++) absent += row[i] == SCORE_ABSENT;
    assert_int_equal(absent, VOCAB - 4);
    assert_true(row[(94 + 5) % VOCAB] == 1.0f);
    file_unmap(&f);
    lm_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chain),     cmocka_unit_test(the_first_bad_op_is_named),
        cmocka_unit_test(scored_chain),  cmocka_unit_test(blocks_and_masks),
        cmocka_unit_test(calls_in_turn), cmocka_unit_test(scored_candidates),
    };
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
