#include "check/figures.h"
#include "generate/artifact.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TOP_RANGES 10

static void add_failure(void *ctx, const char *line, size_t n) {
    str_printf(ctx, "FAILED: %.*s\n", (int)n, line);
}

static void add_skipped(void *ctx, const char *line, size_t n) {
    str_printf(ctx, "skipped: %.*s\n", (int)n, line);
}

/* The text of a token as a JSON string: quoted, one line. */
static void add_token(str *s, const lm *m, int32_t id) {
    str text = figure_token(m, id);
    if (m->text)
        str_json_string(s, str_get(&text), text.len);
    else
        str_adds(s, "?");
    str_free(&text);
}

static void add_worst(const check_report *r, str *s) {
    const check_parity *p = &r->side[0].parity;
    str_adds(s, "worst positions\n");
    for (size_t i = 0; i < p->n_worst; i++) {
        const check_position *w = &p->worst[i];
        str_printf(s, "  %-10s %5zu  KL %.2e  margin %6.3f  after %d ", r->texts.text[w->text].name, w->index,
                   w->kl, w->margin, w->token);
        add_token(s, r->side[0].m, w->token);
        str_printf(s, ": expected %d ", w->want);
        add_token(s, r->side[0].m, w->want);
        str_printf(s, ", found %d ", w->got);
        add_token(s, r->side[0].m, w->got);
        str_addc(s, '\n');
    }
}

static void add_scores(const check_report *r, str *s) {
    const check_parity *p = &r->side[0].parity;
    str_printf(s, "positions          %zu in %zu texts (%.1f s, reference %.1f s)\n", p->positions,
               r->scored.n, p->seconds, p->seconds_ref);
    str_printf(s, "top-1 agreement    %.2f %% (%zu of %zu)\n", figure_percent(p->agree, p->positions),
               p->agree, p->positions);
    str_printf(s, "  margin >= %g    %.2f %% (%zu of %zu); at least %g %%: %s\n", CHECK_MARGIN,
               figure_percent(p->certain_agree, p->certain), p->certain_agree, p->certain, r->min_agreement,
               r->why);
    str_printf(s, "mean cosine        %.8f\n", p->cosine);
    str_printf(s, "mean KL            %.3e\n", p->kl);
    str_printf(s, "largest error      %.4g (%.3f %% of the range %.4g)\n", p->error,
               p->range > 0 ? 100 * p->error / p->range : 0, p->range);
    if (p->next)
        str_printf(s, "perplexity         %.4f (reference %.4f)\n", figure_perplexity(p->nll, p->next),
                   figure_perplexity(p->nll_ref, p->next));
    if (r->side[0].m->form.top_k)
        str_printf(
            s,
            "                   all over the best %lld candidates of each position; %zu next tokens were "
            "not among them\n",
            (long long)r->side[0].m->form.top_k, p->outside);
}

static void add_layers(const check_layers *l, str *s) {
    const check_layer *worst = NULL;
    for (size_t i = 0; i < l->n; i++)
        if (!worst || !(l->layer[i].error <= worst->error)) worst = &l->layer[i];
    if (worst)
        str_printf(s,
                   "error by layer     %.3g behind layer %lld, %.3g behind the last; largest %.3g behind "
                   "layer %lld\n",
                   l->layer[0].error, (long long)l->layer[0].layer, l->layer[l->n - 1].error, worst->error,
                   (long long)worst->layer);
    for (size_t i = 0; i < l->n_boundary; i++)
        str_printf(s, "  %-30s hands on layer %lld with an error of %.3g\n", l->boundary[i].package,
                   (long long)l->boundary[i].out.layer, l->boundary[i].out.error);
}

static void add_steps(const check_steps *t, str *s) {
    if (!t->steps) {
        str_adds(s, "single steps       none were compared\n");
        return;
    }
    str_printf(
        s,
        "single steps       %zu of %zu agree from the reference's states (KL %.2e), %zu from its own (KL "
        "%.2e)\n",
        t->agree, t->steps, t->kl, t->own_agree, t->own_kl);
}

static void add_prefill(const check_prefill *p, str *s) {
    double worst = 0;
    for (size_t i = 0; i < p->n; i++) worst = fmax(worst, p->test[i].state_error);
    if (!p->n) return;
    str_printf(s, "prefill = decode   %zu of %zu cases of up to %zu tokens; largest error of a state %.2e\n",
               p->n - p->failed, p->n, p->longest, worst);
}

static void add_weights(const check_weights *w, str *s) {
    str_printf(s, "weights            %zu compared exactly, %zu compressed", w->exact, w->compressed);
    if (w->worst) str_printf(s, " (worst error %.3g %%: %s)", 100 * w->worst_error, w->worst);
    str_addc(s, '\n');
    if (w->unmatched)
        str_printf(s, "                   %zu have no counterpart in the reference (%s, ...)\n", w->unmatched,
                   w->first_unmatched);
    if (w->missing)
        str_printf(s, "                   %zu of the reference are missing (%s, ...)\n", w->missing,
                   w->first_missing);
}

static void add_structure(const check_side *side, str *s) {
    const check_structure *t = &side->structure;
    uint64_t bytes = 0, shared = 0;
    size_t functions = 0;
    for (size_t i = 0; i < t->n; i++) {
        bytes += t->package[i].bytes;
        shared += t->package[i].shared_bytes;
        functions = t->package[i].functions > functions ? t->package[i].functions : functions;
    }
    str_printf(s, "structure          %zu package%s, %zu function%s, %zu state%s; %.1f MB of weights", t->n,
               str_plural(t->n), functions, str_plural(functions), t->states, str_plural(t->states),
               (double)bytes / 1e6);
    if (functions > 1) str_printf(s, ", %.1f MB of them shared by functions", (double)shared / 1e6);
    str_printf(s, "; %.2f bits per weight%s", figure_bits(t), side->m->table ? " with the table" : "");
    if (t->checked_files)
        str_printf(s, "; %zu file%s held against the metadata", t->checked_files,
                   str_plural(t->checked_files));
    str_addc(s, '\n');
    for (size_t i = 0; i < t->composites.n; i++) {
        str_adds(s, "                   ");
        check_composite_text(&t->composites.kind[i], s);
        str_addc(s, '\n');
    }
}

static void add_ranges(const check_report *report, str *s) {
    const check_ranges *r = &report->ranges;
    str_printf(
        s,
        "ranges             %zu values in strict mode, %zu tokens: %zu beyond %g, %llu elements NaN or "
        "infinite, %llu hidden by masks\n",
        r->n, r->tokens, r->beyond, CHECK_FP16_MAX, (unsigned long long)r->nonfinite,
        (unsigned long long)r->hidden);
    if (r->first_path.len) str_printf(s, "  first not finite: %s\n", str_get(&r->first_path));
    const check_range *closest[TOP_RANGES];
    size_t n = figure_closest(r, closest, TOP_RANGES);
    for (size_t i = 0; i < n; i++) {
        const check_range *v = closest[i];
        str_printf(s, "  %-40s %-17s %s  largest %10.4g  head-room %8.3g  subnormal %5.2f %%\n", v->name,
                   v->op, dtype_name(v->dtype), v->largest, figure_head_room(v),
                   v->values ? 100 * (double)v->subnormal / (double)v->values : 0);
    }
    size_t keep = 0, narrow = 0;
    for (size_t i = 0; i < r->n; i++) {
        bool must = check_range_keep(&r->row[i]) != CHECK_KEEP_NO;
        keep += must, narrow += must && r->row[i].dtype != DT_FP32;
    }
    str_printf(s, "  %zu value%s must be fp32 (head-room below %g, or lost to subnormal numbers); ", keep,
               str_plural(keep), CHECK_HEAD_ROOM);
    if (narrow)
        str_printf(s, "%zu of them %s not: see --precision-plan\n", narrow, narrow == 1 ? "is" : "are");
    else
        str_adds(s, "all of them are\n");
}

/* Several artifacts side by side, the reference last. */
static void add_table(const check_report *r, str *s) {
    check_side reference = figure_reference(r);
    int width[CHECK_MOST_BESIDE + 2];
    str_printf(s, "%-22s", "");
    for (size_t i = 0; i < r->n_side; i++) {
        str name = figure_column(r, i);
        width[i] = name.len > 12 ? (int)name.len : 12;
        str_printf(s, "  %*s", width[i], str_get(&name));
        str_free(&name);
    }
    width[r->n_side] = 12;
    str_printf(s, "  %12s\n", "reference");
    for (size_t k = 0; k < FIGURES; k++) {
        if (isnan(figure_rows[k].of(&r->side[0]))) continue; /* not measured */
        str_printf(s, "%-22s", figure_rows[k].label);
        for (size_t i = 0; i <= r->n_side; i++) {
            char cell[FIGURE_TEXT];
            figure_print(cell, &figure_rows[k], i < r->n_side ? &r->side[i] : &reference);
            str_printf(s, "  %*s", width[i], cell);
        }
        str_addc(s, '\n');
    }
}

static void add_repetition(const check_report *r, str *s) {
    const check_repetition *got = &r->side[0].repetition, *ref = &r->reference;
    str_printf(s,
               "repetition         %zu tokens each behind %zu prompt%s: %.0f %% of the tokens and %.0f %% "
               "of the trigrams "
               "came before, longest run %zu (reference %.0f %%, %.0f %%, %zu)\n",
               got->prompts ? got->tokens / got->prompts : 0, got->prompts, str_plural(got->prompts),
               100 * figure_share(got->repeated_tokens, got->tokens),
               100 * figure_share(got->repeated_trigrams, got->trigrams), got->run,
               100 * figure_share(ref->repeated_tokens, ref->tokens),
               100 * figure_share(ref->repeated_trigrams, ref->trigrams), ref->run);
}

static void add_subject(const check_report *r, str *s) {
    str name = figure_subject(&r->side[0]);
    str_printf(s, "artifact           %s, against %s\n", str_get(&name), artifact_name(r->checkpoint));
    str_free(&name);
}

void check_report_text(const check_report *r, str *out) {
    add_subject(r, out);
    if (r->measures & CHECK_SCORES) add_scores(r, out);
    if (r->measures & CHECK_SCORES) add_layers(&r->layers, out);
    if (r->measures & CHECK_SINGLE_STEPS) add_steps(&r->steps, out);
    if (r->measures & CHECK_PREFILL) add_prefill(&r->prefill, out);
    if (r->measures & CHECK_WEIGHTS) add_weights(&r->weights, out);
    if (r->measures & CHECK_STRUCTURE) add_structure(&r->side[0], out);
    if (r->ids.rows)
        str_printf(out, "ids                %lld of %lld vocabulary rows audited, in %lld piece%s\n",
                   (long long)r->ids.audited, (long long)r->ids.rows, (long long)r->ids.pieces,
                   str_plural(r->ids.pieces));
    if (r->measures & CHECK_RANGES) add_ranges(r, out);
    if (r->measures & CHECK_REPETITION) add_repetition(r, out);
    if (r->measures & CHECK_SCORES) add_worst(r, out);
    if (r->n_side > 1) add_table(r, out);
    figure_lines(&r->skipped, add_skipped, out);
    figure_lines(&r->failures, add_failure, out);
    if (check_passed(r)) str_adds(out, "passed\n");
}
