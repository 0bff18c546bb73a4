/* Every package of the shared cases through the public interface: its description, and every call in both
 * number modes against PyTorch's float32 results.
 * Each expected tensor states its own tolerance for an fp16 run (atol); integers must be equal, except that a
 * top-k index may differ where float32 scores lie within atol of each other (a near tie). A package without
 * any fp16 value must agree to 1e-5 of the largest value: float32 sums differ by their order only. Linear
 * layers take the path int16: bf16, the default for many rows, rounds more coarsely than an fp16 run
 * (test_plan, tests/kernels). */
#define _GNU_SOURCE /* scandir */
#include "api/api.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "test.h"
#include <dirent.h>
#include <math.h>

typedef struct {
    const char *name, *dir;
    const json *j; /* the case */
    st_file *tensors;
    const millet_package *p;
    millet_precision mode;
    size_t call, tensors_checked, features_checked;
    bool all_fp32;
} checker;

static double element(const ir_type *type, const void *data, int64_t i) {
    const ir_const c = {.type = *type, .data = data};
    double v = 0;
    assert_true(ir_const_number(&c, (uint64_t)i, &v));
    return v;
}

static void complain(const checker *k, const char *name, const char *what, int64_t i, double got, double want,
                     double atol) {
    fail_msg("%s, %s mode, call %zu, %s: %s at %lld: got %.9g, expected %.9g (atol %g)", k->name,
             k->mode == MILLET_STRICT ? "strict" : "fast", k->call, name, what, (long long)i, got, want,
             atol);
}

static const st_tensor *expected(const checker *k, const json *spec) {
    const st_tensor *t = st_find(k->tensors, json_str(spec, "f32", ""));
    assert_non_null(t);
    return t;
}

static void check_shape(const checker *k, const char *name, const rt_tensor *got, const st_tensor *want) {
    int64_t n = ir_type_count(&want->type);
    if (ir_type_count(&got->type) != n)
        complain(k, name, "number of elements", 0, (double)ir_type_count(&got->type), (double)n, 0);
    for (int d = 0; d < want->type.rank && got->type.rank == want->type.rank; d++)
        if (got->type.dim[d] != want->type.dim[d])
            complain(k, name, "size", d, (double)got->type.dim[d], (double)want->type.dim[d], 0);
}

static void check_floats(const checker *k, const char *name, const rt_tensor *got, const st_tensor *want,
                         double atol) {
    for (int64_t i = 0, n = ir_type_count(&want->type); i < n; i++) {
        double a = element(&got->type, got->data, i), b = element(&want->type, want->data, i);
        bool same = isfinite(b) ? fabs(a - b) <= atol : (isnan(a) && isnan(b)) || a == b;
        if (!same) complain(k, name, "value", i, a, b, atol);
    }
}

/* Float32 score of id in row r of the expected top-k, -inf when it is not among them. */
static double score_of(const st_tensor *ids, const st_tensor *values, int64_t width, int64_t row, double id) {
    for (int64_t i = 0; i < width; i++)
        if (element(&ids->type, ids->data, row * width + i) == id)
            return element(&values->type, values->data, row * width + i);
    return -INFINITY;
}

/* An index that isn't the expected one must score as much, within atol; one that is not listed at all is
 * possible only where the expected score ties with the last listed one. */
static void check_topk(const checker *k, const char *name, const rt_tensor *got, const st_tensor *ids,
                       const json *values_spec) {
    const st_tensor *values = expected(k, values_spec);
    double atol = json_double(values_spec, "atol", 0);
    int64_t width = ids->type.dim[ids->type.rank - 1];
    for (int64_t i = 0, n = ir_type_count(&ids->type); i < n; i++) {
        double a = element(&got->type, got->data, i), b = element(&ids->type, ids->data, i);
        if (a == b) continue;
        double want = element(&values->type, values->data, i),
               score = score_of(ids, values, width, i / width, a);
        if (score == -INFINITY) score = element(&values->type, values->data, (i / width + 1) * width - 1);
        if (fabs(score - want) > atol) complain(k, name, "top-k index", i, a, b, atol);
    }
}

static void check_tensor(checker *k, const json *group, const json *spec, const rt_tensor *got) {
    const char *name = spec->key;
    const st_tensor *want = expected(k, spec);
    k->tensors_checked++;
    check_shape(k, name, got, want);
    if (dtype_is_float((ir_dtype)want->type.dtype)) {
        double atol = json_double(spec, "atol", -1);
        assert_true(atol >= 0);
        check_floats(k, name, got, want, k->all_fp32 ? 1e-5 * json_double(spec, "max_abs", 0) : atol);
        return;
    }
    const json *values = !strcmp(name, "topkIndices") ? json_get(group, "topkValues") : NULL;
    if (values) {
        check_topk(k, name, got, want, values);
        return;
    }
    for (int64_t i = 0, n = ir_type_count(&want->type); i < n; i++) {
        double a = element(&got->type, got->data, i), b = element(&want->type, want->data, i);
        if (a != b) complain(k, name, "integer", i, a, b, 0);
    }
}

/* A result as the checks above want it. */
static void check_result(checker *k, const json *group, const json *spec, const millet_tensor *t) {
    rt_tensor got;
    err e = {0};
    if (!api_tensor_in(&got, t, &e)) fail_msg("%s", e.msg);
    check_tensor(k, group, spec, &got);
}

static const millet_tensor *find(const millet_call *c, const char *name) {
    for (size_t i = 0; i < c->n_output; i++)
        if (!strcmp(c->output[i].name, name)) return &c->output[i];
    return NULL;
}

static void check_call(checker *k, millet_session *s, const json *call) {
    millet_error e;
    millet_tensor in[64], out[64];
    millet_call c = {.size = sizeof c,
                     .function = json_str(call, "function", NULL),
                     .input = in,
                     .output = out,
                     .max_output = 64};
    JSON_EACH(i, json_get(call, "inputs")) {
        const st_tensor *t = st_find(k->tensors, i->s);
        assert_non_null(t);
        api_tensor_out(&in[c.n_input++], &(rt_tensor){i->key, t->type, t->data});
    }
    if (!millet_run(s, &c, &e)) fail_msg("%s, call %zu: %s", k->name, k->call, e.message);
    JSON_EACH(o, json_get(call, "outputs")) {
        const millet_tensor *t = find(&c, o->key);
        assert_non_null(t);
        check_result(k, json_get(call, "outputs"), o, t);
    }
    JSON_EACH(o, json_get(call, "states_after")) {
        millet_tensor t;
        if (!millet_state_get(s, o->key, &t, &e)) fail_msg("%s", e.message);
        check_result(k, json_get(call, "states_after"), o, &t);
    }
}

static void check_calls(checker *k) {
    const char *label[8];
    millet_session *session[8];
    size_t n = 0;
    k->call = 0;
    JSON_EACH(call, json_get(k->j, "calls")) {
        const char *state = json_str(call, "state", "");
        size_t i = 0;
        while (i < n && strcmp(label[i], state)) i++;
        if (i == n) {
            const millet_session_options o = {.size = sizeof o, .precision = k->mode};
            assert_true(n < 8);
            label[n] = state;
            session[n++] = millet_session_new(k->p, &o, NULL);
            assert_non_null(session[i]);
        }
        if (!*state) millet_state_reset(session[i]);
        check_call(k, session[i], call);
        k->call++;
    }
    for (size_t i = 0; i < n; i++) {
        millet_stats st = {.size = sizeof st};
        assert_true(millet_session_stats(session[i], &st) && st.calls > 0 && st.memory > 0);
        millet_session_free(session[i]);
    }
}

/* ---- descriptions ---- */

static void check_sizes(const checker *k, const json *want, const millet_feature *f) {
    const json *ranges = json_get(want, "range"), *listed = json_get(want, "enumerated");
    int i = 0;
    JSON_EACH(size, json_get(want, "shape")) {
        const json *range = ranges ? ranges->child : NULL;
        for (int r = 0; range && r < i; r++) range = range->next;
        int64_t lower = range ? range->child->i : size->i, upper = range ? range->child->next->i : size->i;
        JSON_EACH(shape, listed) {
            const json *x = shape->child;
            for (int r = 0; r < i; r++) x = x->next;
            if (x->i < lower) lower = x->i;
            if (x->i > upper) upper = x->i;
        }
        if (f->shape[i] != size->i || f->lower[i] != lower || f->upper[i] != upper)
            fail_msg("%s, %s: size %d is %lld (%lld to %lld)", k->name, f->name, i, (long long)f->shape[i],
                     (long long)f->lower[i], (long long)f->upper[i]);
        i++;
    }
    assert_int_equal(f->rank, i);
    assert_int_equal(f->ranged, ranges != NULL);
    assert_int_equal(f->n_shapes, listed ? listed->len : 0);
}

static void check_features(checker *k, const char *function, millet_kind kind, const json *want) {
    assert_int_equal(millet_feature_count(k->p, function, kind), want ? want->len : 0);
    size_t i = 0;
    JSON_EACH(w, want) {
        millet_feature f = {.size = sizeof f};
        assert_true(millet_feature_at(k->p, function, kind, i++, &f));
        assert_string_equal(f.name, json_str(w, "name", ""));
        assert_string_equal(millet_dtype_name(f.dtype), json_str(w, "dtype", ""));
        if (json_get(w, "shape")->len)
            check_sizes(k, w, &f);
        else
            assert_true(f.rank <= 0); /* not declared, or one number */
        k->features_checked++;
    }
}

static void check_description(checker *k) {
    static const char *const kinds[] = {"inputs", "outputs", "states"};
    const json *functions = json_get(k->j, "functions"); /* absent for pipelines */
    if (functions) assert_int_equal(millet_function_count(k->p), functions->len);
    JSON_EACH(f, functions)
    for (millet_kind kind = MILLET_INPUT; kind <= MILLET_STATE; kind++)
        check_features(k, f->key, kind, json_get(f, kinds[kind]));
    millet_package_info info = {.size = sizeof info};
    assert_true(millet_package_describe(k->p, &info));
    assert_int_equal(info.specification_version, json_int(k->j, "specificationVersion", -1));
    assert_int_equal(info.pipeline, json_get(k->j, "pipeline") != NULL);
}

/* What the public interface does not say. */
static bool only_fp32(const char *path) {
    err e = {0};
    rt_model *model = rt_model_open(path, &e);
    if (!model) fail_msg("%s", e.msg);
    const coreml_model *m = rt_model_coreml(model);
    bool only = m->program != NULL;
    for (size_t i = 0; m->program && i < m->program->n_func; i++) {
        const ir_block *b = &m->program->func[i]->body;
        for (size_t o = 0; o < b->n_op; o++)
            for (uint32_t x = 0; x < b->op[o]->n_out; x++) only &= b->op[o]->out[x]->type.dtype != DT_FP16;
    }
    rt_model_close(model);
    return only;
}

static void check_case(checker *k, size_t *calls) {
    err e = {0};
    arena *a = arena_new();
    k->j = json_parse_file(a, arena_printf(a, "%s/%s.json", k->dir, k->name), &e);
    assert_non_null(k->j);
    k->tensors = st_open(arena_printf(a, "%s/%s", k->dir, json_str(k->j, "tensors", "")), &e);
    assert_non_null(k->tensors);
    const char *path = arena_printf(a, "%s/%s", k->dir, json_str(k->j, "package", ""));
    const millet_open_options o = {.size = sizeof o, .linear = "int16"};
    millet_error me;
    millet_package *p = millet_package_open(path, &o, &me);
    if (!p) fail_msg("%s", me.message);
    k->p = p;
    k->all_fp32 = only_fp32(path);
    check_description(k);
    for (int mode = 0; mode < 2; mode++) {
        k->mode = mode ? MILLET_FAST : MILLET_STRICT;
        check_calls(k);
    }
    *calls += k->call;
    millet_package_close(p);
    st_close(k->tensors);
    arena_free(a);
}

static int is_case(const struct dirent *d) {
    const char *dot = strrchr(d->d_name, '.');
    return dot && !strcmp(dot, ".json");
}

static void every_case(void **state) {
    (void)state;
    const char *dir = test_case_path("coreml");
    struct dirent **list;
    int n = scandir(dir, &list, is_case, alphasort);
    size_t calls = 0, tensors = 0, features = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)(strlen(list[i]->d_name) - 5), list[i]->d_name);
        checker k = {.name = name, .dir = dir};
        check_case(&k, &calls);
        tensors += k.tensors_checked;
        features += k.features_checked;
        free(list[i]);
    }
    free(list);
    printf("%d packages with %zu features, %zu calls in two modes, %zu tensors compared\n", n, features,
           calls, tensors);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
