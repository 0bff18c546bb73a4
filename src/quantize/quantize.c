#include "base/map.h"
#include "base/num.h"
#include "quantize/job.h"
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#define MOST_UNIT (8 << 20) /* weights that are made together: bounds the memory of a piece */

const uint16_t *quant_source(const quant_job *j, uint64_t first, uint64_t n, uint16_t *buf, err *e) {
    const ir_const *c = j->source;
    if (c->data && !((uintptr_t)c->data % 2)) return (const uint16_t *)c->data + first;
    if (c->data) return memcpy(buf, (const uint8_t *)c->data + 2 * first, 2 * (size_t)n);
    return c->fill(c->fill_ctx, first, n, buf, e) ? buf : NULL;
}

void quant_begin(quant_job *j, uint64_t first) {
    if (first == 0) j->square = j->error = j->result->largest = 0;
}

void quant_measure(quant_sum *s, const float *weight, const float *decoded, size_t n) {
    double square = 0, error = 0;
    float largest = 0;
    for (size_t i = 0; i < n; i++) {
        float d = fabsf(decoded[i] - weight[i]);
        square += (double)weight[i] * (double)weight[i];
        error += (double)d * (double)d;
        largest = d > largest ? d : largest;
    }
    s->square += square;
    s->error += error;
    if ((double)largest > s->largest) s->largest = (double)largest;
}

void quant_count(quant_job *j, const quant_sum *s) {
    j->square += s->square;
    j->error += s->error;
    if (s->largest > j->result->largest) j->result->largest = s->largest;
    j->result->error = j->square > 0 ? sqrt(j->error / j->square) : 0;
}

typedef struct {
    ir_program *p;
    ir_function *f;
    const quant_recipe *r;
    bool (*is_vocab)(const char *name);
    quant_result **result;
    size_t n, cap;
    map *done; /* ir_const pointer -> index of packed[] */
    struct packed {
        const ir_const *codes, *tables; /* NULL: stays as it is */
        quant_scheme scheme;
    } * packed;
    size_t cap_packed;
    quant_scales *scales;
    err *e;
} quantizer;

/* What uses a value, by its id: whether it is only the weight of linear ops or a gathered table. */
typedef struct {
    bool weight, other;
} use;

static void note_uses(const ir_block *b, use *uses) {
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        for (int s = 0; s < ir_info(op->code)->n_slot; s++) {
            ir_operand name = ir_info(op->code)->slot[s].name;
            bool weight =
                (op->code == OP_linear && name == A_weight) || (op->code == OP_gather && name == A_x);
            for (uint32_t k = 0; k < op->arg[s].n; k++) {
                use *u = &uses[op->arg[s].v[k]->id];
                if (weight)
                    u->weight = true;
                else
                    u->other = true;
            }
        }
        for (uint32_t k = 0; k < op->n_block; k++) note_uses(op->block[k], uses);
    }
    for (size_t i = 0; i < b->n_out; i++) uses[b->out[i]->id].other = true;
}

static quant_scheme choose(const quantizer *q, const char *name) {
    for (size_t i = 0; i < q->r->n_rule; i++)
        if (!fnmatch(q->r->rule[i].pattern, name, 0)) return q->r->rule[i].scheme;
    return q->r->vocab_apart && q->is_vocab(name) ? q->r->vocab : q->r->weights;
}

/* Why the scheme can't take this weight; NULL when it can. */
static const char *obstacle(const quantizer *q, const ir_const *c, quant_scheme *s) {
    int64_t rows = c->type.dim[0], cols = c->type.dim[1];
    if (s->kind == QUANT_NONE) return "";
    if (c->type.dtype != DT_FP16) return "it is kept in fp32";
    if (s->kind == QUANT_KEEP) {
        if (!c->packed) return "it is stored as plain numbers";
        if (!c->packed->codes) return c->packed->why;
        *s = *quant_scheme_kept(c->packed->codes->type.dtype == DT_INT4);
        return NULL;
    }
    if (rows * cols < 2048) return "it has fewer than 2048 elements";
    if (s->kind == QUANT_LUT) {
        if (s->group > rows) s->group = rows;
        while (rows % s->group) s->group--; /* fewer channels a table where the rows don't divide */
        if (s->group * cols * s->bits % 8) return "its groups would not end at whole bytes";
        if (s->group * cols > MOST_UNIT) return "a group of its rows is too large";
    } else if (s->kind != QUANT_INT8_CHANNEL && cols % s->group) {
        return arena_printf(q->p->a, "its %lld inputs are no multiple of %lld", (long long)cols,
                            (long long)s->group);
    } else if (cols > MOST_UNIT) {
        return "its rows are too long";
    }
    return NULL;
}

/* Only the weight of linear ops or a gathered table can be compressed. */
static struct packed pack(quantizer *q, const char *name, const ir_const *c, bool weight) {
    arena *a = q->p->a;
    struct packed packed = {.scheme = choose(q, name)};
    quant_result *r = ARENA_NEW(a, quant_result);
    *r = (quant_result){.name = name, .type = c->type, .weight = weight};
    r->why = weight ? obstacle(q, c, &packed.scheme) : "neither weights of a linear layer nor a table";
    r->scheme = packed.scheme;
    r->bytes = (uint64_t)ir_type_bytes(&c->type);
    q->result = arena_grow(a, q->result, q->n, &q->cap, q->n + 1, sizeof *q->result);
    q->result[q->n++] = r;
    if (r->why) return packed;
    if (choose(q, name).kind == QUANT_KEEP) {
        packed.codes = c->packed->codes, packed.tables = c->packed->scales;
        r->bytes = (uint64_t)(ir_type_bytes(&packed.codes->type) + ir_type_bytes(&packed.tables->type));
        return packed;
    }
    quant_job *j = ARENA_NEW(a, quant_job);
    *j = (quant_job){.source = c,
                     .rows = c->type.dim[0],
                     .cols = c->type.dim[1],
                     .scheme = packed.scheme,
                     .threads = q->r->threads,
                     .a = a,
                     .result = r,
                     .scales = q->scales};
    bool lut = packed.scheme.kind == QUANT_LUT;
    packed.codes = lut ? lut_codes(j) : affine_codes(j);
    packed.tables = lut ? lut_tables(j) : affine_scales(j);
    r->bytes = (uint64_t)(ir_type_bytes(&packed.codes->type) + ir_type_bytes(&packed.tables->type));
    uint64_t scales = lut ? 0 : (uint64_t)ir_type_count(&packed.tables->type);
    if (scales > q->scales->most) q->scales->most = scales;
    return packed;
}

static struct packed packed_of(quantizer *q, const char *name, const ir_const *c, bool weight) {
    uint32_t at = map_get(q->done, (const char *)&c, sizeof c);
    if (at != MAP_NONE) return q->packed[at];
    struct packed packed = pack(q, name, c, weight);
    size_t n = map_count(q->done);
    q->packed = arena_grow(q->p->a, q->packed, n, &q->cap_packed, n + 1, sizeof *q->packed);
    q->packed[n] = packed;
    map_add(q->done, arena_copy(q->p->a, &c, sizeof c), sizeof c, (uint32_t)n);
    return packed;
}

/* Turns a const op into the constexpr op that makes the same value, when it can be compressed. */
static void rewrite(quantizer *q, ir_op *op, bool weight) {
    ir_value *v = op->out[0];
    struct packed packed = packed_of(q, v->name, v->konst, weight);
    if (!packed.codes) return;
    bool lut = packed.scheme.kind == QUANT_LUT;
    op->code = lut ? OP_constexpr_lut_to_dense : OP_constexpr_blockwise_shift_scale;
    op->arg = ARENA_ARRAY(q->p->a, ir_arg, ir_info(op->code)->n_slot);
    ir_set_arg(q->p, op, lut ? A_indices : A_data, ir_literal(q->p, q->f, packed.codes, IR_BY_LITERAL));
    ir_set_arg(q->p, op, lut ? A_lut : A_scale, ir_literal(q->p, q->f, packed.tables, IR_BY_LITERAL));
    v->konst = NULL;
}

bool quantize_program(ir_program *p, const quant_recipe *r, bool (*is_vocab)(const char *name),
                      quant_report *report, err *e) {
    quantizer q = {.p = p, .r = r, .is_vocab = is_vocab, .done = map_new(p->a, 256), .e = e};
    q.scales = ARENA_NEW(p->a, quant_scales);
    for (size_t i = 0; i < p->n_func; i++) {
        q.f = p->func[i];
        if (q.f->spec < 9)
            return err_set(e, ERR_UNSUPPORTED, "function %s: compressed weights need opset CoreML8",
                           q.f->name);
        use *uses = ARENA_ARRAY(p->a, use, q.f->n_values);
        note_uses(&q.f->body, uses);
        for (size_t k = 0; k < q.f->body.n_op; k++) {
            ir_op *op = q.f->body.op[k];
            if (op->code != OP_const) continue;
            const ir_value *v = op->out[0];
            bool matrix = v->type.rank == 2 && dtype_is_float(v->type.dtype);
            if (v->konst->in_blob) rewrite(&q, op, matrix && uses[v->id].weight && !uses[v->id].other);
        }
    }
    *report = (quant_report){(const quant_result *const *)q.result, q.n};
    return true;
}
