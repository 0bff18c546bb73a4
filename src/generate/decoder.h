/* Tokens in, one row of scores a token out: drives an artifact of either form, whatever the number of its
 * packages, over one session a package, whose states are fresh. One thread at a time. */
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
    size_t largest; /* index of the first of the largest scores, which are all finite */
} decoder_row;

typedef struct decoder decoder;

decoder *decoder_new(const lm *m, rt_mode mode, err *e);
void decoder_free(decoder *d);
const lm *decoder_lm(const decoder *d);
int64_t decoder_position(const decoder *d);   /* tokens fed so far */
const int32_t *decoder_fed(const decoder *d); /* [decoder_position()] they; until the next feed */
void decoder_restart(decoder *d);             /* fresh states, position 0 */

/* ---- how tokens become calls ---- */

/* Without this the calls that cost least are chosen (generate/cover.h). With it: sizes of the calls in turn,
 * the last one again and again; 1 is the function for one token, others must be prefill functions
 * (ERR_USAGE). A call takes what is left, up to its size; one that would end behind the context is left out
 * for the largest that doesn't. {1} feeds token by token. n 0: back to the choice. Counts from here on, for
 * all feeds. */
bool decoder_set_sizes(decoder *d, const int64_t *sizes, size_t n, err *e);

/* ---- sessions and states ---- */

/* The session of package i of lm.form.n_package, to observe it and its states; runs are the decoder's. */
rt_session *decoder_session(const decoder *d, size_t package);

/* State i of contract.carried, which goes in and out of every call: its elements, packed. */
void *decoder_carried(const decoder *d, size_t i);

/* States by name, over all packages, as numbers: a state X that has a remainder X_lo is the sum of the two,
 * and setting it sets both. type is the state's own; values hold ir_type_count(type) floats. */
size_t decoder_state_count(const decoder *d); /* states that are no remainder */
const char *decoder_state_name(const decoder *d, size_t i);
bool decoder_state_type(const decoder *d, const char *name, ir_type *type, err *e);
bool decoder_state_get(decoder *d, const char *name, float *values, err *e);
/* Values are rounded to what the state can hold. */
bool decoder_state_set(decoder *d, const char *name, const float *values, err *e);
/* Makes d stand where from stands: all states of d by name, in whatever types the two hold them, and the
 * position. ERR_INVALID when from lacks one or has it in another shape, or has gone beyond d's context. */
bool decoder_seed(decoder *d, decoder *from, err *e);

/* ---- going back: generate/prefix.h ---- */

/* False after a feed that failed in the middle of a call: states and position are of no use until
 * decoder_restart(). A feed that keep_going() ended leaves whole calls: it can go on from there. */
bool decoder_intact(const decoder *d);
/* Tokens whose rows of caches hold in any case: all, but where the last call failed those in front of it. */
int64_t decoder_sound(const decoder *d);
/* Changes whenever tokens that were fed are taken back: by a restart, a failure, decoder_stand(). */
uint64_t decoder_serial(const decoder *d);
/* [decoder_position()] by token: 1 where a call ended behind it, so that caches may be cut there; until the
 * next feed. */
const uint8_t *decoder_cuts(const decoder *d);
/* Rows of caches that calls may have written: [0, that). */
int64_t decoder_touched(const decoder *d);
/* Says what the states, which the caller has set, belong to: n >= 0 tokens, all fed, with cuts behind some of
 * them (NULL: they are the first ones of d's own, cuts too); and which rows of caches are not zero.
 * ERR_MEMORY. */
bool decoder_stand(decoder *d, const int32_t *ids, const uint8_t *cuts, size_t n, int64_t touched, err *e);

/* ---- feeding ---- */

typedef struct {
    /* Sees the row behind each token, in order; false ends the feed with ERR_CANCELLED. Prefill functions
     * give the row behind their last token only: tokens go one by one then, unless decoder_set_sizes() says
     * otherwise, in which case it sees what rows there are. NULL: only the last row is wanted, in
     * decoder_feed's *last. */
    bool (*row)(void *ctx, size_t index, const decoder_row *r, err *e);
    /* Polled before each call of a function; false ends the feed with ERR_CANCELLED, behind a whole call. May
     * be NULL. */
    bool (*keep_going)(void *ctx);
    /* Sees what package i hands to the next one: hidden_out, its numbers as n floats, behind tokens first to
     * first + tokens - 1 of the feed (a padded call's other rows are left out). May be NULL. */
    void (*handed)(void *ctx, size_t package, size_t first, size_t tokens, const float *hidden, size_t n);
    void *ctx;
    const atomic_bool *cancel; /* once set, the feed ends within the step under way: ERR_CANCELLED. NULL */
} decoder_hooks;

/* n > 0 tokens that are below the vocabulary (ERR_USAGE) and fit behind those fed (ERR_LIMIT). */
bool decoder_check(const decoder *d, const int32_t *ids, size_t n, err *e);
/* Feeds tokens, checked as above. Rows that are looked at are checked: a NaN or infinity is ERR_NUMERIC and
 * names the package and the first op that made one, which is found by running all tokens so far again. h and
 * last may be NULL. */
/* After an error states and position are no longer of use until decoder_restart(), unless decoder_intact().
 */
bool decoder_feed(decoder *d, const int32_t *ids, size_t n, const decoder_hooks *h, decoder_row *last,
                  err *e);

/* The same a call of a function at a time, so that something else can be done in between: begin, and call
 * while tokens are left. The calls are those of decoder_feed(), so are the results. every: h->row will be
 * given, the same at each call. The row that comes last is that of the last token, where none is left.
 * decoder_restart() ends it early. */
bool decoder_begin(decoder *d, const int32_t *ids, size_t n, bool every, err *e);
size_t decoder_left(const decoder *d);
bool decoder_call(decoder *d, const decoder_hooks *h, decoder_row *last, err *e);
#endif
