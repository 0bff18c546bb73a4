/* Artifacts of several packages: how they are found, and that they run as one. The packages are built here,
 * so that the answer is known: token i is followed by next_of(i), as long as every package's state has
 * counted the tokens right. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/num.h"
#include "coreml/embedding.h"
#include "generate/artifact.h"
#include "generate/decoder.h"
#include "generate/score.h"
#include "ir/build.h"
#include "millet.h"
#include "run_cli.h"
#include "work_dir.h"
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 7, WIDTH = 8, CONTEXT = 22 };

static void must(bool ok, const err *e) {
    if (!ok) fail_msg("%s", e->msg);
}

static void clear_work(void) {
    err e = {0};
    must(file_remove_tree(work_dir, &e) && file_make_dirs(work_dir, &e), &e);
}

static void write_text(const char *name, const char *text) {
    err e = {0};
    must(file_write(in_work(name), text, strlen(text), &e), &e);
}

/* ---- packages ---- */

/* Layer packages permute the one-hot vector of a token, the last one turns it into logits. */
static int32_t first_step(int32_t i) {
    return (3 * i + 1) % ROWS;
}
static int32_t second_step(int32_t i) {
    return (i + 2) % ROWS;
}
static int32_t next_of(int32_t i) {
    return second_step(first_step(i));
}

typedef struct {
    int32_t (*step)(int32_t);
    ir_dtype in, out;       /* of hidden, and of hidden_out */
    const char *state;      /* counts tokens; NULL: none, and no current_pos */
    int rows, first;        /* logits of rows first to first + rows - 1; 0: hidden_out */
    bool picks;             /* hidden_out is the last valid token's only */
    bool head;              /* takes one row, whatever the size of the call */
    float bad_at;           /* the position at which "root" becomes NaN; 0: none */
    const int64_t *prefill; /* sizes, up to 0; NULL: one function main */
} part;

static ir_value *as_float(ir_builder *b, ir_value *v, const char *dtype) {
    return b_op(b, OP_cast, NULL, A_x, v, A_dtype, b_text(b, dtype), A_NONE);
}

/* Adds the tokens of the call to the state; 1 where the state and current_pos agree, else 0: fp32 scalar. */
static ir_value *counted(ir_builder *b, const part *p, ir_value *valid) {
    ir_value *pos = b_input(b, "current_pos", IR_TYPE(DT_INT32, 1)), *out[1];
    ir_value *state = b_state(b, p->state, IR_TYPE(DT_FP16, 1, 1, CONTEXT, 1));
    ir_value *calls = b_op(b, OP_read_state, NULL, A_input, state, A_NONE);
    ir_value *more = valid ? as_float(b, valid, "fp16") : b_f16(b, 1);
    b_op_multi(b, OP_write_state, NULL, out, 0, A_input, state, A_data,
               b_op(b, OP_add, NULL, A_x, calls, A_y, more, A_NONE), A_NONE);
    ir_value *count = as_float(b,
                               b_op(b, OP_reduce_max, NULL, A_x, calls, A_axes, B_INTS(b, 0, 1, 2, 3),
                                    A_keep_dims, b_bool(b, false), A_NONE),
                               "fp32");
    ir_value *at = as_float(b, pos, "fp32");
    ir_value *fresh = as_float(b, b_op(b, OP_equal, NULL, A_x, at, A_y, count, A_NONE), "fp32");
    if (p->bad_at == 0) return fresh;
    ir_value *left = b_op(b, OP_sub, NULL, A_x, b_f32(b, p->bad_at - 0.5f), A_y, at, A_NONE);
    ir_value *root = b_op(b, OP_sqrt, "root", A_x, left, A_NONE);
    return b_op(b, OP_add, NULL, A_x, fresh, A_y, b_op(b, OP_mul, NULL, A_x, root, A_y, b_f32(b, 0), A_NONE),
                A_NONE);
}

static void build(ir_program *program, const part *p, const char *name, int64_t tokens, err *e) {
    ir_builder b = ir_build(program, name, 9, e);
    bool many = tokens > 1 && !p->head;
    ir_value *x = b_input(&b, "hidden", IR_TYPE(p->in, 1, many ? tokens : 1, WIDTH));
    ir_value *valid = many ? b_input(&b, "valid_length", IR_TYPE(DT_INT32, 1)) : NULL;
    int32_t n = p->rows ? p->rows : WIDTH;
    float weight[WIDTH * WIDTH] = {0};
    for (int32_t i = 0; i < ROWS; i++) {
        int32_t row = p->step(i) - p->first;
        if (row >= 0 && row < n) weight[row * WIDTH + i] = 1;
    }
    ir_value *y = p->in == DT_FP32 ? x : as_float(&b, x, "fp32");
    if (many && (p->rows || p->picks)) {
        ir_value *last = b_op(&b, OP_sub, NULL, A_x, valid, A_y, b_i32(&b, 1), A_NONE);
        y = b_op(&b, OP_gather, NULL, A_x, y, A_indices, last, A_axis, b_i32(&b, 1), A_NONE);
    }
    y = b_op(&b, OP_linear, NULL, A_x, y, A_weight, b_floats(&b, DT_FP32, weight, IR_TYPE(DT_FP32, n, WIDTH)),
             A_NONE);
    if (p->state) y = b_op(&b, OP_mul, NULL, A_x, y, A_y, counted(&b, p, valid), A_NONE);
    if (p->rows) y = b_op(&b, OP_reshape, NULL, A_x, y, A_shape, B_INTS(&b, 1, n), A_NONE);
    b_output(&b, b_op(&b, OP_cast, p->rows ? "logits" : "hidden_out", A_x, y, A_dtype,
                      b_text(&b, !p->rows && p->out == DT_FP16 ? "fp16" : "fp32"), A_NONE));
    ir_build_end(&b);
}

static void save(const char *name, const part *p) {
    arena *a = arena_new();
    err e = {0};
    ir_program *program = ir_program_new(a);
    build(program, p, p->prefill ? "decode" : "main", 1, &e);
    for (const int64_t *t = p->prefill; t && *t; t++)
        build(program, p, arena_printf(a, "prefill_%d", (int)*t), *t, &e);
    must(!e.code, &e);
    coreml_model *m = coreml_model_new(a, program, 9);
    coreml_write_options o = {.overwrite = true};
    must(coreml_write(in_work(name), m, &o, &e), &e);
    arena_free(a);
}

static bool one_hot_rows(void *ctx, int64_t first, int64_t n, float *out, err *e) {
    (void)ctx, (void)e;
    memset(out, 0, (size_t)(n * WIDTH) * sizeof *out);
    for (int64_t i = 0; i < n; i++) out[i * WIDTH + first + i] = 1;
    return true;
}

static void save_table(const char *name, int64_t rows) {
    err e = {0};
    must(embedding_write(in_work(name), EMBEDDING_FP16, rows, WIDTH, one_hot_rows, NULL, &e), &e);
}

static const int64_t sizes[] = {4, 8, 0};

/* In two, in three with a package that has no state, and with the logits from two heads. */
static void save_two(float bad_at) {
    clear_work();
    save("chunk_1_of_2.mlpackage", &(part){first_step, DT_FP16, DT_FP32, "k_0", .prefill = sizes});
    save("chunk_2_of_2.mlpackage",
         &(part){second_step, DT_FP32, DT_FP32, "k_1", .rows = ROWS, .bad_at = bad_at, .prefill = sizes});
    save_table("x_embed_tokens.fp16.bin", ROWS);
}

static int32_t same(int32_t i) {
    return i;
}

static void save_three(void) {
    clear_work();
    save("chunk_1_of_3.mlpackage", &(part){first_step, DT_FP16, DT_FP16, "k_0", .prefill = sizes});
    save("chunk_2_of_3.mlpackage", &(part){same, DT_FP32, DT_FP32, NULL, .prefill = sizes});
    save("chunk_3_of_3.mlpackage",
         &(part){second_step, DT_FP16, DT_FP32, "k_1", .rows = ROWS, .prefill = sizes});
    save_table("embed_tokens.bin", ROWS);
}

static void save_heads(void) {
    clear_work();
    save("chunk_1_of_1.mlpackage",
         &(part){first_step, DT_FP16, DT_FP32, "k_0", .picks = true, .prefill = sizes});
    save("head_1_of_2.mlpackage",
         &(part){second_step, DT_FP32, DT_FP32, NULL, .rows = 3, .head = true, .prefill = sizes});
    save("head_2_of_2.mlpackage",
         &(part){second_step, DT_FP16, DT_FP32, NULL, .rows = ROWS - 3, .first = 3, .head = true});
    save_table("embed_tokens.bin", ROWS);
}

static lm *open_work(void) {
    err e = {0};
    lm *m = lm_open(work_dir, NULL, &e);
    must(m, &e);
    return m;
}

/* ---- running ---- */

static const int32_t prompt[CONTEXT] = {5, 2, 0, 0, 6, 1, 3, 3, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 2, 2, 1};

static void expect_row(const decoder_row *r, int32_t behind) {
    assert_int_equal(r->n, ROWS);
    for (int32_t i = 0; i < ROWS; i++) assert_true(r->score[i] == (i == next_of(behind) ? 1.0f : 0.0f));
}

/* Prompts of all lengths, cut in several ways, give the row behind their last token. */
static void run_all(const lm *m) {
    static const struct {
        int64_t size[4];
        size_t n;
    } cuts[] = {{{0}, 0}, {{1}, 1}, {{4}, 1}, {{8}, 1}, {{1, 8, 4}, 3}, {{4, 1, 4, 8}, 4}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        for (size_t n = 1; n <= CONTEXT; n++) {
            err e = {0};
            decoder_row r;
            decoder *d = decoder_new(m, RT_STRICT, &e);
            must(d && decoder_set_sizes(d, cuts[i].size, cuts[i].n, &e) &&
                     decoder_feed(d, prompt, n, NULL, &r, &e),
                 &e);
            expect_row(&r, prompt[n - 1]);
            assert_int_equal(decoder_position(d), n);
            decoder_free(d);
        }
}

static void two_packages(void **state) {
    (void)state;
    save_two(0);
    lm *m = open_work();
    assert_int_equal(m->n_model, 2);
    assert_string_equal(m->name[1], "chunk_2_of_2.mlpackage");
    assert_int_equal(m->form.n_layers, 1);
    assert_int_equal(m->form.n_func, 3);
    assert_string_equal(m->form.function, "decode");
    assert_int_equal(m->form.context, CONTEXT);
    assert_int_equal(m->form.vocab, ROWS);
    run_all(m);
    lm_close(m);
}

static void three_packages(void **state) {
    (void)state;
    save_three();
    lm *m = open_work();
    assert_int_equal(m->n_model, 3);
    run_all(m);
    lm_close(m);
}

static void heads(void **state) {
    (void)state;
    save_heads();
    lm *m = open_work();
    assert_int_equal(m->n_model, 3);
    assert_int_equal(m->form.n_layers, 1);
    assert_true(m->form.heads);
    run_all(m);
    lm_close(m);
}

static void count(void *ctx, const ir_value *v, const float *x, size_t n) {
    (void)v, (void)x, (void)n;
    ++*(size_t *)ctx;
}

/* Heads run only for rows that someone looks at. */
static void idle_heads(void **state) {
    (void)state;
    save_heads();
    lm *m = open_work();
    err e = {0};
    size_t values[3];
    for (size_t n = 1; n <= 3; n++) {
        size_t one = 0;
        decoder *d = decoder_new(m, RT_FAST, &e);
        rt_session_observe(decoder_session(d, 1), count, &one);
        must(decoder_set_sizes(d, (const int64_t[]){1}, 1, &e) && decoder_feed(d, prompt, n, NULL, NULL, &e),
             &e);
        values[n - 1] = one;
        decoder_free(d);
    }
    assert_true(values[0] > 0 && values[1] == values[0] && values[2] == values[0]);
    lm_close(m);
}

static void wrong_sizes(void **state) {
    (void)state;
    save_two(0);
    lm *m = open_work();
    err e = {0};
    decoder *d = decoder_new(m, RT_FAST, &e);
    assert_false(decoder_set_sizes(d, (const int64_t[]){4, 5}, 2, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_string_equal(e.msg, "no function takes 5 tokens a call");
    decoder_free(d);
    lm_close(m);
}

static void scored(void **state) {
    (void)state;
    save_two(0);
    lm *m = open_work();
    err e = {0};
    int32_t ids[6] = {3};
    for (int i = 1; i < 6; i++) ids[i] = next_of(ids[i - 1]);
    score_result r;
    const score_options o = {.mode = RT_FAST};
    must(score_ids(m, ids, 6, &o, &r, &e), &e);
    assert_int_equal(r.agree, 5);
    assert_true(fabs(score_mean(&r) - (log(ROWS - 1 + exp(1)) - 1)) < 1e-9);
    lm_close(m);
}

static void through_the_library(void **state) {
    (void)state;
    save_heads();
    millet_error e;
    millet_lm *m = millet_lm_open(work_dir, NULL, &e);
    if (!m) fail_msg("%s", e.message);
    assert_int_equal(millet_lm_context(m), CONTEXT);
    millet_generation g = {.size = sizeof g};
    const millet_generate_options o = {.size = sizeof o, .max_new_tokens = 6};
    if (!millet_generate_ids(m, prompt, 5, &o, &g, &e)) fail_msg("%s", e.message);
    assert_int_equal(g.n_ids, 6);
    int32_t id = prompt[4];
    for (size_t i = 0; i < g.n_ids; i++) assert_int_equal(g.ids[i], id = next_of(id));
    millet_free(g.ids);
    millet_lm_close(m);
    assert_null(millet_package_open(work_dir, NULL, &e));
    assert_int_equal(e.code, MILLET_USAGE);
    assert_non_null(strstr(e.message, "has 3 packages"));
    millet_package *p = millet_package_open(in_work("head_1_of_2.mlpackage"), NULL, &e);
    assert_non_null(p);
    millet_package_close(p);
}

static void the_package_is_named(void **state) {
    (void)state;
    save_two(6);
    lm *m = open_work();
    static const struct {
        int64_t size;
        const char *where;
    } cases[] = {{1, "token 6 (id 3): chunk_2_of_2.mlpackage: "}, {4, "chunk_2_of_2.mlpackage: "}};
    for (int i = 0; i < 2; i++) {
        err e = {0};
        decoder *d = decoder_new(m, RT_FAST, &e);
        decoder_row r;
        must(decoder_set_sizes(d, &cases[i].size, 1, &e), &e);
        assert_false(decoder_feed(d, prompt, 9, NULL, &r, &e));
        assert_int_equal(e.code, ERR_NUMERIC);
        if (!strstr(e.msg, cases[i].where) || !strstr(e.msg, "root")) fail_msg("%s", e.msg);
        decoder_free(d);
    }
    lm_close(m);
}

/* What is handed over is the one-hot vector of the first step, for each token that counts. */
static void on_handed(void *ctx, size_t package, size_t first, size_t tokens, const float *hidden, size_t n) {
    size_t *seen = ctx;
    assert_int_equal(package, 0);
    assert_int_equal(first, *seen);
    assert_int_equal(n, tokens * WIDTH);
    for (size_t t = 0; t < tokens; t++)
        for (int32_t i = 0; i < WIDTH; i++)
            assert_true(hidden[t * WIDTH + (size_t)i] == (i == first_step(prompt[first + t]) ? 1.0f : 0.0f));
    *seen += tokens;
}

static void hand_over_is_seen(void **state) {
    (void)state;
    save_two(0);
    lm *m = open_work();
    err e = {0};
    decoder *d = decoder_new(m, RT_FAST, &e);
    size_t seen = 0;
    const decoder_hooks h = {.handed = on_handed, .ctx = &seen};
    must(decoder_feed(d, prompt, 11, &h, NULL, &e), &e); /* 8, and 3 of 4 */
    assert_int_equal(seen, 11);
    decoder_free(d);
    lm_close(m);
}

static void states_by_name(void **state) {
    (void)state;
    save_two(0);
    lm *m = open_work();
    err e = {0};
    decoder *a = decoder_new(m, RT_FAST, &e), *b = decoder_new(m, RT_STRICT, &e);
    decoder_row r;
    float x[CONTEXT];
    ir_type t;
    must(decoder_feed(a, prompt, 9, NULL, NULL, &e), &e);
    assert_int_equal(decoder_state_count(a), 2);
    assert_string_equal(decoder_state_name(a, 0), "k_0");
    assert_string_equal(decoder_state_name(a, 1), "k_1");
    assert_null(decoder_state_name(a, 2));
    must(decoder_state_type(a, "k_1", &t, &e) && decoder_state_get(a, "k_1", x, &e), &e);
    assert_int_equal(ir_type_count(&t), CONTEXT);
    assert_true(x[0] == 9 && x[CONTEXT - 1] == 9);
    /* another decoder goes on from there */
    must(decoder_seed(b, a, &e), &e);
    assert_int_equal(decoder_position(b), 9);
    must(decoder_feed(b, prompt + 9, 3, NULL, &r, &e), &e);
    expect_row(&r, prompt[11]);
    /* a state that was changed shows: the count no longer fits */
    x[0] = 77;
    must(decoder_state_set(b, "k_1", x, &e) && decoder_feed(b, prompt + 12, 1, NULL, &r, &e), &e);
    for (int i = 0; i < ROWS; i++) assert_true(r.score[i] == 0);
    assert_false(decoder_state_get(a, "k_2", x, &e));
    assert_string_equal(e.msg, "no package has a state k_2");
    decoder_free(a);
    decoder_free(b);
    lm_close(m);
}

/* ---- finding ---- */

static void refused(const char *path, const char *expected) {
    err e = {0};
    lm *m = lm_open(path, NULL, &e);
    if (m) fail_msg("opened, but should not: %s", expected);
    if (!strstr(e.msg, expected)) fail_msg("expected '%s': %s", expected, e.msg);
    lm_close(m);
}

#define HEAD "{\"format\": \"millet\", \"format_version\": 2, "
#define TWO  "\"packages\": [{\"path\": \"chunk_1_of_2.mlpackage\"}, {\"path\": \"chunk_2_of_2.mlpackage\"}]"

static void named_by_metadata(void **state) {
    (void)state;
    save_two(0);
    write_text("metadata.json",
               HEAD TWO ", \"table\": {\"path\": \"x_embed_tokens.fp16.bin\"}, \"stop_ids\": [3]}");
    save_table("y_embed_tokens.fp16.bin", ROWS); /* a second one: the file tells which */
    lm *m = open_work();
    assert_int_equal(m->n_model, 2);
    assert_true(stop_set_has(&m->stop, 3));
    assert_string_equal(artifact_name(m->table_path), "x_embed_tokens.fp16.bin");
    lm_close(m);
    refused(in_work("chunk_1_of_2.mlpackage/"),
            "chunk_1_of_2.mlpackage: one package of a set, which runs as a "
            "whole: give the directory /tmp");
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {HEAD "\"packages\": []}", "\"packages\" must be a list of at least one"},
        {HEAD "\"packages\": [{}]}", "\"path\" must be a path relative to it"},
        {HEAD "\"packages\": [{\"path\": \"/etc\"}]}",
         "\"path\" (/etc) must be a path relative to it, without"},
        {HEAD "\"packages\": [{\"path\": \"a/../chunk_1_of_2.mlpackage\"}]}", "without .. parts"},
        {HEAD "\"packages\": [{\"path\": \"../x\"}]}", "without .. parts"},
        {HEAD "\"packages\": [{\"path\": \"chunk_1_of_3.mlpackage\"}]}",
         "names the package chunk_1_of_3.mlpackage, which is not there"},
        {HEAD
         "\"packages\": [{\"path\": \"chunk_1_of_2.mlpackage\"}, {\"path\": \"chunk_1_of_2.mlpackage\"}]}",
         "names chunk_1_of_2.mlpackage twice"},
        {HEAD
         "\"packages\": [{\"path\": \"chunk_2_of_2.mlpackage\"}, {\"path\": \"chunk_1_of_2.mlpackage\"}]}",
         "chunk_1_of_2.mlpackage passes hidden_out on, but stands behind chunk_2_of_2.mlpackage"},
        {HEAD "\"packages\": [{\"path\": \"chunk_1_of_2.mlpackage\"}]}",
         "it passes hidden_out on: one package of a set"},
        {HEAD TWO ", \"table\": {\"path\": \"../../x.bin\"}}", "\"path\" (../../x.bin) must be"},
        {HEAD TWO ", \"table\": {\"path\": \"../x.bin\"}}", "names the table x.bin, which is not there"},
        {HEAD TWO "}", "several embedding tables (x_embed_tokens.fp16.bin, y_embed_tokens.fp16.bin)"},
        {"{\"format\": \"millet\", \"format_version\": 3}", "format_version 3; 1 and 2 are known"},
        {"[]", "metadata.json: holds array, expected an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("metadata.json", cases[i].text);
        refused(work_dir, cases[i].expected);
    }
}

static void named_by_manifest(void **state) {
    (void)state;
    static const part whole = {next_of, DT_FP16, DT_FP32, "k_0", .rows = ROWS};
    clear_work();
    save("M-W4.mlpackage", &whole);
    save("M-W8.mlpackage", &whole);
    save_table("embed_tokens.bin", ROWS);
    refused(work_dir, "holds several packages (M-W4.mlpackage, M-W8.mlpackage): give the path of one");
    write_text(
        "conversion_manifest.json",
        "{\"recommended\": \"W8\", \"variants\": [{\"name\": \"FP16\", \"package\": \"M-FP16.mlpackage\"}, "
        "{\"name\": \"W4\", \"package\": \"M-W4.mlpackage\"}, {\"name\": \"W8\", \"package\": "
        "\"M-W8.mlpackage\"}], \"stop_ids\": [2]}");
    lm *m = open_work();
    assert_string_equal(m->name[0], "M-W8.mlpackage");
    assert_true(stop_set_has(&m->stop, 2));
    lm_close(m);
    err e = {0};
    must(file_remove_tree(in_work("M-W8.mlpackage"), &e), &e);
    m = open_work();
    assert_string_equal(m->name[0], "M-W4.mlpackage"); /* the first that is there */
    lm_close(m);
    must(file_remove_tree(in_work("M-W4.mlpackage"), &e), &e);
    refused(work_dir, "conversion_manifest.json: names no package that is there");
    unlink(in_work("conversion_manifest.json"));
    save("M.mlpackage", &whole);
    m = open_work();
    assert_string_equal(m->name[0], "M.mlpackage"); /* the only one */
    lm_close(m);
}

static void named_by_directory(void **state) {
    (void)state;
    err e = {0};
    save_three();
    must(file_remove_tree(in_work("chunk_2_of_3.mlpackage"), &e), &e);
    refused(work_dir, "chunk_2_of_3.mlpackage is not there");
    save("chunk_2_of_4.mlpackage", &(part){.step = same, .in = DT_FP32, .out = DT_FP32});
    refused(work_dir, "chunk_1_of_3.mlpackage and chunk_2_of_4.mlpackage belong to two sets");
    save_heads();
    must(file_remove_tree(in_work("head_2_of_2.mlpackage"), &e), &e);
    refused(work_dir, "head_2_of_2.mlpackage is not there");
    refused(in_work("head_1_of_2.mlpackage"), "one package of a set");
}

/* The table above the directory, which several contexts share. */
static void table_above(void **state) {
    (void)state;
    char path[400];
    save_two(0);
    assert_int_equal(mkdir(in_work("in"), 0755), 0);
    for (int i = 1; i <= 2; i++) {
        snprintf(path, sizeof path, "in/chunk_%d_of_2.mlpackage", i);
        assert_int_equal(rename(in_work(path + 3), in_work(path)), 0);
    }
    err e = {0};
    lm *m = lm_open(in_work("in"), NULL, &e);
    must(m, &e);
    assert_string_equal(artifact_name(m->table_path), "x_embed_tokens.fp16.bin");
    lm_close(m);
    write_text("in/metadata.json", HEAD TWO ", \"table\": {\"path\": \"../x_embed_tokens.fp16.bin\"}}");
    m = lm_open(in_work("in"), NULL, &e);
    must(m, &e);
    lm_close(m);
    save_table("y_embed_tokens.fp16.bin", ROWS - 1);
    write_text("in/metadata.json", HEAD TWO ", \"table\": {\"path\": \"../y_embed_tokens.fp16.bin\"}}");
    refused(in_work("in"), "6 rows, but the package scores 7 ids");
}

/* ---- on the command line ---- */

static void says(cli_result r, int code, const char *expected) {
    const char *text = str_get(code ? &r.error : &r.out);
    if (r.code != code || !strstr(text, expected))
        fail_msg("exit code %d, '%s' expected: %s%s", r.code, expected, str_get(&r.out), str_get(&r.error));
    cli_result_free(&r);
}

static void on_the_command_line(void **state) {
    (void)state;
    err e = {0};
    save_two(0);
    char outside[100], file[100];
    snprintf(outside, sizeof outside, "%s/streams", work_dir);
    snprintf(file, sizeof file, "%s/streams/ids", work_dir);
    must(file_make_dirs(outside, &e), &e);
    must(file_write(file, "[5, 2, 0]", 9, &e), &e);
    says(RUN_CLI(outside, "run", work_dir, "--raw-ids", file, "--max-new-tokens", "4", "--json"), 0,
         "{\"ids\":[3,5,4,1]");
    says(RUN_CLI(outside, "score", work_dir, "--ids-file", file), 0, "top-1 agreement    0.00 % (0 of 2)");
    says(RUN_CLI(outside, "inspect", work_dir), 0,
         "chunk_1_of_2.mlpackage     hidden fp16[1,1,8] -> hidden_out fp32[1,1,8]  state k_0\n");
    says(RUN_CLI(outside, "inspect", work_dir), 0,
         "  functions decode (1 token), prefill_4 (4 tokens), prefill_8 (8 tokens)\n  width 8, vocabulary 7, "
         "context 22\n");
    says(RUN_CLI(outside, "inspect", work_dir, "--json"), 0,
         "{\"set\":{\"contract\":\"chunks\",\"functions\":[{\"name\":\"decode\",\"tokens\":1},");
    says(RUN_CLI(outside, "inspect", work_dir, "--verify"), 0, "every rule is kept\n");
    says(RUN_CLI(outside, "inspect", work_dir, "--ops"), 0, "// package chunk_2_of_2.mlpackage\n");
    says(RUN_CLI(outside, "predict", work_dir, "-i", file, "-o", file), 1,
         "a set of packages; choose one with --package: chunk_1_of_2.mlpackage, chunk_2_of_2.mlpackage\n");
    says(RUN_CLI(outside, "predict", work_dir, "--package", "chunk_1", "-i", file, "-o", file), 1,
         "no package chunk_1; there is chunk_1_of_2.mlpackage, chunk_2_of_2.mlpackage\n");
    says(RUN_CLI(outside, "predict", work_dir, "--package", "chunk_1_of_2", "-i", file, "-o", file), 1,
         "ids: ");
    says(RUN_CLI(outside, "run", in_work("chunk_1_of_2.mlpackage"), "--raw-ids", file), 1,
         "one package of a set, which runs as a whole: give the directory");
    save("chunk_1_of_2.mlpackage",
         &(part){.step = first_step, .in = DT_FP16, .out = DT_FP16, .state = "k_9"});
    says(RUN_CLI(outside, "inspect", work_dir), 0, "they do not run as a set: ");
    says(RUN_CLI(outside, "inspect", work_dir, "--json"), 0,
         "{\"set\":null,\"why_not\":\"chunk_2_of_2.mlpackage: ");
    cli_result r = RUN_CLI(outside, "inspect", work_dir, "--verify");
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.out.s, "package-set: chunk_2_of_2.mlpackage: there is no function main"));
    cli_result_free(&r);
}

/* ---- what does not go together ---- */

static void misfits(void **state) {
    (void)state;
    save_two(0);
    const part first = {.step = first_step, .in = DT_FP16, .out = DT_FP32, .state = "k_0"},
               last = {second_step, DT_FP32, DT_FP32, "k_1", .rows = ROWS};
    part x = first;
    save("chunk_1_of_2.mlpackage", &first);
    refused(work_dir, "chunk_2_of_2.mlpackage: there is no function main, which chunk_1_of_2.mlpackage has");
    save("chunk_2_of_2.mlpackage", &last);
    lm_close(open_work());
    x.state = "k_1";
    save("chunk_1_of_2.mlpackage", &x);
    refused(work_dir, "chunk_1_of_2.mlpackage and chunk_2_of_2.mlpackage both have the state k_1");
    x.state = "k_5_lo";
    save("chunk_1_of_2.mlpackage", &x);
    refused(work_dir,
            "chunk_2_of_2.mlpackage has states of layer 1, but stands behind chunk_1_of_2.mlpackage, which "
            "has those of layer 5: the packages are in the wrong order");
    x = last;
    x.in = DT_FP16;
    x.state = "k_0";
    save("chunk_1_of_2.mlpackage", &x);
    refused(work_dir, "chunk_1_of_2.mlpackage and chunk_2_of_2.mlpackage both return logits");
    x = first;
    x.state = "k_1";
    save("chunk_1_of_2.mlpackage", &first);
    save("chunk_2_of_2.mlpackage", &x);
    refused(work_dir, "chunk_2_of_2.mlpackage, the last of 2 packages, returns hidden_out, not logits");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_packages),
        cmocka_unit_test(three_packages),
        cmocka_unit_test(heads),
        cmocka_unit_test(wrong_sizes),
        cmocka_unit_test(idle_heads),
        cmocka_unit_test(scored),
        cmocka_unit_test(through_the_library),
        cmocka_unit_test(the_package_is_named),
        cmocka_unit_test(hand_over_is_seen),
        cmocka_unit_test(states_by_name),
        cmocka_unit_test(named_by_metadata),
        cmocka_unit_test(named_by_manifest),
        cmocka_unit_test(named_by_directory),
        cmocka_unit_test(table_above),
        cmocka_unit_test(misfits),
        cmocka_unit_test(on_the_command_line),
    };
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
