#include "check/manifest.h"
#include "base/file.h"
#include "check/verify.h"
#include "convert/manifest.h"
#include "convert/signature.h"
#include "generate/lm.h"
#include "models/models.h"
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define MANIFEST "conversion_manifest.json"
#define METADATA "metadata.json"

/* --- conversion_manifest.json --- */

/* A value of the package's user-defined metadata; NULL: it has none. */
static const char *user(const coreml_model *m, const char *key) {
    for (size_t i = 0; i < m->n_user; i++)
        if (!strcmp(m->user[i].key, key)) return m->user[i].value;
    return NULL;
}

/* The stacked keys or values of all layers. */
static void verify_cache(verify *v, const char *package, const coreml_function *f, const char *name) {
    const coreml_feature *cache = NULL;
    for (size_t i = 0; f && i < f->n_state; i++)
        if (!strcmp(f->state[i].name, name)) cache = &f->state[i];
    if (cache)
        verify_int(v, package, json_get(v->j, "model"), "layers", cache->type.dim[0]);
    else
        verify_fail(v, package, "state", name, "nothing");
}

static void verify_interface(verify *v, const char *package) {
    err e = {0};
    const json *options = json_get(v->j, "options"), *model = json_get(v->j, "model");
    lm *m = lm_open(arena_printf(v->a, "%s/%s", v->dir, package), NULL, &e);
    if (!m) {
        verify_fail(v, package, "package", "one that can generate", e.msg);
        return;
    }
    const coreml_model *c = rt_model_coreml(m->model[0]);
    verify_text(v, package, options, "preset", m->form.form == CONTRACT_SINGLE ? "single" : "chunks");
    verify_int(v, package, options, "context", m->form.context);
    verify_int(v, package, options, "top_k", m->form.top_k);
    verify_int(v, package, model, "vocab_size", m->vocab);
    verify_text(v, package, options, "precision", user(c, "precision"));
    verify_text(v, package, model, "family", user(c, "family"));
    verify_text(v, package, model, "model_type", user(c, "model_type"));
    verify_text(v, package, v->j, "lm_head_strategy", user(c, "lm_head_strategy"));
    verify_cache(v, package, coreml_function_find(c, m->form.function), "key_cache");
    verify_cache(v, package, coreml_function_find(c, m->form.function), "value_cache");
    lm_close(m);
}

static void verify_variant(verify *v, const json *x) {
    const json *package = verify_member(v, x, "package", JSON_STRING), *options = json_get(v->j, "options");
    const json *scheme = verify_member(v, x, "scheme", JSON_STRING);
    if (!package || !scheme || !verify_path(v, package->s, false)) return;
    char *name = arena_str(v->a, scheme->s);
    for (char *p = name; *p; p++) *p = (char)toupper((unsigned char)*p);
    verify_text(v, v->r->document, x, "name", name);
    if (json_bool(x, "removed", false)) {
        if (file_exists(arena_printf(v->a, "%s/%s", v->dir, package->s)))
            verify_fail(v, package->s, "package", "removed", "still there");
        return;
    }
    verify_int(v, package->s, x, "bytes", (int64_t)verify_files(v, x, package->s));
    coreml_package *p = verify_open(v, package->s);
    if (!p) return;
    const json *group = json_get(options, "group_size"), *plan = json_get(options, "precision_plan_sha256");
    const stated_scheme s = {scheme->s, json_str(options, "vocab", "same"),
                             group && group->kind == JSON_INT ? group->i : 0,
                             plan && plan->kind != JSON_NULL};
    verify_weights(v, package->s, p->model, &s);
    uint64_t parameters = verify_parameters(p->model);
    if (parameters)
        verify_number(v, package->s, x, "bits_per_weight",
                      (double)verify_weight_bytes(p) * 8 / (double)parameters);
    coreml_close(p);
    verify_interface(v, package->s);
}

static bool verify_manifest(verify *v, bool (*keep_going)(void *ctx), void *ctx, err *e) {
    const json *variants = verify_member(v, v->j, "variants", JSON_ARRAY);
    const json *schemes = verify_member(v, json_get(v->j, "options"), "variants", JSON_ARRAY), *s = NULL;
    if (schemes) s = schemes->child;
    JSON_EACH(x, variants) {
        if (keep_going && !keep_going(ctx)) return err_set(e, ERR_CANCELLED, "verification cancelled");
        verify_text(v, v->r->document, x, "scheme", s && s->kind == JSON_STRING ? s->s : "nothing");
        s = s ? s->next : NULL;
        verify_variant(v, x);
    }
    if (s) verify_fail(v, v->r->document, "variants", "one for each scheme of the options", "fewer");
    verify_text(v, v->r->document, v->j, "recommended",
                manifest_recommended(variants, json_str(json_get(v->j, "options"), "vocab", NULL)));
    return true;
}

/* --- both --- */

static bool verify_signature(verify *v, const char *source, const char *const *keys, err *e) {
    const json *s = verify_member(v, v->j, "signature", JSON_STRING);
    if (s && (s->len != 64 || strspn(s->s, "0123456789abcdef") != 64))
        verify_fail(v, v->r->document, "signature", "64 hexadecimal digits", s->s);
    if (!source) return true;
    checkpoint *c = checkpoint_open(source, models_families(), e);
    if (!c) return false;
    char hex[SHA256_HEX];
    signature_make(hex, c, v->j, keys);
    verify_text(v, source, v->j, "signature", hex);
    v->r->signature = true;
    checkpoint_close(c);
    return true;
}

bool check_manifest_run(check_manifest *r, arena *a, const char *dir, const char *source,
                        bool (*keep_going)(void *ctx), void *ctx, err *e) {
    verify v = {.a = a, .dir = dir, .r = r};
    *r = (check_manifest){.document = METADATA};
    bool set = file_exists(arena_printf(a, "%s/" METADATA, dir));
    if (!set) r->document = MANIFEST;
    const char *path = arena_printf(a, "%s/%s", dir, r->document);
    if (!set && !file_exists(path))
        return err_set(e, ERR_IO, "%s: neither " METADATA " nor " MANIFEST " is there", dir);
    if (!(v.j = json_object_file(a, path, e))) return false;
    if (strcmp(json_str(v.j, "format", ""), "millet"))
        return err_set(e, ERR_FORMAT, "%s: \"format\" is not \"millet\"", path);
    int64_t version = json_int(v.j, "format_version", 0);
    if (version != (set ? 2 : 1))
        return err_set(e, ERR_UNSUPPORTED, "%s: format_version %" PRId64 ": expected %d", path, version,
                       set ? 2 : 1);
    if (!(set ? verify_set : verify_manifest)(&v, keep_going, ctx, e)) return false;
    verify_tokenizer(&v);
    verify_stop_ids(&v);
    return verify_signature(&v, source, set ? signature_metadata_keys : signature_manifest_keys, e);
}
