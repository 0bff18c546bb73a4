#include "convert/job.h"
#include <inttypes.h>
#include <string.h>

/* The last part of a path, cut off. */
static char *cut_last(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash) return path;
    *slash = 0;
    return slash + 1;
}

/* A directory of the Hugging Face cache is called models--ORG--NAME/snapshots/REVISION. */
void job_name_model(job *j) {
    if (checkpoint_is_gguf(j->c)) {
        j->model_name = checkpoint_config(j->c)->name;
        return;
    }
    char *path = arena_str(j->a, j->real_dir);
    const char *last = cut_last(path), *above = cut_last(path), *top = cut_last(path);
    j->model_name = *last ? last : checkpoint_config(j->c)->name;
    if (strcmp(above, "snapshots") || strncmp(top, "models--", 8)) return;
    j->model_name = top + 8;
    const char *name = strstr(j->model_name, "--");
    if (name && name[2]) j->model_name = name + 2;
}

const char *job_printable(arena *a, const char *s, char c) {
    char *p = arena_str(a, s);
    for (size_t n = strlen(p), i = 0; (i += utf8_valid(p + i, n - i)) < n;) p[i] = c;
    return p;
}

/* The model's name as part of file names: lower case, nothing but [a-z0-9._-]. */
const char *job_slug(const job *j) {
    char *s = arena_str(j->a, j->model_name);
    for (char *p = s; *p; p++) {
        if (*p >= 'A' && *p <= 'Z') *p = (char)(*p - 'A' + 'a');
        if (!(*p >= 'a' && *p <= 'z') && !(*p >= '0' && *p <= '9') && !strchr("._-", *p)) *p = '-';
    }
    return s;
}

const char *job_tokenizer_name(const job *j) {
    return j->coreai ? "tokenizer" : TOKENIZER_NAME;
}

const char *job_scheme_name(const job *j) {
    const quant_recipe *r = &j->recipe;
    bool wide = j->graph_options.precision == PRECISION_FLOAT32 && !j->compress;
    const char *s = wide && !j->coreai ? "fp32" : r->weights.name;
    if (j->coreai) return j->o->recipe ? arena_printf(j->a, "%s-recipe", s) : s;
    if (r->vocab_apart) s = arena_printf(j->a, "%s-vocab-%s", s, r->vocab.name);
    return r->n_rule ? arena_printf(j->a, "%s-recipe", s) : s;
}

const char *job_artifact_name(const job *j) {
    const models_options *o = &j->graph_options;
    const char *head = arena_printf(j->a, "%s_ctx%" PRId64, job_slug(j), o->context);
    if (j->coreai) return arena_printf(j->a, "%s_coreai_%s", head, job_scheme_name(j));
    if (o->preset == PRESET_SINGLE)
        return arena_printf(j->a, "%s_single_topk%" PRId64 "_%s", head, o->top_k, job_scheme_name(j));
    return arena_printf(j->a, "%s_chunks%zu_%s_%s_%s_gqagrouped", head, j->n_chunk,
                        o->n_prefill ? "multifunction" : "decode", job_scheme_name(j),
                        o->stacked_kv ? "kvstacked" : "kvslice");
}

const char *job_table_name(const job *j) {
    return arena_printf(j->a, "%s_embed_tokens.%s.bin", job_slug(j), embedding_kind_name(j->table.kind));
}
