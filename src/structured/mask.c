#include "structured/mask.h"
#include "structured/local.h"
#include <string.h>

enum { KEY_WORDS = 512 }; /* longer keys are not kept */

typedef struct {
    reader *r;
    grammar *g;
    const vocabulary *v;
    size_t words;
    size_t *at; /* [height + 2] where the set of each depth begins */
    uint32_t *bits;
} asking;

static void set(uint32_t *bits, int32_t id) {
    bits[id >> 5] |= 1u << (id & 31);
}

/* ---- walks ---- */

/* Tokens behind the end of a terminal that has counted characters. */
typedef struct {
    const local_mask *l;
    uint32_t count, min, max;
} behind;

static void emit(const asking *q, const trie *t, uint32_t node, const behind *b) {
    for (uint32_t i = t->first[node]; i < t->first[node + 1]; i++) {
        uint32_t value = t->token[i];
        if (!b) {
            set(q->bits, (int32_t)value);
            continue;
        }
        uint32_t n = b->l->token[value].count + b->count;
        if (n >= b->min && n <= b->max) set(q->bits, b->l->token[value].id);
    }
}

/* Adds the tokens of a trie whose bytes can follow the set [from, to), which is the last one of the pool. */
static void walk(asking *q, const trie *t, size_t from, size_t to, const behind *b) {
    reader *r = q->r;
    size_t frames = r->n_frame;
    if (from == to) return;
    q->at[0] = from;
    q->at[1] = to;
    if (b) emit(q, t, 0, b);
    for (uint32_t i = 1; i < t->n && !r->failed;) {
        uint32_t d = t->depth[i];
        r->n_item = q->at[d];
        if (!reader_step(r, q->at[d - 1], q->at[d], t->byte[i], false)) {
            i = t->skip[i];
            continue;
        }
        q->at[d + 1] = r->n_item;
        emit(q, t, i++, b);
    }
    r->n_item = to;
    reader_drop_frames(r, frames);
}

/* Added tokens, which markup only may spell. */
static void walk_added(asking *q, size_t from, size_t to) {
    reader *r = q->r;
    size_t frames = r->n_frame;
    for (size_t k = 0; k < q->v->n_added; k++) {
        const trie_entry *x = &q->v->added[k];
        size_t a = from, b = to;
        for (uint32_t i = 0; i < x->n && a < b; i++) {
            reader_step(r, a, b, x->s[i], true);
            a = b, b = r->n_item;
        }
        if (a < b) set(q->bits, (int32_t)x->value);
        r->n_item = to;
    }
    reader_drop_frames(r, frames);
}

/* ---- positions in wide states ---- */

static mask_entry *find(asking *q, const uint32_t *key, size_t n, mask_cache **c) {
    pthread_mutex_lock(&q->g->lock);
    *c = mask_cache_of(q->g, q->v);
    mask_entry *x = *c ? mask_cache_find(*c, key, n) : NULL;
    pthread_mutex_unlock(&q->g->lock);
    return x;
}

static mask_entry *keep(asking *q, mask_cache *c, const uint32_t *key, size_t n, mask_entry what) {
    pthread_mutex_lock(&q->g->lock);
    mask_entry *x = mask_cache_add(q->g, c, key, n, what);
    pthread_mutex_unlock(&q->g->lock);
    return x;
}

static void leave(asking *q, mask_entry *x) {
    pthread_mutex_lock(&q->g->lock);
    x->users--;
    pthread_mutex_unlock(&q->g->lock);
}

static mask_entry *local_of(asking *q, uint32_t state) {
    uint32_t key[2] = {UINT32_MAX, state};
    mask_cache *c;
    mask_entry *x = find(q, key, 2, &c);
    if (x || !c) return x;
    local_mask *l = local_make(q->g, q->v, state);
    return l ? keep(q, c, key, 2, (mask_entry){.local = l, .bytes = l->bytes}) : NULL;
}

static void ask_wide(asking *q, item x) {
    const net_terminal *t = &q->g->terminal[q->g->of[x.state]];
    mask_entry *kept = local_of(q, x.state);
    reader *r = q->r;
    if (!kept) {
        r->failed = true;
        return;
    }
    bool limited = t->counted && t->max != NO_LIMIT;
    local_inside(kept->local, q->words, limited ? t->max - x.count : UINT32_MAX, q->bits);
    size_t frames = r->n_frame, from = r->n_item;
    behind b = {kept->local, x.count, t->counted ? t->min : 0, limited ? t->max : UINT32_MAX};
    reader_behind(r, x.frame);
    walk(q, &kept->local->rest, from, r->n_item, &b);
    r->n_item = from;
    reader_drop_frames(r, frames);
    leave(q, kept);
}

/* ---- all positions ---- */

static void ask(asking *q, size_t from, size_t to) {
    reader *r = q->r;
    const uint8_t *flags = q->g->flags;
    size_t end = r->n_item;
    reader_new_set(r);
    for (size_t i = from; i < to; i++)
        if (!(flags[r->item[i].state] & STATE_WIDE)) reader_add(r, r->item[i]);
    walk(q, &q->v->all, end, r->n_item, NULL);
    r->n_item = end;
    for (size_t i = from; i < to && !r->failed; i++)
        if (flags[r->item[i].state] & STATE_WIDE) ask_wide(q, r->item[i]);
    if (!r->failed) walk_added(q, from, to);
    if (reader_may_end(r, r->item + from, to - from))
        for (size_t i = 0; i < q->v->n_stop; i++) set(q->bits, q->v->stop[i]);
}

/* Positions and the stacks behind them as words. 0: too many, or positions that change with every character.
 */
static size_t make_key(const asking *q, size_t from, size_t to, uint32_t *key) {
    const reader *r = q->r;
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        item x = r->item[i];
        if (n + 3 > KEY_WORDS) return 0;
        if (x.state && q->g->terminal[q->g->of[x.state]].counted && (q->g->flags[x.state] & STATE_WIDE))
            return 0;
        key[n++] = x.state;
        key[n++] = x.count;
        for (uint32_t f = x.frame; f; f = r->frame[f].parent) {
            if (n + 3 > KEY_WORDS) return 0;
            key[n++] = r->frame[f].node;
            key[n++] = r->frame[f].count;
        }
        key[n++] = UINT32_MAX;
    }
    return n;
}

/* bits is all zeros. */
static void from_entry(const mask_entry *x, size_t words, uint32_t *bits) {
    if (x->bits) memcpy(bits, x->bits, words * sizeof *bits);
    for (size_t i = 0; i < x->n_ids; i++) set(bits, x->ids[i]);
}

typedef struct {
    const uint32_t *bits;
    size_t words;
    mask_entry x;
} copying;

/* A copy of the bits, or of the ids when they are few. */
static void copy_mask(void *ctx) {
    copying *c = ctx;
    size_t n = 0, k = 0;
    for (size_t i = 0; i < c->words; i++) n += (size_t)__builtin_popcount(c->bits[i]);
    if (4 * n > c->words) {
        c->x.bits = mem_try(c->words, sizeof *c->bits);
        if (c->x.bits) memcpy(c->x.bits, c->bits, c->words * sizeof *c->bits);
        c->x.bytes = c->words * sizeof *c->bits;
        return;
    }
    c->x.ids = mem_try(n + 1, sizeof *c->x.ids);
    c->x.bytes = n * sizeof *c->x.ids;
    for (size_t i = 0; c->x.ids && i < c->words; i++)
        for (uint32_t w = c->bits[i]; w; w &= w - 1) c->x.ids[k++] = (int32_t)(i * 32) + __builtin_ctz(w);
    c->x.n_ids = k;
}

bool mask_of(reader *r, grammar *g, const vocabulary *v, size_t from, size_t to, size_t *at, uint32_t *bits) {
    asking q = {r, g, v, vocabulary_words(v), at, bits};
    uint32_t key[KEY_WORDS];
    size_t n = make_key(&q, from, to, key);
    mask_cache *c = NULL;
    memset(bits, 0, q.words * sizeof *bits);
    mask_entry *x = n ? find(&q, key, n, &c) : NULL;
    if (x) {
        from_entry(x, q.words, bits);
        leave(&q, x);
        return true;
    }
    ask(&q, from, to);
    if (r->failed) return false;
    copying copy = {bits, q.words, {0}};
    if (c && mem_guard(g->home, copy_mask, &copy, NULL) && (copy.x.bits || copy.x.ids)) {
        x = keep(&q, c, key, n, copy.x);
        if (x) leave(&q, x);
    }
    return true;
}
