#include "base/map.h"
#include "convert/job.h"
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *job_preset_name(const job *j) {
    static const char *const names[] = {"chunks", "single", "pipelined"};
    return names[j->graph_options.preset];
}

const char *job_precision_name(const job *j) {
    static const char *const names[] = {"mixed", "float16", "float32"};
    return names[j->graph_options.precision];
}

const char *job_kv_name(const job *j) {
    return j->graph_options.stacked_kv ? "stacked" : "split";
}

static bool is_recurrent(const job *j) {
    return ckpt_is_recurrent(checkpoint_config(j->c));
}

const char *job_state_name(const job *j) {
    bool wide = j->graph_options.precision == PRECISION_FLOAT32;
    return wide || (is_recurrent(j) && j->graph_options.split_state) ? "split" : "fp16";
}

uint64_t job_weight_bytes(const job *j) {
    uint64_t n = 0;
    for (size_t i = 0; i < j->n_package; i++) n += j->package[i].weight_bytes;
    return n;
}

double job_bits_per_weight(const job *j) {
    return j->parameters ? (double)job_weight_bytes(j) * 8 / (double)j->parameters : 0;
}

static void add_size(str *s, uint64_t bytes) {
    double mib = (double)bytes / (1 << 20);
    if (mib >= 1024)
        str_printf(s, "%9.2f GiB", mib / 1024);
    else if (mib < 0.1)
        str_printf(s, "%9.1f KiB", mib * 1024);
    else
        str_printf(s, "%9.1f MiB", mib);
}

static void add_file(str *s, int width, const char *name, uint64_t bytes) {
    str_printf(s, "  %-*s ", width, name);
    add_size(s, bytes);
}

/* What a package computes: "layers 0 to 5 and the head". */
static void add_part(str *s, const job *j, const job_package *p) {
    const models_part *part = &p->part;
    bool layers = part->end_layer > part->layer, head = part->end_piece > part->piece;
    if (layers && part->end_layer == part->layer + 1)
        str_printf(s, "  layer %" PRId64, part->layer);
    else if (layers)
        str_printf(s, "  layers %" PRId64 " to %" PRId64, part->layer, part->end_layer - 1);
    if (!head) return;
    str_adds(s, layers ? " and the head" : "  the head");
    if (part->end_piece - part->piece == models_head_pieces(j->work)) return;
    int64_t end = part->end_piece * MODELS_HEAD_ROWS, vocab = checkpoint_config(j->c)->vocab;
    str_printf(s, "'s rows %" PRId64 " to %" PRId64, part->piece * MODELS_HEAD_ROWS,
               (end < vocab ? end : vocab) - 1);
}

/* Why a weight stays as it is, or its scheme. */
static const char *reason(const job *j, const quant_result *r) {
    if (!r->why) return r->scheme.name;
    if (*r->why) return r->why;
    return j->coreai && !j->o->recipe ? "left alone by the scheme" : "asked for";
}

/* One line a scheme: how many weights, bits, error; and one for each reason why weights stay as they are. */
static void add_compression(const job *j, str *s) {
    const quant_report *r = &j->compressed;
    map *seen = map_new(j->a, 16);
    for (size_t i = 0; i < r->n; i++) {
        const quant_result *first = r->weight[i];
        const char *key = reason(j, first);
        if (!map_add(seen, key, strlen(key), 0)) continue;
        uint64_t n = 0, bytes = 0, count = 0;
        const quant_result *worst = first;
        for (size_t k = i; k < r->n; k++) {
            const quant_result *w = r->weight[k];
            if (strcmp(reason(j, w), key)) continue;
            n++, bytes += w->bytes, count += (uint64_t)ir_type_count(&w->type);
            if (w->error > worst->error) worst = w;
        }
        str_printf(s, "  %s: %" PRIu64 " tensor%s, %.2f bits each", first->why ? "as they are" : key, n,
                   str_plural(n), (double)bytes * 8 / (double)count);
        if (first->why) str_printf(s, ": %s (%s%s)", key, first->name, n > 1 ? ", ..." : "");
        if (!first->why) str_printf(s, ", error up to %.2f %% (%s)", 100 * worst->error, worst->name);
        str_addc(s, '\n');
    }
}

static void add_bits(const job *j, str *s) {
    str_printf(s, "  %.2f bits per weight over %.1f million weights\n", job_bits_per_weight(j),
               (double)j->parameters / 1e6);
}

static void add_packages(const job *j, str *s, int width) {
    for (size_t i = 0; i < j->n_package; i++) {
        const job_package *p = &j->package[i];
        add_file(s, width, p->name, p->weight_bytes);
        if (j->n_package > 1)
            add_part(s, j, p);
        else
            add_bits(j, s);
        if (j->n_package > 1) str_addc(s, '\n');
    }
}

static void add_variants(const job *j, str *s) {
    size_t width = 0;
    for (size_t i = 0; i < j->n_variant; i++)
        if (strlen(j->variant[i].package) > width) width = strlen(j->variant[i].package);
    for (size_t i = 0; i < j->n_variant; i++) {
        add_packages(j->variant[i].j, s, (int)width);
        if (j->variant[i].removed) str_adds(s, "    removed once all were complete\n");
        add_compression(j->variant[i].j, s);
    }
    str_printf(s, "  recommended: %s\n", j->recommended);
}

static void add_sizes(const job *j, str *s) {
    const job_table *t = &j->table;
    int width = t->tensor ? (int)strlen(t->name) : 17;
    add_packages(j, s, width);
    if (t->tensor) {
        add_file(s, width, t->name, t->file.bytes);
        str_printf(s, "  %" PRId64 " rows of %" PRId64 ", %s%s\n", t->tensor->type.dim[0],
                   t->tensor->type.dim[1], embedding_kind_name(t->kind), t->kept ? ", there already" : "");
    }
    if (j->n_package > 1) add_bits(j, s);
    if (!j->n_shared) return;
    str_printf(s, "  shared with other artifacts: %zu weight file%s of %.1f MiB\n", j->n_shared,
               str_plural(j->n_shared), (double)j->shared_bytes / (1 << 20));
}

static int by_count(const void *x, const void *y) {
    const models_note *a = x, *b = y;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return strcmp(a->tensor, b->tensor);
}

/* All notes of one kind in one line: "TITLE: 4 in a (3), b (1)"; shown: how many are named, the largest
 * counts first (metadata.json has all). */
static void add_notes(const job *j, str *s, models_note_kind kind, const char *one, const char *many,
                      const char *rest, size_t shown) {
    arena *a = arena_new();
    models_note *note = ARENA_ARRAY(a, models_note, j->n_note);
    size_t n = 0;
    uint64_t total = 0;
    for (size_t i = 0; i < j->n_note; i++)
        if (j->note[i].kind == kind) note[n++] = j->note[i];
    for (size_t i = 0; i < n; i++) total += note[i].count;
    if (n > 1) qsort(note, n, sizeof *note, by_count);
    if (n) str_printf(s, "  %" PRIu64 " %s%s:", total, total == 1 ? one : many, rest);
    for (size_t i = 0; i < n && i < shown; i++) {
        str_printf(s, "%s %s (", i ? "," : "", note[i].tensor);
        if (*note[i].what) str_printf(s, "%s, ", note[i].what);
        str_printf(s, "%" PRIu64 ")", note[i].count);
    }
    if (n > shown) str_printf(s, " and %zu more", n - shown);
    if (n) str_addc(s, '\n');
    arena_free(a);
}

static bool matches(const quant_report *r, const char *pattern) {
    for (size_t i = 0; i < r->n; i++)
        if (r->weight[i]->weight && !fnmatch(pattern, r->weight[i]->name, 0)) return true;
    return false;
}

static void add_missing_tokenizer(const job *j, str *s) {
    if (!j->has_tokenizer)
        str_printf(s, "warning: %s has no tokenizer.json: text needs --tokenizer DIR, or token ids only\n",
                   j->o->tokenizer ? j->o->tokenizer : j->dir);
}

/* Entries of the precision plan that no package has a value for. */
static void add_unused_plan(const job *j, str *s) {
    size_t unused = 0;
    const char *first = NULL;
    for (size_t i = 0; i < j->n_plan; i++)
        if (!j->widened.seen[i] && !unused++) first = j->plan[i];
    if (unused)
        str_printf(s, "warning: %s: %zu value%s not in this program: %s%s\n", j->o->precision_plan, unused,
                   unused == 1 ? " is" : "s are", first, unused > 1 ? ", ..." : "");
}

static void add_warnings(const job *j, str *s) {
    for (size_t i = 0; i < j->recipe.n_rule; i++)
        if (!matches(&j->compressed, j->recipe.rule[i].pattern))
            str_printf(s, "warning: %s: rule %zu: no weight that can be compressed is called %s\n",
                       j->o->recipe, i + 1, j->recipe.rule[i].pattern);
    add_unused_plan(j, s);
    if (j->not_shared) str_printf(s, "warning: equal weights could not be shared: %s\n", j->not_shared);
    for (size_t i = 0; i < j->n_note; i++)
        if (j->note[i].kind == NOTE_WARNING)
            str_printf(s, "warning: %s: %s\n", j->note[i].tensor, j->note[i].what);
}

void job_summary(const job *j, str *s) {
    const ckpt_config *c = checkpoint_config(j->c);
    const models_options *o = &j->graph_options;
    const job *built = j->n_variant ? j->variant[0].j : j; /* the tensors are the same for all */
    str_printf(s, "%s: %s (%s), %" PRId64 " layer%s, vocabulary of %" PRId64 "\n", j->out, j->model_name,
               c->family->name, c->layers, str_plural(c->layers), c->vocab);
    str_printf(s, "  %s %s, precision %s", j->coreai ? "format coreai, graph" : "preset", job_preset_name(j),
               job_precision_name(j));
    if (is_recurrent(j) && !j->coreai) str_printf(s, ", state %s", job_state_name(j));
    if (o->stacked_kv) str_adds(s, ", kv stacked");
    str_printf(s, ", context %" PRId64, o->context);
    if (o->preset == PRESET_SINGLE) str_printf(s, ", top-k %" PRId64, o->top_k);
    for (size_t i = 0; i < o->n_prefill; i++)
        str_printf(s, "%s%" PRId64, i ? "," : ", prefill ", o->prefill[i]);
    str_addc(s, '\n');
    if (j->n_plan)
        str_printf(s, "  precision plan: %zu value%s held in fp32\n", built->widened.values,
                   str_plural(built->widened.values));
    if (j->n_variant)
        add_variants(j, s);
    else
        add_sizes(j, s);
    if (*j->tokenizer_files) str_printf(s, "  %s  %s\n", job_tokenizer_name(j), j->tokenizer_files);
    if (!j->n_variant) add_compression(j, s);
    add_notes(built, s, NOTE_SKIPPED, "tensor that is", "tensors that are", " not part of it", 8);
    add_notes(built, s, NOTE_OVERFLOW, "value that overflows fp16, its tensor is",
              "values that overflow fp16, their tensors are", " kept fp32", 16);
    add_notes(built, s, NOTE_VANISH, "value that vanishes", "values that vanish", " in fp16", 3);
    add_missing_tokenizer(j, s);
    add_warnings(built, s);
}
