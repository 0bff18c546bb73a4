#include "generate/profile.h"
#include "runtime/profile.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BEFORE INT64_C(-1) /* layers: what comes before the first, behind the last */
#define BEHIND INT64_MAX

typedef struct {
    profile_row *row;
    int64_t *key; /* layers: the number */
    size_t n, cap;
} table;

typedef struct {
    arena *a;
    profile *p;
    double visible;
    table kernel, layer;
} collector;

static profile_row new_row(const collector *c, const char *name) {
    return (profile_row){.name = name,
                         .work = ARENA_ARRAY(c->a, double, c->p->workers),
                         .wait = ARENA_ARRAY(c->a, double, c->p->workers)};
}

/* The table's row of that name, and key. */
static size_t row_of(const collector *c, table *t, const char *name, int64_t key) {
    for (size_t i = 0; i < t->n; i++)
        if (t->key[i] == key && !strcmp(t->row[i].name, name)) return i;
    size_t cap = t->cap;
    t->row = arena_grow(c->a, t->row, t->n, &cap, t->n + 1, sizeof *t->row);
    t->key = arena_grow(c->a, t->key, t->n, &t->cap, t->n + 1, sizeof *t->key);
    t->row[t->n] = new_row(c, arena_str(c->a, name));
    t->key[t->n] = key;
    return t->n++;
}

static const char *kernel_name(const collector *c, const plan_step_info *s) {
    if (!s->rows) return s->slow ? arena_printf(c->a, "%s: %s", s->kernel, s->op) : s->kernel;
    const char *bits = s->bits ? arena_printf(c->a, " %u bits", s->bits) : "",
               *rows = s->n > 1 ? arena_printf(c->a, " x %" PRId64, s->n) : "";
    return arena_printf(c->a, "%s%s %" PRId64 " x %" PRId64 "%s", s->kernel, bits, s->rows, s->cols, rows);
}

static const char *layer_name(const collector *c, int64_t layer) {
    return layer == BEFORE   ? "before layers"
           : layer == BEHIND ? "behind layers"
                             : arena_printf(c->a, "layer %" PRId64, layer);
}

/* The layer of each step: where names don't tell, the one before it. */
static int64_t *layers_of(const collector *c, const plan_profile *m) {
    size_t n = plan_profile_steps(m), last = 0;
    int64_t *layer = ARENA_ARRAY(c->a, int64_t, n + 1), at = BEFORE;
    for (size_t i = 0; i < n; i++) {
        plan_step_info s = plan_profile_step(m, i);
        if (s.layer >= 0) at = s.layer, last = i + 1;
        layer[i] = at;
    }
    for (size_t i = last; i < n && last; i++) layer[i] = BEHIND;
    return layer;
}

/* Of the steps [from, to), the one behind which the workers are furthest apart. */
static size_t most_uneven(const plan_profile *m, size_t from, size_t to) {
    double widest = -1;
    size_t found = from;
    for (size_t i = from; i < to; i++) {
        double low = plan_profile_lap(m, 0, i).work, high = low;
        for (unsigned w = 1; w < plan_profile_workers(m); w++) {
            double x = plan_profile_lap(m, w, i).work;
            low = x < low ? x : low, high = x > high ? x : high;
        }
        if (high - low > widest) widest = high - low, found = i;
    }
    return found;
}

typedef struct {
    size_t kernel, layer; /* rows */
} place;

static void add_work(collector *c, const plan_profile *m, size_t i, const place *at,
                     const plan_step_info *s) {
    profile_row *rows[] = {&c->kernel.row[at->kernel], &c->layer.row[at->layer], &c->p->all};
    double least = plan_profile_least(m, i) / c->p->workers;
    double share = s->by_keys ? c->visible : 1, runs = (double)plan_profile_runs(m);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        rows[k]->calls += plan_profile_runs(m);
        rows[k]->bytes += share * runs * (double)s->bytes;
        rows[k]->flops += share * runs * s->flops;
        rows[k]->least += least * runs;
        rows[k]->slow |= s->slow;
        for (unsigned w = 0; w < c->p->workers; w++) rows[k]->work[w] += plan_profile_lap(m, w, i).work;
    }
}

static void add_wait(collector *c, const plan_profile *m, size_t i, profile_row *a, profile_row *b) {
    for (unsigned w = 0; w < c->p->workers; w++) {
        double wait = plan_profile_lap(m, w, i).wait;
        a->wait[w] += wait;
        if (b) b->wait[w] += wait;
        c->p->all.wait[w] += wait;
    }
}

static void collect(void *ctx, const char *function, const plan_profile *m) {
    collector *c = ctx;
    (void)function;
    if (!c->p->workers) {
        c->p->workers = plan_profile_workers(m);
        c->p->all = new_row(c, "all");
        c->p->call = new_row(c, "begin and end of calls");
    }
    size_t n = plan_profile_steps(m), since = 0;
    int64_t *layer = layers_of(c, m);
    place *at = ARENA_ARRAY(c->a, place, n + 1);
    for (size_t i = 0; i < n; i++) {
        plan_step_info s = plan_profile_step(m, i);
        at[i] = (place){row_of(c, &c->kernel, kernel_name(c, &s), 0),
                        row_of(c, &c->layer, layer_name(c, layer[i]), layer[i])};
        add_work(c, m, i, &at[i], &s);
        if (!s.barrier) continue;
        const place *owner = &at[most_uneven(m, since, i > since ? i : i + 1)];
        add_wait(c, m, i, &c->kernel.row[owner->kernel], &c->layer.row[owner->layer]);
        since = i;
    }
    add_wait(c, m, n, &c->p->call, NULL);
    c->p->call.calls += plan_profile_runs(m);
    c->p->runs += plan_profile_runs(m);
}

/* ---- order ---- */

double profile_most(const double *by_worker, unsigned workers) {
    double most = 0;
    for (unsigned i = 0; i < workers; i++)
        if (by_worker[i] > most) most = by_worker[i];
    return most;
}

static double cost(const profile *p, const profile_row *r) {
    double sum = 0;
    for (unsigned i = 0; i < p->workers; i++) sum += r->work[i] + r->wait[i];
    return sum;
}

/* Insertion sort: kernels by cost, layers by number. */
static void sort(const profile *p, table *t, bool by_cost) {
    for (size_t i = 1; i < t->n; i++)
        for (size_t k = i; k > 0; k--) {
            bool right =
                by_cost ? cost(p, &t->row[k - 1]) >= cost(p, &t->row[k]) : t->key[k - 1] <= t->key[k];
            if (right) break;
            profile_row r = t->row[k];
            int64_t key = t->key[k];
            t->row[k] = t->row[k - 1], t->key[k] = t->key[k - 1];
            t->row[k - 1] = r, t->key[k - 1] = key;
        }
}

void profile_begin(const decoder *d) {
    for (size_t i = 0; i < decoder_lm(d)->n_model; i++) rt_session_profile(decoder_session(d, i), true);
}

profile profile_end(const decoder *d, arena *a, double seconds, int64_t tokens, double visible) {
    profile p = {.seconds = seconds, .tokens = tokens};
    collector c = {.a = a, .p = &p, .visible = visible};
    for (size_t i = 0; i < decoder_lm(d)->n_model; i++) {
        rt_session_profiles(decoder_session(d, i), collect, &c);
        rt_session_profile(decoder_session(d, i), false);
    }
    sort(&p, &c.kernel, true);
    sort(&p, &c.layer, false);
    p.kernel = c.kernel.row, p.n_kernel = c.kernel.n;
    p.layer = c.layer.row, p.n_layer = c.layer.n;
    return p;
}
