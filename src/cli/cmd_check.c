#include "check/check.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOP_RANGES 10

/* What was measured, and what it must be. */
typedef struct {
    const lm *m;
    check_texts texts;
    check_parity parity;
    check_weights weights;
    check_ids ids;
    check_ranges ranges;  /* n = 0: not asked for */
    double min_agreement; /* percent, of the certain positions */
    const char *why;      /* where that comes from */
    str failures;         /* one a line; empty: passed */
} report;

static bool go_on(void *ctx) {
    (void)ctx;
    return !cli_interrupted();
}

static bool read_texts(const cli_args *a, report *r, err *e) {
    if (!cli_given(a, "ids-file") && !cli_given(a, "text-file"))
        return check_texts_builtin(&r->texts, r->m, e);
    int32_t *ids = NULL;
    size_t n = 0;
    str text = {0};
    const char *path = cli_text(a, cli_given(a, "ids-file") ? "ids-file" : "text-file");
    bool ok = cli_given(a, "ids-file")
                  ? cli_read_ids(path, &ids, &n, e)
                  : cli_read_text(&text, path, e) && lm_encode(r->m, str_get(&text), text.len, &ids, &n, e);
    str_free(&text);
    if (ok) check_texts_add(&r->texts, path, ids, n);
    return ok;
}

static double percent(size_t part, size_t of) {
    return of ? 100.0 * (double)part / (double)of : 100;
}

static void set_threshold(report *r, const cli_args *a) {
    int bits = r->weights.least_bits;
    r->min_agreement = bits >= 8 ? 99 : bits >= 6 ? 97 : 0;
    r->why = bits == 16  ? "weights are not compressed"
             : bits >= 8 ? "8-bit weights"
             : bits >= 6 ? "6-bit weights"
                         : "weights below 6 bits: reported only";
    if (!cli_given(a, "min-agreement")) return;
    r->min_agreement = cli_real(a, "min-agreement");
    r->why = "--min-agreement";
}

static void judge(report *r) {
    const check_parity *p = &r->parity;
    double sure = percent(p->certain_agree, p->certain);
    if (sure < r->min_agreement)
        str_printf(&r->failures, "top-1 agreement at margin >= %g is %.2f %%, expected at least %g %% (%s)\n",
                   CHECK_MARGIN, sure, r->min_agreement, r->why);
    if (p->bad_ids)
        str_printf(&r->failures, "%zu candidate ids are outside of the vocabulary or returned twice\n",
                   p->bad_ids);
    if (r->ranges.nonfinite)
        str_printf(&r->failures, "%llu values are NaN or infinite in strict mode, first in %s\n",
                   (unsigned long long)r->ranges.nonfinite, r->ranges.first_nonfinite);
    if (r->ids.wrong)
        str_printf(&r->failures,
                   "%lld of %lld vocabulary rows return another id, the first: row %lld returns %lld\n",
                   (long long)r->ids.wrong, (long long)r->ids.audited, (long long)r->ids.row,
                   (long long)r->ids.id);
    for (size_t i = 0; i < r->weights.n_bad; i++) {
        const check_weight *w = &r->weights.bad[i];
        if (w->compressed)
            str_printf(&r->failures, "weight %s: relative error %.3g, expected less than %g\n", w->name,
                       w->error, CHECK_WEIGHT_ERROR);
        else
            str_printf(
                &r->failures,
                "weight %s: %llu elements differ from the checkpoint, the first at %llu; relative error "
                "%.3g\n",
                w->name, (unsigned long long)w->differ, (unsigned long long)w->first, w->error);
    }
}

/* The text of a token, as a JSON string; null without a tokenizer. */
static void add_token_text(str *s, const lm *m, int32_t id) {
    str text = {0};
    if (m->text) tokenizer_decode(m->text, &id, 1, false, &text);
    if (m->text)
        str_json_string(s, str_get(&text), text.len);
    else
        str_adds(s, "null");
    str_free(&text);
}

static void add_number(str *s, const char *key, double v) {
    str_printf(s, ",\"%s\":", key);
    str_json_double(s, v);
}

static void add_name(str *s, const char *name) {
    if (name)
        str_json_string(s, name, strlen(name));
    else
        str_adds(s, "null");
}

static double perplexity(double nll, size_t n) {
    return n ? exp(nll / (double)n) : NAN;
}

static void add_worst(str *s, const report *r) {
    str_adds(s, ",\"worst\":[");
    for (size_t i = 0; i < r->parity.n_worst; i++) {
        const check_position *w = &r->parity.worst[i];
        str_adds(s, i ? ",{\"text\":" : "{\"text\":");
        add_name(s, r->texts.text[w->text].name);
        str_printf(s, ",\"index\":%zu,\"token\":%d,\"token_text\":", w->index, w->token);
        add_token_text(s, r->m, w->token);
        str_printf(s, ",\"expected\":%d,\"expected_text\":", w->want);
        add_token_text(s, r->m, w->want);
        str_printf(s, ",\"found\":%d,\"found_text\":", w->got);
        add_token_text(s, r->m, w->got);
        add_number(s, "kl", w->kl);
        add_number(s, "margin", w->margin);
        str_addc(s, '}');
    }
    str_addc(s, ']');
}

static void add_weights(str *s, const check_weights *w) {
    str_printf(s, ",\"weights\":{\"exact\":%zu,\"compressed\":%zu,\"unmatched\":%zu,\"first_unmatched\":",
               w->exact, w->compressed, w->unmatched);
    add_name(s, w->first_unmatched);
    str_printf(s, ",\"missing\":%zu,\"first_missing\":", w->missing);
    add_name(s, w->first_missing);
    str_adds(s, ",\"worst\":");
    add_name(s, w->worst);
    add_number(s, "worst_error", w->worst_error);
    str_adds(s, ",\"bad\":[");
    for (size_t i = 0; i < w->n_bad; i++) {
        str_adds(s, i ? ",{\"name\":" : "{\"name\":");
        add_name(s, w->bad[i].name);
        str_printf(s, ",\"differ\":%llu,\"first\":%llu", (unsigned long long)w->bad[i].differ,
                   (unsigned long long)w->bad[i].first);
        add_number(s, "error", w->bad[i].error);
        str_addc(s, '}');
    }
    str_adds(s, "]}");
}

/* Null when it was not asked for. */
static void add_ranges(str *s, const check_ranges *r) {
    str_adds(s, ",\"ranges\":");
    if (!r->n) {
        str_adds(s, "null");
        return;
    }
    str_printf(s, "{\"ops\":%zu,\"beyond_fp16\":%zu,\"nonfinite\":%llu,\"hidden\":%llu,\"first_nonfinite\":",
               r->n, r->beyond, (unsigned long long)r->nonfinite, (unsigned long long)r->hidden);
    add_name(s, r->first_nonfinite);
    str_adds(s, ",\"values\":[");
    for (size_t i = 0; i < r->n; i++) {
        const check_range *v = &r->row[i];
        str_adds(s, i ? ",{\"name\":" : "{\"name\":");
        add_name(s, v->name);
        str_printf(s, ",\"op\":\"%s\",\"dtype\":\"%s\",\"count\":%llu,\"nonfinite\":%llu,\"hidden\":%llu",
                   v->op, dtype_name(v->dtype), (unsigned long long)v->values,
                   (unsigned long long)v->nonfinite, (unsigned long long)v->hidden);
        add_number(s, "largest", v->largest);
        add_number(s, "subnormal", (double)v->subnormal / (double)v->values);
        str_addc(s, '}');
    }
    str_adds(s, "]}");
}

static void print_json(const report *r) {
    const check_parity *p = &r->parity;
    str s = {0};
    str_printf(&s, "{\"passed\":%s,\"failures\":[", r->failures.len ? "false" : "true");
    for (const char *line = str_get(&r->failures), *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (line != r->failures.s) str_addc(&s, ',');
        str_json_string(&s, line, (size_t)(end - line));
    }
    str_printf(&s, "],\"candidates\":%lld,\"positions\":%zu", (long long)r->m->form.top_k, p->positions);
    add_number(&s, "top1_agreement", p->positions ? percent(p->agree, p->positions) / 100 : NAN);
    str_printf(&s, ",\"certain\":%zu", p->certain);
    add_number(&s, "certain_agreement", p->certain ? percent(p->certain_agree, p->certain) / 100 : NAN);
    add_number(&s, "min_agreement", r->min_agreement / 100);
    add_number(&s, "mean_cosine", p->cosine);
    add_number(&s, "mean_kl", p->kl);
    add_number(&s, "largest_error", p->error);
    add_number(&s, "range", p->range);
    add_number(&s, "perplexity", perplexity(p->nll, p->next));
    add_number(&s, "perplexity_reference", perplexity(p->nll_ref, p->next));
    str_printf(&s, ",\"outside_candidates\":%zu,\"bad_ids\":%zu", p->outside, p->bad_ids);
    add_worst(&s, r);
    add_weights(&s, &r->weights);
    str_printf(&s, ",\"ids\":{\"pieces\":%lld,\"rows\":%lld,\"audited\":%lld,\"wrong\":%lld}",
               (long long)r->ids.pieces, (long long)r->ids.rows, (long long)r->ids.audited,
               (long long)r->ids.wrong);
    add_ranges(&s, &r->ranges);
    add_number(&s, "seconds", p->seconds);
    add_number(&s, "seconds_reference", p->seconds_ref);
    str_adds(&s, "}\n");
    cli_out(s.s, s.len);
    str_free(&s);
}

static void print_worst(const report *r) {
    str s = {0};
    for (size_t i = 0; i < r->parity.n_worst; i++) {
        const check_position *w = &r->parity.worst[i];
        str_printf(&s, "  %-10s %5zu  KL %.2e  margin %6.3f  after %d ", r->texts.text[w->text].name,
                   w->index, w->kl, w->margin, w->token);
        add_token_text(&s, r->m, w->token);
        str_printf(&s, ": expected %d ", w->want);
        add_token_text(&s, r->m, w->want);
        str_printf(&s, ", found %d ", w->got);
        add_token_text(&s, r->m, w->got);
        str_addc(&s, '\n');
    }
    cli_printf("worst positions\n%s", str_get(&s));
    str_free(&s);
}

static void print_weights(const check_weights *w) {
    cli_printf("weights            %zu compared exactly, %zu compressed", w->exact, w->compressed);
    if (w->worst) cli_printf(" (worst error %.3g %%: %s)", 100 * w->worst_error, w->worst);
    cli_printf("\n");
    if (w->unmatched)
        cli_printf("                   %zu have no counterpart in the reference (%s, ...)\n", w->unmatched,
                   w->first_unmatched);
    if (w->missing)
        cli_printf("                   %zu of the reference are missing (%s, ...)\n", w->missing,
                   w->first_missing);
}

static void print_ranges(const check_ranges *r) {
    cli_printf("ranges             %zu values in strict mode: %zu beyond %g, %llu elements NaN or infinite, "
               "%llu hidden by "
               "masks\n",
               r->n, r->beyond, CHECK_FP16_MAX, (unsigned long long)r->nonfinite,
               (unsigned long long)r->hidden);
    for (size_t i = 0; i < r->n && i < TOP_RANGES; i++) {
        const check_range *v = &r->row[i];
        cli_printf("  %-40s %-12s %s  largest %10.4g  head-room %8.3g  subnormal %5.2f %%\n", v->name, v->op,
                   dtype_name(v->dtype), v->largest, v->largest > 0 ? CHECK_FP16_MAX / v->largest : INFINITY,
                   percent(v->subnormal, v->values));
    }
}

static void print_text(const report *r) {
    const check_parity *p = &r->parity;
    cli_printf("positions          %zu in %zu texts (%.1f s, reference %.1f s)\n", p->positions, r->texts.n,
               p->seconds, p->seconds_ref);
    cli_printf("top-1 agreement    %.2f %% (%zu of %zu)\n", percent(p->agree, p->positions), p->agree,
               p->positions);
    cli_printf("  margin >= %g    %.2f %% (%zu of %zu); at least %g %%: %s\n", CHECK_MARGIN,
               percent(p->certain_agree, p->certain), p->certain_agree, p->certain, r->min_agreement, r->why);
    cli_printf("mean cosine        %.8f\n", p->cosine);
    cli_printf("mean KL            %.3e\n", p->kl);
    cli_printf("largest error      %.4g (%.3f %% of the range %.4g)\n", p->error,
               p->range > 0 ? 100 * p->error / p->range : 0, p->range);
    if (p->next)
        cli_printf("perplexity         %.4f (reference %.4f)\n", perplexity(p->nll, p->next),
                   perplexity(p->nll_ref, p->next));
    if (r->m->form.top_k)
        cli_printf(
            "                   all over the best %lld candidates of each position; %zu next tokens were not "
            "among them\n",
            (long long)r->m->form.top_k, p->outside);
    print_weights(&r->weights);
    if (r->ids.rows)
        cli_printf("ids                %lld of %lld vocabulary rows audited, in %lld pieces\n",
                   (long long)r->ids.audited, (long long)r->ids.rows, (long long)r->ids.pieces);
    if (r->ranges.n) print_ranges(&r->ranges);
    print_worst(r);
    for (const char *line = str_get(&r->failures), *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        cli_printf("FAILED: %.*s\n", (int)(end - line), line);
    }
    if (!r->failures.len) cli_printf("passed\n");
}

int cmd_check(const cli_args *a) {
    const char *checkpoint = cli_text(a, "against");
    if (!checkpoint) return cli_usage(a, "give the checkpoint with --against CHECKPOINT");
    if (cli_given(a, "ids-file") && cli_given(a, "text-file"))
        return cli_usage(a, "give --ids-file or --text-file, not both");
    err e = {0};
    report r = {0};
    rt_mode mode = strcmp(cli_text(a, "precision"), "strict") ? RT_FAST : RT_STRICT;
    cli_catch_interrupts();
    lm *m = lm_open(cli_arg(a, "ARTIFACT"), cli_text(a, "tokenizer"), &e), *ref = NULL;
    r.m = m;
    bool ok = m && read_texts(a, &r, &e);
    if (ok && !(ref = check_reference(checkpoint, m, go_on, NULL, &e))) ok = err_where(&e, "reference");
    ok = ok && check_metadata_run(&r.failures, cli_arg(a, "ARTIFACT"), m, &e) &&
         check_ids_run(&r.ids, m, go_on, NULL, &e) && check_weights_run(&r.weights, m, ref, &e) &&
         check_parity_run(&r.parity, m, ref, &r.texts, mode, go_on, NULL, &e);
    ok = ok && (!cli_flag(a, "ranges") || check_ranges_run(&r.ranges, m, &r.texts, go_on, NULL, &e));
    if (ok) {
        set_threshold(&r, a);
        judge(&r);
        (cli_flag(a, "json") ? print_json : print_text)(&r);
    }
    check_ranges_free(&r.ranges);
    bool passed = ok && !r.failures.len;
    str_free(&r.failures);
    check_weights_free(&r.weights);
    check_texts_free(&r.texts);
    lm_close(ref);
    lm_close(m);
    return passed ? CLI_OK : ok ? CLI_FAILED : cli_fail(&e);
}
