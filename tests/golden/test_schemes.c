/* Every compression scheme, on checkpoints of every family, converted, opened and run, against transformers'
 * float32 logits on the weights as coremltools decompresses them from such a package
 * (tests/oracle/scheme_matrix.py, which checks all positions and precision mixed too; this is a part of it
 * that is quick). */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "convert/convert.h"
#include "generate/lm.h"
#include "generate/score.h"
#include "work_dir.h"
#include <math.h>
#include <unistd.h>

/* Two float32 implementations that sum in another order; a share of the logits' range. */
#define TOLERANCE 2e-4

static size_t read_ids(const json *j, int32_t *id, size_t most) {
    size_t n = 0;
    JSON_EACH(v, json_get(j, "ids")) {
        assert_true(n < most && v->kind == JSON_INT);
        id[n++] = (int32_t)v->i;
    }
    return n;
}

/* The logits of all positions, [ids, vocabulary]. */
static const st_tensor *score(arena *a, const json *j, st_file **file) {
    err e = {0};
    const char *out = arena_printf(a, "%s/out", work_dir), *logits = arena_printf(a, "%s/logits", work_dir);
    convert_options o = {.preset = json_str(j, "preset", NULL),
                         .precision = "float32",
                         .context = 64,
                         .top_k = !strcmp(json_str(j, "preset", ""), "single") ? 0 : -1,
                         .quantize = json_str(j, "quantize", NULL),
                         .vocab = json_str(j, "vocab", NULL),
                         .overwrite = true};
    const char *dir = test_case_path(arena_printf(a, "models/%s", json_str(j, "checkpoint", "")));
    int32_t id[64];
    size_t n = read_ids(j, id, 64);
    if (!convert_checkpoint(dir, out, &o, NULL, &e)) fail_msg("%s", e.msg);
    lm *m = lm_open(out, NULL, &e);
    if (!m) fail_msg("%s", e.msg);
    score_options how = {.mode = RT_STRICT,
                         .logits = logits}; /* decompressed weights are fp16, as declared */
    score_result r;
    if (!score_ids(m, id, n, &how, &r, &e)) fail_msg("%s", e.msg);
    lm_close(m);
    *file = st_open(logits, &e);
    if (!*file) fail_msg("%s", e.msg);
    return st_find(*file, "logits");
}

static void check_row(const json *j, const json *row, const st_tensor *t, double range) {
    int64_t at = json_int(row, "position", -1), width = t->type.dim[1];
    assert_true(at >= 0 && at < t->type.dim[0]);
    const float *got = (const float *)t->data + at * width;
    const json *id = json_get(row, "ids")->child, *want = json_get(row, "logits")->child;
    double margin = json_double(row, "margin", 0);
    for (int64_t first = id->i; id && want; id = id->next, want = want->next) {
        assert_true(id->i >= 0 && id->i < width);
        double w = want->d, g = (double)got[id->i];
        if (fabs(g - w) > TOLERANCE * range || (margin >= 0.1 && got[id->i] > got[first]))
            fail_msg("%s, %s, %s: position %lld, id %lld: %.7g, transformers has %.7g",
                     json_str(j, "checkpoint", ""), json_str(j, "preset", ""), json_str(j, "quantize", ""),
                     (long long)at, (long long)id->i, g, w);
    }
}

static void schemes_run_as_transformers_does(void **s) {
    (void)s;
    err e = {0};
    arena *a = arena_new();
    const char *source = getenv("MILLET_SOURCE");
    const json *all =
        json_parse_file(a, arena_printf(a, "%s/tests/data/scheme_cases.json", source ? source : "."), &e);
    if (!all) fail_msg("%s", e.msg);
    size_t n = 0;
    JSON_EACH(j, json_get(all, "cases")) {
        st_file *file;
        const st_tensor *t = score(a, j, &file);
        JSON_EACH(row, json_get(j, "rows")) check_row(j, row, t, json_double(j, "range", 0));
        st_close(file);
        n++;
    }
    assert_true(n >= 12);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(schemes_run_as_transformers_does)};
    return cmocka_run_group_tests_name("schemes", tests, make_work_dir, remove_work_dir);
}
