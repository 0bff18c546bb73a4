#include "check/figures.h"

static void set_threshold(check_report *r, double min_agreement) {
    int bits = check_least_bits(r->side[0].m);
    r->min_agreement = bits >= 8 ? 99 : bits >= 6 ? 97 : 0;
    r->why = bits == 16  ? "weights are not compressed"
             : bits >= 8 ? "8-bit weights"
             : bits >= 6 ? "6-bit weights"
                         : "weights below 6 bits: reported only";
    if (min_agreement < 0) return;
    r->min_agreement = min_agreement;
    r->why = "--min-agreement";
}

static void judge_scores(check_report *r) {
    const check_parity *p = &r->side[0].parity;
    double sure = figure_percent(p->certain_agree, p->certain);
    if (sure < r->min_agreement)
        str_printf(&r->failures, "top-1 agreement at margin >= %g is %.2f %%, expected at least %g %% (%s)\n",
                   CHECK_MARGIN, sure, r->min_agreement, r->why);
    if (p->bad_ids)
        str_printf(&r->failures, "%zu candidate ids are outside of the vocabulary or returned twice\n",
                   p->bad_ids);
    for (size_t i = 0; i < r->layers.n_boundary; i++) {
        const check_boundary *b = &r->layers.boundary[i];
        if (b->out.values && !(b->out.error < CHECK_HANDED_ERROR))
            str_printf(
                &r->failures,
                "%s: what it hands on is not what the checkpoint has behind layer %lld: relative error "
                "%.3g, expected less than %g\n",
                b->package, (long long)b->out.layer, b->out.error, CHECK_HANDED_ERROR);
    }
}

static void judge_weights(check_report *r) {
    for (size_t i = 0; i < r->weights.n_bad; i++) {
        const check_weight *w = &r->weights.bad[i];
        if (w->compressed && w->error < CHECK_WEIGHT_ERROR)
            str_printf(&r->failures,
                       "weight %s: row %lld is not the checkpoint's: relative error %.3g, expected "
                       "less than %g\n",
                       w->name, (long long)w->row, w->row_error, CHECK_ROW_ERROR);
        else if (w->compressed)
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

static void judge_prefill(check_report *r) {
    for (size_t i = 0; i < r->prefill.n; i++) {
        const check_prefill_case *c = &r->prefill.test[i];
        if (!c->scores_ok)
            str_printf(
                &r->failures,
                "prefill: %zu tokens (%s) in calls of %s: the best id is %d, token by token %d leads by "
                "%.3g\n",
                c->tokens, c->text, c->sizes, c->got, c->want, c->margin);
        if (!c->states_ok)
            str_printf(
                &r->failures,
                "prefill: %zu tokens (%s) in calls of %s: state %s has a relative error of %.3g against "
                "token by token, expected at most %.3g\n",
                c->tokens, c->text, c->sizes, c->state, c->state_error, CHECK_STATE_ERROR);
    }
}

static void judge_repetition(check_report *r) {
    const check_repetition *got = &r->side[0].repetition, *ref = &r->reference;
    if (got->run >= CHECK_RUN && ref->run < CHECK_RUN)
        str_printf(&r->failures, "repetition: a run of %zu equal tokens, the reference's longest is %zu\n",
                   got->run, ref->run);
    double a = figure_share(got->repeated_trigrams, got->trigrams),
           b = figure_share(ref->repeated_trigrams, ref->trigrams);
    if (a > b + CHECK_TRIGRAMS)
        str_printf(&r->failures,
                   "repetition: %.0f %% of the trigrams came before, with the reference %.0f %%\n", 100 * a,
                   100 * b);
}

void check_judge(check_report *r, double min_agreement) {
    set_threshold(r, min_agreement);
    judge_scores(r);
    if (r->ranges.nonfinite)
        str_printf(&r->failures, "%llu values are NaN or infinite in strict mode, first in %s\n",
                   (unsigned long long)r->ranges.nonfinite, r->ranges.first_nonfinite);
    if (r->ids.wrong)
        str_printf(&r->failures,
                   "%lld of %lld vocabulary rows return another id, the first: row %lld returns %lld\n",
                   (long long)r->ids.wrong, (long long)r->ids.audited, (long long)r->ids.row,
                   (long long)r->ids.id);
    judge_weights(r);
    judge_prefill(r);
    judge_repetition(r);
}
