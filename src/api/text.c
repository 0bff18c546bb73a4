#include "api/api.h"
#include "base/arena.h"
#include "text/detokenize.h"
#include <stdlib.h>

struct millet_stream {
    detokenizer d;
    str piece;
};

static const tokenizer *inner(const millet_tokenizer *t) {
    return (const tokenizer *)t;
}

millet_tokenizer *millet_tokenizer_open(const char *dir, millet_error *error) {
    err e = {0};
    tokenizer *t = tokenizer_load(dir, &e);
    api_done(error, &e);
    return (millet_tokenizer *)t;
}

void millet_tokenizer_close(millet_tokenizer *t) {
    tokenizer_free((tokenizer *)t);
}

static bool encode(const millet_tokenizer *t, const char *text, size_t len, unsigned flags, int32_t **ids,
                   size_t *n, millet_error *error) {
    err e = {0};
    token_list list = {0};
    bool ok = tokenizer_encode(inner(t), text, len, flags, &list, &e);
    if (!ok) token_list_free(&list);
    *ids = list.ids;
    *n = list.n;
    return api_done(error, &e);
}

bool millet_encode(const millet_tokenizer *t, const char *text, size_t len, int32_t **ids, size_t *n,
                   millet_error *error) {
    return encode(t, text, len, 0, ids, n, error);
}

bool millet_encode_prompt(const millet_tokenizer *t, const char *text, size_t len, int32_t **ids, size_t *n,
                          millet_error *error) {
    return encode(t, text, len, TOKENIZER_TEMPLATE, ids, n, error);
}

char *millet_decode(const millet_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, size_t *len) {
    str out = {0};
    str_adds(&out, ""); /* never NULL */
    tokenizer_decode(inner(t), ids, n, skip_special, &out);
    if (len) *len = out.len;
    return out.s;
}

millet_stream *millet_stream_new(const millet_tokenizer *t, bool skip_special) {
    millet_stream *s = mem_alloc(sizeof *s);
    *s = (millet_stream){0};
    detokenizer_begin(&s->d, inner(t), skip_special);
    return s;
}

void millet_stream_free(millet_stream *s) {
    if (!s) return;
    str_free(&s->piece);
    free(s);
}

static void hand_out(millet_stream *s, const char **text, size_t *len) {
    *text = str_get(&s->piece);
    *len = s->piece.len;
}

void millet_stream_push(millet_stream *s, int32_t id, const char **text, size_t *len) {
    str_clear(&s->piece);
    detokenizer_push(&s->d, id, &s->piece);
    hand_out(s, text, len);
}

void millet_stream_flush(millet_stream *s, const char **text, size_t *len) {
    str_clear(&s->piece);
    detokenizer_flush(&s->d, &s->piece);
    hand_out(s, text, len);
}
