/* Packages by plan and by evaluator. */
#ifndef FUZZ_PACKAGES_H
#define FUZZ_PACKAGES_H
#include "sample.h"

/* Every package below dir; how many differ (each is reported on stdout). */
uint64_t check_packages(const char *dir, tally *t);
#endif
