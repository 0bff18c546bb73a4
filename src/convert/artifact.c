#include "base/file.h"
#include "convert/job.h"
#include "coreml/embedding.h"
#include <inttypes.h>
#include <string.h>

static const char *staged(const job *j, const char *name) {
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
           err_set(e, ERR_CANCELLED, "conversion cancelled; %s is as it was", j->out);
}

static bool report_written(job *j, uint64_t done, err *e) {
    while (j->at_weight + 1 < j->n_weight && j->weight[j->at_weight].end <= done) j->at_weight++;
    return job_report(j, j->n_weight ? j->weight[j->at_weight].name : "", done, j->total_bytes, e);
}

typedef struct {
    job *j;
    err *e;
} package_progress;

static bool on_weights(void *ctx, uint64_t done, uint64_t total) {
    package_progress *p = ctx;
    (void)total;
    return report_written(p->j, done, p->e);
}

bool job_write_package(job *j, err *e) {
    package_progress p = {j, e};
    coreml_write_options o = {.progress = on_weights, .ctx = &p};
    if (!coreml_write(staged(j, j->package), j->m, &o, e)) return false;
    j->weight_file_bytes = o.weight_bytes;
    return true;
}

static bool fill_rows(void *ctx, int64_t first, int64_t n, float *out, err *e) {
    job *j = ctx;
    const st_tensor *t = j->g.embedding;
    uint64_t width = (uint64_t)t->type.dim[1], at = (uint64_t)first * width, count = (uint64_t)n * width;
    unsigned bytes = dtype_bits((ir_dtype)t->type.dtype) / 8;
    st_floats(t, at, count, out);
    file_drop((const uint8_t *)t->data + at * bytes, count * bytes);
    uint64_t before = j->total_bytes - j->embedding_bytes,
             element = j->embedding_bytes / (uint64_t)ir_type_count(&t->type);
    return report_written(j, before + (at + count) * element, e);
}

bool job_write_embedding(job *j, err *e) {
    const st_tensor *t = j->g.embedding;
    if (!t) return true;
    float probe;
    if (t->type.rank != 2 || ir_type_count(&t->type) <= 0 || !st_floats(t, 0, 1, &probe))
        return err_set(e, ERR_UNSUPPORTED, "%s: tensor %s: expected a matrix of F32, F16 or BF16, found %s",
                       t->file, t->name, ir_type_text(j->a, &t->type));
    embedding_kind kind = strcmp(j->g.input_dtype, "fp32") ? EMBEDDING_FP16 : EMBEDDING_FP32;
    return embedding_write(staged(j, EMBEDDING_NAME), kind, t->type.dim[0], t->type.dim[1], fill_rows, j, e);
}

static void add_pair(str *s, const char *key, const char *value) {
    str_printf(s, "    \"%s\": ", key);
    str_json_string(s, value, strlen(value));
}

static void add_functions(str *s, const job *j) {
    const models_options *o = &j->graph_options;
    const ir_program *p = j->g.program;
    for (size_t i = 0; i < p->n_func; i++) {
        str_adds(s, i ? ", " : ",\n    \"functions\": [");
        str_json_string(s, p->func[i]->name, strlen(p->func[i]->name));
    }
    str_adds(s, "],\n    \"prefill_sizes\": [");
    for (size_t i = 0; i < o->n_prefill; i++) str_printf(s, "%s%" PRId64, i ? ", " : "", o->prefill[i]);
    str_addc(s, ']');
}

static void add_graph(str *s, const job *j) {
    const models_options *o = &j->graph_options;
    str_adds(s, "  \"graph\": {\n");
    add_pair(s, "preset", job_preset_name(j));
    str_adds(s, ",\n");
    add_pair(s, "precision", job_precision_name(j));
    str_adds(s, ",\n");
    if (o->preset == PRESET_CHUNKS) {
        add_pair(s, "state", job_state_name(j));
        str_adds(s, ",\n");
    } else {
        str_printf(s, "    \"top_k\": %" PRId64 ",\n", o->top_k);
    }
    str_printf(s, "    \"context\": %" PRId64, o->context);
    if (o->n_prefill) add_functions(s, j);
    str_adds(s, "\n  },\n");
}

/* An object of the notes of one kind: tensor -> count. */
static void add_notes(str *s, const job *j, const char *key, models_note_kind kind) {
    bool first = true;
    str_printf(s, "    \"%s\": {", key);
    for (size_t i = 0; i < j->g.n_note; i++) {
        const models_note *n = &j->g.note[i];
        if (n->kind != kind) continue;
        str_adds(s, first ? "\n      " : ",\n      ");
        str_json_string(s, n->tensor, strlen(n->tensor));
        str_printf(s, ": %" PRIu64, n->count);
        first = false;
    }
    str_adds(s, first ? "}" : "\n    }");
}

bool job_write_metadata(job *j, err *e) {
    const ckpt_config *c = checkpoint_config(j->c);
    str s = {0};
    str_adds(&s, "{\n  \"format\": \"millet\",\n  \"format_version\": 1,\n");
    str_printf(&s, "  \"converter\": \"millet %s\",\n  \"model\": {\n", MILLET_VERSION);
    add_pair(&s, "name", c->name);
    str_adds(&s, ",\n");
    add_pair(&s, "family", c->family->name);
    str_adds(&s, ",\n");
    add_pair(&s, "model_type", c->model_type);
    str_printf(&s,
               ",\n    \"vocab_size\": %" PRId64 ",\n    \"hidden_size\": %" PRId64
               ",\n    \"layers\": %" PRId64 ",\n    \"max_position\": %" PRId64 "\n  },\n",
               c->vocab, c->hidden, c->layers, c->max_position);
    add_graph(&s, j);
    str_adds(&s, "  \"files\": {\n");
    add_pair(&s, "package", PACKAGE_NAME);
    if (j->g.embedding) {
        str_adds(&s, ",\n");
        add_pair(&s, "embedding", EMBEDDING_NAME);
    }
    if (*j->tokenizer_files) {
        str_adds(&s, ",\n");
        add_pair(&s, "tokenizer", TOKENIZER_NAME);
    }
    str_adds(&s, "\n  },\n  \"tensors\": {\n");
    add_notes(&s, j, "skipped", NOTE_SKIPPED);
    str_adds(&s, ",\n");
    add_notes(&s, j, "kept_fp32", NOTE_OVERFLOW);
    str_adds(&s, ",\n");
    add_notes(&s, j, "vanished", NOTE_VANISH);
    str_adds(&s, "\n  },\n  \"stop_ids\": [");
    for (size_t i = 0; i < c->n_eos; i++) str_printf(&s, "%s%" PRId64, i ? ", " : "", c->eos[i]);
    str_adds(&s, "]\n}\n");
    bool ok = file_write(staged(j, METADATA_NAME), s.s, s.len, e);
    str_free(&s);
    return ok;
}

static bool copy_file(const char *from, const char *to, err *e) {
    file_map m;
    if (!file_open_map(&m, from, e)) return false;
    bool ok = file_write(to, m.data, m.size, e);
    file_unmap(&m);
    return ok;
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
    const char *dir = staged(j, TOKENIZER_NAME);
    j->tokenizer_files = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *from = arena_printf(j->a, "%s/%s", j->dir, names[i]);
        if (!file_exists(from)) continue;
        if (!*j->tokenizer_files && !file_make_dirs(dir, e)) return false;
        if (!copy_file(from, arena_printf(j->a, "%s/%s", dir, names[i]), e)) return false;
        j->tokenizer_files =
            arena_printf(j->a, "%s%s%s", j->tokenizer_files, *j->tokenizer_files ? ", " : "", names[i]);
        if (!i) j->has_tokenizer = true;
    }
    return true;
}
