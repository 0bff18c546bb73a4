/* The kernels of ops.h, for every instruction set of this machine, against transformers' float32 results
 * (shared cases: ops; made by generate.py there). */
#include "base/arena.h"
#include "base/num.h"
#include "checkpoint/safetensors.h"
#include "kernels/ops.h"
#include "test.h"
#include <math.h>

/* Two float32 implementations that sum in another order: absolute for numbers up to 1, relative above. */
#define TOLERANCE 2e-5

typedef struct {
    const char *name;
    arena *a;
    st_file *f;
    kern_ops k;
} fixture;

static void open_fixture(fixture *x, const char *name, const char *isa) {
    err e = {0};
    *x = (fixture){.name = name, .a = arena_new()};
    assert_true(kern_ops_open(&x->k, isa, &e));
    x->f = st_open(test_case_path(arena_printf(x->a, "ops/%s.safetensors", name)), &e);
    if (!x->f) fail_msg("%s", e.msg);
}

static void close_fixture(fixture *x) {
    st_close(x->f);
    arena_free(x->a);
}

static const st_tensor *tensor(const fixture *x, const char *name) {
    const st_tensor *t = st_find(x->f, name);
    if (!t) fail_msg("%s: no tensor %s", x->name, name);
    return t;
}

static int64_t size_of(const fixture *x, const char *name, int axis) {
    return tensor(x, name)->type.dim[axis];
}

static float *empty(const fixture *x, int64_t n) {
    return ARENA_ARRAY(x->a, float, (size_t)n);
}

static float *floats(const fixture *x, const char *name) {
    const st_tensor *t = tensor(x, name);
    int64_t n = ir_type_count(&t->type);
    float *v = empty(x, n);
    assert_true(st_floats(t, 0, (uint64_t)n, v));
    return v;
}

static void expect(const fixture *x, const char *what, const float *got, const float *want, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]), size = fabs((double)want[i]);
        if (!(d <= TOLERANCE * (size > 1 ? size : 1)))
            fail_msg("%s, %s: %s[%lld] is %.9g, expected %.9g", x->name, x->k.isa, what, (long long)i,
                     (double)got[i], (double)want[i]);
    }
}

/* Runs a test for every instruction set. */
#define FOR_EACH_ISA(body)                                                                                   \
    for (const char *const *isa = kern_isas(); *isa; isa++) body(*isa)

/* ---- norms ---- */

static void norms(const char *isa) {
    fixture x;
    open_fixture(&x, "rmsnorm_zero_centred", isa);
    int64_t rows = size_of(&x, "in.x", 0), n = size_of(&x, "in.x", 1);
    float *w = floats(&x, "w.weight"), *y = empty(&x, rows * n);
    for (int64_t i = 0; i < n; i++) w[i] += 1;
    kern_norm job = {.n = n,
                     .inner = 1,
                     .kind = KERN_NORM_MEAN,
                     .eps = 1e-6f,
                     .scale = 1,
                     .x = floats(&x, "in.x"),
                     .weight = w,
                     .x_step = {n, 0},
                     .z_step = {n, 0},
                     .y_step = {n, 0},
                     .y = y};
    x.k.norm(&job, 0, rows);
    expect(&x, "y", y, floats(&x, "out.y"), rows * n);
    close_fixture(&x);

    open_fixture(&x, "rmsnorm_gated", isa);
    rows = size_of(&x, "in.x", 0), n = size_of(&x, "in.x", 1);
    job.n = job.x_step.outer = job.y_step.outer = job.z_step.outer = n;
    job.x = floats(&x, "in.x"), job.z = floats(&x, "in.z"), job.weight = floats(&x, "w.weight");
    job.y = y = empty(&x, rows * n);
    x.k.norm(&job, 0, rows);
    expect(&x, "y", y, floats(&x, "out.y"), rows * n);
    close_fixture(&x);

    open_fixture(&x, "l2norm", isa);
    rows = size_of(&x, "in.x", 0), n = size_of(&x, "in.x", 1);
    job.n = job.x_step.outer = job.y_step.outer = n, job.kind = KERN_NORM_SUM;
    job.x = floats(&x, "in.x"), job.z = job.weight = NULL;
    job.y = y = empty(&x, rows * n);
    x.k.norm(&job, 0, rows);
    expect(&x, "y", y, floats(&x, "out.y"), rows * n);
    close_fixture(&x);
}

static void test_norms(void **state) {
    (void)state;
    FOR_EACH_ISA(norms);
}

static void rotate_heads(const fixture *x, const char *in, const char *out) {
    int64_t heads = size_of(x, in, 1), tokens = size_of(x, in, 2), d = size_of(x, in, 3);
    float *y = empty(x, heads * tokens * d);
    kern_norm job = {.n = d,
                     .inner = heads,
                     .scale = 1,
                     .x = floats(x, in),
                     .x_step = {d, tokens * d},
                     .y_step = {d, tokens * d},
                     .cos = floats(x, "out.cos"),
                     .sin = floats(x, "out.sin"),
                     .dims = size_of(x, "out.cos", 2),
                     .ld_table = size_of(x, "out.cos", 2),
                     .y = y};
    x->k.norm(&job, 0, heads * tokens);
    expect(x, out, y, floats(x, out), heads * tokens * d);
}

static void rotation(const char *isa) {
    fixture x;
    open_fixture(&x, "rope_partial", isa);
    rotate_heads(&x, "in.q", "out.q");
    rotate_heads(&x, "in.k", "out.k");
    close_fixture(&x);
}

static void test_rotation(void **state) {
    (void)state;
    FOR_EACH_ISA(rotation);
}

/* ---- convolution: the cases' tensors are [1,C,T], the kernel's [T,C] ---- */

static float *turned(const fixture *x, const float *from, int64_t rows, int64_t columns) {
    float *to = empty(x, rows * columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
    return to;
}

static void convolve(const fixture *x, const char *in, const char *out, int64_t at_once,
                     const float *state_after) {
    int64_t channels = size_of(x, in, 1), tokens = size_of(x, in, 2), taps = size_of(x, "w.weight", 2);
    float *u = turned(x, floats(x, in), channels, tokens), *y = empty(x, channels * tokens);
    float *state = empty(x, channels * taps); /* the cases keep one column more: the oldest is never read */
    memset(state, 0, (size_t)(channels * taps) * 4);
    if (st_find(x->f, "in.state0")) memcpy(state, floats(x, "in.state0"), (size_t)(channels * taps) * 4);
    kern_conv job = {.channels = channels,
                     .taps = taps,
                     .tokens = at_once,
                     .valid = at_once,
                     .w = floats(x, "w.weight"),
                     .ldu = channels,
                     .ldy = channels,
                     .ld_state = taps,
                     .w_tap = 1,
                     .w_channel = taps,
                     .silu = true,
                     .state = {state + 1, NULL, KERN_F32}};
    for (int64_t t = 0; t < tokens; t += at_once) {
        job.u = u + t * channels, job.y = y + t * channels;
        x->k.conv(&job, 0, channels);
    }
    expect(x, out, turned(x, y, tokens, channels), floats(x, out), channels * tokens);
    for (int64_t c = 0; c < channels && state_after; c++)
        expect(x, "state", state + c * taps + 1, state_after + c * taps + 1, taps - 1);
}

static void convolution(const char *isa) {
    fixture x;
    open_fixture(&x, "conv_prefill_zero_state", isa);
    convolve(&x, "in.x_seq", "out.y_seq", size_of(&x, "in.x_seq", 2), NULL);
    convolve(&x, "in.x_seq", "out.y_seq", 1, NULL);
    close_fixture(&x);
    open_fixture(&x, "conv_prefill_with_state", isa);
    convolve(&x, "in.x_seq", "out.y_seq", size_of(&x, "in.x_seq", 2), floats(&x, "out.state"));
    convolve(&x, "in.x_seq", "out.y_seq", 1, floats(&x, "out.state"));
    close_fixture(&x);
    open_fixture(&x, "conv_step", isa);
    int64_t tokens = size_of(&x, "in.x", 2), size = size_of(&x, "in.state0", 1) * size_of(&x, "in.state0", 2);
    convolve(&x, "in.x", "out.y", 1, floats(&x, "out.states") + (tokens - 1) * size);
    close_fixture(&x);
}

static void test_convolution(void **state) {
    (void)state;
    FOR_EACH_ISA(convolution);
}

/* ---- the gated delta rule ---- */

static void gates(const char *isa) {
    fixture x;
    open_fixture(&x, "gdn_gates", isa);
    int64_t tokens = size_of(&x, "in.a", 0), heads = size_of(&x, "in.a", 1);
    float *rate = floats(&x, "w.A_log");
    for (int64_t h = 0; h < heads; h++) rate[h] = -expf(rate[h]);
    kern_gates job = {.heads = heads,
                      .valid = tokens,
                      .a = floats(&x, "in.a"),
                      .b = floats(&x, "in.b"),
                      .rate = rate,
                      .bias = floats(&x, "w.dt_bias"),
                      .lda = heads,
                      .ldb = heads,
                      .log_decay = empty(&x, tokens * heads),
                      .beta = empty(&x, tokens * heads)};
    x.k.gates(&job, 0, tokens * heads);
    expect(&x, "g", job.log_decay, floats(&x, "out.g"), tokens * heads);
    expect(&x, "beta", job.beta, floats(&x, "out.beta"), tokens * heads);
    close_fixture(&x);
}

static void test_gates(void **state) {
    (void)state;
    FOR_EACH_ISA(gates);
}

static void delta(const char *name, const char *isa, bool transposed) {
    fixture x;
    open_fixture(&x, name, isa);
    int64_t tokens = size_of(&x, "in.q", 1), kh = size_of(&x, "in.q", 2), dk = size_of(&x, "in.q", 3);
    int64_t heads = size_of(&x, "in.v", 2), dv = size_of(&x, "in.v", 3), size = heads * dk * dv;
    float *state = empty(&x, size), *want = floats(&x, "out.state");
    memset(state, 0, (size_t)size * 4);
    if (st_find(x.f, "in.state0")) memcpy(state, floats(&x, "in.state0"), (size_t)size * 4);
    for (int64_t h = 0; h < heads && transposed; h++) {
        memcpy(state + h * dk * dv, turned(&x, state + h * dk * dv, dk, dv), (size_t)(dk * dv) * 4);
        memcpy(want + h * dk * dv, turned(&x, want + h * dk * dv, dk, dv), (size_t)(dk * dv) * 4);
    }
    kern_delta job = {.repeat = heads / kh,
                      .dk = dk,
                      .dv = dv,
                      .tokens = tokens,
                      .q = floats(&x, "in.q"),
                      .k = floats(&x, "in.k"),
                      .v = floats(&x, "in.v"),
                      .q_step = {dk, kh * dk},
                      .k_step = {dk, kh * dk},
                      .v_step = {dv, heads * dv},
                      .y_step = {dv, heads * dv},
                      .log_decay = floats(&x, "in.g"),
                      .beta = floats(&x, "in.beta"),
                      .gate_step = {1, heads},
                      .unit = true,
                      .unit_eps = 1e-6f,
                      .q_scale = (float)(1 / sqrt((double)dk)),
                      .state = {state, NULL, KERN_F32},
                      .transposed = transposed,
                      .y = empty(&x, tokens * heads * dv)};
    job.scratch = mem_try_aligned(kern_delta_scratch(&job) / 64 * 64 + 64, 64);
    x.k.delta(&job, 0, heads);
    mem_free(job.scratch);
    expect(&x, "o", job.y, floats(&x, "out.o"), tokens * heads * dv);
    expect(&x, "state", state, want, size);
    close_fixture(&x);
}

static void deltas(const char *isa) {
    static const char *const name[] = {
        "gdn_step_single",           "gdn_steps_7_state",
        "gdn_steps_5_nostate",       "gdn_chunk_T37_C8",
        "gdn_chunk_T37_C16",         "gdn_chunk_T37_C64",
        "gdn_chunk_T64_C64_nostate", "gdn_chunk_T70_C32_equal_heads",
        "gdn_chunk_strong_beta",     "gdn_chunk_strong_decay",
        "gdn_chunk_repeated_key",    "gdn_chunk_repeated_key_C64",
        "gdn_chunk_real_dims",
    };
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) delta(name[i], isa, i % 2 != 0);
}

static void test_delta(void **state) {
    (void)state;
    FOR_EACH_ISA(deltas);
}

/* ---- attention with its norms, rotation and gate: one whole layer's mixer ---- */

static float *projected(const fixture *x, const float *rows, int64_t n, int64_t k, const char *weight) {
    int64_t out = size_of(x, weight, 0);
    float *w = floats(x, weight), *y = empty(x, n * out);
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < out; r++) {
            double s = 0;
            for (int64_t c = 0; c < k; c++) s += (double)rows[i * k + c] * (double)w[r * k + c];
            y[i * out + r] = (float)s;
        }
    return y;
}

static float *positioned(const fixture *x, float *v, int64_t tokens, int64_t heads, int64_t width,
                         const char *weight, const float *cosine, const float *sine, int64_t dims) {
    int64_t d = size_of(x, weight, 0);
    float *w = floats(x, weight), *y = empty(x, tokens * heads * d);
    for (int64_t i = 0; i < d; i++) w[i] += 1;
    kern_norm job = {.n = d,
                     .inner = heads,
                     .kind = KERN_NORM_MEAN,
                     .eps = 1e-6f,
                     .scale = 1,
                     .x = v,
                     .weight = w,
                     .x_step = {heads * width, width},
                     .y_step = {heads * d, d},
                     .cos = cosine,
                     .sin = sine,
                     .dims = dims,
                     .ld_table = dims / 2,
                     .half_table = true,
                     .y = y};
    x->k.norm(&job, 0, tokens * heads);
    return y;
}

static void attention(const char *isa) {
    enum { HEADS = 4, GROUPS = 2, D = 32, DIMS = 8 }; /* the case's configuration */
    fixture x;
    open_fixture(&x, "attention_gated", isa);
    int64_t tokens = size_of(&x, "in.x", 1), hidden = size_of(&x, "in.x", 2);
    float *cosine = empty(&x, tokens * DIMS), *sine = empty(&x, tokens * DIMS), *in = floats(&x, "in.x");
    const uint8_t *position = tensor(&x, "in.positions")->data;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < DIMS / 2; j++) {
            double angle = (double)num_get32(position + 4 * t) * pow(1e7, -2.0 * (double)j / DIMS);
            cosine[t * DIMS / 2 + j] = (float)cos(angle), sine[t * DIMS / 2 + j] = (float)sin(angle);
        }
    float *q_gate = projected(&x, in, tokens, hidden, "w.q_proj.weight");
    float *key = projected(&x, in, tokens, hidden, "w.k_proj.weight");
    kern_attention job = {
        .heads = HEADS,
        .groups = GROUPS,
        .d = D,
        .d_v = D,
        .units = 3,
        .scale = (float)(1 / sqrt((double)D)),
        .q_step = {D, HEADS * D},
        .gate_step = {2 * D, 2 * HEADS * D},
        .y_step = {D, HEADS * D},
        .k = {positioned(&x, key, tokens, GROUPS, D, "w.k_norm.weight", cosine, sine, DIMS), NULL, KERN_F32},
        .v = {projected(&x, in, tokens, hidden, "w.v_proj.weight"), NULL, KERN_F32},
        .k_step = {D, GROUPS * D},
        .v_step = {D, GROUPS * D},
        .keys = tokens};
    float *q = positioned(&x, q_gate, tokens, HEADS, 2 * D, "w.q_norm.weight", cosine, sine, DIMS);
    float *y = empty(&x, tokens * HEADS * D);
    for (int64_t at_once = 1; at_once <= tokens; at_once += tokens - 1) { /* decode, prefill */
        job.tokens = at_once;
        job.partial = empty(&x, kern_partial_size(&job) + 1);
        job.scratch = mem_try_aligned(kern_attention_scratch(&job) / 64 * 64 + 64, 64);
        for (job.first = 0; job.first < tokens; job.first += at_once) {
            job.q = q + job.first * HEADS * D, job.y = y + job.first * HEADS * D;
            job.gate = q_gate + job.first * HEADS * 2 * D + D;
            x.k.attend(&job, 0, job.units);
            if (at_once < KERN_MANY) x.k.attend_join(&job, 0, at_once * HEADS);
        }
        mem_free(job.scratch);
        expect(&x, "y", projected(&x, y, tokens, HEADS * D, "w.o_proj.weight"), floats(&x, "out.y"),
               tokens * hidden);
    }
    close_fixture(&x);
}

static void test_attention(void **state) {
    (void)state;
    FOR_EACH_ISA(attention);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms), cmocka_unit_test(test_rotation), cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_gates), cmocka_unit_test(test_delta),    cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
