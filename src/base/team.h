/* A small team of threads that walk the same list of work and wait for each other between pieces.
 *
 *   team *t = team_new(2, false);
 *   team_run(t, walk, ctx);      // every worker calls walk(ctx, worker); inside: team_barrier(t, worker)
 *   team_free(t);
 *
 * Waiting spins for some microseconds, fewer where that was in vain, and then sleeps, so that two teams on
 * one machine don't starve each other. */
#ifndef BASE_TEAM_H
#define BASE_TEAM_H
#include <stdbool.h>

#define TEAM_MAX 64

typedef struct team team;

/* The caller of team_run() is worker 0; threads - 1 others are started. Where the system refuses a thread the
 * team is smaller. 0: as many as physical cores. pinned: each on a CPU of its own, one of every core first,
 * also the threads that call team_run(), which stay there. */
team *team_new(unsigned threads, bool pinned);
/* Physical cores that this process may use, no more than its control groups pay for; 1 .. TEAM_MAX. */
unsigned team_cores(void);
team *team_keep(team *t); /* one more holder, who runs in turn with the others; returns t */
void team_free(team *t);  /* one holder less; NULL is allowed */
unsigned team_size(const team *t);
/* Calls fn(ctx, worker) on every worker and returns when all are done. One call at a time. */
void team_run(team *t, void (*fn)(void *ctx, unsigned worker), void *ctx);
/* Inside fn, for the worker that it is: returns when every worker has come here. What was written before is
 * seen behind it. */
void team_barrier(team *t, unsigned worker);
#endif
