/* What follows from positions alone (angles, bounds of caches, masks) is spelled out by each layer: it is
 * made once, and in front of the layers, where it parts no steps that become one. */
#include "optimize/optimize.h"
#include <string.h>

#define SMALL_BYTES    4096      /* of constants that are compared */
#define FRONT_ELEMENTS (1 << 16) /* of results that may live as long as the function runs */

typedef struct {
    ir_function *f;
    ir_value **is;     /* by value id: the same made earlier; NULL: itself */
    bool *of_position; /* by value id: follows from inputs of whole numbers, sizes and constants */
    bool *wanted;      /* by value id: a result of the function, which has a place of its own */
    ir_op **first;     /* those that were met, each once */
    size_t n_first;
} sharer;

static bool same_constant(const ir_const *x, const ir_const *y) {
    if (x == y) return true;
    if (!ir_type_equal(&x->type, &y->type) || x->type.kind != IR_TENSOR || !x->data || !y->data ||
        x->bytes != y->bytes || x->bytes > SMALL_BYTES)
        return false;
    if (x->type.dtype != DT_STRING) return !memcmp(x->data, y->data, x->bytes);
    const ir_string *a = x->data, *b = y->data;
    return x->bytes == sizeof *a && a->len == b->len && !memcmp(a->s, b->s, a->len);
}

static bool same_op(const ir_op *x, const ir_op *y) {
    if (x->code != y->code || x->n_out != y->n_out) return false;
    for (int s = 0; s < ir_info(x->code)->n_slot; s++) {
        if (x->arg[s].n != y->arg[s].n) return false;
        for (uint32_t k = 0; k < x->arg[s].n; k++) {
            const ir_value *a = x->arg[s].v[k], *b = y->arg[s].v[k];
            if (a != b && !(a->konst && b->konst && same_constant(a->konst, b->konst))) return false;
        }
    }
    for (uint32_t i = 0; i < x->n_out; i++)
        if (!ir_type_equal(&x->out[i]->type, &y->out[i]->type)) return false;
    return true;
}

/* Products and lookups begin what is no longer about positions. */
static bool follows(const sharer *s, const ir_op *op) {
    bool none = true;
    if (ir_info(op->code)->flags != OPF_PURE || op->n_block || !op->n_out || op->code == OP_linear ||
        op->code == OP_matmul || op->code == OP_conv || op->code == OP_gather || op->code == OP_gather_nd)
        return false;
    if (op->code == OP_shape) return true;
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) {
            const ir_value *v = op->arg[i].v[k];
            if (v->konst) continue;
            if (!s->of_position[v->id]) return false;
            none = false;
        }
    return !none;
}

static void replace_operands(const sharer *s, ir_op *op) {
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++)
            if (s->is[op->arg[i].v[k]->id]) op->arg[i].v[k] = s->is[op->arg[i].v[k]->id];
}

/* Made before: its users take that. */
static bool is_repeated(sharer *s, const ir_op *op) {
    for (uint32_t i = 0; i < op->n_out; i++)
        if (s->wanted[op->out[i]->id]) return false;
    for (size_t k = 0; k < s->n_first; k++) {
        if (!same_op(s->first[k], op)) continue;
        for (uint32_t i = 0; i < op->n_out; i++) s->is[op->out[i]->id] = s->first[k]->out[i];
        return true;
    }
    return false;
}

static void share_equal(sharer *s) {
    ir_block *b = &s->f->body;
    size_t n = 0;
    for (size_t i = 0; i < b->n_op; i++) {
        ir_op *op = b->op[i];
        replace_operands(s, op);
        if (follows(s, op)) {
            if (is_repeated(s, op)) continue;
            for (uint32_t k = 0; k < op->n_out; k++) s->of_position[op->out[k]->id] = true;
            s->first[s->n_first++] = op;
        }
        b->op[n++] = op;
    }
    b->n_op = n;
}

static bool goes_first(const ir_op *op, const bool *in_front) {
    for (uint32_t k = 0; k < op->n_out; k++) {
        int64_t n = ir_type_count(&op->out[k]->type);
        if (n < 0 || n > FRONT_ELEMENTS) return false;
    }
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) {
            const ir_value *v = op->arg[i].v[k];
            if (v->def && !v->konst && !in_front[v->id]) return false;
        }
    return true;
}

static void move_to_front(const sharer *s, arena *scratch) {
    ir_block *b = &s->f->body;
    ir_op **rest = ARENA_ARRAY(scratch, ir_op *, b->n_op + 1);
    bool *in_front = ARENA_ARRAY(scratch, bool, s->f->n_values);
    size_t n = 0, n_rest = 0;
    for (size_t i = 0; i < b->n_op; i++) {
        ir_op *op = b->op[i];
        bool moves = op->n_out && s->of_position[op->out[0]->id] && goes_first(op, in_front);
        for (uint32_t k = 0; k < op->n_out && moves; k++) in_front[op->out[k]->id] = true;
        if (moves)
            b->op[n++] = op;
        else
            rest[n_rest++] = op;
    }
    if (n_rest) memcpy(b->op + n, rest, n_rest * sizeof *rest);
}

void opt_share(ir_function *f) {
    arena *scratch = arena_new();
    sharer s = {.f = f,
                .is = ARENA_ARRAY(scratch, ir_value *, f->n_values),
                .of_position = ARENA_ARRAY(scratch, bool, f->n_values),
                .wanted = ARENA_ARRAY(scratch, bool, f->n_values),
                .first = ARENA_ARRAY(scratch, ir_op *, f->body.n_op + 1)};
    for (size_t i = 0; i < f->n_in; i++)
        s.of_position[f->in[i]->id] = f->in[i]->type.kind == IR_TENSOR && f->in[i]->type.dtype == DT_INT32;
    for (size_t i = 0; i < f->body.n_out; i++) s.wanted[f->body.out[i]->id] = true;
    share_equal(&s);
    move_to_front(&s, scratch);
    arena_free(scratch);
}
