#define _GNU_SOURCE
#include "convert/listing.h"
#include "base/parallel.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 32

typedef struct {
    listing *l;
    size_t cap;
    arena *a;
    const char *root;
    err *e, *hashing; /* hashing: one a file */
} walk;

static bool add_tree(walk *w, const char *path, int depth);

static bool add_directory(walk *w, const char *path, int depth) {
    const char *full = arena_printf(w->a, "%s/%s", w->root, path);
    if (depth == MAX_DEPTH) return err_set(w->e, ERR_LIMIT, "%s: more than %d levels", full, MAX_DEPTH);
    DIR *d = opendir(full);
    if (!d) return err_errno(w->e, "%s", full);
    bool ok = true;
    for (const struct dirent *f; ok && (f = readdir(d));)
        if (strcmp(f->d_name, ".") && strcmp(f->d_name, ".."))
            ok = add_tree(w, arena_printf(w->a, "%s/%s", path, f->d_name), depth + 1);
    closedir(d);
    return ok;
}

static bool add_tree(walk *w, const char *path, int depth) {
    struct stat st;
    const char *full = arena_printf(w->a, "%s/%s", w->root, path);
    if (stat(full, &st)) return err_errno(w->e, "%s", full);
    if (S_ISDIR(st.st_mode)) return add_directory(w, path, depth);
    if (!S_ISREG(st.st_mode)) return err_set(w->e, ERR_IO, "%s: not a regular file", full);
    listing *l = w->l;
    l->file = arena_grow(w->a, l->file, l->n, &w->cap, l->n + 1, sizeof *l->file);
    l->file[l->n++].path = path;
    return true;
}

static int by_path(const void *x, const void *y) {
    return strcmp(((const listed_file *)x)->path, ((const listed_file *)y)->path);
}

static void hash_one(void *ctx, size_t i, unsigned thread) {
    (void)thread;
    walk *w = ctx;
    listed_file *f = &w->l->file[i];
    size_t n = strlen(w->root) + strlen(f->path) + 2;
    char *path = mem_alloc(n); /* arenas are not for several threads */
    strcat(strcat(strcpy(path, w->root), "/"), f->path);
    sha256_file(path, f->sha256, &f->bytes, &w->hashing[i]);
    mem_free(path);
}

bool listing_make(listing *l, arena *a, const char *root, const char *below, err *e) {
    *l = (listing){0};
    walk w = {.l = l, .a = a, .root = root, .e = e};
    if (!add_tree(&w, below, 0)) return false;
    if (l->n > 1) qsort(l->file, l->n, sizeof *l->file, by_path);
    w.hashing = ARENA_ARRAY(a, err, l->n);
    parallel_for(l->n, 0, hash_one, &w);
    for (size_t i = 0; i < l->n; i++) {
        if (w.hashing[i].code) return err_set(e, w.hashing[i].code, "%s", w.hashing[i].msg);
        l->bytes += l->file[i].bytes;
    }
    return true;
}

void listing_json(str *s, const listing *l) {
    str_addc(s, '[');
    for (size_t i = 0; i < l->n; i++) {
        const listed_file *f = &l->file[i];
        str_adds(s, i ? ",{\"path\":" : "{\"path\":");
        str_json_string(s, f->path, strlen(f->path));
        str_printf(s, ",\"bytes\":%" PRIu64 ",\"sha256\":\"%s\"}", f->bytes, f->sha256);
    }
    str_addc(s, ']');
}
