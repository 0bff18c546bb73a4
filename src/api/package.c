#include "api/api.h"
#include "generate/artifact.h"
#include <string.h>

static const coreml_model *described(const millet_package *p) {
    return rt_model_coreml(p->m);
}

/* ---- opening ---- */

typedef struct {
    const char *path;
    const millet_open_options *o;
    heap *h;
    millet_package *p;
} opening;

static void open_package(void *args, err *e) {
    opening *k = args;
    arena *a = arena_new();
    artifact_paths p;
    bool ok = artifact_locate(&p, a, k->path, NULL, e);
    if (ok && p.n_package > 1)
        ok = err_set(e, ERR_USAGE, "%s: has %zu packages: open one by its path, or all with millet_lm_open()",
                     k->path, p.n_package);
    rt_model *m = ok ? rt_model_open(p.package[0], e) : NULL;
    arena_free(a);
    if (!m) return;
    k->p = mem_alloc(sizeof *k->p);
    *k->p = (millet_package){.h = k->h, .m = m};
    if (k->o->linear) rt_model_linear(m, k->o->linear, e);
}

millet_package *millet_package_open(const char *path, const millet_open_options *options,
                                    millet_error *error) {
    err e = {0};
    millet_open_options o;
    opening k = {path, &o, NULL, NULL};
    if (api_given(path, "path", &e) && api_struct_in(&o, sizeof o, options, "millet_open_options", &e))
        k.h = api_heap(&o, &e);
    if (k.h && !api_guard(k.h, open_package, &k, NULL, &e)) heap_drop(k.h);
    return api_done(error, &e) ? k.p : NULL;
}

void millet_package_close(millet_package *p) {
    if (!p) return;
    heap *h = p->h;
    bool bound = p->bound;
    rt_model_close(p->m);
    mem_free(p);
    api_heap_end(h, bound);
}

bool millet_package_stats(const millet_package *p, millet_model_stats *stats) {
    err e = {0};
    if (!api_sized(stats, "millet_model_stats", &e)) return false;
    api_model_stats(stats, p->h, (const rt_model *const *)&p->m, 1);
    return true;
}

/* ---- description ---- */

const char *millet_package_path(const millet_package *p) {
    return rt_model_path(p->m);
}

size_t millet_function_count(const millet_package *p) {
    return described(p)->n_func;
}

const char *millet_function_name(const millet_package *p, size_t i) {
    return i < described(p)->n_func ? described(p)->func[i].name : NULL;
}

const char *millet_default_function(const millet_package *p) {
    return described(p)->default_function;
}

/* The features of a kind; *n = 0 when there are none. */
static const coreml_feature *features(const millet_package *p, const char *function, millet_kind kind,
                                      size_t *n) {
    const coreml_model *m = described(p);
    const coreml_function *f = coreml_function_find(m, function ? function : m->default_function);
    bool known = kind == MILLET_INPUT || kind == MILLET_OUTPUT || kind == MILLET_STATE;
    *n = !f || !known ? 0 : kind == MILLET_INPUT ? f->n_in : kind == MILLET_OUTPUT ? f->n_out : f->n_state;
    return !f ? NULL : kind == MILLET_INPUT ? f->in : kind == MILLET_OUTPUT ? f->out : f->state;
}

size_t millet_feature_count(const millet_package *p, const char *function, millet_kind kind) {
    size_t n;
    features(p, function, kind, &n);
    return n;
}

static void set_bounds(millet_feature *to, const coreml_feature *x, int i) {
    to->lower[i] = to->upper[i] = x->type.dim[i];
    for (size_t k = 0; k < x->n_shapes; k++) {
        if (x->shapes[k][i] < to->lower[i]) to->lower[i] = x->shapes[k][i];
        if (x->shapes[k][i] > to->upper[i]) to->upper[i] = x->shapes[k][i];
    }
    if (x->range) to->lower[i] = x->range[i].lower, to->upper[i] = x->range[i].upper;
}

/* How the description writes the default value. */
static millet_dtype default_dtype(const coreml_feature *x) {
    ir_dtype own = dtype_is_float((ir_dtype)x->type.dtype) ? DT_FP32 : DT_INT32;
    return api_dtype_out(x->default_dtype ? (ir_dtype)x->default_dtype : own);
}

bool millet_feature_at(const millet_package *p, const char *function, millet_kind kind, size_t i,
                       millet_feature *f) {
    size_t n;
    const coreml_feature *x = features(p, function, kind, &n);
    err e = {0};
    if (i >= n || !api_sized(f, "millet_feature", &e)) return false;
    x += i;
    millet_feature whole = {.name = x->name,
                            .rank = -1,
                            .optional = x->optional,
                            .has_default = x->has_default,
                            .default_value = x->has_default ? x->default_value : 0,
                            .kind = x->other ? x->other : "tensor",
                            .n_shapes = x->n_shapes,
                            .shapes = x->n_shapes ? x->shapes[0] : NULL,
                            .description = x->description ? x->description : "",
                            .ranged = x->range != NULL,
                            .default_dtype = x->has_default ? default_dtype(x) : (millet_dtype)0};
    if (!x->other) whole.dtype = api_dtype_out(x->type.dtype);
    if (!x->other && !(x->no_shape && kind == MILLET_OUTPUT)) whole.rank = x->type.rank;
    for (int k = 0; k < whole.rank; k++) {
        whole.shape[k] = x->type.dim[k];
        set_bounds(&whole, x, k);
    }
    api_struct_out(f, &whole, sizeof whole);
    return true;
}

const char *millet_metadata(const millet_package *p, const char *key) {
    const coreml_model *m = described(p);
    const struct {
        const char *key, *value;
    } own[] = {{"description", m->short_description},
               {"version", m->version},
               {"author", m->author},
               {"license", m->license}};
    if (!key) return NULL;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!strcmp(key, own[i].key)) return own[i].value;
    for (size_t i = 0; i < m->n_user; i++)
        if (!strcmp(key, m->user[i].key)) return m->user[i].value;
    return NULL;
}

bool millet_metadata_at(const millet_package *p, size_t i, const char **key, const char **value) {
    const coreml_model *m = described(p);
    if (i >= m->n_user) return false;
    *key = m->user[i].key;
    *value = m->user[i].value;
    return true;
}

bool millet_package_describe(const millet_package *p, millet_package_info *info) {
    const coreml_model *m = described(p);
    err e = {0};
    if (!api_sized(info, "millet_package_info", &e)) return false;
    const millet_package_info whole = {
        .specification_version = m->spec, .multifunction = m->multifunction, .pipeline = m->n_part > 0};
    api_struct_out(info, &whole, sizeof whole);
    return true;
}
