#include "structured/mask_cache.h"
#include "base/map.h"
#include "structured/mask.h"
#include <string.h>

void local_mask_free(local_mask *l) {
    if (!l) return;
    mem_free(l->inside);
    mem_free(l->over);
    mem_free(l->token);
    trie_free(&l->rest);
    mem_free(l);
}

static void entry_free(mask_entry *x) {
    local_mask_free(x->local);
    mem_free(x->bits);
    mem_free(x->ids);
    mem_free(x->key);
    mem_free(x);
}

void mask_cache_free(mask_cache *c) {
    while (c) {
        mask_cache *next = c->next;
        for (mask_entry *x = c->newest, *older; x; x = older) {
            older = x->older;
            entry_free(x);
        }
        mem_free(c->slot);
        mem_free(c);
        c = next;
    }
}

/* ---- in the grammar's heap, whoever asks ---- */

enum { SLOTS = 4096 };

typedef struct {
    mask_cache *c;
    mask_entry *x;
    const uint32_t *key;
    size_t n;
} making;

static void make_cache(void *ctx) {
    making *m = ctx;
    m->c = mem_try(1, sizeof *m->c);
    if (m->c) m->c->slot = mem_try(SLOTS, sizeof *m->c->slot);
}

static void make_entry(void *ctx) {
    making *m = ctx;
    m->x = mem_try(1, sizeof *m->x);
    if (m->x) m->x->key = mem_try(m->n + 1, sizeof *m->key);
}

mask_cache *mask_cache_of(grammar *g, const vocabulary *v) {
    for (mask_cache *c = g->cache; c; c = c->next)
        if (c->vocabulary == v->serial) return c;
    making m = {0};
    if (!mem_guard(g->home, make_cache, &m, NULL) || !m.c || !m.c->slot) {
        if (m.c) mem_free(m.c);
        return NULL;
    }
    m.c->n_slot = SLOTS;
    m.c->vocabulary = v->serial;
    m.c->next = g->cache;
    return g->cache = m.c;
}

/* ---- order of use ---- */

static void unlink_entry(mask_cache *c, mask_entry *x) {
    *(x->newer ? &x->newer->older : &c->newest) = x->older;
    *(x->older ? &x->older->newer : &c->oldest) = x->newer;
    x->newer = x->older = NULL;
}

static void link_newest(mask_cache *c, mask_entry *x) {
    x->older = c->newest;
    x->newer = NULL;
    *(c->newest ? &c->newest->newer : &c->oldest) = x;
    c->newest = x;
}

static mask_entry **slot_of(const mask_cache *c, const uint32_t *key, size_t n) {
    return &c->slot[hash_bytes(key, n * sizeof *key, 0) % c->n_slot];
}

mask_entry *mask_cache_find(mask_cache *c, const uint32_t *key, size_t n) {
    for (mask_entry *x = *slot_of(c, key, n); x; x = x->chain) {
        if (x->n_key != n || memcmp(x->key, key, n * sizeof *key)) continue;
        if (x != c->newest) {
            unlink_entry(c, x);
            link_newest(c, x);
        }
        x->users++;
        return x;
    }
    return NULL;
}

static void drop(mask_cache *c, mask_entry *x) {
    mask_entry **p = slot_of(c, x->key, x->n_key);
    while (*p != x) p = &(*p)->chain;
    *p = x->chain;
    unlink_entry(c, x);
    c->bytes -= x->bytes;
    c->n--;
    entry_free(x);
}

static void make_room(mask_cache *c) {
    for (mask_entry *x = c->oldest, *newer; x && c->bytes > MASK_CACHE_BYTES; x = newer) {
        newer = x->newer;
        if (!x->users) drop(c, x);
    }
}

mask_entry *mask_cache_add(grammar *g, mask_cache *c, const uint32_t *key, size_t n, mask_entry what) {
    mask_entry *known = mask_cache_find(c, key, n);
    making m = {.key = key, .n = n};
    bool made = !known && mem_guard(g->home, make_entry, &m, NULL) && m.x && m.x->key;
    if (!made) {
        local_mask_free(what.local);
        mem_free(what.bits);
        mem_free(what.ids);
        mem_free(m.x);
        return known;
    }
    uint32_t *copy = m.x->key;
    memcpy(copy, key, n * sizeof *key);
    what.key = copy, what.n_key = n, what.users = 1;
    what.bytes += sizeof what + n * sizeof *key;
    what.chain = NULL;
    *m.x = what;
    mask_entry **p = slot_of(c, key, n);
    m.x->chain = *p;
    *p = m.x;
    link_newest(c, m.x);
    c->bytes += what.bytes;
    c->n++;
    make_room(c);
    return m.x;
}
