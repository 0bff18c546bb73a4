#include "reference/gemm.h"
#include "reference/ops.h"
#include "reference/walk.h"
#include <math.h>
#include <string.h>

/* ---- scaled_dot_product_attention ---- */

/* s[0..n) = softmax(s); a row that is -inf everywhere gives NaN. */
static void softmax_row(float *s, int64_t n) {
    float top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) top = s[i] > top ? s[i] : top;
    for (int64_t i = 0; i < n; i++) sum += s[i] = expf(s[i] - top);
    for (int64_t i = 0; i < n; i++) s[i] /= sum;
}

/* Adds the mask to scores [batch, L, S] for batch element b. */
static void add_mask(float *s, const ir_type *type, int64_t b, const ref_tensor *tm, const ref_cell *m) {
    int64_t st[IR_MAX_RANK], at = 0, l = type->dim[type->rank - 2], n = type->dim[type->rank - 1];
    ref_broadcast_strides(&tm->type, type, st);
    for (int d = type->rank - 3; d >= 0; d--) {
        at += b % type->dim[d] * st[d];
        b /= type->dim[d];
    }
    for (int64_t i = 0; i < l; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t k = at + i * st[type->rank - 2] + j * st[type->rank - 1];
            if (tm->type.dtype != DT_BOOL)
                s[i * n + j] += ((const float *)(const void *)m)[k];
            else if (!m[k])
                s[i * n + j] = -INFINITY;
        }
}

bool ev_sdpa(ref_eval *v) {
    const ref_tensor *tq = ev_in(v, A_query), *tk = ev_in(v, A_key), *tv = ev_in(v, A_value),
                     *tm = ev_in(v, A_attn_mask);
    int r = tq->type.rank;
    const float *q = ev_floats(v, tq), *k = ev_floats(v, tk), *val = ev_floats(v, tv);
    const ref_cell *m = tm ? ev_cells(v, tm) : NULL;
    if (!q || !k || !val || (tm && !m)) return false;
    if (r < 3 || tk->type.rank != r || tv->type.rank != r)
        return ev_fail(v, "query, key and value must have one rank >= 3");
    int64_t batch = ref_outer(&tq->type, r - 2), l = tq->type.dim[r - 2], e = tq->type.dim[r - 1];
    int64_t s = tk->type.dim[r - 2], ev = tv->type.dim[r - 1];
    ir_type type = tq->type, fit;
    type.dim[r - 1] = s;
    if (memcmp(tq->type.dim, tk->type.dim, (size_t)(r - 2) * sizeof type.dim[0]) ||
        memcmp(tq->type.dim, tv->type.dim, (size_t)(r - 2) * sizeof type.dim[0]) ||
        tk->type.dim[r - 1] != e || tv->type.dim[r - 2] != s)
        return ev_fail(v, "query, key and value don't fit");
    if (tm && (!ir_broadcast(&type, &tm->type, &fit) || fit.rank != r ||
               memcmp(fit.dim, type.dim, (size_t)r * sizeof type.dim[0])))
        return ev_fail(v, "attn_mask %s doesn't broadcast to the scores",
                       ir_type_text(v->scratch, &tm->type));
    if (!ev_new(v, 0)) return false;
    float *scores = ev_temp(v, l * s), root = sqrtf((float)e), *o = ref_floats(&v->out[0]);
    if (!scores) return false;
    for (int64_t b = 0; b < batch; b++) {
        ref_gemm(scores, q + b * l * e, l,
                 &(ref_matrix){.data = k + b * s * e, .k = e, .n = s, .by_output = true});
        for (int64_t i = 0; i < l * s; i++) scores[i] /= root;
        if (m) add_mask(scores, &type, b, tm, m);
        for (int64_t i = 0; i < l; i++) softmax_row(scores + i * s, s);
        ref_gemm(o + b * l * ev, scores, l, &(ref_matrix){.data = val + b * s * ev, .k = s, .n = ev});
    }
    return true;
}

/* ---- einsum over two operands ---- */

#define LABELS 16

typedef struct {
    int n, n_out; /* labels; the first n_out are the output's, the rest are summed over, in order of
                     appearance */
    char name[LABELS];
    int64_t dim[LABELS], stride[3][LABELS]; /* 0, 1: operands; 2: result */
} contraction;

static int label(contraction *c, char name) {
    for (int i = 0; i < c->n; i++)
        if (c->name[i] == name) return i;
    if (c->n == LABELS) return -1;
    c->name[c->n] = name;
    c->dim[c->n] = -1;
    return c->n++;
}

/* One operand's labels: sizes must agree, a repeated label takes the diagonal. */
static bool einsum_term(ref_eval *v, contraction *c, const char *s, size_t n, const ir_type *t, int which) {
    int64_t st[IR_MAX_RANK];
    if ((int)n != t->rank)
        return ev_fail(v, "the equation gives rank %zu to an operand of rank %d", n, t->rank);
    ref_strides(t, st);
    for (size_t d = 0; d < n; d++) {
        int i = label(c, s[d]);
        if (i < 0) return ev_fail(v, "the equation has too many labels");
        if (c->dim[i] >= 0 && c->dim[i] != t->dim[d])
            return ev_fail(v, "label %c stands for %lld and %lld", s[d], (long long)c->dim[i],
                           (long long)t->dim[d]);
        c->dim[i] = t->dim[d];
        c->stride[which][i] += st[d];
    }
    return true;
}

static bool einsum_parse(ref_eval *v, contraction *c, const char *equation, const ref_tensor *x,
                         const ref_tensor *y) {
    char text[64] = {0};
    size_t n = 0;
    for (const char *s = equation; *s; s++) {
        if (*s == ' ') continue;
        if (n + 1 == sizeof text ||
            (!strchr(",->", *s) && !((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z'))))
            return ev_fail(v, "can't evaluate the equation \"%s\"", equation);
        text[n++] = *s;
    }
    text[n] = 0;
    const char *comma = strchr(text, ','), *arrow = strstr(text, "->");
    if (!comma || !arrow || comma > arrow || strpbrk(comma + 1, ",") || strpbrk(arrow + 2, "->") ||
        memchr(text, '-', (size_t)(arrow - text)))
        return ev_fail(v, "the equation must read \"ab,bc->ac\", not \"%s\"", equation);
    const char *out = arrow + 2;
    for (const char *s = out; *s; s++)
        if (strchr(s + 1, *s) || label(c, *s) < 0) return ev_fail(v, "label %c is twice in the result", *s);
    c->n_out = c->n;
    if (!einsum_term(v, c, text, (size_t)(comma - text), &x->type, 0) ||
        !einsum_term(v, c, comma + 1, (size_t)(arrow - comma - 1), &y->type, 1))
        return false;
    const ir_type *t = &v->out[0].type;
    int64_t st[IR_MAX_RANK];
    ref_strides(t, st);
    if (t->rank != c->n_out) return ev_fail(v, "the result has rank %d", t->rank);
    for (int i = 0; i < c->n_out; i++) {
        if (c->dim[i] != t->dim[i]) return ev_fail(v, "label %c of the result is in no operand", c->name[i]);
        c->stride[2][i] = st[i];
    }
    return true;
}

bool ev_einsum(ref_eval *v) {
    const ir_arg *arg = ir_args(v->op, A_values);
    if (arg->n != 2) return ev_fail(v, "einsum of %u operands; only two are possible", arg->n);
    const ref_tensor *tx = ev_value(v, arg->v[0]), *ty = ev_value(v, arg->v[1]);
    if (!dtype_is_float(tx->type.dtype) || !dtype_is_float(ty->type.dtype))
        return ev_fail(v, "operands must be floats");
    contraction c = {0};
    if (!einsum_parse(v, &c, ev_text(v, A_equation, ""), tx, ty)) return false;
    const float *x = ev_floats(v, tx), *y = ev_floats(v, ty);
    if (!x || !y || !ev_new(v, 0)) return false;
    float *o = ref_floats(&v->out[0]);
    memset(o, 0, (size_t)ref_count(&v->out[0]) * 4);
    const int64_t *const s[] = {c.stride[2], c.stride[0], c.stride[1]};
    for (ref_walk w = ref_walk_start(c.n, c.dim, 3, s); !w.done; ref_walk_next(&w)) {
        const float *a = x + w.pos[1], *b = y + w.pos[2];
        float *r = o + w.pos[0];
        for (int64_t i = 0; i < w.run; i++) r[i * w.step[0]] += a[i * w.step[1]] * b[i * w.step[2]];
    }
    return true;
}
