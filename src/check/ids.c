#include "check/side.h"
#include <stdlib.h>
#include <string.h>

/* Scores that are looked at in all, roughly; more rows than that allows are sampled. */
#define MOST_SCORES 3e9

typedef struct {
    side s;
    bool *behind;           /* by value id: depends on the projection */
    const ir_value **piece; /* the projection's outputs, in program order */
    const ir_op **op;       /* what comes behind, in program order */
    size_t n_piece, n_op;
    const ir_value *ids;
    int64_t k;
} tail;

static bool depends(const tail *t, const ir_op *op) {
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++)
            if (t->behind[op->arg[i].v[k]->id]) return true;
    return false;
}

/* Marks what the ids are made of, up to the nearest linear ops: needed[] by value id. */
static void mark(const tail *t, bool *needed) {
    const ir_block *b = &t->s.f->body;
    needed[t->ids->id] = true;
    for (size_t i = b->n_op; i-- > 0;) {
        const ir_op *op = b->op[i];
        bool here = false;
        for (uint32_t k = 0; k < op->n_out; k++) here |= needed[op->out[k]->id];
        if (!here || op->code == OP_linear) continue;
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) needed[op->arg[s].v[k]->id] = true;
    }
}

static bool find_tail(tail *t, arena *a, err *e) {
    const ir_function *f = t->s.f;
    bool *needed = ARENA_ARRAY(a, bool, f->n_values);
    t->behind = ARENA_ARRAY(a, bool, f->n_values);
    t->piece = ARENA_ARRAY(a, const ir_value *, f->body.n_op);
    t->op = ARENA_ARRAY(a, const ir_op *, f->body.n_op);
    mark(t, needed);
    for (size_t i = 0; i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        if (op->code == OP_linear && needed[op->out[0]->id]) {
            t->piece[t->n_piece++] = op->out[0];
            t->behind[op->out[0]->id] = true;
        } else if (depends(t, op)) {
            for (uint32_t k = 0; k < op->n_out; k++) t->behind[op->out[k]->id] = true;
            t->op[t->n_op++] = op;
        }
    }
    if (!t->n_piece) return err_set(e, ERR_UNSUPPORTED, "no linear op is found behind the candidate ids");
    for (size_t i = 0; i < t->n_piece; i++)
        if (t->piece[i]->type.rank != 3 || t->piece[i]->type.dim[2] <= 0)
            return err_set(e, ERR_UNSUPPORTED, "%s: expected scores [1,T,rows]", t->piece[i]->name);
    return true;
}

/* Scores of one token for every piece, all zero; and the constants of the ops. */
static bool prepare(tail *t, err *e) {
    for (size_t i = 0; i < t->n_piece; i++) {
        ref_tensor *x = &t->s.v.env[t->piece[i]->id];
        ir_type type = IR_TYPE(t->piece[i]->type.dtype, 1, 1, t->piece[i]->type.dim[2]);
        if (!ref_tensor_new(x, &type, e)) return false;
        memset(x->cell, 0, (size_t)ref_count(x) * sizeof *x->cell);
    }
    for (size_t i = 0; i < t->n_op; i++)
        for (int k = 0; k < ir_info(t->op[i]->code)->n_slot; k++)
            for (uint32_t j = 0; j < t->op[i]->arg[k].n; j++) {
                const ir_value *v = t->op[i]->arg[k].v[j];
                if (!t->behind[v->id] && !side_decode(&t->s, v)) return false;
            }
    return true;
}

/* Puts rows [first, first + n) of a piece on top, in order, and compares the ids. base: id of the piece's row
 * 0. */
static bool audit(check_ids *r, tail *t, const ir_value *piece, int64_t base, int64_t first, int64_t n,
                  err *e) {
    float *score = ref_floats(&t->s.v.env[piece->id]) + first;
    for (int64_t i = 0; i < n; i++) score[i] = (float)(n - i);
    for (size_t i = 0; i < t->n_op; i++)
        if (!ref_eval_op(&t->s.v, t->op[i])) return false;
    for (int64_t i = 0; i < n; i++) score[i] = 0;
    const ref_tensor *ids = &t->s.v.env[t->ids->id];
    if (!ids->cell || dtype_is_float(ids->type.dtype) || ref_count(ids) < n)
        return err_set(e, ERR_UNSUPPORTED, "%s: expected integers, %lld of them", t->ids->name, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t want = base + first + i, got = ref_ints(ids)[i];
        if (got != want && !r->wrong++) r->row = want, r->id = got;
    }
    r->audited += n;
    return true;
}

static bool audit_all(check_ids *r, tail *t, check_watch *w, err *e) {
    for (size_t i = 0; i < t->n_piece; i++) r->rows += t->piece[i]->type.dim[2];
    r->pieces = (int64_t)t->n_piece;
    double rounds = (double)r->rows / (double)t->k, most = MOST_SCORES / (double)r->rows;
    check_phase(w, "ids", (size_t)r->rows);
    int64_t step = rounds > most ? (int64_t)(rounds / most) + 1 : 1, base = 0;
    for (size_t i = 0; i < t->n_piece; i++) {
        int64_t rows = t->piece[i]->type.dim[2];
        for (int64_t first = 0; first < rows;) {
            int64_t n = rows - first < t->k ? rows - first : t->k, next = first + step * t->k,
                    last = rows - t->k;
            if (!check_step(w, (size_t)n, e)) return false;
            if (!audit(r, t, t->piece[i], base, first, n, e)) return false;
            first = next < rows || first >= last ? next : last; /* the last rows of a piece always */
        }
        base += rows;
    }
    return true;
}

bool check_ids_run(check_ids *r, const lm *artifact, check_watch *w, err *e) {
    *r = (check_ids){0};
    if (!artifact->form.top_k) return true;
    arena *a = arena_new(), *scratch = arena_new();
    tail t = {.k = artifact->form.top_k};
    bool ok = side_begin(&t.s, artifact, artifact->n_model - 1, scratch, e);
    if (ok) {
        t.ids = t.s.f->body.out[artifact->form.ids];
        ok = find_tail(&t, a, e) && prepare(&t, e) && audit_all(r, &t, w, e);
    }
    side_end(&t.s);
    arena_free(scratch);
    arena_free(a);
    return ok || err_where(e, "candidate ids");
}
