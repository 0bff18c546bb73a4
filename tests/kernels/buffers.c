#include "buffers.h"
#include "weights.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void *buffers_bytes(buffers *b, size_t size, size_t align) {
    if (b->n == sizeof b->list / sizeof *b->list) abort();
    b->at_end = !b->at_end;
    void *p = guarded(size, align, b->at_end);
    b->list[b->n].p = p, b->list[b->n].size = size, b->list[b->n].align = align;
    b->list[b->n++].at_end = b->at_end;
    return p;
}

float *buffers_floats(buffers *b, int64_t n, double spread) {
    float *p = buffers_bytes(b, (size_t)n * 4, 4);
    for (int64_t i = 0; i < n; i++) p[i] = (float)(random_normal(b->seed) * spread);
    return p;
}

kern_memory buffers_memory(buffers *b, char kind, int64_t n, double spread) {
    if (kind == 'f') return (kern_memory){buffers_floats(b, n, spread), NULL, KERN_F32};
    kern_memory m = {buffers_bytes(b, (size_t)n * 2, 2), NULL, KERN_F16};
    if (kind == 'p') m.rest = buffers_bytes(b, (size_t)n * 2, 2);
    for (int64_t i = 0; i < n; i++) {
        ((uint16_t *)m.value)[i] = half_of(random_normal(b->seed) * spread);
        if (m.rest) m.rest[i] = half_of(random_normal(b->seed) * spread * 0x1p-13);
    }
    return m;
}

void buffers_free(buffers *b) {
    while (b->n-- > 0)
        guarded_free(b->list[b->n].p, b->list[b->n].size, b->list[b->n].align, b->list[b->n].at_end);
    b->n = 0;
}

double memory_at(const kern_memory *m, int64_t i) {
    if (m->type == KERN_F32) return (double)((const float *)m->value)[i];
    return half_at(m->value, i) + (m->rest ? half_at(m->rest, i) : 0);
}

size_t memory_size(const kern_memory *m) {
    return m->type == KERN_F32 ? 4 : 2;
}

int64_t piece_end(int64_t lo, int64_t n, uint64_t *seed) {
    if (!seed) return n;
    int64_t longest = random_bits(seed) % 2 ? n - lo : 1 + (n - lo) / 3;
    return lo + 1 + (int64_t)(random_bits(seed) % (uint64_t)longest);
}
