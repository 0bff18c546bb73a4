/* The reader against what coremltools says about the same packages (cases/coreml/NAME.json). */
#define _GNU_SOURCE
#include "base/json.h"
#include "base/map.h"
#include "coreml/model.h"
#include "test.h"
#include <dirent.h>
#include <limits.h>

static void same_shape(const json *shape, const int64_t *dim, int rank) {
    assert_int_equal(shape->len, rank);
    JSON_EACH(d, shape) assert_int_equal(d->i, *dim++);
}

static void same_feature(const json *j, const coreml_feature *f) {
    const json *range = json_get(j, "range"), *enumerated = json_get(j, "enumerated");
    assert_string_equal(json_str(j, "name", ""), f->name);
    assert_string_equal(json_str(j, "dtype", ""), dtype_name(f->type.dtype));
    assert_int_equal(f->type.kind == IR_STATE, !strcmp(json_str(j, "kind", ""), "stateType"));
    same_shape(json_get(j, "shape"), f->type.dim, f->type.rank);
    assert_int_equal(!range, !f->range);
    const coreml_range *r = f->range;
    JSON_EACH(pair, range) {
        assert_int_equal(pair->child->i, r->lower);
        assert_int_equal(pair->child->next->i, r++->upper);
    }
    assert_int_equal(enumerated ? enumerated->len : 0, f->n_shapes);
    size_t i = 0;
    JSON_EACH(shape, enumerated) same_shape(shape, f->shapes[i++], f->type.rank);
}

static void same_features(const json *list, const coreml_feature *f, size_t n) {
    assert_int_equal(list->len, n);
    JSON_EACH(j, list) same_feature(j, f++);
}

static void count_ops(const ir_block *b, size_t count[OP_COUNT]) {
    for (size_t i = 0; i < b->n_op; i++) {
        count[b->op[i]->code]++;
        for (uint32_t k = 0; k < b->op[i]->n_block; k++) count_ops(b->op[i]->block[k], count);
    }
}

static void same_package(const json *j, const coreml_model *m) {
    assert_int_equal(json_int(j, "specificationVersion", 0), m->spec);
    if (json_bool(j, "pipeline", false)) {
        assert_int_equal(m->n_part, 2);
        return;
    }
    const json *functions = json_get(j, "functions");
    assert_int_equal(functions->len, m->n_func);
    assert_int_equal(functions->len, m->program->n_func);
    if (m->multifunction) assert_string_equal(json_str(j, "defaultFunctionName", ""), m->default_function);
    JSON_EACH(f, functions) {
        const coreml_function *g = coreml_function_find(m, f->key);
        assert_non_null(g);
        assert_non_null(ir_function_find(m->program, f->key));
        same_features(json_get(f, "inputs"), g->in, g->n_in);
        same_features(json_get(f, "outputs"), g->out, g->n_out);
        same_features(json_get(f, "states"), g->state, g->n_state);
    }
    size_t count[OP_COUNT] = {0}, kinds = 0;
    for (size_t i = 0; i < m->program->n_func; i++) count_ops(&m->program->func[i]->body, count);
    for (int i = 0; i < OP_COUNT; i++) kinds += count[i] > 0;
    const json *histogram = json_get(j, "op_histogram");
    assert_int_equal(histogram->len, kinds);
    JSON_EACH(op, histogram) assert_int_equal(op->i, count[ir_opcode_by_name(op->key)]);
}

static void packages_read_as_coremltools_says(void **state) {
    (void)state;
    const char *root = test_case_path("coreml");
    DIR *d = opendir(root);
    int n = 0;
    for (struct dirent *f; (f = readdir(d));) {
        char path[PATH_MAX];
        const char *end = strstr(f->d_name, ".json");
        if (!end || end[5]) continue;
        err e = {0};
        arena *a = arena_new();
        snprintf(path, sizeof path, "%s/%s", root, f->d_name);
        const json *j = json_parse_file(a, path, &e);
        snprintf(path, sizeof path, "%s/%s/", root, json_str(j, "package", ""));
        coreml_package *p = coreml_open(path, &e);
        if (!p) fail_msg("%s", e.msg);
        same_package(j, p->model);
        coreml_close(p);
        arena_free(a);
        n++;
    }
    closedir(d);
    assert_in_range(n, 40, 1000);
}

static void functions_share_constants(void **state) {
    (void)state;
    err e = {0};
    coreml_package *p = coreml_open(test_case_path("coreml/qwen3_multifn_fp16.mlpackage"), &e);
    assert_non_null(p);
    size_t shared = 0, blobs[2] = {0};
    const ir_program *prog = p->model->program;
    assert_int_equal(prog->n_func, 2);
    for (int f = 0; f < 2; f++)
        for (size_t i = 0; i < prog->func[f]->body.n_op; i++) {
            const ir_op *op = prog->func[f]->body.op[i];
            if (op->code != OP_const || !op->out[0]->konst->in_blob) continue;
            blobs[f]++;
            for (size_t k = 0; f && k < prog->func[0]->body.n_op; k++) {
                const ir_op *other = prog->func[0]->body.op[k];
                if (other->code == OP_const && other->out[0]->konst == op->out[0]->konst) {
                    shared++;
                    break;
                }
            }
        }
    assert_int_equal(blobs[0], blobs[1]);
    assert_int_equal(shared, blobs[1]); /* the facts sheet: weights are stored once for both */
    coreml_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_read_as_coremltools_says),
        cmocka_unit_test(functions_share_constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
