#define _GNU_SOURCE
#include "base/file.h"
#include "base/json.h"
#include "convert/job.h"
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *without_slashes(arena *a, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return arena_strn(a, path, n);
}

/* The directory that holds path. */
static const char *parent_of(arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    return slash == path ? "/" : without_slashes(a, arena_strn(a, path, (size_t)(slash - path)));
}

/* path without links and dots; of a path that is not there yet, what exists of it. */
static const char *real(arena *a, const char *path) {
    for (;;) {
        char whole[PATH_MAX];
        if (realpath(path, whole)) return arena_str(a, whole);
        const char *up = parent_of(a, path);
        if (!strcmp(up, path)) return path;
        path = up;
    }
}

/* Whether path is dir or below it; both without links. */
static bool is_within(const char *path, const char *dir) {
    size_t n = strlen(dir);
    if (n == 1) return true; /* the root */
    return !strncmp(path, dir, n) && (path[n] == '/' || !path[n]);
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static bool is_empty_dir(const char *path) {
    DIR *d = opendir(path);
    bool empty = d != NULL;
    for (const struct dirent *f; d && (f = readdir(d));)
        empty = empty && (!strcmp(f->d_name, ".") || !strcmp(f->d_name, ".."));
    if (d) closedir(d);
    return empty;
}

/* Whether a conversion made what is in path: its metadata say so, or (before those existed) its package's
 * name. */
static bool is_artifact(job *j, const char *path) {
    static const char *const names[] = {METADATA_NAME, MANIFEST_NAME};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        err ignored = {0};
        const char *file = arena_printf(j->a, "%s/%s", path, names[i]);
        const json *m = file_exists(file) ? json_object_file(j->a, file, &ignored) : NULL;
        if (!strcmp(json_str(m, "format", ""), "millet") ||
            !strncmp(json_str(m, "producer", ""), "millet ", 7))
            return true;
    }
    return file_exists(arena_printf(j->a, "%s/%s", path, PACKAGE_NAME));
}

/* metadata.json of a Core AI bundle, whoever made it. */
static bool is_bundle(job *j, const char *path) {
    err ignored = {0};
    const char *file = arena_printf(j->a, "%s/" METADATA_NAME, path);
    const json *m = file_exists(file) ? json_object_file(j->a, file, &ignored) : NULL;
    return json_get(json_get(m, "assets"), "main") != NULL;
}

/* --overwrite replaces what a conversion made, never a directory of other things. */
static bool check_existing(job *j, err *e) {
    if (!file_exists(j->out)) return true;
    if (!file_is_dir(j->out)) return err_set(e, ERR_IO, "%s: exists and is not a directory", j->out);
    if (!j->o->overwrite) return err_set(e, ERR_IO, "%s: exists; --overwrite replaces it", j->out);
    if (is_empty_dir(j->out) || is_artifact(j, j->out)) return true;
    return err_set(e, ERR_IO, "%s: holds other things than a converted model; it is not overwritten", j->out);
}

static bool check_checkpoint(job *j, const char *dir, err *e) {
    j->dir = without_slashes(j->a, dir);
    if (!*dir) return err_set(e, ERR_USAGE, "the checkpoint is an empty name");
    if (!file_exists(dir))
        return err_set(e, ERR_IO, "%s: no such checkpoint directory or GGUF file (models are not fetched)",
                       dir);
    if (!file_is_dir(dir) && !ends_with(dir, ".gguf"))
        return err_set(
            e, ERR_USAGE,
            "%s: is a file that is not called .gguf; give such a file, or the checkpoint's directory "
            "(config.json, *.safetensors)",
            dir);
    j->real_dir = real(j->a, j->dir);
    return true;
}

static bool check_output(job *j, err *e) {
    const char *real_dir = j->real_dir, *real_out = real(j->a, j->out);
    if (is_within(real_out, real_dir))
        return err_set(e, ERR_USAGE, "%s: lies in the checkpoint %s; choose another place", j->out, j->dir);
    if (file_exists(j->out) && is_within(real_dir, real_out))
        return err_set(e, ERR_USAGE, "%s: holds the checkpoint %s; choose another place", j->out, j->dir);
    return check_existing(j, e);
}

/* The program in a directory that millet convert made, where it is the only one. */
static const char *program_within(arena *a, const char *dir) {
    const char *found = NULL;
    size_t n = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *f; d && (f = readdir(d));) {
        if (!ends_with(f->d_name, ".mlpackage") && !ends_with(f->d_name, ".aimodel")) continue;
        found = arena_printf(a, "%s/%s", dir, f->d_name);
        n++;
    }
    if (d) closedir(d);
    return n == 1 && convert_is_program(found) ? found : NULL;
}

/* The output is a directory around programs; who gives it a program's name expects one. */
static bool check_name(job *j, const char *place, err *e) {
    const char *end = ends_with(place, ".mlpackage") ? ".mlpackage" : ".aimodel";
    if (!ends_with(place, end)) return true;
    const char *inside = is_artifact(j, j->dir) || is_bundle(j, j->dir) ? program_within(j->a, j->dir) : NULL;
    if (inside)
        return err_set(e, ERR_USAGE, "%s: a directory around a program: give the program in it, %s", j->dir,
                       inside);
    return err_set(e, ERR_USAGE, "%s: the output is a directory that will hold %s; leave out \"%s\"", place,
                   j->coreai ? "an asset" : "packages", end);
}

bool job_check_places(job *j, const char *dir, const char *out, err *e) {
    if (!*out) return err_set(e, ERR_USAGE, "the output directory is an empty name");
    if (!check_checkpoint(j, dir, e)) return false;
    const char *place = without_slashes(j->a, out), *share = j->o->share_weights;
    if (!check_name(j, place, e)) return false;
    bool first = j->o->into && share && !strcmp(without_slashes(j->a, share), place); /* of those to come */
    if (share && !file_is_dir(share) && !(first && !file_exists(share)))
        return err_set(e, ERR_IO, "%s: no such directory of artifacts to share weights with", share);
    if (!j->o->into) {
        j->out = place;
        return check_output(j, e);
    }
    j->into = place;
    if (file_exists(place) && !file_is_dir(place))
        return err_set(e, ERR_IO, "%s: exists and is not a directory", place);
    return !is_within(real(j->a, place), j->real_dir) ||
           err_set(e, ERR_USAGE, "%s: lies in the checkpoint %s; choose another place", out, dir);
}

bool job_name_output(job *j, err *e) {
    j->out = arena_printf(j->a, "%s/%s", j->into, job_artifact_name(j));
    return check_output(j, e);
}

bool job_begin_output(job *j, err *e) {
    const char *up = parent_of(j->a, j->out);
    if (!file_is_dir(up) && !file_make_dirs(up, e)) return false;
    j->st = stage_begin(j->out, j->o->overwrite, e);
    return j->st != NULL;
}
