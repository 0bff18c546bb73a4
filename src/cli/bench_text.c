#include "cli/bench.h"
#include "cli/output.h"
#include "cli/table.h"
#include <inttypes.h>
#include <math.h>

/* ---- figures ---- */

double bench_prompt_rate(const bench_row *r) {
    return bench_takes_prompt(&r->c) ? (double)r->c.prompt / r->r.prompt_median : NAN;
}

double bench_decode_rate(const bench_row *r) {
    double sessions = r->c.sessions > 1 ? (double)r->c.sessions : 1;
    return r->c.fresh > 1 ? sessions * (double)(r->c.fresh - 1) / r->r.decode_median : NAN;
}

double bench_token_bytes(const bench_row *r) {
    return r->c.fresh > 1 && r->r.moved ? r->r.bytes : NAN;
}

double bench_token_speed(const bench_row *r) {
    return bench_token_bytes(r) * bench_decode_rate(r);
}

double bench_prompt_speed(const bench_row *r) {
    return bench_takes_prompt(&r->c) && r->r.prompt_flops > 0 ? r->r.prompt_flops / r->r.prompt_median : NAN;
}

double bench_share_of_read(const bench_report *s, const bench_row *r) {
    return bench_token_speed(r) / s->limits[r->limits].read.best;
}

double bench_share_of_rate(const bench_report *s, const bench_row *r) {
    const bench_rate *best = bench_best_rate(&s->limits[r->limits]);
    return best ? bench_prompt_speed(r) / best->best : NAN;
}

int64_t bench_ids_fed(const bench_report *s) {
    int64_t most = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->row[i].c.depth + s->row[i].c.prompt > most) most = s->row[i].c.depth + s->row[i].c.prompt;
    return most;
}

/* ---- the table ---- */

static void add_head(table *t, const char *const *head) {
    for (size_t i = 0; i < t->columns; i++) table_text(t, head[i]);
}

/* Faster than memory is read: what a token moves comes from the processor's caches. */
static bool is_cached(const bench_report *s, const bench_row *r) {
    return bench_share_of_read(s, r) > 1.05; /* the two are not measured at the same time */
}

static void add_row(table *t, const bench_report *s, const bench_row *r) {
    table_text(t, r->c.name);
    table_text(t, arena_printf(t->a, "%u", s->limits[r->limits].threads));
    table_text(t, arena_printf(t->a, "%" PRId64, r->c.depth));
    table_number(t, "%.1f", bench_prompt_rate(r));
    table_number(t, "%.3f", 1e3 / bench_prompt_rate(r));
    table_number(t, "%.1f", bench_prompt_speed(r) * 1e-9);
    table_number(t, "%.1f %%", 100 * bench_share_of_rate(s, r));
    table_number(t, "%.1f", bench_decode_rate(r));
    table_number(t, "%.3f", 1e3 / bench_decode_rate(r));
    table_number(t, "%.2f", bench_token_bytes(r) * 1e-6);
    table_number(t, "%.2f", bench_token_speed(r) * 1e-9);
    if (is_cached(s, r))
        table_text(t, "cached");
    else
        table_number(t, "%.0f %%", 100 * bench_share_of_read(s, r));
}

static void print_starts(const bench_report *s) {
    const bench_starts *t = &s->start;
    if (!t->measured) return;
    if (t->dropped)
        cli_printf("start with empty caches: opened in %.3f s, first token after %.3f s\n", t->cold.opened,
                   t->cold_whole);
    else
        cli_printf("start with empty caches: not measured, %.1f MiB of the files stayed in memory\n",
                   (double)t->left / 1048576);
    cli_printf(
        "start with files in memory: opened in %.3f s, first token after %.3f s, peak memory %.1f MiB\n",
        t->cached.opened, t->cached_whole, (double)t->cached.peak / 1048576);
}

static void print_limits_lines(const bench_report *s) {
    for (size_t i = 0; i < s->n_limits; i++) {
        const bench_limits *l = &s->limits[i];
        const bench_rate *best = bench_best_rate(l);
        cli_printf("threads: %u; read bandwidth %.2f GB/s (median %.2f)", l->threads, l->read.best * 1e-9,
                   l->read.median * 1e-9);
        if (best)
            cli_printf("; %s %.0f GFLOP/s (median %.0f)", best->kind.name, best->best * 1e-9,
                       best->median * 1e-9);
        cli_printf("\n");
    }
}

table bench_figures_table(const bench_report *s) {
    static const char *const head[] = {"test",     "threads",  "depth",   "prompt tok/s",
                                       "ms/token", "GFLOP/s",  "of peak", "decode tok/s",
                                       "ms/token", "MB/token", "GB/s",    "of read"};
    table t = {.a = s->a, .columns = sizeof head / sizeof *head};
    add_head(&t, head);
    for (size_t i = 0; i < s->n; i++) add_row(&t, s, &s->row[i]);
    return t;
}

void bench_print_text(const bench_report *s, bool markdown) {
    char hex[SHA256_HEX];
    table t = bench_figures_table(s);
    bench_ids_sha256(s->m->vocab, bench_ids_fed(s), hex);
    table_print(&t, markdown);
    cli_printf("\n");
    bool cached = false;
    for (size_t i = 0; i < s->n; i++) cached |= is_cached(s, &s->row[i]);
    if (cached)
        cli_printf(
            "cached: what a token moves fits in the processor's caches; a share of the memory's bandwidth "
            "says nothing there\n");
    print_limits_lines(s);
    cli_printf("opened in %.3f s; peak memory %.1f MiB, %.2f times the %.1f MiB of the package\n", s->load,
               (double)s->peak / 1048576, (double)s->peak / (double)s->size, (double)s->size / 1048576);
    print_starts(s);
    cli_printf("SHA-256 of the %" PRId64 " ids: %s\n", bench_ids_fed(s), hex);
}

table bench_limits_table(const bench_report *s) {
    static const char *const head[] = {"limit", "threads", "best", "median", "unit"};
    table t = {.a = s->a, .columns = sizeof head / sizeof *head};
    add_head(&t, head);
    for (size_t i = 0; i < s->n_limits; i++) {
        const bench_limits *l = &s->limits[i];
        for (size_t k = 0; k <= l->n_rate; k++) {
            bool read = k == 0;
            table_text(&t, read ? "read memory" : l->rate[k - 1].kind.name);
            table_text(&t, arena_printf(s->a, "%u", l->threads));
            table_number(&t, "%.2f", 1e-9 * (read ? l->read.best : l->rate[k - 1].best));
            table_number(&t, "%.2f", 1e-9 * (read ? l->read.median : l->rate[k - 1].median));
            table_text(&t, read ? "GB/s" : l->rate[k - 1].kind.floats ? "GFLOP/s" : "GOP/s");
        }
    }
    return t;
}

/* ---- profiles ---- */

enum { MOST_WAITS = 4 }; /* columns of waiting; more workers share one */

static size_t wait_columns(const profile *p) {
    return p->workers > MOST_WAITS ? 1 : p->workers;
}

static void add_waits(table *t, const profile *p, const double *wait) {
    if (p->workers > MOST_WAITS)
        table_number(t, "%.4f", 1e3 * profile_most(wait, p->workers) / (double)p->tokens);
    for (unsigned i = 0; i < p->workers && p->workers <= MOST_WAITS; i++)
        table_number(t, "%.4f", 1e3 * wait[i] / (double)p->tokens);
}

/* What a row did, but for the waiting. seconds: of the worker that was busy longest. */
static void add_done(table *t, const profile *p, const profile_row *r, double seconds) {
    double n = (double)p->tokens;
    table_number(t, "%.2f", (double)r->calls / n);
    table_number(t, "%.4f", 1e3 * seconds / n);
    table_number(t, "%.1f %%", 100 * seconds / p->seconds);
    table_number(t, "%.4f", r->calls ? 1e3 * r->least / n : NAN);
    table_number(t, "%.3f", r->bytes > 0 ? r->bytes * 1e-6 / n : NAN);
    table_number(t, "%.2f", r->bytes > 0 ? r->bytes * 1e-9 / seconds : NAN);
    table_number(t, "%.2f", r->flops > 0 ? r->flops * 1e-9 / seconds : NAN);
}

static void add_profile_row(table *t, const profile *p, const profile_row *r) {
    table_text(t, r->slow ? arena_printf(t->a, "%s (!)", r->name) : r->name);
    add_done(t, p, r, profile_most(r->work, p->workers));
    add_waits(t, p, r->wait);
}

static table new_table(arena *a, const profile *p, const char *first) {
    const char *head[] = {first,      "calls/token", "ms/token", "share",
                          "least ms", "MB/token",    "GB/s",     "GFLOP/s"};
    table t = {.a = a, .columns = sizeof head / sizeof *head};
    add_head(&t, head);
    t.columns += wait_columns(p);
    for (unsigned i = 0; i < wait_columns(p); i++)
        table_text(&t, p->workers > MOST_WAITS ? "wait" : arena_printf(a, "wait %u", i));
    return t;
}

double bench_walked(const profile *p) {
    double sum = 0;
    for (unsigned i = 0; i < p->workers; i++) sum += (p->all.work[i] + p->all.wait[i]) / (double)p->workers;
    return sum;
}

/* What is no step: begin and end of calls, and the time that no plan ran. */
static void add_rest(table *t, const profile *p) {
    add_profile_row(t, p, &p->call);
    table_text(t, "outside of plans");
    add_done(t, p, &(profile_row){0}, p->seconds - bench_walked(p));
    for (size_t i = 0; i < wait_columns(p); i++) table_text(t, "-");
    add_profile_row(t, p, &p->all);
}

table bench_kernels_table(arena *a, const profile *p) {
    table t = new_table(a, p, "kernel");
    for (size_t i = 0; i < p->n_kernel; i++) add_profile_row(&t, p, &p->kernel[i]);
    add_rest(&t, p);
    return t;
}

static table layers_table(arena *a, const profile *p) {
    table t = new_table(a, p, "layer");
    for (size_t i = 0; i < p->n_layer; i++) add_profile_row(&t, p, &p->layer[i]);
    return t;
}

const char *bench_profile_title(const bench_report *s, const bench_row *r, const profile *p) {
    return arena_printf(s->a, "%s at depth %" PRId64 ", threads: %u, %s: %.3f ms a token", r->c.name,
                        r->c.depth, s->limits[r->limits].threads,
                        p == &r->profile.prompt ? "prompt" : "decode", 1e3 * p->seconds / (double)p->tokens);
}

static void print_profile(const bench_report *s, const bench_row *r, const profile *p, bool markdown) {
    cli_printf("\n%s\n\n", bench_profile_title(s, r, p));
    if (!p->workers) {
        cli_printf("no plan ran: the reference evaluator did everything\n");
        return;
    }
    table kernels = bench_kernels_table(s->a, p), layers = layers_table(s->a, p);
    table_print(&kernels, markdown);
    cli_printf("\n");
    table_print(&layers, markdown);
    cli_printf(p->all.slow ? "\n(!) no fast kernel\n" : "\nevery step has a fast kernel\n");
}

void bench_print_profiles(const bench_report *s, bool markdown) {
    for (size_t i = 0; i < s->n; i++) {
        const bench_row *r = &s->row[i];
        if (r->profile.has_prompt) print_profile(s, r, &r->profile.prompt, markdown);
        if (r->profile.has_decode) print_profile(s, r, &r->profile.decode, markdown);
    }
}
