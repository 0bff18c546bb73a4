#include "ir/infer_rules.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ANY 255 /* outputs */

static const struct {
    infer_rule *rule;
    uint8_t n_out;
} rules[OP_COUNT] = {
#define RULE(op, rule, n_out) [OP_##op] = {rule_##rule, n_out},
#include "ir/infer.def"
#undef RULE
};

static const struct {
    uint8_t op, from, to, slot[6];
} same_dtype[] = {
#define SAME(op, from, to, ...) {OP_##op, from, to, {__VA_ARGS__}},
#include "ir/infer.def"
#undef SAME
};

bool ir_op_inferable(ir_opcode code) {
    return rules[code].rule != NULL;
}

/* One operand value: of a kind that the op takes, well-formed, of an admitted dtype. */
static bool check_operand(infer *in, const ir_slot *slot, const ir_value *v) {
    if (!v) return inf_fail(in, "operand %s has no value", ir_operand_name(slot->name));
    ir_type t = in->env->type(in->env->ctx, v);
    bool state = slot->name == A_input && ir_info(in->op->code)->flags & OPF_STATE;
    bool opaque = slot->name == A_classes;
    int kind = state ? IR_STATE : opaque ? IR_OPAQUE : IR_TENSOR;
    if (t.rank < 0 || t.rank > IR_MAX_RANK || t.dtype >= DT_COUNT ||
        (t.dtype == DT_NONE && t.kind != IR_OPAQUE))
        return inf_fail(in, "operand %s has a malformed type (rank %d)", ir_operand_name(slot->name), t.rank);
    if (t.kind != kind)
        return inf_bad(in, slot->name, "expected %s", state ? "a state" : opaque ? "a list" : "a tensor");
    if (opaque) return true;
    for (int i = 0; i < t.rank; i++)
        if (t.dim[i] < IR_DIM_UNKNOWN || t.dim[i] > INF_DIM_MAX)
            return inf_bad(in, slot->name, "size %lld is out of range", (long long)t.dim[i]);
    uint32_t mask = ir_slot_dtypes(slot, in->spec);
    if (mask && !(mask >> t.dtype & 1))
        return inf_bad(in, slot->name, "%s takes no %s there", ir_opset_name(in->spec), dtype_name(t.dtype));
    return true;
}

bool inf_operands(infer *in) {
    const ir_op_info *info = ir_info(in->op->code);
    for (int i = 0; i < info->n_slot; i++) {
        const ir_slot *slot = &info->slot[i];
        const ir_arg *arg = &in->op->arg[i];
        const char *name = ir_operand_name(slot->name);
        if (!arg->n && !slot->optional) return inf_fail(in, "operand %s is missing", name);
        if (arg->n > 1 && !slot->variadic)
            return inf_fail(in, "operand %s has %u values, expected one", name, arg->n);
        if (arg->n && slot->since > in->spec)
            return inf_fail(in, "operand %s exists from %s on", name, ir_opset_name(slot->since));
        for (uint32_t k = 0; k < arg->n; k++)
            if (!check_operand(in, slot, arg->v[k])) return false;
    }
    return true;
}

bool inf_same_dtype(infer *in) {
    for (size_t i = 0; i < sizeof same_dtype / sizeof *same_dtype; i++) {
        if (same_dtype[i].op != in->op->code || same_dtype[i].from > in->spec || same_dtype[i].to < in->spec)
            continue;
        ir_operand first = A_NONE;
        ir_dtype dtype = DT_NONE;
        for (int k = 0; k < 6 && same_dtype[i].slot[k]; k++) {
            ir_operand name = (ir_operand)same_dtype[i].slot[k];
            if (!inf_has(in, name)) continue;
            ir_dtype d = (ir_dtype)inf_type(in, name).dtype;
            if (first && d != dtype)
                return inf_fail(in, "operands %s (%s) and %s (%s) must have the same dtype",
                                ir_operand_name(first), dtype_name(dtype), ir_operand_name(name),
                                dtype_name(d));
            first = name, dtype = d;
        }
    }
    return true;
}

static bool check_outputs(infer *in) {
    for (uint32_t i = 0; i < in->op->n_out; i++) {
        const ir_type *t = &in->out[i];
        for (int k = 0; k < t->rank; k++)
            if (t->dim[k] < IR_DIM_UNKNOWN || t->dim[k] > INF_DIM_MAX)
                return inf_fail(in, "output %u would have size %lld at dimension %d", i, (long long)t->dim[k],
                                k);
    }
    return true;
}

bool inf_outputs(infer *in) {
    const ir_op *op = in->op;
    if (!rules[op->code].rule)
        return err_set(in->e, ERR_UNSUPPORTED, "op %s is not supported", ir_info(op->code)->name);
    if (rules[op->code].n_out != ANY && op->n_out != rules[op->code].n_out)
        return inf_fail(in, "op has %u outputs, expected %u", op->n_out, rules[op->code].n_out);
    for (uint32_t i = 0; i < op->n_out; i++) in->out[i] = (ir_type){0};
    return rules[op->code].rule(in) && check_outputs(in);
}

bool ir_infer_op(const ir_op *op, int spec, const ir_env *env, ir_type *out, arena *a, err *e) {
    if (op->code <= OP_NONE || op->code >= OP_COUNT) return err_set(e, ERR_UNSUPPORTED, "unknown op");
    infer in = {op, spec, env, out, a, e};
    return inf_operands(&in) && inf_same_dtype(&in) && inf_outputs(&in);
}

/* Helpers for rules and for the evaluator. */

bool inf_fail(infer *in, const char *fmt, ...) {
    char msg[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return err_set(in->e, ERR_INVALID, "%s", msg);
}

bool inf_bad(infer *in, ir_operand name, const char *fmt, ...) {
    char msg[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    ir_type t = inf_type(in, name);
    return err_set(in->e, ERR_INVALID, "operand %s is %s: %s", ir_operand_name(name), ir_type_text(in->a, &t),
                   msg);
}

bool inf_has(const infer *in, ir_operand name) {
    return ir_in(in->op, name) != NULL;
}

ir_type inf_type(const infer *in, ir_operand name) {
    const ir_value *v = ir_in(in->op, name);
    return v ? in->env->type(in->env->ctx, v) : (ir_type){0};
}

/* A number as an integer; what no size or index can be is clamped, so that later checks refuse it. */
static int64_t to_int(double v) {
    if (!(v > -9e15)) return -(INT64_C(1) << 53);
    return v < 9e15 ? (int64_t)v : INT64_C(1) << 53;
}

const int64_t *ir_env_ints(const ir_env *env, const ir_op *op, ir_operand name, size_t *n, arena *a) {
    *n = 0;
    const ir_value *v = ir_in(op, name);
    if (!v) return NULL;
    const double *d = env->numbers(env->ctx, v, n, a);
    if (!d) {
        *n = 0;
        return NULL;
    }
    int64_t *r = ARENA_ARRAY(a, int64_t, *n + 1); /* never NULL, even for no entries */
    for (size_t i = 0; i < *n; i++) r[i] = to_int(d[i]);
    return r;
}

bool ir_env_int(const ir_env *env, const ir_op *op, ir_operand name, int64_t fallback, int64_t *v, arena *a) {
    *v = fallback;
    if (!ir_in(op, name)) return true;
    size_t n;
    const int64_t *list = ir_env_ints(env, op, name, &n, a);
    if (!list || n != 1) return false;
    *v = list[0];
    return true;
}

bool ir_env_bool(const ir_env *env, const ir_op *op, ir_operand name, bool fallback, bool *v, arena *a) {
    int64_t i;
    bool known = ir_env_int(env, op, name, fallback, &i, a);
    *v = i != 0;
    return known;
}

const char *ir_env_text(const ir_op *op, ir_operand name, const char *fallback) {
    const ir_value *v = ir_in(op, name);
    const char *s = v && v->konst ? ir_const_text(v->konst) : NULL;
    return s ? s : fallback;
}

bool ir_axis(int64_t *axis, int rank) {
    if (*axis < -rank || *axis >= rank) return false;
    if (*axis < 0) *axis += rank;
    return true;
}

static bool broadcast_dim(int64_t x, int64_t y, int64_t *out) {
    if (x == y || y == 1)
        *out = x;
    else if (x == 1)
        *out = y;
    else if (x == IR_DIM_UNKNOWN)
        *out = y; /* y is not 1, so x is 1 or y */
    else if (y == IR_DIM_UNKNOWN)
        *out = x;
    else
        return false;
    return true;
}

bool ir_broadcast(const ir_type *x, const ir_type *y, ir_type *out) {
    ir_type r = {.kind = IR_TENSOR, .dtype = x->dtype, .rank = x->rank > y->rank ? x->rank : y->rank};
    for (int i = 1; i <= r.rank; i++) {
        int64_t dx = i <= x->rank ? x->dim[x->rank - i] : 1, dy = i <= y->rank ? y->dim[y->rank - i] : 1;
        if (!broadcast_dim(dx, dy, &r.dim[r.rank - i])) return false;
    }
    *out = r;
    return true;
}

bool inf_broadcast(infer *in, ir_operand x, ir_operand y, ir_type *out) {
    ir_type tx = inf_type(in, x), ty = inf_type(in, y);
    if (ir_broadcast(&tx, &ty, out)) return true;
    return inf_bad(in, x, "does not broadcast with operand %s, %s", ir_operand_name(y),
                   ir_type_text(in->a, &ty));
}

inf_list inf_ints(const infer *in, ir_operand name) {
    inf_list l = {.present = inf_has(in, name), .len = IR_DIM_UNKNOWN};
    if (!l.present) return l;
    ir_type t = inf_type(in, name);
    l.v = ir_env_ints(in->env, in->op, name, &l.n, in->a);
    l.len = l.v ? (int64_t)l.n : t.rank == 0 ? 1 : t.rank == 1 ? t.dim[0] : IR_DIM_UNKNOWN;
    return l;
}

bool inf_known_ints(infer *in, ir_operand name, inf_list *l) {
    *l = inf_ints(in, name);
    return !l->present || l->v || inf_fail(in, "operand %s must be a known constant", ir_operand_name(name));
}

bool inf_int(infer *in, ir_operand name, int64_t fallback, int64_t *v) {
    return ir_env_int(in->env, in->op, name, fallback, v, in->a) ||
           inf_bad(in, name, "expected a known scalar");
}

bool inf_bool(infer *in, ir_operand name, bool fallback, bool *v) {
    return ir_env_bool(in->env, in->op, name, fallback, v, in->a) ||
           inf_bad(in, name, "expected a known scalar");
}

bool inf_axis(infer *in, ir_operand name, int64_t fallback, int rank, int64_t *axis) {
    if (!inf_int(in, name, fallback, axis)) return false;
    if (ir_axis(axis, rank)) return true;
    return inf_fail(in, "operand %s is %lld, expected an axis of a tensor of rank %d", ir_operand_name(name),
                    (long long)*axis, rank);
}

bool inf_axes(infer *in, ir_operand name, int rank, bool *chosen) {
    inf_list axes;
    if (!inf_known_ints(in, name, &axes)) return false;
    for (int i = 0; i < rank; i++) chosen[i] = !axes.present;
    for (size_t i = 0; i < axes.n; i++) {
        int64_t axis = axes.v[i];
        if (!ir_axis(&axis, rank))
            return inf_fail(in, "operand %s holds %lld, expected axes of a tensor of rank %d",
                            ir_operand_name(name), (long long)axis, rank);
        if (chosen[axis])
            return inf_fail(in, "operand %s names axis %lld twice", ir_operand_name(name), (long long)axis);
        chosen[axis] = true;
    }
    return true;
}

bool inf_text_among(infer *in, ir_operand name, const char *text, const char *const *allowed) {
    for (int i = 0; allowed[i]; i++)
        if (!strcmp(allowed[i], text)) return true;
    return inf_fail(in, "operand %s is \"%.40s\", which is not one of its values", ir_operand_name(name),
                    text);
}

bool inf_mul(infer *in, int64_t x, int64_t y, int64_t *product) {
    *product = IR_DIM_UNKNOWN;
    if (x == IR_DIM_UNKNOWN || y == IR_DIM_UNKNOWN) return true;
    return !__builtin_mul_overflow(x, y, product) ||
           inf_fail(in, "sizes %lld and %lld multiply beyond 63 bits", (long long)x, (long long)y);
}

bool inf_unify(int64_t x, int64_t y, int64_t *size) {
    *size = x == IR_DIM_UNKNOWN ? y : x;
    return x == y || x == IR_DIM_UNKNOWN || y == IR_DIM_UNKNOWN;
}

bool inf_push(infer *in, ir_type *t, int64_t dim) {
    if (t->rank >= IR_MAX_RANK)
        return inf_fail(in, "the result would have more than %d dimensions", IR_MAX_RANK);
    t->dim[t->rank++] = dim;
    return true;
}
