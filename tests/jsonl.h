/* Test files with one JSON object a line. */
#ifndef JSONL_H
#define JSONL_H
#include "base/file.h"
#include "base/json.h"
#include "test.h"

/* Calls row(o, ctx) for each line of the file; returns how many. */
static inline size_t jsonl_each(const char *path, void (*row)(const json *o, void *ctx), void *ctx) {
    file_map m;
    err e = {0};
    size_t count = 0;
    assert_true(file_open_map(&m, path, &e));
    arena *a = arena_new();
    for (const char *p = (const char *)m.data, *end = p + m.size; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t n = stop ? (size_t)(stop - p) : (size_t)(end - p);
        const json *o = n ? json_parse(a, path, p, n, &e) : NULL;
        if (n && !o) fail_msg("%s", e.msg);
        if (o) row(o, ctx), count++;
        arena_reset(a);
        p += n + 1;
    }
    arena_free(a);
    file_unmap(&m);
    return count;
}
#endif
