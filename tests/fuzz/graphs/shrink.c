/* Smaller samples that still differ: results, calls and writes left out, values taken as inputs instead of
 * being computed. */
#include "make.h"
#include "reference/frame.h"
#include <stdio.h>
#include <string.h>

typedef struct {
    size_t func;       /* the function that is changed */
    size_t only;       /* keep only this result; SIZE_MAX: all */
    const ir_op *cut;  /* its results become inputs */
    const ir_op *left; /* a write_state that is left out */
    size_t skip;       /* a call that is left out; SIZE_MAX: none */
} change;

/* What the op's result k was in each call. */
static bool contents(const sample *s, size_t func, const ir_value *v, ref_tensor *out) {
    err e = {0};
    arena *a = arena_new();
    ref_tensor state[MOST_STATES] = {0};
    ref_frame *frame[MOST_FUNCS] = {0};
    bool good = true;
    for (size_t i = 0; i < s->n_state; i++) {
        good = good && ref_tensor_new(&state[i], &s->state[i].start.type, &e);
        if (good) ref_read(&s->state[i].start, 0, ref_count(&state[i]), state[i].cell);
    }
    for (size_t i = 0; i < s->p->n_func && good; i++)
        good = (frame[i] = ref_frame_new(ref_plan_new(a, s->p->func[i]), REF_STRICT, &e)) != NULL;
    for (size_t c = 0; c < s->n_call && good; c++) {
        const ir_function *f = s->p->func[s->call[c].func];
        ref_tensor *states[MOST_IN] = {0};
        for (size_t i = 0; i < f->n_in; i++)
            if (sample_state_of(s, f->in[i]) != SIZE_MAX) states[i] = &state[sample_state_of(s, f->in[i])];
        ref_frame_call call = {
            .in = s->call[c].in, .state = states, .keep = &v, .n_keep = s->call[c].func == func};
        good = ref_frame_run(frame[s->call[c].func], &call, &e);
        const ref_tensor *t = good && call.n_keep ? ref_frame_kept(frame[s->call[c].func], 0, &e) : NULL;
        if (!t) continue;
        good = ref_tensor_new(&out[c], &t->type, &e);
        if (good) ref_read(t, 0, ref_count(t), out[c].cell);
    }
    for (size_t i = 0; i < s->p->n_func; i++)
        if (frame[i]) ref_frame_free(frame[i]);
    for (size_t i = 0; i < s->n_state; i++) ref_tensor_drop(&state[i]);
    arena_free(a);
    return good;
}

typedef struct {
    sample *to;
    const sample *from;
    const change *c;
    ir_function *f;
    const ir_function *old;
    ir_value **copy; /* by id in old */
    bool *needed;
} copier;

static void need_operands(copier *k, const ir_op *op) {
    for (int s = 0; s < ir_info(op->code)->n_slot; s++)
        for (uint32_t x = 0; x < op->arg[s].n; x++) k->needed[op->arg[s].v[x]->id] = true;
}

static bool op_needed(const copier *k, const ir_op *op) {
    bool used = op->code == OP_write_state && op != k->c->left;
    for (uint32_t i = 0; i < op->n_out; i++) used |= k->needed[op->out[i]->id];
    return used;
}

static void mark(copier *k, bool here) {
    const ir_block *b = &k->old->body;
    for (size_t i = 0; i < b->n_out; i++)
        if (!here || k->c->only == SIZE_MAX || k->c->only == i) k->needed[b->out[i]->id] = true;
    for (size_t i = b->n_op; i-- > 0;)
        if (op_needed(k, b->op[i]) && b->op[i] != k->c->cut) need_operands(k, b->op[i]);
}

static ir_value *copy_value(copier *k, const ir_value *v) {
    if (k->copy[v->id]) return k->copy[v->id];
    if (v->konst && !v->def)
        return k->copy[v->id] = ir_literal(k->to->p, k->f, v->konst, (ir_binding)v->binding);
    ir_value *w = ir_value_new(k->to->p, k->f, v->name, v->type);
    w->konst = v->konst;
    return k->copy[v->id] = w;
}

static void take_input(copier *k, size_t func, ir_value *v, const ref_tensor *by_call) {
    size_t at = k->f->n_in;
    ir_add_input(k->to->p, k->f, v);
    for (size_t c = 0; c < k->to->n_call; c++) {
        const ref_tensor *t = &by_call[c + (c >= k->c->skip)];
        if (k->to->call[c].func != func || !t->cell || at >= MOST_IN) continue;
        k->to->call[c].in[at] = *t;
        ref_buf_keep(t->buf);
    }
}

static bool copy_ops(copier *k, size_t func) {
    const ir_block *b = &k->old->body;
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        if (op == k->c->left || !op_needed(k, op)) continue;
        if (op == k->c->cut) {
            for (uint32_t o = 0; o < op->n_out; o++) {
                ref_tensor was[MOST_CALLS] = {0};
                if (!k->needed[op->out[o]->id]) continue;
                bool good = contents(k->from, func, op->out[o], was);
                ir_type t = op->out[o]->type;
                for (size_t c = 0; c < MOST_CALLS; c++)
                    if (was[c].cell) t = was[c].type;
                ir_value *v =
                    ir_value_new(k->to->p, k->f, arena_printf(k->to->a, "%s_", op->out[o]->name), t);
                k->copy[op->out[o]->id] = v;
                if (good) take_input(k, func, v, was);
                for (size_t c = 0; c < MOST_CALLS; c++) ref_tensor_drop(&was[c]);
                if (!good) return false;
            }
            continue;
        }
        ir_op *to = ir_add_op(k->to->p, &k->f->body, op->code, op->n_out);
        to->name = op->name;
        for (int s = 0; s < ir_info(op->code)->n_slot; s++) {
            to->arg[s] = (ir_arg){ARENA_ARRAY(k->to->a, ir_value *, op->arg[s].n), op->arg[s].n};
            for (uint32_t x = 0; x < op->arg[s].n; x++) to->arg[s].v[x] = copy_value(k, op->arg[s].v[x]);
        }
        for (uint32_t o = 0; o < op->n_out; o++) (to->out[o] = copy_value(k, op->out[o]))->def = to;
    }
    return true;
}

static bool copy_function(copier *k, size_t func) {
    bool here = func == k->c->func;
    const change none = {.func = func, .only = SIZE_MAX, .skip = k->c->skip}, *asked = k->c;
    k->old = k->from->p->func[func];
    k->f = ir_function_new(k->to->p, k->old->name, k->old->spec);
    k->copy = ARENA_ARRAY(k->to->a, ir_value *, k->old->n_values);
    k->needed = ARENA_ARRAY(k->to->a, bool, k->old->n_values);
    if (!here) k->c = &none;
    mark(k, here);
    for (size_t i = 0; i < k->old->n_in; i++) {
        const ir_value *v = k->old->in[i];
        if (!k->needed[v->id]) continue;
        ref_tensor by_call[MOST_CALLS] = {0};
        for (size_t c = 0; c < k->from->n_call; c++)
            if (k->from->call[c].func == func) by_call[c] = k->from->call[c].in[i];
        take_input(k, func, copy_value(k, v), by_call);
    }
    bool good = copy_ops(k, func);
    const ir_block *b = &k->old->body;
    k->f->body.out = ARENA_ARRAY(k->to->a, ir_value *, b->n_out + 1);
    for (size_t i = 0; i < b->n_out; i++)
        if (!here || k->c->only == SIZE_MAX || k->c->only == i) {
            ir_value *v = copy_value(k, b->out[i]);
            if (!v->def && !v->konst) return false; /* an input is no result */
            k->f->body.out[k->f->body.n_out++] = v;
        }
    k->c = asked;
    return good && k->f->n_in <= MOST_IN;
}

/* In the same arena; NULL: it can't be. Shares constants with s, which must live on. */
static sample *changed(const sample *s, const change *c) {
    sample *to = ARENA_NEW(s->a, sample);
    *to = (sample){.a = s->a,
                   .p = ir_program_new(s->a),
                   .exact = s->exact,
                   .one_isa = s->one_isa,
                   .linear = s->linear,
                   .n_call = s->n_call - (c->skip < s->n_call),
                   .n_state = s->n_state};
    for (size_t i = 0; i < s->n_state; i++) {
        to->state[i] = s->state[i];
        ref_buf_keep(s->state[i].start.buf);
    }
    for (size_t i = 0; i < to->n_call; i++)
        to->call[i] = (sample_call){s->call[i + (i >= c->skip)].func, ARENA_ARRAY(s->a, ref_tensor, MOST_IN)};
    copier k = {.to = to, .from = s, .c = c};
    bool good = true;
    for (size_t i = 0; i < s->p->n_func && good; i++) good = copy_function(&k, i);
    to->a = NULL; /* s keeps it */
    if (good) {
        to->a = s->a;
        return to;
    }
    return NULL;
}

static bool still_differs(const sample *s, uint64_t seed) {
    tally t = {0};
    char text[400];
    return s && !sample_agrees(s, seed, &t, text, sizeof text);
}

static bool try_change(sample **s, const change *c, uint64_t seed) {
    sample *smaller = changed(*s, c);
    if (!still_differs(smaller, seed)) return false;
    *s = smaller;
    return true;
}

static bool fewer_results(sample **s, size_t func, uint64_t seed) {
    size_t n = (*s)->p->func[func]->body.n_out;
    for (size_t i = 0; i < n && n > 1; i++)
        if (try_change(s, &(change){func, i, NULL, NULL, SIZE_MAX}, seed)) return true;
    return false;
}

static bool fewer_ops(sample **s, size_t func, uint64_t seed) {
    bool any = false;
    for (size_t i = (*s)->p->func[func]->body.n_op; i-- > 0;) {
        const ir_block *b = &(*s)->p->func[func]->body;
        if (i >= b->n_op) continue;
        const ir_op *op = b->op[i];
        change c = {func, SIZE_MAX, NULL, NULL, SIZE_MAX};
        if (op->code == OP_const || ir_info(op->code)->flags & OPF_CONSTEXPR) continue;
        if (op->code == OP_write_state)
            c.left = op;
        else
            c.cut = op;
        any |= try_change(s, &c, seed);
    }
    return any;
}

sample *sample_shrink(sample *s, uint64_t seed) {
    if (s->n_twin) return s; /* blocks aren't copied */
    for (bool any = true; any;) {
        any = false;
        for (size_t c = s->n_call; c-- > 0 && s->n_call > 1;)
            any |= try_change(&s, &(change){0, SIZE_MAX, NULL, NULL, c}, seed);
        for (size_t f = 0; f < s->p->n_func; f++) any |= fewer_results(&s, f, seed) || fewer_ops(&s, f, seed);
    }
    return s;
}
