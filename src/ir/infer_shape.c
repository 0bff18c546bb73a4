/* Ops that rearrange elements. */
#include "ir/infer_rules.h"
#include <string.h>

/* The entry of x that a 0 in reshape's shape copies: by position before CoreML7, from the right since. */
static bool copied_dim(infer *in, const ir_type *x, size_t i, size_t n, int64_t *from) {
    if (in->spec < 8) {
        if (n != (size_t)x->rank)
            return inf_fail(in, "a 0 in operand shape needs as many entries as x has dimensions");
        *from = (int64_t)i;
    } else {
        *from = (int64_t)i - (int64_t)n + x->rank;
    }
    return true;
}

/* Fills in the size that -1 stands for. Unknown sizes of x that the result copies cancel out. */
static bool solve_reshape(infer *in, const ir_type *x, const bool *copied, ir_type *out, int hole) {
    int64_t have = 1, want = 1;
    for (int i = 0; i < x->rank; i++)
        if (!copied[i] && !inf_mul(in, have, x->dim[i], &have)) return false;
    for (int i = 0; i < out->rank; i++) {
        if (i == hole || out->dim[i] == IR_DIM_UNKNOWN) continue;
        if (!inf_mul(in, want, out->dim[i], &want)) return false;
    }
    for (int i = 0; i < x->rank; i++) /* copied known sizes stand on both sides */
        if (copied[i] && x->dim[i] != IR_DIM_UNKNOWN && !inf_mul(in, have, x->dim[i], &have)) return false;
    if (have == IR_DIM_UNKNOWN) return true;
    if (hole < 0 ? have != want : want < 1 || have % want)
        return inf_bad(in, A_x, "it has %lld elements, which operand shape does not hold", (long long)have);
    if (hole >= 0) out->dim[hole] = have / want;
    return true;
}

bool rule_reshape(infer *in) {
    ir_type x = inf_type(in, A_x), shape = inf_type(in, A_shape), r = {.kind = IR_TENSOR, .dtype = x.dtype};
    if (shape.rank != 1) return inf_bad(in, A_shape, "expected a vector");
    inf_list l = inf_ints(in, A_shape);
    if (l.len == IR_DIM_UNKNOWN)
        return inf_bad(in, A_shape, "its length, the rank of the result, must be known");
    if (l.len > IR_MAX_RANK)
        return inf_bad(in, A_shape, "the result would have more than %d dimensions", IR_MAX_RANK);
    int hole = -1;
    bool copied[IR_MAX_RANK] = {false};
    for (int64_t i = 0; i < l.len; i++) {
        int64_t d = l.v ? l.v[i] : IR_DIM_UNKNOWN, from = 0;
        if (d < -1 || d > INF_DIM_MAX) return inf_fail(in, "operand shape holds %lld", (long long)d);
        if (l.v && d == -1) {
            if (hole >= 0) return inf_fail(in, "operand shape holds more than one -1");
            hole = (int)i;
        }
        if (l.v && d == 0) {
            if (!copied_dim(in, &x, (size_t)i, l.n, &from)) return false;
            d = from < 0 ? 1 : x.dim[from];
            if (from >= 0) copied[from] = true;
        }
        if (!inf_push(in, &r, d)) return false;
    }
    in->out[0] = r;
    return !l.v || solve_reshape(in, &x, copied, in->out, hole);
}

bool rule_reshape_like(infer *in) {
    const ir_arg *refs = ir_args(in->op, A_ref_tensors), *begins = ir_args(in->op, A_begins);
    const ir_arg *ends = ir_args(in->op, A_ends), *masks = ir_args(in->op, A_end_masks);
    ir_type x = inf_type(in, A_x), r = {.kind = IR_TENSOR, .dtype = x.dtype};
    if (begins->n != refs->n || ends->n != refs->n || masks->n != refs->n)
        return inf_fail(in, "ref_tensors, begins, ends and end_masks must have the same length");
    for (uint32_t i = 0; i < refs->n; i++) {
        ir_type t = in->env->type(in->env->ctx, refs->v[i]);
        int64_t bound[3];
        const ir_arg *of[3] = {begins, ends, masks};
        for (int k = 0; k < 3; k++) {
            size_t n = 0;
            const double *d = in->env->numbers(in->env->ctx, of[k]->v[i], &n, in->a);
            if (!d || n != 1) return inf_fail(in, "begins, ends and end_masks must be known scalars");
            bound[k] = d[0] > -100 && d[0] < 100 ? (int64_t)d[0] : 100;
            if (k < 2 && bound[k] < 0) bound[k] += t.rank;
        }
        int64_t end = bound[2] || bound[1] > t.rank ? t.rank : bound[1];
        for (int64_t k = bound[0] < 0 ? 0 : bound[0]; k < end; k++)
            if (!inf_push(in, &r, t.dim[k])) return false;
    }
    int64_t have = ir_type_count(&x), want = ir_type_count(&r);
    if (have >= 0 && want >= 0 && have != want)
        return inf_bad(in, A_x, "it does not fill the result, %s", ir_type_text(in->a, &r));
    in->out[0] = r;
    return true;
}

bool rule_transpose(infer *in) {
    ir_type x = inf_type(in, A_x);
    inf_list perm;
    bool used[IR_MAX_RANK] = {false};
    if (!inf_known_ints(in, A_perm, &perm)) return false;
    if (perm.n != (size_t)x.rank) return inf_bad(in, A_x, "operand perm has %zu entries", perm.n);
    in->out[0] = x;
    for (int i = 0; i < x.rank; i++) {
        int64_t axis = perm.v[i];
        if (!ir_axis(&axis, x.rank) || used[axis])
            return inf_bad(in, A_perm, "it is not a permutation of x's axes");
        used[axis] = true;
        in->out[0].dim[i] = x.dim[axis];
    }
    return true;
}

bool rule_expand_dims(infer *in) {
    ir_type x = inf_type(in, A_x);
    inf_list axes;
    bool added[IR_MAX_RANK];
    if (!inf_known_ints(in, A_axes, &axes)) return false;
    if (axes.n > (size_t)(IR_MAX_RANK - x.rank))
        return inf_fail(in, "the result would have more than %d dimensions", IR_MAX_RANK);
    int rank = x.rank + (int)axes.n, from = 0;
    if (!inf_axes(in, A_axes, rank, added)) return false;
    in->out[0] = x;
    in->out[0].rank = (int8_t)rank;
    for (int i = 0; i < rank; i++) in->out[0].dim[i] = added[i] ? 1 : x.dim[from++];
    return true;
}

/* As coremltools: a named axis that is not known to be 1 stays. */
bool rule_squeeze(infer *in) {
    ir_type x = inf_type(in, A_x), r = {.kind = IR_TENSOR, .dtype = x.dtype};
    bool chosen[IR_MAX_RANK];
    if (!inf_axes(in, A_axes, x.rank, chosen)) return false;
    for (int i = 0; i < x.rank; i++)
        if (!(chosen[i] && x.dim[i] == 1)) r.dim[r.rank++] = x.dim[i];
    in->out[0] = r;
    return true;
}

bool rule_flatten2d(infer *in) {
    ir_type x = inf_type(in, A_x);
    int64_t axis, side[2] = {1, 1};
    if (!inf_int(in, A_axis, 1, &axis)) return false;
    if (axis < 0) axis += x.rank;
    if (axis < 0 || axis > x.rank) return inf_bad(in, A_x, "operand axis is out of range");
    for (int i = 0; i < x.rank; i++)
        if (!inf_mul(in, side[i >= axis], x.dim[i], &side[i >= axis])) return false;
    in->out[0] = ir_tensor((ir_dtype)x.dtype, 2, side);
    return true;
}

static ir_type value_type(const infer *in, uint32_t i) {
    return in->env->type(in->env->ctx, ir_args(in->op, A_values)->v[i]);
}

/* Scalars count as vectors of one element. */
bool rule_concat(infer *in) {
    uint32_t n = ir_args(in->op, A_values)->n;
    ir_type r = value_type(in, 0);
    bool interleave;
    if (!r.rank) r.dim[r.rank++] = 1;
    int64_t axis, unused;
    if (!inf_axis(in, A_axis, 0, r.rank, &axis) || !inf_bool(in, A_interleave, false, &interleave))
        return false;
    int64_t first = r.dim[axis];
    for (uint32_t i = 1; i < n; i++) {
        ir_type t = value_type(in, i);
        if (!t.rank) t.dim[t.rank++] = 1;
        if (t.dtype != r.dtype || t.rank != r.rank)
            return inf_fail(in, "values[%u] is %s, expected dtype and rank of values[0], %s", i,
                            ir_type_text(in->a, &t), dtype_name((ir_dtype)r.dtype));
        for (int k = 0; k < r.rank; k++) {
            if (k == axis && r.dim[k] != IR_DIM_UNKNOWN && t.dim[k] != IR_DIM_UNKNOWN)
                r.dim[k] += t.dim[k];
            else if (k == axis)
                r.dim[k] = IR_DIM_UNKNOWN;
            else if (!inf_unify(r.dim[k], t.dim[k], &r.dim[k]))
                return inf_fail(in, "values[%u] is %s, which differs from values[0] in dimension %d", i,
                                ir_type_text(in->a, &t), k);
        }
        if (r.dim[axis] > INF_DIM_MAX) return inf_fail(in, "the result is too large");
        if (interleave && !inf_unify(first, t.dim[axis], &unused))
            return inf_fail(in, "values[%u] is %s: interleaved values must have the same shape", i,
                            ir_type_text(in->a, &t));
    }
    in->out[0] = r;
    return true;
}

bool rule_stack(infer *in) {
    uint32_t n = ir_args(in->op, A_values)->n;
    ir_type t = value_type(in, 0), r = {.kind = IR_TENSOR, .dtype = t.dtype};
    int64_t axis;
    if (!inf_axis(in, A_axis, 0, t.rank + 1, &axis)) return false;
    for (uint32_t i = 1; i < n; i++) {
        ir_type other = value_type(in, i);
        if (!ir_type_compatible(&t, &other))
            return inf_fail(in, "values[%u] is %s, expected the type of values[0], %s", i,
                            ir_type_text(in->a, &other), ir_type_text(in->a, &t));
        for (int k = 0; k < t.rank; k++)
            if (t.dim[k] == IR_DIM_UNKNOWN) t.dim[k] = other.dim[k];
    }
    for (int i = 0; i <= t.rank; i++) {
        if (i == axis && !inf_push(in, &r, n)) return false;
        if (i < t.rank && !inf_push(in, &r, t.dim[i])) return false;
    }
    in->out[0] = r;
    return true;
}

bool rule_split(infer *in) {
    ir_type x = inf_type(in, A_x);
    int64_t axis, n = in->op->n_out, pieces, sum = 0;
    inf_list sizes = inf_ints(in, A_split_sizes);
    if (!inf_axis(in, A_axis, 0, x.rank, &axis) || !inf_int(in, A_num_splits, n, &pieces)) return false;
    if (!sizes.present && !inf_has(in, A_num_splits))
        return inf_fail(in, "one of num_splits and split_sizes is needed");
    if (n < 1 || pieces != n || (sizes.len != IR_DIM_UNKNOWN && sizes.len != n))
        return inf_fail(in, "op has %lld outputs, which num_splits or split_sizes contradicts", (long long)n);
    int64_t whole = x.dim[axis];
    if (!sizes.present && whole != IR_DIM_UNKNOWN && whole % n)
        return inf_bad(in, A_x, "dimension %lld does not split in %lld", (long long)axis, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t d = whole == IR_DIM_UNKNOWN ? whole : whole / n;
        if (sizes.present) d = sizes.v ? sizes.v[i] : IR_DIM_UNKNOWN;
        if (sizes.v && (d < 0 || (sum += d) > INF_DIM_MAX))
            return inf_bad(in, A_split_sizes, "a size is out of range");
        in->out[i] = x;
        in->out[i].dim[axis] = d;
    }
    if (sizes.v && whole != IR_DIM_UNKNOWN && sum != whole)
        return inf_bad(in, A_x, "split_sizes sum to %lld", (long long)sum);
    return true;
}

bool rule_broadcast_to(infer *in) {
    ir_type x = inf_type(in, A_x), r = ir_scalar((ir_dtype)x.dtype);
    inf_list shape = inf_ints(in, A_shape);
    if (shape.len == IR_DIM_UNKNOWN || shape.len > IR_MAX_RANK)
        return inf_bad(in, A_shape, "its length, the rank of the result, must be known");
    int added = (int)shape.len - x.rank;
    if (added < 0) return inf_bad(in, A_x, "operand shape has %lld entries", (long long)shape.len);
    for (int i = 0; i < shape.len; i++) {
        int64_t have = i < added ? 1 : x.dim[i - added], want = shape.v ? shape.v[i] : IR_DIM_UNKNOWN;
        if (shape.v && want == -1) want = have;
        if (!shape.v && have > 1) want = have;
        if (want < -1 || want > INF_DIM_MAX) return inf_fail(in, "operand shape holds %lld", (long long)want);
        if (want >= 0 && have >= 0 && have != 1 && want != have)
            return inf_bad(in, A_x, "dimension %d can't become %lld", i, (long long)want);
        if (!inf_push(in, &r, want)) return false;
    }
    in->out[0] = r;
    return true;
}

bool rule_tile(infer *in) {
    ir_type x = inf_type(in, A_x);
    inf_list reps = inf_ints(in, A_reps);
    if (reps.len != IR_DIM_UNKNOWN && reps.len != x.rank)
        return inf_bad(in, A_x, "operand reps has %lld entries", (long long)reps.len);
    if (!x.rank) return inf_bad(in, A_x, "expected rank 1 or more");
    in->out[0] = x;
    for (int i = 0; i < x.rank; i++) {
        int64_t rep = reps.v ? reps.v[i] : IR_DIM_UNKNOWN;
        if (reps.v && rep < 1)
            return inf_fail(in, "operand reps holds %lld, expected 1 or more", (long long)rep);
        if (!inf_mul(in, rep, x.dim[i], &in->out[0].dim[i])) return false;
    }
    return true;
}

bool rule_reverse(infer *in) {
    bool chosen[IR_MAX_RANK];
    in->out[0] = inf_type(in, A_x);
    return inf_axes(in, A_axes, in->out[0].rank, chosen);
}

/* pad: pairs (before, after) for the last dimensions. */
bool rule_pad(infer *in) {
    static const char *const modes[] = {"constant", "reflect", "replicate", NULL};
    const char *mode = ir_env_text(in->op, A_mode, "constant");
    ir_type x = inf_type(in, A_x);
    inf_list pad = inf_ints(in, A_pad);
    if (!inf_text_among(in, A_mode, mode, modes)) return false;
    if (pad.len == IR_DIM_UNKNOWN) return inf_bad(in, A_pad, "expected a vector of known length");
    if (pad.len % 2 || pad.len / 2 > x.rank)
        return inf_bad(in, A_pad, "expected two entries a dimension of x");
    in->out[0] = x;
    for (int64_t i = 0; i < pad.len / 2; i++) {
        int64_t axis = x.rank - pad.len / 2 + i, *d = &in->out[0].dim[axis];
        if (!pad.v) {
            *d = IR_DIM_UNKNOWN;
            continue;
        }
        int64_t before = pad.v[2 * i], after = pad.v[2 * i + 1];
        if (before < 0 || after < 0 || before > INF_DIM_MAX || after > INF_DIM_MAX)
            return inf_bad(in, A_pad, "it holds %lld, %lld", (long long)before, (long long)after);
        if (*d == IR_DIM_UNKNOWN) continue;
        bool wide = !strcmp(mode, "reflect") ? before >= *d || after >= *d : *d == 0;
        if (before + after && strcmp(mode, "constant") && wide)
            return inf_bad(in, A_x, "dimension %lld is too small to %s", (long long)axis, mode);
        *d += before + after;
    }
    return true;
}

bool rule_band_part(infer *in) {
    int64_t unused;
    in->out[0] = inf_type(in, A_x);
    if (in->out[0].rank < 2) return inf_bad(in, A_x, "expected rank 2 or more");
    return inf_int(in, A_lower, -1, &unused) && inf_int(in, A_upper, -1, &unused);
}

bool rule_sliding_windows(infer *in) {
    ir_type x = inf_type(in, A_x), r = {.kind = IR_TENSOR, .dtype = x.dtype};
    int64_t axis, size, stride;
    if (!inf_axis(in, A_axis, 0, x.rank, &axis) || !inf_int(in, A_size, 1, &size) ||
        !inf_int(in, A_stride, 1, &stride))
        return false;
    if (size < 1 || stride < 1 || (x.dim[axis] != IR_DIM_UNKNOWN && size > x.dim[axis]))
        return inf_bad(in, A_x, "windows of %lld every %lld do not fit", (long long)size, (long long)stride);
    for (int i = 0; i < x.rank; i++) {
        int64_t d = x.dim[i];
        if (i == axis && d != IR_DIM_UNKNOWN) d = (d - size) / stride + 1;
        if (!inf_push(in, &r, d) || (i == axis && !inf_push(in, &r, size))) return false;
    }
    in->out[0] = r;
    return true;
}
