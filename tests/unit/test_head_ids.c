/* Ids of packages that return candidates, over vocabularies of 151,936 and 248,320 rows. The checkpoints are
 * made so that every score is known without computing a model: the layer adds nothing (its output projections
 * are zero), and each row of the tables is 32 signs, so that the score of row r behind a token with the signs
 * of row t is 32 - 2 * (number of signs that differ). The row itself wins, alone, with 32. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/num.h"
#include "checkpoint/safetensors.h"
#include "convert/convert.h"
#include "generate/decoder.h"
#include "work_dir.h"
#include <unistd.h>

#define WIDTH 32
#define K     64
#define ONE   0x3F80  /* as bf16 */
#ifdef MILLET_HOSTILE /* the sanitizers take their time */
#define VARIANTS   "w8"
#define N_VARIANTS 1
#else
#define VARIANTS   "w8,fp16,w4"
#define N_VARIANTS 3
#endif

static char ckpt[200], out[200];

/* Different for every row below 2^18: the number itself, and 14 bits that spread near numbers. */
static uint32_t signs(int64_t row) {
    uint32_t r = (uint32_t)row;
    return (r & 0x3FFFF) | (r * 2654435761u >> 18) << 18;
}

/* ---- the checkpoint ---- */

static st_tensor zeros(const char *name, int64_t rows, int64_t columns) {
    st_tensor t = {.name = name, .type = IR_TYPE(DT_BF16, rows, columns)};
    if (!columns) t.type = IR_TYPE(DT_BF16, rows);
    void *data = mem_try((size_t)ir_type_count(&t.type), 2);
    assert_non_null(data);
    t.data = data;
    return t;
}

static void put_signs(const st_tensor *t, int64_t row, int64_t of) {
    uint8_t *p = (uint8_t *)t->data + row * WIDTH * 2;
    for (int i = 0; i < WIDTH; i++) num_put16(p + 2 * i, ONE | (signs(of) >> i & 1) << 15);
}

/* tied: one table, row r has the signs of r. Else the head has them, and row i of the embedding those of
 * list[i]. */
static void write_checkpoint(int64_t rows, bool tied, const int64_t *list, int n) {
    st_tensor t[] = {zeros("model.norm.weight", WIDTH, 0),
                     zeros("model.layers.0.input_layernorm.weight", WIDTH, 0),
                     zeros("model.layers.0.post_attention_layernorm.weight", WIDTH, 0),
                     zeros("model.layers.0.mlp.gate_proj.weight", WIDTH, WIDTH),
                     zeros("model.layers.0.mlp.up_proj.weight", WIDTH, WIDTH),
                     zeros("model.layers.0.mlp.down_proj.weight", WIDTH, WIDTH),
                     zeros("model.layers.0.self_attn.q_proj.weight", WIDTH, WIDTH),
                     zeros("model.layers.0.self_attn.k_proj.weight", WIDTH, WIDTH),
                     zeros("model.layers.0.self_attn.v_proj.weight", WIDTH, WIDTH),
                     zeros("model.layers.0.self_attn.o_proj.weight", WIDTH, WIDTH),
                     zeros("model.embed_tokens.weight", rows, WIDTH),
                     zeros("lm_head.weight", tied ? 1 : rows, WIDTH)};
    size_t count = sizeof t / sizeof *t;
    for (int i = 0; i < WIDTH; i++) num_put16((uint8_t *)t[0].data + 2 * i, ONE);
    for (int64_t r = 0; r < rows; r++) put_signs(&t[tied ? 10 : 11], r, r);
    for (int i = 0; i < n && !tied; i++) put_signs(&t[10], i, list[i]);
    char path[300], config[1000];
    err e = {0};
    assert_true(file_make_dirs(ckpt, &e));
    snprintf(path, sizeof path, "%s/model.safetensors", ckpt);
    assert_true(st_write(path, t, count - tied, &e));
    for (size_t i = 0; i < count; i++) mem_free((void *)t[i].data);
    snprintf(config, sizeof config,
             "{\"model_type\":\"llama\",\"vocab_size\":%lld,\"hidden_size\":32,\"intermediate_size\":32,"
             "\"num_hidden_layers\":1,\"num_attention_heads\":1,\"num_key_value_heads\":1,\"head_dim\":32,"
             "\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,"
             "\"max_position_embeddings\":128,\"tie_word_embeddings\":%s}",
             (long long)rows, tied ? "true" : "false");
    snprintf(path, sizeof path, "%s/config.json", ckpt);
    assert_true(file_write(path, config, strlen(config), &e));
}

/* ---- what comes back ---- */

/* The scores of the best K rows behind the signs of row t. */
static void best_scores(int64_t rows, int64_t t, int *score) {
    int64_t at_distance[WIDTH + 1] = {0};
    for (int64_t r = 0; r < rows; r++) at_distance[__builtin_popcount(signs(r) ^ signs(t))]++;
    assert_int_equal(at_distance[0], 1);
    for (int d = 0, k = 0; k < K; d++)
        while (k < K && at_distance[d]--) score[k++] = WIDTH - 2 * d;
}

/* Compressed weights are +-1 but for the rounding of a scale to fp16, 2^-11 of 32: far from the next score.
 */
static void check_row(const decoder_row *r, int64_t rows, int64_t t, const int *score) {
    assert_int_equal(r->n, K);
    assert_non_null(r->id);
    assert_int_equal(r->id[0], t);
    for (int i = 0; i < K; i++) {
        int64_t id = r->id[i];
        assert_in_range(id, 0, rows - 1);
        for (int k = 0; k < i; k++) assert_int_not_equal(r->id[k], id);
        int is = WIDTH - 2 * __builtin_popcount(signs(id) ^ signs(t));
        assert_int_equal(is, score[i]);
        assert_true(r->score[i] > (float)is - 0.1f && r->score[i] < (float)is + 0.1f);
    }
}

static void check_package(const char *name, rt_mode mode, int64_t rows, bool tied, const int64_t *list, int n,
                          int (*score)[K]) {
    char path[400];
    err e = {0};
    snprintf(path, sizeof path, "%s/ckpt-TopK64-%s.mlpackage", out, name);
    lm *m = lm_open(path, NULL, &e);
    if (!m) fail_msg("%s", e.msg);
    decoder *d = decoder_new(m, mode, &e);
    assert_non_null(d);
    for (int i = 0; i < n; i++) {
        decoder_row row;
        int32_t id = tied ? (int32_t)list[i] : i;
        if (!decoder_feed(d, &id, 1, NULL, &row, &e)) fail_msg("%s", e.msg);
        check_row(&row, rows, list[i], score[i]);
    }
    decoder_free(d);
    lm_close(m);
}

static void run(int64_t rows, bool tied, const char *precision, rt_mode mode) {
    int64_t list[64] = {0, 70136, 80182, 150000, rows - 1}; /* 65535 and 65536 are among the others */
    static int score[64][K];
    int n = 5;
    for (int64_t m = 32768; m < rows; m += 32768)
        for (int64_t r = m - 1; r <= m + 1; r++) list[n++] = r;
    write_checkpoint(rows, tied, list, n);
    for (int i = 0; i < n; i++) best_scores(rows, list[i], score[i]);
    const convert_options o = {
        .precision = precision, .context = 64, .top_k = K, .variants = VARIANTS, .overwrite = true};
    err e = {0};
    if (!convert_checkpoint(ckpt, out, &o, NULL, &e)) fail_msg("%s", e.msg);
    static const char *const names[] = {"W8", "FP16", "W4"};
    for (size_t i = 0; i < N_VARIANTS; i++) check_package(names[i], mode, rows, tied, list, n, score);
}

static void tied_151936(void **s) {
    (void)s;
    run(151936, true, "mixed", RT_FAST);
}

static void tied_248320(void **s) {
    (void)s;
    run(248320, true, "float16", RT_STRICT);
}

static void untied_151936(void **s) {
    (void)s;
    run(151936, false, "float32", RT_STRICT);
}

static void untied_248320(void **s) {
    (void)s;
    run(248320, false, "mixed", RT_STRICT);
}

static int set_up(void **s) {
    if (make_work_dir(s)) return -1;
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", work_dir);
    snprintf(out, sizeof out, "%s/out", work_dir);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_151936),
        cmocka_unit_test(tied_248320),
        cmocka_unit_test(untied_151936),
        cmocka_unit_test(untied_248320),
    };
    return cmocka_run_group_tests(tests, set_up, remove_work_dir);
}
