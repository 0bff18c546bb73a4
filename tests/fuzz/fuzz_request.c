#include "server/request.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What a request needs of a model: its tokenizer, template and sizes. */
static const served_model *model(void) {
    static const char *const names[] = {"tiny"};
    static lm m;
    static served_model served = {
        .m = &m, .name = names, .n_name = 1, .defaults = SAMPLER_GREEDY, .max_prompt = 512};
    if (m.text) return &served;
    err e = {0};
    m.form.context = 512;
    m.text = tokenizer_load(TINY_MODEL, &e);
    served.chat = chat_open(NULL, "qwen3", &e);
    if (!m.text || !served.chat) abort();
    m.vocab = tokenizer_limit(m.text);
    return &served;
}

/* What is accepted is within its bounds; what isn't is told in JSON. */
static void judge(const request *r, bool ok, const api_error *e) {
    if (ok != (e->status == 0)) abort();
    for (size_t i = 0; ok && i < r->n_prompt; i++) {
        const request_prompt *p = &r->prompt[i];
        if (!p->n || p->n > 512 || !p->n_cut || p->cut[p->n_cut - 1] != p->n) abort();
        for (size_t k = 0; k < p->n; k++)
            if (p->ids[k] < 0 || p->ids[k] >= tokenizer_limit(model()->m->text)) abort();
    }
    if (ok) return;
    str b = {0};
    err x = {0};
    arena *a = arena_new();
    api_error_json(&b, e);
    if (e->status < 400 || e->status > 503 || !json_parse(a, "error", b.s, b.len, &x)) abort();
    arena_free(a);
    str_free(&b);
}

/* The first byte says which kind of request the rest is the body of. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!n) return 0;
    arena *a = arena_new();
    api_error e = {0};
    request r;
    bool chat = *data == 'c',
         ok = (chat ? request_chat : request_completion)(&r, a, model(), data + 1, n - 1, &e);
    judge(&r, ok, &e);
    if (ok) request_free(&r);
    arena_free(a);
    return 0;
}
