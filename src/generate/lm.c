#include "generate/lm.h"
#include "base/file.h"
#include "base/json.h"
#include "coreml/embedding.h"
#include "generate/artifact.h"
#include "generate/find.h"
#include "generate/values.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The union of all end ids: those of the checkpoint's configuration, of generation_config.json, of the
 * tokenizer, and the token that ends a chat turn. */
static bool find_stops(lm *m, const char *metadata_path, const json *metadata, const char *config_path,
                       const json *generation, err *e) {
    if (!stop_set_add_json(&m->stop, json_get(metadata, "stop_ids"), e))
        return err_where(e, "%s: stop_ids", metadata_path);
    if (!stop_set_add_json(&m->stop, json_get(generation, "eos_token_id"), e))
        return err_where(e, "%s: eos_token_id", config_path);
    if (!m->text) return true;
    size_t n;
    const int32_t *eos = tokenizer_eos(m->text, &n);
    stop_set_add(&m->stop, eos, n);
    static const char *const turn_end[] = {"<|im_end|>", "<|eot_id|>"};
    for (size_t i = 0; i < sizeof turn_end / sizeof turn_end[0]; i++) {
        int32_t id = tokenizer_find(m->text, turn_end[i], strlen(turn_end[i]));
        if (id >= 0 && tokenizer_is_added(m->text, id)) stop_set_add(&m->stop, &id, 1);
    }
    return true;
}

/* Parses a file that may be absent: NULL without an error then. */
static const json *optional_json(lm *m, const char *path, err *e) {
    return path && file_exists(path) ? json_object_file(m->a, path, e) : NULL;
}

/* The table that the host keeps, in whatever form the contract says. */
static embedding *table_of(lm *m, err *e) {
    const description *d = m->form.d;
    const char *form = json_str(d->table, "form", "millet");
    if (!strcmp(form, "millet")) return embedding_open(m->table_path, e);
    if (!strcmp(form, "npy")) return embedding_open_npy(m->table_path, e);
    return embedding_open_raw(m->table_path, strcmp(form, "fp32") ? EMBEDDING_FP16 : EMBEDDING_FP32,
                              m->form.hidden, e);
}

static bool find_table(lm *m, const artifact_paths *p, err *e) {
    const describe_names *files = &m->form.d->table_files;
    if (!files->n && !artifact_table(p, m->a, &m->table_path, e)) return false;
    for (size_t i = 0; i < files->n && !m->table_path; i++) {
        const char *path = arena_printf(m->a, "%s/%s", m->dir, files->s[i]);
        if (file_exists(path)) m->table_path = path;
    }
    return m->table_path ||
           err_set(e, ERR_IO, "%s: takes rows of an embedding table, but there is no %s beside it",
                   rt_model_path(m->model[0]), files->n ? files->s[0] : "embed_tokens.bin");
}

static bool open_table(lm *m, const artifact_paths *p, err *e) {
    m->vocab = m->form.in_vocab ? m->form.in_vocab : m->form.vocab;
    if (!m->form.d->table) return true;
    if (!find_table(m, p, e) || !(m->table = table_of(m, e))) return false;
    if (embedding_width(m->table) != m->form.hidden)
        return err_set(e, ERR_INVALID, "%s: rows of %" PRId64 " values, where the package takes %" PRId64,
                       m->table_path, embedding_width(m->table), m->form.hidden);
    if (m->form.vocab && embedding_rows(m->table) != m->form.vocab)
        return err_set(e, ERR_INVALID,
                       "%s: %" PRId64 " rows, but the package scores %" PRId64
                       " ids: the table of another model",
                       m->table_path, embedding_rows(m->table), m->form.vocab);
    m->vocab = embedding_rows(m->table);
    return true;
}

/* ---- text ---- */

static bool open_text(lm *m, const artifact_paths *p, const char *tokenizer_dir, err *e) {
    const describe_names *places = &m->form.d->tokenizer;
    m->text_path = tokenizer_dir ? arena_str(m->a, tokenizer_dir) : p->tokenizer;
    for (size_t i = 0; i < places->n && !m->text_path; i++)
        if (file_exists(arena_printf(m->a, "%s/%s/tokenizer.json", m->dir, places->s[i])))
            m->text_path = arena_printf(m->a, "%s/%s", m->dir, places->s[i]);
    return !m->text_path || (m->text = tokenizer_load(m->text_path, e));
}

static bool open_parts(lm *m, const char *path, const char *tokenizer_dir, const char *contract_file,
                       err *e) {
    artifact_paths p = {0};
    if (tokenizer_dir && !file_exists(arena_printf(m->a, "%s/tokenizer.json", tokenizer_dir)))
        return file_exists(path) ? err_set(e, ERR_IO, "%s: no tokenizer.json in it", tokenizer_dir)
                                 : err_set(e, ERR_IO, "%s: no such package or artifact directory", path);
    if (!find_packages(m, &p, path, contract_file, e) || !open_table(m, &p, e) ||
        !open_text(m, &p, tokenizer_dir, e))
        return false;
    const char *config = m->text_path ? arena_printf(m->a, "%s/generation_config.json", m->text_path) : NULL;
    const json *metadata = optional_json(m, p.metadata, e), *generation = optional_json(m, config, e);
    if (e->code) return false;
    if (!sampler_from_config(&m->defaults, generation, e)) return err_where(e, "%s", config);
    m->defaults.temperature = 0;
    if (m->form.best) m->defaults = SAMPLER_GREEDY;
    m->ours = p.metadata != NULL;
    const json *stop_ids = values_find(m->a, m->dir, m->form.d->stop_ids);
    if (stop_ids && !stop_set_add_json(&m->stop, stop_ids, e))
        return err_where(e, "%s: stop_ids", m->form.d->what);
    return find_stops(m, p.metadata, metadata, config, generation, e);
}

/* ---- what is made when it is asked for ---- */

struct lm_lazy {
    pthread_mutex_t lock;
    heap *home; /* of m */
    vocabulary *tokens;
};

static void make_lazy(lm *m) {
    m->lazy = ARENA_NEW(m->a, struct lm_lazy);
    m->lazy->home = heap_current();
    pthread_mutex_init(&m->lazy->lock, NULL);
}

typedef struct {
    const lm *m;
    err *e;
} asking;

static void make_vocabulary(void *ctx) {
    const asking *q = ctx;
    const lm *m = q->m;
    m->lazy->tokens = vocabulary_new(m->text, m->stop.ids, m->stop.n, lm_sample_limit(m), q->e);
}

const vocabulary *lm_vocabulary(const lm *m, err *e) {
    if (!m->text) {
        err_set(e, ERR_USAGE, "a constraint needs a tokenizer, and there is none");
        return NULL;
    }
    asking q = {m, e};
    struct lm_lazy *lazy = m->lazy;
    pthread_mutex_lock(&lazy->lock);
    if (!lazy->tokens && !mem_guard(lazy->home, make_vocabulary, &q, NULL))
        err_set(e, ERR_MEMORY, "no memory for the tokens");
    pthread_mutex_unlock(&lazy->lock);
    return lazy->tokens;
}

lm *lm_open_as(const char *path, const char *tokenizer_dir, const char *contract_file, err *e) {
    arena *a = arena_new();
    lm *m = ARENA_NEW(a, lm);
    m->a = a;
    make_lazy(m);
    if (open_parts(m, path, tokenizer_dir, contract_file, e)) return m;
    lm_close(m);
    return NULL;
}

lm *lm_open(const char *path, const char *tokenizer_dir, err *e) {
    return lm_open_as(path, tokenizer_dir, NULL, e);
}

void lm_close(lm *m) {
    if (!m) return;
    tokenizer_free(m->text);
    embedding_close(m->table);
    for (size_t i = 0; i < m->n_model; i++) rt_model_close(m->model[i]);
    stop_set_free(&m->stop);
    vocabulary_free(m->lazy->tokens);
    pthread_mutex_destroy(&m->lazy->lock);
    arena_free(m->a);
}

int32_t lm_sample_limit(const lm *m) {
    int64_t limit = 1 << 24; /* when nothing tells: more than any vocabulary has */
    if (m->vocab && m->vocab < limit) limit = m->vocab;
    bool padded = m->text && m->ours;
    if (padded && tokenizer_limit(m->text) < limit) limit = tokenizer_limit(m->text);
    return (int32_t)limit;
}

bool lm_encode(const lm *m, const char *text, size_t len, int32_t **ids, size_t *n, err *e) {
    *ids = NULL;
    *n = 0;
    if (!m->text)
        return err_set(e, ERR_USAGE,
                       "text needs a tokenizer, and there is no Tokenizer/tokenizer.json beside the "
                       "package: name its directory, or give token ids");
    token_list list = {0};
    if (!tokenizer_encode(m->text, text, len, TOKENIZER_TEMPLATE, &list, e)) {
        token_list_free(&list);
        return false;
    }
    if (!list.n) {
        token_list_free(&list);
        return err_set(e, ERR_USAGE, "the text is empty, and the tokenizer puts no token in front of it");
    }
    *ids = list.ids;
    *n = list.n;
    return true;
}
