#include "base/arena.h"
#include "base/bandwidth.h"
#include "base/clock.h"
#include "cli/options.h"
#include "cli/output.h"
#include "generate/bench.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIZES = 16, MOST_CASES = 2 * MOST_SIZES * MOST_SIZES, COLUMNS = 9, CELL = 24 };
#define LIMIT_SECONDS 0.5 /* of reading memory for a figure */

static const bench_case protocols[] = {
    {.name = "ane", .prompt = 128, .fresh = 64, .warm = 2, .trials = 5},
    {.name = "p128g256", .prompt = 128, .fresh = 256, .warm = 1, .trials = 4},
};

/* What was measured. */
typedef struct {
    arena *a;
    bench_case *list;
    bench_result *result; /* one a case */
    size_t n;
    const char *artifact;
    lm *m;
    double load;
    uint64_t peak; /* bytes */
    bandwidth read;
} session;

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

static bench_case *add_case(session *s) {
    return &s->list[s->n++];
}

/* -p, -n and -d. */
static int free_form(const cli_args *a, session *s) {
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

static int choose(const cli_args *a, session *s) {
    static const char *const of_artifacts[] = {"protocol", "prompt", "new-tokens",
                                               "depth",    "trials", "precision"};
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

/* ---- figures ---- */

static bool takes_prompt(const bench_case *c) {
    return c->prompt > 1 || c->fresh == 1;
}

static double prompt_rate(const bench_case *c, const bench_result *r) {
    return takes_prompt(c) ? (double)c->prompt / r->prompt_median : NAN;
}

static double decode_rate(const bench_case *c, const bench_result *r) {
    return c->fresh > 1 ? (double)(c->fresh - 1) / r->decode_median : NAN;
}

/* Bytes a token; NAN: not known. */
static double token_bytes(const bench_case *c, const bench_result *r) {
    return c->fresh > 1 && r->moved ? r->bytes : NAN;
}

static double token_speed(const bench_case *c, const bench_result *r) {
    return token_bytes(c, r) * decode_rate(c, r);
}

static void json_member(str *b, const char *name, double v) {
    str_printf(b, ",\"%s\":", name);
    str_json_double(b, v);
}

static void json_list(str *b, const char *name, const double *x, int n) {
    str_printf(b, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i) str_addc(b, ',');
        str_json_double(b, x[i]);
    }
    str_addc(b, ']');
}

static void json_bandwidth(str *b, const bandwidth *w) {
    str_printf(b, "{\"threads\":%u", w->threads);
    json_member(b, "best_gb_per_s", w->best * 1e-9);
    json_member(b, "median_gb_per_s", w->median * 1e-9);
    str_addc(b, '}');
}

static void json_case(str *b, const session *s, size_t i) {
    const bench_case *c = &s->list[i];
    const bench_result *r = &s->result[i];
    str_printf(b, "{\"name\":\"%s\",\"depth\":%" PRId64 ",\"prompt\":%" PRId64 ",\"new_tokens\":%" PRId64,
               c->name, c->depth, c->prompt, c->fresh);
    json_member(b, "prompt_tokens_per_s", prompt_rate(c, r));
    json_member(b, "prompt_ms_per_token", 1e3 / prompt_rate(c, r));
    json_member(b, "decode_tokens_per_s", decode_rate(c, r));
    json_member(b, "decode_ms_per_token", 1e3 / decode_rate(c, r));
    json_member(b, "bytes_per_token", token_bytes(c, r));
    json_member(b, "gb_per_s", token_speed(c, r) * 1e-9);
    json_member(b, "share_of_read", token_speed(c, r) / s->read.best);
    json_list(b, "prompt_s", r->prompt_seconds, c->trials);
    json_list(b, "decode_s", r->decode_seconds, c->trials);
    str_addc(b, '}');
}

/* The ids of the longest prompt, so that others can feed the same. */
static int64_t ids_fed(const session *s) {
    int64_t most = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].depth + s->list[i].prompt > most) most = s->list[i].depth + s->list[i].prompt;
    return most;
}

static void print_json(const session *s) {
    str b = {0};
    char hex[SHA256_HEX];
    bench_ids_sha256(s->m->vocab, ids_fed(s), hex);
    str_adds(&b, "{\"artifact\":");
    str_json_string(&b, s->artifact, strlen(s->artifact));
    str_printf(&b, ",\"threads\":%u,\"ids\":%" PRId64 ",\"ids_sha256\":\"%s\"", rt_threads(), ids_fed(s),
               hex);
    json_member(&b, "load_s", s->load);
    str_printf(&b, ",\"peak_bytes\":%" PRIu64 ",\"read\":", s->peak);
    json_bandwidth(&b, &s->read);
    str_adds(&b, ",\"results\":[");
    for (size_t i = 0; i < s->n; i++) {
        if (i) str_addc(&b, ',');
        json_case(&b, s, i);
    }
    str_adds(&b, "]}\n");
    cli_out(b.s, b.len);
    str_free(&b);
}

/* ---- tables ---- */

/* Rows of cells, the first one heads; as Markdown, or in columns. */
static void print_table(char (*cell)[COLUMNS][CELL], size_t rows, size_t columns, bool markdown) {
    int width[COLUMNS] = {0};
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < columns; k++)
            if ((int)strlen(cell[i][k]) > width[k]) width[k] = (int)strlen(cell[i][k]);
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < columns; k++)
            if (markdown)
                cli_printf("%s%s%s", k ? "" : "| ", cell[i][k], k + 1 < columns ? " | " : " |\n");
            else
                cli_printf("%*s%s", k ? width[k] : -width[k], cell[i][k], k + 1 < columns ? "  " : "\n");
        for (size_t k = 0; markdown && !i && k < columns; k++)
            cli_printf("%s%s", k ? "---:|" : "|---|", k + 1 < columns ? "" : "\n");
    }
}

static void put(char *cell, const char *format, double v) __attribute__((format(printf, 2, 0)));
static void put(char *cell, const char *format, double v) {
    if (isfinite(v))
        snprintf(cell, CELL, format, v);
    else
        memcpy(cell, "-", 2);
}

static void fill_row(char (*cell)[CELL], const session *s, size_t i) {
    const bench_case *c = &s->list[i];
    const bench_result *r = &s->result[i];
    snprintf(cell[0], CELL, "%s", c->name);
    snprintf(cell[1], CELL, "%" PRId64, c->depth);
    put(cell[2], "%.1f", prompt_rate(c, r));
    put(cell[3], "%.3f", 1e3 / prompt_rate(c, r));
    put(cell[4], "%.1f", decode_rate(c, r));
    put(cell[5], "%.3f", 1e3 / decode_rate(c, r));
    put(cell[6], "%.2f", token_bytes(c, r) * 1e-6);
    put(cell[7], "%.2f", token_speed(c, r) * 1e-9);
    put(cell[8], "%.0f %%", 100 * token_speed(c, r) / s->read.best);
}

static void print_text(const session *s, bool markdown) {
    static const char head[COLUMNS][CELL] = {"test",     "depth",        "prompt tok/s",
                                             "ms/token", "decode tok/s", "ms/token",
                                             "MB/token", "GB/s",         "of read"};
    char hex[SHA256_HEX];
    char(*cell)[COLUMNS][CELL] = arena_array(s->a, s->n + 1, sizeof *cell);
    bench_ids_sha256(s->m->vocab, ids_fed(s), hex);
    memcpy(cell[0], head, sizeof head);
    for (size_t i = 0; i < s->n; i++) fill_row(cell[i + 1], s, i);
    print_table(cell, s->n + 1, COLUMNS, markdown);
    cli_printf(
        "\nloaded in %.3f s; peak memory %.1f MiB; threads: %u; read bandwidth %.2f GB/s (median %.2f)\n",
        s->load, (double)s->peak / 1048576, rt_threads(), s->read.best * 1e-9, s->read.median * 1e-9);
    cli_printf("SHA-256 of the %" PRId64 " ids: %s\n", ids_fed(s), hex);
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
        json_bandwidth(&b, &w[0]);
        str_addc(&b, ',');
        json_bandwidth(&b, &w[1]);
        str_adds(&b, "]}\n");
        cli_out(b.s, b.len);
        str_free(&b);
        return CLI_OK;
    }
    char cell[3][COLUMNS][CELL] = {{"read, threads", "best GB/s", "median GB/s"}};
    for (unsigned i = 0; i < 2; i++) {
        snprintf(cell[i + 1][0], CELL, "%u", w[i].threads);
        put(cell[i + 1][1], "%.2f", w[i].best * 1e-9);
        put(cell[i + 1][2], "%.2f", w[i].median * 1e-9);
    }
    print_table(cell, 3, 3, cli_flag(a, "markdown"));
    return CLI_OK;
}

static bool measure(const cli_args *a, session *s, err *e) {
    rt_mode mode = strcmp(cli_text(a, "precision"), "strict") ? RT_FAST : RT_STRICT;
    double start = clock_seconds();
    s->artifact = cli_arg(a, "[ARTIFACT]");
    s->m = lm_open(s->artifact, NULL, e);
    s->load = clock_seconds() - start;
    bool ok = s->m != NULL;
    for (size_t i = 0; i < s->n && ok; i++) ok = bench_fits(s->m, &s->list[i], e);
    for (size_t i = 0; i < s->n && ok; i++) ok = bench_run(s->m, mode, &s->list[i], go_on, &s->result[i], e);
    s->peak = bench_peak_memory(); /* before the memory that is read below */
    return ok && bandwidth_read(rt_threads(), LIMIT_SECONDS, &s->read, e);
}

int cmd_bench(const cli_args *a) {
    err e = {0};
    session s = {.a = arena_new()};
    s.list = ARENA_ARRAY(s.a, bench_case, MOST_CASES);
    s.result = ARENA_ARRAY(s.a, bench_result, MOST_CASES);
    int code = choose(a, &s);
    if (code == CLI_OK && cli_flag(a, "limits")) {
        code = print_limits(a);
    } else if (code == CLI_OK) {
        cli_catch_interrupts();
        if (!measure(a, &s, &e))
            code = cli_fail(&e);
        else if (cli_flag(a, "json"))
            print_json(&s);
        else
            print_text(&s, cli_flag(a, "markdown"));
    }
    for (size_t i = 0; i < s.n; i++) bench_result_free(&s.result[i]);
    lm_close(s.m);
    arena_free(s.a);
    return code;
}
