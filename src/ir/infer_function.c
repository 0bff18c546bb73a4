/* Types of a whole function from the types of its inputs. */
#include "ir/infer_rules.h"
#include <string.h>

#define MAX_NESTING 64
#define MAX_NUMBERS 4096 /* operands that decide shapes are small */

typedef struct {
    const ir_function *f;
    ir_type *types;
    arena *a;
    err *e;
    ir_env env;
} walk;

static ir_type known_type(void *ctx, const ir_value *v) {
    const walk *w = ctx;
    return v->id < w->f->n_values ? w->types[v->id] : v->type;
}

const double *ir_const_numbers(const ir_const *c, size_t *n, arena *a) {
    int64_t count = ir_type_count(&c->type);
    if (c->type.kind != IR_TENSOR || count < 0 || count > MAX_NUMBERS || !c->data) return NULL;
    double *v = ARENA_ARRAY(a, double, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++)
        if (!ir_const_number(c, (uint64_t)i, &v[i])) return NULL;
    *n = (size_t)count;
    return v;
}

static const double *constant_numbers(void *ctx, const ir_value *v, size_t *n, arena *a) {
    (void)ctx;
    return v->konst ? ir_const_numbers(v->konst, n, a) : NULL;
}

static ir_type declared_type(void *ctx, const ir_value *v) {
    (void)ctx;
    return v->type;
}

const ir_env ir_env_declared = {NULL, declared_type, constant_numbers};

static bool where(walk *w, const ir_op *op) {
    const char *out = op->n_out && op->out[0] && op->out[0]->name ? op->out[0]->name : op->name;
    return err_where(w->e, "function %s, op %s %s", w->f->name, ir_info(op->code)->name, out ? out : "");
}

/* Both must hold: what was declared and what follows from the operands. */
static bool settle(walk *w, const ir_value *v, ir_type t) {
    if (v->id >= w->f->n_values)
        return err_set(w->e, ERR_INVALID, "value %s belongs to another function", v->name ? v->name : "");
    if (!ir_type_compatible(&v->type, &t))
        return err_set(w->e, ERR_INVALID, "%s is declared as %s but is %s", v->name ? v->name : "output",
                       ir_type_text(w->a, &v->type), ir_type_text(w->a, &t));
    for (int i = 0; i < t.rank; i++)
        if (t.dim[i] == IR_DIM_UNKNOWN) t.dim[i] = v->type.dim[i];
    w->types[v->id] = t;
    return true;
}

static bool infer_block(walk *w, const ir_block *b, int depth);

static bool infer_one(walk *w, const ir_op *op, int depth) {
    for (uint32_t i = 0; i < op->n_block; i++) {
        if (depth >= MAX_NESTING) return err_set(w->e, ERR_INVALID, "blocks are nested too deeply");
        for (size_t k = 0; k < op->block[i]->n_in; k++)
            if (!settle(w, op->block[i]->in[k], op->block[i]->in[k]->type)) return where(w, op);
        if (!infer_block(w, op->block[i], depth + 1)) return false;
    }
    const ir_op_info *info = ir_info(op->code);
    for (int i = 0; i < info->n_slot; i++) /* literals have no op of their own */
        for (uint32_t k = 0; k < op->arg[i].n; k++) {
            const ir_value *v = op->arg[i].v[k];
            if (v && v->konst && !v->def && !settle(w, v, v->konst->type)) return where(w, op);
        }
    arena_reset(w->a);
    ir_type *out = ARENA_ARRAY(w->a, ir_type, op->n_out + 1);
    if (!ir_infer_op(op, w->f->spec, &w->env, out, w->a, w->e)) return where(w, op);
    for (uint32_t i = 0; i < op->n_out; i++)
        if (!settle(w, op->out[i], out[i])) return where(w, op);
    return true;
}

static bool infer_block(walk *w, const ir_block *b, int depth) {
    for (size_t i = 0; i < b->n_op; i++)
        if (!infer_one(w, b->op[i], depth)) return false;
    return true;
}

bool ir_infer_function(const ir_function *f, const ir_type *in, ir_type *types, err *e) {
    walk w = {f, types, arena_new(), e, {NULL, known_type, constant_numbers}};
    w.env.ctx = &w;
    memset(types, 0, f->n_values * sizeof *types); /* no type: a use before the definition is an error */
    bool ok = true;
    for (size_t i = 0; ok && i < f->n_in; i++) {
        ok = settle(&w, f->in[i], in ? in[i] : f->in[i]->type);
        if (!ok) err_where(e, "function %s, input %s", f->name, f->in[i]->name);
    }
    ok = ok && infer_block(&w, &f->body, 0);
    arena_free(w.a);
    return ok;
}
