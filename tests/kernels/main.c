/* test_kernels [quick] [unguarded]
 * quick: without the large cases; unguarded: for emulators that read the elements a masked load leaves out.
 */
#include "kernels_test.h"
#include "weights.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static long checks, failures;

void test_check(bool ok, const char *fmt, ...) {
    checks++;
    if (ok) return;
    failures++;
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
}

static int64_t most_work = INT64_MAX;

bool test_wanted(int64_t work) {
    return work <= most_work;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "quick"))
            most_work = 1 << 17;
        else if (!strcmp(argv[i], "unguarded"))
            guards = false;
        else
            return printf("there is no option '%s'\n", argv[i]), 2;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    kern_table table[8];
    int n = 0;
    err e = {0};
    for (const char *const *name = kern_isas(); *name; name++) {
        test_check(kern_open(&table[n], *name, &e), "kern_open(%s): %s", *name, e.msg);
        if (strcmp(table[n].isa, *name))
            printf("skipped: %s is not there\n", *name);
        else
            printf("testing %s\n", table[n++].isa);
    }
    test_check(!kern_open(&table[n], "z80", &e), "kern_open(z80) finds it");
    test_linear(table, n);
    uint64_t seed = 11;
    for (int i = 0; i < n; i++) {
        kern_ops k;
        test_check(kern_ops_open(&k, table[i].isa, &e), "kern_ops_open(%s): %s", table[i].isa, e.msg);
        if (strcmp(k.isa, table[i].isa)) continue; /* nothing of its own */
        test_rows(&k, &seed);
        test_attention(&k, &seed);
        test_delta(&k, &seed);
    }
    for (int i = 0; i < n; i++) test_rounded(table[i].isa);
    printf("%ld checks, %ld failures\n", checks, failures);
    return failures != 0;
}
