#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "check/report.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Progress on stderr: one line that is rewritten, on a terminal only. */
typedef struct {
    bool shown;
    double last;
} progress;

static bool on_tick(void *ctx, const char *phase, size_t done, size_t total) {
    progress *p = ctx;
    if (cli_interrupted()) return false;
    double t = clock_seconds();
    if (!p->shown || t - p->last < 0.1) return true;
    p->last = t;
    fprintf(stderr, "\r%-12s", phase);
    if (total)
        fprintf(stderr, " [%-30.*s] %3zu %%", (int)(30 * done / total), "##############################",
                100 * done / total);
    fputs("\033[K", stderr);
    fflush(stderr);
    return true;
}

static bool read_texts(const cli_args *a, check_texts *texts, err *e) {
    if (!cli_given(a, "ids-file") && !cli_given(a, "text-file")) return true;
    int32_t *ids = NULL;
    size_t n = 0;
    str text = {0};
    const char *path = cli_text(a, cli_given(a, "ids-file") ? "ids-file" : "text-file");
    bool ok;
    if (cli_given(a, "ids-file")) {
        ok = cli_read_ids(path, &ids, &n, e);
    } else {
        lm *m = lm_open(cli_arg(a, "ARTIFACT"), cli_text(a, "tokenizer"), e); /* for its tokenizer */
        ok = m && cli_read_text(&text, path, e) && lm_encode(m, str_get(&text), text.len, &ids, &n, e);
        lm_close(m);
    }
    str_free(&text);
    if (ok) check_texts_add(texts, path, ids, n);
    return ok;
}

static bool write_html(file_out *out, const check_report *r, err *e) {
    str page = {0};
    check_report_html(r, &page);
    bool ok = file_out_write(out, page.s, page.len, e);
    str_free(&page);
    return ok;
}

/* Measures. The page's file is begun first: a path that can't be written shall not cost minutes. */
static bool run(const cli_args *a, check_report *r, check_options *o, err *e) {
    bool html = cli_given(a, "html");
    file_out out;
    if (html && !file_out_begin(&out, cli_text(a, "html"), e)) return false;
    bool ok = read_texts(a, &o->texts, e) && check_run(r, o, e) && (!html || write_html(&out, r, e));
    if (html) ok = file_out_end(&out, ok, e) && ok;
    return ok && (!cli_flag(a, "record") || check_record(r, e));
}

static void print(const cli_args *a, const check_report *r) {
    str s = {0};
    (cli_flag(a, "json") ? check_report_json : check_report_text)(r, &s);
    cli_out(s.s, s.len);
    str_free(&s);
}

/* Refuses what contradicts each other; CLI_OK when all is well. */
static int check_usage(const cli_args *a, unsigned measures) {
    if (!cli_text(a, "against")) return cli_usage(a, "give the checkpoint with --against CHECKPOINT");
    if (cli_given(a, "ids-file") && cli_given(a, "text-file"))
        return cli_usage(a, "give --ids-file or --text-file, not both");
    if (cli_given(a, "precision-plan") && !(measures & CHECK_RANGES))
        return cli_usage(a, "--precision-plan needs the measurement ranges");
    if (cli_given(a, "html") && cli_given(a, "precision-plan") &&
        !strcmp(cli_text(a, "html"), cli_text(a, "precision-plan")))
        return cli_usage(a, "--html and --precision-plan name the same file");
    if (cli_flag(a, "record") && !(measures & CHECK_SCORES))
        return cli_usage(a, "--record needs the measurement scores");
    return CLI_OK;
}

int cmd_check(const cli_args *a) {
    err e = {0};
    unsigned measures = CHECK_ALL;
    if (cli_given(a, "only") && !check_measures_by_name(&measures, cli_text(a, "only"), &e))
        return cli_usage(a, "--only: %s", e.msg);
    int usage = check_usage(a, measures);
    if (usage != CLI_OK) return usage;
    const char *beside[CHECK_MOST_BESIDE];
    progress p = {.shown = isatty(STDERR_FILENO)};
    check_options o = {.artifact = cli_arg(a, "ARTIFACT"),
                       .checkpoint = cli_text(a, "against"),
                       .tokenizer = cli_text(a, "tokenizer"),
                       .beside = beside,
                       .measures = measures,
                       .budget = cli_given(a, "budget") ? cli_int(a, "budget") : -1,
                       .min_agreement = cli_given(a, "min-agreement") ? cli_real(a, "min-agreement") : -1,
                       .mode = strcmp(cli_text(a, "precision"), "strict") ? RT_FAST : RT_STRICT,
                       .plan = cli_text(a, "precision-plan"),
                       .tick = on_tick,
                       .ctx = &p};
    o.n_beside = cli_paths(a, "compare-with", beside, CHECK_MOST_BESIDE);
    if (o.n_beside > CHECK_MOST_BESIDE)
        return cli_usage(a, "--compare-with can be given %d times, not %zu", CHECK_MOST_BESIDE, o.n_beside);
    setenv("MILLET_LINEAR", "int16", 0); /* unless chosen: prompts the way that single tokens go */
    cli_catch_interrupts();
    check_report r = {0};
    bool ok = run(a, &r, &o, &e);
    if (p.shown) fputs("\r\033[K", stderr);
    if (ok) print(a, &r);
    bool passed = ok && check_passed(&r);
    check_report_free(&r);
    return passed ? CLI_OK : ok ? CLI_FAILED : cli_fail(&e);
}
