#include "convert/manifest.h"
#include "base/file.h"
#include "convert/job.h"
#include "convert/signature.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- which one to take --- */

static unsigned bits_of(const json *variant, const char *vocab) {
    quant_scheme s = {0}, v = {.bits = 16};
    err none = {0};
    if (!quant_scheme_by_name(&s, json_str(variant, "scheme", ""), &none)) return 0;
    if (vocab && strcmp(vocab, "same") && !quant_scheme_by_name(&v, vocab, &none)) return 0;
    return s.bits < v.bits ? s.bits : v.bits;
}

const char *manifest_recommended(const json *variants, const char *vocab) {
    const json *small = NULL, *wide = NULL;
    JSON_EACH(v, variants) {
        const json *gate = json_get(v, "gate");
        bool passed = json_bool(gate, "passed", false), failed = !json_bool(gate, "passed", true);
        if (json_bool(v, "removed", false) || failed) continue;
        if (!wide || bits_of(v, vocab) > bits_of(wide, vocab)) wide = v;
        if (bits_of(v, vocab) < 8 && !passed) continue;
        if (!small || json_int(v, "bytes", 0) < json_int(small, "bytes", 0)) small = v;
    }
    return json_str(small ? small : wide, "name", NULL);
}

/* --- writing --- */

/* What was written can be opened and keeps every rule. */
static bool verify_package(const char *path, err *e) {
    coreml_package *p = coreml_open(path, e);
    bool ok = p && coreml_verify(p->model, NULL, NULL, e);
    coreml_close(p);
    return ok || err_where(e, "the package that was written can't be read back");
}

static bool add_variant(str *s, const job_variant *v, err *e) {
    const job *j = v->j;
    listing l;
    if (!verify_package(job_staged(j, v->package), e) ||
        !listing_make(&l, j->a, stage_path(j->st), v->package, e))
        return false;
    str_addc(s, '{');
    record_string(s, "name", v->name);
    str_addc(s, ',');
    record_string(s, "scheme", v->scheme);
    str_addc(s, ',');
    record_string(s, "package", v->package);
    str_adds(s, ",\"bits_per_weight\":");
    str_json_double(s, round(job_bits_per_weight(j) * 1e4) / 1e4);
    str_printf(s, ",\"bytes\":%" PRIu64 ",\"files\":", l.bytes);
    listing_json(s, &l);
    str_printf(s, ",\"removed\":%s,\"gate\":null}", v->removed ? "true" : "false");
    return true;
}

static bool add_variants(str *s, const job *j, err *e) {
    str_addc(s, '[');
    for (size_t i = 0; i < j->n_variant; i++) {
        if (i) str_addc(s, ',');
        if (!add_variant(s, &j->variant[i], e)) return false;
    }
    str_addc(s, ']');
    for (size_t i = 0; i < j->n_variant; i++) /* all are complete */
        if (j->variant[i].removed && !file_remove_tree(job_staged(j, j->variant[i].package), e)) return false;
    return true;
}

static bool add_options(str *s, const job *j, err *e) {
    char digest[SHA256_HEX];
    const models_options *g = &j->graph_options;
    str_adds(s, "\"options\":{\"preset\":\"single\",");
    record_string(s, "precision", job_precision_name(j));
    str_printf(s, ",\"context\":%" PRId64 ",\"top_k\":%" PRId64 ",", g->context, g->top_k);
    record_string(s, "source_dtype", job_source_dtype(j));
    str_adds(s, ",\"variants\":[");
    bool lut = j->recipe.vocab.kind == QUANT_LUT;
    for (size_t i = 0; i < j->n_variant; i++) {
        const job_variant *v = &j->variant[i];
        str_printf(s, "%s\"%s\"", i ? "," : "", v->scheme);
        lut = lut || v->j->recipe.weights.kind == QUANT_LUT;
    }
    str_adds(s, "],");
    record_string(s, "vocab", j->recipe.vocab_apart ? j->o->vocab : "same");
    str_adds(s, ",\"group_size\":");
    if (lut)
        str_printf(s, "%" PRId64, j->o->group_size ? j->o->group_size : 32);
    else
        str_adds(s, "null");
    str_printf(s, ",\"remove_fp16\":%s,", j->o->remove_fp16 ? "true" : "false");
    bool plan = j->o->precision_plan;
    if (plan && !sha256_file(j->o->precision_plan, digest, NULL, e)) return false;
    record_string(s, "precision_plan_sha256", plan ? digest : NULL);
    str_addc(s, '}');
    return true;
}

/* How the head is computed: metadata of the package, which all variants have alike. */
static const char *head_strategy(const job *j) {
    const models_graph *g = &j->variant[0].j->package[0].g;
    for (size_t i = 0; i + 1 < g->n_user; i += 2)
        if (!strcmp(g->user[i], "lm_head_strategy")) return g->user[i + 1];
    return NULL;
}

static bool add_document(str *s, job *j, err *e) {
    str_adds(s, "{\"format\":\"millet\",\"format_version\":1,\"converter\":\"millet " MILLET_VERSION "\",");
    str_printf(s, "\"signature\":\"%064d\",\"model\":{", 0);
    record_model(s, j);
    str_adds(s, "},");
    if (!add_options(s, j, e)) return false;
    str_addc(s, ',');
    record_string(s, "lm_head_strategy", head_strategy(j));
    str_adds(s, ",\"variants\":");
    size_t from = s->len;
    if (!add_variants(s, j, e)) return false;
    const json *variants = json_parse(j->a, MANIFEST_NAME, s->s + from, s->len - from, e);
    if (!variants) return false;
    j->recommended = manifest_recommended(variants, j->o->vocab);
    str_addc(s, ',');
    record_string(s, "recommended", j->recommended);
    str_adds(s, ",\"tokenizer\":");
    if (!record_tokenizer(s, j, e)) return false;
    str_adds(s, ",\"stop_ids\":");
    record_stop_ids(s, j);
    str_addc(s, '}');
    return true;
}

bool job_write_manifest(job *j, err *e) {
    str s = {0};
    bool ok = add_document(&s, j, e) && signature_seal(&s, j->c, signature_manifest_keys, e) &&
              file_write(job_staged(j, MANIFEST_NAME), s.s, s.len, e);
    str_free(&s);
    return ok;
}

/* --- gate results --- */

/* Puts value in place of a member, in a tree of our own. */
static void replace(const json *o, const char *key, const json *value) {
    json *m = (json *)json_get(o, key);
    json copy = *value;
    copy.key = m->key, copy.key_len = m->key_len, copy.next = m->next;
    *m = copy;
}

static bool record(arena *a, const char *path, const char *variant, const char *gate, err *e) {
    const json *j = json_object_file(a, path, e),
               *g = j ? json_parse(a, "gate", gate, strlen(gate), e) : NULL;
    if (!g) return false;
    if (!json_get_kind(g, "passed", JSON_BOOL))
        return err_set(e, ERR_USAGE, "gate: expected an object with a boolean \"passed\"");
    const json *variants = json_get_kind(j, "variants", JSON_ARRAY), *found = NULL;
    JSON_EACH(v, variants)
    if (!strcmp(json_str(v, "name", ""), variant) || !strcmp(json_str(v, "package", ""), variant)) found = v;
    if (!found) return err_set(e, ERR_USAGE, "%s: has no variant %.100s", path, variant);
    if (!json_get(found, "gate") || !json_get(j, "recommended"))
        return err_set(e, ERR_FORMAT, "%s: \"gate\" of variant %s or \"recommended\" is missing", path,
                       variant);
    replace(found, "gate", g);
    const char *name = manifest_recommended(variants, json_str(json_get(j, "options"), "vocab", NULL));
    json best = {.kind = name ? JSON_STRING : JSON_NULL, .s = name, .len = name ? (uint32_t)strlen(name) : 0};
    replace(j, "recommended", &best);
    str s = {0};
    json_pretty(&s, j);
    bool ok = file_write(path, s.s, s.len, e);
    str_free(&s);
    return ok;
}

bool manifest_record_gate(const char *dir, const char *variant, const char *gate, err *e) {
    arena *a = arena_new();
    bool ok = record(a, arena_printf(a, "%s/%s", dir, MANIFEST_NAME), variant, gate, e);
    arena_free(a);
    return ok;
}
