/* The tokens as a trie, laid out in the order of a walk: a node's children follow it, each with all that is
 * below it. */
#ifndef STRUCTURED_VOCABULARY_H
#define STRUCTURED_VOCABULARY_H
#include "structured/matcher.h"

enum { TRIE_MAX_DEPTH = 4096 }; /* longer tokens are never allowed */

typedef struct {
    uint32_t n;      /* nodes; 0 is the root */
    uint8_t *byte;   /* that leads to the node */
    uint16_t *depth; /* bytes up to it */
    uint32_t *skip;  /* the first node that is not below it */
    uint32_t *first; /* [n + 1] of its tokens, among `token` */
    uint32_t *token; /* what the caller gave */
    uint16_t height;
} trie;

typedef struct {
    const uint8_t *s;
    uint32_t n, value;
} trie_entry;

/* Sorts entries. Frees with trie_free(); false: no memory. */
bool trie_make(trie *t, trie_entry *entry, size_t n);
void trie_free(trie *t);
size_t trie_bytes(const trie *t);

struct vocabulary {
    trie all;          /* of plain tokens */
    trie_entry *added; /* tokens that only markup may spell */
    size_t n_added;
    int32_t *stop;
    size_t n_stop;
    int32_t limit;
    uint8_t *text;   /* bytes of all tokens */
    uint32_t *start; /* [limit + 1] */
    uint8_t *kind;   /* [limit] token_kind */
    uint64_t serial; /* differs between any two vocabularies */
};
typedef enum { TOKEN_NONE, TOKEN_PLAIN, TOKEN_ADDED, TOKEN_STOP } token_kind;
#endif
