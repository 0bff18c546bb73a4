/* States of several layers in one. */
#include "make.h"

#define MOST_LAYERS 4

/* What becomes of a layer's part, of the same type: a history, a memory, or any. */
static ir_value *next_part(maker *m, ir_value *old) {
    ir_value *h;
    if (chance(&m->d, 10)) return old;
    if (old->type.rank == 3) return plant_convolved(m, old, 1, &h);
    if (m->style != STYLE_TAME) return op2(m, OP_maximum, old, make_const(m, DT_FP16, old->type));
    ir_type t = old->type;
    ir_dtype d = chance(&m->d, 70) ? DT_FP32 : DT_FP16;
    const int64_t heads[4] = {t.dim[1], 1, t.dim[2], t.dim[3]};
    ir_value *S = plant_delta_step(m, op_reshape(m, op_as(m, old, d), 4, heads));
    return op_as(m, op_reshape(m, S, 4, t.dim), DT_FP16);
}

/* Parts [1,..] of a state [layers,1,..] are read, all of them are written together, mostly where they were.
 */
void plant_stacked(maker *m) {
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
        next[i] = next_part(m, op_reshape(m, op_as(m, slice, DT_FP16), part.rank, part.dim));
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
