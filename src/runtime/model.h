/* A package ready to run: opened, verified, its functions inferred. Immutable after opening; any number of sessions, on
 * any threads, may use it at once. */
#ifndef RUNTIME_MODEL_H
#define RUNTIME_MODEL_H
#include "coreml/model.h"

typedef struct rt_model rt_model;

/* Opens, verifies (errors as in coreml_verify; RT_SKIP_VERIFY for inspection of broken packages is not offered here). */
rt_model *rt_model_open(const char *path, err *e);
void rt_model_close(rt_model *m);
const coreml_model *rt_model_coreml(const rt_model *m);
const char *rt_model_path(const rt_model *m);
#endif
