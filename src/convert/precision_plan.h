/* The file that millet check --precision-plan writes and millet convert --precision-plan follows. */
#ifndef CONVERT_PRECISION_PLAN_H
#define CONVERT_PRECISION_PLAN_H
#include "base/arena.h"
#include "base/err.h"

#define PRECISION_PLAN_FORMAT  "millet-precision-plan"
#define PRECISION_PLAN_VERSION 1

/* The values that must be fp32, as models/widen.h wants them. They live in a. */
bool precision_plan_read(const char *const **entry, size_t *n, arena *a, const char *path, err *e);
#endif
