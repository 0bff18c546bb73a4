#include "cli/summary.h"
#include "base/map.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    arena *a;
    summary_weights *w;
    size_t cap;
    map *seen;      /* constants that were counted: by place in the weight file, else by address */
    bool *expanded; /* by value id: feeds a constexpr op, which counts it */
} counting;

/* True the first time. */
static bool first_use(counting *c, const ir_const *k) {
    const char *key = k->blob_file
                          ? arena_printf(c->a, "%llu %s", (unsigned long long)k->blob_offset, k->blob_file)
                          : arena_printf(c->a, "%p", (const void *)k);
    return map_add(c->seen, key, strlen(key), 0);
}

static void count_kind(counting *c, const char *name, uint64_t values, uint64_t bytes) {
    summary_weights *w = c->w;
    size_t i = 0;
    while (i < w->n_kind && strcmp(w->kind[i].name, name)) i++;
    if (i == w->n_kind) {
        w->kind = arena_grow(c->a, w->kind, w->n_kind, &c->cap, w->n_kind + 1, sizeof *w->kind);
        w->kind[w->n_kind++] = (summary_kind){.name = name};
    }
    w->kind[i].tensors++;
    w->kind[i].values += values;
    w->kind[i].bytes += bytes;
    w->values += values;
    w->bytes += bytes;
}

static bool is_constexpr(const ir_op *op) {
    return op && (ir_info(op->code)->flags & OPF_CONSTEXPR);
}

static uint64_t type_bytes(const ir_type *t) {
    int64_t n = ir_type_bytes(t);
    return n > 0 ? (uint64_t)n : 0;
}

/* Bytes behind a constexpr op, constexpr ops that feed it included; 0 when all of them were counted before.
 */
static uint64_t stored_bytes(counting *c, const ir_op *op) {
    uint64_t bytes = 0;
    for (unsigned s = 0; s < ir_info(op->code)->n_slot; s++)
        for (uint32_t i = 0; i < op->arg[s].n; i++) {
            const ir_value *v = op->arg[s].v[i];
            if (is_constexpr(v->def))
                bytes += stored_bytes(c, v->def);
            else if (v->konst && first_use(c, v->konst))
                bytes += type_bytes(&v->konst->type);
        }
    return bytes;
}

/* "lut_to_dense uint4": the op and the type of its codes, its first operand that holds more than a scalar. */
static const char *constexpr_name(counting *c, const ir_op *op) {
    const char *name = ir_info(op->code)->name, *dtype = "";
    if (!strncmp(name, "constexpr_", 10)) name += 10;
    for (unsigned s = 0; s < ir_info(op->code)->n_slot && !*dtype; s++)
        if (op->arg[s].n && op->arg[s].v[0]->type.rank) dtype = dtype_name(op->arg[s].v[0]->type.dtype);
    return arena_printf(c->a, "%s %s", name, dtype);
}

static void mark_expanded(counting *c, const ir_block *b) {
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        for (uint32_t k = 0; k < op->n_block; k++) mark_expanded(c, op->block[k]);
        if (!is_constexpr(op)) continue;
        for (unsigned s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t n = 0; n < op->arg[s].n; n++) c->expanded[op->arg[s].v[n]->id] = true;
    }
}

static void count_block(counting *c, const ir_block *b) {
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        for (uint32_t k = 0; k < op->n_block; k++) count_block(c, op->block[k]);
        if (op->n_out != 1 || c->expanded[op->out[0]->id]) continue;
        const ir_value *v = op->out[0];
        int64_t values = ir_type_count(&v->type);
        if (is_constexpr(op)) {
            uint64_t bytes = stored_bytes(c, op);
            if (bytes && values > 0) count_kind(c, constexpr_name(c, op), (uint64_t)values, bytes);
        } else if (v->konst && v->konst->blob_file && values > 0 && first_use(c, v->konst)) {
            count_kind(c, dtype_name(v->type.dtype), (uint64_t)values, type_bytes(&v->type));
        }
    }
}

static int by_bytes(const void *a, const void *b) {
    const summary_kind *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->name, y->name);
}

void summary_of_weights(summary_weights *w, arena *a, const ir_program *p) {
    *w = (summary_weights){0};
    counting c = {.a = a, .w = w, .seen = map_new(a, 1000)};
    for (size_t i = 0; i < p->n_func; i++) {
        c.expanded = ARENA_ARRAY(a, bool, p->func[i]->n_values + 1);
        mark_expanded(&c, &p->func[i]->body);
        count_block(&c, &p->func[i]->body);
    }
    if (w->n_kind) qsort(w->kind, w->n_kind, sizeof *w->kind, by_bytes);
}

double summary_bits(uint64_t bytes, uint64_t values) {
    return values ? 8.0 * (double)bytes / (double)values : 0;
}

static void count_ops(uint64_t count[OP_COUNT], const ir_block *b) {
    for (size_t i = 0; i < b->n_op; i++) {
        count[b->op[i]->code]++;
        for (uint32_t k = 0; k < b->op[i]->n_block; k++) count_ops(count, b->op[i]->block[k]);
    }
}

static int by_count(const void *a, const void *b) {
    const summary_op *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return strcmp(ir_info(x->code)->name, ir_info(y->code)->name);
}

size_t summary_of_ops(summary_op ops[OP_COUNT], const ir_function *f) {
    uint64_t count[OP_COUNT] = {0};
    size_t n = 0;
    count_ops(count, &f->body);
    for (int code = 0; code < OP_COUNT; code++)
        if (count[code] && code != OP_const) ops[n++] = (summary_op){(ir_opcode)code, count[code]};
    qsort(ops, n, sizeof *ops, by_count);
    return n;
}
