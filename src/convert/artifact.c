#include "base/file.h"
#include "convert/job.h"
#include <inttypes.h>
#include <string.h>

const char *job_staged(const job *j, const char *name) {
    return arena_printf(j->a, "%s/%s", stage_path(j->st), name);
}

bool job_report(const job *j, const char *tensor, uint64_t done, uint64_t total, err *e) {
    if (!j->o->progress) return true;
    const job_progress *p = &j->progress;
    uint64_t finished = total && done >= total ? j->n_weight : j->at_weight, n = j->n_weight;
    if (total && p->total) {
        done += p->done, finished += p->weights_done;
        total = p->total, n = p->weights;
    }
    return j->o->progress(j->o->ctx, tensor, done, total, finished, n) ||
           err_set(e, ERR_CANCELLED, "conversion cancelled; %s is as it was", j->out ? j->out : j->into);
}

bool job_report_written(job *j, uint64_t done, err *e) {
    while (j->at_weight + 1 < j->n_weight && j->weight[j->at_weight].end <= done) j->at_weight++;
    return job_report(j, j->n_weight ? j->weight[j->at_weight].name : "", done, j->total_bytes, e);
}

bool job_on_written(void *ctx, uint64_t done, uint64_t total) {
    job_written *w = ctx;
    (void)total;
    return job_report_written(w->j, w->before + done, w->e);
}

bool job_write_packages(job *j, err *e) {
    for (size_t i = 0; i < j->n_package; i++) {
        job_package *p = &j->package[i];
        job_written w = {j, j->written_bytes, e};
        coreml_write_options o = {.progress = job_on_written, .ctx = &w};
        if (j->graph_options.preset == PRESET_CHUNKS) o.max_weight_bytes = j->max_file_size;
        if (!coreml_write(job_staged(j, p->name), p->m, &o, e)) return false;
        j->written_bytes += p->weight_bytes;
    }
    return true;
}

bool job_list_packages(job *j, err *e) {
    for (size_t i = 0; i < j->n_package; i++)
        if (!listing_make(&j->package[i].files, j->a, stage_path(j->st), j->package[i].name, e)) return false;
    return true;
}

static bool copy_file(const char *from, const char *to, err *e) {
    file_map m;
    if (!file_open_map(&m, from, e)) return false;
    bool ok = file_write(to, m.data, m.size, e);
    file_unmap(&m);
    return ok;
}

static bool write_text(job *j, const char *name, const str *text, err *e) {
    return file_write(arena_printf(j->a, "%s/%s", job_staged(j, job_tokenizer_name(j)), name), text->s,
                      text->len, e);
}

bool job_read_tokenizer(job *j, err *e) {
    return !checkpoint_is_gguf(j->c) || j->o->tokenizer ||
           checkpoint_tokenizer(j->c, &j->tokenizer, &j->tokenizer_config, e);
}

static bool write_tokenizer(job *j, err *e) {
    j->tokenizer_files = "tokenizer.json, tokenizer_config.json";
    j->has_tokenizer = true;
    return file_make_dirs(job_staged(j, job_tokenizer_name(j)), e) &&
           write_text(j, "tokenizer.json", &j->tokenizer, e) &&
           write_text(j, "tokenizer_config.json", &j->tokenizer_config, e);
}

bool job_copy_tokenizer(job *j, err *e) {
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "generation_config.json"};
    const char *dir = job_staged(j, job_tokenizer_name(j)),
               *source = j->o->tokenizer ? j->o->tokenizer : j->dir;
    if (j->tokenizer.len) return write_tokenizer(j, e);
    j->tokenizer_files = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *from = arena_printf(j->a, "%s/%s", source, names[i]);
        if (!file_exists(from)) continue;
        if (!*j->tokenizer_files && !file_make_dirs(dir, e)) return false;
        if (!copy_file(from, arena_printf(j->a, "%s/%s", dir, names[i]), e)) return false;
        j->tokenizer_files =
            arena_printf(j->a, "%s%s%s", j->tokenizer_files, *j->tokenizer_files ? ", " : "", names[i]);
        if (!i) j->has_tokenizer = true;
    }
    return true;
}
