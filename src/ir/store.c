/* Constants into a file, piece by piece. */
#define _GNU_SOURCE
#include "ir/store.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Bytes go to the file this many at a time, at multiples of it: the page cache then keeps them in pages of 2
 * MiB (where the file system can), and who maps the file reads it a third faster than in pages of 4 KiB. */
#define PIECE ((size_t)4 << 20)

static bool write_out(ir_store *s, const uint8_t *p, size_t n) {
    s->written += n;
    if (s->hash) sha256_update(s->hash, p, n);
    while (n) {
        ssize_t w = write(s->fd, p, n);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return err_errno(s->e, "%s: can't write", s->path);
        p += w;
        n -= (size_t)w;
    }
    return true;
}

bool ir_store_put(ir_store *s, const void *data, size_t n) {
    const uint8_t *p = data;
    while (n) {
        size_t held = (size_t)(s->at - s->written), k = n < PIECE - held ? n : PIECE - held;
        if (k < PIECE) memcpy(s->piece + held, p, k);
        s->at += k, p += k, n -= k;
        if (held + k == PIECE && !write_out(s, k < PIECE ? s->piece : p - k, PIECE)) return false;
    }
    return true;
}

/* Starts writing back what is dirty and waits for what was started before, so that unwritten pages stay few
 * (a hint). */
static void flush_behind(ir_store *s) {
    if (s->written - s->flushed < 4 * STORE_BLOCK) return;
    if (s->flushed)
        sync_file_range(s->fd, 0, (off_t)s->flushed,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    sync_file_range(s->fd, (off_t)s->flushed, (off_t)(s->written - s->flushed), SYNC_FILE_RANGE_WRITE);
    s->flushed = s->written;
}

static bool step(ir_store *s) {
    uint64_t fresh = s->at - s->told;
    flush_behind(s);
    s->told = s->at;
    if (!s->progress || !fresh || s->progress(s->ctx, fresh)) return true;
    return err_set(s->e, ERR_CANCELLED, "%s: cancelled", s->path);
}

static bool put_mapped(ir_store *s, const ir_const *c, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += STORE_BLOCK) {
        size_t n = bytes - i < STORE_BLOCK ? (size_t)(bytes - i) : STORE_BLOCK;
        const uint8_t *p = (const uint8_t *)c->data + i;
        if (!ir_store_put(s, p, n) || !step(s)) return false;
        if (c->blob_file) file_drop(p, n); /* mapped: the file still has it */
    }
    return true;
}

static bool put_filled(ir_store *s, const ir_const *c) {
    unsigned bits = dtype_bits(c->type.dtype);
    uint64_t count = (uint64_t)ir_type_count(&c->type), unit = c->fill_unit ? c->fill_unit : 64;
    uint64_t most = (uint64_t)STORE_BLOCK * 8 / bits / unit * unit;
    if (!s->block && !(s->block = mem_try(STORE_BLOCK, 1)))
        return err_set(s->e, ERR_MEMORY, "%s: no memory for a block of weights", s->path);
    for (uint64_t i = 0; i < count; i += most) {
        uint64_t n = count - i < most ? count - i : most;
        size_t bytes = (size_t)((n * bits + 7) / 8);
        if (!c->fill(c->fill_ctx, i, n, s->block, s->e)) return false;
        if (!ir_store_put(s, s->block, bytes) || !step(s)) return false;
    }
    return true;
}

bool ir_store_open(ir_store *s, const char *path, store_progress_fn *progress, void *ctx, err *e) {
    *s = (ir_store){.path = path, .progress = progress, .ctx = ctx, .e = e};
    s->piece = mem_try(PIECE, 1);
    if (!s->piece) return err_set(e, ERR_MEMORY, "%s: no memory for a piece of the file", path);
    s->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (s->fd >= 0) return true;
    mem_free(s->piece);
    return err_errno(e, "%s: can't write", path);
}

bool ir_store_const(ir_store *s, const ir_const *c) {
    return c->data ? put_mapped(s, c, (uint64_t)ir_type_bytes(&c->type)) : put_filled(s, c);
}

bool ir_store_close(ir_store *s, bool keep) {
    keep = keep && write_out(s, s->piece, (size_t)(s->at - s->written)) && step(s);
    mem_free(s->block);
    mem_free(s->piece);
    return (!close(s->fd) || !keep || err_errno(s->e, "%s: can't write", s->path)) && keep;
}
