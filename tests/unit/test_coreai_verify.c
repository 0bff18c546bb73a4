/* inspect --verify of assets that cannot be opened for running: a violation, in the words of the commands
 * that would run them. The assets are made here. */
#define _GNU_SOURCE
#include "coreai/make.h"
#include "coreai/write.h"
#include "run_cli.h"
#include "work_dir.h"

typedef struct {
    arena *a;
    ai_make *m;
    ai_scope *s;
} maker;

static const ai_type *floats(const maker *k) {
    const int64_t two = 2;
    return ai_make_tensor(k->m, DT_FP32, 1, &two);
}

static void put(const char *name, const char *text) {
    err e = {0};
    if (!file_write(in_work(name), text, strlen(text), &e)) fail_msg("%s", e.msg);
}

/* Asset x.aimodel below the working directory: main returns v as y. */
static void write_asset(const maker *k, const ai_value *v) {
    static const char *const in = "x", *const out = "y";
    err e = {0};
    uint8_t digest[SHA256_BYTES];
    ai_make_graph(k->m, k->s, "main", &v, 1, &in, &out, NULL);
    assert_true(file_make_dirs(in_work("x.aimodel"), &e));
    put("x.aimodel/metadata.json", "{\"assetVersion\":\"2.0\"}");
    if (!ai_tree_write(ai_make_tree(k->m, "test", 20260317), in_work("x.aimodel/main.mlirb"), NULL, NULL,
                       digest, &e))
        fail_msg("%s", e.msg);
}

/* What a command says of the asset: in text, one line on standard error. Borrowed until the next call. */
static const char *refusal(const char *const *argv) {
    static char line[1000];
    cli_result r = run_cli(work_dir, argv);
    const char *said = str_get(&r.error);
    if (r.code != 1) fail_msg("exit status %d: %s", r.code, said);
    assert_int_equal(strncmp(said, "millet: ", 8), 0);
    snprintf(line, sizeof line, "%s", said + 8);
    line[strcspn(line, "\n")] = 0;
    cli_result_free(&r);
    return line;
}

/* says NULL: every rule is kept; else the words of the only violation, which are those of run and --plan.
 */
static void verifies(const char *says, const char *what) {
    static char want[2200];
    const char *path = in_work("x.aimodel");
    cli_result text = RUN_CLI(work_dir, "inspect", path, "--verify");
    cli_result json = RUN_CLI(work_dir, "inspect", path, "--verify", "--json");
    if (says) {
        const char *line = refusal((const char *const[]){"run", path, "--prompt", "a", NULL});
        if (!strstr(line, says)) fail_msg("%s: \"%s\", expected \"%s\"", what, line, says);
        snprintf(want, sizeof want, "main.hash is absent\nprogram: %s\n1 violation\n", line);
        assert_string_equal(str_get(&text.out), want);
        snprintf(want, sizeof want, "{\"violations\":[{\"rule\":\"program\",\"message\":\"%s\"}]}\n", line);
        assert_string_equal(str_get(&json.out), want);
        snprintf(want, sizeof want, "%s", line);
        assert_string_equal(refusal((const char *const[]){"inspect", path, "--plan", NULL}), want);
    } else {
        assert_string_equal(str_get(&text.out), "main.hash is absent\nevery rule is kept\n");
        assert_string_equal(str_get(&json.out), "{\"violations\":[]}\n");
    }
    assert_int_equal(text.code, says ? 1 : 0);
    assert_int_equal(json.code, says ? 1 : 0);
    assert_string_equal(str_get(&text.error), "");
    assert_string_equal(str_get(&json.error), "");
    cli_result_free(&text);
    cli_result_free(&json);
}

static void test_ops(void **state) {
    (void)state;
    static const struct {
        const char *op, *says;
    } rows[] = {
        {"silu_v1", NULL},
        {"primitive.abs_v1", NULL},
        {"metal.metal4_kernel_v1", "a Metal kernel runs on a GPU of Apple only"},
        {"execution.delegate_v1", "work for a delegate, which only Apple's runtime has"},
        {"execution.target_spec_v1", "work for a delegate"},
        {"udml.thing_v1", "op udml.thing_v1 (byte "},
        {"primitive.add_v9", "an unknown op"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arena *a = arena_new();
        ai_make *m = ai_make_new(a);
        maker k = {a, m, ai_scope_new(m)};
        const ai_value *x = ai_scope_argument(k.s, floats(&k));
        write_asset(&k, ai_scope_value(k.s, rows[i].op, floats(&k), x, NULL));
        verifies(rows[i].says, rows[i].op);
        arena_free(a);
    }
}

/* A constant of two floats, from so many bytes. */
static void test_constants(void **state) {
    (void)state;
    static const uint8_t bytes[12];
    static const struct {
        size_t bytes;
        const char *says;
    } rows[] = {{8, NULL}, {7, "a constant of 7 bytes, 2 elements take 8"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arena *a = arena_new();
        ai_make *m = ai_make_new(a);
        maker k = {a, m, ai_scope_new(m)};
        ai_attr value = {.code = AI_DENSE, .data = bytes, .bytes = rows[i].bytes};
        const ai_attr *list[] = {&value};
        const ai_type *t = floats(&k);
        const ai_value *x = ai_scope_argument(k.s, t);
        ai_op *c = ai_scope_op(k.s, "primitive.constant_v1", &t, 1, NULL, 0);
        c->prop = list, c->n_prop = 1;
        x = ai_scope_value(k.s, "broadcasting_add_v1", t, x, c->out[0], NULL);
        write_asset(&k, x);
        verifies(rows[i].says, "constant");
        arena_free(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ops), cmocka_unit_test(test_constants)};
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
