/* Sessions of one model that go on at the same time: the steps of a function are walked once for all of them,
 * and what reads weights reads them once. What a call gives and leaves in the states of its session are the
 * same bits as from rt_run(), whoever else is in the batch. One thread at a time, for the batch and for the
 * sessions that are in it.
 *
 *   rt_batch *b = rt_batch_new(m, RT_FAST);
 *   rt_batch_call list[2] = {{.s = s1, .c = &c1, .e = &e1}, {.s = s2, .c = &c2, .e = &e2}};
 *   rt_batch_run(b, list, 2);                        list[i].ok
 */
#ifndef RUNTIME_BATCH_H
#define RUNTIME_BATCH_H
#include "runtime/session.h"

typedef struct rt_batch rt_batch;

/* threads: of its plans; 0: rt_threads(). mode: that of its sessions. */
rt_batch *rt_batch_new(const rt_model *m, rt_mode mode, unsigned threads);
void rt_batch_free(rt_batch *b);
/* Takes the workers of another batch, with which it runs in turn; before its first run. */
void rt_batch_share(rt_batch *b, rt_batch *with);
/* A session that runs in turn with the batch takes its workers, where it has none yet. */
void rt_batch_adopt(rt_batch *b, rt_session *s);

typedef struct {
    rt_session *s; /* of the batch's model and mode; in no other call of the run */
    rt_call *c;    /* as for rt_run(); but results live until the next run of the batch */
    err *e;        /* its own: what goes wrong in one call is no matter to the others */
    bool ok;       /* out: as rt_run() returns */
} rt_batch_call;

/* Runs n calls. Those of one function with inputs of the same types are walked together, the others in turn.
 * Work memory is that of the calls that run at once; it is given back when they have become fewer. Returns
 * how many calls were walked with others. */
size_t rt_batch_run(rt_batch *b, rt_batch_call *list, size_t n);
/* As rt_session_traffic(), of one of the calls. */
bool rt_batch_traffic(const rt_batch *b, rt_traffic *t);
#endif
