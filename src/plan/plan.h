/* A function as a flat list of steps over one block of memory. Plans are immutable and shared by threads; an
 * executor is one timeline's binding of a plan.
 *
 *   plan *p = plan_new(f, types, &(plan_options){.strict = false}, &e);
 *   plan_exec *x = plan_exec_new(p, &e);
 *   plan_run(x, &(plan_call){inputs, outputs, states, team, block}, &e);
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H
#include "base/str.h"
#include "base/team.h"
#include "kernels/kernels.h"
#include "kernels/ops.h"
#include "kernels/rounded.h"
#include "reference/tensor.h"
#include <stdatomic.h>

typedef struct plan plan;
typedef struct plan_exec plan_exec;
typedef struct plan_profile plan_profile; /* plan/profile.h */

/* Number paths of linear layers for fewer than PLAN_PREFILL rows of x, and from there on. Weights that are
 * declared fp32 are so for accuracy: they take KERN_EXACT, as all do in strict mode. */
typedef struct {
    kern_path decode, prefill;
} plan_linear;
#define PLAN_PREFILL 8

typedef struct {
    bool strict; /* every op rounds its result to the declared type */
    const kern_table *kernels;
    const kern_rounded *ops;
    const kern_ops *fast; /* for what rounds nothing on its way */
    plan_linear linear;
    str *dump;               /* receives the stages (see MILLET_DUMP); NULL: none */
    const char *dump_stages; /* "fold,fuse,plan" */
} plan_options;

/* in: types by index of f->in, sizes known (entries of states are not read). f and what its constants point
 * to must outlive the plan. NULL with ERR_UNSUPPORTED when f can't be planned. */
plan *plan_new(const ir_function *f, const ir_type *in, const plan_options *o, err *e);
plan *plan_keep(plan *p); /* one more holder; returns p */
void plan_free(plan *p);  /* one holder less */
const ir_function *plan_function(const plan *p);
/* Bytes of weights and states that a run reads and writes, those of them that several calls at once read
 * together, and those of the keys and values that attention reads, were all their positions visible. */
typedef struct {
    uint64_t bytes, shared, cache;
} plan_traffic;
plan_traffic plan_traffic_of(const plan *p);
/* One line a step. */
void plan_print(str *out, const plan *p);

plan_exec *plan_exec_new(const plan *p, err *e);
void plan_exec_free(plan_exec *x);

/* Work memory, shared by the executors of a session. */
typedef struct plan_block plan_block;
plan_block *plan_block_new(void);
void plan_block_free(plan_block *b);
const ref_buf *
plan_block_buffer(const plan_block *b); /* where borrowed outputs lie; NULL before the first run */

typedef struct {
    const ref_tensor
        *in;         /* by index of the function's inputs (entries of states are not read); packed or cells */
    ref_tensor *out; /* by index of the outputs: made by the run, to be dropped by the caller */
    void *const *state; /* packed elements by index of the inputs; read and written */
    team *team;
    plan_block *block;
    bool borrow;           /* outputs may lie in the block: until its next run */
    plan_profile *profile; /* of this plan, for this team: takes the run's times. NULL: nothing is measured */
    const atomic_bool *cancel; /* once set, no further step begins: ERR_CANCELLED. NULL */
} plan_call;
/* On failure states may be half updated; there are no outputs. */
bool plan_run(plan_exec *x, const plan_call *c, err *e);

/* ---- several timelines in one walk ---- */

/* One of several calls at once. What all share (team, block, profile, borrow) are the first one's. */
typedef struct {
    plan_call call;
    err *e;  /* its own: what goes wrong in one call is no matter to the others */
    bool ok; /* out */
} plan_one;
/* Runs n calls of different timelines (no state in two of them) at once: weights are read once for all. Each
 * call's outputs and states are those that plan_run() gives, bit for bit. */
void plan_run_many(plan_exec *x, plan_one *list, size_t n);
/* Memory for several timelines stays for the next run: these give it back. Nothing borrowed may be left. */
void plan_exec_trim(plan_exec *x);
void plan_block_trim(plan_block *b);
#endif
