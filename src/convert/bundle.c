/* Format coreai: a bundle of <name>.aimodel, tokenizer and a metadata.json of version 0.2 (docs/coreai.md).
 */
#include "base/file.h"
#include "convert/job.h"
#include "coreai/from_ir.h"
#include "coreai/write.h"
#include <inttypes.h>
#include <string.h>

const char *job_asset_name(const job *j) {
    return arena_printf(j->a, "%s.aimodel", job_slug(j));
}

/* No date: the same checkpoint and options give the same bytes. */
static bool write_asset_metadata(const char *path, err *e) {
    static const char text[] = "{\"assetVersion\":\"2.0\",\"producer\":\"" ASSET_PRODUCER "\"}\n";
    return file_write(path, text, sizeof text - 1, e);
}

bool job_build_asset(job *j, err *e) {
    job_package *p = &j->package[0];
    quant_report report = {0};
    if (!job_build_part(j, &p->part, &p->g, &report, e)) return false;
    j->asset = ai_from_program(j->a, p->g.program, ASSET_PRODUCER, e);
    if (!j->asset) return err_where(e, "%s: the program that was built can't be written", p->name);
    p->weight_bytes = ai_tree_resources(j->asset);
    j->compressed = report;
    job_list_weights(j, p);
    j->note = models_notes(j->work, &j->n_note);
    return true;
}

/* Bytes as they are written, as the share of all that is written. */
typedef struct {
    written_fn *fn;
    void *ctx;
    uint64_t done, total;
} written;

static bool on_bytes(void *ctx, uint64_t bytes) {
    written *w = ctx;
    w->done += bytes;
    return !w->fn || w->fn(w->ctx, w->done < w->total ? w->done : w->total, w->total);
}

bool asset_write(arena *a, const ai_tree *t, const char *dir, written_fn *fn, void *ctx, err *e) {
    uint8_t digest[SHA256_BYTES];
    written w = {fn, ctx, 0, ai_tree_resources(t)};
    return ai_tree_write(t, arena_printf(a, "%s/main.mlirb", dir), on_bytes, &w, digest, e) &&
           file_write(arena_printf(a, "%s/main.hash", dir), digest, sizeof digest, e) &&
           write_asset_metadata(arena_printf(a, "%s/metadata.json", dir), e);
}

bool job_write_asset(job *j, err *e) {
    const char *dir = job_staged(j, j->package[0].name);
    job_written w = {j, 0, e};
    return file_make_dirs(dir, e) && asset_write(j->a, j->asset, dir, job_on_written, &w, e);
}

/* What each state is: keys and values grow, the others have a fixed size. */
static void add_states(str *s, const ir_function *f) {
    bool first = true;
    str_adds(s, "\"states\":{");
    for (size_t i = 0; i < f->n_in; i++) {
        if (f->in[i]->type.kind != IR_STATE) continue;
        bool grows = false;
        for (int d = 0; d < f->in[i]->type.rank; d++) grows |= f->in[i]->type.dim[d] == IR_DIM_UNKNOWN;
        str_printf(s, "%s\"%s\":\"%s\"", first ? "" : ",", f->in[i]->name, grows ? "kv_cache" : "fixed");
        first = false;
    }
    str_addc(s, '}');
}

bool job_write_bundle_metadata(job *j, err *e) {
    str s = {0};
    const char *name = j->package[0].name;
    char digest[SHA256_HEX];
    if (j->o->recipe && !sha256_file(j->o->recipe, digest, NULL, e)) return false;
    str_adds(&s, "{\"metadata_version\":\"0.2\",\"kind\":\"llm\",");
    record_string(&s, "name", job_printable(j->a, j->model_name, '?'));
    str_adds(&s, ",\"producer\":\"" ASSET_PRODUCER "\",\"assets\":{");
    record_string(&s, "main", name);
    str_adds(&s, "},\"language\":{");
    /* the key is required: whose tokenizer it is, where there is none in the bundle */
    record_string(&s, "tokenizer",
                  j->has_tokenizer ? job_tokenizer_name(j) : job_printable(j->a, j->model_name, '?'));
    str_printf(&s,
               ",\"vocab_size\":%" PRId64 ",\"max_context_length\":%" PRId64 ",\"embedded_tokenizer\":%s,",
               checkpoint_config(j->c)->vocab, j->graph_options.context, j->has_tokenizer ? "true" : "false");
    add_states(&s, j->package[0].g.program->func[0]);
    str_adds(&s, "},\"source\":{");
    record_model(&s, j);
    str_adds(&s, "},\"compression\":{");
    record_string(&s, "scheme", job_scheme_name(j));
    str_addc(&s, ',');
    if (j->o->recipe) {
        record_string(&s, "recipe_sha256", digest);
        str_addc(&s, ',');
    }
    record_string(&s, "precision", job_precision_name(j));
    str_adds(&s, "},\"stop_ids\":");
    record_stop_ids(&s, j);
    str_adds(&s, ",\"tokenizer_files\":");
    bool ok = record_tokenizer(&s, j, e);
    str_adds(&s, "}\n");
    ok = ok && file_write(job_staged(j, METADATA_NAME), s.s, s.len, e);
    str_free(&s);
    return ok;
}
