#define _GNU_SOURCE
#include "coreml/embedding.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/num.h"
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC       "MLTEMBED"
#define HEADER      64
#define BLOCK_BYTES (1 << 20)

struct embedding {
    file_map map;
    embedding_kind kind;
    uint64_t rows, width, row_bytes;
    size_t first; /* byte where the rows begin */
    bool foreign; /* there is no checksum */
    char *path;
};

/* ---- CRC-32, eight bytes a step (tables: crc_table[k][b] is byte b followed by k zero bytes) ---- */

static uint32_t crc_table[8][256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_init(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = b;
        for (int i = 0; i < 8; i++) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
        crc_table[0][b] = c;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            crc_table[k][b] = crc_table[k - 1][b] >> 8 ^ crc_table[0][crc_table[k - 1][b] & 255];
}

/* Continues from crc (0 to begin). */
static uint32_t crc32_add(uint32_t crc, const uint8_t *p, size_t n) {
    pthread_once(&crc_once, crc_init);
    uint32_t(*t)[256] = crc_table, c = ~crc;
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t lo = num_get32(p) ^ c, hi = num_get32(p + 4);
        c = t[7][lo & 255] ^ t[6][lo >> 8 & 255] ^ t[5][lo >> 16 & 255] ^ t[4][lo >> 24] ^ t[3][hi & 255] ^
            t[2][hi >> 8 & 255] ^ t[1][hi >> 16 & 255] ^ t[0][hi >> 24];
    }
    while (n--) c = c >> 8 ^ t[0][(c ^ *p++) & 255];
    return ~c;
}

const char *embedding_kind_name(embedding_kind kind) {
    return kind == EMBEDDING_FP16 ? "fp16" : kind == EMBEDDING_FP32 ? "fp32" : "int8";
}

uint64_t embedding_row_bytes(embedding_kind kind, int64_t width) {
    uint64_t n = (uint64_t)width;
    switch (kind) {
    case EMBEDDING_FP16: return 2 * n;
    case EMBEDDING_FP32: return 4 * n;
    case EMBEDDING_INT8: return n + 2;
    }
    return 0;
}

static bool read_header(embedding *t, const char *path, err *e) {
    const uint8_t *p = t->map.data;
    if (t->map.size < HEADER || memcmp(p, MAGIC, 8))
        return err_set(e, ERR_FORMAT, "%s: not an embedding table (no %s header)", path, MAGIC);
    if (num_get32(p + 8) != 1)
        return err_set(e, ERR_UNSUPPORTED, "%s: table version %" PRIu32 ", expected 1", path,
                       num_get32(p + 8));
    if (num_get32(p + 60) != crc32_add(0, p, 60))
        return err_set(e, ERR_FORMAT, "%s: the header does not match its checksum", path);
    t->kind = (embedding_kind)num_get32(p + 12);
    t->rows = num_get64(p + 16);
    t->width = num_get64(p + 24);
    t->row_bytes = num_get64(p + 32);
    if (!embedding_row_bytes(t->kind, 1))
        return err_set(e, ERR_UNSUPPORTED, "%s: rows of unknown kind %" PRIu32, path, num_get32(p + 12));
    if (!t->rows || !t->width || t->width > INT32_MAX ||
        t->row_bytes != embedding_row_bytes(t->kind, (int64_t)t->width))
        return err_set(e, ERR_FORMAT,
                       "%s: %" PRIu64 " rows of %" PRIu64 " numbers in %" PRIu64 " bytes make no sense", path,
                       t->rows, t->width, t->row_bytes);
    uint64_t size = t->map.size - HEADER;
    if (size % t->row_bytes || size / t->row_bytes != t->rows)
        return err_set(e, ERR_FORMAT,
                       "%s: %" PRIu64 " bytes of rows, expected %" PRIu64 " rows of %" PRIu64 " bytes", path,
                       size, t->rows, t->row_bytes);
    return true;
}

/* ---- tables of others ---- */

/* The rows fill the file from t->first on. */
static bool count_rows(embedding *t, const char *path, err *e) {
    uint64_t size = t->map.size - t->first;
    t->row_bytes = embedding_row_bytes(t->kind, (int64_t)t->width);
    t->rows = size / t->row_bytes;
    return (t->rows && t->rows <= INT32_MAX && size % t->row_bytes == 0) ||
           err_set(e, ERR_FORMAT, "%s: %" PRIu64 " bytes are no rows of %" PRIu64 " numbers (%s)", path, size,
                   t->width, embedding_kind_name(t->kind));
}

/* What follows 'key': in a dictionary as Python prints it. */
static const char *npy_member(const char *text, const char *key) {
    const char *at = strstr(text, key);
    if (!at || at == text || at[-1] != '\'' || strncmp(at + strlen(key), "':", 2) != 0) return NULL;
    at += strlen(key) + 2;
    return at + strspn(at, " ");
}

static bool read_npy(embedding *t, const char *path, err *e) {
    const uint8_t *p = t->map.data;
    size_t wide = t->map.size > 6 && p[6] > 1 ? 4 : 2, at = 8 + wide;
    if (t->map.size < 16 || memcmp(p, "\x93NUMPY", 6) != 0 || p[6] < 1 || p[6] > 3)
        return err_set(e, ERR_FORMAT, "%s: not a NumPy file", path);
    size_t n = wide == 4 ? num_get32(p + 8) : num_get16(p + 8);
    char text[512];
    if (n >= sizeof text || n > t->map.size - at)
        return err_set(e, ERR_FORMAT, "%s: a header of %zu bytes", path, n);
    memcpy(text, p + at, n);
    text[n] = 0;
    t->first = at + n;
    const char *descr = npy_member(text, "descr"), *order = npy_member(text, "fortran_order"),
               *shape = npy_member(text, "shape");
    char *end = NULL;
    unsigned long long rows = shape && *shape == '(' ? strtoull(shape + 1, &end, 10) : 0;
    unsigned long long width = end && *end == ',' ? strtoull(end + 1, &end, 10) : 0;
    bool half = descr && !strncmp(descr, "'<f2'", 5), single = descr && !strncmp(descr, "'<f4'", 5);
    if ((!half && !single) || !order || strncmp(order, "False", 5) != 0 || !rows || !width ||
        width > INT32_MAX || rows > INT32_MAX || !end || *end != ')')
        return err_set(e, ERR_UNSUPPORTED, "%s: expected a matrix of <f2 or <f4 in C order, found %.80s",
                       path, text);
    t->kind = half ? EMBEDDING_FP16 : EMBEDDING_FP32;
    t->width = width;
    if (!count_rows(t, path, e)) return false;
    return t->rows == rows ||
           err_set(e, ERR_FORMAT, "%s: %" PRIu64 " rows, but its header says %llu", path, t->rows, rows);
}

/* read: what the file says. */
static embedding *open_table(const embedding *as, const char *path,
                             bool (*read)(embedding *t, const char *path, err *e), err *e) {
    embedding *t = mem_alloc(sizeof *t);
    *t = *as;
    if (file_open_map(&t->map, path, e)) {
        if (read(t, path, e)) {
            t->path = mem_alloc(strlen(path) + 1);
            strcpy(t->path, path);
            return t;
        }
        file_unmap(&t->map);
    }
    mem_free(t);
    return NULL;
}

embedding *embedding_open(const char *path, err *e) {
    return open_table(&(embedding){.first = HEADER}, path, read_header, e);
}

embedding *embedding_open_raw(const char *path, embedding_kind kind, int64_t width, err *e) {
    const embedding as = {.kind = kind, .width = (uint64_t)width, .foreign = true};
    return open_table(&as, path, count_rows, e);
}

embedding *embedding_open_npy(const char *path, err *e) {
    return open_table(&(embedding){.foreign = true}, path, read_npy, e);
}

void embedding_close(embedding *t) {
    if (!t) return;
    file_unmap(&t->map);
    mem_free(t->path);
    mem_free(t);
}

int64_t embedding_rows(const embedding *t) {
    return (int64_t)t->rows;
}

int64_t embedding_width(const embedding *t) {
    return (int64_t)t->width;
}

embedding_kind embedding_kind_of(const embedding *t) {
    return t->kind;
}

bool embedding_row(const embedding *t, int64_t id, float *out) {
    if (id < 0 || (uint64_t)id >= t->rows) return false;
    const uint8_t *p = t->map.data + t->first + (uint64_t)id * t->row_bytes;
    if (t->kind == EMBEDDING_FP16) {
        num_f16_to_f32(out, p, t->width);
    } else if (t->kind == EMBEDDING_FP32) {
        for (uint64_t i = 0; i < t->width; i++) out[i] = num_bits_f32(num_get32(p + 4 * i));
    } else {
        float scale = num_f16_f32(num_get16(p + t->width));
        for (uint64_t i = 0; i < t->width; i++) out[i] = (float)(int8_t)p[i] * scale;
    }
    return true;
}

bool embedding_verify(const embedding *t, err *e) {
    uint32_t crc = 0;
    if (t->foreign) return true;
    for (size_t at = HEADER, n; at < t->map.size; at += n) {
        n = t->map.size - at < BLOCK_BYTES ? t->map.size - at : BLOCK_BYTES;
        crc = crc32_add(crc, t->map.data + at, n);
    }
    if (crc == num_get32(t->map.data + 40)) return true;
    return err_set(e, ERR_FORMAT, "%s: the rows do not match their checksum", t->path);
}

/* ---- writing ---- */

/* width codes and the scale. False when the numbers have none. */
static bool round_int8(uint8_t *out, const float *in, size_t width) {
    float largest = 0;
    bool finite = true;
    for (size_t i = 0; i < width; i++) {
        finite &= isfinite(in[i]) != 0;
        largest = fmaxf(largest, fabsf(in[i]));
    }
    uint16_t half = num_f32_f16(largest > 0 ? largest / 127 : 1);
    if (num_f16_f32(half) * 127.5f < largest) half++;
    float scale = num_f16_f32(half);
    if (!finite || isinf(scale)) return false;
    for (size_t i = 0; i < width; i++)
        out[i] = (uint8_t)(int8_t)fminf(fmaxf(rintf(in[i] / scale), -127), 127);
    num_put16(out + width, half);
    return true;
}

static bool round_row(embedding_kind kind, uint8_t *out, const float *in, size_t width) {
    bool ok = true;
    if (kind == EMBEDDING_INT8) return round_int8(out, in, width);
    if (kind == EMBEDDING_FP16) {
        num_f32_to_f16(out, in, width);
        for (size_t i = 0; i < width; i++) ok &= fabsf(in[i]) < 65520 || !isfinite(in[i]);
        return ok;
    }
    for (size_t i = 0; i < width; i++) num_put32(out + 4 * i, num_f32_bits(in[i]));
    return ok;
}

static bool write_rows(file_out *o, embedding_kind kind, int64_t rows, int64_t width, embedding_fill *fill,
                       void *ctx, uint32_t *crc, err *e) {
    int64_t block = BLOCK_BYTES / ((int64_t)sizeof(float) * width);
    if (block < 1) block = 1;
    if (block > rows) block = rows;
    size_t row_bytes = (size_t)embedding_row_bytes(kind, width);
    float *f = mem_try((size_t)(block * width), sizeof *f);
    uint8_t *b = mem_try((size_t)block, row_bytes);
    bool ok =
        (f && b) || err_set(e, ERR_MEMORY, "%s: no memory for rows of %" PRId64 " numbers", o->path, width);
    for (int64_t r = 0; ok && r < rows; r += block) {
        int64_t n = rows - r < block ? rows - r : block;
        ok = fill(ctx, r, n, f, e);
        for (int64_t i = 0; ok && i < n; i++)
            ok = round_row(kind, b + (size_t)i * row_bytes, f + i * width, (size_t)width) ||
                 err_set(e, ERR_NUMERIC, "%s: row %" PRId64 " has values that %s can't hold", o->path, r + i,
                         embedding_kind_name(kind));
        if (!ok) break;
        *crc = crc32_add(*crc, b, (size_t)n * row_bytes);
        ok = file_out_write(o, b, (size_t)n * row_bytes, e);
    }
    mem_free(f);
    mem_free(b);
    return ok;
}

bool embedding_write(const char *path, embedding_kind kind, int64_t rows, int64_t width, embedding_fill *fill,
                     void *ctx, err *e) {
    if (!embedding_row_bytes(kind, 1) || rows < 1 || width < 1 || width > INT32_MAX ||
        rows > INT64_MAX / 8 / width)
        return err_set(e, ERR_USAGE, "%s: can't write a table of %" PRId64 " rows of %" PRId64 " numbers",
                       path, rows, width);
    file_out o;
    if (!file_out_begin(&o, path, e)) return false;
    uint8_t h[HEADER] = MAGIC;
    uint32_t crc = 0;
    bool ok = file_out_write(&o, h, HEADER, e) && write_rows(&o, kind, rows, width, fill, ctx, &crc, e);
    num_put32(h + 8, 1);
    num_put32(h + 12, kind);
    num_put64(h + 16, (uint64_t)rows);
    num_put64(h + 24, (uint64_t)width);
    num_put64(h + 32, embedding_row_bytes(kind, width));
    num_put32(h + 40, crc);
    num_put32(h + 60, crc32_add(0, h, 60));
    if (ok && pwrite(o.fd, h, HEADER, 0) != HEADER) ok = err_errno(e, "%s: can't write", path);
    return file_out_end(&o, ok, e);
}
