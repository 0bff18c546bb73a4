#include "generate/values.h"
#include "base/file.h"
#include "base/yaml.h"
#include <string.h>

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

const json *values_file(arena *a, const char *dir, const char *name, err *e) {
    const char *path = dir ? arena_printf(a, "%s/%s", dir, name) : NULL;
    if (!path || !file_exists(path)) return NULL;
    return ends_with(name, ".yaml") || ends_with(name, ".yml") ? yaml_parse_file(a, path, e)
                                                               : json_object_file(a, path, e);
}

const json *values_key(const json *o, const char *path) {
    char key[128];
    while (o && *path) {
        size_t n = strcspn(path, ".");
        if (n >= sizeof key) return NULL;
        memcpy(key, path, n);
        key[n] = 0;
        o = json_get(o, key);
        path += n + (path[n] == '.');
    }
    return o && o->kind != JSON_NULL ? o : NULL;
}

const json *values_find(arena *a, const char *dir, const json *v) {
    if (!v || v->kind != JSON_ARRAY) return v;
    JSON_EACH(x, v) {
        if (x->kind != JSON_STRING) return x;
        const char *colon = strchr(x->s, ':');
        err ignored = {0};
        const json *found =
            values_key(values_file(a, dir, arena_strn(a, x->s, (size_t)(colon - x->s)), &ignored), colon + 1);
        if (found) return found;
    }
    return NULL;
}

bool values_number(arena *a, const char *dir, const json *v, double *out) {
    v = values_find(a, dir, v);
    if (!v || (v->kind != JSON_INT && v->kind != JSON_REAL)) return false;
    *out = v->d;
    return true;
}

int64_t values_count(arena *a, const char *dir, const json *v) {
    v = values_find(a, dir, v);
    return v && v->kind == JSON_INT && v->i > 0 && v->i <= INT32_MAX ? v->i : 0;
}
