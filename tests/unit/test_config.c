#include "base/json.h"
#include "base/str.h"
#include "checkpoint/config.h"
#include "models/blocks.h"
#include "models/models.h"
#include "test.h"
#include <math.h>

/* The keys of the published files of each family, in their spellings. */
static const char qwen3[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": false, \"head_dim\": 128, "
    "\"hidden_act\": \"silu\","
    " \"hidden_size\": 1024, \"intermediate_size\": 3072, \"max_position_embeddings\": 40960, "
    "\"max_window_layers\": 28,"
    " \"model_type\": \"qwen3\", \"num_attention_heads\": 16, \"num_hidden_layers\": 28, "
    "\"num_key_value_heads\": 8,"
    " \"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null,"
    " \"tie_word_embeddings\": true, \"use_sliding_window\": false, \"vocab_size\": 151936, "
    "\"bos_token_id\": 151643,"
    " \"eos_token_id\": 151645}";
static const char qwen2[] = "{\"architectures\": [\"Qwen2ForCausalLM\"], \"hidden_act\": \"silu\", "
                            "\"hidden_size\": 896, \"intermediate_size\": 4864,"
                            " \"max_position_embeddings\": 32768, \"max_window_layers\": 21, \"model_type\": "
                            "\"qwen2\", \"num_attention_heads\": 14,"
                            " \"num_hidden_layers\": 24, \"num_key_value_heads\": 2, \"rms_norm_eps\": "
                            "1e-06, \"rope_theta\": 1000000.0,"
                            " \"sliding_window\": 32768, \"tie_word_embeddings\": true, "
                            "\"use_sliding_window\": false, \"vocab_size\": 151936}";
static const char llama[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 2048, "
    "\"intermediate_size\": 8192,"
    " \"num_attention_heads\": 32, \"num_hidden_layers\": 16, \"num_key_value_heads\": 8, \"head_dim\": 64,"
    " \"hidden_act\": \"silu\", \"vocab_size\": 128256, \"max_position_embeddings\": 131072, "
    "\"rms_norm_eps\": 1e-05,"
    " \"rope_theta\": 500000.0, \"rope_scaling\": {\"factor\": 32.0, \"high_freq_factor\": 4.0, "
    "\"low_freq_factor\": 1.0,"
    " \"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, \"tie_word_embeddings\": true,"
    " \"eos_token_id\": [128001, 128008, 128009]}";
static const char qwen35[] =
    "{\"architectures\": [\"Qwen3_5ForConditionalGeneration\"], \"model_type\": \"qwen3_5\", "
    "\"tie_word_embeddings\": true,"
    " \"vision_config\": {\"depth\": 12, \"hidden_size\": 768, \"model_type\": \"qwen3_5\"}, "
    "\"text_config\": {"
    " \"model_type\": \"qwen3_5_text\", \"vocab_size\": 248320, \"hidden_size\": 1024, "
    "\"intermediate_size\": 3584,"
    " \"num_hidden_layers\": 8, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 256,"
    " \"hidden_act\": \"silu\", \"attention_bias\": false, \"rms_norm_eps\": 1e-06, "
    "\"max_position_embeddings\": 262144,"
    " \"full_attention_interval\": 4, \"mlp_only_layers\": [], \"linear_conv_kernel_dim\": 4,"
    " \"linear_key_head_dim\": 128, \"linear_value_head_dim\": 128, \"linear_num_key_heads\": 16,"
    " \"linear_num_value_heads\": 16, \"mtp_num_hidden_layers\": 1, \"eos_token_id\": 248044,"
    " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000, \"partial_rotary_factor\": "
    "0.25,"
    " \"mrope_section\": [11, 11, 10], \"mrope_interleaved\": true}, \"tie_word_embeddings\": true}}";

/* text with the first `from` replaced by `to`. */
static const char *edit(arena *a, const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    assert_non_null(at);
    return arena_printf(a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static bool parse(ckpt_config *c, arena *a, const char *text, err *e) {
    return config_parse(c, a, "config.json", text, strlen(text), models_families(), e);
}

static ckpt_config parsed(arena *a, const char *text) {
    err e = {0};
    ckpt_config c;
    if (!parse(&c, a, text, &e)) fail_msg("%s", e.msg);
    return c;
}

static void published_files_are_read(void **s) {
    (void)s;
    arena *a = arena_new();
    ckpt_config c = parsed(a, qwen3);
    assert_string_equal(c.family->name, "qwen3");
    assert_int_equal(c.vocab, 151936);
    assert_int_equal(c.heads * c.head_dim, 2048);
    assert_int_equal(c.kv_heads, 8);
    assert_int_equal(c.rope.dims, 128);
    assert_true(c.rope.theta == 1e6 && c.eps == 1e-6 && c.tie_embeddings && !c.attention_bias);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 151645);

    c = parsed(a, qwen2);
    assert_int_equal(c.head_dim, 64); /* hidden / heads */
    assert_int_equal(c.n_eos, 0);

    c = parsed(a, llama);
    assert_int_equal(c.rope.kind, ROPE_LLAMA3);
    assert_true(c.rope.factor == 32 && c.rope.original_max == 8192 && c.rope.theta == 500000);
    assert_int_equal(c.n_eos, 3);

    c = parsed(a, qwen35);
    assert_string_equal(c.family->name, "qwen3_5");
    assert_string_equal(c.model_type, "qwen3_5");
    assert_int_equal(c.rope.dims, 64);
    assert_int_equal(c.mtp_layers, 1);
    assert_int_equal(c.linear_v_heads, 16);
    assert_int_equal(c.conv_kernel, 4);
    for (int i = 0; i < 8; i++) assert_int_equal(c.linear_layer[i], i % 4 != 3);
    assert_false(c.tie_conflict);
    arena_free(a);
}

static void spellings_mean_the_same(void **s) {
    (void)s;
    arena *a = arena_new();
    /* RoPE: the new spelling of an old file, and the old one of a new file. */
    ckpt_config c =
        parsed(a, edit(a, edit(a, qwen3, "\"rope_scaling\": null, ", ""), "\"rope_theta\": 1000000",
                       "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5000000}"));
    assert_true(c.rope.theta == 5e6);
    const char *old = edit(a, qwen35,
                           "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000, "
                           "\"partial_rotary_factor\": 0.25,",
                           "\"rope_theta\": 1e7, \"rope_scaling\": {\"type\": \"default\",");
    c = parsed(a, old);
    assert_true(c.rope.theta == 1e7);
    assert_int_equal(c.rope.dims, 64); /* this family's factor is 0.25 when it is not written */
    c = parsed(a, edit(a, llama, "\"rope_type\": \"llama3\"", "\"type\": \"llama3\""));
    assert_int_equal(c.rope.kind, ROPE_LLAMA3);

    /* a list of layer kinds wins over the interval */
    c = parsed(
        a,
        edit(a, qwen35, "\"full_attention_interval\": 4",
             "\"full_attention_interval\": 4, \"layer_types\": [\"full_attention\", \"linear_attention\","
             "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\","
             "\"full_attention\"]"));
    assert_false(c.linear_layer[0]);
    assert_true(c.linear_layer[1]);
    assert_false(c.linear_layer[4]);

    /* absent keys */
    c = parsed(a, edit(a, qwen35, "\"full_attention_interval\": 4, ", ""));
    assert_true(c.linear_layer[0] && !c.linear_layer[3]);
    c = parsed(a, edit(a, llama, "\"num_key_value_heads\": 8, ", ""));
    assert_int_equal(c.kv_heads, 32);
    c = parsed(a, edit(a, qwen2, "\"rope_theta\": 1000000.0,", ""));
    assert_true(c.rope.theta == 10000);
    c = parsed(a, edit(a, qwen3, "\"eos_token_id\": 151645", "\"eos_token_id\": null"));
    assert_int_equal(c.n_eos, 0);
    c = parsed(a, edit(a, qwen3, "\"hidden_size\": 1024", "\"hidden_size\": 1024.0"));
    assert_int_equal(c.hidden, 1024);
    /* a window that no layer uses */
    c = parsed(a, edit(a, edit(a, qwen2, "\"use_sliding_window\": false", "\"use_sliding_window\": true"),
                       "\"max_window_layers\": 21", "\"max_window_layers\": 24"));
    assert_int_equal(c.layers, 24);
    /* text_config counts, and a difference is told */
    c = parsed(a, edit(a, qwen35, "\"tie_word_embeddings\": true,", "\"tie_word_embeddings\": false,"));
    assert_true(c.tie_embeddings && c.tie_conflict);
    arena_free(a);
}

static void every_refusal_names_its_reason(void **s) {
    (void)s;
    static const struct {
        const char *base, *from, *to;
        err_code code;
        const char *message;
    } row[] = {
        {qwen3, "\"model_type\": \"qwen3\"", "\"model_type\": \"qwen3_moe\"", ERR_UNSUPPORTED,
         "mixture of experts"},
        {qwen35, "\"model_type\": \"qwen3_5_text\"", "\"model_type\": \"qwen3_5_moe_text\"", ERR_UNSUPPORTED,
         "(MoE)"},
        {qwen3, "\"vocab_size\"", "\"num_experts\": 128, \"vocab_size\"", ERR_UNSUPPORTED,
         "\"num_experts\" is 128"},
        {llama, "\"model_type\": \"llama\"", "\"model_type\": \"mixtral\", \"num_local_experts\": 8",
         ERR_UNSUPPORTED, "\"num_local_experts\" is 8"},
        {qwen3, "\"model_type\": \"qwen3\"", "\"model_type\": \"gemma3\"", ERR_UNSUPPORTED,
         "model_type \"gemma3\" is not supported (supported: qwen3_5, qwen3_5_text, qwen3, qwen2, llama)"},
        {qwen35, "\"text_config\"", "\"other_config\"", ERR_UNSUPPORTED, "vision-only"},
        {qwen3, "\"model_type\": \"qwen3\"", "\"model_type\": \"siglip_vision_model\"", ERR_UNSUPPORTED,
         "vision-only"},
        {qwen3, "Qwen3ForCausalLM", "Qwen3ForSequenceClassification", ERR_UNSUPPORTED,
         "no language-model head"},
        {qwen3, "\"vocab_size\"", "\"quantization_config\": {\"quant_method\": \"fp8\"}, \"vocab_size\"",
         ERR_UNSUPPORTED, "quantized already (fp8)"},
        {qwen35, "\"vision_config\"",
         "\"quantization_config\": {\"quant_method\": \"awq\"}, \"vision_config\"", ERR_UNSUPPORTED,
         "quantized already (awq)"},
        {qwen2, "\"use_sliding_window\": false", "\"use_sliding_window\": true", ERR_UNSUPPORTED,
         "sliding-window"},
        {qwen3, "\"vocab_size\"",
         "\"layer_types\": [\"sliding_attention\"], \"num_hidden_layers_\": 1, \"vocab_size\"", ERR_FORMAT,
         "\"layer_types\" has 1 entries for 28 layers"},
        {llama, "\"num_hidden_layers\": 16",
         "\"num_hidden_layers\": 1, \"layer_types\": [\"sliding_attention\"]", ERR_UNSUPPORTED,
         "layer 0 is of type \"sliding_attention\""},
        {llama, "\"num_hidden_layers\": 16",
         "\"num_hidden_layers\": 1, \"layer_types\": [\"linear_attention\"]", ERR_UNSUPPORTED,
         "layer 0 is of type \"linear_attention\""},
        {qwen3, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", ERR_UNSUPPORTED,
         "activation \"gelu\""},
        {qwen3, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}",
         ERR_UNSUPPORTED, "RoPE type \"dynamic\""},
        {qwen3, "\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"linear\"}", ERR_FORMAT,
         "\"factor\" is missing"},
        {qwen3, "\"rope_scaling\": null",
         "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"beta_fast\": 1}", ERR_FORMAT,
         "beta_fast 1 is not above beta_slow 1"},
        {qwen3, "\"rope_scaling\": null",
         "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"truncate\": 1}", ERR_FORMAT,
         "\"truncate\""},
        {llama, "\"vocab_size\"", "\"partial_rotary_factor\": 0.5, \"vocab_size\"", ERR_UNSUPPORTED,
         "partial_rotary_factor"},
        {llama, "\"factor\": 32.0, ", "", ERR_FORMAT, "\"factor\" is missing"},
        {llama, "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0", ERR_FORMAT, "high_freq_factor"},
        {qwen35, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [3]", ERR_UNSUPPORTED, "mlp_only_layers"},
        {qwen35, "\"linear_num_value_heads\": 16", "\"linear_num_value_heads\": 24", ERR_FORMAT,
         "24 linear value heads"},
        {qwen35, "\"linear_num_key_heads\": 16,", "", ERR_FORMAT, "\"linear_num_key_heads\" is missing"},
        {qwen3, "\"hidden_size\": 1024, ", "", ERR_FORMAT, "\"hidden_size\" is missing"},
        {qwen3, "\"model_type\": \"qwen3\",", "", ERR_FORMAT, "\"model_type\" is missing"},
        {qwen3, "\"hidden_size\": 1024", "\"hidden_size\": \"1024\"", ERR_FORMAT,
         "\"hidden_size\" is of kind string"},
        {qwen3, "\"hidden_size\": 1024", "\"hidden_size\": -1", ERR_FORMAT, "\"hidden_size\" is -1"},
        {qwen3, "\"hidden_size\": 1024", "\"hidden_size\": 1e300", ERR_FORMAT, "\"hidden_size\" is 1e+300"},
        {qwen3, "\"vocab_size\": 151936", "\"vocab_size\": 1152921504606846976", ERR_FORMAT,
         "\"vocab_size\" is 1.15"},
        {qwen3, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 3", ERR_FORMAT, "16 attention heads"},
        {qwen2, "\"hidden_size\": 896", "\"hidden_size\": 900", ERR_FORMAT, "no head_dim"},
        {qwen3, "\"head_dim\": 128", "\"head_dim\": 127", ERR_FORMAT, "pairs"},
        {qwen3, "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", ERR_FORMAT, "\"rms_norm_eps\" is 0"},
        {qwen3, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1", ERR_FORMAT,
         "expected true or false"},
        {qwen3, "\"eos_token_id\": 151645", "\"eos_token_id\": [1, \"2\"]", ERR_FORMAT, "\"eos_token_id\""},
        {qwen3, "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 1e300", ERR_FORMAT, "fp32 can't hold"},
        {qwen3, "\"eos_token_id\": 151645", "\"eos_token_id\": -5", ERR_FORMAT, "\"eos_token_id\" is -5"},
        {qwen35, "\"text_config\": {", "\"text_config\": [], \"x\": {", ERR_FORMAT,
         "\"text_config\" is of kind array"},
        {qwen3, "{\"architectures\"", "[{\"architectures\"", ERR_FORMAT, "JSON"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        arena *a = arena_new();
        err e = {0};
        ckpt_config c;
        bool ok = parse(&c, a, edit(a, row[i].base, row[i].from, row[i].to), &e);
        if (ok || e.code != row[i].code || !strstr(e.msg, row[i].message) ||
            strncmp(e.msg, "config.json", 11))
            fail_msg("row %zu (%s): %s", i, row[i].message, ok ? "accepted" : e.msg);
        arena_free(a);
    }
}

static void shared_checkpoints_are_read(void **s) {
    (void)s;
    static const struct {
        const char *name, *family;
        int64_t head_dim, rotated, v_heads;
        size_t n_eos;
    } row[] = {
        {"tiny-qwen3.5", "qwen3_5", 64, 16, 8, 2},         {"tiny-qwen3", "qwen3", 64, 64, 0, 2},
        {"rand-qwen3.5-untied", "qwen3_5", 40, 10, 3, 1},  {"rand-qwen2", "qwen2", 12, 12, 0, 1},
        {"rand-qwen3.5-textonly", "qwen3_5", 32, 8, 6, 1}, {"rand-llama", "llama", 16, 16, 0, 3},
        {"rand-qwen3-bigvocab", "qwen3", 32, 32, 0, 1},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        arena *a = arena_new();
        err e = {0};
        ckpt_config c;
        char dir[200];
        snprintf(dir, sizeof dir, "models/%s", row[i].name);
        if (!config_read(&c, a, test_case_path(dir), models_families(), &e)) fail_msg("%s", e.msg);
        assert_string_equal(c.family->name, row[i].family);
        assert_string_equal(c.name, row[i].name);
        assert_int_equal(c.head_dim, row[i].head_dim);
        assert_int_equal(c.rope.dims, row[i].rotated);
        assert_int_equal(c.linear_v_heads, row[i].v_heads);
        assert_int_equal(c.n_eos, row[i].n_eos);
        arena_free(a);
    }
}

/* transformers' inverse frequencies, computed in float32 (tests/oracle/make_rope_cases.py): powers and
 * quotients of it are within some ulp. */
static void scaled_frequencies_are_those_of_transformers(void **s) {
    (void)s;
    arena *a = arena_new();
    err e = {0};
    const char *source = getenv("MILLET_SOURCE");
    const json *j =
        json_parse_file(a, arena_printf(a, "%s/tests/data/rope_cases.json", source ? source : "."), &e);
    if (!j) fail_msg("%s", e.msg);
    JSON_EACH(row, json_get(j, "cases")) {
        str text = {0};
        json_canonical(&text, json_get(row, "config"));
        const ckpt_config c = parsed(a, str_get(&text));
        int64_t i = 0;
        JSON_EACH(want, json_get(row, "frequency")) {
            double got = rope_frequency(&c.rope, i);
            if (!(fabs(got - want->d) <= 2e-6 * want->d))
                fail_msg("%s: pair %lld turns by %.9g, expected %.9g", str_get(&text), (long long)i, got,
                         want->d);
            i++;
        }
        assert_int_equal(2 * i, c.rope.dims);
        assert_true(fabs(c.rope.attention - json_double(row, "attention", 0)) < 1e-12);
        str_free(&text);
    }
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_files_are_read),
        cmocka_unit_test(spellings_mean_the_same),
        cmocka_unit_test(scaled_frequencies_are_those_of_transformers),
        cmocka_unit_test(every_refusal_names_its_reason),
        cmocka_unit_test(shared_checkpoints_are_read),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
