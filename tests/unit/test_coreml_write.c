/* Packages that coremltools never writes: every element type, immediate and in the weight file; optional
 * inputs; and writes that fail half-way. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/stage.h"
#include "coreml/model.h"
#include "ir/build.h"
#include "work_dir.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static arena *a;

static int setup(void **state) {
    a = arena_new();
    return make_work_dir(state);
}

static int teardown(void **state) {
    arena_free(a);
    return remove_work_dir(state);
}

static bool fill(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    unsigned bits = dtype_bits(*(const ir_dtype *)ctx);
    (void)e;
    for (uint64_t i = 0; i < (n * bits + 7) / 8; i++) ((uint8_t *)dst)[i] = (uint8_t)(first + i + 1);
    return true;
}

static void add_const(ir_program *p, const char *name, const ir_const *c) {
    ir_op *op = ir_add_op(p, &p->func[0]->body, OP_const, 1);
    op->name = arena_str(a, name);
    op->out[0] = ir_value_new(p, p->func[0], name, c->type);
    op->out[0]->konst = c;
    op->out[0]->def = op;
}

/* One const op a type: 11 elements, immediate, as fill job in the weight file, and an empty one. */
static coreml_model *every_type(const ir_dtype types[DT_COUNT]) {
    ir_program *p = ir_program_new(a);
    ir_function_new(p, "main", 10);
    static const uint8_t bytes[88] = {1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 0xFF, 0x80, 0x7F, 3, 200};
    static const ir_string words[11] = {{"one", 3}, {"", 0}, {"z\0z", 3}, {"\xC3\xA9", 2}};
    for (int d = 1; d < DT_COUNT; d++) {
        ir_type eleven = IR_TYPE(types[d], 11), none = IR_TYPE(types[d], 2, 0);
        ir_const *c = ir_const_new(a, eleven, bytes);
        if (d == DT_STRING) c->data = words, c->bytes = sizeof words;
        add_const(p, arena_printf(a, "now_%s", dtype_name(types[d])), c);
        add_const(p, arena_printf(a, "none_%s", dtype_name(types[d])), ir_const_new(a, none, NULL));
        if (d == DT_BOOL || d == DT_STRING || d == DT_INT64 || d == DT_UINT64 || d == DT_FP64) continue;
        add_const(p, arena_printf(a, "far_%s", dtype_name(types[d])),
                  ir_const_fill(a, eleven, fill, &types[d]));
    }
    return coreml_model_new(a, p, 10);
}

static void every_element_type(void **state) {
    (void)state;
    err e = {0};
    ir_dtype types[DT_COUNT];
    for (int d = 0; d < DT_COUNT; d++) types[d] = (ir_dtype)d;
    coreml_model *m = every_type(types);
    if (!coreml_write(in_work("p.mlpackage"), m, NULL, &e)) fail_msg("%s", e.msg);
    coreml_package *p = coreml_open(in_work("p.mlpackage"), &e);
    if (!p) fail_msg("%s", e.msg);
    const ir_block *x = &m->program->func[0]->body, *y = &p->model->program->func[0]->body;
    assert_int_equal(x->n_op, y->n_op);
    for (size_t i = 0; i < x->n_op; i++) {
        const ir_const *b = x->op[i]->out[0]->konst, *c = y->op[i]->out[0]->konst;
        assert_string_equal(x->op[i]->out[0]->name, y->op[i]->out[0]->name);
        assert_true(ir_type_equal(&b->type, &c->type));
        assert_int_equal(b->in_blob, c->in_blob);
        assert_int_equal(b->bytes, c->bytes);
        uint8_t made[88];
        if (b->fill) assert_true(b->fill(b->fill_ctx, 0, 11, made, &e));
        if (b->type.dtype != DT_STRING && b->bytes)
            assert_memory_equal(b->fill ? made : b->data, c->data, b->bytes);
        const ir_string *s = b->data, *t = c->data;
        for (size_t k = 0; b->type.dtype == DT_STRING && k < b->bytes / sizeof *s; k++) {
            assert_int_equal(s[k].len, t[k].len);
            assert_memory_equal(s[k].s ? s[k].s : "", t[k].s, s[k].len);
        }
    }
    coreml_close(p);
}

static coreml_model *small_model(void) {
    static const ir_dtype half = DT_FP16;
    err e = {0};
    ir_program *p = ir_program_new(a);
    ir_builder b = ir_build(p, "main", 9, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, 512)), *w = b_input(&b, "z", IR_TYPE(DT_INT32, 1));
    ir_const *c = ir_const_fill(a, IR_TYPE(DT_FP16, 512, 512), fill, &half);
    b_output(&b, b_op(&b, OP_linear, "y", A_x, x, A_weight, b_const(&b, "weight", c), A_NONE));
    b_output(&b, b_op(&b, OP_identity, "i", A_x, w, A_NONE));
    ir_build_end(&b);
    assert_int_equal(e.code, ERR_NONE);
    return coreml_model_new(a, p, 9);
}

static void descriptions(void **state) {
    (void)state;
    err e = {0};
    coreml_model *m = small_model();
    coreml_function *f = m->func;
    f->in[0].description = "hidden state";
    f->in[0].optional = f->in[0].has_default = true;
    f->in[0].default_value = 0.5;
    f->predicted = "y";
    m->short_description = "d", m->version = "v", m->author = "a", m->license = "l";
    coreml_add_user(m, "zz", "1");
    coreml_add_user(m, "aa", "");
    coreml_feature other = {
        .name = "z", .other = "string", .other_type = {"\x1a", 2}, .no_shape = true}; /* stringType {} */
    f->in[1] = other;
    assert_true(coreml_write(in_work("p.mlpackage"), m, NULL, &e));
    coreml_package *p = coreml_open(in_work("p.mlpackage"), &e);
    if (!p) fail_msg("%s", e.msg);
    const coreml_function *g = p->model->func;
    assert_string_equal(g->in[0].description, "hidden state");
    assert_true(g->in[0].optional && g->in[0].has_default);
    assert_int_equal(g->in[0].default_dtype, DT_FP32);
    assert_true(g->in[0].default_value == 0.5);
    assert_string_equal(g->in[1].other, "string");
    assert_string_equal(g->predicted, "y");
    assert_string_equal(p->model->license, "l");
    assert_string_equal(p->model->user[0].key, "aa");
    assert_string_equal(p->model->user[1].value, "1");
    coreml_close(p);
}

typedef struct {
    uint64_t last, total, stop;
} progress;

static bool on_progress(void *ctx, uint64_t done, uint64_t total) {
    progress *p = ctx;
    assert_true(done >= p->last && done <= total);
    p->last = done, p->total = total;
    return !p->stop;
}

static void progress_and_places(void **state) {
    (void)state;
    err e = {0};
    coreml_model *m = small_model();
    progress p = {0};
    coreml_write_options o = {.progress = on_progress, .ctx = &p};
    assert_true(coreml_write(in_work("p.mlpackage"), m, &o, &e));
    assert_int_equal(o.weight_bytes, 128 + 512 * 512 * 2);
    assert_int_equal(p.total, p.last);
    assert_false(coreml_write(in_work("p.mlpackage"), m, &o, &e));
    assert_non_null(strstr(e.msg, "exists and is not empty"));
    e = (err){0};
    o.overwrite = true;
    p = (progress){0};
    assert_true(coreml_write(in_work("p.mlpackage"), m, &o, &e));
    p = (progress){.stop = 1};
    assert_false(coreml_write(in_work("q.mlpackage"), m, &o, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    e = (err){0};
    assert_false(coreml_write("/proc/q.mlpackage", m, NULL, &e));
    assert_int_equal(e.code, ERR_IO);
}

static bool replace(coreml_model *m, err *e) {
    stage *s = stage_begin(in_work("p.mlpackage"), true, e);
    if (s && coreml_write(stage_path(s), m, NULL, e)) return stage_commit(s, e);
    stage_abort(s);
    return false;
}

static void no_room(void **state) {
    (void)state;
    err e = {0};
    coreml_model *m = small_model();
    assert_true(replace(m, &e));
    fflush(stdout);
    pid_t child = fork();
    if (!child) { /* the weight file takes half a MiB */
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, 100000});
        bool clear =
            !replace(m, &e) && e.code == ERR_IO && strstr(e.msg, "weight.bin: can't write: File too large");
        _exit(clear ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    coreml_package *p = coreml_open(in_work("p.mlpackage"), &e);
    assert_non_null(p);
    coreml_close(p);
    assert_int_equal(rename(in_work("p.mlpackage"), in_work("q")), 0);
    assert_true(file_remove_tree(in_work("q"), &e));
    assert_int_equal(rmdir(work_dir), 0); /* nothing else is left */
    assert_int_equal(mkdir(work_dir, 0700), 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(every_element_type),
        CASE(descriptions),
        CASE(progress_and_places),
        CASE(no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
