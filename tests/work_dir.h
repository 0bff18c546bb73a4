/* A directory of the test's own: make_work_dir() and remove_work_dir() are a group's, or a test's, setup and
 * teardown. */
#ifndef TESTS_WORK_DIR_H
#define TESTS_WORK_DIR_H
#include "base/file.h"
#include "test.h"

static char work_dir[64];

static inline int make_work_dir_in(const char *parent) {
    snprintf(work_dir, sizeof work_dir, "%s/millet-test-XXXXXX", parent);
    return mkdtemp(work_dir) ? 0 : -1;
}

static inline int make_work_dir(void **state) {
    (void)state;
    return make_work_dir_in("/tmp");
}

static inline int remove_work_dir(void **state) {
    (void)state;
    err e = {0};
    return file_remove_tree(work_dir, &e) ? 0 : -1;
}

/* The path of a name below it; holds for seven further calls. */
static inline const char *in_work(const char *name) {
    static char path[8][300];
    static int turn;
    char *p = path[turn++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", work_dir, name);
    return p;
}
#endif
