#define _GNU_SOURCE
#include "base/file.h"
#include "base/arena.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t empty[1];

static void unmap(void *p, size_t n) {
    munmap(p, n);
}

bool file_open_map(file_map *m, const char *path, err *e) {
    *m = (file_map){empty, 0, NULL};
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe without a writer must not block */
    if (fd < 0) return err_errno(e, "%s", path);
    struct stat st;
    bool ok = true;
    if (fstat(fd, &st)) {
        ok = err_errno(e, "%s", path);
    } else if (!S_ISREG(st.st_mode)) {
        ok = err_set(e, ERR_IO, "%s: not a regular file", path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            ok = err_errno(e, "%s: can't map %lld bytes", path, (long long)st.st_size);
        else
            *m = (file_map){p, (size_t)st.st_size, mem_hold(unmap, p, (size_t)st.st_size)};
        if (m->size && !m->hold) {
            file_unmap(m);
            ok = err_set(e, ERR_MEMORY, "%s: no memory to open it", path);
        }
    }
    close(fd);
    return ok;
}

void file_unmap(file_map *m) {
    if (m->size) munmap((void *)m->data, m->size);
    mem_free(m->hold);
    *m = (file_map){empty, 0, NULL};
}

void file_will_stream(const file_map *m) {
    if (m->size >= (size_t)2 << 20) madvise((void *)m->data, m->size, MADV_HUGEPAGE);
}

void file_drop(const void *data, size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)data + page - 1) / page * page, to = ((uintptr_t)data + n) / page * page;
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}

bool file_exists(const char *path) {
    struct stat st;
    return !stat(path, &st) || (errno != ENOENT && errno != ENOTDIR);
}

bool file_is_dir(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool file_make_dirs(const char *path, err *e) {
    char *p = mem_alloc(strlen(path) + 1);
    strcpy(p, path);
    bool ok = true;
    for (char *s = p; ok && *s; s++) {
        if (s == p || *s != '/') continue;
        *s = 0;
        ok = !mkdir(p, 0777) || errno == EEXIST || err_errno(e, "%s: can't create the directory", p);
        *s = '/';
    }
    if (ok && mkdir(p, 0777) && errno != EEXIST) ok = err_errno(e, "%s: can't create the directory", path);
    if (ok && !file_is_dir(path)) ok = err_set(e, ERR_IO, "%s: exists and is not a directory", path);
    mem_free(p);
    return ok;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)kind, (void)ftw;
    return remove(path) && errno != ENOENT;
}

bool file_remove_tree(const char *path, err *e) {
    struct stat st;
    if (lstat(path, &st)) return errno == ENOENT || err_errno(e, "%s", path);
    if (nftw(path, remove_one, 1, FTW_DEPTH | FTW_PHYS)) return err_errno(e, "%s: can't remove", path);
    return true;
}

static bool write_all(int fd, const void *data, size_t n) {
    const char *p = data;
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return false;
        p += w;
        n -= (size_t)w;
    }
    return true;
}

bool file_out_begin(file_out *o, const char *path, err *e) {
    *o = (file_out){.fd = -1, .path = path};
    struct stat st;
    size_t len = strlen(path) + 1;
    /* a device or a pipe is written to, never replaced */
    if (stat(path, &st) || S_ISREG(st.st_mode)) {
        o->staged = mem_alloc(len + 32);
        snprintf(o->staged, len + 32, "%s.tmp%ld", path, (long)getpid());
    }
    o->fd = open(o->staged ? o->staged : path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (o->fd >= 0) return true;
    err_errno(e, "%s: can't write", path);
    mem_free(o->staged);
    o->staged = NULL;
    return false;
}

bool file_out_write(file_out *o, const void *data, size_t n, err *e) {
    return write_all(o->fd, data, n) || err_errno(e, "%s: can't write", o->path);
}

bool file_out_end(file_out *o, bool keep, err *e) {
    bool ok = true;
    if (o->fd < 0) return keep;
    if (keep && o->staged && fsync(o->fd)) ok = err_errno(e, "%s: can't write", o->path);
    if (close(o->fd) && keep && ok) ok = err_errno(e, "%s: can't write", o->path);
    if (keep && ok && o->staged && rename(o->staged, o->path)) ok = err_errno(e, "%s: can't write", o->path);
    if (o->staged && !(keep && ok)) unlink(o->staged);
    mem_free(o->staged);
    *o = (file_out){.fd = -1};
    return ok && keep;
}

bool file_write(const char *path, const void *data, size_t n, err *e) {
    file_out o;
    return file_out_begin(&o, path, e) && file_out_end(&o, file_out_write(&o, data, n, e), e);
}
