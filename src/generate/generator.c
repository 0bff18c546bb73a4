#include "generate/generator.h"
#include "base/clock.h"
#include "text/detokenize.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One generation under way. */
typedef struct {
    const lm *m;
    const generate_options *o;
    generate_result *r;
    decoder *d;
    sampler *s;
    detokenizer out;
    size_t cap;
    decoder_hooks hooks;
    uint32_t *allowed; /* with a constraint: its mask */
} generation;

static bool keep_going(void *ctx) {
    const generate_options *o = ((generation *)ctx)->o;
    return !o->keep_going || o->keep_going(o->ctx);
}

/* How many ids may come: what was asked for, which must fit, or what fits. */
static bool room(const lm *m, size_t n, int64_t asked, size_t *most, err *e) {
    int64_t context = m->form.context;
    if (n > (uint64_t)context)
        return err_set(e, ERR_LIMIT,
                       "the prompt has %zu tokens, the context %" PRId64
                       " positions: shorten it, or convert with a "
                       "longer context",
                       n, context);
    int64_t fits = context - (int64_t)n + 1; /* the last id is not fed */
    if (asked > fits)
        return err_set(e, ERR_LIMIT,
                       "%zu prompt tokens and %" PRId64 " new ones do not fit the context of %" PRId64
                       " positions: ask for at most %" PRId64 ", or convert with a longer context",
                       n, asked, context, fits);
    *most = (size_t)(asked >= 0 ? asked : fits < GENERATE_MAX_NEW ? fits : GENERATE_MAX_NEW);
    return true;
}

static bool add_id(generation *g, int32_t id, err *e) {
    generate_result *r = g->r;
    if (r->n_ids == g->cap) {
        size_t cap = g->cap ? g->cap * 2 : 64;
        int32_t *more = mem_try_realloc(r->ids, cap * sizeof *more);
        if (!more) return err_set(e, ERR_MEMORY, "no memory for %zu ids", cap);
        r->ids = more;
        g->cap = cap;
    }
    r->ids[r->n_ids++] = id;
    return true;
}

/* Hands the text that came since `from` to the caller; id -1: what was left at the end. */
static bool emit(generation *g, int32_t id, size_t from) {
    const str *text = &g->r->text;
    size_t len = text->len - from;
    if (!g->o->on_token || (id < 0 && !len)) return true;
    return g->o->on_token(g->o->ctx, id, len ? text->s + from : "", len);
}

/* The next id by the row's scores, among those that the constraint allows. */
static bool pick(generation *g, const decoder_row *row, int32_t *id, err *e) {
    matcher *m = g->o->constraint;
    sampler_row scores = {.values = row->score, .ids = row->id, .n = row->n, .known = row->largest + 1};
    if (m) {
        if (!matcher_mask(m, g->allowed, e)) return false;
        sampler_allow(g->s, g->allowed, matcher_limit(m));
    }
    *id = sampler_pick(g->s, scores, e);
    if (*id < 0) return false;
    return !m || matcher_accept(m, *id) || err_set(e, ERR_MEMORY, "no memory to follow the constraint");
}

/* Whether the text has ended: by a stop id, or because nothing may follow. */
static bool has_ended(const generation *g, int32_t id, bool *by_id) {
    const matcher *m = g->o->constraint;
    *by_id = m ? matcher_ended(m) : stop_set_has(&g->m->stop, id) && !g->o->ignore_eos;
    return *by_id || (m && matcher_must_end(m));
}

/* Samples the next id from the row, keeps it, and says whether to go on. */
static bool take(generation *g, const decoder_row *row, size_t most, int32_t *id, bool *more, err *e) {
    generate_result *r = g->r;
    *more = false;
    if (!pick(g, row, id, e) || !add_id(g, *id, e)) return false;
    sampler_accept(g->s, *id);
    bool by_id, stop = has_ended(g, *id, &by_id);
    size_t from = r->text.len;
    if (g->m->text && !by_id) detokenizer_push(&g->out, *id, &r->text);
    r->finish = stop ? GENERATE_STOP : GENERATE_LENGTH;
    if (!emit(g, *id, from))
        r->finish = GENERATE_STOPPED;
    else
        *more = !stop && r->n_ids < most;
    return true;
}

static bool decode(generation *g, const int32_t *prompt, size_t n, size_t most, err *e) {
    const generate_options *o = g->o;
    decoder_row row;
    double start = clock_seconds();
    bool read = prefix_feed_rest(o->prefix, g->d, prompt, n, g->r->reused_tokens, o->keep, o->n_keep,
                                 &g->hooks, &row, e);
    double begin = clock_seconds();
    g->r->prompt_seconds = begin - start;
    size_t stands = (size_t)decoder_sound(g->d);
    if (stands > g->r->reused_tokens) g->r->fed_tokens = stands - g->r->reused_tokens;
    if (!read) return false;
    g->r->finish = GENERATE_LENGTH;
    bool ok = true;
    int32_t id;
    for (bool more = most > 0; more;) {
        ok = take(g, &row, most, &id, &more, e);
        if (!ok || !more) break;
        ok = decoder_feed(g->d, &id, 1, &g->hooks, &row, e);
        if (!ok) break;
    }
    g->r->decode_seconds = clock_seconds() - begin;
    return ok;
}

static void finish_text(generation *g) {
    if (!g->m->text) return;
    size_t from = g->r->text.len;
    detokenizer_flush(&g->out, &g->r->text);
    if (g->r->finish != GENERATE_STOPPED && !emit(g, -1, from)) g->r->finish = GENERATE_STOPPED;
}

/* Puts d where most of the prompt has been fed: all of what it was fed, or what is kept, but not the prompt's
 * last token, whose scores are wanted. */
static bool reuse(generation *g, const int32_t *prompt, size_t n, err *e) {
    prefix_place *at = &g->r->place;
    if (g->o->prefix) return prefix_seek(g->o->prefix, g->d, prompt, n, at, e);
    size_t fed = (size_t)decoder_position(g->d);
    *at = (prefix_place){.had = fed};
    while (at->same < fed && at->same < n && decoder_fed(g->d)[at->same] == prompt[at->same]) at->same++;
    bool on = fed && fed < n && at->same == fed && decoder_intact(g->d);
    at->reused = on ? fed : 0;
    at->how = on ? PREFIX_CONTINUED : PREFIX_NEW;
    if (!on) decoder_restart(g->d);
    return true;
}

/* Where the graph picks the id there is nothing to sample from. */
static bool check_best(const lm *m, const sampler_options *s, err *e) {
    bool greedy = s->temperature < 1e-5f && s->repetition_penalty == 1 && s->presence_penalty == 0 &&
                  s->frequency_penalty == 0;
    if (!m->form.best || greedy) return true;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s: its graph returns the best token only, no scores: it can't sample or penalise; use "
                   "temperature 0 and no penalties",
                   m->name[m->n_model - 1]);
}

static bool begin_constraint(generation *g, err *e) {
    const matcher *m = g->o->constraint;
    if (!m) return true;
    g->allowed = mem_try(((size_t)matcher_limit(m) + 31) / 32, sizeof *g->allowed);
    return g->allowed || err_set(e, ERR_MEMORY, "no memory for a mask of %d tokens", (int)matcher_limit(m));
}

bool generate_continue(decoder *d, const int32_t *prompt, size_t n, const generate_options *o,
                       generate_result *r, err *e) {
    const lm *m = decoder_lm(d);
    size_t most = 0;
    *r = (generate_result){.prompt_tokens = n};
    if (!n) return err_set(e, ERR_USAGE, "the prompt is empty");
    if (!room(m, n, o->max_new, &most, e) || !check_best(m, &o->sampling, e)) return false;
    generation g = {.m = m, .o = o, .r = r, .d = d};
    g.hooks = (decoder_hooks){.keep_going = keep_going, .ctx = &g, .cancel = o->cancel};
    if (m->text) detokenizer_begin(&g.out, m->text, true);
    if (!begin_constraint(&g, e)) return false;
    g.s = sampler_new(&o->sampling, lm_sample_limit(m), e);
    if (!g.s) return mem_free(g.allowed), false;
    sampler_prompt(g.s, prompt, n);
    bool ok = reuse(&g, prompt, n, e);
    r->reused_tokens = r->place.reused;
    ok = ok && decode(&g, prompt, n, most, e);
    if (!ok && e->code != ERR_CANCELLED) decoder_restart(d);
    if (!ok && e->code == ERR_CANCELLED) prefix_recover(o->prefix, d);
    if (!ok && e->code == ERR_CANCELLED) {
        *e = (err){0};
        r->finish = GENERATE_STOPPED;
        ok = true;
    }
    if (ok) finish_text(&g);
    sampler_free(g.s);
    mem_free(g.allowed);
    return ok;
}

bool generate_run(const lm *m, const int32_t *prompt, size_t n, const generate_options *o, generate_result *r,
                  err *e) {
    *r = (generate_result){0};
    decoder *d = decoder_new(m, o->mode, e);
    bool ok = d && generate_continue(d, prompt, n, o, r, e);
    decoder_free(d);
    return ok;
}

void generate_result_free(generate_result *r) {
    mem_free(r->ids);
    str_free(&r->text);
    *r = (generate_result){0};
}

const char *generate_finish_name(generate_finish f) {
    static const char *const name[] = {"stop", "length", "cancelled"};
    return name[f];
}
