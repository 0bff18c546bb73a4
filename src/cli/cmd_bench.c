#include "base/clock.h"
#include "cli/bench.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/table.h"
#include <inttypes.h>
#include <string.h>

enum { MOST_SIZES = 16, MOST_CASES = 2 * MOST_SIZES * MOST_SIZES };
#define LIMIT_SECONDS 0.5 /* of reading memory for a figure */

static const bench_case protocols[] = {
    {.name = "ane", .prompt = 128, .fresh = 64, .warm = 2, .trials = 5},
    {.name = "p128g256", .prompt = 128, .fresh = 256, .warm = 1, .trials = 4},
};

static bool go_on(void *ctx) {
    (void)ctx;
    return !cli_interrupted();
}

/* ---- what to measure ---- */

/* "128,512": up to MOST_SIZES numbers from low to 1048576. 0 with a usage error in *code. */
static size_t take_sizes(const cli_args *a, const char *option, int64_t low, int64_t *size, int *code) {
    size_t n = 0;
    const char *at = cli_text(a, option);
    for (bool more = true; more;) {
        char word[16] = "";
        size_t len = strcspn(at, ",");
        if (len < sizeof word) memcpy(word, at, len);
        if (n == MOST_SIZES || !str_to_int64(word, &size[n]) || size[n] < low || size[n] > 1048576) {
            *code = cli_usage(
                a, "--%s must be up to %d numbers from %" PRId64 " to 1048576, as in 128,512, not '%s'",
                option, MOST_SIZES, low, cli_text(a, option));
            return 0;
        }
        n++;
        more = at[len] == ',';
        at += len + 1;
    }
    return n;
}

static bench_case *add_case(bench_report *s) {
    return &s->row[s->n++].c;
}

/* -p, -n and -d. */
static int free_form(const cli_args *a, bench_report *s) {
    int64_t prompt[MOST_SIZES], depth[MOST_SIZES] = {0};
    size_t n_prompt = 0, n_depth = 1;
    int code = CLI_OK, trials = cli_given(a, "trials") ? (int)cli_int(a, "trials") : 5;
    if (cli_given(a, "prompt")) n_prompt = take_sizes(a, "prompt", 1, prompt, &code);
    if (code == CLI_OK && cli_given(a, "depth")) n_depth = take_sizes(a, "depth", 0, depth, &code);
    for (size_t i = 0; i < n_depth && code == CLI_OK; i++) {
        for (size_t k = 0; k < n_prompt; k++)
            *add_case(s) = (bench_case){.name = arena_printf(s->a, "p%" PRId64, prompt[k]),
                                        .depth = depth[i],
                                        .prompt = prompt[k],
                                        .fresh = 1,
                                        .warm = 1,
                                        .trials = trials};
        if (cli_given(a, "new-tokens")) /* behind a prompt of one token, whose call is not timed */
            *add_case(s) = (bench_case){.name = arena_printf(s->a, "n%" PRId64, cli_int(a, "new-tokens")),
                                        .depth = depth[i],
                                        .prompt = 1,
                                        .fresh = cli_int(a, "new-tokens") + 1,
                                        .warm = 1,
                                        .trials = trials};
    }
    return code;
}

static int choose(const cli_args *a, bench_report *s) {
    static const char *const of_artifacts[] = {"protocol", "prompt",    "new-tokens", "depth",
                                               "trials",   "precision", "profile",    "linear"};
    bool limits = cli_flag(a, "limits"), sizes = cli_given(a, "prompt") || cli_given(a, "new-tokens");
    if (cli_flag(a, "markdown") && cli_flag(a, "json"))
        return cli_usage(a, "give one of --markdown and --json");
    if (limits && cli_arg(a, "[ARTIFACT]")) return cli_usage(a, "--limits takes no artifact");
    for (size_t i = 0; limits && i < sizeof of_artifacts / sizeof *of_artifacts; i++)
        if (cli_given(a, of_artifacts[i]))
            return cli_usage(a, "--limits has no use for --%s", of_artifacts[i]);
    if (limits) return CLI_OK;
    if (!cli_arg(a, "[ARTIFACT]")) return cli_usage(a, "give an artifact or --limits");
    if (sizes && cli_given(a, "protocol"))
        return cli_usage(a, "a --protocol has its own sizes: leave out -p and -n");
    if (!sizes && (cli_given(a, "depth") || cli_given(a, "trials")))
        return cli_usage(a, "--depth and --trials need -p or -n");
    if (sizes) return free_form(a, s);
    const char *name = cli_given(a, "protocol") ? cli_text(a, "protocol") : "ane";
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
        if (!strcmp(protocols[i].name, name)) *add_case(s) = protocols[i];
    return CLI_OK;
}

/* ---- the command ---- */

static int print_limits(const cli_args *a) {
    bandwidth w[2];
    err e = {0};
    for (unsigned i = 0; i < 2; i++)
        if (!bandwidth_read(i + 1, LIMIT_SECONDS, &w[i], &e)) return cli_fail(&e);
    if (cli_flag(a, "json")) {
        str b = {0};
        str_adds(&b, "{\"read\":[");
        bench_json_bandwidth(&b, &w[0]);
        str_addc(&b, ',');
        bench_json_bandwidth(&b, &w[1]);
        str_adds(&b, "]}\n");
        cli_out(b.s, b.len);
        str_free(&b);
        return CLI_OK;
    }
    table t = {.a = arena_new(), .columns = 3};
    table_text(&t, "read, threads");
    table_text(&t, "best GB/s");
    table_text(&t, "median GB/s");
    for (unsigned i = 0; i < 2; i++) {
        table_text(&t, arena_printf(t.a, "%u", w[i].threads));
        table_number(&t, "%.2f", w[i].best * 1e-9);
        table_number(&t, "%.2f", w[i].median * 1e-9);
    }
    table_print(&t, cli_flag(a, "markdown"));
    arena_free(t.a);
    return CLI_OK;
}

static bool measure(const cli_args *a, bench_report *s, err *e) {
    rt_mode mode = strcmp(cli_text(a, "precision"), "strict") ? RT_FAST : RT_STRICT;
    double start = clock_seconds();
    s->artifact = cli_arg(a, "[ARTIFACT]");
    s->m = lm_open(s->artifact, NULL, e);
    s->load = clock_seconds() - start;
    bool ok = s->m != NULL;
    for (size_t i = 0; i < s->n && ok; i++) ok = bench_fits(s->m, &s->row[i].c, e);
    for (size_t i = 0; i < s->n && ok; i++) ok = bench_run(s->m, mode, &s->row[i].c, go_on, &s->row[i].r, e);
    s->peak = bench_peak_memory(); /* before the memory that is read below */
    ok = ok && bandwidth_read(rt_threads(), LIMIT_SECONDS, &s->read, e);
    for (size_t i = 0; i < s->n && ok && cli_flag(a, "profile"); i++)
        ok = bench_run_profile(s->m, mode, &s->row[i].c, go_on, s->a, &s->row[i].profile, e);
    return ok;
}

static void print(const cli_args *a, const bench_report *s) {
    if (cli_flag(a, "json")) {
        str b = {0};
        bench_add_json(&b, s);
        cli_out(b.s, b.len);
        str_free(&b);
    } else {
        bench_print_text(s, cli_flag(a, "markdown"));
        bench_print_profiles(s, cli_flag(a, "markdown"));
    }
}

int cmd_bench(const cli_args *a) {
    err e = {0};
    bench_report s = {.a = arena_new()};
    s.row = ARENA_ARRAY(s.a, bench_row, MOST_CASES);
    int code = choose(a, &s);
    if (code == CLI_OK && cli_flag(a, "limits")) {
        code = print_limits(a);
    } else if (code == CLI_OK) {
        cli_catch_interrupts();
        if (measure(a, &s, &e))
            print(a, &s);
        else
            code = cli_fail(&e);
    }
    for (size_t i = 0; i < s.n; i++) bench_result_free(&s.row[i].r);
    lm_close(s.m);
    arena_free(s.a);
    return code;
}
