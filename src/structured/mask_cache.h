/* What was found out about a grammar and a vocabulary: masks by key, the least used dropped first. Threads
 * may share one. */
#ifndef STRUCTURED_MASK_CACHE_H
#define STRUCTURED_MASK_CACHE_H
#include "structured/network.h"
#include "structured/vocabulary.h"

/* Tokens that may follow one state of a terminal, whatever comes behind the terminal. */
typedef struct {
    uint32_t *inside; /* tokens that end within the terminal; counted: those that begin less than level + 1
                         characters, [levels][words] */
    uint32_t levels;
    struct local_token *over; /* inside, of levels characters and more, by number */
    size_t n_over;
    uint32_t most; /* characters of any token inside */
    trie rest;     /* what tokens have behind the terminal's end; values: index to token */
    struct local_token {
        int32_t id;
        uint32_t count; /* characters that it begins */
    } * token;
    size_t n_token;
    size_t bytes;
} local_mask;

typedef struct mask_entry {
    struct mask_entry *newer, *older, *chain;
    uint32_t *key;
    size_t n_key, bytes;
    unsigned users; /* they hold it: it is not dropped */
    local_mask *local;
    uint32_t *bits; /* a whole mask; or */
    int32_t *ids;   /* few tokens */
    size_t n_ids;
} mask_entry;

typedef struct mask_cache {
    struct mask_cache *next;
    uint64_t vocabulary; /* serial */
    mask_entry **slot;
    size_t n_slot, n;
    mask_entry *newest, *oldest;
    size_t bytes;
} mask_cache;

enum { MASK_CACHE_BYTES = 32 << 20 };

/* All with g->lock held. The cache of a vocabulary, made if need be; NULL: no memory. */
mask_cache *mask_cache_of(grammar *g, const vocabulary *v);
/* NULL: not there. Else it is used once more. */
mask_entry *mask_cache_find(mask_cache *c, const uint32_t *key, size_t n);
/* Takes local or bits (one may be NULL); key is copied. NULL when there is no memory: they are freed. An
 * equal key that came in between is kept instead. */
mask_entry *mask_cache_add(grammar *g, mask_cache *c, const uint32_t *key, size_t n, mask_entry what);
void local_mask_free(local_mask *l);
#endif
