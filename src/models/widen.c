#include "models/widen.h"
#include "base/map.h"
#include "base/num.h"
#include <ctype.h>
#include <string.h>

typedef struct {
    ir_program *p;
    ir_function *f;
    arena *a; /* of this pass */
    map *names;
    bool *planned;     /* by value id: named by an entry, fp16 as built, and no output */
    ir_value **narrow; /* by value id: the same in fp16, when it was needed; of a planned value */
    ir_op **cast;      /* by value id: the op that makes a planned value in fp16, left out so far */
    ir_value **wide;   /* by value id: the same in fp32, when there is one */
    size_t n;          /* values of the function as built */
    ir_op **old;       /* its ops as built */
    unsigned serial;
    widen_result *r;
} widening;

/* Length of name[0..n) without what the builder or a cast puts behind it: _ and a number, _fp16, _fp32. */
static size_t without_suffix(const char *name, size_t n) {
    size_t end = n;
    if (n > 5 && (!memcmp(name + n - 5, "_fp16", 5) || !memcmp(name + n - 5, "_fp32", 5))) return n - 5;
    while (end > 0 && isdigit((unsigned char)name[end - 1])) end--;
    return end < n && end > 1 && name[end - 1] == '_' ? end - 1 : n;
}

size_t widen_entry(const char *name) {
    size_t n = strlen(name), less;
    for (; (less = without_suffix(name, n)) < n; n = less) continue;
    return n;
}

bool widen_matches(const char *entry, const char *name) {
    size_t n = strlen(entry);
    return !strcmp(entry, name) || (n == widen_entry(name) && !strncmp(entry, name, n));
}

static const char *fresh_name(widening *w, const char *base, const char *suffix) {
    const char *name = arena_printf(w->p->a, "%s_%s", base, suffix);
    while (!map_add(w->names, name, strlen(name), 0))
        name = arena_printf(w->p->a, "%s_%s_%u", base, suffix, w->serial++);
    return name;
}

static bool is_half(const ir_value *v) {
    return v->type.kind == IR_TENSOR && v->type.dtype == DT_FP16;
}

static void append(widening *w, ir_op *op) {
    ir_block *b = &w->f->body;
    b->op = arena_grow(w->p->a, b->op, b->n_op, &b->cap_op, b->n_op + 1, sizeof(ir_op *));
    b->op[b->n_op++] = op;
}

static ir_value *new_value(widening *w, const ir_value *like, const char *suffix, ir_dtype d) {
    ir_type t = like->type;
    t.dtype = (uint8_t)d;
    return ir_value_new(w->p, w->f, fresh_name(w, like->name ? like->name : "constant", suffix), t);
}

static ir_value *text_constant(widening *w, const char *text) {
    const ir_const *c = ir_const_string(w->p->a, text);
    ir_op *op = ir_add_op(w->p, &w->f->body, OP_const, 1);
    ir_value *v = op->out[0] = ir_value_new(w->p, w->f, fresh_name(w, "dtype", text), c->type);
    op->name = v->name;
    v->konst = c;
    v->def = op;
    return v;
}

/* Appends to = cast(from). */
static void append_cast(widening *w, ir_value *from, ir_value *to) {
    ir_value *dtype = text_constant(w, dtype_name((ir_dtype)to->type.dtype));
    ir_op *op = ir_add_op(w->p, &w->f->body, OP_cast, 1);
    ir_set_arg(w->p, op, A_x, from);
    ir_set_arg(w->p, op, A_dtype, dtype);
    op->name = to->name;
    op->out[0] = to;
    to->def = op;
}

/* A small constant as fp32. */
static ir_value *wide_constant(widening *w, const ir_value *v) {
    size_t n = (size_t)ir_type_count(&v->type);
    float *x = ARENA_ARRAY(w->p->a, float, n);
    num_f16_to_f32(x, v->konst->data, n);
    ir_type t = v->type;
    t.dtype = DT_FP32;
    const ir_const *c = ir_const_new(w->p->a, t, x);
    if (!v->name) return ir_literal(w->p, w->f, c, IR_BY_LITERAL);
    ir_op *op = ir_add_op(w->p, &w->f->body, OP_const, 1);
    ir_value *wide = op->out[0] = new_value(w, v, "fp32", DT_FP32);
    op->name = wide->name;
    wide->konst = c;
    wide->def = op;
    return wide;
}

static ir_value *wide_of(widening *w, ir_value *v) {
    if (!is_half(v) || v->id >= w->n) return v;
    ir_value **wide = &w->wide[v->id];
    if (*wide) return *wide;
    if (v->konst && v->konst->data && !v->konst->in_blob) return *wide = wide_constant(w, v);
    *wide = new_value(w, v, "fp32", DT_FP32);
    append_cast(w, v, *wide);
    return *wide;
}

static ir_value *narrow_of(widening *w, ir_value *v) {
    if (v->id >= w->n || !w->planned[v->id]) return v;
    if (is_half(v)) {
        if (w->cast[v->id]) append(w, w->cast[v->id]);
        w->cast[v->id] = NULL;
        return v;
    }
    ir_value **narrow = &w->narrow[v->id];
    if (*narrow) return *narrow;
    *narrow = new_value(w, v, "fp16", DT_FP16);
    append_cast(w, v, *narrow);
    return *narrow;
}

/* Computes in whatever float type its operands have. The others give fp16 because of what a state or a stored
 * weight is. */
static bool follows_operands(const ir_op *op) {
    if (ir_info(op->code)->flags || op->n_block) return false;
    return op->code != OP_cast && op->code != OP_gather && op->code != OP_slice_update;
}

static bool is_weight(const ir_op *op, int slot) {
    return op->code == OP_linear && ir_info(OP_linear)->slot[slot].name != A_x;
}

static void set_operands(widening *w, ir_op *op, ir_value *(*as)(widening *w, ir_value *v)) {
    for (int s = 0; s < ir_info(op->code)->n_slot; s++)
        for (uint32_t k = 0; k < op->arg[s].n && !is_weight(op, s); k++)
            op->arg[s].v[k] = as(w, op->arg[s].v[k]);
}

static bool uses_planned(const widening *w, const ir_op *op) {
    for (int s = 0; s < ir_info(op->code)->n_slot; s++)
        for (uint32_t k = 0; k < op->arg[s].n; k++)
            if (op->arg[s].v[k]->id < w->n && w->planned[op->arg[s].v[k]->id]) return true;
    return false;
}

static bool makes_planned(const widening *w, const ir_op *op) {
    for (uint32_t k = 0; k < op->n_out; k++)
        if (w->planned[op->out[k]->id]) return true;
    return false;
}

/* The op in fp32; results that no entry names get their old type, and name, from a cast. */
static void compute_wide(widening *w, ir_op *op) {
    set_operands(w, op, wide_of);
    append(w, op);
    for (uint32_t k = 0; k < op->n_out; k++) {
        ir_value *v = op->out[k];
        if (!is_half(v)) continue;
        if (w->planned[v->id]) {
            v->type.dtype = DT_FP32;
            w->wide[v->id] = v;
            continue;
        }
        ir_value *wide = op->out[k] = new_value(w, v, "fp32", DT_FP32);
        wide->def = op;
        w->wide[v->id] = wide;
        append_cast(w, wide, v);
    }
}

/* A cast to fp16 that is named: its operand takes its place. It comes back where something must have fp16. */
static bool drop_cast(widening *w, ir_op *op) {
    ir_value *v = op->n_out ? op->out[0] : NULL;
    if (op->code != OP_cast || !w->planned[v->id]) return false;
    ir_value *x = wide_of(w, op->arg[ir_slot_of(OP_cast, A_x)].v[0]);
    if (x->type.dtype != DT_FP32) return false;
    w->wide[v->id] = x;
    w->cast[v->id] = op;
    return true;
}

/* Other ops stand as they are: planned operands are cast to fp16 for them, but not for a cast. */
static void keep(widening *w, ir_op *op) {
    set_operands(w, op, op->code == OP_cast ? wide_of : narrow_of);
    append(w, op);
}

static void rewrite(widening *w, ir_op *op) {
    if (drop_cast(w, op)) return;
    if (follows_operands(op) && (makes_planned(w, op) || uses_planned(w, op))) {
        compute_wide(w, op);
    } else if (uses_planned(w, op)) {
        keep(w, op);
    } else {
        append(w, op);
    }
}

static bool entry_names(const char *const *entry, size_t n, bool *seen, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (widen_matches(entry[i], name)) return seen[i] = true;
    return false;
}

static bool is_output(const ir_function *f, const ir_value *v) {
    for (size_t i = 0; i < f->body.n_out; i++)
        if (f->body.out[i] == v) return true;
    return false;
}

static void note_names(widening *w, const char *const *entry, size_t n, bool *seen) {
    for (size_t i = 0; i < w->f->n_in; i++)
        map_add(w->names, w->f->in[i]->name, strlen(w->f->in[i]->name), 0);
    for (size_t i = 0; i < w->f->body.n_op; i++) {
        const ir_op *op = w->f->body.op[i];
        bool constant = ir_info(op->code)->flags & (OPF_CONST | OPF_CONSTEXPR);
        for (uint32_t k = 0; k < op->n_out; k++) {
            const ir_value *v = op->out[k];
            map_add(w->names, v->name, strlen(v->name), 0);
            if (constant || !dtype_is_float((ir_dtype)v->type.dtype) || !entry_names(entry, n, seen, v->name))
                continue;
            w->planned[v->id] =
                is_half(v) && (follows_operands(op) || op->code == OP_cast) && !is_output(w->f, v);
            w->r->values += w->planned[v->id];
        }
    }
}

static void widen_function(ir_program *p, ir_function *f, const char *const *entry, size_t n, bool *seen,
                           widen_result *r) {
    widening w = {.p = p, .f = f, .a = arena_new(), .n = f->n_values, .r = r};
    size_t n_op = f->body.n_op;
    w.names = map_new(w.a, f->n_values);
    w.planned = ARENA_ARRAY(w.a, bool, w.n);
    w.narrow = ARENA_ARRAY(w.a, ir_value *, w.n);
    w.cast = ARENA_ARRAY(w.a, ir_op *, w.n);
    w.wide = ARENA_ARRAY(w.a, ir_value *, w.n);
    size_t before = r->values;
    note_names(&w, entry, n, seen);
    if (r->values > before) {
        w.old = arena_copy(w.a, f->body.op, n_op * sizeof *w.old);
        f->body.n_op = 0;
        for (size_t i = 0; i < n_op; i++) rewrite(&w, w.old[i]);
    }
    arena_free(w.a);
}

void widen_program(ir_program *p, const char *const *entry, size_t n, widen_result *r) {
    for (size_t i = 0; i < p->n_func; i++) widen_function(p, p->func[i], entry, n, r->seen, r);
}
