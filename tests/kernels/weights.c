#define _GNU_SOURCE
#include "weights.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096

static size_t pages(size_t n) {
    return (n + PAGE - 1) / PAGE * PAGE;
}

bool guards = true;

void *guarded(size_t n, size_t align, bool at_end) {
    char *p = mmap(NULL, pages(n) + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    if (guards) mprotect(p, PAGE, PROT_NONE), mprotect(p + PAGE + pages(n), PAGE, PROT_NONE);
    return p + PAGE + (at_end ? (pages(n) - n) / align * align : 0);
}

void guarded_free(void *p, size_t n, size_t align, bool at_end) {
    if (p) munmap((char *)p - (at_end ? (pages(n) - n) / align * align : 0) - PAGE, pages(n) + 2 * PAGE);
}

uint64_t random_bits(uint64_t *seed) { /* splitmix64 */
    uint64_t z = *seed += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

double random_normal(uint64_t *seed) {
    double u = ((double)(random_bits(seed) >> 11) + 1) * 0x1p-53,
           v = (double)(random_bits(seed) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static size_t size_of(kern_type type, int64_t n) {
    switch (type) {
    case KERN_F32: return (size_t)n * 4;
    case KERN_F16: return (size_t)n * 2;
    case KERN_I8:
    case KERN_U8: return (size_t)n;
    default: return (size_t)(n + 1) / 2;
    }
}

static size_t align_of(kern_type type) {
    return type == KERN_F32 ? 4 : type == KERN_F16 ? 2 : 1;
}

/* A normal number of fp16 near v, truncated: the tests need some fp16 values, not rounding. */
uint16_t half_of(double v) {
    int e;
    double m = frexp(fabs(v), &e);
    if (e < -13 || v == 0) return 0;
    return (uint16_t)((v < 0) << 15 | (e + 14) << 10 | ((int)(m * 2048) & 1023));
}

double half_at(const void *p, int64_t i) {
    uint16_t h;
    memcpy(&h, (const char *)p + 2 * i, 2);
    int e = h >> 10 & 31, m = h & 1023;
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 ? -v : v;
}

static double value_at(const void *p, kern_type type, int64_t i) {
    float f;
    switch (type) {
    case KERN_F32: memcpy(&f, (const char *)p + 4 * i, 4); return (double)f;
    case KERN_F16: return half_at(p, i);
    case KERN_I8: return ((const signed char *)p)[i];
    case KERN_U8: return ((const unsigned char *)p)[i];
    default: break;
    }
    int k = ((const unsigned char *)p)[i / 2] >> (i % 2 ? 4 : 0) & 15;
    return type == KERN_I4 && k > 7 ? k - 16 : k;
}

static void *values(kern_type type, int64_t n, double centre, double spread, uint64_t *seed, size_t *size,
                    bool at_end) {
    *size = size_of(type, n);
    unsigned char *p = guarded(*size, align_of(type), at_end);
    for (int64_t i = 0; i < n; i++) {
        double v = centre + spread * random_normal(seed);
        float f = (float)v;
        uint16_t h = half_of(v);
        if (type == KERN_F32)
            memcpy(p + 4 * i, &f, 4);
        else if (type == KERN_F16)
            memcpy(p + 2 * i, &h, 2);
        else if (i < (int64_t)*size)
            p[i] = (unsigned char)random_bits(seed);
    }
    return p;
}

void weight_make(test_weight *t, const weight_case *c, uint64_t *seed, bool at_end) {
    int64_t br = c->block_rows ? c->block_rows : c->rows, bc = c->block_cols ? c->block_cols : c->cols;
    int64_t n = c->rows * c->cols, blocks = c->rows / br * (c->cols / bc);
    *t = (test_weight){
        .w = {.rows = c->rows, .cols = c->cols, .block_rows = br, .block_cols = bc, .type = c->type}};
    if (c->bits) {
        int64_t bytes = (n * c->bits + 7) / 8;
        t->data = values(KERN_U8, bytes, 0, 0, seed, &t->data_size, at_end);
        t->table = values(c->type, blocks << c->bits, 0, 0.05, seed, &t->table_size, at_end);
        t->w.bits = c->bits, t->w.table_type = c->type;
    } else
        t->data = values(c->type, n, 0, 0.05, seed, &t->data_size, at_end);
    if (c->scale) t->scale = values(c->scale_type, blocks, 0.002, 0.0005, seed, &t->scale_size, at_end);
    if (c->offset) t->offset = values(c->offset_type, blocks, 3, 20, seed, &t->offset_size, at_end);
    t->w.scale_type = c->scale_type, t->w.offset_type = c->offset_type;
    t->w.data = t->data, t->w.scale = t->scale, t->w.offset = t->offset, t->w.table = t->table;
}

void weight_free(test_weight *t, bool at_end) {
    guarded_free(t->data, t->data_size, t->w.bits ? 1 : align_of(t->w.type), at_end);
    guarded_free(t->table, t->table_size, align_of(t->w.table_type), at_end);
    guarded_free(t->scale, t->scale_size, align_of(t->w.scale_type), at_end);
    guarded_free(t->offset, t->offset_size, align_of(t->w.offset_type), at_end);
}

double weight_at(const kern_weight *w, int64_t r, int64_t c) {
    int64_t i = r * w->cols + c, block = r / w->block_rows * (w->cols / w->block_cols) + c / w->block_cols;
    if (w->bits) {
        int64_t code = 0;
        for (unsigned b = 0; b < w->bits; b++) {
            uint64_t bit = (uint64_t)i * w->bits + b;
            code |= (int64_t)(((const unsigned char *)w->data)[bit / 8] >> (bit % 8) & 1) << b;
        }
        return value_at(w->table, w->table_type, block * (1 << w->bits) + code);
    }
    double v = value_at(w->data, w->type, i);
    if (w->offset) v -= value_at(w->offset, w->offset_type, block);
    if (w->scale) v *= value_at(w->scale, w->scale_type, block);
    if (!w->rounded || v == 0) return v;
    int exponent = ilogb(v); /* fp16: 10 bits behind the first one, none below 2^-24 */
    double step = ldexp(1, (exponent < -14 ? -14 : exponent) - 10);
    return nearbyint(v / step) * step;
}
