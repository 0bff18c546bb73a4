/* metadata.json and conversion_manifest.json out of the fuzzer's bytes, in a directory with two packages:
 * what they name lies inside, but for the table, which may lie beside it. */
#define _GNU_SOURCE
#include "base/file.h"
#include "generate/artifact.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char top[] = "/tmp/millet-fuzz-XXXXXX";

static void clean(void) {
    err e = {0};
    file_remove_tree(top, &e);
}

static void must(bool ok) {
    if (!ok) abort();
}

static void set_up(arena *a) {
    static const char *const files[] = {"in/chunk_1_of_2.mlpackage/Manifest.json",
                                        "in/chunk_2_of_2.mlpackage/Manifest.json",
                                        "in/x.mlpackage/Manifest.json"};
    err e = {0};
    must(mkdtemp(top) != NULL);
    atexit(clean);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = arena_printf(a, "%s/%s", top, files[i]), *end = strrchr(path, '/');
        *end = 0;
        must(file_make_dirs(path, &e));
        *end = '/';
        must(file_write(path, "{}", 2, &e));
    }
}

static bool below(const char *path, const char *dir, bool up) {
    size_t len = strlen(dir);
    if (strncmp(path, dir, len) || path[len] != '/') return false;
    path += len;
    if (up && !strncmp(path, "/../", 4)) path += 3;
    return !strstr(path, "/../") && !strstr(path, "/./") && !strstr(path, "//");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const names[] = {"metadata.json", "conversion_manifest.json"};
    arena *a = arena_new();
    static bool ready;
    if (!ready) set_up(a);
    ready = true;
    const char *dir = arena_printf(a, "%s/in", top);
    for (size_t i = 0; i < 2; i++) {
        const char *file = arena_printf(a, "%s/%s", dir, names[i]), *table;
        err e = {0};
        artifact_paths p;
        must(file_write(file, data, n, &e));
        bool ok = artifact_locate(&p, a, dir, NULL, &e);
        must(ok == (e.code == ERR_NONE) && (!ok || p.n_package));
        for (size_t k = 0; ok && k < p.n_package; k++) must(below(p.package[k], dir, false));
        if (ok && artifact_table(&p, a, &table, &e) && table) must(below(table, dir, true));
        must(file_remove_tree(file, &e));
    }
    arena_free(a);
    return 0;
}
