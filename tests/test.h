/* What every cmocka test file includes. */
#ifndef TEST_H
#define TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the headers above */
#include <cmocka.h>

/* A test that is skipped jumps over its own end: what it leaves is no leak. Asked by the leak sanitizer. */
static int test_was_skipped;
#ifdef __SANITIZE_ADDRESS__
int __lsan_is_turned_off(void);
__attribute__((weak, visibility("default"))) int __lsan_is_turned_off(void) {
    return test_was_skipped;
}
#endif

/* Path below the shared cases; the test is skipped, and says why, when they are not there. */
static inline const char *test_case_path(const char *below) {
    static char path[4][1024];
    static int turn;
    const char *root = getenv("MILLET_CASES");
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", root ? root : "../shared/cases", below);
    FILE *f = fopen(p, "r");
    if (!f) {
        printf("skipped: %s is not there (set MILLET_CASES)\n", p);
        test_was_skipped = 1;
        skip();
    }
    fclose(f);
    return p;
}

/* The small model of the source tree, a hybrid. */
static inline const char *own_model(void) {
    static char path[1024];
    const char *source = getenv("MILLET_SOURCE");
    snprintf(path, sizeof path, "%s/models/tiny-qwen3.5", source ? source : ".");
    return path;
}
#endif
