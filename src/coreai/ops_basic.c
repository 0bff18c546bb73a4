/* Element-wise ops, reductions, products, weights. */
#include "coreai/read.h"
#include <string.h>

static bool is_int(const ir_value *v) {
    return v->type.dtype == DT_INT32;
}

static bool is_unsigned(const ai_value *v) {
    return v->type->inner && dtype_class((ir_dtype)v->type->inner->dtype) == DTC_UINT;
}

/* x with ones in front, as many dimensions as y has: results of products stand in sums that way. */
static ir_value *ranked(ai_read *r, ir_value *x, const ir_value *y) {
    int more = y->type.rank - x->type.rank, unknown = 0;
    ir_type to = y->type;
    if (more <= 0 || !x->type.rank || x->konst) return x;
    for (int d = 0; d < to.rank; d++) {
        to.dim[d] = d < more ? 1 : x->type.dim[d - more];
        unknown += to.dim[d] == IR_DIM_UNKNOWN;
    }
    return unknown <= 1 ? ai_reshaped(r, x, &to) : x;
}

bool ai_op_binary(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 2, 1)) return false;
    ir_value *x = ai_in(r, 0), *y = ai_in(r, 1);
    return ai_result(r, b_op(&r->b, code, NULL, A_x, ranked(r, x, y), A_y, ranked(r, y, x), A_NONE));
}

bool ai_op_compare(ai_read *r, ir_opcode code) {
    return ai_op_binary(r, code);
}

bool ai_op_floats(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 2, 1)) return false;
    if (is_int(ai_in(r, 0))) return ai_fail(r, ERR_UNSUPPORTED, "it takes floats here");
    return ai_op_binary(r, code);
}

/* Integers are divided towards zero. */
bool ai_op_divide(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 2, 1)) return false;
    ir_builder *b = &r->b;
    ir_value *x = ai_in(r, 0), *y = ai_in(r, 1);
    if (!is_int(x)) return ai_op_binary(r, code);
    if (is_unsigned(r->op->in[0])) return ai_op_binary(r, OP_floor_div);
    ir_value *sign = b_op(b, OP_mul, NULL, A_x, b_op(b, OP_sign, NULL, A_x, x, A_NONE), A_y,
                          b_op(b, OP_sign, NULL, A_x, y, A_NONE), A_NONE);
    ir_value *q = b_op(b, OP_floor_div, NULL, A_x, b_op(b, OP_abs, NULL, A_x, x, A_NONE), A_y,
                       b_op(b, OP_abs, NULL, A_x, y, A_NONE), A_NONE);
    return ai_result(r, b_op(b, OP_mul, NULL, A_x, sign, A_y, q, A_NONE));
}

bool ai_op_modulo(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 2, 1)) return false;
    if (!is_unsigned(r->op->in[0])) return ai_fail(r, ERR_UNSUPPORTED, "it takes unsigned integers here");
    return ai_op_binary(r, code);
}

bool ai_op_where(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 3, 1)) return false;
    return ai_result(
        r, b_op(&r->b, code, NULL, A_cond, ai_in(r, 0), A_a, ai_in(r, 1), A_b, ai_in(r, 2), A_NONE));
}

bool ai_op_unary(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 1, 1)) return false;
    ir_value *x = ai_in(r, 0), *zero = NULL;
    if (code == OP_log || code == OP_rsqrt) /* without what Core ML adds to x */
        zero = x->type.dtype == DT_FP16 ? b_f16(&r->b, 0) : b_f32(&r->b, 0);
    return ai_result(r, b_op(&r->b, code, NULL, A_x, x, A_epsilon, zero, A_NONE));
}

bool ai_op_logical_not(ai_read *r, ir_opcode code) {
    return ai_expect(r, 1, 1) && ai_result(r, b_op(&r->b, code, NULL, A_x, ai_in(r, 0), A_NONE));
}

bool ai_op_softmax(ai_read *r, ir_opcode code) {
    int64_t axis;
    if (!ai_expect(r, 2, 1) || !ai_int(r, 1, &axis)) return false;
    return ai_result(r,
                     b_op(&r->b, code, NULL, A_x, ai_in(r, 0), A_axis, b_i32(&r->b, (int32_t)axis), A_NONE));
}

bool ai_op_cast(ai_read *r, ir_opcode code) {
    ir_type to;
    if (!ai_expect(r, 1, 1) || !ai_to_ir(r, r->op->out[0]->type, &to)) return false;
    const ai_lowered *from = &r->at[r->op->in[0]->id];
    if (from->turned && !from->widened && to.dtype == DT_FP32 &&
        ai_value_of(r, from->turned)->type.dtype == DT_FP16) {
        ai_lowered *wide = &r->at[r->op->out[0]->id];
        wide->turned = from->turned; /* a product takes fp16 weights as they are */
        wide->widened = true;
        return true;
    }
    ir_value *x = ai_in(r, 0);
    if (x->type.dtype == to.dtype) return ai_result(r, x);
    return ai_result(
        r, b_op(&r->b, code, NULL, A_x, x, A_dtype, b_text(&r->b, dtype_name((ir_dtype)to.dtype)), A_NONE));
}

/* Where a processor keeps the elements changes none of them. */
bool ai_op_copy(ai_read *r, ir_opcode code) {
    (void)code;
    if (!ai_expect(r, 1, 1)) return false;
    ai_lowered *to = &r->at[r->op->out[0]->id];
    *to = r->at[r->op->in[0]->id];
    to->type = r->op->out[0]->type;
    return true;
}

/* ---- reductions ---- */

static bool reduce(ai_read *r, ir_opcode code) {
    ir_value *x = ai_in(r, 0);
    uint32_t n;
    if (!ai_ints(r, 1, &n)) return false;
    if (!n) return ai_result(r, x);
    return ai_result(
        r, b_op(&r->b, code, NULL, A_x, x, A_axes, ai_list(r, 1), A_keep_dims, b_bool(&r->b, true), A_NONE));
}

bool ai_op_reduce(ai_read *r, ir_opcode code) {
    return ai_expect(r, 2, 1) && reduce(r, code);
}

/* What the region does with two numbers: one op, beside casts. */
bool ai_op_reduce_region(ai_read *r, ir_opcode code) {
    static const struct {
        const char *op;
        ir_opcode code;
        double start;
    } known[] = {{"primitive.add_v1", OP_reduce_sum, 0}, {"primitive.mul_v1", OP_reduce_prod, 1}};
    (void)code;
    if (!ai_expect(r, 3, 1)) return false;
    if (r->op->n_region != 1)
        return ai_fail(r, ERR_FORMAT, "it has %u regions, expected one", r->op->n_region);
    const ai_region *g = r->op->region;
    const ai_op *found = NULL;
    for (uint32_t i = 0; i < g->n_op; i++) {
        const char *name = g->op[i]->name;
        if (!strcmp(name, "primitive.cast_v1") || !strcmp(name, "dataflow.yield_v1")) continue;
        if (found) return ai_fail(r, ERR_UNSUPPORTED, "it combines by more than one op");
        found = g->op[i];
    }
    for (size_t i = 0; found && i < sizeof known / sizeof *known; i++)
        if (!strcmp(found->name, known[i].op) && ai_constant_is(r, r->op->in[2], known[i].start))
            return reduce(r, known[i].code);
    return ai_fail(r, ERR_UNSUPPORTED, "it combines by %s, from a start of its own",
                   found ? found->name : "nothing");
}

/* ---- products ---- */

bool ai_is_weight(const ir_value *v) {
    return v->konst || (v->def && ir_info(v->def->code)->flags & OPF_CONSTEXPR);
}

bool ai_op_matmul(ai_read *r, ir_opcode code) {
    if (!ai_expect(r, 2, 1)) return false;
    ir_value *x = ai_in(r, 0);
    const ai_lowered *second = &r->at[r->op->in[1]->id];
    const ai_value *turned = second->turned;
    if (turned && x->type.rank >= 1) {
        ir_value *w = ai_value_of(r, turned);
        if (w->type.dtype == x->type.dtype || (second->widened && x->type.dtype == DT_FP32))
            return ai_result(r, b_op(&r->b, OP_linear, NULL, A_x, x, A_weight, w, A_NONE));
    }
    return ai_result(r, b_op(&r->b, code, NULL, A_x, x, A_y, ai_in(r, 1), A_NONE));
}

/* The constant that a weight is in another shape; NULL: it is none. */
static const ir_const *plain_weight(const ir_value *w) {
    while (w && !w->konst && w->def && w->def->code == OP_reshape) w = ir_in(w->def, A_x);
    return w ? w->konst : NULL;
}

/* Of rows: a convolution along one axis. What is as it is when absent is left out. */
static bool conv_rows(ai_read *r, ir_value *x, const ir_value *w, const int64_t *stride,
                      const int64_t *dilation, int64_t groups) {
    ir_builder *b = &r->b;
    ir_type xt = x->type, wt = w->type, yt;
    xt.rank = wt.rank = 3;
    xt.dim[2] = x->type.dim[3], wt.dim[2] = w->type.dim[3];
    ir_value *flat = ai_reshaped(r, x, &xt);
    ir_const *c = ARENA_NEW(r->a, ir_const);
    *c = *plain_weight(w);
    c->type = wt;
    ir_value *y = b_op(b, OP_conv, NULL, A_x, flat, A_weight, b_const(b, NULL, c), A_strides,
                       stride[1] == 1 ? NULL : B_INTS(b, (int32_t)stride[1]), A_dilations,
                       dilation[1] == 1 ? NULL : B_INTS(b, (int32_t)dilation[1]), A_groups,
                       b_i32(b, (int32_t)groups), A_NONE);
    yt = y->type;
    yt.rank = 4;
    yt.dim[3] = y->type.dim[2], yt.dim[2] = 1;
    return ai_result(r, ai_reshaped(r, y, &yt));
}

bool ai_op_conv2d(ai_read *r, ir_opcode code) {
    uint32_t n, m;
    int64_t groups;
    ir_builder *b = &r->b;
    const int64_t *stride, *dilation;
    if (!ai_expect(r, 5, 1) || !(stride = ai_ints(r, 2, &n)) || !(dilation = ai_ints(r, 3, &m)) ||
        !ai_int(r, 4, &groups))
        return false;
    ir_value *x = ai_in(r, 0), *w = ai_in(r, 1);
    if (n != 2 || m != 2 || x->type.rank != 4 || w->type.rank != 4)
        return ai_fail(r, ERR_FORMAT, "expected two strides, two dilations and tensors of rank 4");
    if (x->type.dim[2] == 1 && w->type.dim[2] == 1 && plain_weight(w))
        return conv_rows(r, x, w, stride, dilation, groups);
    return ai_result(r, b_op(b, code, NULL, A_x, x, A_weight, w, A_strides, ai_list(r, 2), A_pad_type,
                             b_text(b, "valid"), A_dilations, ai_list(r, 3), A_groups,
                             b_i32(b, (int32_t)groups), A_NONE));
}

/* ---- weights ---- */

bool ai_op_constant(ai_read *r, ir_opcode code) {
    (void)code;
    if (!ai_expect(r, 0, 1)) return false;
    if (!r->op->prop || !r->op->prop[0]) return ai_fail(r, ERR_FORMAT, "it has no value");
    ai_lowered *l = &r->at[r->op->out[0]->id];
    l->konst = r->op->prop[0];
    l->type = r->op->out[0]->type;
    l->known = ai_constant_ints(r, l->konst, l->type, &l->n_known);
    return ai_ok(r);
}

static ir_value *weight_part(ai_read *r, uint32_t i) {
    const ai_value *v = r->op->in[i];
    const ai_lowered *l = &r->at[v->id];
    if (!l->konst) {
        ai_fail(r, ERR_UNSUPPORTED, "operand %u is no constant", i);
        return NULL;
    }
    const ir_const *c = ai_constant(r, l->konst, v->type);
    return c ? b_const(&r->b, NULL, c) : NULL;
}

/* w with a number of its own added to each block: as many blocks along each axis as bias has elements. */
static ir_value *shifted_blocks(ai_read *r, ir_value *w, ir_value *bias) {
    const ir_type t = w->type, *tb = &bias->type;
    int64_t wide[IR_MAX_RANK], one[IR_MAX_RANK];
    if (tb->rank != t.rank || 2 * t.rank > IR_MAX_RANK || tb->dtype != t.dtype) {
        ai_fail(r, ERR_UNSUPPORTED, "an offset behind the scale of rank %d, of a weight of rank %d", tb->rank,
                t.rank);
        return w;
    }
    for (int i = 0; i < t.rank; i++) {
        if (tb->dim[i] < 1 || t.dim[i] % tb->dim[i]) {
            ai_fail(r, ERR_FORMAT, "offsets behind the scale that don't divide axis %d", i);
            return w;
        }
        wide[2 * i] = one[2 * i] = tb->dim[i];
        wide[2 * i + 1] = t.dim[i] / tb->dim[i];
        one[2 * i + 1] = 1;
    }
    uint32_t n = (uint32_t)(2 * t.rank);
    w = ai_reshaped_by(r, w, ai_list_of(r, wide, n));
    bias = ai_reshaped_by(r, bias, ai_list_of(r, one, n));
    return ai_reshaped(r, b_op(&r->b, OP_add, NULL, A_x, w, A_y, bias, A_NONE), &t);
}

/* Of codes that are made, or come from outside: (codes - offset) scale + bias, without blocks. */
static bool dequantized(ai_read *r, const ir_type *to) {
    ir_builder *b = &r->b;
    ir_value *part[4];
    for (uint32_t i = 0; i < 4; i++) {
        ir_value *x = part[i] = ai_in(r, i);
        for (int d = 0; d < x->type.rank; d++)
            if (i && (x->type.rank != to->rank || (x->type.dim[d] != 1 && x->type.dim[d] != to->dim[d])))
                return ai_fail(r, ERR_UNSUPPORTED, "operand 0 is no constant, and operand %u has blocks", i);
        if (x->type.dtype != to->dtype)
            part[i] =
                b_op(b, OP_cast, NULL, A_x, x, A_dtype, b_text(b, dtype_name((ir_dtype)to->dtype)), A_NONE);
    }
    const ai_value *const *in = r->op->in;
    ir_value *y = part[0];
    if (!ai_constant_is(r, in[2], 0)) y = b_op(b, OP_sub, NULL, A_x, y, A_y, part[2], A_NONE);
    y = b_op(b, OP_mul, NULL, A_x, y, A_y, part[1], A_NONE);
    if (!ai_constant_is(r, in[3], 0)) y = b_op(b, OP_add, NULL, A_x, y, A_y, part[3], A_NONE);
    return ai_result(r, y);
}

bool ai_op_blockwise(ai_read *r, ir_opcode code) {
    ir_type to;
    if (!ai_expect(r, 4, 1) || !ai_to_ir(r, r->op->out[0]->type, &to)) return false;
    if (!r->at[r->op->in[0]->id].konst) return dequantized(r, &to);
    ir_value *data = weight_part(r, 0), *scale = data ? weight_part(r, 1) : NULL, *offset = NULL;
    if (!scale) return false;
    if (!ai_constant_is(r, r->op->in[2], 0) && !(offset = weight_part(r, 2))) return false;
    if (scale->type.dtype != to.dtype)
        return ai_fail(r, ERR_UNSUPPORTED, "scales of %s make %s", dtype_name((ir_dtype)scale->type.dtype),
                       dtype_name((ir_dtype)to.dtype));
    ir_value *w = b_op(&r->b, code, NULL, A_data, data, A_scale, scale, A_offset, offset, A_NONE);
    if (!ai_constant_is(r, r->op->in[3], 0)) w = shifted_blocks(r, w, ai_in(r, 3));
    return ai_result(r, w);
}

bool ai_op_lut(ai_read *r, ir_opcode code) {
    int64_t axis;
    if (!ai_expect(r, 3, 1) || !ai_int(r, 2, &axis)) return false;
    ir_value *codes = weight_part(r, 0), *lut = codes ? weight_part(r, 1) : NULL;
    if (!lut) return false;
    bool vectors = lut->type.rank && lut->type.dim[lut->type.rank - 1] > 1;
    return ai_result(r, b_op(&r->b, code, NULL, A_indices, codes, A_lut, lut, A_vector_axis,
                             vectors ? b_i32(&r->b, (int32_t)axis) : NULL, A_NONE));
}
