/* One token of a gated delta rule, with its states. The states keep value semantics: the fused op takes what
 * was read and gives what will be written. */
#include "optimize/fuse.h"

size_t fuse_index(const fuser *f, const ir_op *op) {
    for (size_t i = 0; i < f->f->body.n_op; i++)
        if (f->f->body.op[i] == op) return i;
    return SIZE_MAX;
}

ir_value *fuse_in(const ir_op *op, ir_operand name) {
    const ir_arg *a = ir_args(op, name);
    return a->n ? a->v[0] : NULL;
}

/* What reshapes and widening casts look at. */
static ir_value *origin(ir_value *v) {
    while (v->def && (v->def->code == OP_reshape ||
                      (v->def->code == OP_cast && fuse_in(v->def, A_x)->type.dtype == DT_FP16 &&
                       v->type.dtype == DT_FP32)))
        v = fuse_in(v->def, A_x);
    return v;
}

bool fuse_is_read(const ir_value *v) {
    return v->def && v->def->code == OP_read_state && v->type.dtype == DT_FP16;
}

bool fuse_memory(ir_value *s, ir_value **memory, ir_value **low) {
    *memory = origin(s);
    *low = NULL;
    if ((*memory)->def && (*memory)->def->code == OP_add) {
        ir_value *x = origin(fuse_in((*memory)->def, A_x)), *y = origin(fuse_in((*memory)->def, A_y));
        *memory = x;
        *low = y;
        if (!fuse_is_read(y) || !ir_type_equal(&x->type, &y->type)) return false;
    }
    return fuse_is_read(*memory) && (*memory)->type.rank == 4;
}

bool fuse_stored(const fuser *f, ir_value *S, uint32_t uses, bool split, ir_value **hi, ir_value **lo) {
    const ir_op *shape = fuse_user(f, S, OP_reshape);
    *hi = *lo = NULL;
    if (!shape || f->uses[S->id] != uses) return false;
    ir_value *stored = shape->out[0];
    if (stored->type.dtype == DT_FP16) {
        *hi = stored;
        return !split;
    }
    const ir_op *narrow = fuse_user(f, stored, OP_cast), *rest = fuse_user(f, stored, OP_sub);
    if (!narrow || narrow->out[0]->type.dtype != DT_FP16 || f->uses[stored->id] != 1u + (rest != NULL) ||
        split != (rest != NULL))
        return false;
    *hi = narrow->out[0];
    if (!rest) return true;
    const ir_op *last = fuse_user(f, rest->out[0], OP_cast);
    const ir_value *wide = ir_in(rest, A_y);
    if (ir_in(rest, A_x) != stored || !last || last->out[0]->type.dtype != DT_FP16 ||
        f->uses[rest->out[0]->id] != 1 || !wide->def || wide->def->code != OP_cast ||
        ir_in(wide->def, A_x) != *hi)
        return false;
    *lo = last->out[0];
    return true;
}

static bool per_head(const ir_value *v, int64_t heads, int64_t n) {
    return ir_type_count(&v->type) == heads * n;
}

bool fuse_delta(fuser *f, const match *m) {
    ir_value *q = match_get(m, "q"), *k = match_get(m, "k"), *v = match_get(m, "v"),
             *decay = match_get(m, "decay"), *beta = match_get(m, "beta"), *memory, *low, *hi, *lo,
             *root = m->op[0]->out[0];
    ir_op *sum = fuse_find(m, OP_add);
    ir_value *S = sum->out[0];
    if (!fuse_memory(match_get(m, "s"), &memory, &low) ||
        !fuse_stored(f, S, 2, low != NULL, &hi, &lo)) /* and the product with the query */
        return false;
    int64_t heads = memory->type.dim[0] * memory->type.dim[1], dk = memory->type.dim[2],
            dv = memory->type.dim[3];
    int64_t nq = ir_type_count(&q->type) / dk, nk = ir_type_count(&k->type) / dk;
    if (S->type.rank != 4 || S->type.dim[2] != dk || S->type.dim[3] != dv || !per_head(v, heads, dv) ||
        !per_head(decay, heads, 1) || !per_head(beta, heads, 1) || nq < 1 || nk < 1 || heads % nq ||
        heads % nk || ir_type_count(&S->type) != heads * dk * dv || root->type.rank != v->type.rank ||
        ir_type_count(&root->type) != heads * dv)
        return false;
    for (int i = 1; i < m->n_op; i++) /* one type throughout */
        if (m->op[i]->out[0]->type.dtype != S->type.dtype) return false;
    const ir_op *open[] = {sum};
    if (!fuse_closed(f, m, open, 1)) return false;
    f->place = fuse_index(f, sum);
    if (f->place > f->at || (q->def && fuse_index(f, q->def) > f->place))
        return false; /* the query is made later */

    ir_op *op = f->fused = fuse_op(f, OP_fused_delta, low ? 3 : 2);
    fuse_operand(f, op, A_memory, memory);
    fuse_operand(f, op, A_low, low);
    fuse_operand(f, op, A_query, q);
    fuse_operand(f, op, A_key, k);
    fuse_operand(f, op, A_value, v);
    fuse_operand(f, op, A_decay, decay);
    fuse_operand(f, op, A_beta, beta);
    fuse_operand(f, op, A_rounding, fuse_int(f, f->strict && S->type.dtype == DT_FP16));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_result(op, 0, root);
    ir_value *old[2] = {hi, lo};
    for (uint32_t i = 1; i < op->n_out; i++) {
        fuse_result(op, i, ir_value_new(f->p, f->f, old[i - 1]->name, memory->type));
        fuse_replace(f, old[i - 1], op->out[i]);
    }
    return true;
}

bool fuse_list_is(const ir_value *v, const int64_t *want, int n) {
    if (!v || !v->konst || ir_type_count(&v->konst->type) != n) return false;
    for (int i = 0; i < n; i++) {
        double x;
        if (!ir_const_number(v->konst, (uint64_t)i, &x) || (int64_t)x != want[i]) return false;
    }
    return true;
}

bool fuse_conv_step(fuser *f, const match *m) {
    ir_value *s = match_get(m, "s"), *u = match_get(m, "u"), *w = match_get(m, "w"), *root = m->op[0]->out[0];
    ir_op *concat = fuse_find(m, OP_concat), *conv = m->op[0];
    ir_value *history = concat->out[0];
    double axis = 0, groups = 0;
    if (!s->def || s->def->code != OP_read_state || s->type.rank != 3 || s->type.dim[0] != 1 ||
        u->type.rank != 3 || u->type.dim[2] != 1 || !fuse_number(ir_in(concat, A_axis), &axis) ||
        (axis != 2 && axis != -1) || !w->konst)
        return false;
    int64_t channels = s->type.dim[1], taps = s->type.dim[2] + 1;
    if (ir_type_count(&w->type) != channels * taps || w->type.rank != 3 || w->type.dim[0] != channels ||
        w->type.dim[2] != taps || !fuse_number(ir_in(conv, A_groups), &groups) ||
        (int64_t)groups != channels || ir_in(conv, A_bias) || ir_in(conv, A_strides) ||
        ir_in(conv, A_dilations) || ir_in(conv, A_pad_type) || root->type.dim[2] != 1)
        return false;
    const ir_op *kept = fuse_user(f, history, OP_slice_by_index), *open[] = {concat};
    if (!kept || f->uses[history->id] != 2 || kept->out[0]->type.dtype != s->type.dtype ||
        !fuse_list_is(ir_in(kept, A_begin), (const int64_t[]){0, 0, 1}, 3) ||
        !fuse_list_is(ir_in(kept, A_end), (const int64_t[]){1, channels, taps}, 3) || ir_in(kept, A_stride) ||
        ir_in(kept, A_begin_mask) || ir_in(kept, A_end_mask) || ir_in(kept, A_squeeze_mask) ||
        !fuse_closed(f, m, open, 1))
        return false;
    ir_value *newest = kept->out[0];
    if (fuse_index(f, kept) < f->at) {
        f->place = fuse_index(f, kept);
    } else { /* it comes later: what needs it does so, too */
        newest = ir_value_new(f->p, f->f, newest->name, newest->type);
        fuse_replace(f, kept->out[0], newest);
    }
    ir_op *op = f->fused = fuse_op(f, OP_fused_conv_step, 2);
    fuse_operand(f, op, A_memory, s);
    fuse_operand(f, op, A_x, u);
    fuse_operand(f, op, A_weight, w);
    fuse_operand(f, op, A_rounding, fuse_int(f, 0));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_result(op, 0, root);
    fuse_result(op, 1, newest);
    return true;
}
