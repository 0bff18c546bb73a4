#include "api/api.h"
#include "base/arena.h"

typedef struct {
    const char *path;
    millet_lm_options o;
    millet_open_options open;
    heap *h;
    millet_lm *m;
} opening;

static void open_lm(void *args, err *e) {
    opening *k = args;
    lm *m = lm_open_as(k->path, k->o.tokenizer, k->o.contract, e);
    for (size_t i = 0; m && k->open.linear && i < m->n_model; i++)
        if (!rt_model_linear(m->model[i], k->open.linear, e)) return;
    if (!m) return;
    k->m = mem_alloc(sizeof *k->m);
    *k->m = (millet_lm){k->h, m, mem_alloc((m->n_model + 1) * sizeof(millet_package)), {k->h, m->text}};
    for (size_t i = 0; i < m->n_model; i++) k->m->package[i] = (millet_package){.h = k->h, .m = m->model[i]};
}

static bool read_options(opening *k, const millet_lm_options *options, err *e) {
    return api_struct_in(&k->o, sizeof k->o, options, "millet_lm_options", e) &&
           api_struct_in(&k->open, sizeof k->open, k->o.open, "millet_open_options", e);
}

millet_lm *millet_lm_open(const char *path, const millet_lm_options *options, millet_error *error) {
    err e = {0};
    opening k = {.path = path};
    if (api_given(path, "path", &e) && read_options(&k, options, &e)) k.h = api_heap(&k.open, &e);
    if (k.h && !api_guard(k.h, open_lm, &k, NULL, &e)) heap_drop(k.h);
    return api_done(error, &e) ? k.m : NULL;
}

void millet_lm_close(millet_lm *m) {
    if (!m) return;
    heap *h = m->h;
    bool bound = false;
    for (size_t i = 0; i < m->m->n_model; i++) bound |= m->package[i].bound;
    lm_close(m->m);
    mem_free(m->package);
    mem_free(m);
    api_heap_end(h, bound);
}

bool millet_lm_stats(const millet_lm *m, millet_model_stats *stats) {
    err e = {0};
    if (!api_sized(stats, "millet_model_stats", &e)) return false;
    api_model_stats(stats, m->h, (const rt_model *const *)m->m->model, m->m->n_model);
    return true;
}

const millet_tokenizer *millet_lm_tokenizer(const millet_lm *m) {
    return m->text.t ? &m->text : NULL;
}

const char *millet_lm_tokenizer_path(const millet_lm *m) {
    return m->m->text ? m->m->text_path : NULL;
}

int64_t millet_lm_context(const millet_lm *m) {
    return m->m->form.context;
}

int64_t millet_lm_vocabulary(const millet_lm *m) {
    return m->m->vocab;
}

bool millet_lm_is_stop(const millet_lm *m, int32_t id) {
    return stop_set_has(&m->m->stop, id);
}

size_t millet_lm_package_count(const millet_lm *m) {
    return m->m->n_model;
}

const millet_package *millet_lm_package(const millet_lm *m, size_t i) {
    return i < m->m->n_model ? &m->package[i] : NULL;
}
