/* Writing weight.bin. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/map.h"
#include "base/num.h"
#include "coreml/blob.h"
#include "coreml/schema.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Bytes go to the file this many at a time, at multiples of it: the page cache then keeps them in pages of 2
 * MiB (where the file system can), and who maps the file reads it a third faster than in pages of 4 KiB. */
#define PIECE ((size_t)4 << 20)

typedef struct {
    int fd;
    const char *path;
    uint64_t at, written, flushed, told; /* bytes put, in the file, being synced, reported */
    uint8_t *piece;                      /* [PIECE]: what was put behind `written` */
    uint8_t *block;                      /* for fill jobs; NULL until the first one */
    blob_progress_fn *progress;
    void *ctx;
    err *e;
} output;

static bool write_out(output *o, const uint8_t *p, size_t n) {
    o->written += n;
    while (n) {
        ssize_t w = write(o->fd, p, n);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return err_errno(o->e, "%s: can't write", o->path);
        p += w;
        n -= (size_t)w;
    }
    return true;
}

static bool put(output *o, const void *data, size_t n) {
    const uint8_t *p = data;
    while (n) {
        size_t held = (size_t)(o->at - o->written), k = n < PIECE - held ? n : PIECE - held;
        if (k < PIECE) memcpy(o->piece + held, p, k);
        o->at += k, p += k, n -= k;
        if (held + k == PIECE && !write_out(o, k < PIECE ? o->piece : p - k, PIECE)) return false;
    }
    return true;
}

/* Starts writing back what is dirty and waits for what was started before, so that unwritten pages stay few
 * (a hint). */
static void flush_behind(output *o) {
    if (o->written - o->flushed < 4 * BLOB_BLOCK) return;
    if (o->flushed)
        sync_file_range(o->fd, 0, (off_t)o->flushed,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    sync_file_range(o->fd, (off_t)o->flushed, (off_t)(o->written - o->flushed), SYNC_FILE_RANGE_WRITE);
    o->flushed = o->written;
}

static bool step(output *o) {
    uint64_t fresh = o->at - o->told;
    flush_behind(o);
    o->told = o->at;
    if (!o->progress || !fresh || o->progress(o->ctx, fresh)) return true;
    return err_set(o->e, ERR_CANCELLED, "%s: cancelled", o->path);
}

static bool put_mapped(output *o, const ir_const *c, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += BLOB_BLOCK) {
        size_t n = bytes - i < BLOB_BLOCK ? (size_t)(bytes - i) : BLOB_BLOCK;
        const uint8_t *p = (const uint8_t *)c->data + i;
        if (!put(o, p, n) || !step(o)) return false;
        if (c->blob_file) file_drop(p, n); /* mapped: the file still has it */
    }
    return true;
}

static bool put_filled(output *o, const ir_const *c) {
    unsigned bits = dtype_bits(c->type.dtype);
    uint64_t count = (uint64_t)ir_type_count(&c->type), unit = c->fill_unit ? c->fill_unit : 64;
    uint64_t most = (uint64_t)BLOB_BLOCK * 8 / bits / unit * unit;
    if (!o->block && !(o->block = mem_try(BLOB_BLOCK, 1)))
        return err_set(o->e, ERR_MEMORY, "%s: no memory for a block of weights", o->path);
    for (uint64_t i = 0; i < count; i += most) {
        uint64_t n = count - i < most ? count - i : most;
        size_t bytes = (size_t)((n * bits + 7) / 8);
        if (!c->fill(c->fill_ctx, i, n, o->block, o->e)) return false;
        if (!put(o, o->block, bytes) || !step(o)) return false;
    }
    return true;
}

static bool put_record(output *o, const planned *r) {
    static const uint8_t zero[BLOB_ALIGN];
    uint8_t m[BLOB_ALIGN] = {0};
    unsigned bits = dtype_bits(r->konst->type.dtype);
    uint64_t count = (uint64_t)ir_type_count(&r->konst->type);
    num_put32(m, BLOB_SENTINEL);
    num_put32(m + 4, schema_of(r->konst->type.dtype)->blob);
    num_put64(m + 8, r->bytes);
    num_put64(m + 16, r->offset + BLOB_ALIGN);
    num_put64(m + 24, bits < 8 ? r->bytes * 8 - count * bits : 0);
    if (!put(o, zero, (size_t)(r->offset - o->at)) || !put(o, m, sizeof m)) return false;
    return r->konst->data ? put_mapped(o, r->konst, r->bytes) : put_filled(o, r->konst);
}

bool blob_write(const blob_plan *p, const char *path, blob_progress_fn *progress, void *ctx, err *e) {
    output o = {.path = path, .progress = progress, .ctx = ctx, .e = e};
    o.piece = mem_try(PIECE, 1);
    if (!o.piece) return err_set(e, ERR_MEMORY, "%s: no memory for a piece of the file", path);
    o.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (o.fd < 0) {
        mem_free(o.piece);
        return err_errno(e, "%s: can't write", path);
    }
    uint8_t header[BLOB_ALIGN] = {0};
    num_put32(header, (uint32_t)p->n);
    num_put32(header + 4, 2);
    bool ok = put(&o, header, sizeof header);
    for (size_t i = 0; ok && i < p->n; i++) ok = put_record(&o, &p->record[i]);
    ok = ok && write_out(&o, o.piece, (size_t)(o.at - o.written)) && step(&o);
    mem_free(o.block);
    mem_free(o.piece);
    if (close(o.fd) && ok) ok = err_errno(e, "%s: can't write", path);
    return ok;
}
