#include "structured/vocabulary.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- trie ---- */

static int by_bytes(const void *x, const void *y) {
    const trie_entry *a = x, *b = y;
    int c = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    if (c) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return (a->value > b->value) - (a->value < b->value);
}

static uint32_t shared(const trie_entry *a, const trie_entry *b) {
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->s[n] == b->s[n]) n++;
    return n;
}

static bool allocate(trie *t, size_t nodes, size_t tokens) {
    t->byte = mem_try(nodes, sizeof *t->byte);
    t->depth = mem_try(nodes, sizeof *t->depth);
    t->skip = mem_try(nodes, sizeof *t->skip);
    t->first = mem_try(nodes + 1, sizeof *t->first);
    t->token = mem_try(tokens ? tokens : 1, sizeof *t->token);
    return t->byte && t->depth && t->skip && t->first && t->token;
}

bool trie_make(trie *t, trie_entry *entry, size_t n) {
    *t = (trie){0};
    if (n) qsort(entry, n, sizeof *entry, by_bytes);
    size_t nodes = 1;
    for (size_t i = 0; i < n; i++) {
        nodes += entry[i].n - (i ? shared(&entry[i - 1], &entry[i]) : 0);
        if (entry[i].n > t->height) t->height = (uint16_t)entry[i].n;
    }
    uint32_t *open = mem_try((size_t)t->height + 1, sizeof *open); /* the last node of each depth */
    if (!open || nodes >= UINT32_MAX || !allocate(t, nodes, n)) {
        mem_free(open);
        trie_free(t);
        return false;
    }
    t->n = 1;
    uint32_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t keep = i ? shared(&entry[i - 1], &entry[i]) : 0;
        for (; depth > keep; depth--) t->skip[open[depth]] = t->n;
        for (; depth < entry[i].n; t->n++) {
            t->byte[t->n] = entry[i].s[depth];
            t->depth[t->n] = (uint16_t)++depth;
            t->first[t->n] = (uint32_t)i;
            open[depth] = t->n;
        }
        t->token[i] = entry[i].value;
    }
    for (; depth; depth--) t->skip[open[depth]] = t->n;
    t->skip[0] = t->n;
    t->first[t->n] = (uint32_t)n;
    mem_free(open);
    return true;
}

void trie_free(trie *t) {
    mem_free(t->byte);
    mem_free(t->depth);
    mem_free(t->skip);
    mem_free(t->first);
    mem_free(t->token);
    *t = (trie){0};
}

size_t trie_bytes(const trie *t) {
    return t->n * (sizeof *t->byte + sizeof *t->depth + sizeof *t->skip + sizeof *t->first) +
           t->first[t->n] * sizeof *t->token;
}

/* ---- vocabulary ---- */

typedef const uint8_t *(*bytes_of)(const void *from, int32_t id, size_t *n);
typedef token_kind (*kind_of)(const void *from, int32_t id);

static bool is_stop(const vocabulary *v, int32_t id) {
    for (size_t i = 0; i < v->n_stop; i++)
        if (v->stop[i] == id) return true;
    return false;
}

/* Bytes and kind of each token; how many there are. */
static bool copy_tokens(vocabulary *v, const void *from, bytes_of bytes, kind_of kind) {
    size_t total = 0, n;
    for (int32_t id = 0; id < v->limit; id++)
        if (bytes(from, id, &n)) total += n;
    v->text = mem_try(total + 1, 1);
    v->start = mem_try((size_t)v->limit + 1, sizeof *v->start);
    v->kind = mem_try((size_t)v->limit, sizeof *v->kind);
    if (!v->text || !v->start || !v->kind || total >= UINT32_MAX) return false;
    total = 0;
    for (int32_t id = 0; id < v->limit; id++) {
        const uint8_t *s = bytes(from, id, &n);
        v->start[id] = (uint32_t)total;
        v->kind[id] = (uint8_t)(is_stop(v, id) ? TOKEN_STOP : s ? kind(from, id) : TOKEN_NONE);
        if (!s || !n || n >= TRIE_MAX_DEPTH) {
            if (v->kind[id] != TOKEN_STOP) v->kind[id] = TOKEN_NONE;
            continue;
        }
        memcpy(v->text + total, s, n);
        total += n;
    }
    v->start[v->limit] = (uint32_t)total;
    return true;
}

static bool index_tokens(vocabulary *v) {
    size_t count[TOKEN_STOP + 1] = {0}, k = 0;
    for (int32_t id = 0; id < v->limit; id++) count[v->kind[id]]++;
    trie_entry *plain = mem_try(count[TOKEN_PLAIN] + 1, sizeof *plain);
    v->added = mem_try(count[TOKEN_ADDED] + 1, sizeof *v->added);
    bool ok = plain && v->added;
    for (int32_t id = 0; ok && id < v->limit; id++) {
        trie_entry x = {v->text + v->start[id], v->start[id + 1] - v->start[id], (uint32_t)id};
        if (v->kind[id] == TOKEN_PLAIN) plain[k++] = x;
        if (v->kind[id] == TOKEN_ADDED) v->added[v->n_added++] = x;
    }
    ok = ok && trie_make(&v->all, plain, k);
    mem_free(plain);
    return ok;
}

static vocabulary *make(const void *from, bytes_of bytes, kind_of kind, const int32_t *stop, size_t n_stop,
                        int32_t limit, err *e) {
    static atomic_uint_fast64_t serial;
    vocabulary *v = mem_alloc(sizeof *v);
    *v = (vocabulary){.limit = limit, .serial = atomic_fetch_add(&serial, 1) + 1};
    v->stop = mem_try(n_stop + 1, sizeof *v->stop);
    for (size_t i = 0; v->stop && i < n_stop; i++)
        if (stop[i] >= 0 && stop[i] < limit && !is_stop(v, stop[i])) v->stop[v->n_stop++] = stop[i];
    if (v->stop && copy_tokens(v, from, bytes, kind) && index_tokens(v)) return v;
    err_set(e, ERR_MEMORY, "no memory for a trie of %d tokens", (int)limit);
    vocabulary_free(v);
    return NULL;
}

static const uint8_t *tokenizer_text(const void *from, int32_t id, size_t *n) {
    return tokenizer_bytes(from, id, n);
}

static token_kind tokenizer_kind(const void *from, int32_t id) {
    if (tokenizer_is_special(from, id)) return TOKEN_NONE;
    return tokenizer_is_added(from, id) ? TOKEN_ADDED : TOKEN_PLAIN;
}

vocabulary *vocabulary_new(const tokenizer *t, const int32_t *stop, size_t n_stop, int32_t limit, err *e) {
    int32_t end = tokenizer_limit(t);
    return make(t, tokenizer_text, tokenizer_kind, stop, n_stop, limit < end ? limit : end, e);
}

typedef struct {
    const uint8_t *const *token;
    const size_t *len;
} list;

static const uint8_t *list_text(const void *from, int32_t id, size_t *n) {
    const list *l = from;
    *n = l->len[id];
    return *n ? l->token[id] : NULL;
}

static token_kind list_kind(const void *from, int32_t id) {
    (void)from, (void)id;
    return TOKEN_PLAIN;
}

vocabulary *vocabulary_from_bytes(const uint8_t *const *token, const size_t *len, size_t n,
                                  const int32_t *stop, size_t n_stop, err *e) {
    list l = {token, len};
    return make(&l, list_text, list_kind, stop, n_stop, (int32_t)n, e);
}

void vocabulary_free(vocabulary *v) {
    if (!v) return;
    trie_free(&v->all);
    mem_free(v->added);
    mem_free(v->stop);
    mem_free(v->text);
    mem_free(v->start);
    mem_free(v->kind);
    mem_free(v);
}

int32_t vocabulary_limit(const vocabulary *v) {
    return v->limit;
}

size_t vocabulary_words(const vocabulary *v) {
    return ((size_t)v->limit + 31) / 32;
}

size_t vocabulary_bytes(const vocabulary *v) {
    return sizeof *v + trie_bytes(&v->all) + v->start[v->limit] + (size_t)v->limit * 5;
}
