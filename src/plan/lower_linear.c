/* Ops with weights: constants that stay packed as they lie in the package. */
#include "plan/lower.h"
#include "plan/steps.h"
#include "plan/weight.h"
#include "reference/walk.h"
#include <string.h>

/* The newest step makes x, gated, for nobody else: it can prepare it, too. */
static bool prepared_by_gate(lower *l, const lower_matrix *p, const kern_choice *c, const place *y) {
    const plan_step *made = l->p->n_step ? &l->p->step[l->p->n_step - 1] : NULL;
    if (!p->alone || !c->prepare_part || !made || made->fn != run_gated_rows || p->x.space != SPACE_ACT ||
        made->arg[0].buffer != p->x.buffer || p->x.first)
        return false;
    const step_gated_rows *gated = made->param;
    if (gated->prepare || gated->part[0].m != p->m || gated->part[0].w.rows != p->k) return false;
    step_gated_rows *s = ARENA_NEW(l->a, step_gated_rows);
    *s = *gated;
    s->prepare = c->prepare_part;
    plan_step old = *made;
    place in[2] = {lower_place_of(&old.arg[1]), lower_place_of(&old.arg[2])};
    lower_take_back(l);
    plan_step *step = lower_emit(l, run_gated_rows, s, old.kernel, old.extent, old.grain, y, 1, in, 2);
    step->bytes = old.bytes, step->weights = old.weights, step->origin = old.origin;
    return true;
}

/* x [m,k] as the kernel wants to read it. Linears of one x share what was prepared. */
static place prepared(lower *l, const lower_matrix *p, const kern_choice *c, const kern_choice *many) {
    const place *x = &p->x;
    int64_t m = p->m, k = p->k;
    if (!c->prepare) return *x;
    int form = (int)c->form * KERN_X_FORMS + (int)many->form;
    for (size_t i = 0; i < l->n_prepared; i++) {
        const lower_prepared *q = &l->prepared[i];
        if (q->form == form && q->k == k && q->m == m && q->x.space == x->space && q->x.buffer == x->buffer &&
            q->x.first == x->first && q->x.data == x->data)
            return q->y;
    }
    size_t bytes = kern_x_bytes(c->form, k, m);
    ir_type type = IR_TYPE(DT_INT32, (int64_t)((bytes + 3) / 4));
    place y = lower_fresh(l, &type);
    if (prepared_by_gate(l, p, c, &y)) return y;
    step_prepare *s = ARENA_NEW(l->a, step_prepare);
    *s = (step_prepare){.fn = c->prepare, .many = many->prepare, .m = m, .k = k, .form = c->form};
    if (!lower_made(l, s, &y, x)) lower_emit(l, run_prepare, s, "prepare", m, 16, &y, 1, x, 1);
    l->prepared = arena_grow(l->a, l->prepared, l->n_prepared, &l->cap_prepared, l->n_prepared + 1,
                             sizeof *l->prepared);
    l->prepared[l->n_prepared++] = (lower_prepared){*x, y, m, k, form};
    return y;
}

static const char *const kinds[KERN_W_KINDS] = {
    [KERN_W_ANY] = "any",         [KERN_W_F32] = "fp32",         [KERN_W_F16] = "fp16",
    [KERN_W_CHANNEL8] = "int8",   [KERN_W_BLOCK8] = "int8 b32",  [KERN_W_BLOCK4] = "int4 b32",
    [KERN_W_PALETTE] = "palette", [KERN_W_PALETTE4] = "palette",
};

static kern_path path_for(const lower *l, const kern_weight *w, int64_t m) {
    if (l->strict || kern_kind_of(w) == KERN_W_F32) return KERN_EXACT;
    return m < PLAN_PREFILL ? l->linear.decode : l->linear.prefill;
}

bool lower_product(lower *l, const lower_matrix *p, place *y) {
    if (p->n < 1 || p->k < 1 || p->m < 1) return false;
    step_linear *s = ARENA_NEW(l->a, step_linear);
    if (!plan_weight(p->weight, p->n, p->k, &s->w)) {
        place *w = lower_at(l, p->weight); /* kept as fp32: nothing reads it as it lies */
        if ((w->weight || w->store) && !lower_expand(l, w)) return false;
        s->w = (kern_weight){
            .rows = p->n, .cols = p->k, .block_rows = p->n, .block_cols = p->k, .data = w->data};
    }
    s->w.rounded = s->w.scale && lower_rounds(l, &p->weight->type);
    s->c = kern_choose(l->kernels, &s->w, path_for(l, &s->w, p->m), p->m);
    s->many = kern_choose_again(l->kernels, &s->w, &s->c, 2);
    s->m = p->m;
    s->round = p->round;
    s->bias = p->bias;
    place in[2] = {prepared(l, p, &s->c, &s->many)};
    uint32_t n_in = 1;
    if (p->add) {
        s->add = 1 + n_in;
        in[n_in++] = *p->add;
    }
    size_t scratch = s->c.scratch;
    if (scratch > l->p->scratch) l->p->scratch = scratch;
    int64_t grain = 1 + 32768 / (p->k * p->m);
    if (p->n <= grain && p->n * p->k > 4096) grain = (p->n + 1) / 2; /* for two workers at least */
    grain = (grain + s->c.grain - 1) / s->c.grain * s->c.grain;
    const char *name = arena_printf(l->a, p->add ? "linear+ %s %s" : "linear %s %s",
                                    kinds[kern_kind_of(&s->w)], kern_path_name[s->c.path]);
    lower_emit(l, run_linear, s, name, p->n, grain, y, 1, in, n_in)->bytes = plan_weight_bytes(&s->w);
    return true;
}

/* A constant vector as floats; NULL when absent. */
const float *lower_vector(lower *l, const ir_op *op, ir_operand name) {
    if (!ir_in(op, name)) return NULL;
    place b = lower_dense(l, lower_in(l, op, name));
    return b.space == SPACE_CONST ? (const float *)b.data + b.first : NULL;
}

bool lower_linear(lower *l, const ir_op *op) {
    const ir_value *wv = ir_in(op, A_weight);
    const ir_type *type = &op->out[0]->type;
    if (!dtype_is_float((ir_dtype)type->dtype) || wv->type.rank != 2 || ir_type_count(type) == 0 ||
        ir_type_count(&wv->type) == 0)
        return lower_reference(l, op);
    place y = lower_fresh(l, type);
    lower_matrix p = {.weight = wv,
                      .m = ir_type_count(type) / wv->type.dim[0],
                      .n = wv->type.dim[0],
                      .k = wv->type.dim[1],
                      .x = lower_dense(l, lower_in(l, op, A_x)),
                      .bias = lower_vector(l, op, A_bias),
                      .alone = lower_alone(l, ir_in(op, A_x)),
                      .round = lower_rounds(l, type)};
    place add;
    if (op->code == OP_fused_linear) {
        add = lower_dense(l, lower_in(l, op, A_add));
        p.add = &add;
    }
    if (!lower_product(l, &p, &y)) return false;
    lower_set(l, op->out[0], y);
    return true;
}

static bool gather_packed(lower *l, const ir_op *op, const kern_weight *w) {
    step_gather *g = ARENA_NEW(l->a, step_gather);
    place index = lower_dense(l, lower_in(l, op, A_indices)), o = lower_fresh(l, &op->out[0]->type);
    *g = (step_gather){.count = ir_type_count(&index.type),
                       .width = w->cols,
                       .rows = w->rows,
                       .w = *w,
                       .decode = l->kernels->decode,
                       .round = lower_rounds(l, &op->out[0]->type)};
    plan_step *s = lower_emit(l, run_gather_packed, g, "gather packed", g->count, 1 + 4096 / (g->width + 1),
                              &o, 1, &index, 1);
    s->bytes = plan_weight_bytes(w) / (uint64_t)w->rows * (uint64_t)g->count;
    lower_set(l, op->out[0], o);
    return true;
}

/* Rows of a table: along axis 0, or the first one that has more than one element. */
bool lower_gather(lower *l, const ir_op *op) {
    const ir_value *tv = ir_in(op, A_x), *iv = ir_in(op, A_indices);
    place *t = lower_at(l, tv);
    int axis = lower_axis(l, op, A_axis, 0, tv->type.rank);
    if (axis < 0 || axis >= tv->type.rank || ref_outer(&tv->type, axis) != 1 ||
        lower_int(l, op, A_batch_dims, 0) != 0 || lower_int(l, op, A_validate_indices, 0) ||
        tv->type.dim[axis] == 0)
        return lower_reference(l, op);
    int64_t rows = tv->type.dim[axis], width = ref_inner(&tv->type, axis);
    kern_weight w;
    if (t->weight && plan_weight(tv, rows, width, &w)) return gather_packed(l, op, &w);
    if ((t->weight || (t->store && t->store != DT_FP16)) && !lower_expand(l, t)) return false;
    place table = *t, index = lower_dense(l, lower_in(l, op, A_indices)),
          o = lower_fresh(l, &op->out[0]->type);
    if (!place_is_dense(&table)) table = lower_dense(l, table);
    step_gather *g = ARENA_NEW(l->a, step_gather);
    *g = (step_gather){.count = ir_type_count(&iv->type), .width = width, .rows = rows, .store = table.store};
    place in[2] = {index, table};
    plan_step *s = lower_emit(l, run_gather, g, "gather", g->count, 1 + 4096 / (g->width + 1), &o, 1, in, 2);
    s->bytes = (uint64_t)(g->count * g->width) * (g->store ? 2 : 4);
    lower_set(l, op->out[0], o);
    return true;
}

bool lower_gather_along_axis(lower *l, const ir_op *op) {
    const ir_type *tx = &ir_in(op, A_x)->type, *ti = &ir_in(op, A_indices)->type;
    int axis = lower_axis(l, op, A_axis, 0, tx->rank);
    if (axis < 0 || axis >= tx->rank || lower_int(l, op, A_validate_indices, 0) || tx->dim[axis] == 0 ||
        ir_type_count(ti) == 0)
        return lower_reference(l, op);
    step_gather_along *g = ARENA_NEW(l->a, step_gather_along);
    *g = (step_gather_along){
        .count = ir_type_count(ti), .n = tx->dim[axis], .m = ti->dim[axis], .inner = ref_inner(tx, axis)};
    place in[2] = {lower_dense(l, lower_in(l, op, A_x)), lower_dense(l, lower_in(l, op, A_indices))},
          o = lower_fresh(l, &op->out[0]->type);
    lower_emit(l, run_gather_along, g, "gather along", g->count, 1024, &o, 1, in, 2);
    lower_set(l, op->out[0], o);
    return true;
}

/* A depthwise convolution of sequences without padding. */
static bool depthwise(lower *l, const ir_op *op) {
    const ir_value *xv = ir_in(op, A_x), *wv = ir_in(op, A_weight);
    size_t n;
    const int64_t *stride = lower_ints(l, op, A_strides, &n);
    const char *pad = ir_in(op, A_pad_type) && ir_in(op, A_pad_type)->konst
                          ? ir_const_text(ir_in(op, A_pad_type)->konst)
                          : "valid";
    bool ok = xv->type.rank == 3 && wv->type.rank == 3 && wv->konst && wv->type.dim[1] == 1 &&
              lower_int(l, op, A_groups, 1) == xv->type.dim[1] && wv->type.dim[0] == xv->type.dim[1] &&
              (!stride || stride[0] == 1) && lower_int(l, op, A_dilations, 1) == 1 && pad &&
              !strcmp(pad, "valid") && !ir_in(op, A_bias);
    if (!ok) return false;
    place x = lower_cells(l, lower_in(l, op, A_x)), w = lower_in(l, op, A_weight),
          y = lower_fresh(l, &op->out[0]->type), in[2] = {x, w};
    step_conv *s = ARENA_NEW(l->a, step_conv);
    *s = (step_conv){.n = xv->type.dim[0],
                     .channels = xv->type.dim[1],
                     .out = op->out[0]->type.dim[2],
                     .taps = wv->type.dim[2],
                     .xn = x.stride[0],
                     .xc = x.stride[1],
                     .xt = x.stride[2],
                     .round = lower_rounds(l, &op->out[0]->type)};
    lower_emit(l, run_conv, s, "conv depthwise", s->n * s->channels, 1 + 2048 / (s->out * s->taps), &y, 1, in,
               2);
    lower_set(l, op->out[0], y);
    return true;
}

/* A 1x1 convolution is a linear of the transposed x: [1,C,..,T] -> rows of C. */
static bool pointwise(lower *l, const ir_op *op) {
    const ir_value *xv = ir_in(op, A_x), *wv = ir_in(op, A_weight);
    const ir_type *type = &op->out[0]->type;
    size_t n;
    const int64_t *stride = lower_ints(l, op, A_strides, &n), *pad;
    int rank = xv->type.rank;
    if (xv->type.dim[0] != 1 || lower_int(l, op, A_groups, 1) != 1 || ir_type_count(type) == 0 ||
        (ir_in(op, A_bias) && !ir_in(op, A_bias)->konst))
        return false;
    for (size_t i = 0; i < n; i++)
        if (stride[i] != 1) return false;
    pad = lower_ints(l, op, A_pad, &n);
    for (size_t i = 0; i < n; i++)
        if (pad[i]) return false;
    for (int d = 2; d < rank; d++)
        if (wv->type.dim[d] != 1 || type->dim[d] != xv->type.dim[d]) return false;
    int64_t t = ref_inner(&xv->type, 1), c = wv->type.dim[1], m = wv->type.dim[0];
    ir_type columns = IR_TYPE(xv->type.dtype, c, t), result = IR_TYPE(type->dtype, t, m);
    place x = lower_in(l, op, A_x), rows;
    if (!place_reshape(&x, &columns, &rows)) {
        x = lower_dense(l, x);
        place_reshape(&x, &columns, &rows);
    }
    rows.konst = NULL;
    rows.type = IR_TYPE(xv->type.dtype, t, c);
    int64_t step = rows.stride[0];
    rows.stride[0] = rows.stride[1];
    rows.stride[1] = step;
    place y = lower_fresh(l, &result), turned = y, back;
    lower_matrix p = {.weight = wv,
                      .m = t,
                      .n = m,
                      .k = c,
                      .x = lower_dense(l, rows),
                      .bias = lower_vector(l, op, A_bias),
                      .alone = lower_alone(l, xv),
                      .round = lower_rounds(l, type)};
    if (!lower_product(l, &p, &y)) return false;
    turned.type = IR_TYPE(type->dtype, m, t);
    turned.stride[0] = 1, turned.stride[1] = m;
    if (!place_reshape(&turned, type, &back)) {
        turned = lower_dense(l, turned);
        place_reshape(&turned, type, &back);
    }
    lower_set(l, op->out[0], back);
    return true;
}

bool lower_conv(lower *l, const ir_op *op) {
    const ir_value *xv = ir_in(op, A_x), *wv = ir_in(op, A_weight);
    bool constant = wv->konst || (wv->def && ir_info(wv->def->code)->flags & OPF_CONSTEXPR);
    if (constant && xv->type.rank >= 3 && wv->type.rank == xv->type.rank && pointwise(l, op)) return true;
    if (l->e->code) return false;
    return depthwise(l, op) || (!l->e->code && lower_reference(l, op));
}
