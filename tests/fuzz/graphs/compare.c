/* When do plan and evaluator agree?
 *
 * strict: 2 units in the last place of the declared type and 1e-5; fast: 1e-4 of the value and 1e-5, and one
 * unit where the result is declared fp16, as it is rounded on its way out. Both must hold element by element.
 * A graph may however be ill-conditioned: a sum taken in another order rounds to the neighbouring fp16
 * number, and what follows (a difference of near equals, a comparison, an index) makes more of that. So an
 * element that is off is held against what the evaluator itself gives when every inexact result moves by
 * 2^-21 before it is rounded (run.c; on AMX tiles operands of products by 2^-16): the spread of such runs,
 * four times because it is sampled, is added to the bound. Samples of small integers have one right answer,
 * to the bit. Where the plan may take a number path that rounds operands of products (int16, bf16, int8),
 * these move by twice as much as it rounds. */
#include "kernels/kernels.h"
#include "make.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By element: the least and the greatest of all runs; NaN where one of them gave NaN. */
typedef struct {
    results low, high;
} spread;

static void spread_free(spread *w) {
    results_free(&w->low);
    results_free(&w->high);
}

static double element(const ref_tensor *t, int64_t i) {
    return dtype_is_float((ir_dtype)t->type.dtype) ? (double)ref_floats(t)[i] : (double)ref_ints(t)[i];
}

static void widen(spread *w, const results *r) {
    for (size_t i = 0; i < r->n; i++)
        for (int64_t k = 0; k < ref_count(&r->t[i]); k++) {
            double v = element(&r->t[i], k);
            if (!dtype_is_float((ir_dtype)r->t[i].type.dtype)) {
                int32_t *low = &ref_ints(&w->low.t[i])[k], *high = &ref_ints(&w->high.t[i])[k];
                if ((int32_t)v < *low) *low = (int32_t)v;
                if ((int32_t)v > *high) *high = (int32_t)v;
                continue;
            }
            float *low = &ref_floats(&w->low.t[i])[k], *high = &ref_floats(&w->high.t[i])[k];
            if (isnan(v) || v < (double)*low) *low = (float)v;
            if (isnan(v) || v > (double)*high) *high = (float)v;
        }
}

/* n more runs, and the evaluator's own. */
static bool spread_of(const sample *s, bool strict, shaking how, uint64_t n, spread *w) {
    err e = {0};
    if (!by_evaluator(s, strict, (shaking){0, false}, &w->low, &e)) return false;
    if (!by_evaluator(s, strict, (shaking){0, false}, &w->high, &e)) return false;
    for (uint64_t i = 0; i < n; i++, how.seed++) {
        results r;
        err ignored = {0};
        if (!by_evaluator(s, strict, how, &r, &ignored)) continue; /* an index may leave its range */
        widen(w, &r);
        results_free(&r);
    }
    return true;
}

static double unit(double v, int bits) {
    int e;
    if (!isfinite(v) || v == 0) return 0;
    frexp(v, &e);
    return ldexp(1, e - bits);
}

typedef struct {
    bool strict, exact;
    const spread *w; /* NULL: no shaking */
} measure;

static bool element_agrees(const measure *m, const ref_tensor *want, const ref_tensor *got, size_t i,
                           int64_t k) {
    double a = element(got, k), b = element(want, k), bound = 0, low = b, high = b;
    if (a == b || (isnan(a) && isnan(b))) return true;
    if (m->w) low = element(&m->w->low.t[i], k), high = element(&m->w->high.t[i], k);
    if (!dtype_is_float((ir_dtype)want->type.dtype)) return low != high;
    if (isnan(low) || isnan(high) || (isinf(low) && low != high) || (isinf(high) && low != high)) return true;
    if (m->exact) return false;
    bool half = want->type.dtype == DT_FP16;
    bound = 1e-5 + (m->strict ? 2 * unit(b, half ? 11 : 24) : 1e-4 * fabs(b) + (half ? unit(b, 11) : 0));
    return fabs(a - b) <= bound + 4 * (high - low);
}

static const char *name_of(const sample *s, size_t i, char *room, size_t size) {
    for (size_t c = 0; c < s->n_call; c++) {
        const ir_function *f = s->p->func[s->call[c].func];
        if (i < f->body.n_out) {
            snprintf(room, size, "call %zu, %s", c, f->body.out[i]->name);
            return room;
        }
        i -= f->body.n_out;
    }
    snprintf(room, size, "state %s", s->state[i].name);
    return room;
}

static bool agrees(const sample *s, const measure *m, const results *want, const results *got, char *text,
                   size_t room) {
    char name[80];
    for (size_t i = 0; i < want->n; i++) {
        const ref_tensor *x = &want->t[i], *y = &got->t[i];
        if (!ir_type_equal(&x->type, &y->type)) {
            snprintf(text, room, "%s: another type", name_of(s, i, name, sizeof name));
            return false;
        }
        for (int64_t k = 0; k < ref_count(x); k++) {
            if (element_agrees(m, x, y, i, k)) continue;
            snprintf(text, room, "%s: element %lld is %.9g, expected %.9g", name_of(s, i, name, sizeof name),
                     (long long)k, element(y, k), element(x, k));
            return false;
        }
    }
    return true;
}

/* Shaken only where that is needed; many samples where few were not enough. */
static bool close_enough(const sample *s, bool strict, bool tiles, const results *want, const results *got,
                         tally *t, char *text, size_t room) {
    measure m = {.strict = strict, .exact = s->exact};
    t->comparisons++;
    if (agrees(s, &m, want, got, text, room)) return true;
    if (s->exact) return false;
    t->shaken++;
    static const uint64_t runs[] = {6, 40};
    for (int i = 0; i < 2; i++) {
        spread w = {{0}, {0}};
        m.w = &w;
        bool good = spread_of(s, strict, (shaking){1 + 1000 * (uint64_t)i, tiles}, runs[i], &w) &&
                    agrees(s, &m, want, got, text, room);
        spread_free(&w);
        if (good) return true;
    }
    return false;
}

static bool same_bits(const sample *s, const results *x, const results *y, char *text, size_t room) {
    char name[80];
    for (size_t i = 0; i < x->n; i++)
        if (memcmp(x->t[i].cell, y->t[i].cell, (size_t)ref_count(&x->t[i]) * 4)) {
            snprintf(text, room, "%s: other bits", name_of(s, i, name, sizeof name));
            return false;
        }
    return true;
}

static void say(char *text, size_t room, bool strict, const char *form, const char *what) {
    char line[400];
    snprintf(line, sizeof line, "%s mode, %s: %s", strict ? "strict" : "fast", form, what);
    snprintf(text, room, "%s", line);
}

/* Other instruction sets than the best one that this processor has; has it tiles? */
static size_t other_isas(const char **list, bool *tiles) {
    size_t n = 0;
    kern_table best, t;
    err e = {0};
    if (!kern_open(&best, NULL, &e)) return 0;
    *tiles = !strcmp(best.isa, "amx");
    for (const char *const *isa = kern_isas(); *isa; isa++) {
        bool has = kern_open(&t, *isa, &e) && !strcmp(t.isa, *isa);
        if (has && strcmp(best.isa, *isa)) list[n++] = *isa;
    }
    return n;
}

/* Control flow gives what the same ops give without it. */
static bool twins_agree(const sample *s, const results *r, char *text, size_t room) {
    char name[80];
    size_t at = 0;
    for (size_t c = 0; c < s->n_call; c++) {
        for (size_t i = 0; i < s->n_twin; i++) {
            if (s->twin[i].func != s->call[c].func) continue;
            const ref_tensor *a = &r->t[at + s->twin[i].a], *b = &r->t[at + s->twin[i].b];
            if (ir_type_equal(&a->type, &b->type) && !memcmp(a->cell, b->cell, (size_t)ref_count(a) * 4))
                continue;
            snprintf(text, room, "%s: not what it is without control flow",
                     name_of(s, at + s->twin[i].a, name, sizeof name));
            return false;
        }
        at += s->p->func[s->call[c].func]->body.n_out;
    }
    return true;
}

static bool mode_agrees(const sample *s, bool strict, uint64_t seed, tally *t, char *text, size_t room) {
    const char *isa[16];
    static size_t n_isa = SIZE_MAX;
    static const char *others[16];
    static bool tiles;
    if (n_isa == SIZE_MAX) n_isa = other_isas(others, &tiles);
    memcpy(isa, others, sizeof isa);
    char what[300] = "", form[60] = "one thread";
    results want = {0}, got = {0}, again = {0};
    err e = {0}, pe = {0};
    bool good = false, evaluated = by_evaluator(s, strict, (shaking){0, false}, &want, &e);
    plan_form f = {strict, 1, NULL, false, NULL};
    bool planned = by_plan(s, &f, &got, &pe);
    if (evaluated && !twins_agree(s, &want, what, sizeof what)) {
        good = false;
    } else if (!evaluated) {
        t->refused++;
        good = !planned;
        if (!good) snprintf(what, sizeof what, "the plan runs what the evaluator refuses: %.200s", e.msg);
    } else if (!planned) {
        t->unplanned++;
        good = pe.code == ERR_UNSUPPORTED;
        if (!good) snprintf(what, sizeof what, "no plan: %.200s", pe.msg);
    } else if (close_enough(s, strict, tiles, &want, &got, t, what, sizeof what)) {
        f.threads = 2 + (unsigned)(seed % 3), f.borrow = seed % 2;
        snprintf(form, sizeof form, "%u threads", f.threads);
        good = by_plan(s, &f, &again, &pe) && same_bits(s, &got, &again, what, sizeof what);
        results_free(&again);
        if (good && n_isa && !s->one_isa) {
            f.isa = isa[seed / 3 % n_isa];
            snprintf(form, sizeof form, "%s, %u threads", f.isa, f.threads);
            good = by_plan(s, &f, &again, &pe) &&
                   close_enough(s, strict, false, &want, &again, t, what, sizeof what);
        }
    }
    if (!good) say(text, room, strict, form, *what ? what : pe.msg);
    results_free(&want), results_free(&got), results_free(&again);
    return good;
}

bool sample_agrees(const sample *s, uint64_t seed, tally *t, char *text, size_t room) {
    return mode_agrees(s, false, seed, t, text, room) && mode_agrees(s, true, seed, t, text, room);
}
