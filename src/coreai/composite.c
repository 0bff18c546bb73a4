/* Graphs that say what they are a decomposition of, and are one op of ours. */
#include "coreai/read.h"
#include <math.h>
#include <string.h>

static const ai_attr *attribute(const ai_attr *declared, const char *name) {
    const ai_attr *all = ai_attr_named(declared, "op_attrs");
    const ai_attr *x = all && all->n == 1 ? ai_attr_named(all->item[0], name) : NULL;
    return x && x->n == 1 ? x->item[0] : NULL;
}

static bool is_number(const ai_attr *declared, const char *name, int64_t n) {
    const ai_attr *x = attribute(declared, name);
    return x && x->code == AI_INTEGER && x->number == n;
}

/* A float; the fallback when it is absent. */
static bool real(const ai_attr *declared, const char *name, double fallback, double *v) {
    const ai_attr *x = attribute(declared, name);
    uint32_t bits = x ? (uint32_t)x->number : 0;
    float f;
    memcpy(&f, &bits, 4);
    *v = x ? (double)f : fallback;
    return !x || (x->code == AI_FLOAT && x->width == 32);
}

/* The graph takes just these, in this order. */
static bool takes(const ai_attr *declared, const char *const *name, uint32_t n) {
    const ai_attr *x = ai_attr_named(declared, "input_names");
    const ai_attr *list = x && x->n == 1 && x->item[0]->code == AI_ARRAY ? x->item[0] : NULL;
    if (!list || list->n != n) return false;
    for (uint32_t i = 0; i < n; i++)
        if (list->item[i]->code != AI_STRING || strcmp(list->item[i]->text, name[i]) != 0) return false;
    return true;
}

/* Every head as often as there are queries for it. */
static ir_value *for_queries(ai_read *r, ir_value *x, int64_t heads) {
    return x->type.dim[1] == heads ? x : ai_repeated(r, x, 1, heads / x->type.dim[1]);
}

/* Attention of tokens to the keys up to their own; keys and values may have fewer heads. */
static bool causal_attention(ai_read *r, const ai_attr *declared, bool *done) {
    static const char *const names[] = {"query", "key", "value"};
    const ai_op *op = r->op;
    double scale;
    if (!takes(declared, names, 3) || op->n_in != 3 || op->n_out != 1 || !is_number(declared, "version", 1) ||
        !is_number(declared, "is_causal", 1) || !is_number(declared, "window_size", 0))
        return true;
    ir_value *q = ai_in(r, 0), *k = ai_in(r, 1), *v = ai_in(r, 2);
    if (!ai_ok(r)) return false;
    const ir_type *tq = &q->type, *tk = &k->type, *tv = &v->type;
    bool fits = tq->rank == 4 && tk->rank == 4 && tv->rank == 4 && tq->dim[0] == 1 && tq->dim[3] > 0 &&
                tk->dim[1] > 0 && tq->dim[1] > 0 && tq->dim[1] % tk->dim[1] == 0 &&
                tk->dim[1] == tv->dim[1] && tk->dim[3] == tq->dim[3] && tv->dim[3] > 0 && tk->dim[0] == 1 &&
                tv->dim[0] == 1 && dtype_is_float((ir_dtype)tq->dtype);
    if (!fits || !real(declared, "scale", 1 / sqrt((double)tq->dim[3]), &scale)) return true;
    *done = true;
    return ai_result(r, b_op(&r->b, OP_causal_attention, NULL, A_query, q, A_key,
                             for_queries(r, k, tq->dim[1]), A_value, for_queries(r, v, tq->dim[1]), A_scale,
                             b_f32(&r->b, (float)scale), A_NONE));
}

bool ai_composite(ai_read *r, const ai_graph *g, bool *done) {
    const ai_attr *declared = g->op->prop[AI_GRAPH_COMPOSITE];
    *done = false;
    if (!declared || declared->code != AI_NAMED) return true;
    if (!strcmp(declared->text, "scaled_dot_product_attention")) return causal_attention(r, declared, done);
    return true;
}
