/* weight.bin: records are checked before use, and come out exactly as the format says (facts: MILBlob of
 * coremltools, whose files test_coreml_roundtrip.c compares byte for byte). */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/num.h"
#include "coreml/blob.h"
#include "coreml/model.h"
#include "proto.h"
#include "work_dir.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static arena *a;

static int setup(void **state) {
    proto_arena = a = arena_new();
    return make_work_dir(state);
}

static int teardown(void **state) {
    arena_free(a);
    return remove_work_dir(state);
}

/* A file of one record: 6 elements of int4 in 3 bytes. */
static uint8_t file[192];
static void make_file(void) {
    memset(file, 0, sizeof file);
    num_put32(file, 1);
    num_put32(file + 4, 2);
    num_put32(file + 64, 0xDEADBEEF);
    num_put32(file + 68, 8);
    num_put64(file + 72, 3);
    num_put64(file + 80, 128);
    memcpy(file + 128, "\x10\x32\x54", 3);
}

static void refused(size_t size, uint64_t offset, ir_type t, const char *text) {
    err e = {0};
    assert_null(blob_tensor(file, size, offset, &t, &e));
    if (!strstr(e.msg, text)) fail_msg("%s\nexpected: %s", e.msg, text);
}

static void records_are_checked(void **state) {
    (void)state;
    err e = {0};
    ir_type six = IR_TYPE(DT_INT4, 2, 3), five = IR_TYPE(DT_INT4, 5);
    make_file();
    assert_ptr_equal(blob_tensor(file, 131, 64, &six, &e), file + 128);
    num_put64(file + 88, 4); /* padding bits */
    assert_ptr_equal(blob_tensor(file, 131, 64, &five, &e), file + 128);
    refused(131, 64, six, "holds 5 elements, the program's type has 6");
    refused(130, 64, five, "past the end");
    refused(131, 128, five, "past the end");
    refused(192, 128, five, "no weight record (found 00543210");
    refused(131, UINT64_MAX - 63, five, "past the end");
    refused(131, 96, five, "multiple of 64");
    refused(131, 0, five, "at least 64");
    refused(131, 64, IR_TYPE(DT_UINT4, 5), "holds int4, the program says uint4");
    refused(131, 64, IR_TYPE(DT_INT4, -1), "the program's type has -1");
    refused(131, 64, IR_TYPE(DT_INT4, (int64_t)1 << 40, (int64_t)1 << 40), "the program's type has -1");
    for (uint64_t padding = 0; padding < 70; padding++) { /* whole elements only, less than a byte */
        num_put64(file + 88, padding);
        e = (err){0};
        blob_record r;
        assert_int_equal(blob_read(file, 131, 64, &r, &e), padding == 0 || padding == 4);
    }
    make_file();
    num_put64(file + 72, UINT64_MAX);
    refused(131, 64, six, "past the end");
    make_file();
    num_put64(file + 80, 132);
    refused(192, 64, six, "expected a multiple of 64 behind the record");
    num_put64(file + 80, 64);
    refused(192, 64, six, "expected a multiple of 64 behind the record");
    make_file();
    num_put32(file + 68, 18);
    refused(192, 64, six, "unknown data type 18");
    num_put32(file + 68, 1); /* fp16: 3 bytes are no whole elements; the padding field is not looked at */
    refused(192, 64, six, "no whole number of elements");
    num_put64(file + 72, 4);
    num_put64(file + 88, 0x1234567890);
    ir_type two = IR_TYPE(DT_FP16, 2);
    e = (err){0};
    assert_non_null(blob_tensor(file, 192, 64, &two, &e));
}

static void headers_are_checked(void **state) {
    (void)state;
    uint32_t n;
    err e = {0};
    make_file();
    assert_true(blob_check(file, sizeof file, &n, &e));
    assert_int_equal(n, 1);
    assert_false(blob_check(file, 63, &n, &e));
    e = (err){0};
    file[4] = 1;
    assert_false(blob_check(file, sizeof file, &n, &e));
    assert_non_null(strstr(e.msg, "version 1"));
}

/* Elements first .. first + n of a constant whose byte i (for types of whole bytes) is i * 7. */
static bool count_up(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    unsigned bits = *(const unsigned *)ctx;
    (void)e;
    assert_int_equal(first % 64, 0);
    uint64_t at = first * bits / 8, size = (n * bits + 7) / 8;
    for (uint64_t i = 0; i < size; i++) ((uint8_t *)dst)[i] = (uint8_t)((at + i) * 7);
    return true;
}

static void records_are_written(void **state) {
    (void)state;
    err e = {0};
    static const uint16_t half[3] = {0x3C00, 0x4000, 0x4200};
    const unsigned bits[] = {3, 32};
    ir_const *h = ir_const_new(a, IR_TYPE(DT_FP16, 3), half);
    ir_const *three = ir_const_fill(a, IR_TYPE(DT_UINT3, 5, 3), count_up, &bits[0]);
    ir_const *ints = ir_const_fill(a, IR_TYPE(DT_INT32, 20), count_up, &bits[1]),
             *none = ir_const_new(a, IR_TYPE(DT_INT8, 0), half);
    blob_plan *p = blob_plan_new(a, "weights/weight.bin");
    assert_int_equal(blob_plan_size(p), 0);
    assert_true(blob_plan_add(p, h, &e) && blob_plan_add(p, three, &e) && blob_plan_add(p, h, &e) &&
                blob_plan_add(p, ints, &e) && blob_plan_add(p, none, &e));
    assert_int_equal(blob_plan_offset(p, h), 64);
    assert_int_equal(blob_plan_offset(p, three), 192); /* 64 + 64 + 6, up to a multiple of 64 */
    assert_int_equal(blob_plan_offset(p, ints), 320);
    assert_int_equal(blob_plan_offset(p, none), 512);
    assert_int_equal(blob_plan_size(p), 576); /* no padding behind the last one */
    assert_true(blob_write(p, in_work("w"), NULL, NULL, &e));
    file_map m;
    uint32_t n;
    assert_true(file_open_map(&m, in_work("w"), &e));
    assert_int_equal(m.size, 576);
    assert_true(blob_check(m.data, m.size, &n, &e));
    assert_int_equal(n, 4);
    assert_memory_equal(blob_tensor(m.data, m.size, 64, &h->type, &e), half, 6);
    const uint8_t *t = blob_tensor(m.data, m.size, 192, &three->type, &e);
    assert_non_null(t); /* 45 bits: 6 bytes, 3 bits of padding */
    assert_int_equal(num_get64(m.data + 192 + 24), 3);
    for (int i = 0; i < 6; i++) assert_int_equal(t[i], i * 7);
    for (size_t i = 320 - 58; i < 320; i++) assert_int_equal(m.data[i], 0);
    file_unmap(&m);
}

static void what_a_weight_file_cannot_hold(void **state) {
    (void)state;
    static const ir_dtype bad[] = {DT_BOOL, DT_STRING, DT_INT64, DT_UINT64, DT_FP64};
    blob_plan *p = blob_plan_new(a, "weights/weight.bin");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err e = {0};
        assert_false(blob_plan_add(p, ir_const_new(a, IR_TYPE(bad[i], 1), ""), &e));
        assert_int_equal(e.code, ERR_INVALID);
    }
    err e = {0};
    unsigned bits = 8;
    int n = 0;
    while (blob_plan_add(p, ir_const_fill(a, IR_TYPE(DT_INT8, (int64_t)1 << 59), count_up, &bits), &e)) n++;
    assert_in_range(n, 14, 16); /* offsets end at 2^63 */
    assert_int_equal(e.code, ERR_LIMIT);
}

/* A constant of several blocks is asked for in pieces, and its bytes adjoin. */
static void blocks_adjoin(void **state) {
    (void)state;
    err e = {0};
    unsigned bits = 6;
    int64_t n = (int64_t)STORE_BLOCK * 8 / 6 * 2 + 17;
    ir_const *c = ir_const_fill(a, IR_TYPE(DT_UINT6, n), count_up, &bits);
    blob_plan *p = blob_plan_new(a, "weights/weight.bin");
    assert_true(blob_plan_add(p, c, &e));
    assert_true(blob_write(p, in_work("w"), NULL, NULL, &e));
    file_map m;
    assert_true(file_open_map(&m, in_work("w"), &e));
    const uint8_t *d = blob_tensor(m.data, m.size, 64, &c->type, &e);
    assert_non_null(d);
    int64_t bad = 0;
    for (int64_t i = 0; i < (n * 6 + 7) / 8; i++) bad += d[i] != (uint8_t)(i * 7);
    assert_int_equal(bad, 0);
    file_unmap(&m);
}

static bool stop_at_once(void *ctx, uint64_t written) {
    *(uint64_t *)ctx += written;
    return false;
}

static bool refuse(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    (void)ctx, (void)first, (void)n, (void)dst;
    return err_set(e, ERR_FORMAT, "no such bytes");
}

static void writing_can_fail(void **state) {
    (void)state;
    err e = {0};
    unsigned bits = 8;
    uint64_t seen = 0;
    blob_plan *p = blob_plan_new(a, "weights/weight.bin");
    assert_true(blob_plan_add(p, ir_const_fill(a, IR_TYPE(DT_INT8, 1000), count_up, &bits), &e));
    assert_false(blob_write(p, in_work("w"), stop_at_once, &seen, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_int_equal(seen, 64 + 64 + 1000);
    e = (err){0};
    assert_false(blob_write(p, in_work("no/w"), NULL, NULL, &e));
    assert_int_equal(e.code, ERR_IO);
    e = (err){0};
    assert_false(blob_write(p, "/dev/full", NULL, NULL, &e));
    assert_non_null(strstr(e.msg, "/dev/full: can't write: No space left"));
    e = (err){0};
    assert_true(blob_plan_add(p, ir_const_fill(a, IR_TYPE(DT_INT8, 10), refuse, NULL), &e));
    assert_false(blob_write(p, in_work("w"), NULL, NULL, &e));
    assert_string_equal(e.msg, "no such bytes");
}

/* A sparse weight file with a record behind 5 GiB, through a whole package: nothing is copied. */
static void files_over_four_gib(void **state) {
    (void)state;
    if (sizeof(size_t) < 8) skip();
    err e = {0};
    const uint64_t far = (uint64_t)5 << 30;
    assert_true(file_make_dirs(in_work("p.mlpackage/Data/com.apple.CoreML/weights"), &e));
    int fd = open(in_work("p.mlpackage/Data/com.apple.CoreML/weights/weight.bin"), O_RDWR | O_CREAT, 0644);
    uint8_t h[64] = {0}, r[64] = {0};
    num_put32(h, 2);
    num_put32(h + 4, 2);
    if (pwrite(fd, h, 64, 0) != 64 || ftruncate(fd, (off_t)far + 64 + 8)) {
        printf("skipped: no sparse files of 5 GiB here\n");
        close(fd);
        skip();
    }
    num_put32(r, 0xDEADBEEF);
    num_put32(r + 4, 3);
    num_put64(r + 8, far - 192);
    num_put64(r + 16, 128);
    assert_int_equal(pwrite(fd, r, 64, 64), 64);
    num_put32(r + 4, 2);
    num_put64(r + 8, 8);
    num_put64(r + 16, far + 64);
    float two[2] = {1.5f, -2};
    assert_int_equal(pwrite(fd, r, 64, (off_t)far), 64);
    assert_int_equal(pwrite(fd, two, 8, (off_t)far + 64), 8);
    close(fd);
    static const char name[] = "@model_path/weights/weight.bin";
#define STORED(v, type, at)                                                                                  \
    M(3, S(1, "const"), NAMED(3, v, type), ENTRY(5, "val", type, M(5, S(1, name), I(2, at))))
    bytes big = TENSOR(31, 1, dim((int64_t)far - 192)), small = TENSOR(11, 1, dim(2));
    bytes model =
        MODEL(NIL, NIL, STORED("big", big, 64), STORED("small", small, (int64_t)far), S(2, "small"));
    assert_true(file_write(in_work("p.mlpackage/Data/com.apple.CoreML/model.mlmodel"), model.p, model.n, &e));
    static const char manifest[] =
        "{\"fileFormatVersion\":\"1.0.0\",\"rootModelIdentifier\":\"a\",\"itemInfoEntries\":{\"a\":{"
        "\"author\":\"x\","
        "\"description\":\"\",\"name\":\"m\",\"path\":\"com.apple.CoreML/model.mlmodel\"}}}";
    assert_true(file_write(in_work("p.mlpackage/Manifest.json"), manifest, sizeof manifest - 1, &e));
    coreml_package *p = coreml_open(in_work("p.mlpackage"), &e);
    if (!p) fail_msg("%s", e.msg);
    const ir_block *b = &p->model->program->func[0]->body;
    assert_int_equal(b->op[0]->out[0]->konst->bytes, far - 192);
    double v;
    assert_true(ir_const_number(b->op[1]->out[0]->konst, 1, &v));
    assert_true(v == -2);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    assert_true(u.ru_maxrss < 1 << 20); /* KiB: far less than what is mapped */
    coreml_close(p);
    /* And written: the second record's offset needs 33 bits. */
    unsigned bits = 8;
    blob_plan *plan = blob_plan_new(a, "weights/weight.bin");
    ir_const *after = ir_const_fill(a, IR_TYPE(DT_INT8, 1), count_up, &bits);
    assert_true(blob_plan_add(plan, ir_const_fill(a, IR_TYPE(DT_INT8, (int64_t)far), count_up, &bits), &e));
    assert_true(blob_plan_add(plan, after, &e));
    assert_int_equal(blob_plan_offset(plan, after), far + 128);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(records_are_checked), CASE(headers_are_checked),
        CASE(records_are_written), CASE(what_a_weight_file_cannot_hold),
        CASE(blocks_adjoin),       CASE(writing_can_fail),
        CASE(files_over_four_gib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
