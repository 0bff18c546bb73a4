/* An allocator for heaps that counts and can run dry; what it gives is filled with 0xA5. */
#ifndef TEST_COUNTED_H
#define TEST_COUNTED_H
#include "test.h"
#include <stdatomic.h>

typedef struct {
    atomic_size_t bytes, most, blocks;
    atomic_long left; /* allocations that succeed; negative: all */
} counted;

/* Relaxed, so that the thread sanitizer takes nothing for ordered that only happened to allocate. */
#define COUNTED_ANY memory_order_relaxed

static inline void *counted_take(void *ctx, size_t size, size_t align) {
    counted *c = ctx;
    assert_true(align >= 16 && (align & (align - 1)) == 0);
    if (atomic_load_explicit(&c->left, COUNTED_ANY) >= 0 &&
        atomic_fetch_sub_explicit(&c->left, 1, COUNTED_ANY) <= 0)
        return atomic_store_explicit(&c->left, 0, COUNTED_ANY), NULL;
    size_t whole = (size + align - 1) / align * align;
    void *p = aligned_alloc(align, whole);
    if (!p) return NULL;
    memset(p, 0xA5, whole);
    size_t now = atomic_fetch_add_explicit(&c->bytes, size, COUNTED_ANY) + size,
           most = atomic_load_explicit(&c->most, COUNTED_ANY);
    while (now > most &&
           !atomic_compare_exchange_weak_explicit(&c->most, &most, now, COUNTED_ANY, COUNTED_ANY))
        continue;
    atomic_fetch_add_explicit(&c->blocks, 1, COUNTED_ANY);
    return p;
}

static inline void counted_give(void *ctx, void *p, size_t size) {
    counted *c = ctx;
    atomic_fetch_sub_explicit(&c->bytes, size, COUNTED_ANY);
    atomic_fetch_sub_explicit(&c->blocks, 1, COUNTED_ANY);
    free(p);
}
#endif
