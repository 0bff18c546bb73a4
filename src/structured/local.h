/* Masks of one state of a terminal. */
#ifndef STRUCTURED_LOCAL_H
#define STRUCTURED_LOCAL_H
#include "structured/mask_cache.h"

/* One walk of the trie. Allocated in g's heap; NULL: no memory. */
local_mask *local_make(const grammar *g, const vocabulary *v, uint32_t state);
/* Adds to bits the tokens that end within the terminal, when so many characters may still begin. */
void local_inside(const local_mask *l, size_t words, uint32_t room, uint32_t *bits);
#endif
