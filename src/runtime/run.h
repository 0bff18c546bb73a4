/* Inside of rt_session, for this module only: what a session has, and a run stage by stage. rt_run() goes
 * through the stages with one session, rt_batch_run() with several in step. */
#ifndef RUNTIME_RUN_H
#define RUNTIME_RUN_H
#include "reference/frame.h"
#include "runtime/engine.h"
#include "runtime/parts.h"
#include "runtime/session.h"

/* A state in the form that last changed it: cells for the evaluator, packed elements for plans. Neither:
 * zero.
 */
typedef struct {
    ref_tensor t;
    ref_buf *packed;
    size_t holders; /* sessions that have it */
} state;

struct rt_session {
    const rt_model *m;
    rt_mode mode;
    engine *engine;    /* NULL: everything is evaluated */
    ref_frame **frame; /* by function serial; made when first run */
    state **state;     /* by state index; shared with other sessions after rt_state_bind() */
    void *packed;      /* what rt_state_get() gave out */
    void **out;        /* memory of the last run's results */
    size_t n_out;
    rt_observe_fn *observe;
    void *observe_ctx;
    uint64_t calls; /* that succeeded */
    double seconds; /* in them */
    double look;    /* when to look next which states have filled up */
};

void session_drop_results(rt_session *s);
/* State i as cells, for the evaluator. */
bool session_state_cells(rt_session *s, size_t i, err *e);
/* State i as packed elements. own: nobody else holds them, they may be written. */
void *session_state_packed(rt_session *s, size_t i, bool own, err *e);
/* Large pages for what has filled up of the states, for an eighth of the seconds that a run took. */
void session_join_states(rt_session *s, double seconds);

/* Tensors by feature name: what the caller gave and what parts have made. */
typedef struct {
    const char *name;
    ref_tensor t;
} run_named;

typedef struct {
    rt_session *s;
    rt_call *c;
    engine *engine; /* that walks plans; NULL: everything is evaluated */
    const rt_function *fn;
    run_named *pool;
    size_t n_pool;
    const ir_value **keep; /* values found in the part that runs, and the index of their name */
    size_t *keep_name;
    run_named *value; /* by index of c->values */
    bool begun;       /* states may have changed */
} run;

/* Takes what the call gives. False with the error, nothing to be closed: it can't be run. */
bool rt_run_open(run *r, rt_session *s, rt_call *c, engine *g, err *e);
/* Results where ok, else the states are zero once they may have changed. seconds: that it took. */
bool rt_run_close(run *r, bool ok, double seconds, err *e);

/* A function's inputs, by index; those of states are left as they are. Zeroed before, to be dropped. */
bool rt_run_inputs(run *r, const rt_function *fn, ref_tensor *in, err *e);
/* The call wants to see what plans don't keep. */
bool rt_run_looks_inside(const run *r);
bool rt_run_evaluate(run *r, const rt_function *fn, const ref_tensor *in, err *e);
/* For a plan: the states' memory, NULL for other inputs; and where its outputs go, which it takes over. */
bool rt_run_states(run *r, const rt_function *fn, void **states, err *e);
void rt_run_outputs(run *r, const rt_function *fn, const ref_tensor *out);
/* Outputs may lie in the engine's block: what comes next reads them from elsewhere. */
static inline bool rt_run_borrows(const run *r) {
    return !r->s->m->root.n_part;
}
#endif
