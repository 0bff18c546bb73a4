#include "runtime/engine.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "runtime/session.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PLANS 32 /* of a model; the one unused for longest goes first */
#define MOST_EXECS 16 /* of a session */

typedef struct {
    const rt_function *f;
    bool strict;
    ir_type *in;
    plan *p; /* NULL: can't be planned */
    uint64_t used;
} planned;

struct rt_plans {
    pthread_mutex_t lock;
    planned list[MOST_PLANS];
    size_t n;
    uint64_t clock;
    kern_table kernels;
    kern_rounded ops;
    kern_ops fast;
    plan_linear linear;
    heap *heap;     /* what they lie in */
    double seconds; /* spent on making plans */
};

static bool path_of(const char *word, size_t n, kern_path *path) {
    for (int i = 0; i < KERN_PATHS; i++)
        if (strlen(kern_path_name[i]) == n && !memcmp(kern_path_name[i], word, n))
            return *path = (kern_path)i, true;
    return false;
}

bool rt_linear_parse(const char *text, plan_linear *l) {
    size_t n = strcspn(text, ",");
    const char *second = text[n] ? text + n + 1 : text;
    plan_linear got;
    if (!path_of(text, n, &got.decode) || !path_of(second, strlen(second), &got.prefill)) return false;
    *l = got;
    return true;
}

plan_linear rt_linear(void) {
    plan_linear l = {KERN_INT16, KERN_BF16};
    const char *wanted = getenv("MILLET_LINEAR");
    if (wanted) rt_linear_parse(wanted, &l);
    return l;
}

rt_plans *rt_plans_new(void) {
    rt_plans *p = mem_alloc(sizeof *p);
    err ignored = {0};
    *p = (rt_plans){.linear = rt_linear(), .heap = heap_current()};
    kern_rounded_open(&p->ops, getenv("MILLET_ISA"));
    if (!kern_open(&p->kernels, getenv("MILLET_ISA"), &ignored)) kern_open(&p->kernels, NULL, &ignored);
    if (!kern_ops_open(&p->fast, getenv("MILLET_ISA"), &ignored)) kern_ops_open(&p->fast, NULL, &ignored);
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

bool engine_scan(const rt_plans *p, const float *x, size_t n, size_t *largest) {
    int64_t at = 0;
    bool finite = p->fast.scan(x, (int64_t)n, &at);
    *largest = (size_t)at;
    return finite;
}

static void forget(planned *e) {
    plan_free(e->p);
    mem_free(e->in);
    *e = (planned){0};
}

void rt_plans_linear(rt_plans *p, plan_linear l) {
    p->linear = l;
}

void rt_plans_free(rt_plans *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n; i++) forget(&p->list[i]);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

static bool matches(const planned *e, const rt_function *f, bool strict, const ir_type *in) {
    if (e->f != f || e->strict != strict) return false;
    for (size_t i = 0; i < f->plan->f->n_in; i++)
        if (f->state[i] == SIZE_MAX && !ir_type_equal(&e->in[i], &in[i])) return false;
    return true;
}

/* An input that is one row of flexible length (a mask over all positions, or the positions themselves: one
 * longer at every token) is left open, so that one plan serves all lengths. False: there is none. */
static bool open_lengths(const rt_function *f, ir_type *in) {
    bool any = false;
    for (size_t i = 0; i < f->plan->f->n_in; i++) {
        const ir_type *declared = &f->plan->f->in[i]->type;
        int last = declared->rank - 1;
        if (!f->row[i] || declared->dim[last] != IR_DIM_UNKNOWN || ir_type_count(&in[i]) != in[i].dim[last])
            continue;
        in[i].dim[last] = IR_DIM_UNKNOWN;
        any = true;
    }
    return any;
}

static planned *entry_for(rt_plans *p) {
    if (p->n < MOST_PLANS) return &p->list[p->n++];
    planned *old = &p->list[0];
    for (size_t i = 1; i < p->n; i++)
        if (p->list[i].used < old->used) old = &p->list[i];
    forget(old);
    return old;
}

/* A plan to make, and then what there is to say of it. */
typedef struct {
    const rt_plans *g;
    const rt_function *f;
    bool strict;
    const ir_type *in;
    plan *made;
    err why; /* there is none: the evaluator runs it instead, and says what is wrong with it */
    double seconds;
    str stages; /* of MILLET_DUMP */
} making;

static void make_plan(void *ctx) {
    making *k = ctx;
    const rt_plans *g = k->g;
    const char *stages = heap_logs() ? getenv("MILLET_DUMP") : NULL;
    plan_options o = {k->strict, &g->kernels, &g->ops, &g->fast, g->linear, stages ? &k->stages : NULL,
                      stages};
    k->made = plan_new(k->f->plan->f, k->in, &o, &k->why);
    if (stages && !k->made) str_printf(&k->stages, "no plan: %s\n", k->why.msg);
}

/* In a heap of its own, which lasts as long as the plan. */
static void make(rt_plans *g, making *k) {
    double start = clock_seconds();
    size_t wanted;
    heap *h = g->heap ? heap_new(g->heap, NULL) : NULL;
    if (g->heap && !h) mem_die(0);
    if (!mem_guard(h, make_plan, k, &wanted)) {
        heap_drop(h);
        mem_die(wanted);
    }
    heap_leave(h);
    k->seconds = clock_seconds() - start;
    g->seconds += k->seconds;
}

/* Without the lock: the reader may ask for the plans' figures. */
static void say(making *k) {
    if (!k->f) return;
    if (k->stages.len) heap_log(HEAP_LOG_DUMP, "%s", str_get(&k->stages));
    str_free(&k->stages);
    if (k->made)
        heap_log(HEAP_LOG_INFO, "function %s: planned in %.1f ms", k->f->desc->name, k->seconds * 1e3);
    else
        heap_log(HEAP_LOG_WARNING, "function %s: no plan, it will be evaluated op by op: %s",
                 k->f->desc->name, k->why.msg);
}

static ir_type default_type(const coreml_function *desc, const ir_value *v) {
    for (size_t i = 0; i < desc->n_in; i++)
        if (!strcmp(desc->in[i].name, v->name))
            return ir_tensor(v->type.dtype, desc->in[i].type.rank, desc->in[i].type.dim);
    return v->type;
}

static void print_plan(str *out, const rt_plans *g, const ir_function *f, const coreml_function *desc) {
    err e = {0};
    ir_type *in = mem_alloc((f->n_in + 1) * sizeof *in);
    for (size_t i = 0; i < f->n_in; i++) in[i] = default_type(desc, f->in[i]);
    plan *p =
        plan_new(f, in, &(plan_options){false, &g->kernels, &g->ops, &g->fast, g->linear, NULL, NULL}, &e);
    if (p)
        plan_print(out, p);
    else
        str_printf(out, "no plan of %s: %s\n", f->name, e.msg);
    plan_free(p);
    mem_free(in);
}

void rt_print_plans(str *out, const coreml_model *m) {
    rt_plans *g = rt_plans_new();
    for (size_t i = 0; i < m->n_func; i++) {
        const ir_function *f = m->program ? ir_function_find(m->program, m->func[i].name) : NULL;
        if (f) print_plan(out, g, f, &m->func[i]);
    }
    rt_plans_free(g);
    for (size_t i = 0; i < m->n_part; i++) rt_print_plans(out, m->part[i]);
}

/* The entry for these types, made when there is none: *k says so. Takes types over. */
static planned *entry(rt_plans *p, const rt_function *f, bool strict, ir_type *types, making *k) {
    planned *e = NULL;
    for (size_t i = 0; i < p->n && !e; i++)
        if (matches(&p->list[i], f, strict, types)) e = &p->list[i];
    if (e) {
        mem_free(types);
    } else {
        *k = (making){.g = p, .f = f, .strict = strict, .in = types};
        make(p, k);
        e = entry_for(p);
        *e = (planned){f, strict, types, k->made, 0};
    }
    e->used = ++p->clock;
    return e;
}

static ir_type *types_of(const rt_function *f, const ref_tensor *in) {
    size_t n = f->plan->f->n_in;
    ir_type *types = mem_alloc((n + 1) * sizeof *types);
    for (size_t i = 0; i < n; i++) types[i] = in[i].type;
    return types;
}

/* A plan to find. */
typedef struct {
    rt_plans *p;
    const rt_function *f;
    bool strict;
    const ref_tensor *in;
    plan *found;
    making made[2]; /* for all lengths, for these types; f NULL: not made here */
} search;

static void find_plan(void *ctx) {
    search *s = ctx;
    ir_type *open = types_of(s->f, s->in);
    if (open_lengths(s->f, open))
        s->found = entry(s->p, s->f, s->strict, open, &s->made[0])->p;
    else
        mem_free(open);
    if (!s->found) s->found = entry(s->p, s->f, s->strict, types_of(s->f, s->in), &s->made[1])->p;
    if (s->found) plan_keep(s->found);
}

/* A holder of the plan, NULL when there is none. */
static plan *plan_for(rt_plans *p, const rt_function *f, bool strict, const ref_tensor *in, err *e) {
    search s = {p, f, strict, in, NULL, {{0}}};
    size_t wanted;
    pthread_mutex_lock(&p->lock);
    bool ok = mem_guard(p->heap, find_plan, &s, &wanted);
    pthread_mutex_unlock(&p->lock);
    if (!ok) err_set(e, ERR_MEMORY, "no memory for a plan (%zu bytes asked for)", wanted);
    for (size_t i = 0; ok && i < 2; i++) say(&s.made[i]);
    return ok ? s.found : NULL;
}

void rt_plans_figures(rt_plans *p, size_t *n, double *seconds) {
    pthread_mutex_lock(&p->lock);
    *n = p->n;
    *seconds = p->seconds;
    pthread_mutex_unlock(&p->lock);
}

/* ---- a session's part ---- */

struct engine {
    rt_plans *plans;
    bool strict, measured;
    unsigned threads; /* 0: rt_threads() */
    team *team;       /* NULL before the first run */
    engine *with;     /* whose workers it takes; NULL: it has its own */
    void *hold;       /* ends its part in the team with the heap */
    plan_block *block;
    struct {
        plan *p;
        plan_exec *x;
        plan_profile *profile; /* NULL: not run since measuring began, or nobody measures */
        plan_work work;        /* of a run */
        uint64_t used;
    } exec[MOST_EXECS];
    size_t n;
    uint64_t clock;
    plan_work work; /* of all runs */
};

engine *engine_new(rt_plans *plans, bool strict) {
    const char *choice = getenv("MILLET_ENGINE");
    if (choice && !strcmp(choice, "reference")) return NULL;
    engine *g = mem_alloc(sizeof *g);
    *g = (engine){.plans = plans, .strict = strict, .block = plan_block_new()};
    return g;
}

void engine_free(engine *g) {
    if (!g) return;
    engine_profile(g, false);
    for (size_t i = 0; i < g->n; i++) {
        plan_exec_free(g->exec[i].x);
        plan_free(g->exec[i].p);
    }
    mem_free(g->hold);
    team_free(g->team);
    plan_block_free(g->block);
    mem_free(g);
}

void engine_threads(engine *g, unsigned n) {
    g->threads = n;
}

static void end_team(void *t, size_t n) {
    (void)n;
    team_free(t);
}

/* Takes one holder's part in t over: a hold for each. */
static void hold_team(engine *g, team *t) {
    g->hold = mem_hold(end_team, t, 0);
    if (!g->hold) {
        team_free(t);
        mem_die(0);
    }
    g->team = t;
}

static team *team_of(engine *g) {
    if (g->team) return g->team;
    if (g->with) return hold_team(g, team_keep(team_of(g->with))), g->team;
    unsigned n = g->threads ? g->threads : rt_threads();
    hold_team(g, team_new(n, rt_pinned()));
    if (team_size(g->team) < n && n <= TEAM_MAX)
        heap_log(HEAP_LOG_WARNING, "%u threads instead of %u", team_size(g->team), n);
    return g->team;
}

void engine_share(engine *g, engine *with) {
    g->with = with;
}

void engine_join(engine *g, engine *with) {
    if (!g->team) hold_team(g, team_keep(team_of(with)));
}

plan_exec *engine_prepare(engine *g, const rt_function *f, const ref_tensor *in, err *e) {
    plan *p = plan_for(g->plans, f, g->strict, in, e);
    if (!p) return NULL;
    size_t at = 0, oldest = 0;
    for (; at < g->n && g->exec[at].p != p; at++)
        if (g->exec[at].used < g->exec[oldest].used) oldest = at;
    if (at < g->n) {
        plan_free(p);
    } else {
        err ignored = {0};
        plan_exec *x = plan_exec_new(p, &ignored);
        if (!x) {
            plan_free(p);
            return NULL;
        }
        if (g->n < MOST_EXECS) {
            g->n++;
        } else {
            plan_exec_free(g->exec[oldest].x);
            plan_profile_free(g->exec[oldest].profile);
            plan_free(g->exec[oldest].p);
            at = oldest;
        }
        g->exec[at].p = p;
        g->exec[at].profile = NULL;
        g->exec[at].work = plan_work_of(p);
        g->exec[at].x = x;
    }
    g->exec[at].used = ++g->clock;
    return g->exec[at].x;
}

bool engine_traffic(const engine *g, plan_traffic *t) {
    for (size_t i = 0; i < g->n; i++)
        if (g->exec[i].used == g->clock) return *t = plan_traffic_of(g->exec[i].p), true;
    return false;
}

unsigned rt_threads(void) {
    const char *threads = getenv("MILLET_THREADS");
    int64_t n = 0;
    if (threads) str_to_int64(threads, &n);
    return n <= 0 ? team_cores() : n > TEAM_MAX ? TEAM_MAX : (unsigned)n;
}

bool rt_pinned(void) {
    const char *pin = getenv("MILLET_PIN");
    return pin && strcmp(pin, "1") == 0;
}

void engine_profile(engine *g, bool on) {
    g->measured = on;
    for (size_t i = 0; i < g->n; i++) {
        plan_profile_free(g->exec[i].profile);
        g->exec[i].profile = NULL;
    }
}

void engine_profiles(const engine *g, rt_profile_fn *fn, void *ctx) {
    for (size_t i = 0; i < g->n; i++)
        if (g->exec[i].profile) fn(ctx, plan_function(g->exec[i].p)->name, g->exec[i].profile);
}

plan_work engine_work(const engine *g) {
    return g->work;
}

bool engine_holds(const engine *g, const ref_buf *b) {
    return b && plan_block_buffer(g->block) == b;
}

void engine_run_many(engine *g, plan_exec *x, plan_one *list, size_t n, bool borrow) {
    size_t i = 0;
    while (g->exec[i].x != x) i++; /* engine_prepare() gave it */
    team *t = team_of(g);
    plan_profile **m = &g->exec[i].profile;
    if (g->measured && !*m) *m = plan_profile_new(g->exec[i].p, team_size(t));
    g->work.flops += g->exec[i].work.flops * (double)n;
    g->work.by_keys += g->exec[i].work.by_keys * (double)n;
    for (size_t k = 0; k < n; k++) {
        plan_call *c = &list[k].call;
        *c = (plan_call){c->in, c->out, c->state, t, g->block, borrow, g->measured ? *m : NULL, c->cancel};
    }
    plan_run_many(x, list, n);
}

bool engine_run(engine *g, plan_exec *x, const ref_tensor *in, ref_tensor *out, void *const *state,
                bool borrow, const atomic_bool *cancel, err *e) {
    plan_one one = {.call = {.in = in, .out = out, .state = state, .cancel = cancel}, .e = e};
    engine_run_many(g, x, &one, 1, borrow);
    return one.ok;
}

void engine_trim(engine *g) {
    for (size_t i = 0; i < g->n; i++) plan_exec_trim(g->exec[i].x);
    plan_block_trim(g->block);
}
