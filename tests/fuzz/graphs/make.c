/* Numbers, the pool, and the program around the ops. */
#include "make.h"
#include "ir/infer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CELLS 6000 /* of a value that others may use */

/* ---- numbers ---- */

/* No infinities: what hides behind a mask is multiplied by 0 or not looked at, and a product rearranged
 * differs. */
static float wild_number(maker *m) {
    static const float odd[] = {0, -0.0f, 60000, -60000, 3e4f, 1e-7f, -6e-8f, 6e-5f, 1e-3f, 300, -1000, 17};
    switch (roll(&m->d, 12)) {
    case 0: return odd[roll(&m->d, sizeof odd / sizeof *odd)];
    default: return roll_float(&m->d) * 4;
    }
}

float make_number(maker *m) {
    if (m->style == STYLE_EXACT) return (float)roll(&m->d, 9) - 4;
    return m->style == STYLE_WILD ? wild_number(m) : roll_float(&m->d);
}

static int32_t make_int(maker *m) {
    return (int32_t)roll(&m->d, 14) - 4;
}

ir_value *make_const(maker *m, ir_dtype d, ir_type shape) {
    int64_t n = ir_type_count(&shape);
    if (dtype_is_float(d)) {
        float *x = ARENA_ARRAY(m->a, float, (size_t)n + 1);
        for (int64_t i = 0; i < n; i++) x[i] = make_number(m);
        return b_floats(&m->b, d, x, shape);
    }
    shape.dtype = (uint8_t)d;
    int32_t *x = ARENA_ARRAY(m->a, int32_t, (size_t)n + 1);
    uint8_t *bit = (uint8_t *)x;
    for (int64_t i = 0; i < n; i++) {
        if (d == DT_BOOL)
            bit[i] = roll(&m->d, 2) != 0;
        else
            x[i] = make_int(m);
    }
    return b_const(&m->b, NULL, ir_const_new(m->a, shape, x));
}

ir_value *make_scalar(maker *m, ir_dtype d, float v) {
    if (d == DT_INT32) return b_i32(&m->b, (int32_t)v);
    if (d == DT_BOOL) return b_bool(&m->b, v != 0);
    return d == DT_FP16 ? b_f16(&m->b, v) : b_f32(&m->b, v);
}

/* ---- inputs ---- */

static ir_value *add_input(maker *m, ir_type t, int32_t low, int32_t high) {
    char name[16];
    size_t at = m->b.f ? m->b.f->n_in : 0;
    snprintf(name, sizeof name, "x%zu", at);
    ir_value *v = b_input(&m->b, name, t);
    if (!ok(m) || at >= MOST_IN) return v;
    for (size_t c = 0; c < MADE_CALLS; c++) {
        ref_tensor *r = &m->in[c][at];
        if (!ref_tensor_new(r, &t, m->e)) return v;
        for (int64_t i = 0; i < ref_count(r); i++) {
            if (!dtype_is_float((ir_dtype)t.dtype))
                ref_ints(r)[i] = low + (int32_t)roll(&m->d, (uint32_t)(high - low + 1));
            else
                ref_floats(r)[i] = make_number(m);
        }
        if (t.dtype == DT_FP16) num_round_f16_all(ref_floats(r), (size_t)ref_count(r));
    }
    ref_buf_keep(m->in[0][at].buf);
    m->env[v->id] = m->in[0][at];
    return v;
}

ir_value *make_input(maker *m, ir_dtype d, ir_type shape) {
    shape.dtype = (uint8_t)d;
    return d == DT_BOOL ? add_input(m, shape, 0, 1) : add_input(m, shape, -4, 9);
}

ir_value *make_ints(maker *m, ir_type shape, int32_t low, int32_t high) {
    shape.dtype = DT_INT32;
    if (chance(&m->d, 50)) return add_input(m, shape, low, high);
    int64_t n = ir_type_count(&shape);
    int32_t *x = ARENA_ARRAY(m->a, int32_t, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) x[i] = low + (int32_t)roll(&m->d, (uint32_t)(high - low + 1));
    return b_const(&m->b, NULL, ir_const_new(m->a, shape, x));
}

int64_t make_size(maker *m) {
    static const int64_t common[] = {1, 1, 2, 2, 3, 4, 4, 5, 7, 8, 8, 16, 17, 24, 32, 33, 64};
    if (chance(&m->d, 2)) return (int64_t[]){65, 127, 129, 256, 1025}[roll(&m->d, 5)];
    return common[roll(&m->d, sizeof common / sizeof *common)];
}

ir_type make_shape(maker *m, int least_rank, int most_rank) {
    int rank = least_rank + (int)roll(&m->d, (uint32_t)(most_rank - least_rank + 1));
    int64_t dim[IR_MAX_RANK], room = 1500;
    for (int d = rank - 1; d >= 0; d--) {
        dim[d] = make_size(m);
        if (dim[d] > room) dim[d] = 1 + roll(&m->d, 2);
        room /= dim[d];
    }
    return ir_tensor(chance(&m->d, m->half) ? DT_FP16 : DT_FP32, rank, dim);
}

ir_value *make_list(maker *m, const int64_t *v, int n) {
    int32_t x[64];
    for (int i = 0; i < n; i++) x[i] = (int32_t)v[i];
    return b_ints(&m->b, x, (size_t)n);
}

/* ---- evaluating while building ---- */

static bool copy_tensor(ref_tensor *to, const ref_tensor *from, err *e) {
    ref_tensor_drop(to);
    if (!ref_tensor_new(to, &from->type, e)) return false;
    ref_read(from, 0, ref_count(from), to->cell);
    return true;
}

static bool evaluate(maker *m, const ir_op *op) {
    const ir_value *out = op->n_out ? op->out[0] : NULL;
    if (op->code == OP_const) return ref_tensor_const(&m->env[out->id], out->konst, m->e);
    if (ir_info(op->code)->flags & OPF_CONTROL)
        return copy_tensor(&m->env[out->id], &m->env[m->twin_now->id], m->e);
    if (op->code == OP_read_state || op->code == OP_write_state) {
        size_t i = sample_state_of(m->s, ir_in(op, A_input));
        if (op->code == OP_write_state) return true; /* what is read next needs only to be about as large */
        return copy_tensor(&m->env[out->id], &m->s->state[i].start, m->e);
    }
    return ref_eval_op(&m->v, op);
}

bool settle(maker *m) {
    if (!ok(m)) return false;
    if (m->b.f->n_values + 64 > MOST_VALUES) return err_set(m->e, ERR_LIMIT, "too many values");
    const ir_block *b = &m->b.f->body;
    for (; m->done < b->n_op; m->done++)
        if (!evaluate(m, b->op[m->done])) return false;
    return true;
}

typedef struct {
    double largest;
    bool nan, infinite;
} extent;

static extent extent_of(maker *m, const ir_value *v) {
    const ref_tensor *t = &m->env[v->id];
    extent x = {0};
    for (int64_t i = 0; i < ref_count(t); i++) {
        ref_cell c;
        float f;
        ref_read(t, i, 1, &c);
        memcpy(&f, &c, 4);
        if (!is_float(v)) f = (float)(int32_t)c;
        x.nan |= isnan(f), x.infinite |= isinf(f) != 0;
        if (isfinite(f)) x.largest = fmax(x.largest, fabs((double)f));
    }
    return x;
}

static ir_value *brought_back(maker *m, ir_value *v, const extent *x) {
    ir_dtype d = dtype_of(v);
    if (m->style == STYLE_WILD || d == DT_BOOL || dtype_bits(d) < 16) return v;
    if (!is_float(v)) return x->largest > 200 && d == DT_INT32 ? op2(m, OP_mod, v, make_scalar(m, d, 7)) : v;
    if (m->style == STYLE_EXACT && x->largest > 40)
        return op2(m, OP_minimum, op2(m, OP_maximum, v, make_scalar(m, d, -8)), make_scalar(m, d, 8));
    if (m->style == STYLE_EXACT || x->largest <= 24) return v;
    switch (roll(&m->d, 3)) {
    case 0: return op1(m, OP_tanh, v);
    case 1: return op2(m, OP_minimum, op2(m, OP_maximum, v, make_scalar(m, d, -3)), make_scalar(m, d, 2.5f));
    default: return op2(m, OP_mul, v, make_scalar(m, d, (float)fmax(1 / x->largest, 1e-4)));
    }
}

static bool wanted_already(const maker *m, const ir_value *v) {
    for (size_t i = 0; i < m->n_out; i++)
        if (m->out[i] == v) return true;
    return false;
}

void want(maker *m, ir_value *v) {
    if (!v || !v->def || v->konst || wanted_already(m, v) || v->type.kind != IR_TENSOR ||
        m->n_out == MOST_POOL)
        return;
    m->out[m->n_out++] = v;
}

void keep(maker *m, ir_value *v) {
    if (!settle(m) || m->n_pool == MOST_POOL || !ir_type_known(&v->type)) return;
    extent x = extent_of(m, v);
    if (x.nan || x.infinite) {
        if (!x.nan && chance(&m->d, 25)) want(m, v);
        return;
    }
    v = brought_back(m, v, &x);
    if (!settle(m) || count_of(v) > MOST_CELLS || (!count_of(v) && chance(&m->d, 80))) return;
    m->pool[m->n_pool++] = v;
}

static int kind_of(const ir_value *v) {
    return is_float(v) ? FLOAT : v->type.dtype == DT_INT32 ? INT : v->type.dtype == DT_BOOL ? BOOL : 8;
}

ir_value *pick(maker *m, int kinds, int least_rank, int most_rank) {
    ir_value *list[MOST_POOL];
    uint32_t n = 0;
    for (size_t i = 0; i < m->n_pool; i++) {
        ir_value *v = m->pool[i];
        if (kind_of(v) & kinds && v->type.rank >= least_rank && v->type.rank <= most_rank) list[n++] = v;
    }
    if (!n) return NULL;
    uint32_t newest = n < 4 ? n : 4;
    return chance(&m->d, 50) ? list[n - 1 - roll(&m->d, newest)] : list[roll(&m->d, n)];
}

ir_value *pick_float(maker *m, int least_rank, int most_rank) {
    ir_value *v = chance(&m->d, 92) ? pick(m, FLOAT, least_rank, most_rank) : NULL;
    if (v) return v;
    ir_type t = make_shape(m, least_rank < 1 ? 1 : least_rank,
                           most_rank < 1   ? 1
                           : most_rank > 5 ? 5
                                           : most_rank);
    v = make_input(m, (ir_dtype)t.dtype, t);
    keep(m, v);
    return v;
}

ir_value *pick_like(maker *m, const ir_value *x) {
    ir_value *list[MOST_POOL];
    uint32_t n = 0;
    for (size_t i = 0; i < m->n_pool; i++)
        if (ir_type_equal(&m->pool[i]->type, &x->type)) list[n++] = m->pool[i];
    if (n && chance(&m->d, 70)) return list[roll(&m->d, n)];
    if (kind_of(x) == 8) return (ir_value *)x;
    return chance(&m->d, 50) ? make_const(m, dtype_of(x), x->type) : make_input(m, dtype_of(x), x->type);
}

/* ---- the program ---- */

static void add_ops(maker *m) {
    static const struct {
        make_fn *fn;
        uint32_t weight;
    } groups[] = {{make_elementwise, 24}, {make_rearranged, 18}, {make_sliced, 14}, {make_reduced, 10},
                  {make_product, 9},      {make_indexed, 6},     {make_filled, 4},  {make_planted, 12},
                  {make_stated, 5},       {plant_recurrent, 4}};
    if (m->control && chance(&m->d, 30)) {
        make_controlled(m);
        return;
    }
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) sum += groups[i].weight;
    uint32_t at = roll(&m->d, sum);
    size_t i = 0;
    while (at >= groups[i].weight) at -= groups[i++].weight;
    groups[i].fn(m);
}

static size_t ops_of(const maker *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->b.f->body.n_op; i++) n += m->b.f->body.op[i]->code != OP_const;
    return n;
}

static void fill_function(maker *m) {
    uint32_t most = 3 + roll(&m->d, 38);
    for (int tries = 0; ok(m) && tries < 200 && ops_of(m) < most; tries++) add_ops(m);
    settle(m);
    for (size_t i = 0; i < 2 && i < m->n_pool; i++) want(m, m->pool[m->n_pool - 1 - i]);
    for (uint32_t n = roll(&m->d, 4); n-- > 0 && m->n_pool;)
        want(m, m->pool[roll(&m->d, (uint32_t)m->n_pool)]);
    if (!m->n_out && m->n_pool) want(m, op1(m, OP_identity, m->pool[0]));
    for (size_t i = 0; ok(m) && i < m->n_out; i++) b_output(&m->b, m->out[i]);
    if (ok(m) && !m->n_out) err_set(m->e, ERR_LIMIT, "the function has no results");
}

static size_t result_index(const maker *m, const ir_value *v) {
    size_t i = 0;
    while (i < m->n_out && m->out[i] != v) i++;
    return i;
}

static void note_twins(maker *m, size_t func) {
    sample *s = m->s;
    for (size_t i = 0; i < m->n_twin; i++) {
        size_t a = result_index(m, m->twin[i][0]), b = result_index(m, m->twin[i][1]);
        if (a == m->n_out || b == m->n_out || s->n_twin == MOST_TWINS) continue;
        s->twin[s->n_twin].func = func, s->twin[s->n_twin].a = a, s->twin[s->n_twin++].b = b;
    }
}

static void drop_values(maker *m) {
    for (size_t i = 0; i < MOST_VALUES; i++) ref_tensor_drop(&m->env[i]);
    ref_eval_free_spares(&m->v);
}

/* One function; the calls get their inputs. */
static void make_function(maker *m, size_t index) {
    char name[8];
    snprintf(name, sizeof name, "f%zu", index);
    m->spec = m->s->p->n_func ? m->spec : chance(&m->d, 30) ? IR_SPEC_COREAI : chance(&m->d, 70) ? 9 : 10;
    m->b = ir_build(m->s->p, name, m->spec, m->e);
    m->v.spec = m->spec;
    m->n_pool = m->n_out = m->n_twin = m->done = 0;
    memset(m->state, 0, sizeof m->state), memset(m->state_now, 0, sizeof m->state_now);
    memset(m->in, 0, MADE_CALLS * sizeof *m->in);
    fill_function(m);
    note_twins(m, index);
    ir_function *f = ok(m) ? m->b.f : NULL;
    ir_build_end(&m->b);
    if (f && f->n_in > MOST_IN) err_set(m->e, ERR_LIMIT, "too many inputs");
    for (size_t c = 0; c < MADE_CALLS; c++) {
        sample_call *call = &m->s->call[c];
        bool ours = ok(m) && c < m->s->n_call && call->func == index;
        if (ours) call->in = ARENA_ARRAY(m->a, ref_tensor, MOST_IN);
        for (size_t i = 0; i < MOST_IN; i++) {
            if (ours)
                call->in[i] = m->in[c][i];
            else
                ref_tensor_drop(&m->in[c][i]);
        }
    }
    drop_values(m);
}

/* ---- flexible sizes ---- */

/* All that follows from inputs has the sizes that inference gives. */
static bool retype(ir_function *f) {
    err ignored = {0};
    arena *a = arena_new();
    ir_type *types = ARENA_ARRAY(a, ir_type, f->n_values);
    for (size_t i = 0; i < f->body.n_op; i++)
        for (uint32_t o = 0; o < f->body.op[i]->n_out; o++) {
            ir_value *v = f->body.op[i]->out[o];
            for (int d = 0; d < v->type.rank && !v->konst; d++) v->type.dim[d] = IR_DIM_UNKNOWN;
        }
    bool good = ir_infer_function(f, NULL, types, &ignored);
    for (size_t i = 0; i < f->body.n_op && good; i++)
        for (uint32_t o = 0; o < f->body.op[i]->n_out; o++) {
            ir_value *v = f->body.op[i]->out[o];
            if (!v->konst) v->type = types[v->id];
        }
    arena_free(a);
    return good;
}

/* Another size of this input in the calls behind the first one; was: what it was. */
static bool resize(maker *m, size_t func, size_t input, int dim, ref_tensor *was) {
    sample *s = m->s;
    for (size_t c = 1; c < s->n_call; c++) {
        if (s->call[c].func != func) continue;
        ref_tensor *t = &s->call[c].in[input];
        ir_type type = t->type;
        was[c] = *t;
        type.dim[dim] = 1 + roll(&m->d, (uint32_t)type.dim[dim] + 3);
        if (!ref_tensor_new(t, &type, m->e)) return false;
        for (int64_t i = 0; i < ref_count(t); i++) ref_floats(t)[i] = num_round_f16(make_number(m));
    }
    return true;
}

/* A size of one float input becomes flexible; later calls have another one where the evaluator can do that.
 */
static void open_size(maker *m) {
    size_t func = roll(&m->d, (uint32_t)m->s->p->n_func);
    ir_function *f = m->s->p->func[func];
    ref_tensor was[MADE_CALLS] = {0};
    if (!f->n_in || m->control) return;
    size_t i = roll(&m->d, (uint32_t)f->n_in);
    ir_type *t = &f->in[i]->type;
    if (t->kind != IR_TENSOR || !dtype_is_float((ir_dtype)t->dtype) || !t->rank) return;
    int dim = chance(&m->d, 50) ? t->rank - 1 : (int)roll(&m->d, (uint32_t)t->rank);
    int64_t size = t->dim[dim];
    t->dim[dim] = IR_DIM_UNKNOWN;
    bool good = retype(f);
    if (!good) {
        t->dim[dim] = size;
        good = retype(f);
        if (!good) err_set(m->e, ERR_LIMIT, "types that can't be inferred again");
        return;
    }
    results r;
    err refused = {0};
    good = resize(m, func, i, dim, was) && by_evaluator(m->s, false, (shaking){0, false}, &r, &refused);
    if (good) results_free(&r);
    for (size_t c = 0; c < MADE_CALLS; c++) {
        if (!was[c].buf) continue;
        ref_tensor *now = &m->s->call[c].in[i], old = was[c];
        if (!good) old = *now, *now = was[c];
        ref_tensor_drop(&old);
    }
}

static void choose_paths(maker *m) {
    static const plan_linear paths[] = {{KERN_INT16, KERN_BF16},
                                        {KERN_INT16, KERN_BF16},
                                        {KERN_INT16, KERN_INT16},
                                        {KERN_BF16, KERN_BF16},
                                        {KERN_INT8, KERN_INT8}};
    if (chance(&m->d, 55)) return;
    m->s->linear = paths[roll(&m->d, 5)];
    m->s->exact = false;
}

sample *sample_make(uint64_t seed, err *e) {
    arena *a = arena_new(), *scratch = arena_new();
    sample *s = ARENA_NEW(a, sample);
    *s = (sample){.a = a, .p = ir_program_new(a)};
    maker *m = ARENA_NEW(scratch, maker);
    *m = (maker){.s = s, .a = a, .e = e, .d = dice_of(seed)};
    m->env = ARENA_ARRAY(scratch, ref_tensor, MOST_VALUES);
    m->in = arena_array(scratch, MADE_CALLS, sizeof *m->in);
    arena *work = arena_new();
    m->v = (ref_eval){.mode = REF_FAST, .env = m->env, .scratch = work, .e = e};
    uint32_t style = roll(&m->d, 20);
    m->style = style < 11 ? STYLE_TAME : style < 17 ? STYLE_EXACT : STYLE_WILD;
    m->mutate = (uint32_t[]){0, 0, 3, 12}[roll(&m->d, 4)];
    m->expose = (uint32_t[]){0, 4, 25}[roll(&m->d, 3)];
    m->half = (uint32_t[]){0, 50, 100}[roll(&m->d, 3)];
    s->exact = m->style == STYLE_EXACT;
    m->control = chance(&m->d, 4);
    choose_paths(m);
    size_t n_func = m->control || chance(&m->d, 85) ? 1 : 2;
    s->n_call = 1 + roll(&m->d, 3) + (n_func > 1);
    for (size_t c = 0; c < s->n_call; c++) s->call[c].func = c < n_func ? c : roll(&m->d, (uint32_t)n_func);
    for (size_t i = 0; i < n_func && ok(m); i++) make_function(m, i);
    if (ok(m) && chance(&m->d, 30)) open_size(m);
    arena_free(work);
    arena_free(scratch);
    if (!e->code) return s;
    sample_free(s);
    return NULL;
}

void sample_free(sample *s) {
    if (!s) return;
    for (size_t c = 0; c < s->n_call; c++) {
        size_t n = s->call[c].in ? MOST_IN : 0;
        for (size_t i = 0; i < n; i++) ref_tensor_drop(&s->call[c].in[i]);
    }
    for (size_t i = 0; i < s->n_state; i++) ref_tensor_drop(&s->state[i].start);
    arena_free(s->a);
}

size_t sample_state_of(const sample *s, const ir_value *v) {
    for (size_t i = 0; i < s->n_state; i++)
        if (v->type.kind == IR_STATE && !strcmp(s->state[i].name, v->name)) return i;
    return SIZE_MAX;
}
