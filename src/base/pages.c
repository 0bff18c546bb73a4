#define _GNU_SOURCE
#include "base/pages.h"
#include "base/clock.h"
#include "base/heap.h"
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif

enum {
    SMALL = 4096,
    LINE = 64,
    SAMPLES = 32, /* of a large page */
    ENOUGH = 8    /* of them not zero */
};

static void unmap(void *map, size_t n) {
    munmap(map, n);
}

bool pages_map(pages *p, size_t bytes) {
    size_t n = bytes / PAGES_LARGE, room = n ? PAGES_LARGE : 0;
    *p = (pages){0};
    if (!bytes || bytes > SIZE_MAX / 2 || !(p->joined = mem_try(n + 1, sizeof *p->joined))) return false;
    char *at = mmap(NULL, bytes + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return pages_unmap(p), false;
    size_t before = room ? (PAGES_LARGE - (uintptr_t)at % PAGES_LARGE) % PAGES_LARGE : 0;
    *p = (pages){at + before, bytes, p->joined, n, at, bytes + room, NULL};
    p->hold = mem_hold(unmap, at, p->mapped);
    return p->hold || (pages_unmap(p), false);
}

void pages_unmap(pages *p) {
    mem_free(p->hold);
    if (p->map) munmap(p->map, p->mapped);
    mem_free(p->joined);
    *p = (pages){0};
}

/* ---- content ---- */

/* n is a multiple of LINE. */
static bool is_zero(const char *p, size_t n) {
    uint64_t any = 0;
    for (size_t i = 0; i < n && !any; i += LINE)
        for (size_t k = 0; k < LINE; k += sizeof any) {
            uint64_t v;
            memcpy(&v, p + i + k, sizeof v);
            any |= v;
        }
    return !any;
}

/* Where the i-th sample lies in its share of a large page: by the golden ratio, since evenly spaced samples
 * would meet the same place of every head's part of a cache, and all of them are filled from the front. */
static size_t sample_at(uint32_t i) {
    const size_t share = PAGES_LARGE / SAMPLES;
    return i * share + (i * 0x9E3779B9u) / (UINT32_MAX / (share / LINE) + 1) * LINE;
}

static bool full_enough(const char *p) {
    int n = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) n += !is_zero(p + sample_at(i), LINE);
    return n >= ENOUGH;
}

void pages_fill(pages *p, const void *from, size_t n) {
    const char *f = from;
    for (size_t i = 0; i < n; i += SMALL) {
        size_t k = n - i < SMALL ? n - i : SMALL;
        if (i % PAGES_LARGE == 0 && i / PAGES_LARGE < p->bytes / PAGES_LARGE && n - i >= PAGES_LARGE &&
            full_enough(f + i)) {
            madvise(p->data + i, PAGES_LARGE, MADV_HUGEPAGE);
            p->joined[i / PAGES_LARGE] = true;
            p->left--;
        }
        if (k < SMALL || !is_zero(f + i, k)) memcpy(p->data + i, f + i, k);
    }
}

/* ---- large pages ---- */

/* Where the system can't do it at once it is asked to do it by and by. */
static void join(char *p) {
    if (madvise(p, PAGES_LARGE, MADV_COLLAPSE) && errno == EINVAL) madvise(p, PAGES_LARGE, MADV_HUGEPAGE);
}

bool pages_join(pages *p, double until) {
    bool begun = false;
    for (size_t i = 0; p->left && i < p->bytes / PAGES_LARGE; i++) {
        char *at = p->data + i * PAGES_LARGE;
        if (p->joined[i] || !full_enough(at)) continue;
        if (begun && clock_seconds() >= until) return false;
        begun = true;
        join(at);
        p->joined[i] = true;
        p->left--;
    }
    return true;
}
