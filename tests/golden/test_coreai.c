/* Core AI assets, run. The oracles are transformers in fp32 (on the dequantised weights where these are
 * int4), and Apple's own runtime for single ops. */
#define _GNU_SOURCE
#include "check/check.h"
#include "convert/convert.h"
#include "coreai/package.h"
#include "generate/decoder.h"
#include "npz.h"
#include "runtime/session.h"
#include "work_dir.h"
#include <math.h>

static rt_model *open_case(const char *below) {
    char path[300];
    err e = {0};
    snprintf(path, sizeof path, "coreai/%s", below);
    rt_model *m = rt_model_open(test_case_path(path), &e);
    if (!m || !rt_model_linear(m, "int16", &e)) fail_msg("%s", e.msg); /* bf16 would be another 0.02 */
    return m;
}

static const rt_mode modes[] = {RT_FAST, RT_STRICT};

/* ---- single ops ---- */

/* Apple's runtime sums fp16 products in fp16: 64 of them, each rounded to 2^-11 of the sum so far. */
static void compare(const char *what, const npz_array *want, const rt_tensor *got) {
    int64_t n = ir_type_count(&want->type);
    assert_int_equal(n, ir_type_count(&got->type));
    float largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(npz_float(&want->type, want->data, i)));
    float allowed = want->type.dtype == DT_FP16 ? largest * 64 * 0x1p-11f / 8 : 1e-6f * fmaxf(largest, 1);
    for (int64_t i = 0; i < n; i++) {
        float x = npz_float(&want->type, want->data, i), y = npz_float(&got->type, got->data, i);
        if (!(fabsf(x - y) <= allowed))
            fail_msg("%s: element %lld is %g, expected %g", what, (long long)i, (double)y, (double)x);
    }
}

/* m: the case of that name; it is closed. */
static void run_op(const char *name, rt_model *m, rt_mode mode) {
    char path[300];
    snprintf(path, sizeof path, "coreai/ops/%s.npz", name);
    npz *z = npz_open(test_case_path(path));
    err e = {0};
    rt_session *s = rt_session_new(m, mode, &e);
    rt_tensor in[8], out[8];
    rt_call c = {.in = in, .out = out};
    for (size_t i = 0; i < z->n; i++)
        if (!strncmp(z->array[i].name, "in_", 3))
            in[c.n_in++] = (rt_tensor){z->array[i].name + 3, z->array[i].type, z->array[i].data};
    if (!rt_run(s, &c, &e)) fail_msg("%s: %s", name, e.msg);
    for (size_t i = 0; i < z->n; i++) {
        const char *array = z->array[i].name;
        for (size_t k = 0; k < c.n_out; k++)
            if (!strncmp(array, "out_", 4) && !strcmp(out[k].name, array + 4))
                compare(name, &z->array[i], &out[k]);
        rt_tensor t;
        if (strncmp(array, "state_after_", 12)) continue;
        if (!rt_state_get(s, array + 12, &t, &e)) fail_msg("%s: %s", name, e.msg);
        compare(name, &z->array[i], &t);
    }
    rt_session_free(s);
    rt_model_close(m);
    npz_close(z);
}

static void test_ops(void **state) {
    (void)state;
    static const char *const names[] = {
        "c_emitted", "f_bss_si4", "f_bss_si8", "f_dyn",   "f_fp16",  "f_lut1",      "f_lut2",  "f_lut3",
        "f_lut4",    "f_lut6",    "f_lut8",    "f_state", "f_tbf16", "f_tf8E4M3FN", "f_while", "gdn_11"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int k = 0; k < 2; k++) {
            char path[300];
            snprintf(path, sizeof path, "ops/%s.aimodel", names[i]);
            run_op(names[i], open_case(path), modes[k]);
        }
}

/* Compressed weights as a package, and as an asset again: what they give is still what Apple's runtime gave.
 */
static void test_imports(void **state) {
    (void)state;
    static const char *const names[] = {"f_bss_si4", "f_bss_si8", "f_lut1", "f_lut2",
                                        "f_lut3",    "f_lut4",    "f_lut6", "f_lut8"};
    const convert_options package = {.top_k = -1, .overwrite = true},
                          asset = {.format = "coreai", .top_k = -1, .overwrite = true};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        err e = {0};
        char path[300], first[100], second[100];
        snprintf(path, sizeof path, "coreai/ops/%s.aimodel", names[i]);
        snprintf(first, sizeof first, "%s/x.mlpackage", work_dir);
        snprintf(second, sizeof second, "%s/x.aimodel", work_dir);
        if (!convert_checkpoint(test_case_path(path), first, &package, NULL, &e) ||
            !convert_checkpoint(first, second, &asset, NULL, &e))
            fail_msg("%s: %s", names[i], e.msg);
        for (int k = 0; k < 4; k++) {
            rt_model *m = rt_model_open(k & 1 ? second : first, &e);
            if (!m) fail_msg("%s: %s", names[i], e.msg);
            run_op(names[i], m, modes[k / 2]);
        }
    }
}

static const char *made_path(const char *name, const char *suffix) {
    static char path[300];
    const char *root = getenv("MILLET_SOURCE");
    snprintf(path, sizeof path, "%s/tests/data/coreai/%s.%s", root ? root : ".", name, suffix);
    return path;
}

/* Assets of tests/oracle/make_coreai_ops.py and make_coreai_composites.py: calls in0_X -> out0_X, in1_X ...
 */
static void run_made(const char *name, rt_mode mode, bool decompose) {
    char key[40];
    err e = {0};
    npz *z = npz_open(made_path(name, "npz"));
    coreml_package *p =
        coreai_open(made_path(name, "aimodel"), &(coreai_options){.decompose = decompose}, &e);
    rt_model *m = p ? rt_model_of(p, &e) : NULL;
    if (!m || !rt_model_linear(m, "exact", &e)) fail_msg("%s", e.msg);
    rt_session *s = rt_session_new(m, mode, &e);
    size_t compared = 0;
    for (int call = 0; call < 2; call++) {
        rt_tensor in[24], out[8];
        rt_call c = {.in = in, .out = out};
        int n = snprintf(key, sizeof key, "in%d_", call);
        for (size_t i = 0; i < z->n; i++)
            if (!strncmp(z->array[i].name, key, (size_t)n))
                in[c.n_in++] = (rt_tensor){z->array[i].name + n, z->array[i].type, z->array[i].data};
        if (!c.n_in) break;
        if (!rt_run(s, &c, &e)) fail_msg("%s: %s", name, e.msg);
        n = snprintf(key, sizeof key, "out%d_", call);
        for (size_t i = 0; i < z->n; i++)
            for (size_t k = 0; k < c.n_out && !strncmp(z->array[i].name, key, (size_t)n); k++)
                if (!strcmp(out[k].name, z->array[i].name + n)) {
                    compare(name, &z->array[i], &out[k]);
                    compared++;
                }
    }
    assert_true(compared > 0);
    rt_session_free(s);
    rt_model_close(m);
    npz_close(z);
}

static void test_made(void **state) {
    (void)state;
    static const char *const names[] = {
        "weight_e4m3",     "weight_e5m2", "weight_si8_zero", "weight_ui4_zero", "weight_si8_bias",
        "weight_ui4_both", "palette1",    "palette2",        "palette3",        "palette4",
        "palette6",        "palette8",    "branch",          "gather_mm",       "dequantized"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int k = 0; k < 2; k++) run_made(names[i], modes[k], false);
}

/* Every form of composite, by what it declares and by its decomposition. Those that say what plans have no op
 * for (windows, pairs side by side), or another thing than they do, are read from the latter. */
static void test_made_composites(void **state) {
    (void)state;
    static const struct {
        const char *name, *declared; /* graphs, in order of their first calls */
    } want[] = {
        {"composite_norms", "norm_rows norm_gemma norm_heads norm_wide "},
        {"composite_ropes", "whole part table "},
        {"composite_attentions", "causal seen masked "},
        {"composite_deltas", "one unit half "},
        {"composite_gathers", "plain fused "},
        {"gather_mm", ""},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const coreai_composite *list = NULL;
        err e = {0};
        char declared[200] = "";
        coreml_package *p = coreai_open_composites(made_path(want[i].name, "aimodel"), false, &list, &e);
        if (!p) fail_msg("%s: %s", want[i].name, e.msg);
        for (size_t k = 0; k < p->model->program->n_func; k++) {
            assert_string_equal(list[k].graph, p->model->program->func[k]->name);
            if (list[k].declared) strcat(strcat(declared, list[k].graph), " ");
        }
        assert_string_equal(declared, want[i].declared);
        coreml_close(p);
        for (int k = 0; k < 4; k++) run_made(want[i].name, modes[k & 1], k & 2);
    }
}

/* The proof that inspect --verify gives, for every composite of every case. */
static void test_proof(void **state) {
    (void)state;
    static const char *const cases[] = {"tiny_none/tiny_none",
                                        "tiny_none_b2/tiny_b2",
                                        "tiny_4bit/tiny_4bit",
                                        "tiny_qwen35_decode_s1_fp16/tiny_qwen35_decode_s1_fp16",
                                        "tiny_qwen35_decode_s1_fp16_dynkv/tiny_qwen35_decode_s1_fp16_dynkv",
                                        "tiny_qwen35_decode_s1_fp32/tiny_qwen35_decode_s1_fp32",
                                        "ops/gdn_11"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[300];
        err e = {0};
        check_composites r;
        snprintf(path, sizeof path, "coreai/%s.aimodel", cases[i]);
        if (!check_composites_run(&r, test_case_path(path), &e)) fail_msg("%s: %s", cases[i], e.msg);
        assert_true(r.n > 0);
        for (size_t k = 0; k < r.n; k++) {
            assert_int_equal(r.kind[k].declared, r.kind[k].graphs);
            if (!check_composite_holds(&r.kind[k]))
                fail_msg("%s: %s differs by %g", cases[i], r.kind[k].kind, r.kind[k].error);
        }
    }
    check_composites r;
    err e = {0};
    assert_true(check_composites_run(&r, made_path("composite_untrue", "aimodel"), &e));
    assert_int_equal(r.n, 1);
    assert_false(check_composite_holds(&r.kind[0]));
}

/* ---- language models ---- */

typedef struct {
    const char *name, *asset;
    float tolerance; /* of logits: fp32 is fp32; fp16 rounds activations to 2^-11 in two layers or four */
    float strict; /* the same where every op rounds as it is declared; 0: alike. The hybrid's program computed
                     exactly but for that (numpy, fp64) is 0.0210 from transformers */
    bool single;  /* one token a call */
} model_case;

static const model_case models[] = {
    {"tiny_none", "tiny_none", 0.02f, 0, false},
    {"tiny_none_b2", "tiny_b2", 0.02f, 0, false},
    {"tiny_4bit", "tiny_4bit", 0.02f, 0, false},
    {"tiny_qwen35_decode_s1_fp16", "tiny_qwen35_decode_s1_fp16", 0.02f, 0.025f, true},
    {"tiny_qwen35_decode_s1_fp16_dynkv", "tiny_qwen35_decode_s1_fp16_dynkv", 0.02f, 0.025f, true},
    {"tiny_qwen35_decode_s1_fp32", "tiny_qwen35_decode_s1_fp32", 1e-4f, 0, true},
};

static int64_t largest(const float *x, int64_t n, float *margin) {
    int64_t best = 0;
    float second = -INFINITY;
    for (int64_t i = 1; i < n; i++) {
        if (x[i] > x[best])
            second = x[best], best = i;
        else if (x[i] > second)
            second = x[i];
    }
    if (margin) *margin = x[best] - second;
    return best;
}

static void check_row(const model_case *k, rt_mode mode, int64_t at, const float *want, const rt_tensor *got,
                      int64_t row, int64_t n) {
    float y[1024], margin;
    float tolerance = mode == RT_STRICT && k->strict > 0 ? k->strict : k->tolerance;
    assert_true(n <= 1024);
    for (int64_t i = 0; i < n; i++) {
        y[i] = npz_float(&got->type, got->data, row * n + i);
        if (!(fabsf(y[i] - want[i]) <= tolerance))
            fail_msg("%s: logit %lld of position %lld is %g, expected %g", k->name, (long long)i,
                     (long long)at, (double)y[i], (double)want[i]);
    }
    int64_t best = largest(want, n, &margin);
    if (margin >= 0.01f) assert_int_equal(largest(y, n, NULL), best);
}

/* All tokens in calls of the given lengths. */
static void run_model(const model_case *k, const rt_model *m, rt_mode mode, const int *length, size_t calls) {
    char path[300];
    err e = {0};
    snprintf(path, sizeof path, "coreai/%s/oracle.npz", k->name);
    npz *z = npz_open(test_case_path(path));
    const npz_array *ids = npz_get(z, "input_ids"), *want = npz_find(z, "logits_torch_dequant_fp32");
    if (!want) want = npz_get(z, "logits_hf_fp32");
    rt_session *s = rt_session_new(m, mode, &e);
    int32_t position[256];
    for (int i = 0; i < 256; i++) position[i] = i;
    int64_t past = 0, vocab = want->type.dim[2];
    for (size_t c = 0; c < calls; c++) {
        rt_tensor in[2] =
            {
                {"input_ids", IR_TYPE(DT_INT32, 1, length[c]), (const int32_t *)ids->data + past},
                {"position_ids", IR_TYPE(DT_INT32, 1, past + length[c]), position},
            },
                  out[1];
        rt_call call = {.in = in, .n_in = 2, .out = out};
        if (!rt_run(s, &call, &e)) fail_msg("%s: %s", k->name, e.msg);
        for (int i = 0; i < length[c]; i++, past++)
            check_row(k, mode, past, (const float *)want->data + past * vocab, &out[0], i, vocab);
    }
    assert_int_equal(past, ids->type.dim[1]);
    rt_session_free(s);
    npz_close(z);
}

static void test_models(void **state) {
    (void)state;
    static const int one[24] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                     mixed[] = {10, 1, 1, 5, 1, 6}, all[] = {24};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s.aimodel", models[i].name, models[i].asset);
        rt_model *m = open_case(path);
        for (int k = 0; k < 2; k++) {
            run_model(&models[i], m, modes[k], one, 24);
            if (!models[i].single) run_model(&models[i], m, modes[k], mixed, 6);
            if (!models[i].single) run_model(&models[i], m, modes[k], all, 1);
        }
        rt_model_close(m);
    }
}

/* Against the program in fp64 (tests/oracle/make_coreai_double.py): closer than Apple's runtime, and than
 * transformers in fp32, whose own rounding is as large as what lies between the three. */
static void test_double(void **state) {
    (void)state;
    err e = {0};
    char path[300];
    const char *root = getenv("MILLET_SOURCE");
    snprintf(path, sizeof path, "%s/tests/data/coreai/qwen35_fp32_double.npz", root ? root : ".");
    npz *x = npz_open(path), *z = npz_open(test_case_path("coreai/tiny_qwen35_decode_s1_fp32/oracle.npz"));
    const npz_array *ids = npz_get(z, "input_ids"), *exact = npz_get(x, "logits");
    const npz_array *others[] = {npz_get(z, "logits_hf_fp32"), npz_get(z, "logits_coreai_runtime")};
    int64_t vocab = exact->type.dim[2], n = ids->type.dim[1];
    int32_t position[64];
    for (int i = 0; i < 64; i++) position[i] = i;
    rt_model *m = open_case("tiny_qwen35_decode_s1_fp32/tiny_qwen35_decode_s1_fp32.aimodel");
    for (int k = 0; k < 2; k++) {
        double ours = 0, theirs[2] = {0, 0};
        rt_session *s = rt_session_new(m, modes[k], &e);
        for (int64_t t = 0; t < n; t++) {
            rt_tensor in[2] = {{"input_ids", IR_TYPE(DT_INT32, 1, 1), (const int32_t *)ids->data + t},
                               {"position_ids", IR_TYPE(DT_INT32, 1, t + 1), position}},
                      out[1];
            rt_call call = {.in = in, .n_in = 2, .out = out};
            if (!rt_run(s, &call, &e)) fail_msg("%s", e.msg);
            for (int64_t i = 0; i < vocab; i++) {
                double want = ((const double *)exact->data)[t * vocab + i];
                ours = fmax(ours, fabs((double)npz_float(&out->type, out->data, i) - want));
                for (int o = 0; o < 2; o++) {
                    float y = npz_float(&others[o]->type, others[o]->data, t * vocab + i);
                    theirs[o] = fmax(theirs[o], fabs((double)y - want));
                }
            }
        }
        if (!(ours < theirs[0] && ours < theirs[1]))
            fail_msg("%g from fp64, transformers %g, Apple's runtime %g", ours, theirs[0], theirs[1]);
        rt_session_free(s);
    }
    rt_model_close(m);
    npz_close(x);
    npz_close(z);
}

/* What a composite says it is, and the decomposition that the file carries with it: one program each.
 * Activations are rounded to fp16 at other places. */
static void test_composites(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[300];
        err e = {0};
        snprintf(path, sizeof path, "coreai/%s/%s.aimodel", models[i].name, models[i].asset);
        const char *file = test_case_path(path);
        size_t attentions[2] = {0, 0}, fused[2] = {0, 0};
        for (int decompose = 0; decompose < 2; decompose++) {
            coreml_package *p = coreai_open(file, &(coreai_options){.decompose = decompose}, &e);
            if (!p) fail_msg("%s", e.msg);
            const ir_block *b = &p->model->program->func[0]->body;
            for (size_t k = 0; k < b->n_op; k++) {
                attentions[decompose] += b->op[k]->code == OP_causal_attention;
                fused[decompose] += b->op[k]->code == OP_fused_norm || b->op[k]->code == OP_fused_rope;
            }
            rt_model *m = rt_model_of(p, &e);
            if (!m || !rt_model_linear(m, "int16", &e)) fail_msg("%s", e.msg);
            static const int one[24] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
            run_model(&models[i], m, RT_FAST, one, 24);
            rt_model_close(m);
        }
        assert_true(attentions[0] >= 1);
        assert_int_equal(attentions[1], 0);
        assert_true(fused[1] == 0 &&
                    (fused[0] > 0) == !models[i].single); /* the hybrids declare attention alone */
    }
}

/* ---- bundles: the tokens of a text, however they become calls ---- */

typedef struct {
    const model_case *k;
    const float *want;
    int64_t vocab;
} rows;

static bool see_row(void *ctx, size_t i, const decoder_row *r, err *e) {
    rows *x = ctx;
    (void)e;
    assert_int_equal(r->n, x->vocab);
    const rt_tensor t = {"logits", IR_TYPE(DT_FP32, x->vocab), r->score};
    check_row(x->k, RT_FAST, (int64_t)i, x->want + (int64_t)i * x->vocab, &t, 0, x->vocab);
    return true;
}

static void test_bundles(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[300];
        err e = {0};
        snprintf(path, sizeof path, "coreai/%s/oracle.npz", models[i].name);
        npz *z = npz_open(test_case_path(path));
        snprintf(path, sizeof path, "coreai/%s/metadata.json", models[i].name);
        char *dir = strdup(test_case_path(path));
        *strrchr(dir, '/') = 0;
        lm *m = lm_open(dir, NULL, &e);
        if (!m || !rt_model_linear(m->model[0], "int16", &e)) fail_msg("%s", e.msg);
        assert_int_equal(m->form.context, 128);
        assert_int_equal(m->form.vocab, 256);
        assert_non_null(m->text);
        const npz_array *ids = npz_get(z, "input_ids"), *want = npz_find(z, "logits_torch_dequant_fp32");
        if (!want) want = npz_get(z, "logits_hf_fp32");
        rows x = {&models[i], want->data, 256};
        decoder *d = decoder_new(m, RT_FAST, &e);
        decoder_hooks h = {.row = see_row, .ctx = &x};
        for (int again = 0; again < 2; again++) {
            if (!decoder_feed(d, ids->data, 24, &h, NULL, &e)) fail_msg("%s", e.msg);
            decoder_restart(d);
        }
        decoder_free(d);
        lm_close(m);
        free(dir);
        npz_close(z);
    }
}

/* ---- layouts ---- */

static rt_tensor given(const npz *z, const char *array, const char *name) {
    const npz_array *a = npz_get(z, array);
    return (rt_tensor){name, a->type, a->data};
}

static void call_function(rt_session *s, const char *function, const rt_tensor *in, size_t n,
                          rt_tensor *out) {
    err e = {0};
    rt_call c = {.function = function, .in = in, .n_in = n, .out = out};
    if (!rt_run(s, &c, &e)) fail_msg("%s: %s", function, e.msg);
}

/* Within 0.02, as activations in fp16 are. */
static void near(const char *what, const npz_array *want, const rt_tensor *got) {
    int64_t n = ir_type_count(&want->type);
    assert_int_equal(n, ir_type_count(&got->type));
    for (int64_t i = 0; i < n; i++) {
        float x = npz_float(&want->type, want->data, i), y = npz_float(&got->type, got->data, i);
        if (!(fabsf(x - y) <= 0.02f))
            fail_msg("%s: element %lld is %g, expected %g", what, (long long)i, (double)y, (double)x);
    }
}

/* n tokens from position at on: rows of the table, then logits. */
static void extend_by(rt_session *s, const npz *z, const rt_tensor *table, int32_t at, int64_t n) {
    char name[16];
    int32_t ids[8] = {0}, position[8];
    memcpy(ids, (const int32_t *)npz_get(z, "ids")->data + at, (size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++) position[i] = at + i;
    uint16_t row[8 * 64];
    rt_tensor out[2], gather[2] = {{"in_new_token_ids", IR_TYPE(DT_INT32, 1, 8), ids}, *table};
    call_function(s, "gather_embeddings_8", gather, 2, out);
    out[0].type.dim[1] = n;
    snprintf(name, sizeof name, "rows%d", at);
    near(name, npz_get(z, name), &out[0]);
    snprintf(name, sizeof name, "mask%d", at);
    rt_tensor in[] = {
        {"transformer_input", out[0].type, memcpy(row, out[0].data, (size_t)n * 64 * sizeof *row)},
        {"position_ids", IR_TYPE(DT_INT32, 1, n), position},
        {"in_step", IR_TYPE(DT_INT32, 1), &at},
        given(z, name, "causal_mask"),
        *table};
    call_function(s, "prompt_opt", in, 5, out); /* writes what extend writes */
    call_function(s, "extend", in, 5, out);
    snprintf(name, sizeof name, "logits%d", at);
    near(name, npz_get(z, name), &out[0]);
}

/* A program for one processor, several functions with tensors in its layouts, which change no value: as in
 * fp64 (tests/oracle/make_coreai_double.py). Its functions pass the table of embeddings around. */
static void test_layouts(void **state) {
    (void)state;
    err e = {0};
    npz *z = npz_open(made_path("ios_double", "npz"));
    coreml_package *p = coreai_open(test_case_path("coreai/tiny_ios_b2/tiny_ios.aimodel"),
                                    &(coreai_options){.capacity = 32}, &e);
    rt_model *m = p ? rt_model_of(p, &e) : NULL;
    if (!m || !rt_model_linear(m, "int16", &e)) fail_msg("%s", e.msg);
    for (int k = 0; k < 2; k++) {
        rt_session *s = rt_session_new(m, modes[k], &e);
        rt_tensor out[1], kept;
        call_function(s, "load_embeddings", NULL, 0, out);
        int64_t n = ir_type_count(&out->type);
        void *copy = malloc((size_t)n * sizeof(int32_t));
        rt_tensor table = {"embedding_table", out->type,
                           memcpy(copy, out->data, (size_t)n * sizeof(int32_t))};
        extend_by(s, z, &table, 0, 8);
        extend_by(s, z, &table, 8, 3);
        assert_true(rt_state_get(s, "key_cache", &kept, &e));
        near("key_cache", npz_get(z, "key"), &kept);
        assert_true(rt_state_get(s, "value_cache", &kept, &e));
        near("value_cache", npz_get(z, "value"), &kept);
        free(copy);
        rt_session_free(s);
    }
    rt_model_close(m);
    npz_close(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_double),     cmocka_unit_test(test_ops),
        cmocka_unit_test(test_made),       cmocka_unit_test(test_made_composites),
        cmocka_unit_test(test_proof),      cmocka_unit_test(test_models),
        cmocka_unit_test(test_composites), cmocka_unit_test(test_bundles),
        cmocka_unit_test(test_layouts),    cmocka_unit_test(test_imports),
    };
    cmocka_set_test_filter(getenv("MILLET_TEST"));
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
