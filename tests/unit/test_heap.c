/* Heaps: what they count, what a guard does where there is no memory, who ends when. */
#include "base/arena.h"
#include "base/parallel.h"
#include "counted.h"
#include "test.h"

#ifdef __SANITIZE_THREAD__
extern bool heap_seen; /* heap.c */
#endif

static heap *new_heap(counted *c) {
    *c = (counted){.left = -1};
    heap *h = heap_new(NULL, &(heap_hooks){.alloc = counted_take, .free = counted_give, .ctx = c});
    assert_non_null(h);
    return h;
}

static void in_guard(void *ctx) {
    counted *c = ctx;
    unsigned char *zero = mem_try(100, 3), *z = mem_try(3 << 20, 1), *a = mem_try_aligned(100, 4096);
    for (int i = 0; i < 300; i++) assert_int_equal(zero[i], 0);
    for (int i = 0; i < 3 << 20; i += 100) assert_int_equal(z[i], 0);
    assert_int_equal((uintptr_t)z % 16, 0);
    assert_int_equal((uintptr_t)a % 4096, 0);
    char *s = mem_realloc(NULL, 10);
    strcpy(s, "a text");
    s = mem_realloc(s, 10000);
    assert_string_equal(s, "a text");
    assert_null(mem_try(SIZE_MAX / 2, 3));
    assert_true(c->blocks >= 5);
    size_t with = heap_bytes(heap_current());
    mem_free(z);
    assert_true(heap_bytes(heap_current()) <= with - (3 << 20));
    assert_true(heap_peak(heap_current()) >= with);
    arena *kept = arena_new();
    arena_alloc(kept, 100000);
}

static void a_heap_counts_and_drops(void **state) {
    (void)state;
    counted c;
    heap *h = new_heap(&c);
    assert_true(mem_guard(h, in_guard, &c, NULL));
    assert_null(heap_current());
    assert_true(heap_bytes(h) > 100000);
    heap_drop(h);
    assert_int_equal(c.blocks, 0);
    assert_int_equal(c.bytes, 0);
}

static void many(void *ctx) {
    for (int i = 0; i < 100; i++) mem_alloc(1000);
    *(bool *)ctx = true;
}

/* Wherever the memory ends, fn is left and the heap can be dropped. */
static void no_memory_ends_a_guard(void **state) {
    (void)state;
    for (long n = 1; n < 102; n++) {
        counted c;
        heap *h = new_heap(&c);
        c.left = n;
        bool done = false;
        size_t wanted = 0;
        assert_int_equal(mem_guard(h, many, &done, &wanted), n >= 100);
        assert_int_equal(done, n >= 100);
        if (!done) assert_int_equal(wanted, 1000);
        assert_null(heap_current());
        heap_drop(h);
        assert_int_equal(c.blocks, 0);
    }
}

static void piece(void *ctx, size_t i, unsigned thread) {
    (void)ctx, (void)thread;
    mem_alloc(100 + i);
}

static void loop(void *ctx) {
    (void)ctx;
    parallel_for(200, 4, piece, NULL);
}

static void workers_take_from_the_callers_heap(void **state) {
    (void)state;
    for (long n = 50; n < 250; n += 150) {
        counted c;
        heap *h = new_heap(&c);
        c.left = n;
        assert_int_equal(mem_guard(h, loop, NULL, NULL), n >= 200);
        heap_drop(h);
        assert_int_equal(c.blocks, 0);
    }
}

static int undone;

static void undo(void *what, size_t n) {
    undone += (int)n;
    mem_free(what); /* a hold may free blocks */
}

static void hold(void *ctx) {
    void *p = mem_alloc(10), *q = mem_alloc(10), *held;
    assert_non_null(mem_hold(undo, p, 1));
    held = mem_hold(undo, q, 10);
    mem_free(q); /* undone by hand */
    mem_free(held);
    *(heap **)ctx = heap_new(heap_current(), NULL);
}

static void one_block(void *ctx) {
    *(void **)ctx = mem_alloc(500);
}

/* Holds are undone first, children go with their parents, and a heap that was left goes with its last block.
 */
static void ends(void **state) {
    (void)state;
    counted c;
    heap *h = new_heap(&c), *child;
    assert_true(mem_guard(h, hold, &child, NULL));
    void *p;
    assert_true(mem_guard(child, one_block, &p, NULL));
    assert_true(heap_bytes(child) >= 500);
    assert_true(heap_bytes(h) > heap_bytes(child)); /* counts for its parents too */
    heap_leave(child);
    assert_true(heap_bytes(h) >= 500);
    mem_free(p); /* child is gone */
    assert_true(heap_bytes(h) < 500);
    heap *second = heap_new(h, NULL);
    assert_true(mem_guard(second, one_block, &p, NULL));
    undone = 0;
    heap_drop(h);
    assert_int_equal(undone, 1);
    assert_int_equal(c.blocks, 0);
}

static void line(void *ctx, unsigned level, const char *text) {
    assert_int_equal(level, HEAP_LOG_WARNING);
    strcat(ctx, text);
}

static void say(void *ctx) {
    (void)ctx;
    assert_true(heap_logs());
    heap_log(HEAP_LOG_WARNING, "%d threads", 3);
}

static void the_log_is_the_heaps(void **state) {
    (void)state;
    char text[100] = "";
    heap *h = heap_new(NULL, &(heap_hooks){.log = line, .log_ctx = text}), *child = heap_new(h, NULL);
    heap_log(HEAP_LOG_WARNING, "nobody reads this");
    assert_true(mem_guard(child, say, NULL, NULL));
    assert_string_equal(text, "3 threads");
    heap_drop(h);
}

int main(void) {
#ifdef __SANITIZE_THREAD__
    heap_seen = true;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_heap_counts_and_drops),
        cmocka_unit_test(no_memory_ends_a_guard),
        cmocka_unit_test(workers_take_from_the_callers_heap),
        cmocka_unit_test(ends),
        cmocka_unit_test(the_log_is_the_heaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
