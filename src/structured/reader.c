#include "structured/reader.h"
#include <string.h>

/* ---- memory: of the reader's home, whoever calls ---- */

typedef struct {
    void *p;
    size_t bytes;
} growth;

static void grow_here(void *ctx) {
    growth *x = ctx;
    x->p = mem_try_realloc(x->p, x->bytes);
}

/* The array with room for need elements; NULL: there is none, the old one is as it was. */
static void *grow(reader *r, void *old, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return old;
    size_t n = *cap ? *cap * 2 : 64;
    while (n < need) n *= 2;
    growth x = {old, n * size};
    if (!mem_guard(r->home, grow_here, &x, NULL) || !x.p) {
        r->failed = true;
        return NULL;
    }
    *cap = n;
    return x.p;
}

/* ---- frames ---- */

static uint32_t mix(uint32_t a, uint32_t b, uint32_t c) {
    uint64_t h = (a * 0x9E3779B97F4A7C15u) ^ (b * 0xC2B2AE3D27D4EB4Fu) ^ (c * 0x165667B19E3779F9u);
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return (uint32_t)(h >> 32);
}

static uint32_t *slot(const reader *r, const frame *f) {
    return &r->bucket[mix(f->parent, f->node, f->count) & (r->n_bucket - 1)];
}

static bool more_buckets(reader *r) {
    size_t cap = r->n_bucket;
    uint32_t *bucket = grow(r, r->bucket, &cap, r->n_bucket * 2 + 64, sizeof *bucket);
    if (!bucket) return false;
    r->bucket = bucket, r->n_bucket = cap;
    memset(bucket, 0, cap * sizeof *bucket);
    for (size_t i = 1; i < r->n_frame; i++) {
        uint32_t *s = slot(r, &r->frame[i]);
        r->frame[i].next = *s;
        *s = (uint32_t)i + 1;
    }
    return true;
}

/* The frame of these parts; 0 when there is no memory. */
static uint32_t frame_of(reader *r, uint32_t parent, uint32_t node, uint32_t count) {
    frame f = {parent, node, count, 0};
    for (uint32_t i = *slot(r, &f); i; i = r->frame[i - 1].next) {
        const frame *x = &r->frame[i - 1];
        if (x->parent == parent && x->node == node && x->count == count) return i - 1;
    }
    if (r->n_frame >= READER_FRAMES) r->failed = true;
    if (r->failed || (r->n_frame >= r->n_bucket && !more_buckets(r))) return 0;
    frame *p = grow(r, r->frame, &r->cap_frame, r->n_frame + 1, sizeof f);
    if (!p) return 0;
    r->frame = p;
    uint32_t *s = slot(r, &f);
    f.next = *s;
    p[r->n_frame] = f;
    *s = (uint32_t)r->n_frame + 1;
    return (uint32_t)r->n_frame++;
}

void reader_drop_frames(reader *r, size_t n_frame) {
    while (r->n_frame > n_frame) {
        const frame *f = &r->frame[--r->n_frame];
        *slot(r, f) = f->next;
    }
}

bool reader_begin(reader *r, const grammar *g, heap *home) {
    *r = (reader){.g = g, .home = home, .turn = 1};
    r->frame = grow(r, NULL, &r->cap_frame, 64, sizeof *r->frame);
    r->item = grow(r, NULL, &r->cap_item, 64, sizeof *r->item);
    r->visit = grow(r, NULL, &r->cap_visit, 256, sizeof *r->visit);
    if (r->visit) memset(r->visit, 0, r->cap_visit * sizeof *r->visit);
    r->n_frame = 1;
    return !r->failed && more_buckets(r);
}

void reader_end(reader *r) {
    mem_free(r->frame);
    mem_free(r->item);
    mem_free(r->bucket);
    mem_free(r->visit);
    *r = (reader){0};
}

bool reader_copy(reader *r, const reader *from, heap *home) {
    if (!reader_begin(r, from->g, home)) return false;
    frame *p = grow(r, r->frame, &r->cap_frame, from->n_frame, sizeof *p);
    if (!p) return false;
    r->frame = p;
    memcpy(p + 1, from->frame + 1, (from->n_frame - 1) * sizeof *p);
    r->n_frame = from->n_frame;
    do {
        if (!more_buckets(r)) return false;
    } while (r->n_bucket < r->n_frame);
    return true;
}

/* ---- sets of positions ---- */

static visit *free_visit(visit *v, size_t cap, uint32_t turn, uint32_t hash) {
    size_t at = hash & (cap - 1);
    while (v[at].turn == turn) at = (at + 1) & (cap - 1);
    return &v[at];
}

/* Twice the room; what was followed already stays so. */
static bool more_visits(reader *r) {
    size_t cap = 0;
    visit *p = grow(r, NULL, &cap, r->cap_visit * 2, sizeof *p);
    if (!p) return false;
    memset(p, 0, cap * sizeof *p);
    for (size_t i = 0; i < r->cap_visit; i++) {
        const visit *v = &r->visit[i];
        if (v->turn == r->turn) *free_visit(p, cap, r->turn, mix(v->node, v->parent, v->count)) = *v;
    }
    mem_free(r->visit);
    r->visit = p, r->cap_visit = cap;
    return true;
}

/* Whether this is the first time in this set. */
static bool first_visit(reader *r, uint32_t node, uint32_t parent, uint32_t count) {
    if (2 * r->n_visit >= r->cap_visit && !more_visits(r)) return false;
    size_t at = mix(node, parent, count) & (r->cap_visit - 1);
    for (; r->visit[at].turn == r->turn; at = (at + 1) & (r->cap_visit - 1)) {
        const visit *v = &r->visit[at];
        if (v->node == node && v->parent == parent && v->count == count) return false;
    }
    r->visit[at] = (visit){node, parent, count, r->turn};
    r->n_visit++;
    return true;
}

enum { FEW = 16, ITEM = 1u << 31 };

static bool same(const item *x, const item *y) {
    return x->frame == y->frame && x->state == y->state && x->count == y->count;
}

/* Whether the set has x: few positions are compared, many are looked up among what was followed. */
static bool is_new(reader *r, const item *x) {
    size_t n = r->n_item - r->begin;
    if (n > FEW) return first_visit(r, x->state | ITEM, x->frame, x->count);
    for (size_t i = r->begin; i < r->n_item; i++)
        if (same(&r->item[i], x)) return false;
    for (size_t i = r->begin; n == FEW && i < r->n_item; i++)
        first_visit(r, r->item[i].state | ITEM, r->item[i].frame, r->item[i].count);
    return n < FEW || first_visit(r, x->state | ITEM, x->frame, x->count);
}

bool reader_add(reader *r, item x) {
    if (r->n_item - r->begin >= READER_ITEMS || !is_new(r, &x)) return true;
    if (r->n_item == r->cap_item) {
        item *p = grow(r, r->item, &r->cap_item, r->n_item + 1, sizeof x);
        if (!p) return false;
        r->item = p;
    }
    r->item[r->n_item++] = x;
    return true;
}

void reader_new_set(reader *r) {
    r->begin = r->n_item;
    r->n_visit = 0;
    if (!++r->turn) {
        memset(r->visit, 0, r->cap_visit * sizeof *r->visit);
        r->turn = 1;
    }
}

/* Where to go on behind what leads to node: straight to the caller when nothing more comes there. */
static uint32_t return_to(reader *r, uint32_t node, uint32_t parent, uint32_t count) {
    const net_node *x = &r->g->node[node];
    if (x->final && !x->n) return parent;
    return frame_of(r, parent, node, count);
}

static void follow(reader *r, uint32_t node, uint32_t parent, uint32_t count);

static void pop(reader *r, uint32_t f) {
    const frame x = r->frame[f];
    if (f)
        follow(r, x.node, x.parent, x.count);
    else
        reader_add(r, (item){0});
}

static void follow_edge(reader *r, const net_edge *e, const net_rule *rule, uint32_t parent, uint32_t count) {
    const grammar *g = r->g;
    if (e->enough && count < rule->min) return;
    if (e->counts) {
        if (count >= rule->max) return; /* NO_LIMIT is never reached */
        if (rule->max != NO_LIMIT || count < rule->min) count++;
    }
    if (e->kind == EDGE_FREE)
        follow(r, e->to, parent, count);
    else if (e->kind == EDGE_TERMINAL)
        reader_add(r, (item){return_to(r, e->to, parent, count), g->terminal[e->what].start, 0});
    else
        follow(r, g->rule[e->what].start, return_to(r, e->to, parent, count), 0);
}

/* Adds the positions that node leads to without a byte. */
static void follow(reader *r, uint32_t node, uint32_t parent, uint32_t count) {
    const net_node *x = &r->g->node[node];
    const net_rule *rule = &r->g->rule[x->rule];
    if (r->failed || !first_visit(r, node, parent, count)) return;
    if (x->final) pop(r, parent);
    for (uint32_t i = x->first; i < x->first + x->n; i++) follow_edge(r, &r->g->edge[i], rule, parent, count);
}

size_t reader_start(reader *r) {
    reader_new_set(r);
    follow(r, r->g->rule[r->g->root].start, 0, 0);
    return r->n_item - r->begin;
}

size_t reader_behind(reader *r, uint32_t f) {
    reader_new_set(r);
    pop(r, f);
    return r->n_item - r->begin;
}

/* Counts a character that begins with the byte from x.state to state; false: it may not. */
static bool count_char(const grammar *g, item *x, uint32_t state) {
    const net_terminal *t = &g->terminal[g->of[state]];
    if (g->flags[state] & STATE_ACCEPT) return x->count >= t->min;
    if (x->count >= t->max) return false;
    if (t->max != NO_LIMIT || x->count < t->min) x->count++;
    return true;
}

size_t reader_step(reader *r, size_t from, size_t to, uint8_t byte, bool markup) {
    const grammar *g = r->g;
    reader_new_set(r);
    for (size_t i = from; i < to; i++) {
        item x = r->item[i];
        uint32_t state = grammar_step(g, x.state, byte);
        if (!state || (markup && !g->terminal[g->of[state]].markup)) continue;
        if ((g->flags[x.state] & STATE_COUNTS) && !count_char(g, &x, state)) continue;
        if (g->flags[state] & STATE_ON) reader_add(r, (item){x.frame, state, x.count});
        if (g->flags[state] & STATE_ACCEPT) pop(r, x.frame);
    }
    return r->n_item - r->begin;
}

bool reader_may_end(const reader *r, const item *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!x[i].state || (!x[i].frame && (r->g->flags[x[i].state] & STATE_MAY_END))) return true;
    return false;
}
