/* Caches whose rows are chosen by a mask: cache (1 - m) + row m. With a mask of zeros and one 1 that changes
 * a row; the fused op looks for what is not 0 and leaves all else where it is. */
#include "optimize/fuse.h"

/* What reshapes look at; count: how many they are. */
static ir_value *behind_reshapes(ir_value *v) {
    while (v->def && (v->def->code == OP_reshape || v->def->code == OP_squeeze ||
                      v->def->code == OP_expand_dims || v->def->code == OP_identity))
        v = fuse_in(v->def, A_x);
    return v;
}

/* A row repeated for every position: the row. */
static ir_value *untiled(ir_value *row, int axis) {
    if (!row->def || row->def->code != OP_tile || !ir_in(row->def, A_reps)->konst) return row;
    ir_value *x = fuse_in(row->def, A_x);
    for (int d = 0; d < x->type.rank; d++) {
        double reps;
        if (!ir_const_number(ir_in(row->def, A_reps)->konst, (uint64_t)d, &reps) ||
            (d == axis ? x->type.dim[d] != 1 : reps != 1))
            return row;
    }
    return x;
}

/* The one axis along which the mask has more than one element; -1: none, or more. */
static int mask_axis(const ir_type *mask, const ir_type *cache) {
    int axis = -1;
    if (mask->rank != cache->rank) return -1;
    for (int d = 0; d < mask->rank; d++) {
        if (mask->dim[d] == 1 && cache->dim[d] != 1) continue;
        if (mask->dim[d] != cache->dim[d] || (mask->dim[d] != 1 && axis >= 0)) return -1;
        if (mask->dim[d] != 1) axis = d;
    }
    return axis;
}

static bool row_fits(const ir_type *row, const ir_type *cache, int axis) {
    bool ok = row->rank == cache->rank;
    for (int d = 0; d < row->rank && ok; d++)
        ok = row->dim[d] == 1 || (d != axis && row->dim[d] == cache->dim[d]);
    return ok;
}

bool fuse_blend(fuser *f, const match *m) {
    ir_value *s = match_get(m, "s"), *mask = match_get(m, "m"), *row = match_get(m, "row"),
             *root = m->op[0]->out[0], *kept = NULL, *put = NULL;
    ir_op *rest = fuse_find(m, OP_sub), *open[] = {rest};
    double one = 0;
    if (!fuse_number(match_get(m, "one"), &one) || one != 1 || !ir_type_known(&s->type) ||
        !ir_type_equal(&s->type, &root->type) || !dtype_is_float((ir_dtype)root->type.dtype))
        return false;
    int axis = mask_axis(&mask->type, &s->type);
    if (axis < 0) return false;
    row = untiled(row, axis);
    if (!row_fits(&row->type, &s->type, axis) || !fuse_closed(f, m, (const ir_op *const *)open, 1))
        return false;
    for (int i = 1; i < m->n_op; i++) {
        if (m->op[i]->code != OP_mul) continue;
        bool keeps = fuse_in(m->op[i], A_x) == s || fuse_in(m->op[i], A_y) == s;
        *(keeps ? &kept : &put) = m->op[i]->out[0];
    }
    if (!kept || !put) return false;
    ir_op *op = f->fused = fuse_op(f, OP_fused_blend, 1);
    fuse_operand(f, op, A_memory, s);
    fuse_operand(f, op, A_row, row);
    fuse_operand(f, op, A_mask, mask);
    fuse_operand(
        f, op, A_rounding,
        fuse_int(f, fuse_rounds(f, rest->out[0], 1) | fuse_rounds(f, kept, 2) | fuse_rounds(f, put, 4)));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->type.dtype)));
    fuse_result(op, 0, root);
    return true;
}

/* ---- in a part of a state ---- */

/* What an update with constant bounds changes; data: the updated state, perhaps reshaped. */
static bool changed_region(fuser *f, ir_value *data, region *r, ir_value **before) {
    ir_value *v = behind_reshapes(data);
    if (!v->def) return false;
    if (v->def->code == OP_slice_update) {
        *before = fuse_in(v->def, A_x);
        return fuse_region(f, v->def, r);
    }
    if (v->def->code != OP_fused_blend || !ir_in(v->def, A_begin)) return false;
    *before = fuse_in(v->def, A_memory);
    *r = (region){.rank = (*before)->type.rank};
    for (int d = 0; d < r->rank; d++) {
        double begin = 0, size = 0;
        ir_const_number(ir_in(v->def, A_begin)->konst, (uint64_t)d, &begin);
        ir_const_number(ir_in(v->def, A_size)->konst, (uint64_t)d, &size);
        r->begin[d] = (int64_t)begin, r->size[d] = (int64_t)size;
    }
    return true;
}

/* The last write of the state in front of op number `at`; NULL: there is none. */
static const ir_op *write_before(const fuser *f, const ir_value *state, size_t at) {
    while (at-- > 0) {
        const ir_op *op = f->f->body.op[at];
        if (op->code == OP_write_state && ir_in(op, A_input) == state) return op;
    }
    return NULL;
}

/* x holds in this region what `old` does: it is that, or a later read of the same state, of which only other
 * regions were written in between. */
static bool same_there(fuser *f, ir_value *x, const ir_value *old, const region *where) {
    for (int steps = 0; steps < 256; steps++) {
        region r;
        if (x == old) return true;
        if (!x->def || x->def->code != OP_read_state) return false;
        const ir_op *write = write_before(f, ir_in(x->def, A_input), fuse_index(f, x->def));
        if (!write || !changed_region(f, fuse_in(write, A_data), &r, &x) || fuse_regions_meet(&r, where))
            return false;
    }
    return false;
}

static size_t first_use(const fuser *f, const ir_value *v, size_t from) {
    size_t i = from;
    while (i < f->f->body.n_op && !fuse_uses(f->f->body.op[i], v)) i++;
    return i;
}

/* The newest content of the state in front of op number `until` that still is what the update at hand made of
 * its region: the data of a later write, or `made`. behind: where it is there. */
static ir_value *newest(fuser *f, ir_value *made, const region *where, size_t until, size_t *behind) {
    const ir_op *user = NULL;
    ir_value *found = made;
    *behind = f->at;
    for (size_t i = f->at + 1; i < until; i++) {
        const ir_op *op = f->f->body.op[i];
        region r;
        ir_value *before;
        if (op->code != OP_write_state) continue;
        if (!user) {
            if (behind_reshapes(fuse_in(op, A_data)) != made) continue;
            user = op;
            *behind = i;
            continue;
        }
        if (ir_in(op, A_input) != ir_in(user, A_input)) continue;
        if (!changed_region(f, fuse_in(op, A_data), &r, &before) || fuse_regions_meet(&r, where))
            return found;
        found = fuse_in(op, A_data);
        *behind = i;
    }
    return found;
}

/* Everything is replaced. */
static bool replace_all(fuser *f, ir_value *update, ir_value *root) {
    f->fused = fuse_op(f, OP_reshape, 1);
    fuse_operand(f, f->fused, A_x, update);
    fuse_operand(f, f->fused, A_shape, fuse_list(f, root->type.dim, root->type.rank));
    fuse_result(f->fused, 0, root);
    return true;
}

static ir_op *slice_of(fuser *f, ir_value *x, const region *r) {
    int64_t end[IR_MAX_RANK];
    for (int d = 0; d < r->rank; d++) end[d] = r->begin[d] + r->size[d];
    ir_op *op = fuse_op(f, OP_slice_by_index, 1);
    fuse_operand(f, op, A_x, x);
    fuse_operand(f, op, A_begin, fuse_list(f, r->begin, r->rank));
    fuse_operand(f, op, A_end, fuse_list(f, end, r->rank));
    return op;
}

/* slice_update(x, blend of the same slice of x): a blend into x. Who else wants the blended slice takes it
 * from the newest content of the state. */
static bool blend_into(fuser *f, ir_value *x, ir_value *update, const region *r, ir_value *root) {
    ir_value *v = behind_reshapes(update);
    if (!v->def || v->def->code != OP_fused_blend || ir_in(v->def, A_begin)) return false;
    ir_value *part = behind_reshapes(fuse_in(v->def, A_memory));
    region from;
    if (!part->def || part->def->code != OP_slice_by_index || !fuse_region(f, part->def, &from) ||
        from.rank != r->rank || v->type.rank != r->rank || v->type.dtype != x->type.dtype)
        return false;
    for (int d = 0; d < r->rank; d++)
        if (from.begin[d] != r->begin[d] || from.size[d] != r->size[d] || v->type.dim[d] != r->size[d])
            return false;
    if (!same_there(f, x, fuse_in(part->def, A_x), r)) return false;
    size_t inside = 0, at = fuse_index(f, v->def), until = first_use(f, v, f->at + 1);
    for (ir_value *u = update; u != v;
         u = fuse_in(u->def, A_x)) /* the reshapes in between are nobody else's */
        if (f->uses[u->id] != 1) return false;
    for (size_t i = at + 1; i < f->at; i++) inside += first_use(f, v, i) == i;
    if (inside > (update == v ? 0u : 1u)) return false;
    ir_op *op = f->fused = fuse_op(f, OP_fused_blend, 1);
    static const ir_operand same[] = {A_row, A_mask, A_rounding, A_output_dtype};
    fuse_operand(f, op, A_memory, x);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        fuse_operand(f, op, same[i], fuse_in(v->def, same[i]));
    fuse_operand(f, op, A_begin, fuse_list(f, r->begin, r->rank));
    fuse_operand(f, op, A_size, fuse_list(f, r->size, r->rank));
    fuse_result(op, 0, root);
    if (until == f->f->body.n_op && f->uses[v->id] == 1) return true;
    size_t behind;
    ir_op *slice = slice_of(f, newest(f, root, r, until, &behind), r);
    ir_value *now = ir_value_new(f->p, f->f, v->name, v->type);
    fuse_result(slice, 0, now);
    fuse_replace(f, v, now);
    fuse_insert(f, behind, slice);
    return true;
}

bool fuse_update(fuser *f, const match *m) {
    ir_value *x = match_get(m, "x"), *update = match_get(m, "u"), *root = m->op[0]->out[0];
    region r;
    if (!fuse_region(f, m->op[0], &r) || !ir_type_equal(&x->type, &root->type)) return false;
    if (r.all && update->type.dtype == root->type.dtype &&
        ir_type_count(&update->type) == ir_type_count(&root->type))
        return replace_all(f, update, root);
    return blend_into(f, x, update, &r, root);
}
