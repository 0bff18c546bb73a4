/* A bundle out of the fuzzer's bytes: parts one behind the other, each a file below one directory ("0f12:"
 * and 12 bytes), a directory ("7d0:") or a link ("3l1:x"; without bytes to nowhere).
 * What can be opened is run for a token, and its hash is looked at. */
#define _GNU_SOURCE
#include "base/file.h"
#include "coreai/asset.h"
#include "generate/artifact.h"
#include "generate/decoder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MOST_CONTEXT 4096 /* states of more are memory, not the reader's business */

static char top[80]; /* below $TMPDIR: in memory it is 100 times as fast as on a disk */

static void clean(void) {
    err e = {0};
    file_remove_tree(top, &e);
}

static void must(bool ok) {
    if (!ok) abort();
}

/* What a bundle has, and nothing that leaves the directory. */
static const char *part_name(char c) {
    static const char *const names[] = {"metadata.json",
                                        "x.aimodel/metadata.json",
                                        "x.aimodel/main.hash",
                                        "x.aimodel/main.mlirb",
                                        "tokenizer/tokenizer.json",
                                        "tokenizer/tokenizer_config.json",
                                        "tokenizer/generation_config.json",
                                        "tokenizer",
                                        "x.aimodel",
                                        "y.aimodel/main.mlirb"};
    return c >= '0' && c <= '9' ? names[c - '0'] : NULL;
}

static void write_part(const char *dir, char name, char kind, const uint8_t *data, size_t n) {
    char path[200], to[200];
    err e = {0};
    snprintf(path, sizeof path, "%s/%s", dir, part_name(name));
    if (kind == 'l') { /* a link, to a part or nowhere */
        snprintf(to, sizeof to, "%.100s", n ? "main.mlirb" : "nowhere");
        if (symlink(to, path)) return;
    } else if (kind == 'd') {
        file_make_dirs(path, &e);
    } else {
        FILE *f = fopen(path, "wb");
        if (f) fwrite(data, 1, n, f), fclose(f);
    }
}

/* name, kind, length. */
static void unpack(const char *dir, const uint8_t *data, size_t n) {
    char path[200];
    err e = {0};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, i ? "tokenizer" : "x.aimodel");
        must(file_make_dirs(path, &e));
    }
    for (size_t at = 0; at + 2 < n;) {
        char name = (char)data[at], kind = (char)data[at + 1];
        size_t size = 0;
        for (at += 2; at < n && data[at] >= '0' && data[at] <= '9' && size < n; at++)
            size = 10 * size + (size_t)(data[at] - '0');
        if (at < n) at++;
        if (size > n - at) size = n - at;
        if (part_name(name)) write_part(dir, name, kind, data + at, size);
        at += size;
    }
}

static bool clear(const err *e, bool ok) {
    return ok == (e->code == ERR_NONE) && !strchr(e->msg, '\n');
}

static void check_hash(const char *dir) {
    char path[200];
    err e = {0};
    bool absent;
    snprintf(path, sizeof path, "%s/x.aimodel", dir);
    ai_asset *x = ai_asset_open(path, &e);
    must(clear(&e, x != NULL));
    if (x) must(clear(&e, ai_asset_check_hash(x, &absent, &e)));
    ai_asset_close(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!top[0]) {
        const char *root = getenv("TMPDIR");
        snprintf(top, sizeof top, "%.50s/millet-fuzz-XXXXXX", root && *root ? root : "/tmp");
        must(mkdtemp(top) != NULL && !setenv("MILLET_THREADS", "1", 0));
        atexit(clean);
    }
    char dir[100];
    snprintf(dir, sizeof dir, "%s/in", top);
    unpack(dir, data, n);
    err e = {0};
    lm *m = lm_open(dir, NULL, &e);
    must(clear(&e, m != NULL));
    decoder *d = m && m->form.context <= MOST_CONTEXT ? decoder_new(m, RT_STRICT, &e) : NULL;
    decoder_row row;
    if (d) {
        bool ok = decoder_feed(d, (const int32_t[]){0}, 1, NULL, &row, &e);
        must(clear(&e, ok));
    }
    decoder_free(d);
    lm_close(m);
    check_hash(dir);
    err ignored = {0};
    must(file_remove_tree(dir, &ignored));
    return 0;
}
