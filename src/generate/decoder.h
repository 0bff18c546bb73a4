/* Tokens in, one row of scores a token out: drives a package of either form over one session, whose states
 * are fresh. One thread at a time. */
#ifndef GENERATE_DECODER_H
#define GENERATE_DECODER_H
#include "generate/lm.h"
#include "runtime/session.h"

/* The scores that follow one token. n = vocabulary (id NULL: score i is the logit of id i), or the package's
 * candidates, best first. Lives until the next call. */
typedef struct {
    const float *score;
    const int32_t *id;
    size_t n;
} decoder_row;

typedef struct decoder decoder;

decoder *decoder_new(const lm *m, rt_mode mode, err *e);
void decoder_free(decoder *d);
rt_session *decoder_session(const decoder *d); /* to observe it; runs are the decoder's */
int64_t decoder_position(const decoder *d);    /* tokens fed so far */

typedef struct {
    /* Sees the row behind each token, in order; false ends the feed with ERR_CANCELLED. NULL: only the last
     * row is wanted, in decoder_feed's *last. */
    bool (*row)(void *ctx, size_t index, const decoder_row *r, err *e);
    /* Polled before each call of the package; false ends the feed with ERR_CANCELLED. May be NULL. */
    bool (*keep_going)(void *ctx);
    void *ctx;
} decoder_hooks;

/* n > 0 tokens that are below the vocabulary (ERR_USAGE) and fit behind those fed (ERR_LIMIT). */
bool decoder_check(const decoder *d, const int32_t *ids, size_t n, err *e);
/* Feeds tokens, checked as above. Rows that are looked at are checked: a NaN or infinity is ERR_NUMERIC and
 * names the first op that made one, which is found by running all tokens so far again. h and last may be
 * NULL. */
bool decoder_feed(decoder *d, const int32_t *ids, size_t n, const decoder_hooks *h, decoder_row *last,
                  err *e);
#endif
