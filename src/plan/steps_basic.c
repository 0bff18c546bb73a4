#include "base/num.h"
#include "plan/steps.h"
#include "reference/rows.h"
#include "reference/walk.h"
#include <math.h>
#include <string.h>

/* ---- copies ---- */

static void copy_row(void *to, int64_t st, uint8_t ts, const void *from, int64_t sf, uint8_t fs, int64_t n,
                     bool round, const plan_worker *w) {
    bool to_half = ts == DT_FP16, from_half = fs == DT_FP16;
    if (to_half && from_half) {
        uint16_t *o = to;
        const uint16_t *x = from;
        for (int64_t i = 0; i < n; i++) o[i * st] = x[i * sf];
    } else if (to_half) {
        uint16_t *o = to;
        const float *x = from;
        if (st == 1 && sf == 1)
            w->ops->narrow(o, x, n);
        else
            for (int64_t i = 0; i < n; i++) o[i * st] = num_f32_f16(x[i * sf]);
    } else if (from_half) {
        float *o = to;
        const uint16_t *x = from;
        if (st == 1 && sf == 1)
            w->ops->widen(o, x, n);
        else
            for (int64_t i = 0; i < n; i++) o[i * st] = num_f16_f32(x[i * sf]);
    } else {
        ref_cell *o = to;
        const ref_cell *x = from;
        if (st == 1 && sf == 1)
            memcpy(o, x, (size_t)n * 4);
        else
            for (int64_t i = 0; i < n; i++) o[i * st] = x[i * sf];
        for (int64_t i = 0; i < n && round; i++) {
            float *f = (float *)to + i * st;
            *f = num_round_f16(*f);
        }
    }
}

void run_copy(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_copy *c = param;
    int64_t pos[GRID_ARRAYS], ts = c->to == DT_FP16 ? 2 : 4, fs = c->from == DT_FP16 ? 2 : 4;
    for (int64_t u = lo; u < hi; u++) {
        int64_t n = grid_unit(&c->g, u, pos);
        copy_row((char *)p[0] + pos[0] * ts, c->g.step[0], c->to, (const char *)p[1] + pos[1] * fs,
                 c->g.step[1], c->from, n, c->round, w);
    }
}

/* ---- element-wise ---- */

/* x[i step] as a row without gaps. */
static const float *gathered(float *room, const float *x, int64_t step, int64_t n) {
    if (step == 1) return x;
    for (int64_t i = 0; i < n; i++) room[i] = x[i * step];
    return room;
}

void run_unary(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_unary *s = param;
    float room[GRID_BLOCK];
    int64_t pos[GRID_ARRAYS];
    (void)w;
    for (int64_t u = lo; u < hi; u++) {
        int64_t n = grid_unit(&s->g, u, pos);
        float *y = (float *)p[0] + pos[0];
        ref_unary_row(s->code, gathered(room, (const float *)p[1] + pos[1], s->g.step[1], n), y, n,
                      s->number[0]);
        if (s->round) num_round_f16_all(y, (size_t)n);
    }
}

void run_cast(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_unary *s = param;
    float room[GRID_BLOCK];
    int64_t pos[GRID_ARRAYS];
    for (int64_t u = lo; u < hi; u++) {
        int64_t n = grid_unit(&s->g, u, pos);
        const float *x = gathered(room, (const float *)p[1] + pos[1], s->g.step[1], n);
        float *y = (float *)p[0] + pos[0];
        if (s->from == DT_FP32 && s->to == DT_FP16) {
            memcpy(y, x, (size_t)n * 4);
            w->ops->round(y, n);
        } else {
            ref_cast_row(x, s->from, y, s->to, n);
        }
    }
}

void run_binary(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_binary *s = param;
    int64_t pos[GRID_ARRAYS];
    (void)w;
    for (int64_t u = lo; u < hi; u++) {
        int64_t n = grid_unit(&s->g, u, pos);
        float *o = (float *)p[0] + pos[0];
        s->row(o, (const float *)p[1] + pos[1], s->g.step[1], (const float *)p[2] + pos[2], s->g.step[2], n);
        if (s->round) num_round_f16_all(o, (size_t)n);
    }
}

void run_select(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_select *s = param;
    const grid *g = &s->g;
    int64_t pos[GRID_ARRAYS];
    (void)w;
    for (int64_t u = lo; u < hi; u++) {
        int64_t n = grid_unit(g, u, pos);
        ref_cell *o = (ref_cell *)p[0] + pos[0];
        const ref_cell *c = (const ref_cell *)p[1] + pos[1], *a = (const ref_cell *)p[2] + pos[2],
                       *b = (const ref_cell *)p[3] + pos[3];
        for (int64_t i = 0; i < n; i++) o[i] = c[i * g->step[1]] ? a[i * g->step[2]] : b[i * g->step[3]];
    }
}

/* ---- the reference body ---- */

/* A step under way. */
typedef struct {
    const void *param;
    void *const *p;
    plan_worker *w;
} running;

static void evaluate(void *ctx) {
    const running *k = ctx;
    plan_worker *w = k->w;
    void *const *p = k->p;
    const step_reference *r = k->param;
    const ir_op *op = r->op;
    ref_eval *v = plan_evaluator(w);
    ref_buf *block = plan_buffer_of(w);
    ref_buf_set_half(block, false);
    for (uint32_t i = 0; i < r->n_operand; i++)
        v->env[r->operand[i]->id] = (ref_tensor){.type = r->type[i], .buf = block, .cell = p[op->n_out + i]};
    bool ok = ref_eval_op(v, op);
    for (uint32_t i = 0; i < op->n_out && ok; i++) {
        ref_tensor *t = &v->env[op->out[i]->id];
        ok = ir_type_equal(&t->type, &op->out[i]->type) ||
             err_set(v->e, ERR_INVALID, "%s comes out with another size than planned", op->out[i]->name);
        if (ok) ref_read(t, 0, ref_count(t), p[i]);
    }
    for (uint32_t i = 0; i < op->n_out; i++) ref_tensor_drop(&v->env[op->out[i]->id]);
    for (uint32_t i = 0; i < r->n_operand; i++) v->env[r->operand[i]->id] = (ref_tensor){0};
    if (!ok) plan_failed(w);
}

void run_reference(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    (void)lo, (void)hi;
    if (plan_guarded(w, evaluate, &(running){param, p, w})) return;
    const step_reference *r = param;
    for (uint32_t i = 0; i < r->n_operand; i++) plan_evaluator(w)->env[r->operand[i]->id] = (ref_tensor){0};
}

/* ---- slice_update ---- */

typedef struct {
    const ir_op *op;
    const step_update *u;
    void *const *p;
} bounds;

static ir_type bound_type(void *ctx, const ir_value *v) {
    (void)ctx;
    return v->type;
}

static const double *bound_numbers(void *ctx, const ir_value *v, size_t *n, arena *a) {
    const bounds *b = ctx;
    if (v->konst) return ir_const_numbers(v->konst, n, a);
    int at = v == ir_in(b->op, A_begin) ? b->u->begin : v == ir_in(b->op, A_end) ? b->u->end : -1;
    if (at < 0) return NULL;
    const int32_t *x = b->p[at];
    *n = (size_t)ir_type_count(&v->type);
    double *d = ARENA_ARRAY(a, double, *n + 1);
    for (size_t i = 0; i < *n; i++) d[i] = (double)x[i];
    return d;
}

/* The region that the bounds choose; an error when it is not what update has. */
static bool region(const bounds *b, ref_eval *v, int64_t *first, ir_type *size, int64_t *stride) {
    const ir_env env = {(void *)b, bound_type, bound_numbers};
    const step_update *u = b->u;
    ir_slice s[IR_MAX_RANK];
    size_t n, m, q;
    const int64_t *end = ir_env_ints(&env, b->op, A_end, &n, v->scratch),
                  *mask = ir_env_ints(&env, b->op, A_end_mask, &m, v->scratch),
                  *squeeze = ir_env_ints(&env, b->op, A_squeeze_mask, &q, v->scratch);
    for (size_t d = 0; d < n && d < (size_t)u->type.rank; d++)
        if (end[d] > u->type.dim[d] && !(d < m && mask[d]) && !(d < q && squeeze[d]))
            return err_set(v->e, ERR_INVALID, "end %lld passes the %lld elements of dimension %zu",
                           (long long)end[d], (long long)u->type.dim[d], d);
    if (!ir_resolve_slices(b->op, &env, &u->type, s, v->scratch, v->e)) return false;
    size->rank = 0;
    *first = 0;
    for (int d = 0; d < u->type.rank; d++) {
        *first += s[d].count ? s[d].begin * u->stride[d] : 0;
        if (s[d].squeeze) continue;
        stride[size->rank] = s[d].step * u->stride[d];
        size->dim[size->rank++] = s[d].count;
    }
    int64_t want = ir_type_count(&u->update), have = 1;
    for (int d = 0; d < size->rank; d++) have *= size->dim[d];
    bool same = size->rank == u->update.rank;
    for (int d = 0; d < size->rank && same; d++) same = size->dim[d] == u->update.dim[d];
    return (same && want == have) || err_set(v->e, ERR_INVALID, "update has %lld elements, the slice %lld",
                                             (long long)want, (long long)have);
}

/* The same for plain numbers within x's sizes, where nothing has to be resolved. */
static bool plain_region(const step_update *u, void *const *p, int64_t *first) {
    if (!u->plain) return false;
    const int32_t *begin = p[u->begin], *end = p[u->end];
    *first = 0;
    for (int d = 0; d < u->type.rank; d++) {
        if (begin[d] < 0 || end[d] > u->type.dim[d] || end[d] - begin[d] != u->update.dim[d]) return false;
        *first += begin[d] * u->stride[d];
    }
    return true;
}

/* Worker 0 alone, as it may have to report what is wrong with the bounds. */
static void resolved_update(void *ctx) {
    const running *k = ctx;
    plan_worker *w = k->w;
    void *const *p = k->p;
    const step_update *u = k->param;
    const bounds b = {u->op, u, p};
    ref_eval *v = plan_evaluator(w);
    int64_t first = 0, stride[IR_MAX_RANK], bytes = u->store == DT_FP16 ? 2 : 4;
    ir_type size = u->update;
    bool ok = region(&b, v, &first, &size, stride);
    arena_reset(v->scratch);
    if (!ok) {
        err_where(v->e, "op %s (slice_update)", u->op->out[0]->name);
        plan_failed(w);
        return;
    }
    const int64_t *const s[] = {stride, u->from};
    for (ref_walk at = ref_walk_start(size.rank, size.dim, 2, s); !at.done; ref_walk_next(&at))
        copy_row((char *)p[0] + (first + at.pos[0]) * bytes, at.step[0], u->store,
                 (const float *)p[1] + at.pos[1], at.step[1], DT_NONE, at.run, u->round, w);
}

void run_update(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_update *u = param;
    int64_t first, pos[GRID_ARRAYS], bytes = u->store == DT_FP16 ? 2 : 4;
    if (!plain_region(u, p, &first)) {
        if (!w->index) plan_guarded(w, resolved_update, &(running){u, p, w});
        return;
    }
    for (int64_t i = lo; i < hi; i++) {
        int64_t n = grid_unit(&u->g, i, pos);
        copy_row((char *)p[0] + (first + pos[0]) * bytes, u->g.step[0], u->store,
                 (const float *)p[1] + pos[1], u->g.step[1], DT_NONE, n, u->round, w);
    }
}

/* ---- rows of a table ---- */

/* An index as the reference reads it: negative ones count from the end, others are clamped. */
static int64_t row_of(int32_t index, int64_t rows) {
    int64_t at = index < 0 ? index + rows : index;
    return at < 0 ? 0 : at >= rows ? rows - 1 : at;
}

void run_gather(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_gather *g = param;
    const int32_t *index = p[1];
    for (int64_t i = lo; i < hi; i++)
        copy_row((float *)p[0] + i * g->width, 1, DT_NONE,
                 (const char *)p[2] + row_of(index[i], g->rows) * g->width * (g->store ? 2 : 4), 1, g->store,
                 g->width, false, w);
}

void run_gather_along(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_gather_along *g = param;
    const ref_cell *x = p[1];
    const int32_t *index = p[2];
    (void)w;
    for (int64_t i = lo; i < hi; i++) {
        int64_t at = row_of(index[i], g->n);
        ((ref_cell *)p[0])[i] = x[(i / (g->m * g->inner) * g->n + at) * g->inner + i % g->inner];
    }
}

void run_gather_packed(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w) {
    const step_gather *g = param;
    const int32_t *index = p[1];
    (void)w;
    for (int64_t i = lo; i < hi; i++) {
        float *o = (float *)p[0] + i * g->width;
        g->decode(&g->w, row_of(index[i], g->rows), 0, g->width, o);
        if (g->round) num_round_f16_all(o, (size_t)g->width);
    }
}
