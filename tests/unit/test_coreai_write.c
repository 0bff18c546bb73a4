/* Trees written as bytecode. Every case of another writer, read, written and read again, says the same; what
 * we wrote is the same bytes when it is written again. Whether others read them is asked by
 * tests/python/coreai_runtime.py. */
#define _GNU_SOURCE
#include "base/file.h"
#include "coreai/asset.h"
#include "coreai/print.h"
#include "coreai/write.h"
#include "test.h"
#include <stdlib.h>
#include <unistd.h>

static const char *const cases[] = {
    "matmul_add.aimodel",
    "tiny_none/tiny_none.aimodel",
    "tiny_none_b2/tiny_b2.aimodel",
    "tiny_4bit/tiny_4bit.aimodel",
    "tiny_qwen35_decode_s1_fp16/tiny_qwen35_decode_s1_fp16.aimodel",
    "tiny_qwen35_decode_s1_fp32/tiny_qwen35_decode_s1_fp32.aimodel",
    "tiny_qwen35_decode_s1_fp16_dynkv/tiny_qwen35_decode_s1_fp16_dynkv.aimodel",
    "ops/c_emitted.aimodel",
    "ops/f_bss_si4.aimodel",
    "ops/f_bss_si8.aimodel",
    "ops/f_dyn.aimodel",
    "ops/f_fp16.aimodel",
    "ops/f_lut1.aimodel",
    "ops/f_lut2.aimodel",
    "ops/f_lut3.aimodel",
    "ops/f_lut4.aimodel",
    "ops/f_lut6.aimodel",
    "ops/f_lut8.aimodel",
    "ops/f_state.aimodel",
    "ops/f_tbf16.aimodel",
    "ops/f_tf8E4M3FN.aimodel",
    "ops/f_while.aimodel",
    "ops/gdn_11.aimodel",
};

static char scratch[40];

static const char *in_scratch(const char *name) {
    static char path[100];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

/* Writes t and reads it back; the file stays mapped. */
static const ai_tree *rewrite(arena *a, const ai_tree *t, const char *name, file_map *m) {
    err e = {0};
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX], same[SHA256_HEX];
    if (!ai_tree_write(t, in_scratch(name), NULL, NULL, digest, &e)) fail_msg("%s", e.msg);
    assert_true(file_open_map(m, in_scratch(name), &e));
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_true(sha256_file(in_scratch(name), same, NULL, &e));
    assert_string_equal(hex, same);
    const ai_tree *again = ai_tree_read(a, m->data, m->size, &e);
    if (!again) fail_msg("%s", e.msg);
    return again;
}

static void test_cases(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[200];
        err e = {0};
        file_map once, twice;
        str was = {0}, is = {0};
        snprintf(path, sizeof path, "coreai/%s", cases[i]);
        ai_asset *x = ai_asset_open(test_case_path(path), &e);
        if (!x) fail_msg("%s", e.msg);
        const ai_tree *t = rewrite(x->a, x->tree, "once", &once);
        ai_print(&was, x->tree, 8);
        ai_print(&is, t, 8);
        if (strcmp(was.s, is.s)) fail_msg("%s: says something else when it was written again", cases[i]);
        rewrite(x->a, t, "twice", &twice);
        assert_int_equal(once.size, twice.size);
        assert_memory_equal(once.data, twice.data, once.size);
        file_unmap(&once);
        file_unmap(&twice);
        str_free(&was);
        str_free(&is);
        ai_asset_close(x);
    }
}

static bool no(void *ctx, uint64_t bytes) {
    (void)ctx, (void)bytes;
    return false;
}

static void test_refusals(void **state) {
    (void)state;
    err e = {0};
    uint8_t digest[SHA256_BYTES];
    ai_asset *x = ai_asset_open(test_case_path("coreai/matmul_add.aimodel"), &e);
    assert_non_null(x);
    assert_false(ai_tree_write(x->tree, in_scratch("none/there"), NULL, NULL, digest, &e));
    assert_int_equal(e.code, ERR_IO);
    e = (err){0};
    assert_false(ai_tree_write(x->tree, in_scratch("cut"), no, NULL, digest, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    ai_attr odd = {.code = 33};
    const ai_attr *prop[1] = {&odd};
    ai_op op = {.name = "primitive.constant_v1", .prop = prop, .n_prop = 1};
    const ai_op *list[1] = {&op};
    ai_region body = {.isolated = true, .op = list, .n_op = 1};
    ai_op graph = {.name = "dataflow.graph_v1", .region = &body, .n_region = 1};
    ai_graph g = {.name = "main", .op = &graph, .body = &body};
    e = (err){0};
    assert_false(ai_tree_write(&(ai_tree){.producer = "x", .graph = &g, .n_graph = 1}, in_scratch("odd"),
                               NULL, NULL, digest, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    ai_asset_close(x);
}

static int enter(void **state) {
    (void)state;
    snprintf(scratch, sizeof scratch, "/tmp/millet-test-XXXXXX");
    return mkdtemp(scratch) ? 0 : 1;
}

static int leave(void **state) {
    (void)state;
    err e = {0};
    return file_remove_tree(scratch, &e) ? 0 : 1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, enter, leave);
}
