#define _GNU_SOURCE
#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "checkpoint/safetensors.h"
#include "test.h"
#include <unistd.h>

static const char *data_path(const char *name) {
    static char path[1024];
    const char *root = getenv("MILLET_SOURCE");
    snprintf(path, sizeof path, "%s/tests/data/safetensors/%s", root ? root : ".", name);
    return path;
}

/* A little-endian element as a number. */
static double element(const st_tensor *t, size_t i) {
    const uint8_t *p = t->data;
    ir_dtype d = (ir_dtype)t->type.dtype;
    p += i * dtype_bits(d) / 8;
    uint64_t u = 0;
    for (unsigned b = 0; b < dtype_bits(d); b += 8) u |= (uint64_t)p[b / 8] << b;
    double v;
    switch (d) {
    case DT_FP64: memcpy(&v, &u, 8); return v;
    case DT_FP32: return num_bits_f32((uint32_t)u);
    case DT_FP16: return num_f16_f32((uint16_t)u);
    case DT_BF16: return num_bf16_f32((uint16_t)u);
    case DT_E4M3: return num_e4m3_f32((uint8_t)u);
    case DT_E5M2: return num_e5m2_f32((uint8_t)u);
    default: return (double)u;
    }
}

/* tests/oracle/make_safetensors.py: element i is i + 1, in a bool tensor i % 2. */
static void every_dtype_is_read(void **s) {
    (void)s;
    static const struct {
        const char *name;
        ir_type type;
    } want[] = {
        {"f64", {.dtype = DT_FP64, .rank = 2, .dim = {2, 3}}},
        {"f32", {.dtype = DT_FP32, .rank = 2, .dim = {3, 2}}},
        {"f16", {.dtype = DT_FP16, .rank = 1, .dim = {6}}},
        {"bf16", {.dtype = DT_BF16, .rank = 2, .dim = {1, 6}}},
        {"i64", {.dtype = DT_INT64, .rank = 1, .dim = {6}}},
        {"i32", {.dtype = DT_INT32, .rank = 1, .dim = {6}}},
        {"i16", {.dtype = DT_INT16, .rank = 1, .dim = {6}}},
        {"i8", {.dtype = DT_INT8, .rank = 1, .dim = {6}}},
        {"u64", {.dtype = DT_UINT64, .rank = 1, .dim = {6}}},
        {"u32", {.dtype = DT_UINT32, .rank = 1, .dim = {6}}},
        {"u16", {.dtype = DT_UINT16, .rank = 1, .dim = {6}}},
        {"u8", {.dtype = DT_UINT8, .rank = 1, .dim = {6}}},
        {"bool", {.dtype = DT_BOOL, .rank = 1, .dim = {6}}},
        {"f8_e4m3", {.dtype = DT_E4M3, .rank = 1, .dim = {6}}},
        {"f8_e5m2", {.dtype = DT_E5M2, .rank = 1, .dim = {6}}},
        {"scalar", {.dtype = DT_FP32}},
        {"empty", {.dtype = DT_FP16, .rank = 2, .dim = {2, 0}}},
        {"gewicht_gr\xC3\xB6\xC3\x9F"
         "e",
         {.dtype = DT_UINT8, .rank = 1, .dim = {3}}},
    };
    err e = {0};
    st_file *f = st_open(data_path("kinds.safetensors"), &e);
    if (!f) fail_msg("%s", e.msg);
    assert_int_equal(st_count(f), sizeof want / sizeof *want);
    for (size_t k = 0; k < st_count(f); k++) {
        const st_tensor *t = st_find(f, want[k].name);
        if (!t) fail_msg("no tensor %s", want[k].name);
        assert_true(ir_type_equal(&t->type, &want[k].type));
        for (int64_t i = 0; i < ir_type_count(&t->type); i++)
            assert_true(element(t, (size_t)i) == (t->type.dtype == DT_BOOL ? i % 2 : i + 1));
    }
    assert_null(st_find(f, "f"));
    assert_string_equal(st_at(f, 0)->name, "u64");
    assert_string_equal(st_metadata(f, "format"), "pt");
    assert_string_equal(st_metadata(f, "note"), "a \"quoted\" word");
    assert_null(st_metadata(f, "nothing"));
    st_close(f);
}

static void floats_of_three_dtypes(void **s) {
    (void)s;
    err e = {0};
    st_file *f = st_open(data_path("kinds.safetensors"), &e);
    assert_non_null(f);
    static const char *const names[] = {"f32", "f16", "bf16"};
    for (int k = 0; k < 3; k++) {
        float v[4];
        assert_true(st_floats(st_find(f, names[k]), 2, 4, v));
        for (int i = 0; i < 4; i++) assert_true(v[i] == (float)(i + 3));
    }
    float v;
    assert_false(st_floats(st_find(f, "i32"), 0, 1, &v));
    st_close(f);
}

static uint8_t *from_hex(const char *hex, size_t *n) {
    *n = strlen(hex) / 2;
    uint8_t *p = mem_alloc(*n + 1); /* exact, so that a sanitizer sees a read past the end */
    for (size_t i = 0; i < *n; i++) {
        unsigned v;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &v), 1);
        p[i] = (uint8_t)v;
    }
    return mem_try_realloc(p, *n ? *n : 1);
}

/* What the safetensors library takes we take, what it refuses we refuse. */
static void verdicts_are_the_library_s(void **s) {
    (void)s;
    err e = {0};
    arena *a = arena_new();
    const json *list = json_parse_file(a, data_path("verdicts.json"), &e);
    assert_non_null(list);
    assert_true(list->len > 40);
    JSON_EACH(v, list) {
        const char *what = json_str(v, "what", "?");
        size_t n;
        uint8_t *p = from_hex(json_str(v, "hex", ""), &n);
        e = (err){0};
        st_file *f = st_open_memory("FILE", p, n, &e);
        if (!f != !json_bool(v, "ok", false)) fail_msg("%s: %s", what, f ? "accepted" : e.msg);
        if (!f && strncmp(e.msg, "FILE", 4))
            fail_msg("%s: the error does not name the file: %s", what, e.msg);
        st_close(f);
        mem_free(p);
    }
    arena_free(a);
}

static void refused(const char *header, size_t data, err_code code, const char *message) {
    size_t len = strlen(header), n = 8 + len + data;
    uint8_t *p = mem_try(1, n);
    num_put64(p, len);
    memcpy(p + 8, header, len);
    err e = {0};
    assert_null(st_open_memory("m.safetensors", p, n, &e));
    assert_string_equal(e.msg, message);
    assert_int_equal(e.code, code);
    mem_free(p);
}

static void errors_name_file_and_tensor(void **s) {
    (void)s;
    refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, ERR_FORMAT,
            "m.safetensors: tensor w: bytes [0, 8) end behind the 7 data bytes of the file (truncated?)");
    refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, ERR_FORMAT,
            "m.safetensors: tensor w: fp32[3] does not fill its byte range [0, 8)");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
            6, ERR_FORMAT, "m.safetensors: tensor b: begins at data byte 2, expected 4 (overlap)");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5,6]}}",
            6, ERR_FORMAT, "m.safetensors: tensor b: begins at data byte 5, expected 4 (hole)");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 9, ERR_FORMAT,
            "m.safetensors: the tensors hold 4 bytes, the file 9 data bytes");
    refused("{\"w\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2, ERR_UNSUPPORTED,
            "m.safetensors: tensor w: dtype \"F4\" is not supported");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
            ERR_UNSUPPORTED, "m.safetensors: tensor w: rank 9, at most 8 is supported");
    /* the library keeps the last of two equal names; for a checkpoint that is a mistake we want to hear of */
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
            1, ERR_FORMAT,
            "m.safetensors: header: duplicate key \"w\" in the object that ends at column 105 (byte 104)");
    refused("{\"w\\u0000x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, ERR_FORMAT,
            "m.safetensors: tensor w: the name holds a NUL byte");
    err e = {0};
    assert_null(st_open("no/such/file", &e));
    assert_string_equal(e.msg, "no/such/file: No such file or directory");
}

static void every_prefix_and_flipped_byte_is_handled(void **s) {
    (void)s;
    file_map m;
    err e = {0};
    assert_true(file_open_map(&m, data_path("kinds.safetensors"), &e));
    uint8_t *p = mem_alloc(m.size);
    for (size_t n = 0; n < m.size; n++) {
        uint8_t *cut = mem_alloc(n ? n : 1);
        memcpy(cut, m.data, n);
        e = (err){0};
        assert_null(st_open_memory("cut", cut, n, &e));
        mem_free(cut);
    }
    for (size_t i = 0; i < m.size; i++) {
        memcpy(p, m.data, m.size);
        p[i] ^= (uint8_t)(1u << i % 8);
        e = (err){0};
        st_close(st_open_memory("flipped", p, m.size, &e));
    }
    mem_free(p);
    file_unmap(&m);
}

/* Same tensors, same order: the bytes are those of the library. */
static void writing_gives_the_library_s_bytes(void **s) {
    (void)s;
    char out[] = "/tmp/millet-test-XXXXXX";
    int fd = mkstemp(out);
    assert_true(fd >= 0);
    close(fd);
    err e = {0};
    st_file *f = st_open(data_path("plain.safetensors"), &e);
    assert_non_null(f);
    st_tensor t[16];
    assert_true(st_count(f) <= 16);
    for (size_t i = 0; i < st_count(f); i++) t[i] = *st_at(f, i);
    assert_true(st_write(out, t, st_count(f), &e));
    file_map got, want;
    assert_true(file_open_map(&got, out, &e) && file_open_map(&want, data_path("plain.safetensors"), &e));
    assert_int_equal(got.size, want.size);
    assert_memory_equal(got.data, want.data, want.size);
    file_unmap(&got);
    file_unmap(&want);
    st_close(f);
    unlink(out);
}

static void writer_refuses(void **s) {
    (void)s;
    const float x[2] = {1, 2};
    st_tensor t[2] = {{.name = "x", .type = IR_TYPE(DT_FP32, 2), .data = x}};
    t[1] = t[0];
    err e = {0};
    assert_false(st_write("/tmp/millet-test-never", t, 2, &e));
    assert_string_equal(e.msg, "/tmp/millet-test-never: two tensors named x");
    t[1].name = "y";
    t[1].type.dtype = DT_UINT4;
    e = (err){0};
    assert_false(st_write("/tmp/millet-test-never", t, 2, &e));
    assert_string_equal(e.msg, "/tmp/millet-test-never: tensor y: safetensors has no dtype uint4");
    t[1].name = "\xFF";
    e = (err){0};
    t[1].type.dtype = DT_FP32;
    assert_false(st_write("/tmp/millet-test-never", t, 2, &e));
    assert_false(file_exists("/tmp/millet-test-never"));
    e = (err){0};
    assert_false(st_write("/tmp/no-such-directory/x", t, 1, &e));
    assert_int_equal(e.code, ERR_IO);
    e = (err){0};
    assert_false(st_write("/dev/full", t, 1, &e));
    assert_string_equal(e.msg, "/dev/full: can't write: No space left on device");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_is_read),
        cmocka_unit_test(floats_of_three_dtypes),
        cmocka_unit_test(verdicts_are_the_library_s),
        cmocka_unit_test(errors_name_file_and_tensor),
        cmocka_unit_test(every_prefix_and_flipped_byte_is_handled),
        cmocka_unit_test(writing_gives_the_library_s_bytes),
        cmocka_unit_test(writer_refuses),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
