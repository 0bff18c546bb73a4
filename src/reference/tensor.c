#include "reference/tensor.h"
#include "base/heap.h"
#include "base/num.h"
#include "base/pages.h"
#include <stdatomic.h>
#include <string.h>

#define CELL_ALIGN 64
#define MAPPED     ((size_t)1 << 20) /* from here on zeros are pages that nobody has touched */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packed halves are copied as they lie in the file");

/* Cells of the heap follow at CELL_ALIGN, mapped ones are elsewhere. */
struct ref_buf {
    atomic_uint refs; /* atomic: snapshots and copied states are shared by sessions on several threads */
    bool half;
    int64_t cells;
    ref_cell *cell;
    pages *mapped; /* NULL: of the heap */
};
_Static_assert(sizeof(struct ref_buf) <= CELL_ALIGN, "cells begin behind it");

static ref_buf *no_memory(int64_t cells, err *e) {
    err_set(e, ERR_MEMORY, "no memory for a tensor of %lld elements", (long long)cells);
    return NULL;
}

ref_buf *ref_buf_new(int64_t cells, err *e) {
    if (cells < 0 || cells > INT64_MAX / 8) {
        err_set(e, ERR_LIMIT, "a tensor of too many elements");
        return NULL;
    }
    size_t bytes = ((size_t)cells * 4 + CELL_ALIGN - 1) / CELL_ALIGN * CELL_ALIGN + CELL_ALIGN;
    ref_buf *b = mem_try_aligned(bytes, CELL_ALIGN);
    if (!b) return no_memory(cells, e);
    *b = (ref_buf){.cells = cells, .cell = (ref_cell *)(void *)((char *)b + CELL_ALIGN)};
    atomic_init(&b->refs, 1);
    return b;
}

ref_buf *ref_buf_zeroed(int64_t cells, err *e) {
    size_t bytes = (size_t)cells * 4;
    const heap_hooks *hooks = heap_hooks_of(heap_current()); /* who has some wants to be asked */
    bool map = cells > 0 && cells <= INT64_MAX / 8 && bytes >= MAPPED && !(hooks && hooks->alloc);
    ref_buf *b = ref_buf_new(map ? 0 : cells, e);
    if (b && !map) memset(b->cell, 0, bytes);
    if (!b || !map) return b;
    b->cells = cells;
    b->mapped = mem_try(1, sizeof *b->mapped);
    if (!b->mapped || !pages_map(b->mapped, bytes)) {
        ref_buf_drop(b);
        return no_memory(cells, e);
    }
    b->cell = (ref_cell *)(void *)b->mapped->data;
    return b;
}

void ref_buf_fill(ref_buf *b, const void *from, size_t n) {
    if (b->mapped)
        pages_fill(b->mapped, from, n);
    else
        memcpy(b->cell, from, n);
}

bool ref_buf_join(ref_buf *b, double until) {
    return !b->mapped || pages_join(b->mapped, until);
}

ref_buf *ref_buf_keep(ref_buf *b) {
    if (b) atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void ref_buf_drop(ref_buf *b) {
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
    if (b->mapped) pages_unmap(b->mapped);
    mem_free(b->mapped);
    mem_free(b);
}

bool ref_buf_sole(const ref_buf *b) {
    return b && atomic_load_explicit(&b->refs, memory_order_acquire) == 1;
}

ref_cell *ref_buf_cells(ref_buf *b) {
    return b->cell;
}

int64_t ref_buf_size(const ref_buf *b) {
    return b->cells;
}

bool ref_buf_half(const ref_buf *b) {
    return b->half;
}

void ref_buf_set_half(ref_buf *b, bool half) {
    b->half = half;
}

bool ref_tensor_new(ref_tensor *t, const ir_type *type, err *e) {
    int64_t n = ir_type_count(type);
    *t = (ref_tensor){.type = *type};
    if (!ref_dtype_ok(type->dtype))
        return err_set(e, ERR_UNSUPPORTED, "%s tensors are not supported at run time",
                       dtype_name(type->dtype));
    t->buf = ref_buf_new(n, e);
    if (t->buf) t->cell = ref_buf_cells(t->buf);
    return t->buf != NULL;
}

void ref_tensor_drop(ref_tensor *t) {
    ref_buf_drop(t->buf);
    *t = (ref_tensor){0};
}

bool ref_dtype_ok(ir_dtype d) {
    ir_dclass c = dtype_class(d);
    return c == DTC_BOOL || c == DTC_FLOAT || ((c == DTC_INT || c == DTC_UINT) && dtype_bits(d) <= 32);
}

bool ref_tensor_const(ref_tensor *t, const ir_const *c, err *e) {
    *t = (ref_tensor){.type = c->type, .konst = c};
    if (!c->data && ir_type_count(&c->type) != 0)
        return err_set(e, ERR_UNSUPPORTED, "a constant whose content is not made yet can't be evaluated");
    return true;
}

int32_t ref_wrap_int(ir_dtype d, int32_t v) {
    switch (d) {
    case DT_BOOL: return v != 0;
    case DT_INT4: return num_sign_extend((unsigned)v & 15, 4);
    case DT_INT8: return (int8_t)v;
    case DT_INT16: return (int16_t)v;
    case DT_UINT8: return (uint8_t)v;
    case DT_UINT16: return (uint16_t)v;
    default: return v;
    }
}

static void unpack_small(const uint8_t *data, int64_t first, int64_t n, ir_dtype d, int32_t *out) {
    uint8_t code[256];
    unsigned bits = dtype_bits(d);
    for (int64_t at = 0; at < n; at += 256) {
        size_t k = (size_t)(n - at < 256 ? n - at : 256);
        num_unpack(code, data, (size_t)(first + at), k, bits);
        for (size_t i = 0; i < k; i++)
            out[at + (int64_t)i] = d == DT_INT4 ? num_sign_extend(code[i], 4) : code[i];
    }
}

static void read_floats(ir_dtype d, const uint8_t *p, int64_t n, float *f) {
    switch (d) {
    case DT_FP16:
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, p + 2 * i, 2);
            f[i] = num_f16_f32(h);
        }
        break;
    case DT_BF16: num_bf16_to_f32(f, p, (size_t)n); break;
    case DT_FP32: memcpy(f, p, (size_t)n * 4); break;
    case DT_FP64:
        for (int64_t i = 0; i < n; i++) {
            uint64_t u = num_get64(p + 8 * i);
            double v;
            memcpy(&v, &u, 8);
            f[i] = (float)v;
        }
        break;
    case DT_E4M3:
        for (int64_t i = 0; i < n; i++) f[i] = num_e4m3_f32(p[i]);
        break;
    default:
        for (int64_t i = 0; i < n; i++) f[i] = num_e5m2_f32(p[i]);
        break;
    }
}

static void read_ints(ir_dtype d, const uint8_t *p, int64_t n, int32_t *v) {
    switch (d) {
    case DT_BOOL:
        for (int64_t i = 0; i < n; i++) v[i] = p[i] != 0;
        break;
    case DT_UINT8:
        for (int64_t i = 0; i < n; i++) v[i] = p[i];
        break;
    case DT_INT8:
        for (int64_t i = 0; i < n; i++) v[i] = (int8_t)p[i];
        break;
    case DT_INT16:
        for (int64_t i = 0; i < n; i++) v[i] = (int16_t)num_get16(p + 2 * i);
        break;
    case DT_UINT16:
        for (int64_t i = 0; i < n; i++) v[i] = num_get16(p + 2 * i);
        break;
    default: memcpy(v, p, (size_t)n * 4); break;
    }
}

void ref_read(const ref_tensor *t, int64_t first, int64_t n, void *cells) {
    if (n <= 0) return;
    if (t->cell) {
        memcpy(cells, t->cell + first, (size_t)n * 4);
        return;
    }
    ir_dtype d = t->type.dtype;
    unsigned bits = dtype_bits(d);
    const uint8_t *data = t->konst->data;
    if (bits < 8)
        unpack_small(data, first, n, d, cells);
    else if (dtype_is_float(d))
        read_floats(d, data + first * (bits / 8), n, cells);
    else
        read_ints(d, data + first * (bits / 8), n, cells);
}

static void pack_ints(ir_dtype d, const int32_t *v, int64_t n, uint8_t *p) {
    unsigned bits = dtype_bits(d);
    for (int64_t i = 0; i < n; i++) {
        if (d == DT_BOOL)
            p[i] = v[i] != 0;
        else if (bits == 8)
            p[i] = (uint8_t)v[i];
        else if (bits == 16)
            num_put16(p + 2 * i, (uint16_t)v[i]);
        else
            num_put32(p + 4 * i, (uint32_t)v[i]);
    }
}

void ref_pack(const ref_tensor *t, void *out) {
    int64_t n = ref_count(t);
    ir_dtype d = t->type.dtype;
    uint8_t *p = out;
    const float *f = ref_floats(t);
    switch (d) {
    case DT_FP16: num_f32_to_f16(p, f, (size_t)n); break;
    case DT_FP32: memcpy(p, f, (size_t)n * 4); break;
    case DT_BF16:
        for (int64_t i = 0; i < n; i++) num_put16(p + 2 * i, num_f32_bf16(f[i]));
        break;
    case DT_FP64:
        for (int64_t i = 0; i < n; i++) {
            double v = (double)f[i];
            memcpy(p + 8 * i, &v, 8);
        }
        break;
    default: pack_ints(d, ref_ints(t), n, p); break;
    }
}
