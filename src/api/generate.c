#include "api/api.h"
#include "base/arena.h"
#include "generate/generator.h"
#include <stdlib.h>
#include <string.h>

struct millet_generator {
    decoder *d;
};

/* ---- options and results ---- */

/* Zero members are the artifact's defaults. */
static generate_options options_in(const lm *m, const millet_generate_options *o) {
    sampler_options s = m->defaults;
    s.temperature = (float)o->temperature;
    if (o->top_k) s.top_k = o->top_k < 0 ? 0 : o->top_k;
    if (o->top_p != 0) s.top_p = (float)o->top_p;
    if (o->min_p != 0) s.min_p = (float)o->min_p;
    if (o->repetition_penalty != 0) s.repetition_penalty = (float)o->repetition_penalty;
    s.presence_penalty = (float)o->presence_penalty;
    s.frequency_penalty = (float)o->frequency_penalty;
    s.seed = o->seed;
    return (generate_options){.mode = api_mode(o->precision),
                              .sampling = s,
                              .max_new = o->max_new_tokens < 0    ? 0
                                         : o->max_new_tokens == 0 ? -1
                                                                  : o->max_new_tokens,
                              .ignore_eos = o->ignore_eos,
                              .on_token = o->on_token,
                              .keep_going = o->keep_going,
                              .ctx = o->ctx,
                              .cancel = api_flag(o->cancel)};
}

static void result_out(millet_generation *out, generate_result *r) {
    static const millet_finish finish[] = {[GENERATE_STOP] = MILLET_STOP,
                                           [GENERATE_LENGTH] = MILLET_LENGTH,
                                           [GENERATE_STOPPED] = MILLET_STOPPED};
    const millet_generation whole = {.ids = r->ids,
                                     .n_ids = r->n_ids,
                                     .prompt_tokens = r->prompt_tokens,
                                     .finish = finish[r->finish],
                                     .prompt_seconds = r->prompt_seconds,
                                     .decode_seconds = r->decode_seconds,
                                     .reused_tokens = r->reused_tokens};
    api_struct_out(out, &whole, sizeof whole);
    r->ids = NULL; /* the caller's now */
}

/* Checks and clears a caller's result, so that after an error it holds nothing to free. */
static bool begin(millet_generation *result, err *e) {
    const millet_generation empty = {0};
    if (!result) return true;
    if (!api_sized(result, "millet_generation", e)) return false;
    api_struct_out(result, &empty, sizeof empty);
    return true;
}

/* d: NULL, or the decoder that goes on. */
static bool run(const lm *m, decoder *d, const int32_t *ids, size_t n, const millet_generate_options *options,
                millet_generation *result, err *e) {
    millet_generate_options whole;
    if (!api_struct_in(&whole, sizeof whole, options, "millet_generate_options", e)) return false;
    generate_options o = options_in(m, &whole);
    generate_result r;
    bool ok = d ? generate_continue(d, ids, n, &o, &r, e) : generate_run(m, ids, n, &o, &r, e);
    if (ok && result) result_out(result, &r);
    generate_result_free(&r);
    return ok;
}

/* ---- from fresh states ---- */

bool millet_generate_ids(const millet_lm *m, const int32_t *ids, size_t n,
                         const millet_generate_options *options, millet_generation *result,
                         millet_error *error) {
    err e = {0};
    if (begin(result, &e)) run(api_lm(m), NULL, ids, n, options, result, &e);
    return api_done(error, &e);
}

bool millet_generate(const millet_lm *m, const char *prompt, const millet_generate_options *options,
                     millet_generation *result, millet_error *error) {
    err e = {0};
    int32_t *ids = NULL;
    size_t n;
    if (begin(result, &e) && lm_encode(api_lm(m), prompt, strlen(prompt), &ids, &n, &e))
        run(api_lm(m), NULL, ids, n, options, result, &e);
    free(ids);
    return api_done(error, &e);
}

/* ---- timelines that stay ---- */

static millet_generator *new_generator(const lm *m, const millet_session_options *options, err *e) {
    millet_session_options o;
    if (!api_session_options(&o, options, e)) return NULL;
    decoder *d = decoder_new(m, api_mode(o.precision), e);
    if (!d) return NULL;
    for (size_t i = 0; i < m->n_model; i++) rt_session_threads(decoder_session(d, i), o.threads);
    millet_generator *g = mem_alloc(sizeof *g);
    *g = (millet_generator){d};
    return g;
}

millet_generator *millet_generator_new(const millet_lm *m, const millet_session_options *options,
                                       millet_error *error) {
    err e = {0};
    millet_generator *g = new_generator(api_lm(m), options, &e);
    api_done(error, &e);
    return g;
}

void millet_generator_free(millet_generator *g) {
    if (!g) return;
    decoder_free(g->d);
    free(g);
}

bool millet_generator_run(millet_generator *g, const int32_t *ids, size_t n,
                          const millet_generate_options *options, millet_generation *result,
                          millet_error *error) {
    err e = {0};
    if (begin(result, &e)) run(decoder_lm(g->d), g->d, ids, n, options, result, &e);
    return api_done(error, &e);
}

bool millet_generator_feed(millet_generator *g, const int32_t *ids, size_t n, const millet_cancel *cancel,
                           millet_scores *scores, millet_error *error) {
    err e = {0};
    decoder_row row;
    const decoder_hooks h = {.cancel = api_flag(cancel)};
    if (scores && !api_sized(scores, "millet_scores", &e)) return api_done(error, &e);
    if (decoder_feed(g->d, ids, n, &h, &row, &e) && scores) {
        const millet_scores whole = {.score = row.score, .id = row.id, .n = row.n};
        api_struct_out(scores, &whole, sizeof whole);
    }
    if (e.code) decoder_restart(g->d);
    return api_done(error, &e);
}

int64_t millet_generator_position(const millet_generator *g) {
    return decoder_position(g->d);
}

void millet_generator_reset(millet_generator *g) {
    decoder_restart(g->d);
}

bool millet_generator_stats(const millet_generator *g, millet_stats *stats) {
    err e = {0};
    if (!api_sized(stats, "millet_stats", &e)) return false;
    millet_stats whole = {0};
    for (size_t i = 0; i < decoder_lm(g->d)->n_model; i++) {
        rt_figures f = rt_session_figures(decoder_session(g->d, i));
        whole.calls += f.calls;
        whole.seconds += f.seconds;
        whole.state_bytes += f.state_bytes;
    }
    api_struct_out(stats, &whole, sizeof whole);
    return true;
}
