#include "plan/profile.h"
#include "base/clock.h"
#include "plan/steps.h"
#include <stdlib.h>
#include <string.h>

struct plan_profile {
    const plan *p;
    unsigned workers;
    uint64_t runs;
    plan_lap *lap;   /* [workers][n_step + 1] */
    double *stopped; /* [workers]: when the last walk ended */
    double *least;   /* [n_step]: as plan_profile_least() says */
    double begin;    /* of the run at hand */
};

plan_profile *plan_profile_new(const plan *p, unsigned workers) {
    plan_profile *m = mem_alloc(sizeof *m);
    *m = (plan_profile){.p = p, .workers = workers};
    m->lap = mem_try(workers * (p->n_step + 1), sizeof *m->lap);
    m->stopped = mem_try(workers, sizeof *m->stopped);
    m->least = mem_try(p->n_step + 1, sizeof *m->least);
    if (m->lap && m->stopped && m->least) return m;
    plan_profile_free(m);
    return NULL;
}

void plan_profile_free(plan_profile *m) {
    if (!m) return;
    mem_free(m->lap);
    mem_free(m->stopped);
    mem_free(m->least);
    mem_free(m);
}

uint64_t plan_profile_runs(const plan_profile *m) {
    return m->runs;
}

unsigned plan_profile_workers(const plan_profile *m) {
    return m->workers;
}

size_t plan_profile_steps(const plan_profile *m) {
    return m->p->n_step;
}

static plan_lap *laps_of(const plan_profile *m, unsigned worker) {
    return m->lap + worker * (m->p->n_step + 1);
}

plan_lap plan_profile_lap(const plan_profile *m, unsigned worker, size_t step) {
    return laps_of(m, worker)[step];
}

/* ---- measuring ---- */

static double since(double *at) {
    double now = clock_seconds(), took = now - *at;
    *at = now;
    return took;
}

void plan_profile_work(plan_lap *lap, double *at) {
    double took = since(at);
    lap->work += took;
    lap->last = took;
}

void plan_profile_wait(plan_lap *lap, double *at) {
    lap->wait += since(at);
}

void plan_profile_begin(plan_profile *m) {
    m->begin = clock_seconds();
}

plan_lap *plan_profile_start(plan_profile *m, unsigned worker, double *at) {
    if (!m) return NULL;
    plan_lap *lap = laps_of(m, worker);
    *at = m->begin;
    plan_profile_wait(&lap[m->p->n_step], at);
    return lap;
}

void plan_profile_stop(plan_profile *m, unsigned worker, double at) {
    m->stopped[worker] = at;
}

void plan_profile_end(plan_profile *m) {
    double now = clock_seconds();
    for (unsigned i = 0; i < m->workers; i++) laps_of(m, i)[m->p->n_step].wait += now - m->stopped[i];
    for (size_t i = 0; i < m->p->n_step; i++) {
        double sum = 0;
        for (unsigned w = 0; w < m->workers; w++) sum += laps_of(m, w)[i].last;
        if (!m->runs || sum < m->least[i]) m->least[i] = sum;
    }
    m->runs++;
}

double plan_profile_least(const plan_profile *m, size_t step) {
    return m->least[step];
}

/* ---- what steps are ---- */

/* The number behind "layer", "layers", "block" or "blocks" and one separator: layer_3_mlp,
 * model.layers.3.mlp.
 */
static int64_t layer_in(const char *name) {
    static const char *const words[] = {"layer", "block"};
    for (size_t i = 0; name && i < sizeof words / sizeof *words; i++)
        for (const char *at = strstr(name, words[i]); at; at = strstr(at + 1, words[i])) {
            const char *digit = at + strlen(words[i]);
            digit += *digit == 's';
            if (!*digit || digit[1] < '0' || digit[1] > '9') continue;
            return strtol(digit + 1, NULL, 10);
        }
    return -1;
}

static int64_t layer_of(const ir_op *op) {
    int64_t layer = -1;
    for (uint32_t i = 0; i < op->n_out && layer < 0; i++) layer = layer_in(op->out[i]->name);
    for (int s = 0; s < ir_info(op->code)->n_slot && layer < 0; s++)
        for (uint32_t k = 0; k < op->arg[s].n && layer < 0; k++)
            if (op->arg[s].v[k]->konst) layer = layer_in(op->arg[s].v[k]->name);
    return layer;
}

static double attention_flops(int64_t heads, int64_t tokens, int64_t keys, int64_t d) {
    return 2.0 * (double)(heads * tokens * keys * d);
}

/* Decay, product with the key, update, product with the query: eight operations an element of the state. */
static double delta_flops(int64_t heads, const kern_delta *j) {
    return 8.0 * (double)(heads * j->tokens * j->dk * j->dv);
}

/* Of one weight; those of a step add up. */
static void add_linear(const step_linear *s, plan_step_info *t) {
    t->rows += s->w.rows, t->cols = s->w.cols, t->n = s->m;
    t->bits = s->w.bits;
    t->slow |= kern_kind_of(&s->w) == KERN_W_ANY;
    t->flops += 2.0 * (double)s->m * (double)s->w.rows * (double)s->w.cols;
}

static void describe_matmul(const step_matmul *s, plan_step_info *t) {
    t->flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    for (int d = 0; d < s->rank; d++) t->flops *= (double)s->dim[d];
}

static void describe_attention(const plan_step *s, plan_step_info *t) {
    t->by_keys = true;
    if (s->fn == run_fast_attention) {
        const kern_attention *j = &((const step_fast_attention *)s->param)->job;
        t->flops = attention_flops(j->heads, j->tokens, j->keys, j->d + j->d_v);
    } else {
        const kern_rounded_attention *j = &((const step_attention *)s->param)->job;
        t->flops = attention_flops(j->groups * j->heads, j->tokens, j->keys, j->depth + j->value_depth);
    }
}

static void describe_work(const plan_step *s, plan_step_info *t) {
    if (s->fn == run_linear) {
        add_linear(s->param, t);
    } else if (s->fn == run_gated) {
        const step_gated *p = s->param;
        add_linear(&p->part[0], t);
        add_linear(&p->part[1], t);
    } else if (s->fn == run_gated_rows) {
        const step_gated_rows *p = s->param;
        add_linear(&p->part[0], t);
        add_linear(&p->part[1], t);
    } else if (s->fn == run_matmul) {
        describe_matmul(s->param, t);
    } else if (s->fn == run_fast_attention || s->fn == run_attention) {
        describe_attention(s, t);
    } else if (s->fn == run_fast_delta) {
        t->flops = delta_flops(s->extent, &((const step_fast_delta *)s->param)->job);
    } else if (s->fn == run_tokens_delta) {
        t->flops = delta_flops(s->extent, &((const step_tokens_delta *)s->param)->job);
    } else if (s->fn == run_delta) {
        const step_delta *d = s->param;
        t->flops = delta_flops(s->extent, &(kern_delta){.tokens = 1, .dk = d->dk, .dv = d->dv});
    }
}

static bool is_plain(plan_fn *fn) {
    static plan_fn *const plain[] = {run_copy,   run_unary,  run_cast,    run_binary, run_select,
                                     run_reduce, run_argmax, run_softmax, run_matmul};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i] == fn) return true;
    return false;
}

plan_step_info plan_profile_step(const plan_profile *m, size_t step) {
    const plan_step *s = &m->p->step[step];
    plan_step_info t = {.kernel = s->kernel,
                        .op = s->origin ? ir_info(s->origin->code)->name : "",
                        .result = s->origin && s->origin->n_out ? s->origin->out[0]->name : "",
                        .layer = s->origin ? layer_of(s->origin) : -1,
                        .barrier = s->barrier,
                        .bytes = s->bytes};
    describe_work(s, &t);
    t.slow |= s->fallback;
    t.plain = is_plain(s->fn);
    return t;
}

plan_work plan_work_of(const plan *p) {
    plan_work sum = {0, 0};
    for (size_t i = 0; i < p->n_step; i++) {
        plan_step_info t = {0};
        describe_work(&p->step[i], &t);
        *(t.by_keys ? &sum.by_keys : &sum.flops) += t.flops;
    }
    return sum;
}
