/* Where the time of a plan's runs goes: seconds that each worker worked in each step, and seconds that it
 * waited at the barrier in front of it. Measured in runs whose plan_call has a profile; others pay a test of
 * a pointer a step.
 *
 *   plan_profile *m = plan_profile_new(p, team_size(team));
 *   plan_run(x, &(plan_call){..., .profile = m}, &e);
 *   plan_profile_lap(m, worker, step).work
 */
#ifndef PLAN_PROFILE_H
#define PLAN_PROFILE_H
#include "plan/plan.h"

typedef struct {
    double work, wait; /* seconds, of all runs */
    double last;       /* of the work, the last run's */
} plan_lap;

/* p must outlive it; workers: those of the team that runs it. NULL without memory. */
plan_profile *plan_profile_new(const plan *p, unsigned workers);
void plan_profile_free(plan_profile *m); /* NULL is allowed */
uint64_t plan_profile_runs(const plan_profile *m);
unsigned plan_profile_workers(const plan_profile *m);
size_t plan_profile_steps(const plan_profile *m);
/* step <= steps: behind the last one stands the waiting for the run to begin and, at its end, for the others.
 * The laps of a worker add up to the time of the walks. */
plan_lap plan_profile_lap(const plan_profile *m, unsigned worker, size_t step);

/* Seconds that all workers together worked in a step, in the run in which that was least; 0 without runs. A
 * worker's own share varies: work is dealt out as they ask for it. */
double plan_profile_least(const plan_profile *m, size_t step);

/* What a step is. Names live as long as the plan. */
typedef struct {
    const char *kernel, *op, *result; /* as in listings; the op and its first result */
    int64_t rows, cols, n; /* linear layers: of the weight (of both, where two make one result), rows of x;
                              else 0 */
    unsigned bits;         /* linear layers with a palette: of a code; else 0 */
    int64_t layer;         /* as names say; -1: they don't */
    bool barrier;          /* workers meet before it */
    bool slow;             /* runs on the reference body, or on plain loops for any weight */
    bool plain;     /* a loop over elements: a copy, an element-wise op, a reduction, an unfused product */
    bool by_keys;   /* bytes and flops are those of a cache all visible */
    uint64_t bytes; /* of weights and states that a run reads and writes */
    double flops;   /* of linear layers, products, attention and delta rule */
} plan_step_info;
plan_step_info plan_profile_step(const plan_profile *m, size_t step); /* step < steps */

/* Multiplications and additions of a run: linear layers, products and delta rule; and those of attention,
 * were all positions visible. */
typedef struct {
    double flops, by_keys;
} plan_work;
plan_work plan_work_of(const plan *p);

/* ---- for plan_run() ---- */

/* Around a walk by all workers. */
void plan_profile_begin(plan_profile *m);
void plan_profile_end(plan_profile *m);
/* This worker's laps, its clock started; NULL (and no clock) when m is. */
plan_lap *plan_profile_start(plan_profile *m, unsigned worker, double *at);
void plan_profile_stop(plan_profile *m, unsigned worker, double at);
/* The time since *at was spent so. */
void plan_profile_work(plan_lap *lap, double *at);
void plan_profile_wait(plan_lap *lap, double *at);
#endif
