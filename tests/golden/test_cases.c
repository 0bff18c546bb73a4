/* Every package of the shared cases, every call, in both number modes, against PyTorch's float32 results.
 * Each expected tensor states its own tolerance for an fp16 run (atol); integers must be equal, except that a
 * top-k index may differ where float32 scores lie within atol of each other (a near tie). A package without
 * any fp16 value must agree to 1e-5 of the largest value: float32 sums differ by their order only. Linear
 * layers take the path int16: bf16, the default for many rows, rounds more coarsely than an fp16 run
 * (test_plan, tests/kernels). */
#define _GNU_SOURCE /* scandir */
#include "base/json.h"
#include "base/num.h"
#include "checkpoint/safetensors.h"
#include "runtime/calls.h"
#include "test.h"
#include <dirent.h>
#include <math.h>

typedef struct {
    const char *name, *dir;
    const json *j; /* the case */
    st_file *tensors;
    const rt_model *m;
    rt_mode mode;
    arena *a;
    size_t call, tensors_checked;
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
             k->mode == RT_STRICT ? "strict" : "fast", k->call, name, what, (long long)i, got, want, atol);
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

static const rt_tensor *find(const rt_call *c, const char *name) {
    for (size_t i = 0; i < c->n_out; i++)
        if (!strcmp(c->out[i].name, name)) return &c->out[i];
    return NULL;
}

static void check_call(checker *k, rt_session *s, const json *call) {
    err e = {0};
    const json *inputs = json_get(call, "inputs");
    rt_call c = {.function = json_str(call, "function", NULL)};
    rt_tensor in[64], out[64];
    c.in = in;
    c.out = out;
    JSON_EACH(i, inputs) {
        const st_tensor *t = st_find(k->tensors, i->s);
        assert_non_null(t);
        in[c.n_in++] = (rt_tensor){i->key, t->type, t->data};
    }
    if (!rt_run(s, &c, &e)) fail_msg("%s, call %zu: %s", k->name, k->call, e.msg);
    JSON_EACH(o, json_get(call, "outputs")) {
        const rt_tensor *t = find(&c, o->key);
        assert_non_null(t);
        check_tensor(k, json_get(call, "outputs"), o, t);
    }
    JSON_EACH(o, json_get(call, "states_after")) {
        rt_tensor t;
        assert_true(rt_state_get(s, o->key, &t, &e));
        check_tensor(k, json_get(call, "states_after"), o, &t);
    }
}

static void check_calls(checker *k) {
    const char *label[8];
    rt_session *session[8];
    size_t n = 0;
    err e = {0};
    k->call = 0;
    JSON_EACH(call, json_get(k->j, "calls")) {
        const char *state = json_str(call, "state", "");
        size_t i = 0;
        while (i < n && strcmp(label[i], state)) i++;
        if (i == n) {
            assert_true(n < 8);
            label[n] = state;
            session[n++] = rt_session_new(k->m, k->mode, &e);
            assert_non_null(session[i]);
        }
        if (!*state) rt_state_reset(session[i]);
        check_call(k, session[i], call);
        k->call++;
    }
    for (size_t i = 0; i < n; i++) rt_session_free(session[i]);
}

static bool only_fp32(const coreml_model *m) {
    for (size_t i = 0; m->program && i < m->program->n_func; i++) {
        const ir_block *b = &m->program->func[i]->body;
        for (size_t o = 0; o < b->n_op; o++)
            for (uint32_t x = 0; x < b->op[o]->n_out; x++)
                if (b->op[o]->out[x]->type.dtype == DT_FP16) return false;
    }
    return m->program != NULL;
}

static void check_case(checker *k, size_t *calls) {
    err e = {0};
    arena *a = arena_new();
    k->a = a;
    k->j = json_parse_file(a, arena_printf(a, "%s/%s.json", k->dir, k->name), &e);
    assert_non_null(k->j);
    k->tensors = st_open(arena_printf(a, "%s/%s", k->dir, json_str(k->j, "tensors", "")), &e);
    assert_non_null(k->tensors);
    rt_model *m = rt_model_open(arena_printf(a, "%s/%s", k->dir, json_str(k->j, "package", "")), &e);
    if (!m) fail_msg("%s", e.msg);
    k->m = m;
    k->all_fp32 = only_fp32(rt_model_coreml(m));
    for (int mode = 0; mode < 2; mode++) {
        k->mode = mode ? RT_FAST : RT_STRICT;
        check_calls(k);
    }
    *calls += k->call;
    rt_model_close(m);
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
    size_t calls = 0, tensors = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)(strlen(list[i]->d_name) - 5), list[i]->d_name);
        checker k = {.name = name, .dir = dir};
        check_case(&k, &calls);
        tensors += k.tensors_checked;
        free(list[i]);
    }
    free(list);
    printf("%d packages, %zu calls in two modes, %zu tensors compared\n", n, calls, tensors);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
    setenv("MILLET_LINEAR", "int16", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
