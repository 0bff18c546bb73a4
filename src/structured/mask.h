/* Which tokens may follow a set of positions. */
#ifndef STRUCTURED_MASK_H
#define STRUCTURED_MASK_H
#include "structured/reader.h"
#include "structured/vocabulary.h"

/* The tokens that may follow the set [from, to) of r's pool, vocabulary_words() words. at: [height of the
 * trie + 2]. False: r->failed, there is no memory. Pool and frames are as before. */
bool mask_of(reader *r, grammar *g, const vocabulary *v, size_t from, size_t to, size_t *at, uint32_t *bits);
void mask_cache_free(struct mask_cache *c);
#endif
