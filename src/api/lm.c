#include "generate/lm.h"
#include "api/api.h"
#include "base/arena.h"
#include <stdlib.h>
#include <string.h>

struct millet_lm {
    lm *m;
    millet_package *package; /* one a model of m, which owns those */
};

static bool open_options(millet_lm_options *o, millet_open_options *open, const millet_lm_options *options,
                         err *e) {
    return api_struct_in(o, sizeof *o, options, "millet_lm_options", e) &&
           api_struct_in(open, sizeof *open, o->open, "millet_open_options", e);
}

static millet_lm *open_lm(const char *path, const millet_lm_options *options, err *e) {
    millet_lm_options o;
    millet_open_options open;
    if (!open_options(&o, &open, options, e)) return NULL;
    lm *m = lm_open_as(path, o.tokenizer, o.contract, e);
    for (size_t i = 0; m && open.linear && i < m->n_model; i++)
        if (!rt_model_linear(m->model[i], open.linear, e)) {
            lm_close(m);
            return NULL;
        }
    if (!m) return NULL;
    millet_lm *opened = mem_alloc(sizeof *opened);
    *opened = (millet_lm){m, mem_alloc(m->n_model * sizeof *opened->package)};
    for (size_t i = 0; i < m->n_model; i++) opened->package[i] = (millet_package){m->model[i]};
    return opened;
}

millet_lm *millet_lm_open(const char *path, const millet_lm_options *options, millet_error *error) {
    err e = {0};
    millet_lm *m = open_lm(path, options, &e);
    api_done(error, &e);
    return m;
}

void millet_lm_close(millet_lm *m) {
    if (!m) return;
    lm_close(m->m);
    free(m->package);
    free(m);
}

const lm *api_lm(const millet_lm *m) {
    return m->m;
}

const millet_tokenizer *millet_lm_tokenizer(const millet_lm *m) {
    return (const millet_tokenizer *)m->m->text;
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
