/* Inside of rt_model, for this module only: what a package is made of. A pipeline's parts nest. */
#ifndef RUNTIME_PARTS_H
#define RUNTIME_PARTS_H
#include "reference/plan.h"
#include "runtime/model.h"

typedef struct {
    const coreml_function *desc;
    const ref_plan *plan; /* NULL in a pipeline's own entry */
    size_t serial;        /* over all functions of the package that have a plan */
    size_t *state; /* by index of the function's inputs: which state of the package; SIZE_MAX for others */
    bool *row;     /* by index of them: one row of flexible length of which little but its length matters */
} rt_function;

typedef struct rt_part {
    const coreml_model *model;
    rt_function *func; /* one a described function */
    struct rt_part *part;
    size_t n_part;
} rt_part;

typedef struct rt_plans rt_plans;

struct rt_model {
    coreml_package *package;
    arena *a;
    rt_part root;
    size_t n_planned;
    struct {
        const char *name;
        ir_type type; /* the tensor */
    } * state;
    size_t n_state, cap_state;
    rt_plans *plans; /* made as functions are run */
};

/* The described function of that name (NULL: the default one). */
const rt_function *rt_function_find(const rt_part *part, const char *name, err *e);
#endif
