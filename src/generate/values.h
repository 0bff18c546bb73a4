/* Numbers and texts that descriptions take from side files of a set. A value is a number, or a list of
 * numbers and "FILE:KEY.KEY" in which the first one that is there counts. Files are JSON, or YAML
 * (base/yaml.h) where they are called .yaml or .yml. */
#ifndef GENERATE_VALUES_H
#define GENERATE_VALUES_H
#include "base/json.h"

/* A side file; NULL without an error when there is none, with one when it is broken. */
const json *values_file(arena *a, const char *dir, const char *name, err *e);
/* Member "a.b.c" of o, NULL when absent or null. */
const json *values_key(const json *o, const char *path);
/* What v (may be NULL) stands for: a JSON value of any kind; NULL: nothing. Broken files are as absent ones.
 */
const json *values_find(arena *a, const char *dir, const json *v);
bool values_number(arena *a, const char *dir, const json *v, double *out);
/* A whole number of at least 1, else 0. */
int64_t values_count(arena *a, const char *dir, const json *v);
#endif
