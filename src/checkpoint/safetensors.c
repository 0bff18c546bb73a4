#include "checkpoint/safetensors.h"
#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "base/str.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A file is u64 N (little-endian), N bytes of JSON header, then the data, which the tensors cover exactly:
 *   {"__metadata__": {"k": "v"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]},
 * ...} */
#define HEADER_LIMIT 100000000u /* as the safetensors library */

static const struct {
    const char *name;
    ir_dtype dtype;
} dtypes[] = {
    {"F32", DT_FP32},   {"F16", DT_FP16},   {"BF16", DT_BF16}, {"F64", DT_FP64},     {"I64", DT_INT64},
    {"I32", DT_INT32},  {"I16", DT_INT16},  {"I8", DT_INT8},   {"U8", DT_UINT8},     {"U16", DT_UINT16},
    {"U32", DT_UINT32}, {"U64", DT_UINT64}, {"BOOL", DT_BOOL}, {"F8_E4M3", DT_E4M3}, {"F8_E5M2", DT_E5M2},
};
#define N_DTYPES (sizeof dtypes / sizeof *dtypes)

struct st_file {
    arena *a;
    file_map map; /* size 0 when the bytes are borrowed */
    st_tensor *tensor;
    size_t n;
    map *names;
    const json *metadata;
};

/* A tensor while the header is read. */
typedef struct {
    st_tensor t;
    uint64_t begin, end;
} entry;

static int by_place(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->t.name, y->t.name);
}

static bool read_shape(ir_type *t, const json *j, const char *file, err *e) {
    const json *dtype = json_get_kind(j, "dtype", JSON_STRING),
               *shape = json_get_kind(j, "shape", JSON_ARRAY);
    if (!dtype) return err_set(e, ERR_FORMAT, "%s: tensor %s: no dtype", file, j->key);
    if (!shape) return err_set(e, ERR_FORMAT, "%s: tensor %s: no shape", file, j->key);
    *t = ir_scalar(DT_NONE);
    for (size_t i = 0; i < N_DTYPES; i++)
        if (!strcmp(dtype->s, dtypes[i].name)) t->dtype = (uint8_t)dtypes[i].dtype;
    if (t->dtype == DT_NONE)
        return err_set(e, ERR_UNSUPPORTED, "%s: tensor %s: dtype \"%s\" is not supported", file, j->key,
                       dtype->s);
    if (shape->len > IR_MAX_RANK)
        return err_set(e, ERR_UNSUPPORTED, "%s: tensor %s: rank %u, at most %d is supported", file, j->key,
                       shape->len, IR_MAX_RANK);
    JSON_EACH(d, shape) {
        if (d->kind != JSON_INT || d->i < 0)
            return err_set(e, ERR_FORMAT, "%s: tensor %s: shape holds something that is no size", file,
                           j->key);
        t->dim[t->rank++] = d->i;
    }
    return true;
}

static bool read_entry(entry *x, const json *j, const char *file, uint64_t data_size, err *e) {
    if (strlen(j->key) != j->key_len)
        return err_set(e, ERR_FORMAT, "%s: tensor %s: the name holds a NUL byte", file, j->key);
    if (j->kind != JSON_OBJECT)
        return err_set(e, ERR_FORMAT, "%s: tensor %s: expected an object, found %s", file, j->key,
                       json_kind_name(j->kind));
    if (!read_shape(&x->t.type, j, file, e)) return false;
    const json *range = json_get_kind(j, "data_offsets", JSON_ARRAY);
    const json *begin = range ? range->child : NULL, *end = begin ? begin->next : NULL;
    if (!end || range->len != 2 || begin->kind != JSON_INT || end->kind != JSON_INT || begin->i < 0 ||
        end->i < begin->i)
        return err_set(e, ERR_FORMAT, "%s: tensor %s: data_offsets must be [begin, end], 0 <= begin <= end",
                       file, j->key);
    x->begin = (uint64_t)begin->i;
    x->end = (uint64_t)end->i;
    if (x->end > data_size)
        return err_set(e, ERR_FORMAT,
                       "%s: tensor %s: bytes [%" PRIu64 ", %" PRIu64 ") end behind the %" PRIu64
                       " data bytes of the file (truncated?)",
                       file, j->key, x->begin, x->end, data_size);
    int64_t bytes = ir_type_bytes(&x->t.type);
    if (bytes < 0 || (uint64_t)bytes != x->end - x->begin) {
        arena *tmp = arena_new();
        err_set(e, ERR_FORMAT, "%s: tensor %s: %s does not fill its byte range [%" PRIu64 ", %" PRIu64 ")",
                file, j->key, ir_type_text(tmp, &x->t.type), x->begin, x->end);
        arena_free(tmp);
        return false;
    }
    x->t.name = j->key;
    x->t.file = file;
    return true;
}

static bool read_metadata(st_file *f, const json *j, const char *file, err *e) {
    bool ok = j->kind == JSON_OBJECT;
    JSON_EACH(m, j) ok = ok && m->kind == JSON_STRING;
    f->metadata = j;
    return ok || err_set(e, ERR_FORMAT, "%s: __metadata__ must be an object of strings", file);
}

/* Sorts by place, checks that the ranges adjoin and cover the data, and points the tensors at it. */
static bool place(st_file *f, entry *x, const uint8_t *data, uint64_t size, const char *file, err *e) {
    qsort(x, f->n, sizeof *x, by_place);
    f->tensor = ARENA_ARRAY(f->a, st_tensor, f->n);
    f->names = map_new(f->a, f->n);
    uint64_t at = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (x[i].begin != at)
            return err_set(e, ERR_FORMAT,
                           "%s: tensor %s: begins at data byte %" PRIu64 ", expected %" PRIu64 " (%s)", file,
                           x[i].t.name, x[i].begin, at, x[i].begin < at ? "overlap" : "hole");
        f->tensor[i] = x[i].t;
        f->tensor[i].data = data + at;
        map_add(f->names, x[i].t.name, strlen(x[i].t.name), (uint32_t)i);
        at = x[i].end;
    }
    if (at == size) return true;
    return err_set(e, ERR_FORMAT, "%s: the tensors hold %" PRIu64 " bytes, the file %" PRIu64 " data bytes",
                   file, at, size);
}

static bool read_header(st_file *f, const char *file, const uint8_t *p, size_t n, err *e) {
    if (n < 8) return err_set(e, ERR_FORMAT, "%s: %zu bytes, too short for safetensors", file, n);
    uint64_t len = num_get64(p);
    if (len > HEADER_LIMIT)
        return err_set(e, ERR_FORMAT,
                       "%s: header of %" PRIu64 " bytes, at most %u are allowed (not safetensors?)", file,
                       len, HEADER_LIMIT);
    if (len > n - 8)
        return err_set(e, ERR_FORMAT,
                       "%s: header of %" PRIu64 " bytes, but the file ends after %zu (truncated?)", file, len,
                       n - 8);
    const json *head = json_parse(f->a, arena_printf(f->a, "%s: header", file), p + 8, len, e);
    if (!head) return false;
    if (head->kind != JSON_OBJECT) return err_set(e, ERR_FORMAT, "%s: the header is not a JSON object", file);
    entry *x = ARENA_ARRAY(f->a, entry, head->len);
    uint64_t size = n - 8 - len;
    JSON_EACH(j, head) {
        bool meta = !strcmp(j->key, "__metadata__");
        if (!(meta ? read_metadata(f, j, file, e) : read_entry(&x[f->n++], j, file, size, e))) return false;
    }
    return place(f, x, p + 8 + len, size, file, e);
}

st_file *st_open_memory(const char *what, const void *data, size_t n, err *e) {
    arena *a = arena_new();
    st_file *f = ARENA_NEW(a, st_file);
    f->a = a;
    if (read_header(f, arena_str(a, what), data, n, e)) return f;
    arena_free(a);
    return NULL;
}

st_file *st_open(const char *path, err *e) {
    file_map m;
    if (!file_open_map(&m, path, e)) return NULL;
    st_file *f = st_open_memory(path, m.data, m.size, e);
    if (f)
        f->map = m;
    else
        file_unmap(&m);
    return f;
}

void st_close(st_file *f) {
    if (!f) return;
    if (f->map.size) file_unmap(&f->map);
    arena_free(f->a);
}

size_t st_count(const st_file *f) {
    return f->n;
}

const st_tensor *st_at(const st_file *f, size_t i) {
    return &f->tensor[i];
}

const st_tensor *st_find(const st_file *f, const char *name) {
    uint32_t i = map_get(f->names, name, strlen(name));
    return i == MAP_NONE ? NULL : &f->tensor[i];
}

const char *st_metadata(const st_file *f, const char *key) {
    return json_str(f->metadata, key, NULL);
}

/* ---- writing ---- */

static bool add_entry(str *head, const char *path, const st_tensor *t, uint64_t *at, err *e) {
    const char *dtype = NULL;
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == (ir_dtype)t->type.dtype) dtype = dtypes[i].name;
    int64_t bytes = ir_type_bytes(&t->type);
    if (!dtype)
        return err_set(e, ERR_UNSUPPORTED, "%s: tensor %s: safetensors has no dtype %s", path, t->name,
                       dtype_name((ir_dtype)t->type.dtype));
    if (bytes < 0 || (uint64_t)bytes > INT64_MAX - *at)
        return err_set(e, ERR_LIMIT, "%s: tensor %s: too large", path, t->name);
    size_t len = strlen(t->name);
    if (utf8_valid(t->name, len) != len || !strcmp(t->name, "__metadata__"))
        return err_set(e, ERR_USAGE, "%s: \"%s\" can't be a tensor name", path, t->name);
    str_adds(head, head->len > 1 ? "," : "");
    str_json_string(head, t->name, len);
    str_printf(head, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    for (int i = 0; i < t->type.rank; i++) str_printf(head, "%s%" PRId64, i ? "," : "", t->type.dim[i]);
    str_printf(head, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, *at + (uint64_t)bytes);
    *at += (uint64_t)bytes;
    return true;
}

/* Header text, padded with spaces so that the data starts at a multiple of 8. */
static bool make_header(str *head, const char *path, const st_tensor *t, size_t n, err *e) {
    arena *a = arena_new();
    map *names = map_new(a, n);
    str_addc(head, '{');
    uint64_t at = 0;
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = (map_add(names, t[i].name, strlen(t[i].name), 0) ||
              err_set(e, ERR_USAGE, "%s: two tensors named %s", path, t[i].name)) &&
             add_entry(head, path, &t[i], &at, e);
    str_addc(head, '}');
    while (head->len % 8) str_addc(head, ' ');
    if (ok && head->len > HEADER_LIMIT)
        ok = err_set(e, ERR_LIMIT, "%s: header of %zu bytes, at most %u are allowed", path, head->len,
                     HEADER_LIMIT);
    arena_free(a);
    return ok;
}

bool st_write(const char *path, const st_tensor *t, size_t n, err *e) {
    str head = {0};
    file_out o;
    bool ok = make_header(&head, path, t, n, e) && file_out_begin(&o, path, e);
    if (ok) {
        uint8_t len[8];
        num_put64(len, head.len);
        ok = file_out_write(&o, len, sizeof len, e) && file_out_write(&o, head.s, head.len, e);
        for (size_t i = 0; ok && i < n; i++)
            ok = file_out_write(&o, t[i].data, (size_t)ir_type_bytes(&t[i].type), e);
        ok = file_out_end(&o, ok, e);
    }
    str_free(&head);
    return ok;
}
