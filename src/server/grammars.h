/* Grammars of requests, kept by what was asked for: the masks that one found serve the next that asks for the
 * same. */
#ifndef SERVER_GRAMMARS_H
#define SERVER_GRAMMARS_H
#include "structured/grammar.h"

typedef struct grammars grammars;

grammars *grammars_new(void);
void grammars_free(grammars *g); /* NULL is allowed */

/* What makes one; NULL with the error. */
typedef grammar *grammars_make(const void *ctx, err *e);
/* The grammar of this key, n bytes: kept, or made. The caller's share: grammar_free(). g NULL: always made.
 */
grammar *grammars_get(grammars *g, const char *key, size_t n, grammars_make *make, const void *ctx, err *e);
#endif
