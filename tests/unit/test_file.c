#define _GNU_SOURCE
#include "base/file.h"
#include "work_dir.h"
#include <sys/stat.h>
#include <unistd.h>

static void pieces_become_one_file(void **state) {
    (void)state;
    err e = {0};
    file_out o;
    assert_true(file_write(in_work("f"), "old", 3, &e));
    assert_true(file_out_begin(&o, in_work("f"), &e));
    assert_true(file_out_write(&o, "new ", 4, &e));
    assert_true(file_out_write(&o, "content", 7, &e));
    file_map m;
    assert_true(file_open_map(&m, in_work("f"), &e));
    assert_int_equal(m.size, 3); /* still the old file */
    file_unmap(&m);
    assert_true(file_out_end(&o, true, &e));
    assert_true(file_open_map(&m, in_work("f"), &e));
    assert_int_equal(m.size, 11);
    assert_memory_equal(m.data, "new content", 11);
    file_unmap(&m);
}

static void a_dropped_file_leaves_the_old_one(void **state) {
    (void)state;
    err e = {0};
    file_out o;
    assert_true(file_write(in_work("g"), "old", 3, &e));
    assert_true(file_out_begin(&o, in_work("g"), &e));
    assert_true(file_out_write(&o, "x", 1, &e));
    assert_true(file_exists(o.staged));
    char staged[256];
    snprintf(staged, sizeof staged, "%s", o.staged);
    assert_false(file_out_end(&o, false, &e));
    assert_false(file_exists(staged));
    file_map m;
    assert_true(file_open_map(&m, in_work("g"), &e));
    assert_memory_equal(m.data, "old", 3);
    file_unmap(&m);
}

static void a_pipe_without_a_writer_does_not_block(void **state) {
    (void)state;
    err e = {0};
    file_map m;
    assert_false(mkfifo(in_work("pipe"), 0600));
    alarm(20);
    assert_false(file_open_map(&m, in_work("pipe"), &e));
    alarm(0);
    assert_non_null(strstr(e.msg, "not a regular file"));
}

static void a_device_is_not_replaced(void **state) {
    (void)state;
    err e = {0};
    struct stat st;
    assert_true(file_write("/dev/null", "x", 1, &e));
    assert_false(stat("/dev/null", &st));
    assert_true(S_ISCHR(st.st_mode));
    assert_false(file_write("/dev/full", "x", 1, &e));
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, "/dev/full"));
}

static void what_cannot_be_looked_up_is_not_taken_for_absent(void **state) {
    (void)state;
    err e = {0};
    file_map m;
    assert_false(file_exists(in_work("none")));
    assert_false(file_exists(in_work("f/none")));
    assert_false(symlink("loop", in_work("loop")));
    assert_true(file_exists(in_work("loop")));
    assert_false(file_open_map(&m, in_work("loop"), &e));
    assert_non_null(strstr(e.msg, "/loop: "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_become_one_file),
        cmocka_unit_test(a_dropped_file_leaves_the_old_one),
        cmocka_unit_test(a_pipe_without_a_writer_does_not_block),
        cmocka_unit_test(a_device_is_not_replaced),
        cmocka_unit_test(what_cannot_be_looked_up_is_not_taken_for_absent),
    };
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
