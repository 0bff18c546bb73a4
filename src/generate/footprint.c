#define _GNU_SOURCE
#include "generate/footprint.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef bool visit_fn(void *ctx, const char *path, uint64_t bytes, err *e);

static bool visit(arena *a, const char *path, visit_fn *fn, void *ctx, err *e);

static bool visit_dir(arena *a, const char *path, visit_fn *fn, void *ctx, err *e) {
    DIR *d = opendir(path);
    bool ok = d || err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    for (struct dirent *f; ok && (f = readdir(d));)
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0)
            ok = visit(a, arena_printf(a, "%s/%s", path, f->d_name), fn, ctx, e);
    if (d) closedir(d);
    return ok;
}

/* Every regular file at or below path; links are not followed below it. */
static bool visit(arena *a, const char *path, visit_fn *fn, void *ctx, err *e) {
    struct stat s;
    if (stat(path, &s)) return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(s.st_mode)) return visit_dir(a, path, fn, ctx, e);
    return !S_ISREG(s.st_mode) || fn(ctx, path, (uint64_t)s.st_size, e);
}

void footprint_of(footprint *f, arena *a, const lm *m) {
    const char **path = arena_array(a, m->n_model + 1, sizeof *path);
    *f = (footprint){.weights = path, .tokenizer = m->text_path ? arena_str(a, m->text_path) : NULL};
    for (size_t i = 0; i < m->n_model; i++) path[f->n++] = arena_str(a, rt_model_path(m->model[i]));
    if (m->table_path) path[f->n++] = arena_str(a, m->table_path);
}

static bool visit_all(const footprint *f, bool with_tokenizer, visit_fn *fn, void *ctx, err *e) {
    arena *a = arena_new();
    bool ok = true;
    for (size_t i = 0; ok && i < f->n; i++) ok = visit(a, f->weights[i], fn, ctx, e);
    if (ok && with_tokenizer && f->tokenizer) ok = visit(a, f->tokenizer, fn, ctx, e);
    arena_free(a);
    return ok;
}

static bool add_size(void *ctx, const char *path, uint64_t bytes, err *e) {
    (void)path, (void)e;
    *(uint64_t *)ctx += bytes;
    return true;
}

bool footprint_bytes(const footprint *f, uint64_t *bytes, err *e) {
    *bytes = 0;
    return visit_all(f, false, add_size, bytes, e);
}

/* Bytes of an open file that are in memory. */
static uint64_t resident(int fd, uint64_t bytes) {
    enum { AT_ONCE = 4096 };
    unsigned char here[AT_ONCE];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), left = 0;
    for (uint64_t at = 0; at < bytes; at += AT_ONCE * page) {
        uint64_t n = bytes - at < AT_ONCE * page ? bytes - at : AT_ONCE * page;
        void *p = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, (off_t)at);
        if (p == MAP_FAILED || mincore(p, n, here))
            left += n;
        else
            for (uint64_t i = 0; i * page < n; i++) left += here[i] & 1 ? page : 0;
        if (p != MAP_FAILED) munmap(p, n);
    }
    return left;
}

static bool drop(void *ctx, const char *path, uint64_t bytes, err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    fdatasync(fd); /* what is not on the disk yet can't be forgotten */
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    *(uint64_t *)ctx += resident(fd, bytes);
    close(fd);
    return true;
}

bool footprint_drop(const footprint *f, uint64_t *left, err *e) {
    *left = 0;
    return visit_all(f, true, drop, left, e);
}
