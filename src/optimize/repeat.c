/* Sees through reshapes, transpositions, tiles and broadcasts: a value as a view of what it came from,
 * repeated elements included. Converters repeat keys and values for every query head in many spellings. */
#include "optimize/fuse.h"
#include <string.h>

#define FACTORS 24

typedef struct {
    int64_t size, stride;
} factor;

/* Every dimension as a product of factors, outermost first; stride 0: repeats. */
typedef struct {
    int rank;
    int n[IR_MAX_RANK];
    factor f[IR_MAX_RANK][FACTORS];
} layout;

static bool push(layout *l, int d, factor f) {
    if (f.size == 1) return true;
    if (l->n[d] == FACTORS) return false;
    l->f[d][l->n[d]++] = f;
    return true;
}

static void of_type(layout *l, const ir_type *t) {
    int64_t stride = 1;
    *l = (layout){.rank = t->rank};
    for (int d = t->rank - 1; d >= 0; d--) {
        push(l, d, (factor){t->dim[d], stride});
        stride *= t->dim[d];
    }
}

/* Factors are dealt out from the left, split where a dimension ends inside of one. */
static bool regroup(layout *l, const ir_type *t) {
    factor flat[IR_MAX_RANK * FACTORS];
    int n = 0, at = 0;
    for (int d = 0; d < l->rank; d++)
        for (int i = 0; i < l->n[d]; i++) flat[n++] = l->f[d][i];
    *l = (layout){.rank = t->rank};
    for (int d = 0; d < t->rank; d++)
        for (int64_t need = t->dim[d]; need > 1;) {
            if (at == n) return false;
            factor *f = &flat[at];
            if (need % f->size == 0) {
                if (!push(l, d, *f)) return false;
                need /= f->size;
                at++;
            } else if (f->size % need == 0) {
                f->size /= need;
                if (!push(l, d, (factor){need, f->stride * f->size})) return false;
                need = 1;
            } else {
                return false;
            }
        }
    return at == n;
}

static bool permute(layout *l, const ir_const *perm) {
    layout old = *l;
    for (int d = 0; d < l->rank; d++) {
        double at;
        if (!perm || !ir_const_number(perm, (uint64_t)d, &at)) return false;
        int from = (int)(at < 0 ? at + old.rank : at);
        l->n[d] = old.n[from];
        memcpy(l->f[d], old.f[from], sizeof l->f[d]);
    }
    return true;
}

static bool repeat(layout *l, const ir_const *reps) {
    for (int d = 0; d < l->rank; d++) {
        double r;
        if (!reps || !ir_const_number(reps, (uint64_t)d, &r)) return false;
        if (r == 1) continue;
        if (r < 1 || l->n[d] == FACTORS) return false;
        memmove(l->f[d] + 1, l->f[d], (size_t)l->n[d]++ * sizeof(factor));
        l->f[d][0] = (factor){(int64_t)r, 0};
    }
    return true;
}

static bool broadcast(layout *l, const ir_type *from, const ir_type *to) {
    if (from->rank != to->rank) return false;
    for (int d = 0; d < l->rank; d++) {
        if (from->dim[d] == to->dim[d]) continue;
        if (from->dim[d] != 1 || !push(l, d, (factor){to->dim[d], 0})) return false;
    }
    return true;
}

static const ir_const *list(const ir_op *op, ir_operand name) {
    const ir_value *v = ir_in(op, name);
    return v ? v->konst : NULL;
}

/* What v is a view of, through at most a dozen ops; how, in l. */
static ir_value *trace(ir_value *v, layout *l) {
    const ir_op *chain[12];
    int n = 0;
    while (v->def && n < 12 &&
           (v->def->code == OP_reshape || v->def->code == OP_expand_dims || v->def->code == OP_squeeze ||
            v->def->code == OP_transpose || v->def->code == OP_tile || v->def->code == OP_broadcast_to)) {
        chain[n++] = v->def;
        v = ir_args(v->def, A_x)->v[0];
    }
    if (!ir_type_known(&v->type)) return NULL;
    of_type(l, &v->type);
    while (n-- > 0) {
        const ir_op *op = chain[n];
        const ir_type *to = &op->out[0]->type;
        bool ok =
            ir_type_known(to) && (op->code == OP_transpose      ? permute(l, list(op, A_perm))
                                  : op->code == OP_tile         ? repeat(l, list(op, A_reps))
                                  : op->code == OP_broadcast_to ? broadcast(l, &ir_in(op, A_x)->type, to)
                                                                : regroup(l, to));
        if (!ok) return NULL;
    }
    return v;
}

/* The last two dimensions in each other's place. */
static void turn(layout *l) {
    int a = l->rank - 2, b = l->rank - 1, n = l->n[a];
    factor f[FACTORS];
    memcpy(f, l->f[a], sizeof f);
    memcpy(l->f[a], l->f[b], sizeof f);
    memcpy(l->f[b], f, sizeof f);
    l->n[a] = l->n[b], l->n[b] = n;
}

ir_value *fuse_unrepeat(ir_value *v, bool columns, int64_t *groups, int64_t *heads) {
    layout l;
    factor head[IR_MAX_RANK * FACTORS];
    int n = 0, last = v->type.rank - 1;
    if (last < 2) return NULL;
    ir_value *base = trace(v, &l);
    int64_t rows = v->type.dim[columns ? last : last - 1], depth = v->type.dim[columns ? last - 1 : last];
    if (base && columns) turn(&l);
    bool row = depth == 1 ? !l.n[last] : l.n[last] == 1 && l.f[last][0].stride == 1;
    bool step = rows == 1 ? !l.n[last - 1] : l.n[last - 1] == 1 && l.f[last - 1][0].stride == depth;
    if (!base || !row || !step) return NULL;
    for (int d = 0; d < last - 1; d++)
        for (int i = 0; i < l.n[d]; i++) head[n++] = l.f[d][i];
    bool grouped = n == 2 && head[0].stride == rows * depth && head[1].stride == 0;
    bool single = n == 1 && head[0].stride == 0;
    if (!grouped && !single) return NULL;
    *groups = grouped ? head[0].size : 1;
    *heads = grouped ? head[1].size : head[0].size;
    return ir_type_count(&base->type) == *groups * rows * depth ? base : NULL;
}
