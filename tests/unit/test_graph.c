/* Checkpoints that are altered in one place, and what their graphs look like. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/num.h"
#include "coreml/model.h"
#include "models/models.h"
#include "work_dir.h"
#include <unistd.h>

/* What to change of rand-qwen2 (F32, untied, 3 layers, hidden 72, intermediate 180, vocabulary 1003). */
typedef struct {
    const char *drop;      /* leave this tensor out */
    st_tensor add;         /* put one in (name NULL: none), in place of one of the same name */
    const char *from, *to; /* replacement in config.json */
} change;

static void write_text(const char *name, const char *text) {
    err e = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/%s", work_dir, name);
    if (!file_write(path, text, strlen(text), &e)) fail_msg("%s", e.msg);
}

static void write_config(const change *c) {
    err e = {0};
    file_map m;
    if (!file_open_map(&m, test_case_path("models/rand-qwen2/config.json"), &e)) fail_msg("%s", e.msg);
    arena *a = arena_new();
    const char *text = arena_strn(a, (const char *)m.data, m.size),
               *at = c->from ? strstr(text, c->from) : NULL;
    if (c->from) {
        assert_non_null(at);
        text = arena_printf(a, "%.*s%s%s", (int)(at - text), text, c->to, at + strlen(c->from));
    }
    write_text("config.json", text);
    arena_free(a);
    file_unmap(&m);
}

static checkpoint *altered(const change *c) {
    err e = {0};
    st_tensor t[64];
    size_t n = 0;
    st_file *f = st_open(test_case_path("models/rand-qwen2/model.safetensors"), &e);
    assert_non_null(f);
    for (size_t i = 0; i < st_count(f); i++) {
        const st_tensor *x = st_at(f, i);
        if (c->drop && !strcmp(x->name, c->drop)) continue;
        if (!c->add.name || strcmp(x->name, c->add.name)) t[n++] = *x;
    }
    if (c->add.name) t[n++] = c->add;
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", work_dir);
    if (!st_write(path, t, n, &e)) fail_msg("%s", e.msg);
    st_close(f);
    write_config(c);
    checkpoint *k = checkpoint_open(work_dir, models_families(), &e);
    if (!k) fail_msg("%s", e.msg);
    return k;
}

static const models_options mixed = {PRESET_SINGLE, PRECISION_MIXED, .split_state = true, .context = 64,
                                     .top_k = 8};

static void expect_refusal(const change *c, err_code code, const char *message) {
    err e = {0};
    arena *a = arena_new();
    models_graph g;
    checkpoint *k = altered(c);
    bool ok = models_build(&g, a, k, &mixed, &e);
    if (ok || e.code != code || !strstr(e.msg, message))
        fail_msg("expected \"%s\", got: %s", message, ok ? "success" : e.msg);
    checkpoint_close(k);
    arena_free(a);
}

static const models_note *note_about(const models_graph *g, const char *tensor) {
    static const models_note none = {NOTE_SKIPPED, "", "", 0};
    for (size_t i = 0; i < g->n_note; i++)
        if (!strcmp(g->note[i].tensor, tensor)) return &g->note[i];
    return &none;
}

static void expect_note(const models_graph *g, const char *tensor, models_note_kind kind, uint64_t count,
                        const char *what) {
    const models_note *n = note_about(g, tensor);
    assert_int_equal(n->kind, kind);
    assert_int_equal(n->count, count);
    assert_non_null(strstr(n->what, what));
}

static const ir_const *constant(const models_graph *g, const char *name) {
    const ir_block *b = &g->program->func[0]->body;
    for (size_t i = 0; i < b->n_op; i++)
        if (b->op[i]->n_out && !strcmp(b->op[i]->out[0]->name, name)) return b->op[i]->out[0]->konst;
    return NULL;
}

static models_graph built(arena *a, const checkpoint *k, const models_options *o) {
    err e = {0};
    models_graph g;
    if (!models_build(&g, a, k, o, &e)) fail_msg("%s", e.msg);
    coreml_model *m = coreml_model_new(a, g.program, 9);
    if (!coreml_verify(m, NULL, NULL, &e)) fail_msg("%s", e.msg);
    return g;
}

static const float zeros[1003 * 72];

static void wrong_tensors_are_named(void **s) {
    (void)s;
    expect_refusal(&(change){.drop = "model.layers.1.mlp.up_proj.weight"}, ERR_FORMAT,
                   "tensor model.layers.1.mlp.up_proj.weight is missing (expected shape [180,72])");
    expect_refusal(&(change){.drop = "model.layers.2.self_attn.k_proj.bias"}, ERR_FORMAT,
                   "tensor model.layers.2.self_attn.k_proj.bias is missing");
    expect_refusal(&(change){.drop = "model.embed_tokens.weight"}, ERR_FORMAT,
                   "no tensor model.embed_tokens.weight");
    expect_refusal(&(change){.drop = "lm_head.weight"}, ERR_FORMAT, "lm_head.weight is missing");
    expect_refusal(
        &(change){.add = {.name = "model.norm.weight", .type = IR_TYPE(DT_FP32, 71), .data = zeros}},
        ERR_FORMAT, "tensor model.norm.weight has shape [71], expected [72]");
    expect_refusal(
        &(change){.add = {.name = "lm_head.weight", .type = IR_TYPE(DT_FP32, 1002, 72), .data = zeros}},
        ERR_FORMAT, "tensor lm_head.weight is fp32[1002,72], expected [1003,72]");
    expect_refusal(
        &(change){.add = {.name = "model.norm.weight", .type = IR_TYPE(DT_E4M3, 72), .data = zeros}},
        ERR_UNSUPPORTED, "tensor model.norm.weight is of type fp8e4m3fn");
    expect_refusal(&(change){.add = {.name = "model.layers.0.mlp.up_proj.weight_scale",
                                     .type = IR_TYPE(DT_FP32, 1),
                                     .data = zeros}},
                   ERR_UNSUPPORTED, "quantized already");
}

static void the_head_is_what_the_tensors_say(void **s) {
    (void)s;
    change tied = {.from = "\"tie_word_embeddings\": false", .to = "\"tie_word_embeddings\": true"};
    arena *a = arena_new();
    err e = {0};
    checkpoint *k = altered(&tied);
    models_graph g = built(a, k, &mixed);
    expect_note(&g, "lm_head.weight", NOTE_WARNING, 1, "differs from model.embed_tokens.weight");
    assert_non_null(constant(&g, "embed_tokens_weight")); /* two tables */
    checkpoint_close(k);

    /* the same values: one tensor, one table */
    st_file *f = st_open(test_case_path("models/rand-qwen2/model.safetensors"), &e);
    tied.add = *st_find(f, "model.embed_tokens.weight");
    tied.add.name = "lm_head.weight";
    k = altered(&tied);
    g = built(a, k, &mixed);
    assert_int_equal(note_about(&g, "lm_head.weight")->count, 0);
    assert_null(constant(&g, "embed_tokens_weight"));
    assert_non_null(constant(&g, "lm_head_weight"));
    checkpoint_close(k);

    tied.add.name = NULL;
    tied.drop = "lm_head.weight";
    k = altered(&tied);
    g = built(a, k, &mixed);
    assert_null(constant(&g, "embed_tokens_weight"));
    checkpoint_close(k);
    st_close(f);
    arena_free(a);
}

/* 65519 rounds to 65504, 65520 to infinity; 2^-25 rounds to 0, anything above it to 2^-24. */
static void fp16_range_is_checked(void **s) {
    (void)s;
    float w[72] = {65520, -65519, 0x1p-25f, -0x1.000002p-25f, 0, 1};
    change c = {
        .add = {.name = "model.layers.1.self_attn.q_proj.bias", .type = IR_TYPE(DT_FP32, 72), .data = w}};
    arena *a = arena_new();
    checkpoint *k = altered(&c);
    models_graph g = built(a, k, &mixed);
    expect_note(&g, c.add.name, NOTE_OVERFLOW, 1, "");
    assert_int_equal(constant(&g, "layer_1_self_attn_q_proj_bias")->type.dtype, DT_FP32);
    assert_int_equal(constant(&g, "layer_1_self_attn_q_proj_weight")->type.dtype, DT_FP32);
    assert_int_equal(constant(&g, "layer_1_self_attn_k_proj_weight")->type.dtype, DT_FP16);
    checkpoint_close(k);

    w[0] = 0x1p-26f;
    k = altered(&c);
    g = built(a, k, &mixed);
    expect_note(&g, c.add.name, NOTE_VANISH, 2, "");
    const ir_const *bias = constant(&g, "layer_1_self_attn_q_proj_bias");
    uint16_t half[72];
    err e = {0};
    assert_true(bias->type.dtype == DT_FP16 && bias->fill(bias->fill_ctx, 0, 72, half, &e));
    for (int i = 0; i < 72; i++) assert_int_equal(half[i], num_f32_f16(w[i]));
    checkpoint_close(k);
    arena_free(a);
}

static void other_tensors_are_named(void **s) {
    (void)s;
    change c = {.add = {.name = "model.layers.0.self_attn.rotary_emb.inv_freq",
                        .type = IR_TYPE(DT_FP32, 6),
                        .data = zeros}};
    arena *a = arena_new();
    checkpoint *k = altered(&c);
    models_graph g = built(a, k, &mixed);
    assert_int_equal(note_about(&g, c.add.name)->count, 0);
    checkpoint_close(k);
    c.add.name = "model.layers.0.self_attn.sinks";
    k = altered(&c);
    g = built(a, k, &mixed);
    expect_note(&g, c.add.name, NOTE_SKIPPED, 1, "not part of this model");
    checkpoint_close(k);
    arena_free(a);
}

/* The constants of the weight file. Also: static functions have only known sizes, ranks stay within 5. */
static size_t weight_file(const models_graph *g, size_t function, bool known, const ir_const **list) {
    const ir_block *b = &g->program->func[function]->body;
    size_t n = 0;
    for (size_t i = 0; i < b->n_op; i++) {
        assert_int_equal(b->op[i]->n_block, 0);
        for (uint32_t j = 0; j < b->op[i]->n_out; j++) {
            const ir_value *v = b->op[i]->out[j];
            assert_true(v->type.rank <= 5 && (!known || ir_type_known(&v->type)));
            if (!v->konst) continue;
            assert_true(v->konst->in_blob || ir_type_count(&v->type) < 10);
            if (v->konst->in_blob) list[n++] = v->konst;
            assert_true(n < 400);
        }
    }
    return n;
}

/* Functions beyond the first bring no constants of their own to it. */
static void later_functions_share(const models_graph *g, size_t n, const ir_const *const *list) {
    for (size_t f = 1; f < g->program->n_func; f++) {
        const ir_const *own[400];
        size_t n_own = weight_file(g, f, true, own);
        assert_int_equal(n_own, n);
        for (size_t i = 0; i < n_own; i++) {
            size_t at = 0;
            while (at < n && list[at] != own[i]) at++;
            assert_true(at < n);
        }
    }
}

static void check_form(const checkpoint *k, models_options o) {
    arena *a = arena_new();
    const ir_const *small[400], *large[400];
    bool known = o.preset == PRESET_CHUNKS;
    o.context = o.n_prefill ? o.prefill[o.n_prefill - 1] : 1;
    models_graph g = built(a, k, &o);
    size_t n = weight_file(&g, 0, known, small);
    assert_int_equal(g.program->n_func, 1 + o.n_prefill);
    later_functions_share(&g, n, small);
    o.context = 500;
    g = built(a, k, &o);
    assert_int_equal(weight_file(&g, 0, known, large), n);
    for (size_t i = 0; i < n; i++) assert_true(ir_type_equal(&small[i]->type, &large[i]->type));
    arena_free(a);
}

static void forms_do_not_depend_on_the_context(void **s) {
    (void)s;
    static const char *const names[] = {"rand-qwen3.5-textonly", "rand-qwen2", "rand-qwen3-bigvocab"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        err e = {0};
        char path[64];
        snprintf(path, sizeof path, "models/%s", names[i]);
        checkpoint *k = checkpoint_open(test_case_path(path), models_families(), &e);
        assert_non_null(k);
        for (int precision = PRECISION_MIXED; precision <= PRECISION_FLOAT32; precision++) {
            models_options o = {PRESET_CHUNKS, (models_precision)precision, .split_state = true};
            check_form(k, o);
            o.prefill = (const int64_t[]){4, 64, 128};
            o.n_prefill = 3;
            check_form(k, o);
            o.n_prefill = 0;
            o.preset = PRESET_SINGLE;
            if (!models_has_preset(checkpoint_config(k), o.preset, NULL)) continue;
            check_form(k, o);
            o.top_k = 2000; /* more than rand-qwen2 has */
            check_form(k, o);
        }
        checkpoint_close(k);
    }
}

static void options_are_checked(void **s) {
    (void)s;
    err e = {0};
    arena *a = arena_new();
    models_graph g;
    checkpoint *k = checkpoint_open(test_case_path("models/rand-qwen3.5-untied"), models_families(), &e);
    models_options o = {.preset = PRESET_SINGLE, .context = 16};
    assert_int_equal(models_default_preset(checkpoint_config(k)), PRESET_CHUNKS);
    assert_false(models_build(&g, a, k, &o, &e));
    assert_non_null(strstr(e.msg, "preset single is not offered for qwen3_5: its DeltaNet layers"));
    o = (models_options){.preset = PRESET_CHUNKS, .context = 0};
    e = (err){0};
    assert_false(models_build(&g, a, k, &o, &e));
    assert_non_null(strstr(e.msg, "context of 0"));
    o.context = 16;
    e = (err){0};
    assert_true(models_build(&g, a, k, &o, &e));
    expect_note(&g, "mtp.*", NOTE_SKIPPED, 15, "MTP");
    expect_note(&g, "model.visual.*", NOTE_SKIPPED, 21, "vision");
    checkpoint_close(k);
    arena_free(a);
}

static void expect_no_checkpoint(const char *index, const char *message) {
    err e = {0};
    write_text("model.safetensors.index.json", index);
    checkpoint *k = checkpoint_open(work_dir, models_families(), &e);
    if (k || !strstr(e.msg, message)) fail_msg("expected \"%s\", got: %s", message, k ? "success" : e.msg);
}

static void the_index_decides(void **s) {
    (void)s;
    err e = {0};
    checkpoint_close(altered(&(change){0}));
    expect_no_checkpoint("{\"weight_map\": {\"a\": \"other.safetensors\"}}", "other.safetensors");
    expect_no_checkpoint("{\"weight_map\": {\"a\": \"model.safetensors\"}}",
                         "tensor a is not in model.safetensors");
    expect_no_checkpoint("{\"weight_map\": {\"a\": \"../model.safetensors\"}}",
                         "tensor a: bad shard file name");
    expect_no_checkpoint("{\"weight_map\": {\"a\": 1}}", "tensor a: bad shard file name");
    expect_no_checkpoint("{}", "\"weight_map\" is missing");
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"model.norm.weight\": \"model.safetensors\"}}");
    checkpoint *k = checkpoint_open(work_dir, models_families(), &e);
    assert_int_equal(checkpoint_count(k), 1); /* what it does not list is not there */
    assert_null(checkpoint_find(k, "lm_head.weight"));
    checkpoint_close(k);

    char path[128], other[128];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", work_dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", work_dir);
    snprintf(other, sizeof other, "%s/weights.safetensors", work_dir);
    assert_int_equal(rename(path, other), 0);
    k = checkpoint_open(work_dir, models_families(), &e); /* the only one */
    assert_non_null(k);
    assert_string_equal(checkpoint_at(k, 0)->name, "lm_head.weight"); /* sorted */
    checkpoint_close(k);
    write_text("more.safetensors", "");
    assert_null(checkpoint_open(work_dir, models_families(), &e));
    assert_non_null(strstr(e.msg, "several *.safetensors files"));
    assert_int_equal(unlink(other), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_tensors_are_named), cmocka_unit_test(the_head_is_what_the_tensors_say),
        cmocka_unit_test(fp16_range_is_checked),   cmocka_unit_test(other_tensors_are_named),
        cmocka_unit_test(options_are_checked),     cmocka_unit_test(forms_do_not_depend_on_the_context),
        cmocka_unit_test(the_index_decides),
    };
    return cmocka_run_group_tests_name("graph", tests, make_work_dir, remove_work_dir);
}
