#include "base/map.h"
#include "base/num.h"
#include "check/side.h"
#include "coreml/embedding.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 16384

/* The weight that an op makes: a float constant of some size. NULL otherwise. */
static const ir_value *weight_of(const ir_op *op) {
    if (op->n_out != 1 || !(ir_info(op->code)->flags & (OPF_CONST | OPF_CONSTEXPR))) return NULL;
    const ir_value *v = op->out[0];
    return v->name && v->type.kind == IR_TENSOR && dtype_is_float(v->type.dtype) &&
                   ir_type_count(&v->type) >= CHECK_WEIGHT_MIN
               ? v
               : NULL;
}

static void forget(side *s, const ir_value *v) {
    ref_tensor_drop(&s->v.env[v->id]);
}

/* Sums of one comparison. */
typedef struct {
    uint64_t differ, first, at;
    double error, norm;
} sums;

static void add_piece(sums *s, const float *got, const float *ref, size_t n, bool half) {
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)ref[i];
        s->error += d * d;
        s->norm += (double)ref[i] * (double)ref[i];
        if (got[i] != (half ? num_round_f16(ref[i]) : ref[i]) && !s->differ++) s->first = s->at + i;
    }
    s->at += n;
}

static double relative(const sums *s) {
    return s->norm > 0 ? sqrt(s->error / s->norm) : s->error > 0 ? INFINITY : 0;
}

/* Takes the finished comparison of one weight into the result. */
static void judge(check_weights *r, const char *name, const sums *s, bool compressed) {
    check_weight w = {name, s->differ, s->first, relative(s), compressed, false};
    w.bad = compressed ? !(w.error < CHECK_WEIGHT_ERROR) : w.differ > 0;
    if (compressed) {
        r->compressed++;
        if (!r->worst || !(w.error <= r->worst_error)) r->worst = name, r->worst_error = w.error;
    } else {
        r->exact++;
    }
    if (!w.bad) return;
    r->bad = mem_realloc(r->bad, (r->n_bad + 1) * sizeof *r->bad);
    r->bad[r->n_bad++] = w;
}

static bool compare(check_weights *r, side *got, const ir_value *a, side *ref, const ir_value *b) {
    if (!side_decode(got, a) || !side_decode(ref, b)) return false;
    const ref_tensor *x = &got->v.env[a->id], *y = &ref->v.env[b->id];
    sums s = {0};
    float *piece = mem_alloc(2 * PIECE * sizeof *piece);
    for (int64_t i = 0, n, count = ir_type_count(&a->type); i < count; i += n) {
        n = count - i < PIECE ? count - i : PIECE;
        ref_read(x, i, n, piece);
        ref_read(y, i, n, piece + PIECE);
        add_piece(&s, piece, piece + PIECE, (size_t)n, a->type.dtype == DT_FP16);
    }
    free(piece);
    judge(r, a->name, &s, a->konst == NULL);
    forget(got, a);
    forget(ref, b);
    return true;
}

/* Bits of a compressed weight's codes: its operand that has an element for each of the weight's. */
static int code_bits(const ir_op *op) {
    int bits = 16;
    for (int i = 0; i < ir_info(op->code)->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++) {
            const ir_type *t = &op->arg[i].v[k]->type;
            int b = (int)dtype_bits(t->dtype);
            if (ir_type_count(t) == ir_type_count(&op->out[0]->type) && b && b < bits) bits = b;
        }
    return bits;
}

static bool same_shape(const ir_type *a, const ir_type *b) {
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]);
}

/* Weights by name: the index of the op. */
static map *index_weights(arena *a, const ir_function *f) {
    map *m = map_new(a, f->body.n_op);
    for (size_t i = 0; i < f->body.n_op; i++) {
        const ir_value *v = weight_of(f->body.op[i]);
        if (v) map_add(m, v->name, strlen(v->name), (uint32_t)i);
    }
    return m;
}

/* The weight of that name and shape; NULL when there is none. */
static const ir_value *find(const ir_function *f, const map *names, const ir_value *like) {
    uint32_t at = map_get(names, like->name, strlen(like->name));
    const ir_value *v = at == MAP_NONE ? NULL : f->body.op[at]->out[0];
    return v && same_shape(&v->type, &like->type) ? v : NULL;
}

static bool compare_all(check_weights *r, side *got, side *ref, arena *a, err *e) {
    const map *in_ref = index_weights(a, ref->f), *in_got = index_weights(a, got->f);
    for (size_t i = 0; i < got->f->body.n_op; i++) {
        const ir_op *op = got->f->body.op[i];
        const ir_value *v = weight_of(op), *other = v ? find(ref->f, in_ref, v) : NULL;
        if (!v) continue;
        if ((ir_info(op->code)->flags & OPF_CONSTEXPR) && code_bits(op) < r->least_bits)
            r->least_bits = code_bits(op);
        if (!other && !r->unmatched++) r->first_unmatched = v->name;
        if (other && !compare(r, got, v, ref, other)) return err_where(e, "weight %s", v->name);
    }
    for (size_t i = 0; i < ref->f->body.n_op; i++) {
        const ir_value *v = weight_of(ref->f->body.op[i]);
        if (v && !find(got->f, in_got, v) && !r->missing++) r->first_missing = v->name;
    }
    return true;
}

/* The embedding table, which lies beside the package. */
static bool compare_tables(check_weights *r, const embedding *got, const embedding *ref, err *e) {
    if (!got || !ref) return true;
    if (!embedding_verify(got, e)) return false;
    if (embedding_rows(got) != embedding_rows(ref) || embedding_width(got) != embedding_width(ref))
        return err_set(e, ERR_INVALID,
                       "the embedding table has %lld rows of %lld, the checkpoint %lld of %lld",
                       (long long)embedding_rows(got), (long long)embedding_width(got),
                       (long long)embedding_rows(ref), (long long)embedding_width(ref));
    size_t width = (size_t)embedding_width(got);
    float *row = mem_try(width, 2 * sizeof *row);
    if (!row) return err_set(e, ERR_MEMORY, "no memory for a row of %zu numbers", width);
    sums s = {0};
    for (int64_t i = 0; i < embedding_rows(got); i++) {
        embedding_row(got, i, row);
        embedding_row(ref, i, row + width);
        add_piece(&s, row, row + width, width, embedding_kind_of(got) == EMBEDDING_FP16);
    }
    free(row);
    judge(r, "embed_tokens.bin", &s, embedding_kind_of(got) == EMBEDDING_INT8);
    return true;
}

bool check_weights_run(check_weights *r, const lm *artifact, const lm *reference, err *e) {
    *r = (check_weights){.least_bits = 16};
    arena *a = arena_new(), *scratch = arena_new();
    side got = {0}, ref = {0};
    bool ok = side_begin(&got, artifact, scratch, e) && side_begin(&ref, reference, scratch, e) &&
              compare_all(r, &got, &ref, a, e) && compare_tables(r, artifact->table, reference->table, e);
    side_end(&got);
    side_end(&ref);
    arena_free(scratch);
    arena_free(a);
    return ok;
}

void check_weights_free(check_weights *r) {
    free(r->bad);
    *r = (check_weights){0};
}
