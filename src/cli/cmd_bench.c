/* millet bench. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/team.h"
#include "cli/bench.h"
#include "cli/options.h"
#include "cli/output.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_SIZES = 16,
    MOST_CASES = 2 * MOST_SIZES * MOST_SIZES,
    MOST_TOKENS = 1048576,
    MOST_SESSIONS = 256
};

static const bench_case protocols[] = {
    {.name = "ane", .prompt = 128, .fresh = 64, .warm = 2, .trials = 5},
    {.name = "p128g256", .prompt = 128, .fresh = 256, .warm = 1, .trials = 4},
};

static bool go_on(void *ctx) {
    (void)ctx;
    return !cli_interrupted();
}

/* ---- what to measure ---- */

/* "128,512": up to MOST_SIZES numbers. 0 with a usage error in *code. */
static size_t take_sizes(const cli_args *a, const char *option, int64_t low, int64_t high, int64_t *size,
                         int *code) {
    size_t n = 0;
    const char *at = cli_text(a, option);
    for (bool more = true; more;) {
        char word[16] = "";
        size_t len = strcspn(at, ",");
        if (len < sizeof word) memcpy(word, at, len);
        if (n == MOST_SIZES || !str_to_int64(word, &size[n]) || size[n] < low || size[n] > high) {
            *code = cli_usage(a,
                              "--%s must be up to %d numbers from %" PRId64 " to %" PRId64
                              " with commas between, not '%s'",
                              option, MOST_SIZES, low, high, cli_text(a, option));
            return 0;
        }
        n++;
        more = at[len] == ',';
        at += len + 1;
    }
    return n;
}

/* The cases for each number of threads. */
typedef struct {
    bench_case list[MOST_CASES];
    size_t n;
} cases;

static const char *fresh_name(arena *a, int64_t tokens, int64_t sessions) {
    return sessions > 1 ? arena_printf(a, "n%" PRId64 " x%" PRId64, tokens, sessions)
                        : arena_printf(a, "n%" PRId64, tokens);
}

/* -p, -n, -d and --sessions. */
static int free_form(const cli_args *a, arena *names, cases *l) {
    int64_t prompt[MOST_SIZES], depth[MOST_SIZES] = {0}, sessions[MOST_SIZES] = {1};
    size_t n_prompt = 0, n_depth = 1, n_sessions = 1;
    int code = CLI_OK, trials = cli_given(a, "trials") ? (int)cli_int(a, "trials") : 5;
    if (cli_given(a, "prompt")) n_prompt = take_sizes(a, "prompt", 1, MOST_TOKENS, prompt, &code);
    if (code == CLI_OK && cli_given(a, "depth"))
        n_depth = take_sizes(a, "depth", 0, MOST_TOKENS, depth, &code);
    if (code == CLI_OK && cli_given(a, "sessions"))
        n_sessions = take_sizes(a, "sessions", 1, MOST_SESSIONS, sessions, &code);
    for (size_t i = 0; i < n_depth && code == CLI_OK; i++) {
        for (size_t k = 0; k < n_prompt; k++)
            l->list[l->n++] = (bench_case){.name = arena_printf(names, "p%" PRId64, prompt[k]),
                                           .depth = depth[i],
                                           .prompt = prompt[k],
                                           .fresh = 1,
                                           .warm = 1,
                                           .trials = trials};
        for (size_t k = 0; k < n_sessions && cli_given(a, "new-tokens"); k++)
            l->list[l->n++] = (bench_case){.name = fresh_name(names, cli_int(a, "new-tokens"), sessions[k]),
                                           .depth = depth[i],
                                           .prompt = 1, /* its call is not timed */
                                           .fresh = cli_int(a, "new-tokens") + 1,
                                           .sessions = sessions[k],
                                           .warm = 1,
                                           .trials = trials};
    }
    return code;
}

/* "-t 1,2"; without it the threads that plans use, and for limits alone one, too. */
static int choose_threads(const cli_args *a, bench_report *s) {
    int64_t n[MOST_SIZES];
    int code = CLI_OK;
    s->limits = ARENA_ARRAY(s->a, bench_limits, MOST_SIZES);
    if (cli_given(a, "threads")) {
        s->n_limits = take_sizes(a, "threads", 1, TEAM_MAX, n, &code);
        for (size_t i = 0; i < s->n_limits; i++) s->limits[i].threads = (unsigned)n[i];
        return code;
    }
    if (cli_flag(a, "limits") && rt_threads() > 1) s->limits[s->n_limits++].threads = 1;
    s->limits[s->n_limits++].threads = rt_threads();
    return code;
}

/* Every case with every number of threads. */
static void add_rows(bench_report *s, const cases *l) {
    s->row = ARENA_ARRAY(s->a, bench_row, l->n * s->n_limits);
    for (size_t t = 0; t < s->n_limits; t++)
        for (size_t i = 0; i < l->n; i++) s->row[s->n++] = (bench_row){.c = l->list[i], .limits = t};
}

static bool runs_start(const cli_args *a) {
    return cli_given(a, "protocol") && !strcmp(cli_text(a, "protocol"), "start");
}

/* With `mode` only these options, NULL behind the last, have a meaning. */
static int check_mode(const cli_args *a, const char *mode, const char *const *allowed) {
    static const char *const all[] = {"protocol", "prompt", "new-tokens", "depth",   "trials",    "threads",
                                      "start",    "limits", "compare",    "profile", "precision", "linear",
                                      "html",     "csv",    "markdown",   "json",    "sessions",  "pin"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *const *has = allowed;
        while (*has && strcmp(*has, all[i]) != 0) has++;
        if (!*has && cli_given(a, all[i])) return cli_usage(a, "%s has no use for --%s", mode, all[i]);
    }
    return CLI_OK;
}

/* Options that make no sense together. */
static int check(const cli_args *a) {
    static const char *const with_limits[] = {"limits", "threads", "pin", "markdown", "json", NULL},
                             *const with_compare[] = {"compare", "markdown", NULL},
                             *const with_start[] = {"protocol", "threads", "pin", "precision",
                                                    "linear",   "json",    NULL},
                             *const forms[] = {"markdown", "json", "csv"};
    bool sizes = cli_given(a, "prompt") || cli_given(a, "new-tokens");
    const char *form = NULL, *artifact = cli_arg(a, "[ARTIFACT]");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (!cli_flag(a, forms[i])) continue;
        if (form) return cli_usage(a, "give one of --%s and --%s", form, forms[i]);
        form = forms[i];
    }
    if (cli_given(a, "compare"))
        return artifact ? check_mode(a, "--compare", with_compare)
                        : cli_usage(a, "give two files: --compare BEFORE AFTER");
    if (cli_flag(a, "limits"))
        return artifact ? cli_usage(a, "--limits takes no artifact") : check_mode(a, "--limits", with_limits);
    if (!artifact) return cli_usage(a, "give an artifact or --limits");
    if (runs_start(a)) return check_mode(a, "--protocol start", with_start);
    if (sizes && cli_given(a, "protocol"))
        return cli_usage(a, "a --protocol has its own sizes: leave out -p and -n");
    if (cli_given(a, "sessions") && !cli_given(a, "new-tokens")) return cli_usage(a, "--sessions needs -n");
    if (cli_given(a, "sessions") && cli_flag(a, "profile"))
        return cli_usage(a, "--profile shows one session: leave out --sessions");
    if (!sizes && (cli_given(a, "depth") || cli_given(a, "trials")))
        return cli_usage(a, "--depth and --trials need -p or -n");
    return CLI_OK;
}

static int choose(const cli_args *a, bench_report *s) {
    cases l = {.n = 0};
    int code = check(a);
    if (code == CLI_OK) code = choose_threads(a, s);
    if (code != CLI_OK || cli_flag(a, "limits") || cli_given(a, "compare")) return code;
    if (cli_given(a, "prompt") || cli_given(a, "new-tokens")) code = free_form(a, s->a, &l);
    const char *name = cli_given(a, "protocol") ? cli_text(a, "protocol") : "ane";
    for (size_t i = 0; !l.n && i < sizeof protocols / sizeof *protocols; i++)
        if (!strcmp(protocols[i].name, name)) l.list[l.n++] = protocols[i];
    add_rows(s, &l);
    return code;
}

/* ---- measuring ---- */

/* Of everything that is opened from here on. */
static void use_threads(unsigned n) {
    char text[16];
    snprintf(text, sizeof text, "%u", n);
    setenv("MILLET_THREADS", text, 1);
}

static rt_mode mode_of(const bench_report *s) {
    return strcmp(s->precision, "strict") != 0 ? RT_FAST : RT_STRICT;
}

/* Opens the artifact, refuses what does not fit, and times starts while nothing of it is mapped. */
static bool begin(bench_report *s, bool starts, err *e) {
    footprint f;
    s->m = lm_open_as(s->artifact, NULL, s->contract, e);
    bool ok = s->m != NULL;
    for (size_t i = 0; i < s->n && ok; i++) ok = bench_fits(s->m, &s->row[i].c, e);
    if (ok) footprint_of(&f, s->a, s->m);
    ok = ok && footprint_bytes(&f, &s->size, e);
    if (!ok || !starts) return ok;
    lm_close(s->m);
    s->m = NULL;
    return bench_measure_starts(s, &f, e);
}

static bool open_timed(bench_report *s, err *e) {
    lm_close(s->m);
    double start = clock_seconds();
    s->m = lm_open_as(s->artifact, NULL, s->contract, e);
    s->load = clock_seconds() - start;
    return s->m != NULL;
}

/* All cases with so many threads, then their limits. The memory that these take does not count. */
static bool measure_with(bench_report *s, size_t limits, err *e) {
    bool ok = true, prompts = false;
    use_threads(s->limits[limits].threads);
    for (size_t i = 0; i < s->n && ok; i++) {
        if (s->row[i].limits != limits) continue;
        prompts |= bench_takes_prompt(&s->row[i].c);
        ok = bench_run(s->m, mode_of(s), &s->row[i].c, go_on, &s->row[i].r, e);
    }
    uint64_t peak = bench_peak_memory();
    if (!limits || (peak > s->peak && s->peak_reset)) s->peak = peak;
    ok = ok && bench_measure_limits(&s->limits[limits], s->limits[limits].threads, prompts, e);
    s->peak_reset = bench_reset_peak();
    return ok;
}

static bool measure(const cli_args *a, bench_report *s, err *e) {
    bool ane = !cli_given(a, "prompt") && !cli_given(a, "new-tokens") && !strcmp(s->row[0].c.name, "ane");
    use_threads(s->limits[0].threads);
    bool ok = begin(s, ane || cli_flag(a, "start"), e) && open_timed(s, e);
    for (size_t i = 0; i < s->n_limits && ok; i++) ok = measure_with(s, i, e);
    for (size_t i = 0; i < s->n && ok && cli_flag(a, "profile"); i++) {
        use_threads(s->limits[s->row[i].limits].threads);
        ok = bench_run_profile(s->m, mode_of(s), &s->row[i].c, go_on, s->a, &s->row[i].profile, e);
    }
    return ok;
}

/* ---- the command ---- */

static void print_json(const bench_report *s) {
    str b = {0};
    bench_add_json(&b, s);
    cli_out(b.s, b.len);
    str_free(&b);
}

static int print_start(const cli_args *a, const bench_report *s) {
    bench_start t;
    err e = {0};
    use_threads(s->limits[0].threads);
    if (!bench_run_start(s->artifact, s->contract, mode_of(s), &t, &e)) return cli_fail(&e);
    bench_print_start(&t, cli_flag(a, "json"));
    return CLI_OK;
}

static int print_limits(const cli_args *a, bench_report *s) {
    err e = {0};
    for (size_t i = 0; i < s->n_limits; i++) {
        if (cli_interrupted()) return cli_done();
        if (!bench_measure_limits(&s->limits[i], s->limits[i].threads, true, &e)) return cli_fail(&e);
    }
    table t = bench_limits_table(s);
    if (cli_flag(a, "json"))
        print_json(s);
    else
        table_print(&t, cli_flag(a, "markdown"));
    return CLI_OK;
}

static bool write_page(file_out *out, const bench_report *s, err *e) {
    str page = {0};
    bench_add_html(&page, s);
    bool ok = file_out_write(out, page.s, page.len, e);
    str_free(&page);
    return ok;
}

/* The page's file is begun first: a path that can't be written shall not cost minutes. */
static bool measure_for(const cli_args *a, bench_report *s, err *e) {
    file_out out;
    bool html = cli_given(a, "html");
    if (html && !file_out_begin(&out, cli_text(a, "html"), e)) return false;
    bool ok = measure(a, s, e) && (!html || write_page(&out, s, e));
    if (html) ok = file_out_end(&out, ok, e) && ok;
    return ok;
}

static int print_figures(const cli_args *a, bench_report *s) {
    err e = {0};
    if (!measure_for(a, s, &e)) return cli_fail(&e);
    if (cli_flag(a, "json")) {
        print_json(s);
    } else if (cli_flag(a, "csv")) {
        bench_print_csv(s);
    } else {
        bench_print_text(s, cli_flag(a, "markdown"));
        bench_print_profiles(s, cli_flag(a, "markdown"));
    }
    return CLI_OK;
}

static int print_changes(const cli_args *a, const bench_report *s) {
    err e = {0};
    bool ok = bench_compare(s->a, cli_text(a, "compare"), s->artifact, cli_flag(a, "markdown"), &e);
    return ok ? CLI_OK : cli_fail(&e);
}

int cmd_bench(const cli_args *a) {
    bench_report s = {.a = arena_new(),
                      .artifact = cli_arg(a, "[ARTIFACT]"),
                      .contract = cli_text(a, "contract"),
                      .precision = cli_text(a, "precision")};
    int code = choose(a, &s);
    if (code == CLI_OK) {
        cli_catch_interrupts();
        bench_describe_machine(&s);
        code = cli_given(a, "compare") ? print_changes(a, &s)
               : cli_flag(a, "limits") ? print_limits(a, &s)
               : runs_start(a)         ? print_start(a, &s)
                                       : print_figures(a, &s);
    }
    for (size_t i = 0; i < s.n; i++) bench_result_free(&s.row[i].r);
    lm_close(s.m);
    arena_free(s.a);
    return code;
}
