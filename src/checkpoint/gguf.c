#include "checkpoint/gguf.h"
#include "base/file.h"
#include "base/map.h"
#include "base/num.h"
#include "base/str.h"
#include <inttypes.h>
#include <string.h>

enum { MAX_NAME = 1000, MAX_RANK = 4, ALIGNMENT = 32 };

struct gguf {
    arena *a;
    file_map map; /* size 0 when the bytes are borrowed */
    const char *path;
    gguf_value *value;
    gguf_tensor *tensor;
    size_t n_value, n_tensor;
    map *keys, *names;
};

/* The file while it is read. */
typedef struct {
    gguf *g;
    const uint8_t *data;
    size_t at, size;
    err *e;
} reader;

static const uint8_t widths[] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2,  [GGUF_I16] = 2,    [GGUF_U32] = 4,
    [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_STRING] = 0, [GGUF_ARRAY] = 0,
    [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};

/* n bytes of the header; NULL and an error when the file ends before. */
static const uint8_t *take(reader *r, uint64_t n, const char *what) {
    if (n > r->size - r->at) {
        err_set(r->e, ERR_FORMAT, "%s: %s at byte %zu ends behind the file's %zu bytes (truncated?)",
                r->g->path, what, r->at, r->size);
        return NULL;
    }
    const uint8_t *p = r->data + r->at;
    r->at += (size_t)n;
    return p;
}

static bool take32(reader *r, uint32_t *v, const char *what) {
    const uint8_t *p = take(r, 4, what);
    if (p) *v = num_get32(p);
    return p != NULL;
}

static bool take64(reader *r, uint64_t *v, const char *what) {
    const uint8_t *p = take(r, 8, what);
    if (p) *v = num_get64(p);
    return p != NULL;
}

/* A key or a name: short, UTF-8, without NUL. */
static const char *take_name(reader *r, const char *what) {
    uint64_t n;
    size_t from = r->at;
    if (!take64(r, &n, what)) return NULL;
    const char *s = n <= MAX_NAME ? (const char *)take(r, n, what) : "";
    if (!s) return NULL;
    if (n > MAX_NAME || utf8_valid(s, (size_t)n) < n || memchr(s, 0, (size_t)n)) {
        err_set(r->e, ERR_FORMAT, "%s: %s at byte %zu is no text of at most %d bytes", r->g->path, what, from,
                MAX_NAME);
        return NULL;
    }
    return arena_strn(r->g->a, s, (size_t)n);
}

/* --- values --- */

static bool skip_strings(reader *r, const gguf_value *v) {
    for (uint64_t i = 0, n; i < v->n; i++)
        if (!take64(r, &n, v->key) || !take(r, n, v->key)) return false;
    return true;
}

static bool read_value(reader *r, gguf_value *v) {
    uint32_t kind;
    v->n = 1;
    v->key = take_name(r, "a metadata key");
    if (!v->key || !take32(r, &kind, v->key)) return false;
    v->array = kind == GGUF_ARRAY;
    if (v->array && (!take32(r, &kind, v->key) || !take64(r, &v->n, v->key))) return false;
    if (kind == GGUF_ARRAY)
        return err_set(r->e, ERR_UNSUPPORTED, "%s: metadata %s: arrays of arrays are not supported",
                       r->g->path, v->key);
    if (kind > GGUF_F64)
        return err_set(r->e, ERR_FORMAT, "%s: metadata %s: there is no kind of value %" PRIu32, r->g->path,
                       v->key, kind);
    v->kind = (gguf_kind)kind;
    v->data = r->data + r->at;
    if (v->kind == GGUF_STRING) return skip_strings(r, v);
    uint64_t most = (r->size - r->at) / widths[kind];
    return take(r, v->n <= most ? v->n * widths[kind] : UINT64_MAX, v->key) != NULL;
}

static bool read_values(reader *r, uint64_t n) {
    gguf *g = r->g;
    g->value = ARENA_ARRAY(g->a, gguf_value, (size_t)n);
    g->keys = map_new(g->a, (size_t)n);
    for (; g->n_value < n; g->n_value++) {
        gguf_value *v = &g->value[g->n_value];
        if (!read_value(r, v)) return false;
        if (!map_add(g->keys, v->key, strlen(v->key), (uint32_t)g->n_value))
            return err_set(r->e, ERR_FORMAT, "%s: metadata %s stands there twice", g->path, v->key);
    }
    return true;
}

/* --- tensors --- */

static bool read_type(reader *r, gguf_tensor *t) {
    uint32_t id;
    if (!take32(r, &id, t->name)) return false;
    t->form = gguf_type_by_id(id);
    if (!t->form || !t->form->decode)
        return err_set(
            r->e, ERR_UNSUPPORTED,
            "%s: tensor %s is of type %s: expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to "
            "Q6_K, IQ4_NL or IQ4_XS",
            r->g->path, t->name, t->form ? t->form->name : arena_printf(r->g->a, "%" PRIu32, id));
    t->type.dtype = (uint8_t)t->form->plain;
    int64_t row = t->type.rank ? t->type.dim[t->type.rank - 1] : 1;
    return row % t->form->values == 0 ||
           err_set(r->e, ERR_FORMAT, "%s: tensor %s: rows of %" PRId64 " are no whole %s blocks of %d",
                   r->g->path, t->name, row, t->form->name, t->form->values);
}

/* Sizes, slowest axis first, and with them how many bytes the tensor has. */
static bool read_shape(reader *r, gguf_tensor *t, uint64_t *count) {
    uint32_t rank;
    if (!take32(r, &rank, t->name)) return false;
    if (rank > MAX_RANK)
        return err_set(r->e, ERR_FORMAT, "%s: tensor %s: rank %" PRIu32 ", at most %d is possible",
                       r->g->path, t->name, rank, MAX_RANK);
    t->type = ir_scalar(DT_NONE);
    t->type.rank = (uint8_t)rank;
    *count = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t size;
        if (!take64(r, &size, t->name)) return false;
        if (!size || size > (uint64_t)INT64_MAX / 8 / *count)
            return err_set(r->e, ERR_FORMAT, "%s: tensor %s: %" PRIu64 " is no size, or too large a one",
                           r->g->path, t->name, size);
        *count *= size;
        t->type.dim[rank - 1 - i] = (int64_t)size;
    }
    return true;
}

static bool read_tensor(reader *r, gguf_tensor *t, uint64_t *place) {
    uint64_t count = 0;
    t->name = take_name(r, "a tensor name");
    if (!t->name || !read_shape(r, t, &count) || !read_type(r, t) || !take64(r, place, t->name)) return false;
    t->bytes = count / t->form->values * t->form->bytes;
    return true;
}

static bool place_tensors(reader *r, const uint64_t *place) {
    gguf *g = r->g;
    const gguf_value *v = gguf_get(g, "general.alignment");
    int64_t align = ALIGNMENT;
    if (v && (v->array || !gguf_int(v, 0, &align) || align < 1 || align > 1 << 20 || (align & (align - 1))))
        return err_set(r->e, ERR_FORMAT, "%s: general.alignment is no power of two up to %d", g->path,
                       1 << 20);
    size_t begin = (r->at + (size_t)align - 1) & ~((size_t)align - 1);
    uint64_t size = begin < r->size ? r->size - begin : 0;
    for (size_t i = 0; i < g->n_tensor; i++) {
        gguf_tensor *t = &g->tensor[i];
        if (place[i] % (uint64_t)align)
            return err_set(r->e, ERR_FORMAT,
                           "%s: tensor %s: begins at data byte %" PRIu64 ", no multiple of %" PRId64, g->path,
                           t->name, place[i], align);
        if (place[i] > size || t->bytes > size - place[i])
            return err_set(r->e, ERR_FORMAT,
                           "%s: tensor %s: %" PRIu64 " bytes from data byte %" PRIu64
                           " on end behind the %" PRIu64 " data bytes of the file (truncated?)",
                           g->path, t->name, t->bytes, place[i], size);
        t->data = r->data + begin + place[i];
    }
    return true;
}

static bool read_tensors(reader *r, uint64_t n) {
    gguf *g = r->g;
    uint64_t *place = ARENA_ARRAY(g->a, uint64_t, (size_t)n);
    g->tensor = ARENA_ARRAY(g->a, gguf_tensor, (size_t)n);
    g->names = map_new(g->a, (size_t)n);
    for (; g->n_tensor < n; g->n_tensor++) {
        gguf_tensor *t = &g->tensor[g->n_tensor];
        if (!read_tensor(r, t, &place[g->n_tensor])) return false;
        if (!map_add(g->names, t->name, strlen(t->name), (uint32_t)g->n_tensor))
            return err_set(r->e, ERR_FORMAT, "%s: tensor %s stands there twice", g->path, t->name);
    }
    return place_tensors(r, place);
}

/* --- the file --- */

static bool check_version(reader *r) {
    const uint8_t *magic = take(r, 4, "the beginning");
    uint32_t version;
    if (!magic || !take32(r, &version, "the version")) return false;
    if (memcmp(magic, "GGUF", 4)) return err_set(r->e, ERR_FORMAT, "%s: is no GGUF file", r->g->path);
    if (version && !(version & 0xFFFF))
        return err_set(r->e, ERR_UNSUPPORTED, "%s: a big-endian GGUF file: expected a little-endian one",
                       r->g->path);
    return version == 2 || version == 3 ||
           err_set(r->e, ERR_UNSUPPORTED, "%s: GGUF version %" PRIu32 ": expected 2 or 3", r->g->path,
                   version);
}

/* What one value and one tensor take at least. */
enum { LEAST_VALUE = 8 + 4 + 1, LEAST_TENSOR = 8 + 4 + 4 + 8 };

static bool read_file(reader *r) {
    uint64_t tensors, values;
    if (!check_version(r) || !take64(r, &tensors, "the number of tensors") ||
        !take64(r, &values, "the number of metadata values"))
        return false;
    if (values > r->size / LEAST_VALUE || tensors > r->size / LEAST_TENSOR)
        return err_set(r->e, ERR_FORMAT,
                       "%s: %" PRIu64 " tensors and %" PRIu64 " metadata values don't fit in its %zu bytes",
                       r->g->path, tensors, values, r->size);
    return read_values(r, values) && read_tensors(r, tensors);
}

gguf *gguf_open_memory(const char *what, const void *data, size_t n, err *e) {
    arena *a = arena_new();
    gguf *g = ARENA_NEW(a, gguf);
    g->a = a;
    g->path = arena_str(a, what);
    reader r = {g, data, 0, n, e};
    if (read_file(&r)) return g;
    arena_free(a);
    return NULL;
}

gguf *gguf_open(const char *path, err *e) {
    file_map m;
    if (!file_open_map(&m, path, e)) return NULL;
    gguf *g = gguf_open_memory(path, m.data, m.size, e);
    if (g)
        g->map = m;
    else
        file_unmap(&m);
    return g;
}

void gguf_close(gguf *g) {
    if (!g) return;
    if (g->map.size) file_unmap(&g->map);
    arena_free(g->a);
}

const char *gguf_path(const gguf *g) {
    return g->path;
}

size_t gguf_count(const gguf *g) {
    return g->n_tensor;
}

const gguf_tensor *gguf_at(const gguf *g, size_t i) {
    return &g->tensor[i];
}

const gguf_tensor *gguf_find(const gguf *g, const char *name) {
    uint32_t i = map_get(g->names, name, strlen(name));
    return i == MAP_NONE ? NULL : &g->tensor[i];
}

const gguf_value *gguf_get(const gguf *g, const char *key) {
    uint32_t i = map_get(g->keys, key, strlen(key));
    return i == MAP_NONE ? NULL : &g->value[i];
}

bool gguf_int(const gguf_value *v, uint64_t i, int64_t *out) {
    const uint8_t *p = v->data + i * widths[v->kind];
    switch (v->kind) {
    case GGUF_U8: *out = *p; return true;
    case GGUF_I8: *out = (int8_t)*p; return true;
    case GGUF_U16: *out = num_get16(p); return true;
    case GGUF_I16: *out = (int16_t)num_get16(p); return true;
    case GGUF_U32: *out = num_get32(p); return true;
    case GGUF_I32: *out = (int32_t)num_get32(p); return true;
    case GGUF_BOOL: *out = *p != 0; return true;
    case GGUF_U64:
    case GGUF_I64: *out = (int64_t)num_get64(p); return v->kind == GGUF_I64 || *out >= 0;
    default: return false;
    }
}

bool gguf_number(const gguf_value *v, uint64_t i, double *out) {
    int64_t whole;
    const uint8_t *p = v->data + i * widths[v->kind];
    if (v->kind == GGUF_F32) {
        *out = (double)num_bits_f32(num_get32(p));
    } else if (v->kind == GGUF_F64) {
        uint64_t u = num_get64(p);
        memcpy(out, &u, sizeof u);
    } else if (v->kind != GGUF_BOOL && gguf_int(v, i, &whole)) {
        *out = (double)whole;
    } else {
        return false;
    }
    return true;
}

gguf_strings gguf_strings_of(const gguf_value *v) {
    return v && v->kind == GGUF_STRING ? (gguf_strings){v->data, v->n} : (gguf_strings){0};
}

bool gguf_next(gguf_strings *it, const char **s, size_t *n) {
    if (!it->left) return false;
    it->left--;
    *n = (size_t)num_get64(it->at);
    *s = (const char *)it->at + 8;
    it->at += 8 + *n;
    return true;
}

const char *gguf_text(arena *a, const gguf_value *v) {
    const char *s;
    size_t n;
    gguf_strings it = gguf_strings_of(v);
    if (!v || v->array || !gguf_next(&it, &s, &n) || utf8_valid(s, n) < n || memchr(s, 0, n)) return NULL;
    return arena_strn(a, s, n);
}
