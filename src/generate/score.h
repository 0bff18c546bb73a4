/* Teacher-forced scoring: every token is fed, and the scores behind it are compared with the token that
 * follows. */
#ifndef GENERATE_SCORE_H
#define GENERATE_SCORE_H
#include "generate/decoder.h"

typedef struct {
    size_t tokens;   /* fed */
    size_t compared; /* tokens that had a successor: tokens - 1 */
    size_t agree;    /* successors that had the highest score */
    size_t outside; /* successors that were not among the package's candidates: left out of the sum. A package
                       that returns the best id only has no probabilities: all of them */
    double nll; /* sum of -log p(successor) over compared - outside; for packages that return candidates only,
                   p is relative to the candidates */
    double seconds;
} score_result;

typedef struct {
    rt_mode mode;
    const char *logits; /* write logits F32 [T,V] to this safetensors file; NULL: don't. What a package does
                           not return is SCORE_ABSENT */
    /* Called before each call of the package; false: ERR_CANCELLED. May be NULL. */
    bool (*progress)(void *ctx, size_t done, size_t tokens);
    void *ctx;
} score_options;

#define SCORE_ABSENT (-1e4f)

/* ids: n > 0 tokens, from fresh states. */
bool score_ids(const lm *m, const int32_t *ids, size_t n, const score_options *o, score_result *r, err *e);
/* Mean NLL over the compared tokens that were not outside; NaN when there were none. */
double score_mean(const score_result *r);
#endif
