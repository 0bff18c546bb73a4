/* An allocator for heaps that counts and can run dry; what it gives is filled with 0xA5. */
#ifndef TEST_COUNTED_H
#define TEST_COUNTED_H
#include "test.h"
#include <stdatomic.h>

typedef struct {
    atomic_size_t bytes, most, blocks;
    atomic_long left; /* allocations that succeed; negative: all */
} counted;

static inline void *counted_take(void *ctx, size_t size, size_t align) {
    counted *c = ctx;
    assert_true(align >= 16 && (align & (align - 1)) == 0);
    if (atomic_load(&c->left) >= 0 && atomic_fetch_sub(&c->left, 1) <= 0)
        return atomic_store(&c->left, 0), NULL;
    size_t whole = (size + align - 1) / align * align;
    void *p = aligned_alloc(align, whole);
    if (!p) return NULL;
    memset(p, 0xA5, whole);
    size_t now = atomic_fetch_add(&c->bytes, size) + size, most = atomic_load(&c->most);
    while (now > most && !atomic_compare_exchange_weak(&c->most, &most, now)) continue;
    atomic_fetch_add(&c->blocks, 1);
    return p;
}

static inline void counted_give(void *ctx, void *p, size_t size) {
    counted *c = ctx;
    atomic_fetch_sub(&c->bytes, size);
    atomic_fetch_sub(&c->blocks, 1);
    free(p);
}
#endif
