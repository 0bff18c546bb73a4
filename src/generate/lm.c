#include "generate/lm.h"
#include "base/file.h"
#include "base/json.h"
#include "coreml/embedding.h"
#include "generate/artifact.h"
#include <inttypes.h>
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

static bool open_table(lm *m, const artifact_paths *p, err *e) {
    if (m->form.form != CONTRACT_CHUNKS) return true;
    if (!artifact_table(p, m->a, &m->table_path, e)) return false;
    const char *path = m->table_path;
    if (!path)
        return err_set(e, ERR_IO,
                       "%s: takes rows of an embedding table, but there is no embed_tokens.bin beside it",
                       p->package[0]);
    m->table = embedding_open(path, e);
    if (!m->table) return false;
    if (embedding_width(m->table) != m->form.hidden)
        return err_set(e, ERR_INVALID, "%s: rows of %" PRId64 " values, where the package takes %" PRId64,
                       path, embedding_width(m->table), m->form.hidden);
    if (embedding_rows(m->table) != m->form.vocab)
        return err_set(e, ERR_INVALID,
                       "%s: %" PRId64 " rows, but the package scores %" PRId64
                       " ids: the table of another model",
                       path, embedding_rows(m->table), m->form.vocab);
    m->vocab = embedding_rows(m->table);
    return true;
}

static bool open_packages(lm *m, const artifact_paths *p, err *e) {
    if (p->member)
        return err_set(e, ERR_USAGE, "%s: one package of a set, which runs as a whole: give the directory %s",
                       p->package[0], p->dir);
    m->model = ARENA_ARRAY(m->a, rt_model *, p->n_package);
    const char **name = ARENA_ARRAY(m->a, const char *, p->n_package);
    contract_package *all = ARENA_ARRAY(m->a, contract_package, p->n_package);
    m->name = name;
    for (size_t i = 0; i < p->n_package; i++) {
        m->model[i] = rt_model_open(p->package[i], e);
        if (!m->model[i]) return false;
        m->n_model++;
        name[i] = artifact_name(p->package[i]);
        all[i] = (contract_package){name[i], rt_model_coreml(m->model[i])};
    }
    return contract_find(&m->form, m->a, all, p->n_package, e) ||
           err_where(e, "%s", p->n_package > 1 ? p->dir : p->package[0]);
}

static bool open_parts(lm *m, const char *path, const char *tokenizer_dir, err *e) {
    artifact_paths p;
    if (!artifact_locate(&p, m->a, path, tokenizer_dir, e) || !open_packages(m, &p, e)) return false;
    m->vocab = m->form.in_vocab ? m->form.in_vocab : m->form.vocab;
    if (!open_table(m, &p, e)) return false;
    if (p.tokenizer && !(m->text = tokenizer_load(p.tokenizer, e))) return false;
    m->text_path = p.tokenizer;
    const char *config = p.tokenizer ? arena_printf(m->a, "%s/generation_config.json", p.tokenizer) : NULL;
    const json *metadata = optional_json(m, p.metadata, e), *generation = optional_json(m, config, e);
    if (e->code) return false;
    if (!sampler_from_config(&m->defaults, generation, e)) return err_where(e, "%s", config);
    m->defaults.temperature = 0;
    return find_stops(m, p.metadata, metadata, config, generation, e);
}

lm *lm_open(const char *path, const char *tokenizer_dir, err *e) {
    arena *a = arena_new();
    lm *m = ARENA_NEW(a, lm);
    m->a = a;
    if (open_parts(m, path, tokenizer_dir, e)) return m;
    lm_close(m);
    return NULL;
}

void lm_close(lm *m) {
    if (!m) return;
    tokenizer_free(m->text);
    embedding_close(m->table);
    for (size_t i = 0; i < m->n_model; i++) rt_model_close(m->model[i]);
    stop_set_free(&m->stop);
    arena_free(m->a);
}

int32_t lm_sample_limit(const lm *m) {
    int64_t limit = 1 << 24; /* when nothing tells: more than any vocabulary has */
    if (m->vocab && m->vocab < limit) limit = m->vocab;
    if (m->text && tokenizer_limit(m->text) < limit) limit = tokenizer_limit(m->text);
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
