/* base/pages: content stays whatever becomes of the pages; memory is taken for what is filled. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/heap.h"
#include "base/pages.h"
#include "test.h"
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define SMALL 4096
enum { LARGE = 3 }; /* large pages; and a half */

static uint8_t expected(size_t i) {
    return (uint8_t)(i * 2654435761u >> 24 | 1);
}

static void fill(pages *p, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) p->data[i] = (char)expected(i);
}

static bool holds(const pages *p, size_t from, size_t to) {
    for (size_t i = 0; i < p->bytes; i++) {
        uint8_t want = i >= from && i < to ? expected(i) : 0;
        if ((uint8_t)p->data[i] != want) return false;
    }
    return true;
}

/* Of the system: how many small pages are there. */
static size_t resident(const pages *p) {
    unsigned char there[(LARGE + 1) * PAGES_LARGE / SMALL];
    size_t n = (p->bytes + SMALL - 1) / SMALL, sum = 0;
    assert_int_equal(mincore(p->data, p->bytes, there), 0);
    for (size_t i = 0; i < n; i++) sum += there[i] & 1;
    return sum;
}

static pages make(void) {
    pages p;
    assert_true(pages_map(&p, LARGE * PAGES_LARGE + PAGES_LARGE / 2));
    assert_int_equal((uintptr_t)p.data % PAGES_LARGE, 0);
    assert_int_equal(p.left, LARGE);
    return p;
}

static void test_small_ones(void **state) {
    (void)state;
    pages p;
    assert_true(pages_map(&p, 10000));
    assert_true(holds(&p, 0, 0));
    fill(&p, 100, 9000);
    assert_true(pages_join(&p, 0));
    assert_true(holds(&p, 100, 9000));
    pages_unmap(&p);
    assert_null(p.data);
    pages_unmap(&p);
    assert_false(pages_map(&p, SIZE_MAX));
    assert_null(p.data);
}

static void test_join_keeps_content(void **state) {
    (void)state;
    pages p = make();
    size_t from = PAGES_LARGE / 8, to = 2 * PAGES_LARGE + PAGES_LARGE / 2;
    fill(&p, from, to);
    assert_true(pages_join(&p, clock_seconds() + 60));
    assert_int_equal(p.left, 0);
    assert_true(holds(&p, from, to));
    fill(&p, to, p.bytes);
    assert_true(holds(&p, from, p.bytes));
    pages_unmap(&p);
}

/* Less than a quarter: no large page. */
static void test_join_waits_for_a_quarter(void **state) {
    (void)state;
    pages p = make();
    fill(&p, 0, PAGES_LARGE / 8);
    assert_true(pages_join(&p, clock_seconds() + 60));
    assert_int_equal(p.left, LARGE);
    assert_true(resident(&p) < PAGES_LARGE / SMALL / 4 + LARGE * 32);
    fill(&p, PAGES_LARGE / 8, PAGES_LARGE / 4);
    assert_true(pages_join(&p, clock_seconds() + 60));
    assert_int_equal(p.left, LARGE - 1);
    assert_true(holds(&p, 0, PAGES_LARGE / 4));
    pages_unmap(&p);
}

/* The same for a cache whose heads lie side by side, each filled from the front: of 2, 4, 8, .. to a page. */
static void test_join_looks_into_every_head(void **state) {
    (void)state;
    for (size_t heads = 2; heads <= 64; heads *= 2) {
        pages p = make();
        size_t part = PAGES_LARGE / heads;
        for (size_t h = 0; h < LARGE * heads; h++) fill(&p, h * part, h * part + part / 8);
        assert_true(pages_join(&p, clock_seconds() + 60));
        assert_int_equal(p.left, LARGE);
        for (size_t h = 0; h < LARGE * heads; h++) fill(&p, h * part, h * part + part * 3 / 8);
        assert_true(pages_join(&p, clock_seconds() + 60));
        assert_int_equal(p.left, 0);
        pages_unmap(&p);
    }
}

/* When there is no time, one at a time. */
static void test_join_stops_in_time(void **state) {
    (void)state;
    pages p = make();
    fill(&p, 0, p.bytes);
    assert_false(pages_join(&p, 0));
    assert_int_equal(p.left, LARGE - 1);
    assert_false(pages_join(&p, 0));
    assert_true(pages_join(&p, 0));
    assert_int_equal(p.left, 0);
    assert_true(holds(&p, 0, p.bytes));
    pages_unmap(&p);
}

static void test_fill(void **state) {
    (void)state;
    pages from = make(), to = make();
    fill(&from, 5000, PAGES_LARGE / 2 + 77); /* the first is full enough, the others are empty */
    pages_fill(&to, from.data, from.bytes - 33);
    assert_int_equal(to.left, LARGE - 1);
    assert_true(resident(&to) <= PAGES_LARGE / SMALL + 1);
    assert_true(holds(&to, 5000, PAGES_LARGE / 2 + 77));
    pages_unmap(&to);
    to = make();
    fill(&from, 0, from.bytes);
    pages_fill(&to, from.data, from.bytes - 33);
    assert_true(holds(&to, 0, to.bytes - 33));
    pages_unmap(&to);
    pages_unmap(&from);
}

static void map(void *ctx) {
    pages p;
    assert_true(pages_map(&p, LARGE * PAGES_LARGE));
    fill(&p, 0, SMALL);
    *(pages *)ctx = p;
}

/* Nobody unmaps them. */
static void test_goes_with_its_heap(void **state) {
    (void)state;
    pages p, q;
    unsigned char there[LARGE * PAGES_LARGE / SMALL];
    heap *h = heap_new(NULL, NULL);
    assert_true(mem_guard(h, map, &p, NULL));
    assert_true(mem_guard(h, map, &q, NULL));
    assert_true(heap_bytes(h) < PAGES_LARGE); /* they don't count */
    pages_unmap(&q);
    assert_true(holds(&p, 0, SMALL));
    heap_drop(h);
    assert_int_equal(mincore(p.data, p.bytes, there), -1); /* not mapped */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_ones),
        cmocka_unit_test(test_join_keeps_content),
        cmocka_unit_test(test_join_waits_for_a_quarter),
        cmocka_unit_test(test_join_looks_into_every_head),
        cmocka_unit_test(test_join_stops_in_time),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_goes_with_its_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
