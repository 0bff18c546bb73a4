/* One token of the gated delta rule and of its convolution as other converters write them: their memories may
 * be turned, wider than needed, or no states at all. */
#include "base/num.h"
#include "optimize/fuse.h"

static bool per_head(const ir_value *v, int64_t heads, int64_t n) {
    return ir_type_count(&v->type) == heads * n;
}

/* Nobody but the matched ops looks at v before the root does. */
static bool used_later(const fuser *f, const match *m, const ir_value *v, size_t from) {
    for (size_t i = from; i < f->at; i++) {
        const ir_op *op = f->f->body.op[i];
        bool matched = false;
        for (int k = 0; k < m->n_op; k++) matched |= m->op[k] == op;
        if (!matched && fuse_uses(op, v)) return false;
    }
    return true;
}

/* Behind the root it is moved and stored, no more: arithmetic would be with what the state has rounded. */
static bool only_kept(const fuser *f, const ir_value *v) {
    for (size_t i = f->at + 1; i < f->f->body.n_op; i++) {
        const ir_op *op = f->f->body.op[i];
        bool moves = op->code == OP_write_state || op->code == OP_concat || op->code == OP_reshape ||
                     op->code == OP_expand_dims || op->code == OP_squeeze || op->code == OP_transpose ||
                     op->code == OP_slice_update || op->code == OP_identity;
        if (!moves && fuse_uses(op, v)) return false;
    }
    return true;
}

/* What a delta rule starts from and what it leaves. */
typedef struct {
    ir_value *memory, *newest; /* before and behind the token, of one type */
    ir_value *s, *decay;       /* the factors that S begins with */
} recurrence;

static bool is_widened(const ir_value *v) {
    return v->def && v->def->code == OP_cast && v->type.dtype == DT_FP32 &&
           ir_in(v->def, A_x)->type.dtype == DT_FP16;
}

/* S, in the shape of the memory, is the new memory: as it is, or rounded to the memory's fp16. In fp16
 * roundings in between are those of another order, so such programs keep their form in strict mode. */
static bool find_memory(const fuser *f, const match *m, ir_value *S, recurrence *r) {
    r->s = match_get(m, "s"), r->decay = match_get(m, "decay");
    if (!ir_type_equal(&r->s->type, &S->type)) { /* the factors of a product come in any order */
        ir_value *other = r->s;
        r->s = r->decay, r->decay = other;
    }
    if (!ir_type_equal(&r->s->type, &S->type) || !ir_type_known(&S->type)) return false;
    r->memory = r->s, r->newest = S;
    if (is_widened(r->s)) {
        const ir_op *narrow = fuse_user(f, S, OP_cast);
        if (!narrow || narrow->out[0]->type.dtype != DT_FP16 || f->uses[S->id] != 2) return false;
        r->memory = fuse_in(r->s->def, A_x), r->newest = narrow->out[0];
    } else if (S->type.dtype == DT_FP16 && f->strict) {
        return false;
    }
    return used_later(f, m, r->newest, fuse_index(f, r->newest->def)) &&
           (r->newest->type.dtype == DT_FP32 || only_kept(f, r->newest));
}

/* One token, of values that are in order by head. S may have ones in front of [1,H,dk,dv]. */
static bool make_delta(fuser *f, const match *m, ir_value *S, ir_value *k, bool turned) {
    ir_value *q = match_get(m, "q"), *v = match_get(m, "v"), *beta = match_get(m, "beta"),
             *root = m->op[0]->out[0];
    int rank = S->type.rank;
    recurrence r;
    if (rank < 4 || !find_memory(f, m, S, &r)) return false;
    ir_type flat = S->type;
    for (int d = 0; d < 4; d++) flat.dim[d] = S->type.dim[rank - 4 + d];
    flat.rank = 4, flat.dtype = r.memory->type.dtype;
    int64_t heads = flat.dim[0] * flat.dim[1], dk = flat.dim[turned ? 3 : 2], dv = flat.dim[turned ? 2 : 3];
    const ir_op *open[] = {S->def, r.newest->def};
    if (ir_type_count(&S->type) != ir_type_count(&flat) || !per_head(q, heads, dk) ||
        !per_head(k, heads, dk) || !per_head(v, heads, dv) || !per_head(r.decay, heads, 1) ||
        !per_head(beta, heads, 1) || !per_head(root, heads, dv) || root->type.dtype != v->type.dtype ||
        !fuse_closed(f, m, open, 2))
        return false;
    ir_op *op = fuse_op(f, OP_fused_delta, 2);
    fuse_operand(f, op, A_memory, rank == 4 ? r.memory : fuse_reshaped(f, r.memory, &flat));
    fuse_operand(f, op, A_query, q);
    fuse_operand(f, op, A_key, k);
    fuse_operand(f, op, A_value, v);
    fuse_operand(f, op, A_decay, r.decay);
    fuse_operand(f, op, A_beta, beta);
    fuse_operand(f, op, A_rounding, fuse_int(f, 0));
    fuse_operand(f, op, A_turned, fuse_bool(f, turned));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_result(op, 1, ir_value_new(f->p, f->f, S->name, flat));
    if (ir_type_equal(&root->type, &v->type) && ir_type_equal(&r.newest->type, &flat)) {
        f->fused = op;
        fuse_result(op, 0, root);
        fuse_replace(f, r.newest, op->out[1]);
        return true;
    }
    ir_value *y = fuse_extra(f, op, v->type);
    f->fused = fuse_op(f, OP_reshape, 1);
    fuse_operand(f, f->fused, A_x, y);
    fuse_operand(f, f->fused, A_shape, fuse_list(f, root->type.dim, root->type.rank));
    fuse_result(f->fused, 0, root);
    fuse_replace(f, r.newest, fuse_reshaped(f, op->out[1], &r.newest->type));
    return true;
}

static bool is_true(const ir_value *v) {
    double x = 0;
    return v && fuse_number(v, &x) && x != 0;
}

/* The memory is [1,H,dv,dk]; k and q are columns. */
bool fuse_delta_turned(fuser *f, const match *m) {
    ir_op *product[3] = {m->op[0], NULL, NULL}, *sum = fuse_find(m, OP_add); /* with q, outer, with k */
    for (int i = 1; i < m->n_op; i++)
        if (m->op[i]->code == OP_matmul) product[product[1] ? 2 : 1] = m->op[i];
    if (!sum || !product[2]) return false;
    ir_op *outer = fuse_in(sum, A_x)->def == product[1] || fuse_in(sum, A_y)->def == product[1] ? product[1]
                                                                                                : product[2];
    for (int i = 0; i < 3; i++)
        if (is_true(ir_in(product[i], A_transpose_x)) ||
            is_true(ir_in(product[i], A_transpose_y)) != (product[i] == outer))
            return false;
    return sum->out[0]->type.rank == 4 && make_delta(f, m, sum->out[0], match_get(m, "k"), true);
}

static bool sums_rows(const ir_op *op) {
    int rank = ir_in(op, A_x)->type.rank;
    double axis;
    return fuse_number(ir_in(op, A_axes), &axis) && (axis == -2 || axis == rank - 2);
}

/* [.., heads, rows, columns], ones in front. */
static bool lies(const ir_type *t, int64_t heads, int64_t rows, int64_t columns) {
    return t->rank >= 2 && t->dim[t->rank - 1] == columns && t->dim[t->rank - 2] == rows &&
           ir_type_count(t) == heads * rows * columns &&
           (t->rank > 2 ? t->dim[t->rank - 3] == heads : heads == 1);
}

/* v [.., heads, dv], beta a number for each of its rows. */
static bool rows_by_head(const ir_type *v, const ir_type *beta, int64_t heads, int64_t dv) {
    return v->rank >= 2 && v->dim[v->rank - 1] == dv && v->dim[v->rank - 2] == heads &&
           beta->rank == v->rank && beta->dim[beta->rank - 1] == 1;
}

static const ir_value *unshaped(const ir_value *v) {
    while (v->def && v->def->code == OP_reshape) v = ir_in(v->def, A_x);
    return v;
}

/* Products as sums: the memory is [1,H,dk,dv], perhaps with ones in front; k and q are columns. */
bool fuse_delta_sums(fuser *f, const match *m) {
    ir_value *q = match_get(m, "q"), *k = match_get(m, "k"), *l = match_get(m, "l"), *v = match_get(m, "v");
    const ir_type *S = &fuse_find(m, OP_add)->out[0]->type;
    if (S->rank < 4) return false;
    int64_t heads = S->dim[S->rank - 3], dk = S->dim[S->rank - 2], dv = S->dim[S->rank - 1];
    if (!lies(S, heads, dk, dv) || !lies(&q->type, heads, dk, 1) || !lies(&k->type, heads, dk, 1) ||
        (l && (!lies(&l->type, heads, dk, 1) || unshaped(l) != unshaped(k))) ||
        !rows_by_head(&v->type, &match_get(m, "beta")->type, heads, dv))
        return false;
    for (int i = 1; i < m->n_op; i++) { /* (v - S^T k) beta is a row, sums are over its columns */
        const ir_type *t = &m->op[i]->out[0]->type;
        bool shapes = m->op[i]->code == OP_expand_dims || m->op[i]->code == OP_reshape;
        if (shapes && !lies(t, heads, 1, dv) && !lies(t, heads, dk, dv) && !ir_type_equal(t, &v->type))
            return false;
    }
    for (int i = 0; i < m->n_op; i++)
        if (m->op[i]->code == OP_reduce_sum &&
            (!sums_rows(m->op[i]) || !lies(&ir_in(m->op[i], A_x)->type, heads, dk, dv)))
            return false;
    return make_delta(f, m, fuse_find(m, OP_add)->out[0], k, false);
}

/* A norm of rows, perhaps cast, each of which is there several times: that of each row once, repeated. */
bool fuse_norm_repeated(fuser *f, const match *m) {
    const ir_op *norm = fuse_find(m, OP_fused_norm);
    ir_value *rows = fuse_in(norm, A_x), *root = m->op[0]->out[0];
    int64_t groups = 0, heads = 0;
    int last = rows->type.rank - 1;
    ir_value *base = last < 2 ? NULL : fuse_unrepeat(rows, false, &groups, &heads);
    if (!base || base == rows || heads < 2 || rows->type.dim[last - 1] != 1 || !fuse_closed(f, m, NULL, 0))
        return false;
    int64_t n = rows->type.dim[last], wide[] = {groups, heads, n};
    ir_type flat = IR_TYPE((ir_dtype)rows->type.dtype, groups, 1, n), made = flat, all = flat;
    made.dtype = norm->out[0]->type.dtype, all.dtype = root->type.dtype, all.dim[1] = heads;
    ir_op *once = fuse_op(f, OP_fused_norm, 1);
    for (int s = 0; s < ir_info(OP_fused_norm)->n_slot; s++) once->arg[s] = norm->arg[s];
    fuse_operand(f, once, A_x, fuse_reshaped(f, base, &flat));
    ir_value *y = fuse_extra(f, once, made);
    if (m->op[0]->code == OP_cast) {
        ir_op *cast = fuse_op(f, OP_cast, 1);
        fuse_operand(f, cast, A_x, y);
        fuse_operand(f, cast, A_dtype, fuse_in(m->op[0], A_dtype));
        made.dtype = root->type.dtype;
        y = fuse_extra(f, cast, made);
    }
    ir_op *again = fuse_op(f, OP_broadcast_to, 1);
    fuse_operand(f, again, A_x, y);
    fuse_operand(f, again, A_shape, fuse_list(f, wide, 3));
    y = fuse_extra(f, again, all);
    f->fused = fuse_op(f, OP_reshape, 1);
    fuse_operand(f, f->fused, A_x, y);
    fuse_operand(f, f->fused, A_shape, fuse_list(f, root->type.dim, root->type.rank));
    fuse_result(f->fused, 0, root);
    return true;
}

/* Queries and keys that several heads of the memory share. */
bool fuse_delta_heads(fuser *f, const match *m) {
    static const ir_operand names[] = {A_query, A_key};
    const ir_op *was = m->op[0];
    ir_value *shared[2];
    int64_t groups = 0, heads = 0, share[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        ir_value *v = fuse_in(was, names[i]);
        const ir_type *t = &v->type;
        bool columns = t->rank > 2 && t->dim[t->rank - 1] == 1;
        shared[i] = fuse_unrepeat(v, columns, &groups, &heads);
        share[i] = heads;
        if (!shared[i] || shared[i] == v || heads < 2 ||
            (columns ? t->dim[t->rank - 1] : t->dim[t->rank - 2]) != 1)
            return false;
    }
    if (share[0] != share[1]) return false;
    f->fused = fuse_op(f, OP_fused_delta, was->n_out);
    for (int s = 0; s < ir_info(OP_fused_delta)->n_slot; s++) f->fused->arg[s] = was->arg[s];
    for (int i = 0; i < 2; i++) fuse_operand(f, f->fused, names[i], shared[i]);
    for (uint32_t i = 0; i < was->n_out; i++) fuse_result(f->fused, i, was->out[i]);
    return true;
}

/* Constant columns, each of one element a channel, side by side: [C,1,n] in fp16, `lead` zeros in front. */
static ir_value *taps_of(fuser *f, ir_value *const *column, int n, int64_t channels, int lead) {
    uint16_t *w = ARENA_ARRAY(f->p->a, uint16_t, (size_t)(channels * (n + lead)));
    for (int i = 0; i < n; i++)
        for (int64_t c = 0; c < channels; c++) {
            double x;
            if (!column[i]->konst || column[i]->type.dtype != DT_FP16 ||
                ir_type_count(&column[i]->type) != channels ||
                !ir_const_number(column[i]->konst, (uint64_t)c, &x))
                return NULL;
            w[c * (n + lead) + lead + i] = num_f32_f16((float)x);
        }
    return ir_literal(f->p, f->f, ir_const_new(f->p->a, IR_TYPE(DT_FP16, channels, 1, n + lead), w),
                      IR_BY_LITERAL);
}

static ir_op *conv_step(fuser *f, ir_value *memory, ir_value *x, ir_value *w, int64_t kept) {
    ir_op *op = fuse_op(f, OP_fused_conv_step, 2);
    fuse_operand(f, op, A_memory, memory);
    fuse_operand(f, op, A_x, x);
    fuse_operand(f, op, A_weight, w);
    fuse_operand(f, op, A_kept, fuse_int(f, (int32_t)kept));
    fuse_operand(f, op, A_rounding, fuse_int(f, 0));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, "fp16"));
    return op;
}

/* A history as wide as the convolution, whose oldest column drops out: the sum over its columns. With a tap
 * of 0 for that one it is the usual step. */
bool fuse_conv_sum(fuser *f, const match *m) {
    ir_value *s = match_get(m, "s"), *u = match_get(m, "u"), *w = match_get(m, "w"), *root = m->op[0]->out[0];
    const ir_op *concat = fuse_find(m, OP_concat), *slice = fuse_find(m, OP_slice_by_index);
    double axis, keep = 0;
    if (f->strict || s->type.rank != 3 || s->type.dim[0] != 1 || s->type.dtype != DT_FP16 ||
        u->type.rank != 3 || u->type.dim[2] != 1 || !fuse_joins(concat, 2) ||
        !ir_type_equal(&slice->out[0]->type, &s->type) || !fuse_number(ir_in(m->op[0], A_axes), &axis) ||
        (axis != -1 && axis != 2) || !fuse_number(ir_in(m->op[0], A_keep_dims), &keep) || !keep ||
        w->type.rank != 3 || !w->konst || w->type.dtype != DT_FP16 || !ir_type_equal(&w->type, &s->type))
        return false;
    int64_t channels = s->type.dim[1], n = s->type.dim[2];
    const ir_op *open[] = {slice};
    ir_value *newest = slice->out[0];
    if (fuse_part(f, newest, 2, 1, n) != concat->out[0] || !fuse_closed(f, m, open, 1) ||
        !used_later(f, m, newest, fuse_index(f, slice)) || n > 8)
        return false;
    uint16_t *taps = ARENA_ARRAY(f->p->a, uint16_t, (size_t)(channels * (n + 1)));
    for (int64_t i = 0; i < channels * n; i++) {
        double x;
        if (!ir_const_number(w->konst, (uint64_t)i, &x)) return false;
        taps[i / n * (n + 1) + 1 + i % n] = num_f32_f16((float)x);
    }
    ir_const *c = ir_const_new(f->p->a, IR_TYPE(DT_FP16, channels, 1, n + 1), taps);
    f->fused = conv_step(f, s, u, ir_literal(f->p, f->f, c, IR_BY_LITERAL), n);
    ir_value *memory = ir_value_new(f->p, f->f, newest->name, newest->type);
    fuse_result(f->fused, 0, root);
    fuse_result(f->fused, 1, memory);
    fuse_replace(f, newest, memory);
    return true;
}

/* The op that writes update to elements [from, from + n) of the last axis of x. */
static ir_op *writes_columns(fuser *f, ir_value *x, const ir_value *update, int64_t from, int64_t n) {
    for (size_t i = 0; i < f->f->body.n_op; i++) {
        ir_op *op = f->f->body.op[i];
        region r;
        int last = x->type.rank - 1;
        if (op->code != OP_slice_update || fuse_in(op, A_x) != x || fuse_in(op, A_update) != update ||
            !fuse_region(f, op, &r) || r.begin[last] != from || r.size[last] != n)
            continue;
        bool rest = true;
        for (int d = 0; d < last; d++) rest &= r.size[d] == x->type.dim[d];
        return rest ? op : NULL;
    }
    return NULL;
}

/* Four taps written out, three columns of a wider memory: these move up, the newest joins them. */
bool fuse_conv_columns(fuser *f, const match *m) {
    static const char *const names[] = {"w0", "w1", "w2", "w3"};
    ir_value *s = match_get(m, "s"), *u = match_get(m, "u"), *w[4], *root = m->op[0]->out[0];
    int rank = s->type.rank, last = rank - 1, seen = 0;
    if (f->strict || rank < 3 || s->type.dim[0] != 1 || s->type.dtype != DT_FP16 || s->type.dim[last] < 3)
        return false;
    int64_t channels = s->type.dim[1], width = s->type.dim[last];
    if (ir_type_count(&s->type) != channels * width || ir_type_count(&u->type) != channels ||
        ir_type_count(&root->type) != channels)
        return false;
    for (int i = 0; i < 4; i++) w[i] = match_get(m, names[i]);
    for (int i = 0; i < m->n_op; i++) { /* column c is multiplied by tap c */
        if (m->op[i]->code != OP_slice_by_index && m->op[i]->code != OP_split) continue;
        const ir_value *part = m->op[i]->out[0];
        for (int c = 0; c < 3; c++) {
            const ir_op *product = fuse_user(f, part, OP_mul);
            if (fuse_part(f, part, last, c, 1) != s || !product) continue;
            seen |= fuse_in(product, A_x) == w[c] || fuse_in(product, A_y) == w[c] ? 1 << c : 0;
        }
    }
    if (seen != 7 || !fuse_closed(f, m, NULL, 0)) return false;
    ir_op *moved = NULL;
    for (size_t i = 0; i < f->f->body.n_op && !moved; i++) {
        ir_op *op = f->f->body.op[i];
        if (op->code == OP_slice_by_index && fuse_part(f, op->out[0], last, 1, 2) == s)
            moved = writes_columns(f, s, op->out[0], 0, 2);
    }
    ir_op *joined = moved ? writes_columns(f, moved->out[0], u, 2, 1) : NULL;
    ir_value *taps = taps_of(f, w, 4, channels, 0);
    if (!joined || !taps || f->uses[moved->out[0]->id] != 1 || !used_later(f, m, joined->out[0], 0))
        return false;
    ir_type flat = IR_TYPE(DT_FP16, 1, channels, width), column = IR_TYPE(DT_FP16, 1, channels, 1);
    ir_value *memory = fuse_reshaped(f, s, &flat), *x = fuse_reshaped(f, u, &column);
    ir_op *step = conv_step(f, memory, x, taps, 3);
    ir_value *y = fuse_extra(f, step, column), *newest = ir_value_new(f->p, f->f, s->name, flat);
    fuse_result(step, 1, newest);
    ir_value *back = fuse_reshaped(f, newest, &s->type);
    fuse_replace(f, joined->out[0], back);
    f->fused = fuse_op(f, OP_reshape, 1);
    fuse_operand(f, f->fused, A_x, y);
    fuse_operand(f, f->fused, A_shape, fuse_list(f, root->type.dim, root->type.rank));
    fuse_result(f->fused, 0, root);
    return true;
}
