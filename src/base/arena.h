/* Bump arena: memory that lives as long as a phase (a program, a request). Nothing in it is freed one by one.
 * Small bookkeeping allocations can't fail: when the system has no memory left, mem_die() ends the process
 * with one line. Memory whose size comes from input (tensors, states) is taken with mem_try() and reported as
 * an error. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct arena arena;

arena *arena_new(void);
/* Frees the arena and everything in it; NULL is allowed. */
void arena_free(arena *a);
/* Drops the content and keeps the first block for reuse. */
void arena_reset(arena *a);
/* Zeroed, aligned for any object. Never NULL. */
void *arena_alloc(arena *a, size_t size);
/* count * size, checked for overflow. */
void *arena_array(arena *a, size_t count, size_t size);
/* Doubles an array kept in an arena: returns room for at least need elements, old content copied. */
void *arena_grow(arena *a, const void *old, size_t count, size_t *cap, size_t need, size_t size);
void *arena_copy(arena *a, const void *data, size_t size);
char *arena_str(arena *a, const char *s);
char *arena_strn(arena *a, const char *s, size_t n);
char *arena_printf(arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define ARENA_NEW(a, T)      ((T *)arena_alloc(a, sizeof(T)))
#define ARENA_ARRAY(a, T, n) ((T *)arena_array(a, n, sizeof(T)))

/* malloc / realloc that never return NULL (see above). */
void *mem_alloc(size_t size);
void *mem_realloc(void *p, size_t size);
/* Zeroed memory of a size that input decides; NULL when there is none. Free with free(). */
void *mem_try(size_t count, size_t size);
_Noreturn void mem_die(size_t size);
#endif
