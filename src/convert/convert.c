#include "convert/convert.h"
#include "convert/job.h"

typedef struct {
    job *j;
    err *e;
} build_progress;

static bool on_tensor(void *ctx, const char *tensor) {
    const build_progress *p = ctx;
    return job_report(p->j, tensor, 0, 0, p->e);
}

static bool open_checkpoint(job *j, err *e) {
    j->c = checkpoint_open(j->dir, models_families(), e);
    if (!j->c) return false;
    job_name_model(j);
    return job_settle_options(j, e) && job_check_source(j, e) && job_read_tokenizer(j, e) &&
           (j->into || job_begin_output(j, e));
}

static bool write_bundle(job *j, err *e) {
    return job_plan(j, e) && (!j->into || (job_name_output(j, e) && job_begin_output(j, e))) &&
           job_build_asset(j, e) && job_write_asset(j, e) && job_copy_tokenizer(j, e) &&
           job_write_bundle_metadata(j, e) && job_write_report(j, e);
}

static bool write_one(job *j, err *e) {
    if (j->coreai) return write_bundle(j, e);
    return job_plan(j, e) && (!j->into || (job_name_output(j, e) && job_begin_output(j, e))) &&
           job_build(j, e) && job_write_table(j, e) && job_write_packages(j, e) && job_list_packages(j, e) &&
           job_share_weights(j, e) && job_copy_tokenizer(j, e) && job_write_metadata(j, e) &&
           job_write_report(j, e);
}

static bool write_variants(job *j, err *e) {
    return job_write_variants(j, e) && job_copy_tokenizer(j, e) && job_write_manifest(j, e);
}

static bool commit(job *j, err *e) {
    if (!job_place_table(j, e)) return false;
    stage *s = j->st;
    j->st = NULL;
    return stage_commit(s, e);
}

bool convert_checkpoint(const char *dir, const char *out, const convert_options *o, str *summary, err *e) {
    if (convert_is_program(dir)) return convert_program(dir, out, o, summary, e);
    job j = {.a = arena_new(), .o = o};
    build_progress p = {&j, e};
    bool ok = job_read_options(&j, e);
    j.graph_options.progress = on_tensor;
    j.graph_options.ctx = &p;
    ok = ok && job_check_places(&j, dir, out, e) && open_checkpoint(&j, e) &&
         (j.n_variant ? write_variants : write_one)(&j, e) && commit(&j, e);
    if (ok && summary) job_summary(&j, summary);
    stage_abort(j.st);
    str_free(&j.tokenizer);
    str_free(&j.tokenizer_config);
    checkpoint_close(j.c);
    arena_free(j.a);
    return ok;
}
