#include "generate/batch.h"
#include "generate/step.h"
#include "runtime/batch.h"
#include <string.h>

/* A decoder's call on its way through the packages. */
typedef struct {
    batch_step_one *one;
    size_t n; /* packages that it goes through */
    rt_call run;
} lane;

struct batch {
    const lm *m;
    rt_batch **package; /* one a package */
    lane *lane;
    rt_batch_call *call;
    size_t *of; /* by index in call: which lane's */
    size_t room;
    batch_figures figures;
    bool told; /* that they go in turn */
};

batch *batch_new(const lm *m, rt_mode mode, unsigned threads, err *e) {
    batch *b = mem_alloc(sizeof *b);
    *b = (batch){.m = m, .package = mem_try(m->n_model, sizeof *b->package)};
    if (!b->package) {
        err_set(e, ERR_MEMORY, "no memory for a batch");
        mem_free(b);
        return NULL;
    }
    for (size_t i = 0; i < m->n_model; i++) {
        b->package[i] = rt_batch_new(m->model[i], mode, threads);
        if (i) rt_batch_share(b->package[i], b->package[0]);
    }
    return b;
}

void batch_free(batch *b) {
    if (!b) return;
    for (size_t i = 0; i < b->m->n_model; i++) rt_batch_free(b->package[i]);
    mem_free(b->package);
    mem_free(b->lane);
    mem_free(b->call);
    mem_free(b->of);
    mem_free(b);
}

void batch_adopt(batch *b, decoder *d) {
    for (size_t i = 0; i < b->m->n_model; i++) rt_batch_adopt(b->package[0], decoder_session(d, i));
}

batch_figures batch_figures_of(const batch *b) {
    return b->figures;
}

bool batch_traffic(const batch *b, size_t package, rt_traffic *t) {
    return rt_batch_traffic(b->package[package], t);
}

static bool grow(batch *b, size_t n, err *e) {
    if (n <= b->room) return true;
    lane *l = mem_try_realloc(b->lane, n * sizeof *l);
    if (l) b->lane = l;
    rt_batch_call *c = mem_try_realloc(b->call, n * sizeof *c);
    if (c) b->call = c;
    size_t *of = mem_try_realloc(b->of, n * sizeof *of);
    if (of) b->of = of;
    if (l && c && of) b->room = n;
    return b->room >= n || err_set(e, ERR_MEMORY, "no memory for a step of %zu decoders", n);
}

static void begin(lane *l, batch_step_one *one) {
    *l = (lane){.one = one};
    one->e = (err){0};
    one->row = (decoder_row){0};
    bool every = one->hooks && one->hooks->row;
    bool goes_on = one->id < 0 && decoder_left(one->d);
    one->ok = (goes_on || decoder_begin(one->d, &one->id, 1, every, &one->e)) &&
              decoder_call_begin(one->d, one->hooks, &one->e);
    if (one->ok) l->n = caller_begin(decoder_caller(one->d), decoder_call_at(one->d));
}

/* Package i of all lanes that go through it. Returns how many there were. */
static size_t run_package(batch *b, size_t n, size_t i, size_t *together) {
    size_t count = 0;
    for (size_t k = 0; k < n; k++) {
        lane *l = &b->lane[k];
        batch_step_one *one = l->one;
        if (!one->ok || i >= l->n) continue;
        one->ok = caller_stage(decoder_caller(one->d), decoder_call_at(one->d), i, &l->run, &one->e);
        if (!one->ok) continue;
        b->of[count] = k;
        b->call[count++] = (rt_batch_call){decoder_session(one->d, i), &l->run, &one->e, false};
    }
    *together = rt_batch_run(b->package[i], b->call, count);
    for (size_t k = 0; k < count; k++) {
        batch_step_one *one = b->lane[b->of[k]].one;
        one->ok =
            caller_end_stage(decoder_caller(one->d), decoder_call_at(one->d), i, b->call[k].ok, &one->e);
    }
    return count;
}

/* Nothing was walked together although there were several. */
static void tell(batch *b) {
    if (!b->told)
        heap_log(HEAP_LOG_WARNING, "%s: decoders that go on at the same time are run in turn", b->m->name[0]);
    b->told = true;
}

void batch_step(batch *b, batch_step_one *list, size_t n) {
    err e = {0};
    size_t together = 0;
    if (!grow(b, n, &e)) {
        for (size_t i = 0; i < n; i++) list[i].ok = false, list[i].e = e;
        return;
    }
    for (size_t i = 0; i < n; i++) begin(&b->lane[i], &list[i]);
    for (size_t i = 0; i < b->m->n_model; i++) {
        size_t so, count = run_package(b, n, i, &so);
        if (i == 0) together = so;
        if (i == 0 && count > 1 && !so) tell(b);
    }
    for (size_t i = 0; i < n; i++) {
        batch_step_one *one = &list[i];
        one->ok = one->ok && decoder_call_end(one->d, one->hooks, &one->row, &one->e);
        b->figures.tokens += one->ok;
    }
    b->figures.steps += n > 0;
    b->figures.together += together;
}
