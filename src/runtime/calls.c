#include "runtime/calls.h"
#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "checkpoint/safetensors.h"
#include "runtime/interface.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the calls file ---- */

static bool text_member(const json *o, const char *name, const char **out, err *e) {
    const json *j = json_get(o, name);
    *out = NULL;
    if (!j || j->kind == JSON_NULL) return true;
    if (j->kind != JSON_STRING || strlen(j->s) != j->len)
        return err_set(e, ERR_FORMAT, "\"%s\" must be a string", name);
    *out = j->s;
    return true;
}

static bool names(arena *a, const json *o, const char *name, bool with_keys, calls_name **out, size_t *n,
                  err *e) {
    const json *list = json_get(o, name);
    *out = NULL;
    *n = 0;
    if (!list || list->kind == JSON_NULL) return true;
    if (list->kind != JSON_OBJECT) return err_set(e, ERR_FORMAT, "\"%s\" must be an object", name);
    *out = ARENA_ARRAY(a, calls_name, list->len);
    JSON_EACH(c, list) {
        calls_name *to = &(*out)[(*n)++];
        to->name = c->key;
        if (strlen(c->key) != c->key_len)
            return err_set(e, ERR_FORMAT, "\"%s\" has a name with a zero byte", name);
        if (!with_keys) continue;
        if (c->kind != JSON_STRING || strlen(c->s) != c->len)
            return err_set(e, ERR_FORMAT, "\"%s\": the value of %s must be the key of a tensor", name,
                           c->key);
        to->key = c->s;
    }
    return true;
}

static bool parse_call(arena *a, const json *j, calls_call *c, err *e) {
    if (j->kind != JSON_OBJECT) return err_set(e, ERR_FORMAT, "must be an object");
    return text_member(j, "function", &c->function, e) && text_member(j, "state", &c->state, e) &&
           names(a, j, "inputs", true, &c->in, &c->n_in, e) &&
           names(a, j, "outputs", false, &c->out, &c->n_out, e) &&
           names(a, j, "states_after", false, &c->state_after, &c->n_state_after, e);
}

const calls_file *calls_parse(arena *a, const char *what, const void *text, size_t n, err *e) {
    const json *root = json_parse(a, what, text, n, e);
    if (!root) return NULL;
    const json *list = json_get_kind(root, "calls", JSON_ARRAY);
    if (!list) {
        err_set(e, ERR_FORMAT, "%s: there is no array \"calls\"", what);
        return NULL;
    }
    calls_file *f = ARENA_NEW(a, calls_file);
    f->call = ARENA_ARRAY(a, calls_call, list->len);
    JSON_EACH(c, list) {
        if (!parse_call(a, c, &f->call[f->n], e)) {
            err_where(e, "%s: call %zu", what, f->n);
            return NULL;
        }
        f->n++;
    }
    return f;
}

/* ---- running ---- */

typedef struct {
    const char *label;
    rt_session *s;
} timeline;

typedef struct {
    const calls_options *o;
    arena *a;
    rt_model *m;
    st_file *in;
    timeline *line;
    size_t n_line;
    st_tensor *result;
    size_t n_result;
} job;

static const coreml_feature *described(const coreml_model *m, const char *function, const char *input) {
    const coreml_function *f = coreml_function_find(m, function ? function : m->default_function);
    for (size_t i = 0; f && i < f->n_in; i++)
        if (!strcmp(f->in[i].name, input)) return &f->in[i];
    return NULL;
}

/* Element i as a double (exact for every dtype here but 64-bit integers beyond 2^53, which no target can hold
 * either). */
static double element(const st_tensor *t, uint64_t i) {
    const ir_const c = {.type = t->type, .data = t->data};
    double v = 0;
    ir_const_number(&c, i, &v);
    return v;
}

static bool put_element(ir_dtype d, uint8_t *out, double v, bool from_float) {
    float f = (float)v;
    switch (d) {
    case DT_FP16:
        num_put16(out, num_f32_f16(f));
        return from_float ? !isfinite(v) || isfinite(num_round_f16(f)) : (double)num_round_f16(f) == v;
    case DT_FP32: memcpy(out, &f, 4); return from_float ? !isfinite(v) || isfinite(f) : (double)f == v;
    case DT_FP64: memcpy(out, &v, 8); return true;
    case DT_INT32:
        if (v < INT32_MIN || v > INT32_MAX) return false;
        num_put32(out, (uint32_t)(int32_t)v);
        return true;
    case DT_INT8:
        if (v < INT8_MIN || v > INT8_MAX) return false;
        *out = (uint8_t)(int8_t)v;
        return true;
    default: return false;
    }
}

/* The tensor in the dtype that the package declares. */
static bool convert(job *j, const st_tensor *t, ir_dtype to, rt_tensor *out, err *e) {
    ir_dtype from = (ir_dtype)t->type.dtype;
    *out = (rt_tensor){t->name, t->type, t->data};
    if (from == to) return true;
    bool from_float = dtype_is_float(from), to_float = dtype_is_float(to);
    if (from_float && !to_float)
        return err_set(e, ERR_USAGE, "tensor %s is %s, the input is %s", t->name, dtype_name(from),
                       dtype_name(to));
    out->type.dtype = (uint8_t)to;
    int64_t n = ir_type_count(&t->type), size = dtype_bits(to) / 8;
    uint8_t *data = arena_array(j->a, (size_t)n, (size_t)size);
    for (int64_t i = 0; i < n; i++) {
        double v = element(t, (uint64_t)i);
        if (!put_element(to, data + i * size, v, from_float))
            return err_set(e, ERR_USAGE, "tensor %s: element %lld is %g, which %s can't hold", t->name,
                           (long long)i, v, dtype_name(to));
    }
    out->data = data;
    return true;
}

static bool make_input(job *j, const char *function, const char *name, const char *key, rt_tensor *out,
                       err *e) {
    const st_tensor *t = st_find(j->in, key);
    const coreml_feature *f = described(rt_model_coreml(j->m), function, name);
    if (!t) return err_set(e, ERR_USAGE, "%s: there is no tensor %s for input %s", j->o->inputs, key, name);
    if (!f) return err_set(e, ERR_USAGE, "%s: there is no input %s", rt_model_path(j->m), name);
    if (!convert(j, t, (ir_dtype)f->type.dtype, out, e)) return err_where(e, "%s", j->o->inputs);
    out->name = name;
    return true;
}

/* Keeps a copy for the output file. */
static void add_result(job *j, const char *name, const rt_tensor *t) {
    st_tensor *r = &j->result[j->n_result++];
    *r = (st_tensor){.name = name, .type = t->type};
    r->data = arena_copy(j->a, t->data, (size_t)ir_type_bytes(&t->type));
}

static void make_room(job *j, size_t more) {
    st_tensor *old = j->result;
    j->result = ARENA_ARRAY(j->a, st_tensor, j->n_result + more);
    if (j->n_result) memcpy(j->result, old, j->n_result * sizeof *old);
}

/* The session of a label; calls without one run from fresh states. */
static rt_session *session_of(job *j, const char *label, err *e) {
    const char *name = label ? label : "";
    for (size_t i = 0; i < j->n_line; i++)
        if (!j->line[i].label == !label && !strcmp(j->line[i].label ? j->line[i].label : "", name)) {
            if (!label) rt_state_reset(j->line[i].s);
            return j->line[i].s;
        }
    rt_session *s = rt_session_new(j->m, j->o->mode, e);
    if (!s) return NULL;
    j->line = mem_realloc(j->line, (j->n_line + 1) * sizeof *j->line);
    j->line[j->n_line++] = (timeline){label, s};
    return s;
}

/* Names of results: prefix NULL for a single call without a calls file. */
static const char *result_name(job *j, const char *prefix, const char *kind, const char *name) {
    return prefix ? arena_printf(j->a, "%s.%s.%s", prefix, kind, name) : name;
}

static bool is_output(const rt_call *r, const char *name) {
    for (size_t i = 0; i < r->n_out; i++)
        if (!strcmp(r->out[i].name, name)) return true;
    return false;
}

static bool check_outputs(const calls_call *c, const rt_call *r, err *e) {
    for (size_t i = 0; i < c->n_out; i++)
        if (!is_output(r, c->out[i].name))
            return err_set(e, ERR_USAGE, "the function has no output %s", c->out[i].name);
    return true;
}

static bool run_call(job *j, const calls_call *c, const char *prefix, err *e) {
    const coreml_model *m = rt_model_coreml(j->m);
    const coreml_function *f = coreml_function_find(m, c->function ? c->function : m->default_function);
    if (!f)
        return err_set(e, ERR_USAGE, "the package has no function %s",
                       c->function ? c->function : "by default");
    if (!rt_only_tensors(f, e)) return false; /* before inputs are held against their types */
    rt_session *s = session_of(j, c->state, e);
    rt_call r = {.function = f->name, .n_in = c->n_in, .values = j->o->values, .n_values = j->o->n_values};
    rt_tensor *in = ARENA_ARRAY(j->a, rt_tensor, c->n_in);
    r.in = in;
    r.out = ARENA_ARRAY(j->a, rt_tensor, f->n_out + r.n_values);
    if (!s) return false;
    for (size_t i = 0; i < c->n_in; i++)
        if (!make_input(j, f->name, c->in[i].name, c->in[i].key, &in[i], e)) return false;
    if (!rt_run(s, &r, e) || !check_outputs(c, &r, e)) return false;
    make_room(j, r.n_out + r.n_values + c->n_state_after);
    for (size_t i = 0; i < r.n_out + r.n_values; i++) {
        if (!prefix && i >= r.n_out && is_output(&r, r.out[i].name)) continue; /* is there by that name */
        add_result(j, result_name(j, prefix, i < r.n_out ? "out" : "value", r.out[i].name), &r.out[i]);
    }
    for (size_t i = 0; i < c->n_state_after; i++) {
        rt_tensor t;
        if (!rt_state_get(s, c->state_after[i].name, &t, e)) return false;
        add_result(j, result_name(j, prefix, "state", t.name), &t);
    }
    return true;
}

static bool run_calls_file(job *j, err *e) {
    const calls_file *f = calls_parse(j->a, j->o->calls_name, j->o->calls, j->o->n_calls, e);
    for (size_t i = 0; f && i < f->n; i++)
        if (!run_call(j, &f->call[i], arena_printf(j->a, "call%zu", i), e))
            return err_where(e, "%s: call %zu", j->o->calls_name, i);
    return f != NULL;
}

/* Every tensor of the file is an input of that name. */
static bool run_once(job *j, err *e) {
    calls_call c = {.function = j->o->function, .n_in = st_count(j->in)};
    c.in = ARENA_ARRAY(j->a, calls_name, c.n_in);
    for (size_t i = 0; i < c.n_in; i++) c.in[i].name = c.in[i].key = st_at(j->in, i)->name;
    return run_call(j, &c, NULL, e);
}

bool calls_predict(const calls_options *o, err *e) {
    job j = {.o = o, .a = arena_new()};
    j.m = rt_model_open(o->package, e);
    j.in = j.m ? st_open(o->inputs, e) : NULL;
    bool ok = j.in && (o->calls ? run_calls_file(&j, e) : run_once(&j, e)) &&
              st_write(o->output, j.result, j.n_result, e);
    for (size_t i = 0; i < j.n_line; i++) rt_session_free(j.line[i].s);
    mem_free(j.line);
    st_close(j.in);
    rt_model_close(j.m);
    arena_free(j.a);
    return ok;
}
