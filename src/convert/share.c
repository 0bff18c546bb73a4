/* Weight files that lie in another artifact already, as hard links to those. What artifacts say about their
 * files only tells where to look: a file is compared byte by byte before it is linked. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/json.h"
#include "convert/job.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    const char *path;
    uint64_t bytes;
    const char *sha256;
} candidate;

typedef struct {
    arena *a;
    candidate *file;
    size_t n, cap;
} candidates;

static void add_files(candidates *c, const char *dir, const json *owner) {
    JSON_EACH(f, json_get_kind(owner, "files", JSON_ARRAY)) {
        candidate found = {json_str(f, "path", NULL), (uint64_t)json_int(f, "bytes", 0),
                           json_str(f, "sha256", NULL)};
        if (!found.path || !found.sha256 || !found.bytes) continue;
        found.path = arena_printf(c->a, "%s/%s", dir, found.path);
        c->file = arena_grow(c->a, c->file, c->n, &c->cap, c->n + 1, sizeof *c->file);
        c->file[c->n++] = found;
    }
}

/* The files that an artifact lists; none when dir is no artifact. */
static void add_artifact(candidates *c, const char *dir) {
    static const char *const names[] = {METADATA_NAME, MANIFEST_NAME};
    static const char *const lists[] = {"packages", "variants"};
    for (size_t i = 0; i < 2; i++) {
        err ignored = {0}; /* what can't be read is no place to share with */
        const char *path = arena_printf(c->a, "%s/%s", dir, names[i]);
        const json *j = file_exists(path) ? json_object_file(c->a, path, &ignored) : NULL;
        JSON_EACH(owner, json_get_kind(j, lists[i], JSON_ARRAY)) add_files(c, dir, owner);
    }
}

/* dir itself and the directories in it. */
static bool find_candidates(candidates *c, const char *dir, err *e) {
    DIR *d = opendir(dir);
    if (!d) return err_errno(e, "%s: can't look for weights to share", dir);
    add_artifact(c, dir);
    for (const struct dirent *f; (f = readdir(d));)
        if (*f->d_name != '.') add_artifact(c, arena_printf(c->a, "%s/%s", dir, f->d_name));
    closedir(d);
    return true;
}

static bool equal_files(const char *x, const char *y) {
    file_map a, b;
    err ignored = {0};
    if (!file_open_map(&a, x, &ignored)) return false;
    bool equal = file_open_map(&b, y, &ignored);
    if (equal) {
        equal = a.size == b.size;
        for (size_t at = 0, n; equal && at < a.size; at += n) {
            n = a.size - at < (16u << 20) ? a.size - at : 16u << 20;
            equal = !memcmp(a.data + at, b.data + at, n);
            file_drop(a.data + at, n);
            file_drop(b.data + at, n);
        }
        file_unmap(&b);
    }
    file_unmap(&a);
    return equal;
}

/* Puts a link to the candidate in place of the staged file. False with the reason in j->not_shared. */
static bool link_file(job *j, const char *from, const char *staged) {
    const char *fresh = arena_printf(j->a, "%s.link", staged);
    if (!link(from, fresh) && !rename(fresh, staged)) return true;
    err why = {0};
    err_errno(&why, "%s", from);
    unlink(fresh);
    j->not_shared = arena_str(j->a, why.msg);
    return false;
}

static void share(job *j, const candidates *c, const listed_file *f) {
    const char *staged = job_staged(j, f->path);
    for (size_t i = 0; i < c->n; i++) {
        const candidate *x = &c->file[i];
        if (x->bytes != f->bytes || strcmp(x->sha256, f->sha256) || !equal_files(x->path, staged)) continue;
        if (!link_file(j, x->path, staged)) continue;
        j->n_shared++;
        j->shared_bytes += f->bytes;
        return;
    }
}

bool job_share_weights(job *j, err *e) {
    if (!j->o->share_weights) return true;
    candidates c = {.a = j->a};
    if (!find_candidates(&c, j->o->share_weights, e)) return false;
    for (size_t i = 0; i < j->n_package; i++) {
        const listing *l = &j->package[i].files;
        for (size_t k = 0; k < l->n; k++) {
            size_t n = strlen(l->file[k].path);
            if (n > 4 && !strcmp(l->file[k].path + n - 4, ".bin")) share(j, &c, &l->file[k]);
        }
    }
    if (j->n_shared) j->not_shared = NULL;
    return true;
}
