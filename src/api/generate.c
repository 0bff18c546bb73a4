#include "api/api.h"
#include "generate/generator.h"
#include <string.h>

struct millet_generator {
    heap *h;
    decoder *d;
    bool left; /* in the middle of something, for want of memory: what it holds goes with the lm */
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

static bool result_out(millet_generation *out, const heap *h, const generate_result *r, err *e) {
    static const millet_finish finish[] = {[GENERATE_STOP] = MILLET_STOP,
                                           [GENERATE_LENGTH] = MILLET_LENGTH,
                                           [GENERATE_STOPPED] = MILLET_STOPPED};
    int32_t *ids = r->n_ids ? api_give(h, r->ids, r->n_ids * sizeof *r->ids, e) : NULL;
    const millet_generation whole = {.ids = ids,
                                     .n_ids = r->n_ids,
                                     .prompt_tokens = r->prompt_tokens,
                                     .finish = finish[r->finish],
                                     .prompt_seconds = r->prompt_seconds,
                                     .decode_seconds = r->decode_seconds,
                                     .reused_tokens = r->reused_tokens};
    if (r->n_ids && !ids) return false;
    api_struct_out(out, &whole, sizeof whole);
    return true;
}

/* Checks and clears a caller's result, so that after an error it holds nothing to free. */
static bool begin(millet_generation *result, err *e) {
    const millet_generation empty = {0};
    if (!result) return true;
    if (!api_sized(result, "millet_generation", e)) return false;
    api_struct_out(result, &empty, sizeof empty);
    return true;
}

/* ---- timelines that stay ---- */

typedef struct {
    const lm *m;
    millet_session_options o;
    heap *h;
    millet_generator *g;
} beginning;

static void begin_generator(void *args, err *e) {
    beginning *k = args;
    decoder *d = decoder_new(k->m, api_mode(k->o.precision), e);
    if (!d) return;
    for (size_t i = 0; i < k->m->n_model; i++) rt_session_threads(decoder_session(d, i), k->o.threads);
    k->g = mem_alloc(sizeof *k->g);
    *k->g = (millet_generator){k->h, d, false};
}

static millet_generator *new_generator(const millet_lm *m, const millet_session_options *options, err *e) {
    beginning k = {.m = m->m};
    k.h = api_session_heap(m->h, &k.o, options, e);
    if (k.h && api_guard(k.h, begin_generator, &k, NULL, e)) return k.g;
    heap_drop(k.h);
    return NULL;
}

millet_generator *millet_generator_new(const millet_lm *m, const millet_session_options *options,
                                       millet_error *error) {
    err e = {0};
    millet_generator *g = new_generator(m, options, &e);
    api_done(error, &e);
    return g;
}

void millet_generator_free(millet_generator *g) {
    if (!g || g->left) return;
    heap *h = g->h;
    decoder_free(g->d);
    mem_free(g);
    heap_leave(h);
}

static bool alive(const millet_generator *g, err *e) {
    return !g->left || err_set(e, ERR_MEMORY, "the generator ran out of memory: it can only be freed");
}

/* Calls fn on the generator's heap. */
static bool use(millet_generator *g, api_fn *fn, void *args, err *e) {
    return alive(g, e) && api_guard(g->h, fn, args, &g->left, e);
}

/* ---- generating ---- */

typedef struct {
    millet_generator *g;
    const char *text; /* in place of ids; NULL */
    const int32_t *ids;
    size_t n;
    generate_options o;
    millet_generation *result;
} generating;

static void generate(void *args, err *e) {
    generating *k = args;
    const lm *m = decoder_lm(k->g->d);
    const int32_t *ids = k->ids;
    int32_t *own = NULL;
    generate_result r = {0};
    bool ok = !k->text || lm_encode(m, k->text, strlen(k->text), &own, &k->n, e);
    ok = ok && generate_continue(k->g->d, own ? own : ids, k->n, &k->o, &r, e);
    if (ok && k->result) result_out(k->result, k->g->h, &r, e);
    generate_result_free(&r);
    mem_free(own);
}

static bool prepare(generating *k, const lm *m, const millet_generate_options *options, millet_precision *p,
                    err *e) {
    millet_generate_options whole;
    if (k->n && !api_given(k->ids, "ids", e)) return false;
    if (!begin(k->result, e) || !api_struct_in(&whole, sizeof whole, options, "millet_generate_options", e))
        return false;
    k->o = options_in(m, &whole);
    *p = whole.precision;
    return true;
}

/* From fresh states. */
static bool generate_once(const millet_lm *m, generating k, const millet_generate_options *options,
                          millet_error *error) {
    err e = {0};
    millet_session_options so = {.size = sizeof so};
    if (prepare(&k, m->m, options, &so.precision, &e) && (k.g = new_generator(m, &so, &e)))
        use(k.g, generate, &k, &e);
    millet_generator_free(k.g);
    return api_done(error, &e);
}

bool millet_generate_ids(const millet_lm *m, const int32_t *ids, size_t n,
                         const millet_generate_options *options, millet_generation *result,
                         millet_error *error) {
    return generate_once(m, (generating){.ids = ids, .n = n, .result = result}, options, error);
}

bool millet_generate(const millet_lm *m, const char *prompt, const millet_generate_options *options,
                     millet_generation *result, millet_error *error) {
    return generate_once(m, (generating){.text = prompt, .result = result}, options, error);
}

bool millet_generator_run(millet_generator *g, const int32_t *ids, size_t n,
                          const millet_generate_options *options, millet_generation *result,
                          millet_error *error) {
    err e = {0};
    millet_precision ignored;
    generating k = {.g = g, .ids = ids, .n = n, .result = result};
    if (alive(g, &e) && prepare(&k, decoder_lm(g->d), options, &ignored, &e)) use(g, generate, &k, &e);
    return api_done(error, &e);
}

typedef struct {
    millet_generator *g;
    const int32_t *ids;
    size_t n;
    const millet_cancel *cancel;
    decoder_row row;
} feeding;

static void feed(void *args, err *e) {
    feeding *k = args;
    const decoder_hooks h = {.cancel = api_flag(k->cancel)};
    if (!decoder_feed(k->g->d, k->ids, k->n, &h, &k->row, e)) decoder_restart(k->g->d);
}

bool millet_generator_feed(millet_generator *g, const int32_t *ids, size_t n, const millet_cancel *cancel,
                           millet_scores *scores, millet_error *error) {
    err e = {0};
    feeding k = {.g = g, .ids = ids, .n = n, .cancel = cancel};
    bool ok = (!n || api_given(ids, "ids", &e)) && (!scores || api_sized(scores, "millet_scores", &e));
    if (ok && use(g, feed, &k, &e) && scores) {
        const millet_scores whole = {.score = k.row.score, .id = k.row.id, .n = k.row.n};
        api_struct_out(scores, &whole, sizeof whole);
    }
    return api_done(error, &e);
}

int64_t millet_generator_position(const millet_generator *g) {
    return decoder_position(g->d);
}

void millet_generator_reset(millet_generator *g) {
    if (!g->left) decoder_restart(g->d);
}

bool millet_generator_stats(const millet_generator *g, millet_stats *stats) {
    err e = {0};
    if (!api_sized(stats, "millet_stats", &e)) return false;
    millet_stats whole = {.memory = heap_bytes(g->h), .memory_peak = heap_peak(g->h)};
    for (size_t i = 0; i < decoder_lm(g->d)->n_model; i++) {
        rt_figures f = rt_session_figures(decoder_session(g->d, i));
        whole.calls += f.calls;
        whole.seconds += f.seconds;
        whole.state_bytes += f.state_bytes;
    }
    api_struct_out(stats, &whole, sizeof whole);
    return true;
}
