/* What programs do with states: caches, histories of convolutions, memories of the delta rule. */
#include "make.h"
#include <stdio.h>

/* A state of this type, fp16: one of the session, or a new one. NULL: there are enough. */
static ir_value *state_like(maker *m, ir_type t) {
    sample *s = m->s;
    t.kind = IR_TENSOR, t.dtype = DT_FP16;
    size_t i = 0;
    while (i < s->n_state && (!ir_type_equal(&s->state[i].start.type, &t) ||
                              (!m->state[i] && chance(&m->d, 20)) || (m->state[i] && chance(&m->d, 70))))
        i++;
    if (i == MADE_STATES) return NULL;
    if (i == s->n_state) {
        ref_tensor *r = &s->state[s->n_state].start;
        if (!ref_tensor_new(r, &t, m->e)) return NULL;
        for (int64_t k = 0; k < ref_count(r); k++)
            ref_floats(r)[k] = chance(&m->d, 30) ? 0 : num_round_f16(make_number(m));
        s->state[s->n_state].name = arena_printf(s->a, "s%zu", s->n_state);
        s->n_state++;
    }
    if (!m->state[i]) m->state[i] = b_state(&m->b, s->state[i].name, t);
    return m->state[i];
}

static ir_value *read_state(maker *m, ir_value *state) {
    return b_op(&m->b, OP_read_state, NULL, A_input, state, A_NONE);
}

static void write_state(maker *m, ir_value *state, ir_value *v) {
    b_op_multi(&m->b, OP_write_state, NULL, NULL, 0, A_input, state, A_data, v, A_NONE);
}

static ir_value *as(maker *m, ir_value *v, ir_dtype d) {
    return dtype_of(v) == d ? v : op_cast(m, v, d);
}

/* ---- any ---- */

static void anything(maker *m) {
    ir_type t = make_shape(m, 1, 4);
    ir_value *state = state_like(m, t);
    if (!state) return;
    ir_value *old = read_state(m, state), *v = old;
    if (chance(&m->d, 60)) keep(m, old);
    if (!ok(m)) return;
    for (uint32_t n = roll(&m->d, 3); n-- > 0;) {
        ir_value *y = pick(m, FLOAT, 0, t.rank);
        ir_type all;
        if (!y || dtype_of(y) != DT_FP16 || !ir_broadcast(&v->type, &y->type, &all) ||
            ir_type_count(&all) != count_of(v) || all.rank != v->type.rank)
            y = make_const(m, DT_FP16, v->type);
        v = op2(m, roll(&m->d, 2) ? OP_add : OP_maximum, v, y);
        if (m->style != STYLE_EXACT) v = op1(m, OP_tanh, v);
    }
    ir_value *other = pick_like(m, old);
    if (chance(&m->d, 25) && dtype_of(other) == DT_FP16) v = other;
    if (chance(&m->d, 85)) write_state(m, state, v);
    if (chance(&m->d, 40)) keep(m, read_state(m, state));
    if (chance(&m->d, 30)) keep(m, old);
}

/* ---- caches ---- */

typedef struct {
    int axis; /* of positions */
    int64_t tokens, size;
    ir_value *at, *begin, *end, *mask; /* mask: [.., size, ..] of 0 and 1 */
} place_of;

static place_of find_place(maker *m, int rank, int axis, int64_t tokens, const int64_t *dim) {
    place_of p = {.axis = axis, .tokens = tokens, .size = dim[axis]};
    p.at = make_ints(m, IR_TYPE(DT_INT32, 1), 0, (int32_t)(dim[axis] - tokens));
    ir_value *behind = op2(m, OP_add, p.at, b_ints(&m->b, (int32_t[]){(int32_t)tokens}, 1)), *b[5], *e[5];
    for (int d = 0; d < rank; d++) {
        b[d] = d == axis ? p.at : b_ints(&m->b, (int32_t[]){0}, 1);
        e[d] = d == axis ? behind : b_ints(&m->b, (int32_t[]){(int32_t)dim[d]}, 1);
    }
    p.begin = op_concat(m, b, (uint32_t)rank, 0);
    p.end = op_concat(m, e, (uint32_t)rank, 0);
    return p;
}

/* The cache with new rows: by slice_update, or blended by a mask of positions. */
static ir_value *updated(maker *m, ir_value *old, ir_value *rows, const place_of *p) {
    if (chance(&m->d, 65) || p->tokens > 1)
        return b_op(&m->b, OP_slice_update, NULL, A_x, old, A_update, rows, A_begin, p->begin, A_end, p->end,
                    A_NONE);
    int64_t dim[5] = {1, 1, 1, 1, 1};
    dim[p->axis] = p->size;
    ir_value *positions, *n = b_i32(&m->b, (int32_t)p->size), *one = make_scalar(m, DT_FP16, 1),
                         *zero = make_scalar(m, DT_FP16, 0);
    positions = b_op(&m->b, OP_one_hot, NULL, A_indices, p->at, A_one_hot_vector_size, n, A_on_value, one,
                     A_off_value, zero, A_NONE);
    ir_value *mask = inner(m, op_reshape(m, positions, old->type.rank, dim));
    if (dtype_of(mask) != DT_FP16) mask = op_cast(m, mask, DT_FP16);
    ir_value *kept = inner(m, op2(m, OP_mul, old, op2(m, OP_sub, one, mask)));
    ir_value *added = inner(m, op2(m, OP_mul, rows, mask));
    return op2(m, OP_add, as(m, kept, DT_FP16), as(m, added, DT_FP16));
}

static void cache(maker *m) {
    static const int64_t depths[] = {8, 16, 32, 3, 64};
    int64_t g = 1 + roll(&m->d, 3), size = 1 + make_size(m), d = depths[roll(&m->d, 5)];
    int64_t tokens = chance(&m->d, 60) || size < 4 ? 1 : 1 + roll(&m->d, size < 20 ? (uint32_t)size - 1 : 18);
    if (size > 140) size = 140;
    const int64_t dim[4] = {1, g, size, d}, row[4] = {1, g, tokens, d};
    ir_value *k = state_like(m, ir_tensor(DT_FP16, 4, dim)), *v = state_like(m, ir_tensor(DT_FP16, 4, dim));
    if (!k || !v || !ok(m)) return;
    place_of p = find_place(m, 4, 2, tokens, dim);
    ir_dtype t = chance(&m->d, m->half) ? DT_FP16 : DT_FP32;
    ir_value *nk = make_input(m, t, ir_tensor(t, 4, row)), *nv = make_input(m, t, ir_tensor(t, 4, row));
    if (m->style != STYLE_EXACT && chance(&m->d, 50)) nk = plant_rope(m, nk);
    ir_value *old_k = read_state(m, k), *old_v = v == k && chance(&m->d, 50) ? old_k : read_state(m, v);
    if (chance(&m->d, 20)) keep(m, old_k);
    ir_value *new_k = updated(m, old_k, as(m, nk, DT_FP16), &p);
    write_state(m, k, new_k);
    if (v == k) old_v = read_state(m, v);
    ir_value *new_v = updated(m, old_v, as(m, nv, DT_FP16), &p);
    write_state(m, v, new_v);
    if (chance(&m->d, 70)) new_k = read_state(m, k), new_v = read_state(m, v);
    if (chance(&m->d, 15)) keep(m, old_v);
    if (m->style != STYLE_TAME || chance(&m->d, 15)) {
        keep(m, new_k), keep(m, new_v);
        return;
    }
    new_k = as(m, new_k, t), new_v = as(m, new_v, t);
    if (chance(&m->d, 15) && size > 2) {
        int64_t n = 1 + roll(&m->d, (uint32_t)size - 1);
        new_k = op_slice(m, new_k, 2, 0, n), new_v = op_slice(m, new_v, 2, 0, n);
    }
    keep(m, plant_attention(m, new_k, new_v, tokens));
}

/* ---- convolutions ---- */

/* Over the history old [1,C,n] and new columns; the columns that follow on the history from number `from` on.
 */
static ir_value *convolved(maker *m, ir_value *old, int64_t tokens, int64_t from, ir_value **history) {
    int64_t c = old->type.dim[1], n = old->type.dim[2];
    ir_value *u = chance(&m->d, 50)
                      ? make_input(m, DT_FP16, IR_TYPE(DT_FP16, 1, c, tokens))
                      : op_swap(m, make_input(m, DT_FP16, IR_TYPE(DT_FP16, 1, tokens, c)), 1, 2);
    ir_value *h = *history = op_concat(m, (ir_value *[]){old, u}, 2, 2);
    ir_value *kept = op_slice(m, h, 2, from, from + n);
    ir_dtype d = chance(&m->d, 50) ? DT_FP32 : DT_FP16;
    ir_value *x = inner(m, h), *w = make_const(m, d, IR_TYPE(DT_FP16, c, 1, n + 1)),
             *groups = b_i32(&m->b, (int32_t)c);
    ir_value *y =
        inner(m, b_op(&m->b, OP_conv, NULL, A_x, as(m, x, d), A_weight, w, A_groups, groups, A_NONE));
    if (chance(&m->d, 40)) y = as(m, y, DT_FP32);
    if (chance(&m->d, 70) && m->style != STYLE_EXACT) y = op1(m, OP_silu, y);
    keep(m, y);
    return kept;
}

static void history(maker *m) {
    int64_t c = make_size(m), n = 1 + roll(&m->d, 3), tokens = chance(&m->d, 50) ? 1 : 1 + roll(&m->d, 20);
    ir_value *s = state_like(m, IR_TYPE(DT_FP16, 1, c, n)), *h;
    if (!s || !ok(m) || c > 300) return;
    ir_value *kept = convolved(m, read_state(m, s), tokens, chance(&m->d, 90) ? tokens : 0, &h);
    if (chance(&m->d, 70)) write_state(m, s, kept);
    if (chance(&m->d, 30)) write_state(m, s, op_slice(m, h, 2, tokens, tokens + n));
}

/* ---- the delta rule ---- */

/* One token: S = S decay + k^T beta (v - k S decay), the result q S. memory [H,R,dk,dv]: S, the new one is
 * given back. */
static ir_value *delta_step(maker *m, ir_value *memory) {
    ir_dtype d = dtype_of(memory);
    int64_t H = memory->type.dim[0], R = memory->type.dim[1], dk = memory->type.dim[2],
            dv = memory->type.dim[3];
    ir_value *q = make_input(m, d, IR_TYPE(d, H, 1, 1, dk)), *k = make_input(m, d, IR_TYPE(d, H, 1, 1, dk)),
             *v = make_input(m, d, IR_TYPE(d, H, R, 1, dv)),
             *decay = make_input(m, d, IR_TYPE(d, H, R, 1, 1)),
             *beta = make_input(m, d, IR_TYPE(d, H, R, 1, 1));
    k = op2(m, OP_mul, k, make_scalar(m, d, 0.25f));
    ir_value *faded = inner(m, op2(m, OP_mul, memory, op1(m, OP_sigmoid, decay)));
    ir_value *recall = inner(m, op_matmul(m, as(m, k, dtype_of(faded)), faded, false, false));
    ir_value *column =
        op2(m, OP_mul, op_reshape(m, k, 4, (const int64_t[]){H, 1, dk, 1}), op1(m, OP_sigmoid, beta));
    ir_value *error = inner(m, op2(m, OP_sub, as(m, v, dtype_of(recall)), recall));
    ir_value *S = op2(m, OP_add, faded, op2(m, OP_mul, as(m, column, dtype_of(error)), error));
    keep(m, op_matmul(m, as(m, q, dtype_of(S)), S, false, false));
    return S;
}

static void delta(maker *m) {
    int64_t H = 1 + roll(&m->d, 3), R = 1 + roll(&m->d, 2), dk = 8 * (1 + roll(&m->d, 3)),
            dv = 8 * (1 + roll(&m->d, 3));
    const int64_t whole[4] = {1, H * R, dk, dv};
    bool low = chance(&m->d, 40);
    ir_value *hi = state_like(m, ir_tensor(DT_FP16, 4, whole)),
             *lo = low ? state_like(m, ir_tensor(DT_FP16, 4, whole)) : NULL;
    ir_dtype d = low || chance(&m->d, 50) ? DT_FP32 : DT_FP16;
    if (!hi || !ok(m) || (low && (!lo || lo == hi))) return;
    ir_value *memory = as(m, read_state(m, hi), d);
    if (low) memory = op2(m, OP_add, memory, as(m, read_state(m, lo), d));
    ir_value *S = delta_step(m, op_reshape(m, memory, 4, (const int64_t[]){H, R, dk, dv}));
    ir_value *stored = op_reshape(m, S, 4, whole), *half = as(m, stored, DT_FP16);
    write_state(m, hi, half);
    if (low) write_state(m, lo, as(m, op2(m, OP_sub, as(m, stored, DT_FP32), as(m, half, DT_FP32)), DT_FP16));
}

/* ---- of several layers in one state ---- */

#define MOST_LAYERS 4

/* What becomes of a layer's part, of the same type: a history, a memory, or any. */
static ir_value *next_part(maker *m, ir_value *old) {
    ir_value *h;
    if (chance(&m->d, 10)) return old;
    if (old->type.rank == 3) return convolved(m, old, 1, 1, &h);
    if (m->style != STYLE_TAME) return op2(m, OP_maximum, old, make_const(m, DT_FP16, old->type));
    ir_type t = old->type;
    ir_dtype d = chance(&m->d, 70) ? DT_FP32 : DT_FP16;
    const int64_t heads[4] = {t.dim[1], 1, t.dim[2], t.dim[3]};
    ir_value *S = delta_step(m, op_reshape(m, as(m, old, d), 4, heads));
    return as(m, op_reshape(m, S, 4, t.dim), DT_FP16);
}

/* Parts [1,..] of a state [layers,1,..] are read, all of them are written together, mostly where they were.
 */
static void stacked(maker *m) {
    int64_t n = 2 + roll(&m->d, MOST_LAYERS - 1), size = 8 * (1 + roll(&m->d, 2));
    bool memory = chance(&m->d, 50);
    ir_type part = memory ? IR_TYPE(DT_FP16, 1, 1 + roll(&m->d, 3), size, 8)
                          : IR_TYPE(DT_FP16, 1, 1 + roll(&m->d, 40), 1 + roll(&m->d, 3));
    ir_type whole = part;
    for (int i = 0; i < part.rank; i++) whole.dim[i + 1] = part.dim[i];
    whole.rank++, whole.dim[0] = n;
    ir_value *s = state_like(m, whole), *next[MOST_LAYERS];
    if (!s || !ok(m)) return;
    ir_value *all = read_state(m, s);
    for (int64_t i = 0; i < n; i++) {
        if (chance(&m->d, 15)) all = read_state(m, s);
        int64_t from = chance(&m->d, 95) ? i : roll(&m->d, (uint32_t)n);
        ir_value *slice = inner(m, op_slice(m, all, 0, from, from + 1));
        next[i] = next_part(m, op_reshape(m, as(m, slice, DT_FP16), part.rank, part.dim));
        int64_t shape[IR_MAX_RANK] = {1};
        for (int d = 0; d < part.rank; d++) shape[d + 1] = part.dim[d];
        next[i] = op_reshape(m, next[i], whole.rank, shape);
        if (chance(&m->d, 5)) keep(m, next[i]);
        if (!ok(m)) return;
    }
    if (chance(&m->d, 10)) { /* what two layers leave changes places */
        ir_value *first = next[0];
        next[0] = next[1], next[1] = first;
    }
    ir_value *data = op_concat(m, next, (uint32_t)n, 0);
    write_state(m, s, data);
    if (chance(&m->d, 10)) keep(m, data);
    if (chance(&m->d, 10)) keep(m, all);
    if (chance(&m->d, 30)) keep(m, op_slice(m, read_state(m, s), 0, 0, 1));
    if (chance(&m->d, 5)) write_state(m, s, data);
}

void make_stated(maker *m) {
    switch (roll(&m->d, 9)) {
    case 0:
    case 1:
    case 2: anything(m); break;
    case 3:
    case 4: cache(m); break;
    case 5: history(m); break;
    case 6:
    case 7: stacked(m); break;
    default:
        if (m->style != STYLE_TAME)
            anything(m);
        else
            delta(m);
    }
}
