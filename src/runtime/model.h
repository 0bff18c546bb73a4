/* A package ready to run: opened, verified, its functions inferred. Immutable after opening; any number of
 * sessions, on any threads, may use it at once. */
#ifndef RUNTIME_MODEL_H
#define RUNTIME_MODEL_H
#include "coreml/model.h"

typedef struct rt_model rt_model;

/* A .mlpackage, or a .aimodel read as one. NULL on error. coreml_close() frees it. */
coreml_package *rt_package_open(const char *path, err *e);
/* Opens and verifies (errors as in coreml_verify). */
rt_model *rt_model_open(const char *path, err *e);
/* The same of an open package, which it takes over (also on error). */
rt_model *rt_model_of(coreml_package *p, err *e);
/* The same from a serialized Model message without weight files (fuzzing). */
rt_model *rt_model_open_memory(const void *model, size_t n, err *e);
void rt_model_close(rt_model *m);
/* How linear layers multiply in fast mode, as --linear takes it; before the first session runs. */
bool rt_model_linear(rt_model *m, const char *paths, err *e);
/* Whether all of n > 0 scores are finite; *largest: index of the first largest one then. */
bool rt_model_scan(const rt_model *m, const float *score, size_t n, size_t *largest);
/* Plans made so far that are kept, and the seconds that making plans took. */
void rt_model_figures(const rt_model *m, size_t *plans, double *seconds);
/* States of its sessions: those of equal name (and type) in several functions are one. */
size_t rt_model_state_count(const rt_model *m);
const char *rt_model_state_name(const rt_model *m, size_t i);
ir_type rt_model_state_type(const rt_model *m, size_t i); /* i < rt_model_state_count() */
const coreml_model *rt_model_coreml(const rt_model *m);
const char *rt_model_path(const rt_model *m);
#endif
