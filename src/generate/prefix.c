#include "generate/prefix.h"
#include "generate/prefix_parts.h"
#include <string.h>

prefix_cache *prefix_new(const lm *m, size_t budget, err *e) {
    prefix_cache *c = mem_alloc(sizeof *c);
    *c = (prefix_cache){.m = m, .budget = budget};
    if (prefix_find_states(c, e)) return c;
    prefix_free(c);
    return NULL;
}

void prefix_point_free(prefix_cache *c, prefix_point *p) {
    if (!p) return;
    prefix_rows_drop(c, p->rows);
    prefix_others_free(c, p->data);
    mem_free(p->ids);
    mem_free(p);
}

void prefix_free(prefix_cache *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n_point; i++) prefix_point_free(c, c->point[i]);
    mem_free(c->point);
    mem_free(c->state);
    mem_free(c);
}

bool prefix_rewinds(const prefix_cache *c) {
    return c->n_cache == c->n_state;
}

/* ---- what is kept, and how much of it ---- */

/* Rows that several points hold count once. */
static size_t bytes_kept(const prefix_cache *c) {
    size_t bytes = 0;
    for (size_t i = 0; i < c->n_point; i++) {
        const prefix_rows *r = c->point[i]->rows;
        bytes += c->point[i]->bytes;
        bool first = r;
        for (size_t k = 0; first && k < i; k++) first = c->point[k]->rows != r;
        if (first) bytes += r->bytes;
    }
    return bytes;
}

static void drop(prefix_cache *c, size_t i) {
    prefix_point_free(c, c->point[i]);
    c->point[i] = c->point[--c->n_point];
}

/* Drops what was used longest ago until `more` bytes fit; but not what was used now. False: they don't. */
static bool make_room(prefix_cache *c, size_t more) {
    for (size_t bytes; more <= c->budget && (bytes = bytes_kept(c)) > c->budget - more;) {
        size_t oldest = c->n_point;
        for (size_t i = 0; i < c->n_point; i++)
            if (c->point[i]->used < c->clock &&
                (oldest == c->n_point || c->point[i]->used < c->point[oldest]->used))
                oldest = i;
        if (oldest == c->n_point) return false;
        drop(c, oldest);
        c->figures.dropped++;
    }
    return more <= c->budget;
}

/* Whether the point's rows lie in d as they were: those that a failed call may have written don't. */
static bool lies_in(const prefix_point *p, const decoder *d) {
    return !p->rows && p->home == d && p->serial == decoder_serial(d) &&
           (decoder_intact(d) || p->n <= (size_t)decoder_sound(d));
}

/* Points that have nowhere to go back to. */
static void drop_lost(prefix_cache *c, const decoder *d) {
    for (size_t i = c->n_point; i-- > 0;)
        if (!c->point[i]->rows && c->point[i]->home == d && !lies_in(c->point[i], d)) drop(c, i);
}

/* d is about to lose what lies behind its first `stay` tokens: points there get rows of their own. */
static void move_out(prefix_cache *c, decoder *d, size_t stay) {
    size_t longest = 0;
    for (size_t i = 0; i < c->n_point; i++)
        if (lies_in(c->point[i], d) && c->point[i]->n > stay && c->point[i]->n > longest)
            longest = c->point[i]->n;
    if (!longest) return;
    prefix_rows *r = NULL;
    if (make_room(c, prefix_rows_bytes(c, longest))) r = prefix_rows_copy(c, d, longest);
    for (size_t i = c->n_point; i-- > 0;) {
        prefix_point *p = c->point[i];
        if (!lies_in(p, d) || p->n <= stay) continue;
        if (!r) {
            drop(c, i);
            c->figures.dropped++;
            continue;
        }
        p->rows = r;
        p->home = NULL;
        r->refs++;
    }
    if (r) prefix_rows_drop(c, r);
}

void prefix_leave(prefix_cache *c, decoder *d) {
    if (!c || !d) return;
    drop_lost(c, d);
    move_out(c, d, 0);
}

/* ---- keeping ---- */

static prefix_point *find(const prefix_cache *c, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < c->n_point; i++)
        if (c->point[i]->n == n && !memcmp(c->point[i]->ids, ids, n * sizeof *ids)) return c->point[i];
    return NULL;
}

void prefix_adopt(prefix_cache *c, prefix_point *p) {
    if (c->n_point == c->cap_point) {
        c->cap_point = c->cap_point ? 2 * c->cap_point : 16;
        c->point = mem_realloc(c->point, c->cap_point * sizeof *c->point);
    }
    p->used = c->clock;
    c->point[c->n_point++] = p;
}

static size_t others_bytes(const prefix_cache *c) {
    size_t bytes = 0;
    for (size_t i = c->n_cache; i < c->n_state; i++) bytes += c->state[i].bytes;
    return bytes;
}

void prefix_keep(prefix_cache *c, decoder *d) {
    size_t n = (size_t)decoder_position(d);
    if (!n || !decoder_intact(d)) return;
    c->clock++;
    drop_lost(c, d);
    prefix_point *p = find(c, decoder_fed(d), n);
    if (p) {
        p->used = c->clock;
        return;
    }
    if (!make_room(c, n * sizeof *p->ids + sizeof *p + others_bytes(c)) || !(p = mem_try(1, sizeof *p)))
        return;
    *p = (prefix_point){.n = n, .home = d, .serial = decoder_serial(d)};
    p->ids = mem_try(n, sizeof *p->ids);
    p->data = prefix_others_copy(c, d, &p->bytes);
    if (!p->ids || !p->data) {
        prefix_point_free(c, p);
        return;
    }
    memcpy(p->ids, decoder_fed(d), n * sizeof *p->ids);
    p->bytes += n * sizeof *p->ids + sizeof *p;
    prefix_adopt(c, p);
}

/* ---- seeking ---- */

void prefix_points_only(prefix_cache *c) {
    c->points_only = true;
}

/* Where a decoder may be put. */
typedef struct {
    size_t n;
    prefix_how how;
    prefix_point *point; /* whose states it gets; NULL: none */
} target;

static bool begins_with(const int32_t *ids, size_t n, const prefix_point *p) {
    return p->n <= n && !memcmp(ids, p->ids, p->n * sizeof *ids);
}

/* The best there is for ids, of which `most` may be reused and `same` are what d was fed. */
static target choose(const prefix_cache *c, const decoder *d, const int32_t *ids, size_t most, size_t same) {
    size_t at = (size_t)decoder_position(d);
    target t = {0, PREFIX_NEW, NULL};
    if (!c->points_only && at && at == same && at <= most) return (target){at, PREFIX_CONTINUED, NULL};
    if (!c->points_only && prefix_rewinds(c))
        for (size_t p = same < most ? same : most; p > t.n; p--)
            if (decoder_cuts(d)[p - 1]) t = (target){p, PREFIX_REWOUND, NULL};
    for (size_t i = 0; i < c->n_point; i++) {
        prefix_point *p = c->point[i];
        bool here = lies_in(p, d);
        if ((!here && !p->rows) || !begins_with(ids, most, p) || p->n < t.n) continue;
        if (p->n == t.n && (t.how == PREFIX_REWOUND || !here)) continue;
        t = (target){p->n, here ? PREFIX_REWOUND : PREFIX_RESTORED, p};
    }
    return t;
}

/* Back to the first n tokens that d was fed. */
static bool rewind_to(prefix_cache *c, decoder *d, const target *t, err *e) {
    move_out(c, d, t->n);
    uint64_t before = decoder_serial(d);
    if (!prefix_clear(c, d, t->n, e) || (t->point && !prefix_others_put(c, d, t->point->data, e)) ||
        !decoder_stand(d, decoder_fed(d), NULL, t->n, (int64_t)t->n, e))
        return false;
    for (size_t i = 0; i < c->n_point; i++) /* what lies before that is where it was */
        if (!c->point[i]->rows && c->point[i]->home == d && c->point[i]->serial == before)
            c->point[i]->serial = decoder_serial(d);
    return true;
}

/* To a point that has rows of its own; what is kept of d moves out first. */
static bool restore(prefix_cache *c, decoder *d, const target *t, err *e) {
    prefix_rows *r = t->point->rows;
    move_out(c, d, 0);
    if (!prefix_rows_put(c, d, r, t->n, e) || !prefix_others_put(c, d, t->point->data, e)) return false;
    return decoder_stand(d, t->point->ids, r->cut, t->n, (int64_t)t->n, e);
}

static bool go(prefix_cache *c, decoder *d, const target *t, err *e) {
    bool ok = true;
    if (t->point) t->point->used = c->clock;
    if (t->how == PREFIX_REWOUND) ok = rewind_to(c, d, t, e);
    if (t->how == PREFIX_RESTORED) ok = restore(c, d, t, e);
    if (t->how == PREFIX_NEW) move_out(c, d, 0);
    if (t->how == PREFIX_NEW || !ok) decoder_restart(d);
    return ok;
}

void prefix_recover(prefix_cache *c, decoder *d) {
    size_t most = (size_t)decoder_sound(d);
    err none = {0};
    if (decoder_intact(d)) return;
    target t = {0, PREFIX_NEW, NULL};
    if (c) drop_lost(c, d);
    for (size_t p = c && !c->points_only && prefix_rewinds(c) ? most : 0; p > t.n; p--)
        if (decoder_cuts(d)[p - 1]) t = (target){p, PREFIX_REWOUND, NULL};
    for (size_t i = 0; c && i < c->n_point; i++) {
        prefix_point *p = c->point[i];
        if (lies_in(p, d) && p->n > t.n) t = (target){p->n, PREFIX_REWOUND, p};
    }
    if (!t.n || !rewind_to(c, d, &t, &none)) decoder_restart(d);
}

bool prefix_seek(prefix_cache *c, decoder *d, const int32_t *ids, size_t n, prefix_place *at, err *e) {
    size_t had = decoder_intact(d) ? (size_t)decoder_position(d) : 0, same = 0;
    const int32_t *fed = decoder_fed(d);
    c->clock++;
    drop_lost(c, d);
    while (same < had && same < n && fed[same] == ids[same]) same++;
    target t = choose(c, d, ids, n ? n - 1 : 0, same);
    *at = (prefix_place){.same = same, .had = had, .how = t.how, .reused = t.n};
    if (!go(c, d, &t, e)) return false;
    c->figures.seeks++;
    c->figures.continued += t.how == PREFIX_CONTINUED;
    c->figures.rewound += t.how == PREFIX_REWOUND;
    c->figures.restored += t.how == PREFIX_RESTORED;
    c->figures.reused_ids += t.n;
    c->figures.prompt_ids += n;
    return true;
}

bool prefix_feed_rest(prefix_cache *c, decoder *d, const int32_t *ids, size_t n, size_t done,
                      const size_t *keep, size_t n_keep, const decoder_hooks *h, decoder_row *last, err *e) {
    for (size_t k = 0; c && k < n_keep; k++) {
        if (keep[k] <= done || keep[k] >= n) continue;
        if (!decoder_feed(d, ids + done, keep[k] - done, h, NULL, e)) return false;
        done = keep[k];
        prefix_keep(c, d);
    }
    if (!decoder_feed(d, ids + done, n - done, h, last, e)) return false;
    for (size_t k = 0; c && k < n_keep; k++)
        if (keep[k] == n) prefix_keep(c, d);
    return true;
}

bool prefix_feed(prefix_cache *c, decoder *d, const int32_t *ids, size_t n, const size_t *keep, size_t n_keep,
                 const decoder_hooks *h, decoder_row *last, prefix_place *at, err *e) {
    return prefix_seek(c, d, ids, n, at, e) &&
           prefix_feed_rest(c, d, ids, n, at->reused, keep, n_keep, h, last, e);
}

prefix_figures prefix_figures_of(const prefix_cache *c) {
    prefix_figures f = c->figures;
    f.points = c->n_point;
    f.bytes = bytes_kept(c);
    f.budget = c->budget;
    return f;
}
