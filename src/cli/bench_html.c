/* The page: figures, decode against context, where the time goes. */
#include "base/html.h"
#include "cli/bench.h"
#include "generate/artifact.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { MOST_BARS = 24 };

static void heading(str *s, const char *title, const char *text) {
    str_adds(s, "<h2>");
    html_str(s, title);
    str_adds(s, "</h2>\n<p class=\"soft\">");
    html_str(s, text);
    str_adds(s, "</p>\n");
}

static void add_cells(str *s, const char *tag, const char *const *cell, size_t n) {
    str_adds(s, "<tr>");
    for (size_t i = 0; i < n; i++) {
        str_printf(s, "<%s>", tag);
        html_str(s, cell[i]);
        str_printf(s, "</%s>", tag);
    }
    str_adds(s, "</tr>\n");
}

static void add_table(str *s, const table *t) {
    str_adds(s, "<div class=\"scroll\"><table>\n");
    for (size_t i = 0; i + t->columns <= t->n; i += t->columns)
        add_cells(s, i ? "td" : "th", t->cell + i, t->columns);
    str_adds(s, "</table></div>\n");
}

/* ---- decode against context ---- */

/* Positions in the middle of the generation. */
static double context_of(const bench_row *r) {
    return (double)(r->c.depth + r->c.prompt) + 0.5 * (double)r->c.fresh;
}

/* Tokens a second that reading the token's bytes at full bandwidth would give; NAN: not known. */
static double roof_of(const bench_report *s, const bench_row *r) {
    return s->limits[r->limits].read.best / bench_token_bytes(r);
}

/* The decode rates with so many threads, or their roofs, by context. */
static plot_series series_of(const bench_report *s, size_t limits, bool roof) {
    double *x = ARENA_ARRAY(s->a, double, s->n), *y = ARENA_ARRAY(s->a, double, s->n);
    unsigned threads = s->limits[limits].threads;
    plot_series p = {.x = x, .y = y, .guide = roof};
    p.name = arena_printf(s->a, roof ? "threads: %u, the token's bytes at read bandwidth" : "threads: %u",
                          threads);
    for (size_t i = 0; i < s->n; i++) {
        const bench_row *r = &s->row[i];
        if (r->c.sessions > 1) continue;
        double v = roof ? roof_of(s, r) : bench_decode_rate(r), at = context_of(r);
        if (r->limits != limits || !isfinite(v)) continue;
        size_t k = p.n++;
        for (; k > 0 && x[k - 1] > at; k--) x[k] = x[k - 1], y[k] = y[k - 1];
        x[k] = at, y[k] = v;
    }
    return p;
}

static void add_decode(str *s, const bench_report *r) {
    plot_series *list = ARENA_ARRAY(r->a, plot_series, 2 * r->n_limits);
    size_t n = 0;
    for (size_t i = 0; i < 2 * r->n_limits; i++) {
        list[n] = series_of(r, i / 2, i % 2);
        if (list[n].n) n++;
    }
    if (!n) return;
    heading(s, "Decode against context",
            "Tokens a second over the positions in the middle of a generation; dashed: were nothing done but "
            "reading "
            "weights, states and visible keys and values at the read bandwidth of the same minute.");
    plot_lines(s, "decode, tokens a second, against context", "context", list, n);
}

/* ---- profiles ---- */

static void add_bar(str *s, const profile *p, const char *name, double seconds, bool warn) {
    char figure[64];
    snprintf(figure, sizeof figure, "%.4f ms, %.1f %%", 1e3 * seconds / (double)p->tokens,
             100 * seconds / p->seconds);
    plot_bar(s, name, seconds / p->seconds, figure, warn);
}

static double mean(const double *by_worker, unsigned workers) {
    double sum = 0;
    for (unsigned i = 0; i < workers; i++) sum += by_worker[i] / workers;
    return sum;
}

static void add_layers(str *s, arena *a, const profile *p) {
    double *ms = ARENA_ARRAY(a, double, p->n_layer);
    for (size_t i = 0; i < p->n_layer; i++)
        ms[i] = 1e3 * (mean(p->layer[i].work, p->workers) + mean(p->layer[i].wait, p->workers)) /
                (double)p->tokens;
    str_adds(s, "<p class=\"soft\">By layer, milliseconds a token with what was waited for, from ");
    html_str(s, p->layer[0].name);
    str_adds(s, " to ");
    html_str(s, p->layer[p->n_layer - 1].name);
    str_adds(s, ":</p>\n");
    plot_columns(s, &(plot_data){.title = "milliseconds a token by layer",
                                 .tip = "row",
                                 .value = ms,
                                 .n = p->n_layer,
                                 .first = 1,
                                 .last = (long long)p->n_layer});
}

static void add_profile(str *s, const bench_report *b, const bench_row *r, const profile *p) {
    heading(s, bench_profile_title(b, r, p),
            "Time of the mean worker by kernel; waiting at barriers apart. Bars in another colour: no fast "
            "kernel.");
    if (!p->workers) {
        str_adds(s, "<p>No plan ran: the reference evaluator did everything.</p>\n");
        return;
    }
    double others = 0;
    for (size_t i = 0; i < p->n_kernel; i++) {
        double seconds = mean(p->kernel[i].work, p->workers);
        if (i < MOST_BARS)
            add_bar(s, p, p->kernel[i].name, seconds, p->kernel[i].slow);
        else
            others += seconds;
    }
    if (others > 0) add_bar(s, p, "other kernels", others, false);
    add_bar(s, p, "waiting", mean(p->all.wait, p->workers), false);
    add_bar(s, p, "outside of plans", p->seconds - bench_walked(p), false);
    if (p->n_layer > 1) add_layers(s, b->a, p);
    table t = bench_kernels_table(b->a, p);
    add_table(s, &t);
}

/* ---- the page ---- */

static void add_facts(str *s, const bench_report *r) {
    char hex[SHA256_HEX];
    const bench_starts *t = &r->start;
    bench_ids_sha256(r->m->vocab, bench_ids_fed(r), hex);
    str_printf(s, "<p class=\"soft\">millet %s, %s, ", MILLET_VERSION, r->time);
    html_str(s, *r->cpu ? r->cpu : "processor not known");
    str_printf(s, " (%s), load average %.1f before; precision %s, linear layers %s</p>\n", r->isa, r->busy,
               r->precision, r->linear);
    str_printf(s, "<p>Opened in %.3f s; peak memory %.1f MiB, %.2f times the %.1f MiB of the package.",
               r->load, (double)r->peak / 1048576, (double)r->peak / (double)r->size,
               (double)r->size / 1048576);
    if (t->measured && t->dropped)
        str_printf(s, " From start to first token with empty caches %.3f s,", t->cold_whole);
    else if (t->measured)
        str_printf(s, " Start with empty caches not measured: %.1f MiB of the files stayed in memory;",
                   (double)t->left / 1048576);
    if (t->measured) str_printf(s, " with the files in memory %.3f s.", t->cached_whole);
    str_printf(s, "</p>\n<p class=\"soft\">SHA-256 of the %" PRId64 " ids: %s</p>\n", bench_ids_fed(r), hex);
}

void bench_add_html(str *s, const bench_report *r) {
    table figures = bench_figures_table(r), limits = bench_limits_table(r);
    html_begin(s, "millet bench: ", artifact_name(r->artifact));
    add_facts(s, r);
    add_table(s, &figures);
    add_decode(s, r);
    for (size_t i = 0; i < r->n; i++) {
        const bench_row *row = &r->row[i];
        if (row->profile.has_prompt) add_profile(s, r, row, &row->profile.prompt);
        if (row->profile.has_decode) add_profile(s, r, row, &row->profile.decode);
    }
    heading(s, "Limits of the machine", "Measured right after the generations, with as many threads.");
    add_table(s, &limits);
    html_end(s);
}
