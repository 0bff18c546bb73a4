/* Where a decoder stands, on disk. All numbers little-endian:
 *
 *     header (below)
 *     note          [n_note]
 *     ids           [n_ids] int32
 *     cuts          [n_ids] a call ended behind it
 *     caches        by state: outer times [n_ids][row]
 *     other states  by state: all bytes
 *     points        n_point times: uint64 n (ascending, below n_ids), then the other states there
 *     SHA-256 of all before, 64 hexadecimal digits
 *
 * Which states there are follows from the artifact, whose identity must be the one in the header. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/sha256.h"
#include "generate/prefix_parts.h"
#include "ir/print.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC      "mlprefix"
#define VERSION    1
#define MAX_POINTS 8
#define SAMPLES    16
#define SAMPLE     64

typedef struct {
    char magic[8];
    uint32_t version, n_point;
    uint64_t size; /* of the file */
    uint64_t n_note, n_ids;
    char identity[SHA256_HEX - 1];
} header;
_Static_assert(sizeof(header) == 104, "as on disk");

/* ---- identity ---- */

/* Evenly spaced bytes. */
static void sample(sha256 *h, const void *data, size_t n) {
    if (n <= (size_t)SAMPLES * SAMPLE) {
        sha256_update(h, data, n);
        return;
    }
    for (size_t i = 0; i < SAMPLES; i++)
        sha256_update(h, (const char *)data + (n - SAMPLE) / (SAMPLES - 1) * i, SAMPLE);
}

static void add_constants(sha256 *h, const ir_block *b) {
    for (size_t i = 0; i < b->n_op; i++) {
        const ir_op *op = b->op[i];
        for (uint32_t k = 0; k < op->n_out; k++) {
            const ir_const *c = op->out[k]->konst;
            if (c && c->data && c->type.dtype != DT_STRING) sample(h, c->data, c->bytes);
        }
        for (int s = 0; s < ir_info(op->code)->n_slot; s++)
            for (uint32_t k = 0; k < op->arg[s].n; k++) {
                const ir_const *c = op->arg[s].v[k]->konst;
                if (c && c->blob_file && c->data && c->type.dtype != DT_STRING) sample(h, c->data, c->bytes);
            }
        for (uint32_t k = 0; k < op->n_block; k++) add_constants(h, op->block[k]);
    }
}

static bool add_table(sha256 *h, const lm *m, err *e) {
    file_map f;
    if (!m->table_path) return true;
    if (!file_open_map(&f, m->table_path, e)) return false;
    uint64_t size = f.size;
    sha256_update(h, &size, sizeof size);
    sample(h, f.data, f.size);
    file_unmap(&f);
    return true;
}

bool prefix_identity(const lm *m, char *hex, err *e) {
    sha256 h;
    sha256_init(&h);
    sha256_update(&h, m->form.d->name, strlen(m->form.d->name) + 1);
    for (size_t i = 0; i < m->n_model; i++) {
        const ir_program *p = rt_model_coreml(m->model[i])->program;
        for (size_t k = 0; p && k < p->n_func; k++) {
            str text = {0};
            ir_print_function(&text, p->func[k]);
            sha256_update(&h, str_get(&text), text.len + 1);
            str_free(&text);
            add_constants(&h, &p->func[k]->body);
        }
    }
    if (!add_table(&h, m, e)) return false;
    sha256_final(&h, hex);
    return true;
}

/* ---- writing ---- */

typedef struct {
    file_out f;
    sha256 h;
    bool ok;
    err *e;
} output;

static void put(output *o, const void *data, size_t n) {
    if (!o->ok) return;
    sha256_update(&o->h, data, n);
    o->ok = file_out_write(&o->f, data, n, o->e);
}

static size_t others_size(const prefix_cache *c) {
    size_t n = 0;
    for (size_t i = c->n_cache; i < c->n_state; i++) n += c->state[i].bytes;
    return n;
}

/* Bytes of a file with so much in it; false: more than there can be. */
static bool size_of(const prefix_cache *c, const header *h, uint64_t *size) {
    uint64_t each = sizeof(int32_t) + 1, all, points;
    for (size_t i = 0; i < c->n_cache; i++) each += c->state[i].outer * c->state[i].row;
    if (h->n_point > MAX_POINTS || h->n_note > INT64_MAX / 4) return false;
    points = h->n_point * (sizeof(uint64_t) + others_size(c));
    if (__builtin_mul_overflow(each, h->n_ids, &all) || all > INT64_MAX / 4) return false;
    *size = sizeof *h + h->n_note + all + others_size(c) + points + SHA256_HEX - 1;
    return true;
}

/* The last points that lie in d before where it stands, ascending. */
static size_t points_in(const prefix_cache *c, const decoder *d, const prefix_point **p) {
    size_t n = 0;
    for (size_t most = (size_t)decoder_position(d); n < MAX_POINTS; n++) {
        const prefix_point *last = NULL;
        for (size_t i = 0; i < c->n_point; i++) {
            const prefix_point *x = c->point[i];
            bool here = !x->rows && x->home == d && x->serial == decoder_serial(d);
            if (here && x->n < most && (!last || x->n > last->n)) last = x;
        }
        if (!last) break;
        memmove(p + 1, p, n * sizeof *p);
        p[0] = last;
        most = last->n;
    }
    return n;
}

static void put_states(output *o, const prefix_cache *c, decoder *d, size_t n) {
    for (size_t i = 0; o->ok && i < c->n_state; i++) {
        const prefix_state *s = &c->state[i];
        const char *data = prefix_memory(c, d, i, false, o->e);
        o->ok = data;
        for (size_t k = 0; o->ok && s->row && k < s->outer; k++)
            put(o, data + k * s->positions * s->row, n * s->row);
        if (o->ok && !s->row) put(o, data, s->bytes);
    }
}

/* What would be replaced: nothing, a file that was saved so, or no file at all (a pipe, a device). */
static bool may_replace(const char *path, err *e) {
    struct stat st;
    char magic[sizeof((header *)0)->magic];
    if (stat(path, &st) || !S_ISREG(st.st_mode) || !st.st_size) return true;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ours = fd >= 0 && read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
                !memcmp(magic, MAGIC, sizeof magic);
    if (fd >= 0) close(fd);
    return ours ||
           err_set(e, ERR_USAGE, "%s: exists, and is no saved conversation; it is not overwritten", path);
}

bool prefix_save(prefix_cache *c, decoder *d, const char *path, const void *note, size_t n_note, err *e) {
    const prefix_point *p[MAX_POINTS + 1];
    size_t n = (size_t)decoder_position(d);
    char hex[SHA256_HEX];
    if (!decoder_intact(d))
        return err_set(e, ERR_USAGE, "%s: the states are of no use, nothing is saved", path);
    header h = {.version = VERSION, .n_note = n_note, .n_ids = n, .n_point = (uint32_t)points_in(c, d, p)};
    if (!may_replace(path, e) || !prefix_identity(c->m, hex, e)) return false;
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.identity, hex, sizeof h.identity);
    if (!size_of(c, &h, &h.size)) return err_set(e, ERR_LIMIT, "%s: too large", path);
    output o = {.e = e};
    sha256_init(&o.h);
    o.ok = file_out_begin(&o.f, path, e);
    if (!o.ok) return false;
    put(&o, &h, sizeof h);
    if (n_note) put(&o, note, n_note);
    if (n) put(&o, decoder_fed(d), n * sizeof(int32_t));
    if (n) put(&o, decoder_cuts(d), n);
    put_states(&o, c, d, n);
    for (size_t k = 0; k < h.n_point; k++) {
        uint64_t at = p[k]->n;
        put(&o, &at, sizeof at);
        for (size_t i = c->n_cache; i < c->n_state; i++)
            put(&o, p[k]->data[i - c->n_cache], c->state[i].bytes);
    }
    sha256_final(&o.h, hex);
    o.ok = o.ok && file_out_write(&o.f, hex, SHA256_HEX - 1, e);
    return file_out_end(&o.f, o.ok, e);
}

/* ---- reading ---- */

/* What can be checked without the artifact. */
static bool check_file(const char *path, const file_map *f, header *h, err *e) {
    if (f->size < sizeof *h || memcmp(f->data, MAGIC, sizeof h->magic))
        return err_set(e, ERR_FORMAT, "%s: not a saved conversation of millet", path);
    memcpy(h, f->data, sizeof *h);
    if (h->version != VERSION)
        return err_set(e, ERR_UNSUPPORTED, "%s: format version %" PRIu32 ", expected %d", path, h->version,
                       VERSION);
    if (h->size != f->size || f->size < sizeof *h + SHA256_HEX - 1 ||
        h->n_note > f->size - sizeof *h - (SHA256_HEX - 1))
        return err_set(e, ERR_FORMAT, "%s: %zu bytes, expected %" PRIu64 ": the file is cut short or damaged",
                       path, f->size, h->size);
    sha256 sum;
    char hex[SHA256_HEX];
    sha256_init(&sum);
    sha256_update(&sum, f->data, f->size - (SHA256_HEX - 1));
    sha256_final(&sum, hex);
    if (memcmp(hex, f->data + f->size - (SHA256_HEX - 1), SHA256_HEX - 1))
        return err_set(e, ERR_FORMAT, "%s: its checksum is wrong: the file is damaged", path);
    return true;
}

bool prefix_read_note(const char *path, str *note, err *e) {
    file_map f;
    header h;
    if (!file_open_map(&f, path, e)) return false;
    bool ok = check_file(path, &f, &h, e);
    if (ok && h.n_note) str_add(note, f.data + sizeof h, (size_t)h.n_note);
    file_unmap(&f);
    return ok;
}

/* A file whose parts have been found. */
typedef struct {
    const char *path;
    header h;
    const int32_t *ids; /* copies: they are not aligned in the file */
    const uint8_t *cut, *caches, *others, *points;
} input;

static bool check_ids(const input *in, const lm *m, err *e) {
    for (size_t i = 0; i < in->h.n_ids; i++)
        if (in->ids[i] < 0 || (m->vocab && in->ids[i] >= m->vocab) || in->cut[i] > 1)
            return err_set(e, ERR_FORMAT, "%s: token %zu is %d, which the vocabulary does not have", in->path,
                           i, in->ids[i]);
    return true;
}

static bool check_points(const input *in, const prefix_cache *c, err *e) {
    uint64_t before = 0, n;
    for (size_t k = 0; k < in->h.n_point; k++, before = n) {
        memcpy(&n, in->points + k * (sizeof n + others_size(c)), sizeof n);
        if (n <= before || n >= in->h.n_ids)
            return err_set(e, ERR_FORMAT, "%s: point %zu stands at %" PRIu64 " of %" PRIu64 " tokens",
                           in->path, k, n, in->h.n_ids);
    }
    return true;
}

static bool find_parts(input *in, const prefix_cache *c, const file_map *f, int32_t **ids, err *e) {
    char hex[SHA256_HEX];
    uint64_t size;
    header *h = &in->h;
    if (!check_file(in->path, f, h, e) || !prefix_identity(c->m, hex, e)) return false;
    if (memcmp(hex, h->identity, sizeof h->identity))
        return err_set(e, ERR_INVALID, "%s: was saved with another artifact", in->path);
    if (!size_of(c, h, &size) || size != h->size || (int64_t)h->n_ids > c->m->form.context)
        return err_set(e, ERR_FORMAT, "%s: its sizes are not those of this artifact's states", in->path);
    const uint8_t *p = f->data + sizeof *h + h->n_note;
    *ids = mem_try(h->n_ids + 1, sizeof **ids);
    if (!*ids) return err_set(e, ERR_MEMORY, "no memory for %" PRIu64 " tokens", h->n_ids);
    memcpy(*ids, p, h->n_ids * sizeof **ids);
    in->ids = *ids;
    in->cut = p + h->n_ids * sizeof **ids;
    in->caches = in->cut + h->n_ids;
    in->others = in->caches;
    for (size_t i = 0; i < c->n_cache; i++) in->others += c->state[i].outer * c->state[i].row * h->n_ids;
    in->points = in->others + others_size(c);
    return check_ids(in, c->m, e) && check_points(in, c, e);
}

static char **pointers(const uint8_t *p, const prefix_cache *c, size_t from, size_t to, size_t n) {
    char **data = mem_alloc((to - from + 1) * sizeof *data);
    for (size_t i = from; i < to; i++) {
        data[i - from] = (char *)(uintptr_t)p;
        p += c->state[i].row ? c->state[i].outer * c->state[i].row * n : c->state[i].bytes;
    }
    return data;
}

static bool put_in(const input *in, prefix_cache *c, decoder *d, err *e) {
    size_t n = (size_t)in->h.n_ids;
    char **rows = pointers(in->caches, c, 0, c->n_cache, n);
    char **others = pointers(in->others, c, c->n_cache, c->n_state, n);
    const prefix_rows r = {.n = n, .data = rows};
    prefix_leave(c, d);
    decoder_restart(d);
    bool ok = prefix_rows_put(c, d, &r, n, e) && prefix_others_put(c, d, others, e) &&
              decoder_stand(d, in->ids, in->cut, n, (int64_t)n, e);
    if (!ok) decoder_restart(d);
    mem_free(rows);
    mem_free(others);
    return ok;
}

/* A point of the file, as one that lies in d. Without memory it is left out. */
static void adopt(const input *in, prefix_cache *c, decoder *d, size_t k) {
    const uint8_t *from = in->points + k * (sizeof(uint64_t) + others_size(c));
    size_t n_others = c->n_state - c->n_cache;
    uint64_t n;
    memcpy(&n, from, sizeof n);
    from += sizeof n;
    prefix_point *p = mem_try(1, sizeof *p);
    if (!p) return;
    *p = (prefix_point){.n = (size_t)n, .home = d, .serial = decoder_serial(d)};
    p->bytes = sizeof *p + p->n * sizeof *p->ids + others_size(c);
    p->ids = mem_try(p->n, sizeof *p->ids);
    p->data = mem_try(n_others + 1, sizeof *p->data);
    bool ok = p->ids && p->data;
    for (size_t i = 0; ok && i < n_others; i++) {
        size_t bytes = c->state[c->n_cache + i].bytes;
        if (!(ok = (p->data[i] = mem_try(bytes + 1, 1)))) break;
        memcpy(p->data[i], from, bytes);
        from += bytes;
    }
    if (ok) memcpy(p->ids, in->ids, p->n * sizeof *p->ids);
    if (ok)
        prefix_adopt(c, p);
    else
        prefix_point_free(c, p);
}

bool prefix_load(prefix_cache *c, decoder *d, const char *path, str *note, err *e) {
    file_map f;
    int32_t *ids = NULL;
    input in = {.path = path};
    if (!file_open_map(&f, path, e)) return false;
    bool ok = find_parts(&in, c, &f, &ids, e) && put_in(&in, c, d, e);
    for (size_t k = 0; ok && k < in.h.n_point; k++) adopt(&in, c, d, k);
    if (ok && in.h.n_note) str_add(note, f.data + sizeof in.h, (size_t)in.h.n_note);
    mem_free(ids);
    file_unmap(&f);
    return ok;
}
