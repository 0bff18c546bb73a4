/* What composites of a Core AI asset declare, against the decomposition that the file carries with each. */
#include "base/num.h"
#include "check/check.h"
#include "coreai/package.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_OPERANDS 16

typedef struct {
    const char *kind; /* of the composite */
    arena *a;
    uint64_t random;
    int64_t queries; /* of attention; a prefill function has as many as it takes tokens */
} maker;

/* Sizes that the caller chooses: attention has fewer queries than keys, all else one number of tokens. */
static int64_t size_of(const maker *k, const char *operand, int axis, int rank) {
    if (strcmp(k->kind, "scaled_dot_product_attention") != 0) return 5;
    bool of_queries = !strcmp(operand, "query") || (!strcmp(operand, "attn_mask") && axis == rank - 2);
    return of_queries ? k->queries : k->queries + 4;
}

static int64_t queries_of(const ir_function *f) {
    for (size_t i = 0; i < f->n_in; i++) {
        const ir_type *t = &f->in[i]->type;
        if (!strcmp(f->in[i]->name, "query") && t->rank >= 2 && t->dim[t->rank - 2] != IR_DIM_UNKNOWN)
            return t->dim[t->rank - 2];
    }
    return 3;
}

/* 0 .. 1. */
static double uniform(maker *k) {
    k->random = k->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(k->random >> 40) * 0x1p-24;
}

/* Element i of an operand, in the range that its name asks for: decays are logarithms, gates fractions. */
static double element(maker *k, const char *operand, const ir_type *t, int64_t i) {
    if (!strcmp(operand, "position_ids")) return 37 * (double)i;
    if (!dtype_is_float((ir_dtype)t->dtype)) return (double)(i & 1);
    if (!strcmp(operand, "g")) return -2 * uniform(k);
    return !strcmp(operand, "beta") ? uniform(k) : 4 * uniform(k) - 2;
}

static rt_tensor make(maker *k, const ir_value *in) {
    ir_type t = in->type;
    for (int d = 0; d < t.rank; d++)
        if (t.dim[d] == IR_DIM_UNKNOWN) t.dim[d] = size_of(k, in->name, d, t.rank);
    int64_t n = ir_type_count(&t);
    void *data = ARENA_ARRAY(k->a, char, ir_type_bytes(&t) + 1);
    for (int64_t i = 0; i < n; i++) {
        double x = element(k, in->name, &t, i);
        switch (t.dtype) {
        case DT_FP16: ((uint16_t *)data)[i] = num_f32_f16((float)x); break;
        case DT_FP32: ((float *)data)[i] = (float)x; break;
        case DT_INT32: ((int32_t *)data)[i] = (int32_t)x; break;
        default: ((uint8_t *)data)[i] = x != 0;
        }
    }
    return (rt_tensor){in->name, t, data};
}

static double number(const rt_tensor *t, int64_t i) {
    switch (t->type.dtype) {
    case DT_FP16: return (double)num_f16_f32(((const uint16_t *)t->data)[i]);
    case DT_FP32: return (double)((const float *)t->data)[i];
    case DT_INT32: return ((const int32_t *)t->data)[i];
    default: return ((const uint8_t *)t->data)[i];
    }
}

static double allowed(bool half) {
    return half ? CHECK_COMPOSITE_HALF : CHECK_COMPOSITE_FLOAT;
}

/* Keeps the result that comes closest to what is allowed. */
static void compare(check_composite *c, const rt_tensor *x, const rt_tensor *want) {
    int64_t n = ir_type_count(&want->type);
    bool same = n == ir_type_count(&x->type) && x->type.dtype == want->type.dtype;
    double error = same ? 0 : INFINITY, largest = 1;
    for (int64_t i = 0; same && i < n; i++) {
        double a = number(x, i), b = number(want, i), d = fabs(a - b);
        error = d <= error ? error : isnan(d) ? INFINITY : d;
        if (fabs(b) > largest) largest = fabs(b);
    }
    bool half = want->type.dtype == DT_FP16;
    error /= largest;
    if (c->error > 0 && error / allowed(half) <= c->error / allowed(c->half)) return;
    c->error = error;
    c->half = half;
}

/* Function i of both models, on the same operands. */
static bool run_both(check_composite *c, rt_session *const *s, const ir_function *f, err *e) {
    maker k = {.kind = c->kind, .a = arena_new(), .random = 8, .queries = queries_of(f)};
    rt_tensor in[MOST_OPERANDS], out[2][MOST_OPERANDS];
    rt_call call = {.function = f->name, .in = in, .n_in = f->n_in};
    bool ok = f->n_in <= MOST_OPERANDS && f->body.n_out <= MOST_OPERANDS;
    if (!ok) err_set(e, ERR_LIMIT, "more than %d operands or results", MOST_OPERANDS);
    for (size_t i = 0; ok && i < f->n_in; i++) in[i] = make(&k, f->in[i]);
    for (int way = 0; ok && way < 2; way++) {
        call.out = out[way];
        ok = rt_run(s[way], &call, e);
    }
    for (size_t i = 0; ok && i < call.n_out; i++) compare(c, &out[0][i], &out[1][i]);
    arena_free(k.a);
    return ok || err_where(e, "%s %.100s", c->kind, f->name);
}

static check_composite *kind_of(check_composites *r, const char *kind) {
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->kind[i].kind, kind)) return &r->kind[i];
    if (r->n == CHECK_COMPOSITES) return NULL;
    snprintf(r->kind[r->n].kind, sizeof r->kind[r->n].kind, "%s", kind);
    return &r->kind[r->n++];
}

static bool compare_all(check_composites *r, const coreai_composite *list, rt_model *const *m, err *e) {
    rt_session *s[2] = {rt_session_new(m[0], RT_FAST, e), NULL};
    s[1] = s[0] ? rt_session_new(m[1], RT_STRICT, e) : NULL;
    const ir_program *p = rt_model_coreml(m[0])->program;
    bool ok = s[1] != NULL;
    for (size_t i = 0; ok && i < p->n_func; i++) {
        check_composite *c = kind_of(r, list[i].kind);
        if (!c) continue;
        c->graphs++;
        c->declared += list[i].declared;
        if (list[i].declared) ok = run_both(c, s, p->func[i], e);
    }
    for (int way = 0; way < 2; way++) rt_session_free(s[way]);
    return ok;
}

bool check_composites_run(check_composites *r, const char *path, err *e) {
    const coreai_composite *list = NULL, *again;
    rt_model *m[2] = {NULL, NULL};
    bool ok = true;
    *r = (check_composites){0};
    for (int way = 0; way < 2 && ok; way++) {
        coreml_package *p = coreai_open_composites(path, way, way ? &again : &list, e);
        if (!p) {
            for (int i = 0; i < way; i++) rt_model_close(m[i]);
            return e->code == ERR_NONE;
        }
        ok = (m[way] = rt_model_of(p, e)) != NULL;
    }
    ok = ok && compare_all(r, list, m, e);
    for (int way = 0; way < 2; way++)
        if (m[way]) rt_model_close(m[way]);
    return ok;
}

bool check_composite_holds(const check_composite *c) {
    return c->error <= allowed(c->half);
}

void check_composite_text(const check_composite *c, str *s) {
    str_printf(s, "%zu of %zu composite%s %s run as declared", c->declared, c->graphs, str_plural(c->graphs),
               c->kind);
    if (c->declared)
        str_printf(s, ", at most %.2g from the decomposition (allowed: %g)", c->error, allowed(c->half));
}
