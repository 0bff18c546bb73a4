/* Where the time of feeding goes: the steps of all packages' plans, by kernel and by layer. */
#ifndef GENERATE_PROFILE_H
#define GENERATE_PROFILE_H
#include "base/arena.h"
#include "generate/decoder.h"

typedef struct {
    const char *name;    /* kernel and, for linear layers, [bits,] rows x columns [x rows of x]; or a layer */
    uint64_t calls;      /* steps that ran */
    double *work, *wait; /* seconds, by worker */
    double least; /* seconds of the mean worker, had each step always been as in the run in which it took
                     least */
    double bytes, flops; /* of all calls */
    bool slow;           /* the reference body, or loops for any weight */
} profile_row;

/* Waiting at a barrier counts for the step behind which the workers were furthest apart, of those since the
 * barrier before. */
typedef struct {
    unsigned workers; /* 0: no plan ran, the evaluator did everything */
    double seconds;   /* of feeding, by the wall clock */
    int64_t tokens;
    uint64_t runs;               /* of plans */
    profile_row all;             /* the walks of plans: the rows below and `call` */
    profile_row call;            /* waiting for a run to begin and, at its end, for the others */
    profile_row *kernel, *layer; /* slowest first; in order, what has no layer before and behind */
    size_t n_kernel, n_layer;
} profile;

/* From here on the decoder's plans are measured, from zero. */
void profile_begin(const decoder *d);
/* What was measured since: tokens in so many seconds. visible: the share of the cache's positions that
 * attention read on average. Rows live in a. */
profile profile_end(const decoder *d, arena *a, double seconds, int64_t tokens, double visible);
/* Seconds of the worker with the most of them. */
double profile_most(const double *by_worker, unsigned workers);
#endif
