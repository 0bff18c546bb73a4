/* Calls, states, loops and branches. */
#include "coreai/read.h"
#include <string.h>

bool ai_op_invoke(ai_read *r, ir_opcode code) {
    (void)code;
    const ai_op *op = r->op;
    const ai_graph *g = ai_callee(r->t, op), *from = r->graph;
    if (!g) return ai_fail(r, ERR_FORMAT, "it calls a graph that isn't there");
    bool done = false;
    if (!r->decompose && !ai_composite(r, g, &done)) return false;
    if (done) return ++r->declared;
    size_t i = (size_t)(g - r->t->graph);
    if (r->active[i]) return ai_fail(r, ERR_FORMAT, "graph %.60s calls itself", g->name);
    ai_lowered *in = ARENA_ARRAY(r->a, ai_lowered, op->n_in), *out = ARENA_ARRAY(r->a, ai_lowered, op->n_out);
    for (uint32_t k = 0; k < op->n_in; k++) in[k] = r->at[op->in[k]->id];
    r->active[i] = true;
    r->graph = g;
    if (!ai_region_read(r, g->body, in, op->n_in, out, op->n_out)) return false;
    r->graph = from;
    r->active[i] = false;
    for (uint32_t k = 0; k < op->n_out; k++) r->at[op->out[k]->id] = out[k];
    return true;
}

/* Ops are read in an order that tokens allow: they need no values. */
bool ai_op_token(ai_read *r, ir_opcode code) {
    (void)code;
    return r->op->n_out == 1 || ai_fail(r, ERR_FORMAT, "it has %u results, expected one", r->op->n_out);
}

static ir_value *handle(ai_read *r, uint32_t i) {
    ir_value *state = i < r->op->n_in ? r->at[r->op->in[i]->id].state : NULL;
    if (!state) ai_fail(r, ERR_FORMAT, "operand %u is no handle of a state", i);
    return state;
}

bool ai_op_read_handle(ai_read *r, ir_opcode code) {
    ir_value *state = handle(r, 0);
    if (!state || r->op->n_out != 2)
        return ai_fail(r, ERR_FORMAT, "it has %u results, expected two", r->op->n_out);
    ai_set(r, r->op->out[0], b_op(&r->b, code, NULL, A_input, state, A_NONE));
    return ai_ok(r);
}

bool ai_op_write_handle(ai_read *r, ir_opcode code) {
    ir_value *state = handle(r, 0);
    if (!state || r->op->n_in < 2) return ai_fail(r, ERR_FORMAT, "it has %u operands", r->op->n_in);
    b_op_multi(&r->b, code, NULL, NULL, 0, A_input, state, A_data, ai_in(r, 1), A_NONE);
    return ai_ok(r);
}

/* ---- blocks ---- */

/* What a region makes goes to a block of its own until leave(). */
typedef struct {
    ir_block outer;
} nested;

static nested enter(ai_read *r) {
    nested n = {r->b.f->body};
    r->b.f->body = (ir_block){0};
    return n;
}

static void append(ai_read *r, ir_block *b, ir_op *op) {
    b->op = arena_grow(r->a, b->op, b->n_op, &b->cap_op, b->n_op + 1, sizeof *b->op);
    b->op[b->n_op++] = op;
}

/* Constants move to the block around: they may be used there, too. */
static ir_block *leave(ai_read *r, nested n) {
    ir_block *b = ARENA_NEW(r->a, ir_block);
    ir_block made = r->b.f->body;
    r->b.f->body = n.outer;
    for (size_t i = 0; i < made.n_op; i++)
        append(r, ir_info(made.op[i]->code)->flags & (OPF_CONST | OPF_CONSTEXPR) ? &r->b.f->body : b,
               made.op[i]);
    return b;
}

static bool has_writes(const ai_region *g, int depth) {
    for (uint32_t i = 0; i < g->n_op; i++) {
        if (!strcmp(g->op[i]->name, "dataflow.write_handle_v1")) return true;
        for (uint32_t k = 0; k < g->op[i]->n_region && depth < AI_MAX_DEPTH; k++)
            if (has_writes(&g->op[i]->region[k], depth + 1)) return true;
    }
    return false;
}

static ir_value *lowered_value(ai_read *r, const ai_lowered *l);

/* Inputs of a block for these values: of the region's declared types. */
static bool block_inputs(ai_read *r, ir_block *b, ai_lowered *in, ir_value *const *first, uint32_t n) {
    b->in = ARENA_ARRAY(r->a, ir_value *, n);
    b->n_in = n;
    for (uint32_t i = 0; i < n; i++) {
        ir_type type = first[i]->type;
        for (int d = 0; d < in[i].type->rank && d < type.rank; d++)
            if (in[i].type->dim[d] == AI_DYNAMIC) type.dim[d] = IR_DIM_UNKNOWN;
        b->in[i] = ir_value_new(r->p, r->b.f, arena_printf(r->a, "loop_variable_%u", r->b.f->n_values), type);
        in[i].v = b->in[i];
    }
    return ai_ok(r);
}

static bool same_dtypes(ai_read *r, ir_value *const *x, const ai_lowered *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const ir_type *t = &lowered_value(r, &y[i])->type;
        if (t->dtype != x[i]->type.dtype || t->rank != x[i]->type.rank)
            return ai_fail(r, ERR_FORMAT, "variable %u changes its type", i);
    }
    return true;
}

static ir_value *lowered_value(ai_read *r, const ai_lowered *l) {
    if (l->v) return l->v;
    if (!l->konst) {
        ai_fail(r, ERR_UNSUPPORTED, "a handle or token as a value of a block");
        return b_i32(&r->b, 0);
    }
    const ir_const *c = ai_constant(r, l->konst, l->type);
    return c ? b_const(&r->b, NULL, c) : b_i32(&r->b, 0);
}

/* A block's results are values that it makes. */
static void block_outputs(ai_read *r, ir_block *made, const ai_lowered *out, uint32_t n) {
    ir_value **v = ARENA_ARRAY(r->a, ir_value *, n + 1);
    for (uint32_t i = 0; i < n; i++) v[i] = lowered_value(r, &out[i]);
    made->out = v;
    made->n_out = n;
}

/* The outputs of a finished op with blocks, of the types of its last block's results. */
static bool finish(ai_read *r, ir_op *op, const ir_block *types) {
    op->name = arena_printf(r->a, "control_%u", r->b.f->n_values);
    for (uint32_t i = 0; i < op->n_out; i++) {
        ir_value *v =
            ir_value_new(r->p, r->b.f, arena_printf(r->a, "%s_%u", op->name, i), types->out[i]->type);
        v->def = op;
        op->out[i] = v;
    }
    return ai_ok(r);
}

/* before(state) says whether to go on, and what after() gets, which makes the next state. Here the condition
 * is before() for its first result, the body before() for the others and after() behind it; what the loop
 * leaves goes through before() once more. */
bool ai_op_while(ai_read *r, ir_opcode code) {
    const ai_op *op = r->op;
    uint32_t n = op->n_in, m = op->n_out;
    if (op->n_region != 2 || op->region[0].n_arg != n || op->region[1].n_arg != m)
        return ai_fail(r, ERR_FORMAT, "its regions do not fit");
    if (has_writes(&op->region[0], 0)) return ai_fail(r, ERR_UNSUPPORTED, "its condition writes a state");
    ai_lowered *in = ARENA_ARRAY(r->a, ai_lowered, n), *passed = ARENA_ARRAY(r->a, ai_lowered, (size_t)m + 1),
               *next = ARENA_ARRAY(r->a, ai_lowered, n);
    ir_value **first = ARENA_ARRAY(r->a, ir_value *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        first[i] = ai_in(r, i);
        in[i].type = op->region[0].arg[i]->type;
    }
    ir_block outputs[2] = {{0}, {0}}, *block[2];
    for (int k = 0; k < 2 && ai_ok(r); k++) {
        ir_block head = {0};
        block_inputs(r, &head, in, first, n);
        nested at = enter(r);
        bool ok = ai_region_read(r, &op->region[0], in, n, passed, m + 1);
        if (ok && k)
            ok = ai_region_read(r, &op->region[1], passed + 1, m, next, n) && same_dtypes(r, first, next, n);
        if (ok) block_outputs(r, &outputs[k], k ? next : passed, k ? n : 1);
        block[k] = leave(r, at);
        block[k]->in = head.in, block[k]->n_in = n;
        block[k]->out = outputs[k].out, block[k]->n_out = outputs[k].n_out;
        if (!ok) return false;
        r->op = op;
    }
    if (!ai_ok(r)) return false;
    ir_op *loop = ir_add_op(r->p, &r->b.f->body, code, n);
    ir_set_args(r->p, loop, A_loop_vars, first, n);
    loop->block = ARENA_ARRAY(r->a, ir_block *, 2);
    loop->block[0] = block[0], loop->block[1] = block[1];
    loop->n_block = 2;
    if (!finish(r, loop, block[1])) return false;
    for (uint32_t i = 0; i < n; i++) in[i] = (ai_lowered){.v = loop->out[i], .type = in[i].type};
    if (!ai_region_read(r, &op->region[0], in, n, passed, m + 1)) return false;
    r->op = op;
    for (uint32_t i = 0; i < m; i++) r->at[op->out[i]->id] = passed[i + 1];
    return ai_ok(r);
}

bool ai_op_if(ai_read *r, ir_opcode code) {
    const ai_op *op = r->op;
    if (!op->n_in || op->n_region != 2) return ai_fail(r, ERR_FORMAT, "expected a condition and two regions");
    ai_lowered *out = ARENA_ARRAY(r->a, ai_lowered, op->n_out);
    ir_value *pred = ai_in(r, 0);
    ir_block *block[2];
    for (int k = 0; k < 2; k++) {
        ir_block outputs = {0};
        nested at = enter(r);
        bool ok = ai_region_read(r, &op->region[k], NULL, 0, out, op->n_out);
        if (ok) block_outputs(r, &outputs, out, op->n_out);
        block[k] = leave(r, at);
        block[k]->out = outputs.out, block[k]->n_out = outputs.n_out;
        if (!ok) return false;
        r->op = op;
    }
    ir_op *branch = ir_add_op(r->p, &r->b.f->body, code, op->n_out);
    ir_set_arg(r->p, branch, A_pred, pred);
    branch->block = ARENA_ARRAY(r->a, ir_block *, 2);
    branch->block[0] = block[0], branch->block[1] = block[1];
    branch->n_block = 2;
    if (!finish(r, branch, block[1])) return false;
    for (uint32_t i = 0; i < op->n_out; i++) ai_set(r, op->out[i], branch->out[i]);
    return ai_ok(r);
}
