/* Preset single in several compressions: one package each, and a manifest, in one output directory. */
#include "base/map.h"
#include "convert/job.h"
#include <ctype.h>
#include <string.h>

/* Sets j's options for one package. */
static bool add_variant(job *j, job_variant *v, const char *scheme, err *e) {
    convert_options *o = ARENA_NEW(j->a, convert_options);
    *o = *j->o;
    o->quantize = scheme;
    o->variants = NULL;
    v->scheme = scheme;
    char *name = arena_str(j->a, scheme);
    for (char *p = name; *p; p++) *p = (char)toupper((unsigned char)*p);
    v->name = name;
    v->j = ARENA_NEW(j->a, job);
    v->j->a = j->a;
    v->j->o = o;
    return job_read_recipe(v->j, e);
}

bool job_read_variants(job *j, err *e) {
    const char *list = j->o->variants;
    if (!list) return !j->o->remove_fp16 || err_set(e, ERR_USAGE, "--remove-fp16 is for --variants");
    if (j->o->preset && j->graph_options.preset != PRESET_SINGLE)
        return err_set(e, ERR_USAGE, "variants are for preset single, not for %s", j->o->preset);
    if (j->o->quantize) return err_set(e, ERR_USAGE, "variants name the schemes: leave out --quantize");
    if (j->o->recipe) return err_set(e, ERR_USAGE, "a recipe is for one package, not for variants");
    if (j->o->report) return err_set(e, ERR_USAGE, "a report is for one package, not for variants");
    if (j->o->into || j->o->share_weights)
        return err_set(e, ERR_USAGE, "variants take -o OUT, not --into, and share no weights");
    map *seen = map_new(j->a, 8);
    size_t cap = 0;
    bool fp16 = false;
    for (const char *p = list, *end; p; p = *end ? end + 1 : NULL) {
        end = p + strcspn(p, ",");
        const char *scheme = arena_strn(j->a, p, (size_t)(end - p));
        if (!map_add(seen, scheme, strlen(scheme), 0))
            return err_set(e, ERR_USAGE, "--variants %.100s: %.50s stands there twice", list, scheme);
        j->variant = arena_grow(j->a, j->variant, j->n_variant, &cap, j->n_variant + 1, sizeof *j->variant);
        job_variant *v = &j->variant[j->n_variant++];
        *v = (job_variant){0};
        if (!add_variant(j, v, scheme, e)) return err_where(e, "--variants %.100s", list);
        if (strcmp(scheme, "fp16")) continue;
        fp16 = true;
        v->removed = j->o->remove_fp16;
    }
    if (j->o->remove_fp16 && (!fp16 || j->n_variant == 1))
        return err_set(e, ERR_USAGE,
                       "--remove-fp16 needs fp16 and another scheme among the variants, not %.100s", list);
    return true;
}

/* "Name-TopK64-W8.mlpackage". */
static const char *package_name(const job *j, const job_variant *v) {
    const char *model = job_printable(j->a, j->model_name, '-');
    int64_t k = j->graph_options.top_k;
    const char *head = k ? arena_printf(j->a, "TopK%lld", (long long)k) : "Logits";
    return arena_printf(j->a, "%s-%s-%s.mlpackage", model, head, v->name);
}

/* What has been decided and opened for all. */
static void share(job_variant *v, const job *j) {
    job *own = v->j;
    bool fp16_weights = own->graph_options.fp16_weights;
    own->dir = j->dir;
    own->out = j->out;
    own->model_name = j->model_name;
    own->graph_options = j->graph_options;
    own->graph_options.fp16_weights = fp16_weights;
    own->plan = j->plan;
    own->n_plan = j->n_plan;
    own->widened.seen = j->widened.seen;
    own->c = j->c;
    own->st = j->st;
    own->only_package = v->package = package_name(j, v);
}

/* The graphs are all built before the first byte is written: what is refused, is refused at once, and
 * progress knows the whole. */
bool job_write_variants(job *j, err *e) {
    job_progress all = {0};
    for (size_t i = 0; i < j->n_variant; i++) {
        share(&j->variant[i], j);
        if (!job_plan(j->variant[i].j, e) || !job_build(j->variant[i].j, e)) return false;
        all.total += j->variant[i].j->total_bytes;
        all.weights += j->variant[i].j->n_weight;
    }
    for (size_t i = 0; i < j->n_variant; i++) {
        job_variant *v = &j->variant[i];
        v->j->progress = all;
        if (!job_write_packages(v->j, e)) return false;
        all.done += v->j->total_bytes;
        all.weights_done += v->j->n_weight;
    }
    return true;
}
