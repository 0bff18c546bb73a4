#include "api/api.h"
#include <string.h>

struct millet_session {
    heap *h;
    millet_package *p;
    rt_session *s;
    bool left; /* in the middle of something, for want of memory: what it holds goes with the package */
};

/* ---- beginning and end ---- */

typedef struct {
    const millet_package *p;
    millet_session_options o;
    heap *h;
    millet_session *s;
} beginning;

static void begin(void *args, err *e) {
    beginning *k = args;
    rt_session *s = rt_session_new(k->p->m, api_mode(k->o.precision), e);
    if (!s) return;
    rt_session_threads(s, k->o.threads);
    k->s = mem_alloc(sizeof *k->s);
    *k->s = (millet_session){k->h, (millet_package *)k->p, s, false};
}

millet_session *millet_session_new(const millet_package *p, const millet_session_options *options,
                                   millet_error *error) {
    err e = {0};
    beginning k = {.p = p};
    k.h = api_session_heap(p->h, &k.o, options, &e);
    if (k.h && !api_guard(k.h, begin, &k, NULL, &e)) heap_drop(k.h);
    return api_done(error, &e) ? k.s : NULL;
}

void millet_session_free(millet_session *s) {
    if (!s || s->left) return;
    heap *h = s->h;
    rt_session_free(s->s);
    mem_free(s);
    heap_leave(h); /* states that others share stay */
}

static bool alive(const millet_session *s, err *e) {
    return !s->left || err_set(e, ERR_MEMORY, "the session ran out of memory: it can only be freed");
}

/* Calls fn on the session's heap. */
static bool use(millet_session *s, api_fn *fn, void *args, err *e) {
    return alive(s, e) && api_guard(s->h, fn, args, &s->left, e);
}

/* ---- runs ---- */

typedef struct {
    rt_session *s;
    millet_call *call;
} running;

/* Outputs of the function plus values: how many tensors a run returns. */
static bool count_results(const rt_session *s, const millet_call *c, size_t *n, err *e) {
    const coreml_model *m = rt_model_coreml(rt_session_model(s));
    const char *name = c->function ? c->function : m->default_function;
    const coreml_function *f = coreml_function_find(m, name);
    if (!f) return err_set(e, ERR_USAGE, "no function %s", name);
    *n = f->n_out + c->n_value;
    return *n <= c->max_output ||
           err_set(e, ERR_USAGE, "%s returns %zu tensors, there is room for %zu", name, *n, c->max_output);
}

/* What the call points at, where it says that there is something. */
static bool check_lists(const millet_call *c, err *e) {
    bool ok = (!c->n_input || api_given(c->input, "inputs", e)) &&
              (!c->n_value || api_given(c->value, "names of values", e)) &&
              api_given(c->output, "outputs", e);
    for (size_t i = 0; ok && i < c->n_input; i++) ok = api_given(c->input[i].name, "name of an input", e);
    for (size_t i = 0; ok && i < c->n_value; i++) ok = api_given(c->value[i], "name of a value", e);
    return ok;
}

static void run(void *args, err *e) {
    const running *r = args;
    millet_call *call = r->call;
    size_t n = 0;
    if (!count_results(r->s, call, &n, e) || !check_lists(call, e)) return;
    rt_tensor *in = mem_try(call->n_input + 1, sizeof *in), *out = mem_try(n + 1, sizeof *out);
    bool ok = (in && out) || err_set(e, ERR_MEMORY, "no memory for %zu tensors", call->n_input + n);
    for (size_t i = 0; ok && i < call->n_input; i++) ok = api_tensor_in(&in[i], &call->input[i], e);
    rt_call c = {.function = call->function,
                 .in = in,
                 .n_in = call->n_input,
                 .values = call->value,
                 .n_values = call->n_value,
                 .out = out,
                 .cancel = api_flag(call->cancel)};
    ok = ok && rt_run(r->s, &c, e);
    for (size_t i = 0; ok && i < n; i++) api_tensor_out(&call->output[i], &out[i]);
    if (ok) call->n_output = n;
    mem_free(in);
    mem_free(out);
}

bool millet_run(millet_session *s, millet_call *call, millet_error *error) {
    err e = {0};
    millet_call whole;
    if (!call) err_set(&e, ERR_USAGE, "no call");
    if (call && api_struct_in(&whole, sizeof whole, call, "millet_call", &e)) {
        whole.n_output = 0;
        use(s, run, &(running){s->s, &whole}, &e);
        api_struct_out(call, &whole, sizeof whole);
    }
    return api_done(error, &e);
}

bool millet_session_stats(const millet_session *s, millet_stats *stats) {
    err e = {0};
    if (!api_sized(stats, "millet_stats", &e)) return false;
    rt_figures f = rt_session_figures(s->s);
    const millet_stats whole = {.calls = f.calls,
                                .seconds = f.seconds,
                                .state_bytes = f.state_bytes,
                                .memory = heap_bytes(s->h),
                                .memory_peak = heap_peak(s->h)};
    api_struct_out(stats, &whole, sizeof whole);
    return true;
}

/* ---- states ---- */

typedef struct {
    rt_session *s;
    const char *name;
    rt_tensor t;
} naming;

size_t millet_state_count(const millet_session *s) {
    return rt_state_count(s->s);
}

const char *millet_state_name(const millet_session *s, size_t i) {
    return i < millet_state_count(s) ? rt_state_name(s->s, i) : NULL;
}

static void get(void *args, err *e) {
    naming *n = args;
    rt_state_get(n->s, n->name, &n->t, e);
}

bool millet_state_get(millet_session *s, const char *name, millet_tensor *t, millet_error *error) {
    err e = {0};
    naming n = {.s = s->s, .name = name};
    if (api_given(name, "name of a state", &e) && use(s, get, &n, &e)) api_tensor_out(t, &n.t);
    return api_done(error, &e);
}

static void set(void *args, err *e) {
    naming *n = args;
    rt_state_set(n->s, n->name, &n->t, e);
}

bool millet_state_set(millet_session *s, const char *name, const millet_tensor *t, millet_error *error) {
    err e = {0};
    naming n = {.s = s->s, .name = name};
    if (api_given(name, "name of a state", &e) && api_given(t, "tensor", &e) && api_tensor_in(&n.t, t, &e))
        use(s, set, &n, &e);
    return api_done(error, &e);
}

void millet_state_reset(millet_session *s) {
    if (!s->left) rt_state_reset(s->s);
}

bool millet_state_bind(millet_session *to, const millet_session *from, const char *name,
                       millet_error *error) {
    err e = {0};
    if (api_given(name, "name of a state", &e) && alive(to, &e) && alive(from, &e) &&
        rt_state_bind(to->s, from->s, name, &e) && to->p != from->p)
        to->p->bound = from->p->bound = true;
    return api_done(error, &e);
}

bool millet_state_copy(millet_session *to, const millet_session *from, millet_error *error) {
    err e = {0};
    if (alive(to, &e) && alive(from, &e)) rt_state_copy(to->s, from->s, &e);
    return api_done(error, &e);
}

/* ---- snapshots ---- */

typedef struct {
    const rt_session *s;
    rt_snapshot *snap;
} taking;

static void take(void *args, err *e) {
    taking *k = args;
    k->snap = rt_snapshot_take(k->s, e);
}

millet_snapshot *millet_snapshot_take(const millet_session *s, millet_error *error) {
    err e = {0};
    taking k = {.s = s->s};
    if (alive(s, &e)) api_guard(s->h, take, &k, NULL, &e); /* changes nothing of s */
    return api_done(error, &e) ? (millet_snapshot *)k.snap : NULL;
}

bool millet_snapshot_restore(millet_session *s, const millet_snapshot *snapshot, millet_error *error) {
    err e = {0};
    if (alive(s, &e)) rt_snapshot_restore(s->s, (const rt_snapshot *)snapshot, &e);
    return api_done(error, &e);
}

void millet_snapshot_free(millet_snapshot *snapshot) {
    rt_snapshot_free((rt_snapshot *)snapshot);
}
