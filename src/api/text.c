#include "api/api.h"
#include "base/arena.h"
#include "text/chat.h"
#include "text/detokenize.h"

struct millet_stream {
    heap *h;
    detokenizer d;
    str piece;
    bool left; /* in the middle, for want of memory */
};

/* ---- tokenizers ---- */

typedef struct {
    const char *dir;
    heap *h;
    millet_tokenizer *t;
} opening;

static void open_tokenizer(void *args, err *e) {
    opening *k = args;
    tokenizer *t = tokenizer_load(k->dir, e);
    if (!t) return;
    k->t = mem_alloc(sizeof *k->t);
    *k->t = (millet_tokenizer){k->h, t};
}

millet_tokenizer *millet_tokenizer_open_with(const char *dir, const millet_open_options *options,
                                             millet_error *error) {
    err e = {0};
    millet_open_options o;
    opening k = {.dir = dir};
    if (api_given(dir, "path", &e) && api_struct_in(&o, sizeof o, options, "millet_open_options", &e))
        k.h = api_heap(&o, &e);
    if (k.h && !api_guard(k.h, open_tokenizer, &k, NULL, &e)) heap_drop(k.h);
    return api_done(error, &e) ? k.t : NULL;
}

millet_tokenizer *millet_tokenizer_open(const char *dir, millet_error *error) {
    return millet_tokenizer_open_with(dir, NULL, error);
}

void millet_tokenizer_close(millet_tokenizer *t) {
    if (!t) return;
    heap *h = t->h;
    tokenizer_free(t->t);
    mem_free(t);
    heap_drop(h);
}

/* ---- whole texts ---- */

/* A heap for one call, like that of t: several threads may use t. NULL with e set. */
static heap *aside(const millet_tokenizer *t, err *e) {
    heap *h = heap_new(NULL, heap_hooks_of(t->h));
    if (!h) err_set(e, ERR_MEMORY, "out of memory");
    return h;
}

typedef struct {
    const millet_tokenizer *t;
    const char *text;
    size_t len;
    unsigned flags;
    token_list list;
} encoding;

static void encode(void *args, err *e) {
    encoding *k = args;
    tokenizer_encode(k->t->t, k->text, k->len, k->flags, &k->list, e);
}

static bool encode_aside(encoding k, int32_t **ids, size_t *n, millet_error *error) {
    err e = {0};
    heap *h = aside(k.t, &e);
    *ids = NULL;
    *n = 0;
    if (h && api_guard(h, encode, &k, NULL, &e)) {
        *ids = api_give(h, k.list.ids, k.list.n * sizeof **ids, &e);
        *n = *ids ? k.list.n : 0;
    }
    heap_drop(h);
    return api_done(error, &e);
}

bool millet_encode(const millet_tokenizer *t, const char *text, size_t len, int32_t **ids, size_t *n,
                   millet_error *error) {
    return encode_aside((encoding){t, text, len, 0, {0}}, ids, n, error);
}

bool millet_encode_prompt(const millet_tokenizer *t, const char *text, size_t len, int32_t **ids, size_t *n,
                          millet_error *error) {
    return encode_aside((encoding){t, text, len, TOKENIZER_TEMPLATE, {0}}, ids, n, error);
}

typedef struct {
    const millet_tokenizer *t;
    const char *dir, *name, *conversation;
    size_t len;
    chat_prompt prompt;
    token_list list;
} chatting;

static void render(void *args, err *e) {
    chatting *k = args;
    arena *a = arena_new();
    const json *j = json_parse(a, "conversation", k->conversation, k->len, e),
               *options = json_get(j, "options");
    chat_template *c = j ? chat_open(k->dir, k->name, e) : NULL;
    chat_options o;
    if (options && options->kind != JSON_OBJECT && options->kind != JSON_NULL)
        err_set(e, ERR_FORMAT, "options: expected an object");
    if (c && !e->code && chat_options_read(&o, options, e) &&
        chat_render(c, json_get(j, "messages"), &o, &k->prompt, e))
        chat_encode(&k->prompt, k->t->t, false, &k->list, e);
    chat_close(c);
    arena_free(a);
}

bool millet_chat_encode(const millet_tokenizer *t, const char *dir, const char *name,
                        const char *conversation, size_t len, char **text, size_t *text_len, int32_t **ids,
                        size_t *n, millet_error *error) {
    err e = {0};
    chatting k = {.t = t, .dir = dir, .name = name, .conversation = conversation, .len = len};
    char *words = NULL;
    int32_t *list = NULL;
    bool given = (dir || name || err_set(&e, ERR_USAGE, "no directory and no name of a template")) &&
                 api_given(conversation, "conversation", &e);
    heap *h = given ? aside(t, &e) : NULL;
    bool ok = h && api_guard(h, render, &k, NULL, &e);
    if (ok && text) ok = (words = api_give(h, str_get(&k.prompt.text), k.prompt.text.len + 1, &e)) != NULL;
    if (ok && ids) ok = (list = api_give(h, k.list.ids, k.list.n * sizeof *list, &e)) != NULL;
    if (!ok) {
        millet_free(words);
        words = NULL;
    }
    if (text) *text = words;
    if (text_len) *text_len = ok ? k.prompt.text.len : 0;
    if (ids) *ids = list;
    if (n) *n = ok ? k.list.n : 0;
    heap_drop(h);
    return api_done(error, &e);
}

typedef struct {
    const millet_tokenizer *t;
    const int32_t *ids;
    size_t n;
    bool skip_special;
    str out;
} decoding;

static void decode(void *args, err *e) {
    decoding *k = args;
    (void)e;
    str_adds(&k->out, ""); /* never NULL */
    tokenizer_decode(k->t->t, k->ids, k->n, k->skip_special, &k->out);
}

char *millet_decode(const millet_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, size_t *len) {
    err e = {0};
    decoding k = {t, ids, n, skip_special, {0}};
    heap *h = aside(t, &e);
    char *text = NULL;
    if (h && api_guard(h, decode, &k, NULL, &e)) text = api_give(h, k.out.s, k.out.len + 1, &e);
    if (len) *len = text ? k.out.len : 0;
    heap_drop(h);
    return text;
}

/* ---- texts as they come ---- */

typedef struct {
    const millet_tokenizer *t;
    bool skip_special;
    heap *h;
    millet_stream *s;
} beginning;

static void begin(void *args, err *e) {
    beginning *k = args;
    (void)e;
    k->s = mem_alloc(sizeof *k->s);
    *k->s = (millet_stream){.h = k->h};
    detokenizer_begin(&k->s->d, k->t->t, k->skip_special);
}

millet_stream *millet_stream_new(const millet_tokenizer *t, bool skip_special) {
    err e = {0};
    beginning k = {t, skip_special, aside(t, &e), NULL};
    if (!k.h || api_guard(k.h, begin, &k, NULL, &e)) return k.s;
    heap_drop(k.h);
    return NULL;
}

void millet_stream_free(millet_stream *s) {
    if (s) heap_drop(s->h);
}

typedef struct {
    millet_stream *s;
    int32_t id;
    bool end; /* no id: what is left */
} pushing;

static void push(void *args, err *e) {
    const pushing *k = args;
    (void)e;
    if (k->end)
        detokenizer_flush(&k->s->d, &k->s->piece);
    else
        detokenizer_push(&k->s->d, k->id, &k->s->piece);
}

static void piece(pushing k, const char **text, size_t *len) {
    err e = {0};
    millet_stream *s = k.s;
    str_clear(&s->piece);
    if (s->left || !api_guard(s->h, push, &k, &s->left, &e)) str_clear(&s->piece);
    *text = str_get(&s->piece);
    *len = s->piece.len;
}

void millet_stream_push(millet_stream *s, int32_t id, const char **text, size_t *len) {
    piece((pushing){s, id, false}, text, len);
}

void millet_stream_flush(millet_stream *s, const char **text, size_t *len) {
    piece((pushing){s, 0, true}, text, len);
}
