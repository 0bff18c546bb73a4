#include "structured/local.h"
#include <stdlib.h>
#include <string.h>

typedef struct local_token local_token;
enum { LEVELS = 16 };

/* A walk from a state of a terminal. */
typedef struct {
    const grammar *g;
    const vocabulary *v;
    uint32_t state;
    local_mask *l;
    local_token *inside;
    trie_entry *rest;
    size_t n_inside, cap_inside, cap_token, cap_rest, n_rest;
    bool failed;
} walk;

static bool more(walk *w, void *array, size_t *cap, size_t need, size_t size) {
    void **p = array;
    if (need <= *cap) return true;
    size_t n = *cap ? *cap * 2 : 1024;
    void *q = mem_try_realloc(*p, n * size);
    if (!q) return w->failed = true, false;
    *p = q;
    *cap = n;
    return true;
}

static void add_inside(walk *w, uint32_t node, uint32_t count) {
    const trie *t = &w->v->all;
    for (uint32_t i = t->first[node]; i < t->first[node + 1]; i++) {
        if (!more(w, &w->inside, &w->cap_inside, w->n_inside + 1, sizeof *w->inside)) return;
        w->inside[w->n_inside++] = (local_token){(int32_t)t->token[i], count};
        if (count > w->l->most) w->l->most = count;
    }
}

/* The terminal ends at node: what the tokens there and below have behind that is for others to look at. */
static void add_rest(walk *w, uint32_t node, uint32_t count) {
    const trie *t = &w->v->all;
    local_mask *l = w->l;
    for (uint32_t i = t->first[node]; i < t->first[t->skip[node]]; i++) {
        uint32_t id = t->token[i], from = w->v->start[id] + t->depth[node];
        if (!more(w, &l->token, &w->cap_token, l->n_token + 1, sizeof *l->token) ||
            !more(w, &w->rest, &w->cap_rest, w->n_rest + 1, sizeof *w->rest))
            return;
        w->rest[w->n_rest++] =
            (trie_entry){w->v->text + from, w->v->start[id + 1] - from, (uint32_t)l->n_token};
        l->token[l->n_token++] = (local_token){(int32_t)id, count};
    }
}

static void walk_trie(walk *w, uint32_t *state, uint32_t *count) {
    const grammar *g = w->g;
    const trie *t = &w->v->all;
    state[0] = w->state;
    count[0] = 0;
    for (uint32_t i = 1; i < t->n && !w->failed;) {
        uint32_t d = t->depth[i], from = state[d - 1], to = grammar_step(g, from, t->byte[i]),
                 n = count[d - 1];
        uint8_t flags = g->flags[to];
        if (!to) {
            i = t->skip[i];
            continue;
        }
        if ((g->flags[from] & STATE_COUNTS) && !(flags & STATE_ACCEPT)) n++;
        state[d] = to;
        count[d] = n;
        if (flags & STATE_ON) add_inside(w, i, n);
        if (flags & STATE_ACCEPT) add_rest(w, i, n);
        i = flags & STATE_ON ? i + 1 : t->skip[i];
    }
}

static void set(uint32_t *bits, int32_t id) {
    bits[id >> 5] |= 1u << (id & 31);
}

static int by_count(const void *x, const void *y) {
    const local_token *a = x, *b = y;
    return a->count != b->count ? (a->count > b->count) - (a->count < b->count)
                                : (a->id > b->id) - (a->id < b->id);
}

/* Level k: tokens of at most k characters; what has more is listed. */
static bool make_levels(walk *w, bool counted) {
    local_mask *l = w->l;
    size_t words = vocabulary_words(w->v);
    l->levels = counted ? LEVELS : 1;
    l->inside = mem_try(l->levels * words, sizeof *l->inside);
    if (!l->inside) return false;
    size_t n_over = 0;
    for (size_t i = 0; i < w->n_inside; i++) {
        const local_token *x = &w->inside[i];
        if (counted && x->count >= LEVELS)
            w->inside[n_over++] = *x;
        else
            set(l->inside + (counted ? x->count * words : 0), x->id);
    }
    for (size_t k = 1; k < l->levels; k++)
        for (size_t i = 0; i < words; i++) l->inside[k * words + i] |= l->inside[(k - 1) * words + i];
    if (n_over) qsort(w->inside, n_over, sizeof *w->inside, by_count);
    l->over = mem_try(n_over + 1, sizeof *l->over);
    if (!l->over) return false;
    if (n_over) memcpy(l->over, w->inside, n_over * sizeof *l->over);
    l->n_over = n_over;
    l->bytes = sizeof *l + l->levels * words * 4 + n_over * sizeof *l->over;
    return true;
}

static void make(void *ctx) {
    walk *w = ctx;
    uint32_t height = w->v->all.height;
    w->l = mem_try(1, sizeof *w->l);
    uint32_t *state = mem_try(2 * ((size_t)height + 1), sizeof *state);
    bool ok = w->l && state;
    if (ok) {
        walk_trie(w, state, state + height + 1);
        ok = !w->failed && make_levels(w, w->g->terminal[w->g->of[w->state]].counted) &&
             trie_make(&w->l->rest, w->rest, w->n_rest);
    }
    if (ok) w->l->bytes += trie_bytes(&w->l->rest) + w->l->n_token * sizeof *w->l->token;
    mem_free(state);
    mem_free(w->inside);
    mem_free(w->rest);
    if (ok) return;
    local_mask_free(w->l);
    w->l = NULL;
}

local_mask *local_make(const grammar *g, const vocabulary *v, uint32_t state) {
    walk w = {.g = g, .v = v, .state = state};
    return mem_guard(g->home, make, &w, NULL) ? w.l : NULL;
}

void local_inside(const local_mask *l, size_t words, uint32_t room, uint32_t *bits) {
    size_t level = l->levels - 1 < room ? l->levels - 1 : room;
    const uint32_t *from = l->inside + level * words;
    for (size_t i = 0; i < words; i++) bits[i] |= from[i];
    for (size_t i = 0; i < l->n_over && l->over[i].count <= room; i++) set(bits, l->over[i].id);
}
