#include "base/clock.h"
#include "check/figures.h"
#include "check/report.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    check_measure measure;
} measures[] = {{"structure", CHECK_STRUCTURE}, {"weights", CHECK_WEIGHTS},      {"ids", CHECK_IDS},
                {"scores", CHECK_SCORES},       {"steps", CHECK_SINGLE_STEPS},   {"prefill", CHECK_PREFILL},
                {"ranges", CHECK_RANGES},       {"repetition", CHECK_REPETITION}};

bool check_measures_by_name(unsigned *set, const char *list, err *e) {
    *set = 0;
    for (const char *p = list, *end; p; p = *end ? end + 1 : NULL) {
        end = p + strcspn(p, ",");
        size_t n = (size_t)(end - p), i = 0;
        while (i < sizeof measures / sizeof *measures &&
               (strlen(measures[i].name) != n || strncmp(measures[i].name, p, n)))
            i++;
        if (i == sizeof measures / sizeof *measures)
            return err_set(
                e, ERR_USAGE,
                "%.*s is no measurement: expected structure, weights, ids, scores, steps, prefill, "
                "ranges or repetition",
                n < 40 ? (int)n : 40, p);
        *set |= measures[i].measure;
    }
    return true;
}

typedef struct {
    check_report *r;
    const check_options *o;
    lm *reference;
    check_watch watch;
    size_t budget; /* 0: no limit */
} running;

static bool wants(const running *g, check_measure m) {
    return g->r->measures & m;
}

/* Notes what a budget left out of `all`. */
static void note_cut(running *g, const char *what, size_t done, size_t all, const char *unit) {
    if (done < all) str_printf(&g->r->skipped, "%s: %zu of %zu %s (--budget)\n", what, done, all, unit);
}

static void cut(running *g, check_texts *t, size_t factor, const char *what) {
    check_texts_cut(t, &g->r->texts, g->budget * factor);
    note_cut(g, what, check_texts_tokens(t), check_texts_tokens(&g->r->texts), "tokens");
}

static bool open_sides(running *g, err *e) {
    check_report *r = g->r;
    r->side = mem_alloc((1 + g->o->n_beside) * sizeof *r->side);
    for (size_t i = 0; i <= g->o->n_beside; i++) {
        r->side[i] = (check_side){.path = i ? g->o->beside[i - 1] : g->o->artifact};
        r->n_side = i + 1;
        r->side[i].m = lm_open(r->side[i].path, i ? NULL : g->o->tokenizer, e);
        if (!r->side[i].m) return false;
    }
    return r->texts.n || check_texts_builtin(&r->texts, r->side[0].m, e);
}

static bool run_structure(running *g, err *e) {
    str ignored = {0}; /* the others are not judged */
    bool ok = true;
    for (size_t i = 0; ok && i < g->r->n_side; i++)
        ok = check_structure_run(&g->r->side[i].structure, i ? &ignored : &g->r->failures, g->r->side[i].path,
                                 g->r->side[i].m, &g->watch, e);
    str_free(&ignored);
    return ok;
}

static bool run_scores(running *g, err *e) {
    check_report *r = g->r;
    bool whole = g->o->budget < 0 && g->o->texts.n;
    check_parity *parity = mem_alloc(r->n_side * sizeof *parity);
    const lm **m = mem_alloc(r->n_side * sizeof *m);
    bool ok = true;
    for (size_t i = 0; i < r->n_side; i++) {
        m[i] = r->side[i].m;
        parity[i] = (check_parity){0};
        ok = ok && (check_same_vocabulary(m[i], g->reference, e) || err_where(e, "%s", r->side[i].path));
    }
    cut(g, &r->scored, whole ? 0 : 2, "scores");
    ok = ok && check_parity_run(parity, &r->layers, m, r->n_side, g->reference, &r->scored, g->o->mode,
                                &g->watch, e);
    for (size_t i = 0; i < r->n_side; i++) r->side[i].parity = parity[i];
    mem_free(parity);
    mem_free(m);
    return ok;
}

static bool run_weights(running *g, err *e) {
    check_weights *w = &g->r->weights;
    if (!check_weights_run(w, g->r->side[0].m, g->reference, &g->watch, e)) return false;
    if (w->exact + w->compressed) return true;
    /* others' graphs may have them under other names, or in another order */
    str_printf(&g->r->skipped, "weights: none of %zu has a counterpart in the checkpoint's graph%s%s\n",
               w->unmatched, w->unmatched ? ": " : "", w->unmatched ? w->first_unmatched : "");
    g->r->measures &= ~(unsigned)CHECK_WEIGHTS;
    return true;
}

static bool run_steps(running *g, err *e) {
    check_texts t;
    cut(g, &t, 1, "single steps");
    bool ok = check_steps_run(&g->r->steps, g->r->side[0].m, g->reference, &t, g->o->mode, &g->watch, e);
    check_texts_free(&t);
    if (ok || e->code != ERR_INVALID || !check_is_asset(g->r->side[0].m)) return ok;
    /* of others' bundles states may have other names and shapes than the reference's */
    str_printf(&g->r->skipped, "single steps: %s\n", e->msg);
    g->r->measures &= ~(unsigned)CHECK_SINGLE_STEPS;
    *e = (err){0};
    return true;
}

static bool run_prefill(running *g, err *e) {
    check_prefill *p = &g->r->prefill;
    if (!check_prefill_run(p, g->r->side[0].m, &g->r->texts, 3 * g->budget, g->o->mode, &g->watch, e))
        return false;
    note_cut(g, "prefill", p->n, p->n + p->skipped, "cases");
    return true;
}

static bool run_ranges(running *g, err *e) {
    check_texts t;
    cut(g, &t, 1, "ranges");
    bool ok = check_ranges_run(&g->r->ranges, g->r->side[0].m, g->reference, &t, &g->watch, e);
    check_texts_free(&t);
    return ok && (!g->o->plan || check_plan_write(&g->r->ranges, g->o->plan, &g->r->plan_entries, e));
}

static bool run_repetition(running *g, err *e) {
    check_report *r = g->r;
    if (!check_texts_prompts(&r->prompts, r->side[0].m, e)) return false;
    size_t n = g->budget ? (g->budget + CHECK_CONTINUE - 1) / CHECK_CONTINUE : r->prompts.n;
    r->continued = (check_texts){r->prompts.text, n < r->prompts.n ? n : r->prompts.n, true};
    note_cut(g, "repetition", r->continued.n, r->prompts.n, "prompts");
    check_phase(&g->watch, "repetition",
                (r->n_side + 1) * (check_texts_tokens(&r->continued) + CHECK_CONTINUE * r->continued.n));
    bool ok = check_repetition_run(&r->reference, g->reference, &r->continued, RT_FAST, &g->watch, e) ||
              err_where(e, "reference");
    for (size_t i = 0; ok && i < r->n_side; i++)
        ok = check_repetition_run(&r->side[i].repetition, r->side[i].m, &r->continued, g->o->mode, &g->watch,
                                  e);
    return ok;
}

static bool run_all(running *g, err *e) {
    check_report *r = g->r;
    lm *m = r->side[0].m;
    return (!wants(g, CHECK_STRUCTURE) || run_structure(g, e)) &&
           (!wants(g, CHECK_IDS) || check_ids_run(&r->ids, m, &g->watch, e)) &&
           (!wants(g, CHECK_WEIGHTS) || run_weights(g, e)) && (!wants(g, CHECK_SCORES) || run_scores(g, e)) &&
           (!wants(g, CHECK_SINGLE_STEPS) || run_steps(g, e)) &&
           (!wants(g, CHECK_PREFILL) || run_prefill(g, e)) && (!wants(g, CHECK_RANGES) || run_ranges(g, e)) &&
           (!wants(g, CHECK_REPETITION) || run_repetition(g, e));
}

/* Something was: a measurement that finds nothing to compare is no gate. */
static bool judged(const check_report *r) {
    return r->measures & ~(unsigned)CHECK_PREFILL || r->prefill.n;
}

bool check_run(check_report *r, const check_options *o, err *e) {
    *r = (check_report){.measures = o->measures, .checkpoint = o->checkpoint, .texts = o->texts};
    running g = {.r = r, .o = o, .watch = {.tick = o->tick, .ctx = o->ctx}};
    g.budget = o->budget < 0 ? CHECK_BUDGET : (size_t)o->budget;
    double start = clock_seconds();
    bool ok = open_sides(&g, e);
    ok = ok && (g.reference = check_reference(o->checkpoint, r->side[0].m, &g.watch, e)) && run_all(&g, e);
    if (ok) check_judge(r, o->min_agreement);
    if (ok && !judged(r)) str_adds(&r->failures, "nothing of what was asked for could be compared\n");
    r->seconds = clock_seconds() - start;
    r->names = g.reference;
    return ok;
}

bool check_passed(const check_report *r) {
    return !r->failures.len;
}

void check_report_free(check_report *r) {
    for (size_t i = 0; i < r->n_side; i++) {
        check_structure_free(&r->side[i].structure);
        check_parity_free(&r->side[i].parity);
        lm_close(r->side[i].m);
    }
    mem_free(r->side);
    lm_close(r->names);
    check_texts_free(&r->scored);
    check_texts_free(&r->texts);
    check_texts_free(&r->prompts);
    check_weights_free(&r->weights);
    check_layers_free(&r->layers);
    check_prefill_free(&r->prefill);
    check_ranges_free(&r->ranges);
    str_free(&r->failures);
    str_free(&r->skipped);
    *r = (check_report){0};
}
