#include "base/arena.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FIRST_BLOCK 4096u
#define MAX_BLOCK   (1u << 20)
#define ALIGN       16u

typedef struct block {
    struct block *prev;
    size_t size, used; /* of the bytes after this header */
} block;

struct arena {
    block *top;
};

#define HEAD ((sizeof(block) + ALIGN - 1) / ALIGN * ALIGN)

arena *arena_new(void) {
    arena *a = mem_alloc(sizeof *a);
    a->top = NULL;
    return a;
}

static void free_blocks(block *b) {
    while (b) {
        block *prev = b->prev;
        mem_free(b);
        b = prev;
    }
}

void arena_free(arena *a) {
    if (!a) return;
    free_blocks(a->top);
    mem_free(a);
}

void arena_reset(arena *a) {
    block *first = a->top;
    while (first && first->prev) {
        block *prev = first->prev;
        mem_free(first);
        first = prev;
    }
    if (first) first->used = 0;
    a->top = first;
}

#ifdef MILLET_HOSTILE
/* Every allocation in a block of its own, so that a sanitizer sees each overrun. */
static bool fits(const block *b, size_t size) {
    (void)b, (void)size;
    return false;
}
#else
static bool fits(const block *b, size_t size) {
    return b && b->size - b->used >= size;
}
#endif

void *arena_alloc(arena *a, size_t size) {
    if (size > SIZE_MAX / 2) mem_die(size);
    size_t need = (size + ALIGN - 1) / ALIGN * ALIGN;
    if (!need) need = ALIGN;
    if (!fits(a->top, need)) {
        size_t bytes = a->top ? a->top->size * 2 : FIRST_BLOCK;
        if (bytes > MAX_BLOCK) bytes = MAX_BLOCK;
#ifdef MILLET_HOSTILE
        bytes = need;
#endif
        if (bytes < need) bytes = need;
        block *b = mem_alloc(HEAD + bytes);
        *b = (block){a->top, bytes, 0};
        a->top = b;
    }
    void *p = (char *)a->top + HEAD + a->top->used;
    a->top->used += need;
    return memset(p, 0, size);
}

void *arena_array(arena *a, size_t count, size_t size) {
    if (size && count > SIZE_MAX / 2 / size) mem_die(SIZE_MAX);
    return arena_alloc(a, count * size);
}

void *arena_grow(arena *a, const void *old, size_t count, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return (void *)old;
    size_t n = *cap ? *cap * 2 : 8;
    if (n < need) n = need;
    void *p = arena_array(a, n, size);
    if (count) memcpy(p, old, count * size);
    *cap = n;
    return p;
}

void *arena_copy(arena *a, const void *data, size_t size) {
    void *p = arena_alloc(a, size);
    if (size) memcpy(p, data, size);
    return p;
}

char *arena_strn(arena *a, const char *s, size_t n) {
    char *p = arena_alloc(a, n + 1);
    if (n) memcpy(p, s, n);
    return p;
}

char *arena_str(arena *a, const char *s) {
    return arena_strn(a, s, strlen(s));
}

char *arena_printf(arena *a, const char *fmt, ...) {
    va_list ap, aq;
    va_start(ap, fmt);
    va_copy(aq, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = arena_alloc(a, (size_t)(n < 0 ? 0 : n) + 1);
    if (n > 0) vsnprintf(p, (size_t)n + 1, fmt, aq);
    va_end(aq);
    return p;
}
