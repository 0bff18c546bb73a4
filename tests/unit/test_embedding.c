#define _GNU_SOURCE
#include "base/file.h"
#include "base/num.h"
#include "coreml/embedding.h"
#include "test.h"
#include <math.h>
#include <unistd.h>

static char path[] = "/tmp/millet-embedding-XXXXXX";

static bool ramp(void *ctx, int64_t first, int64_t n, float *out, err *e) {
    (void)e;
    int64_t width = *(int64_t *)ctx;
    for (int64_t i = 0; i < n * width; i++) out[i] = (float)((first * width + i) % 1021) / 8 - 60;
    return true;
}

static embedding *written(embedding_kind kind, int64_t rows, int64_t width) {
    err e = {0};
    if (!embedding_write(path, kind, rows, width, ramp, &width, &e)) fail_msg("%s", e.msg);
    embedding *t = embedding_open(path, &e);
    if (!t) fail_msg("%s", e.msg);
    return t;
}

static void rows_come_back(void **s) {
    (void)s;
    const int64_t width = 37, rows = 20011; /* several blocks, the last one short */
    for (int kind = EMBEDDING_FP16; kind <= EMBEDDING_FP32; kind++) {
        embedding *t = written((embedding_kind)kind, rows, width);
        err e = {0};
        float row[37];
        assert_int_equal(embedding_rows(t), rows);
        assert_int_equal(embedding_width(t), width);
        assert_int_equal(embedding_kind_of(t), kind);
        for (int64_t r = 0; r < rows; r++) {
            assert_true(embedding_row(t, r, row));
            for (int64_t i = 0; i < width; i++)
                assert_true(row[i] == (float)((r * width + i) % 1021) / 8 - 60); /* exact in fp16 too */
        }
        assert_false(embedding_row(t, -1, row));
        assert_false(embedding_row(t, rows, row));
        assert_true(embedding_verify(t, &e));
        embedding_close(t);
    }
}

/* The layout of the header file, byte by byte; checksums by Python's zlib.crc32. */
static void layout_is_as_documented(void **s) {
    (void)s;
    embedding_close(written(EMBEDDING_FP16, 3, 2));
    static const uint8_t want[76] = {
        'M',  'L',  'T',  'E',  'M',  'B',  'E',  'D',  1,    0,    0,    0,    1,    0,    0,    0,
        3,    0,    0,    0,    0,    0,    0,    0,    2,    0,    0,    0,    0,    0,    0,    0,
        4,    0,    0,    0,    0,    0,    0,    0,    0x4C, 0x6A, 0x4A, 0xC5, 0,    0,    0,    0,
        0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0xA0, 0xC6, 0x6F, 0x21,
        0x80, 0xD3, 0x7C, 0xD3, 0x78, 0xD3, 0x74, 0xD3, 0x70, 0xD3, 0x6C, 0xD3};
    file_map m;
    err e = {0};
    assert_true(file_open_map(&m, path, &e));
    assert_int_equal(m.size, sizeof want);
    assert_memory_equal(m.data, want, sizeof want);
    file_unmap(&m);
}

static bool numbers(void *ctx, int64_t first, int64_t n, float *out, err *e) {
    (void)e;
    memcpy(out, (const float *)ctx + first * 4, (size_t)n * 4 * sizeof *out);
    return true;
}

/* Zeros; a usual row; scales that are subnormal in fp16, rounded down to where the largest code would not
 * fit, and to 0; a large one. Bytes by numpy: scale = float16(max|x| / 127), the next one where scale * 127.5
 * < max|x|, 1 for zeros; codes = clip(rint(x / scale), -127, 127); checksums by zlib.crc32. */
static void int8_rows_are_numpys(void **s) {
    (void)s;
    static float rows[] = {0,        0,      0,       0,     1,        -2,     3.5f,   0.01f,
                           1.97e-5f, -1e-5f, 3e-7f,   0,     1.06e-5f, -7e-6f, 1e-7f,  -3e-8f,
                           1e-6f,    -3e-7f, 5.9e-8f, 2e-8f, 60000,    -59999, 236.1f, -236.3f};
    static const uint8_t want[] = {
        0x4D, 0x4C, 0x54, 0x45, 0x4D, 0x42, 0x45, 0x44, 0x01, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x06,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x06, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x47, 0x63, 0x0A, 0xB2, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xC9, 0x0F, 0xB5, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x3C, 0x24, 0xB7, 0x7F, 0x00, 0x0E, 0x27, 0x6E, 0xC8, 0x02, 0x00, 0x03, 0x00, 0x59, 0xC5, 0x01,
        0x00, 0x02, 0x00, 0x11, 0xFB, 0x01, 0x00, 0x01, 0x00, 0x7F, 0x81, 0x00, 0xFF, 0x62, 0x5F};
    err e = {0};
    file_map m;
    if (!embedding_write(path, EMBEDDING_INT8, 6, 4, numbers, rows, &e)) fail_msg("%s", e.msg);
    assert_true(file_open_map(&m, path, &e));
    assert_int_equal(m.size, sizeof want);
    assert_memory_equal(m.data, want, sizeof want);
    file_unmap(&m);
    embedding *t = embedding_open(path, &e);
    assert_non_null(t);
    assert_int_equal(embedding_kind_of(t), EMBEDDING_INT8);
    float row[4];
    assert_true(embedding_row(t, 1, row) && embedding_verify(t, &e));
    const float scale = 0.027557373046875f;
    assert_true(row[0] == 36 * scale && row[1] == -73 * scale && row[2] == 127 * scale && row[3] == 0);
    embedding_close(t);
}

static void what_a_kind_cannot_hold_is_an_error(void **s) {
    (void)s;
    static const struct {
        float value;
        embedding_kind kind;
        bool ok;
    } cases[] = {{65519, EMBEDDING_FP16, true},    {65520, EMBEDDING_FP16, false},
                 {INFINITY, EMBEDDING_FP16, true}, {8e6f, EMBEDDING_INT8, true},
                 {9e6f, EMBEDDING_INT8, false},    {NAN, EMBEDDING_INT8, false},
                 {INFINITY, EMBEDDING_INT8, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err e = {0};
        float rows[] = {1, 2, 3, 4, 5, cases[i].value, 7, 8};
        assert_int_equal(embedding_write(path, cases[i].kind, 2, 4, numbers, rows, &e), cases[i].ok);
        if (cases[i].ok) continue;
        assert_int_equal(e.code, ERR_NUMERIC);
        assert_non_null(strstr(e.msg, "row 1 has values"));
    }
}

/* Changes byte `at` of a 3 x 2 table (or cuts there); what opening, then verifying, says. */
static void spoiled(size_t at, bool cut, const char *message) {
    embedding_close(written(EMBEDDING_FP32, 3, 2));
    err e = {0};
    file_map m;
    uint8_t bytes[88];
    assert_true(file_open_map(&m, path, &e));
    assert_int_equal(m.size, sizeof bytes);
    memcpy(bytes, m.data, sizeof bytes);
    file_unmap(&m);
    bytes[cut ? 0 : at] ^= cut ? 0 : 4;
    assert_true(file_write(path, bytes, cut ? at : sizeof bytes, &e));
    embedding *t = embedding_open(path, &e);
    if (t) assert_false(embedding_verify(t, &e));
    embedding_close(t);
    const char *said = strstr(e.msg, ": ");
    assert_non_null(said);
    assert_string_equal(said + 2, message);
}

static void damage_is_noticed(void **s) {
    (void)s;
    spoiled(0, false, "not an embedding table (no MLTEMBED header)");
    spoiled(8, false, "table version 5, expected 1");
    for (size_t at = 12; at < 64; at++) spoiled(at, false, "the header does not match its checksum");
    for (size_t at = 64; at < 88; at++) spoiled(at, false, "the rows do not match their checksum");
    for (size_t n = 0; n < 64; n++) spoiled(n, true, "not an embedding table (no MLTEMBED header)");
    spoiled(87, true, "23 bytes of rows, expected 3 rows of 8 bytes");
    spoiled(80, true, "16 bytes of rows, expected 3 rows of 8 bytes");
}

static bool fails(void *ctx, int64_t first, int64_t n, float *out, err *e) {
    (void)ctx, (void)first, (void)n, (void)out;
    return err_set(e, ERR_CANCELLED, "stopped");
}

static void a_failing_source_leaves_no_file(void **s) {
    (void)s;
    err e = {0};
    assert_false(embedding_write("/tmp/millet-embedding-none", EMBEDDING_FP16, 3, 2, fails, NULL, &e));
    assert_string_equal(e.msg, "stopped");
    assert_false(file_exists("/tmp/millet-embedding-none"));
    e = (err){0};
    assert_false(embedding_write("/tmp/millet-embedding-none", EMBEDDING_FP16, 0, 2, fails, NULL, &e));
    assert_int_equal(e.code, ERR_USAGE);
    e = (err){0};
    assert_false(
        embedding_write("/tmp/millet-embedding-none", EMBEDDING_FP16, INT64_MAX, 2, fails, NULL, &e));
    assert_int_equal(e.code, ERR_USAGE);
}

static int make_path(void **s) {
    (void)s;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int drop_path(void **s) {
    (void)s;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back),       cmocka_unit_test(layout_is_as_documented),
        cmocka_unit_test(int8_rows_are_numpys), cmocka_unit_test(what_a_kind_cannot_hold_is_an_error),
        cmocka_unit_test(damage_is_noticed),    cmocka_unit_test(a_failing_source_leaves_no_file),
    };
    return cmocka_run_group_tests_name("embedding", tests, make_path, drop_path);
}
