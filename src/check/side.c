#include "check/side.h"
#include <stdlib.h>

const ir_function *side_function(const lm *m, size_t i) {
    const ir_program *p = rt_model_coreml(m->model[i])->program;
    return p ? ir_function_find(p, m->form.func[0].stage[i].function) : NULL;
}

bool side_begin(side *s, const lm *m, size_t i, arena *scratch, err *e) {
    s->f = side_function(m, i);
    if (!s->f)
        return err_set(e, ERR_UNSUPPORTED, "%s: its weights are in the parts of a pipeline", m->name[i]);
    s->v = (ref_eval){.mode = REF_STRICT, .spec = s->f->spec, .scratch = scratch, .e = e};
    s->v.env = mem_try(s->f->n_values, sizeof *s->v.env);
    return s->v.env || err_set(e, ERR_MEMORY, "no memory for %u values", s->f->n_values);
}

void side_end(side *s) {
    for (uint32_t i = 0; s->f && s->v.env && i < s->f->n_values; i++) ref_tensor_drop(&s->v.env[i]);
    ref_eval_free_spares(&s->v);
    mem_free(s->v.env);
}

bool *side_parts(arena *a, const ir_function *f) {
    bool *part = ARENA_ARRAY(a, bool, f->n_values);
    for (size_t i = 0; i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        bool decompresses = ir_info(op->code)->flags & OPF_CONSTEXPR;
        for (int s = 0; decompresses && s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) part[op->arg[s].v[k]->id] = true;
    }
    return part;
}

/* depth: how many decompressing ops may lie one behind the other. */
static bool decode(side *s, const ir_value *v, int depth) {
    ref_tensor *t = &s->v.env[v->id];
    if (t->cell || t->konst) return true;
    if (v->konst) return ref_tensor_const(t, v->konst, s->v.e);
    if (!v->def || !(ir_info(v->def->code)->flags & OPF_CONSTEXPR) || !depth)
        return err_set(s->v.e, ERR_INVALID, "%s is no constant", v->name);
    for (int i = 0; i < ir_info(v->def->code)->n_slot; i++)
        for (uint32_t k = 0; k < v->def->arg[i].n; k++)
            if (!decode(s, v->def->arg[i].v[k], depth - 1)) return false;
    return ref_eval_op(&s->v, v->def);
}

bool side_decode(side *s, const ir_value *v) {
    return decode(s, v, 4);
}
