#include "base/map.h"
#include "convert/job.h"
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *job_preset_name(const job *j) {
    return j->graph_options.preset == PRESET_CHUNKS ? "chunks" : "single";
}

const char *job_precision_name(const job *j) {
    static const char *const names[] = {"mixed", "float16", "float32"};
    return names[j->graph_options.precision];
}

const char *job_state_name(const job *j) {
    const ckpt_config *c = checkpoint_config(j->c);
    bool recurrent = false;
    for (int64_t i = 0; c->linear_layer && i < c->layers; i++) recurrent = recurrent || c->linear_layer[i];
    return j->graph_options.precision == PRECISION_FLOAT32 || (recurrent && j->graph_options.split_state)
               ? "split"
               : "fp16";
}

static void add_file(str *s, const char *name, uint64_t bytes) {
    str_printf(s, "  %-17s %10.1f MB  ", name, (double)bytes / 1e6);
}

double job_bits_per_weight(const job *j) {
    return j->parameters ? (double)j->weight_file_bytes * 8 / (double)j->parameters : 0;
}

static void add_package(const job *j, str *s) {
    add_file(s, j->package, j->weight_file_bytes);
    str_printf(s, "%.2f bits per weight over %.1f million weights\n", job_bits_per_weight(j),
               (double)j->parameters / 1e6);
}

static void add_sizes(const job *j, str *s) {
    if (!j->n_variant) add_package(j, s);
    const st_tensor *t = j->g.embedding;
    if (t) {
        add_file(s, EMBEDDING_NAME, j->embedding_bytes);
        str_printf(s, "%" PRId64 " rows of %" PRId64 ", %s\n", t->type.dim[0], t->type.dim[1],
                   j->g.input_dtype);
    }
    if (*j->tokenizer_files) str_printf(s, "  %-17s %s\n", TOKENIZER_NAME, j->tokenizer_files);
}

static int by_count(const void *x, const void *y) {
    const models_note *a = x, *b = y;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return strcmp(a->tensor, b->tensor);
}

/* All notes of one kind in one line; shown: how many are named, the largest counts first (metadata.json has
 * all). */
static void add_notes(const job *j, str *s, models_note_kind kind, const char *title, size_t shown) {
    arena *a = arena_new();
    models_note *note = ARENA_ARRAY(a, models_note, j->g.n_note);
    size_t n = 0;
    uint64_t total = 0;
    for (size_t i = 0; i < j->g.n_note; i++)
        if (j->g.note[i].kind == kind) note[n++] = j->g.note[i];
    for (size_t i = 0; i < n; i++) total += note[i].count;
    if (n > 1) qsort(note, n, sizeof *note, by_count);
    if (n) str_printf(s, "  %s: %" PRIu64, title, total);
    for (size_t i = 0; i < n && i < shown; i++) {
        str_printf(s, "%s %s (", i ? "," : n > shown ? ", most in" : ":", note[i].tensor);
        if (*note[i].what) str_printf(s, "%s, ", note[i].what);
        str_printf(s, "%" PRIu64 ")", note[i].count);
    }
    if (n > shown) str_printf(s, " and %zu more", n - shown);
    if (n) str_addc(s, '\n');
    arena_free(a);
}

/* Why a weight stays as it is, or its scheme. */
static const char *reason(const quant_result *r) {
    if (!r->why) return r->scheme.name;
    return *r->why ? r->why : "asked for";
}

/* One line a scheme: how many weights, bits, error; and one for each reason why weights stay as they are. */
static void add_compression(const job *j, str *s) {
    const quant_report *r = &j->compressed;
    map *seen = map_new(j->a, 16);
    for (size_t i = 0; i < r->n; i++) {
        const quant_result *first = r->weight[i];
        const char *key = reason(first);
        if (!map_add(seen, key, strlen(key), 0)) continue;
        uint64_t n = 0, bytes = 0, count = 0;
        const quant_result *worst = first;
        for (size_t k = i; k < r->n; k++) {
            const quant_result *w = r->weight[k];
            if (strcmp(reason(w), key)) continue;
            n++, bytes += w->bytes, count += (uint64_t)ir_type_count(&w->type);
            if (w->error > worst->error) worst = w;
        }
        str_printf(s, "  %s: %" PRIu64 " tensor%s, %.2f bits each", first->why ? "as they are" : key, n,
                   n == 1 ? "" : "s", (double)bytes * 8 / (double)count);
        if (first->why) str_printf(s, ": %s (%s%s)", key, first->name, n > 1 ? ", ..." : "");
        if (!first->why) str_printf(s, ", error up to %.2f %% (%s)", 100 * worst->error, worst->name);
        str_addc(s, '\n');
    }
}

static bool matches(const quant_report *r, const char *pattern) {
    for (size_t i = 0; i < r->n; i++)
        if (r->weight[i]->weight && !fnmatch(pattern, r->weight[i]->name, 0)) return true;
    return false;
}

static void add_missing_tokenizer(const job *j, str *s) {
    if (!j->has_tokenizer)
        str_printf(s, "warning: %s has no tokenizer.json: text needs --tokenizer DIR, or token ids only\n",
                   j->dir);
}

static void add_warnings(const job *j, str *s) {
    for (size_t i = 0; i < j->recipe.n_rule; i++)
        if (!matches(&j->compressed, j->recipe.rule[i].pattern))
            str_printf(s, "warning: %s: rule %zu: no weight that can be compressed is called %s\n",
                       j->o->recipe, i + 1, j->recipe.rule[i].pattern);
    if (j->widened.unused)
        str_printf(s, "warning: %s: %zu values are not in this program (%s%s)\n", j->o->precision_plan,
                   j->widened.unused, j->widened.first_unused, j->widened.unused > 1 ? ", ..." : "");
    for (size_t i = 0; i < j->g.n_note; i++)
        if (j->g.note[i].kind == NOTE_WARNING)
            str_printf(s, "warning: %s: %s\n", j->g.note[i].tensor, j->g.note[i].what);
}

void job_summary(const job *j, str *s) {
    const ckpt_config *c = checkpoint_config(j->c);
    const models_options *o = &j->graph_options;
    str_printf(s, "%s: %s (%s), %" PRId64 " layer%s, vocabulary of %" PRId64 "\n", j->out, c->name,
               c->family->name, c->layers, c->layers == 1 ? "" : "s", c->vocab);
    str_printf(s, "  preset %s, precision %s", job_preset_name(j), job_precision_name(j));
    if (o->preset == PRESET_CHUNKS) str_printf(s, ", state %s", job_state_name(j));
    str_printf(s, ", context %" PRId64, o->context);
    if (o->preset == PRESET_SINGLE) str_printf(s, ", top-k %" PRId64, o->top_k);
    for (size_t i = 0; i < o->n_prefill; i++)
        str_printf(s, "%s%" PRId64, i ? "," : ", prefill ", o->prefill[i]);
    str_addc(s, '\n');
    if (j->n_plan)
        str_printf(s, "  precision plan: %zu values held in fp32\n",
                   (j->n_variant ? j->variant[0].j : j)->widened.values);
    for (size_t i = 0; i < j->n_variant; i++) {
        add_package(j->variant[i].j, s);
        if (j->variant[i].removed) str_adds(s, "    removed once all were complete\n");
        add_compression(j->variant[i].j, s);
    }
    if (j->n_variant) str_printf(s, "  recommended: %s\n", j->recommended);
    add_sizes(j, s);
    add_compression(j, s);
    const job *built = j->n_variant ? j->variant[0].j : j; /* the tensors are the same for all */
    add_notes(built, s, NOTE_SKIPPED, "tensors skipped", 8);
    add_notes(built, s, NOTE_OVERFLOW, "values that overflow fp16, their tensors are kept fp32", 16);
    add_notes(built, s, NOTE_VANISH, "values that vanish in fp16", 3);
    add_missing_tokenizer(j, s);
    add_warnings(built, s);
}
