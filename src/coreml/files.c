#include "coreml/files.h"
#include "coreml/blob.h"
#include "coreml/schema.h"
#include <inttypes.h>
#include <string.h>

coreml_files *files_new(arena *a) {
    coreml_files *f = ARENA_NEW(a, coreml_files);
    f->a = a;
    f->by_name = map_new(a, 2);
    f->by_origin = map_new(a, 64);
    return f;
}

void files_close(coreml_files *f) {
    if (!f) return;
    for (size_t i = 0; i < f->n_file; i++) file_unmap(&f->file[i].map);
    file_unmap(&f->model);
}

bool files_path_ok(const char *path) {
    for (;;) {
        size_t n = strcspn(path, "/");
        if (!n || (n == 1 && path[0] == '.') || (n == 2 && !memcmp(path, "..", 2))) return false;
        if (!path[n]) return true;
        path += n + 1;
    }
}

static bool no_bytes(const void *ctx, uint64_t first, uint64_t n, void *dst, err *e) {
    (void)first, (void)n, (void)dst;
    return err_set(e, ERR_IO, "%s: the weight file is not at hand (the model was read from memory)",
                   (const char *)ctx);
}

/* Index of the weight file, opened at its first use; MAP_NONE on error. */
static uint32_t weight_file(coreml_files *f, const char *name, err *e) {
    uint32_t i = map_get(f->by_name, name, strlen(name));
    if (i != MAP_NONE) return i;
    files_weight w = {arena_str(f->a, name), {0}};
    if (f->dir) {
        const char *path = arena_printf(f->a, "%s/%s", f->dir, name);
        if (!file_open_map(&w.map, path, e)) return MAP_NONE;
        uint32_t count;
        file_will_stream(&w.map);
        if (!blob_check(w.map.data, w.map.size, &count, e)) {
            err_where(e, "%s", path);
            file_unmap(&w.map);
            return MAP_NONE;
        }
    }
    i = (uint32_t)f->n_file;
    f->file = arena_grow(f->a, f->file, f->n_file, &f->cap_file, f->n_file + 1, sizeof *f->file);
    f->file[f->n_file++] = w;
    map_add(f->by_name, w.name, strlen(w.name), i);
    return i;
}

typedef struct {
    uint64_t file, offset, dtype;
    int64_t rank, dim[IR_MAX_RANK];
} origin;

const ir_const *files_const(coreml_files *f, const char *file_name, uint64_t offset, const ir_type *t,
                            err *e) {
    size_t skip = strlen(MODEL_PATH);
    if (strncmp(file_name, MODEL_PATH, skip) || !files_path_ok(file_name + skip)) {
        err_set(e, ERR_FORMAT,
                "weight file name \"%.200s\": expected " MODEL_PATH " and a path inside the package",
                file_name);
        return NULL;
    }
    uint32_t i = weight_file(f, file_name + skip, e);
    if (i == MAP_NONE) return NULL;
    origin key = {i, offset, t->dtype, t->rank, {0}};
    memcpy(key.dim, t->dim, (size_t)t->rank * sizeof t->dim[0]);
    uint32_t known = map_get(f->by_origin, (const char *)&key, sizeof key);
    if (known != MAP_NONE) return f->konst[known];
    ir_const *c;
    if (f->dir) {
        const void *data = blob_tensor(f->file[i].map.data, f->file[i].map.size, offset, t, e);
        if (!data) {
            err_where(e, "%s", f->file[i].name);
            return NULL;
        }
        c = ir_const_new(f->a, *t, data);
    } else {
        if (ir_type_bytes(t) < 0 || !schema_of(t->dtype)->blob) {
            err_set(e, ERR_FORMAT, "%s: %s can't be a constant there", f->file[i].name,
                    ir_type_text(f->a, t));
            return NULL;
        }
        c = ir_const_fill(f->a, *t, no_bytes, f->file[i].name);
    }
    c->blob_file = f->file[i].name;
    c->blob_offset = offset;
    c->in_blob = true;
    f->konst = arena_grow(f->a, f->konst, f->n_const, &f->cap_const, f->n_const + 1, sizeof *f->konst);
    f->konst[f->n_const] = c;
    map_add(f->by_origin, arena_copy(f->a, &key, sizeof key), sizeof key, (uint32_t)f->n_const++);
    return c;
}
