#include "check/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MASKED       (-20000.0f) /* what is made of a mask counts as hidden from here down */
#define MASK_FILL    10000.0     /* a constant with an element of this magnitude is a mask, or scales one */
#define MASK_CONST   65536       /* elements up to which a constant is looked at */
#define SMALL_NORMAL 0x1p-14f

typedef struct {
    check_ranges *r;
    check_range *of; /* by value id */
    bool *mask;      /* by value id: made of a mask */
    size_t n;
} audit;

static bool is_fill(const ir_const *c) {
    if (c->type.kind != IR_TENSOR || !dtype_is_float((ir_dtype)c->type.dtype) ||
        ir_type_count(&c->type) > MASK_CONST)
        return false;
    double x;
    for (int64_t i = 0; i < ir_type_count(&c->type); i++)
        if (ir_const_number(c, (uint64_t)i, &x) && fabs(x) >= MASK_FILL) return true;
    return false;
}

/* What is added to or chosen from a mask is one; a softmax, a product or a sum over it is not. */
static bool passes_mask(const ir_op *op) {
    switch (op->code) {
    case OP_softmax:
    case OP_exp:
    case OP_exp2:
    case OP_matmul:
    case OP_linear: return false;
    default: return true;
    }
}

static void find_masks(audit *a, const ir_function *f) {
    for (size_t i = 0; i < f->n_in; i++)
        if (!strcmp(f->in[i]->name, "causal_mask")) a->mask[f->in[i]->id] = true;
    for (size_t i = 0; i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        bool from = false;
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) {
                const ir_value *v = op->arg[s].v[k];
                if (v->konst && !v->def) a->mask[v->id] = is_fill(v->konst);
                from |= a->mask[v->id];
            }
        for (uint32_t k = 0; k < op->n_out; k++)
            a->mask[op->out[k]->id] =
                op->out[k]->konst ? is_fill(op->out[k]->konst) : from && passes_mask(op);
    }
}

static void on_value(void *ctx, const ir_value *v, const float *x, size_t n) {
    audit *a = ctx;
    check_range *r = &a->of[v->id];
    bool mask = a->mask[v->id];
    r->name = v->name;
    r->op = v->def ? ir_info(v->def->code)->name : "";
    r->dtype = (ir_dtype)v->type.dtype;
    r->values += n;
    for (size_t i = 0; i < n; i++) {
        float m = fabsf(x[i]);
        if (mask && x[i] <= MASKED) {
            r->hidden++;
        } else if (!isfinite(m)) {
            r->nonfinite++;
            if (!a->r->first_nonfinite) a->r->first_nonfinite = v->name;
        } else {
            if (m > (float)r->largest) r->largest = (double)m;
            r->subnormal += m > 0 && m < SMALL_NORMAL;
        }
    }
}

static bool run_text(audit *a, const lm *artifact, const check_text *t, const decoder_hooks *h, err *e) {
    decoder *d = decoder_new(artifact, RT_STRICT, e);
    bool ok = d && decoder_check(d, t->ids, t->n, e);
    if (ok) {
        err fed = {0};
        rt_session_observe(decoder_session(d, 0), on_value, a);
        ok = decoder_feed(d, t->ids, t->n, h, NULL, &fed);
        if (!ok && fed.code == ERR_NUMERIC && a->r->first_nonfinite) ok = true; /* it is part of the result */
        if (!ok) *e = fed;
    }
    decoder_free(d);
    return ok || err_where(e, "%s", t->name);
}

static int by_magnitude(const void *x, const void *y) {
    const check_range *a = x, *b = y;
    return a->largest != b->largest ? (a->largest < b->largest ? 1 : -1) : strcmp(a->name, b->name);
}

static void finish(audit *a) {
    check_ranges *r = a->r;
    for (size_t i = 0; i < a->n; i++)
        if (a->of[i].values) a->of[r->n++] = a->of[i];
    r->row = a->of;
    qsort(r->row, r->n, sizeof *r->row, by_magnitude);
    for (size_t i = 0; i < r->n; i++) {
        r->beyond += r->row[i].largest > CHECK_FP16_MAX;
        r->nonfinite += r->row[i].nonfinite;
        r->hidden += r->row[i].hidden;
    }
}

bool check_ranges_run(check_ranges *r, const lm *artifact, const check_texts *t,
                      bool (*keep_going)(void *ctx), void *ctx, err *e) {
    *r = (check_ranges){0};
    const ir_program *p = rt_model_coreml(artifact->model[0])->program;
    const ir_function *f = p ? ir_function_find(p, artifact->form.function) : NULL;
    if (!f) return err_set(e, ERR_UNSUPPORTED, "ranges: the ops are in the parts of a pipeline");
    audit a = {.r = r, .n = f->n_values};
    a.of = mem_try(a.n, sizeof *a.of);
    a.mask = mem_try(a.n, sizeof *a.mask);
    const decoder_hooks h = {.keep_going = keep_going, .ctx = ctx};
    bool ok = (a.of && a.mask) || err_set(e, ERR_MEMORY, "no memory for %zu values", a.n);
    if (ok) find_masks(&a, f);
    for (size_t i = 0; ok && i < t->n; i++) ok = run_text(&a, artifact, &t->text[i], &h, e);
    free(a.mask);
    if (ok)
        finish(&a);
    else
        free(a.of);
    return ok || err_where(e, "ranges");
}

void check_ranges_free(check_ranges *r) {
    free(r->row);
    *r = (check_ranges){0};
}
