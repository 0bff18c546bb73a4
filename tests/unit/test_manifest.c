/* The rule for the recommended variant, gate results, and the canonical form of JSON, which is that of
 * Python's json.dumps(v, sort_keys=True, separators=(",", ":"), ensure_ascii=False). */
#define _GNU_SOURCE
#include "base/file.h"
#include "convert/manifest.h"
#include "work_dir.h"
#include <unistd.h>

static arena *a;

static const json *parse(const char *text) {
    err e = {0};
    const json *j = json_parse(a, "test", text, strlen(text), &e);
    assert_non_null(j);
    return j;
}

static const char *recommended(const char *variants, const char *vocab) {
    const char *name = manifest_recommended(parse(variants), vocab);
    return name ? name : "none";
}

static void test_rule(void **s) {
    (void)s;
#define V(name, scheme, bytes, more)                                                                         \
    "{\"name\":\"" name "\",\"scheme\":\"" scheme "\",\"bytes\":" bytes more "}"
#define FAILED ",\"gate\":{\"passed\":false}"
#define PASSED ",\"gate\":{\"passed\":true}"
    assert_string_equal(recommended("[]", NULL), "none");
    assert_string_equal(
        recommended("[" V("A", "fp16", "160", "") "," V("B", "w8", "80", "") "," V("C", "w4", "40", "") "]",
                    "same"),
        "B");
    assert_string_equal(recommended("[" V("B", "w8", "80", FAILED) "," V("A", "fp16", "160", "") "]", NULL),
                        "A");
    assert_string_equal(recommended("[" V("C", "w4", "40", PASSED) "," V("B", "w8", "80", "") "]", NULL),
                        "C");
    assert_string_equal(recommended("[" V("C", "w4", "40", "") "," V("D", "lut6", "60", "") "]", NULL), "D");
    assert_string_equal(
        recommended("[" V("A", "fp16", "9", ",\"removed\":true") "," V("C", "w4", "40", "") "]", NULL), "C");
    /* a vocabulary of 4 bits makes all of them narrow: the first of the widest */
    assert_string_equal(recommended("[" V("A", "fp16", "160", "") "," V("B", "w8", "80", "") "]", "w4"), "A");
}

static void test_gate(void **s) {
    (void)s;
    const char *path = in_work("conversion_manifest.json");
    static const char text[] =
        "{\"variants\":[{\"name\":\"W8\",\"scheme\":\"w8\",\"bytes\":80,\"gate\":null},"
        "{\"name\":\"W4\",\"scheme\":\"w4\",\"bytes\":40,\"gate\":null}],\"recommended\":\"W8\",\"stop_ids\":"
        "[7]}";
    err e = {0};
    assert_true(file_write(path, text, sizeof text - 1, &e));
    assert_true(manifest_record_gate(work_dir, "W4", "{\"passed\":true,\"certain_agreement\":0.5}", &e));
    const json *j = json_parse_file(a, path, &e);
    assert_string_equal(json_str(j, "recommended", ""), "W4");
    assert_int_equal(json_get(j, "stop_ids")->child->i, 7);
    const json *w8 = json_get(j, "variants")->child;
    assert_int_equal(json_get(w8, "gate")->kind, JSON_NULL);
    assert_true(json_double(json_get(w8->next, "gate"), "certain_agreement", 0) == 0.5);
    assert_true(manifest_record_gate(work_dir, "W4", "{\"passed\":false}", &e));
    assert_string_equal(json_str(json_parse_file(a, path, &e), "recommended", ""), "W8");
    assert_false(manifest_record_gate(work_dir, "W2", "{\"passed\":false}", &e));
    assert_non_null(strstr(e.msg, "has no variant W2"));
    e = (err){0};
    assert_false(manifest_record_gate(work_dir, "W4", "{\"passed\":1}", &e));
    e = (err){0};
    assert_false(manifest_record_gate("/nowhere", "W4", "{\"passed\":true}", &e));
}

static void test_canonical(void **s) {
    (void)s;
    str out = {0};
    json_canonical(
        &out, parse("{\"b\": [1, 2.5, null , true], \"a\\n\": {\"z\":\"\\u00e9\",\"y\":\"\"}, \"B\": -3}"));
    assert_string_equal(str_get(&out),
                        "{\"B\":-3,\"a\\n\":{\"y\":\"\",\"z\":\"\xC3\xA9\"},\"b\":[1,2.5,null,true]}");
    str_clear(&out);
    json_pretty(&out, parse("{\"b\":[1,2],\"a\":{}}"));
    assert_string_equal(str_get(&out), "{\n  \"b\": [1, 2],\n  \"a\": {}\n}\n");
    str_free(&out);
}

static int begin(void **s) {
    (void)s;
    a = arena_new();
    return 0;
}

static int end(void **s) {
    (void)s;
    arena_free(a);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test_setup_teardown(test_gate, make_work_dir, remove_work_dir),
        cmocka_unit_test(test_canonical),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
