#define _GNU_SOURCE
#include "base/file.h"
#include "coreml/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char dir[64];

static void clean_up(void) {
    err e = {0};
    file_remove_tree(dir, &e);
}

/* A package directory whose Manifest.json is the input: whatever it says, the only model file that can be
 * reached is the empty one inside, and that is refused. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static char manifest[128], model[128];
    err e = {0};
    if (!*dir) {
        strcpy(dir, "/tmp/millet-fuzz-XXXXXX");
        if (!mkdtemp(dir)) abort();
        atexit(clean_up);
        snprintf(model, sizeof model, "%s/Data/com.apple.CoreML", dir);
        if (!file_make_dirs(model, &e)) abort();
        snprintf(model, sizeof model, "%s/Data/com.apple.CoreML/model.mlmodel", dir);
        if (!file_write(model, "", 0, &e)) abort();
        snprintf(manifest, sizeof manifest, "%s/Manifest.json", dir);
    }
    FILE *f = fopen(manifest, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
    coreml_package *p = coreml_open(dir, &e);
    if (p || e.code == ERR_NONE || strchr(e.msg, '\n')) abort();
    return 0;
}
