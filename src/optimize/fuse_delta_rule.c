/* The gated delta rule over many tokens, in the form of chunks (models/delta_chunk.c, Yang et al. 2024): each
 * takes the memory of the one before. All chunks of a layer become one op, with its states.
 *
 * What a chunk computes is the recurrence token by token, as long as no log decay is above 0: the form caps
 * sums of them at 0. */
#include "optimize/fuse.h"
#include <stddef.h>
#include <string.h>

#define RULE_MOST  64 /* chunks */
#define RULE_MASKS 16

typedef struct {
    ir_value *S, *q, *k, *v, *beta, *log, *W, *G, *o, *next;
} chunk;

typedef struct {
    fuser *f;
    match m; /* the latest */
    ir_op **op;
    size_t n_op, cap_op;
    chunk *chunk; /* last one first */
    uint32_t n;
    const ir_const *mask[RULE_MASKS]; /* constants known to select these pairs */
    int selects[RULE_MASKS], n_mask;
} rule;

static bool has(const rule *r, const ir_op *op) {
    for (size_t i = r->n_op; i-- > 0;)
        if (r->op[i] == op) return true;
    return false;
}

static void take(rule *r, ir_op *op) {
    if (has(r, op)) return;
    r->op = arena_grow(r->f->p->a, r->op, r->n_op, &r->cap_op, r->n_op + 1, sizeof(ir_op *));
    r->op[r->n_op++] = op;
}

/* v is made as the pattern says; its ops are taken. */
static bool made(rule *r, ir_value *v, const char *text) {
    if (!v->def || !pattern_match(pattern_parse(r->f->p->a, text), (ir_op *)v->def, &r->m)) return false;
    for (int i = 0; i < r->m.n_op; i++) take(r, r->m.op[i]);
    return true;
}

static ir_value *get(const rule *r, const char *name) {
    return match_get(&r->m, name);
}

/* What v is the transpose of, made by an op of its own; NULL: it is none. */
static ir_value *unturned(const ir_value *v) {
    bool is = v->def && v->def->code == OP_transpose &&
              fuse_list_is(ir_in(v->def, A_perm), (const int64_t[]){0, 1, 3, 2}, 4);
    return is ? fuse_in(v->def, A_x) : NULL;
}

/* An operand of a product, and what says that it is turned: a flag of the product, or an op. */
static bool flagged(const ir_op *op, ir_operand flag, bool *turned) {
    double x = 0;
    if (ir_in(op, flag) && !fuse_number(ir_in(op, flag), &x)) return false;
    *turned = x != 0;
    return true;
}

/* Every product of the latest match is (x, y), or (x, y^T) where y is `turned`. */
static bool products(rule *r, const ir_value *turned) {
    for (int i = 0; i < r->m.n_op; i++) {
        const ir_op *op = r->m.op[i];
        bool x, y;
        if (op->code != OP_matmul) continue;
        if (!flagged(op, A_transpose_x, &x) || !flagged(op, A_transpose_y, &y) || x ||
            y != (turned && ir_in(op, A_y) == turned))
            return false;
        if (!y && turned && unturned(ir_in(op, A_y)) == turned) take(r, (ir_op *)ir_in(op, A_y)->def);
    }
    return true;
}

/* The name stands for k, or for its transpose where that is an op (products() looks at flags). */
static bool is_turned(const rule *r, const char *name, const ir_value *k) {
    return get(r, name) == k || unturned(get(r, name)) == k;
}

/* ---- constants: which pairs (row, column) of a chunk they select ---- */

enum { EYE = -1, BELOW = -2, LOWER = -3 }; /* else blocks of that size: pairs of its two halves' */

static bool selected(int what, int64_t row, int64_t column) {
    if (what == EYE) return row == column;
    if (what == BELOW) return row > column;
    if (what == LOWER) return row >= column;
    return row / what % 2 && row / what - 1 == column / what;
}

static bool selects(rule *r, const ir_value *v, int what, int64_t n) {
    const ir_const *c = v->konst;
    if (!c || c->type.rank != 2 || c->type.dim[0] != n || c->type.dim[1] != n) return false;
    for (int i = 0; i < r->n_mask; i++)
        if (r->mask[i] == c && r->selects[i] == what) return true;
    for (int64_t i = 0; i < n * n; i++) {
        double x;
        if (!ir_const_number(c, (uint64_t)i, &x) || x != (selected(what, i / n, i % n) ? 1 : 0)) return false;
    }
    if (r->n_mask < RULE_MASKS) r->mask[r->n_mask] = c, r->selects[r->n_mask++] = what;
    return true;
}

static bool is_zero(const ir_value *v) {
    double x;
    return fuse_number(v, &x) && x == 0;
}

/* ---- a chunk ---- */

/* exp(min(G_i - G_j, 0)) */
static bool decay_between(rule *r, ir_value *D, const ir_value *G) {
    return made(r, D, "(exp (minimum (sub ?G (transpose ?G)) %zero))") && get(r, "G") == G &&
           is_zero(get(r, "zero")) &&
           fuse_list_is(ir_in(fuse_find(&r->m, OP_transpose), A_perm), (const int64_t[]){0, 1, 3, 2}, 4);
}

/* (I + A)^-1 by merging blocks, from the largest: T - T (A * M) T; at last I - A * M. */
static bool inverse(rule *r, ir_value *T, int64_t n, ir_value **A) {
    int size = 1;
    while (2 * size < n) size *= 2;
    *A = NULL;
    for (; size > 1; size /= 2) {
        if (!made(r, T, "(sub ?T (matmul (matmul ?T (mul ?A %m)) ?T))") || !products(r, NULL) ||
            !selects(r, get(r, "m"), size, n) || (*A && get(r, "A") != *A))
            return false;
        T = get(r, "T"), *A = get(r, "A");
    }
    if (!made(r, T, "(sub %eye (mul ?A %m))") || !selects(r, get(r, "eye"), EYE, n) ||
        !selects(r, get(r, "m"), 1, n) || (*A && get(r, "A") != *A))
        return false;
    *A = get(r, "A");
    return true;
}

/* A[i,j] = beta_i (k_i . k_j) D[i,j], j < i */
static bool corrections(rule *r, ir_value *A, const chunk *c, int64_t n) {
    if (!made(r, A, "(mul (mul (mul (matmul ?k ?t) ?beta) ?D) %below)") || !products(r, c->k) ||
        get(r, "k") != c->k || !is_turned(r, "t", c->k) || get(r, "beta") != c->beta ||
        !selects(r, get(r, "below"), BELOW, n))
        return false;
    return decay_between(r, get(r, "D"), c->G);
}

/* The op behind op number `from` that adds, within reach, what the chunk's W gives for the queries. */
static bool find_result(rule *r, chunk *c, int64_t n, size_t from) {
    const ir_block *b = &r->f->f->body;
    for (size_t i = from; i-- > 0 && from - i < 64;) {
        ir_op *op = b->op[i];
        if (op->code != OP_add) continue;
        size_t before = r->n_op;
        if (made(r, op->out[0],
                 "(add (mul (matmul ?q ?S) (exp ?G)) (matmul (mul (mul (matmul ?q ?t) ?D) %lower) ?W))") &&
            products(r, c->k) && get(r, "W") == c->W && get(r, "S") == c->S && is_turned(r, "t", c->k) &&
            get(r, "G") == c->G && selects(r, get(r, "lower"), LOWER, n)) {
            c->q = get(r, "q"), c->o = op->out[0];
            return decay_between(r, get(r, "D"), c->G);
        }
        r->n_op = before;
    }
    return false;
}

static bool last_sum(rule *r, const ir_value *last, ir_value *G, int64_t n) {
    ir_op *op = (ir_op *)last->def;
    if (op && fuse_part(r->f, last, 2, n - 1, 1) == G) {
        take(r, op);
        return op->n_out == 1;
    }
    if (!op || op->code != OP_slice_by_size || ir_in(op, A_x) != G || last->type.rank != 4 ||
        last->type.dim[2] != 1 || !fuse_list_is(ir_in(op, A_begin), (const int64_t[]){0, 0, n - 1, 0}, 4))
        return false;
    for (int d = 0; d < 4; d++)
        if (d != 2 && last->type.dim[d] != G->type.dim[d]) return false;
    take(r, op);
    return true;
}

static bool plain_sum(const ir_op *op) {
    double axis = 0, x = 0;
    return fuse_number(ir_in(op, A_axis), &axis) && axis == 2 &&
           (!ir_in(op, A_exclusive) || (fuse_number(ir_in(op, A_exclusive), &x) && x == 0)) &&
           (!ir_in(op, A_reverse) || (fuse_number(ir_in(op, A_reverse), &x) && x == 0));
}

static bool shapes(const chunk *c) {
    const ir_type *S = &c->S->type, *q = &c->q->type, *v = &c->v->type,
                  *of[] = {&c->beta->type, &c->log->type};
    if (S->rank != 4 || q->rank != 4 || v->rank != 4 || q->dim[0] != S->dim[0] ||
        (q->dim[1] != 1 && q->dim[1] != S->dim[1]) || q->dim[2] != v->dim[2] || q->dim[3] != S->dim[2] ||
        v->dim[0] != S->dim[0] || v->dim[1] != S->dim[1] || v->dim[3] != S->dim[3])
        return false;
    for (int d = 0; d < 4; d++)
        for (int i = 0; i < 2; i++)
            if (of[i]->rank != 4 || of[i]->dim[d] != (d < 3 ? v->dim[d] : 1) ||
                c->k->type.dim[d] != q->dim[d])
                return false;
    return true;
}

/* Sums up to each token: an op, or the product with a triangle of ones. */
static bool sums(rule *r, ir_value *G, int64_t n, ir_value **log) {
    if (made(r, G, "(cumsum ?log)"))
        *log = get(r, "log");
    else if (made(r, G, "(matmul %lower ?log)") && products(r, NULL) && selects(r, get(r, "lower"), LOWER, n))
        *log = get(r, "log");
    else
        return false;
    return G->def->code == OP_matmul || plain_sum(G->def);
}

#define CHUNK "(add (mul ?S (exp ?last)) (matmul ?k (mul ?W (exp (minimum (sub ?last ?G) %zero)))))"

/* The chunk whose new memory is made by op number `at`. */
static bool find_chunk(rule *r, ir_value *next, chunk *c) {
    bool x, y;
    if (!made(r, next, CHUNK)) return false;
    const ir_op *product = fuse_find(&r->m, OP_matmul);
    ir_value *last = get(r, "last"), *k = get(r, "k");
    if (!flagged(product, A_transpose_x, &x) || !flagged(product, A_transpose_y, &y) || y ||
        !is_zero(get(r, "zero")) || (!x && !unturned(k)))
        return false;
    *c =
        (chunk){.S = get(r, "S"), .k = x ? k : unturned(k), .W = get(r, "W"), .G = get(r, "G"), .next = next};
    if (!x) take(r, (ir_op *)k->def);
    if (c->k->type.rank != 4) return false;
    int64_t n = c->k->type.dim[2];
    if (n < 2 || !last_sum(r, last, c->G, n) || !sums(r, c->G, n, &c->log)) return false;
    if (!made(r, c->W, "(matmul ?T (mul (sub ?v (mul (matmul ?k ?S) (exp ?G))) ?beta))") ||
        !products(r, NULL) || get(r, "k") != c->k || get(r, "S") != c->S || get(r, "G") != c->G)
        return false;
    c->v = get(r, "v"), c->beta = get(r, "beta");
    ir_value *A, *T = get(r, "T");
    return inverse(r, T, n, &A) && corrections(r, A, c, n) &&
           find_result(r, c, n, fuse_index(r->f, next->def)) && shapes(c);
}

/* ---- all of them ---- */

/* Nothing outside of the taken ops uses their results, but those of `open`. */
static bool closed(const rule *r, const ir_op *const *open, int n_open) {
    uint32_t *inside = ARENA_ARRAY(r->f->p->a, uint32_t, r->f->cap_uses);
    for (size_t i = 0; i < r->n_op; i++)
        for (int s = 0; s < ir_info(r->op[i]->code)->n_slot; s++)
            for (uint32_t k = 0; k < r->op[i]->arg[s].n; k++)
                if (r->op[i]->arg[s].v[k]->id < r->f->cap_uses) inside[r->op[i]->arg[s].v[k]->id]++;
    for (size_t i = 0; i < r->n_op; i++) {
        const ir_op *op = r->op[i];
        bool is_open = false;
        for (int k = 0; k < n_open; k++) is_open |= open[k] == op;
        for (uint32_t k = 0; k < op->n_out && !is_open; k++)
            if (op->out[k]->id >= r->f->cap_uses || inside[op->out[k]->id] != r->f->uses[op->out[k]->id])
                return false;
    }
    return true;
}

/* What the chunks have pieces of, along the tokens, in order. part: which field of a chunk. */
static ir_value *whole(const rule *r, size_t part) {
    ir_value *piece[RULE_MOST];
    double axis;
    for (uint32_t i = 0; i < r->n; i++)
        memcpy(&piece[i], (const char *)&r->chunk[r->n - 1 - i] + part, sizeof piece[i]);
    if (r->n == 1) return piece[0];
    const ir_op *op = piece[0]->def;
    if (!op || op->code != OP_split || op->n_out != r->n || !fuse_number(ir_in(op, A_axis), &axis) ||
        axis != 2)
        return NULL;
    for (uint32_t i = 0; i < r->n; i++)
        if (op->out[i] != piece[i]) return NULL;
    return fuse_in(op, A_x);
}

/* The results of all chunks side by side. */
static ir_value *all_results(rule *r) {
    double axis, interleave = 0;
    if (r->n == 1) return r->chunk[0].o;
    ir_op *op = fuse_user(r->f, r->chunk[0].o, OP_concat);
    if (!op || op->arg[0].n != r->n || !fuse_number(ir_in(op, A_axis), &axis) || axis != 2 ||
        (ir_in(op, A_interleave) && (!fuse_number(ir_in(op, A_interleave), &interleave) || interleave != 0)))
        return NULL;
    for (uint32_t i = 0; i < r->n; i++)
        if (op->arg[0].v[i] != r->chunk[r->n - 1 - i].o) return NULL;
    take(r, op);
    return op->out[0];
}

/* -1: never above 0 but for rounding; 1: never below; 0: not known. */
static int sign(fuser *f, const ir_value *v, int depth) {
    match m;
    if (depth == 0) return 0;
    if (v->konst) {
        int s = 0;
        double x;
        for (uint64_t i = 0; i < (uint64_t)ir_type_count(&v->konst->type); i++) {
            if (!ir_const_number(v->konst, i, &x)) return 0;
            if (x != 0 && s && s != (x < 0 ? -1 : 1)) return 0;
            if (x != 0) s = x < 0 ? -1 : 1;
        }
        return s ? s : 1;
    }
    if (!v->def) return 0;
    const ir_op *op = v->def;
    switch (op->code) {
    case OP_reshape:
    case OP_transpose:
    case OP_expand_dims: return sign(f, ir_in(op, A_x), depth - 1);
    case OP_cast: return ir_in(op, A_x)->type.dtype == DT_BOOL ? 1 : sign(f, ir_in(op, A_x), depth - 1);
    case OP_mul: return sign(f, ir_in(op, A_x), depth - 1) * sign(f, ir_in(op, A_y), depth - 1);
    case OP_relu:
    case OP_exp:
    case OP_softplus:
    case OP_sigmoid: return 1;
    case OP_add: { /* softplus: log(1 + e), with what rounding 1 + e took away */
        const char *text[] = {"(add (relu _) (add (log (add ?e %one)) _))",
                              "(add (maximum _ %zero) (add (log (add ?e %one)) _))"};
        double one, zero = 0;
        return (pattern_match(pattern_parse(f->p->a, text[0]), (ir_op *)op, &m) ||
                (pattern_match(pattern_parse(f->p->a, text[1]), (ir_op *)op, &m) &&
                 fuse_number(match_get(&m, "zero"), &zero) && zero == 0)) &&
               fuse_number(match_get(&m, "one"), &one) && one == 1 &&
               sign(f, match_get(&m, "e"), depth - 1) == 1;
    }
    default: return 0;
    }
}

static bool build(rule *r) {
    fuser *f = r->f;
    chunk *last = &r->chunk[0], *first = &r->chunk[r->n - 1];
    ir_value *memory, *low, *hi, *lo, *o = all_results(r);
    ir_value *q = whole(r, offsetof(chunk, q)), *k = whole(r, offsetof(chunk, k)),
             *v = whole(r, offsetof(chunk, v)), *beta = whole(r, offsetof(chunk, beta)),
             *log = whole(r, offsetof(chunk, log));
    if (!o || !q || !k || !v || !beta || !log || !fuse_memory(first->S, &memory, &low) ||
        !fuse_stored(f, last->next, 1, low != NULL, &hi, &lo) || sign(f, log, 12) != -1)
        return false;
    const ir_type *m = &memory->type, *S = &first->S->type;
    const ir_op *open[] = {o->def, last->next->def};
    if (m->dim[0] * m->dim[1] != S->dim[0] * S->dim[1] || m->dim[2] != S->dim[2] || m->dim[3] != S->dim[3] ||
        !closed(r, open, 2))
        return false;
    f->place = fuse_index(f, last->o->def); /* everything that it takes is there */
    if (f->place > f->at) return false;
    ir_op *op = f->fused = fuse_op(f, OP_fused_delta_rule, low ? 3 : 2);
    fuse_operand(f, op, A_memory, memory);
    fuse_operand(f, op, A_low, low);
    fuse_operand(f, op, A_query, q);
    fuse_operand(f, op, A_key, k);
    fuse_operand(f, op, A_value, v);
    fuse_operand(f, op, A_log_decay, log);
    fuse_operand(f, op, A_beta, beta);
    fuse_operand(f, op, A_scale, fuse_float(f, 1));
    fuse_operand(f, op, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)o->type.dtype)));
    ir_value *old[3] = {o, hi, lo};
    for (uint32_t i = 0; i < op->n_out; i++) {
        fuse_result(op, i, ir_value_new(f->p, f->f, old[i]->name, i ? memory->type : o->type));
        fuse_replace(f, old[i], op->out[i]);
    }
    return true;
}

bool fuse_delta_rule(fuser *f, const match *m) {
    if (f->strict) return false;
    rule r = {.f = f, .chunk = ARENA_ARRAY(f->p->a, chunk, RULE_MOST)};
    ir_value *next = m->op[0]->out[0];
    for (;; next = r.chunk[r.n - 1].S) { /* from the last chunk to the first */
        size_t before = r.n_op;
        if (r.n == RULE_MOST) return false;
        if (!find_chunk(&r, next, &r.chunk[r.n])) {
            r.n_op = before;
            break;
        }
        r.n++;
    }
    return r.n && build(&r);
}

/* ---- what comes before and after ---- */

static ir_op *again(fuser *f, const ir_op *op) {
    ir_op *to = fuse_op(f, op->code, op->n_out);
    memcpy(to->arg, op->arg, sizeof *op->arg * ir_info(op->code)->n_slot);
    return to;
}

static bool unit_norm(const fuser *f, const ir_op *norm, double *eps, double *scale) {
    double sum, bits;
    return norm && norm->code == OP_fused_norm && f->uses[norm->out[0]->id] == 1 &&
           fuse_number(ir_in(norm, A_sum), &sum) && sum != 0 && fuse_number(ir_in(norm, A_rounding), &bits) &&
           bits == 0 && !ir_in(norm, A_gamma) && fuse_number(ir_in(norm, A_epsilon), eps) &&
           fuse_number(ir_in(norm, A_scale), scale);
}

/* Takes in the norms that make queries and keys of unit length. */
static bool take_norms(fuser *f, ir_op *op) {
    const ir_op *q = ir_in(op, A_query)->def, *k = ir_in(op, A_key)->def;
    double eps, eps_k, scale, scale_k, have;
    if (ir_in(op, A_unit) || !unit_norm(f, q, &eps, &scale) || !unit_norm(f, k, &eps_k, &scale_k) ||
        eps != eps_k || scale_k != 1 || !fuse_number(ir_in(op, A_scale), &have) || have != 1)
        return false;
    fuse_operand(f, op, A_query, fuse_in(q, A_x));
    fuse_operand(f, op, A_key, fuse_in(k, A_x));
    fuse_operand(f, op, A_unit, fuse_float(f, (float)eps));
    fuse_operand(f, op, A_scale, fuse_float(f, (float)scale));
    return true;
}

bool fuse_delta_unit(fuser *f, const match *m) {
    ir_op *op = again(f, m->op[0]);
    if (!take_norms(f, op)) return false;
    f->fused = op;
    for (uint32_t i = 0; i < op->n_out; i++) fuse_result(op, i, m->op[0]->out[i]);
    return true;
}

/* The results normalised and gated, token by token. */
bool fuse_delta_gated(fuser *f, const match *m) {
    const ir_op *root = m->op[0], *norm = fuse_find(m, OP_fused_norm), *turn = fuse_find(m, OP_transpose);
    ir_op *op = fuse_find(m, OP_fused_delta_rule);
    ir_value *gate = match_get(m, "gate"), *gamma = fuse_in(norm, A_gamma);
    const ir_op *const open[] = {op};
    double sum, bits, rounds, scale;
    while (gate->def && (gate->def->code == OP_reshape ||
                         (gate->def->code == OP_cast && ir_in(gate->def, A_x)->type.dtype == DT_FP16)))
        gate = fuse_in(gate->def, A_x);
    if (ir_in(op, A_gamma) || !gamma || !gamma->konst ||
        !fuse_list_is(ir_in(turn, A_perm), (const int64_t[]){2, 0, 1, 3}, 4) ||
        !fuse_number(ir_in(norm, A_sum), &sum) || sum != 0 || !fuse_number(ir_in(norm, A_rounding), &bits) ||
        bits != 0 || !fuse_number(ir_in(norm, A_scale), &scale) || scale != 1 ||
        !fuse_number(ir_in(root, A_rounding), &rounds) || rounds != 0 || !fuse_closed(f, m, open, 1) ||
        f->uses[op->out[0]->id] != 1)
        return false;
    f->place = fuse_index(f, op);
    if (f->place > f->at || (gate->def && fuse_index(f, gate->def) > f->place)) return false;
    ir_op *to = f->fused = again(f, op);
    fuse_operand(f, to, A_gamma, gamma);
    fuse_operand(f, to, A_epsilon, fuse_in(norm, A_epsilon));
    fuse_operand(f, to, A_gate, gate);
    fuse_operand(f, to, A_output_dtype, fuse_text(f, dtype_name((ir_dtype)root->out[0]->type.dtype)));
    fuse_result(to, 0, root->out[0]);
    for (uint32_t i = 1; i < op->n_out; i++) fuse_result(to, i, op->out[i]);
    take_norms(f, to);
    return true;
}
