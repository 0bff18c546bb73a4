/* Graphs whose fused form and plan are held against the reference evaluator: for test_plan*.c. */
#ifndef TEST_PLAN_GRAPH_H
#define TEST_PLAN_GRAPH_H
#include "base/num.h"
#include "ir/build.h"
#include "optimize/optimize.h"
#include "plan/plan.h"
#include "reference/frame.h"
#include "test.h"
#include <math.h>

#define MOST 8

/* A function with its inputs' contents; states start at small numbers. */
typedef struct {
    arena *a;
    ir_program *p;
    ir_builder b;
    err e;
    uint64_t seed;
    bool pair; /* the two states are value and remainder of the same numbers: their sum is compared */
    plan_linear linear; /* zeros: exact */
    int64_t length;     /* of inputs whose type leaves a size open; plans of fast mode leave it open, too */
    uint64_t moved;     /* bytes of weights and states that a plan is to read and write; 0: not looked at */
    ref_tensor in[MOST];
    ref_tensor out[MOST];
} graph;

static inline uint32_t random_of(graph *g, uint32_t n) {
    g->seed = g->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(g->seed >> 33) % n;
}

static inline float number(graph *g) {
    return num_round_f16((float)((int)random_of(g, 2001) - 1000) / 1000);
}

static inline graph *begin(uint64_t seed) {
    arena *a = arena_new();
    graph *g = ARENA_NEW(a, graph);
    g->a = a;
    g->seed = seed;
    g->p = ir_program_new(a);
    g->b = ir_build(g->p, "f", 9, &g->e);
    return g;
}

static inline void fill(graph *g, ref_tensor *t) {
    for (int64_t i = 0; i < ref_count(t); i++) {
        if (dtype_is_float((ir_dtype)t->type.dtype))
            ref_floats(t)[i] = number(g);
        else
            ref_ints(t)[i] = (int32_t)random_of(g, 4);
    }
}

static inline void finish(graph *g) {
    ir_build_end(&g->b);
    if (g->e.code) fail_msg("%s", g->e.msg);
    const ir_function *f = g->p->func[0];
    for (size_t i = 0; i < f->n_in; i++) {
        ir_type t = f->in[i]->type;
        t.kind = IR_TENSOR;
        for (int d = 0; d < t.rank; d++)
            if (t.dim[d] == IR_DIM_UNKNOWN) t.dim[d] = g->length;
        assert_true(ref_tensor_new(&g->in[i], &t, &g->e));
        fill(g, &g->in[i]);
    }
}

static inline void drop(ref_tensor *t) {
    for (int i = 0; i < MOST; i++) ref_tensor_drop(&t[i]);
}

static inline void end(graph *g) {
    drop(g->in);
    arena_free(g->a);
}

static inline void copy(ref_tensor *to, const ref_tensor *from) {
    err e = {0};
    assert_true(ref_tensor_new(to, &from->type, &e));
    memcpy(to->cell, from->cell, (size_t)ref_count(from) * 4);
}

/* Runs `rounds` calls. out: the last results; state: copies that are changed. */
static inline void evaluate(graph *g, const ir_function *f, bool strict, int rounds, ref_tensor *state,
                            ref_tensor *out) {
    err e = {0};
    const ref_plan *uses = ref_plan_new(g->a, f);
    ref_frame *frame = ref_frame_new(uses, strict ? REF_STRICT : REF_FAST, &e);
    ref_tensor *states[MOST] = {0};
    assert_non_null(frame);
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i]->type.kind == IR_STATE) {
            copy(&state[i], &g->in[i]);
            states[i] = &state[i];
        }
    for (int r = 0; r < rounds; r++) {
        ref_frame_call call = {.in = g->in, .state = states};
        if (!ref_frame_run(frame, &call, &e)) fail_msg("%s", e.msg);
    }
    for (size_t i = 0; i < f->body.n_out; i++) {
        const ref_tensor *t = ref_frame_result(frame, i, &e);
        assert_non_null(t);
        copy(&out[i], t);
        if (t->type.dtype == DT_FP16) num_round_f16_all(ref_floats(&out[i]), (size_t)ref_count(t));
    }
    ref_frame_free(frame);
}

/* Of the program as it is. */
static inline plan *plan_of(const graph *g, bool strict) {
    const ir_function *f = g->p->func[0];
    err e = {0};
    kern_table kernels;
    kern_rounded ops;
    kern_ops fast;
    assert_true(kern_open(&kernels, getenv("MILLET_ISA"), &e));
    assert_true(kern_ops_open(&fast, getenv("MILLET_ISA"), &e));
    kern_rounded_open(&ops, getenv("MILLET_ISA"));
    ir_type types[MOST];
    for (size_t i = 0; i < f->n_in; i++) types[i] = g->length && !strict ? f->in[i]->type : g->in[i].type;
    plan *p = plan_new(f, types, &(plan_options){strict, &kernels, &ops, &fast, g->linear, NULL, NULL}, &e);
    if (!p) fail_msg("%s", e.msg);
    return p;
}

static inline void walk(graph *g, bool strict, int rounds, unsigned threads, ref_tensor *state,
                        ref_tensor *out) {
    const ir_function *f = g->p->func[0];
    err e = {0};
    plan *p = plan_of(g, strict);
    if (g->moved) assert_int_equal(plan_traffic_of(p).bytes, g->moved);
    plan_exec *x = plan_exec_new(p, &e);
    plan_block *block = plan_block_new();
    team *t = team_new(threads, false);
    void *packed[MOST] = {0};
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i]->type.kind == IR_STATE) {
            packed[i] = mem_alloc((size_t)ref_count(&g->in[i]) * 4);
            ref_pack(&g->in[i], packed[i]);
        }
    for (int r = 0; r < rounds; r++) {
        drop(out);
        if (!plan_run(x, &(plan_call){g->in, out, packed, t, block, false, NULL, NULL}, &e))
            fail_msg("%s", e.msg);
    }
    for (size_t i = 0; i < f->n_in; i++)
        if (packed[i]) {
            const ir_const c = {.type = g->in[i].type, .data = packed[i]};
            copy(&state[i], &g->in[i]);
            ref_read(&(ref_tensor){.type = c.type, .konst = &c}, 0, ref_count(&state[i]), state[i].cell);
            mem_free(packed[i]);
        }
    team_free(t);
    plan_block_free(block);
    plan_exec_free(x);
    plan_free(p);
}

static inline void join(const graph *g, ref_tensor *state) {
    ref_tensor *part[2] = {0};
    for (int i = 0, n = 0; i < MOST && g->pair; i++)
        if (state[i].cell && n < 2) part[n++] = &state[i];
    if (!part[1]) return;
    for (int64_t i = 0; i < ref_count(part[0]); i++) {
        ref_floats(part[0])[i] += ref_floats(part[1])[i];
        ref_floats(part[1])[i] = 0;
    }
}

static inline void compare(const ref_tensor *x, const ref_tensor *y, bool strict, const char *what) {
    if (!x->cell && !y->cell) return;
    double flips = !strcmp(what, "random graph") && x->type.dtype == DT_FP16 ? 16 * 0x1p-11 : 0;
    assert_true(ir_type_equal(&x->type, &y->type));
    double largest = 0;
    bool is_float = dtype_is_float((ir_dtype)x->type.dtype);
    for (int64_t i = 0; i < ref_count(x) && is_float; i++)
        largest = fmax(largest, fabs((double)ref_floats(y)[i]));
    for (int64_t i = 0; i < ref_count(x); i++) {
        if (!is_float) {
            assert_int_equal(ref_ints(x)[i], ref_ints(y)[i]);
            continue;
        }
        double a = (double)ref_floats(x)[i], b = (double)ref_floats(y)[i];
        double bound = (strict && x->type.dtype == DT_FP16 ? 2 * 0x1p-10 * fabs(b) : 1e-4 * largest) + 1e-5;
        if (!strict && x->type.dtype == DT_FP16) bound += 0x1p-10 * fabs(b); /* rounded on the way out */
        bound += flips * largest;
        if (isnan(a) && isnan(b)) continue;
        if (!(a == b || fabs(a - b) <= bound))
            fail_msg("%s: element %lld: %g, expected %g", what, (long long)i, a, b);
    }
}

static inline size_t count(const ir_function *f, ir_opcode code) {
    size_t n = 0;
    for (size_t i = 0; i < f->body.n_op; i++) n += f->body.op[i]->code == code;
    return n;
}

/* The same results from the function as it is, from its fused form in the evaluator, and from the plan with
 * one thread and with three (equal to the bit). fused: an op that the fused form must have; OP_NONE: any. */
static inline void check_made(graph *g, ir_opcode fused, bool also_strict, const char *what) {
    const ir_function *f = g->p->func[0];
    for (int strict = 0; strict < 2; strict++) {
        ref_tensor want[MOST] = {0}, state[MOST] = {0}, got[MOST] = {0}, after[MOST] = {0}, again[MOST] = {0},
                   after_again[MOST] = {0};
        ir_type types[MOST];
        for (size_t i = 0; i < f->n_in; i++) types[i] = g->in[i].type;
        evaluate(g, f, strict, 2, state, want);
        join(g, state);
        ir_function *form = opt_specialize(ir_program_new(g->a), f, types, strict, &g->e);
        assert_non_null(form);
        opt_clean(form);
        ir_program holder = {.a = g->a};
        opt_fuse(&holder, form, strict);
        if (fused && (!strict || also_strict)) assert_int_equal(count(form, fused), 1);
        evaluate(g, form, strict, 2, after, got);
        join(g, after);
        for (int i = 0; i < MOST; i++)
            compare(&got[i], &want[i], strict, what), compare(&after[i], &state[i], strict, what);
        drop(got), drop(after);
        walk(g, strict, 2, 1, after, got);
        join(g, after);
        for (int i = 0; i < MOST; i++)
            compare(&got[i], &want[i], strict, what), compare(&after[i], &state[i], strict, what);
        walk(g, strict, 2, 3, after_again, again);
        join(g, after_again);
        for (int i = 0; i < MOST; i++) {
            if (got[i].cell) assert_memory_equal(again[i].cell, got[i].cell, (size_t)ref_count(&got[i]) * 4);
            if (after[i].cell)
                assert_memory_equal(after_again[i].cell, after[i].cell, (size_t)ref_count(&after[i]) * 4);
        }
        drop(want), drop(state), drop(got), drop(after), drop(again), drop(after_again);
    }
    end(g);
}

static inline void check(graph *g, ir_opcode fused, bool also_strict, const char *what) {
    finish(g);
    check_made(g, fused, also_strict, what);
}

/* ---- to build graphs with ---- */

static inline ir_value *one(graph *g, ir_opcode code, ir_value *x) {
    return b_op(&g->b, code, NULL, A_x, x, A_NONE);
}

static inline ir_value *two(graph *g, ir_opcode code, ir_value *x, ir_value *y) {
    return b_op(&g->b, code, NULL, A_x, x, A_y, y, A_NONE);
}

static inline ir_value *cast(graph *g, ir_value *x, const char *d) {
    return b_op(&g->b, OP_cast, NULL, A_x, x, A_dtype, b_text(&g->b, d), A_NONE);
}

static inline ir_value *shaped(graph *g, ir_value *x, ir_value *shape) {
    return b_op(&g->b, OP_reshape, NULL, A_x, x, A_shape, shape, A_NONE);
}

static inline ir_value *constant(graph *g, ir_dtype d, ir_type shape) {
    float *v = ARENA_ARRAY(g->a, float, (size_t)ir_type_count(&shape));
    for (int64_t i = 0; i < ir_type_count(&shape); i++) v[i] = number(g);
    return b_floats(&g->b, d, v, shape);
}

static inline ir_value *joined(graph *g, ir_value *hi, ir_value *lo, const char *d) {
    ir_value *v = cast(g, b_op(&g->b, OP_read_state, NULL, A_input, hi, A_NONE), d);
    return lo ? two(g, OP_add, v, cast(g, b_op(&g->b, OP_read_state, NULL, A_input, lo, A_NONE), d)) : v;
}

static inline void write_state(graph *g, ir_value *state, ir_value *v) {
    b_op_multi(&g->b, OP_write_state, NULL, NULL, 0, A_input, state, A_data, v, A_NONE);
}
#endif
