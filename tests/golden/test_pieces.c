/* The pieces of Qwen3.5 one by one, and tiny Qwen3.5 and Qwen3 models made of them, against transformers'
 * float32 results (shared cases: ops). Every file of that set has its row in the table at the end.
 *
 * Pieces are tested as the graph builder emits them, one token a call: a model of one layer is built in
 * float32 around a fixture's weights, and its program is cut: named inner values become inputs, in place of
 * the ops that made them. What the chunked fixtures expect is what stepping through their tokens gives. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "coreml/model.h"
#include "models/models.h"
#include "runtime/session.h"
#include "work_dir.h"
#include <float.h>
#include <math.h>

/* Two float32 implementations that sum in another order, and states with 22 bits (an fp16 value and an fp16
 * remainder): absolute for numbers up to 1, relative above. */
#define TOLERANCE 2e-5
/* Logits of size 45 behind four layers that magnify rounding. */
#define LOGIT_TOLERANCE 2e-4

static void need(bool ok, const err *e) {
    if (!ok) fail_msg("%s", e->msg);
}

/* --- a fixture and the program that computes it --- */

typedef struct {
    const char *file; /* of the shared cases, without .safetensors */
    rt_mode mode;
    arena *a;
    st_file *f;
    st_tensor weight[24]; /* of the checkpoint to make */
    size_t n_weight;
    int64_t hidden;
    ir_program *program;
    const char *const *cut; /* NULL-terminated; in the order of their inputs */
    rt_model *m;
    rt_session *s;
    rt_tensor out[16];
    double worst; /* largest difference so far, as the tolerances count */
} piece;

static st_file *open_fixture(piece *p, const char *file) {
    err e = {0};
    st_file *f = st_open(test_case_path(arena_printf(p->a, "ops/%s.safetensors", file)), &e);
    need(f, &e);
    return f;
}

static piece open_piece(const char *file, rt_mode mode) {
    piece p = {.file = file, .mode = mode, .a = arena_new()};
    p.f = open_fixture(&p, file);
    return p;
}

static void close_piece(piece *p) {
    if (p->mode == RT_STRICT) print_message("%s: largest difference %.2g\n", p->file, p->worst);
    rt_session_free(p->s);
    rt_model_close(p->m);
    st_close(p->f);
    arena_free(p->a);
}

static const st_tensor *tensor(const piece *p, const char *name) {
    const st_tensor *t = st_find(p->f, name);
    if (!t) fail_msg("%s: no tensor %s", p->file, name);
    return t;
}

static int64_t size_of(const piece *p, const char *name, int axis) {
    const st_tensor *t = tensor(p, name);
    assert_true(axis < t->type.rank);
    return t->type.dim[axis];
}

static const float *floats(const piece *p, const char *name) {
    const st_tensor *t = tensor(p, name);
    uint64_t n = (uint64_t)ir_type_count(&t->type);
    float *x = ARENA_ARRAY(p->a, float, n);
    assert_true(st_floats(t, 0, n, x));
    return x;
}

static int32_t integer(const piece *p, const char *name, int64_t i) {
    const st_tensor *t = tensor(p, name);
    assert_true(t->type.dtype == DT_INT32 && i < ir_type_count(&t->type));
    return (int32_t)num_get32((const uint8_t *)t->data + 4 * i);
}

/* n numbers that lie step apart. */
static const float *gather(const piece *p, const float *x, int64_t n, int64_t step) {
    float *y = ARENA_ARRAY(p->a, float, (size_t)n);
    for (int64_t k = 0; k < n; k++) y[k] = x[k * step];
    return y;
}

/* scale: what a difference is relative to at the least. */
static void check_scaled(piece *p, const char *what, const float *got, const float *want, int64_t n,
                         double tolerance, double scale) {
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]) / fmax(scale, fabs((double)want[i]));
        if (!(d <= tolerance))
            fail_msg("%s: %s[%lld] is %.9g, expected %.9g", p->file, what, (long long)i, (double)got[i],
                     (double)want[i]);
        p->worst = fmax(p->worst, d);
    }
}

static void check(piece *p, const char *what, const float *got, const float *want, int64_t n) {
    check_scaled(p, what, got, want, n, TOLERANCE, 1);
}

/* --- the checkpoint: one layer, zeros where the fixture has no weights --- */

typedef struct {
    bool attention; /* the layer; else DeltaNet */
    int64_t hidden, heads, kv_heads, head_dim, k_heads, v_heads, k_dim, v_dim, context;
} shape;

enum { VOCAB = 8, WIDTH = 8, TAPS = 4 };

static void add_weight(piece *p, const char *name, ir_type t) {
    static const float zeros[1 << 16];
    for (size_t i = 0; i < p->n_weight; i++)
        if (!strcmp(p->weight[i].name, name)) return;
    assert_true(p->n_weight < sizeof p->weight / sizeof *p->weight);
    assert_true(ir_type_count(&t) <= (int64_t)(sizeof zeros / sizeof *zeros));
    p->weight[p->n_weight++] = (st_tensor){.name = name, .type = t, .data = zeros};
}

/* The fixture's tensor under a checkpoint's name. */
static void use_weight(piece *p, const char *name, const char *from) {
    st_tensor t = *tensor(p, from);
    t.name = name;
    p->weight[p->n_weight++] = t;
}

/* All w.* of the fixture as the layer's. */
static void use_layer_weights(piece *p, const char *module) {
    for (size_t i = 0; i < st_count(p->f); i++) {
        const char *name = st_at(p->f, i)->name;
        if (!strncmp(name, "w.", 2))
            use_weight(p, arena_printf(p->a, "model.layers.0.%s.%s", module, name + 2), name);
    }
}

static void add_missing_weights(piece *p, const shape *s) {
#define ADD(name, ...) add_weight(p, "model." name, IR_TYPE(DT_FP32, __VA_ARGS__))
    int64_t h = s->hidden, values = s->v_heads * s->v_dim, channels = 2 * s->k_heads * s->k_dim + values;
    ADD("embed_tokens.weight", VOCAB, h);
    ADD("norm.weight", h);
    ADD("layers.0.input_layernorm.weight", h);
    ADD("layers.0.post_attention_layernorm.weight", h);
    ADD("layers.0.mlp.gate_proj.weight", WIDTH, h);
    ADD("layers.0.mlp.up_proj.weight", WIDTH, h);
    ADD("layers.0.mlp.down_proj.weight", h, WIDTH);
    if (s->attention) {
        ADD("layers.0.self_attn.q_proj.weight", 2 * s->heads * s->head_dim, h);
        ADD("layers.0.self_attn.k_proj.weight", s->kv_heads * s->head_dim, h);
        ADD("layers.0.self_attn.v_proj.weight", s->kv_heads * s->head_dim, h);
        ADD("layers.0.self_attn.o_proj.weight", h, s->heads * s->head_dim);
        ADD("layers.0.self_attn.q_norm.weight", s->head_dim);
        ADD("layers.0.self_attn.k_norm.weight", s->head_dim);
        return;
    }
    ADD("layers.0.linear_attn.in_proj_qkv.weight", channels, h);
    ADD("layers.0.linear_attn.in_proj_z.weight", values, h);
    ADD("layers.0.linear_attn.in_proj_a.weight", s->v_heads, h);
    ADD("layers.0.linear_attn.in_proj_b.weight", s->v_heads, h);
    ADD("layers.0.linear_attn.conv1d.weight", channels, 1, TAPS);
    ADD("layers.0.linear_attn.dt_bias", s->v_heads);
    ADD("layers.0.linear_attn.A_log", s->v_heads);
    ADD("layers.0.linear_attn.norm.weight", s->v_dim);
    ADD("layers.0.linear_attn.out_proj.weight", h, values);
#undef ADD
}

static const char *config_of(piece *p, const shape *s) {
    return arena_printf(
        p->a,
        "{\"model_type\": \"qwen3_5_text\", \"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": "
        "%d, "
        "\"num_hidden_layers\": 1, \"layer_types\": [\"%s_attention\"], \"num_attention_heads\": %d, "
        "\"num_key_value_heads\": %d, \"head_dim\": %d, \"linear_num_key_heads\": %d, "
        "\"linear_num_value_heads\": %d, \"linear_key_head_dim\": %d, \"linear_value_head_dim\": %d, "
        "\"linear_conv_kernel_dim\": %d, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-6, "
        "\"max_position_embeddings\": 262144, \"tie_word_embeddings\": true, \"rope_parameters\": "
        "{\"rope_type\": \"default\", \"rope_theta\": 10000000.0, \"partial_rotary_factor\": 0.25}}",
        VOCAB, (int)s->hidden, WIDTH, s->attention ? "full" : "linear", (int)s->heads, (int)s->kv_heads,
        (int)s->head_dim, (int)s->k_heads, (int)s->v_heads, (int)s->k_dim, (int)s->v_dim, TAPS);
}

/* --- programs --- */

/* Makes inputs of these inner values: the ops that made them go. */
static void cut_program(ir_program *program, const char *const *name) {
    ir_function *f = ir_function_find(program, "main");
    ir_block *b = &f->body;
    size_t n = 0;
    while (name && name[n]) n++;
    ir_value **in = ARENA_ARRAY(program->a, ir_value *, n + f->n_in);
    for (size_t k = 0; k < n; k++) {
        size_t i = 0;
        while (i < b->n_op && !(b->op[i]->n_out == 1 && !strcmp(b->op[i]->out[0]->name, name[k]))) i++;
        if (i == b->n_op) fail_msg("the program has no value %s", name[k]);
        in[k] = b->op[i]->out[0];
        in[k]->def = NULL;
        memmove(&b->op[i], &b->op[i + 1], (--b->n_op - i) * sizeof *b->op);
    }
    memcpy(in + n, f->in, f->n_in * sizeof *in); /* states stay last */
    f->in = in;
    f->cap_in = f->n_in += n;
}

/* Builds the checkpoint in work_dir and opens its program, with cuts. */
static void open_program(piece *p, int64_t context, const char *const *cut) {
    err e = {0};
    checkpoint *c = checkpoint_open(work_dir, models_families(), &e);
    need(c, &e);
    models_options o = {.preset = PRESET_CHUNKS, .precision = PRECISION_FLOAT32, .context = context};
    models_graph g;
    need(models_build(&g, p->a, c, &o, &e), &e);
    p->hidden = checkpoint_config(c)->hidden;
    p->program = g.program;
    p->cut = cut;
    cut_program(g.program, cut);
    const char *path = arena_printf(p->a, "%s/model.mlpackage", work_dir);
    coreml_write_options w = {.overwrite = true};
    need(coreml_write(path, coreml_model_new(p->a, g.program, 9), &w, &e), &e);
    checkpoint_close(c);
    p->m = rt_model_open(path, &e);
    need(p->m, &e);
    p->s = rt_session_new(p->m, p->mode, &e);
    need(p->s, &e);
}

static void write_config(piece *p, const char *text) {
    err e = {0};
    need(file_write(arena_printf(p->a, "%s/config.json", work_dir), text, strlen(text), &e), &e);
}

static void build(piece *p, shape s, const char *const *cut) {
    err e = {0};
#define DEFAULT(member, value) s.member = s.member ? s.member : (value)
    DEFAULT(hidden, 8), DEFAULT(heads, 1), DEFAULT(kv_heads, 1), DEFAULT(head_dim, 32);
    DEFAULT(k_heads, 1), DEFAULT(v_heads, 1), DEFAULT(k_dim, 4), DEFAULT(v_dim, 4), DEFAULT(context, 16);
#undef DEFAULT
    add_missing_weights(p, &s);
    write_config(p, config_of(p, &s));
    need(st_write(arena_printf(p->a, "%s/model.safetensors", work_dir), p->weight, p->n_weight, &e), &e);
    open_program(p, s.context, cut);
}

/* One token. hidden: NULL where the program is cut behind it; feed: the values of the cuts; then the inner
 * values to return. */
static void run(piece *p, int32_t position, const float *hidden, const float *const *feed,
                const char *const *values, size_t n_values) {
    err e = {0};
    const ir_function *f = ir_function_find(p->program, "main");
    if (!hidden) hidden = memset(ARENA_ARRAY(p->a, float, (size_t)p->hidden), 0, (size_t)p->hidden * 4);
    rt_tensor in[8];
    size_t n = 0;
    for (; p->cut && p->cut[n]; n++) in[n] = (rt_tensor){p->cut[n], f->in[n]->type, feed[n]};
    in[n++] = (rt_tensor){"hidden", IR_TYPE(DT_FP32, 1, 1, p->hidden), hidden};
    in[n++] = (rt_tensor){"current_pos", IR_TYPE(DT_INT32, 1), &position};
    rt_call c = {.in = in, .n_in = n, .values = values, .n_values = n_values, .out = p->out};
    need(rt_run(p->s, &c, &e), &e);
    assert_int_equal(p->out[0].type.dtype, DT_FP32); /* the logits; values follow */
}
#define VALUES(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)
#define FEED(...)                                                                                            \
    (const float *const[]) {                                                                                 \
        __VA_ARGS__                                                                                          \
    }
#define CUT(...)                                                                                             \
    (const char *const[]) {                                                                                  \
        __VA_ARGS__, NULL                                                                                    \
    }

static const float *value(const piece *p, int i, int64_t n) {
    const rt_tensor *t = &p->out[1 + i];
    assert_true(t->type.dtype == DT_FP32 && ir_type_count(&t->type) == n);
    return t->data;
}

/* --- states, as numbers: value + remainder --- */

static rt_tensor half_state(piece *p, const char *name) {
    err e = {0};
    rt_tensor t;
    need(rt_state_get(p->s, name, &t, &e), &e);
    assert_int_equal(t.type.dtype, DT_FP16);
    return t;
}

static void set_half(piece *p, const char *name, const uint16_t *h) {
    err e = {0};
    rt_tensor t = half_state(p, name);
    t.data = h;
    need(rt_state_set(p->s, name, &t, &e), &e);
}

static void set_state(piece *p, const char *name, const float *x, int64_t n) {
    uint16_t *hi = ARENA_ARRAY(p->a, uint16_t, (size_t)n), *lo = ARENA_ARRAY(p->a, uint16_t, (size_t)n);
    rt_tensor t = half_state(p, name);
    assert_int_equal(ir_type_count(&t.type), n);
    for (int64_t i = 0; i < n; i++) {
        hi[i] = num_f32_f16(x[i]);
        lo[i] = num_f32_f16(x[i] - num_f16_f32(hi[i]));
    }
    set_half(p, name, hi);
    set_half(p, arena_printf(p->a, "%s_lo", name), lo);
}

static const float *get_state(piece *p, const char *name, int64_t n) {
    float *x = ARENA_ARRAY(p->a, float, (size_t)n);
    for (int half = 0; half < 2; half++) {
        rt_tensor t = half_state(p, half ? arena_printf(p->a, "%s_lo", name) : name);
        assert_int_equal(ir_type_count(&t.type), n);
        for (int64_t i = 0; i < n; i++) x[i] = (half ? x[i] : 0) + num_f16_f32(((const uint16_t *)t.data)[i]);
    }
    return x;
}

/* The last 3 of transformers' 4 columns: the oldest is never read again. */
static const float *newest(const piece *p, const float *x, int64_t channels) {
    float *y = ARENA_ARRAY(p->a, float, (size_t)channels *(TAPS - 1));
    for (int64_t i = 0; i < channels; i++) memcpy(y + i * (TAPS - 1), x + i * TAPS + 1, (TAPS - 1) * 4);
    return y;
}

/* --- norms and gates --- */

static void rms_norm(piece *p) {
    use_weight(p, "model.norm.weight", "w.weight");
    int64_t n = size_of(p, "in.x", 1);
    build(p, (shape){.hidden = n}, CUT("layer_0_out"));
    const float *x = floats(p, "in.x"), *y = floats(p, "out.y");
    for (int64_t row = 0; row < size_of(p, "in.x", 0); row++) {
        run(p, 0, NULL, FEED(x + row * n), VALUES("final_norm_out"));
        check(p, "y", value(p, 0, n), y + row * n, n);
    }
}

/* Each row is a value head. */
static void gated_norm(piece *p) {
    use_weight(p, "model.layers.0.linear_attn.norm.weight", "w.weight");
    int64_t rows = size_of(p, "in.x", 0), n = size_of(p, "in.x", 1);
    build(p, (shape){.v_heads = rows, .v_dim = n}, CUT("layer_0_memory_read", "layer_0_output_gate"));
    run(p, 0, NULL, FEED(floats(p, "in.x"), floats(p, "in.z")), VALUES("layer_0_output_gated"));
    check(p, "y", value(p, 0, rows * n), floats(p, "out.y"), rows * n);
}

/* Each row is a key head, and a query head. */
static void unit_norm(piece *p) {
    int64_t rows = size_of(p, "in.x", 0), n = size_of(p, "in.x", 1);
    build(p, (shape){.k_heads = rows, .v_heads = rows, .k_dim = n}, CUT("layer_0_key", "layer_0_query"));
    const float *x = floats(p, "in.x"), *y = floats(p, "out.y");
    run(p, 0, NULL, FEED(x, x), VALUES("layer_0_key_unit", "layer_0_query_unit"));
    for (int i = 0; i < 2; i++) check(p, i ? "query" : "key", value(p, i, rows * n), y, rows * n);
}

/* The decay's logarithm runs from -1e3 to -1e-35: relative throughout, a few roundings of fp32. */
static void gates(piece *p) {
    use_weight(p, "model.layers.0.linear_attn.A_log", "w.A_log");
    use_weight(p, "model.layers.0.linear_attn.dt_bias", "w.dt_bias");
    int64_t n = size_of(p, "in.a", 1);
    build(p, (shape){.v_heads = n}, CUT("layer_0_linear_attn_in_proj_a", "layer_0_linear_attn_in_proj_b"));
    const float *a = floats(p, "in.a"), *b = floats(p, "in.b"), *g = floats(p, "out.g"),
                *beta = floats(p, "out.beta"), *alpha = floats(p, "out.alpha");
    for (int64_t row = 0; row < size_of(p, "in.a", 0); row++) {
        run(p, 0, NULL, FEED(a + row * n, b + row * n),
            VALUES("layer_0_log_decay", "layer_0_decay_by_head", "layer_0_beta_by_head"));
        check_scaled(p, "g", value(p, 0, n), g + row * n, n, 2e-6, FLT_MIN);
        check(p, "alpha", value(p, 1, n), alpha + row * n, n);
        check(p, "beta", value(p, 2, n), beta + row * n, n);
    }
}

/* --- convolution and delta rule --- */

static void convolution(piece *p) {
    use_weight(p, "model.layers.0.linear_attn.conv1d.weight", "w.weight");
    bool one = st_find(p->f, "in.x"), begun = st_find(p->f, "in.state0"), ends = st_find(p->f, "out.state");
    const char *in = one ? "in.x" : "in.x_seq";
    int64_t n = size_of(p, in, 1), tokens = size_of(p, in, 2);
    assert_int_equal(n, 12); /* of one query, key and value head of 4 each */
    build(p, (shape){0}, CUT("layer_0_linear_attn_in_proj_qkv"));
    const float *x = floats(p, in), *y = floats(p, one ? "out.y" : "out.y_seq"),
                *states = one ? floats(p, "out.states") : NULL;
    if (begun) set_state(p, "conv_0", newest(p, floats(p, "in.state0"), n), n * (TAPS - 1));
    for (int64_t t = 0; t < tokens; t++) {
        run(p, 0, NULL, FEED(gather(p, x + t, n, tokens)), VALUES("layer_0_conv_silu"));
        check(p, "y", value(p, 0, n), gather(p, y + t, n, tokens), n);
        if (one)
            check(p, "states", get_state(p, "conv_0", n * (TAPS - 1)), newest(p, states + t * n * TAPS, n),
                  n * (TAPS - 1));
    }
    if (ends)
        check(p, "state", get_state(p, "conv_0", n * (TAPS - 1)), newest(p, floats(p, "out.state"), n),
              n * (TAPS - 1));
}

/* A step adds k (beta error)^T to the memory, and a chunk K^T V', decayed: the rows of V' are the beta
 * errors. (The other intermediates of a chunk do not occur in steps.) */
static void check_correction(piece *p, int64_t t, float beta, int64_t n) {
    const float *error = value(p, 1, n);
    float *row = ARENA_ARRAY(p->a, float, (size_t)n);
    for (int64_t i = 0; i < n; i++) row[i] = beta * error[i];
    check(p, "mid.Vnew", row, floats(p, "mid.Vnew") + t * n, n);
}

static void delta_rule(piece *p) {
    int64_t tokens = size_of(p, "in.q", 1), hk = size_of(p, "in.q", 2), dk = size_of(p, "in.q", 3),
            hv = size_of(p, "in.v", 2), dv = size_of(p, "in.v", 3), memory = hv * dk * dv;
    build(p, (shape){.k_heads = hk, .v_heads = hv, .k_dim = dk, .v_dim = dv},
          CUT("layer_0_query", "layer_0_key", "layer_0_value", "layer_0_log_decay", "layer_0_beta_by_head"));
    const float *q = floats(p, "in.q"), *k = floats(p, "in.k"), *v = floats(p, "in.v"),
                *g = floats(p, "in.g"), *beta = floats(p, "in.beta"), *o = floats(p, "out.o");
    if (st_find(p->f, "in.state0")) set_state(p, "rec_0", floats(p, "in.state0"), memory);
    for (int64_t t = 0; t < tokens; t++) {
        run(p, 0, NULL, FEED(q + t * hk * dk, k + t * hk * dk, v + t * hv * dv, g + t * hv, beta + t * hv),
            VALUES("layer_0_memory_read", "layer_0_memory_error"));
        check(p, "o", value(p, 0, hv * dv), o + t * hv * dv, hv * dv);
        if (st_find(p->f, "mid.Vnew")) check_correction(p, t, beta[t], hv * dv);
    }
    check(p, "state", get_state(p, "rec_0", memory), floats(p, "out.state"), memory);
}

static void deltanet_layer(piece *p) {
    use_layer_weights(p, "linear_attn");
    int64_t n = size_of(p, "in.x", 2);
    build(p, (shape){.hidden = n, .k_heads = 2, .v_heads = 4, .k_dim = 16, .v_dim = 16},
          CUT("layer_0_input_normed"));
    const float *x = floats(p, "in.x"), *y = floats(p, "out.y");
    for (int64_t t = 0; t < size_of(p, "in.x", 1); t++) {
        run(p, 0, NULL, FEED(x + t * n), VALUES("layer_0_linear_attn_out_proj"));
        check(p, "y", value(p, 0, n), y + t * n, n);
    }
}

/* --- RoPE and attention --- */

/* The last value of that name: the builder numbers those after the first. */
static const char *last_of(const piece *p, const char *name) {
    const ir_block *b = &ir_function_find(p->program, "main")->body;
    size_t n = strlen(name);
    for (size_t i = b->n_op; i-- > 0;) {
        const char *found = b->op[i]->n_out == 1 ? b->op[i]->out[0]->name : "";
        if (!strncmp(found, name, n) && !found[n + strspn(found + n, "_0123456789")]) return found;
    }
    fail_msg("the program has no value %s", name);
    return NULL;
}

/* Row t of each head of x [1,heads,tokens,d]. */
static const float *of_token(const piece *p, const char *name, int64_t t) {
    const float *x = floats(p, name);
    int64_t heads = size_of(p, name, 1), tokens = size_of(p, name, 2), d = size_of(p, name, 3);
    float *y = ARENA_ARRAY(p->a, float, (size_t)(heads * d));
    for (int64_t h = 0; h < heads; h++) memcpy(y + h * d, x + (h * tokens + t) * d, (size_t)d * 4);
    return y;
}

static void rotation(piece *p) {
    int64_t heads = size_of(p, "in.q", 1), groups = size_of(p, "in.k", 1), d = size_of(p, "in.q", 3),
            dims = size_of(p, "out.cos", 2);
    build(p, (shape){.attention = true, .heads = heads, .kv_heads = groups, .head_dim = d},
          CUT("layer_0_query_normed", "layer_0_key_normed"));
    const char *query = last_of(p, "layer_0_query_rotated"), *key = last_of(p, "layer_0_key_rotated");
    for (int64_t t = 0; t < size_of(p, "in.positions", 0); t++) {
        run(p, integer(p, "in.positions", t), NULL, FEED(of_token(p, "in.q", t), of_token(p, "in.k", t)),
            VALUES(query, key, "rope_cos", "rope_sin"));
        check(p, "q", value(p, 0, heads * d), of_token(p, "out.q", t), heads * d);
        check(p, "k", value(p, 1, groups * d), of_token(p, "out.k", t), groups * d);
        check(p, "cos", value(p, 2, dims), floats(p, "out.cos") + t * dims, dims);
        check(p, "sin", value(p, 3, dims), floats(p, "out.sin") + t * dims, dims);
    }
}

static const float *constant(const piece *p, const char *name) {
    const ir_block *b = &ir_function_find(p->program, "main")->body;
    for (size_t i = 0; i < b->n_op; i++)
        if (b->op[i]->n_out == 1 && !strcmp(b->op[i]->out[0]->name, name))
            return b->op[i]->out[0]->konst->data;
    fail_msg("the program has no constant %s", name);
    return NULL;
}

/* Positions up to 262143. transformers makes the frequencies with a power in fp32, which may be off by a few
 * units in the last place. Where that is so, the angle is off by that much and by its own rounding; where it
 * is not, the angles are equal. */
static void rotation_tables(piece *p) {
    int64_t n = size_of(p, "out.inv_freq", 0);
    build(p, (shape){.head_dim = 256, .context = 262144}, NULL);
    const float *f = constant(p, "rope_frequency"), *want = floats(p, "out.inv_freq");
    check_scaled(p, "inv_freq", f, want, n, 2 * FLT_EPSILON, FLT_MIN);
    for (int64_t t = 0; t < size_of(p, "in.positions", 0); t++) {
        int32_t position = integer(p, "in.positions", t);
        run(p, position, NULL, NULL, VALUES("rope_cos", "rope_sin"));
        for (int64_t j = 0; j < 2 * n; j++) { /* each pair has its angle twice */
            int64_t i = j % n, at = t * n + i;
            double off = fabs((double)f[i] - want[i]) * position;
            if (off > 0) off += FLT_EPSILON * (double)position * f[i];
            check_scaled(p, "cos", &value(p, 0, 2 * n)[j], &floats(p, "out.cos")[at], 1, TOLERANCE + off, 1);
            check_scaled(p, "sin", &value(p, 1, 2 * n)[j], &floats(p, "out.sin")[at], 1, TOLERANCE + off, 1);
        }
    }
}

/* The rows are the whole context, though the first stands at position 5: the mask hides what is before. */
static void gated_attention(piece *p) {
    enum { CONTEXT = 16 };
    use_layer_weights(p, "self_attn");
    int64_t n = size_of(p, "in.x", 2);
    build(p, (shape){.attention = true, .hidden = n, .heads = 4, .kv_heads = 2, .context = CONTEXT},
          CUT("layer_0_input_normed", "mask"));
    const float *x = floats(p, "in.x"), *y = floats(p, "out.y");
    int32_t first = integer(p, "in.positions", 0);
    for (int64_t t = 0; t < size_of(p, "in.x", 1); t++) {
        int32_t position = integer(p, "in.positions", t);
        float mask[CONTEXT];
        for (int32_t i = 0; i < CONTEXT; i++) mask[i] = i < first || i > position ? -65504 : 0;
        run(p, position, NULL, FEED(x + t * n, mask), VALUES("layer_0_self_attn_o_proj"));
        check(p, "y", value(p, 0, n), y + t * n, n);
    }
}

/* --- whole models --- */

/* Opens the model whose weights, under a checkpoint's names, and configuration are in that file. */
static const float *open_model(piece *p, const char *weights, const char *table) {
    err e = {0};
    file_map m;
    st_file *f = open_fixture(p, weights);
    const char *config = st_metadata(f, "config");
    assert_non_null(config);
    write_config(p, config);
    const st_tensor *t = st_find(f, table);
    assert_non_null(t);
    uint64_t n = (uint64_t)ir_type_count(&t->type);
    float *rows = ARENA_ARRAY(p->a, float, n);
    assert_true(st_floats(t, 0, n, rows));
    st_close(f);
    const char *path = test_case_path(arena_printf(p->a, "ops/%s.safetensors", weights));
    need(file_open_map(&m, path, &e), &e);
    need(file_write(arena_printf(p->a, "%s/model.safetensors", work_dir), m.data, m.size, &e), &e);
    file_unmap(&m);
    open_program(p, 32, NULL);
    return rows;
}

/* One token: its logits, the residual stream behind each layer but the last, and the final norm's result. */
static void check_token(piece *p, const float *rows, int64_t t, int layers) {
    const char *names[8];
    int64_t n = p->hidden;
    assert_true(layers < 8);
    for (int i = 1; i < layers; i++) names[i - 1] = arena_printf(p->a, "layer_%d_out", i - 1);
    names[layers - 1] = "final_norm_out";
    const float *x = rows + integer(p, "in.ids", t) * n;
    check_scaled(p, "hidden.0", x, floats(p, "out.hidden.0") + t * n, n, 0, 1);
    run(p, (int32_t)t, x, NULL, names, (size_t)layers);
    for (int i = 1; i <= layers; i++) {
        const char *name = arena_printf(p->a, "out.hidden.%d", i);
        check(p, name, value(p, i - 1, n), floats(p, name) + t * n, n);
    }
}

static void check_logits(piece *p, const char *name, int64_t t) {
    int64_t n = size_of(p, name, 2);
    assert_int_equal(ir_type_count(&p->out[0].type), n);
    const float *got = p->out[0].data, *want = floats(p, name) + t * n;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= LOGIT_TOLERANCE))
            fail_msg("%s: %s[%lld,%lld] is %.9g, expected %.9g", p->file, name, (long long)t, (long long)i,
                     (double)got[i], (double)want[i]);
}

/* After 13 tokens; the cache [1,G,32,D] has more room than transformers' [1,G,13,D]. */
static void check_states(piece *p) {
    for (int layer = 0; layer < 3; layer++) {
        const char *name = arena_printf(p->a, "out.state13.L%d.conv", layer);
        int64_t n = size_of(p, name, 1);
        check(p, name, get_state(p, arena_printf(p->a, "conv_%d", layer), n * (TAPS - 1)),
              newest(p, floats(p, name), n), n * (TAPS - 1));
        name = arena_printf(p->a, "out.state13.L%d.rec", layer);
        n = ir_type_count(&tensor(p, name)->type);
        check(p, name, get_state(p, arena_printf(p->a, "rec_%d", layer), n), floats(p, name), n);
    }
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "out.state13.L3.k" : "out.state13.L3.v";
        int64_t groups = size_of(p, name, 1), used = size_of(p, name, 2) * size_of(p, name, 3),
                all = 32 * size_of(p, name, 3);
        const float *got = get_state(p, k ? "k_3" : "v_3", groups * all), *want = floats(p, name);
        for (int64_t i = 0; i < groups; i++) check(p, name, got + i * all, want + i * used, used);
    }
}

static void tiny_qwen3_5(piece *p) {
    const float *rows = open_model(p, "tiny_model_weights", "model.language_model.embed_tokens.weight");
    for (int64_t t = 0; t < size_of(p, "in.ids", 1); t++) {
        check_token(p, rows, t, 4);
        check(p, "last_hidden", value(p, 3, p->hidden), floats(p, "out.last_hidden") + t * p->hidden,
              p->hidden);
        check_logits(p, "out.logits_full", t);
        check_logits(p, "out.logits_prefill13_then_steps", t);
        if (t + 1 == 13) check_states(p);
    }
}

static void tiny_qwen3(piece *p) {
    const float *rows = open_model(p, "tiny_qwen3_weights", "model.embed_tokens.weight");
    for (int64_t t = 0; t < size_of(p, "in.ids", 1); t++) {
        check_token(p, rows, t, 2);
        check_logits(p, "out.logits", t);
    }
}

/* --- the files --- */

static struct row {
    const char *file;
    void (*check)(piece *p);
} table[] = {
    {"rmsnorm_zero_centred", rms_norm},
    {"rmsnorm_gated", gated_norm},
    {"l2norm", unit_norm},
    {"gdn_gates", gates},
    {"conv_prefill_zero_state", convolution},
    {"conv_prefill_with_state", convolution},
    {"conv_step", convolution},
    {"gdn_step_single", delta_rule},
    {"gdn_steps_7_state", delta_rule},
    {"gdn_steps_5_nostate", delta_rule},
    {"gdn_chunk_T37_C8", delta_rule},
    {"gdn_chunk_T37_C16", delta_rule},
    {"gdn_chunk_T37_C64", delta_rule},
    {"gdn_chunk_T64_C64_nostate", delta_rule},
    {"gdn_chunk_T70_C32_equal_heads", delta_rule},
    {"gdn_chunk_strong_beta", delta_rule},
    {"gdn_chunk_strong_decay", delta_rule},
    {"gdn_chunk_repeated_key", delta_rule},
    {"gdn_chunk_repeated_key_C64", delta_rule},
    {"gdn_chunk_real_dims", delta_rule},
    {"gdn_chunk_intermediates_C8", delta_rule},
    {"gdn_layer_prefill", deltanet_layer},
    {"rope_partial", rotation},
    {"rope_real_tables", rotation_tables},
    {"attention_gated", gated_attention},
    {"tiny_model_io", tiny_qwen3_5},
    {"tiny_qwen3_io", tiny_qwen3},
};
static const char *const others[] = {
    "tiny_model_weights", /* with tiny_model_io */
    "tiny_qwen3_weights", /* with tiny_qwen3_io */
    "logits_processors",  /* test_sampler.c */
};
enum { ROWS = sizeof table / sizeof *table, OTHERS = sizeof others / sizeof *others };

static void agrees(void **state) {
    const struct row *r = *state;
    for (int mode = 0; mode < 2; mode++) {
        piece p = open_piece(r->file, mode ? RT_FAST : RT_STRICT);
        r->check(&p);
        close_piece(&p);
    }
}

static bool is_checked(const char *file) {
    for (size_t i = 0; i < ROWS; i++)
        if (!strcmp(table[i].file, file)) return true;
    for (size_t i = 0; i < OTHERS; i++)
        if (!strcmp(others[i], file)) return true;
    return false;
}

static void every_file_is_checked(void **state) {
    (void)state;
    err e = {0};
    arena *a = arena_new();
    const json *files = json_get(json_object_file(a, test_case_path("ops/index.json"), &e), "files");
    need(files, &e);
    JSON_EACH(file, files)
    if (!is_checked(file->key)) fail_msg("no test reads ops/%s", file->key);
    assert_int_equal(files->len, ROWS + OTHERS);
    arena_free(a);
}

int main(void) {
    struct CMUnitTest tests[ROWS + 1] = {cmocka_unit_test(every_file_is_checked)};
    for (size_t i = 0; i < ROWS; i++)
        tests[1 + i] =
            (struct CMUnitTest){.name = table[i].file, .test_func = agrees, .initial_state = &table[i]};
    return cmocka_run_group_tests_name("pieces", tests, make_work_dir, remove_work_dir);
}
