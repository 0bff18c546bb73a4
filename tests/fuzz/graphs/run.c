/* One sample by the evaluator, in its own order of sums or in another one, and by plan. */
#include "base/num.h"
#include "base/team.h"
#include "make.h"
#include "plan/plan.h"
#include "reference/frame.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t result_count(const sample *s) {
    size_t n = s->n_state;
    for (size_t c = 0; c < s->n_call; c++) n += s->p->func[s->call[c].func]->body.n_out;
    return n;
}

static void results_new(const sample *s, results *r) {
    *r = (results){mem_alloc((result_count(s) + 1) * sizeof *r->t), 0};
    memset(r->t, 0, (result_count(s) + 1) * sizeof *r->t);
}

void results_free(results *r) {
    for (size_t i = 0; i < r->n; i++) ref_tensor_drop(&r->t[i]);
    mem_free(r->t);
    *r = (results){0};
}

static bool add_copy(results *r, const ref_tensor *t, err *e) {
    ref_tensor *to = &r->t[r->n];
    if (!ref_tensor_new(to, &t->type, e)) return false;
    r->n++;
    ref_read(t, 0, ref_count(t), to->cell);
    if (t->type.dtype == DT_FP16) num_round_f16_all(ref_floats(to), (size_t)ref_count(to));
    return true;
}

/* ---- the evaluator ---- */

static bool start_states(const sample *s, ref_tensor *state, err *e) {
    for (size_t i = 0; i < s->n_state; i++) {
        if (!ref_tensor_new(&state[i], &s->state[i].start.type, e)) return false;
        ref_read(&s->state[i].start, 0, ref_count(&state[i]), state[i].cell);
    }
    return true;
}

static bool plain_call(const sample *s, size_t c, ref_frame *frame, ref_tensor *state, results *r, err *e) {
    const ir_function *f = s->p->func[s->call[c].func];
    ref_tensor *states[MOST_IN] = {0};
    for (size_t i = 0; i < f->n_in; i++)
        if (sample_state_of(s, f->in[i]) != SIZE_MAX) states[i] = &state[sample_state_of(s, f->in[i])];
    ref_frame_call call = {.in = s->call[c].in, .state = states};
    if (!ref_frame_run(frame, &call, e)) return false;
    for (size_t i = 0; i < f->body.n_out; i++) {
        const ref_tensor *t = ref_frame_result(frame, i, e);
        if (!t || !add_copy(r, t, e)) return false;
    }
    return true;
}

static bool plain(const sample *s, bool strict, ref_tensor *state, results *r, err *e) {
    ref_frame *frame[MOST_FUNCS] = {0};
    arena *a = arena_new();
    bool good = true;
    for (size_t i = 0; i < s->p->n_func && good; i++) {
        frame[i] = ref_frame_new(ref_plan_new(a, s->p->func[i]), strict ? REF_STRICT : REF_FAST, e);
        good = frame[i];
    }
    for (size_t c = 0; c < s->n_call && good; c++)
        good = plain_call(s, c, frame[s->call[c].func], state, r, e);
    for (size_t i = 0; i < s->p->n_func; i++)
        if (frame[i]) ref_frame_free(frame[i]);
    arena_free(a);
    return good;
}

/* ---- the evaluator, shaken ---- */

typedef struct {
    const sample *s;
    const ir_function *f;
    bool strict, coarse;
    dice d;
    ref_eval v;
    ref_tensor *state;
    bool *live; /* by value id: something comes of it */
} shaker;

/* Kernels add in vectors of 16 and approximate exp to some units; twice as much as they were seen to differ.
 */
#define SHAKE        0x1p-21f
#define SHAKE_COARSE 0x1p-16f

static void shake(shaker *k, ref_tensor *t, float most) {
    for (int64_t i = 0; i < ref_count(t); i++) ref_floats(t)[i] *= 1 + most * roll_float(&k->d);
}

static bool sums(ir_opcode code) {
    switch (code) {
    case OP_linear:
    case OP_matmul:
    case OP_einsum:
    case OP_conv:
    case OP_conv_transpose:
    case OP_scaled_dot_product_attention:
    case OP_softmax:
    case OP_layer_norm:
    case OP_l2_norm:
    case OP_instance_norm:
    case OP_batch_norm:
    case OP_reduce_sum:
    case OP_reduce_mean:
    case OP_reduce_prod:
    case OP_reduce_sum_square:
    case OP_reduce_l2_norm:
    case OP_reduce_l1_norm:
    case OP_reduce_log_sum_exp:
    case OP_reduce_log_sum:
    case OP_cumsum:
    case OP_scatter:
    case OP_scatter_along_axis:
    case OP_scatter_nd:
    case OP_sin: /* the argument is brought into one turn first */
    case OP_cos: return true;
    default: return false;
    }
}

/* What a number path may do to an operand: relative to the element, or to the largest of all. Twice what its
 * rounding does, or that of the more accurate ones that may be taken instead. */
static float relative_error(kern_path p) {
    return p >= KERN_BF16 ? 0x1p-8f : 0;
}
static float absolute_error(kern_path p) {
    return p == KERN_INT8 ? 1 / 127.0f : p != KERN_EXACT ? 0x1p-15f : 0;
}

static bool packed_weight(const ir_value *v) {
    bool made = v->def && ir_info(v->def->code)->flags & OPF_CONSTEXPR;
    return made || (v->konst && v->type.dtype == DT_FP16);
}

/* The path that the product may take, KERN_EXACT where it has none. A few rows or many: the worse. */
static kern_path path_of(const shaker *k, const ir_op *op) {
    const ir_value *w = NULL;
    bool product = op->code == OP_linear || op->code == OP_conv;
    if (k->strict || (!product && op->code != OP_matmul && op->code != OP_einsum)) return KERN_EXACT;
    for (int s = 0; s < ir_info(op->code)->n_slot; s++)
        for (uint32_t x = 0; x < op->arg[s].n; x++)
            if (packed_weight(op->arg[s].v[x]) && op->arg[s].v[x]->type.rank > 1) w = op->arg[s].v[x];
    if (!w) return KERN_EXACT;
    plan_linear l = k->s->linear;
    if (op->code == OP_linear) {
        const ref_tensor *x = &k->v.env[ir_in(op, A_x)->id];
        int64_t rows = ref_count(x) / (x->type.dim[x->type.rank - 1] + !x->type.dim[x->type.rank - 1]);
        return rows < PLAN_PREFILL ? l.decode : l.prefill;
    }
    return l.decode > l.prefill ? l.decode : l.prefill;
}

static void shake_for(shaker *k, ref_tensor *t, kern_path path) {
    float most = 0, part = absolute_error(path);
    if (relative_error(path) > 0) shake(k, t, relative_error(path));
    if (!(part > 0)) return;
    for (int64_t i = 0; i < ref_count(t); i++) most = fmaxf(most, fabsf(ref_floats(t)[i]));
    for (int64_t i = 0; i < ref_count(t) && isfinite(most); i++)
        ref_floats(t)[i] += part * most * roll_float(&k->d);
}

#define MOST_MOVED 4

typedef struct {
    ref_tensor *at, was;
} moved_operand;

/* The float operands of a sum, moved; moved: what they were. */
static bool shake_operands(shaker *k, const ir_op *op, moved_operand *moved, int *n, err *e) {
    bool tiles = op->code == OP_matmul || op->code == OP_scaled_dot_product_attention;
    kern_path path = path_of(k, op);
    for (int s = 0; s < ir_info(op->code)->n_slot; s++)
        for (uint32_t x = 0; x < op->arg[s].n && *n < MOST_MOVED; x++) {
            const ir_value *v = op->arg[s].v[x];
            ref_tensor *t = &k->v.env[v->id], copy;
            bool again = false;
            for (int i = 0; i < *n; i++) again |= moved[i].at == t;
            bool fixed = v->konst && (path == KERN_EXACT || !packed_weight(v));
            if (again || fixed || !dtype_is_float((ir_dtype)v->type.dtype)) continue;
            if (!ref_tensor_new(&copy, &t->type, e)) return false;
            ref_read(t, 0, ref_count(&copy), copy.cell);
            shake(k, &copy, k->coarse && tiles ? SHAKE_COARSE : SHAKE);
            shake_for(k, &copy, path);
            moved[(*n)++] = (moved_operand){t, *t};
            *t = copy;
        }
    return true;
}

static bool op_lives(const bool *live, const ir_op *op) {
    bool lives = op->code == OP_write_state;
    for (uint32_t i = 0; i < op->n_out; i++) lives |= live[op->out[i]->id];
    return lives;
}

static void find_live(const ir_function *f, bool *live) {
    for (size_t i = 0; i < f->body.n_out; i++) live[f->body.out[i]->id] = true;
    for (size_t i = f->body.n_op; i-- > 0;) {
        const ir_op *op = f->body.op[i];
        for (int s = 0; s < ir_info(op->code)->n_slot && op_lives(live, op); s++)
            for (uint32_t x = 0; x < op->arg[s].n; x++) live[op->arg[s].v[x]->id] = true;
    }
}

/* Outside of strict mode products may read what a cast to fp16 would have rounded. */
static bool only_products_read(const shaker *k, const ir_value *v, size_t from) {
    const ir_function *f = k->f;
    for (size_t i = 0; i < f->body.n_out; i++)
        if (f->body.out[i] == v) return false;
    for (size_t i = from; i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        for (int s = 0; s < ir_info(op->code)->n_slot && op_lives(k->live, op); s++)
            for (uint32_t x = 0; x < op->arg[s].n; x++) {
                if (op->arg[s].v[x] != v) continue;
                bool reads = op->code == OP_linear || op->code == OP_matmul ||
                             op->code == OP_scaled_dot_product_attention || op->code == OP_slice_update ||
                             op->code == OP_conv;
                bool view = op->code == OP_reshape || op->code == OP_transpose || op->code == OP_squeeze ||
                            op->code == OP_expand_dims || op->code == OP_identity ||
                            op->code == OP_slice_by_index || op->code == OP_slice_by_size ||
                            op->code == OP_tile || op->code == OP_flatten2d;
                if (!reads && !(view && only_products_read(k, op->out[0], i + 1))) return false;
            }
    }
    return true;
}

/* What is written to a state, by itself or into rows of it, is rounded there; who reads it beside that may
 * see it before or behind. */
static bool goes_to_state(const ir_function *f, const ir_value *v) {
    for (size_t i = 0; i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        if (op->code == OP_write_state && ir_in(op, A_data) == v) return true;
        bool row = op->code == OP_slice_update && ir_in(op, A_update) == v;
        bool view = (op->code == OP_squeeze || op->code == OP_expand_dims || op->code == OP_reshape) &&
                    ir_in(op, A_x) == v;
        if ((row || view) && goes_to_state(f, op->out[0])) return true;
    }
    return false;
}

static bool has_nan(const ref_tensor *t) {
    for (int64_t i = 0; i < ref_count(t); i++)
        if (isnan(ref_floats(t)[i])) return true;
    return false;
}

/* A blended cache leaves rows alone where the mask is 0, whatever the mask would have been multiplied with:
 * 0 times infinity may be 0. */
static void forgive_blend(shaker *k, const ir_op *op) {
    ref_tensor *y = &k->v.env[op->out[0]->id];
    const ir_value *a = ir_in(op, A_x), *b = ir_in(op, A_y);
    bool mask = ir_type_count(&a->type) < ref_count(y) || ir_type_count(&b->type) < ref_count(y);
    if (!mask || !roll(&k->d, 2) || !ref_buf_sole(y->buf)) return;
    for (int i = 0; i < 2; i++) {
        ref_tensor x, *t = &k->v.env[(i ? b : a)->id];
        err e = {0};
        if (!ref_tensor_new(&x, &t->type, &e)) return;
        ref_read(t, 0, ref_count(t), x.cell);
        bool nan = has_nan(&x);
        ref_tensor_drop(&x);
        if (nan) return;
    }
    for (int64_t i = 0; i < ref_count(y); i++)
        if (isnan(ref_floats(y)[i])) ref_floats(y)[i] = 0;
}

static bool shaken_op(shaker *k, const ir_op *op, size_t index, err *e) {
    moved_operand moved[MOST_MOVED];
    int n_moved = 0;
    bool exact = ref_op_row_of(op->code)->exact, good = true;
    bool unrounded = !k->strict && op->code == OP_cast && op->out[0]->type.dtype == DT_FP16 &&
                     ir_in(op, A_x)->type.dtype == DT_FP32 && only_products_read(k, op->out[0], index + 1) &&
                     roll(&k->d, 2);
    if (unrounded) {
        ref_tensor *x = &k->v.env[ir_in(op, A_x)->id], *y = &k->v.env[op->out[0]->id];
        if (!ref_tensor_new(y, &x->type, e)) return false;
        ref_read(x, 0, ref_count(x), y->cell);
        y->type.dtype = DT_FP16;
        return true;
    }
    if (sums(op->code)) good = shake_operands(k, op, moved, &n_moved, e);
    k->v.mode = k->strict && (ir_info(op->code)->flags & OPF_CONSTEXPR) ? REF_STRICT : REF_FAST;
    good = good && ref_eval_op(&k->v, op);
    for (int i = 0; i < n_moved; i++) {
        ref_tensor_drop(moved[i].at);
        *moved[i].at = moved[i].was;
    }
    for (uint32_t i = 0; i < op->n_out && good; i++) {
        ref_tensor *t = &k->v.env[op->out[i]->id];
        if (!dtype_is_float((ir_dtype)t->type.dtype) || !ref_buf_sole(t->buf)) continue;
        if (op->code == OP_mul) forgive_blend(k, op);
        if (!exact && !(ir_info(op->code)->flags & OPF_CONSTEXPR)) shake(k, t, SHAKE);
        bool rounds = (k->strict && !exact) || (goes_to_state(k->f, op->out[i]) && roll(&k->d, 2));
        if (rounds && t->type.dtype == DT_FP16) num_round_f16_all(ref_floats(t), (size_t)ref_count(t));
    }
    return good;
}

static bool shaken_state(shaker *k, const ir_op *op, err *e) {
    ref_tensor *state = &k->state[sample_state_of(k->s, ir_in(op, A_input))];
    bool reads = op->code == OP_read_state;
    ref_tensor *from = reads ? state : &k->v.env[ir_in(op, A_data)->id],
               *to = reads ? &k->v.env[op->out[0]->id] : state, copy;
    if (!ref_tensor_new(&copy, &from->type, e)) return false;
    ref_read(from, 0, ref_count(from), copy.cell);
    if (copy.type.dtype == DT_FP16) num_round_f16_all(ref_floats(&copy), (size_t)ref_count(&copy));
    ref_tensor_drop(to);
    *to = copy;
    return true;
}

static bool shaken_body(shaker *k, err *e) {
    const ir_block *b = &k->f->body;
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        bool good = true;
        for (int s = 0; s < ir_info(op->code)->n_slot; s++) /* constants in place */
            for (uint32_t x = 0; x < op->arg[s].n && good; x++) {
                const ir_value *v = op->arg[s].v[x];
                ref_tensor *t = &k->v.env[v->id];
                if (v->konst && !t->konst && !t->cell) good = ref_tensor_const(t, v->konst, e);
            }
        if (op->code == OP_const)
            good = good && ref_tensor_const(&k->v.env[op->out[0]->id], op->out[0]->konst, e);
        else if (op->code == OP_read_state || op->code == OP_write_state)
            good = good && shaken_state(k, op, e);
        else
            good = good && shaken_op(k, op, i, e);
        if (!good) return false;
    }
    return true;
}

static bool shaken_call(shaker *k, const sample_call *call, results *r, err *e) {
    const ir_function *f = k->f;
    arena *scratch = arena_new(), *names = arena_new();
    k->v = (ref_eval){
        .spec = f->spec, .env = mem_try(f->n_values + 1, sizeof *k->v.env), .scratch = scratch, .e = e};
    for (size_t i = 0; i < f->n_in; i++) {
        if (f->in[i]->type.kind != IR_TENSOR) continue;
        k->v.env[f->in[i]->id] = call->in[i];
        ref_buf_keep(call->in[i].buf);
    }
    k->live = ARENA_ARRAY(names, bool, f->n_values + 1);
    find_live(f, k->live);
    bool good = shaken_body(k, e);
    for (size_t i = 0; i < f->body.n_out && good; i++) good = add_copy(r, &k->v.env[f->body.out[i]->id], e);
    for (uint32_t i = 0; i < f->n_values; i++) ref_tensor_drop(&k->v.env[i]);
    ref_eval_free_spares(&k->v);
    mem_free(k->v.env);
    arena_free(scratch);
    arena_free(names);
    return good;
}

bool by_evaluator(const sample *s, bool strict, shaking how, results *r, err *e) {
    ref_tensor state[MOST_STATES] = {0};
    results_new(s, r);
    bool good = start_states(s, state, e);
    if (good && !how.seed) good = plain(s, strict, state, r, e);
    for (size_t c = 0; c < s->n_call && good && how.seed; c++) {
        shaker k = {.s = s,
                    .f = s->p->func[s->call[c].func],
                    .strict = strict,
                    .coarse = how.coarse,
                    .d = dice_of(how.seed * MOST_CALLS + c),
                    .state = state};
        good = shaken_call(&k, &s->call[c], r, e);
    }
    for (size_t i = 0; i < s->n_state && good; i++) good = add_copy(r, &state[i], e);
    for (size_t i = 0; i < s->n_state; i++) ref_tensor_drop(&state[i]);
    if (!good) results_free(r);
    return good;
}

/* ---- the plan ---- */

static team *teams[9];

static team *team_of(unsigned threads) {
    if (!teams[threads]) teams[threads] = team_new(threads, false);
    return teams[threads];
}

void run_close(void) {
    for (int i = 0; i < 9; i++) team_free(teams[i]), teams[i] = NULL;
}

typedef struct {
    kern_table kernels;
    kern_rounded ops;
    kern_ops fast;
    plan *p[MOST_CALLS];
    plan_exec *x[MOST_CALLS];
    plan_block *block;
    void *state[MOST_STATES];
} planner;

/* As runtime/engine.c: a float row of flexible length is left open. */
static bool open_lengths(const ir_function *f, ir_type *in) {
    bool any = false;
    for (size_t i = 0; i < f->n_in; i++) {
        const ir_type *t = &f->in[i]->type;
        int last = t->rank - 1;
        if (t->kind != IR_TENSOR || last < 1 || !dtype_is_float((ir_dtype)t->dtype) ||
            t->dim[last] != IR_DIM_UNKNOWN || ir_type_count(&in[i]) != in[i].dim[last])
            continue;
        in[i].dim[last] = IR_DIM_UNKNOWN;
        any = true;
    }
    return any;
}

static bool same_types(const sample *s, size_t a, size_t b) {
    const ir_function *f = s->p->func[s->call[a].func];
    if (s->call[a].func != s->call[b].func) return false;
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i]->type.kind == IR_TENSOR &&
            !ir_type_equal(&s->call[a].in[i].type, &s->call[b].in[i].type))
            return false;
    return true;
}

/* The plan of call c; calls of one function and the same sizes share it. */
static bool plan_call_of(planner *l, const sample *s, size_t c, const plan_form *form, err *e) {
    const ir_function *f = s->p->func[s->call[c].func];
    for (size_t k = 0; k < c; k++)
        if (same_types(s, k, c)) {
            l->x[c] = l->x[k];
            return true;
        }
    ir_type types[MOST_IN], open[MOST_IN];
    for (size_t i = 0; i < f->n_in; i++) open[i] = types[i] = s->call[c].in[i].type;
    const plan_options o = {form->strict, &l->kernels, &l->ops, &l->fast, s->linear, form->dump, "fuse"};
    err ignored = {0};
    if (open_lengths(f, open)) l->p[c] = plan_new(f, open, &o, &ignored);
    if (!l->p[c]) l->p[c] = plan_new(f, types, &o, e);
    if (l->p[c]) l->x[c] = plan_exec_new(l->p[c], e);
    return l->x[c];
}

static bool planned_call(planner *l, const sample *s, size_t c, const plan_form *form, results *r, err *e) {
    const ir_function *f = s->p->func[s->call[c].func];
    void *packed[MOST_IN] = {0};
    ref_tensor *out = mem_alloc((f->body.n_out + 1) * sizeof *out);
    memset(out, 0, (f->body.n_out + 1) * sizeof *out);
    for (size_t i = 0; i < f->n_in; i++)
        if (sample_state_of(s, f->in[i]) != SIZE_MAX) packed[i] = l->state[sample_state_of(s, f->in[i])];
    plan_call call = {.in = s->call[c].in,
                      .out = out,
                      .state = packed,
                      .team = team_of(form->threads),
                      .block = l->block,
                      .borrow = form->borrow};
    bool good = plan_run(l->x[c], &call, e);
    for (size_t i = 0; i < f->body.n_out && good; i++) good = add_copy(r, &out[i], e);
    for (size_t i = 0; i < f->body.n_out; i++) ref_tensor_drop(&out[i]);
    mem_free(out);
    return good;
}

static bool add_states(const planner *l, const sample *s, results *r, err *e) {
    for (size_t i = 0; i < s->n_state; i++) {
        const ir_const c = {.type = s->state[i].start.type, .data = l->state[i]};
        const ref_tensor t = {.type = c.type, .konst = &c};
        if (!add_copy(r, &t, e)) return false;
    }
    return true;
}

bool by_plan(const sample *s, const plan_form *form, results *r, err *e) {
    planner *l = mem_alloc(sizeof *l);
    *l = (planner){.block = plan_block_new()};
    results_new(s, r);
    bool good = kern_open(&l->kernels, form->isa, e) && kern_ops_open(&l->fast, form->isa, e);
    kern_rounded_open(&l->ops, form->isa);
    for (size_t i = 0; i < s->n_state; i++) {
        l->state[i] = mem_alloc((size_t)ref_count(&s->state[i].start) * 4 + 4);
        ref_pack(&s->state[i].start, l->state[i]);
    }
    for (size_t c = 0; c < s->n_call && good; c++) good = plan_call_of(l, s, c, form, e);
    for (size_t c = 0; c < s->n_call && good; c++) good = planned_call(l, s, c, form, r, e);
    good = good && add_states(l, s, r, e);
    for (size_t c = 0; c < s->n_call; c++)
        if (l->p[c]) plan_exec_free(l->x[c]), plan_free(l->p[c]);
    for (size_t i = 0; i < s->n_state; i++) mem_free(l->state[i]);
    plan_block_free(l->block);
    mem_free(l);
    if (!good) results_free(r);
    return good;
}
