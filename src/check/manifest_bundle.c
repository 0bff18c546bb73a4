/* metadata.json of a Core AI bundle, against its asset and tokenizer. The asset has a digest of its own,
 * main.hash; those of tokenizer files stand in bundles that millet made. */
#include "base/file.h"
#include "check/verify.h"
#include "coreai/asset.h"
#include "generate/artifact.h"
#include "generate/find.h"
#include "generate/lm.h"
#include "generate/pattern.h"
#include <string.h>

/* main.hash, and the program by it. */
static void verify_hash(verify *v, const char *name) {
    err e = {0};
    bool absent = false;
    ai_asset *x = ai_asset_open(arena_printf(v->a, "%s/%s", v->dir, name), &e);
    v->r->statements++;
    if (!x) {
        verify_fail(v, name, "asset", "one that can be read", e.msg);
        return;
    }
    v->r->packages++;
    v->r->files += 1;
    v->r->bytes += x->code.size;
    if (!ai_asset_check_hash(x, &absent, &e))
        verify_fail(v, name, "main.hash", "the SHA-256 of main.mlirb", "another");
    if (absent) verify_fail(v, name, "main.hash", "the SHA-256 of main.mlirb", "nothing");
    ai_asset_close(x);
}

/* A state is a cache by its name, or of a fixed size. */
static const char *kind_of(const description *d, const char *state) {
    for (size_t i = 0; i < d->n_cache; i++)
        if (pattern_fits(d->cache[i].pattern, state, NULL)) return "kv_cache";
    return "fixed";
}

static void verify_states(verify *v, const char *name, const json *language, const lm *m) {
    const json *states = json_get(language, "states");
    const coreml_function *f = coreml_function_find(rt_model_coreml(m->model[0]), m->form.function);
    if (!states || !f) return; /* it may be left out */
    for (size_t i = 0; i < f->n_state; i++)
        verify_text(v, name, states, f->state[i].name, kind_of(m->form.d, f->state[i].name));
    JSON_EACH(s, states) {
        size_t i = 0;
        while (i < f->n_state && strcmp(f->state[i].name, s->key)) i++;
        if (i == f->n_state) verify_fail(v, name, "state", s->key, "nothing");
    }
}

/* Whether the asset is well, but made for another engine: then nothing says what its inputs and states are.
 * What millet made has the contract. */
static bool of_no_contract(verify *v, const artifact_paths *p) {
    if (!strncmp(json_str(v->j, "producer", ""), "millet ", 7)) return false;
    artifact_paths none;
    err why = {0}, ignored = {0};
    lm found = {.a = v->a};
    bool fits = find_packages(&found, &none, v->dir, NULL, &why);
    for (size_t i = 0; i < found.n_model; i++) rt_model_close(found.model[i]);
    rt_model *m = fits ? NULL : rt_model_open(p->package[0], &ignored);
    if (m) v->r->no_contract = arena_str(v->a, why.msg);
    rt_model_close(m);
    return m != NULL;
}

static void verify_language(verify *v, const artifact_paths *p, const char *name) {
    const json *language = verify_member(v, v->j, "language", JSON_OBJECT);
    bool embedded = json_bool(language, "embedded_tokenizer", true);
    err e = {0};
    lm *m = lm_open(v->dir, NULL, &e);
    if (!m && !of_no_contract(v, p)) verify_fail(v, name, "bundle", "one that can generate", e.msg);
    if (embedded && (m ? !m->text : !p->tokenizer))
        verify_fail(v, "tokenizer", "embedded_tokenizer", "a tokenizer", "nothing");
    if (!m) return;
    verify_int(v, name, language, "vocab_size", m->form.vocab);
    verify_int(v, name, language, "max_context_length", m->form.context);
    verify_states(v, name, language, m);
    lm_close(m);
}

/* Each an id of the vocabulary. */
static void verify_ends(verify *v) {
    const json *ids = json_get(v->j, "stop_ids");
    int64_t vocab = json_int(json_get(v->j, "language"), "vocab_size", INT32_MAX);
    JSON_EACH(i, ids) {
        v->r->statements++;
        if (i->kind != JSON_INT || i->i < 0 || i->i >= vocab)
            verify_fail(v, v->r->document, "stop_ids", arena_printf(v->a, "ids below %lld", (long long)vocab),
                        i->kind == JSON_INT ? arena_printf(v->a, "%lld", (long long)i->i) : "none");
    }
}

/* Files of the tokenizer; only bundles that millet made state them. */
static void verify_bundle_tokenizer(verify *v) {
    const json *t = json_get(v->j, "tokenizer_files");
    v->r->tokenizer_unstated = !t;
    if (!t || t->kind == JSON_NULL) return;
    const json *path =
        verify_member(v, verify_member(v, v->j, "tokenizer_files", JSON_OBJECT), "path", JSON_STRING);
    if (path && verify_path(v, path->s, false)) verify_files(v, t, path->s);
}

bool verify_bundle(verify *v, err *e) {
    artifact_paths p;
    if (!artifact_locate(&p, v->a, v->dir, NULL, e)) return false;
    const char *name = artifact_name(p.package[0]);
    verify_text(v, v->r->document, v->j, "kind", "llm");
    verify_member(v, v->j, "name", JSON_STRING);
    verify_hash(v, name);
    verify_language(v, &p, name);
    verify_ends(v);
    verify_bundle_tokenizer(v);
    return true;
}
