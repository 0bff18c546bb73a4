#include "api/api.h"
#include <stdlib.h>

bool api_session_options(millet_session_options *to, const millet_session_options *options, err *e) {
    return api_struct_in(to, sizeof *to, options, "millet_session_options", e);
}

millet_session *millet_session_new(const millet_package *p, const millet_session_options *options,
                                   millet_error *error) {
    err e = {0};
    millet_session_options o;
    rt_session *s =
        api_session_options(&o, options, &e) ? rt_session_new(p->m, api_mode(o.precision), &e) : NULL;
    if (s) rt_session_threads(s, o.threads);
    api_done(error, &e);
    return (millet_session *)s;
}

void millet_session_free(millet_session *s) {
    rt_session_free((rt_session *)s);
}

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

static bool run(rt_session *s, millet_call *call, err *e) {
    size_t n = 0;
    if (!count_results(s, call, &n, e)) return false;
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
    ok = ok && rt_run(s, &c, e);
    for (size_t i = 0; ok && i < n; i++) api_tensor_out(&call->output[i], &out[i]);
    if (ok) call->n_output = n;
    free(in);
    free(out);
    return ok;
}

bool millet_run(millet_session *s, millet_call *call, millet_error *error) {
    err e = {0};
    millet_call whole;
    if (!call) err_set(&e, ERR_USAGE, "no call");
    if (call && api_struct_in(&whole, sizeof whole, call, "millet_call", &e)) {
        whole.n_output = 0;
        run((rt_session *)s, &whole, &e);
        api_struct_out(call, &whole, sizeof whole);
    }
    return api_done(error, &e);
}

bool millet_session_stats(const millet_session *s, millet_stats *stats) {
    err e = {0};
    if (!api_sized(stats, "millet_stats", &e)) return false;
    rt_figures f = rt_session_figures((const rt_session *)s);
    const millet_stats whole = {.calls = f.calls, .seconds = f.seconds, .state_bytes = f.state_bytes};
    api_struct_out(stats, &whole, sizeof whole);
    return true;
}

size_t millet_state_count(const millet_session *s) {
    return rt_state_count((const rt_session *)s);
}

const char *millet_state_name(const millet_session *s, size_t i) {
    return i < millet_state_count(s) ? rt_state_name((const rt_session *)s, i) : NULL;
}

bool millet_state_get(millet_session *s, const char *name, millet_tensor *t, millet_error *error) {
    err e = {0};
    rt_tensor r;
    if (rt_state_get((rt_session *)s, name, &r, &e)) api_tensor_out(t, &r);
    return api_done(error, &e);
}

bool millet_state_set(millet_session *s, const char *name, const millet_tensor *t, millet_error *error) {
    err e = {0};
    rt_tensor r;
    if (api_tensor_in(&r, t, &e)) rt_state_set((rt_session *)s, name, &r, &e);
    return api_done(error, &e);
}

void millet_state_reset(millet_session *s) {
    rt_state_reset((rt_session *)s);
}

bool millet_state_bind(millet_session *to, const millet_session *from, const char *name,
                       millet_error *error) {
    err e = {0};
    rt_state_bind((rt_session *)to, (const rt_session *)from, name, &e);
    return api_done(error, &e);
}

bool millet_state_copy(millet_session *to, const millet_session *from, millet_error *error) {
    err e = {0};
    rt_state_copy((rt_session *)to, (const rt_session *)from, &e);
    return api_done(error, &e);
}

millet_snapshot *millet_snapshot_take(const millet_session *s, millet_error *error) {
    err e = {0};
    rt_snapshot *snap = rt_snapshot_take((const rt_session *)s, &e);
    api_done(error, &e);
    return (millet_snapshot *)snap;
}

bool millet_snapshot_restore(millet_session *s, const millet_snapshot *snapshot, millet_error *error) {
    err e = {0};
    rt_snapshot_restore((rt_session *)s, (const rt_snapshot *)snapshot, &e);
    return api_done(error, &e);
}

void millet_snapshot_free(millet_snapshot *snapshot) {
    rt_snapshot_free((rt_snapshot *)snapshot);
}
