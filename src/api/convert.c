#include "convert/convert.h"
#include "api/api.h"
#include <stdio.h>

/* Progress, and whether to go on. */
static bool progress(void *ctx, const char *tensor, uint64_t done, uint64_t total, uint64_t done_tensors,
                     uint64_t tensors) {
    const millet_convert_options *o = ctx;
    if (o->cancel && millet_cancel_is_set(o->cancel)) return false;
    return !o->progress || o->progress(o->ctx, tensor, done, total, done_tensors, tensors);
}

typedef struct {
    const char *checkpoint, *out;
    millet_convert_options o;
    bool summary; /* is wanted */
    str text;
} converting;

static void convert(void *args, err *e) {
    converting *k = args;
    const millet_convert_options *o = &k->o;
    char chunks[24];
    snprintf(chunks, sizeof chunks, "%lld", (long long)o->chunks);
    const convert_options c = {.format = o->format,
                               .steer_around = o->steer_around,
                               .preset = o->preset,
                               .precision = o->precision,
                               .state = o->state,
                               .context = o->context,
                               .top_k = o->top_k < 0    ? 0
                                        : o->top_k == 0 ? -1
                                                        : o->top_k,
                               .prefill = o->prefill,
                               .chunks = o->chunks ? chunks : NULL,
                               .kv = o->kv,
                               .table = o->table,
                               .max_file_size = o->max_file_size,
                               .quantize = o->quantize,
                               .vocab = o->vocab,
                               .recipe = o->recipe,
                               .group_size = o->group_size,
                               .into = o->into,
                               .share_weights = o->share_weights,
                               .overwrite = o->overwrite,
                               .progress = o->progress || o->cancel ? progress : NULL,
                               .ctx = &k->o};
    convert_checkpoint(k->checkpoint, k->out, &c, k->summary ? &k->text : NULL, e);
}

bool millet_convert(const char *checkpoint, const char *out, const millet_convert_options *options,
                    char **summary, millet_error *error) {
    err e = {0};
    millet_open_options open;
    converting k = {.checkpoint = checkpoint, .out = out, .summary = summary};
    if (summary) *summary = NULL;
    heap *h = NULL;
    if (api_given(checkpoint, "checkpoint", &e) && api_given(out, "output", &e) &&
        api_struct_in(&k.o, sizeof k.o, options, "millet_convert_options", &e) &&
        api_struct_in(&open, sizeof open, k.o.open, "millet_open_options", &e))
        h = api_heap(&open, &e);
    if (h && api_guard(h, convert, &k, NULL, &e) && summary)
        *summary = api_give(h, str_get(&k.text), k.text.len + 1, &e);
    heap_drop(h);
    return api_done(error, &e);
}
