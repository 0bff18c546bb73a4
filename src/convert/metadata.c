/* metadata.json, format version 2; docs/formats.md describes it, docs/schema has its JSON Schema. */
#include "base/file.h"
#include "convert/job.h"
#include "convert/signature.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool add_graph(str *s, const job *j, err *e) {
    char digest[SHA256_HEX];
    const models_options *o = &j->graph_options;
    const ir_program *p = j->package[0].g.program;
    str_adds(s, "\"graph\":{\"revision\":1,");
    record_string(s, "preset", job_preset_name(j));
    str_addc(s, ',');
    record_string(s, "precision", job_precision_name(j));
    str_addc(s, ',');
    record_string(s, "state", job_state_name(j));
    str_addc(s, ',');
    if (o->preset == PRESET_CHUNKS)
        record_string(s, "kv", job_kv_name(j));
    else
        str_printf(s, "\"top_k\":%" PRId64, o->top_k);
    str_printf(s, ",\"context\":%" PRId64 ",\"functions\":[", o->context);
    for (size_t i = 0; i < p->n_func; i++) str_printf(s, "%s\"%s\"", i ? "," : "", p->func[i]->name);
    str_adds(s, "],\"prefill_sizes\":[");
    for (size_t i = 0; i < o->n_prefill; i++) str_printf(s, "%s%" PRId64, i ? "," : "", o->prefill[i]);
    size_t chunks = 0;
    for (size_t i = 0; i < j->n_package; i++)
        chunks += j->package[i].part.end_layer > j->package[i].part.layer;
    str_printf(s, "],\"chunks\":%zu,\"heads\":%zu,", chunks, j->n_package - chunks);
    if (j->o->precision_plan && !sha256_file(j->o->precision_plan, digest, NULL, e)) return false;
    record_string(s, "precision_plan_sha256", j->o->precision_plan ? digest : NULL);
    str_addc(s, '}');
    return true;
}

static bool add_scheme(str *s, const job *j, err *e) {
    const quant_recipe *r = &j->recipe;
    char digest[SHA256_HEX];
    bool wide = j->graph_options.precision == PRECISION_FLOAT32 && !j->compress;
    const quant_scheme *lut = r->weights.kind == QUANT_LUT ? &r->weights
                              : r->vocab.kind == QUANT_LUT ? &r->vocab
                                                           : NULL;
    if (j->o->recipe && !sha256_file(j->o->recipe, digest, NULL, e)) return false;
    str_adds(s, "\"scheme\":{");
    record_string(s, "weights", wide ? "fp32" : r->weights.name);
    str_addc(s, ',');
    record_string(s, "vocab", r->vocab_apart ? r->vocab.name : "same");
    str_adds(s, ",\"group_size\":");
    if (lut)
        str_printf(s, "%" PRId64, lut->group);
    else
        str_adds(s, "null");
    str_addc(s, ',');
    record_string(s, "recipe_sha256", j->o->recipe ? digest : NULL);
    str_adds(s, ",\"bits_per_weight\":");
    str_json_double(s, round(job_bits_per_weight(j) * 1e4) / 1e4);
    str_addc(s, '}');
    return true;
}

static void add_features(str *s, const char *key, const coreml_feature *f, size_t n) {
    str_printf(s, ",\"%s\":[", key);
    for (size_t i = 0; i < n; i++) {
        str_adds(s, i ? ",{" : "{");
        record_string(s, "name", f[i].name);
        str_printf(s, ",\"dtype\":\"%s\",\"shape\":", dtype_name((ir_dtype)f[i].type.dtype));
        if (f[i].no_shape) {
            str_adds(s, "null}");
            continue;
        }
        str_addc(s, '[');
        for (int d = 0; d < f[i].type.rank; d++) str_printf(s, "%s%" PRId64, d ? "," : "", f[i].type.dim[d]);
        str_adds(s, "]}");
    }
    str_addc(s, ']');
}

static const char *role_of(const job_package *p) {
    bool layers = p->part.end_layer > p->part.layer, head = p->part.end_piece > p->part.piece;
    if (!layers) return "head";
    return head && !p->part.layer ? "all" : "layers";
}

static void add_package(str *s, const job_package *p) {
    str_addc(s, '{');
    record_string(s, "path", p->name);
    str_printf(s, ",\"role\":\"%s\",\"layers\":[%" PRId64 ",%" PRId64 "],\"functions\":[", role_of(p),
               p->part.layer, p->part.end_layer);
    for (size_t i = 0; i < p->m->n_func; i++) {
        const coreml_function *f = &p->m->func[i];
        str_adds(s, i ? ",{" : "{");
        record_string(s, "name", f->name);
        add_features(s, "inputs", f->in, f->n_in);
        add_features(s, "outputs", f->out, f->n_out);
        add_features(s, "states", f->state, f->n_state);
        str_addc(s, '}');
    }
    str_adds(s, "],\"files\":");
    listing_json(s, &p->files);
    str_addc(s, '}');
}

static void add_packages(str *s, const job *j) {
    str_adds(s, "\"packages\":[");
    for (size_t i = 0; i < j->n_package; i++) {
        if (i) str_addc(s, ',');
        add_package(s, &j->package[i]);
    }
    str_addc(s, ']');
}

/* A layer's states, which lie side by side in the package's list. Returns where the next layer's begin. */
static size_t add_layer_states(str *s, const job *j, size_t package, size_t first) {
    const models_graph *g = &j->package[package].g;
    const ckpt_config *c = checkpoint_config(j->c);
    const models_state *x = &g->state[first];
    size_t end = first;
    while (end < g->n_state && g->state[end].layer == x->layer) end++;
    str_printf(s, "{\"layer\":%" PRId64 ",\"kind\":\"%s\",\"package\":%zu,\"names\":[", x->layer,
               x->recurrent ? "recurrent" : "attention", package);
    for (size_t i = first; i < end; i++) {
        const char *rest = g->state[i].rest;
        str_printf(s, "%s\"%s\"", i > first ? "," : "", g->state[i].name);
        if (rest) str_printf(s, ",\"%s\"", rest);
    }
    str_printf(s, "],\"heads\":%" PRId64 ",\"slices\":[%" PRId64 ",%" PRId64 "]}",
               x->recurrent ? c->linear_v_heads : c->kv_heads, x->slice, x->slice + 1);
    return end;
}

static void add_states(str *s, const job *j) {
    bool first = true;
    str_adds(s, "\"states\":[");
    for (size_t i = 0; i < j->n_package; i++)
        for (size_t k = 0; k < j->package[i].g.n_state; first = false) {
            if (!first) str_addc(s, ',');
            k = add_layer_states(s, j, i, k);
        }
    str_addc(s, ']');
}

static void add_table(str *s, const job *j) {
    const job_table *t = &j->table;
    str_adds(s, "\"table\":{");
    record_string(s, "path", j->into ? arena_printf(j->a, "../%s", t->name) : t->name);
    str_printf(s,
               ",\"kind\":\"%s\",\"rows\":%" PRId64 ",\"width\":%" PRId64 ",\"bytes\":%" PRIu64
               ",\"sha256\":\"%s\"}",
               embedding_kind_name(t->kind), t->tensor->type.dim[0], t->tensor->type.dim[1], t->file.bytes,
               t->file.sha256);
}

/* An object of the notes of one kind: tensor -> count. */
static void add_notes(str *s, const job *j, const char *key, models_note_kind kind) {
    bool first = true;
    str_printf(s, "\"%s\":{", key);
    for (size_t i = 0; i < j->n_note; i++) {
        const models_note *n = &j->note[i];
        if (n->kind != kind) continue;
        if (!first) str_addc(s, ',');
        str_json_string(s, n->tensor, strlen(n->tensor));
        str_printf(s, ":%" PRIu64, n->count);
        first = false;
    }
    str_addc(s, '}');
}

static bool add_document(str *s, const job *j, err *e) {
    str_adds(s, "{\"format\":\"millet\",\"format_version\":2,\"converter\":\"millet " MILLET_VERSION "\",");
    str_printf(s, "\"signature\":\"%064d\",\"model\":{", 0);
    record_model(s, j);
    str_adds(s, "},");
    if (!add_graph(s, j, e)) return false;
    str_addc(s, ',');
    if (!add_scheme(s, j, e)) return false;
    str_addc(s, ',');
    add_packages(s, j);
    str_addc(s, ',');
    add_states(s, j);
    str_addc(s, ',');
    if (j->table.tensor) add_table(s, j);
    str_adds(s, j->table.tensor ? ",\"tokenizer\":" : "\"tokenizer\":");
    if (!record_tokenizer(s, j, e)) return false;
    str_adds(s, ",\"tensors\":{");
    add_notes(s, j, "skipped", NOTE_SKIPPED);
    str_addc(s, ',');
    add_notes(s, j, "kept_fp32", NOTE_OVERFLOW);
    str_addc(s, ',');
    add_notes(s, j, "vanished", NOTE_VANISH);
    str_adds(s, "},\"stop_ids\":");
    record_stop_ids(s, j);
    str_addc(s, '}');
    return true;
}

bool job_write_metadata(job *j, err *e) {
    str s = {0};
    bool ok = add_document(&s, j, e) && signature_seal(&s, j->c, signature_metadata_keys, e) &&
              file_write(job_staged(j, METADATA_NAME), s.s, s.len, e);
    str_free(&s);
    return ok;
}
