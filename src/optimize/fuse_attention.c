#include "optimize/fuse.h"
#include <math.h>

static bool flag(const ir_value *v) {
    double x = 0;
    return v && fuse_number(v, &x) && x != 0;
}

/* k^T as the transpose of something: that. */
static ir_value *untransposed(ir_value *k) {
    int rank = k->type.rank;
    if (!k->def || k->def->code != OP_transpose || rank < 2) return NULL;
    const ir_value *perm = ir_in(k->def, A_perm);
    for (int d = 0; d < rank; d++) {
        double at;
        int want = d == rank - 1 ? rank - 2 : d == rank - 2 ? rank - 1 : d;
        if (!ir_const_number(perm->konst, (uint64_t)d, &at) || (at < 0 ? at + rank : at) != want) return NULL;
    }
    return ir_args(k->def, A_x)->v[0];
}

ir_value *fuse_list(fuser *f, const int64_t *v, int n) {
    int32_t *x = ARENA_ARRAY(f->p->a, int32_t, (size_t)n);
    for (int i = 0; i < n; i++) x[i] = (int32_t)v[i];
    return ir_literal(f->p, f->f, ir_const_new(f->p->a, IR_TYPE(DT_INT32, n), x), IR_BY_LITERAL);
}

ir_value *fuse_reshaped(fuser *f, ir_value *v, const ir_type *type) {
    ir_op *r = fuse_op(f, OP_reshape, 1);
    fuse_operand(f, r, A_x, v);
    fuse_operand(f, r, A_shape, fuse_list(f, type->dim, type->rank));
    return fuse_extra(f, r, *type);
}

/* A cache from its start to a run-time end, as in slice_by_index(x, begin, end), perhaps reshaped, turned and
 * repeated: the same from start to end of x, whose size is known, and the end. */
enum { CACHE_OPS = 8 };
typedef struct {
    ir_op *slice, *op[CACHE_OPS]; /* op: what follows the slice, the last one first */
    int n;
    int axis;                 /* of x, whose end is known at run time only */
    ir_type whole[CACHE_OPS]; /* of op's results when all of x's axis is taken */
    ir_type sliced;           /* and of the slice's */
} cache;

static bool only_unknown(const ir_type *t, int *axis) {
    int found = 0;
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] < 0) *axis = d, found++;
    return found == 1;
}

static bool keeps_elements(const ir_op *op) {
    return op->code == OP_reshape || op->code == OP_expand_dims || op->code == OP_squeeze ||
           op->code == OP_transpose || (op->code == OP_tile && ir_in(op, A_reps)->konst);
}

static bool find_slice(cache *c) {
    const ir_op *s = c->slice;
    const ir_type *x = &ir_in(s, A_x)->type, *end = &ir_in(s, A_end)->type;
    double begin, open = 0;
    const ir_value *masked = ir_in(s, A_end_mask);
    if (x->rank != c->sliced.rank || x->dim[c->axis] < 1 || ir_in(s, A_stride) || ir_in(s, A_squeeze_mask) ||
        ir_in(s, A_begin_mask) || end->rank != 1 || !ir_in(s, A_begin)->konst ||
        !ir_const_number(ir_in(s, A_begin)->konst, (uint64_t)c->axis, &begin) || begin != 0 ||
        (masked &&
         (!masked->konst || !ir_const_number(masked->konst, (uint64_t)c->axis, &open) || open != 0)))
        return false;
    c->sliced.dim[c->axis] = x->dim[c->axis];
    return true;
}

static bool find_cache(ir_value *v, cache *c) {
    int at;
    *c = (cache){0};
    for (; v->def && c->n < CACHE_OPS && keeps_elements(v->def); v = ir_args(v->def, A_x)->v[0])
        c->op[c->n++] = (ir_op *)v->def;
    c->slice = (ir_op *)v->def;
    c->sliced = v->type;
    if (!c->slice || c->slice->code != OP_slice_by_index || !only_unknown(&v->type, &c->axis) ||
        !find_slice(c))
        return false;
    int64_t elements = ir_type_count(&c->sliced);
    for (int i = c->n - 1; i >= 0; i--) { /* the length stays a dimension of its own */
        c->whole[i] = c->op[i]->out[0]->type;
        if (!only_unknown(&c->whole[i], &at)) return false;
        c->whole[i].dim[at] = c->sliced.dim[c->axis];
        int64_t n = ir_type_count(&c->whole[i]);
        double reps = 1;
        if (c->op[i]->code == OP_tile)
            ir_const_number(ir_in(c->op[i], A_reps)->konst, (uint64_t)at, &reps);
        else if (n != elements)
            return false;
        if (reps != 1) return false;
        elements = n;
    }
    return true;
}

static ir_value *take_cache(fuser *f, const cache *c) {
    int rank = c->sliced.rank;
    int64_t end[IR_MAX_RANK];
    for (int d = 0; d < rank; d++) {
        double begin = 0;
        ir_const_number(ir_in(c->slice, A_begin)->konst, (uint64_t)d, &begin);
        end[d] = (int64_t)begin + c->sliced.dim[d];
    }
    ir_op *s = fuse_op(f, OP_slice_by_index, 1);
    fuse_operand(f, s, A_x, ir_args(c->slice, A_x)->v[0]);
    fuse_operand(f, s, A_begin, ir_args(c->slice, A_begin)->v[0]);
    fuse_operand(f, s, A_end, fuse_list(f, end, rank));
    ir_value *v = fuse_extra(f, s, c->sliced);
    for (int i = c->n - 1; i >= 0; i--) {
        const ir_op *op = c->op[i];
        ir_operand more = op->code == OP_transpose ? A_perm : A_reps;
        if (op->code != OP_transpose && op->code != OP_tile) {
            v = fuse_reshaped(f, v, &c->whole[i]);
            continue;
        }
        ir_op *r = fuse_op(f, op->code, 1);
        fuse_operand(f, r, A_x, v);
        fuse_operand(f, r, more, ir_args(op, more)->v[0]);
        v = fuse_extra(f, r, c->whole[i]);
    }
    return v;
}

/* Keys and values whose number is known at run time only become all that the cache can hold, and their
 * number. */
static bool split_length(fuser *f, ir_value **key, ir_value **value, ir_value **length) {
    cache k, v;
    *length = NULL;
    if (ir_type_known(&(*key)->type) && ir_type_known(&(*value)->type)) return true;
    if (!find_cache(*key, &k) || !find_cache(*value, &v) || k.axis != v.axis ||
        ir_in(k.slice, A_end) != ir_in(v.slice, A_end) || k.sliced.dim[k.axis] != v.sliced.dim[v.axis])
        return false;
    *key = take_cache(f, &k);
    *value = take_cache(f, &v);
    int64_t at = k.axis, behind = at + 1;
    ir_op *n = fuse_op(f, OP_slice_by_index, 1);
    fuse_operand(f, n, A_x, ir_args(k.slice, A_end)->v[0]);
    fuse_operand(f, n, A_begin, fuse_list(f, &at, 1));
    fuse_operand(f, n, A_end, fuse_list(f, &behind, 1));
    *length = fuse_extra(f, n, IR_TYPE(DT_INT32, 1));
    return true;
}

/* What attention is made of. columns: the keys are the columns of key [.., D, S]. */
typedef struct {
    ir_value *query, *key, *value, *mask, *length;
    bool columns, causal;
    double scale;
    int32_t rounding;
} attention;

/* Repeated keys and values: queries [G,R,T,D] against keys [G,1,S,D] instead. False: they aren't repeated. */
static bool group(fuser *f, attention *t) {
    int64_t g, r, gv, rv;
    const ir_type *q = &t->query->type, *k = &t->key->type, *v = &t->value->type;
    if (q->rank < 3 || !ir_type_known(q) || !ir_type_known(k) || !ir_type_known(v)) return false;
    int64_t tokens = q->dim[q->rank - 2], d = q->dim[q->rank - 1], s = k->dim[k->rank - (t->columns ? 1 : 2)],
            e = v->dim[v->rank - 1];
    ir_value *bk = fuse_unrepeat(t->key, t->columns, &g, &r), *bv = fuse_unrepeat(t->value, false, &gv, &rv);
    if (!bk || !bv || g != gv || r != rv || ir_type_count(q) != g * r * tokens * d) return false;
    ir_type tq = IR_TYPE((ir_dtype)q->dtype, g, r, tokens, d), tk = IR_TYPE((ir_dtype)k->dtype, g, 1, s, d),
            tv = IR_TYPE((ir_dtype)v->dtype, g, 1, s, e);
    t->query = fuse_reshaped(f, t->query, &tq);
    t->key = fuse_reshaped(f, bk, &tk);
    t->value = fuse_reshaped(f, bv, &tv);
    t->columns = false;
    return true;
}

/* One row of mask for each token, for all heads. */
static bool plain_mask(const ir_value *mask) {
    for (int d = 0; mask && d + 2 < mask->type.rank; d++)
        if (mask->type.dim[d] != 1) return false;
    return true;
}

static bool keeps_rows(const ir_op *reshape) {
    const ir_type *x = &ir_in(reshape, A_x)->type, *y = &reshape->out[0]->type;
    return y->rank >= 2 && x->dim[x->rank - 1] == y->dim[y->rank - 1] &&
           x->dim[x->rank - 2] == y->dim[y->rank - 2];
}

static ir_value *turned(fuser *f, ir_value *v) {
    return fuse_swapped(f, v, v->type.rank - 2, v->type.rank - 1);
}

static bool add_attention(fuser *f, const match *m, attention t) {
    ir_value *root = m->op[0]->out[0];
    if (t.mask && !dtype_is_float((ir_dtype)t.mask->type.dtype)) return false;
    const ir_op *flat = fuse_find(m, OP_reshape); /* the weights, between softmax and the second product */
    if (!fuse_closed(f, m, NULL, 0) || !ir_type_known(&root->type) || (flat && !keeps_rows(flat)))
        return false;
    if (!split_length(f, &t.key, &t.value, &t.length)) return false;
    bool grouped = plain_mask(t.mask) && (!t.mask || t.mask->type.rank <= 4) && group(f, &t);
    if (flat && !grouped) return false;
    if (t.columns) t.key = turned(f, t.key);
    ir_op *op = fuse_op(f, OP_fused_attention, 1);
    fuse_operand(f, op, A_query, t.query);
    fuse_operand(f, op, A_key, t.key);
    fuse_operand(f, op, A_value, t.value);
    fuse_operand(f, op, A_length, t.length);
    fuse_operand(f, op, A_mask, t.mask);
    if (t.causal) fuse_operand(f, op, A_causal, fuse_bool(f, true));
    fuse_operand(f, op, A_scale, fuse_float(f, (float)t.scale));
    fuse_operand(f, op, A_rounding, fuse_int(f, t.rounding));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    if (!grouped) {
        f->fused = op;
        fuse_result(op, 0, root);
        return true;
    }
    ir_type type = t.query->type;
    type.dtype = root->type.dtype;
    type.dim[3] = t.value->type.dim[3];
    ir_value *y = fuse_extra(f, op, type);
    f->fused = fuse_op(f, OP_reshape, 1);
    fuse_operand(f, f->fused, A_x, y);
    fuse_operand(f, f->fused, A_shape, fuse_list(f, root->type.dim, root->type.rank));
    fuse_result(f->fused, 0, root);
    return true;
}

/* Which of the intermediate results are rounded. */
static int32_t roundings(const fuser *f, const match *m, const ir_op *product, const ir_op *scaled) {
    const ir_op *softmax = fuse_find(m, OP_softmax), *add = fuse_find(m, OP_add);
    int32_t rounding = fuse_rounds(f, product->out[0], 1) | fuse_rounds(f, add->out[0], 4) |
                       fuse_rounds(f, softmax->out[0], 8);
    if (scaled) rounding |= fuse_rounds(f, scaled->out[0], 2);
    for (int i = 1; i < m->n_op; i++) /* casts belong to what they cast */
        if (m->op[i]->code == OP_cast) {
            const ir_value *of = ir_in(m->op[i], A_x);
            rounding |= fuse_rounds(f, m->op[i]->out[0],
                                    of == softmax->out[0] ? 8
                                    : of == add->out[0]   ? 4
                                                          : 1);
        }
    return rounding;
}

/* softmax(q k) v; or with everything but the values the other way round, keys times queries. */
static bool find_sides(fuser *f, const match *m, const ir_op *product, attention *t) {
    const ir_op *outer = m->op[0], *softmax = fuse_find(m, OP_softmax);
    ir_value *a = match_get(m, "q"), *b = match_get(m, "k");
    bool ta = flag(ir_in(product, A_transpose_x)), tb = flag(ir_in(product, A_transpose_y));
    double axis = -1;
    int rank = softmax->out[0]->type.rank;
    t->value = match_get(m, "v"), t->mask = match_get(m, "mask");
    if (rank < 2 || a->type.rank < 2 || b->type.rank < 2 || t->value->type.rank < 2 ||
        flag(ir_in(outer, A_transpose_y)) ||
        (ir_in(softmax, A_axis) && !fuse_number(ir_in(softmax, A_axis), &axis)))
        return false;
    if (axis < 0) axis += rank;
    if (!flag(ir_in(outer, A_transpose_x))) {
        if (axis != rank - 1 || ta) return false;
        ir_value *rows = tb ? b : untransposed(b);
        *t = (attention){
            .query = a, .key = rows ? rows : b, .value = t->value, .mask = t->mask, .columns = !rows};
        return true;
    }
    bool known = ir_type_known(&a->type) && ir_type_known(&b->type) && t->mask->type.rank >= 2 &&
                 ir_type_known(&t->mask->type);
    if (axis != rank - 2 || !known || fuse_find(m, OP_reshape)) return false;
    t->query = tb ? b : turned(f, b);
    t->key = a, t->columns = ta;
    t->mask = turned(f, t->mask);
    return true;
}

/* A mask may not make more rows or heads than there are. */
static bool same_sizes(const ir_type *x, const ir_type *y) {
    bool same = x->rank == y->rank;
    for (int d = 0; d < x->rank && same; d++) same = x->dim[d] == y->dim[d];
    return same;
}

bool fuse_attention(fuser *f, const match *m) {
    ir_value *q = match_get(m, "q"), *s = match_get(m, "s");
    attention t = {.scale = 1};
    if (m->op[0]->code == OP_scaled_dot_product_attention) {
        t = (attention){.query = q,
                        .key = match_get(m, "k"),
                        .value = match_get(m, "v"),
                        .mask = match_get(m, "mask"),
                        .scale = 1 / sqrt((double)q->type.dim[q->type.rank - 1])};
        return ir_in(m->op[0], A_attn_mask) == t.mask && add_attention(f, m, t);
    }
    if (m->op[0]->code == OP_causal_attention) {
        t = (attention){.query = q, .key = match_get(m, "k"), .value = match_get(m, "v"), .causal = true};
        return fuse_number(s, &t.scale) && add_attention(f, m, t);
    }
    const ir_op *product = NULL;
    for (int i = 1; i < m->n_op; i++)
        if (m->op[i]->code == OP_matmul) product = m->op[i];
    const ir_op *sum = fuse_find(m, OP_add);
    if (!product || (sum && !same_sizes(&product->out[0]->type, &sum->out[0]->type)) ||
        !find_sides(f, m, product, &t))
        return false;
    t.scale = 1;
    if (s && !fuse_number(s, &t.scale)) return false;
    t.rounding = roundings(f, m, product, s ? fuse_find(m, OP_mul) : NULL);
    return add_attention(f, m, t);
}
