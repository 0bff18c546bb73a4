/* A directory of the test's own: make_work_dir() and remove_work_dir() are a group's setup and teardown. */
#ifndef TESTS_WORK_DIR_H
#define TESTS_WORK_DIR_H
#include "base/file.h"
#include "test.h"
#include <stdlib.h>

static char work_dir[64];

static int make_work_dir(void **s) {
    (void)s;
    strcpy(work_dir, "/tmp/millet-test-XXXXXX");
    return mkdtemp(work_dir) ? 0 : -1;
}

static int remove_work_dir(void **s) {
    (void)s;
    err e = {0};
    return file_remove_tree(work_dir, &e) ? 0 : -1;
}

/* The path of a name below it; holds for three further calls. */
static inline const char *in_work(const char *name) {
    static char path[4][300];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", work_dir, name);
    return p;
}
#endif
