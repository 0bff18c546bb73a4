#include "structured/matcher.h"
#include "structured/mask.h"
#include <string.h>

/* Positions behind one accepted call. */
typedef struct {
    item *x;
    size_t n, cap;
    bool ended;
} point;

struct matcher {
    heap *home;
    grammar *g;
    const vocabulary *v;
    reader r;
    point past[MATCHER_HISTORY + 1]; /* a ring */
    size_t now, depth;               /* how many lie before it */
    size_t *at;
};

/* ---- points ---- */

static point *here(const matcher *m) {
    return (point *)&m->past[m->now];
}

typedef struct {
    item *x;
    size_t n;
} room;

static void take_room(void *ctx) {
    room *r = ctx;
    r->x = mem_try(r->n, sizeof *r->x);
}

static bool set_point(const matcher *m, point *p, const item *x, size_t n, bool ended) {
    if (n > p->cap) {
        room more = {NULL, n * 2};
        if (!mem_guard(m->home, take_room, &more, NULL) || !more.x) return false;
        mem_free(p->x);
        p->x = more.x;
        p->cap = n * 2;
    }
    if (n) memcpy(p->x, x, n * sizeof *x);
    p->n = n;
    p->ended = ended;
    return true;
}

/* The pool's only set is where the text stands. */
static bool load(matcher *m) {
    const point *p = here(m);
    m->r.n_item = 0;
    reader_new_set(&m->r);
    for (size_t i = 0; i < p->n; i++)
        if (!reader_add(&m->r, p->x[i])) return false;
    return true;
}

static bool advance(matcher *m, const item *x, size_t n, bool ended) {
    size_t next = (m->now + 1) % (MATCHER_HISTORY + 1);
    if (!set_point(m, &m->past[next], x, n, ended)) return false;
    m->now = next;
    if (m->depth < MATCHER_HISTORY) m->depth++;
    return true;
}

/* ---- beginning and end ---- */

matcher *matcher_new(grammar *g, const vocabulary *v, err *e) {
    matcher *m = mem_alloc(sizeof *m);
    *m = (matcher){.home = heap_current(), .v = v};
    m->g = grammar_share(g);
    m->at = mem_try((size_t)v->all.height + 2, sizeof *m->at);
    if (m->at && reader_begin(&m->r, g, m->home)) {
        size_t n = reader_start(&m->r);
        if (!m->r.failed && set_point(m, here(m), m->r.item, n, false)) return m;
    }
    err_set(e, ERR_MEMORY, "no memory to follow a grammar");
    matcher_free(m);
    return NULL;
}

void matcher_free(matcher *m) {
    if (!m) return;
    for (size_t i = 0; i <= MATCHER_HISTORY; i++) mem_free(m->past[i].x);
    reader_end(&m->r);
    mem_free(m->at);
    grammar_free(m->g);
    mem_free(m);
}

matcher *matcher_clone(const matcher *from, err *e) {
    matcher *m = matcher_new(from->g, from->v, e);
    if (!m) return NULL;
    reader_end(&m->r);
    bool ok = reader_copy(&m->r, &from->r, m->home);
    for (size_t i = 0; ok && i <= MATCHER_HISTORY; i++)
        ok = set_point(m, &m->past[i], from->past[i].x, from->past[i].n, from->past[i].ended);
    m->now = from->now;
    m->depth = from->depth;
    if (ok) return m;
    err_set(e, ERR_MEMORY, "no memory to follow a grammar");
    matcher_free(m);
    return NULL;
}

void matcher_reset(matcher *m) {
    m->r.n_item = 0;
    m->r.failed = false;
    reader_drop_frames(&m->r, 1);
    size_t n = reader_start(&m->r);
    m->now = m->depth = 0;
    if (m->r.failed || !set_point(m, here(m), m->r.item, n, false)) here(m)->n = 0;
}

/* ---- going on ---- */

bool matcher_mask(matcher *m, uint32_t *bits, err *e) {
    size_t words = vocabulary_words(m->v);
    const point *p = here(m);
    m->r.failed = false;
    if (!load(m) || !mask_of(&m->r, m->g, m->v, 0, p->n, m->at, bits))
        return err_set(e, ERR_MEMORY, "no memory to follow a grammar");
    for (size_t i = 0; i < words; i++)
        if (bits[i]) return true;
    return err_set(e, ERR_INVALID,
                   p->ended ? "the text has ended: nothing may follow"
                            : "no token of the vocabulary may come next: the grammar needs a "
                              "byte that it lacks");
}

/* Reads bytes from the set [0, here->n); the range of the last set, empty when one is not allowed. */
static bool read_bytes(matcher *m, const uint8_t *s, size_t n, bool markup, size_t *from, size_t *to) {
    m->r.failed = false;
    if (!load(m)) return false;
    *from = 0;
    *to = m->r.n_item;
    for (size_t i = 0; i < n && *from < *to; i++) {
        size_t end = *to;
        reader_step(&m->r, *from, end, s[i], markup);
        if (m->r.failed) return false;
        if (*from) { /* the set before is not needed any more */
            size_t k = m->r.n_item - end;
            memmove(m->r.item + *from, m->r.item + end, k * sizeof(item));
            *to = m->r.n_item = *from + k;
        } else {
            *from = end;
            *to = m->r.n_item;
        }
    }
    return *from < *to;
}

static bool accept(matcher *m, const uint8_t *s, size_t n, bool markup) {
    size_t from, to, frames = m->r.n_frame;
    if (!here(m)->ended && read_bytes(m, s, n, markup, &from, &to) &&
        advance(m, m->r.item + from, to - from, false))
        return true;
    reader_drop_frames(&m->r, frames);
    return false;
}

bool matcher_accept_bytes(matcher *m, const void *bytes, size_t n) {
    return accept(m, bytes, n, false);
}

bool matcher_accept(matcher *m, int32_t id) {
    const vocabulary *v = m->v;
    if (id < 0 || id >= v->limit) return false;
    switch ((token_kind)v->kind[id]) {
    case TOKEN_NONE: return false;
    case TOKEN_STOP: return !here(m)->ended && matcher_may_end(m) && advance(m, NULL, 0, true);
    default: break;
    }
    return accept(m, v->text + v->start[id], v->start[id + 1] - v->start[id], v->kind[id] == TOKEN_ADDED);
}

bool matcher_allows(matcher *m, int32_t id) {
    const vocabulary *v = m->v;
    if (id < 0 || id >= v->limit || here(m)->ended || v->kind[id] == TOKEN_NONE) return false;
    if (v->kind[id] == TOKEN_STOP) return matcher_may_end(m);
    size_t from, to, frames = m->r.n_frame;
    bool ok = read_bytes(m, v->text + v->start[id], v->start[id + 1] - v->start[id],
                         v->kind[id] == TOKEN_ADDED, &from, &to);
    reader_drop_frames(&m->r, frames);
    return ok;
}

bool matcher_rollback(matcher *m, size_t n) {
    if (n > m->depth) return false;
    m->depth -= n;
    m->now = (m->now + MATCHER_HISTORY + 1 - n) % (MATCHER_HISTORY + 1);
    return true;
}

int32_t matcher_limit(const matcher *m) {
    return m->v->limit;
}

bool matcher_may_end(const matcher *m) {
    const point *p = here(m);
    return !p->ended && reader_may_end(&m->r, p->x, p->n);
}

bool matcher_must_end(const matcher *m) {
    const point *p = here(m);
    return !p->ended && p->n == 1 && !p->x[0].state;
}

bool matcher_ended(const matcher *m) {
    return here(m)->ended;
}
