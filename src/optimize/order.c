#include "optimize/optimize.h"
#include <string.h>

/* Compressed weights have constant operands only: they may stand anywhere, so they go to the front. */
static void weights_first(ir_block *b, arena *scratch) {
    ir_op **rest = ARENA_ARRAY(scratch, ir_op *, b->n_op);
    size_t n = 0, n_rest = 0;
    for (size_t i = 0; i < b->n_op; i++) {
        if (ir_info(b->op[i]->code)->flags & OPF_CONSTEXPR)
            b->op[n++] = b->op[i];
        else
            rest[n_rest++] = b->op[i];
    }
    if (n_rest) memcpy(b->op + n, rest, n_rest * sizeof *rest);
}

/* Its other operands are there from the start. */
static bool is_movable(const ir_op *op) {
    if (op->code != OP_linear) return false;
    const ir_value *w = ir_in(op, A_weight), *bias = ir_in(op, A_bias);
    return (w->konst || (w->def && ir_info(w->def->code)->flags & OPF_CONSTEXPR)) && (!bias || bias->konst);
}

void opt_order(ir_function *f) {
    ir_block *b = &f->body;
    arena *scratch = arena_new();
    size_t *behind = ARENA_ARRAY(scratch, size_t, f->n_values); /* the last of x's linears so far, plus 1 */
    weights_first(b, scratch);
    for (size_t i = 0; i < b->n_op; i++) {
        ir_op *op = b->op[i];
        if (!is_movable(op)) continue;
        size_t *at = &behind[ir_in(op, A_x)->id], to = *at ? *at : i;
        memmove(b->op + to + 1, b->op + to, (i - to) * sizeof *b->op);
        b->op[to] = op;
        for (uint32_t v = 0; v < f->n_values && to < i; v++) behind[v] += behind[v] > to;
        *at = to + 1;
    }
    arena_free(scratch);
}
