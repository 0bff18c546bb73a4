#define _GNU_SOURCE
#include "base/file.h"
#include "base/num.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_set.h"
#include "models/models.h"
#include "test.h"
#include <unistd.h>

static const char *data_path(const char *name) {
    static char path[1024];
    const char *root = getenv("MILLET_SOURCE");
    snprintf(path, sizeof path, "%s/tests/data/gguf/%s", root ? root : ".", name);
    return path;
}

/* --- what tests/oracle/make_gguf.py wrote --- */

static void values_of_every_kind_are_read(void **s) {
    (void)s;
    static const struct {
        const char *key;
        double value;
    } want[] = {{"k.u8", 200},          {"k.i8", -100},         {"k.u16", 60000},  {"k.i16", -30000},
                {"k.u32", 4000000000.}, {"k.i32", -2000000000}, {"k.u64", 0x1p40}, {"k.i64", -0x1p40},
                {"k.f32", 0.1f},        {"k.f64", 0.1}};
    err e = {0};
    gguf *g = gguf_open(data_path("types.gguf"), &e);
    assert_string_equal(e.msg, "");
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const gguf_value *v = gguf_get(g, want[i].key);
        double x;
        int64_t n;
        assert_non_null(v);
        assert_true(gguf_number(v, 0, &x) && x == want[i].value);
        assert_int_equal(gguf_int(v, 0, &n), i < 8);
        assert_true(i >= 8 || (double)n == want[i].value);
    }
    arena *a = arena_new();
    assert_string_equal(gguf_text(a, gguf_get(g, "k.string")), "gr\xC3\xB6\xC3\x9F"
                                                               "e");
    assert_null(gguf_text(a, gguf_get(g, "k.strings")));
    assert_null(gguf_get(g, "k.none"));
    const char *text, *texts[] = {"a", "", "\xC3\xA4\n"};
    size_t n;
    gguf_strings it = gguf_strings_of(gguf_get(g, "k.strings"));
    for (int i = 0; i < 3; i++) {
        assert_true(gguf_next(&it, &text, &n));
        assert_true(n == strlen(texts[i]) && !memcmp(text, texts[i], n));
    }
    assert_false(gguf_next(&it, &text, &n));
    const gguf_value *numbers = gguf_get(g, "k.numbers"), *bools = gguf_get(g, "k.bools");
    int64_t x;
    assert_true(numbers->array && numbers->n == 3 && gguf_int(numbers, 1, &x) && x == -2);
    assert_true(bools->kind == GGUF_BOOL && gguf_int(bools, 0, &x) && x == 1 && gguf_int(bools, 1, &x) &&
                x == 0);
    arena_free(a);
    gguf_close(g);
}

/* A tensor as checkpoints have it, with rows or columns in another order. */
static st_tensor seen(const gguf_tensor *t, tensor_view *v, tensor_order row, tensor_order col) {
    *v = (tensor_view){t->form, t->data, t->bytes, t->type.dim[0], t->type.dim[1], row, col, t->form->keep};
    return (st_tensor){
        .name = t->name, .type = {.dtype = DT_FP32, .rank = 2, .dim = {v->rows, v->cols}}, .view = v};
}

/* Bit for bit: the operations of the gguf package in its order. */
static void every_type_is_decoded(void **s) {
    (void)s;
    err e = {0};
    gguf *g = gguf_open(data_path("types.gguf"), &e);
    st_file *want = st_open(data_path("types.safetensors"), &e);
    assert_string_equal(e.msg, "");
    assert_int_equal(gguf_count(g), st_count(want));
    for (size_t i = 0; i < gguf_count(g); i++) {
        const gguf_tensor *t = gguf_at(g, i);
        const st_tensor *w = st_find(want, t->name);
        assert_ptr_equal(gguf_find(g, t->name), t);
        uint64_t n = (uint64_t)ir_type_count(&t->type);
        assert_true(w && (int64_t)n == ir_type_count(&w->type) && t->type.rank == w->type.rank);
        if (t->type.rank != 2) continue;
        tensor_view v;
        st_tensor x = seen(t, &v, (tensor_order){0}, (tensor_order){0});
        float *got = mem_alloc(n * sizeof *got);
        static const uint64_t pieces[] = {1024, 1,   7,
                                          33,   256, 300}; /* within blocks, across blocks and rows */
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            memset(got, 0xFF, n * sizeof *got);
            for (uint64_t at = 0, m; at < n; at += m) {
                m = n - at < pieces[k] ? n - at : pieces[k];
                assert_true(st_floats(&x, at, m, got + at));
            }
            if (memcmp(got, w->data, n * sizeof *got)) fail_msg("%s, %d at a time", t->name, (int)pieces[k]);
        }
        mem_free(got);
    }
    st_close(want);
    gguf_close(g);
}

/* Code times scale is the value, where a type says so. */
static void codes_and_scales_make_the_values(void **s) {
    (void)s;
    err e = {0};
    gguf *g = gguf_open(data_path("types.gguf"), &e);
    assert_string_equal(e.msg, "");
    int kept = 0;
    for (size_t i = 0; i < gguf_count(g); i++) {
        const gguf_tensor *t = gguf_at(g, i);
        if (!t->form->keep) continue;
        kept++;
        /* 16 heads of 32 columns: 4 groups of 4; rows as they are */
        tensor_view v;
        st_tensor x = seen(t, &v, (tensor_order){0}, (tensor_order){ORDER_TILED, 0, 32, 4, 4});
        float value[1024];
        int8_t code[1024];
        uint16_t scale[32];
        st_floats(&x, 0, 1024, value);
        tensor_codes(&v, 0, 1024, code);
        tensor_scales(&v, 0, 20, scale);
        tensor_scales(&v, 20, 12, scale + 20);
        for (int k = 0; k < 1024; k++) {
            assert_true(value[k] == num_f16_f32(scale[k / 32]) * (float)code[k]);
            assert_true(t->form->kept_bits == 8 || (code[k] >= -8 && code[k] < 8));
        }
    }
    assert_int_equal(kept, 4);
    gguf_close(g);
}

/* Orders, on numbers that tell where they are stored. */
static void orders_are_undone(void **s) {
    (void)s;
    float stored[24 * 8], got[24 * 8];
    for (int i = 0; i < 24 * 8; i++) stored[i] = (float)i;
    gguf_tensor t = {"x",
                     {.dtype = DT_FP32, .rank = 2, .dim = {24, 8}},
                     gguf_type_by_id(0),
                     (uint8_t *)stored,
                     sizeof stored};
    tensor_view v;
    /* 3 heads of 8 rows in pairs: row h * 8 + j + 4 * k is stored as h * 8 + 2 * j + k */
    st_tensor x = seen(&t, &v, (tensor_order){ORDER_PAIRS, 0, 8, 0, 0}, (tensor_order){0});
    st_floats(&x, 0, 24 * 8, got);
    for (int h = 0; h < 3; h++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 2; k++)
                for (int c = 0; c < 8; c++)
                    assert_true(got[(h * 8 + j + 4 * k) * 8 + c] == stored[(h * 8 + 2 * j + k) * 8 + c]);
    /* from row 12 on 2 groups of 3 heads of 2 rows: head 3 * g + i is stored as 2 * i + g; 4 column heads of
     * 2 in 2 groups */
    x = seen(&t, &v, (tensor_order){ORDER_TILED, 12, 2, 2, 3}, (tensor_order){ORDER_TILED, 0, 2, 2, 2});
    static const int column[8] = {0, 1, 4, 5, 2, 3, 6, 7};
    for (uint64_t first = 0; first < 24 * 8; first += 5)
        st_floats(&x, first, 24 * 8 - first < 5 ? 24 * 8 - first : 5, got + first);
    for (int r = 0; r < 24; r++) {
        int head = (r - 12) / 2, from = r < 12 ? r : 12 + (head % 3 * 2 + head / 3) * 2 + r % 2;
        for (int c = 0; c < 8; c++) assert_true(got[r * 8 + c] == stored[from * 8 + column[c]]);
    }
}

/* --- files written here --- */

typedef struct {
    uint8_t b[8192];
    size_t n;
} bytes;

static void put32(bytes *o, uint32_t v) {
    num_put32(o->b + o->n, v), o->n += 4;
}

static void put64(bytes *o, uint64_t v) {
    num_put64(o->b + o->n, v), o->n += 8;
}

static void put_text(bytes *o, const char *s) {
    put64(o, strlen(s));
    memcpy(o->b + o->n, s, strlen(s)), o->n += strlen(s);
}

static void begin(bytes *o, uint32_t version, uint64_t tensors, uint64_t values) {
    o->n = 4;
    memcpy(o->b, "GGUF", 4);
    put32(o, version), put64(o, tensors), put64(o, values);
}

static void put_u32(bytes *o, const char *key, uint32_t v) {
    put_text(o, key), put32(o, GGUF_U32), put32(o, v);
}

static void put_string(bytes *o, const char *key, const char *v) {
    put_text(o, key), put32(o, GGUF_STRING), put_text(o, v);
}

static void put_tensor(bytes *o, const char *name, uint32_t rank, uint64_t size, uint32_t type,
                       uint64_t place) {
    put_text(o, name), put32(o, rank);
    for (uint32_t i = 0; i < rank; i++) put64(o, size);
    put32(o, type), put64(o, place);
}

static void refused(const bytes *o, size_t n, const char *why) {
    err e = {0};
    uint8_t *exact = mem_alloc(n + 1); /* so that reading further is noticed */
    memcpy(exact, o->b, n);
    gguf *g = gguf_open_memory("x.gguf", exact, n, &e);
    if (g || !strstr(e.msg, why) || strncmp(e.msg, "x.gguf: ", 8) || strchr(e.msg, '\n'))
        fail_msg("expected \"%s\", found \"%s\"", why, g ? "(accepted)" : e.msg);
    gguf_close(g);
    mem_free(exact);
}

static void broken_files_are_refused_by_name(void **s) {
    (void)s;
    bytes o;
    begin(&o, 1, 0, 0), refused(&o, o.n, "GGUF version 1: expected 2 or 3");
    begin(&o, 0x03000000, 0, 0), refused(&o, o.n, "a big-endian GGUF file");
    begin(&o, 3, 0, 0), memcpy(o.b, "GGML", 4), refused(&o, o.n, "is no GGUF file");
    begin(&o, 3, 0, UINT64_MAX), refused(&o, o.n, "metadata values don't fit");
    begin(&o, 3, UINT64_MAX, 0), refused(&o, o.n, "metadata values don't fit");
    begin(&o, 3, 0, 1), put64(&o, UINT64_MAX), put64(&o, 0),
        refused(&o, o.n, "a metadata key at byte 24 is no text");
    begin(&o, 3, 0, 1), put_text(&o, "\xFF"), put_text(&o, "abc"), refused(&o, o.n, "at byte 24 is no text");
    begin(&o, 3, 0, 1), put_text(&o, "key"), put32(&o, 13),
        refused(&o, o.n, "metadata key: there is no kind of value 13");
    begin(&o, 3, 0, 1), put_text(&o, "key"), put32(&o, GGUF_STRING), put64(&o, UINT64_MAX - 4),
        refused(&o, o.n, "key at byte 47 ends behind");
    begin(&o, 3, 0, 1), put_text(&o, "key"), put32(&o, GGUF_ARRAY), put32(&o, GGUF_U64),
        put64(&o, UINT64_C(1) << 61), refused(&o, o.n, "key at byte 51 ends behind");
    begin(&o, 3, 0, 1), put_text(&o, "key"), put32(&o, GGUF_ARRAY), put32(&o, GGUF_ARRAY), put64(&o, 1),
        refused(&o, o.n, "metadata key: arrays of arrays");
    begin(&o, 3, 0, 2), put_u32(&o, "k", 1), put_u32(&o, "k", 2),
        refused(&o, o.n, "metadata k stands there twice");
    begin(&o, 3, 1, 0), put_tensor(&o, "x", 5, 1, 0, 0), refused(&o, o.n, "tensor x: rank 5, at most 4");
    begin(&o, 3, 1, 0), put_tensor(&o, "x", 2, UINT64_C(1) << 40, 0, 0),
        refused(&o, o.n, "is no size, or too large");
    begin(&o, 3, 1, 0), put_tensor(&o, "x", 1, 0, 0, 0), refused(&o, o.n, "tensor x: 0 is no size");
    begin(&o, 3, 1, 0), put_tensor(&o, "x", 1, 256, 16, 0),
        refused(&o, o.n, "tensor x is of type IQ2_XXS: expected");
    begin(&o, 3, 1, 0), put_tensor(&o, "x", 1, 256, 999, 0),
        refused(&o, o.n, "tensor x is of type 999: expected");
    begin(&o, 3, 1, 0), put_tensor(&o, "x", 1, 48, 2, 0),
        refused(&o, o.n, "tensor x: rows of 48 are no whole Q4_0 blocks");
    begin(&o, 3, 1, 0), put_tensor(&o, "x", 1, 8, 0, 4),
        refused(&o, o.n, "begins at data byte 4, no multiple of 32");
    begin(&o, 3, 1, 0), put_tensor(&o, "x", 1, 8, 0, 0),
        refused(&o, o.n, "tensor x: 32 bytes from data byte 0 on end behind");
    begin(&o, 3, 1, 0), put_tensor(&o, "x", 1, 8, 0, UINT64_MAX - 31),
        refused(&o, o.n, "end behind the 0 data bytes");
    begin(&o, 3, 2, 0), put_tensor(&o, "x", 0, 1, 0, 0), put_tensor(&o, "x", 0, 1, 0, 0),
        refused(&o, o.n, "tensor x stands there twice");
    begin(&o, 3, 0, 1), put_u32(&o, "general.alignment", 48),
        refused(&o, o.n, "general.alignment is no power of two");
}

/* Every beginning of a good file is refused, and none is read beyond its end. */
static void truncated_files_are_refused(void **s) {
    (void)s;
    bytes o;
    begin(&o, 2, 1, 2), put_u32(&o, "number", 1), put_string(&o, "text", "abc"),
        put_tensor(&o, "x", 1, 8, 0, 0);
    while (o.n % 32) o.b[o.n++] = 0;
    memset(o.b + o.n, 0, 32), o.n += 32;
    err e = {0};
    gguf *g = gguf_open_memory("x.gguf", o.b, o.n, &e);
    assert_string_equal(e.msg, "");
    assert_int_equal(gguf_find(g, "x")->type.dim[0], 8);
    gguf_close(g);
    for (size_t n = 0; n < o.n; n++) refused(&o, n, "");
}

/* --- metadata as a configuration --- */

/* A model without tensors but its table; what the last arguments say comes in addition. */
static void put_model(bytes *o, const char *architecture, uint64_t more) {
    static const struct {
        const char *key;
        uint32_t v;
    } rows[] = {{"block_count", 2},
                {"embedding_length", 64},
                {"feed_forward_length", 96},
                {"attention.head_count", 4},
                {"context_length", 128}};
    char key[100];
    begin(o, 3, 1, 7 + more);
    put_string(o, "general.architecture", architecture);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, rows[i].key);
        put_u32(o, key, rows[i].v);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    put_text(o, key), put32(o, GGUF_F32), put32(o, num_f32_bits(1e-5f));
}

static void put_table(bytes *o) {
    put_text(o, "token_embd.weight"), put32(o, 2), put64(o, 64), put64(o, 10), put32(o, 1), put64(o, 0);
    while (o->n % 32) o->b[o->n++] = 0;
    memset(o->b + o->n, 0, 64 * 10 * 2), o->n += 64 * 10 * 2;
}

static bool configure(ckpt_config *c, arena *a, const bytes *o, err *e) {
    gguf_set *s = gguf_set_open_memory("x.gguf", o->b, o->n, e);
    bool ok = s && gguf_config(c, a, s, models_families(), e);
    gguf_set_close(s);
    return ok;
}

static void metadata_become_a_configuration(void **s) {
    (void)s;
    arena *a = arena_new();
    bytes o;
    ckpt_config c;
    err e = {0};
    put_model(&o, "llama", 4);
    put_u32(&o, "llama.attention.head_count_kv", 2);
    put_u32(&o, "tokenizer.ggml.eos_token_id", 7);
    put_u32(&o, "tokenizer.ggml.eot_token_id", 9);
    put_text(&o, "llama.rope.freq_base"), put32(&o, GGUF_F32), put32(&o, num_f32_bits(5e5f));
    put_table(&o);
    assert_true(configure(&c, a, &o, &e));
    assert_string_equal(c.family->name, "llama");
    assert_string_equal(c.model_type, "llama");
    assert_int_equal(c.layers, 2);
    assert_int_equal(c.hidden, 64);
    assert_int_equal(c.intermediate, 96);
    assert_int_equal(c.heads, 4);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.rope.dims, 16);
    assert_int_equal(c.max_position, 128);
    assert_int_equal(c.vocab, 10);
    assert_true(c.tie_embeddings && !c.attention_bias && c.rope.theta == 5e5 && c.eps == (double)1e-5f);
    assert_true(c.n_eos == 2 && c.eos[0] == 7 && c.eos[1] == 9);
    arena_free(a);
}

static void rope_is_scaled(void **s) {
    (void)s;
    arena *a = arena_new();
    bytes o;
    ckpt_config c;
    err e = {0};
    put_model(&o, "llama", 3);
    put_string(&o, "llama.rope.scaling.type", "yarn");
    put_u32(&o, "llama.rope.scaling.original_context_length", 32);
    put_text(&o, "llama.rope.scaling.factor"), put32(&o, GGUF_F32), put32(&o, num_f32_bits(4));
    put_table(&o);
    if (!configure(&c, a, &o, &e)) fail_msg("%s", e.msg);
    assert_int_equal(c.rope.kind, ROPE_YARN);
    assert_true(c.rope.factor == 4 && c.rope.original_max == 32 && c.rope.beta_fast == 32 && c.rope.truncate);
    put_model(&o, "llama", 1); /* the old way to say linear */
    put_text(&o, "llama.rope.scale_linear"), put32(&o, GGUF_F32), put32(&o, num_f32_bits(2));
    put_table(&o);
    if (!configure(&c, a, &o, &e)) fail_msg("%s", e.msg);
    assert_int_equal(c.rope.kind, ROPE_LINEAR);
    assert_true(c.rope.factor == 2 && c.rope.attention == 1);
    put_model(&o, "llama", 2), put_string(&o, "llama.rope.scaling.type", "none");
    put_text(&o, "llama.rope.scaling.factor"), put32(&o, GGUF_F32), put32(&o, num_f32_bits(2));
    put_table(&o);
    if (!configure(&c, a, &o, &e)) fail_msg("%s", e.msg);
    assert_int_equal(c.rope.kind, ROPE_DEFAULT);
    arena_free(a);
}

static void not_configured(const bytes *o, const char *why) {
    arena *a = arena_new();
    ckpt_config c;
    err e = {0};
    if (configure(&c, a, o, &e) || !strstr(e.msg, why) || strncmp(e.msg, "x.gguf: ", 8))
        fail_msg("expected \"%s\", found \"%s\"", why, e.code ? e.msg : "(accepted)");
    arena_free(a);
}

static void unsupported_models_are_refused_by_name(void **s) {
    (void)s;
    bytes o;
    put_model(&o, "gemma3", 0), put_table(&o);
    not_configured(&o, "architecture \"gemma3\" is not supported (supported: qwen35, qwen3, qwen2, llama)");
    put_model(&o, "llama", 1), put_u32(&o, "llama.expert_count", 8), put_table(&o);
    not_configured(&o, "a mixture of experts");
    put_model(&o, "llama", 1), put_string(&o, "llama.rope.scaling.type", "longrope"), put_table(&o);
    not_configured(&o, "RoPE scaling \"longrope\" is not supported (supported: linear, yarn)");
    put_model(&o, "llama", 1), put_string(&o, "llama.rope.scaling.type", "yarn"), put_table(&o);
    not_configured(&o, "metadata llama.rope.scaling.original_context_length is missing");
    put_model(&o, "llama", 2), put_string(&o, "llama.rope.scaling.type", "yarn");
    put_text(&o, "llama.rope.scaling.attn_factor"), put32(&o, GGUF_F32), put32(&o, num_f32_bits(2)),
        put_table(&o);
    not_configured(&o, "metadata llama.rope.scaling.attn_factor is 2: RoPE scaling with 1 is supported");
    put_model(&o, "llama", 1), put_u32(&o, "llama.attention.value_length", 8), put_table(&o);
    not_configured(&o, "keys of 16 and values of 8: not supported");
    put_model(&o, "qwen35", 0), put_table(&o);
    not_configured(&o, "metadata qwen35.ssm.conv_kernel is missing");
    begin(&o, 3, 0, 0), not_configured(&o, "general.architecture is missing");
    begin(&o, 3, 0, 1), put_string(&o, "general.architecture", "llama"),
        not_configured(&o, "no tensor token_embd.weight");
    put_model(&o, "llama", 1), put_u32(&o, "split.no", 1), put_table(&o);
    not_configured(&o, "split.no and split.count are no part");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_every_kind_are_read),
        cmocka_unit_test(every_type_is_decoded),
        cmocka_unit_test(codes_and_scales_make_the_values),
        cmocka_unit_test(orders_are_undone),
        cmocka_unit_test(broken_files_are_refused_by_name),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(metadata_become_a_configuration),
        cmocka_unit_test(rope_is_scaled),
        cmocka_unit_test(unsupported_models_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
