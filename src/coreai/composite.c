/* Graphs that say what they are a decomposition of: those that are known become the ops that plans are made
 * of. A declaration whose attributes, types or sizes are others is left to its decomposition. */
#include "coreai/read.h"
#include "ir/infer.h"
#include <math.h>
#include <string.h>

/* ---- declarations ---- */

static const ai_attr *declaration(const ai_graph *g) {
    const ai_attr *d = g->op->prop[AI_GRAPH_COMPOSITE];
    return d && d->code == AI_NAMED ? d : NULL;
}

static const ai_attr *attribute(const ai_graph *g, const char *name) {
    const ai_attr *all = ai_attr_named(declaration(g), "op_attrs");
    const ai_attr *x = all && all->n == 1 ? ai_attr_named(all->item[0], name) : NULL;
    return x && x->n == 1 ? x->item[0] : NULL;
}

/* An integer; the fallback when it is absent. */
static bool whole(const ai_graph *g, const char *name, int64_t fallback, int64_t *v) {
    const ai_attr *x = attribute(g, name);
    *v = x ? x->number : fallback;
    return !x || x->code == AI_INTEGER;
}

static bool is_number(const ai_graph *g, const char *name, int64_t n) {
    int64_t v;
    return attribute(g, name) && whole(g, name, 0, &v) && v == n;
}

/* A float; the fallback when it is absent. */
static bool real(const ai_graph *g, const char *name, double fallback, double *v) {
    const ai_attr *x = attribute(g, name);
    uint32_t bits = x ? (uint32_t)x->number : 0;
    float f;
    memcpy(&f, &bits, 4);
    *v = x ? (double)f : fallback;
    return (!x || (x->code == AI_FLOAT && x->width == 32)) && isfinite(*v);
}

/* Version 1, which takes just these, in this order, and is called so: all numbers of them fp32, fp16 or
 * integers. */
static bool takes(const ai_read *r, const ai_graph *g, const char *const *name, uint32_t n, uint32_t n_out) {
    const ai_attr *x = ai_attr_named(declaration(g), "input_names");
    const ai_attr *list = x && x->n == 1 && x->item[0]->code == AI_ARRAY ? x->item[0] : NULL;
    const ai_op *op = r->op;
    if (!list || list->n != n || op->n_in != n || op->n_out != n_out || !is_number(g, "version", 1))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (list->item[i]->code != AI_STRING || strcmp(list->item[i]->text, name[i]) != 0) return false;
    for (uint32_t i = 0; i < n + n_out; i++) {
        const ai_type *t = (i < n ? op->in[i] : op->out[i - n])->type;
        if (t->code != AI_TENSOR || t->rank > IR_MAX_RANK || ai_narrow(t)) return false;
    }
    return true;
}

static bool is_float(const ir_value *v) {
    return v->type.dtype == DT_FP16 || v->type.dtype == DT_FP32;
}

static ir_dtype result_dtype(const ai_read *r, uint32_t i) {
    return (ir_dtype)r->op->out[i]->type->inner->dtype;
}

static ir_value *cast(ai_read *r, ir_value *x, ir_dtype d) {
    if (x->type.dtype == d) return x;
    return b_op(&r->b, OP_cast, NULL, A_x, x, A_dtype, b_text(&r->b, dtype_name(d)), A_NONE);
}

static ir_value *turned(ai_read *r, ir_value *x, int a, int b, int c, int d) {
    return b_op(&r->b, OP_transpose, NULL, A_x, x, A_perm, B_INTS(&r->b, a, b, c, d), A_NONE);
}

static ir_value *mul(ai_read *r, ir_value *x, ir_value *y) {
    return b_op(&r->b, OP_mul, NULL, A_x, x, A_y, y, A_NONE);
}

/* ---- norms ---- */

/* Along the last axis alone. */
static bool along_rows(const ai_graph *g, int rank) {
    const ai_attr *x = attribute(g, "axes");
    if (x && x->code == AI_ARRAY && x->n == 1) x = x->item[0];
    return x && x->code == AI_INTEGER && (x->number == -1 || x->number == rank - 1);
}

static ir_value *unit_rows(ai_read *r, ir_value *x, ir_value *gamma, double eps, bool rounds, ir_dtype d) {
    ir_builder *b = &r->b;
    return b_op(b, OP_fused_norm, NULL, A_x, x, A_gamma, gamma, A_epsilon, b_f32(b, (float)eps), A_scale,
                b_f32(b, 1), A_sum, b_bool(b, false), A_rounding, b_i32(b, rounds), A_output_dtype,
                b_text(b, dtype_name(d)), A_NONE);
}

/* Rows over their root mean square, in fp32, then in the input's type, times the scale; a scale in fp32
 * multiplies rows of fp16 before that. */
static bool rms_norm(ai_read *r, const ai_graph *g, bool *done) {
    static const char *const names[] = {"input", "scale"};
    double eps;
    if (!takes(r, g, names, 2, 1) || !real(g, "eps", -1, &eps) || eps < 0) return true;
    ir_value *x = ai_in(r, 0), *w = ai_in(r, 1);
    if (!ai_ok(r)) return false;
    const ir_type *tx = &x->type, *tw = &w->type;
    ir_dtype d = (ir_dtype)tx->dtype;
    if (!is_float(x) || !is_float(w) || (d == DT_FP32 && tw->dtype == DT_FP16) || result_dtype(r, 0) != d ||
        tw->rank < 1 || tx->rank < tw->rank || tx->dim[tx->rank - 1] < 1 || !along_rows(g, tx->rank) ||
        tw->dim[tw->rank - 1] != tx->dim[tx->rank - 1])
        return true;
    *done = true;
    bool rounds = d == DT_FP16 && tw->dtype == DT_FP16;
    if (w->konst && w->konst->data && tw->rank == 1) return ai_result(r, unit_rows(r, x, w, eps, rounds, d));
    ir_value *unit = unit_rows(r, x, NULL, eps, false, DT_FP32);
    return ai_result(r, cast(r, mul(r, cast(r, unit, (ir_dtype)tw->dtype), w), d));
}

/* ---- rotations ---- */

static int64_t elements(const ai_type *t) {
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] < 0 || __builtin_mul_overflow(n, t->dim[d], &n)) return -1;
    return n;
}

/* The constant of the decomposition that is base^(-i / n) for i < n, times scale; NULL: it has none, or
 * others. */
static ir_value *frequencies(ai_read *r, const ai_graph *g, int64_t n, double base, double scale) {
    for (uint32_t i = 0; i < g->body->n_op; i++) {
        const ai_op *op = g->body->op[i];
        if (strcmp(op->name, "primitive.constant_v1") || op->n_out != 1 || !op->prop || !op->prop[0] ||
            op->out[0]->type->code != AI_TENSOR || op->out[0]->type->inner->dtype != DT_FP32 ||
            elements(op->out[0]->type) != n)
            continue;
        const ir_const *c = ai_constant(r, op->prop[0], op->out[0]->type);
        if (!c) return NULL;
        bool same = true;
        for (int64_t k = 0; k < n && same; k++) {
            double x, want = scale * pow(base, -(double)k / (double)n);
            same = ir_const_number(c, (uint64_t)k, &x) && fabs(x - want) <= 1e-5 * fabs(want);
        }
        if (!same) continue;
        ir_const *flat = ARENA_NEW(r->a, ir_const);
        *flat = *c;
        flat->type = IR_TYPE(DT_FP32, n);
        return b_const(&r->b, NULL, flat);
    }
    return NULL;
}

static ir_value *twice(ai_read *r, ir_value *x) {
    ir_value *both[] = {x, x};
    return b_opv(&r->b, OP_concat, NULL, A_values, both, 2, A_axis, b_i32(&r->b, x->type.rank - 1),
                 A_interleave, b_bool(&r->b, false), A_NONE);
}

/* Pairs (i, i + half) of the first 2 half numbers of rows, by tables [.., half] in the rows' type. */
static ir_value *rotated(ai_read *r, ir_value *x, ir_value *cos, ir_value *sin) {
    ir_builder *b = &r->b;
    return b_op(b, OP_fused_rope, NULL, A_x, x, A_cos, twice(r, cos), A_sin, twice(r, sin), A_rounding,
                b_i32(b, 0), A_output_dtype, b_text(b, dtype_name((ir_dtype)x->type.dtype)), A_NONE);
}

static bool rotates_halves(const ai_read *r, const ai_graph *g, const ir_value *x, int64_t *half) {
    int64_t interleaved, dims;
    const ir_type *t = &x->type;
    if (!whole(g, "interleaved", 0, &interleaved) || interleaved || !is_float(x) || t->rank != 4 ||
        t->dim[3] < 2 || !whole(g, "dims", t->dim[3], &dims) || dims < 2 || dims % 2 || dims > t->dim[3] ||
        result_dtype(r, 0) != t->dtype)
        return false;
    *half = dims / 2;
    return true;
}

static bool broadcasts_to(const ir_type *table, const ir_type *x, int64_t half) {
    int shift = x->rank - table->rank;
    if (table->rank < 1 || shift < 0 || table->dim[table->rank - 1] != half) return false;
    for (int d = 0; d + 1 < table->rank; d++)
        if (table->dim[d] != 1 && table->dim[d] != x->dim[d + shift]) return false;
    return true;
}

/* Rows [B,H,T,D] by the angles that positions [B,T] times frequencies are, or by tables. */
static bool rope(ai_read *r, const ai_graph *g, bool *done) {
    static const char *const by_position[] = {"input", "position_ids"}, *const by_table[] = {"input", "cos",
                                                                                             "sin"};
    bool tables = takes(r, g, by_table, 3, 1);
    double base, scale;
    int64_t half;
    if ((!tables && !takes(r, g, by_position, 2, 1)) || !real(g, "base", 1e4, &base) || base <= 0 ||
        !real(g, "scale", 1, &scale))
        return true;
    ir_builder *b = &r->b;
    ir_value *x = ai_in(r, 0), *p = ai_in(r, 1);
    if (!ai_ok(r)) return false;
    if (!rotates_halves(r, g, x, &half)) return true;
    if (tables) {
        ir_value *sin = ai_in(r, 2);
        if (!ai_ok(r)) return false;
        if (p->type.dtype != x->type.dtype || sin->type.dtype != x->type.dtype ||
            !broadcasts_to(&p->type, &x->type, half) || !broadcasts_to(&sin->type, &x->type, half))
            return true;
        *done = true;
        return ai_result(r, rotated(r, x, p, sin));
    }
    if (p->type.rank != 2 || (p->type.dim[0] != x->type.dim[0] && p->type.dim[0] != 1)) return true;
    ir_value *turns = frequencies(r, g, half, base, scale);
    if (!turns) return ai_ok(r);
    *done = true;
    p = b_op(b, OP_expand_dims, NULL, A_x, cast(r, p, DT_FP32), A_axes, B_INTS(b, 1, 3), A_NONE);
    ir_value *angle = mul(r, p, turns);
    ir_dtype d = (ir_dtype)x->type.dtype;
    return ai_result(r, rotated(r, x, cast(r, b_op(b, OP_cos, NULL, A_x, angle, A_NONE), d),
                                cast(r, b_op(b, OP_sin, NULL, A_x, angle, A_NONE), d)));
}

/* ---- attention ---- */

/* Every head as often as there are queries for it. */
static ir_value *for_queries(ai_read *r, ir_value *x, int64_t heads) {
    return x->type.dim[1] == heads ? x : ai_repeated(r, x, 1, heads / x->type.dim[1]);
}

static bool attends(const ir_type *q, const ir_type *k, const ir_type *v) {
    return q->rank == 4 && k->rank == 4 && v->rank == 4 && q->dim[0] == 1 && q->dim[3] > 0 && k->dim[1] > 0 &&
           q->dim[1] > 0 && q->dim[1] % k->dim[1] == 0 && k->dim[1] == v->dim[1] && k->dim[3] == q->dim[3] &&
           v->dim[3] > 0 && k->dim[0] == 1 && v->dim[0] == 1 && q->dtype == k->dtype && q->dtype == v->dtype;
}

/* Added to the scores of all heads or of each. */
static bool masks(const ir_type *m, const ir_type *q, const ir_type *k) {
    if (m->rank < 2 || m->rank > 4 || m->dtype != q->dtype) return false;
    int64_t rows = m->dim[m->rank - 2], keys = m->dim[m->rank - 1];
    bool fits = rows == q->dim[2] && keys == k->dim[2];
    for (int d = 0; d < m->rank - 2; d++) fits &= m->dim[d] == 1 || m->dim[d] == q->dim[d + 4 - m->rank];
    return fits;
}

/* Causal: of tokens to the keys up to their own. Else to all, with what a mask adds. Keys and values may have
 * fewer heads. */
static bool attention(ai_read *r, const ai_graph *g, bool *done) {
    static const char *const names[] = {"query", "key", "value", "attn_mask"};
    ir_builder *b = &r->b;
    double scale;
    int64_t causal, window;
    bool masked = takes(r, g, names, 4, 1);
    if ((!masked && !takes(r, g, names, 3, 1)) || !whole(g, "is_causal", 0, &causal) ||
        !whole(g, "window_size", 0, &window) || window || (masked && causal))
        return true;
    ir_value *q = ai_in(r, 0), *k = ai_in(r, 1), *v = ai_in(r, 2), *mask = masked ? ai_in(r, 3) : NULL;
    if (!ai_ok(r)) return false;
    if (!is_float(q) || !attends(&q->type, &k->type, &v->type) || result_dtype(r, 0) != q->type.dtype ||
        (mask && !masks(&mask->type, &q->type, &k->type)))
        return true;
    double usual = 1 / sqrt((double)q->type.dim[3]);
    if (!real(g, "scale", usual, &scale) || (!causal && fabs(scale - usual) > 1e-6 * usual)) return true;
    *done = true;
    k = for_queries(r, k, q->type.dim[1]), v = for_queries(r, v, q->type.dim[1]);
    if (!causal)
        return ai_result(r, b_op(b, OP_scaled_dot_product_attention, NULL, A_query, q, A_key, k, A_value, v,
                                 A_attn_mask, mask, A_NONE));
    return ai_result(r, b_op(b, OP_causal_attention, NULL, A_query, q, A_key, k, A_value, v, A_scale,
                             b_f32(b, (float)scale), A_NONE));
}

/* ---- the gated delta rule ---- */

/* Queries and keys are made of unit length first: the attribute says so, where it is, and the decomposition,
 * which takes roots for nothing else. False: it is neither way. */
static bool makes_unit(const ai_graph *g, bool *unit) {
    int64_t said, roots = 0;
    for (uint32_t i = 0; i < g->body->n_op; i++) roots += !strcmp(g->body->op[i]->name, "primitive.rsqrt_v1");
    *unit = roots == 2;
    return (roots == 0 || roots == 2) && whole(g, "use_qk_l2_norm", *unit, &said) && (said != 0) == *unit;
}

/* query, key [1,H,T,dk], value [1,H,T,dv], g (the decay's logarithm), beta [1,H,T], state [1,H,dk,dv]. */
static bool delta_fits(ir_value *const *in) {
    const ir_type *q = &in[0]->type, *k = &in[1]->type, *v = &in[2]->type, *s = &in[5]->type;
    for (int i = 0; i < 6; i++) {
        const ir_type *t = &in[i]->type;
        if (!is_float(in[i]) || t->rank != (i == 3 || i == 4 ? 3 : 4) || t->dim[0] != 1 ||
            t->dim[1] != s->dim[1] || (i < 5 && t->dim[2] != v->dim[2]))
            return false;
    }
    return ir_type_known(s) && ir_type_count(s) > 0 && q->dim[3] == s->dim[2] && k->dim[3] == s->dim[2] &&
           v->dim[3] == s->dim[3];
}

/* By head: [1,H,..] as [H,1,..]. */
static ir_value *by_head(ai_read *r, ir_value *x) {
    if (x->type.rank == 3) x = b_op(&r->b, OP_expand_dims, NULL, A_x, x, A_axes, B_INTS(&r->b, 3), A_NONE);
    return turned(r, x, 1, 0, 2, 3);
}

/* Token by token; results [1,T,H,dv] and the state behind the last, both in the query's type. */
static bool gated_delta_update(ai_read *r, const ai_graph *g, bool *done) {
    static const char *const names[] = {"query", "key", "value", "g", "beta", "initial_state"};
    ir_builder *b = &r->b;
    ir_value *in[6], *out[2];
    bool unit;
    if (!takes(r, g, names, 6, 2) || !makes_unit(g, &unit)) return true;
    for (uint32_t i = 0; i < 6; i++) in[i] = ai_in(r, i);
    if (!ai_ok(r)) return false;
    ir_dtype d = (ir_dtype)in[0]->type.dtype;
    if (!delta_fits(in) || result_dtype(r, 0) != d || result_dtype(r, 1) != d) return true;
    *done = true;
    double scale = 1 / sqrt((double)in[0]->type.dim[3]);
    ir_value *memory = d == DT_FP32 ? cast(r, in[5], d) : in[5];
    b_op_multi(b, OP_fused_delta_rule, NULL, out, 2, A_memory, memory, A_query, by_head(r, in[0]), A_key,
               by_head(r, in[1]), A_value, by_head(r, in[2]), A_log_decay, by_head(r, in[3]), A_beta,
               by_head(r, in[4]), A_unit, unit ? b_f32(b, 1e-6f) : NULL, A_scale, b_f32(b, (float)scale),
               A_output_dtype, b_text(b, dtype_name(d)), A_NONE);
    if (!ai_ok(r)) return false;
    ai_set(r, r->op->out[0], turned(r, out[0], 1, 2, 0, 3));
    ai_set(r, r->op->out[1], cast(r, out[1], d));
    return ai_ok(r);
}

/* ---- products with chosen matrices ---- */

/* x with dimension `axis` replaced by those of the indices. */
static bool chosen_type(const ir_type *x, const ir_type *i, int axis, ir_type *t) {
    if (axis < 0 || axis > x->rank - 3 || x->rank - 1 + i->rank > IR_MAX_RANK) return false;
    *t = *x;
    t->rank = (int8_t)(x->rank - 1 + i->rank);
    for (int d = 0; d < i->rank; d++) t->dim[axis + d] = i->dim[d];
    for (int d = axis + 1; d < x->rank; d++) t->dim[d - 1 + i->rank] = x->dim[d];
    return true;
}

/* x [..,m,k] times y [..,k,n] is of the type that the call declares. */
static bool product_is(const ai_read *r, const ir_type *x, const ir_type *y) {
    const ai_type *want = r->op->out[0]->type;
    ir_type a = *x, c = *y, z;
    if (x->rank < 2 || y->rank < 2 || x->dtype != y->dtype || x->dim[x->rank - 1] != y->dim[y->rank - 2])
        return false;
    a.rank = (int8_t)(a.rank - 2), c.rank = (int8_t)(c.rank - 2);
    if (!ir_broadcast(&a, &c, &z) || z.rank + 2 != want->rank || want->inner->dtype != x->dtype) return false;
    z.dim[z.rank] = x->dim[x->rank - 2], z.dim[z.rank + 1] = y->dim[y->rank - 1];
    for (int d = 0; d < want->rank; d++) {
        int64_t n = want->dim[d];
        if (n != AI_DYNAMIC && z.dim[d] != IR_DIM_UNKNOWN && n != z.dim[d]) return false;
    }
    return true;
}

/* lhs times the matrices of rhs that the indices choose, along the axis behind those of the batch. */
static bool gather_mm(ai_read *r, const ai_graph *g, bool *done) {
    static const char *const names[] = {"lhs", "rhs", "rhs_indices"};
    ir_builder *b = &r->b;
    int64_t axis;
    ir_type t;
    if (!takes(r, g, names, 3, 1) || !whole(g, "num_batch_axes", 0, &axis)) return true;
    ir_value *x = ai_in(r, 0), *w = ai_in(r, 1), *i = ai_in(r, 2);
    if (!ai_ok(r)) return false;
    if (!is_float(x) || i->type.dtype != DT_INT32 || axis > IR_MAX_RANK ||
        !chosen_type(&w->type, &i->type, (int)axis, &t) || !product_is(r, &x->type, &t))
        return true;
    *done = true;
    w = b_op(b, OP_gather, NULL, A_x, w, A_indices, i, A_axis, b_i32(b, (int32_t)axis), A_NONE);
    return ai_result(r, b_op(b, OP_matmul, NULL, A_x, x, A_y, w, A_NONE));
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    bool (*lower)(ai_read *r, const ai_graph *g, bool *done);
} known[] = {
    {"rms_norm", rms_norm},
    {"rope", rope},
    {"scaled_dot_product_attention", attention},
    {"gated_delta_update", gated_delta_update},
    {"gather_mm", gather_mm},
};

const char *ai_composite_kind(const ai_graph *g) {
    const ai_attr *d = declaration(g);
    return d ? d->text : NULL;
}

bool ai_composite(ai_read *r, const ai_graph *g, bool *done) {
    const char *kind = ai_composite_kind(g);
    *done = false;
    for (size_t i = 0; kind && i < sizeof known / sizeof *known; i++)
        if (!strcmp(kind, known[i].name)) return known[i].lower(r, g, done);
    return true;
}
