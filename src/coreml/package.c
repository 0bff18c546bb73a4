/* The package directory: from the manifest to the model file. */
#include "base/json.h"
#include "base/str.h"
#include "coreml/read.h"
#include <string.h>

/* "1.0.0" and older: three numbers, the format version that is known here or one before it. */
static bool version_ok(const char *v) {
    int64_t part[3];
    for (int i = 0; i < 3; i++) {
        char number[16];
        size_t n = strcspn(v, ".");
        if (!n || n >= sizeof number || (i < 2) != (v[n] == '.')) return false;
        memcpy(number, v, n);
        number[n] = 0;
        if (strspn(number, "0123456789") != n || !str_to_int64(number, &part[i])) return false;
        v += n + 1;
    }
    return part[0] < 1 || (part[0] == 1 && !part[1] && !part[2]);
}

/* Path of the root model below the package; NULL on error. */
static const char *root_path(arena *a, const char *what, const json *j, err *e) {
    const char *version = json_str(j, "fileFormatVersion", NULL),
               *id = json_str(j, "rootModelIdentifier", NULL);
    const json *items = json_get_kind(j, "itemInfoEntries", JSON_OBJECT),
               *item = id ? json_get(items, id) : NULL;
    static const char *const keys[] = {"author", "description", "name", "path"};
    if (!version || !version_ok(version)) {
        err_set(e, ERR_FORMAT, "%s: fileFormatVersion %.40s, expected 1.0.0 or older", what,
                version ? version : "is missing");
    } else if (!id) {
        err_set(e, ERR_FORMAT, "%s: no rootModelIdentifier", what);
    } else if (!item) {
        err_set(e, ERR_FORMAT, "%s: no item for the root model %.100s", what, id);
    }
    for (int i = 0; item && i < 4; i++)
        if (!json_str(item, keys[i], NULL))
            err_set(e, ERR_FORMAT, "%s: the root model's item has no %s", what, keys[i]);
    if (e->code != ERR_NONE) return NULL;
    const char *path = json_str(item, "path", "");
    if (strlen(path) == json_get(item, "path")->len && files_path_ok(path))
        return arena_printf(a, "Data/%s", path);
    err_set(e, ERR_FORMAT, "%s: the root model's path \"%.200s\" leaves the package", what, path);
    return NULL;
}

static coreml_package *package_new(void) {
    arena *a = arena_new();
    coreml_package *p = ARENA_NEW(a, coreml_package);
    p->a = a;
    p->files = files_new(a);
    return p;
}

static bool open_into(coreml_package *p, err *e) {
    if (!file_is_dir(p->path))
        return err_set(e, ERR_IO, "%s: not a directory; expected a .mlpackage", p->path);
    const char *manifest = arena_printf(p->a, "%s/Manifest.json", p->path);
    if (!file_exists(manifest)) {
        bool compiled = file_exists(arena_printf(p->a, "%s/coremldata.bin", p->path));
        return err_set(e, compiled ? ERR_UNSUPPORTED : ERR_FORMAT, "%s: %s; expected a .mlpackage", p->path,
                       compiled ? "a compiled model (.mlmodelc)" : "no Manifest.json");
    }
    const json *j = json_parse_file(p->a, manifest, e);
    const char *root = j ? root_path(p->a, manifest, j, e) : NULL;
    if (!root) return false;
    const char *path = arena_printf(p->a, "%s/%s", p->path, root);
    p->files->dir = arena_strn(p->a, path, (size_t)(strrchr(path, '/') - path));
    if (!file_open_map(&p->files->model, path, e)) return false;
    p->model = read_model(p->a, p->files, path, p->files->model.data, p->files->model.size, e);
    return p->model != NULL;
}

coreml_package *coreml_open(const char *path, err *e) {
    coreml_package *p = package_new();
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    p->path = arena_strn(p->a, path, n);
    if (open_into(p, e)) return p;
    coreml_close(p);
    return NULL;
}

coreml_package *coreml_open_memory(const void *model, size_t n, err *e) {
    coreml_package *p = package_new();
    p->path = "";
    p->model = read_model(p->a, p->files, "model", model, n, e);
    if (p->model) return p;
    coreml_close(p);
    return NULL;
}

void coreml_close(coreml_package *p) {
    if (!p) return;
    files_close(p->files);
    arena_free(p->a);
}

const coreml_function *coreml_function_find(const coreml_model *m, const char *name) {
    for (size_t i = 0; i < m->n_func; i++)
        if (!strcmp(m->func[i].name, name)) return &m->func[i];
    return NULL;
}
