/* How a session runs functions: plans, shared by the sessions of a model, and what a session needs to run
 * them. The reference evaluator stays for what needs to see inside (values by name, observers, the search for
 * NaN) and for functions that can't be planned. */
#ifndef RUNTIME_ENGINE_H
#define RUNTIME_ENGINE_H
#include "plan/plan.h"
#include "runtime/parts.h"
#include "runtime/profile.h"

/* Plans of a model by function, mode and input types. Thread-safe. They lie in the heap that is current here.
 */
rt_plans *rt_plans_new(void);
/* How many there are, and the seconds that making plans took. */
void rt_plans_figures(rt_plans *p, size_t *n, double *seconds);
void rt_plans_free(rt_plans *p);
/* In place of rt_linear(), before the first plan. */
void rt_plans_linear(rt_plans *p, plan_linear l);

/* As kern_scan(). */
bool engine_scan(const rt_plans *p, const float *x, size_t n, size_t *largest);

/* "PATH" or "DECODE,PREFILL", of kern_path_name: how MILLET_LINEAR chooses. False, *l as it was: it is
 * neither.
 */
bool rt_linear_parse(const char *text, plan_linear *l);
/* MILLET_LINEAR, or the default. */
plan_linear rt_linear(void);

/* The plans of all functions (and parts) for the default sizes of their inputs, as text. */
void rt_print_plans(str *out, const coreml_model *m);

typedef struct engine engine;

/* NULL when plans are switched off (MILLET_ENGINE=reference). */
engine *engine_new(rt_plans *plans, bool strict);
void engine_free(engine *g);
/* Before its first run. 0: rt_threads(). */
void engine_threads(engine *g, unsigned n);
/* Before its first run, when it will take the workers of another, with which it runs in turn. The two run,
 * and end, in one heap. */
void engine_share(engine *g, engine *with);
/* The same at once, where g has no workers yet: the other may end before g runs. */
void engine_join(engine *g, engine *with);
/* The plan for these inputs bound to this session; NULL when there is none, without an error but for want of
 * memory. in: by index of the function's inputs; entries of states are not read. */
plan_exec *engine_prepare(engine *g, const rt_function *f, const ref_tensor *in, err *e);
/* What the plan prepared last moves; false when there was none. */
bool engine_traffic(const engine *g, plan_traffic *t);
/* From here on runs are measured, from zero; false: no longer. */
void engine_profile(engine *g, bool on);
void engine_profiles(const engine *g, rt_profile_fn *fn, void *ctx);
/* Of all runs. */
plan_work engine_work(const engine *g);
/* b is the block that outputs lie in when they are borrowed. */
bool engine_holds(const engine *g, const ref_buf *b);
/* As plan_run(); borrow: outputs may lie in the session's block, until its next run. */
bool engine_run(engine *g, plan_exec *x, const ref_tensor *in, ref_tensor *out, void *const *state,
                bool borrow, const atomic_bool *cancel, err *e);
/* n calls at once of what x was prepared for: those of other sessions of the model, which g does not know.
 * What each is given and what comes of it; team, block, profile and borrow are set here. */
void engine_run_many(engine *g, plan_exec *x, plan_one *list, size_t n, bool borrow);
/* Gives back what runs of several at once have left. Nothing borrowed may be in use. */
void engine_trim(engine *g);
#endif
