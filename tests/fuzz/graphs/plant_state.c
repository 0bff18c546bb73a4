/* What programs do with states: caches, histories of convolutions, memories of the delta rule. */
#include "make.h"
#include <stdio.h>

/* A state of this type, fp16: one of the session, or a new one. NULL: there are enough. */
ir_value *state_like(maker *m, ir_type t) {
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

ir_value *read_state(maker *m, ir_value *state) {
    return b_op(&m->b, OP_read_state, NULL, A_input, state, A_NONE);
}

void write_state(maker *m, ir_value *state, ir_value *v) {
    b_op_multi(&m->b, OP_write_state, NULL, NULL, 0, A_input, state, A_data, v, A_NONE);
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
    return op2(m, OP_add, op_as(m, kept, DT_FP16), op_as(m, added, DT_FP16));
}

/* Attention over what the cache holds up to now: how much is known at run time only. */
static void visible(maker *m, const place_of *p, ir_value *k, ir_value *v, const int64_t *dim) {
    int64_t tokens = p->tokens, heads = dim[1] * (1 + roll(&m->d, 2));
    ir_dtype d = dtype_of(k);
    ir_value *q = make_input(m, d, IR_TYPE(d, 1, heads, tokens, dim[3])), *part[4], *y;
    for (int i = 0; i < 4; i++)
        part[i] = b_ints(&m->b, (int32_t[]){i == 0 ? 1 : i == 1 ? 1 : (int32_t)tokens}, 1);
    part[3] = op_slice(m, p->end, 0, p->axis, p->axis + 1);
    ir_value *all = op_concat(m, part, 4, 0), *zeros = make_list(m, (const int64_t[]){0, 0, 0, 0}, 4);
    ir_value *mask = make_const(m, d, IR_TYPE(d, 1, 1, tokens, dim[2]));
    mask = b_op(&m->b, OP_slice_by_index, NULL, A_x, mask, A_begin, zeros, A_end, all, A_NONE);
    k = b_op(&m->b, OP_slice_by_index, NULL, A_x, k, A_begin, zeros, A_end, p->end, A_NONE);
    v = b_op(&m->b, OP_slice_by_index, NULL, A_x, v, A_begin, zeros, A_end, p->end, A_NONE);
    if (heads != dim[1]) {
        ir_value *reps = make_list(m, (const int64_t[]){1, 1, heads / dim[1], 1, 1}, 5),
                 *axis = b_ints(&m->b, (int32_t[]){2}, 1), *both[2] = {k, v};
        for (int i = 0; i < 2; i++) {
            ir_value *x = b_op(&m->b, OP_expand_dims, NULL, A_x, both[i], A_axes, axis, A_NONE);
            x = b_op(&m->b, OP_tile, NULL, A_x, x, A_reps, reps, A_NONE);
            both[i] = op_reshape(m, x, 4, (const int64_t[]){1, heads, -1, dim[3]});
        }
        k = both[0], v = both[1];
    }
    if (chance(&m->d, 30)) {
        y = b_op(&m->b, OP_scaled_dot_product_attention, NULL, A_query, q, A_key, k, A_value, v, A_attn_mask,
                 mask, A_NONE);
    } else {
        y = op2(m, OP_mul, op_matmul(m, q, k, false, true), make_scalar(m, d, 0.25f));
        y = op2(m, OP_add, y, mask);
        y = b_op(&m->b, OP_softmax, NULL, A_x, y, A_axis, b_i32(&m->b, -1), A_NONE);
        y = op_matmul(m, y, v, false, false);
    }
    keep(m, y);
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
    ir_value *new_k = updated(m, old_k, op_as(m, nk, DT_FP16), &p);
    write_state(m, k, new_k);
    if (v == k) old_v = read_state(m, v);
    ir_value *new_v = updated(m, old_v, op_as(m, nv, DT_FP16), &p);
    write_state(m, v, new_v);
    if (chance(&m->d, 70)) new_k = read_state(m, k), new_v = read_state(m, v);
    if (chance(&m->d, 15)) keep(m, old_v);
    if (m->style != STYLE_TAME || chance(&m->d, 15)) {
        keep(m, new_k), keep(m, new_v);
        return;
    }
    new_k = op_as(m, new_k, t), new_v = op_as(m, new_v, t);
    if (chance(&m->d, 20) && ok(m)) {
        visible(m, &p, new_k, new_v, dim);
        return;
    }
    if (chance(&m->d, 15) && size > 2) {
        int64_t n = 1 + roll(&m->d, (uint32_t)size - 1);
        new_k = op_slice(m, new_k, 2, 0, n), new_v = op_slice(m, new_v, 2, 0, n);
    }
    keep(m, plant_attention(m, new_k, new_v, tokens));
}

void make_stated(maker *m) {
    switch (roll(&m->d, 10)) {
    case 0:
    case 1: anything(m); break;
    case 2:
    case 3:
    case 4: cache(m); break;
    case 5:
    case 6: plant_stacked(m); break;
    default: plant_recurrent(m);
    }
}
