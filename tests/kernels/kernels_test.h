/* The kernel tests: one program, libc only, so that it can be linked statically and run under an emulator. */
#ifndef KERNELS_TEST_H
#define KERNELS_TEST_H
#include "kernels/kernels.h"
#include "kernels/ops.h"

/* Counts a check; prints the message when it fails. */
void test_check(bool ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Whether a case of that much work (multiply-adds, about) is wanted: a quick run leaves out the large ones.
 */
bool test_wanted(int64_t work);

/* tables: one per instruction set of this machine, plain C first. */
void test_linear(const kern_table *tables, int n_tables);

void test_rows(const kern_ops *k, uint64_t *seed);
void test_attention(const kern_ops *k, uint64_t *seed);
void test_delta(const kern_ops *k, uint64_t *seed);
/* isa: a name of kern_isas(). */
void test_rounded(const char *isa);
#endif
