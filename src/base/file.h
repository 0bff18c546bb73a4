/* Files: read-only maps, whole-file writes. */
#ifndef BASE_FILE_H
#define BASE_FILE_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *data; /* non-NULL even for an empty file */
    size_t size;
    void *hold; /* unmaps it with the heap */
} file_map;

/* Maps a regular file read-only. Pages are shared with every process that maps the same file. */
bool file_open_map(file_map *m, const char *path, err *e);
void file_unmap(file_map *m);
/* Most of it will be read, over and over: asks for large pages where the file system keeps such (a hint).
 * What isn't in memory yet is then read 2 MiB at a time. */
void file_will_stream(const file_map *m);
/* Drops the pages of data[0..n) from memory once they have been used (a hint). */
void file_drop(const void *data, size_t n);
/* Also of a name that can't be looked up (a loop of links, a directory without permission): opening it tells
 * why. */
bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* mkdir -p. */
bool file_make_dirs(const char *path, err *e);
/* Removes a file or a directory tree; an absent path is no error. */
bool file_remove_tree(const char *path, err *e);
/* Writes a whole file, mode 0644. Readers see the old content or the new, never a part. */
bool file_write(const char *path, const void *data, size_t n, err *e);

/* The same piece by piece: begin, write..., end. A path that is no regular file (a device, a pipe) is written
 * in place. */
typedef struct {
    int fd;
    const char *path; /* borrowed */
    char *staged;     /* where the bytes go until end(); NULL: path itself */
} file_out;
bool file_out_begin(file_out *o, const char *path, err *e);
bool file_out_write(file_out *o, const void *data, size_t n, err *e);
/* keep: puts the new file in place; else drops it. Releases o in any case. Returns whether the file is in
 * place. */
bool file_out_end(file_out *o, bool keep, err *e);
#endif
