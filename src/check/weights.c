#include "base/map.h"
#include "base/num.h"
#include "check/side.h"
#include "coreml/embedding.h"
#include "generate/artifact.h"
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

typedef struct {
    const ir_op *op;
    const char *name, *key; /* as reports call it, as long as the artifact; as the other one's is found */
    size_t package;
} weight;

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
static void judge(check_weights *r, check_weight w) {
    w.bad = w.compressed ? !(w.error < CHECK_WEIGHT_ERROR && w.row_error < CHECK_ROW_ERROR) : w.differ > 0;
    if (w.compressed) {
        r->compressed++;
        if (!r->worst || !(w.error <= r->worst_error)) r->worst = w.name, r->worst_error = w.error;
    } else {
        r->exact++;
    }
    if (!w.bad) return;
    r->bad = mem_realloc(r->bad, (r->n_bad + 1) * sizeof *r->bad);
    r->bad[r->n_bad++] = w;
}

/* The row that is furthest from the reference's, measured by the larger of that row's norm and the mean one:
 * rows that hardly count may be lost. */
static void find_worst_row(check_weight *w, const double *sum, int64_t rows) {
    double mean = 0;
    for (int64_t i = 0; i < rows; i++) mean += sum[2 * i + 1] / (double)rows;
    for (int64_t i = 0; i < rows; i++) {
        double by = fmax(sum[2 * i + 1], mean), e = by > 0 ? sqrt(sum[2 * i] / by) : 0;
        if (e > w->row_error) w->row = i, w->row_error = e;
    }
}

static bool compare(check_weights *r, side *got, const weight *this, side *ref, const ir_value *b) {
    const ir_value *a = this->op->out[0];
    if (!side_decode(got, a) || !side_decode(ref, b)) return false;
    const ref_tensor *x = &got->v.env[a->id], *y = &ref->v.env[b->id];
    bool compressed = !a->konst, matrix = compressed && a->type.rank == 2;
    int64_t count = ir_type_count(&a->type), rows = matrix ? a->type.dim[0] : 0;
    int64_t width = matrix && rows ? count / rows : count, piece = width < PIECE ? width : PIECE;
    sums s = {0};
    float *values = mem_alloc(2 * PIECE * sizeof *values);
    double *by_row = mem_try((size_t)rows + 1, 2 * sizeof *by_row);
    for (int64_t i = 0, n; by_row && i < count; i += n) {
        n = width - i % width < piece ? width - i % width : piece;
        ref_read(x, i, n, values);
        ref_read(y, i, n, values + PIECE);
        double error = s.error, norm = s.norm;
        add_piece(&s, values, values + PIECE, (size_t)n, a->type.dtype == DT_FP16);
        if (matrix) by_row[2 * (i / width)] += s.error - error, by_row[2 * (i / width) + 1] += s.norm - norm;
    }
    mem_free(values);
    check_weight w = {this->name, s.differ, s.first, relative(&s), -1, 0, compressed, false};
    if (matrix && by_row) find_worst_row(&w, by_row, rows);
    bool ok = by_row || err_set(got->v.e, ERR_MEMORY, "no memory for sums of %lld rows", (long long)rows);
    mem_free(by_row);
    judge(r, w);
    forget(got, a);
    forget(ref, b);
    return ok;
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

int check_least_bits(const lm *artifact) {
    int least = 16;
    for (size_t i = 0; i < artifact->n_model; i++) {
        const ir_function *f = side_function(artifact, i);
        for (size_t k = 0; f && k < f->body.n_op; k++) {
            const ir_op *op = f->body.op[k];
            bool compressed = (ir_info(op->code)->flags & OPF_CONSTEXPR) && weight_of(op);
            if (compressed && code_bits(op) < least) least = code_bits(op);
        }
    }
    return least;
}

static bool same_shape(const ir_type *a, const ir_type *b) {
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]);
}

/* All packages of one artifact, and their weights by name. */
typedef struct {
    side *s; /* one a package */
    size_t n;
    map *names; /* -> index in weight */
    weight *weight;
    size_t n_weight, cap;
    bool *found; /* by weight: the other artifact has it too */
} side_set;

/* Weights of a package go by their names. A Core AI asset has none: they go by the order in which they are
 * used, which is that of the graph. */
static void add_weights(side_set *set, const ir_function *f, const lm *m, arena *a) {
    bool ordered = f->spec == IR_SPEC_COREAI;
    const bool *part = side_parts(a, f);
    for (size_t i = 0; i < f->body.n_op; i++) {
        const ir_value *v = weight_of(f->body.op[i]);
        if (!v || (ordered && part[v->id])) continue;
        const char *name =
            ordered ? arena_printf(m->a, "%zu, %s", set->n_weight + 1, ir_type_text(m->a, &v->type))
                    : v->name;
        /* where they are called by number the element type, which is not the reference's, is no part of it */
        const char *key = ordered ? arena_printf(a, "%zu", set->n_weight) : name;
        if (!map_add(set->names, key, strlen(key), (uint32_t)set->n_weight)) continue;
        set->weight =
            arena_grow(a, set->weight, set->n_weight, &set->cap, set->n_weight + 1, sizeof *set->weight);
        set->weight[set->n_weight++] = (weight){f->body.op[i], name, key, set->n};
    }
}

static bool open_sides(side_set *set, const lm *m, arena *a, arena *scratch, err *e) {
    set->s = ARENA_ARRAY(a, side, m->n_model);
    set->names = map_new(a, 256);
    for (; set->n < m->n_model; set->n++) {
        side *s = &set->s[set->n];
        if (!side_begin(s, m, set->n, scratch, e)) return false;
        add_weights(set, s->f, m, a);
    }
    set->found = ARENA_ARRAY(a, bool, set->n_weight);
    return true;
}

static void close_sides(side_set *set) {
    for (size_t i = 0; i < set->n; i++) side_end(&set->s[i]);
}

/* The weight of that key and shape; NULL when there is none. */
static const weight *find(side_set *set, const weight *like) {
    uint32_t at = map_get(set->names, like->key, strlen(like->key));
    const ir_type *t = &like->op->out[0]->type;
    if (at == MAP_NONE && set->s->f->spec == IR_SPEC_COREAI) at = 0; /* a head that is the embedding */
    if (at == MAP_NONE || at >= set->n_weight || !same_shape(&set->weight[at].op->out[0]->type, t))
        return NULL;
    set->found[at] = true;
    return &set->weight[at];
}

static bool compare_all(check_weights *r, side_set *got, side_set *ref, check_watch *w, err *e) {
    check_phase(w, "weights", got->n_weight);
    for (size_t i = 0; i < got->n_weight; i++) {
        const weight *x = &got->weight[i], *other = find(ref, x);
        if (!other && !r->unmatched++) r->first_unmatched = x->name;
        if (other && !compare(r, &got->s[x->package], x, &ref->s[other->package], other->op->out[0]))
            return err_where(e, "weight %s", x->name);
        if (!check_step(w, 1, e)) return false;
    }
    for (size_t i = 0; i < ref->n_weight; i++)
        if (!ref->found[i] && !r->missing++) r->first_missing = ref->weight[i].name;
    return true;
}

/* The embedding table, which lies beside the package. */
static bool compare_tables(check_weights *r, const char *name, const embedding *got, const embedding *ref,
                           err *e) {
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
    embedding_kind kind = embedding_kind_of(got);
    bool compressed = kind != EMBEDDING_FP16 && kind != EMBEDDING_FP32;
    double *by_row = mem_try((size_t)embedding_rows(got) + 1, 2 * sizeof *by_row);
    sums s = {0};
    for (int64_t i = 0; by_row && i < embedding_rows(got); i++) {
        double error = s.error, norm = s.norm;
        embedding_row(got, i, row);
        embedding_row(ref, i, row + width);
        add_piece(&s, row, row + width, width, kind == EMBEDDING_FP16);
        by_row[2 * i] = s.error - error, by_row[2 * i + 1] = s.norm - norm;
    }
    mem_free(row);
    check_weight w = {name, s.differ, s.first, relative(&s), -1, 0, compressed, false};
    if (by_row && compressed) find_worst_row(&w, by_row, embedding_rows(got));
    bool ok = by_row || err_set(e, ERR_MEMORY, "no memory for sums of the table's rows");
    mem_free(by_row);
    judge(r, w);
    return ok;
}

bool check_weights_run(check_weights *r, const lm *artifact, const lm *reference, check_watch *w, err *e) {
    *r = (check_weights){0};
    arena *a = arena_new(), *scratch = arena_new();
    side_set got = {0}, ref = {0};
    bool ok = open_sides(&got, artifact, a, scratch, e) && open_sides(&ref, reference, a, scratch, e) &&
              compare_all(r, &got, &ref, w, e) &&
              compare_tables(r, artifact->table_path ? artifact_name(artifact->table_path) : "",
                             artifact->table, reference->table, e);
    close_sides(&got);
    close_sides(&ref);
    arena_free(scratch);
    arena_free(a);
    return ok;
}

void check_weights_free(check_weights *r) {
    mem_free(r->bad);
    *r = (check_weights){0};
}
