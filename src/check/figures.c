#include "check/figures.h"
#include "generate/artifact.h"
#include "models/widen.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

double figure_percent(size_t part, size_t of) {
    return of ? 100.0 * (double)part / (double)of : 100;
}

double figure_share(size_t part, size_t of) {
    return of ? (double)part / (double)of : 0;
}

double figure_perplexity(double nll, size_t n) {
    return n ? exp(nll / (double)n) : NAN;
}

double figure_bits(const check_structure *s) {
    uint64_t values = 0, bytes = 0;
    for (int i = 0; i < CHECK_CLASSES; i++) values += s->values[i], bytes += s->bytes[i];
    return values ? 8.0 * (double)bytes / (double)values : 0;
}

double figure_head_room(const check_range *r) {
    return r->largest > 0 ? CHECK_FP16_MAX / r->largest : INFINITY;
}

size_t figure_closest(const check_ranges *r, const check_range **out, size_t most) {
    size_t n = 0;
    for (size_t i = 0; i < r->n && n < most; i++) {
        const char *name = r->row[i].name;
        size_t len = widen_entry(name), k = 0;
        while (k < n && (widen_entry(out[k]->name) != len || strncmp(out[k]->name, name, len))) k++;
        if (k == n) out[n++] = &r->row[i];
    }
    return n;
}

void figure_lines(const str *s, void (*fn)(void *ctx, const char *line, size_t n), void *ctx) {
    for (const char *line = str_get(s), *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        fn(ctx, line, (size_t)(end - line));
    }
}

str figure_token(const lm *m, int32_t id) {
    str text = {0};
    if (m->text) tokenizer_decode(m->text, &id, 1, false, &text);
    return text;
}

/* --- the rows --- */

static double share(size_t part, size_t of) {
    return of ? (double)part / (double)of : NAN;
}

static double agreement(const check_side *s) {
    return share(s->parity.agree, s->parity.positions);
}
static double certain_agreement(const check_side *s) {
    return share(s->parity.certain_agree, s->parity.certain);
}
static double cosine(const check_side *s) {
    return s->parity.positions ? s->parity.cosine : NAN;
}
static double divergence(const check_side *s) {
    return s->parity.positions ? s->parity.kl : NAN;
}
static double largest_error(const check_side *s) {
    return s->parity.positions ? s->parity.error : NAN;
}
static double perplexity(const check_side *s) {
    return figure_perplexity(s->parity.nll, s->parity.next);
}
static double repeated_tokens(const check_side *s) {
    return share(s->repetition.repeated_tokens, s->repetition.tokens);
}
static double repeated_characters(const check_side *s) {
    return share(s->repetition.repeated_characters, s->repetition.characters);
}
static double repeated_trigrams(const check_side *s) {
    return share(s->repetition.repeated_trigrams, s->repetition.trigrams);
}
static double longest_run(const check_side *s) {
    return s->repetition.tokens ? (double)s->repetition.run : NAN;
}
static double bits(const check_side *s) {
    return s->structure.n ? figure_bits(&s->structure) : NAN;
}
static double megabytes(const check_side *s) {
    return s->structure.n ? (double)s->structure.file_bytes / 1e6 : NAN;
}
static double packages(const check_side *s) {
    return s->structure.n ? (double)s->structure.n : NAN;
}
const figure_row figure_rows[FIGURES] = {
    {"top-1 agreement", "top1_agreement", agreement, "%", 2},
    {"  margin >= 0.1", "certain_agreement", certain_agreement, "%", 2},
    {"mean cosine", "mean_cosine", cosine, "", 6},
    {"mean KL", "mean_kl", divergence, "", -1},
    {"largest error", "largest_error", largest_error, "", 4},
    {"perplexity", "perplexity", perplexity, "", 3},
    {"repeated tokens", "repeated_tokens", repeated_tokens, "%", 1},
    {"repeated characters", "repeated_characters", repeated_characters, "%", 1},
    {"repeated trigrams", "repeated_trigrams", repeated_trigrams, "%", 1},
    {"longest run", "longest_run", longest_run, "", 0},
    {"bits per weight", "bits_per_weight", bits, "", 2},
    {"size", "megabytes", megabytes, "MB", 1},
    {"packages", "packages", packages, "", 0},
};

void figure_print(char out[FIGURE_TEXT], const figure_row *row, const check_side *s) {
    double v = row->of(s);
    if (isnan(v))
        snprintf(out, FIGURE_TEXT, "-");
    else if (row->digits < 0)
        snprintf(out, FIGURE_TEXT, "%.2e", v);
    else
        snprintf(out, FIGURE_TEXT, "%.*f%s%s", row->digits, *row->unit == '%' ? 100 * v : v,
                 *row->unit ? " " : "", row->unit);
}

/* --- names --- */

#define MOST_COLUMN 24 /* bytes of a column's name */

/* The package where it is the path's only one and has a name of its own, else the path's last part. */
static const char *short_name(const check_side *s) {
    const char *package = s->m->name[0];
    return s->m->n_model == 1 && strcmp(package, "model.mlpackage") ? package : artifact_name(s->path);
}

str figure_subject(const check_side *s) {
    str out = {0};
    const char *path = artifact_name(s->path), *name = short_name(s);
    str_adds(&out, path);
    if (strcmp(path, name)) str_printf(&out, ": %s", name);
    return out;
}

static size_t stem_length(const char *name) {
    static const char suffix[] = ".mlpackage";
    size_t n = strlen(name), k = sizeof suffix - 1;
    return n > k && !strcmp(name + n - k, suffix) ? n - k : n;
}

/* How much of a and b is equal, up to and with a separator; at their ends or beginnings. */
static size_t common(const char *a, size_t na, const char *b, size_t nb, bool ends) {
    size_t n = 0;
    for (size_t i = 0; i < na && i < nb && (ends ? a[na - 1 - i] == b[nb - 1 - i] : a[i] == b[i]); i++)
        if (strchr("-_", ends ? a[na - 1 - i] : a[i])) n = i + 1;
    return n;
}

str figure_column(const check_report *r, size_t side) {
    const char *name = short_name(&r->side[side]);
    size_t n = stem_length(name), begin = n, end = n;
    for (size_t i = 0; i < r->n_side; i++) {
        const char *other = short_name(&r->side[i]);
        size_t k = stem_length(other), b = i == side ? n : common(name, n, other, k, false),
               t = i == side ? n : common(name, n, other, k, true);
        if (b < begin) begin = b;
        if (t < end) end = t;
    }
    str out = {0};
    if (begin + end >= n) begin = end = 0; /* nothing would be left */
    size_t left = n - begin - end;         /* names differ where they begin now */
    str_add(&out, name + begin, left < MOST_COLUMN ? left : MOST_COLUMN);
    return out;
}

check_side figure_reference(const check_report *r) {
    check_side s = {.repetition = r->reference};
    s.parity.nll = r->side[0].parity.nll_ref;
    s.parity.next = r->side[0].parity.next;
    return s;
}
