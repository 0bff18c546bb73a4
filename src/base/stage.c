/* Names beside a target NAME:
 *
 *   .NAME.millet-new-XXXXXXXX  a staging directory; its writer holds flock() on it, so one that is not locked
 * is dead. After the exchange it holds the old output, until that is removed. .NAME.millet-old-XXXXXXXX  the
 * old output, where the file system can't exchange: it was moved away before the new one moved in. Found
 * without a target, it is put back.
 *
 * The parent directory is locked while leftovers are looked at, so that nobody takes a staging directory that
 * is not locked yet for a dead one. */
#define _GNU_SOURCE
#include "base/stage.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct stage {
    arena *a;
    const char *target, *parent, *name; /* parent/name; name is the last part of target */
    const char *staging, *path, *old;   /* names in parent; path: of staging */
    int parent_fd, lock_fd;
    bool overwrite, gone; /* gone: removed by stage_abort_all() */
    struct stage *next;   /* in the list of open ones */
};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static stage *open_stages;

static bool present(const stage *s) {
    struct stat st;
    return !fstatat(s->parent_fd, s->name, &st, AT_SYMLINK_NOFOLLOW);
}

static bool refuse_existing(const stage *s, err *e) {
    return err_set(e, ERR_IO, "%s: exists already", s->target);
}

static void remove_name(const stage *s, const char *name) {
    err ignored = {0}; /* what can't be removed now is tried again by the next run */
    file_remove_tree(arena_printf(s->a, "%s/%s", s->parent, name), &ignored);
}

/* The lock's descriptor goes first: there may be no other to read directories with. */
static void remove_staging(stage *s) {
    if (s->lock_fd >= 0) close(s->lock_fd);
    s->lock_fd = -1;
    remove_name(s, s->staging);
}

/* A leftover, unless its writer lives. */
static bool clear_one(const stage *s, const char *name, err *e) {
    int fd = openat(s->parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool alive = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (!alive) remove_name(s, name);
    if (fd >= 0) close(fd);
    return !alive || err_set(e, ERR_IO, "%s: is being written by another process", s->target);
}

/* Puts back an old output that was moved away, and removes what dead writers left. */
static bool clear_leftovers(const stage *s, err *e) {
    size_t n = strlen(arena_printf(s->a, ".%s.millet-new-", s->name));
    DIR *d = opendir(s->parent);
    if (!d) return err_errno(e, "%s", s->parent);
    bool ok = true;
    for (struct dirent *f; ok && (f = readdir(d));) {
        bool fresh = !strncmp(f->d_name, s->staging, n), old = !strncmp(f->d_name, s->old, n);
        if (old && !present(s) && !renameat(s->parent_fd, f->d_name, s->parent_fd, s->name)) continue;
        if (fresh || old) ok = clear_one(s, f->d_name, e);
    }
    closedir(d);
    return ok;
}

static bool make_staging(stage *s, err *e) {
    for (int i = 0; i < 100; i++) {
        uint32_t r;
        if (getrandom(&r, sizeof r, 0) != sizeof r) return err_errno(e, "%s: no random name", s->target);
        s->staging = arena_printf(s->a, ".%s.millet-new-%08x", s->name, r);
        s->old = arena_printf(s->a, ".%s.millet-old-%08x", s->name, r);
        s->path = arena_printf(s->a, "%s/%s", s->parent, s->staging);
        if (mkdirat(s->parent_fd, s->staging, 0777)) {
            if (errno == EEXIST) continue;
            break;
        }
        s->lock_fd = openat(s->parent_fd, s->staging, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (s->lock_fd >= 0)
            flock(s->lock_fd, LOCK_EX | LOCK_NB); /* where there are no locks, there is no check */
        return true;
    }
    return err_errno(e, "%s: can't write there", s->target);
}

static bool split_target(stage *s, const char *target, err *e) {
    size_t n = strlen(target);
    while (n > 1 && target[n - 1] == '/') n--;
    s->target = arena_strn(s->a, target, n);
    const char *slash = strrchr(s->target, '/');
    s->name = slash ? slash + 1 : s->target;
    s->parent = !slash               ? "."
                : slash == s->target ? "/"
                                     : arena_strn(s->a, s->target, (size_t)(slash - s->target));
    s->staging = arena_printf(s->a, ".%s.millet-new-", s->name);
    s->old = arena_printf(s->a, ".%s.millet-old-", s->name);
    if (*s->name && strcmp(s->name, ".") && strcmp(s->name, "..")) return true;
    return err_set(e, ERR_USAGE, "%s: not a name for an output", target);
}

static bool begin(stage *s, const char *target, err *e) {
    if (!split_target(s, target, e)) return false;
    s->parent_fd = open(s->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->parent_fd < 0) return err_errno(e, "%s: can't write there: %s", s->target, s->parent);
    if (!s->overwrite && present(s)) return refuse_existing(s, e);
    flock(s->parent_fd, LOCK_EX);
    bool ok =
        clear_leftovers(s, e) && (s->overwrite || !present(s) || refuse_existing(s, e)) && make_staging(s, e);
    flock(s->parent_fd, LOCK_UN);
    return ok;
}

static void free_stage(stage *s) {
    if (s->lock_fd >= 0) close(s->lock_fd);
    if (s->parent_fd >= 0) close(s->parent_fd);
    arena_free(s->a);
}

stage *stage_begin(const char *target, bool overwrite, err *e) {
    arena *a = arena_new();
    stage *s = ARENA_NEW(a, stage);
    *s = (stage){.a = a, .parent_fd = -1, .lock_fd = -1, .overwrite = overwrite};
    if (!begin(s, target, e)) {
        free_stage(s);
        return NULL;
    }
    pthread_mutex_lock(&open_lock);
    s->next = open_stages;
    open_stages = s;
    pthread_mutex_unlock(&open_lock);
    return s;
}

const char *stage_path(const stage *s) {
    return s->path;
}

static bool sync_file(int dir, const char *name, mode_t kind) {
    int fd = openat(dir, name, (S_ISDIR(kind) ? O_DIRECTORY : 0) | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    bool ok = true;
    if (S_ISDIR(kind)) {
        int copy = dup(fd);
        DIR *d = copy < 0 ? NULL : fdopendir(copy);
        ok = d != NULL;
        struct stat st;
        for (struct dirent *f; ok && (f = readdir(d));) {
            if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, "..")) continue;
            ok = !fstatat(fd, f->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
                 (!(S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) || sync_file(fd, f->d_name, st.st_mode));
        }
        if (d) closedir(d);
    }
    ok = ok && (!fsync(fd) || errno == EINVAL); /* EINVAL: not something that can be synced */
    int no = errno;
    close(fd);
    errno = no;
    return ok;
}

/* Without an exchange: the old output goes away first. Killed in between, the next stage_begin() puts it
 * back. */
static bool move_in_two_steps(const stage *s, err *e) {
    int dir = s->parent_fd;
    bool had = present(s);
    if (had && !s->overwrite) return refuse_existing(s, e);
    if (had && renameat(dir, s->name, dir, s->old)) return err_errno(e, "%s: can't replace it", s->target);
    if (renameat(dir, s->staging, dir, s->name)) {
        err_errno(e, "%s: can't put the output in place", s->target);
        if (had && renameat(dir, s->old, dir, s->name))
            err_where(e, "%s: the old output is at %s/%s", s->target, s->parent, s->old);
        return false;
    }
    fsync(dir);
    if (had) remove_name(s, s->old);
    return true;
}

static bool move_in(const stage *s, err *e) {
    int dir = s->parent_fd;
    bool old = present(s);
    if (old && !s->overwrite) return refuse_existing(s, e);
    if (renameat2(dir, s->staging, dir, s->name, old ? RENAME_EXCHANGE : RENAME_NOREPLACE)) {
        if (errno == EEXIST) return refuse_existing(s, e);
        if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return move_in_two_steps(s, e);
        return err_errno(e, "%s: can't put the output in place", s->target);
    }
    fsync(dir);
    if (old) remove_name(s, s->staging);
    return true;
}

/* With open_lock held: the stage belongs to its caller alone from here on. */
static void unlist(stage *s) {
    for (stage **p = &open_stages; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            return;
        }
}

bool stage_commit(stage *s, err *e) {
    bool ok = sync_file(s->parent_fd, s->staging, S_IFDIR);
    int no = errno;
    pthread_mutex_lock(&open_lock);
    unlist(s);
    errno = no;
    if (s->gone)
        ok = err_set(e, ERR_CANCELLED, "%s: cancelled", s->target);
    else if (!ok)
        err_errno(e, "%s: can't write", s->target);
    flock(s->parent_fd, LOCK_EX);
    ok = ok && move_in(s, e);
    if (!ok && !s->gone) remove_staging(s);
    flock(s->parent_fd, LOCK_UN);
    pthread_mutex_unlock(&open_lock);
    free_stage(s);
    return ok;
}

void stage_abort(stage *s) {
    if (!s) return;
    pthread_mutex_lock(&open_lock);
    unlist(s);
    if (!s->gone) remove_staging(s);
    pthread_mutex_unlock(&open_lock);
    free_stage(s);
}

void stage_abort_all(void) {
    pthread_mutex_lock(&open_lock);
    for (stage *s = open_stages; s; s = s->next) {
        /* Renamed first: threads that still write there by path make no new files in it. */
        const char *away = arena_printf(s->a, "%sx", s->staging);
        bool moved = !renameat(s->parent_fd, s->staging, s->parent_fd, away);
        remove_name(s, moved ? away : s->staging);
        s->gone = true;
    }
    pthread_mutex_unlock(&open_lock);
}
