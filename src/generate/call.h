/* One call of a function through all packages of an artifact: makes the inputs by their meanings, hands
 * hidden states on, keeps the scores. The decoder's; it decides which calls there are. */
#ifndef GENERATE_CALL_H
#define GENERATE_CALL_H
#include "generate/decoder.h"

/* What a text leaves behind: sessions, and the states that go in and out of calls. */
typedef struct {
    rt_session **s; /* one a package */
    void **carried; /* by index in contract.carried; ir_type_bytes() each */
} timeline;

bool timeline_new(timeline *l, const lm *m, rt_mode mode, err *e);
void timeline_reset(timeline *l, const lm *m); /* all states to zero */
void timeline_free(timeline *l, const lm *m);

/* Memory that grows. */
typedef struct {
    void *p;
    size_t bytes;
} room;

bool room_for(room *r, size_t count, size_t size, err *e);

/* Work memory for calls. */
typedef struct {
    const lm *m;
    room made[MEANS_COUNT];       /* inputs of the call by meaning */
    rt_tensor given[MEANS_COUNT]; /* and as tensors; type.rank 0: not made yet */
    room table, converted, shown; /* rows of the table; hidden states in another type; as floats */
    rt_tensor *in, *out;          /* inputs and outputs of the package that ran last */
    rt_tensor hidden;             /* what it hands on */
    const rt_tensor *score;       /* what the call returned as scores, by package and order in it */
    const contract_feature **score_is;
    size_t n_score;
    float *row; /* a row of scores that had to be converted or put together */
    int32_t best;
} caller;

bool caller_new(caller *c, const lm *m, err *e);
void caller_free(caller *c);

/* A call of fn: tokens ids[0..n), n <= T; what T is beyond n is filled as the description says. */
typedef struct {
    const timeline *line;
    const contract_function *fn;
    const int32_t *ids;
    size_t n;
    int64_t position;
    size_t first; /* index of the first token in the feed, for hooks */
    const decoder_hooks *h;
    bool row;  /* scores will be looked at */
    bool find; /* look for the first op that makes a NaN or infinity */
} call;

bool caller_run(caller *c, const call *k, err *e);
/* The same by hand, so that several callers can go through a package together: how many packages the call
 * goes through; for each what to run in its session; and, once that has been run, what comes of it. */
size_t caller_begin(caller *c, const call *k);
bool caller_stage(caller *c, const call *k, size_t package, rt_call *r, err *e);
bool caller_end_stage(caller *c, const call *k, size_t package, bool ran, err *e);
/* The scores behind token t < n of the call that ran last; of one that returns the last row only, behind
 * that. */
bool caller_row(caller *c, const call *k, size_t t, decoder_row *r, err *e);
#endif
