/* Decoders of one model that go on at the same time, a token each: weights are read once for all of them.
 * What comes of a decoder is the same, bit for bit, as from decoder_feed(), whoever else goes on with it, and
 * what goes wrong in one is no matter to the others. Decoders come and go from step to step.
 *
 *   batch *b = batch_new(m, RT_FAST, 0, &e);
 *   batch_adopt(b, d);                                  each new decoder
 *   batch_step_one list[] = {{.d = d1, .id = 7}, {.d = d2, .id = 11}};
 *   batch_step(b, list, 2);                             list[i].ok, .row or .e
 *
 * One thread at a time, for the batch and for the decoders that are in it. Where nothing can be planned (and
 * with MILLET_ENGINE=reference) decoders go in turn, which the log says once. */
#ifndef GENERATE_BATCH_H
#define GENERATE_BATCH_H
#include "generate/decoder.h"

typedef struct batch batch;

/* mode: that of its decoders. threads: its workers; 0: rt_threads(). m outlives it. */
batch *batch_new(const lm *m, rt_mode mode, unsigned threads, err *e);
/* Its decoders may outlive it. */
void batch_free(batch *b);
/* d, new, takes the workers of the batch for what it is fed alone (a prompt): with workers of its own it
 * would be in the batch's way while these wait. From here on d and the batch run on one thread, or in turn.
 */
void batch_adopt(batch *b, decoder *d);

typedef struct {
    decoder *d; /* of the batch's model and mode; in no other entry */
    int32_t id; /* the token to feed; -1: the next call of the feed that decoder_begin() has begun */
    const decoder_hooks *hooks; /* NULL; as for decoder_feed() */
    decoder_row row; /* out: the scores behind it, until the next step of the batch or feed of the decoder; n
                        is 0 where tokens are left */
    bool ok;         /* out; else why, and the decoder is as decoder_feed() leaves it after an error */
    err e;
} batch_step_one;

/* Feeds each decoder its token. n is not bounded; work memory is that of n tokens, and is given back when
 * steps have become much smaller for a while, or with a step of none. */
void batch_step(batch *b, batch_step_one *list, size_t n);

/* Steps so far, tokens fed by them, and how many of these were not alone. */
typedef struct {
    uint64_t steps, tokens, together;
} batch_figures;
batch_figures batch_figures_of(const batch *b);
/* As rt_session_traffic(), of a decoder in package i of the last step. */
bool batch_traffic(const batch *b, size_t package, rt_traffic *t);
#endif
