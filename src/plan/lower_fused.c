/* Fused ops: one step each where memory lies as the kernels need it, else the reference body. */
#include "plan/lower.h"
#include "plan/steps.h"
#include "reference/walk.h"
#include <string.h>

/* ---- attention ---- */

/* How many keys each row sees: the hidden tail of a mask, found once for all layers. */
static place visible(lower *l, const place *mask, const place *length, int64_t tokens, int64_t keys) {
    for (size_t i = 0; i < l->n_prepared; i++) {
        const lower_prepared *q = &l->prepared[i];
        bool same = q->x.space == mask->space && q->x.buffer == mask->buffer && q->x.first == mask->first &&
                    q->x.data == mask->data && !length &&
                    q->x.stride[q->x.type.rank - 2] == mask->stride[mask->type.rank - 2];
        if (q->form == -1 && q->m == tokens && q->k == keys && same) return q->y;
    }
    ir_type type = IR_TYPE(DT_INT32, 2, tokens);
    place y = lower_fresh(l, &type), in[2] = {*mask};
    step_visible *s = ARENA_NEW(l->a, step_visible);
    *s = (step_visible){tokens, keys, mask->stride[mask->type.rank - 2], length != NULL};
    if (length) in[1] = *length;
    int64_t grain = length ? tokens : 1 + 4096 / keys;
    lower_emit(l, run_visible, s, "visible keys", tokens, grain, &y, 1, in, length ? 2 : 1)->once =
        length != NULL;
    l->prepared = arena_grow(l->a, l->prepared, l->n_prepared, &l->cap_prepared, l->n_prepared + 1,
                             sizeof *l->prepared);
    l->prepared[l->n_prepared++] = (lower_prepared){*mask, y, tokens, keys, -1};
    return y;
}

/* How many keys each token sees where nothing else hides any: up to its own. length: of all, NULL: keys of
 * them. */
static place seen(lower *l, const place *length, int64_t tokens, int64_t keys) {
    for (size_t i = 0; i < l->n_prepared; i++) {
        const lower_prepared *q = &l->prepared[i];
        bool same = length ? q->x.space == length->space && q->x.buffer == length->buffer &&
                                 q->x.first == length->first
                           : q->x.space == SPACE_CONST;
        if (q->form == -2 && q->m == tokens && q->k == keys && same) return q->y;
    }
    ir_type type = IR_TYPE(DT_INT32, tokens);
    place y = lower_fresh(l, &type);
    step_seen *s = ARENA_NEW(l->a, step_seen);
    *s = (step_seen){tokens, keys, length != NULL};
    lower_emit(l, run_seen, s, "seen keys", 1, 1, &y, 1, length, length ? 1 : 0)->once = length != NULL;
    l->prepared = arena_grow(l->a, l->prepared, l->n_prepared, &l->cap_prepared, l->n_prepared + 1,
                             sizeof *l->prepared);
    l->prepared[l->n_prepared++] =
        (lower_prepared){length ? *length : (place){.space = SPACE_CONST}, y, tokens, keys, -2};
    return y;
}

/* A mask of unknown length is an input of the function, seen through ops that change no element: one row.
 * Room for as many keys as the cache has. */
static bool dynamic_mask(lower *l, const ir_value *v, int64_t keys, place *mask) {
    while (v->def && lower_is_view(v->def) && v->def->code != OP_slice_by_index &&
           v->def->code != OP_slice_by_size && v->def->code != OP_split && v->def->code != OP_tile &&
           v->def->code != OP_transpose)
        v = ir_in(v->def, A_x);
    for (size_t i = 0; i < l->f->n_in; i++) {
        if (l->f->in[i] != v || v->type.kind != IR_TENSOR || !dtype_is_float((ir_dtype)v->type.dtype))
            continue;
        for (int d = 0; d + 1 < v->type.rank; d++)
            if (v->type.dim[d] != 1) return false;
        plan_buffer *b = &l->p->buffer[l->p->in[i].buffer];
        if (l->p->in[i].tail) return false;
        if (b->cells < keys) b->cells = keys;
        l->p->in[i].unread = false;
        ir_type type = IR_TYPE(DT_FP32, 1, keys);
        *mask = (place){.space = SPACE_ACT, .buffer = l->p->in[i].buffer, .type = type};
        ref_strides(&type, mask->stride);
        return true;
    }
    return false;
}

/* Keys or values: packed halves of a state are read as they lie. */
static place cache_of(lower *l, const ir_op *op, ir_operand name) {
    place p = lower_in(l, op, name);
    int last = p.type.rank - 1;
    bool rows = p.stride[last] == 1 || p.type.dim[last] == 1;
    return (p.store && p.store != DT_FP16) || !rows ? lower_dense(l, p) : p;
}

/* Batch sizes as groups of heads that share keys. */
static bool find_groups(kern_rounded_attention *j, const ir_type *batch, const place *q, const place *k,
                        const place *v, const place *o) {
    const place *all[4] = {q, k, v, o};
    int64_t stride[4][IR_MAX_RANK];
    for (int i = 0; i < 4; i++) {
        place p = *all[i];
        p.type.rank -= 2;
        p = place_broadcast(&p, batch);
        memcpy(stride[i], p.stride, sizeof stride[i]);
    }
    const int64_t *const s[] = {stride[0], stride[1], stride[2], stride[3]};
    ref_walk w = ref_walk_start(batch->rank, batch->dim, 4, s);
    bool shared = w.step[1] == 0 && w.step[2] == 0 && w.run > 1;
    if (w.rank > 1 || (w.rank == 1 && !shared)) return false;
    int64_t group[4] = {0};
    j->groups = w.rank ? w.dim[0] : shared ? 1 : w.run;
    j->heads = shared ? w.run : 1;
    for (int i = 0; i < 4; i++) group[i] = w.rank ? w.stride[i][0] : shared ? 0 : w.step[i];
    j->q_group = group[0], j->k_group = group[1], j->v_group = group[2], j->o_group = group[3];
    j->q_head = shared ? w.step[0] : 0, j->o_head = shared ? w.step[3] : 0;
    return true;
}

/* v [.., heads, tokens, d] (heads may be several dimensions, the first of more than three is none) is turned
 * to [.., tokens, heads, d] next, perhaps after a reshape of its heads. */
static bool wanted_by_token(lower *l, const ir_value *v) {
    for (size_t i = l->index + 1; i < l->f->body.n_op && i < l->index + 16; i++) {
        const ir_op *op = l->f->body.op[i];
        if (ir_in(op, A_x) != v) continue;
        int rank = v->type.rank, outer = rank > 3;
        const ir_type *y = &op->out[0]->type;
        if (op->code == OP_reshape && y->rank > 2 && y->dim[y->rank - 1] == v->type.dim[rank - 1] &&
            y->dim[y->rank - 2] == v->type.dim[rank - 2]) {
            v = op->out[0];
            continue;
        }
        size_t n;
        const int64_t *perm = op->code == OP_transpose ? lower_ints(l, op, A_perm, &n) : NULL;
        if (!perm || n != (size_t)rank || rank < 3 || (perm[outer] + rank) % rank != rank - 2) return false;
        for (int d = outer + 1; d < rank - 1; d++)
            if ((perm[d] + rank) % rank != d - 1) return false;
        return true;
    }
    return false;
}

/* Memory for that. */
static place fresh_by_token(lower *l, const ir_type *type) {
    place o = lower_fresh(l, type);
    int rank = type->rank;
    int64_t at = type->dim[rank - 1];
    for (int d = rank - 3; d >= (rank > 3); d--) o.stride[d] = at, at *= type->dim[d];
    o.stride[rank - 2] = at;
    return o;
}

static bool unknown_size(lower *l) {
    return err_set(l->e, ERR_UNSUPPORTED, "a size is known at run time only");
}

bool lower_fused_attention(lower *l, const ir_op *op) {
    const ir_type *type = &op->out[0]->type;
    place q = lower_with_rows(l, op, A_query), k = cache_of(l, op, A_key), v = cache_of(l, op, A_value);
    place o = wanted_by_token(l, op->out[0]) ? fresh_by_token(l, type) : lower_fresh(l, type), mask = {0},
          in[5];
    ir_type batch = *type, scores = *type;
    step_attention *s = ARENA_NEW(l->a, step_attention);
    kern_rounded_attention *j = &s->job;
    int64_t bits = lower_int(l, op, A_rounding, 0);
    batch.rank -= 2;
    *j = (kern_rounded_attention){.tokens = type->dim[type->rank - 2],
                                  .keys = k.type.dim[k.type.rank - 2],
                                  .depth = q.type.dim[q.type.rank - 1],
                                  .value_depth = type->dim[type->rank - 1],
                                  .half_k = k.store == DT_FP16,
                                  .half_v = v.store == DT_FP16,
                                  .scale = (float)lower_number(l, op, A_scale, 1),
                                  .round_product = bits & 1,
                                  .round_scaled = bits & 2,
                                  .round_masked = bits & 4,
                                  .round_weight = bits & 8,
                                  .round_result = lower_rounds(l, type)};
    if (ir_type_count(type) == 0 || j->keys == 0 || !find_groups(j, &batch, &q, &k, &v, &o))
        return lower_reference(l, op);
    j->q_token = q.stride[q.type.rank - 2], j->o_token = o.stride[o.type.rank - 2];
    j->k_row = k.stride[k.type.rank - 2], j->v_row = v.stride[v.type.rank - 2];
    uint32_t n = 0;
    in[n++] = q, in[n++] = k, in[n++] = v;
    const ir_value *mv = ir_in(op, A_mask), *lv = ir_in(op, A_length);
    bool causal = lower_int(l, op, A_causal, 0);
    if (lv && !causal && (!mv || j->tokens != 1)) return unknown_size(l);
    if (causal && mv) return lower_reference(l, op);
    if (causal) {
        place length;
        if (lv) length = lower_dense(l, lower_in(l, op, A_length));
        j->visible_step = 1;
        s->visible = 1 + (int)n;
        in[n++] = seen(l, lv ? &length : NULL, j->tokens, j->keys);
    }
    if (mv) {
        scores.dim[scores.rank - 1] = j->keys;
        if (ir_type_known(&mv->type)) {
            mask = lower_cells(l, lower_in(l, op, A_mask));
            if (mask.type.rank < 1 || mask.type.rank > scores.rank) return lower_reference(l, op);
            mask = place_broadcast(&mask, &scores);
            for (int d = 0; d < batch.rank; d++) /* one mask for all heads */
                if (mask.stride[d] && mask.type.dim[d] != 1) return lower_reference(l, op);
            if (mask.stride[scores.rank - 1] != 1 && j->keys > 1) return lower_reference(l, op);
            for (int d = 0; d < batch.rank; d++) mask.type.dim[d] = 1, mask.stride[d] = 0;
        } else if (!lv || !dynamic_mask(l, mv, j->keys, &mask)) {
            return unknown_size(l);
        }
        mask.konst = NULL;
        j->mask_token = mask.stride[mask.type.rank - 2];
        j->visible_step = 1;
        s->mask = 1 + (int)n;
        in[n++] = mask;
        s->visible = 1 + (int)n;
        place length;
        if (lv) length = lower_dense(l, lower_in(l, op, A_length));
        in[n++] = visible(l, &mask, lv ? &length : NULL, j->tokens, j->keys);
    }
    if (!l->strict && lower_fast_attention(l, j, s->mask, s->visible, &o, in, n)) {
        lower_set(l, op->out[0], o);
        return true;
    }
    size_t scratch = kern_rounded_scratch(j->heads, j->keys);
    if (scratch > l->p->scratch) l->p->scratch = scratch;
    int64_t work = j->heads * j->keys * j->depth;
    lower_emit(l, run_attention, s, j->half_k ? "attention fp16" : "attention", j->groups * j->tokens,
               1 + 8192 / work, &o, 1, in, n);
    lower_set(l, op->out[0], o);
    return true;
}

/* ---- recurrences ---- */

bool lower_takes_over(lower *l, const ir_op *op, ir_operand memory, const ir_value *out, place *target) {
    place m = *lower_at(l, ir_in(op, memory));
    bool wide = !m.store && m.type.dtype == DT_FP32 && !l->strict; /* kernels that round know fp16 alone */
    if ((m.store != DT_FP16 && !wide) || !lower_state_passes(l, &m, out)) return false;
    *target = m;
    return true;
}

bool lower_memory(lower *l, const ir_op *op, const ir_value *out, place *target) {
    if (lower_takes_over(l, op, A_memory, out, target)) return true;
    if (l->strict) return false;
    place x = lower_in(l, op, A_memory);
    *target = lower_fresh(l, &out->type);
    return lower_copy(l, *target, x, false);
}

bool lower_fused_delta(lower *l, const ir_op *op) {
    const ir_type *m = &ir_in(op, A_memory)->type;
    place out[3], in[5];
    uint32_t n_out = op->n_out;
    bool turned = lower_int(l, op, A_turned, 0);
    if (n_out == 3 || (turned && l->strict)) {
        if (turned || !lower_takes_over(l, op, A_memory, op->out[1], &out[1]) ||
            !lower_takes_over(l, op, A_low, op->out[2], &out[2]))
            return lower_reference(l, op);
    } else if (!lower_memory(l, op, op->out[1], &out[1])) {
        return l->e->code ? false : lower_reference(l, op);
    }
    static const ir_operand names[] = {A_query, A_key, A_value, A_decay, A_beta};
    for (int i = 0; i < 5; i++) in[i] = lower_dense(l, lower_in(l, op, names[i]));
    out[0] = lower_fresh(l, &op->out[0]->type);
    int64_t heads = m->dim[0] * m->dim[1], dk = m->dim[turned ? 3 : 2], dv = m->dim[turned ? 2 : 3];
    step_delta *s = ARENA_NEW(l->a, step_delta);
    *s = (step_delta){.dk = dk,
                      .dv = dv,
                      .q_share = heads / (ir_type_count(&in[0].type) / dk),
                      .k_share = heads / (ir_type_count(&in[1].type) / dk),
                      .low = n_out == 3,
                      .turned = turned,
                      .cells = !out[1].store,
                      .round = lower_int(l, op, A_rounding, 0) & 1};
    size_t scratch = (size_t)(dk * dv + 2 * dv) * sizeof(float);
    if (scratch > l->p->scratch) l->p->scratch = scratch;
    if (l->strict || !lower_fast_delta(l, s, heads, out, n_out, in)) {
        if (s->turned || s->cells) return lower_reference(l, op);
        lower_updates(
            lower_emit(l, run_delta, s, "delta rule", heads, 1 + 8192 / (dk * dv), out, n_out, in, 5));
    }
    for (uint32_t i = 0; i < n_out; i++) lower_set(l, op->out[i], out[i]);
    return true;
}

bool lower_fused_conv_step(lower *l, const ir_op *op) {
    const ir_type *m = &ir_in(op, A_memory)->type;
    place out[2], in[2];
    int64_t kept = lower_int(l, op, A_kept, m->dim[2]);
    if (kept >= 8 ? m->dtype != DT_FP16 || !lower_takes_over(l, op, A_memory, op->out[1], &out[1])
                  : !lower_memory(l, op, op->out[1], &out[1]))
        return l->e->code ? false : lower_reference(l, op);
    in[0] = lower_dense(l, lower_in(l, op, A_x));
    in[1] = lower_dense(l, lower_in(l, op, A_weight));
    out[0] = lower_fresh(l, &op->out[0]->type);
    step_conv_step *s = ARENA_NEW(l->a, step_conv_step);
    *s = (step_conv_step){m->dim[1], kept, m->dim[2], lower_rounds(l, &op->out[0]->type)};
    if (!l->strict && s->kept < 8)
        lower_fast_conv_step(l, s, out, in);
    else
        lower_updates(lower_emit(l, run_conv_step, s, "conv step", m->dim[1], 512, out, 2, in, 2));
    for (uint32_t i = 0; i < 2; i++) lower_set(l, op->out[i], out[i]);
    return true;
}
