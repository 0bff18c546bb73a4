/* Descriptions made from a program. */
#include "coreml/model.h"
#include <string.h>

static coreml_feature describe(arena *a, const ir_value *v, bool output) {
    coreml_feature f = {.name = v->name, .type = v->type};
    if (v->type.kind == IR_OPAQUE) { /* a classifier's table */
        f.other = "dictionary";
        return f;
    }
    bool known = ir_type_known(&v->type);
    f.no_shape = !v->type.rank || (output && !known);
    if (output && !known) f.type = ir_scalar(v->type.dtype);
    if (output || known) return f;
    coreml_range *range = ARENA_ARRAY(a, coreml_range, (size_t)v->type.rank);
    for (int i = 0; i < v->type.rank; i++) {
        bool free_size = v->type.dim[i] == IR_DIM_UNKNOWN;
        if (free_size) f.type.dim[i] = 1;
        range[i] = free_size ? (coreml_range){1, -1} : (coreml_range){v->type.dim[i], v->type.dim[i]};
    }
    f.range = range;
    return f;
}

static coreml_function describe_function(arena *a, const ir_function *f) {
    coreml_function d = {.name = f->name};
    d.in = ARENA_ARRAY(a, coreml_feature, f->n_in);
    d.state = ARENA_ARRAY(a, coreml_feature, f->n_in);
    d.out = ARENA_ARRAY(a, coreml_feature, f->body.n_out);
    for (size_t i = 0; i < f->n_in; i++) {
        coreml_feature v = describe(a, f->in[i], false);
        if (v.type.kind == IR_STATE)
            d.state[d.n_state++] = v;
        else
            d.in[d.n_in++] = v;
    }
    for (size_t i = 0; i < f->body.n_out; i++) d.out[d.n_out++] = describe(a, f->body.out[i], true);
    return d;
}

coreml_model *coreml_model_new(arena *a, ir_program *p, int spec) {
    coreml_model *m = ARENA_NEW(a, coreml_model);
    m->a = a;
    m->spec = spec;
    m->program = p;
    m->func = ARENA_ARRAY(a, coreml_function, p->n_func);
    for (size_t i = 0; i < p->n_func; i++) m->func[m->n_func++] = describe_function(a, p->func[i]);
    bool has_main = ir_function_find(p, "main") != NULL;
    m->multifunction = p->n_func != 1 || !has_main;
    m->default_function = has_main || !p->n_func ? "main" : p->func[0]->name;
    return m;
}

void coreml_add_user(coreml_model *m, const char *key, const char *value) {
    for (size_t i = 0; i < m->n_user; i++) {
        if (strcmp(m->user[i].key, key)) continue;
        m->user[i].value = arena_str(m->a, value);
        return;
    }
    coreml_pair *user = ARENA_ARRAY(m->a, coreml_pair, m->n_user + 1);
    if (m->n_user) memcpy(user, m->user, m->n_user * sizeof *user);
    user[m->n_user++] = (coreml_pair){arena_str(m->a, key), arena_str(m->a, value)};
    m->user = user;
}
