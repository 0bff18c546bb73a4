/* read -> write -> read gives the same program; write -> read -> write the same bytes; and weight.bin comes
 * out as coremltools wrote it. MILLET_KEEP: a directory in which the written packages stay, for coremltools
 * to look at. */
#define _GNU_SOURCE
#include "base/file.h"
#include "coreml/model.h"
#include "work_dir.h"
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

static void same_text(const char *a, const char *b) {
    assert_int_equal(!a, !b);
    if (a) assert_string_equal(a, b);
}

static void same_const(const ir_const *a, const ir_const *b) {
    assert_int_equal(!a, !b);
    if (!a || a == b) return;
    assert_true(ir_type_equal(&a->type, &b->type));
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->in_blob, b->in_blob);
    assert_int_equal(!a->data, !b->data);
    if (a->type.dtype != DT_STRING) {
        if (a->bytes) assert_memory_equal(a->data, b->data, a->bytes);
        return;
    }
    const ir_string *x = a->data, *y = b->data;
    for (size_t i = 0; i < a->bytes / sizeof *x; i++) {
        assert_int_equal(x[i].len, y[i].len);
        assert_memory_equal(x[i].s, y[i].s, x[i].len);
    }
}

static void same_value(const ir_value *a, const ir_value *b) {
    same_text(a->name, b->name);
    assert_true(ir_type_equal(&a->type, &b->type));
    assert_int_equal(a->binding, b->binding);
    assert_int_equal(a->opaque.len, b->opaque.len);
    if (a->opaque.len) assert_memory_equal(a->opaque.s, b->opaque.s, a->opaque.len);
    same_const(a->konst, b->konst);
    assert_int_equal(!a->def, !b->def);
    if (a->def) same_text(a->def->name, b->def->name);
}

static void same_values(ir_value *const *a, size_t n, ir_value *const *b, size_t m) {
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) same_value(a[i], b[i]);
}

static void same_block(const ir_block *a, const ir_block *b);

static void same_op(const ir_op *a, const ir_op *b) {
    assert_int_equal(a->code, b->code);
    same_text(a->name, b->name);
    for (int s = 0; s < ir_info(a->code)->n_slot; s++)
        same_values(a->arg[s].v, a->arg[s].n, b->arg[s].v, b->arg[s].n);
    same_values(a->out, a->n_out, b->out, b->n_out);
    assert_int_equal(a->n_block, b->n_block);
    for (uint32_t i = 0; i < a->n_block; i++) same_block(a->block[i], b->block[i]);
}

static void same_block(const ir_block *a, const ir_block *b) {
    same_values(a->in, a->n_in, b->in, b->n_in);
    assert_int_equal(a->n_op, b->n_op);
    for (size_t i = 0; i < a->n_op; i++) same_op(a->op[i], b->op[i]);
    same_values(a->out, a->n_out, b->out, b->n_out);
}

static void same_features(const coreml_feature *a, size_t n, const coreml_feature *b, size_t m) {
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        same_text(a[i].name, b[i].name);
        same_text(a[i].description, b[i].description);
        assert_true(ir_type_equal(&a[i].type, &b[i].type));
        assert_int_equal(a[i].no_shape, b[i].no_shape);
        assert_int_equal(a[i].optional, b[i].optional);
        assert_int_equal(a[i].has_default, b[i].has_default);
        assert_true(a[i].default_value == b[i].default_value);
        assert_int_equal(a[i].n_shapes, b[i].n_shapes);
        for (size_t k = 0; k < a[i].n_shapes; k++)
            assert_memory_equal(a[i].shapes[k], b[i].shapes[k], sizeof a[i].shapes[k]);
        assert_int_equal(!a[i].range, !b[i].range);
        if (a[i].range)
            assert_memory_equal(a[i].range, b[i].range, sizeof(coreml_range) * (size_t)a[i].type.rank);
        same_text(a[i].other, b[i].other);
    }
}

static const char *user(const coreml_model *m, const char *key) {
    for (size_t i = 0; i < m->n_user; i++)
        if (!strcmp(m->user[i].key, key)) return m->user[i].value;
    return NULL;
}

static void same_program(const ir_program *a, const ir_program *b) {
    assert_int_equal(a->n_attr, b->n_attr);
    for (size_t i = 0; i < a->n_attr; i++) {
        same_text(a->attr[i].name, b->attr[i].name);
        same_const(a->attr[i].value, b->attr[i].value);
    }
    assert_int_equal(a->n_func, b->n_func);
    for (size_t i = 0; i < a->n_func; i++) {
        same_text(a->func[i]->name, b->func[i]->name);
        assert_int_equal(a->func[i]->spec, b->func[i]->spec);
        assert_int_equal(a->func[i]->n_values, b->func[i]->n_values);
        same_values(a->func[i]->in, a->func[i]->n_in, b->func[i]->in, b->func[i]->n_in);
        same_block(&a->func[i]->body, &b->func[i]->body);
    }
}

static void same_model(const coreml_model *a, const coreml_model *b) {
    assert_int_equal(a->spec, b->spec);
    assert_int_equal(a->multifunction, b->multifunction);
    same_text(a->default_function, b->default_function);
    same_text(a->short_description, b->short_description);
    same_text(a->version, b->version);
    same_text(a->author, b->author);
    same_text(a->license, b->license);
    assert_int_equal(a->n_user, b->n_user);
    for (size_t i = 0; i < a->n_user; i++) same_text(a->user[i].value, user(b, a->user[i].key));
    assert_int_equal(a->n_func, b->n_func);
    for (size_t i = 0; i < a->n_func; i++) {
        const coreml_function *f = &a->func[i], *g = &b->func[i];
        same_text(f->name, g->name);
        same_text(f->predicted, g->predicted);
        same_text(f->probabilities, g->probabilities);
        same_features(f->in, f->n_in, g->in, g->n_in);
        same_features(f->out, f->n_out, g->out, g->n_out);
        same_features(f->state, f->n_state, g->state, g->n_state);
    }
    assert_int_equal(!a->program, !b->program);
    if (a->program) same_program(a->program, b->program);
    assert_int_equal(a->n_part, b->n_part);
    for (size_t i = 0; i < a->n_part; i++) {
        same_text(a->part_name[i], b->part_name[i]);
        same_model(a->part[i], b->part[i]);
    }
}

static void same_file(const char *a, const char *b, const char *below) {
    char path[2][PATH_MAX];
    err e = {0};
    file_map x, y;
    snprintf(path[0], sizeof path[0], "%s/%s", a, below);
    snprintf(path[1], sizeof path[1], "%s/%s", b, below);
    if (!file_exists(path[0]) && !file_exists(path[1])) return;
    assert_true(file_open_map(&x, path[0], &e) && file_open_map(&y, path[1], &e));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    file_unmap(&x);
    file_unmap(&y);
    struct stat st;
    assert_false(stat(path[1], &st));
    assert_int_equal(st.st_mode & 0777 & ~0644, 0);
}

#define WEIGHTS "Data/com.apple.CoreML/weights/"

static void round_trip(const char *from, const char *dir, const char *name) {
    char first[PATH_MAX], second[PATH_MAX];
    err e = {0};
    snprintf(first, sizeof first, "%s/%s", dir, name);
    snprintf(second, sizeof second, "%s/again-%s", dir, name);
    coreml_write_options o = {.overwrite = true};
    coreml_package *p = coreml_open(from, &e);
    if (!p) fail_msg("%s", e.msg);
    assert_true(coreml_write(first, p->model, &o, &e));
    coreml_package *q = coreml_open(first, &e);
    if (!q) fail_msg("%s", e.msg);
    same_model(p->model, q->model);
    assert_true(coreml_write(second, q->model, &o, &e));
    static const char *const files[] = {"Manifest.json", "Data/com.apple.CoreML/model.mlmodel",
                                        WEIGHTS "weight.bin", WEIGHTS "0-weight.bin", WEIGHTS "1-weight.bin"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) same_file(first, second, files[i]);
    /* The order of functions in a file is that of a hash table, so weights of several functions may lie
     * elsewhere. */
    bool order_known = p->model->n_func == 1;
    for (size_t i = 2; order_known && i < sizeof files / sizeof *files; i++) same_file(from, first, files[i]);
    coreml_close(p);
    coreml_close(q);
    assert_true(file_remove_tree(second, &e));
    if (!getenv("MILLET_KEEP")) assert_true(file_remove_tree(first, &e));
}

static int packages_below(const char *root, const char *dir) {
    int n = 0;
    DIR *d = opendir(root);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));) {
        char path[PATH_MAX];
        const char *end = strrchr(f->d_name, '.');
        if (f->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", root, f->d_name);
        if (end && !strcmp(end, ".mlpackage")) {
            round_trip(path, dir, f->d_name);
            n++;
        } else if (file_is_dir(path)) {
            n += packages_below(path, dir);
        }
    }
    closedir(d);
    return n;
}

static void every_package(const char *below, int at_least) {
    const char *root = test_case_path(below);
    const char *keep = getenv("MILLET_KEEP");
    if (!keep) assert_int_equal(make_work_dir(NULL), 0);
    assert_in_range(packages_below(root, keep ? keep : work_dir), at_least, 1000);
    if (!keep) assert_int_equal(remove_work_dir(NULL), 0);
}

static void coremltools_packages(void **state) {
    (void)state;
    every_package("coreml", 40);
}

static void packages_of_other_converters(void **state) {
    (void)state;
    every_package("thirdparty", 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coremltools_packages),
        cmocka_unit_test(packages_of_other_converters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
