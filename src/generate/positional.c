#include "generate/positional.h"
#include <string.h>

#define MAX_STEPS 16 /* ops between an input and what begins a slice */

/* One function, as a part of the set. */
typedef struct {
    const contract *c;
    const contract_stage *g;
    const ir_function *f;
    const ir_value *state;
    int axis; /* found so far; -1: none yet */
} look;

static bool is_one(const ir_value *v) {
    return ir_type_count(&v->type) == 1;
}

/* The meaning of an input of the function; NULL: it has none, or v is no input. */
static const contract_feature *feature_of(const look *l, const ir_value *v) {
    if (v->def || v->konst || v->type.kind != IR_TENSOR) return NULL;
    for (size_t i = 0; i < l->g->n_input; i++)
        if (v->name && !strcmp(l->g->input[i].name, v->name)) return &l->g->input[i];
    return NULL;
}

static bool const_int(const ir_value *v, uint64_t i, int64_t *out) {
    double d;
    if (!v || !v->konst || !ir_const_number(v->konst, i, &d)) return false;
    *out = (int64_t)d;
    return true;
}

/* Every element of an optional constant is this one. */
static bool all_are(const ir_value *v, double want) {
    if (!v) return true;
    if (!v->konst) return false;
    for (int64_t i = 0; i < ir_type_count(&v->konst->type); i++) {
        double d;
        if (!ir_const_number(v->konst, (uint64_t)i, &d) || d != want) return false;
    }
    return true;
}

/* Whether numbers up to the context survive. */
static bool holds_positions(const look *l, ir_dtype d) {
    return d == DT_INT32 || d == DT_UINT32 ||
           ((d == DT_INT16 || d == DT_UINT16) && l->c->context <= INT16_MAX);
}

/* Behind what only gives one number another shape or type. */
static const ir_value *bare(const look *l, const ir_value *v) {
    for (int i = 0; i < MAX_STEPS && v->def && is_one(v); i++) {
        ir_opcode c = v->def->code;
        bool view = c == OP_squeeze || c == OP_expand_dims || c == OP_reshape || c == OP_identity;
        if (!view && !(c == OP_cast && holds_positions(l, (ir_dtype)v->type.dtype))) break;
        const ir_value *x = ir_in(v->def, A_x);
        if (!x || !is_one(x)) break;
        v = x;
    }
    return v;
}

/* The size of an input along an axis: *b and *axis say of which. */
static bool is_extent(const look *l, const ir_value *v, const contract_feature **b, int64_t *axis) {
    v = bare(l, v);
    if (!v->def || !is_one(v)) return false;
    bool slice = v->def->code == OP_slice_by_index;
    if (!slice && v->def->code != OP_gather) return false;
    const ir_value *x = ir_in(v->def, A_x);
    const ir_value *at = ir_in(v->def, slice ? A_begin : A_indices);
    if (!x || !x->def || x->def->code != OP_shape || !const_int(at, 0, axis) || *axis < 0) return false;
    if (slice && (!all_are(ir_in(v->def, A_begin_mask), 0) || !all_are(ir_in(v->def, A_stride), 1)))
        return false;
    *b = feature_of(l, ir_in(x->def, A_x));
    return *b != NULL;
}

/* Whether v is the position of the call's first token: the input that says so, or the positions in sight
 * less the tokens of the call. */
static bool is_position(const look *l, const ir_value *v) {
    const contract_feature *b, *t;
    int64_t k, n;
    if (!is_one(v)) return false;
    v = bare(l, v);
    if ((b = feature_of(l, v))) return b->is == MEANS_POSITION || (b->is == MEANS_POSITIONS && is_one(v));
    if (!v->def || v->def->code != OP_sub) return false;
    return is_extent(l, ir_in(v->def, A_x), &b, &k) && is_extent(l, ir_in(v->def, A_y), &t, &n) &&
           (b->is == MEANS_CAUSAL_MASK || b->is == MEANS_SEEN) && b->k == k && t->t == n;
}

/* A slice that begins at the position on one axis. */
static bool begins_there(look *l, const ir_op *op) {
    const ir_value *begin = ir_in(op, A_begin), *mask = ir_in(op, A_begin_mask);
    int rank = l->state->type.rank, axis = -1;
    if (!begin || !begin->def || begin->def->code != OP_concat || !all_are(ir_in(op, A_stride), 1) ||
        !all_are(ir_in(op, A_squeeze_mask), 0))
        return false;
    const ir_arg *part = ir_args(begin->def, A_values);
    if (part->n != (uint32_t)rank) return false;
    for (int i = 0; i < rank; i++) {
        if (!is_one(part->v[i])) return false;
        if (!is_position(l, part->v[i])) continue;
        if (axis >= 0) return false;
        axis = i;
    }
    int64_t masked = 0;
    if (axis < 0 || (l->axis >= 0 && axis != l->axis)) return false;
    if (mask && (!const_int(mask, (uint64_t)axis, &masked) || masked)) return false;
    l->axis = axis;
    return true;
}

/* What is written is the state's own value with such slices put in. */
static bool is_kept(look *l, const ir_value *v) {
    for (; v && v->def && v->def->code == OP_slice_update; v = ir_in(v->def, A_x))
        if (!begins_there(l, v->def)) return false;
    return v && v->def && v->def->code == OP_read_state && ir_in(v->def, A_input) == l->state;
}

static bool block_keeps(look *l, const ir_block *b, bool inner) {
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        bool writes = op->code == OP_write_state && ir_in(op, A_input) == l->state;
        if (writes && (inner || !is_kept(l, ir_in(op, A_data)))) return false;
        for (uint32_t k = 0; k < op->n_block; k++)
            if (!block_keeps(l, op->block[k], true)) return false;
    }
    return true;
}

static const ir_value *state_of(const ir_function *f, const char *name) {
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i]->type.kind == IR_STATE && !strcmp(f->in[i]->name, name)) return f->in[i];
    return NULL;
}

/* Package i's functions. False when one does something else. */
static bool package_keeps(const lm *m, size_t i, const char *state, int *axis) {
    const ir_program *p = rt_model_coreml(m->model[i])->program;
    for (size_t k = 0; k < m->form.n_func; k++) {
        look l = {.c = &m->form, .g = &m->form.func[k].stage[i], .axis = *axis};
        l.f = p ? ir_function_find(p, l.g->function) : NULL;
        if (!l.f) return false;
        if (!(l.state = state_of(l.f, state))) continue;
        if (!block_keeps(&l, &l.f->body, false)) return false;
        *axis = l.axis;
    }
    return true;
}

int positional_axis(const lm *m, size_t i, const char *state) {
    bool shared = m->form.d->states == STATES_SHARED;
    int axis = -1;
    for (size_t k = shared ? 0 : i; k < (shared ? m->n_model : i + 1); k++)
        if (!package_keeps(m, k, state, &axis)) return -1;
    return axis;
}
