#include "base/arena.h"
#include "checkpoint/gguf_set.h"
#include "models/models.h"
#include "text/tokenizer.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MOST = 1 << 16 }; /* elements that are looked at: a file can state more than it is worth waiting for */

static void read_values(const st_tensor *t) {
    uint64_t bytes, count = (uint64_t)ir_type_count(&t->type), step = 1 + count / MOST;
    float x[64];
    st_stored(t, &bytes);
    for (uint64_t at = 0; at < count; at += 37 * step) {
        uint64_t m = count - at < 37 ? count - at : 37;
        if (!st_floats(t, at, m, x)) abort();
    }
    if (!t->view || !t->view->keeps || count % GGUF_KEPT_BLOCK) return;
    for (uint64_t at = 0; at < count; at += GGUF_KEPT_BLOCK * step) {
        int8_t code[GGUF_KEPT_BLOCK];
        uint16_t scale;
        tensor_codes(t->view, at, GGUF_KEPT_BLOCK, code);
        tensor_scales(t->view, at / GGUF_KEPT_BLOCK, 1, &scale);
    }
}

/* Blocks as they are, of whatever type. */
static void decode_blocks(const gguf *g) {
    for (size_t i = 0; i < gguf_count(g); i++) {
        const gguf_tensor *t = gguf_at(g, i);
        if (gguf_find(g, t->name) != t) abort();
        float x[GGUF_MAX_BLOCK];
        for (uint64_t at = 0; at + t->form->bytes <= t->bytes; at += (1 + t->bytes / MOST) * t->form->bytes)
            t->form->decode(x, t->data + at, 1);
    }
}

static void read_tokenizer(const gguf_set *s) {
    err e = {0};
    str text = {0}, config = {0};
    bool ok = gguf_tokenizer(&text, &config, s, &e);
    if (ok == (e.code != ERR_NONE)) abort();
    if (ok && text.len) {
        tokenizer *t = tokenizer_load_memory(text.s, text.len, config.s, config.len, &e);
        if (!t != (e.code != ERR_NONE)) abort();
        tokenizer_free(t);
    }
    str_free(&text);
    str_free(&config);
}

/* Opens; what the file says is read as far as it goes: every tensor, configuration, tokenizer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    err e = {0};
    gguf_set *s = gguf_set_open_memory("input", data, n, &e);
    if (!s != (e.code != ERR_NONE)) abort();
    if (!s) return 0;
    decode_blocks(s->part[0]);
    arena *a = arena_new();
    ckpt_config c;
    bool ok = gguf_config(&c, a, s, models_families(), &e);
    if (ok == (e.code != ERR_NONE)) abort();
    if (ok) {
        const st_tensor *t = gguf_tensors(a, s, &c);
        for (size_t i = 0; i < s->n_tensor; i++) read_values(&t[i]);
    }
    read_tokenizer(s);
    arena_free(a);
    gguf_set_close(s);
    return 0;
}
