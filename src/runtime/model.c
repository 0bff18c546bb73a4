#include "runtime/model.h"
#include "coreai/package.h"
#include "runtime/engine.h"
#include "runtime/parts.h"
#include <stdlib.h>
#include <string.h>

static size_t state_index(rt_model *m, const char *name, ir_type type) {
    for (size_t i = 0; i < m->n_state; i++)
        if (!strcmp(m->state[i].name, name) && ir_type_equal(&m->state[i].type, &type)) return i;
    m->state = arena_grow(m->a, m->state, m->n_state, &m->cap_state, m->n_state + 1, sizeof *m->state);
    m->state[m->n_state].name = name;
    m->state[m->n_state].type = type;
    return m->n_state++;
}

static const coreml_feature *feature(const coreml_feature *f, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(f[i].name, name)) return &f[i];
    return NULL;
}

/* Nothing looks at v but shape and slices. */
static bool only_sized(const ir_block *b, const ir_value *v) {
    bool ok = true;
    for (size_t i = 0; i < b->n_op && ok; i++) {
        const ir_op *op = b->op[i];
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++)
                ok &= op->arg[s].v[k] != v || op->code == OP_shape || op->code == OP_slice_by_index;
        for (uint32_t k = 0; k < op->n_block; k++) ok &= only_sized(op->block[k], v);
    }
    for (size_t i = 0; i < b->n_out; i++) ok &= b->out[i] != v;
    return ok;
}

/* A float row (a mask), or an integer one that only has sizes and slices (positions). */
static bool is_row(const ir_function *f, const ir_value *v) {
    int last = v->type.rank - 1;
    if (v->type.kind != IR_TENSOR || last < 1 || v->type.dim[last] != IR_DIM_UNKNOWN) return false;
    return dtype_is_float((ir_dtype)v->type.dtype) || only_sized(&f->body, v);
}

/* Every input of the program is described. */
static bool describe_function(rt_model *m, const coreml_model *model, rt_function *to, err *e) {
    const ir_function *f = ir_function_find(model->program, to->desc->name);
    if (!f)
        return err_set(e, ERR_INVALID, "function %s is described, but not in the program", to->desc->name);
    to->plan = ref_plan_new(m->a, f);
    to->serial = m->n_planned++;
    to->state = ARENA_ARRAY(m->a, size_t, f->n_in);
    to->row = ARENA_ARRAY(m->a, bool, f->n_in);
    for (size_t i = 0; i < f->n_in; i++) {
        const ir_value *v = f->in[i];
        ir_type type = v->type;
        to->state[i] = SIZE_MAX;
        to->row[i] = is_row(f, v);
        if (type.kind == IR_STATE) {
            if (!ir_type_known(&type))
                return err_set(e, ERR_INVALID, "function %s: state %s has an unknown size", f->name, v->name);
            type.kind = IR_TENSOR;
            to->state[i] = state_index(m, v->name, type);
        } else if (!feature(to->desc->in, to->desc->n_in, v->name)) {
            return err_set(e, ERR_INVALID, "function %s: input %s is not described", f->name, v->name);
        }
    }
    return true;
}

static bool make_part(rt_model *m, const coreml_model *model, rt_part *part, err *e) {
    part->model = model;
    part->func = ARENA_ARRAY(m->a, rt_function, model->n_func);
    for (size_t i = 0; i < model->n_func; i++) {
        part->func[i].desc = &model->func[i];
        if (model->program && !describe_function(m, model, &part->func[i], e)) return false;
    }
    part->n_part = model->n_part;
    part->part = ARENA_ARRAY(m->a, rt_part, model->n_part);
    for (size_t i = 0; i < model->n_part; i++)
        if (!make_part(m, model->part[i], &part->part[i], e)) return err_where(e, "part %zu", i);
    return model->program || model->n_part ||
           err_set(e, ERR_UNSUPPORTED, "the model is neither an ML Program nor a pipeline of such");
}

rt_model *rt_model_of(coreml_package *p, err *e) {
    if (!p) return NULL;
    arena *a = arena_new();
    rt_model *m = ARENA_NEW(a, rt_model);
    m->a = a;
    m->package = p;
    m->plans = rt_plans_new();
    if (coreml_verify(p->model, NULL, NULL, e) && make_part(m, p->model, &m->root, e)) return m;
    if (p->path && *p->path) err_where(e, "%s", p->path);
    rt_model_close(m);
    return NULL;
}

coreml_package *rt_package_open(const char *path, err *e) {
    return ai_asset_is(path) ? coreai_open(path, NULL, e) : coreml_open(path, e);
}

rt_model *rt_model_open(const char *path, err *e) {
    return rt_model_of(rt_package_open(path, e), e);
}

rt_model *rt_model_open_memory(const void *model, size_t n, err *e) {
    return rt_model_of(coreml_open_memory(model, n, e), e);
}

void rt_model_close(rt_model *m) {
    if (!m) return;
    rt_plans_free(m->plans);
    coreml_close(m->package);
    arena_free(m->a);
}

bool rt_model_scan(const rt_model *m, const float *score, size_t n, size_t *largest) {
    return engine_scan(m->plans, score, n, largest);
}

bool rt_model_linear(rt_model *m, const char *paths, err *e) {
    plan_linear l;
    if (!rt_linear_parse(paths, &l))
        return err_set(e, ERR_USAGE, "linear %s: expected PATH or DECODE,PREFILL of int16, bf16, exact",
                       paths);
    rt_plans_linear(m->plans, l);
    return true;
}

void rt_model_figures(const rt_model *m, size_t *plans, double *seconds) {
    rt_plans_figures(m->plans, plans, seconds);
}

size_t rt_model_state_count(const rt_model *m) {
    return m->n_state;
}

const char *rt_model_state_name(const rt_model *m, size_t i) {
    return m->state[i].name;
}

ir_type rt_model_state_type(const rt_model *m, size_t i) {
    return m->state[i].type;
}

const coreml_model *rt_model_coreml(const rt_model *m) {
    return m->package->model;
}

const char *rt_model_path(const rt_model *m) {
    return m->package->path;
}

const rt_function *rt_function_find(const rt_part *part, const char *name, err *e) {
    const coreml_model *m = part->model;
    const char *want = name ? name : m->default_function;
    for (size_t i = 0; i < m->n_func; i++)
        if (!strcmp(m->func[i].name, want)) return &part->func[i];
    err_set(e, ERR_USAGE, "the model has no function %s", want ? want : "(none is the default)");
    return NULL;
}
