#include "optimize/fuse.h"
#include <assert.h>
#include <string.h>

static const struct {
    fuse_fn *build;
    const char *text;
} rows[] = {
#define FUSE(builder, text) {fuse_##builder, text},
#include "optimize/patterns.def"
#undef FUSE
};
#define N_ROWS (sizeof rows / sizeof *rows)

/* ---- for builders ---- */

ir_op *fuse_op(fuser *f, ir_opcode code, uint32_t n_out) {
    ir_op *op = ARENA_NEW(f->p->a, ir_op);
    op->code = code;
    op->arg = ARENA_ARRAY(f->p->a, ir_arg, ir_info(code)->n_slot);
    op->out = ARENA_ARRAY(f->p->a, ir_value *, n_out);
    op->n_out = n_out;
    return op;
}

void fuse_result(ir_op *op, uint32_t i, ir_value *v) {
    op->out[i] = v;
    v->def = op;
}

ir_value *fuse_extra(fuser *f, ir_op *op, ir_type type) {
    ir_value *v = ir_value_new(f->p, f->f, "cache", type);
    fuse_result(op, 0, v);
    assert(f->n_extra < sizeof f->extra / sizeof *f->extra);
    f->extra[f->n_extra++] = op;
    return v;
}

void fuse_operand(fuser *f, ir_op *op, ir_operand name, ir_value *v) {
    if (v) ir_set_arg(f->p, op, name, v);
}

static ir_value *scalar(fuser *f, ir_dtype d, const void *data, size_t size) {
    return ir_literal(f->p, f->f, ir_const_new(f->p->a, ir_scalar(d), arena_copy(f->p->a, data, size)),
                      IR_BY_LITERAL);
}

ir_value *fuse_int(fuser *f, int32_t v) {
    return scalar(f, DT_INT32, &v, sizeof v);
}

ir_value *fuse_float(fuser *f, float v) {
    return scalar(f, DT_FP32, &v, sizeof v);
}

ir_value *fuse_bool(fuser *f, bool v) {
    uint8_t b = v;
    return scalar(f, DT_BOOL, &b, 1);
}

ir_value *fuse_text(fuser *f, const char *s) {
    return ir_literal(f->p, f->f, ir_const_string(f->p->a, s), IR_BY_LITERAL);
}

int32_t fuse_rounds(const fuser *f, const ir_value *v, int32_t bit) {
    bool by_cast = v->def && v->def->code == OP_cast && v->type.dtype == DT_FP16 &&
                   ir_in(v->def, A_x)->type.dtype == DT_FP32;
    return by_cast || (f->strict && v->type.dtype == DT_FP16) ? bit : 0;
}

static bool among(const ir_op *op, const ir_op *const *list, int n) {
    for (int i = 0; i < n; i++)
        if (list[i] == op) return true;
    return false;
}

static uint32_t uses_by(const match *m, const ir_value *v) {
    uint32_t n = 0;
    for (int i = 0; i < m->n_op; i++)
        for (int s = 0; s < ir_info(m->op[i]->code)->n_slot; s++)
            for (uint32_t k = 0; k < m->op[i]->arg[s].n; k++) n += m->op[i]->arg[s].v[k] == v;
    return n;
}

bool fuse_closed(const fuser *f, const match *m, const ir_op *const *open, int n_open) {
    for (int i = 1; i < m->n_op; i++) {
        if (among(m->op[i], open, n_open)) continue;
        for (uint32_t k = 0; k < m->op[i]->n_out; k++)
            if (m->op[i]->out[k]->id >= f->cap_uses ||
                uses_by(m, m->op[i]->out[k]) != f->uses[m->op[i]->out[k]->id])
                return false;
    }
    return true;
}

ir_op *fuse_find(const match *m, ir_opcode code) {
    for (int i = 0; i < m->n_op; i++)
        if (m->op[i]->code == code) return m->op[i];
    return NULL;
}

bool fuse_uses(const ir_op *op, const ir_value *v) {
    for (int s = 0; s < ir_info(op->code)->n_slot; s++)
        for (uint32_t k = 0; k < op->arg[s].n; k++)
            if (op->arg[s].v[k] == v) return true;
    return false;
}

ir_op *fuse_user(const fuser *f, const ir_value *v, ir_opcode code) {
    ir_op *found = NULL;
    for (size_t i = 0; i < f->f->body.n_op; i++) {
        ir_op *op = f->f->body.op[i];
        if (op->code != code || !fuse_uses(op, v)) continue;
        if (found) return NULL;
        found = op;
    }
    return found;
}

bool fuse_number(const ir_value *v, double *x) {
    if (!v || !v->konst || ir_type_count(&v->konst->type) != 1) return false;
    return ir_const_number(v->konst, 0, x);
}

ir_value *fuse_swapped(fuser *f, ir_value *v, int a, int b) {
    if (a == b) return v;
    int64_t perm[IR_MAX_RANK];
    ir_type t = v->type;
    for (int d = 0; d < t.rank; d++) perm[d] = d == a ? b : d == b ? a : d;
    t.dim[a] = v->type.dim[b], t.dim[b] = v->type.dim[a];
    ir_op *op = fuse_op(f, OP_transpose, 1);
    fuse_operand(f, op, A_x, v);
    fuse_operand(f, op, A_perm, fuse_list(f, perm, t.rank));
    return fuse_extra(f, op, t);
}

void fuse_root_swapped(fuser *f, ir_op *op, ir_value *root, int a, int b) {
    if (a == b) {
        f->fused = op;
        fuse_result(op, 0, root);
        return;
    }
    int64_t perm[IR_MAX_RANK];
    ir_type t = root->type;
    for (int d = 0; d < t.rank; d++) perm[d] = d == a ? b : d == b ? a : d;
    t.dim[a] = root->type.dim[b], t.dim[b] = root->type.dim[a];
    ir_value *y = fuse_extra(f, op, t);
    f->fused = fuse_op(f, OP_transpose, 1);
    fuse_operand(f, f->fused, A_x, y);
    fuse_operand(f, f->fused, A_perm, fuse_list(f, perm, t.rank));
    fuse_result(f->fused, 0, root);
}

void fuse_replace(fuser *f, const ir_value *old, ir_value *by) {
    for (size_t i = 0; i < f->f->body.n_op; i++) {
        ir_op *op = f->f->body.op[i];
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++)
                if (op->arg[s].v[k] == old) op->arg[s].v[k] = by;
    }
    for (size_t i = 0; i < f->f->body.n_out; i++)
        if (f->f->body.out[i] == old) f->f->body.out[i] = by;
}

/* ---- the pass ---- */

static void count_uses(fuser *f) {
    const ir_block *b = &f->f->body;
    if (f->f->n_values > f->cap_uses) {
        f->cap_uses = 2 * (size_t)f->f->n_values;
        f->uses = ARENA_ARRAY(f->p->a, uint32_t, f->cap_uses);
    }
    memset(f->uses, 0, f->cap_uses * sizeof *f->uses);
    for (size_t i = 0; i < b->n_out; i++) f->uses[b->out[i]->id]++;
    for (size_t i = 0; i < b->n_op; i++)
        for (int s = 0; s < ir_info(b->op[i]->code)->n_slot; s++)
            for (uint32_t k = 0; k < b->op[i]->arg[s].n; k++) f->uses[b->op[i]->arg[s].v[k]->id]++;
}

static void put_extra(fuser *f) {
    ir_block *b = &f->f->body;
    if (!f->n_extra) return;
    b->op = arena_grow(f->p->a, b->op, b->n_op, &b->cap_op, b->n_op + f->n_extra, sizeof *b->op);
    memmove(b->op + f->place + f->n_extra, b->op + f->place, (b->n_op - f->place) * sizeof *b->op);
    memcpy(b->op + f->place, f->extra, f->n_extra * sizeof *b->op);
    b->n_op += f->n_extra;
}

void fuse_insert(fuser *f, size_t behind, ir_op *op) {
    ir_block *b = &f->f->body;
    assert(behind >= f->at && behind < b->n_op);
    b->op = arena_grow(f->p->a, b->op, b->n_op, &b->cap_op, b->n_op + 1, sizeof *b->op);
    memmove(b->op + behind + 2, b->op + behind + 1, (b->n_op - behind - 1) * sizeof *b->op);
    b->op[behind + 1] = op;
    b->n_op++;
}

static bool try_op(fuser *f, const pattern *const *compiled) {
    ir_block *b = &f->f->body;
    const ir_op *op = b->op[f->at];
    for (size_t r = 0; r < N_ROWS; r++) {
        match m;
        if (pattern_root(compiled[r]) != op->code || !pattern_match(compiled[r], b->op[f->at], &m)) continue;
        f->fused = NULL;
        f->n_extra = 0;
        f->place = f->at;
        if (!rows[r].build(f, &m)) continue;
        b->op[f->place] = f->fused;
        if (f->place != f->at) { /* earlier than the root, which is gone */
            memmove(b->op + f->at, b->op + f->at + 1, (b->n_op - f->at - 1) * sizeof *b->op);
            b->n_op--;
        }
        put_extra(f);
        f->at = f->place;
        return true;
    }
    return false;
}

#define MOST_PASSES 5 /* a form of a form of ... */

/* From the last op to the first, so that what is larger is found before its parts. Values that stopped being
 * used still count until the end of a pass, which can only make a match fail; the next pass finds it. */
void opt_fuse(ir_program *p, ir_function *f, bool strict) {
    fuser u = {.p = p, .f = f, .strict = strict};
    const pattern *compiled[N_ROWS];
    for (size_t r = 0; r < N_ROWS; r++) compiled[r] = pattern_parse(p->a, rows[r].text);
    bool changed = true;
    for (int pass = 0; pass < MOST_PASSES && changed; pass++) {
        changed = false;
        count_uses(&u);
        for (u.at = f->body.n_op; u.at-- > 0;) changed |= try_op(&u, compiled);
        opt_clean(f);
    }
}
