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
    const json *removed = verify_member(v, x, "removed", JSON_BOOL), *gate = json_get(x, "gate");
    if (!gate || (gate->kind != JSON_NULL && !json_get_kind(gate, "passed", JSON_BOOL)))
        verify_fail(v, v->r->document, "gate", "null, or what was measured with \"passed\"", "neither");
    if (removed && removed->i) {
        if (file_exists(arena_printf(v->a, "%s/%s", v->dir, package->s)))
            verify_fail(v, package->s, "package", "removed", "still there");
        return;
    }
    verify_int(v, package->s, x, "bytes", (int64_t)verify_files(v, x, package->s));
    coreml_package *p = verify_open(v, package->s);
    if (!p) return;
    stated_scheme s = verify_stated(v, options, scheme->s);
    s.free = verify_digest(v, options, "precision_plan_sha256");
    verify_described(v, package->s, p->model, options);
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

/* Members of a member ("model") and the stop ids, against the checkpoint. */
static void verify_config(verify *v, const char *source, const char *member, const ckpt_config *c) {
    const json *model = json_get(v->j, member), *ids = json_get(v->j, "stop_ids");
    verify_text(v, source, model, "model_type", c->model_type);
    verify_int(v, source, model, "vocab_size", c->vocab);
    verify_int(v, source, model, "hidden_size", c->hidden);
    verify_int(v, source, model, "layers", c->layers);
    verify_int(v, source, model, "max_position", c->max_position);
    if (ids && ids->len != c->n_eos)
        verify_fail(v, source, "stop_ids", arena_printf(v->a, "%u", ids->len),
                    arena_printf(v->a, "%zu", c->n_eos));
}

static bool verify_source(verify *v, const char *source, const char *const *keys, err *e) {
    const json *s = verify_member(v, v->j, "signature", JSON_STRING);
    if (s && (s->len != 64 || strspn(s->s, "0123456789abcdef") != 64))
        verify_fail(v, v->r->document, "signature", "64 hexadecimal digits", s->s);
    if (!source) return true;
    checkpoint *c = checkpoint_open(source, models_families(), e);
    if (!c) return false;
    char hex[SHA256_HEX];
    signature_make(hex, c, v->j, keys);
    verify_text(v, source, v->j, "signature", hex);
    verify_config(v, source, "model", checkpoint_config(c));
    v->r->signature = true;
    checkpoint_close(c);
    return true;
}

/* What a bundle says of its source; it has no signature. */
static bool verify_bundle_source(verify *v, const char *source, err *e) {
    checkpoint *c = checkpoint_open(source, models_families(), e);
    if (!c) return false;
    verify_config(v, source, "source", checkpoint_config(c));
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
        return err_set(e, ERR_IO,
                       "%s: expected a directory of millet convert, with " METADATA " or " MANIFEST, dir);
    if (!(v.j = json_object_file(a, path, e))) return false;
    if (json_get(v.j, "metadata_version"))
        return verify_bundle(&v, e) && (!source || verify_bundle_source(&v, source, e));
    if (json_get(v.j, "assetVersion"))
        return err_set(e, ERR_USAGE, "%s: an asset, which states nothing; expected the bundle around it",
                       dir);
    if (strcmp(json_str(v.j, "format", ""), "millet"))
        return err_set(e, ERR_FORMAT, "%s: \"format\" is not \"millet\"", path);
    int64_t version = json_int(v.j, "format_version", 0);
    if (version != (set ? 2 : 1))
        return err_set(e, ERR_UNSUPPORTED, "%s: format_version %" PRId64 ": expected %d", path, version,
                       set ? 2 : 1);
    verify_member(&v, v.j, "converter", JSON_STRING);
    if (!(set ? verify_set : verify_manifest)(&v, keep_going, ctx, e)) return false;
    verify_tokenizer(&v);
    verify_stop_ids(&v);
    return verify_source(&v, source, set ? signature_metadata_keys : signature_manifest_keys, e);
}
