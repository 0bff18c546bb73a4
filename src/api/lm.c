#include "api/api.h"
#include "generate/generator.h"
#include <stdlib.h>
#include <string.h>

static const lm *inner(const millet_lm *m) {
    return (const lm *)m;
}

millet_lm *millet_lm_open(const char *path, const char *tokenizer_dir, millet_error *error) {
    err e = {0};
    lm *m = lm_open(path, tokenizer_dir, &e);
    api_done(error, &e);
    return (millet_lm *)m;
}

void millet_lm_close(millet_lm *m) {
    lm_close((lm *)m);
}

const millet_tokenizer *millet_lm_tokenizer(const millet_lm *m) {
    return (const millet_tokenizer *)inner(m)->text;
}

int64_t millet_lm_context(const millet_lm *m) {
    return inner(m)->form.context;
}

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
                              .ctx = o->ctx};
}

static void result_out(millet_generation *out, generate_result *r) {
    static const millet_finish finish[] = {[GENERATE_STOP] = MILLET_STOP,
                                           [GENERATE_LENGTH] = MILLET_LENGTH,
                                           [GENERATE_STOPPED] = MILLET_STOPPED};
    millet_generation whole = {.size = out->size,
                               .ids = r->ids,
                               .n_ids = r->n_ids,
                               .prompt_tokens = r->prompt_tokens,
                               .finish = finish[r->finish],
                               .prompt_seconds = r->prompt_seconds,
                               .decode_seconds = r->decode_seconds};
    memcpy(out, &whole, sizeof whole);
    r->ids = NULL; /* the caller's now */
}

/* Checks and clears a caller's result, so that after an error it holds nothing to free. */
static bool begin(millet_generation *result, err *e) {
    if (!result) return true;
    if (!api_sized(result, sizeof *result, "millet_generation", e)) return false;
    memset((char *)result + sizeof result->size, 0, sizeof *result - sizeof result->size);
    return true;
}

static bool run(const lm *m, const int32_t *ids, size_t n, const millet_generate_options *options,
                millet_generation *result, err *e) {
    millet_generate_options whole;
    if (!api_struct_in(&whole, sizeof whole, options, "millet_generate_options", e)) return false;
    generate_options o = options_in(m, &whole);
    generate_result r;
    bool ok = generate_run(m, ids, n, &o, &r, e);
    if (ok && result) result_out(result, &r);
    generate_result_free(&r);
    return ok;
}

bool millet_generate_ids(const millet_lm *m, const int32_t *ids, size_t n,
                         const millet_generate_options *options, millet_generation *result,
                         millet_error *error) {
    err e = {0};
    if (begin(result, &e)) run(inner(m), ids, n, options, result, &e);
    return api_done(error, &e);
}

bool millet_generate(const millet_lm *m, const char *prompt, const millet_generate_options *options,
                     millet_generation *result, millet_error *error) {
    err e = {0};
    int32_t *ids = NULL;
    size_t n;
    if (begin(result, &e) && lm_encode(inner(m), prompt, strlen(prompt), &ids, &n, &e))
        run(inner(m), ids, n, options, result, &e);
    free(ids);
    return api_done(error, &e);
}
