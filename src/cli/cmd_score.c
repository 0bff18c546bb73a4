#define _GNU_SOURCE
#include "base/clock.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "generate/score.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line on stderr that is rewritten, when that is a terminal. */
typedef struct {
    bool shown;
    double start, last;
} progress;

static bool on_progress(void *ctx, size_t done, size_t tokens) {
    progress *p = ctx;
    double t = clock_seconds();
    if (p->shown && t - p->last >= 0.1) {
        double spent = t - p->start;
        p->last = t;
        fprintf(stderr, "\r%3.0f %%  %zu of %zu tokens", 100.0 * (double)done / (double)tokens, done, tokens);
        if (done && spent > 1)
            fprintf(stderr, "  %.1f tokens/s  %.0f s left", (double)done / spent,
                    (double)(tokens - done) * spent / (double)done);
        fputs("\033[K", stderr);
        fflush(stderr);
    }
    return !cli_interrupted();
}

static void print_json(const lm *m, const score_result *r) {
    str b = {0};
    double mean = score_mean(r);
    str_printf(&b, "{\"tokens\":%zu,\"compared\":%zu,\"mean_nll\":", r->tokens, r->compared);
    str_json_double(&b, mean);
    str_adds(&b, ",\"perplexity\":");
    str_json_double(&b, exp(mean));
    str_adds(&b, ",\"top1_agreement\":");
    str_json_double(&b, r->compared ? (double)r->agree / (double)r->compared : NAN);
    if (m->form.best) str_adds(&b, ",\"argmax_only\":true");
    str_printf(&b, ",\"candidates\":%lld,\"outside_candidates\":%zu,\"seconds\":", (long long)m->form.top_k,
               r->outside);
    str_json_double(&b, r->seconds);
    str_adds(&b, "}\n");
    cli_out(b.s, b.len);
    str_free(&b);
}

static void print_text(const lm *m, const score_result *r) {
    if (!r->compared) {
        cli_printf("%zu token: nothing to compare with\n", r->tokens);
        return;
    }
    double mean = score_mean(r);
    cli_printf("tokens             %zu (%.1f/s)\n", r->tokens, (double)r->tokens / r->seconds);
    if (isfinite(mean)) {
        cli_printf("mean NLL           %.6f\n", mean);
        cli_printf("perplexity         %.4f\n", exp(mean));
    }
    cli_printf("top-1 agreement    %.2f %% (%zu of %zu)\n", 100.0 * (double)r->agree / (double)r->compared,
               r->agree, r->compared);
    if (m->form.best)
        cli_printf(
            "The package returns the best token of each position only, no probabilities: there is no NLL.\n");
    else if (m->form.top_k)
        cli_printf("The package returns the best %lld candidates of each position: NLL is relative to these; "
                   "%zu next "
                   "tokens were not among them and are left out.\n",
                   (long long)m->form.top_k, r->outside);
}

static bool read_ids(const cli_args *a, const lm *m, int32_t **ids, size_t *n, err *e) {
    if (cli_given(a, "ids-file")) return cli_read_ids(cli_text(a, "ids-file"), ids, n, e);
    str text = {0};
    bool ok = cli_read_text(&text, cli_text(a, "text-file"), e) &&
              lm_encode(m, str_get(&text), text.len, ids, n, e);
    str_free(&text);
    return ok;
}

int cmd_score(const cli_args *a) {
    if (cli_given(a, "ids-file") == cli_given(a, "text-file"))
        return cli_usage(a, "give --ids-file or --text-file");
    err e = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    score_result r;
    progress p = {.shown = isatty(STDERR_FILENO)};
    setenv("MILLET_LINEAR", "int16", 0); /* unless chosen: what is asked for are values, not speed */
    cli_catch_interrupts();
    const score_options o = {.mode = strcmp(cli_text(a, "precision"), "strict") ? RT_FAST : RT_STRICT,
                             .logits = cli_text(a, "logits"),
                             .progress = on_progress,
                             .ctx = &p};
    lm *m = lm_open_as(cli_arg(a, "PACKAGE"), cli_text(a, "tokenizer"), cli_text(a, "contract"), &e);
    bool ok = m && read_ids(a, m, &ids, &n, &e);
    p.start = p.last = clock_seconds();
    ok = ok && score_ids(m, ids, n, &o, &r, &e);
    if (p.shown && p.last > p.start) fputs("\r\033[K", stderr);
    if (ok) (cli_flag(a, "json") ? print_json : print_text)(m, &r);
    mem_free(ids);
    lm_close(m);
    return ok ? CLI_OK : cli_fail(&e);
}
