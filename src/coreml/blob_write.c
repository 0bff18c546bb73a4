/* Writing weight.bin. */
#include "base/map.h"
#include "base/num.h"
#include "coreml/blob.h"
#include "coreml/schema.h"
#include <string.h>

typedef struct {
    const ir_const *konst;
    uint64_t offset, bytes;
} planned;

struct blob_plan {
    arena *a;
    const char *name;
    map *index; /* what the bytes are -> record */
    planned *record;
    size_t n, cap;
    uint64_t size;
};

blob_plan *blob_plan_new(arena *a, const char *file_name) {
    blob_plan *p = ARENA_NEW(a, blob_plan);
    p->a = a;
    p->name = arena_str(a, file_name);
    p->index = map_new(a, 64);
    return p;
}

const char *blob_plan_name(const blob_plan *p) {
    return p->name;
}

uint64_t blob_plan_size(const blob_plan *p) {
    return p->n ? p->size : 0;
}

/* What tells whether two constants have the same bytes. */
typedef struct {
    uint64_t what, where, bytes, dtype;
} identity;

static identity identify(const ir_const *c) {
    identity id = {(uintptr_t)c, 0, 0, c->type.dtype};
    if (c->blob_file && c->data)
        id = (identity){(uintptr_t)c->data, 1, c->bytes, c->type.dtype};
    else if (c->blob_file)
        id = (identity){hash_bytes(c->blob_file, strlen(c->blob_file), 0), c->blob_offset + 2, c->bytes,
                        c->type.dtype};
    return id;
}

bool blob_plan_add(blob_plan *p, const ir_const *c, err *e) {
    identity id = identify(c);
    if (map_get(p->index, (const char *)&id, sizeof id) != MAP_NONE) return true;
    int64_t bytes = c->type.kind == IR_TENSOR ? ir_type_bytes(&c->type) : -1;
    if (bytes < 0 || !schema_of(c->type.dtype)->blob)
        return err_set(e, ERR_INVALID, "a constant of %s can't be in a weight file",
                       ir_type_text(p->a, &c->type));
    if (p->n == UINT32_MAX - 1 || p->size > INT64_MAX - 4096 - (uint64_t)bytes)
        return err_set(e, ERR_LIMIT, "%s: too large for a weight file", p->name);
    uint64_t at = p->n ? (p->size + BLOB_ALIGN - 1) / BLOB_ALIGN * BLOB_ALIGN : BLOB_ALIGN;
    p->record = arena_grow(p->a, p->record, p->n, &p->cap, p->n + 1, sizeof *p->record);
    p->record[p->n] = (planned){c, at, (uint64_t)bytes};
    p->size = at + BLOB_ALIGN + (uint64_t)bytes;
    return map_add(p->index, arena_copy(p->a, &id, sizeof id), sizeof id, (uint32_t)p->n++);
}

uint64_t blob_plan_offset(const blob_plan *p, const ir_const *c) {
    identity id = identify(c);
    return p->record[map_get(p->index, (const char *)&id, sizeof id)].offset;
}

static bool put_record(ir_store *o, const planned *r) {
    static const uint8_t zero[BLOB_ALIGN];
    uint8_t m[BLOB_ALIGN] = {0};
    unsigned bits = dtype_bits(r->konst->type.dtype);
    uint64_t count = (uint64_t)ir_type_count(&r->konst->type);
    num_put32(m, BLOB_SENTINEL);
    num_put32(m + 4, schema_of(r->konst->type.dtype)->blob);
    num_put64(m + 8, r->bytes);
    num_put64(m + 16, r->offset + BLOB_ALIGN);
    num_put64(m + 24, bits < 8 ? r->bytes * 8 - count * bits : 0);
    return ir_store_put(o, zero, (size_t)(r->offset - o->at)) && ir_store_put(o, m, sizeof m) &&
           ir_store_const(o, r->konst);
}

bool blob_write(const blob_plan *p, const char *path, store_progress_fn *progress, void *ctx, err *e) {
    ir_store o;
    if (!ir_store_open(&o, path, progress, ctx, e)) return false;
    uint8_t header[BLOB_ALIGN] = {0};
    num_put32(header, (uint32_t)p->n);
    num_put32(header + 4, 2);
    bool ok = ir_store_put(&o, header, sizeof header);
    for (size_t i = 0; ok && i < p->n; i++) ok = put_record(&o, &p->record[i]);
    return ir_store_close(&o, ok);
}
