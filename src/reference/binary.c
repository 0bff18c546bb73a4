#include "reference/ops.h"
#include "reference/rows.h"
#include "reference/walk.h"
#include <math.h>

/* One run of a binary op; sx and sy are 0 where an operand is broadcast along it. */
typedef ref_row_fn row_fn;

#define ROW(name, R, T, expr)                                                                                \
    static void name(void *ov, const void *xv, int64_t sx, const void *yv, int64_t sy, int64_t n) {          \
        R *restrict o = ov;                                                                                  \
        const T *x = xv, *y = yv;                                                                            \
        if (sx == 1 && sy == 1) {                                                                            \
            for (int64_t i = 0; i < n; i++) {                                                                \
                T a = x[i], b = y[i];                                                                        \
                o[i] = (R)(expr);                                                                            \
            }                                                                                                \
        } else if (sx == 1 && sy == 0) {                                                                     \
            const T b = y[0];                                                                                \
            for (int64_t i = 0; i < n; i++) {                                                                \
                T a = x[i];                                                                                  \
                o[i] = (R)(expr);                                                                            \
            }                                                                                                \
        } else {                                                                                             \
            for (int64_t i = 0; i < n; i++) {                                                                \
                T a = x[i * sx], b = y[i * sy];                                                              \
                o[i] = (R)(expr);                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }

static float floor_div(float a, float b) {
    if (b == 0) return a / b;
    float mod = fmodf(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
    float down = floorf(div);
    return div - down > 0.5f ? down + 1 : down;
}

static float mod_sign_of_divisor(float a, float b) {
    float m = fmodf(a, b);
    return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}

/* Integers wrap; a division by zero gives 0. */
static int32_t int_floor_div(int32_t a, int32_t b) {
    if (b == 0) return 0;
    int64_t q = (int64_t)a / b;
    if ((int64_t)a % b != 0 && (a < 0) != (b < 0)) q--;
    return (int32_t)(uint32_t)(uint64_t)q;
}

static int32_t int_mod(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a - (uint32_t)int_floor_div(a, b) * (uint32_t)b);
}

static int32_t int_pow(int32_t a, int32_t b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint32_t r = 1, base = (uint32_t)a;
    for (; b; b >>= 1, base *= base)
        if (b & 1) r *= base;
    return (int32_t)r;
}

ROW(f_add, float, float, a + b)
ROW(f_sub, float, float, a - b)
ROW(f_mul, float, float, a *b)
ROW(f_div, float, float, a / b)
ROW(f_floor_div, float, float, floor_div(a, b))
ROW(f_mod, float, float, mod_sign_of_divisor(a, b))
ROW(f_pow, float, float, b == 2 ? a * a : powf(a, b))
ROW(f_max, float, float, a > b || a != a ? a : b)
ROW(f_min, float, float, a < b || a != a ? a : b)
ROW(f_lt, int32_t, float, a < b)
ROW(f_le, int32_t, float, a <= b)
ROW(f_gt, int32_t, float, a > b)
ROW(f_ge, int32_t, float, a >= b)
ROW(f_eq, int32_t, float, a == b)
ROW(f_ne, int32_t, float, a != b)
ROW(i_add, int32_t, int32_t, (uint32_t)a + (uint32_t)b)
ROW(i_sub, int32_t, int32_t, (uint32_t)a - (uint32_t)b)
ROW(i_mul, int32_t, int32_t, (uint32_t)a *(uint32_t)b)
ROW(i_floor_div, int32_t, int32_t, int_floor_div(a, b))
ROW(i_mod, int32_t, int32_t, int_mod(a, b))
ROW(i_pow, int32_t, int32_t, int_pow(a, b))
ROW(i_max, int32_t, int32_t, a > b ? a : b)
ROW(i_min, int32_t, int32_t, a < b ? a : b)
ROW(i_lt, int32_t, int32_t, a < b)
ROW(i_le, int32_t, int32_t, a <= b)
ROW(i_gt, int32_t, int32_t, a > b)
ROW(i_ge, int32_t, int32_t, a >= b)
ROW(i_eq, int32_t, int32_t, a == b)
ROW(i_ne, int32_t, int32_t, a != b)
ROW(i_and, int32_t, int32_t, a &&b)
ROW(i_or, int32_t, int32_t, a || b)
ROW(i_xor, int32_t, int32_t, !a != !b)

static const struct {
    row_fn *f, *i; /* for floats; for integers and bools */
} rows[OP_COUNT] = {
    [OP_add] = {f_add, i_add},
    [OP_sub] = {f_sub, i_sub},
    [OP_mul] = {f_mul, i_mul},
    [OP_real_div] = {f_div, i_floor_div},
    [OP_floor_div] = {f_floor_div, i_floor_div},
    [OP_mod] = {f_mod, i_mod},
    [OP_pow] = {f_pow, i_pow},
    [OP_maximum] = {f_max, i_max},
    [OP_minimum] = {f_min, i_min},
    [OP_less] = {f_lt, i_lt},
    [OP_less_equal] = {f_le, i_le},
    [OP_greater] = {f_gt, i_gt},
    [OP_greater_equal] = {f_ge, i_ge},
    [OP_equal] = {f_eq, i_eq},
    [OP_not_equal] = {f_ne, i_ne},
    [OP_logical_and] = {NULL, i_and},
    [OP_logical_or] = {NULL, i_or},
    [OP_logical_xor] = {NULL, i_xor},
};

ref_row_fn *ref_binary_row(ir_opcode code, bool is_float) {
    return is_float ? rows[code].f : rows[code].i;
}

bool ev_binary(ref_eval *v) {
    const ref_tensor *tx = ev_in(v, A_x), *ty = ev_in(v, A_y);
    bool is_float = dtype_is_float(tx->type.dtype);
    row_fn *row = is_float ? rows[v->op->code].f : rows[v->op->code].i;
    if (!row || is_float != dtype_is_float(ty->type.dtype))
        return ev_fail(v, "x is %s and y is %s", dtype_name(tx->type.dtype), dtype_name(ty->type.dtype));
    const ref_cell *x = ev_cells(v, tx), *y = ev_cells(v, ty);
    if (!x || !y || !ev_new(v, 0)) return false;
    const ir_type *type = &v->out[0].type;
    ref_cell *o = v->out[0].cell;
    int64_t so[IR_MAX_RANK], sx[IR_MAX_RANK], sy[IR_MAX_RANK];
    ref_strides(type, so);
    ref_broadcast_strides(&tx->type, type, sx);
    ref_broadcast_strides(&ty->type, type, sy);
    for (ref_walk w = ref_walk_start(type->rank, type->dim, 3, (const int64_t *const[]){so, sx, sy}); !w.done;
         ref_walk_next(&w))
        row(o + w.pos[0], x + w.pos[1], w.step[1], y + w.pos[2], w.step[2], w.run);
    return true;
}

bool ev_select(ref_eval *v) {
    const ref_tensor *tc = ev_in(v, A_cond), *ta = ev_in(v, A_a), *tb = ev_in(v, A_b);
    if (dtype_is_float(ta->type.dtype) != dtype_is_float(tb->type.dtype))
        return ev_fail(v, "a is %s and b is %s", dtype_name(ta->type.dtype), dtype_name(tb->type.dtype));
    const ref_cell *c = ev_cells(v, tc), *a = ev_cells(v, ta), *b = ev_cells(v, tb);
    if (!c || !a || !b || !ev_new(v, 0)) return false;
    const ir_type *type = &v->out[0].type;
    ref_cell *o = v->out[0].cell;
    int64_t s[4][IR_MAX_RANK];
    ref_strides(type, s[0]);
    ref_broadcast_strides(&tc->type, type, s[1]);
    ref_broadcast_strides(&ta->type, type, s[2]);
    ref_broadcast_strides(&tb->type, type, s[3]);
    for (ref_walk w =
             ref_walk_start(type->rank, type->dim, 4, (const int64_t *const[]){s[0], s[1], s[2], s[3]});
         !w.done; ref_walk_next(&w))
        for (int64_t i = 0; i < w.run; i++)
            o[w.pos[0] + i] =
                c[w.pos[1] + i * w.step[1]] ? a[w.pos[2] + i * w.step[2]] : b[w.pos[3] + i * w.step[3]];
    return true;
}
