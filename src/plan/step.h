/* What a plan is made of, inside this module. A step is a function over resolved addresses: walking a plan
 * looks nothing up. */
#ifndef PLAN_STEP_H
#define PLAN_STEP_H
#include "base/team.h"
#include "kernels/rounded.h"
#include "plan/plan.h"
#include "reference/eval.h"
#include <stdatomic.h>

/* Where a value may lie. Values at run time are cells of 4 bytes (reference/tensor.h), except in constants
 * and states, which keep their packed form. What lies in OWN is there once for each worker, who made it
 * itself. */
typedef enum { SPACE_CONST, SPACE_ACT, SPACE_STATE, SPACE_OWN } plan_space;

/* Who does which of a step's chunks. */
typedef enum {
    SPREAD_EVEN,  /* each worker its share, the same at every run: steps with equal numbers of chunks give the
                     same chunks to the same worker */
    SPREAD_CLAIM, /* each worker takes from its share and, when that is done, from what others have left: for
                     long steps, where workers don't get on alike */
    SPREAD_EACH,  /* every worker all of them, with results in SPACE_OWN: cheaper than to wait for one */
    SPREAD_ONE    /* worker 0 all of them */
} plan_spread;

/* One operand or result of a step: elements first .. first + span of a buffer. */
typedef struct {
    uint8_t space;     /* plan_space */
    uint8_t size;      /* bytes an element */
    uint32_t buffer;   /* ACT: index of plan.buffer; STATE: index of the function's input */
    int64_t first;     /* element that the address points to */
    int64_t low, high; /* elements that are touched, relative to first: [low, high) */
    int64_t part;      /* > 0: chunk c touches only [c * part, (c + 1) * part) of them */
    const void *data;  /* CONST: the address */
} plan_arg;

/* What a worker has for itself while it walks. */
typedef struct {
    unsigned index;
    struct plan_exec *exec;
    size_t lane;   /* which of the timelines the step at hand is run for */
    void *scratch; /* plan.scratch bytes */
    const kern_rounded *ops;
    const kern_ops *fast;
} plan_worker;

/* Calls fn(ctx), which may allocate: on worker 0 only. False: it was left in the middle as there was no
 * memory, and the run has failed. */
bool plan_guarded(plan_worker *w, void (*fn)(void *ctx), void *ctx);

/* Does units [lo, hi) of the step's extent. p[i] is the address of arg[i]. A step that can fail is
 * `once` and reports with plan_failed(). */
typedef void plan_fn(const void *param, void *const *p, int64_t lo, int64_t hi, plan_worker *w);

/* The addresses of several timelines: p[i * pitch + k] is that of arg[k] for timeline i < n. What lies in
 * activation memory does so at equal distances. */
typedef struct {
    void *const *p;
    size_t pitch, n;
} plan_rows;

/* Does these units for all of them at once. */
typedef void plan_many_fn(const void *param, const plan_rows *r, int64_t lo, int64_t hi, plan_worker *w);

typedef struct {
    plan_fn *fn;
    plan_many_fn *many; /* NULL: timelines take the step in turn */
    const void *param;
    const char *kernel; /* for listings */
    const ir_op *origin;
    uint64_t bytes;                       /* of weights and states that it reads and writes, for listings */
    plan_arg *arg;                        /* the first n_out are written */
    uint32_t n_arg, n_out, first_address; /* into the executor's table of addresses */
    int64_t extent, grain;                /* units; units that stay together: a chunk */
    uint8_t spread;                       /* plan_spread */
    uint32_t claim, least, most;          /* CLAIM: which one; chunks that are taken at a time */
    uint8_t weights;                      /* CLAIM: it reads so many side by side; 0 is 1 */
    bool even;                            /* SPREAD_EVEN whatever it costs */
    bool once;                            /* calls the evaluator or reports errors: for worker 0 only */
    bool barrier;                         /* all workers meet before it */
    bool fallback;                        /* run by the reference evaluator */
} plan_step;

static inline int64_t plan_chunks(const plan_step *s) {
    return (s->extent + s->grain - 1) / s->grain;
}

/* A piece of activation memory. */
typedef struct {
    int64_t cells;
    uint32_t first, last; /* steps between which it holds something */
    int64_t offset;       /* cells from the start of the block, or of each worker's own */
    bool used, own;
} plan_buffer;

typedef struct {
    const ir_value *v;
    uint32_t buffer;
    int64_t tail; /* an input of unknown size: how many of its last elements are read; 0: all */
    bool unread;  /* no step reads it */
} plan_port;

/* Sizes of an input that a run brings. */
typedef struct {
    uint32_t input, buffer;
} plan_shape;

struct plan {
    atomic_uint holders;
    arena *a;
    ir_program *program;
    const ir_function *f; /* the optimised copy */
    bool strict;
    kern_rounded ops;
    kern_ops fast;
    plan_step *step;
    size_t n_step, cap_step;
    plan_buffer *buffer;
    size_t n_buffer, cap_buffer;
    plan_port *in, *out; /* by index of f->in (states: no buffer), f->body.out */
    plan_shape *shape;
    size_t n_shape, cap_shape;
    size_t n_address;
    int64_t cells, own; /* of the block; of what each worker has for itself */
    uint32_t n_claim;
    size_t scratch;                /* bytes a worker needs */
    size_t many_scratch, many_row; /* of steps for several timelines: in all, and for each of them */
    void **big;                    /* expanded constants, malloc'ed */
    size_t n_big, cap_big;
};

/* Decides who does what; gives every buffer its place (greedy by size) and every step its barrier. */
void plan_spread_steps(plan *p);
void plan_place_buffers(plan *p);
void plan_place_barriers(plan *p);
/* Finds the steps that do all timelines at once: those that read weights. */
void plan_find_many(plan *p);

/* What steps of extent 1, which worker 0 runs, may use: the session's evaluator (its e is the run's error),
 * the block as a buffer. plan_failed() ends the run after e was set. */
ref_eval *plan_evaluator(plan_worker *w);
ref_buf *plan_buffer_of(plan_worker *w);
void plan_failed(plan_worker *w);
#endif
