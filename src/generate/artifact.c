#include "generate/artifact.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".mlpackage"

const char *artifact_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *beside(arena *a, const char *dir, const char *name, const char *must_hold) {
    const char *path = arena_printf(a, "%s/%s", dir, name);
    return file_exists(must_hold ? arena_printf(a, "%s/%s", path, must_hold) : path) ? path : NULL;
}

static bool is_package(arena *a, const char *path) {
    return beside(a, path, "Manifest.json", NULL) || beside(a, path, "main.mlirb", NULL);
}

static char *without_slashes(arena *a, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return arena_strn(a, path, n);
}

/* ---- lists of names ---- */

typedef struct {
    const char **name;
    size_t n, cap;
} names;

static void add_name(names *l, arena *a, const char *name) {
    l->name = arena_grow(a, l->name, l->n, &l->cap, l->n + 1, sizeof *l->name);
    l->name[l->n++] = name;
}

static int by_text(const void *x, const void *y) {
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static void close_dir(void *d, size_t n) {
    (void)n;
    closedir(d);
}

/* What lies in dir and is wanted, by name. */
static names list(arena *a, const char *dir, bool (*wanted)(const char *name)) {
    names l = {0};
    DIR *d = opendir(dir);
    void *hold = d ? mem_hold(close_dir, d, 0) : NULL;
    for (struct dirent *f; d && (f = readdir(d));)
        if (wanted(f->d_name)) add_name(&l, a, arena_str(a, f->d_name));
    mem_free(hold);
    if (d) closedir(d);
    if (l.n) qsort(l.name, l.n, sizeof *l.name, by_text);
    return l;
}

/* "a, b, c" for errors; of many the first ones. */
static const char *joined(arena *a, const names *l) {
    char *text = arena_str(a, "");
    for (size_t i = 0; i < l->n && i < 6; i++)
        text = arena_printf(a, "%s%s%s", text, i ? ", " : "", l->name[i]);
    return l->n > 6 ? arena_printf(a, "%s, ...", text) : text;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

static bool is_package_name(const char *name) {
    return ends_with(name, SUFFIX);
}

/* ---- paths in metadata ---- */

/* Relative, without empty, "." or ".." parts, but for one "../" in front where up is set. */
static bool is_inside(const char *path, bool up) {
    if (up && !strncmp(path, "../", 3)) path += 3;
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        if (!n || (n <= 2 && !strncmp(p, "..", n))) return false;
        p += n;
        if (!*p) return true;
    }
}

/* The member of o as a path below p->dir; NULL with an error when it is none. */
static const char *path_member(const artifact_paths *p, arena *a, const json *o, const char *key, bool up,
                               err *e) {
    const json *s = json_get_kind(o, key, JSON_STRING);
    if (s && strlen(s->s) == s->len && is_inside(s->s, up)) return arena_printf(a, "%s/%s", p->dir, s->s);
    err_set(e, ERR_FORMAT, "%s: \"%s\"%s%.200s%s must be a path relative to it, without .. parts",
            p->metadata, key, s ? " (" : "", s ? s->s : "", s ? ")" : "");
    return NULL;
}

static bool add_package(names *l, const artifact_paths *p, arena *a, const char *path, err *e) {
    if (!path) return false;
    if (!is_package(a, path))
        return err_set(e, ERR_IO, "%s: names the package %s, which is not there", p->metadata,
                       artifact_name(path));
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->name[i], path))
            return err_set(e, ERR_FORMAT, "%s: names %s twice", p->metadata, artifact_name(path));
    add_name(l, a, path);
    return true;
}

/* ---- the ways to name packages ---- */

/* A Core AI bundle names its assets; "main" is the one to run. */
static bool from_bundle(names *l, artifact_paths *p, arena *a, const json *j, err *e) {
    const char *version = json_str(j, "metadata_version", ""), *kind = json_str(j, "kind", "llm");
    if (strcmp(version, "0.2"))
        return err_set(e, ERR_UNSUPPORTED, "%s: metadata_version %.40s; 0.2 is known", p->metadata, version);
    if (strcmp(kind, "llm"))
        return err_set(e, ERR_UNSUPPORTED, "%s: a bundle of kind %.40s, expected llm", p->metadata, kind);
    const json *assets = json_get_kind(j, "assets", JSON_OBJECT);
    return add_package(l, p, a, path_member(p, a, assets, "main", false, e), e);
}

/* Format 2 lists them; format 1 has one in "files", or says nothing. */
static bool from_metadata(names *l, artifact_paths *p, arena *a, const json *j, err *e) {
    if (json_get(j, "metadata_version") && json_get(j, "assets")) return from_bundle(l, p, a, j, e);
    int64_t version = json_int(j, "format_version", 1);
    bool ours = !strcmp(json_str(j, "format", ""), "millet");
    if (ours && (version < 1 || version > 2))
        return err_set(e, ERR_UNSUPPORTED, "%s: format_version %" PRId64 "; 1 and 2 are known", p->metadata,
                       version);
    const json *list_of = json_get(j, "packages"), *files = json_get_kind(j, "files", JSON_OBJECT),
               *table = json_get_kind(j, "table", JSON_OBJECT);
    if (list_of && (list_of->kind != JSON_ARRAY || !list_of->len))
        return err_set(e, ERR_FORMAT, "%s: \"packages\" must be a list of at least one", p->metadata);
    JSON_EACH(x, list_of)
    if (!add_package(l, p, a, path_member(p, a, x, "path", false, e), e)) return false;
    if (table && !(p->table = path_member(p, a, table, "path", true, e))) return false;
    if (list_of || !json_get(files, "package")) return true;
    return add_package(l, p, a, path_member(p, a, files, "package", false, e), e);
}

/* The variant that the manifest recommends, or the first one that is there. */
static bool from_manifest(names *l, artifact_paths *p, arena *a, const json *j, err *e) {
    const char *want = json_str(j, "recommended", "");
    const json *variants = json_get_kind(j, "variants", JSON_ARRAY);
    const char *found = NULL;
    JSON_EACH(v, variants) {
        const char *path = path_member(p, a, v, "package", false, e);
        if (!path) return false;
        bool recommended = !strcmp(json_str(v, "name", ""), want);
        if (is_package(a, path) && (!found || recommended)) found = path;
        if (found && recommended) break;
    }
    if (!found) return err_set(e, ERR_IO, "%s: names no package that is there", p->metadata);
    add_name(l, a, found);
    return true;
}

/* "chunk_2_of_6.mlpackage" -> 2, 6. */
static bool parse_part(const char *name, const char *prefix, int *i, int *n) {
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len)) return false;
    char *end;
    const char *p = name + len;
    if (*p < '0' || *p > '9') return false;
    long at = strtol(p, &end, 10);
    if (strncmp(end, "_of_", 4) || end[4] < '0' || end[4] > '9') return false;
    long of = strtol(end + 4, &end, 10);
    if (strcmp(end, SUFFIX) || at < 1 || at > of || of > 10000) return false;
    *i = (int)at;
    *n = (int)of;
    return true;
}

/* All parts "PREFIXi_of_N" of a directory in their order; none at all is fine. */
static bool add_parts(names *l, arena *a, const char *dir, const names *all, const char *prefix, err *e) {
    const char **part = NULL, *first = NULL;
    int i, n, of = 0;
    for (size_t k = 0; k < all->n; k++) {
        if (!parse_part(all->name[k], prefix, &i, &n)) continue;
        if (!part) part = ARENA_ARRAY(a, const char *, (size_t)(of = n));
        if (!first) first = all->name[k];
        if (n != of || part[i - 1])
            return err_set(e, ERR_IO,
                           "%s: %s and %s belong to two sets, and no metadata.json tells which one is meant",
                           dir, first, all->name[k]);
        part[i - 1] = all->name[k];
    }
    for (int k = 0; k < of; k++) {
        if (!part[k])
            return err_set(e, ERR_IO, "%s: %s%d_of_%d%s is not there", dir, prefix, k + 1, of, SUFFIX);
        add_name(l, a, arena_printf(a, "%s/%s", dir, part[k]));
    }
    return true;
}

/* Without a file that names them. */
static bool from_directory(names *l, const artifact_paths *p, arena *a, err *e) {
    names all = list(a, p->dir, is_package_name);
    if (!add_parts(l, a, p->dir, &all, "chunk_", e)) return false;
    if (l->n) return add_parts(l, a, p->dir, &all, "head_", e);
    const char *model = beside(a, p->dir, "model.mlpackage", "Manifest.json");
    if (!model && all.n > 1)
        return err_set(e, ERR_USAGE, "%s: holds several packages (%s): give the path of one", p->dir,
                       joined(a, &all));
    if (!model && all.n) model = beside(a, p->dir, all.name[0], "Manifest.json");
    if (model) add_name(l, a, model);
    return true;
}

static bool find_packages(artifact_paths *p, arena *a, err *e) {
    names l = {0};
    const char *manifest = beside(a, p->dir, "conversion_manifest.json", NULL);
    p->metadata = beside(a, p->dir, "metadata.json", NULL);
    const json *j = p->metadata ? json_object_file(a, p->metadata, e) : NULL;
    if (p->metadata && (!j || !from_metadata(&l, p, a, j, e))) return false;
    if (!p->metadata && manifest) {
        p->metadata = manifest;
        j = json_object_file(a, manifest, e);
        if (!j || !from_manifest(&l, p, a, j, e)) return false;
    }
    if (!l.n && !from_directory(&l, p, a, e)) return false;
    p->package = l.name;
    p->n_package = l.n;
    return true;
}

/* One package, and whether it is one of several. */
static bool lone_package(artifact_paths *p, arena *a, char *path, err *e) {
    const char **name = ARENA_ARRAY(a, const char *, 1);
    char *slash = strrchr(path, '/');
    int i, n;
    *name = path;
    p->dir = !slash ? "." : slash == path ? "/" : arena_strn(a, path, (size_t)(slash - path));
    p->package = name;
    p->n_package = 1;
    const char *last = artifact_name(path);
    p->member = parse_part(last, "head_", &i, &n) || (parse_part(last, "chunk_", &i, &n) && n > 1);
    p->metadata = beside(a, p->dir, "metadata.json", NULL);
    err ignored = {0}; /* who needs what the file says will find out */
    const json *j = p->metadata ? json_object_file(a, p->metadata, &ignored) : NULL;
    const json *set = json_get_kind(j, "packages", JSON_ARRAY);
    JSON_EACH(x, set) if (!strcmp(json_str(x, "path", ""), last)) {
        const json *table = json_get_kind(j, "table", JSON_OBJECT);
        p->member = set->len > 1;
        if (table && !(p->table = path_member(p, a, table, "path", true, e))) return false;
    }
    return true;
}

static bool is_entry(const char *name) {
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static bool is_empty(const char *dir) {
    arena *a = arena_new();
    bool empty = file_is_dir(dir) && !list(a, dir, is_entry).n;
    arena_free(a);
    return empty;
}

/* "owner/name", "name:tag": a name of a registry. */
static bool is_hub_name(const char *path) {
    const char *slash = strchr(path, '/'), *colon = strchr(path, ':');
    return *path != '/' && *path != '.' && (slash ? slash[1] && !strchr(slash + 1, '/') : colon != NULL);
}

/* The directory that path lies in, up to four levels above, if that can be given in its place. */
static const char *around(arena *a, const char *path) {
    char *dir = arena_str(a, path);
    for (int i = 0; i < 4; i++) {
        char *slash = strrchr(dir, '/');
        if (!slash || slash == dir) return NULL;
        *slash = 0;
        if (is_package(a, dir) || beside(a, dir, "metadata.json", NULL) ||
            beside(a, dir, "config.json", NULL))
            return dir;
    }
    return NULL;
}

/* Something else that people give: says what it is, and what to do. */
static bool is_other(arena *a, const char *dir, const char *path, err *e) {
    static const char convert[] = "convert it first: millet convert";
    bool is_dir = file_is_dir(dir);
    const char *outer = around(a, dir);
    if (!is_dir && ends_with(dir, ".gguf"))
        return !err_set(e, ERR_UNSUPPORTED, "%s: is a GGUF file; %s %s -o OUT", path, convert, path);
    if (is_dir && beside(a, dir, "config.json", NULL))
        return !err_set(e, ERR_UNSUPPORTED, "%s: is a checkpoint; %s %s -o OUT", path, convert, path);
    if (!outer) return false;
    if (beside(a, outer, "config.json", NULL))
        return !is_dir && !err_set(e, ERR_UNSUPPORTED, "%s: is a file of the checkpoint %s; %s %s -o OUT",
                                   path, outer, convert, outer);
    return !err_set(e, ERR_IO, "%s: is a part of %s: give that", path, outer);
}

static bool no_package(arena *a, const char *dir, const char *path, err *e) {
    const char *dot = strrchr(dir, '.');
    bool model = dot && !strcmp(dot, ".mlmodel"), compiled = dot && !strcmp(dot, ".mlmodelc");
    if (model || compiled || beside(a, dir, "coremldata.bin", NULL))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: a %s, which can't be read: the .mlpackage that it %s is needed", path,
                       model ? "model file (.mlmodel)" : "compiled model (.mlmodelc)",
                       model ? "is saved as" : "was made of");
    if (file_is_dir(dir) && ends_with(dir, ".aimodel"))
        return err_set(e, ERR_IO, "%s: an .aimodel without main.mlirb, its program", path);
    if (is_other(a, dir, path, e)) return false;
    if (beside(a, dir, "metadata.json", NULL))
        return err_set(e, ERR_IO, "%s: its metadata.json names no package, and there is none in it", path);
    return err_set(e, ERR_IO,
                   "%s: neither a package (Manifest.json) nor an artifact directory (metadata.json)%s", path,
                   is_empty(dir) ? ": it is empty" : "");
}

bool artifact_locate(artifact_paths *p, arena *a, const char *path, const char *tokenizer_dir, err *e) {
    *p = (artifact_paths){0};
    if (!file_exists(path))
        return err_set(e, ERR_IO, "%s: no such package or artifact directory%s", path,
                       is_hub_name(path) ? " (models are not fetched: give the path of one that is here)"
                                         : "");
    char *dir = without_slashes(a, path);
    if (is_package(a, dir)) {
        if (!lone_package(p, a, dir, e)) return false;
    } else {
        p->dir = dir;
        if (!find_packages(p, a, e)) return false;
        if (!p->n_package) return no_package(a, dir, path, e);
    }
    p->asset = p->n_package == 1 && beside(a, p->package[0], "main.mlirb", NULL);
    if (!tokenizer_dir) {
        p->tokenizer = beside(a, p->dir, "Tokenizer", "tokenizer.json");
        if (!p->tokenizer) p->tokenizer = beside(a, p->dir, "tokenizer", "tokenizer.json");
        return true;
    }
    p->tokenizer = without_slashes(a, tokenizer_dir);
    return beside(a, p->tokenizer, "tokenizer.json", NULL) ||
           err_set(e, ERR_IO, "%s: no tokenizer.json in it", tokenizer_dir);
}

static bool is_model_table(const char *name) {
    return strstr(name, "_embed_tokens.") && ends_with(name, ".bin");
}

static bool is_table(const char *name) {
    return !strcmp(name, "embed_tokens.bin") || is_model_table(name);
}

bool artifact_table(const artifact_paths *p, arena *a, const char **table, err *e) {
    *table = p->table;
    if (p->table)
        return file_exists(p->table) || err_set(e, ERR_IO, "%s: names the table %s, which is not there",
                                                p->metadata, artifact_name(p->table));
    const char *above = arena_printf(a, "%s/..", p->dir);
    names l = list(a, p->dir, is_table);
    const char *dir = l.n ? p->dir : above;
    if (!l.n) l = list(a, above, is_model_table);
    if (l.n > 1)
        return err_set(e, ERR_USAGE,
                       "%s: several embedding tables (%s), and no metadata.json tells which one belongs "
                       "to the package",
                       dir, joined(a, &l));
    if (l.n) *table = arena_printf(a, "%s/%s", dir, l.name[0]);
    return true;
}
