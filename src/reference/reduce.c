#include "reference/ops.h"
#include "reference/walk.h"
#include <math.h>
#include <string.h>

/* The reduced type with sizes of 1 kept, and result strides (0 along reduced dimensions) over x's dimensions.
 */
static int64_t kept_strides(const ir_type *x, uint32_t axes, int64_t *s) {
    int64_t step = 1, reduced = 1;
    for (int d = x->rank - 1; d >= 0; d--) {
        bool gone = axes >> d & 1;
        s[d] = gone ? 0 : step;
        if (gone)
            reduced *= x->dim[d];
        else
            step *= x->dim[d];
    }
    return reduced;
}

/* o[...] = fold of x in index order. */
#define FOLD(T, expr)                                                                                        \
    for (int64_t i = 0; i < n; i++) {                                                                        \
        T a = o[i * so], b = x[i];                                                                           \
        o[i * so] = (expr);                                                                                  \
    }                                                                                                        \
    break

static void fold_floats(ir_opcode code, float *o, int64_t so, const float *x, int64_t n) {
    switch (code) {
    case OP_reduce_max: FOLD(float, b > a || b != b ? b : a);
    case OP_reduce_min: FOLD(float, b < a || b != b ? b : a);
    case OP_reduce_prod: FOLD(float, a *b);
    case OP_reduce_sum_square:
    case OP_reduce_l2_norm: FOLD(float, a + b * b);
    case OP_reduce_l1_norm: FOLD(float, a + fabsf(b));
    default: /* sum, mean, log_sum */
        if (so == 0) {
            float s = o[0];
            for (int64_t i = 0; i < n; i++) s += x[i];
            o[0] = s;
            break;
        }
        FOLD(float, a + b);
    }
}

static void fold_ints(ir_opcode code, int32_t *o, int64_t so, const int32_t *x, int64_t n) {
    switch (code) {
    case OP_reduce_max: FOLD(int32_t, b > a ? b : a);
    case OP_reduce_min: FOLD(int32_t, b < a ? b : a);
    case OP_reduce_prod: FOLD(int32_t, (int32_t)((uint32_t)a * (uint32_t)b));
    case OP_reduce_sum_square:
    case OP_reduce_l2_norm: FOLD(int32_t, (int32_t)((uint32_t)a + (uint32_t)b * (uint32_t)b));
    case OP_reduce_l1_norm: FOLD(int32_t, (int32_t)((uint32_t)a + (b < 0 ? 0u - (uint32_t)b : (uint32_t)b)));
    default: FOLD(int32_t, (int32_t)((uint32_t)a + (uint32_t)b));
    }
}

static float start_float(ir_opcode code) {
    return code == OP_reduce_max    ? -INFINITY
           : code == OP_reduce_min  ? INFINITY
           : code == OP_reduce_prod ? 1
                                    : 0;
}

static int32_t start_int(ir_opcode code) {
    return code == OP_reduce_max ? INT32_MIN : code == OP_reduce_min ? INT32_MAX : code == OP_reduce_prod;
}

static void finish_floats(ir_opcode code, float *o, int64_t n, int64_t reduced) {
    for (int64_t i = 0; i < n; i++) {
        if (code == OP_reduce_mean)
            o[i] /= (float)reduced;
        else if (code == OP_reduce_l2_norm)
            o[i] = sqrtf(o[i]);
        else if (code == OP_reduce_log_sum)
            o[i] = logf(o[i]);
    }
}

static void finish_ints(ir_opcode code, int32_t *o, int64_t n, int64_t reduced) {
    for (int64_t i = 0; i < n; i++) {
        if (code == OP_reduce_mean && reduced)
            o[i] = (int32_t)floor((double)o[i] / (double)reduced);
        else if (code == OP_reduce_l2_norm)
            o[i] = (int32_t)sqrt((double)o[i]);
        else if (code == OP_reduce_log_sum || code == OP_reduce_log_sum_exp)
            o[i] = (int32_t)log((double)o[i]);
    }
}

/* log(sum(exp(x - max))) + max */
static bool log_sum_exp(ref_eval *v, const ir_type *type, const float *x, const int64_t *sx,
                        const int64_t *so) {
    float *o = ref_floats(&v->out[0]);
    int64_t n = ref_count(&v->out[0]);
    float *top = ev_temp(v, n);
    if (!top) return false;
    for (int64_t i = 0; i < n; i++) top[i] = -INFINITY, o[i] = 0;
    const int64_t *const s[] = {so, sx};
    for (ref_walk w = ref_walk_start(type->rank, type->dim, 2, s); !w.done; ref_walk_next(&w))
        fold_floats(OP_reduce_max, top + w.pos[0], w.step[0], x + w.pos[1], w.run);
    for (int64_t i = 0; i < n; i++)
        if (isinf(top[i])) top[i] = top[i] > 0 ? INFINITY : 0;
    for (ref_walk w = ref_walk_start(type->rank, type->dim, 2, s); !w.done; ref_walk_next(&w))
        for (int64_t i = 0; i < w.run; i++) {
            int64_t at = w.pos[0] + i * w.step[0];
            o[at] += isinf(top[at]) ? 1 : expf(x[w.pos[1] + i] - top[at]);
        }
    for (int64_t i = 0; i < n; i++) o[i] = logf(o[i]) + top[i];
    return true;
}

bool ev_reduce(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    ir_opcode code = v->op->code;
    uint32_t axes;
    int64_t sx[IR_MAX_RANK], so[IR_MAX_RANK];
    const ref_cell *x = ev_cells(v, t);
    if (!x || !ev_axes(v, A_axes, t->type.rank, &axes) || !ev_new(v, 0)) return false;
    ref_strides(&t->type, sx);
    int64_t reduced = kept_strides(&t->type, axes, so), n = ref_count(&v->out[0]);
    bool is_float = dtype_is_float(t->type.dtype);
    float *of = ref_floats(&v->out[0]);
    int32_t *oi = ref_ints(&v->out[0]);
    if (is_float && code == OP_reduce_log_sum_exp)
        return log_sum_exp(v, &t->type, (const float *)(const void *)x, sx, so);
    for (int64_t i = 0; i < n; i++) {
        if (is_float)
            of[i] = start_float(code);
        else
            oi[i] = start_int(code);
    }
    const int64_t *const s[] = {so, sx};
    for (ref_walk w = ref_walk_start(t->type.rank, t->type.dim, 2, s); !w.done; ref_walk_next(&w)) {
        const ref_cell *run = x + w.pos[1];
        if (is_float)
            fold_floats(code, of + w.pos[0], w.step[0], (const float *)(const void *)run, w.run);
        else
            fold_ints(code, oi + w.pos[0], w.step[0], (const int32_t *)(const void *)run, w.run);
    }
    if (is_float)
        finish_floats(code, of, n, reduced);
    else
        finish_ints(code, oi, n, reduced);
    return true;
}

/* Index of the first largest or smallest element along one axis. */
bool ev_reduce_arg(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    int axis = ev_axis(v, A_axis, -1, t->type.rank);
    if (!x || axis < 0 || !ev_new(v, 0)) return false;
    int64_t n = t->type.dim[axis], inner = ref_inner(&t->type, axis), outer = ref_outer(&t->type, axis);
    bool want_max = v->op->code == OP_reduce_argmax, is_float = dtype_is_float(t->type.dtype);
    if (n == 0 && inner > 0 && outer > 0) return ev_fail(v, "axis %d has no elements", axis);
    const float *f = (const float *)(const void *)x;
    const int32_t *k = (const int32_t *)(const void *)x;
    int32_t *o = ref_ints(&v->out[0]);
    for (int64_t r = 0; r < outer * inner; r++) {
        int64_t at = r / inner * n * inner + r % inner, best = 0;
        for (int64_t i = 1; i < n; i++) {
            int64_t a = at + i * inner, b = at + best * inner;
            bool better =
                is_float ? (want_max ? f[a] > f[b] : f[a] < f[b]) : (want_max ? k[a] > k[b] : k[a] < k[b]);
            if (better) best = i;
        }
        o[r] = (int32_t)best; /* whole, as in topk */
    }
    return true;
}

bool ev_cumsum(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const ref_cell *x = ev_cells(v, t);
    int axis = ev_axis(v, A_axis, 0, t->type.rank);
    if (!x || axis < 0 || !ev_new(v, 0)) return false;
    bool exclusive = ev_bool(v, A_exclusive, false), reverse = ev_bool(v, A_reverse, false);
    bool is_float = dtype_is_float(t->type.dtype);
    int64_t n = t->type.dim[axis], inner = ref_inner(&t->type, axis), outer = ref_outer(&t->type, axis);
    const float *f = (const float *)(const void *)x;
    float *of = ref_floats(&v->out[0]);
    ref_cell *oi = v->out[0].cell;
    for (int64_t r = 0; r < outer * inner; r++) {
        float sum = 0;
        uint32_t total = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = r / inner * n * inner + r % inner + (reverse ? n - 1 - i : i) * inner;
            if (is_float) {
                float next = sum + f[at];
                of[at] = exclusive ? sum : next;
                sum = next;
            } else {
                uint32_t next = total + x[at];
                oi[at] = exclusive ? total : next;
                total = next;
            }
        }
    }
    return true;
}
