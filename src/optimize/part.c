/* What slices, splits and updates of constant bounds take. */
#include "ir/infer.h"
#include "optimize/fuse.h"

bool fuse_region(fuser *f, const ir_op *op, region *r) {
    const ir_type *x = &ir_in(op, A_x)->type;
    ir_slice s[IR_MAX_RANK];
    err ignored = {0};
    static const ir_operand bounds[] = {A_begin, A_end, A_stride, A_begin_mask, A_end_mask, A_squeeze_mask};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (fuse_in(op, bounds[i]) && !fuse_in(op, bounds[i])->konst) return false;
    if (!ir_type_known(x) || !ir_resolve_slices(op, &ir_env_declared, x, s, f->p->a, &ignored)) return false;
    *r = (region){.rank = x->rank, .all = true};
    for (int d = 0; d < x->rank; d++) {
        if (s[d].step != 1) return false;
        r->begin[d] = s[d].begin, r->size[d] = s[d].squeeze ? 1 : s[d].count;
        r->squeezes |= s[d].squeeze;
        r->all &= r->size[d] == x->dim[d];
    }
    return true;
}

bool fuse_regions_meet(const region *a, const region *b) {
    for (int d = 0; d < a->rank && a->rank == b->rank; d++)
        if (a->begin[d] + a->size[d] <= b->begin[d] || b->begin[d] + b->size[d] <= a->begin[d]) return false;
    return true;
}

static bool slice_takes(fuser *f, const ir_op *op, int axis, int64_t from, int64_t n) {
    const ir_type *x = &ir_in(op, A_x)->type;
    region r;
    if (!fuse_region(f, op, &r) || r.squeezes) return false;
    for (int d = 0; d < x->rank; d++)
        if (r.begin[d] != (d == axis ? from : 0) || r.size[d] != (d == axis ? n : x->dim[d])) return false;
    return true;
}

static bool split_takes(const ir_op *op, const ir_value *v, int axis, int64_t from, int64_t n) {
    int rank = v->type.rank;
    double at = 0;
    if (!fuse_number(ir_in(op, A_axis), &at) || (int)(at < 0 ? at + rank : at) != axis) return false;
    int64_t begin = 0;
    for (uint32_t i = 0; i < op->n_out && op->out[i] != v; i++) begin += op->out[i]->type.dim[axis];
    return begin == from && v->type.dim[axis] == n;
}

ir_value *fuse_part(fuser *f, const ir_value *v, int axis, int64_t from, int64_t n) {
    const ir_op *op = v->def;
    bool is =
        op && (op->code == OP_split ? split_takes(op, v, axis, from, n)
                                    : op->code == OP_slice_by_index && slice_takes(f, op, axis, from, n));
    return is ? fuse_in(op, A_x) : NULL;
}
