/* Bump arena: memory that lives as long as a phase (a program, a request). Nothing in it is freed one by one.
 * (base/heap.h: what happens when there is no memory left.) */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H
#include "base/heap.h"
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
#endif
