/* cond and while_loop. A function that has them is evaluated, never planned: what they give is held against
 * the same ops without them (sample.twin), which the function computes as well. */
#include "make.h"
#include <string.h>

/* A few ops over x that keep its type. */
static ir_value *changed(maker *m, ir_value *x) {
    static const ir_opcode two[] = {OP_add, OP_sub, OP_mul, OP_maximum, OP_minimum},
                           one[] = {OP_tanh, OP_sigmoid, OP_silu, OP_abs, OP_relu};
    ir_value *y = x;
    for (uint32_t n = 1 + roll(&m->d, 3); n-- > 0;) {
        if (is_float(x) && chance(&m->d, 40)) {
            y = op1(m, one[m->style == STYLE_EXACT ? 3 + roll(&m->d, 2) : roll(&m->d, 5)], y);
            continue;
        }
        float small = (float)roll(&m->d, 5) - 2;
        y = op2(m, two[roll(&m->d, 5)], y,
                chance(&m->d, 30) ? pick_like(m, x) : make_scalar(m, dtype_of(x), small));
    }
    return y == x ? op1(m, OP_identity, x) : y;
}

/* Ops [from, to) of the body as a block of their own: of what comes in from outside, `was` is `is`. Constants
 * stay where they are. */
static ir_block *block_of(maker *m, size_t from, size_t to, ir_value *was, ir_value *is, ir_value *out) {
    const ir_block *body = &m->b.f->body;
    ir_block *b = ARENA_NEW(m->a, ir_block);
    ir_value **copy = ARENA_ARRAY(m->a, ir_value *, MOST_VALUES);
    if (was) copy[was->id] = is;
    for (size_t i = from; i < to; i++) {
        const ir_op *op = body->op[i];
        if (op->code == OP_const) continue;
        ir_op *c = ir_add_op(m->b.p, b, op->code, op->n_out);
        for (int s = 0; s < ir_info(op->code)->n_slot; s++) {
            c->arg[s] = (ir_arg){ARENA_ARRAY(m->a, ir_value *, op->arg[s].n + 1u), op->arg[s].n};
            for (uint32_t k = 0; k < op->arg[s].n; k++) {
                ir_value *v = op->arg[s].v[k];
                c->arg[s].v[k] = copy[v->id] ? copy[v->id] : v;
            }
        }
        for (uint32_t k = 0; k < op->n_out; k++) {
            const char *name = arena_printf(m->a, "inner_%u", m->b.f->n_values);
            ir_value *v = copy[op->out[k]->id] = ir_value_new(m->b.p, m->b.f, name, op->out[k]->type);
            c->out[k] = v, v->def = c;
            if (k == 0) c->name = name;
        }
    }
    b->out = ARENA_ARRAY(m->a, ir_value *, 2);
    b->out[b->n_out++] = copy[out->id] ? copy[out->id] : out;
    return b;
}

static ir_value *result_of(maker *m, ir_op *op, uint32_t k, const ir_type *t) {
    const char *name = arena_printf(m->a, "control_%u", m->b.f->n_values);
    ir_value *v = op->out[k] = ir_value_new(m->b.p, m->b.f, name, *t);
    v->def = op;
    if (k == 0) op->name = name;
    return v;
}

static void same_as(maker *m, ir_value *v, ir_value *plain) {
    if (m->n_twin == MOST_TWINS || !settle(m)) return;
    m->twin[m->n_twin][0] = v, m->twin[m->n_twin++][1] = plain;
    want(m, v), want(m, plain);
    keep(m, v);
}

static void branches(maker *m) {
    ir_value *x = pick(m, FLOAT | INT, 0, 4), *y[2];
    size_t at[3];
    if (!x || !settle(m)) return;
    ir_value *pred = make_input(m, DT_BOOL, ir_scalar(DT_BOOL));
    if (chance(&m->d, 40)) pred = op1(m, OP_logical_not, pred);
    for (int i = 0; i < 2; i++) at[i] = m->b.f->body.n_op, y[i] = changed(m, x);
    at[2] = m->b.f->body.n_op;
    if (!settle(m) || !ir_type_equal(&y[0]->type, &y[1]->type)) return;
    ir_value *plain = b_op(&m->b, OP_select, NULL, A_cond, pred, A_a, y[0], A_b, y[1], A_NONE);
    if (!settle(m)) return;
    ir_block *b[2];
    for (int i = 0; i < 2; i++) b[i] = block_of(m, at[i], at[i + 1], NULL, NULL, y[i]);
    ir_op *op = ir_add_op(m->b.p, &m->b.f->body, OP_cond, 1);
    ir_set_args(m->b.p, op, A_pred, &pred, 1);
    op->block = arena_copy(m->a, b, sizeof b);
    op->n_block = 2;
    m->twin_now = plain;
    same_as(m, result_of(m, op, 0, &plain->type), plain);
}

/* f(x): the same ops each time for the same dice. */
static ir_value *one_round(maker *m, ir_value *x) {
    static const ir_opcode two[] = {OP_add, OP_sub, OP_maximum, OP_minimum};
    ir_value *y = op2(m, OP_mul, x, make_scalar(m, dtype_of(x), 1));
    for (uint32_t k = 1 + roll(&m->d, 3); k-- > 0;) {
        ir_opcode code = two[roll(&m->d, 4)];
        y = op2(m, code, y, make_scalar(m, dtype_of(x), (float)roll(&m->d, 5) - 2));
    }
    return y;
}

/* The loop's variables inside of a block. */
static void take_variables(maker *m, ir_block *b, ir_value *const *in) {
    b->in = arena_copy(m->a, in, 2 * sizeof *in);
    b->n_in = 2;
}

static void add_count(maker *m, ir_block *b, ir_opcode code, ir_value *y) {
    ir_op *op = ir_add_op(m->b.p, b, code, 1);
    ir_type t = ir_scalar(code == OP_less ? DT_BOOL : DT_INT32);
    ir_set_args(m->b.p, op, A_x, &b->in[1], 1);
    ir_set_args(m->b.p, op, A_y, &y, 1);
    b->out[b->n_out++] = result_of(m, op, 0, &t);
}

/* while (i < n) x = f(x), i = i + 1; the twin has f(x) n times, one behind the other. */
static void loop(maker *m) {
    ir_value *x = pick(m, FLOAT | INT, 0, 4), *in[2][2];
    if (!x || !settle(m)) return;
    uint32_t n = roll(&m->d, 5);
    const dice as = m->d;
    size_t from = m->b.f->body.n_op;
    ir_value *first = one_round(m, x), *plain = n ? first : op1(m, OP_identity, x);
    size_t to = m->b.f->body.n_op;
    for (uint32_t i = 1; i < n; i++) {
        m->d = as;
        plain = one_round(m, plain);
    }
    ir_value *vars[2] = {x, b_i32(&m->b, 0)}, *one = b_i32(&m->b, 1), *times = b_i32(&m->b, (int32_t)n);
    if (!settle(m)) return;
    for (int i = 0; i < 4; i++) {
        const char *name = arena_printf(m->a, "variable_%u", m->b.f->n_values);
        in[i / 2][i % 2] = ir_value_new(m->b.p, m->b.f, name, vars[i % 2]->type);
    }
    ir_block *b[2] = {ARENA_NEW(m->a, ir_block), block_of(m, from, to, x, in[1][0], first)};
    b[0]->out = ARENA_ARRAY(m->a, ir_value *, 1);
    for (int i = 0; i < 2; i++) take_variables(m, b[i], in[i]);
    add_count(m, b[0], OP_less, times), add_count(m, b[1], OP_add, one);
    ir_op *op = ir_add_op(m->b.p, &m->b.f->body, OP_while_loop, 2);
    ir_set_args(m->b.p, op, A_loop_vars, vars, 2);
    op->block = arena_copy(m->a, b, sizeof b);
    op->n_block = 2;
    result_of(m, op, 1, &vars[1]->type);
    m->twin_now = plain;
    same_as(m, result_of(m, op, 0, &x->type), plain);
}

void make_controlled(maker *m) {
    if (chance(&m->d, 50))
        branches(m);
    else
        loop(m);
}
