#include "optimize/optimize.h"

void opt_clean(ir_function *f) {
    ir_block *b = &f->body;
    arena *scratch = arena_new();
    bool *used = ARENA_ARRAY(scratch, bool, f->n_values);
    bool *keep = ARENA_ARRAY(scratch, bool, b->n_op);
    for (size_t i = 0; i < b->n_out; i++) used[b->out[i]->id] = true;
    for (size_t i = b->n_op; i-- > 0;) {
        const ir_op *op = b->op[i];
        keep[i] = op->code == OP_write_state;
        for (uint32_t k = 0; k < op->n_out; k++) keep[i] |= used[op->out[k]->id];
        if (!keep[i]) continue;
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) used[op->arg[s].v[k]->id] = true;
    }
    size_t n = 0;
    for (size_t i = 0; i < b->n_op; i++)
        if (keep[i]) b->op[n++] = b->op[i];
    b->n_op = n;
    arena_free(scratch);
}
