/* What works on rows: norms, rotations, gated activations. Outside of strict mode a norm and what follows it
 * (a rotation, a factor, a gate) become one step. */
#include "plan/lower.h"
#include "plan/steps.h"
#include "reference/walk.h"
#include <string.h>

place lower_with_rows(lower *l, const ir_op *op, ir_operand name) {
    place p = lower_cells(l, lower_in(l, op, name));
    int last = p.type.rank - 1;
    return p.type.dim[last] == 1 || p.stride[last] == 1 ? p : lower_dense(l, p);
}

static step_rows rows_of(const place *p) {
    step_rows r = {.rank = p->type.rank - 1, .n = p->type.dim[p->type.rank - 1]};
    memcpy(r.dim, p->type.dim, sizeof r.dim);
    memcpy(r.stride, p->stride, sizeof r.stride);
    return r;
}

static int64_t count_rows(const step_rows *r) {
    int64_t n = 1;
    for (int d = 0; d < r->rank; d++) n *= r->dim[d];
    return n;
}

/* The table's strides over the rows of x. */
static void table_strides(const place *table, const ir_type *type, int64_t *stride) {
    place t = *table;
    ir_type rows = *type;
    t.type.rank--, rows.rank--;
    t = place_broadcast(&t, &rows);
    memcpy(stride, t.stride, sizeof t.stride);
}

/* ---- by the kernels of kernels/ops.h ---- */

/* Rows as outer and inner steps; the table (strides over the rows, or NULL) changes with the outer step only.
 * False: there are more dimensions than that. */
static bool two_steps(lower_norm *m, const int64_t *table) {
    const step_rows *r = &m->rows;
    int64_t dim[2] = {1, 1}, x[2] = {0, 0}, y[2] = {0, 0}, t[2] = {0, 0}, at = r->n;
    int n = 0; /* from the inside */
    for (int d = r->rank - 1; d >= 0; at *= r->dim[d--]) {
        if (r->dim[d] == 1) continue;
        int64_t td = table ? table[d] : 0;
        if (n && x[n - 1] * dim[n - 1] == r->stride[d] && t[n - 1] * dim[n - 1] == td) {
            dim[n - 1] *= r->dim[d];
            continue;
        }
        if (n == 2) return false;
        dim[n] = r->dim[d], x[n] = r->stride[d], y[n] = at, t[n++] = td;
    }
    int inner = t[0] ? 1 : 0, outer = !inner;
    if (t[inner]) return false;
    m->job.inner = dim[inner];
    m->job.x_step = (kern_step){x[outer], x[inner]};
    m->job.y_step = m->job.z_step = (kern_step){y[outer], y[inner]};
    m->job.ld_table = t[outer];
    m->in_order = !inner;
    return true;
}

/* Rows that lie behind each other are dealt out like those of the step that made them: no worker waits. */
static int64_t rows_together(lower *l, const lower_norm *m) {
    int64_t n = m->job.n, alone = 1 + 4096 / n, rows = count_rows(&m->rows);
    bool dense = m->in_order && m->job.x_step.inner == (m->job.inner > 1 ? n : 0) && !m->job.x_step.outer;
    for (size_t i = l->p->n_step, far = 0; dense && i-- > 0 && far < 8; far++) {
        const plan_step *made = &l->p->step[i];
        for (uint32_t k = 0; k < made->n_out; k++) {
            const plan_arg *a = &made->arg[k];
            if (a->space != m->x.space || a->buffer != m->x.buffer || a->first != m->x.first) continue;
            int64_t chunks = plan_chunks(made), each = a->part / n;
            return each > 0 && a->part == each * n && (rows + each - 1) / each == chunks ? each : alone;
        }
    }
    return alone;
}

static void emit_norm(lower *l, lower_norm m, const char *name, const place *y) {
    step_fast_norm *s = ARENA_NEW(l->a, step_fast_norm);
    place in[4] = {m.x};
    uint32_t n = 1;
    s->job = m.job;
    if (m.turned) {
        s->cos = (int)n + 1, in[n++] = m.cos;
        s->sin = (int)n + 1, in[n++] = m.sin;
    }
    if (m.gated) s->z = (int)n + 1, in[n++] = m.z;
    int64_t grain = rows_together(l, &m);
    plan_step *step = lower_emit(l, run_fast_norm, s, name, count_rows(&m.rows), grain, y, 1, in, n);
    if (m.in_order) step->arg[0].part = grain * m.job.n;
    if (grain <= 4096 / m.job.n) step->arg[1].part = step->arg[0].part;
    m.step = l->p->n_step;
    m.y = *y;
    l->norm = m;
}

/* The newest step is a norm (or a rotation), v is its whole result in the same order, and nobody else wants
 * that. */
static bool newest_norm(lower *l, const ir_value *v, const place *at) {
    const lower_norm *m = &l->norm;
    return m->step && m->step == l->p->n_step && at->space == SPACE_ACT && at->buffer == m->y.buffer &&
           at->first == 0 && !at->store && place_is_dense(at) &&
           ir_type_count(&at->type) == ir_type_count(&m->y.type) && lower_alone(l, v);
}

static bool fast_norm(lower *l, const ir_op *op, const place *x, const place *y) {
    lower_norm m = {.x = *x, .rows = rows_of(x)};
    bool sum = lower_int(l, op, A_sum, 0);
    m.job = (kern_norm){.n = m.rows.n,
                        .kind = sum ? KERN_NORM_SUM : KERN_NORM_MEAN,
                        .eps = (float)lower_number(l, op, A_epsilon, 0),
                        .scale = (float)lower_number(l, op, A_scale, 1),
                        .half = lower_int(l, op, A_rounding, 0) & 1,
                        .weight = lower_vector(l, op, A_gamma)};
    if (l->strict || !two_steps(&m, NULL)) return false;
    emit_norm(l, m, sum ? "l2 norm" : "rms norm", y);
    return true;
}

bool lower_scaled_norm(lower *l, const ir_op *op) {
    const ir_value *x = ir_in(op, A_x), *y = ir_in(op, A_y);
    const place *at = lower_at(l, x);
    double factor;
    if (l->strict || !y->konst || ir_type_count(&y->type) != 1 || !ir_const_number(y->konst, 0, &factor) ||
        ir_type_count(&op->out[0]->type) != ir_type_count(&x->type) || !newest_norm(l, x, at))
        return false;
    step_fast_norm *s = (void *)(uintptr_t)l->p->step[l->p->n_step - 1].param;
    l->norm.job.scale = s->job.scale *= (float)factor; /* a rotation is linear */
    lower_set(l, op->out[0], *at);
    return true;
}

static bool all_zero(const int64_t *v, const step_rows *r) {
    for (int d = 0; d < r->rank; d++)
        if (r->dim[d] > 1 && v[d]) return false;
    return true;
}

/* Row by row the same ones. */
static bool same_rows(const step_rows *a, const step_rows *b) {
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

static bool fast_rope(lower *l, const ir_op *op, const place in[3], const place *y) {
    lower_norm m = {.x = in[0], .rows = rows_of(&in[0])};
    int64_t cos[IR_MAX_RANK], sin[IR_MAX_RANK];
    table_strides(&in[1], &op->out[0]->type, cos);
    table_strides(&in[2], &op->out[0]->type, sin);
    if (l->strict || memcmp(cos, sin, (size_t)m.rows.rank * sizeof *cos)) return false;
    bool one = all_zero(cos, &m.rows);
    bool joins = newest_norm(l, ir_in(op, A_x), &in[0]) && !l->norm.turned &&
                 !l->norm.gated /* a step turns before it gates */ &&
                 (one || same_rows(&m.rows, &l->norm.rows));
    lower_norm alone = m;
    if (joins) m = l->norm;
    if (joins && !two_steps(&m, one ? NULL : cos)) joins = false, m = alone;
    if (!joins) m.job = (kern_norm){.n = m.rows.n, .kind = KERN_NORM_NONE, .scale = 1};
    if (!joins && !two_steps(&m, cos)) return false;
    if (joins) lower_take_back(l);
    m.turned = true;
    m.cos = in[1], m.sin = in[2];
    m.job.dims = in[1].type.dim[in[1].type.rank - 1];
    emit_norm(l, m, joins ? "norm, rope" : "rope", y);
    return true;
}

/* up: the newest norm, times silu(gate). */
static bool gated_norm(lower *l, const ir_op *op, const place in[2], const place *y) {
    if (l->strict || !newest_norm(l, ir_in(op, A_up), &in[1]) || l->norm.gated || in[0].space != SPACE_ACT)
        return false;
    for (uint32_t k = 0; k < l->p->step[l->p->n_step - 1].n_out; k++)
        if (l->p->step[l->p->n_step - 1].arg[k].buffer == in[0].buffer) return false;
    lower_norm m = l->norm;
    lower_take_back(l);
    m.gated = true;
    m.z = in[0];
    emit_norm(l, m, "norm, gate", y);
    return true;
}

/* ---- ops ---- */

bool lower_fused_norm(lower *l, const ir_op *op) {
    const ir_type *type = &op->out[0]->type;
    if (ir_type_count(type) == 0) return lower_reference(l, op);
    place x = lower_with_rows(l, op, A_x), y = lower_fresh(l, type);
    lower_set(l, op->out[0], y);
    if (fast_norm(l, op, &x, &y)) return true;
    step_norm *s = ARENA_NEW(l->a, step_norm);
    int64_t bits = lower_int(l, op, A_rounding, 0);
    s->x = rows_of(&x);
    s->job = (kern_rounded_norm){.n = s->x.n,
                                 .gamma = lower_vector(l, op, A_gamma),
                                 .eps = (float)lower_number(l, op, A_epsilon, 0),
                                 .scale = (float)lower_number(l, op, A_scale, 1),
                                 .sum = lower_int(l, op, A_sum, 0),
                                 .round_unit = bits & 1,
                                 .round_scaled = bits & 2,
                                 .round_result = bits & 4 || lower_rounds(l, type)};
    lower_emit(l, run_norm, s, s->job.sum ? "l2 norm" : "rms norm", count_rows(&s->x), 1 + 4096 / s->x.n, &y,
               1, &x, 1);
    return true;
}

bool lower_fused_rope(lower *l, const ir_op *op) {
    const ir_type *type = &op->out[0]->type;
    if (ir_type_count(type) == 0) return lower_reference(l, op);
    place in[3] = {lower_with_rows(l, op, A_x), lower_with_rows(l, op, A_cos), lower_with_rows(l, op, A_sin)};
    place y = lower_fresh(l, type);
    lower_set(l, op->out[0], y);
    if (fast_rope(l, op, in, &y)) return true;
    step_rope *s = ARENA_NEW(l->a, step_rope);
    s->x = rows_of(&in[0]);
    s->n = in[1].type.dim[in[1].type.rank - 1];
    table_strides(&in[1], type, s->cos);
    table_strides(&in[2], type, s->sin);
    s->round = lower_int(l, op, A_rounding, 0) & 1;
    s->round_result = lower_rounds(l, type);
    lower_emit(l, run_rope, s, "rope", count_rows(&s->x), 1 + 2048 / s->x.n, &y, 1, in, 3);
    return true;
}

/* The step of gate and up for one row of x. */
static plan_step *one_gated(lower *l, const step_linear part[2], const char *name, int64_t grain,
                            const place *y, const place x[2]) {
    step_gated *s = ARENA_NEW(l->a, step_gated);
    int64_t n = part[0].w.rows;
    *s = (step_gated){{part[0], part[1]}, scratch_for(part[0].c.scratch, part[1].c.scratch)};
    lower_need_scratch(l, s->up + (size_t)n * sizeof(float));
    return lower_emit(l, run_gated, s, name, n, grain, y, 1, x, 2);
}

/* For many: rows of the result are whole vectors, and what the next linear wants to read can be made of them.
 */
static plan_step *many_gated_rows(lower *l, const step_linear part[2], const char *name, int64_t grain,
                                  const place *y, const place x[2]) {
    step_gated_rows *s = ARENA_NEW(l->a, step_gated_rows);
    int64_t n = part[0].w.rows;
    *s = (step_gated_rows){.part = {part[0], part[1]},
                           .made = scratch_for(part[0].c.scratch, part[1].c.scratch) +
                                   ((size_t)n * sizeof(float) + 63) / 64 * 64};
    lower_need_scratch(l, s->made + (size_t)(2 * part[0].m * GATED_ROWS) * sizeof(float));
    grain = (grain + GATED_ROWS - 1) / GATED_ROWS * GATED_ROWS;
    return lower_emit(l, run_gated_rows, s, name, n, grain, y, 1, x, 2);
}

/* The two newest steps are linears that make gate and up for nobody else: the chunks of both are multiplied
 * where they are made. */
static bool gated_linears(lower *l, const ir_op *op, const place in[2], const place *y) {
    plan *p = l->p;
    if (l->strict || p->n_step < 2) return false;
    const plan_step *step[2] = {&p->step[p->n_step - 2], &p->step[p->n_step - 1]};
    step_linear part[2];
    place x[2];
    for (int i = 0; i < 2; i++) {
        const ir_value *v = ir_in(op, i ? A_up : A_gate);
        int at = step[0]->arg[0].buffer == in[i].buffer ? 0 : 1;
        const step_linear *linear = step[at]->param;
        if (step[at]->fn != run_linear || in[i].space != SPACE_ACT || in[i].first ||
            step[at]->arg[0].buffer != in[i].buffer || linear->add || linear->round || !lower_alone(l, v))
            return false;
        part[i] = *linear;
        x[i] = lower_place_of(&step[at]->arg[1]);
    }
    if (part[0].w.rows != part[1].w.rows || part[0].m != part[1].m || in[0].buffer == in[1].buffer ||
        ir_type_count(&in[0].type) != part[0].m * part[0].w.rows)
        return false;
    int64_t grain = step[0]->grain > step[1]->grain ? step[0]->grain : step[1]->grain;
    uint64_t bytes = step[0]->bytes + step[1]->bytes;
    const char *name = arena_printf(l->a, "gated %s", step[0]->kernel);
    lower_take_back(l);
    lower_take_back(l);
    plan_step *gated =
        part[0].m == 1 ? one_gated(l, part, name, grain, y, x) : many_gated_rows(l, part, name, grain, y, x);
    gated->bytes = bytes;
    gated->weights = 2;
    return true;
}

/* Elements of both lie in the same order without gaps, whatever order that is. */
static bool same_order(const place *x, const place *y) {
    int64_t at = 1, count = ir_type_count(&x->type);
    for (int found = 0; at < count; at *= found) { /* from the innermost dimension */
        found = 0;
        for (int d = 0; d < x->type.rank; d++)
            if (x->type.dim[d] != 1 && x->stride[d] == at && y->stride[d] == at) found = (int)x->type.dim[d];
        if (!found) return false;
    }
    return at == count;
}

/* What the newest step, a linear, made for nobody else is added to what was there before: the linear adds it.
 */
bool lower_residual(lower *l, const ir_op *op) {
    plan *p = l->p;
    if (l->strict || op->code != OP_add || !p->n_step) return false;
    const plan_step *made = &p->step[p->n_step - 1];
    const step_linear *linear = made->param;
    if (made->fn != run_linear || linear->add || linear->round) return false;
    for (int i = 0; i < 2; i++) {
        const ir_value *v = ir_in(op, i ? A_y : A_x), *other = ir_in(op, i ? A_x : A_y);
        const place *y = lower_at(l, v);
        place in[2], old = *lower_at(l, other), out;
        if (v == other || y->space != SPACE_ACT || y->store || y->first || made->arg[0].buffer != y->buffer ||
            !place_is_dense(y) || ir_type_count(&v->type) != linear->m * linear->w.rows ||
            !lower_alone(l, v) || old.space != SPACE_ACT || old.store || old.buffer == y->buffer ||
            !place_is_dense(&old) || ir_type_count(&other->type) != ir_type_count(&op->out[0]->type) ||
            ir_type_count(&v->type) != ir_type_count(&op->out[0]->type))
            continue;
        in[0] = lower_place_of(&made->arg[1]);
        in[1] = old;
        out = *y;
        step_linear *s = ARENA_NEW(l->a, step_linear);
        *s = *linear;
        s->add = 2;
        const char *name = arena_printf(l->a, "linear+%s", made->kernel + strlen("linear"));
        uint64_t bytes = made->bytes;
        int64_t grain = made->grain;
        lower_take_back(l);
        lower_emit(l, run_linear, s, name, s->w.rows, grain, &out, 1, in, 2)->bytes = bytes;
        out.type = op->out[0]->type; /* the linear's may have fewer dimensions */
        ref_strides(&out.type, out.stride);
        lower_set(l, op->out[0], out);
        return true;
    }
    return false;
}

bool lower_rounded_linear(lower *l, const ir_op *op, const place *x) {
    if (!l->p->n_step) return false;
    plan_step *made = &l->p->step[l->p->n_step - 1];
    const ir_value *v = ir_in(op, A_x);
    const step_linear *linear = made->param;
    if (made->fn != run_linear || x->space != SPACE_ACT || x->store || x->first ||
        made->arg[0].buffer != x->buffer || !place_is_dense(x) ||
        ir_type_count(&x->type) != linear->m * linear->w.rows || !lower_alone(l, v))
        return false;
    step_linear *s = ARENA_NEW(l->a, step_linear);
    *s = *linear;
    s->round = true;
    made->param = s;
    lower_set(l, op->out[0], *x);
    return true;
}

bool lower_fused_swiglu(lower *l, const ir_op *op) {
    const ir_type *type = &op->out[0]->type;
    place in[2] = {lower_cells(l, lower_in(l, op, A_gate)), lower_cells(l, lower_in(l, op, A_up))};
    place y = lower_fresh(l, type);
    if (same_order(&in[0], &in[1]))
        memcpy(y.stride, in[0].stride, sizeof y.stride);
    else
        in[0] = lower_dense(l, in[0]), in[1] = lower_dense(l, in[1]);
    lower_set(l, op->out[0], y);
    if (gated_norm(l, op, in, &y) || gated_linears(l, op, in, &y)) return true;
    step_swiglu *s = ARENA_NEW(l->a, step_swiglu);
    *s =
        (step_swiglu){ir_type_count(type), lower_int(l, op, A_rounding, 0) & 1, lower_rounds(l, type), false};
    s->fast = !l->strict && !s->round;
    lower_emit(l, run_swiglu, s, "swiglu", (s->n + 255) / 256, 4, &y, 1, in, 2);
    return true;
}
