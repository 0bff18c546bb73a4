/* Every rule of the verifier: a program that breaks it, and no violation in any genuine package. */
#include "coreml/model.h"
#include "ir/build.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "test.h"
#include <dirent.h>

/* ---- programs that break one rule */

typedef struct {
    ir_builder b;
    ir_program *p;
    ir_function *f;
    err e;
    ir_value *x, *y; /* x: input fp16[2,4]; y: relu(x), not yet an output */
} base;

static void open_base(base *t, int spec) {
    *t = (base){.p = ir_program_new(arena_new())};
    t->b = ir_build(t->p, "main", spec, &t->e);
    t->f = t->b.f;
    t->x = b_input(&t->b, "x", IR_TYPE(DT_FP16, 2, 4));
    t->y = b_op(&t->b, OP_relu, "y", A_x, t->x, A_NONE);
}

/* An op that the builder would refuse: added by hand, its output declared as type. */
static ir_op *raw_op(base *t, ir_opcode code, const char *name, ir_type type) {
    ir_op *op = ir_add_op(t->p, &t->f->body, code, 1);
    ir_value *v = ir_value_new(t->p, t->f, name, type);
    v->def = op;
    op->out[0] = v;
    op->name = v->name;
    return op;
}

static void raw_output(base *t, ir_value *v) {
    ir_block *b = &t->f->body;
    ir_value **out = ARENA_ARRAY(t->p->a, ir_value *, b->n_out + 1);
    if (b->n_out) memcpy(out, b->out, b->n_out * sizeof *out);
    out[b->n_out++] = v;
    b->out = out;
}

static ir_value *state(base *t) {
    return b_state(&t->b, "k", IR_TYPE(DT_FP16, 1, 8, 4));
}

static ir_value *read_state(base *t, ir_value *k) {
    return b_op(&t->b, OP_read_state, "cache", A_input, k, A_NONE);
}

static ir_block *new_block(base *t) {
    return ARENA_NEW(t->p->a, ir_block);
}

static void block_out(base *t, ir_block *b, ir_value *v) {
    b->out = ARENA_ARRAY(t->p->a, ir_value *, 1);
    b->out[0] = v;
    b->n_out = 1;
}

#define SHAPE IR_TYPE(DT_FP16, 2, 4)

static void name_digit(base *t) {
    b_op(&t->b, OP_relu, "1st", A_x, t->x, A_NONE);
}
static void name_dash(base *t) {
    b_op(&t->b, OP_relu, "a-b", A_x, t->x, A_NONE);
}
static void name_empty(base *t) {
    b_op(&t->b, OP_relu, "", A_x, t->x, A_NONE);
}
static void name_reserved(base *t) {
    b_op(&t->b, OP_relu, "fp16", A_x, t->x, A_NONE);
}
static void name_input_reserved(base *t) {
    t->x->name = "state";
}
static void name_function(base *t) {
    t->f->name = "a b";
}
static void name_twice(base *t) {
    ir_set_arg(t->p, raw_op(t, OP_relu, "y", SHAPE), A_x, t->x);
}
static void op_too_new(base *t) {
    ir_set_arg(t->p, raw_op(t, OP_fill_like, "z", IR_TYPE(DT_FP32, 2, 4)), A_ref_tensor, t->x);
}
static void opset_mixed(base *t) {
    ir_function_new(t->p, "other", 8);
}
static void opset_unknown(base *t) {
    t->f->spec = 5;
}
static void function_twice(base *t) {
    ir_function_new(t->p, "main", t->f->spec);
}
static void operand_missing(base *t) {
    ir_set_arg(t->p, raw_op(t, OP_add, "z", SHAPE), A_x, t->x);
}
static void operand_too_new(base *t) { /* gather.batch_dims is of CoreML6 */
    ir_value *zero = b_i32(&t->b, 0);
    ir_op *op = raw_op(t, OP_gather, "z", IR_TYPE(DT_FP16, 4));
    ir_set_arg(t->p, op, A_x, t->x);
    ir_set_arg(t->p, op, A_indices, zero);
    ir_set_arg(t->p, op, A_batch_dims, zero);
}
static void operand_dtype(base *t) {
    ir_set_arg(t->p, raw_op(t, OP_logical_not, "z", SHAPE), A_x, t->x);
}
static void operand_dtype_version(base *t) { /* gather takes uint16 indices from CoreML6 on */
    ir_value *i = b_input(&t->b, "i", IR_TYPE(DT_UINT16, 3));
    ir_op *op = raw_op(t, OP_gather, "z", IR_TYPE(DT_FP16, 3, 4));
    ir_set_arg(t->p, op, A_x, t->x);
    ir_set_arg(t->p, op, A_indices, i);
}
static void dtypes_mixed(base *t) {
    ir_value *i = b_input(&t->b, "i", IR_TYPE(DT_FP32, 2, 4));
    ir_op *op = raw_op(t, OP_add, "z", SHAPE);
    ir_set_arg(t->p, op, A_x, t->x);
    ir_set_arg(t->p, op, A_y, i);
}
static void matmul_mixed(base *t) {
    ir_value *i = b_input(&t->b, "i", IR_TYPE(DT_FP32, 4, 2));
    ir_op *op = raw_op(t, OP_matmul, "z", IR_TYPE(DT_FP16, 2, 2));
    ir_set_arg(t->p, op, A_x, t->x);
    ir_set_arg(t->p, op, A_y, i);
}
static void const_operand(base *t) {
    ir_value *axes = b_input(&t->b, "axes", IR_TYPE(DT_INT32, 1));
    ir_set_arg(t->p, raw_op(t, OP_reduce_sum, "z", ir_scalar(DT_FP16)), A_x, t->x);
    ir_set_arg(t->p, t->f->body.op[t->f->body.n_op - 1], A_axes, axes);
}
static void operand_rank(base *t) {
    b_op(&t->b, OP_softmax, "z", A_x, t->x, A_axis, B_INTS(&t->b, 1), A_NONE);
}
static void operand_rank_axes(base *t) {
    b_op(&t->b, OP_reduce_sum, "z", A_x, t->x, A_axes, b_i32(&t->b, 1), A_NONE);
}
static void use_before(base *t) {
    ir_op *op = raw_op(t, OP_relu, "z", SHAPE);
    ir_set_arg(t->p, op, A_x, b_op(&t->b, OP_relu, "late", A_x, t->x, A_NONE));
}
static void use_itself(base *t) {
    ir_op *op = raw_op(t, OP_relu, "z", SHAPE);
    ir_set_arg(t->p, op, A_x, op->out[0]);
}
static void use_foreign(base *t) { /* a value of another function with the same number */
    ir_function *g = ir_function_new(t->p, "other", t->f->spec);
    ir_value *v = ir_value_new(t->p, g, "x", SHAPE);
    ir_set_arg(t->p, raw_op(t, OP_relu, "z", SHAPE), A_x, v);
}
static void declared_shape(base *t) {
    t->y->type.dim[1] = 5;
}
static void declared_dtype(base *t) {
    t->y->type.dtype = DT_FP32;
}
static void declared_rank(base *t) {
    t->y->type.rank = 1;
}
static void declared_const(base *t) {
    b_f16(&t->b, 1)->type.dtype = DT_FP32;
}
static void type_shapes(base *t) {
    ir_value *i = b_input(&t->b, "i", IR_TYPE(DT_FP16, 2, 5));
    ir_op *op = raw_op(t, OP_add, "z", SHAPE);
    ir_set_arg(t->p, op, A_x, t->x);
    ir_set_arg(t->p, op, A_y, i);
}
static void topk_large(base *t) {
    ir_value *k = b_i32(&t->b, 5);
    ir_op *op = ir_add_op(t->p, &t->f->body, OP_topk, 2);
    for (uint32_t i = 0; i < 2; i++) {
        op->out[i] = ir_value_new(t->p, t->f, i ? "ids" : "top", IR_TYPE(i ? DT_INT32 : DT_FP16, 2, 5));
        op->out[i]->def = op;
    }
    ir_set_arg(t->p, op, A_x, t->x);
    ir_set_arg(t->p, op, A_k, k);
}
static void rank_six(base *t) {
    b_op(&t->b, OP_expand_dims, "z", A_x, t->x, A_axes, B_INTS(&t->b, 0, 1, 2, 3), A_NONE);
}
static void rank_six_input(base *t) {
    b_input(&t->b, "i", IR_TYPE(DT_FP16, 1, 1, 1, 1, 1, 1));
}
static void rank_six_const(base *t) {
    ir_value *c = b_floats(&t->b, DT_FP16, (const float[]){1}, IR_TYPE(DT_FP16, 1, 1, 1, 1, 1, 1));
    b_op(&t->b, OP_reduce_sum, "z", A_x, c, A_NONE);
}
static void linear_rank(base *t) {
    ir_value *x = b_input(&t->b, "i", IR_TYPE(DT_FP16, 1, 1, 1, 2));
    ir_value *w = b_floats(&t->b, DT_FP16, (const float[]){1, 2}, IR_TYPE(DT_FP16, 1, 2));
    b_op(&t->b, OP_linear, "z", A_x, x, A_weight, w, A_NONE);
}
static void select_scalars(base *t) {
    ir_value *c = b_op(&t->b, OP_greater, NULL, A_x, t->x, A_y, b_f16(&t->b, 0), A_NONE);
    b_op(&t->b, OP_select, "z", A_cond, c, A_a, b_f16(&t->b, 1), A_b, b_f16(&t->b, 0), A_NONE);
}
static void output_twice(base *t) {
    raw_output(t, t->y);
}
static void output_input(base *t) {
    raw_output(t, t->x);
}
static void output_undefined(base *t) {
    raw_output(t, ir_value_new(t->p, t->f, "ghost", SHAPE));
}
static void output_state(base *t) {
    ir_value *k = state(t);
    read_state(t, k);
    raw_output(t, k);
}
static void state_old(base *t) {
    state(t);
}
static void state_fp32(base *t) {
    read_state(t, b_state(&t->b, "k", IR_TYPE(DT_FP32, 4)));
}
static void state_int8(base *t) {
    read_state(t, b_state(&t->b, "k", IR_TYPE(DT_INT8, 4)));
}
static void state_unknown(base *t) {
    read_state(t, b_state(&t->b, "k", IR_TYPE(DT_FP16, IR_DIM_UNKNOWN)));
}
static void state_unused(base *t) {
    state(t);
}
static void state_operand(base *t) {
    ir_value *k = state(t);
    read_state(t, k);
    ir_set_arg(t->p, raw_op(t, OP_relu, "z", k->type), A_x, k);
}
static void state_write_dtype(base *t) {
    ir_value *i = b_input(&t->b, "i", IR_TYPE(DT_FP32, 1, 8, 4)), *k = state(t);
    ir_op *op = ir_add_op(t->p, &t->f->body, OP_write_state, 0);
    ir_set_arg(t->p, op, A_input, k);
    ir_set_arg(t->p, op, A_data, i);
}
static void state_read_tensor(base *t) {
    ir_set_arg(t->p, raw_op(t, OP_read_state, "z", SHAPE), A_input, t->x);
}

/* cache[0, from : from + n, :] = update of `rows` rows, from known when the function runs. */
static void cache_update(base *t, int32_t n, int64_t rows) {
    ir_value *pos = b_input(&t->b, "pos", IR_TYPE(DT_INT32, 1)), *zero = B_INTS(&t->b, 0);
    ir_value *u = b_input(&t->b, "u", IR_TYPE(DT_FP16, 1, rows, 4)), *cache = read_state(t, state(t));
    ir_value *end = b_op(&t->b, OP_add, NULL, A_x, pos, A_y, b_i32(&t->b, n), A_NONE);
    ir_value *from = b_opv(&t->b, OP_concat, NULL, A_values, (ir_value *[]){zero, pos, zero}, 3, A_axis,
                           b_i32(&t->b, 0), A_NONE);
    ir_value *to = b_opv(&t->b, OP_concat, NULL, A_values, (ir_value *[]){zero, end, zero}, 3, A_axis,
                         b_i32(&t->b, 0), A_NONE);
    uint8_t mask[3] = {1, 0, 1};
    ir_const *c = ir_const_new(t->p->a, IR_TYPE(DT_BOOL, 3), arena_copy(t->p->a, mask, 3));
    ir_value *m = b_const(&t->b, NULL, c);
    b_op(&t->b, OP_slice_update, "z", A_x, cache, A_update, u, A_begin, from, A_end, to, A_begin_mask, m,
         A_end_mask, m, A_NONE);
}
static void update_fits(base *t) {
    cache_update(t, 2, 2);
}
static void update_short(base *t) {
    cache_update(t, 2, 1);
}
static void update_longer_than_x(base *t) {
    ir_value *at = b_input(&t->b, "at", IR_TYPE(DT_INT32, 2)),
             *to = b_input(&t->b, "to", IR_TYPE(DT_INT32, 2));
    ir_value *u = b_input(&t->b, "u", IR_TYPE(DT_FP16, 3, 4));
    b_op(&t->b, OP_slice_update, "z", A_x, t->x, A_update, u, A_begin, at, A_end, to, A_NONE);
}
static void update_end(base *t) {
    ir_value *u = b_input(&t->b, "u", IR_TYPE(DT_FP16, 1, 4));
    b_op(&t->b, OP_slice_update, "z", A_x, t->x, A_update, u, A_begin, B_INTS(&t->b, 1, 0), A_end,
         B_INTS(&t->b, 3, 4), A_NONE);
}
static void update_length(base *t) {
    ir_value *u = b_input(&t->b, "u", IR_TYPE(DT_FP16, 2, 4)), *begin = B_INTS(&t->b, 1, 0),
             *end = B_INTS(&t->b, 2, 4);
    ir_op *op = raw_op(t, OP_slice_update, "z", SHAPE);
    ir_set_arg(t->p, op, A_x, t->x);
    ir_set_arg(t->p, op, A_update, u);
    ir_set_arg(t->p, op, A_begin, begin);
    ir_set_arg(t->p, op, A_end, end);
}
static void slice_crossed(base *t) {
    b_op(&t->b, OP_slice_by_index, "z", A_x, t->x, A_begin, B_INTS(&t->b, 1, 3), A_end, B_INTS(&t->b, 2, 1),
         A_NONE);
}

static ir_const *zeros(base *t, ir_type type) {
    return ir_const_new(t->p->a, type, arena_alloc(t->p->a, (size_t)ir_type_bytes(&type) + 1));
}
static ir_op *sparse(base *t, const ir_const *mask, const ir_const *data, ir_binding how) {
    ir_op *op = raw_op(t, OP_constexpr_sparse_to_dense, "w", IR_TYPE(DT_FP16, 2, 4));
    ir_set_arg(t->p, op, A_mask, ir_literal(t->p, t->f, mask, how));
    ir_set_arg(t->p, op, A_nonzero_data, ir_literal(t->p, t->f, data, how));
    return op;
}
static void sparse_count(base *t) {
    ir_const *mask = ir_const_new(t->p->a, IR_TYPE(DT_UINT1, 2, 4), "\x13");
    sparse(t, mask, zeros(t, IR_TYPE(DT_FP16, 2)), IR_BY_LITERAL);
}
static void sparse_fits(base *t) {
    ir_const *mask = ir_const_new(t->p->a, IR_TYPE(DT_UINT1, 2, 4), "\x13");
    sparse(t, mask, zeros(t, IR_TYPE(DT_FP16, 3)), IR_BY_LITERAL);
}
static void binding_attribute(base *t) {
    ir_const *mask = ir_const_new(t->p->a, IR_TYPE(DT_UINT1, 2, 4), "\x03");
    sparse(t, mask, zeros(t, IR_TYPE(DT_FP16, 2)), IR_BY_ATTRIBUTE);
}
static void shape_gone(base *t) {
    ir_const *mask = ir_const_new(t->p->a, IR_TYPE(DT_UINT1, 1), "\x00"),
             *shape = zeros(t, IR_TYPE(DT_UINT32, 2));
    memcpy((void *)shape->data, "\x02\0\0\0\x04\0\0\0", 8);
    ir_op *op = sparse(t, mask, zeros(t, IR_TYPE(DT_FP16, 0)), IR_BY_LITERAL);
    ir_set_arg(t->p, op, A_shape, ir_literal(t->p, t->f, shape, IR_BY_LITERAL));
}
static void const_short(base *t) {
    ir_const *c = zeros(t, IR_TYPE(DT_FP16, 3));
    c->bytes = 5;
    b_const(&t->b, "c", c);
}
static void const_empty(base *t) {
    b_const(&t->b, "c", ir_const_new(t->p->a, IR_TYPE(DT_FP16, 3), NULL));
}
static void const_blob_bool(base *t) {
    ir_const *c = zeros(t, IR_TYPE(DT_BOOL, 3));
    c->in_blob = true;
    b_const(&t->b, "c", c);
}
static bool fill_nothing(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    (void)ctx, (void)first, (void)n, (void)dst, (void)e;
    return true;
}
static void immediate_size(base *t) {
    ir_const *c = ir_const_fill(t->p->a, IR_TYPE(DT_FP16, 1 << 30), fill_nothing, NULL);
    c->in_blob = false;
    b_const(&t->b, "c", c);
}

/* y2 = cond(pred, relu(x), relu(x)) with the inner names given. */
static ir_op *branches(base *t, const char *yes, const char *no) {
    ir_value *pred = b_input(&t->b, "pred", ir_scalar(DT_BOOL));
    ir_op *op = raw_op(t, OP_cond, "z", SHAPE);
    ir_set_arg(t->p, op, A_pred, pred);
    op->block = ARENA_ARRAY(t->p->a, ir_block *, 2);
    op->n_block = 2;
    for (int i = 0; i < 2; i++) {
        ir_block *b = op->block[i] = new_block(t);
        ir_op *inner = ir_add_op(t->p, b, OP_relu, 1);
        inner->out[0] = ir_value_new(t->p, t->f, i ? no : yes, SHAPE);
        inner->out[0]->def = inner;
        ir_set_arg(t->p, inner, A_x, t->x);
        block_out(t, b, inner->out[0]);
    }
    return op;
}
static void cond_fits(base *t) {
    branches(t, "r", "r");
} /* blocks side by side may use the same names */
static void cond_hides(base *t) {
    branches(t, "x", "r");
}
static void cond_types(base *t) {
    ir_op *op = branches(t, "r", "q");
    op->block[1]->op[0]->out[0]->type.dtype = DT_FP32;
}
static void cond_outputs(base *t) {
    branches(t, "r", "q")->block[1]->n_out = 0;
}
static void cond_one_block(base *t) {
    branches(t, "r", "q")->n_block = 1;
}
static void cond_leak(base *t) {
    ir_op *op = branches(t, "r", "q");
    ir_set_arg(t->p, raw_op(t, OP_relu, "leak", SHAPE), A_x, op->block[0]->out[0]);
}
static void cond_sibling(base *t) {
    ir_op *op = branches(t, "r", "q");
    op->block[1]->out[0] = op->block[0]->out[0];
}

/* while_loop(x): condition block gives `go`, body relu of its input. */
static ir_op *loop(base *t, ir_dtype go) {
    ir_op *op = raw_op(t, OP_while_loop, "z", SHAPE);
    ir_set_args(t->p, op, A_loop_vars, &t->x, 1);
    op->block = ARENA_ARRAY(t->p->a, ir_block *, 2);
    op->n_block = 2;
    for (int i = 0; i < 2; i++) {
        ir_block *b = op->block[i] = new_block(t);
        b->in = ARENA_ARRAY(t->p->a, ir_value *, 1);
        b->in[0] = ir_value_new(t->p, t->f, "turn", SHAPE);
        b->n_in = 1;
        ir_op *inner = ir_add_op(t->p, b, i ? OP_relu : OP_const, 1);
        inner->out[0] = ir_value_new(t->p, t->f, i ? "next" : "go", i ? SHAPE : ir_scalar(go));
        inner->out[0]->def = inner;
        if (i)
            ir_set_arg(t->p, inner, A_x, b->in[0]);
        else
            inner->out[0]->konst = zeros(t, ir_scalar(go));
        block_out(t, b, inner->out[0]);
    }
    return op;
}
static void loop_fits(base *t) {
    loop(t, DT_BOOL);
}
static void loop_condition(base *t) {
    loop(t, DT_INT32);
}
static void loop_inputs(base *t) {
    loop(t, DT_BOOL)->block[0]->n_in = 0;
}
static void loop_changes(base *t) {
    loop(t, DT_BOOL)->block[1]->in[0]->type.dim[0] = 3;
}
static void nothing(base *t) {
    (void)t;
}

static const struct {
    const char *what, *rule; /* rule NULL: no violation */
    int spec;
    void (*breaks)(base *t);
    const char *says; /* part of a message */
} cases[] = {
    {"whole", NULL, 9, nothing, ""},
    {"name starts with a digit", "identifier", 9, name_digit, "function main, op relu 1st: name \"1st\""},
    {"name with a dash", "identifier", 9, name_dash, "a-b"},
    {"empty name", "identifier", 9, name_empty, "op relu"},
    {"reserved word", "reserved-word", 9, name_reserved, "op relu fp16"},
    {"reserved word as an input", "reserved-word", 9, name_input_reserved, "state"},
    {"function name", "identifier", 9, name_function, "a?b"},
    {"one name twice", "duplicate-name", 9, name_twice, "op relu y"},
    {"op of a later opset", "opset", 6, op_too_new, "op fill_like z"},
    {"functions of two opsets", "opset", 9, opset_mixed, "function other"},
    {"unknown opset", "opset", 9, opset_unknown, "5"},
    {"two functions of one name", "functions", 9, function_twice, "main"},
    {"required operand missing", "operand", 9, operand_missing, "op add z: operand y is missing"},
    {"operand of a later opset", "operand", 6, operand_too_new, "batch_dims"},
    {"dtype that the op does not take", "operand", 9, operand_dtype, "operand x is fp16[2,4]"},
    {"dtype of a later opset", "operand", 6, operand_dtype_version, "uint16"},
    {"operands of two dtypes", "mixed-dtypes", 9, dtypes_mixed, "x (fp16) and y (fp32)"},
    {"matmul of two dtypes", "type", 9, matmul_mixed, "x (fp16) and y (fp32)"},
    {"run-time axes", "const-operand", 9, const_operand, "op reduce_sum z: operand axes is axes"},
    {"vector for a scalar", "operand-rank", 9, operand_rank, "axis is int32[1]"},
    {"scalar for a vector", "operand-rank", 9, operand_rank_axes, "axes is int32[]"},
    {"use before definition", "undefined", 9, use_before, "op relu z: operand x uses late"},
    {"use of the own result", "undefined", 9, use_itself, "z"},
    {"use of another function's value", "undefined", 9, use_foreign, "x"},
    {"declared shape", "declared-type", 9, declared_shape, "y is declared as fp16[2,5] but is fp16[2,4]"},
    {"declared dtype", "declared-type", 9, declared_dtype, "fp32[2,4]"},
    {"declared rank", "declared-type", 9, declared_rank, "fp16[2]"},
    {"declared type of a constant", "declared-type", 9, declared_const, "fp32[]"},
    {"shapes that do not broadcast", "type", 9, type_shapes, "fp16[2,5]"},
    {"k above the axis", "type", 9, topk_large, "k is 5"},
    {"rank 6", "rank", 9, rank_six, "z has rank 6"},
    {"rank 6 input", "rank", 9, rank_six_input, "i has rank 6"},
    {"rank 6 constant", "rank", 9, rank_six_const, "rank 6"},
    {"linear of rank 4", "linear-rank", 9, linear_rank, "fp16[1,1,1,2]"},
    {"select with scalar branches", "select-branches", 9, select_scalars, "op select z"},
    {"output listed twice", "duplicate-output", 9, output_twice, "y is an output twice"},
    {"output that is an input", "output-is-input", 9, output_input, "x"},
    {"undefined output", "undefined", 9, output_undefined, "ghost"},
    {"state as an output", "state-use", 9, output_state, "state k"},
    {"state before CoreML8", "state-version", 8, state_old, "k"},
    {"fp32 state", "state-dtype", 9, state_fp32, "k is fp32"},
    {"int8 state before CoreML9", "state-dtype", 9, state_int8, "k is int8"},
    {"int8 state", NULL, 10, state_int8, ""},
    {"state of unknown size", "state-shape", 9, state_unknown, "k"},
    {"state that nothing uses", "state-unused", 9, state_unused, "k"},
    {"state as an operand", "state-use", 9, state_operand, "op relu z"},
    {"state written with another dtype", "type", 9, state_write_dtype, "fp32[1,8,4]"},
    {"read_state of a tensor", "operand", 9, state_read_tensor, "expected a state"},
    {"update at a run-time place", NULL, 9, update_fits, ""},
    {"update shorter than its slice", "slice-update-length", 9, update_short,
     "takes 2 elements, the update has 1"},
    {"update longer than x", "slice-update-length", 9, update_longer_than_x, "has 2 elements, the update 3"},
    {"slice_update past the end", "slice-end", 9, update_end, "ends at 3, x has 2"},
    {"update and slice differ", "type", 9, update_length, "fp16[1,4]"},
    {"bounds crossed", "slice-bounds", 9, slice_crossed, "from 3 to 1"},
    {"sparse weight", NULL, 9, sparse_fits, ""},
    {"mask and values differ", "sparse-mask", 9, sparse_count, "3 bits set for 2 values"},
    {"constexpr attribute in CoreML8", "binding", 9, binding_attribute, "op constexpr_sparse_to_dense w"},
    {"old constexpr form in CoreML8", "operand-version", 9, shape_gone, "CoreML8"},
    {"constant too short", "const-size", 9, const_short, "c has 5 bytes"},
    {"constant without data", "const-size", 9, const_empty, "c has no data"},
    {"bool in the weight file", "const-place", 9, const_blob_bool, "bool"},
    {"immediate constants beyond 2 GiB", "size-limit", 9, immediate_size, "2147483648"},
    {"an asset has no other file", NULL, IR_SPEC_COREAI, immediate_size, ""},
    {"cond", NULL, 9, cond_fits, ""},
    {"inner name hides an outer one", "duplicate-name", 9, cond_hides, "op relu x"},
    {"branches differ in dtype", "declared-type", 9, cond_types, "fp32"},
    {"branch without output", "type", 9, cond_outputs, "op cond z"},
    {"cond with one block", "type", 9, cond_one_block, "blocks"},
    {"inner value used outside", "undefined", 9, cond_leak, "op relu leak"},
    {"inner value used beside", "undefined", 9, cond_sibling, "r"},
    {"while_loop", NULL, 9, loop_fits, ""},
    {"condition that is no bool", "type", 9, loop_condition, "bool scalar"},
    {"loop variable missing", "type", 9, loop_inputs, "block 0"},
    {"loop variable of another shape", "type", 9, loop_changes, "fp16[3,4]"},
};

typedef struct {
    size_t n, matching, saying;
    const char *rule, *says;
    char first[400];
} tally;

static bool count(void *ctx, const char *rule, const char *message) {
    tally *t = ctx;
    if (!t->n++) snprintf(t->first, sizeof t->first, "%s: %s", rule, message);
    t->matching += t->rule && !strcmp(rule, t->rule);
    t->saying += t->says && strstr(message, t->says) != NULL;
    return true;
}

static void every_rule_finds_its_violation(void **s) {
    (void)s;
    size_t bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        base t;
        open_base(&t, cases[i].spec);
        cases[i].breaks(&t);
        assert_string_equal(t.e.msg, "");
        raw_output(&t, t.y);
        tally found = {.rule = cases[i].rule, .says = cases[i].says};
        err e = {0};
        bool ok = ir_verify(t.p, count, &found, &e);
        assert_true(ok == (found.n == 0));
        bool right = cases[i].rule ? found.matching && found.saying && found.n <= 2 : ok;
        if (!right) print_error("%s: %zu violations, first %s\n", cases[i].what, found.n, found.first);
        bad += !right;
        err first = {0}; /* without a receiver the first one is the error */
        assert_true(ir_verify(t.p, NULL, NULL, &first) == ok);
        if (!ok) assert_string_equal(first.msg, found.first);
        ir_build_end(&t.b);
        arena_free(t.p->a);
    }
    assert_int_equal(bad, 0);
}

static bool stop_at_once(void *ctx, const char *rule, const char *message) {
    (void)rule, (void)message;
    ++*(int *)ctx;
    return false;
}

static void the_receiver_may_stop(void **s) {
    (void)s;
    base t;
    open_base(&t, 9);
    name_digit(&t), name_dash(&t), rank_six(&t);
    int n = 0;
    err e = {0};
    assert_false(ir_verify(t.p, stop_at_once, &n, &e));
    assert_int_equal(n, 1);
    ir_build_end(&t.b);
    arena_free(t.p->a);
}

/* A sum that doubles at every step has 2^60 paths back to its source. */
static void tracing_bounds_ends(void **s) {
    (void)s;
    base t;
    open_base(&t, 9);
    ir_value *at = b_input(&t.b, "at", IR_TYPE(DT_INT32, 2));
    for (int i = 0; i < 60; i++) at = b_op(&t.b, OP_add, NULL, A_x, at, A_y, at, A_NONE);
    b_op(&t.b, OP_slice_by_index, "z", A_x, t.x, A_begin, at, A_end, at, A_NONE);
    err e = {0};
    assert_true(ir_verify(t.p, NULL, NULL, &e));
    ir_build_end(&t.b);
    arena_free(t.p->a);
}

/* ---- genuine packages */

static size_t verify_model(const char *name, const coreml_model *m) {
    size_t bad = 0;
    for (size_t i = 0; i < m->n_part; i++) bad += verify_model(name, m->part[i]);
    if (!m->program) return bad;
    tally found = {0};
    err e = {0};
    if (!ir_verify(m->program, count, &found, &e))
        print_error("%s: %zu, first %s\n", name, found.n, found.first);
    for (size_t i = 0; i < m->program->n_func; i++) { /* every op has an inference rule and a listing */
        str text = {0};
        ir_print_function(&text, m->program->func[i]);
        assert_non_null(strstr(str_get(&text), "return "));
        str_free(&text);
    }
    return bad + found.n;
}

/* Verifies every package below dir; returns how many there were. */
static size_t verify_below(const char *dir, size_t *bad) {
    DIR *d = opendir(dir);
    if (!d) return 0; /* a file */
    size_t n = 0;
    for (struct dirent *at; (at = readdir(d));) {
        char path[1200];
        size_t len = strlen(at->d_name);
        snprintf(path, sizeof path, "%s/%s", dir, at->d_name);
        if (len > 10 && !strcmp(at->d_name + len - 10, ".mlpackage")) {
            err e = {0};
            coreml_package *p = coreml_open(path, &e);
            if (!p) print_error("%s\n", e.msg);
            assert_non_null(p);
            *bad += verify_model(at->d_name, p->model);
            coreml_close(p);
            n++;
        } else if (at->d_name[0] != '.') {
            n += verify_below(path, bad);
        }
    }
    closedir(d);
    return n;
}

static void genuine_packages_have_no_violation(void **s) {
    (void)s;
    size_t bad = 0, n;
    test_case_path("coreml/README.md");
    const char *root = getenv("MILLET_CASES");
    char dir[1024];
    snprintf(dir, sizeof dir, "%s/coreml", root ? root : "../shared/cases");
    n = verify_below(dir, &bad);
    snprintf(dir, sizeof dir, "%s/thirdparty", root ? root : "../shared/cases");
    n += verify_below(dir, &bad);
    assert_true(n >= 60);
    assert_int_equal(bad, 0);
}

/* ---- genuine packages, broken at random: violations or none, never a crash */

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static ir_op *any_op(uint64_t *r, const ir_block *b) {
    ir_op *op = b->op[next_random(r) % b->n_op];
    if (op->n_block && next_random(r) % 2) {
        ir_block *inner = op->block[next_random(r) % op->n_block];
        if (inner->n_op) return any_op(r, inner);
    }
    return op;
}

static ir_value *any_value(uint64_t *r, const ir_function *f) {
    ir_op *op = any_op(r, &f->body);
    return op->n_out ? op->out[next_random(r) % op->n_out] : f->n_in ? f->in[next_random(r) % f->n_in] : NULL;
}

static void break_type(uint64_t *r, ir_type *t) {
    static const int64_t sizes[] = {IR_DIM_UNKNOWN, 0, 1, 2, 7, INT64_C(1) << 40, INT64_C(1) << 62};
    switch (next_random(r) % 4) {
    case 0: t->dtype = (uint8_t)(next_random(r) % DT_COUNT); break;
    case 1: t->rank = (int8_t)(next_random(r) % (IR_MAX_RANK + 1)); break;
    case 2: t->kind = (uint8_t)(next_random(r) % 3); break;
    default: t->dim[next_random(r) % IR_MAX_RANK] = sizes[next_random(r) % 7];
    }
}

static void break_program(uint64_t *r, ir_program *p) {
    ir_function *f = p->func[next_random(r) % p->n_func];
    ir_op *op = any_op(r, &f->body), *other = any_op(r, &f->body);
    ir_value *v = any_value(r, f);
    int slots = ir_info(op->code)->n_slot;
    ir_arg *arg = slots ? &op->arg[next_random(r) % (unsigned)slots] : NULL;
    switch (next_random(r) % 8) {
    case 0:
        if (arg && arg->n) arg->v[next_random(r) % arg->n] = v;
        break;
    case 1:
        if (arg) arg->n = 0;
        break;
    case 2: op->n_out = op->n_out ? (uint32_t)(next_random(r) % op->n_out) : 0; break;
    case 3: /* the operands of one op for another */
        op->arg = ARENA_ARRAY(p->a, ir_arg, ir_info(other->code)->n_slot);
        for (int i = 0; i < ir_info(other->code)->n_slot; i++) op->arg[i] = other->arg[i];
        op->code = other->code;
        break;
    case 4: f->spec = IR_SPEC_MIN - 1 + (int)(next_random(r) % 7); break;
    case 5:
        if (op->n_block)
            op->block[0]->n_out = 0, op->n_block = (uint32_t)(next_random(r) % 3 ? op->n_block : 1);
        break;
    case 6: f->spec = 9; /* fall through */
    default:
        if (v) break_type(r, &v->type);
    }
}

static void broken_packages_never_crash(void **s) {
    (void)s;
    static const char *const names[] = {
        "op_control_flow",      "op_constexpr_ios18", "op_constexpr_ios16", "op_state",
        "op_shape_slice_iOS18", "op_dynamic_shapes",  "op_misc_mil",        "qwen3_fp16"};
    uint64_t r = 3;
    size_t violations = 0;
    for (int turn = 0; turn < 240; turn++) {
        char below[100];
        snprintf(below, sizeof below, "coreml/%s.mlpackage/Manifest.json", names[turn % 8]);
        char path[1024];
        snprintf(path, sizeof path, "%s", test_case_path(below));
        *strrchr(path, '/') = '\0';
        err e = {0};
        coreml_package *p = coreml_open(path, &e);
        assert_string_equal(e.msg, "");
        ir_program *program = p->model->program;
        for (int i = 0; i < 8; i++) {
            break_program(&r, program);
            tally found = {0};
            str text = {0};
            ir_verify(program, count, &found, &e);
            ir_print_program(&text, program);
            str_free(&text);
            violations += found.n;
        }
        coreml_close(p);
    }
    assert_true(violations > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_finds_its_violation),
        cmocka_unit_test(the_receiver_may_stop),
        cmocka_unit_test(tracing_bounds_ends),
        cmocka_unit_test(genuine_packages_have_no_violation),
        cmocka_unit_test(broken_packages_never_crash),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
