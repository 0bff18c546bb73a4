/* Rules about the description, and about description against program. Those about the program alone are
 * ir_verify()'s. */
#include "ir/verify.h"
#include "base/map.h"
#include "coreml/model.h"
#include "coreml/schema.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_ENUMERATED 128

typedef struct {
    coreml_report_fn *report;
    void *ctx;
    err *e;
    arena *a;
    char where[200]; /* "function main: " */
    size_t count;
    bool stop;
    const coreml_model *m;
} checker;

/* A violation; also where ir_verify() reports. */
static bool on_violation(void *ctx, const char *rule, const char *message) {
    checker *c = ctx;
    c->count++;
    err_set(c->e, ERR_INVALID, "%s: %s%s", rule, c->where, message);
    if (!c->report)
        c->stop = true;
    else if (!c->report(c->ctx, rule, *c->where ? arena_printf(c->a, "%s%s", c->where, message) : message))
        c->stop = true;
    return !c->stop;
}

__attribute__((format(printf, 3, 4))) static void violation(checker *c, const char *rule, const char *fmt,
                                                            ...) {
    char message[600];
    if (c->stop) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    on_violation(c, rule, message);
}

static bool feature_dtype_ok(const checker *c, const coreml_feature *f) {
    switch (f->type.dtype) {
    case DT_FP32:
    case DT_FP64:
    case DT_INT32: return f->type.kind != IR_STATE;
    case DT_FP16: return c->m->spec >= 7;
    case DT_INT8: return c->m->spec >= 10 && f->type.kind != IR_STATE;
    default: return false;
    }
}

static void check_flexibility(checker *c, const coreml_feature *f) {
    bool found = f->no_shape;
    for (int i = 0; f->range && i < f->type.rank; i++) {
        coreml_range r = f->range[i];
        if (r.upper >= 0 && r.lower > r.upper)
            violation(c, "range", "%s: dimension %d ranges from %" PRId64 " to %" PRId64, f->name, i, r.lower,
                      r.upper);
        else if (f->type.dim[i] < r.lower || (r.upper >= 0 && f->type.dim[i] > r.upper))
            violation(c, "default-shape", "%s: default size %" PRId64 " of dimension %d is outside its range",
                      f->name, f->type.dim[i], i);
    }
    for (size_t i = 0; i < f->n_shapes && !found; i++)
        found = !memcmp(f->shapes[i], f->type.dim, sizeof(int64_t) * (size_t)f->type.rank);
    if (f->n_shapes && !found)
        violation(c, "default-shape", "%s: the default shape is not among the enumerated ones", f->name);
    if (f->n_shapes > MAX_ENUMERATED)
        violation(c, "enumerated-shapes", "%s: %zu shapes, at most %d", f->name, f->n_shapes, MAX_ENUMERATED);
}

static void check_feature(checker *c, const coreml_feature *f) {
    if (!*f->name) violation(c, "feature-name", "a feature without a name");
    if (f->other) {
        if (!f->other_type.len) violation(c, "feature-type", "%s: no type", f->name);
        return;
    }
    for (int i = 0; i < f->type.rank; i++)
        if (f->type.dim[i] < 0)
            violation(c, "feature-shape", "%s: size %" PRId64 " of dimension %d", f->name, f->type.dim[i], i);
    if (!feature_dtype_ok(c, f))
        violation(c, f->type.kind == IR_STATE ? "state" : "feature-type",
                  "%s: %s is not allowed with specification version %d", f->name,
                  ir_type_text(c->a, &f->type), c->m->spec);
    check_flexibility(c, f);
}

static void check_default(checker *c, const coreml_feature *f) {
    if (!f->has_default) return;
    ir_dtype d = f->type.dtype, want = d == DT_INT8 ? DT_INT32 : d == DT_FP16 ? DT_FP32 : d;
    if (!f->optional)
        violation(c, "default-value", "input %s has a default value and is not optional", f->name);
    if (f->default_dtype && f->default_dtype != want)
        violation(c, "default-value", "input %s: a %s default for %s", f->name, dtype_name(f->default_dtype),
                  dtype_name(d));
}

static void check_inputs(checker *c, const coreml_function *f) {
    size_t optional = 0, enumerated = 0, list = 0;
    for (size_t i = 0; i < f->n_in; i++) {
        const coreml_feature *v = &f->in[i];
        check_feature(c, v);
        check_default(c, v);
        optional += v->optional;
        if (v->other) continue;
        if (v->type.kind == IR_STATE) violation(c, "state", "state %s is listed among the inputs", v->name);
        if (v->no_shape && !v->range && !v->n_shapes)
            violation(c, "feature-shape", "input %s has no shape", v->name);
        if (!v->n_shapes) continue;
        if (enumerated++ && list != v->n_shapes)
            violation(c, "enumerated-shapes", "input %s has %zu shapes, an input before it %zu", v->name,
                      v->n_shapes, list);
        list = v->n_shapes;
    }
    if (enumerated > 1 && c->m->spec < 9)
        violation(c, "enumerated-shapes",
                  "more than one input with enumerated shapes needs specification version 9");
    if (f->n_in && optional == f->n_in) violation(c, "optional", "all inputs are optional");
}

static void check_outputs(checker *c, const coreml_function *f) {
    for (size_t i = 0; i < f->n_out; i++) {
        check_feature(c, &f->out[i]);
        if (f->out[i].optional) violation(c, "optional", "output %s is optional", f->out[i].name);
        if (f->out[i].type.kind == IR_STATE) violation(c, "state", "output %s is a state", f->out[i].name);
    }
}

static void check_states(checker *c, const coreml_function *f) {
    if (f->n_state && c->m->spec < 9)
        violation(c, "state", "states need specification version 9, this is %d", c->m->spec);
    for (size_t i = 0; i < f->n_state; i++) {
        const coreml_feature *s = &f->state[i];
        if (s->other || s->type.kind != IR_STATE) {
            violation(c, "state", "%s is listed as a state and is none", s->name);
            continue;
        }
        check_feature(c, s);
        if (s->optional) violation(c, "state", "state %s is optional", s->name);
        if (s->no_shape) violation(c, "state", "state %s has no shape", s->name);
        if (s->range || s->n_shapes) violation(c, "state", "state %s has a flexible shape", s->name);
        if (s->has_default) violation(c, "state", "state %s has a default value", s->name);
    }
}

/* Names of features are keys: inputs and states share one name space, outputs have their own. */
static void check_duplicates(checker *c, const coreml_feature *one, size_t n, const coreml_feature *two,
                             size_t m) {
    map *seen = map_new(c->a, n + m);
    for (size_t i = 0; i < n + m; i++) {
        const coreml_feature *f = i < n ? &one[i] : &two[i - n];
        if (!map_add(seen, f->name, strlen(f->name), 0))
            violation(c, "duplicate-feature", "%s is listed twice", f->name);
    }
}

/* The size of dimension i as the program declares it against what the description lets a caller use. */
static bool dim_agrees(const coreml_feature *f, int i, int64_t program) {
    if (program == IR_DIM_UNKNOWN) return true;
    if (f->range && (f->range[i].lower != program || f->range[i].upper != program)) return false;
    for (size_t k = 0; k < f->n_shapes; k++)
        if (f->shapes[k][i] != program) return false;
    return f->no_shape || f->type.dim[i] == program;
}

static void same_type(checker *c, const char *what, const coreml_feature *f, const ir_value *v, bool output) {
    if (f->other) return; /* images and tables have rules of their own */
    const ir_type *t = &v->type;
    if (t->kind != f->type.kind || t->dtype != f->type.dtype) {
        violation(c, "description", "%s %s is %s in the program and %s in the description", what, f->name,
                  ir_type_text(c->a, t), ir_type_text(c->a, &f->type));
        return;
    }
    if (f->no_shape && !f->range && !f->n_shapes) {
        if (output || !t->rank) return;
    }
    bool same = f->type.rank == t->rank, flexible = f->range || f->n_shapes;
    for (int i = 0; same && i < t->rank; i++) same = dim_agrees(f, i, t->dim[i]);
    if (!same)
        violation(c, "description", "%s %s has shape %s in the program and %s in the description", what,
                  f->name, ir_type_text(c->a, t), ir_type_text(c->a, &f->type));
    else if (!output && !flexible && !ir_type_known(t))
        violation(c, "description",
                  "%s %s has unknown sizes in the program and a fixed shape in the description", what,
                  f->name);
}

/* Each described feature is in the program, and each of the program's is described. program: name -> index
 * + 1. */
static void match(checker *c, const char *what, const coreml_feature *f, size_t n, ir_value *const *v,
                  size_t m, int kind) {
    map *described = map_new(c->a, n), *there = map_new(c->a, m);
    for (size_t i = 0; i < n; i++) map_add(described, f[i].name, strlen(f[i].name), (uint32_t)i);
    for (size_t i = 0; i < m; i++) {
        if (kind >= 0 && (v[i]->type.kind == IR_STATE) != kind) continue;
        if (!map_add(there, v[i]->name, strlen(v[i]->name), (uint32_t)i))
            continue; /* ir_verify() reports it */
        uint32_t k = map_get(described, v[i]->name, strlen(v[i]->name));
        if (k == MAP_NONE)
            violation(c, "description", "%s %s of the program is not described", what, v[i]->name);
        else
            same_type(c, what, &f[k], v[i], kind < 0);
    }
    for (size_t i = 0; i < n; i++)
        if (map_get(there, f[i].name, strlen(f[i].name)) == MAP_NONE)
            violation(c, "description", "the program has no %s %s", what, f[i].name);
}

static void check_against_program(checker *c, const coreml_function *d, const ir_function *f) {
    match(c, "input", d->in, d->n_in, f->in, f->n_in, 0);
    match(c, "state", d->state, d->n_state, f->in, f->n_in, 1);
    match(c, "output", d->out, d->n_out, f->body.out, f->body.n_out, -1);
    for (size_t i = 0; i < d->n_out && i < f->body.n_out; i++)
        if (strcmp(d->out[i].name, f->body.out[i]->name)) {
            violation(c, "output-order", "output %zu is %s in the description and %s in the program", i,
                      d->out[i].name, f->body.out[i]->name);
            break;
        }
}

static void check_function(checker *c, const coreml_function *d, const ir_function *f) {
    if (c->m->multifunction) snprintf(c->where, sizeof c->where, "function %.150s: ", d->name);
    check_inputs(c, d);
    check_outputs(c, d);
    check_states(c, d);
    check_duplicates(c, d->in, d->n_in, d->state, d->n_state);
    check_duplicates(c, d->out, d->n_out, NULL, 0);
    if (f) check_against_program(c, d, f);
    c->where[0] = 0;
}

static void check_functions(checker *c) {
    const coreml_model *m = c->m;
    const ir_program *p = m->program;
    map *described = map_new(c->a, m->n_func), *there = map_new(c->a, m->n_func);
    for (size_t i = 0; p && i < p->n_func; i++)
        map_add(there, p->func[i]->name, strlen(p->func[i]->name), (uint32_t)i);
    for (size_t i = 0; i < m->n_func && !c->stop; i++) {
        const char *name = m->func[i].name;
        uint32_t k = map_get(there, name, strlen(name));
        if (!map_add(described, name, strlen(name), (uint32_t)i))
            violation(c, "functions", "function %s is described twice", name);
        if (p && k == MAP_NONE) violation(c, "functions", "the program has no function %s", name);
        check_function(c, &m->func[i], p && k != MAP_NONE ? p->func[k] : NULL);
    }
    if (m->multifunction && m->spec < 9)
        violation(c, "functions", "several functions need specification version 9");
    if (map_get(described, m->default_function, strlen(m->default_function)) == MAP_NONE)
        violation(c, "functions", "the default function %s is not described", m->default_function);
    for (size_t i = 0; p && i < p->n_func; i++)
        if (map_get(described, p->func[i]->name, strlen(p->func[i]->name)) == MAP_NONE)
            violation(c, "functions", "function %s of the program is not described", p->func[i]->name);
}

static void check_program(checker *c) {
    const ir_program *p = c->m->program;
    for (size_t i = 0; i < p->n_func; i++) {
        const ir_function *f = p->func[i];
        if (f->spec > c->m->spec)
            violation(c, "opset", "function %s uses opset %s, specification version %d has %s", f->name,
                      ir_opset_name(f->spec), c->m->spec, ir_opset_name(c->m->spec));
    }
    err inner = {0};
    if (!c->stop && !ir_verify(p, on_violation, c, &inner) && inner.code != ERR_NONE &&
        inner.code != ERR_INVALID)
        err_set(c->e, inner.code, "%s", inner.msg);
}

/* A pipeline's models are chained by feature names. */
static void check_chain(checker *c) {
    const coreml_function *whole = &c->m->func[0];
    map *known = map_new(c->a, 16);
    for (size_t i = 0; i < whole->n_in; i++) map_add(known, whole->in[i].name, strlen(whole->in[i].name), 0);
    for (size_t p = 0; p < c->m->n_part; p++) {
        const coreml_function *f = coreml_function_find(c->m->part[p], c->m->part[p]->default_function);
        for (size_t i = 0; f && i < f->n_in; i++)
            if (!f->in[i].optional && map_get(known, f->in[i].name, strlen(f->in[i].name)) == MAP_NONE)
                violation(c, "pipeline", "nothing gives input %s of model %zu", f->in[i].name, p);
        for (size_t i = 0; f && i < f->n_out; i++) map_add(known, f->out[i].name, strlen(f->out[i].name), 0);
    }
    for (size_t i = 0; i < whole->n_out; i++)
        if (map_get(known, whole->out[i].name, strlen(whole->out[i].name)) == MAP_NONE)
            violation(c, "pipeline", "no model gives output %s", whole->out[i].name);
}

static void check_model(checker *c, const coreml_model *m) {
    c->m = m;
    if (m->spec == IR_SPEC_COREAI) { /* described by its program; Core ML's rules about features don't hold */
        if (m->program) check_program(c);
        return;
    }
    if (m->spec < IR_SPEC_MIN || m->spec > IR_SPEC_MAX)
        violation(c, "version", "specification version %d, expected %d to %d", m->spec, IR_SPEC_MIN,
                  IR_SPEC_MAX);
    if (!m->n_func) {
        violation(c, "functions", "no function is described");
        return;
    }
    check_functions(c);
    if (m->program) {
        if (!c->stop) check_program(c);
        return;
    }
    check_chain(c);
    for (size_t i = 0; i < m->n_part && !c->stop; i++) check_model(c, m->part[i]);
}

bool coreml_verify(const coreml_model *m, coreml_report_fn *report, void *ctx, err *e) {
    err local = {0};
    checker c = {.report = report, .ctx = ctx, .e = &local, .a = arena_new()};
    check_model(&c, m);
    arena_free(c.a);
    if (local.code != ERR_NONE) err_set(e, local.code, "%s", local.msg);
    return local.code == ERR_NONE;
}
