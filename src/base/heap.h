/* Memory. Everything that millet allocates comes from here, and everything goes back through mem_free().
 *
 * A heap is what belongs together: the blocks of a model, of a session, of a plan. It counts their bytes, and
 * can drop them all at once. Its memory comes from hooks, the system's unless somebody else's are given. The
 * heap that a thread allocates from is that of the mem_guard() which it is in; outside of any there is none,
 * and blocks belong to nobody.
 *
 * Small bookkeeping allocations can't fail: where there is no memory left mem_alloc() goes back to the guard,
 * which is false then. What was under way is left as it is; its owner drops the heap, or keeps it for nothing
 * but that. Memory whose size comes from input (tensors, states) is taken with mem_try() and reported as an
 * error. */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* malloc / realloc that never return NULL (see above). */
void *mem_alloc(size_t size);
void *mem_realloc(void *p, size_t size);
/* Zeroed memory of a size that input decides; NULL when there is none. Large ones take pages as they are
 * written. */
void *mem_try(size_t count, size_t size);
/* realloc; NULL, and old is as it was. */
void *mem_try_realloc(void *old, size_t size);
/* As mem_try(), but not zeroed, and aligned to a power of two; NULL. */
void *mem_try_aligned(size_t size, size_t align);
/* Of any thread, whatever guard it is in. NULL is allowed. */
void mem_free(void *p);
/* Back to the guard, as mem_alloc() of so many bytes. */
_Noreturn void mem_die(size_t size);
/* What has to be undone when the heap is dropped: release(what, n), which allocates nothing. mem_free() what
 * it returns once that is done by hand. NULL: no memory. */
void *mem_hold(void (*release)(void *what, size_t n), void *what, size_t n);

typedef struct heap heap;

/* Called from any thread, several at a time. Lines of the log have no newline at the end; a dump has several.
 */
typedef enum { HEAP_LOG_WARNING, HEAP_LOG_INFO, HEAP_LOG_DUMP } heap_log_level;
typedef struct {
    void *(*alloc)(void *ctx, size_t size, size_t align); /* NULL: the system's */
    void (*free)(void *ctx, void *p, size_t size);
    void *ctx;
    void (*log)(void *ctx, unsigned level, const char *text); /* a heap_log_level. NULL: nobody reads */
    void *log_ctx;
} heap_hooks;

/* A child counts for its parents too, and goes with them. h: NULL, or in place of the parent's hooks; copied.
 * NULL: no memory. */
heap *heap_new(heap *parent, const heap_hooks *h);
const heap_hooks *heap_hooks_of(const heap *h); /* NULL when h is */
/* Drops every block and child, what is held first. NULL is allowed. */
void heap_drop(heap *h);
/* The owner needs it no more: it goes with its last block. */
void heap_leave(heap *h);
/* Bytes of blocks, children's included, now and at most. */
size_t heap_bytes(const heap *h);
size_t heap_peak(const heap *h);
heap *heap_current(void); /* of the guard that the thread is in; NULL */
/* To the log of the current heap. */
void heap_log(heap_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool heap_logs(void); /* somebody reads */

/* Calls fn(ctx) with h (NULL: none) as the thread's heap. False: there was no memory, fn was left in the
 * middle; *wanted (may be NULL) bytes were asked for. */
bool mem_guard(heap *h, void (*fn)(void *ctx), void *ctx, size_t *wanted);
#endif
