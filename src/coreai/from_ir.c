#include "coreai/from_ir.h"
#include "coreai/compose.h"
#include <inttypes.h>
#include <string.h>

/* Constants below this many bytes stand in place. */
#define INLINE_BYTES 64

/* A function on its way. A graph of its own, for a composite, has a scope and values of its own. */
typedef struct lower {
    ai_make *m;
    ai_scope *s;
    const ir_function *f;
    const ai_value **value; /* by id of the IR's value; states: what they hold now */
    const ai_value **token; /* by index of the function's inputs: of the state's last access */
    bool *written;          /* the same: it holds something new */
    arena *a;
    err *e;
} lower;

typedef const ai_value *lower_fn(lower *l, const ir_op *op);

static const ai_value *use(lower *l, const ir_value *v);

/* ---- types ---- */

static const ai_type *type_of(lower *l, const ir_type *t) {
    int64_t dim[IR_MAX_RANK];
    for (int i = 0; i < t->rank; i++) dim[i] = t->dim[i] == IR_DIM_UNKNOWN ? AI_DYNAMIC : t->dim[i];
    return ai_make_tensor(l->m, (ir_dtype)t->dtype, t->rank, dim);
}

static const ai_type *out_type(lower *l, const ir_op *op) {
    return type_of(l, &op->out[0]->type);
}

static const ai_type *vector_type(lower *l, ir_dtype d, int64_t n) {
    return ai_make_tensor(l->m, d, 1, &n);
}

static const ai_value *refuse(lower *l, const ir_op *op, const char *why) {
    err_set(l->e, ERR_UNSUPPORTED, "function %s, op %s %s: %s", l->f->name, ir_info(op->code)->name,
            op->name ? op->name : "", why);
    return NULL;
}

static const ai_value *in(lower *l, const ir_op *op, ir_operand name) {
    const ir_value *v = ir_in(op, name);
    return v ? use(l, v) : NULL;
}

/* A constant operand's numbers; NULL where it is absent or none. */
static const int64_t *ints(lower *l, const ir_op *op, ir_operand name, size_t *n) {
    const ir_value *v = ir_in(op, name);
    return v && v->konst ? ir_const_ints(l->a, v->konst, n) : NULL;
}

static int64_t number(lower *l, const ir_op *op, ir_operand name, int64_t otherwise) {
    size_t n;
    const int64_t *v = ints(l, op, name, &n);
    return v && n == 1 ? *v : otherwise;
}

static int axis_of(lower *l, const ir_op *op, ir_operand name, int64_t otherwise, int rank) {
    int64_t axis = number(l, op, name, otherwise);
    return (int)(axis < 0 ? axis + rank : axis);
}

/* ---- constants and packed weights ---- */

static const ai_value *constant(lower *l, const ir_const *c) {
    int64_t bytes = ir_type_bytes(&c->type);
    if (c->type.kind != IR_TENSOR || bytes < 0 || !ai_code_of((ir_dtype)c->type.dtype)) return NULL;
    unsigned bits = dtype_bits((ir_dtype)c->type.dtype);
    if (!c->data || bytes > INLINE_BYTES || (bits > 1 && bits < 8)) /* packed: inline it is one a byte */
        return ai_scope_resource(l->s, c);
    return ai_scope_dense(l->s, (ir_dtype)c->type.dtype, c->type.rank, c->type.dim, c->data, (size_t)bytes);
}

static const ai_value *zeros(lower *l, ir_dtype d, const ai_type *sizes) {
    static const uint8_t zero[8] = {0};
    return ai_scope_splat(l->s, ai_make_tensor(l->m, d, sizes->rank, sizes->dim), zero,
                          (dtype_bits(d) + 7) / 8);
}

static const ai_value *lower_blocks(lower *l, const ir_op *op) {
    const ai_value *data = in(l, op, A_data), *scale = in(l, op, A_scale), *offset = in(l, op, A_offset);
    if (!data || !scale) return NULL;
    if (!offset) offset = zeros(l, (ir_dtype)data->type->inner->dtype, scale->type);
    return ai_scope_value(l->s, "primitive.blockwise_shift_scale_v2", out_type(l, op), data, scale, offset,
                          zeros(l, (ir_dtype)op->out[0]->type.dtype, scale->type), NULL);
}

static const ai_value *lower_palette(lower *l, const ir_op *op) {
    const ai_value *index = in(l, op, A_indices), *lut = in(l, op, A_lut);
    static const uint8_t zero[2] = {0};
    if (!index || !lut) return NULL;
    if (ir_in(op, A_vector_axis) || ir_in(op, A_shape))
        return refuse(l, op, "palettes of vectors have no counterpart");
    return ai_scope_value(l->s, "primitive.lut_to_dense_v1", out_type(l, op), index, lut,
                          ai_scope_dense(l->s, DT_INT16, 0, NULL, zero, sizeof zero), NULL);
}

/* ---- elementwise ---- */

static const ai_value *binary_op(lower *l, const ir_op *op, const char *name, bool swapped, bool negated) {
    const ai_value *x = in(l, op, swapped ? A_y : A_x), *y = in(l, op, swapped ? A_x : A_y);
    if (!x || !y) return NULL;
    const ai_value *v = ai_broadcasting(l->s, name, out_type(l, op), x, y);
    return negated ? ai_scope_value(l->s, "primitive.not_v1", v->type, v, NULL) : v;
}

static const struct {
    ir_opcode code;
    const char *name;
    bool swapped, negated;
} binaries[] = {
    {OP_add, "add", 0, 0},
    {OP_sub, "sub", 0, 0},
    {OP_mul, "mul", 0, 0},
    {OP_real_div, "divide", 0, 0},
    {OP_floor_div, "floor_divide", 0, 0},
    {OP_mod, "modulo", 0, 0},
    {OP_pow, "pow", 0, 0},
    {OP_maximum, "maximum", 0, 0},
    {OP_minimum, "minimum", 0, 0},
    {OP_greater, "greater", 0, 0},
    {OP_less, "greater", 1, 0},
    {OP_less_equal, "greater", 0, 1},
    {OP_greater_equal, "greater", 1, 1},
    {OP_equal, "equal", 0, 0},
    {OP_not_equal, "not_equal", 0, 0},
    {OP_logical_and, "logical_and", 0, 0},
    {OP_logical_or, "logical_or", 0, 0},
    {OP_logical_xor, "logical_xor", 0, 0},
};

static const struct {
    ir_opcode code;
    const char *name;
} unaries[] = {
    {OP_exp, "exp"},   {OP_cos, "cos"}, {OP_sin, "sin"},         {OP_abs, "abs"},   {OP_sqrt, "sqrt"},
    {OP_tanh, "tanh"}, {OP_erf, "erf"}, {OP_logical_not, "not"}, {OP_cast, "cast"},
};

static const ai_value *lower_square(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    return x ? ai_broadcasting(l->s, "mul", x->type, x, x) : NULL;
}

static const ai_value *lower_relu(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    return x ? ai_broadcasting(l->s, "maximum", x->type, x,
                               ai_scope_number(l->s, (ir_dtype)x->type->inner->dtype, 0))
             : NULL;
}

/* x + epsilon, where the op has one. */
static const ai_value *with_epsilon(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    const ir_value *v = ir_in(op, A_epsilon);
    double epsilon;
    if (!x || !v || !v->konst || !ir_const_number(v->konst, 0, &epsilon)) return x;
    return ai_broadcasting(l->s, "add", x->type, x,
                           ai_scope_number(l->s, (ir_dtype)x->type->inner->dtype, epsilon));
}

static const ai_value *lower_rsqrt(lower *l, const ir_op *op) {
    const ai_value *x = with_epsilon(l, op);
    return x ? ai_scope_value(l->s, "primitive.rsqrt_v1", x->type, x, NULL) : NULL;
}

static const ai_value *lower_log(lower *l, const ir_op *op) {
    const ai_value *x = with_epsilon(l, op);
    return x ? ai_scope_value(l->s, "primitive.log_v1", x->type, x, NULL) : NULL;
}

static const ai_value *lower_silu(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    return x ? ai_silu(l->s, x) : NULL;
}

static const ai_value *lower_sigmoid(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    return x ? ai_sigmoid(l->s, x) : NULL;
}

static const ai_value *lower_select(lower *l, const ir_op *op) {
    const ai_value *c = in(l, op, A_cond), *x = in(l, op, A_a), *y = in(l, op, A_b);
    return c && x && y ? ai_where(l->s, out_type(l, op), c, x, y) : NULL;
}

static const ai_value *lower_identity(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    return x ? ai_scope_value(l->s, "primitive.cast_v1", x->type, x, NULL) : NULL;
}

/* ---- products and reductions ---- */

static const ai_value *swap_last(lower *l, const ai_value *x) {
    int64_t perm[AI_MAX_RANK], dim[AI_MAX_RANK];
    int n = x->type->rank;
    for (int i = 0; i < n; i++) perm[i] = i < n - 2 ? i : 2 * n - 3 - i;
    for (int i = 0; i < n; i++) dim[i] = x->type->dim[perm[i]];
    return ai_scope_value(l->s, "primitive.transpose_v1",
                          ai_make_tensor(l->m, (ir_dtype)x->type->inner->dtype, n, dim), x,
                          ai_scope_ints(l->s, DT_UINT32, perm, (uint32_t)n), NULL);
}

/* v in the type of another's elements: here both operands of a product have the result's. */
static const ai_value *as(lower *l, const ai_value *v, const ai_type *other) {
    if (v->type->inner == other->inner) return v;
    const ai_type *t = ai_make_tensor(l->m, (ir_dtype)other->inner->dtype, v->type->rank, v->type->dim);
    return ai_scope_value(l->s, "primitive.cast_v1", t, v, NULL);
}

static const ai_value *lower_linear(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x), *w = in(l, op, A_weight), *bias = in(l, op, A_bias);
    const ai_type *out = out_type(l, op);
    if (!x || !w) return NULL;
    const ai_value *y = ai_matmul(l->s, out, as(l, x, out), as(l, swap_last(l, w), out));
    return bias ? ai_broadcasting(l->s, "add", out, y, bias) : y;
}

static const ai_value *lower_matmul(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x), *y = in(l, op, A_y);
    if (!x || !y) return NULL;
    if (x->type->rank < 2 || y->type->rank < 2) return refuse(l, op, "it multiplies vectors");
    if (number(l, op, A_transpose_x, 0)) x = swap_last(l, x);
    if (number(l, op, A_transpose_y, 0)) y = swap_last(l, y);
    return ai_matmul(l->s, out_type(l, op), x, y);
}

/* Sums up to each row, as a product with ones on and below the diagonal. */
static const ai_value *lower_cumsum(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    if (!x) return NULL;
    int rank = x->type->rank, axis = axis_of(l, op, A_axis, 0, rank);
    int64_t n = x->type->dim[axis];
    ir_dtype d = (ir_dtype)x->type->inner->dtype;
    if (axis != rank - 2 || n < 1 || n > 4096 || d != DT_FP32 || number(l, op, A_exclusive, 0) ||
        number(l, op, A_reverse, 0))
        return refuse(l, op, "only sums of fp32 along the last axis but one, in its order, are written");
    float *one = ARENA_ARRAY(l->a, float, (size_t)(n * n));
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k <= i; k++) one[i * n + k] = 1;
    const ai_value *part = ai_scope_dense(l->s, d, 2, (int64_t[]){n, n}, one, (size_t)(n * n) * sizeof *one);
    return ai_matmul(l->s, x->type, part, x);
}

static const ai_value *lower_softmax(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    return x ? ai_softmax(l->s, x, axis_of(l, op, A_axis, -1, x->type->rank)) : NULL;
}

static const ai_value *lower_reduce(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    size_t n;
    const int64_t *axes = ints(l, op, A_axes, &n);
    if (!x) return NULL;
    if (!axes || n != 1) return refuse(l, op, "it reduces over several axes");
    int axis = (int)(axes[0] < 0 ? axes[0] + x->type->rank : axes[0]);
    const ai_value *y = ai_reduce(l->s, op->code == OP_reduce_mean ? "mean" : "sum", x, axis);
    return number(l, op, A_keep_dims, 0) ? y : ai_reshape(l->s, out_type(l, op), y);
}

/* [o,c,k] as [o,c,1,k]; a constant in that shape from the start. */
static const ai_value *row_of_taps(lower *l, const ir_value *v) {
    const int64_t *k = v->type.dim, dim[4] = {k[0], k[1], 1, k[2]};
    ir_dtype d = (ir_dtype)v->type.dtype;
    if (!v->konst) {
        const ai_value *w = use(l, v);
        return w ? ai_reshape(l->s, ai_make_tensor(l->m, d, 4, dim), w) : NULL;
    }
    ir_const *c = ARENA_NEW(l->m->a, ir_const);
    *c = *v->konst;
    c->type = ir_tensor(d, 4, dim);
    return constant(l, c);
}

/* Depthwise or other, over one axis: [n,c,w] as [n,c,1,w]. */
static const ai_value *lower_conv(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x), *bias = in(l, op, A_bias);
    if (!x) return NULL;
    size_t n_stride = 0, n_pad = 0;
    const int64_t *stride = ints(l, op, A_strides, &n_stride), *pad = ints(l, op, A_pad, &n_pad);
    bool plain = x->type->rank == 3 && !bias && (!stride || stride[0] == 1);
    for (size_t i = 0; pad && i < n_pad; i++) plain &= pad[i] == 0;
    if (!plain)
        return refuse(l, op,
                      "only convolutions over one axis, without bias, stride and padding, are written");
    const ai_type *t = x->type, *out = out_type(l, op);
    ir_dtype d = (ir_dtype)t->inner->dtype;
    const ai_value *wide =
        ai_reshape(l->s, ai_make_tensor(l->m, d, 4, (int64_t[]){t->dim[0], t->dim[1], 1, t->dim[2]}), x);
    const ai_value *taps = row_of_taps(l, ir_in(op, A_weight));
    const ai_value *one = ai_scope_ints(l->s, DT_UINT32, (int64_t[]){1, 1}, 2);
    uint32_t groups = (uint32_t)number(l, op, A_groups, 1);
    const ai_value *y =
        ai_scope_value(l->s, "primitive.conv2d_v1",
                       ai_make_tensor(l->m, d, 4, (int64_t[]){out->dim[0], out->dim[1], 1, out->dim[2]}),
                       wide, taps, one, one,
                       ai_scope_dense(l->s, DT_UINT32, 0, NULL,
                                      (uint8_t[]){(uint8_t)groups, (uint8_t)(groups >> 8),
                                                  (uint8_t)(groups >> 16), (uint8_t)(groups >> 24)},
                                      4),
                       NULL);
    return ai_reshape(l->s, out, y);
}

/* ---- shapes ---- */

static const ai_value *lower_reshape(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    const ir_value *shape = ir_in(op, A_shape);
    if (!x) return NULL;
    if (shape->konst) return ai_reshape(l->s, out_type(l, op), x);
    return ai_scope_value(l->s, "primitive.reshape_v2", out_type(l, op), x, use(l, shape), NULL);
}

static const ai_value *lower_transpose(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    size_t n;
    const int64_t *given = ints(l, op, A_perm, &n);
    int64_t perm[IR_MAX_RANK];
    if (!x || !given) return NULL;
    for (size_t i = 0; i < n; i++) perm[i] = given[i] < 0 ? given[i] + (int64_t)n : given[i];
    return ai_scope_value(l->s, "primitive.transpose_v1", out_type(l, op), x,
                          ai_scope_ints(l->s, DT_UINT32, perm, (uint32_t)n), NULL);
}

static const ai_value *lower_axes(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    size_t n;
    const int64_t *axes = ints(l, op, A_axes, &n);
    if (!x) return NULL;
    if (!axes) return ai_reshape(l->s, out_type(l, op), x);
    const char *name = op->code == OP_expand_dims ? "primitive.expand_dims_v1" : "primitive.shrink_dims_v1";
    return ai_scope_value(l->s, name, out_type(l, op), x, ai_scope_ints(l->s, DT_INT32, axes, (uint32_t)n),
                          NULL);
}

static const ai_value *lower_concat(lower *l, const ir_op *op) {
    const ir_arg *values = ir_args(op, A_values);
    if (values->n == 1) return use(l, values->v[0]);
    if (number(l, op, A_interleave, 0)) return refuse(l, op, "it interleaves");
    const ai_value **v = ARENA_ARRAY(l->a, const ai_value *, values->n + 1);
    v[0] = ai_scope_int(l->s, axis_of(l, op, A_axis, 0, op->out[0]->type.rank));
    for (uint32_t i = 0; i < values->n; i++)
        if (!(v[i + 1] = use(l, values->v[i]))) return NULL;
    const ai_type *out = out_type(l, op);
    return ai_scope_op(l->s, "primitive.concat_v1", &out, 1, v, values->n + 1)->out[0];
}

static const ai_value *lower_split(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    int axis = axis_of(l, op, A_axis, 0, ir_in(op, A_x)->type.rank);
    const ai_type **out = ARENA_ARRAY(l->a, const ai_type *, op->n_out);
    int64_t *size = ARENA_ARRAY(l->a, int64_t, op->n_out);
    if (!x) return NULL;
    for (uint32_t i = 0; i < op->n_out; i++) {
        out[i] = type_of(l, &op->out[i]->type);
        if ((size[i] = out[i]->dim[axis]) < 0) return refuse(l, op, "its parts have unknown sizes");
    }
    const ai_value *operand[3] = {x, ai_scope_ints(l->s, DT_UINT32, size, op->n_out),
                                  ai_scope_int(l->s, axis)};
    const ai_op *split = ai_scope_op(l->s, "primitive.split_v1", out, op->n_out, operand, 3);
    for (uint32_t i = 0; i < op->n_out; i++) l->value[op->out[i]->id] = split->out[i];
    return split->out[0];
}

static const ai_value *ones(lower *l, int rank) {
    int64_t one[AI_MAX_RANK];
    for (int i = 0; i < rank; i++) one[i] = 1;
    return ai_scope_ints(l->s, DT_INT32, one, (uint32_t)rank);
}

/* A bound of a slice: where mask is set, otherwise instead. */
static const ai_value *bound(lower *l, const ir_op *op, ir_operand name, ir_operand mask, int64_t otherwise) {
    size_t n, n_mask;
    const int64_t *at = ints(l, op, name, &n), *free_ = ints(l, op, mask, &n_mask);
    bool any = false;
    for (size_t i = 0; free_ && i < n_mask; i++) any |= free_[i] != 0;
    if (!any) return in(l, op, name);
    if (!at) return refuse(l, op, "it has masks beside bounds that are computed");
    int64_t *v = ARENA_ARRAY(l->a, int64_t, n);
    for (size_t i = 0; i < n; i++) v[i] = free_[i] ? otherwise : at[i];
    return ai_scope_ints(l->s, DT_INT32, v, (uint32_t)n);
}

static const ai_value *lower_slice(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x), *begin = bound(l, op, A_begin, A_begin_mask, 0),
                   *end = bound(l, op, A_end, A_end_mask, INT32_MAX), *stride = in(l, op, A_stride);
    size_t n = 0;
    const int64_t *squeeze = ints(l, op, A_squeeze_mask, &n);
    bool squeezes = false;
    for (size_t i = 0; squeeze && i < n; i++) squeezes |= squeeze[i] != 0;
    if (!x || !begin || !end) return NULL;
    if (squeezes) return refuse(l, op, "it squeezes");
    return ai_scope_value(l->s, "primitive.slice_v1", out_type(l, op), x, begin, end,
                          stride ? stride : ones(l, x->type->rank), NULL);
}

static const ai_value *lower_slice_size(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x), *begin = in(l, op, A_begin), *size = in(l, op, A_size);
    if (!x || !begin || !size) return NULL;
    size_t n, n_size;
    const int64_t *from = ints(l, op, A_begin, &n), *many = ints(l, op, A_size, &n_size);
    if (from && many) {
        int64_t to[IR_MAX_RANK];
        for (size_t i = 0; i < n; i++) to[i] = many[i] < 0 ? INT32_MAX : from[i] + many[i];
        return ai_scope_value(l->s, "primitive.slice_v1", out_type(l, op), x, begin,
                              ai_scope_ints(l->s, DT_INT32, to, (uint32_t)n), ones(l, x->type->rank), NULL);
    }
    const ai_value *end = ai_broadcasting(l->s, "add", begin->type, begin, size);
    return ai_scope_value(l->s, "primitive.slice_v1", out_type(l, op), x, begin, end, ones(l, x->type->rank),
                          NULL);
}

static const ai_value *lower_slice_update(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x), *update = in(l, op, A_update),
                   *begin = bound(l, op, A_begin, A_begin_mask, 0),
                   *end = bound(l, op, A_end, A_end_mask, INT32_MAX);
    if (!x || !update || !begin || !end) return NULL;
    if (ir_in(op, A_stride) || ir_in(op, A_squeeze_mask)) return refuse(l, op, "it has strides or squeezes");
    return ai_scope_value(l->s, "primitive.slice_update_v1", x->type, x, begin, end, ones(l, x->type->rank),
                          update, NULL);
}

static const ai_value *lower_shape(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x);
    if (!x) return NULL;
    const ai_value *shape =
        ai_scope_value(l->s, "primitive.get_shape_v2", vector_type(l, DT_UINT32, x->type->rank), x, NULL);
    return ai_scope_value(l->s, "primitive.cast_v1", out_type(l, op), shape, NULL);
}

static const ai_value *lower_range(lower *l, const ir_op *op) {
    const ai_value *from = in(l, op, A_start), *to = in(l, op, A_end), *step = in(l, op, A_step);
    return from && to && step
               ? ai_scope_value(l->s, "primitive.range_v1", out_type(l, op), from, to, step, NULL)
               : NULL;
}

/* Rows of a table. */
static const ai_value *lower_gather(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x), *index = in(l, op, A_indices);
    if (!x || !index) return NULL;
    if (axis_of(l, op, A_axis, 0, x->type->rank))
        return refuse(l, op, "it gathers along another axis than the first");
    int rank = index->type->rank;
    int64_t dim[AI_MAX_RANK];
    for (int i = 0; i < rank; i++) dim[i] = index->type->dim[i];
    dim[rank] = 1;
    const ai_type *t = ai_make_tensor(l->m, (ir_dtype)index->type->inner->dtype, rank + 1, dim);
    index = ai_scope_value(l->s, "primitive.expand_dims_v1", t, index,
                           ai_scope_ints(l->s, DT_INT32, (int64_t[]){rank}, 1), NULL);
    return ai_scope_value(l->s, "primitive.gather_nd_v1", out_type(l, op), x, index, NULL);
}

static const ai_value *lower_gather_along(lower *l, const ir_op *op) {
    const ai_value *x = in(l, op, A_x), *index = in(l, op, A_indices);
    if (!x || !index) return NULL;
    return ai_scope_value(l->s, "primitive.gather_along_axis_v1", out_type(l, op), x, index,
                          ai_scope_int(l->s, axis_of(l, op, A_axis, 0, x->type->rank)), NULL);
}

/* ---- states ---- */

static size_t state_index(const lower *l, const ir_op *op) {
    size_t i = 0;
    while (l->f->in[i] != ir_in(op, A_input)) i++;
    return i;
}

static const ai_value *lower_read(lower *l, const ir_op *op) {
    size_t i = state_index(l, op);
    const ai_value **held = &l->value[l->f->in[i]->id];
    if (l->written[i] || !(*held)->def) { /* not read yet: it is the handle */
        if (l->written[i]) return *held;
        const ai_type *out[2] = {type_of(l, &op->out[0]->type), ai_make_plain(l->m, AI_TOKEN)};
        const ai_op *read = ai_scope_op(l->s, "dataflow.read_handle_v1", out, 2,
                                        (const ai_value *const[]){*held, l->token[i]}, 2);
        *held = read->out[0];
        l->token[i] = read->out[1];
    }
    return *held;
}

static const ai_value *lower_write(lower *l, const ir_op *op) {
    size_t i = state_index(l, op);
    l->written[i] = true;
    return l->value[l->f->in[i]->id] = in(l, op, A_data);
}

/* ---- the walk ---- */

static const struct {
    ir_opcode code;
    lower_fn *fn;
} rows[] = {
    {OP_constexpr_blockwise_shift_scale, lower_blocks},
    {OP_constexpr_lut_to_dense, lower_palette},
    {OP_square, lower_square},
    {OP_relu, lower_relu},
    {OP_rsqrt, lower_rsqrt},
    {OP_log, lower_log},
    {OP_silu, lower_silu},
    {OP_sigmoid, lower_sigmoid},
    {OP_select, lower_select},
    {OP_identity, lower_identity},
    {OP_linear, lower_linear},
    {OP_matmul, lower_matmul},
    {OP_cumsum, lower_cumsum},
    {OP_softmax, lower_softmax},
    {OP_reduce_mean, lower_reduce},
    {OP_reduce_sum, lower_reduce},
    {OP_conv, lower_conv},
    {OP_reshape, lower_reshape},
    {OP_transpose, lower_transpose},
    {OP_expand_dims, lower_axes},
    {OP_squeeze, lower_axes},
    {OP_concat, lower_concat},
    {OP_split, lower_split},
    {OP_slice_by_index, lower_slice},
    {OP_slice_by_size, lower_slice_size},
    {OP_slice_update, lower_slice_update},
    {OP_shape, lower_shape},
    {OP_range_1d, lower_range},
    {OP_gather, lower_gather},
    {OP_gather_along_axis, lower_gather_along},
    {OP_read_state, lower_read},
    {OP_write_state, lower_write},
};

static const ai_value *lower_op(lower *l, const ir_op *op) {
    for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++)
        if (binaries[i].code == op->code)
            return binary_op(l, op, binaries[i].name, binaries[i].swapped, binaries[i].negated);
    for (size_t i = 0; i < sizeof unaries / sizeof *unaries; i++)
        if (unaries[i].code == op->code) {
            const ai_value *x = in(l, op, A_x);
            const char *name = arena_printf(l->m->a, "primitive.%s_v1", unaries[i].name);
            return x ? ai_scope_value(l->s, name, out_type(l, op), x, NULL) : NULL;
        }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code == op->code) return rows[i].fn(l, op);
    return refuse(l, op, "it has no counterpart in Core AI");
}

/* Constants and packed weights are made where they are used first, in each graph that uses them. */
static const ai_value *use(lower *l, const ir_value *v) {
    const ai_value **at = &l->value[v->id];
    if (*at) return *at;
    if (v->konst)
        *at = constant(l, v->konst);
    else if (v->def && (ir_info(v->def->code)->flags & OPF_CONSTEXPR))
        *at = lower_op(l, v->def);
    if (!*at && !l->e->code)
        err_set(l->e, ERR_UNSUPPORTED, "function %s: value %s can't be used where it is", l->f->name,
                v->name ? v->name : "?");
    return *at;
}

static const ai_attr *composite_attr(lower *l, const ir_composite *c) {
    const ai_attr **input = ARENA_ARRAY(l->a, const ai_attr *, c->n_input),
                  **attr = ARENA_ARRAY(l->a, const ai_attr *, c->n_attr);
    for (uint32_t i = 0; i < c->n_input; i++) input[i] = ai_make_text(l->m, c->input_name[i]);
    for (uint32_t i = 0; i < c->n_attr; i++) {
        const ir_composite_attr *x = &c->attr[i];
        const ai_attr *v = x->kind == IR_COMPOSITE_REAL ? ai_make_real(l->m, (float)x->value)
                           : x->kind == IR_COMPOSITE_BOOL
                               ? ai_make_integer(l->m, 1, true, x->value != 0)
                               : ai_make_integer(l->m, 64, true, (int64_t)x->value);
        attr[i] = ai_make_named(l->m, x->name, v);
    }
    const ai_attr *output = ai_make_text(l->m, c->output_name);
    const ai_attr *part[3] = {
        ai_make_named(l->m, "input_names", ai_make_list(l->m, AI_ARRAY, input, c->n_input)),
        ai_make_named(l->m, "op_attrs", ai_make_list(l->m, AI_DICTIONARY, attr, c->n_attr)),
        ai_make_named(l->m, "output_names", ai_make_list(l->m, AI_ARRAY, &output, 1)),
    };
    return ai_make_named_list(l->m, c->name, part, 3);
}

static bool lower_ops(lower *l, size_t from, size_t to);

/* Ops from .. to as a graph of their own, and the call. */
static bool lower_composite(lower *l, const ir_composite *c, size_t from, size_t to) {
    lower inner = *l;
    inner.s = ai_scope_new(l->m);
    inner.value = ARENA_ARRAY(l->a, const ai_value *, l->f->n_values);
    const ai_value **operand = ARENA_ARRAY(l->a, const ai_value *, c->n_input);
    for (uint32_t i = 0; i < c->n_input; i++) {
        if (!(operand[i] = use(l, c->input[i]))) return false;
        inner.value[c->input[i]->id] = ai_scope_argument(inner.s, operand[i]->type);
    }
    if (!lower_ops(&inner, from, to)) return false;
    const ai_value *out = inner.value[c->output->id];
    const char *name = arena_printf(l->a, "%s_%u", c->name, l->m->n_graph);
    const ai_graph *g =
        ai_make_graph(l->m, inner.s, name, &out, 1, c->input_name, &c->output_name, composite_attr(l, c));
    l->value[c->output->id] = ai_scope_invoke(l->s, g, operand, c->n_input)->out[0];
    return true;
}

static bool lower_ops(lower *l, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        const ir_op *op = l->f->body.op[i];
        if (op->code == OP_const || ir_info(op->code)->flags & OPF_CONSTEXPR) continue;
        if (op->composite && l->token) {
            size_t end = i + 1;
            while (end < to &&
                   (l->f->body.op[end]->composite == op->composite || l->f->body.op[end]->code == OP_const))
                end++;
            lower body = *l;
            body.token = NULL; /* in a graph of its own there are no states, nor composites */
            if (!lower_composite(&body, &l->f->composite[op->composite - 1], i, end)) return false;
            i = end - 1;
            continue;
        }
        const ai_value *v = lower_op(l, op);
        if (!v) return l->e->code ? false : (refuse(l, op, "an operand has no counterpart"), false);
        if (op->n_out) l->value[op->out[0]->id] = v;
    }
    return true;
}

static bool finish_graph(lower *l) {
    const ir_function *f = l->f;
    size_t n = f->n_in + f->body.n_out, n_out = 0;
    const ai_value **out = ARENA_ARRAY(l->a, const ai_value *, n);
    const char **name = ARENA_ARRAY(l->a, const char *, n),
               **in_name = ARENA_ARRAY(l->a, const char *, f->n_in);
    for (size_t i = 0; i < f->n_in; i++) {
        in_name[i] = f->in[i]->name;
        if (f->in[i]->type.kind != IR_STATE) continue;
        const ai_type *token = ai_make_plain(l->m, AI_TOKEN);
        if (l->written[i]) {
            const ai_value *operand[3] = {l->s->arg[i], l->value[f->in[i]->id], l->token[i]};
            l->token[i] = ai_scope_op(l->s, "dataflow.write_handle_v1", &token, 1, operand, 3)->out[0];
        }
        name[n_out] = f->in[i]->name;
        out[n_out++] = l->token[i];
    }
    for (size_t i = 0; i < f->body.n_out; i++) {
        name[n_out] = f->body.out[i]->name;
        if (!(out[n_out++] = use(l, f->body.out[i]))) return false;
    }
    ai_make_graph(l->m, l->s, f->name, out, (uint32_t)n_out, in_name, name, NULL);
    return true;
}

static bool lower_function(ai_make *m, const ir_function *f, err *e) {
    lower l = {.m = m, .s = ai_scope_new(m), .f = f, .a = m->a, .e = e};
    l.value = ARENA_ARRAY(m->a, const ai_value *, f->n_values);
    l.token = ARENA_ARRAY(m->a, const ai_value *, f->n_in);
    l.written = ARENA_ARRAY(m->a, bool, f->n_in);
    for (size_t i = 0; i < f->n_in; i++) {
        const ai_type *t = type_of(&l, &f->in[i]->type);
        bool state = f->in[i]->type.kind == IR_STATE;
        l.value[f->in[i]->id] = ai_scope_argument(l.s, state ? ai_make_handle(m, t) : t);
    }
    const ai_type *token = ai_make_plain(m, AI_TOKEN);
    const ai_value *first = NULL;
    for (size_t i = 0; i < f->n_in; i++) {
        if (f->in[i]->type.kind != IR_STATE) continue;
        if (!first) first = ai_scope_op(l.s, "dataflow.create_token_v1", &token, 1, NULL, 0)->out[0];
        l.token[i] = first;
    }
    return lower_ops(&l, 0, f->body.n_op) && finish_graph(&l);
}

const ai_tree *ai_from_program(arena *a, const ir_program *p, const char *producer, err *e) {
    ai_make *m = ai_make_new(a);
    for (size_t i = 0; i < p->n_func; i++)
        if (!lower_function(m, p->func[i], e)) return NULL;
    return ai_make_tree(m, producer, AI_MADE_VERSION);
}
