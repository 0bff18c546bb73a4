/* There may be no memory for bookkeeping anywhere: the server ends then, in one line. */
#ifndef SERVER_FATAL_H
#define SERVER_FATAL_H
#include "base/heap.h"
#include <stddef.h>

_Noreturn void server_fatal(size_t wanted);
static inline void server_guarded(void (*fn)(void *ctx), void *ctx) {
    size_t wanted;
    if (!mem_guard(NULL, fn, ctx, &wanted)) server_fatal(wanted);
}
#endif
