#include "base/html.h"
#include "check/figures.h"
#include "generate/artifact.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_COLUMNS  96 /* positions of a plot; more are put together */
#define MOST_BARS     24 /* values in the plot of head-room */
#define MOST_CASES    60
#define HEAD_ROOM_END 0x1p16 /* bars of head-room end here: 16 bits */

static void heading(str *s, const char *title, const char *text) {
    str_printf(s, "<h2>%s</h2>\n<p class=\"soft\">%s</p>\n", title, text);
}

static void add_item(void *ctx, const char *line, size_t n) {
    str_adds(ctx, "<li>");
    html_text(ctx, line, n);
    str_adds(ctx, "</li>\n");
}

static void add_verdict(const check_report *r, str *s) {
    bool passed = check_passed(r);
    str_printf(s, "<div class=\"verdict %s\"><strong>%s</strong>\n", passed ? "passed" : "failed",
               passed ? "Passed" : "Failed");
    if (!passed) str_adds(s, "<ul>\n");
    figure_lines(&r->failures, add_item, s);
    if (!passed) str_adds(s, "</ul>\n");
    str_adds(s, "</div>\n");
}

static void add_tile(str *s, const char *figure, const char *label) {
    str_adds(s, "<div class=\"tile\"><b>");
    html_str(s, figure);
    str_adds(s, "</b>");
    html_str(s, label);
    str_adds(s, "</div>\n");
}

/* The first figures of the table as tiles; the last ones are of its form. */
static void add_tiles(const check_report *r, str *s) {
    static const size_t shown[] = {1, 0, 3, 5, 10, 11};
    str_adds(s, "<div class=\"tiles\">\n");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const figure_row *row = &figure_rows[shown[i]];
        char text[FIGURE_TEXT];
        figure_print(text, row, &r->side[0]);
        const char *label = row->label;
        while (*label == ' ') label++;
        if (strcmp(text, "-")) add_tile(s, text, shown[i] == 1 ? "agreement at margin >= 0.1" : label);
    }
    str_adds(s, "</div>\n");
}

/* Mean of a figure of the positions by their index in their text; columns of `step` indices. */
static void add_by_position(str *s, const check_parity *p, bool divergence) {
    size_t longest = 0, count[MOST_COLUMNS] = {0};
    double sum[MOST_COLUMNS] = {0};
    for (size_t i = 0; i < p->positions; i++)
        if (p->position[i].index > longest) longest = p->position[i].index;
    size_t step = longest / MOST_COLUMNS + 1, n = longest / step + 1;
    for (size_t i = 0; i < p->positions; i++) {
        const check_position *x = &p->position[i];
        sum[x->index / step] += divergence ? x->kl : x->want == x->got;
        count[x->index / step]++;
    }
    for (size_t i = 0; i < n; i++) sum[i] = count[i] ? sum[i] / (double)count[i] : NAN;
    const plot_data d = {.title = divergence ? "Mean KL by position" : "Top-1 agreement by position",
                         .tip = "position",
                         .value = sum,
                         .n = n,
                         .last = (long long)longest,
                         .top = divergence ? 0 : 1,
                         .percent = !divergence};
    plot_columns(s, &d);
}

static void add_positions(const check_report *r, str *s) {
    heading(
        s, "Agreement by position",
        "Share of texts in which artifact and reference have the same best token at this place; below, the "
        "mean KL divergence in nats.");
    add_by_position(s, &r->side[0].parity, false);
    add_by_position(s, &r->side[0].parity, true);
}

static void add_layers(const check_layers *l, str *s) {
    double *value = mem_alloc(l->n * sizeof *value);
    for (size_t i = 0; i < l->n; i++) value[i] = l->layer[i].error;
    heading(s, "Error by layer", "Relative error of the residual stream behind each layer.");
    const plot_data d = {.title = "Relative error by layer",
                         .tip = "layer",
                         .value = value,
                         .n = l->n,
                         .first = l->layer[0].layer,
                         .last = l->layer[l->n - 1].layer};
    plot_columns(s, &d);
    mem_free(value);
    if (l->n_boundary)
        str_adds(
            s, "<div class=\"scroll\"><table><tr><th>package</th><th>behind layer</th><th>error</th></tr>\n");
    for (size_t i = 0; i < l->n_boundary; i++) {
        str_adds(s, "<tr><td>");
        html_str(s, l->boundary[i].package);
        str_printf(s, "</td><td>%lld</td><td>%.3g</td></tr>\n", (long long)l->boundary[i].out.layer,
                   l->boundary[i].out.error);
    }
    if (l->n_boundary) str_adds(s, "</table></div>\n");
}

static void add_ranges(const check_ranges *r, str *s) {
    heading(
        s, "Head-room by op",
        "65,504 divided by the largest magnitude, for the values closest to it; bars end at 2<sup>16</sup>. "
        "Marked ones must be fp32: less than a factor of 2, or lost to subnormal numbers.");
    const check_range *closest[MOST_BARS];
    size_t n = figure_closest(r, closest, MOST_BARS);
    for (size_t i = 0; i < n; i++) {
        const check_range *v = closest[i];
        double room = figure_head_room(v);
        char figure[48];
        snprintf(figure, sizeof figure, "%.3g \xC3\x97, %s", room, dtype_name(v->dtype));
        plot_bar(s, v->name, log2(room) / log2(HEAD_ROOM_END), figure, check_range_keep(v) != CHECK_KEEP_NO);
    }
    if (!r->first_path.len) return;
    str_adds(s, "<p>First value that is not finite: ");
    html_text(s, r->first_path.s, r->first_path.len);
    str_adds(s, "</p>\n");
}

static void add_bits(const check_structure *t, str *s) {
    heading(s, "Bits per weight", "As stored, tables and scales included; bars end at 32 bits.");
    for (int i = 0; i < CHECK_CLASSES; i++) {
        if (!t->values[i]) continue;
        double bits = 8.0 * (double)t->bytes[i] / (double)t->values[i];
        char figure[64];
        snprintf(figure, sizeof figure, "%.2f, %.2f MB", bits, (double)t->bytes[i] / 1e6);
        plot_bar(s, check_class_name[i], bits / 32, figure, false);
    }
}

static void add_table(const check_report *r, str *s) {
    check_side reference = figure_reference(r);
    heading(s, "Figures", r->n_side > 1 ? "All artifacts side by side." : "Artifact and fp32 reference.");
    str_adds(s, "<div class=\"scroll\"><table><tr><th></th>");
    for (size_t i = 0; i < r->n_side; i++) {
        str name = figure_column(r, i);
        str_adds(s, "<th>");
        html_str(s, r->n_side > 1 ? str_get(&name) : "artifact");
        str_adds(s, "</th>");
        str_free(&name);
    }
    str_adds(s, "<th>reference</th></tr>\n");
    for (size_t k = 0; k < FIGURES; k++) {
        if (isnan(figure_rows[k].of(&r->side[0]))) continue; /* not measured */
        str_adds(s, "<tr><td>");
        html_str(s, figure_rows[k].label);
        str_adds(s, "</td>");
        for (size_t i = 0; i <= r->n_side; i++) {
            char cell[FIGURE_TEXT];
            figure_print(cell, &figure_rows[k], i < r->n_side ? &r->side[i] : &reference);
            str_printf(s, "<td>%s</td>", cell);
        }
        str_adds(s, "</tr>\n");
    }
    str_adds(s, "</table></div>\n");
}

static void add_token(str *s, const lm *m, int32_t id) {
    str text = figure_token(m, id), quoted = {0};
    str_json_string(&quoted, str_get(&text), text.len);
    str_printf(s, "<td class=\"text\">%d ", id);
    if (m->text) html_text(s, quoted.s, quoted.len);
    str_adds(s, "</td>");
    str_free(&text);
    str_free(&quoted);
}

static void add_worst(const check_report *r, str *s) {
    const check_parity *p = &r->side[0].parity;
    heading(s, "Worst positions", "By KL divergence.");
    str_adds(s, "<div class=\"scroll\"><table><tr><th>text</th><th>position</th><th>KL</th><th>margin</th>"
                "<th>after</th><th>expected</th><th>found</th></tr>\n");
    for (size_t i = 0; i < p->n_worst; i++) {
        const check_position *w = &p->worst[i];
        str_adds(s, "<tr><td>");
        html_str(s, r->texts.text[w->text].name);
        str_printf(s, "</td><td>%zu</td><td>%.2e</td><td>%.3f</td>", w->index, w->kl, w->margin);
        add_token(s, r->side[0].m, w->token);
        add_token(s, r->side[0].m, w->want);
        add_token(s, r->side[0].m, w->got);
        str_adds(s, "</tr>\n");
    }
    str_adds(s, "</table></div>\n");
}

static void add_prefill(const check_prefill *p, str *s) {
    heading(s, "Prefill is decode", "The same tokens in larger calls and one by one: scores and states.");
    str_adds(s, "<div class=\"scroll\"><table><tr><th>text</th><th>tokens</th><th>calls of</th><th>KL</th>"
                "<th>worst state</th><th>its error</th><th>verdict</th></tr>\n");
    for (size_t i = 0; i < p->n && i < MOST_CASES; i++) {
        const check_prefill_case *c = &p->test[i];
        str_adds(s, "<tr><td>");
        html_str(s, c->text);
        str_printf(s, "</td><td>%zu</td><td>%s</td><td>%.2e</td><td>", c->tokens, c->sizes, c->kl);
        html_str(s, c->state ? c->state : "-");
        str_printf(s, "</td><td>%.2e</td><td>%s</td></tr>\n", c->state_error,
                   c->scores_ok && c->states_ok ? "equal" : "differs");
    }
    str_adds(s, "</table></div>\n");
}

static void add_line(void *ctx, const char *line, size_t n) {
    html_text(ctx, line, n);
    str_addc(ctx, '\n');
}

/* What has no plot or table of its own stands there too. */
static void add_words(const check_report *r, str *s) {
    str text = {0};
    check_report_text(r, &text);
    heading(s, "In words", "The report as millet check prints it.");
    str_adds(s, "<pre>");
    figure_lines(&text, add_line, s);
    str_adds(s, "</pre>\n");
    str_free(&text);
}

void check_report_html(const check_report *r, str *s) {
    str subject = figure_subject(&r->side[0]);
    html_begin(s, "millet check: ", str_get(&subject));
    str_free(&subject);
    str_adds(s, "<p class=\"soft\">against ");
    html_str(s, artifact_name(r->checkpoint));
    str_printf(s, "; millet %s, %.0f s</p>\n", MILLET_VERSION, r->seconds);
    add_verdict(r, s);
    add_tiles(r, s);
    if (r->side[0].parity.positions) add_positions(r, s);
    if (r->layers.n) add_layers(&r->layers, s);
    if (r->ranges.n) add_ranges(&r->ranges, s);
    if (r->side[0].structure.n) add_bits(&r->side[0].structure, s);
    add_table(r, s);
    if (r->prefill.n) add_prefill(&r->prefill, s);
    if (r->side[0].parity.n_worst) add_worst(r, s);
    add_words(r, s);
    html_end(s);
}
