/* What has been fed need not be fed again: a cache of prefixes over decoders of one artifact.
 *
 *     prefix_cache *c = prefix_new(m, 512 << 20, &e);
 *     const size_t keep[] = {stable, n};                     points to come back to
 *     prefix_feed(c, d, ids, n, keep, 2, NULL, &row, &at, &e)    at.reused of the n ids were not fed
 *     ... decoder_feed(d, &id, 1, ...)                       the reply
 *     prefix_keep(c, d, &e);                                 where it ended, too
 *     prefix_leave(c, d); decoder_free(d);                   d goes, what was kept stays
 *
 * Given a prompt, a decoder is put where most of it is known:
 *
 *   continued  it stands at a prefix of the prompt: nothing is moved
 *   rewound    back to the end of a call within the common part. Where all states are caches by position
 *              (positional.h: proved from the programs, never guessed) by clearing what lies behind; where
 *              some are not (convolutions, recurrences) these must have been kept at that point
 *   restored   to a point kept by this or another decoder
 *   new        from zero states
 *
 * What is kept at a point: the ids; the states that are no caches by position, copied; of the caches nothing
 * while they lie in the decoder that fed them, else the rows of the ids, copied when that decoder is about to
 * overwrite them. So keeping a point of a model with attention only costs its ids. Copies leave out pages
 * that are zero.
 *
 * Every state that a decoder is put to is one in which it, or another decoder, was at the end of a call of
 * the same ids, but for the rows behind the position, which are zero. So results equal those of a run in
 * which the prompt was cut into calls at the same points. A run from fresh states may cut the prompt in other
 * calls: calls of 8 tokens and more multiply in bf16 where the processor has that (docs/architecture.md, 6),
 * and the chunked delta rule sums in another order, so scores may differ in their last digits. With one call
 * a token (decoder_set_sizes() {1}), or the same cuts, they are equal to the bit.
 *
 * One thread at a time, decoders included. */
#ifndef GENERATE_PREFIX_H
#define GENERATE_PREFIX_H
#include "base/str.h"
#include "generate/decoder.h"

typedef struct prefix_cache prefix_cache;

#define PREFIX_BUDGET ((size_t)1 << 30) /* bytes, for those who have no opinion */

/* budget: bytes of all that is kept; the points that were used longest ago are dropped when it is more. A
 * point that alone is larger is not kept. 0: nothing is. NULL on error. */
prefix_cache *prefix_new(const lm *m, size_t budget, err *e);
/* Decoders may be gone by then, or stay. NULL is allowed. */
void prefix_free(prefix_cache *c);
/* Before a decoder is freed: points whose rows lie in it get copies of these. */
void prefix_leave(prefix_cache *c, decoder *d);
/* Whether all states are caches by position, so that a decoder can go back to the end of any call. */
bool prefix_rewinds(const prefix_cache *c);

/* From here on decoders are put to points that were kept, never where a generation just happens to stand or
 * has been: then what a prompt's states are depends on where it is cut alone. */
void prefix_points_only(prefix_cache *c);

typedef enum { PREFIX_NEW, PREFIX_CONTINUED, PREFIX_REWOUND, PREFIX_RESTORED } prefix_how;
typedef struct {
    size_t
        reused;  /* ids of the prompt that need not be fed; less than all: the last one's scores are wanted */
    size_t same; /* ids that the decoder's own tokens and the prompt had in common, before anything moved */
    size_t had;  /* and how many it had. same < had and < n: the two part there */
    prefix_how how;
} prefix_place;

/* Puts d at the longest prefix of the n > 0 ids that it can have. False: no memory; d is as new then. */
bool prefix_seek(prefix_cache *c, decoder *d, const int32_t *ids, size_t n, prefix_place *at, err *e);
/* Keeps the point where d stands; also one that was kept before, which is as just used then. Where there is
 * no room for it nothing is kept, and that is no error. */
void prefix_keep(prefix_cache *c, decoder *d);
/* prefix_seek(), then feeds what is left, and keeps the points keep[0] <= keep[1] <= ... <= n that are
 * reached. h (may be NULL): its indices begin anew behind each of them. last: the scores behind the prompt.
 * After an error d is as after one of decoder_feed(); prefix_recover() may help. */
bool prefix_feed(prefix_cache *c, decoder *d, const int32_t *ids, size_t n, const size_t *keep, size_t n_keep,
                 const decoder_hooks *h, decoder_row *last, prefix_place *at, err *e);
/* The same without prefix_seek(): from `done` ids on, where d stands. c may be NULL. */
bool prefix_feed_rest(prefix_cache *c, decoder *d, const int32_t *ids, size_t n, size_t done,
                      const size_t *keep, size_t n_keep, const decoder_hooks *h, decoder_row *last, err *e);

/* Behind a call of d that was cut or failed: puts d back to the last place in front of it that is known,
 * without feeding anything; as new, where there is none. c may be NULL. */
void prefix_recover(prefix_cache *c, decoder *d);

typedef struct {
    size_t points, bytes, budget;
    uint64_t seeks, continued, rewound, restored;
    uint64_t reused_ids, prompt_ids; /* over all seeks */
    uint64_t dropped;                /* points, for lack of room */
} prefix_figures;
prefix_figures prefix_figures_of(const prefix_cache *c);

/* ---- on disk: prefix_file.c ---- */

/* Writes where d stands: ids, states (of caches the rows of the ids), the points kept on the way (the last
 * few), and a note of the caller's. The file is put in place whole or not at all; one that exists and was not
 * saved so is ERR_USAGE. */
bool prefix_save(prefix_cache *c, decoder *d, const char *path, const void *note, size_t n_note, err *e);
/* Puts d where the file says, without feeding anything; note: appended to. Errors (d is as new then, or as
 * it was when the file was refused before anything moved): the file is of another artifact (ERR_INVALID), of
 * another version (ERR_UNSUPPORTED), cut short, altered (ERR_FORMAT). */
bool prefix_load(prefix_cache *c, decoder *d, const char *path, str *note, err *e);
/* The note alone, of a file that was written for any artifact. */
bool prefix_read_note(const char *path, str *note, err *e);
/* What tells artifacts apart: SHA-256 over the programs, sizes and samples of the weight files and of the
 * table. Reads at most a few MiB. hex[65]. */
bool prefix_identity(const lm *m, char *hex, err *e);
#endif
