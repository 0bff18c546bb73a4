/* How fast this machine reads memory: the roof of everything that is bound by memory. */
#ifndef BASE_BANDWIDTH_H
#define BASE_BANDWIDTH_H
#include "base/err.h"

#define BANDWIDTH_BYTES ((size_t)512 << 20) /* far more than caches hold */

typedef struct {
    unsigned threads;
    double best, median; /* bytes a second, of passes over the memory by the wall clock */
} bandwidth;

/* Plain reads of BANDWIDTH_BYTES in huge pages (where the system has them), shared out to threads 1 .. 64,
 * again and again for some seconds, three times at least. ERR_MEMORY when there is no such memory. */
bool bandwidth_read(unsigned threads, double seconds, bandwidth *b, err *e);
#endif
