/* Zeroed memory that takes pages as it is filled, and becomes large pages where it is full enough: large ones
 * are read up to a quarter faster, but one byte takes all of it.
 *
 *     pages p;
 *     if (!pages_map(&p, bytes)) ...               no memory
 *     p.data[...] = ...
 *     pages_join(&p, clock_seconds() + 0.01);      now and then; content stays
 *     pages_unmap(&p);
 *
 * Filled is what is not zero, so nothing has to be said of what is written where. The heap that is current
 * when they are mapped takes them down with it, but doesn't count them, and its hooks aren't asked. */
#ifndef BASE_PAGES_H
#define BASE_PAGES_H
#include <stdbool.h>
#include <stddef.h>

#define PAGES_LARGE ((size_t)2 << 20) /* bytes */

typedef struct {
    char *data; /* at a multiple of PAGES_LARGE, where there is room for a large page */
    size_t bytes;
    bool *joined; /* by large page that fits whole: is one, or can't be */
    size_t left;  /* those that are not */
    void *map;    /* what data lies in */
    size_t mapped;
    void *hold; /* undoes the map with the heap */
} pages;

/* bytes > 0. False: there is no memory; *p is empty then. */
bool pages_map(pages *p, size_t bytes);
void pages_unmap(pages *p); /* empty ones are allowed */
/* Copies the first n <= p->bytes bytes of `from` into fresh memory: what is zero there takes none. */
void pages_fill(pages *p, const void *from, size_t n);
/* Makes large pages of all parts that are at least a quarter full, but begins none after clock_seconds() has
 * reached `until`, the first excepted; a part takes about a millisecond. False: there is more to do. */
bool pages_join(pages *p, double until);
#endif
