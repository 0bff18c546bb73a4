/* One timeline over a model: its own states and work memory. One thread at a time. */
#ifndef RUNTIME_SESSION_H
#define RUNTIME_SESSION_H
#include "runtime/model.h"
#include <stdatomic.h>

typedef enum {
    RT_STRICT, /* every op rounds its result to the declared type; inner sums in fp32, in index order */
    RT_FAST    /* fp32 throughout; rounded at states, inputs, outputs and explicit casts to fp16 */
} rt_mode;

/* A named tensor at the interface: row-major, element type as declared by the package. */
typedef struct {
    const char *name;
    ir_type type;     /* all sizes known */
    const void *data; /* ir_type_bytes(&type) bytes; bool is one byte an element */
} rt_tensor;

/* Workers of a session's plans: MILLET_THREADS, or as many as physical cores that it may use. */
unsigned rt_threads(void);
bool rt_pinned(void); /* MILLET_PIN=1: each of them stays on a CPU of its own */

typedef struct rt_session rt_session;
typedef struct rt_snapshot rt_snapshot;

/* Fresh, zeroed states. The states of equal name (and type) in several functions are one state. */
rt_session *rt_session_new(const rt_model *m, rt_mode mode, err *e);
void rt_session_free(rt_session *s);
/* Workers of its plans, before its first run. 0: rt_threads(). */
void rt_session_threads(rt_session *s, unsigned n);
/* Before its first run: it takes the workers of another session; the two run one at a time from then on, on
 * one thread or with care. Workers of sessions that run in turn would be in each other's way while they wait.
 */
void rt_session_share(rt_session *s, rt_session *with);
const rt_model *rt_session_model(const rt_session *s);
/* From here on fn sees the values of every float result of every op but constants, n of them, as it is made;
 * a value in a loop, each time. NULL: nobody looks. */
typedef void rt_observe_fn(void *ctx, const ir_value *v, const float *x, size_t n);
void rt_session_observe(rt_session *s, rt_observe_fn *fn, void *ctx);

/* Runs one function (NULL: the default one). Inputs are checked against the description: name, dtype, shape
 * or range; an optional one that has a default value may be left out. Outputs are written to out (n_out = the
 * function's outputs, in description order), then, for each name in values, the inner value of that name (in
 * a loop: the last one made). They live in the session until its next run. A pipeline runs its parts in
 * order, connected by feature names. A run that fails after it has begun leaves all states zero, or half
 * written (leave_states); one that is refused because of its inputs leaves them. */
typedef struct {
    const char *function;
    const rt_tensor *in;
    size_t n_in;
    const char *const *values;
    size_t n_values;
    rt_tensor *out;      /* room for n_out + n_values entries */
    size_t n_out;        /* set by rt_run */
    bool find_nonfinite; /* fail (ERR_NUMERIC) at the first op that makes a NaN without having got one, or an
                            infinity from finite operands (a mask of -inf is no offence) */
    const atomic_bool *cancel; /* once set, no further step begins: ERR_CANCELLED. NULL */
    bool wide; /* fp16 outputs may be given as fp32, values of fp16 all the same, which spares two copies */
    bool leave_states; /* for callers that know which parts of them a failed run can't have written */
} rt_call;
bool rt_run(rt_session *s, rt_call *c, err *e);

/* Functions run to their end, the seconds in them, and the bytes of all states. */
typedef struct {
    uint64_t calls;
    double seconds;
    uint64_t state_bytes;
} rt_figures;
rt_figures rt_session_figures(const rt_session *s);

/* What the function that ran last moves each time: bytes of weights and states, those of weights that several
 * sessions in a batch read together, and those of the keys and values that attention reads, were all
 * positions visible. False when the evaluator ran it. */
typedef struct {
    uint64_t bytes, shared, cache;
} rt_traffic;
bool rt_session_traffic(const rt_session *s, rt_traffic *t);

/* States, by name. The tensor's data lives until the next call on the session; set copies. A name that stands
 * for two types (in different functions) means the first. */
size_t rt_state_count(const rt_session *s);
const char *rt_state_name(const rt_session *s, size_t i);
ir_type rt_state_type(const rt_session *s, size_t i); /* i < rt_state_count() */
bool rt_state_get(rt_session *s, const char *name, rt_tensor *t, err *e);
bool rt_state_set(rt_session *s, const char *name, const rt_tensor *t, err *e);
/* The packed elements of state i < rt_state_count() where they lie, until the next call on the session.
 * write: they may be changed; copies of others stay as they are. NULL: no memory. */
void *rt_state_memory(rt_session *s, size_t i, bool write, err *e);
/* From here on the state of that name is one for both sessions: what one writes, the other reads. Its value
 * is that of from; the models may differ, the types not (ERR_INVALID). One thread at a time for both. */
bool rt_state_bind(rt_session *to, const rt_session *from, const char *name, err *e);
void rt_state_reset(rt_session *s);                                 /* all states to zero */
bool rt_state_copy(rt_session *to, const rt_session *from, err *e); /* same model */
rt_snapshot *rt_snapshot_take(const rt_session *s, err *e);
bool rt_snapshot_restore(rt_session *s, const rt_snapshot *snap, err *e);
void rt_snapshot_free(rt_snapshot *snap);
#endif
