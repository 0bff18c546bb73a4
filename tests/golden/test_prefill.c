/* Prefill functions: several prompt tokens a call give what one at a time gives. Logits against transformers'
 * float32 results (oracles/README.md), states against those of steps and, for the prompt it has them for, the
 * oracle's; the chunked delta rule alone against ops/gdn_chunk_*, which hold the traps: repeated keys, strong
 * decay, strong writes. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "checkpoint/safetensors.h"
#include "convert/convert.h"
#include "coreml/embedding.h"
#include "generate/decoder.h"
#include "golden/oracle.h"
#include "models/blocks.h"
#include "runtime/session.h"
#include "test.h"
#include "work_dir.h"
#include <math.h>
#include <unistd.h>

/* States are of size 1 to 6 and are rounded to value + remainder, 22 bits, at every call. */
#define STATE_TOLERANCE 5e-5

/* --- a converted checkpoint, driven by hand --- */

typedef struct {
    rt_model *model;
    rt_session *session;
    embedding *table;
    int64_t position, vocab;
    rt_tensor out[4];
} runner;

static convert_options options(const char *precision, const char *prefill, int64_t context) {
    return (convert_options){.preset = "chunks",
                             .precision = precision,
                             .prefill = prefill,
                             .context = context,
                             .overwrite = true};
}

static void convert(const char *name, const char *out, const convert_options *o) {
    err e = {0};
    char dir[100];
    snprintf(dir, sizeof dir, "models/%s", name);
    if (!convert_checkpoint(test_case_path(dir), in_work(out), o, NULL, &e)) fail_msg("%s", e.msg);
}

static runner open_runner(const char *name, const char *precision, const char *prefill, int64_t context,
                          rt_mode mode) {
    err e = {0};
    runner r = {0};
    convert_options o = options(precision, prefill, context);
    convert(name, "out", &o);
    char table[100];
    snprintf(table, sizeof table, "out/%s_embed_tokens.%s.bin", name,
             strcmp(precision, "float32") ? "fp16" : "fp32");
    r.table = embedding_open(in_work(table), &e);
    r.model = r.table ? rt_model_open(in_work("out/model.mlpackage"), &e) : NULL;
    if (!r.model || !(r.session = rt_session_new(r.model, mode, &e))) fail_msg("%s", e.msg);
    r.vocab = embedding_rows(r.table);
    return r;
}

static void close_runner(runner *r) {
    rt_session_free(r->session);
    rt_model_close(r->model);
    embedding_close(r->table);
}

/* A call of the function for `tokens` tokens, n of them real; the others are rows of 7, which nothing may
 * notice. */
static bool call(runner *r, const int64_t *ids, int64_t n, int64_t tokens, err *e) {
    bool wide = embedding_kind_of(r->table) == EMBEDDING_FP32;
    int64_t width = embedding_width(r->table);
    size_t count = (size_t)(tokens * width);
    float *row = mem_alloc(count * sizeof *row);
    uint16_t *half = mem_alloc(count * sizeof *half);
    for (size_t i = 0; i < count; i++) row[i] = 7;
    for (int64_t t = 0; t < n; t++) assert_true(embedding_row(r->table, ids[t], row + t * width));
    num_f32_to_f16(half, row, count);
    int32_t position = (int32_t)r->position, valid = (int32_t)n;
    char function[32];
    snprintf(function, sizeof function, tokens > 1 ? "prefill_%d" : "decode", (int)tokens);
    rt_tensor in[] = {
        {"hidden", IR_TYPE(wide ? DT_FP32 : DT_FP16, 1, tokens, width), wide ? (const void *)row : half},
        {"current_pos", IR_TYPE(DT_INT32, 1), &position},
        {"valid_length", IR_TYPE(DT_INT32, 1), &valid},
    };
    rt_call c = {.function = function, .in = in, .n_in = tokens > 1 ? 3 : 2, .out = r->out};
    bool ok = rt_run(r->session, &c, e);
    mem_free(row);
    mem_free(half);
    r->position += n;
    return ok;
}

/* Sizes of the calls, the last one again and again; a call takes what is left, up to its size. */
typedef struct {
    const char *name;
    int64_t size[6];
} plan;

static const plan steps = {"steps", {1}};
static const plan plans[] = {{"4", {4}}, {"16", {16}}, {"64", {64}}, {"mixed", {16, 1, 4, 64, 1, 16}}};

/* The logits behind the last token, from fresh states. */
static const float *feed(runner *r, const int64_t *ids, int64_t n, const plan *p) {
    err e = {0};
    rt_state_reset(r->session);
    r->position = 0;
    for (int i = 0; r->position < n;) {
        int64_t left = n - r->position, size = p->size[i];
        if (!call(r, ids + r->position, left < size ? left : size, size, &e)) fail_msg("%s", e.msg);
        if (i + 1 < 6 && p->size[i + 1]) i++;
    }
    assert_int_equal(ir_type_count(&r->out[0].type), r->vocab);
    assert_int_equal(r->out[0].type.dtype, DT_FP32);
    return r->out[0].data;
}

/* --- states --- */

/* All states one behind the other, halves of split ones added, of caches only the n positions that count. */
static float *all_states(runner *r, int64_t n, size_t *count) {
    const coreml_function *f = coreml_function_find(rt_model_coreml(r->model), "decode");
    float *all = NULL;
    *count = 0;
    for (size_t i = 0; i < f->n_state; i++) {
        err e = {0};
        rt_tensor t, rest;
        char name[64];
        snprintf(name, sizeof name, "%s_lo", f->state[i].name);
        if (strstr(f->state[i].name, "_lo")) continue;
        if (!rt_state_get(r->session, f->state[i].name, &t, &e)) fail_msg("%s", e.msg);
        int64_t len = ir_type_count(&t.type), row = t.type.dim[t.type.rank - 1];
        bool cache = strchr("kv", name[0]) != NULL;
        uint16_t *hi = memcpy(mem_alloc((size_t)len * 2), t.data, (size_t)len * 2);
        if (!rt_state_get(r->session, name, &rest, &e)) fail_msg("%s", e.msg);
        all = mem_try_realloc(all, (*count + (size_t)len) * sizeof *all);
        for (int64_t k = 0; k < len; k++) {
            if (cache && k / row % t.type.dim[2] >= n) continue;
            all[(*count)++] = num_f16_f32(hi[k]) + num_f16_f32(((const uint16_t *)rest.data)[k]);
        }
        mem_free(hi);
    }
    return all;
}

static double state_difference(runner *r, int64_t n, const float *want, size_t count) {
    size_t got;
    float *x = all_states(r, n, &got);
    assert_int_equal(got, count);
    double d = largest_difference(x, want, (int64_t)count);
    mem_free(x);
    return d;
}

/* --- the oracle --- */

/* DeltaNet states after prompt p17. The oracle's convolution state has one more column at the left. */
static double oracle_state_error(const oracle *o, runner *r) {
    double worst = 0;
    for (int layer = 0; layer < 16; layer++)
        for (int conv = 0; conv < 2; conv++) {
            const st_tensor *t = st_find(o->tensors, arena_printf(o->a, "p17.layer%d.%s", layer,
                                                                  conv ? "conv_state" : "recurrent_state"));
            if (!t) continue;
            rt_tensor s;
            err e = {0};
            const char *name = arena_printf(o->a, "%s_%d", conv ? "conv" : "rec", layer);
            int64_t n = ir_type_count(&t->type), column = t->type.dim[t->type.rank - 1];
            const float *want = oracle_floats(o->a, t, 0, n);
            float *got = ARENA_ARRAY(o->a, float, (size_t)n);
            for (int half = 0; half < 2; half++) {
                if (!rt_state_get(r->session, half ? arena_printf(o->a, "%s_lo", name) : name, &s, &e))
                    fail_msg("%s", e.msg);
                const uint16_t *x = s.data;
                for (int64_t i = 0; i < n; i++)
                    if (!conv || i % column) got[i] += num_f16_f32(*x++);
            }
            for (int64_t i = 0; i < n; i++)
                if (!conv || i % column) worst = worse(worst, fabs((double)got[i] - want[i]));
        }
    return worst;
}

/* --- the tests --- */

#ifdef MILLET_HOSTILE /* the sanitizers take twenty times as long: shorter prompts */
enum { LONGEST = 17 };
#else
enum { LONGEST = 300 };
#endif

static void agrees_with_transformers(void **state) {
    const char *name = *state;
    oracle o = open_oracle(name);
    runner r = open_runner(name, "float32", "4,16,64", 512, RT_FAST);
    double logits = 0, states = 0, of_oracle = 0;
    JSON_EACH(p, json_get(o.text, "prompts")) {
        int64_t n;
        const int64_t *ids = oracle_numbers(&o, p, "ids", &n);
        if (n > LONGEST) continue;
        const float *want = oracle_last_logits(&o, p, r.vocab);
        bool p17 = n == 17;
        size_t count = 0;
        if (p17) feed(&r, ids, n, &steps);
        float *stepped = p17 ? all_states(&r, n, &count) : NULL;
        for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
            logits = worse(logits, largest_difference(feed(&r, ids, n, &plans[i]), want, r.vocab));
            if (!p17) continue;
            states = worse(states, state_difference(&r, n, stepped, count));
            of_oracle = worse(of_oracle, oracle_state_error(&o, &r));
        }
        mem_free(stepped);
    }
    print_message("%s: logits %.2g, states against steps %.2g, DeltaNet states %.2g\n", name, logits, states,
                  of_oracle);
    close_runner(&r);
    close_oracle(&o);
    assert_true(logits <= LOGIT_TOLERANCE && states <= STATE_TOLERANCE && of_oracle <= STATE_TOLERANCE);
}

/* --- prompts of all lengths --- */

#ifdef MILLET_HOSTILE
static const int64_t lengths[] = {1, 3, 5, 63, 65};
enum { ALL = 65, SPACE = 66 };
#else
static const int64_t lengths[] = {1, 3, 5, 63, 65, 300, 383};
enum { ALL = 383, SPACE = 384 };
#endif
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

/* A function of size T runs only while position + T is within the context. wide: the smallest that takes all
 * that is left, else the largest; narrow: only full calls. */
static const float *feed_largest(runner *r, const int64_t *ids, int64_t n, bool wide) {
    static const int64_t sizes[] = {256, 64, 16, 4, 1};
    err e = {0};
    rt_state_reset(r->session);
    for (r->position = 0; r->position < n;) {
        int64_t left = n - r->position, size = 1;
        for (int i = 0; i < 5; i++)
            if (r->position + sizes[i] <= SPACE && (sizes[i] <= left || wide)) {
                size = sizes[i];
                if (!wide || i == 4 || sizes[i + 1] < left) break;
            }
        if (!call(r, ids + r->position, left < size ? left : size, size, &e)) fail_msg("%s", e.msg);
    }
    return r->out[0].data;
}

/* One token many times: keys that are all but equal, where the doubling series loses every digit. Up to the
 * context less one. */
static void one_repeated_token(void **state) {
    (void)state;
    int64_t ids[ALL];
    for (int i = 0; i < ALL; i++) ids[i] = 313;
    const char *prefill = SPACE < 256 ? "4,16,64" : "4,16,64,256";
    runner r = open_runner("tiny-qwen3.5", "float32", prefill, SPACE, RT_FAST);
    size_t bytes = (size_t)r.vocab * sizeof(float), count[N_LENGTHS];
    float *want[N_LENGTHS], *stepped[N_LENGTHS];
    err e = {0};
    for (int i = 0, t = 0; i < N_LENGTHS; i++) {
        for (; t < lengths[i]; t++)
            if (!call(&r, ids + t, 1, 1, &e)) fail_msg("%s", e.msg);
        want[i] = memcpy(mem_alloc(bytes), r.out[0].data, bytes);
        stepped[i] = all_states(&r, lengths[i], &count[i]);
    }
    double logits = 0, states = 0;
    for (int i = 0; i < N_LENGTHS; i++) {
        for (int wide = 0; wide < 2; wide++) {
            const float *got = feed_largest(&r, ids, lengths[i], wide);
            logits = worse(logits, largest_difference(got, want[i], r.vocab));
            states = worse(states, state_difference(&r, lengths[i], stepped[i], count[i]));
        }
        mem_free(want[i]);
        mem_free(stepped[i]);
    }
    print_message("up to %d tokens: logits %.2g, states %.2g\n", ALL, logits, states);
    close_runner(&r);
    assert_true(logits <= LOGIT_TOLERANCE && states <= STATE_TOLERANCE);
}

/* Half precisions, every op rounded: the best id is transformers' where its margin is no rounding, and the
 * error is some roundings of 2^-11 to the range of the logits. */
static void half_precision(void **state) {
    (void)state;
    static const struct {
        const char *name, *precision;
    } cases[] = {{"tiny-qwen3.5", "mixed"}, {"tiny-qwen3", "mixed"}, {"tiny-qwen3.5", "float16"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        oracle o = open_oracle(cases[i].name);
        runner r = open_runner(cases[i].name, cases[i].precision, "4,16,64", 512, RT_STRICT);
        JSON_EACH(p, json_get(o.text, "prompts")) {
            int64_t n;
            const int64_t *ids = oracle_numbers(&o, p, "ids", &n);
            if (n > LONGEST) continue;
            const float *want = oracle_last_logits(&o, p, r.vocab);
            const float *got = feed(&r, ids, n, &plans[2]);
            float low = want[0], high = want[0], second = -INFINITY;
            int64_t best = 0, mine = 0;
            for (int64_t k = 1; k < r.vocab; k++) {
                low = fminf(low, want[k]);
                high = fmaxf(high, want[k]);
                if (want[k] > want[best]) best = k;
                if (got[k] > got[mine]) mine = k;
            }
            for (int64_t k = 0; k < r.vocab; k++)
                if (k != best && want[k] > second) second = want[k];
            double error = largest_difference(got, want, r.vocab) / (high - low);
            print_message("%s %s, %d tokens: %.2g of the range\n", cases[i].name, cases[i].precision, (int)n,
                          error);
            assert_true(error <= 0.005);
            if (want[best] - second >= 0.1) assert_int_equal(mine, best);
        }
        close_runner(&r);
        close_oracle(&o);
    }
}

/* The decoder's own choice of functions, up to the end of the context. */
static void the_decoder_uses_them(void **state) {
    (void)state;
    err e = {0};
    oracle o = open_oracle("tiny-qwen3.5");
    int64_t n;
    const int64_t *ids = oracle_numbers(&o, oracle_prompt(&o, "p130"), "ids", &n);
    const st_tensor *logits = st_find(o.tensors, "p130.logits");
    assert_non_null(logits);
    const float *want =
        oracle_last_logits(&o, oracle_prompt(&o, "p130"), logits->type.dim[logits->type.rank - 1]);
    int32_t fed[130];
    for (int i = 0; i < 130; i++) fed[i] = (int32_t)ids[i];
    for (int64_t context = 130; context <= 132; context++) {
        convert_options options_of = options("float32", "4,16,64", context);
        convert("tiny-qwen3.5", "out", &options_of);
        lm *m = lm_open(in_work("out"), NULL, &e);
        if (!m) fail_msg("%s", e.msg);
        assert_string_equal(m->form.function, "decode");
        assert_int_equal(m->form.n_func, 4);
        assert_string_equal(m->form.func[1].name, "prefill_4");
        assert_int_equal(m->form.func[3].tokens, 64);
        assert_int_equal(m->form.context, context);
        decoder *d = decoder_new(m, RT_FAST, &e);
        decoder_row row;
        if (!decoder_feed(d, fed, 130, NULL, &row, &e)) fail_msg("%s", e.msg);
        assert_int_equal(decoder_position(d), 130);
        assert_true(largest_difference(row.score, want, (int64_t)row.n) <= LOGIT_TOLERANCE);
        if (context == 130) assert_false(decoder_feed(d, fed, 1, NULL, &row, &e));
        decoder_free(d);
        lm_close(m);
        e = (err){0};
    }
    close_oracle(&o);
}

/* A call that would pass the end of the cache is an error, whatever its valid length. */
static void not_beyond_the_context(void **state) {
    (void)state;
    err e = {0};
    int64_t ids[1] = {5};
    runner r = open_runner("rand-llama", "float32", "4,16", 30, RT_FAST);
    r.position = 14;
    if (!call(&r, ids, 1, 16, &e)) fail_msg("%s", e.msg);
    r.position = 15;
    assert_false(call(&r, ids, 1, 16, &e));
    assert_int_not_equal(e.code, ERR_NONE);
    close_runner(&r);
}

static void assert_same_file(const char *a, const char *b) {
    err e = {0};
    file_map x, y;
    if (!file_open_map(&x, in_work(a), &e) || !file_open_map(&y, in_work(b), &e)) fail_msg("%s", e.msg);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    file_unmap(&x);
    file_unmap(&y);
}

#define WEIGHTS "/model.mlpackage/Data/com.apple.CoreML/weights/weight.bin"

/* Prefill functions add graph text only; contexts and schemes change nothing about that. */
static void weights_are_shared(void **state) {
    (void)state;
    static const char *const names[] = {"tiny-qwen3.5", "rand-qwen2", "rand-qwen3.5-textonly"};
    static const char *const kinds[] = {"mixed", "float16", "float32"};
    for (int i = 0; i < 9; i++) {
        convert_options o = options(kinds[i / 3], NULL, 512);
        if (i < 3) o.quantize = "lut6";
        convert(names[i % 3], "one", &o);
        o.prefill = "2,5,64,128";
        convert(names[i % 3], "many", &o);
        assert_same_file("one" WEIGHTS, "many" WEIGHTS);
        char one[100], many[100];
        const char *kind = o.quantize ? "int8" : strcmp(o.precision, "float32") ? "fp16" : "fp32";
        snprintf(one, sizeof one, "one/%s_embed_tokens.%s.bin", names[i % 3], kind);
        snprintf(many, sizeof many, "many/%s_embed_tokens.%s.bin", names[i % 3], kind);
        assert_same_file(one, many);
    }
}

static void metadata_lists_them(void **state) {
    (void)state;
    err e = {0};
    convert_options o = options("mixed", "4,64", 64);
    convert("rand-qwen2", "out", &o);
    arena *a = arena_new();
    const json *meta = json_get(json_parse_file(a, in_work("out/metadata.json"), &e), "graph");
    assert_non_null(meta);
    const json *f = json_get(meta, "functions"), *sizes = json_get(meta, "prefill_sizes");
    assert_int_equal(f->len, 3);
    assert_int_equal(sizes->len, 2);
    static const char *const names[] = {"decode", "prefill_4", "prefill_64"};
    int i = 0;
    JSON_EACH(m, f) assert_string_equal(m->s, names[i++]);
    i = 0;
    JSON_EACH(m, sizes) assert_int_equal(m->i, i++ ? 64 : 4);
    arena_free(a);
}

static void sizes_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *preset, *prefill, *message;
    } bad[] = {
        {"chunks", "", "expected up to 16 sizes"},
        {"chunks", "4,", "expected up to 16 sizes"},
        {"chunks", "4 16", "expected up to 16 sizes"},
        {"chunks", "2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18", "expected up to 16 sizes"},
        {"chunks", "1", "prefill size 1: expected 2 to 64, or a multiple of 64"},
        {"chunks", "-4", "prefill size -4"},
        {"chunks", "65", "prefill size 65"},
        {"chunks", "8192", "prefill size 8192"},
        {"chunks", "16,4", "must ascend: 4 follows 16"},
        {"chunks", "4,4", "must ascend: 4 follows 4"},
        {"chunks", "128", "prefill size 128 is beyond the context of 100"},
        {"single", "4", "prefill is for preset chunks"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err e = {0};
        convert_options o = options("mixed", bad[i].prefill, 100);
        o.preset = bad[i].preset;
        assert_false(convert_checkpoint(test_case_path("models/rand-qwen2"), in_work("bad"), &o, NULL, &e));
        assert_int_equal(e.code, ERR_USAGE);
        if (!strstr(e.msg, bad[i].message)) fail_msg("%s: %s", bad[i].prefill, e.msg);
        assert_false(file_exists(in_work("bad")));
    }
}

/* --- the delta rule alone --- */

enum { DELTA_INPUTS = 7 };

/* x [1,T,heads,d] or [1,T,heads] of the fixture as [H,R,padded T,d]; rows beyond T hold pad. */
static float *arranged(arena *a, const st_tensor *t, int64_t padded, float pad) {
    int64_t T = t->type.dim[1], heads = t->type.dim[2], d = t->type.rank > 3 ? t->type.dim[3] : 1;
    const float *x = oracle_floats(a, t, 0, T * heads * d);
    float *y = ARENA_ARRAY(a, float, (size_t)(heads * padded * d));
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < padded; i++)
            for (int64_t k = 0; k < d; k++)
                y[(h * padded + i) * d + k] = i < T ? x[(i * heads + h) * d + k] : pad;
    return y;
}

static rt_model *delta_model(const ir_type *type) {
    static const char *const names[DELTA_INPUTS] = {"q", "k", "v", "beta", "log", "memory", "valid_length"};
    err e = {0};
    arena *a = arena_new();
    ir_program *p = ir_program_new(a);
    const models_options chunks = {.preset = PRESET_CHUNKS};
    graph g = {.b = ir_build(p, "main", 9, &e),
               .a = a,
               .o = &chunks,
               .layer = -1,
               .tokens = (int32_t)type[0].dim[2]};
    g.type.core = DT_FP32;
    ir_value *in[DELTA_INPUTS];
    for (int i = 0; i < DELTA_INPUTS; i++) in[i] = b_input(&g.b, names[i], type[i]);
    g.valid = in[6];
    delta_prepare(&g);
    float scale = (float)(1 / sqrt((double)type[0].dim[3]));
    ir_value *q = normalize(&g, "q_unit", in[0], OP_reduce_sum, 1e-6), *S = in[5];
    q = binary(&g, OP_mul, "q_scaled", q, number(&g, DT_FP32, scale));
    ir_value *k = normalize(&g, "k_unit", in[1], OP_reduce_sum, 1e-6);
    ir_value *live = RESHAPE(&g, "live_rows", g.live, 1, 1, g.tokens, 1);
    ir_value *beta = binary(&g, OP_mul, "beta_live", in[3], live);
    ir_value *log = binary(&g, OP_mul, "log_live", in[4], live);
    b_output(&g.b, delta_chunks(&g, q, k, in[2], beta, log, &S));
    b_output(&g.b, S);
    ir_build_end(&g.b);
    coreml_write_options o = {.overwrite = true};
    rt_model *m = NULL;
    if (e.code || !coreml_write(in_work("delta.mlpackage"), coreml_model_new(a, p, 9), &o, &e) ||
        !(m = rt_model_open(in_work("delta.mlpackage"), &e)))
        fail_msg("%s", e.msg);
    arena_free(a);
    return m;
}

static void check_delta(const char *name, int64_t padded) {
    err e = {0};
    arena *a = arena_new();
    char path[100];
    snprintf(path, sizeof path, "ops/%s.safetensors", name);
    st_file *f = st_open(test_case_path(path), &e);
    if (!f) fail_msg("%s", e.msg);
    const st_tensor *k = st_find(f, "in.k"), *v = st_find(f, "in.v"), *s0 = st_find(f, "in.state0"),
                    *o = st_find(f, "out.o"), *s1 = st_find(f, "out.state");
    int64_t T = k->type.dim[1], H = k->type.dim[2], dk = k->type.dim[3], Hv = v->type.dim[2],
            dv = v->type.dim[3], R = Hv / H;
    const ir_type type[DELTA_INPUTS] = {IR_TYPE(DT_FP32, H, 1, padded, dk),
                                        IR_TYPE(DT_FP32, H, 1, padded, dk),
                                        IR_TYPE(DT_FP32, H, R, padded, dv),
                                        IR_TYPE(DT_FP32, H, R, padded, 1),
                                        IR_TYPE(DT_FP32, H, R, padded, 1),
                                        IR_TYPE(DT_FP32, H, R, dk, dv),
                                        IR_TYPE(DT_INT32, 1)};
    int32_t valid = (int32_t)T;
    /* what pads is of no harmless size */
    const rt_tensor in[DELTA_INPUTS] = {
        {"q", type[0], arranged(a, st_find(f, "in.q"), padded, 3)},
        {"k", type[1], arranged(a, k, padded, -2)},
        {"v", type[2], arranged(a, v, padded, 5)},
        {"beta", type[3], arranged(a, st_find(f, "in.beta"), padded, 0.5f)},
        {"log", type[4], arranged(a, st_find(f, "in.g"), padded, -1)},
        {"memory", type[5],
         s0 ? oracle_floats(a, s0, 0, Hv * dk * dv) : ARENA_ARRAY(a, float, (size_t)(Hv * dk * dv))},
        {"valid_length", type[6], &valid}};
    rt_model *m = delta_model(type);
    rt_session *s = rt_session_new(m, RT_STRICT, &e);
    rt_tensor out[2];
    rt_call c = {.in = in, .n_in = DELTA_INPUTS, .out = out};
    if (!s || !rt_run(s, &c, &e)) fail_msg("%s", e.msg);
    const float *want = arranged(a, o, padded, 0), *got = out[0].data;
    double error = largest_difference(out[1].data, oracle_floats(a, s1, 0, Hv * dk * dv), Hv * dk * dv);
    for (int64_t h = 0; h < Hv; h++)
        error = worse(error, largest_difference(got + h * padded * dv, want + h * padded * dv, T * dv));
    print_message("%s padded to %d: %.2g\n", name, (int)padded, error);
    assert_true(error <= 2e-5); /* of values of size 1: facts of the fixtures, float32 in another order */
    rt_session_free(s);
    rt_model_close(m);
    st_close(f);
    arena_free(a);
}

static void the_delta_rule(void **state) {
    (void)state;
    check_delta("gdn_chunk_T37_C8", 37);
    check_delta("gdn_chunk_T37_C64", 64);
    check_delta("gdn_chunk_T64_C64_nostate", 64);
    check_delta("gdn_chunk_T70_C32_equal_heads", 128);
    check_delta("gdn_chunk_intermediates_C8", 8);
    check_delta("gdn_chunk_real_dims", 20);
    check_delta("gdn_chunk_repeated_key", 24);
    check_delta("gdn_chunk_repeated_key_C64", 64);
    check_delta("gdn_chunk_repeated_key_C64", 128);
    check_delta("gdn_chunk_strong_beta", 24);
    check_delta("gdn_chunk_strong_decay", 64);
}

int main(void) {
    static char *names[] = {"tiny-qwen3.5",          "tiny-qwen3", "rand-qwen3.5-untied",
                            "rand-qwen3.5-textonly", "rand-qwen2", "rand-llama"};
    struct CMUnitTest tests[14] = {
        cmocka_unit_test(the_delta_rule),         cmocka_unit_test(one_repeated_token),
        cmocka_unit_test(half_precision),         cmocka_unit_test(the_decoder_uses_them),
        cmocka_unit_test(not_beyond_the_context), cmocka_unit_test(weights_are_shared),
        cmocka_unit_test(metadata_lists_them),    cmocka_unit_test(sizes_are_checked)};
    for (int i = 0; i < 6; i++)
        tests[8 + i] = (struct CMUnitTest){
            .name = names[i], .test_func = agrees_with_transformers, .initial_state = names[i]};
    return cmocka_run_group_tests_name("prefill", tests, make_work_dir, remove_work_dir);
}
