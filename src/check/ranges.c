#include "base/map.h"
#include "base/num.h"
#include "check/check.h"
#include "models/widen.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MASKED       (-20000.0f) /* what is made of a mask counts as hidden from here down */
#define MASK_FILL    10000.0     /* a constant with an element of this magnitude is a mask, or scales one */
#define MASK_CONST   65536       /* elements up to which a constant is looked at */
#define SMALL_NORMAL 0x1p-14f

/* Values of one function of one package. */
typedef struct {
    const char *package;
    const ir_function *f;
    check_range *row; /* by value id */
    bool *mask;       /* by value id: made of a mask */
} watched;

/* All functions of one artifact. */
typedef struct {
    check_ranges *r; /* NULL: the reference, whose rows keep sums: loss the magnitudes that subnormal numbers
                        take away, reference all of them */
    const lm *m;
    arena *a;
    watched *func;
    size_t n;
    map *by_value; /* address of a value -> index of its function */
    decoder *d;
    const char *text;
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

static void find_masks(watched *w) {
    const ir_function *f = w->f;
    for (size_t i = 0; i < f->n_in; i++)
        if (!strcmp(f->in[i]->name, "causal_mask")) w->mask[f->in[i]->id] = true;
    for (size_t i = 0; i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        bool from = false;
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) {
                const ir_value *v = op->arg[s].v[k];
                if (v->konst && !v->def) w->mask[v->id] = is_fill(v->konst);
                from |= w->mask[v->id];
            }
        for (uint32_t k = 0; k < op->n_out; k++)
            w->mask[op->out[k]->id] =
                op->out[k]->konst ? is_fill(op->out[k]->konst) : from && passes_mask(op);
    }
}

static void watch_function(audit *a, const char *package, const ir_function *f, size_t *cap) {
    a->func = arena_grow(a->a, a->func, a->n, cap, a->n + 1, sizeof *a->func);
    watched *w = &a->func[a->n];
    *w = (watched){package, f, ARENA_ARRAY(a->a, check_range, f->n_values),
                   ARENA_ARRAY(a->a, bool, f->n_values)};
    find_masks(w);
    for (size_t i = 0; i < f->body.n_op; i++)
        for (uint32_t k = 0; k < f->body.op[i]->n_out; k++)
            map_add(a->by_value, arena_copy(a->a, &f->body.op[i]->out[k], sizeof(void *)), sizeof(void *),
                    (uint32_t)a->n);
    a->n++;
}

/* The functions of all packages, or that for one token alone. */
static bool watch_all(audit *a, size_t n_func, err *e) {
    size_t cap = 0;
    a->by_value = map_new(a->a, 4096);
    for (size_t i = 0; i < a->m->n_model; i++)
        for (size_t k = 0; k < n_func; k++) {
            const ir_program *p = rt_model_coreml(a->m->model[i])->program;
            const char *name = a->m->form.func[k].stage[i].function;
            const ir_function *f = p ? ir_function_find(p, name) : NULL;
            if (!f)
                return err_set(e, ERR_UNSUPPORTED, "%s: its ops are in the parts of a pipeline",
                               a->m->name[i]);
            watch_function(a, a->m->name[i], f, &cap);
        }
    return true;
}

/* "chunk_1_of_2.mlpackage, decode, english, token 3: layer_2_mlp_up_proj (linear) of x layer_2_mlp_normed (up
 * to 3.1), weight layer_2_..." */
static void describe_path(audit *a, const watched *w, const ir_value *v) {
    str *s = &a->r->first_path;
    const ir_op *op = v->def;
    str_printf(s, "%s, %s, %s, token %lld: %s (%s)", w->package, w->f->name, a->text,
               (long long)decoder_position(a->d), v->name, op ? ir_info(op->code)->name : "input");
    const char *between = " of ";
    for (int i = 0; op && i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) {
            const ir_value *x = op->arg[i].v[k];
            if (!x->name || !dtype_is_float((ir_dtype)x->type.dtype)) continue;
            str_printf(s, "%s%s %s", between, ir_operand_name(ir_info(op->code)->slot[i].name), x->name);
            if (w->row[x->id].values) str_printf(s, " (up to %.4g)", w->row[x->id].largest);
            between = ", ";
        }
}

static void add_value(audit *a, watched *w, const ir_value *v, const float *x, size_t n) {
    check_range *r = &w->row[v->id];
    bool mask = w->mask[v->id];
    *r = (check_range){w->package,
                       w->f->name,
                       v->name,
                       v->def ? ir_info(v->def->code)->name : "",
                       (ir_dtype)v->type.dtype,
                       r->largest,
                       r->values + n,
                       r->subnormal,
                       r->nonfinite,
                       r->hidden,
                       NAN,
                       NAN};
    for (size_t i = 0; i < n; i++) {
        float m = fabsf(x[i]);
        if (m == 0) continue; /* most of a cache */
        if (mask && x[i] <= MASKED) {
            r->hidden++;
        } else if (!isfinite(m)) {
            if (!r->nonfinite++ && a->r && !a->r->first_nonfinite) {
                a->r->first_nonfinite = v->name;
                describe_path(a, w, v);
            }
        } else {
            if (m > (float)r->largest) r->largest = (double)m;
            bool small = m < SMALL_NORMAL;
            r->subnormal += small;
            if (a->r) continue;
            r->reference += (double)m;
            if (small) r->loss += fabs((double)m - (double)num_round_f16(m));
        }
    }
}

static void on_value(void *ctx, const ir_value *v, const float *x, size_t n) {
    audit *a = ctx;
    uint32_t i = map_get(a->by_value, (const char *)&v, sizeof v);
    if (i != MAP_NONE) add_value(a, &a->func[i], v, x, n);
}

/* size 0: as the decoder chooses when it gives every row, token by token. */
static bool feed(audit *a, const check_text *t, size_t n, int64_t size, rt_mode mode, check_watch *w,
                 err *e) {
    const decoder_hooks h = {.keep_going = check_go, .ctx = w};
    a->d = decoder_new(a->m, mode, e);
    a->text = t->name;
    bool ok = a->d && decoder_check(a->d, t->ids, n, e) && (!size || decoder_set_sizes(a->d, &size, 1, e));
    if (ok) {
        err fed = {0};
        for (size_t i = 0; i < a->m->n_model; i++) rt_session_observe(decoder_session(a->d, i), on_value, a);
        ok = decoder_feed(a->d, t->ids, n, &h, NULL, &fed);
        if (!ok && fed.code == ERR_NUMERIC && a->r && a->r->first_nonfinite)
            ok = true; /* part of the result */
        if (!ok) *e = fed;
    }
    decoder_free(a->d);
    return (ok || err_where(e, "%s", t->name)) && check_step(w, n, e);
}

/* Every text token by token, and each prefill function once over the longest text. */
static bool feed_all(audit *a, const check_texts *t, size_t n_func, rt_mode mode, check_watch *w, err *e) {
    const contract *f = &a->m->form;
    int64_t one = f->form == CONTRACT_CHUNKS;
    size_t longest = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (!feed(a, &t->text[i], t->text[i].n, one, mode, w, e)) return false;
        if (t->text[i].n > t->text[longest].n) longest = i;
    }
    for (size_t k = 1; k < n_func; k++) {
        size_t tokens = (size_t)f->func[k].tokens, n = t->text[longest].n;
        if (!feed(a, &t->text[longest], n < tokens ? n : tokens, f->func[k].tokens, mode, w, e)) return false;
    }
    return true;
}

static int by_magnitude(const void *x, const void *y) {
    const check_range *a = x, *b = y;
    if (a->largest != b->largest) return a->largest < b->largest ? 1 : -1;
    int name = strcmp(a->name, b->name);
    return name ? name : strcmp(a->function, b->function);
}

static bool gather(check_ranges *r, const audit *a, err *e) {
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) n += a->func[i].f->n_values;
    r->row = mem_try(n, sizeof *r->row);
    if (!r->row) return err_set(e, ERR_MEMORY, "no memory for %zu values", n);
    for (size_t i = 0; i < a->n; i++)
        for (size_t k = 0; k < a->func[i].f->n_values; k++)
            if (a->func[i].row[k].values) r->row[r->n++] = a->func[i].row[k];
    qsort(r->row, r->n, sizeof *r->row, by_magnitude);
    for (size_t i = 0; i < r->n; i++) {
        r->beyond += r->row[i].largest > CHECK_FP16_MAX;
        r->nonfinite += r->row[i].nonfinite;
        r->hidden += r->row[i].hidden;
    }
    return true;
}

/* What the reference's values showed, by entry of a precision plan. */
typedef struct {
    map *entry; /* -> index in largest and loss */
    double *largest, *loss;
} by_entry;

static by_entry sum_up(const audit *ref) {
    size_t n = 0;
    for (size_t i = 0; i < ref->n; i++) n += ref->func[i].f->n_values;
    by_entry b = {map_new(ref->a, n), ARENA_ARRAY(ref->a, double, n), ARENA_ARRAY(ref->a, double, n)};
    for (size_t i = 0; i < ref->n; i++)
        for (size_t k = 0; k < ref->func[i].f->n_values; k++) {
            const check_range *v = &ref->func[i].row[k];
            if (!v->values) continue;
            size_t len = widen_entry(v->name);
            map_add(b.entry, v->name, len, (uint32_t)map_count(b.entry));
            uint32_t at = map_get(b.entry, v->name, len);
            b.largest[at] = fmax(b.largest[at], v->nonfinite ? INFINITY : v->largest);
            if (v->reference > 0) b.loss[at] = fmax(b.loss[at], v->loss / v->reference);
        }
    return b;
}

/* Puts that beside the artifact's rows of the same meaning. */
static void add_reference(check_ranges *r, const audit *ref) {
    by_entry b = sum_up(ref);
    for (size_t i = 0; i < r->n; i++) {
        const char *name = r->row[i].name;
        uint32_t at = check_is_asset(ref->m) ? MAP_NONE : map_get(b.entry, name, widen_entry(name));
        r->row[i].reference = at == MAP_NONE ? NAN : b.largest[at];
        r->row[i].loss = at == MAP_NONE ? NAN : b.loss[at];
    }
}

static bool run(check_ranges *r, audit *got, audit *ref, const check_texts *t, check_watch *w, err *e) {
    size_t n_func = got->m->form.n_func;
    check_phase(w, "ranges", 2 * check_texts_tokens(t));
    if (!watch_all(got, n_func, e) || !watch_all(ref, 1, e)) return false;
    if (!feed_all(got, t, n_func, RT_STRICT, w, e) || !gather(r, got, e)) return false;
    if (!feed_all(ref, t, 1, RT_FAST, w, e)) return err_where(e, "reference");
    add_reference(r, ref);
    r->tokens = check_texts_tokens(t);
    return true;
}

bool check_ranges_run(check_ranges *r, const lm *artifact, const lm *reference, const check_texts *t,
                      check_watch *w, err *e) {
    *r = (check_ranges){0};
    arena *a = arena_new();
    audit got = {.r = r, .m = artifact, .a = a}, ref = {.m = reference, .a = a};
    bool ok = run(r, &got, &ref, t, w, e);
    arena_free(a);
    return ok || err_where(e, "ranges");
}

void check_ranges_free(check_ranges *r) {
    mem_free(r->row);
    str_free(&r->first_path);
    *r = (check_ranges){0};
}
